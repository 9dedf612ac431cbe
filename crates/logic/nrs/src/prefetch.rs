//! A hint that something will be looked at soon: the order in which queued requests leave is known
//! before they leave, and with millions of them none is in a cache when its turn comes.

/// Asks for the cache line in which `of` begins. Changes nothing but time; on other architectures
/// it does nothing.
#[inline(always)]
#[cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(unsafe_code, reason = "hints have no safe form")
)]
pub(crate) fn prefetch<T>(of: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads and writes nothing that a program can see, and faults on no address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(of).cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; the instruction names no register that it changes.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) core::ptr::from_ref(of), options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = of;
}

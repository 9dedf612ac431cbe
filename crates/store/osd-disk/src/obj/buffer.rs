//! Aligned buffers, kept for the next use: O_DIRECT needs the alignment, and a fresh MiB costs 256
//! page faults.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Alignment that every device takes for O_DIRECT: address, offset and length.
pub(crate) const ALIGN: usize = 4_096;
/// Sizes are multiples of this, so that few lists are enough ...
const STEP: usize = 1 << 20;
/// ... or this one size: of small transfers there may be many at once.
const SMALL: usize = 64 << 10;
/// Buffers larger than this are not kept: no transfer is that large.
const KEPT_STEPS_MAX: usize = 4;
/// Buffers kept of each size: what 16 threads have at once.
const KEPT_MAX: usize = 16;
/// Small buffers kept: what a ring has at once.
const KEPT_SMALL_MAX: usize = 64;

struct Raw {
    at: NonNull<u8>,
    bytes: usize, // multiple of STEP, or SMALL
}

// SAFETY: a plain piece of memory with one owner.
unsafe impl Send for Raw {}

impl Raw {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, ALIGN).expect("a size far below the address space")
    }

    fn new(bytes: usize) -> Raw {
        let layout = Raw::layout(bytes);
        // SAFETY: the size is not zero.
        let at = unsafe { alloc(layout) };
        Raw { at: NonNull::new(at).unwrap_or_else(|| handle_alloc_error(layout)), bytes }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout.
        unsafe { dealloc(self.at.as_ptr(), Raw::layout(self.bytes)) }
    }
}

/// Keeps buffers that were used: small ones, then by steps.
#[derive(Clone, Default)]
pub(crate) struct Buffers(Arc<Mutex<[Vec<Raw>; 1 + KEPT_STEPS_MAX]>>);

/// Size of a buffer for `capacity` bytes, and its list, if such ones are kept.
fn class(capacity: usize) -> (usize, Option<usize>) {
    if capacity <= SMALL {
        return (SMALL, Some(0));
    }
    let steps = capacity.div_ceil(STEP);
    (steps * STEP, (steps <= KEPT_STEPS_MAX).then_some(steps))
}

impl Buffers {
    fn lists(&self) -> MutexGuard<'_, [Vec<Raw>; 1 + KEPT_STEPS_MAX]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer for `capacity` bytes, holding none yet.
    pub(crate) fn take(&self, capacity: usize) -> Buffer {
        let (bytes, list) = class(capacity);
        let kept = list.and_then(|list| self.lists()[list].pop());
        Buffer { raw: Some(kept.unwrap_or_else(|| Raw::new(bytes))), len: 0, home: self.clone() }
    }

    fn give_back(&self, raw: Raw) {
        if let (_, Some(list)) = class(raw.bytes) {
            let kept = &mut self.lists()[list];
            if kept.len() < if list == 0 { KEPT_SMALL_MAX } else { KEPT_MAX } {
                kept.push(raw);
            }
        }
    }
}

/// An aligned buffer; goes home when it is dropped.
pub(crate) struct Buffer {
    raw: Option<Raw>, // none only while it is dropped
    len: usize,       // bytes that were filled
    home: Buffers,
}

impl Buffer {
    fn raw(&self) -> &Raw {
        self.raw.as_ref().expect("a buffer has its memory until it is dropped")
    }

    /// Where the next bytes go, and how many fit.
    pub(crate) fn spare(&mut self) -> (*mut u8, usize) {
        let raw = self.raw();
        // SAFETY: `len` is at most the size of the allocation.
        (unsafe { raw.at.as_ptr().add(self.len) }, raw.bytes - self.len)
    }

    /// Says that `count` more bytes were filled.
    ///
    /// # Safety
    /// The first `count` bytes of [`Buffer::spare`] were written.
    pub(crate) unsafe fn filled(&mut self, count: usize) {
        assert!(self.len + count <= self.raw().bytes, "nothing is written behind a buffer");
        self.len += count;
    }

    /// Appends `data`, which fits.
    pub(crate) fn extend(&mut self, data: &[u8]) {
        let (at, room) = self.spare();
        assert!(data.len() <= room, "the buffer was taken for this many bytes");
        // SAFETY: the room was checked, and a buffer does not overlap somebody else's data.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), at, data.len());
            self.filled(data.len());
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the first `len` bytes were filled.
        unsafe { std::slice::from_raw_parts(self.raw().at.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            self.home.give_back(raw);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_holds_what_was_put_in_and_comes_back() {
        let buffers = Buffers::default();
        let mut buffer = buffers.take(5);
        buffer.extend(b"hello");
        let at = buffer.as_ref().as_ptr() as usize;
        assert_eq!((buffer.as_ref(), at % ALIGN), (&b"hello"[..], 0));
        drop(buffer);
        let mut again = buffers.take(SMALL);
        assert_eq!((again.spare().0 as usize, again.as_ref().len()), (at, 0));
        assert_eq!(
            [5, SMALL, SMALL + 1, 4 << 20, 9 << 20].map(|bytes| buffers.take(bytes).spare().1),
            [SMALL, SMALL, STEP, 4 << 20, 9 << 20]
        );
    }
}

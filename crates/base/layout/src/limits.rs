//! Bounds of layouts.

/// Stripes of one file at most (Lustre: `LOV_MAX_STRIPE_COUNT`).
pub const STRIPE_COUNT_MAX: u16 = 2_000;
/// A stripe size is a multiple of this.
pub const STRIPE_SIZE_UNIT: u32 = 64 << 10;
/// Largest stripe size: 4 GiB less one unit, the last multiple in 32 bits.
pub const STRIPE_SIZE_MAX: u32 = u32::MAX - STRIPE_SIZE_UNIT + 1;
/// Stripe size of a file for which nothing else was set: 1 MiB, as in Lustre.
pub const STRIPE_SIZE_DEFAULT: u32 = 1 << 20;
/// Objects of a file on one OST at most, where a template asks for so many on each (Lustre:
/// `LOV_ALL_STRIPES_WIDE`).
pub const OVERSTRIPES_MAX: u16 = 32;
/// Stripe count of a file for which nothing else was set: one, as in Lustre.
pub const STRIPE_COUNT_DEFAULT: u16 = 1;
/// Bytes of a pool's name, its NUL included.
pub const POOL_BYTES: usize = 16;

const _: () = assert!(
    STRIPE_SIZE_MAX.is_multiple_of(STRIPE_SIZE_UNIT)
        && STRIPE_SIZE_DEFAULT.is_multiple_of(STRIPE_SIZE_UNIT)
);

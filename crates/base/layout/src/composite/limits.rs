//! Bounds of composite layouts.

use crate::STRIPE_SIZE_UNIT;

/// End of a component that reaches to the end of the file, however long it grows (Lustre:
/// `LUSTRE_EOF`).
pub const END_OF_FILE: u64 = u64::MAX;
/// Bytes of a file that the MDT may hold at most (Lustre: the bound of its tools).
pub const MDT_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a layout in Lustre's form: the value of an extended attribute.
pub const COMPOSITE_BYTES_MAX: usize = 64 << 10;
/// Ids of components are below: Lustre's upper bits name mirrors.
pub const COMPONENT_ID_MAX: u32 = 0xffff;
/// Largest step of an extendable component: the last multiple of [`STRIPE_SIZE_UNIT`] that Lustre's
/// form can say, in KiB of 32 bits.
pub const EXTENSION_BYTES_MAX: u64 =
    ((u32::MAX as u64) << 10) / STRIPE_SIZE_UNIT as u64 * STRIPE_SIZE_UNIT as u64;

const _: () = assert!(MDT_BYTES_MAX.is_multiple_of(STRIPE_SIZE_UNIT as u64));

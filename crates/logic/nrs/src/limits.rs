//! Bounds of the scheduler and where each comes from.

use types::Span;

/// Characters of a policy's name at most (Lustre: `NRS_POL_NAME_MAX` 16 with the NUL).
pub const NAME_CHARS_MAX: usize = 15;

/// Characters of a policy's argument at most (Lustre: `NRS_POL_ARG_MAX` 16 with the NUL).
pub const ARG_CHARS_MAX: usize = 15;

/// Bytes of one value written to a parameter at most (Lustre: a page without the NUL).
pub const VALUE_BYTES_MAX: usize = 4_095;

/// How long a start with another argument waits for the old instance to drain before it says EBUSY.
pub const DRAIN_WAIT: Span = Span::secs(30);

/// Policies registered on one head at most: those of this crate, with room for as many external
/// ones. A head asks each of them once per dispatch in the worst case.
pub const POLICIES_MAX: usize = 16;

/// A policy that holds requests back may be asked again no sooner than this after it was asked,
/// whatever it says: a time in the past would otherwise be a busy loop.
pub const WAIT_MIN: Span = Span::millis(1);

/// Largest quantum of a round robin policy, in its unit (Lustre: 16 bits).
pub(crate) const QUANTUM_MAX: u64 = 65_535;

/// Most idle groups that a policy can be told to keep: 136 bytes each.
pub(crate) const GROUPS_IDLE_LIMIT: u64 = 1 << 20;

/// Classes that one call of TBF attaches to new rules at most, beside the one that it is for:
/// 0.1 ms at 0.4 us a class.
pub(crate) const ATTACH_STEP: usize = 256;

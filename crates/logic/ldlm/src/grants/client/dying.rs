//! Grants that a client was asked to give up.

use types::Instant;

use crate::grants::Number;

/// A recall that is not acknowledged.
#[derive(Clone, Copy)]
pub(super) struct Dying {
    pub(super) number: Number,
    pub(super) was_told: bool,
    /// When the kernel is to be told, or forced.
    pub(super) due: Instant,
}

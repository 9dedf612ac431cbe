//! Changes that wait, and what they want.

use crate::grants::{Bits, ChangeId, HolderId, Want};

/// A change that waited or waits.
pub(super) struct Parked {
    pub(super) by: Option<HolderId>,
    pub(super) wants: Vec<Want>,
    /// [`super::Output::Ready`] was said, and nothing came in its way since.
    pub(super) is_ready: bool,
}

/// What parked changes want of one file.
#[derive(Default)]
pub(super) struct Taking {
    pub(super) bits: Bits,
    pub(super) changes: Vec<ChangeId>,
}

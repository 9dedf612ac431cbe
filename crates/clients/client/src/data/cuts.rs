//! Files whose objects are being cut.

use std::cell::RefCell;
use std::collections::BTreeMap;

use types::Fid;

/// Files whose objects this client is cutting. Until that ends, what the objects say is not the
/// size of the file, and only the truncate itself tells the MDT one.
#[derive(Default)]
pub(crate) struct Cuts(pub(super) RefCell<BTreeMap<Fid, u32>>);

impl Cuts {
    /// Whether the objects of a file are being cut.
    pub(super) fn has(&self, fid: Fid) -> bool {
        self.0.borrow().contains_key(&fid)
    }
}

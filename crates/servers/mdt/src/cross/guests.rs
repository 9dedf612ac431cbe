//! Reservations of operations of other MDTs.

use std::cell::RefCell;
use std::collections::BTreeMap;

use ldlm::grants::Want as WantedBits;
use tokio::sync::Notify;
use types::Fid;
use wire::updates::OpId;

use crate::grants::Grants;

/// Operations of other MDTs that have reserved something here.
#[derive(Default)]
pub(crate) struct Guests {
    /// Files of which nothing is granted meanwhile.
    pub(super) held: RefCell<BTreeMap<OpId, Vec<Fid>>>,
    /// Something was freed.
    pub(crate) freed: Notify,
}

impl Guests {
    /// Nothing is granted of the files that an operation changes, until it is over.
    pub(super) fn hold(&self, id: OpId, wants: &[WantedBits], grants: &mut Grants) {
        let mut held = self.held.borrow_mut();
        if held.contains_key(&id) {
            return;
        }
        let fids: Vec<Fid> = wants.iter().map(|want| want.fid).collect();
        fids.iter().for_each(|fid| grants.hold(*fid));
        held.insert(id, fids);
    }
}

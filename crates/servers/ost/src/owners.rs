//! Whose an object is: the file and the MDT's store for which it was made.
//!
//! An MDT whose store was made anew gives old ids to new files. Their objects may still be here
//! with another file's bytes. So each object's record says whose it is, every request says for whom
//! it comes, and an object of somebody else is neither shown nor changed.
//!
//! What records say is remembered for the objects used last, because records cannot be read while a
//! commit is under way.

use std::cell::RefCell;
use std::collections::BTreeMap;

use osd::{StoreError, View};
use service::Incoming;
use types::{Errno, Fid};
use wire::body::{Claim, WireFid};

use crate::limits::OWNERS_MAX;
use crate::op::object_record;
use crate::record::{ObjectRecord, Owner};
use crate::target::Ost;

/// Owners of the objects used last.
#[derive(Default)]
pub(crate) struct Owners(RefCell<BTreeMap<Fid, Owner>>);

impl Owners {
    fn get(&self, object: Fid) -> Option<Owner> {
        self.0.borrow().get(&object).copied()
    }

    fn note(&self, object: Fid, owner: Owner) {
        let mut known = self.0.borrow_mut();
        if known.len() >= OWNERS_MAX {
            known.clear();
        }
        known.insert(object, owner);
    }

    /// The object goes.
    pub(crate) fn forget(&self, object: Fid) {
        self.0.borrow_mut().remove(&object);
    }
}

/// For whom a request comes. Every client has a session with the MDT of its file: one that names
/// none is refused.
pub(crate) fn claimed(parent: WireFid, claim: &Claim) -> Result<Owner, Errno> {
    if claim.store == 0 || claim.session == 0 {
        return Err(Errno::EPROTO);
    }
    Ok(Owner { parent: parent.into(), store: claim.store })
}

/// Whether an object with this record is another store's.
pub(crate) fn is_foreign(record: Option<&ObjectRecord>, store: u64) -> bool {
    let owner = record.and_then(ObjectRecord::owner);
    store != 0 && owner.is_some_and(|owner| owner.store != store)
}

/// Owner of an object once `claimed` has changed it: the first one stays.
pub(crate) fn owner_after(
    view: &dyn View,
    object: Fid,
    claimed: Owner,
) -> Result<Owner, StoreError> {
    Ok(object_record(view, object)?.and_then(|record| record.owner()).unwrap_or(claimed))
}

impl Ost {
    /// Refuses an object that is not `claimed`'s. Called under the object's lock.
    pub(crate) async fn check_owner(
        &self,
        incoming: &Incoming,
        object: Fid,
        claimed: Owner,
    ) -> Result<(), Errno> {
        let owner = match self.owners.get(object) {
            Some(owner) => Some(owner),
            None => {
                let record = self.store.look(|view| object_record(view, object)).await?;
                record.and_then(|record| record.owner())
            }
        };
        let Some(owner) = owner else { return Ok(()) };
        self.owners.note(object, owner);
        if owner == claimed {
            return Ok(());
        }
        planted::reached("ost: an object of another file was refused");
        tracing::error!(
            %object,
            owner = %owner.parent,
            store = owner.store,
            claimed = %claimed.parent,
            by_store = claimed.store,
            client = %incoming.session.name,
            "refused: the object belongs to another file"
        );
        Err(Errno::EIO)
    }
}

//! The owner of an object: the file and the MDT's store for which it was made, and the layouts of
//! the file under which it may be used.
//!
//! An MDT whose store was formatted again gives old ids to new files. Their objects may still be
//! here with another file's bytes. So each object's record names its owner, and every request names
//! the owner for which it comes. An object of another owner is neither shown nor changed.
//!
//! Before a file moves to another MDT, its objects are *lent* to files of that MDT (`raise`). Then
//! both the file and the one that takes its place may use them. A sweep of ids leaves them alone,
//! because the MDT that gave the ids does not know their file any more.
//!
//! A client that takes bytes away from an object first sends it the first layout version without
//! these bytes (`raise`). Clients that map by an older layout are refused (ESTALE), and ask the MDT
//! for a later one.
//!
//! The contents of records are cached for the objects used last, because records cannot be read
//! while a commit is under way.

use std::cell::RefCell;
use std::collections::BTreeMap;

use osd::{StoreError, View};
use types::{Errno, Fid, Timespec};
use wire::body::{Claim, WireFid};

use crate::limits::OWNERS_MAX;
use crate::mdts::Mdts;
use crate::record::{NO_LAYOUT, ObjectRecord, Owner, object_record};

/// What the record of an object says to those who use it.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) owner: Owner,
    pub(crate) layout_version: u32,
    /// The MDT whose files may use it, too.
    lent: Option<u32>,
}

impl Known {
    pub(crate) fn is_of(&self, claimed: &Owner) -> bool {
        self.owner == *claimed || self.lent == Some(claimed.parent.mdt_index())
    }
}

/// Owners of the objects used last.
#[derive(Default)]
pub(crate) struct Owners(RefCell<BTreeMap<Fid, Known>>);

impl Owners {
    pub(crate) fn get(&self, object: Fid) -> Option<Known> {
        self.0.borrow().get(&object).copied()
    }

    pub(crate) fn note(&self, object: Fid, owner: Known) {
        let mut known = self.0.borrow_mut();
        if known.len() >= OWNERS_MAX {
            known.clear();
        }
        known.insert(object, owner);
    }

    /// Whether the record of an object, which was just read, says that no layout may use it.
    pub(crate) fn is_gone(&self, object: Fid) -> bool {
        self.get(object).is_some_and(|known| known.layout_version == NO_LAYOUT)
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

/// Whether an object with this record is another store's; `mdts` knows the stores.
pub(crate) fn is_foreign(record: Option<&ObjectRecord>, store: u64, mdts: &Mdts) -> bool {
    let owner = record.and_then(ObjectRecord::owner);
    let lent = record.and_then(ObjectRecord::lent);
    let is_lent = lent.is_some_and(|mdt| mdts.store_of(mdt) == Some(store));
    store != 0 && !is_lent && owner.is_some_and(|owner| owner.store != store)
}

/// Record of an object once `claimed` has changed it at `mtime`: the first owner stays, what it
/// was told of layouts, and its last change but this one.
pub(crate) fn record_after(
    view: &dyn View,
    object: Fid,
    claimed: Owner,
    mtime: Timespec,
) -> Result<ObjectRecord, StoreError> {
    let before = object_record(view, object)?;
    let owner = before.and_then(|record| record.owner()).unwrap_or(claimed);
    let record = ObjectRecord::new(owner, mtime);
    Ok(before.map_or(record, |before| {
        let record = record.since_version(before.layout_version()).lent_as(&before);
        record.changed_by(before.changed())
    }))
}

/// What a record says, if it names an owner.
pub(crate) fn known(record: &ObjectRecord) -> Option<Known> {
    let (layout_version, lent) = (record.layout_version(), record.lent());
    record.owner().map(|owner| Known { owner, layout_version, lent })
}

//! The scrub's looks at inodes, and where a pass is stored.

use std::rc::Rc;

use osd::{StoreError, Table, View, WriteSet};
use target::Decided;
use types::Fid;
use wire::SizeState;

use super::scrub::{Facts, LOOK, SLICE, Slice, Step};
use crate::keys;
use crate::record::Inode;
use crate::target::Mdt;

/// Scrubs for as long as the instance runs.
pub(crate) async fn run(mdt: Rc<Mdt>) {
    let wanted = mdt.engine.state.borrow().som.scrub_wanted.clone();
    while mdt.exports.is_recovering() && !mdt.is_stopped() {
        mdt.env.sleep(LOOK).await;
    }
    if let Ok(Some(at)) = mdt.persist(|| stored(&*mdt.engine.store.meta().running()?)).await {
        mdt.engine.state.borrow_mut().som.scrub.resume(at);
    }
    while !mdt.is_stopped() {
        let step = mdt.scrub_step();
        match step {
            Step::Wait(until) => {
                let _another = mdt.env.timeout_at(until, wanted.notified()).await;
            }
            Step::Look(from) => scrub(&mdt, from).await,
        }
    }
}

async fn scrub(mdt: &Rc<Mdt>, from: Fid) {
    let sliced = mdt.persist(|| slice(&*mdt.engine.store.meta().running()?, from, SLICE)).await;
    let now = mdt.env.now();
    let to_store = {
        let som = &mut mdt.engine.state.borrow_mut().som;
        match &sliced {
            Ok(slice) => {
                som.scrub.looked(slice, som.config.scrub_rate, now);
                slice.dirty.iter().for_each(|fid| som.found(*fid));
            }
            Err(errno) => {
                tracing::warn!(target: "mdt", %from, %errno, "the scrub of sizes stops here");
                som.scrub.failed(now);
            }
        }
        som.scrub.store_due()
    };
    if let Some(at) = to_store
        && let Err(errno) = mdt.persist(|| store(mdt, at)).await
    {
        tracing::debug!(target: "mdt", %errno, "the place of the scrub is not stored");
    }
}

impl Mdt {
    fn scrub_step(&self) -> Step {
        let (now, requests) = (self.env.now(), self.tally.total());
        let som = &mut self.engine.state.borrow_mut().som;
        let (has_room, dropped) = (som.queue.has_room(), som.queue.dropped());
        let rate = if som.config.repair { som.config.scrub_rate } else { 0 };
        som.scrub.poll(&Facts { now, requests, rate, has_room, dropped })
    }
}

/// DIRTY files among some inodes. A record that cannot be read is passed over.
pub(super) fn slice(view: &dyn View, from: Fid, most: usize) -> Decided<Slice> {
    let mut slice = Slice::default();
    let scanned = view.scan(Table::Inodes, &from.to_key(), &mut |key, value| {
        let Some(fid) = Fid::from_key(key) else { return true };
        if slice.looked == most as u64 {
            slice.next = Some(fid);
            return false;
        }
        slice.looked += 1;
        let is_dirty =
            |inode: &Inode| inode.attr.is_file() && inode.attr.size_state() == SizeState::Dirty;
        if Inode::decode(value).as_ref().is_some_and(is_dirty) {
            slice.dirty.push(fid);
        }
        true
    });
    match scanned {
        Err(StoreError::Damaged { key, .. }) => {
            slice.looked = (slice.looked + 1).min(most as u64); // it costs as much as another
            slice.next = behind(&key);
        }
        scanned => scanned?,
    }
    assert!(slice.looked <= most as u64, "others get their turn");
    Ok(slice)
}

/// The first FID behind that of a key.
fn behind(key: &[u8]) -> Option<Fid> {
    let next = u128::from_be_bytes(Fid::from_key(key)?.to_key()).checked_add(1)?;
    Fid::from_key(&next.to_be_bytes())
}

/// Where an earlier run has been.
fn stored(view: &dyn View) -> Decided<Option<Fid>> {
    let at = view.get(Table::Meta, keys::META_SOM_SCRUB)?;
    Ok(at.and_then(|at| Fid::from_key(&at)))
}

fn store(mdt: &Mdt, at: Option<Fid>) -> Decided<()> {
    let mut set = WriteSet::new();
    match at {
        Some(at) => set.put(Table::Meta, keys::META_SOM_SCRUB, at.to_key()),
        None => set.delete(Table::Meta, keys::META_SOM_SCRUB),
    }
    Ok(mdt.engine.apply_own(&set)?)
}

#[cfg(test)]
mod tests {
    use osd::MetaStore;
    use types::Timespec;
    use wire::Attr;
    use wire::attr::{S_IFDIR, S_IFREG};

    use super::*;
    use crate::tests::store::TestStore;

    fn fid(oid: u32) -> Fid {
        Fid::new(0x400, oid)
    }

    #[test]
    fn a_slice_finds_dirty_files_and_where_the_next_one_begins() {
        let store = TestStore::default();
        let mut set = WriteSet::new();
        for (oid, mode, state) in [
            (1, S_IFREG, SizeState::Dirty),
            (2, S_IFREG, SizeState::Clean),
            (3, S_IFDIR, SizeState::Dirty),
            (4, S_IFREG, SizeState::Dirty),
            (9, S_IFREG, SizeState::Dirty),
        ] {
            let attr = Attr { mode, size_state: state as u32, ..Attr::default() };
            let inode = Inode {
                attr: attr.with_fid(fid(oid)),
                flags: 0,
                parent: Fid::ROOT,
                mtime_set: Timespec::default(),
                stripes: layout::StripeSet::default(),
                depth: 0,
                symlink: Vec::new(),
            };
            set.put(Table::Inodes, fid(oid).to_key(), inode.encode());
        }
        store.apply(&set).expect("there is room");
        let of = |from, most| {
            let view = store.running().expect("it can be read");
            slice(&*view, from, most).expect("it can be read")
        };
        let (dirty, next) = (vec![fid(1), fid(4)], Some(fid(9)));
        assert_eq!(of(Fid::ZERO, 4), Slice { looked: 4, dirty, next });
        assert_eq!(of(fid(9), 4), Slice { looked: 1, dirty: vec![fid(9)], next: None });
    }

    #[test]
    fn behind_a_record_that_cannot_be_read_is_the_next_one() {
        let last = Fid { ver: u32::MAX, ..fid(5) };
        assert_eq!(behind(&fid(5).to_key()), Some(Fid { ver: 1, ..fid(5) }));
        assert_eq!(behind(&last.to_key()), Some(fid(6)));
        assert_eq!(behind(&[0xff; 16]), None);
    }
}

//! The operations of several MDTs that this MDT knows of: the state that decisions need.
//!
//! Invariants
//! - The operations of a coordinator below its mark are done everywhere. A part of one that comes
//!   again is not executed again.
//! - A mark never passes an operation that its coordinator has drawn and not ended.
//! - Numbers of one run never reach those of the next one.

use std::collections::{BTreeMap, BTreeSet};

use osd::{StoreError, Table, View, WriteSet};
use wire::updates::{self, OpId, Record};

use super::reserve::Reserved;
use crate::keys;
use crate::limits::{OPS_LEFT_AT_END, OPS_OF_RUN_MAX};

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Crossed {
    /// Index of this MDT.
    pub(crate) here: u32,
    instance: u64,
    count: u64,
    /// Numbers that are drawn and not ended.
    active: BTreeSet<u64>,
    /// Marks by coordinator.
    done: BTreeMap<u32, u64>,
    /// Operations whose records are in the store.
    recorded: BTreeSet<OpId>,
    /// MDTs with which this one changed something together, as the store says.
    pub(crate) peers: BTreeSet<u32>,
    /// Operations of other MDTs that were given up: a preparation of one may still be under way.
    released: BTreeSet<OpId>,
    /// Instances of other MDTs that are over: nothing of them is reserved any more.
    over: BTreeMap<u32, u64>,
    pub(crate) reserved: Reserved,
}

impl Crossed {
    /// As the store has it.
    ///
    /// # Errors
    /// What the store answers; a record that cannot be read.
    pub(crate) fn open(
        view: &dyn View,
        here: u32,
        instance: u64,
    ) -> Result<(Crossed, Vec<Record>), StoreError> {
        let mut crossed = Crossed { here, instance, ..Crossed::default() };
        let mut own = Vec::new();
        let mut broken = None;
        view.scan(Table::Updates, &[0], &mut |key, value| {
            let record = updates::decode::<Record>(value);
            match OpId::from_key(key).zip(record).filter(|(id, record)| *id == record.id) {
                Some((id, record)) => {
                    crossed.recorded.insert(id);
                    if id.mdt == here {
                        crossed.active.insert(id.number);
                        own.push(record);
                    }
                }
                None => broken = Some(key.to_vec()),
            }
            broken.is_none()
        })?;
        if let Some(key) = broken {
            return Err(StoreError::Damaged { table: Table::Updates, key });
        }
        view.scan_within((Table::Meta, keys::META_DONE), keys::META_DONE, &mut |key, value| {
            let mdt = key[keys::META_DONE.len()..].try_into().map(u32::from_be_bytes);
            let below = value.try_into().map(u64::from_le_bytes);
            crossed.done.extend(mdt.ok().zip(below.ok()));
            true
        })?;
        view.scan_within((Table::Meta, keys::META_PEER), keys::META_PEER, &mut |key, _| {
            let mdt = key[keys::META_PEER.len()..].try_into().map(u32::from_be_bytes);
            crossed.peers.extend(mdt);
            true
        })?;
        Ok((crossed, own))
    }

    /// Names a new operation of this MDT.
    pub(crate) fn draw(&mut self) -> OpId {
        self.count += 1;
        assert!(self.count <= OPS_OF_RUN_MAX, "the run ends before");
        let number = self.instance << 32 | self.count;
        self.active.insert(number);
        OpId { mdt: self.here, number }
    }

    /// Whether this run must end: few numbers are left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.count >= OPS_OF_RUN_MAX - OPS_LEFT_AT_END
    }

    /// An operation of this MDT is done everywhere, or was given up.
    pub(crate) fn ended(&mut self, id: OpId) {
        self.active.remove(&id.number);
    }

    /// The store refused an operation for which this number was drawn. Another attempt draws anew.
    pub(crate) fn not_applied(&mut self, drawn: Option<OpId>) {
        drawn.into_iter().for_each(|id| self.ended(id));
    }

    /// An operation of this MDT goes on: it was replayed.
    pub(crate) fn resumed(&mut self, id: OpId) {
        self.active.insert(id.number);
    }

    /// Own operations below this number are done everywhere.
    pub(crate) fn own_mark(&self) -> u64 {
        let next = self.instance << 32 | (self.count + 1);
        self.active.first().copied().unwrap_or(next)
    }

    /// The mark of a coordinator.
    pub(crate) fn mark(&self, mdt: u32) -> u64 {
        self.done.get(&mdt).copied().unwrap_or(0)
    }

    /// Whether this MDT has executed its part.
    pub(crate) fn has(&self, id: OpId) -> bool {
        id.number < self.mark(id.mdt) || self.recorded.contains(&id)
    }

    /// The record of an operation is in the store.
    pub(crate) fn record(&mut self, id: OpId) {
        self.recorded.insert(id);
    }

    /// What the store has to change so that some operations of `mdt` below this number are
    /// forgotten, `most` at most, and below which number these are; nothing if it has none.
    /// [`Crossed::forgot`] follows once that is applied.
    pub(crate) fn forget(&self, mdt: u32, below: u64, most: usize) -> Option<(WriteSet, u64)> {
        assert!(most > 0, "it gets on");
        if below <= self.mark(mdt) {
            return None;
        }
        let mut set = WriteSet::new();
        let mut ids = self.below(mdt, below);
        let first = ids.next().map(|id| id.to_key());
        let upto = ids.nth(most - 1).map_or(below, |id| id.number);
        if let Some(first) = first {
            set.delete_range(Table::Updates, first, OpId { mdt, number: upto }.to_key());
        }
        set.put(Table::Meta, keys::of_mdt(keys::META_DONE, mdt), upto.to_le_bytes());
        Some((set, upto))
    }

    /// Operations of `mdt` below this number are forgotten.
    pub(crate) fn forgot(&mut self, mdt: u32, below: u64) {
        for id in self.below(mdt, below).copied().collect::<Vec<_>>() {
            self.recorded.remove(&id);
        }
        let mark = self.done.entry(mdt).or_default();
        *mark = below.max(*mark);
        let mark = *mark;
        self.released.retain(|id| id.mdt != mdt || id.number >= mark);
    }

    /// Whether nothing is under way with other MDTs.
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty() && self.recorded.is_empty() && self.reserved.is_empty()
    }

    /// An operation of another MDT was given up.
    pub(crate) fn release(&mut self, id: OpId) {
        self.released.insert(id);
    }

    fn below(&self, mdt: u32, below: u64) -> impl Iterator<Item = &OpId> {
        let from = OpId { mdt, number: 0 };
        self.recorded.range(from..OpId { mdt, number: below })
    }

    /// Nothing of earlier instances of `mdt` than this one is under way; returns the operations
    /// that had something reserved here.
    pub(crate) fn instance_over(&mut self, mdt: u32, instance: u64) -> Vec<OpId> {
        let over = self.over.entry(mdt).or_default();
        *over = instance.max(*over);
        self.released.retain(|id| id.mdt != mdt || id.instance() >= instance);
        let ops = self.reserved.ops().into_iter();
        ops.filter(|id| id.mdt == mdt && id.instance() < instance).collect()
    }

    /// The first number of the run behind all operations of `mdt` that are known here; zero if none
    /// is.
    pub(crate) fn above(&self, mdt: u32) -> u64 {
        let recorded = self.below(mdt, u64::MAX).map(|id| id.instance()).max();
        let ops = self.reserved.ops().into_iter().filter(|id| id.mdt == mdt);
        let reserved = ops.map(OpId::instance).max();
        recorded.max(reserved).map_or(0, |instance| (instance + 1) << 32)
    }

    /// Whether an operation must reserve nothing any more: it is executed or given up, or its
    /// instance is over.
    pub(crate) fn is_over(&self, id: OpId) -> bool {
        let is_late = self.over.get(&id.mdt).is_some_and(|instance| id.instance() < *instance);
        is_late || self.has(id) || self.released.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use osd::MetaStore;

    use super::*;
    use crate::limits::FORGET_MAX;
    use crate::tests::store::TestStore;

    #[test]
    fn a_mark_passes_no_operation_that_goes_on() {
        let mut crossed = Crossed { here: 2, instance: 5, ..Crossed::default() };
        let (one, other) = (crossed.draw(), crossed.draw());
        assert_eq!((one.number, one.instance()), (5 << 32 | 1, 5));
        crossed.ended(other);
        assert_eq!(crossed.own_mark(), one.number);
        crossed.ended(one);
        assert_eq!(crossed.own_mark(), other.number + 1);
        crossed.resumed(OpId { mdt: 2, number: 4 << 32 | 9 });
        assert_eq!(crossed.own_mark(), 4 << 32 | 9);
    }

    #[test]
    fn a_run_ends_before_its_numbers_are_those_of_the_next_one() {
        let mut crossed = Crossed { instance: 1, count: OPS_OF_RUN_MAX - 1, ..Crossed::default() };
        assert!(
            crossed.is_used_up() && !Crossed { instance: 1, ..Crossed::default() }.is_used_up()
        );
        assert_eq!(crossed.draw().instance(), 1);
        assert!(std::panic::catch_unwind(move || crossed.draw()).is_err());
    }

    #[test]
    fn what_is_done_everywhere_is_forgotten_and_not_executed_again() {
        let meta = TestStore::default();
        let id = |number| OpId { mdt: 1, number };
        let mut set = WriteSet::new();
        for number in [3, 4, 7] {
            let record = Record {
                id: id(number),
                time: (0, 0),
                parts: Vec::new(),
                reply: Default::default(),
            };
            set.put(Table::Updates, id(number).to_key(), updates::encode(&record));
        }
        meta.apply(&set).expect("room");
        let reopened = || Crossed::open(&*meta.running().expect("ready"), 0, 1).expect("reads").0;
        let mut crossed = reopened();
        assert!(crossed.has(id(4)) && !crossed.has(id(5)));
        let (set, upto) = crossed.forget(1, 5, FORGET_MAX).expect("something to forget");
        assert_eq!(upto, 5);
        meta.apply(&set).expect("room");
        crossed.forgot(1, 5);
        assert!(crossed.forget(1, 5, FORGET_MAX).is_none());
        for crossed in [crossed, reopened()] {
            assert!(crossed.has(id(3)) && crossed.has(id(4)) && crossed.has(id(7)));
            assert!(!crossed.has(id(5)) && !crossed.has(id(6)));
            assert_eq!(crossed.mark(1), 5);
        }
        assert_eq!(meta.table(Table::Updates).len(), 1);
    }

    #[test]
    fn operations_of_a_forgotten_mdt_are_known_by_their_records_and_keys() {
        let mut crossed = Crossed::default();
        let id = |mdt, instance: u64| OpId { mdt, number: instance << 32 | 7 };
        assert_eq!(crossed.above(1), 0);
        crossed.record(id(1, 3));
        crossed.record(id(2, 9));
        assert_eq!(crossed.above(1), 4 << 32);
        assert!(crossed.reserved.reserve(id(1, 5), &[]) && crossed.reserved.reserve(id(2, 8), &[]));
        assert_eq!((crossed.above(1), crossed.above(2), crossed.above(3)), (6 << 32, 10 << 32, 0));
        assert_eq!(crossed.instance_over(1, 6), [id(1, 5)]);
    }

    #[test]
    fn many_operations_are_forgotten_in_sets_of_bounded_size() {
        let mut crossed = Crossed::default();
        (1..=2 * FORGET_MAX as u64).for_each(|number| crossed.record(OpId { mdt: 1, number }));
        let (mut sets, below) = (Vec::new(), 1 << 32);
        let few = crossed.forget(1, below, 3).expect("something to forget");
        assert_eq!((few.0.ranges.len(), few.1), (1, 4), "on a full store");
        while let Some((mut set, upto)) = crossed.forget(1, below, FORGET_MAX) {
            crossed.forgot(1, upto);
            let range = set.ranges.remove(0);
            let holds = |number: &u64| {
                range.holds(Table::Updates, &OpId { mdt: 1, number: *number }.to_key())
            };
            let held = (1..=2 * FORGET_MAX as u64).filter(holds).count();
            sets.push((held, set.changes.len(), upto)); // the mark
        }
        assert_eq!(sets, [(FORGET_MAX, 1, FORGET_MAX as u64 + 1), (FORGET_MAX, 1, below)]);
        assert!(crossed.is_idle());
    }
}

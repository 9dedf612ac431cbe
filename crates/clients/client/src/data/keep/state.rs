//! Kept writes and attributes of files, and the room for them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tokio::sync::Notify;
use types::{Extent, Instant, TargetId};

use super::brought::Brought;
use super::kept_attrs::{KeptAttrs, Unsettled};
use super::room::Room;
use super::run::Run;
use crate::handle::Open;
use crate::inode::Inode;

/// What each OST is to have room for.
pub(super) type Costs = BTreeMap<TargetId, u64>;

/// A run, for whom it is sent, and the room that it takes.
pub(super) struct Kept {
    pub(super) run: Run,
    pub(super) open: Rc<Open>,
    pub(super) costs: Costs,
}

/// What is kept of one file, and what of that is being sent.
#[derive(Default)]
pub(crate) struct Keeping {
    pub(super) kept: RefCell<Option<Kept>>,
    pub(super) drawn: Cell<u64>,
    /// What each run under way covers, and since when.
    pub(super) flights: RefCell<BTreeMap<u64, (Extent, Instant)>>,
    pub(super) landed: Notify,
    /// The end of the file, if nothing but kept writes can move it.
    pub(super) end: Cell<Option<End>>,
    /// Changes under way that may move the end in another way, and how many there were.
    pub(super) reshaping: Cell<u32>,
    pub(super) reshaped: Cell<u64>,
    /// Who waits until everything is sent, or wants nothing to be kept.
    pub(super) pauses: Cell<u32>,
    /// Recalls among them, by their numbers.
    pub(super) recalled: RefCell<BTreeSet<u64>>,
    pub(super) has_timer: Cell<bool>,
    /// Changes of attributes.
    pub(crate) attrs: KeptAttrs,
}

/// The end of a file as of some recalls: after another one, another client may have moved it.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) at: u64,
    pub(super) recalls: u64,
}

/// A change that may move the end of a file, and is not kept.
pub(crate) struct Reshaping(Rc<Inode>);

impl Reshaping {
    pub(crate) fn begin(inode: &Rc<Inode>) -> Reshaping {
        let keeping = &inode.keeping;
        keeping.reshaping.set(keeping.reshaping.get() + 1);
        keeping.has_moved();
        Reshaping(inode.clone())
    }
}

impl Drop for Reshaping {
    fn drop(&mut self) {
        let keeping = &self.0.keeping;
        keeping.reshaping.set(keeping.reshaping.get() - 1);
        keeping.has_moved();
    }
}

/// Nothing of a file is kept until this ends.
pub(crate) struct Pause(Rc<Inode>);

impl Pause {
    pub(crate) fn begin(inode: &Rc<Inode>) -> Pause {
        inode.keeping.pauses.set(inode.keeping.pauses.get() + 1);
        Pause(inode.clone())
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        let keeping = &self.0.keeping;
        keeping.pauses.set(keeping.pauses.get() - 1);
    }
}

impl Keeping {
    /// The end may be elsewhere.
    pub(crate) fn has_moved(&self) {
        self.end.set(None);
        self.reshaped.set(self.reshaped.get() + 1);
    }

    /// To be handed to [`super::learn_end`] by a look that begins now.
    pub(in crate::data) fn shape(&self) -> u64 {
        self.reshaped.get()
    }

    /// A kept write ends there.
    pub(super) fn reaches(&self, at: u64) {
        match self.end.get() {
            Some(end) => self.end.set(Some(End { at: end.at.max(at), ..end })),
            None => self.has_moved(),
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.kept.borrow().is_none() && self.has_landed()
    }

    /// Whether bytes or attributes are kept, or being sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.is_clean() || !self.attrs.is_clean()
    }

    /// Whether no run is under way.
    pub(crate) fn has_landed(&self) -> bool {
        self.flights.borrow().is_empty()
    }

    /// Returns when all runs that are under way now are executed, or lost.
    pub(super) async fn all_landed(&self) {
        let last = self.drawn.get();
        loop {
            let landed = self.landed.notified();
            if self.flights.borrow().range(..=last).next().is_none() {
                return;
            }
            landed.await;
        }
    }

    /// Bytes that are kept, or under way.
    pub(super) fn bytes(&self) -> u64 {
        let kept = self.kept.borrow().as_ref().map_or(0, |kept| kept.run.len() as u64);
        let flights = self.flights.borrow();
        kept + flights.values().map(|(extent, _)| extent.end() - extent.start()).sum::<u64>()
    }

    /// When the oldest of them were written.
    pub(super) fn since(&self) -> Option<Instant> {
        let kept = self.kept.borrow().as_ref().map(|kept| kept.run.begun());
        let flights = self.flights.borrow();
        flights.values().map(|(_, begun)| *begun).chain(kept).min()
    }
}

/// What is kept of all files.
#[derive(Default)]
pub(crate) struct Keeper {
    pub(super) bytes: Cell<usize>,
    pub(super) rooms: RefCell<BTreeMap<TargetId, Room>>,
    pub(super) stats: Cell<KeptStats>,
    pub(super) unsettled: Unsettled,
    /// Files whose closes brought their bytes.
    pub(crate) brought: Brought,
}

/// Writes that were acknowledged before they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptStats {
    /// Writes that were kept.
    pub writes: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Runs of them that were sent.
    pub runs: u64,
    /// Small writes that found no room reserved.
    pub no_room: u64,
    /// Changes of attributes that were kept.
    pub setattrs: u64,
}

impl Keeper {
    pub(super) fn count(&self, change: impl FnOnce(&mut KeptStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    /// Takes room at all these OSTs, or at none.
    pub(super) fn take(&self, costs: &Costs) -> bool {
        let mut rooms = self.rooms.borrow_mut();
        let mut taken = Costs::new();
        for (ost, bytes) in costs {
            if !rooms.entry(*ost).or_default().take(*bytes) {
                drop(rooms);
                self.give_back(&taken);
                return false;
            }
            taken.insert(*ost, *bytes);
        }
        true
    }

    pub(super) fn give_back(&self, costs: &Costs) {
        let mut rooms = self.rooms.borrow_mut();
        for (ost, bytes) in costs {
            rooms.entry(*ost).or_default().give_back(*bytes);
        }
    }

    pub(super) fn sent(&self, costs: &Costs) {
        let mut rooms = self.rooms.borrow_mut();
        for (ost, bytes) in costs {
            rooms.entry(*ost).or_default().sent(*bytes);
        }
    }
}

//! Recalls at the client: the client notifies the kernel first, and then the MDT.
//!
//! ```text
//! held --recall--> dying --kernel has taken it, or kept nothing--> acknowledged, gone
//!                    | 20 ms: Notify.force, everything of the mount is stale at once
//! ```
//! A call in the kernel may hold a directory's lock while it waits for a change. Until that call
//! returns, the kernel takes no invalidation in that directory, and the change may be waiting for
//! this very acknowledgement. After 20 ms the client stops waiting for the kernel: it makes all
//! names stale in a way that never waits.

use types::{Fid, Instant};

use super::Cache;
use super::dying::Dying;
use crate::grants::limits::{DISTRUSTED, DISTRUSTED_MAX, NOTIFY_STUCK};
use crate::grants::{Ack, Bits, Number, Recall};

/// What the kernel is to be told. [`Cache::notified`] follows with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// Of this file.
    pub fid: Fid,
    /// These bits.
    pub bits: Bits,
    /// Of the recall.
    pub number: Number,
    /// It was told before and has not answered: make all names stale, which never waits.
    pub force: bool,
}

impl Cache {
    /// The MDT asks for bits back. It may ask again, and late.
    pub fn recall(&mut self, recall: Recall, now: Instant) {
        let Recall { fid, bits, number } = recall;
        let asked = self.dying.get(&fid).map_or(number, |dying| dying.number.max(number));
        let place = self.find(fid).unwrap_or_else(|| self.enter(fid, now));
        let entry = self.slab.get_mut(place);
        entry.dead = entry.dead.max(number);
        entry.dying |= bits & entry.bits;
        let is_kept = entry.told_until > now && !entry.dying.is_empty();
        let is_early = self.config.bugs.ack_before_notify();
        if !is_kept || is_early {
            self.acknowledge(fid, asked);
            return;
        }
        if self.dying.get(&fid).is_none_or(|dying| dying.number < number) {
            self.dies(fid, Dying { number, was_told: false, due: Instant::default() });
        }
    }

    fn dies(&mut self, fid: Fid, dying: Dying) {
        self.no_longer_dies(fid);
        self.dying.insert(fid, dying);
        self.due.insert((dying.due, fid));
    }

    fn no_longer_dies(&mut self, fid: Fid) {
        if let Some(dying) = self.dying.remove(&fid) {
            self.due.remove(&(dying.due, fid));
        }
    }

    pub(super) fn forget_dying(&mut self) {
        self.dying.clear();
        self.due.clear();
    }

    /// What to tell the kernel now.
    pub fn poll_notify(&mut self, now: Instant) -> Option<Notify> {
        let never_forces = self.config.bugs.stuck_kernel_waits();
        let (due, fid) = self.due.first().copied()?;
        let Dying { number, was_told: force, .. } = self.dying[&fid];
        if due > now || (force && never_forces) {
            return None;
        }
        self.dies(fid, Dying { number, was_told: true, due: now + NOTIFY_STUCK });
        let place = self.find(fid).expect("a dying grant has an entry");
        Some(Notify { fid, bits: self.slab.get(place).dying, number, force })
    }

    /// When [`Cache::poll_notify`] has more.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let (due, fid) = self.due.first()?;
        let is_never = self.config.bugs.stuck_kernel_waits() && self.dying[fid].was_told;
        (!is_never).then_some(*due)
    }

    /// The kernel has taken what that notification said; it keeps nothing of it any more.
    pub fn notified(&mut self, fid: Fid, number: Number) {
        if self.dying.get(&fid).is_some_and(|dying| dying.number == number) {
            self.acknowledge(fid, number);
        }
    }

    /// The kernel was stuck in this directory: it gets no validity there for a while.
    pub fn distrust(&mut self, directory: Fid, now: Instant) {
        if self.distrusted.len() >= DISTRUSTED_MAX {
            self.distrusted.clear();
        }
        self.distrusted.insert(directory, now + DISTRUSTED);
    }

    /// A request that this client sends names these bits of a file, which are dying: the kernel
    /// holds its locks for that very call and corrects itself, so the acknowledgement may ride
    /// along. What else is dying of the file is not given up early.
    pub fn give_up_early(&mut self, fid: Fid, bits: Bits) -> Option<Ack> {
        let dying = *self.dying.get(&fid)?;
        let place = self.find(fid)?;
        if !bits.contains(self.slab.get(place).dying) {
            return None;
        }
        self.acknowledge(fid, dying.number);
        self.acks.pop()
    }

    /// Acknowledgements to send.
    pub fn poll_acks(&mut self) -> Vec<Ack> {
        std::mem::take(&mut self.acks)
    }

    fn acknowledge(&mut self, fid: Fid, number: Number) {
        self.no_longer_dies(fid);
        if let Some(place) = self.find(fid) {
            let entry = self.slab.get_mut(place);
            let dying = entry.dying;
            entry.give_up(dying);
            if dying.contains(Bits::UPDATE) {
                self.directories.forget(fid);
            }
            self.bury(place);
        }
        self.acks.push(Ack { fid, number });
    }
}

//! A request on its way through a handler, and the obligation to answer it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tokio::sync::Notify;
use types::Errno;

use crate::op::{Header, Op};
use crate::origin::Origin;
use crate::reply::Reply;

/// Interrupts remembered for requests not seen yet; beyond this the oldest is forgotten, which was
/// answered long ago.
const EARLY_MAX: usize = 256;

/// Requests that wait, by number, so that an interrupt finds them.
#[derive(Default)]
pub(crate) struct Interruptible {
    waiting: RefCell<BTreeMap<u64, Rc<Slot>>>,
    early: RefCell<BTreeSet<u64>>,
    count: Cell<usize>,
    pub(crate) drained: Notify,
}

impl Interruptible {
    /// A signal came for the caller of `unique`. One that was answered meanwhile is nobody's; one
    /// that is still to come is remembered, since a ring and the device keep no order between them.
    pub(crate) fn interrupt(&self, unique: u64) {
        let slot = self.waiting.borrow().get(&unique).cloned();
        if let Some(slot) = slot {
            slot.interrupted.set(true);
            slot.notify.notify_waiters();
            return;
        }
        let mut early = self.early.borrow_mut();
        if early.len() == EARLY_MAX {
            early.pop_first();
        }
        early.insert(unique);
    }

    /// The handler of this request has come to wait.
    pub(crate) fn waits(&self, unique: u64, slot: Rc<Slot>) {
        if slot.answered.get() {
            return;
        }
        self.waiting.borrow_mut().insert(unique, slot);
        if self.early.borrow_mut().remove(&unique) {
            self.interrupt(unique);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }
}

#[derive(Default)]
pub(crate) struct Slot {
    interrupted: Cell<bool>,
    answered: Cell<bool>,
    notify: Notify,
}

/// A decoded request and the means to answer it.
pub struct Request {
    /// Who asks about which node.
    pub header: Header,
    pub op: Op,
    /// The answer goes here.
    pub replier: Replier,
}

/// The duty to answer one request. Dropped unanswered, it answers EIO.
pub struct Replier {
    pub(crate) origin: Origin,
    pub(crate) flights: Rc<Interruptible>,
    pub(crate) slot: Rc<Slot>,
    unique: u64,
}

impl Replier {
    pub(crate) fn new(origin: Origin, flights: Rc<Interruptible>, unique: u64) -> Replier {
        flights.count.set(flights.count.get() + 1);
        Replier { origin, flights, slot: Rc::default(), unique }
    }

    /// Answers. Only the first answer counts.
    pub fn reply(&self, reply: &Reply) {
        if self.slot.answered.replace(true) {
            return;
        }
        self.flights.waiting.borrow_mut().remove(&self.unique);
        self.origin.reply(self.unique, reply);
    }

    /// Whether it was answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.slot.answered.get()
    }

    /// Completes when a signal comes for the waiting caller, at once if one has come. Any signal:
    /// whether it kills tells [`fatal_signal_pending`](crate::fatal_signal_pending).
    pub async fn interrupted(&self) {
        while !self.slot.interrupted.get() {
            self.slot.notify.notified().await;
        }
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        self.reply(&Err(Errno::EIO));
        let flights = &self.flights;
        flights.count.set(flights.count.get() - 1);
        if flights.count.get() == 0 {
            flights.drained.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_that_comes_before_its_request_is_not_lost() {
        let flights = Interruptible::default();
        let slot = Rc::<Slot>::default();
        flights.interrupt(7);
        flights.waits(7, slot.clone());
        assert!(slot.interrupted.get());
        assert!(flights.early.borrow().is_empty());
    }

    #[test]
    fn interrupts_of_answered_requests_do_not_pile_up() {
        let flights = Interruptible::default();
        for unique in 0..10_000 {
            flights.interrupt(unique);
        }
        assert_eq!(flights.early.borrow().len(), EARLY_MAX);
    }
}

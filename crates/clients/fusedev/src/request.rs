//! A request on its way through a handler, and the duty to answer it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;
use types::Errno;

use crate::device::Device;
use crate::op::{Header, Op};
use crate::reply::Reply;

/// Requests that wait, by number, so that an interrupt finds them.
#[derive(Default)]
pub(crate) struct InFlight {
    waiting: RefCell<BTreeMap<u64, Rc<Slot>>>,
    count: Cell<usize>,
    pub(crate) drained: Notify,
}

impl InFlight {
    /// A signal came for the caller of `unique`. One that was answered meanwhile is nobody's.
    pub(crate) fn interrupt(&self, unique: u64) {
        let slot = self.waiting.borrow().get(&unique).cloned();
        if let Some(slot) = slot {
            slot.interrupted.set(true);
            slot.notify.notify_waiters();
        }
    }

    /// The handler of this request has come to wait.
    pub(crate) fn waits(&self, unique: u64, slot: Rc<Slot>) {
        if !slot.answered.get() {
            self.waiting.borrow_mut().insert(unique, slot);
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
    /// What is asked.
    pub op: Op,
    /// The answer goes here.
    pub replier: Replier,
}

/// The duty to answer one request. Dropped unanswered, it answers EIO.
pub struct Replier {
    pub(crate) device: Rc<Device>,
    pub(crate) flights: Rc<InFlight>,
    pub(crate) slot: Rc<Slot>,
    unique: u64,
}

impl Replier {
    pub(crate) fn new(device: Rc<Device>, flights: Rc<InFlight>, unique: u64) -> Replier {
        flights.count.set(flights.count.get() + 1);
        Replier { device, flights, slot: Rc::default(), unique }
    }

    /// Answers. Only the first answer counts.
    pub fn reply(&self, reply: &Reply) {
        if self.slot.answered.replace(true) {
            return;
        }
        self.flights.waiting.borrow_mut().remove(&self.unique);
        self.device.reply(self.unique, reply);
    }

    /// Whether it was answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.slot.answered.get()
    }

    /// Completes when a signal comes for the waiting caller, at once if one has come. Any signal: whether it kills
    /// tells [`fatal_signal_pending`].
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

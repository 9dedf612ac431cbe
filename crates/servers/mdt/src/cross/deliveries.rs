//! Operations that this MDT coordinates, and what it knows of their parts.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use endpoint::CallError;
use service::Seldom;
use tokio::sync::Notify;
use types::{Errno, Instance, Instant, Transno};
use wire::updates::{OpId, Record};

/// One operation.
pub(crate) struct Delivery {
    pub(super) record: Rc<Record>,
    /// Place of the own part in this MDT's history.
    pub(super) local: Transno,
    /// By MDT: the run that executed the part, and the place in its history below which it is.
    pub(super) parts: RefCell<BTreeMap<u32, Option<(Instance, Transno)>>>,
    /// A part was executed.
    pub(super) moved: Notify,
}

/// Those of this MDT.
#[derive(Default)]
pub(crate) struct Deliveries {
    pub(super) under_way: RefCell<BTreeMap<OpId, Rc<Delivery>>>,
    /// This run knows what other MDTs have of its operations, as far as they are there.
    gathered: Cell<bool>,
    /// MDTs that recovery went on without, and that have not told yet what they have. While there
    /// is one, no mark moves: an operation of an earlier run may come back.
    pub(super) owed: RefCell<BTreeSet<u32>>,
    /// MDTs that were forgotten, while operations with them are ended.
    pub(super) parting: RefCell<BTreeSet<u32>>,
    /// Runs of other MDTs that have asked for operations, or said that earlier runs are over, with
    /// their sessions here: what earlier runs say is void.
    asked: RefCell<BTreeMap<u32, (Instance, u64)>>,
    /// Runs of other MDTs know that operations below are done. A later run may have lost that.
    pub(super) told: RefCell<BTreeMap<u32, (Instance, u64)>>,
    /// The background task is to look now.
    pub(super) woken: Notify,
    /// How often all of them were looked at.
    pub(crate) looks: Cell<u64>,
    /// The log says that an MDT does not take its part.
    refused_said: Seldom,
}

impl Delivery {
    /// No part is executed yet but the own one, whose place in history is `local`.
    pub(super) fn new(record: Rc<Record>, local: Transno, here: u32) -> Rc<Delivery> {
        let parts = RefCell::new(record.others(here).map(|mdt| (mdt, None)).collect());
        Rc::new(Delivery { record, local, parts, moved: Notify::new() })
    }

    /// Waits until all other MDTs have executed their parts. An MDT that stops meanwhile gives no
    /// answer: its next run does.
    pub(crate) async fn executed(&self) {
        self.until(|| self.is_executed()).await;
    }

    /// Waits until this is so, which a part that is executed may change.
    pub(super) async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let moved = self.moved.notified();
            if is_so() {
                return;
            }
            moved.await;
        }
    }

    fn is_executed(&self) -> bool {
        self.parts.borrow().values().all(Option::is_some)
    }

    pub(super) fn is_executed_at(&self, mdt: u32) -> bool {
        self.parts.borrow().get(&mdt).is_none_or(Option::is_some)
    }
}

impl Deliveries {
    /// Other MDTs have told this one what they have of its operations.
    pub(crate) fn gathered(&self) {
        self.gathered.set(true);
    }

    /// Whether they have, in a run that recovers.
    pub(crate) fn has_gathered(&self) -> bool {
        self.gathered.get()
    }

    /// A run of another MDT asks for its operations. A question of an earlier run may come later.
    pub(crate) fn asked(&self, mdt: u32, instance: Instance, session: u64) {
        let mut asked = self.asked.borrow_mut();
        let last = asked.entry(mdt).or_insert((instance, session));
        *last = (instance, session).max(*last);
    }

    /// Whether a later run of an MDT than this one has asked.
    pub(crate) fn has_asked(&self, mdt: u32, instance: Instance) -> bool {
        self.asked.borrow().get(&mdt).is_some_and(|(asked, _)| *asked > instance)
    }

    /// Whether an MDT has asked in a later session than this one. Numbers of sessions rise, so what
    /// still comes in this one may be of an earlier run.
    pub(super) fn has_asked_since(&self, mdt: u32, session: u64) -> bool {
        self.asked.borrow().get(&mdt).is_some_and(|(_, asked)| *asked > session)
    }

    /// Whether an MDT heard that operations below `mark` are done. A later run of it may have
    /// forgotten that, and asks.
    pub(crate) fn has_told(&self, mdt: u32, mark: u64) -> bool {
        self.told.borrow().get(&mdt).is_some_and(|(_, told)| *told >= mark)
    }

    /// Whether an MDT that is away may know operations which this one has lost.
    pub(crate) fn is_owed(&self) -> bool {
        !self.owed.borrow().is_empty()
    }

    /// Whether a line is due now that an MDT does not understand its part. It may never do so, and
    /// the operation keeps its names reserved until then.
    pub(super) fn is_refusal_due(&self, error: &CallError, now: Instant) -> bool {
        matches!(error, CallError::Errno(Errno::EPROTO)) && self.refused_said.is_due(now)
    }

    /// An MDT was forgotten: operations go on without its part.
    pub(super) fn leave_out(&self, mdt: u32) {
        for delivery in self.all() {
            delivery.parts.borrow_mut().remove(&mdt);
            delivery.moved.notify_waiters();
        }
        self.wake();
    }

    pub(super) fn all(&self) -> Vec<Rc<Delivery>> {
        self.under_way.borrow().values().cloned().collect()
    }

    /// An operation is under way. Only the first one wakes the background task, which looks at all
    /// of them again and again: each look takes longer the more there are.
    pub(super) fn begin(&self, delivery: &Rc<Delivery>) {
        let is_first = self.under_way.borrow().is_empty();
        let id = delivery.record.id;
        let before = self.under_way.borrow_mut().insert(id, delivery.clone());
        assert!(before.is_none(), "an operation is delivered once");
        if is_first {
            self.wake();
        }
    }

    /// Lets the background task look: there is something to look at, or the instance is over.
    pub(crate) fn wake(&self) {
        self.woken.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use types::Span;

    use super::*;

    #[test]
    fn the_background_task_is_woken_by_the_first_operation_alone() {
        let deliveries = Deliveries::default();
        let wakes = |number: u64| {
            let id = OpId { mdt: 0, number };
            let record = Record { id, time: (0, 0), parts: Vec::new(), reply: Default::default() };
            let woken = pin!(deliveries.woken.notified());
            deliveries.begin(&Delivery::new(Rc::new(record), Transno(number), 0));
            woken.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert_eq!([1, 2, 3].map(wakes), [true, false, false]);
        deliveries.under_way.borrow_mut().clear();
        assert!(wakes(4), "it may be asleep again");
    }

    #[test]
    fn a_refused_part_is_in_the_log_once_a_minute() {
        let deliveries = Deliveries::default();
        let at = |secs| Instant::default() + Span::secs(secs);
        let refused = CallError::Errno(Errno::EPROTO);
        assert!(!deliveries.is_refusal_due(&CallError::TimedOut, at(0)), "it may be away");
        let due = [0, 1, 59, 60, 61].map(|secs| deliveries.is_refusal_due(&refused, at(secs)));
        assert_eq!(due, [true, false, false, true, false]);
    }
}

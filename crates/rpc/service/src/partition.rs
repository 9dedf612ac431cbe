//! A service's part on one CPT or for one target: its slots, its timer, and the heads from which it
//! takes requests.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use env::Task;
use nrs::{Dequeued, Descriptor, Disabled, Head, HeadKind, Part, Pick, PolicyIndex, Turn};
use ptlrpc::Estimate;
use tokio::sync::Notify;
use types::{CptIndex, Instant, TargetId};

use crate::ServiceSpec;
use crate::in_flight::Queued;
use crate::scheduled::Work;
use crate::slots::{Slots, Source};
use crate::threads::Threads;

/// Both heads of a partition, or of all partitions of a service where they share them.
pub(crate) struct Heads {
    pub(crate) reg: RefCell<Head<Work>>,
    pub(crate) hp: Option<RefCell<Head<Work>>>,
    /// When a request was last answered or dropped, or the first one came to wait.
    moved: Cell<Instant>,
    /// Of the service: a policy that is to be restarted may have drained.
    pub(crate) drained: Rc<Notify>,
}

impl Heads {
    fn new(
        spec: &ServiceSpec,
        part: Part,
        policies: &[Descriptor<Work>],
        drained: &Rc<Notify>,
    ) -> Rc<Heads> {
        let head = |kind| RefCell::new(Head::new(spec.name, kind, part, policies));
        Rc::new(Heads {
            reg: head(HeadKind::Reg),
            hp: spec.has_hp.then(|| head(HeadKind::Hp)),
            moved: Cell::default(),
            drained: Rc::clone(drained),
        })
    }

    /// A pair for each of `parts`.
    pub(crate) fn of(
        parts: &[Part],
        spec: &ServiceSpec,
        policies: &[Descriptor<Work>],
        drained: &Rc<Notify>,
    ) -> Vec<Rc<Heads>> {
        parts.iter().map(|part| Heads::new(spec, *part, policies, drained)).collect()
    }

    /// The high-priority head, or the regular one where there is no other.
    pub(crate) fn head(&self, hp: bool) -> &RefCell<Head<Work>> {
        self.hp.as_ref().filter(|_| hp).unwrap_or(&self.reg)
    }

    pub(crate) fn both(&self) -> impl Iterator<Item = &RefCell<Head<Work>>> {
        std::iter::once(&self.reg).chain(&self.hp)
    }

    /// Does something after which a policy may hold fewer requests.
    pub(crate) fn change<T>(&self, hp: bool, change: impl FnOnce(&mut Head<Work>) -> T) -> T {
        let mut head = self.head(hp).borrow_mut();
        let done = change(&mut head);
        if head.is_restarting() {
            self.drained.notify_waiters();
        }
        done
    }

    pub(crate) fn queued(&self) -> usize {
        self.both().map(|head| head.borrow().len()).sum()
    }
}

impl Source for Heads {
    fn finished(&self, hp: bool, policy: PolicyIndex, now: Instant) {
        self.change(hp, |head| head.finished(policy, now));
    }
}

/// The head of a request that came past all heads.
struct Nobody;

impl Source for Nobody {
    fn finished(&self, _hp: bool, _policy: PolicyIndex, _now: Instant) {}
}

pub(crate) struct Partition {
    pub(crate) spec: &'static ServiceSpec,
    /// Of a target's partition the first.
    pub(crate) cpt: CptIndex,
    /// Whose requests it has, if only those of one target.
    pub(crate) target: Option<TargetId>,
    pub(crate) running: Cell<bool>,
    /// A task goes on with it.
    pub(crate) runs_later: Cell<bool>,
    pub(crate) heads: RefCell<Rc<Heads>>,
    pub(crate) pick: RefCell<Pick>,
    pub(crate) slots: Rc<Slots>,
    /// Requests answered or dropped that came through its CPT.
    pub(crate) done: Cell<u64>,
    pub(crate) estimate: RefCell<Estimate>,
    /// When what is held back is asked again, and who does it.
    pub(crate) timer: RefCell<Option<(Instant, Task)>>,
}

/// What a partition has to do next.
pub(crate) enum Step {
    /// Handle this; its slot is taken.
    Start(Work, Option<Box<str>>),
    /// Everything is held back until then.
    Wait(Instant),
    /// Nothing, for now.
    Rest,
}

impl Partition {
    pub(crate) fn new(
        spec: &'static ServiceSpec,
        cpt: CptIndex,
        heads: Rc<Heads>,
        threads: Threads,
        now: Instant,
    ) -> Rc<Partition> {
        Partition::with(spec, (cpt, None), heads, threads, now)
    }

    /// One for the requests of `target`, whatever CPT they come through.
    pub(crate) fn of_target(
        spec: &'static ServiceSpec,
        target: TargetId,
        heads: Rc<Heads>,
        threads: Threads,
        now: Instant,
    ) -> Rc<Partition> {
        Partition::with(spec, (CptIndex(0), Some(target)), heads, threads, now)
    }

    fn with(
        spec: &'static ServiceSpec,
        (cpt, target): (CptIndex, Option<TargetId>),
        heads: Rc<Heads>,
        threads: Threads,
        now: Instant,
    ) -> Rc<Partition> {
        Rc::new(Partition {
            spec,
            cpt,
            target,
            running: Cell::new(false),
            runs_later: Cell::new(false),
            heads: RefCell::new(heads),
            pick: RefCell::default(),
            slots: Slots::new(spec.has_hp, threads.min, threads.max),
            done: Cell::new(0),
            estimate: RefCell::new(Estimate::new(now)),
            timer: RefCell::new(None),
        })
    }

    /// For people.
    pub(crate) fn name(&self) -> String {
        self.target.map_or_else(|| self.cpt.0.to_string(), |target| target.to_string())
    }

    pub(crate) fn enqueue(self: &Rc<Self>, mut work: Work, hp: bool, now: Instant) {
        work.settle();
        let hp = hp && self.spec.has_hp;
        let flight = Rc::clone(&work.flight);
        let (cpt, target) = (work.cpt, work.served.target.id());
        let heads = self.heads.borrow();
        if heads.queued() == 0 {
            heads.moved.set(now);
        }
        let handle = heads.head(hp).borrow_mut().enqueue(work, now);
        flight.queue(Queued { service: self.spec, cpt, target, hp, handle });
    }

    /// Takes a slot for a request that has nothing to wait for: FIFO is all there is, nobody is
    /// before it, and it may have the slot. Else it is given back, to be queued. The same as
    /// queueing and taking it, at a tenth of the cost.
    pub(crate) fn pass(self: &Rc<Self>, work: Work, hp: bool, now: Instant) -> Result<Work, Work> {
        let hp = hp && self.spec.has_hp;
        let heads = self.heads.borrow();
        if self.running.get() || !heads.both().all(|head| head.borrow().is_open()) {
            return Err(work);
        }
        self.slots.grow();
        let turn = self.pick.borrow_mut().next(&self.slots.load(hp, !hp));
        if turn.is_none() {
            return Err(work);
        }
        let policy = heads.head(hp).borrow_mut().pass(now - work.flight.arrived);
        Ok(self.give_slot(Rc::clone(&heads), work, hp, policy))
    }

    /// Takes a slot at once, whoever else waits. No policy hears of it.
    pub(crate) fn pass_all(&self, work: Work) -> Work {
        work.flight.run(self.slots.take(Rc::new(Nobody), false, PolicyIndex::FIFO));
        work
    }

    /// The next request, and its line for the request log.
    pub(crate) fn take(self: &Rc<Self>, now: Instant) -> Step {
        let heads = Rc::clone(&self.heads.borrow());
        let pending = |head: &RefCell<Head<Work>>| !head.borrow().is_empty();
        let (reg, hp) = (pending(&heads.reg), heads.hp.as_ref().is_some_and(pending));
        if !reg && !hp {
            return Step::Rest; // before the slots: an idle service does not grow
        }
        self.slots.grow();
        let mut load = self.slots.load(hp, reg);
        let mut until: Option<Instant> = None;
        loop {
            let turn = self.pick.borrow_mut().next(&load);
            let Some(turn) = turn else { return until.map_or(Step::Rest, Step::Wait) };
            let hp = turn == Turn::Hp;
            let next = heads.change(hp, |head| head.dequeue(now));
            match next {
                Dequeued::Taken(taken) => {
                    return Step::Start(
                        self.give_slot(heads, taken.request, hp, taken.policy),
                        taken.log,
                    );
                }
                Dequeued::NotBefore(at) => until = Some(until.map_or(at, |until| until.min(at))),
                Dequeued::Empty => {}
            }
            if hp {
                load.pending_hp = false;
            } else {
                load.pending_reg = false;
            }
        }
    }

    fn give_slot(&self, heads: Rc<Heads>, work: Work, hp: bool, policy: PolicyIndex) -> Work {
        work.flight.run(self.slots.take(heads, hp, policy));
        work
    }

    /// Whether a request still waits at `place`, and `wanted` holds for it.
    pub(crate) fn holds(&self, place: &Queued, wanted: impl Fn(&Work) -> bool) -> bool {
        self.heads.borrow().head(place.hp).borrow().get(place.handle).is_some_and(wanted)
    }

    /// A request was answered or dropped.
    pub(crate) fn moved(&self, now: Instant) {
        self.heads.borrow().moved.set(now);
    }

    /// Since when nothing was served although requests wait.
    pub(crate) fn starves_since(&self) -> Option<Instant> {
        let heads = self.heads.borrow();
        (heads.queued() > 0).then(|| heads.moved.get())
    }

    /// Policies that broke, for the log.
    pub(crate) fn disabled(&self) -> Vec<Disabled> {
        self.heads.borrow().both().flat_map(|head| head.borrow_mut().take_disabled()).collect()
    }
}

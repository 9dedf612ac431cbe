//! A service's part on one CPT: both heads, the slots, the counters.

use std::cell::{Cell, RefCell};

use nrs::{Head, HeadKind, Load, Pick, Turn};
use types::{CptIndex, Instant, Nid};
use wire::Opcode;

use crate::ServiceSpec;
use crate::node::Work;

/// Name, state and queued requests of each policy instance of a partition.
pub type Policies = Vec<(&'static str, nrs::PolicyState, usize)>;

/// Counters of one service partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceStats {
    /// Waiting in the heads.
    pub queued: u64,
    /// Being handled.
    pub active: u64,
    /// Answered.
    pub served: u64,
    /// Dropped because their deadline had passed.
    pub dropped: u64,
}

pub(crate) struct Partition {
    pub(crate) spec: &'static ServiceSpec,
    pub(crate) running: Cell<bool>,
    reg: RefCell<Head<Work>>,
    hp: RefCell<Head<Work>>,
    pick: RefCell<Pick>,
    queued_reg: Cell<u32>,
    queued_hp: Cell<u32>,
    active: Cell<u32>,
    active_hp: Cell<u32>,
    pub(crate) served: Cell<u64>,
    pub(crate) dropped: Cell<u64>,
}

impl Partition {
    pub(crate) fn new(spec: &'static ServiceSpec) -> Partition {
        Partition {
            spec,
            running: Cell::new(false),
            reg: RefCell::new(Head::new(spec.name, HeadKind::Reg, CptIndex(0), &[])),
            hp: RefCell::new(Head::new(spec.name, HeadKind::Hp, CptIndex(0), &[])),
            pick: RefCell::default(),
            queued_reg: Cell::new(0),
            queued_hp: Cell::new(0),
            active: Cell::new(0),
            active_hp: Cell::new(0),
            served: Cell::new(0),
            dropped: Cell::new(0),
        }
    }

    pub(crate) fn enqueue(&self, work: Work, high_priority: bool) {
        let now = work.transport.arrived;
        if high_priority && self.spec.has_hp {
            self.queued_hp.set(self.queued_hp.get() + 1);
            self.hp.borrow_mut().enqueue(work, now);
        } else {
            self.queued_reg.set(self.queued_reg.get() + 1);
            self.reg.borrow_mut().enqueue(work, now);
        }
    }

    /// The next request and whether it came through the HP head; its slot is taken.
    pub(crate) fn take(&self) -> Option<(Work, bool)> {
        let load = Load {
            slots: self.spec.slots,
            active: self.active.get(),
            active_hp: self.active_hp.get(),
            pending_hp: self.queued_hp.get() > 0,
            pending_reg: self.queued_reg.get() > 0,
            has_hp: self.spec.has_hp,
        };
        let turn = self.pick.borrow_mut().next(&load)?;
        let (head, queued, hp) = match turn {
            Turn::Hp => (&self.hp, &self.queued_hp, true),
            Turn::Reg => (&self.reg, &self.queued_reg, false),
        };
        let mut head = head.borrow_mut();
        // FIFO is all that is registered: it asks no clock, and the slots count what is active
        let taken = head.dequeue(Instant::default()).taken()?;
        head.finished(taken.policy, Instant::default());
        queued.set(queued.get() - 1);
        self.active.set(self.active.get() + 1);
        self.active_hp.set(self.active_hp.get() + u32::from(hp));
        Some((taken.request, hp))
    }

    pub(crate) fn release(&self, hp: bool) {
        self.active.set(self.active.get() - 1);
        self.active_hp.set(self.active_hp.get() - u32::from(hp));
    }

    pub(crate) fn stats(&self) -> ServiceStats {
        ServiceStats {
            queued: u64::from(self.queued_reg.get() + self.queued_hp.get()),
            active: u64::from(self.active.get()),
            served: self.served.get(),
            dropped: self.dropped.get(),
        }
    }

    /// Instances of both heads, as `nrs_policies` lists them.
    pub(crate) fn policies(&self) -> Policies {
        let heads = [Some(&self.reg), self.spec.has_hp.then_some(&self.hp)];
        let listed = heads.into_iter().flatten().flat_map(|head| head.borrow().list());
        listed.map(|policy| (policy.name, policy.state, policy.counters.queued as usize)).collect()
    }
}

impl nrs::Request for Work {
    fn nid(&self) -> Nid {
        self.session.nid.get()
    }

    fn export(&self) -> Option<u64> {
        Some(self.session.id)
    }

    fn opcode(&self) -> Opcode {
        self.request.opcode()
    }

    fn arrival(&self) -> Instant {
        self.transport.arrived
    }

    fn leave_by(&self) -> Instant {
        self.transport.deadline.get()
    }
}

//! A service of a node: its partitions, its heads, what it counts.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use env::{CptTable, Portal};
use nrs::{Descriptor, Head, ServiceHeads};
use tokio::sync::Notify;
use types::{CptIndex, Instant};

use crate::ServiceSpec;
use crate::partition::{Heads, Partition};
use crate::stats::{History, Stats};
use crate::threads::Threads;
use crate::work::Work;

/// Whose heads requests wait in (`nrs_head_scope`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadScope {
    /// Those of the request's partition.
    Cpt,
    /// Those of the service: one order for all its partitions, whose slots all take from it. The
    /// default, because orders of partitions favor a client that is alone on its own.
    #[default]
    Service,
}

impl HeadScope {
    /// As the parameter spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HeadScope::Cpt => "cpt",
            HeadScope::Service => "service",
        }
    }
}

/// Counters of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceStats {
    /// Waiting in the heads.
    pub queued: u64,
    /// Being handled.
    pub active: u64,
    /// Answered.
    pub served: u64,
    /// Dropped because their deadline had passed or their client was gone.
    pub dropped: u64,
    /// Without room: their clients were told to ask again.
    pub refused: u64,
}

/// The table of CPTs knows CPUs, not which of them share a core: each counts in full.
const THREADS_PER_CORE: u32 = 1;

pub(crate) struct Service {
    pub(crate) spec: &'static ServiceSpec,
    /// Where its requests go, by the portal rotor.
    pub(crate) portal: RefCell<Portal>,
    /// In the order of their CPTs.
    pub(crate) partitions: Vec<Rc<Partition>>,
    pub(crate) policies: Vec<Descriptor<Work>>,
    /// A request left a head with a waiting restart: its policy may have drained.
    pub(crate) drained: Rc<Notify>,
    pub(crate) scope: Cell<HeadScope>,
    pub(crate) threads: Cell<Threads>,
    pub(crate) log: Cell<bool>,
    /// A policy sorts reads by where they lie on the device.
    pub(crate) wants_places: Cell<bool>,
    pub(crate) stats: RefCell<Stats>,
    pub(crate) history: RefCell<History>,
    /// `req_buffers_max`: requests that a partition may have waiting; zero is no bound of its own.
    pub(crate) buffers_max: Cell<usize>,
    pub(crate) served: Cell<u64>,
    pub(crate) dropped: Cell<u64>,
    /// Told to ask again.
    pub(crate) refused: Cell<u64>,
}

impl Service {
    pub(crate) fn new(
        spec: &'static ServiceSpec,
        table: &CptTable,
        cpts: &[CptIndex],
        policies: Vec<Descriptor<Work>>,
        now: Instant,
    ) -> Rc<Service> {
        let count = u32::try_from(cpts.len()).expect("partitions are bounded");
        let cpus = |cpt: CptIndex| u32::try_from(table.cpus(cpt).len()).unwrap_or(u32::MAX);
        let (all, mine) =
            (table.all().map(cpus).sum(), cpts.iter().copied().map(cpus).max().unwrap_or(1));
        let threads = Threads::of(spec, count, mine, all, THREADS_PER_CORE);
        let drained = Rc::new(Notify::new());
        let scope = HeadScope::default();
        let heads = Heads::of(scope, spec, cpts, &policies, &drained);
        let partition = |(at, cpt): (usize, &CptIndex)| {
            let heads = Rc::clone(heads.get(at).unwrap_or(&heads[0]));
            Partition::new(spec, *cpt, heads, threads, now)
        };
        Rc::new(Service {
            spec,
            portal: RefCell::new(Portal::new(cpts.to_vec(), table.count())),
            partitions: cpts.iter().enumerate().map(partition).collect(),
            policies,
            drained,
            scope: Cell::new(scope),
            threads: Cell::new(threads),
            log: Cell::new(false),
            wants_places: Cell::new(false),
            stats: RefCell::default(),
            history: RefCell::default(),
            buffers_max: Cell::new(0),
            served: Cell::new(0),
            dropped: Cell::new(0),
            refused: Cell::new(0),
        })
    }

    /// Its partition on `cpt`, if it has one there.
    pub(crate) fn find(&self, cpt: CptIndex) -> Option<&Rc<Partition>> {
        let at = self.partitions.binary_search_by_key(&cpt, |partition| partition.cpt).ok()?;
        Some(&self.partitions[at])
    }

    pub(crate) fn partition(&self, cpt: CptIndex) -> &Rc<Partition> {
        self.find(cpt).expect("a request goes to a CPT of its service")
    }

    pub(crate) fn set_threads(&self, threads: Threads) {
        self.threads.set(threads);
        for partition in &self.partitions {
            partition.slots.set_bounds(threads.min, threads.max);
        }
    }

    pub(crate) fn heads(&self) -> Vec<Rc<Heads>> {
        let each = match self.scope.get() {
            HeadScope::Cpt => self.partitions.len(),
            HeadScope::Service => 1,
        };
        self.partitions[..each]
            .iter()
            .map(|partition| Rc::clone(&partition.heads.borrow()))
            .collect()
    }

    /// A command over all heads.
    pub(crate) fn with_heads<T>(
        &self,
        command: impl FnOnce(&mut ServiceHeads<'_, Work>) -> T,
    ) -> T {
        let heads = self.heads();
        let mut reg: Vec<RefMut<'_, Head<Work>>> =
            heads.iter().map(|heads| heads.reg.borrow_mut()).collect();
        let mut hp: Vec<RefMut<'_, Head<Work>>> =
            heads.iter().filter_map(|heads| heads.hp.as_ref()).map(RefCell::borrow_mut).collect();
        let mut all = ServiceHeads {
            reg: reg.iter_mut().map(|head| &mut **head).collect(),
            hp: hp.iter_mut().map(|head| &mut **head).collect(),
        };
        command(&mut all)
    }

    pub(crate) fn set_log(&self, on: bool) {
        self.log.set(on);
        for heads in self.heads() {
            heads.both().for_each(|head| head.borrow_mut().set_log(on));
        }
    }

    /// After a command: whether a policy sorts reads by places on the device.
    pub(crate) fn note_places(&self) {
        self.wants_places.set(self.with_heads(|heads| heads.wants_places()));
    }

    /// Whether `req_buffers_max` lets another request wait.
    pub(crate) fn has_buffers(&self) -> bool {
        let max = self.buffers_max.get() * self.partitions.len();
        max == 0 || self.queued() < max
    }

    pub(crate) fn queued(&self) -> usize {
        self.heads().iter().map(|heads| heads.queued()).sum()
    }

    pub(crate) fn summary(&self) -> ServiceStats {
        ServiceStats {
            queued: self.queued() as u64,
            active: self
                .partitions
                .iter()
                .map(|partition| u64::from(partition.slots.active()))
                .sum(),
            served: self.served.get(),
            dropped: self.dropped.get(),
            refused: self.refused.get(),
        }
    }
}

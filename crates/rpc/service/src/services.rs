//! A service of a node: its partitions, its heads and its counters.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use env::{CptTable, Portal};
use nrs::{Descriptor, Head, Part, ServiceHeads};
use tokio::sync::Notify;
use types::{CptIndex, Instant, TargetId};

use crate::ServiceSpec;
use crate::partition::{Heads, Partition};
use crate::scheduled::Work;
use crate::stats::{History, Stats};
use crate::threads::Threads;

/// Whose heads requests wait in (`nrs_head_scope`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadScope {
    /// Those of the request's partition.
    Cpt,
    /// Those of the service: one order for all its partitions, whose slots all take from it. The
    /// default, because orders of partitions favor a client that is alone on its own.
    #[default]
    Service,
    /// Those of the request's target, which has slots of its own too: requests for a slow target
    /// take no slot of the others.
    Target,
}

impl HeadScope {
    /// As the parameter spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HeadScope::Cpt => "cpt",
            HeadScope::Service => "service",
            HeadScope::Target => "target",
        }
    }

    /// From how the parameter spells it.
    pub(crate) fn from_name(name: &str) -> Option<HeadScope> {
        let all = [HeadScope::Cpt, HeadScope::Service, HeadScope::Target];
        all.into_iter().find(|scope| scope.name() == name)
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
    /// Those of targets, where the heads are each target's. Kept when they are so no longer, for
    /// what still executes.
    of_targets: RefCell<BTreeMap<u32, Rc<Partition>>>,
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
        let heads = Heads::of(&Service::parts(scope, cpts, &[]), spec, &policies, &drained);
        let partition = |(at, cpt): (usize, &CptIndex)| {
            let heads = Rc::clone(heads.get(at).unwrap_or(&heads[0]));
            Partition::new(spec, *cpt, heads, threads, now)
        };
        Rc::new(Service {
            spec,
            portal: RefCell::new(Portal::new(cpts.to_vec(), table.count())),
            partitions: cpts.iter().enumerate().map(partition).collect(),
            of_targets: RefCell::default(),
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

    /// Where a request for `target` that is counted at `cpt` waits and is handled.
    pub(crate) fn place(&self, cpt: CptIndex, target: TargetId) -> Rc<Partition> {
        let of_target = match self.scope.get() {
            HeadScope::Target => self.of_targets.borrow().get(&target.to_u32()).cloned(),
            HeadScope::Cpt | HeadScope::Service => None,
        };
        of_target.unwrap_or_else(|| Rc::clone(self.partition(cpt)))
    }

    /// Whether `target` has, or shares, the heads that the scope says.
    pub(crate) fn has_heads_of(&self, target: TargetId) -> bool {
        self.scope.get() != HeadScope::Target
            || self.of_targets.borrow().contains_key(&target.to_u32())
    }

    /// Targets that have heads of their own, where the heads are each target's.
    pub(crate) fn targets(&self) -> Vec<TargetId> {
        let of_targets = self.of_targets.borrow();
        let is_used = self.scope.get() == HeadScope::Target;
        of_targets.values().filter(|_| is_used).filter_map(|partition| partition.target).collect()
    }

    /// Its partitions: those of CPTs, and those of targets where each target has its own.
    pub(crate) fn in_use(&self) -> Vec<Rc<Partition>> {
        let mut all = self.partitions.clone();
        if self.scope.get() == HeadScope::Target {
            all.extend(self.of_targets.borrow().values().cloned());
        }
        all
    }

    pub(crate) fn set_threads(&self, threads: Threads) {
        self.threads.set(threads);
        for partition in &self.partitions {
            partition.slots.set_bounds(threads.min, threads.max);
        }
        let whole = self.threads_of_target();
        for partition in self.of_targets.borrow().values() {
            partition.slots.set_bounds(whole.min, whole.max);
        }
    }

    /// A target has as many slots as the CPTs have together.
    fn threads_of_target(&self) -> Threads {
        self.threads.get().times(u32::try_from(self.partitions.len()).expect("they are bounded"))
    }

    pub(crate) fn heads(&self) -> Vec<Rc<Heads>> {
        let each = match self.scope.get() {
            HeadScope::Cpt => self.partitions.len(),
            HeadScope::Service | HeadScope::Target => 1,
        };
        let in_use = self.in_use();
        let of_targets = in_use[self.partitions.len()..].iter();
        let all = in_use[..each].iter().chain(of_targets);
        all.map(|partition| Rc::clone(&partition.heads.borrow())).collect()
    }

    /// What heads of a scope are for, in the order of [`Service::heads`].
    fn parts(scope: HeadScope, cpts: &[CptIndex], targets: &[TargetId]) -> Vec<Part> {
        match scope {
            HeadScope::Cpt => cpts.iter().copied().map(Part::Cpt).collect(),
            HeadScope::Service => vec![Part::Cpt(CptIndex(0))],
            HeadScope::Target => std::iter::once(Part::Others)
                .chain(targets.iter().copied().map(Part::Target))
                .collect(),
        }
    }

    /// New heads of a scope, for [`Service::give_heads`].
    pub(crate) fn new_heads(&self, scope: HeadScope, targets: &[TargetId]) -> Vec<Rc<Heads>> {
        let cpts: Vec<CptIndex> = self.partitions.iter().map(|partition| partition.cpt).collect();
        let parts = Service::parts(scope, &cpts, targets);
        Heads::of(&parts, self.spec, &self.policies, &self.drained)
    }

    /// Requests wait in `heads` from now on, those of `targets` in the last ones.
    pub(crate) fn give_heads(
        &self,
        scope: HeadScope,
        targets: &[TargetId],
        heads: &[Rc<Heads>],
        now: Instant,
    ) {
        let apart = scope == HeadScope::Target;
        assert!(!apart || heads.len() == targets.len() + 1, "heads of each target, and of others");
        self.scope.set(scope);
        for (at, partition) in self.partitions.iter().enumerate() {
            let mine = heads.get(at).filter(|_| scope == HeadScope::Cpt).unwrap_or(&heads[0]);
            *partition.heads.borrow_mut() = Rc::clone(mine);
        }
        if !apart {
            // requests that execute keep their partitions; the old heads and their policies end
            let none = Heads::of(&[Part::Others], self.spec, &[], &self.drained);
            for partition in self.of_targets.borrow().values() {
                *partition.heads.borrow_mut() = Rc::clone(&none[0]);
            }
            return;
        }
        let mut before = self.of_targets.take();
        let (ratio, whole) = (self.partitions[0].pick.borrow().ratio(), self.threads_of_target());
        let each = targets.iter().zip(&heads[1..]).map(|(target, heads)| {
            let partition = before.remove(&target.to_u32()).unwrap_or_else(|| {
                let new = Partition::of_target(self.spec, *target, Rc::clone(heads), whole, now);
                new.pick.borrow_mut().set_ratio(ratio);
                new
            });
            *partition.heads.borrow_mut() = Rc::clone(heads);
            (target.to_u32(), partition)
        });
        let of_targets = each.collect();
        *self.of_targets.borrow_mut() = of_targets;
    }

    /// A request that came through `cpt` was answered or dropped.
    pub(crate) fn count_done(&self, cpt: CptIndex) {
        let done = &self.partition(cpt).done;
        done.set(done.get() + 1);
    }

    /// A command over all heads.
    pub(crate) fn with_heads<T>(
        &self,
        command: impl FnOnce(&mut ServiceHeads<'_, Work>) -> T,
    ) -> T {
        over(&self.heads(), command)
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

    /// Whether `req_buffers_max` lets another request for `target` wait.
    pub(crate) fn has_buffers(&self, target: TargetId) -> bool {
        let max = self.buffers_max.get() * self.partitions.len();
        max == 0 || self.queued_beside(target) < max
    }

    /// What waits in the heads that a request for `target` would wait in.
    fn queued_beside(&self, target: TargetId) -> usize {
        match self.scope.get() {
            HeadScope::Target => self.place(self.partitions[0].cpt, target).heads.borrow().queued(),
            HeadScope::Cpt | HeadScope::Service => self.queued(),
        }
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
                .chain(self.of_targets.borrow().values())
                .map(|partition| u64::from(partition.slots.active()))
                .sum(),
            served: self.served.get(),
            dropped: self.dropped.get(),
            refused: self.refused.get(),
        }
    }
}

/// A command over these heads.
pub(crate) fn over<T>(
    heads: &[Rc<Heads>],
    command: impl FnOnce(&mut ServiceHeads<'_, Work>) -> T,
) -> T {
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::spec;

    #[test]
    fn heads_of_targets_end_when_the_heads_are_theirs_no_longer() {
        let table = CptTable::new(NonZeroU32::MIN, NonZeroU32::MIN, 1, true).expect("virtual");
        let service =
            Service::new(&spec::MDT, &table, &[CptIndex(0)], Vec::new(), Instant::default());
        let targets = [TargetId::mdt(0)];
        let give = |scope| {
            let heads = service.new_heads(scope, &targets);
            service.give_heads(scope, &targets, &heads, Instant::default());
            Rc::downgrade(&heads[heads.len() - 1])
        };
        let of_target = give(HeadScope::Target);
        assert!(of_target.upgrade().is_some());
        let of_service = give(HeadScope::Service);
        assert!(of_target.upgrade().is_none() && of_service.upgrade().is_some());
    }
}

//! The grants of all MDTs. Each MDT has a cache of its own with its own lease, recalls and history.
//!
//! ```text
//!  MDT of the directory --> the name stands for this file (LOOKUP)   \
//!  MDT of the file      --> attributes, bytes, data (CACHE)           +-- what the kernel is told
//! ```
//!
//! A change goes to one MDT, and its effects are counted in the cache of that MDT. Other MDTs call
//! back the grants that it affects there, also from the client that makes the change. A directory
//! into which a kernel renames a file is counted in both caches and keeps its grant.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use env::Env;
use ldlm::grants::{Bits, Bugs as GrantBugs};
use types::{Fid, Instant};
use wire::Attr;

use super::{Grants, Kernel, Known, Lease, Lru, Recalls, Takings};
use crate::config::Bugs;
use crate::data::OnOpenStats;
use crate::limits::KERNEL_BELIEF_MAX;
use crate::namespace::striped::Striped;

/// Caches that are kept: one for each MDT of the largest file system.
const MDTS_MAX: usize = layout::dir::SHARDS_MAX;

/// What all caches of a client share.
#[derive(Default)]
pub(super) struct Shared {
    /// What is told of files besides the callers.
    kernel: RefCell<Option<Rc<dyn Kernel>>>,
    pub(super) recalls: Recalls,
    pub(super) takings: Takings,
    pub(super) lru: Cell<Lru>,
    striped: Rc<Striped>,
}

impl Shared {
    pub(super) fn kernel(&self) -> Option<Rc<dyn Kernel>> {
        self.kernel.borrow().clone()
    }

    /// The file as the kernel knows it: shards are a part of their directory.
    pub(super) fn shown(&self, fid: Fid) -> Fid {
        self.striped.master(fid)
    }
}

/// The grants of one client.
pub(crate) struct AllGrants {
    pub(super) env: Env,
    bugs: Bugs,
    cache_bugs: GrantBugs,
    shared: Rc<Shared>,
    by_mdt: RefCell<BTreeMap<u32, Rc<Grants>>>,
}

impl AllGrants {
    pub(crate) fn new(env: &Env, bugs: Bugs, striped: &Rc<Striped>) -> AllGrants {
        let shared = Rc::new(Shared { striped: striped.clone(), ..Shared::default() });
        let (env, cache_bugs) = (env.clone(), GrantBugs::default());
        AllGrants { env, bugs, cache_bugs, shared, by_mdt: RefCell::default() }
    }

    /// The same with planted bugs in the caches.
    pub(crate) fn with_bugs(self, cache_bugs: GrantBugs) -> AllGrants {
        AllGrants { cache_bugs, ..self }
    }

    /// Those of an MDT.
    pub(crate) fn at(&self, mdt: u32) -> Rc<Grants> {
        let mut by_mdt = self.by_mdt.borrow_mut();
        if let Some(grants) = by_mdt.get(&mdt) {
            return grants.clone();
        }
        let bugs = (self.bugs, self.cache_bugs);
        let grants = Grants::new(&self.env, bugs, mdt, &self.shared);
        if by_mdt.len() < MDTS_MAX {
            by_mdt.insert(mdt, grants.clone());
        }
        grants
    }

    /// Those of the MDT that has a file.
    pub(crate) fn of(&self, fid: Fid) -> Rc<Grants> {
        self.at(fid.mdt_index())
    }

    fn all(&self) -> Vec<(u32, Rc<Grants>)> {
        self.by_mdt.borrow().iter().map(|(mdt, grants)| (*mdt, grants.clone())).collect()
    }

    /// Attributes of the file that a name stands for, where nobody can have changed either. Only
    /// where a kernel has found that the caller may look names up there.
    pub(crate) fn named(&self, dir: Fid, name: &[u8]) -> Option<(Attr, Lease)> {
        self.shared.kernel()?;
        let (fid, until) = self.of(dir).known().file_of((dir, name), self.env.now())?;
        let (attr, lease) = self.of(fid).believed(fid)?;
        Some((attr, Lease { name: until, ..lease }))
    }

    /// A number of the time in which no change of this client's takes a name; `None` while one is
    /// under way.
    pub(crate) fn quiet(&self) -> Option<u64> {
        self.shared.takings.quiet()
    }

    /// Whether somebody keeps what was told.
    pub(crate) fn has_kernel(&self) -> bool {
        self.shared.kernel().is_some()
    }

    /// Who keeps what is told, where there is one.
    pub(super) fn kernel(&self) -> Option<Rc<dyn Kernel>> {
        self.shared.kernel()
    }

    /// A kernel has moved a name of this file to a directory of another MDT, which grants it by
    /// this lease: it calls the name back from now on. False: it does not grant it.
    pub(crate) fn moved(&self, dir: Fid, file: Fid, lease: Lease) -> bool {
        let now = self.env.now();
        let until = now + KERNEL_BELIEF_MAX;
        self.of(dir).known.borrow_mut().cache.told(file, until);
        lease.name > now
    }

    /// A kernel has moved a name of this file to another MDT. Whether the MDT of the file calls all
    /// names of it back: a change of a name anywhere changes the file, too.
    pub(crate) fn names_are_called_back(&self, file: Fid) -> bool {
        let now = self.env.now();
        let grants = self.of(file);
        let mut known = grants.known();
        let is_called_back = known.cache.is_called_back(file, Bits::LOOKUP, now);
        if is_called_back {
            known.cache.told(file, now + KERNEL_BELIEF_MAX);
        }
        is_called_back
    }

    /// The kernel is to forget what it was told of these files, once it can.
    pub(crate) fn forget_names(&self, files: &[Fid]) {
        let Some(kernel) = self.shared.kernel() else { return };
        self.shared.recalls.count();
        for forgetting in files.iter().filter_map(|file| kernel.forget(*file, true)) {
            self.env.spawn("names forgotten", forgetting);
        }
    }

    /// The same of the attributes of one, whose names stay.
    pub(crate) fn forget_attrs(&self, file: Fid) {
        let Some(kernel) = self.shared.kernel() else { return };
        self.shared.recalls.count();
        if let Some(forgetting) = kernel.forget(self.shared.shown(file), false) {
            self.env.spawn("attributes forgotten", forgetting);
        }
    }

    /// A kernel is told of files.
    pub(super) fn serve(&self, kernel: Rc<dyn Kernel>) {
        *self.shared.kernel.borrow_mut() = Some(kernel);
    }

    /// Whether a kernel may be told that an answer holds for so long. It may not if anything was
    /// called back since: the kernel may have known nothing of the file then, and was not made to
    /// forget. Nor while a change may be executed whose caller is gone: the kernel hears of it no
    /// more.
    pub(super) fn may_be_told(&self, lease: Lease) -> bool {
        let is_settled = |grants: &Rc<Grants>| grants.known.borrow().unsettled == 0;
        lease.recalls == self.shared.recalls.now() && self.by_mdt.borrow().values().all(is_settled)
    }

    /// The kernel believes what it was told of a file until then. An MDT that only has a name of
    /// the file may call that back.
    pub(super) fn told_kernel(&self, fid: Fid, until: Instant) {
        for grants in self.by_mdt.borrow().values() {
            grants.known.borrow_mut().cache.told(fid, until);
        }
        if let Some(stripes) = self.shared.striped.shards(fid) {
            self.shared.striped.told(fid, until);
            for shard in stripes.places() {
                self.of(shard).known.borrow_mut().cache.told(shard, until);
            }
        }
    }

    pub(super) fn sum(&self, of: impl Fn(&Known, Instant) -> usize) -> usize {
        let now = self.env.now();
        self.by_mdt.borrow().values().map(|grants| of(&grants.known.borrow(), now)).sum()
    }

    pub(super) fn lru(&self) -> Lru {
        self.shared.lru.get()
    }

    /// Returns the MDTs that may have to hear of it.
    pub(super) fn set_lru(&self, lru: Lru) -> Vec<u32> {
        self.shared.lru.set(lru);
        self.each(|known, now| known.set_lru(lru, now))
    }

    /// Keeps none. Returns the MDTs that may have to hear of it.
    pub(super) fn drop_all(&self) -> Vec<u32> {
        self.each(Known::drop_all)
    }

    fn each(&self, mut work: impl FnMut(&mut Known, Instant)) -> Vec<u32> {
        let now = self.env.now();
        let all = self.all();
        for (_, grants) in &all {
            work(&mut grants.known.borrow_mut(), now);
        }
        all.into_iter().map(|(mdt, _)| mdt).collect()
    }

    /// Forgets the bytes of all files.
    pub(crate) fn forget_all_bytes(&self) {
        self.each(|known, _| known.on_open.clear());
    }

    pub(crate) fn on_open_stats(&self) -> OnOpenStats {
        let all = self.all();
        let stats = all.iter().map(|(_, grants)| grants.known.borrow().on_open.stats());
        stats.fold(OnOpenStats::default(), |sum, one| OnOpenStats {
            hits: sum.hits + one.hits,
            misses: sum.misses + one.misses,
            bytes: sum.bytes + one.bytes,
        })
    }
}

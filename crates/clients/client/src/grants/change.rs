//! This client's own changes: the cached values that each one affects, and the client's knowledge
//! after it.
//!
//! ```text
//! begin --reply--> its values are taken; changes without a value are not known
//!       --refusal--> as before
//!       --nobody waits, or no answer--> nothing is known, and nothing is taken from answers under
//!                  way; again when the MDT has executed it or never will. Until then the kernel
//!                  gets nothing that it may keep.
//! ```

use std::cell::Cell;
use std::rc::Rc;

use endpoint::Hold;
use ldlm::grants::{ChangeId, Question, Want};
use types::{Instant, Transno};

use super::scope::{Scope, Taking};
use super::{ATTRS, Grants, Known, Lease, NAMED, STAT, lease_of};
use crate::Error;
use crate::stat::Stat;

impl Known {
    /// A change is about to be sent.
    pub(super) fn begin(&mut self, scope: &mut Scope, now: Instant) -> ChangeId {
        self.changes += 1;
        let id = ChangeId(self.changes);
        self.cache.begin(id, &scope.wants);
        if let Some(taking) = &mut scope.taking {
            self.begin_taking(id, taking, now);
        }
        for dir in scope.dirs() {
            self.listings.begin_change(dir);
        }
        for name in &scope.names {
            self.cache.begin_name(name.dir, name.hash);
        }
        id
    }

    /// Finds the files of names that are taken. Other clients may see the change before its answer
    /// is here, so nothing is answered of these files. One that is not known may be any file.
    fn begin_taking(&mut self, id: ChangeId, taking: &mut Taking, now: Instant) {
        for (dir, name) in std::mem::take(&mut taking.names) {
            match self.file_of((dir, &name), now) {
                Some((fid, _)) => taking.files.push(Want { fid, bits: ATTRS }),
                None => taking.unknown += 1,
            }
        }
        self.cache.begin(id, &taking.files);
        self.unknown += taking.unknown;
        self.takings.begin();
    }

    /// What the answer told of these files was taken before.
    fn end_taking(&mut self, id: ChangeId, scope: &Scope, now: Instant) {
        let Some(taking) = &scope.taking else { return };
        self.cache.end(id, &taking.files, Transno::NONE, now);
        self.unknown -= taking.unknown;
        self.takings.end();
    }

    /// Names came and went as the scope says, or did not.
    fn end_names(&mut self, scope: &Scope, happened: bool) {
        for name in &scope.names {
            match name.comes {
                _ if !happened => {}
                true => self.cache.add_name(name.dir, name.hash),
                false => self.cache.remove_name(name.dir, name.hash),
            }
            self.cache.end_name(name.dir, name.hash);
        }
        for dir in scope.dirs() {
            self.listings.end_change(dir);
        }
    }

    /// What a rename touched that its answer does not tell of is not known any more.
    fn end_touched(&mut self, id: ChangeId, scope: &Scope, stat: &Stat, now: Instant) {
        let Some(touched) = &stat.touched else {
            self.cache.doubt();
            return;
        };
        let parents: Vec<_> = scope.wants.iter().map(|want| want.fid).collect();
        for fid in touched.iter().filter(|fid| !parents.contains(fid)) {
            let want = Want { fid: *fid, bits: NAMED };
            self.cache.begin(id, &[want]);
            self.cache.end(id, &[want], stat.as_of, now);
            self.listings.forget(*fid); // a directory that moved has another parent
        }
    }

    /// A change was executed, and its answer tells this: how long it holds.
    pub(super) fn end(
        &mut self,
        (id, scope): (ChangeId, &Scope),
        question: Question,
        since: Instant,
        stat: &Stat,
        now: Instant,
    ) -> Lease {
        let told = Want { fid: stat.attr.fid(), bits: scope.told };
        self.cache.begin(id, &[told]);
        let newer = self.take_all(question, stat, now);
        if let Some((dir, gift)) = &stat.dir {
            self.take(question, dir, (*gift, STAT), stat.grant, stat.as_of, now);
        }
        self.cache.end(id, &scope.wants, stat.as_of, now);
        self.cache.end(id, &[told], stat.as_of, now);
        self.end_taking(id, scope, now);
        let lease = self.lease(newer, since, stat, now);
        // a rename between two names of one file has done nothing
        let is_same = scope.is_wide && stat.touched.as_ref().is_some_and(Vec::is_empty);
        self.end_names(scope, !is_same);
        if !scope.names.is_empty() {
            self.listings.forget(stat.attr.fid()); // a directory that is gone has no names
        }
        if stat.as_of.is_none() {
            self.cache.doubt();
        } else if scope.is_wide {
            self.end_touched(id, scope, stat, now);
        }
        let is_new = scope.names.iter().any(|name| name.comes) && !scope.is_wide;
        if is_new && stat.attr.is_dir() && lease.attrs > now {
            self.cache.begin_names(stat.attr.fid(), true);
        }
        lease
    }

    /// A change was executed by another MDT and this one.
    pub(super) fn end_elsewhere(&mut self, id: ChangeId, scope: &Scope, now: Instant) {
        self.recalls.count(); // answers of before are not told to a kernel that knows nothing yet
        self.cache.end_elsewhere(id, &scope.wants);
        self.end_taking(id, scope, now);
        self.end_names(scope, true);
    }

    /// It is not under way any more, and has changed nothing that is not doubted.
    pub(super) fn end_silently(&mut self, id: ChangeId, scope: &Scope, now: Instant) {
        self.cache.end(id, &scope.wants, Transno::NONE, now);
        self.end_taking(id, scope, now);
        self.end_names(scope, false);
    }
}

/// A change until its fate is known.
struct UnderWay {
    grants: Rc<Grants>,
    id: ChangeId,
    scope: Scope,
    is_over: Cell<bool>,
    /// Its caller is gone.
    is_abandoned: Cell<bool>,
}

impl UnderWay {
    /// Nobody knows whether it has been executed.
    fn doubt(&self) {
        if !self.grants.bugs.keep_old_beliefs() {
            let mut known = self.grants.known.borrow_mut();
            known.recalls.count();
            known.cache.doubt();
        }
    }

    /// Its caller is gone, and it may be executed later.
    fn abandon(&self) {
        self.doubt();
        if !self.grants.bugs.keep_old_beliefs() {
            self.is_abandoned.set(true);
            self.grants.known.borrow_mut().unsettled += 1;
        }
    }

    fn end(&self) {
        self.is_over.set(true);
        let now = self.grants.env.now();
        self.grants.known.borrow_mut().end_silently(self.id, &self.scope, now);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_over.get() {
            self.end();
            self.doubt();
        }
        if self.is_abandoned.get() {
            self.grants.known.borrow_mut().unsettled -= 1;
        }
    }
}

/// A change whose answer somebody waits for. Dropped without a word, it may have happened or not,
/// or happen later.
pub(crate) struct Changing {
    under_way: Rc<UnderWay>,
    question: Question,
    since: Instant,
}

impl Changing {
    /// What lives until the fate of the change is known.
    pub(crate) fn hold(&self) -> Hold {
        Hold(Some(Rc::clone(&self.under_way) as _))
    }

    /// It failed. Only a server's refusal says that nothing has changed.
    pub(crate) fn failed(self, error: &Error) {
        if error.is_refusal() {
            self.under_way.end();
        }
    }

    /// It happened, with this answer: how long that holds.
    pub(crate) fn done(self, stat: &Stat) -> Lease {
        let UnderWay { grants, id, scope, is_over, .. } = &*self.under_way;
        if grants.bugs.keep_old_beliefs() {
            self.under_way.end();
            let recalls = grants.known().recalls.now();
            return Lease { recalls, ..lease_of(self.since, stat) };
        }
        is_over.set(true);
        let now = grants.env.now();
        grants.known().end((*id, scope), self.question, self.since, stat, now)
    }

    /// It happened, and the answer came from another MDT.
    pub(crate) fn done_elsewhere(self) {
        let UnderWay { grants, id, scope, is_over, .. } = &*self.under_way;
        if grants.bugs.keep_old_beliefs() {
            return self.under_way.end();
        }
        is_over.set(true);
        let now = grants.env.now();
        grants.known().end_elsewhere(*id, scope, now);
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        if !self.under_way.is_over.get() {
            self.under_way.abandon();
        }
        self.under_way.grants.known.borrow_mut().cache.finish(self.question);
    }
}

impl Grants {
    /// Something is being changed.
    pub(crate) fn changing(self: &Rc<Self>, mut scope: Scope) -> Changing {
        let since = self.env.now();
        let mut known = self.known.borrow_mut();
        let id = known.begin(&mut scope, since);
        let question = known.cache.ask(since);
        drop(known);
        let [is_over, is_abandoned] = [false, false].map(Cell::new);
        let under_way = UnderWay { grants: self.clone(), id, scope, is_over, is_abandoned };
        Changing { under_way: Rc::new(under_way), question, since }
    }
}

//! This client's own changes: the cached values that each one affects, and the client's knowledge
//! after it.
//!
//! ```text
//! begin --reply--> its values are taken; what it changed and did not tell is not known
//!       --refusal--> as before
//!       --nobody waits, or no answer--> nothing is known, and nothing is taken from answers under
//!                  way; again when the MDT has executed it or never will. Until then the kernel is
//!                  told nothing that it may believe.
//! ```

use std::cell::Cell;
use std::rc::Rc;

use endpoint::Hold;
use ldlm::grants::{Bits, ChangeId, Question, Want};
use types::{Fid, Instant, Transno};

use super::names::hash_of;
use super::pages::DATA;
use super::{ATTRS, Grants, Known, Lease, NAMED, STAT, lease_of};
use crate::Error;
use crate::inode::Stat;

/// What a change of this client's is about.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Files that are known before it is executed.
    wants: Vec<Want>,
    /// What it changes of the file that its answer tells of.
    told: Bits,
    /// It may change files that neither names.
    is_wide: bool,
    /// Names that come and go.
    names: Vec<NameChange>,
}

/// A name, as its directory's set knows it.
#[derive(Clone, Copy, Debug)]
struct NameChange {
    dir: Fid,
    hash: u64,
    comes: bool,
}

impl Scope {
    fn of(fids: &[Fid], told: Bits) -> Scope {
        let wants = fids.iter().map(|fid| Want { fid: *fid, bits: Bits::UPDATE }).collect();
        Scope { wants, told, is_wide: false, names: Vec::new() }
    }

    /// The directories in which names come, go or move.
    fn dirs(&self) -> impl Iterator<Item = Fid> {
        let is_wide = self.is_wide;
        let moved = self.wants.iter().filter(move |_| is_wide).map(|want| want.fid);
        self.names.iter().map(|name| name.dir).chain(moved)
    }

    /// The directories in which names come.
    pub(crate) fn named_in(&self) -> impl Iterator<Item = Fid> {
        let wide = self.wants.iter().filter(|_| self.is_wide).map(|want| want.fid);
        self.names.iter().filter(|name| name.comes).map(|name| name.dir).chain(wide)
    }

    fn naming(mut self, dir: Fid, name: &[u8], comes: bool) -> Scope {
        self.names.push(NameChange { dir, hash: hash_of(name), comes });
        self
    }

    /// A file is opened for reading: nothing changes but that it is open.
    pub(crate) fn open() -> Scope {
        Scope::of(&[], Bits::empty())
    }

    /// A file is opened so that its data may change, and perhaps cut.
    pub(crate) fn open_to_change(fid: Fid) -> Scope {
        let wants = vec![Want { fid, bits: DATA }];
        Scope { wants, ..Scope::of(&[], Bits::UPDATE | DATA) }
    }

    /// The file that a name stands for may be opened so that its data may change.
    pub(crate) fn or_changed(mut self) -> Scope {
        self.told |= DATA;
        self
    }

    /// Size and place of a file's data, with its attributes.
    pub(crate) fn shape(fid: Fid) -> Scope {
        let bits = NAMED | DATA;
        Scope { wants: vec![Want { fid, bits }], ..Scope::of(&[], bits) }
    }

    /// A name comes.
    pub(crate) fn entry(dir: Fid, name: &[u8]) -> Scope {
        Scope::of(&[dir], Bits::UPDATE).naming(dir, name, true)
    }

    /// A name goes.
    pub(crate) fn removal(dir: Fid, name: &[u8]) -> Scope {
        Scope::of(&[dir], NAMED).naming(dir, name, false)
    }

    /// A file that has other names gets one more.
    pub(crate) fn link(file: Fid, dir: Fid, name: &[u8]) -> Scope {
        Scope::of(&[dir, file], NAMED).naming(dir, name, true)
    }

    /// Attributes of a file or directory.
    pub(crate) fn attrs(fid: Fid) -> Scope {
        Scope { wants: vec![Want { fid, bits: NAMED }], ..Scope::of(&[], NAMED) }
    }

    /// Data of a file, and the times and the size that go with it.
    pub(crate) fn data(fid: Fid) -> Scope {
        Scope { wants: vec![Want { fid, bits: ATTRS }], ..Scope::of(&[], ATTRS) }
    }

    /// The same, where a handle for writing is closed: what is written is kept no more.
    pub(crate) fn written(fid: Fid) -> Scope {
        let bits = ATTRS | Bits::WRITE;
        Scope { wants: vec![Want { fid, bits }], ..Scope::of(&[], bits) }
    }

    /// Names move; what is replaced the answer tells if it is the first.
    pub(crate) fn rename(from: (Fid, &[u8]), to: (Fid, &[u8]), is_exchange: bool) -> Scope {
        let scope = Scope { is_wide: true, ..Scope::of(&[from.0, to.0], NAMED) };
        match is_exchange {
            true => scope,
            false => scope.naming(from.0, from.1, false).naming(to.0, to.1, true),
        }
    }
}

impl Known {
    /// A change is about to be sent.
    pub(super) fn begin(&mut self, scope: &Scope) -> ChangeId {
        self.changes += 1;
        let id = ChangeId(self.changes);
        self.cache.begin(id, &scope.wants);
        for dir in scope.dirs() {
            self.listings.begin_change(dir);
        }
        for name in &scope.names {
            self.cache.begin_name(name.dir, name.hash);
        }
        id
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
        let lease = self.lease(newer, since, stat, now);
        self.end_names(scope, true);
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

    /// It is not under way any more, and has changed nothing that is not doubted.
    pub(super) fn end_silently(&mut self, id: ChangeId, scope: &Scope, now: Instant) {
        self.cache.end(id, &scope.wants, Transno::NONE, now);
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
    pub(crate) fn changing(self: &Rc<Self>, scope: Scope) -> Changing {
        let since = self.env.now();
        let mut known = self.known.borrow_mut();
        let id = known.begin(&scope);
        let question = known.cache.ask(since);
        drop(known);
        let [is_over, is_abandoned] = [false, false].map(Cell::new);
        let under_way = UnderWay { grants: self.clone(), id, scope, is_over, is_abandoned };
        Changing { under_way: Rc::new(under_way), question, since }
    }
}

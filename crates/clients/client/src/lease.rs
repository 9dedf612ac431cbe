//! Short leases, this client's side: until when an answer holds, and the directories that need not
//! be asked for again.
//!
//! The MDT says with an answer for how long no other client changes what it tells
//! (docs/decisions/0005). That counts from when this client *began* to ask, so that a lost reply or
//! a restart of the MDT makes it shorter and never longer. What this client changes itself the MDT
//! lets pass, so it is watched here.
//!
//! Invariants
//! - An answer that crossed a change of what it tells, or of where it was found, by this client
//!   comes without a lease: nobody knows which was first.
//! - What is believed of a directory is as it was after this client's last change that was
//!   answered, and is not told while a further one is under way.

use std::cell::RefCell;
use std::rc::Rc;

use env::Env;
use queues::FixedMap;
use types::{Fid, Instant, Span};
use wire::Attr;
use wire::attr::ATTR_HAS_XATTR;
use wire::dirent::Dirent;

use crate::Error;
use crate::config::Bugs;
use crate::inode::Stat;

/// Directories that are believed, and files without extended attributes; beyond, all of them are
/// forgotten together.
const BELIEFS_MAX: usize = 4_096;

/// Changed files that a question under way remembers; with more, all are taken for changed.
const CHANGED_MAX: usize = 64;

/// Until when, by this client's clock, the servers promise that no other client changes what an
/// answer told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The attributes; of a directory its entries too.
    pub attrs: Instant,
    /// That the name stands for this file.
    pub name: Instant,
}

/// What is under way, and what is believed.
#[derive(Default)]
struct Beliefs {
    dirs: FixedMap<Fid, (Attr, Instant)>,
    /// Files and directories without extended attributes, until when.
    bare: FixedMap<Fid, Instant>,
    changing: FixedMap<Fid, u32>,
    asking: Vec<Ask>,
    next: u64,
}

/// A question under way, or a change whose answer tells of its directory.
struct Ask {
    id: u64,
    about: Fid,
    /// The answer's version says whether it is older than others of its kind.
    is_change: bool,
    crossed: bool,
    /// What changed since it began.
    changed: Vec<Fid>,
}

impl Ask {
    fn note(&mut self, fid: Fid) {
        self.crossed |= self.changed.len() >= CHANGED_MAX;
        if !self.crossed {
            self.changed.push(fid);
        }
    }

    /// Whether what its answer tells of `fid` may be older than a change that was answered before.
    fn is_crossed(&self, fid: Fid) -> bool {
        self.crossed || self.changed.contains(&fid)
    }
}

impl Beliefs {
    fn ask(&mut self, about: Fid, is_change: bool) -> u64 {
        self.next += 1;
        self.asking.push(Ask {
            id: self.next,
            about,
            is_change,
            crossed: false,
            changed: Vec::new(),
        });
        self.next
    }

    /// The question is over.
    fn answered(&mut self, id: u64) -> Option<Ask> {
        let at = self.asking.iter().position(|ask| ask.id == id)?;
        Some(self.asking.swap_remove(at))
    }

    /// Whether what an answer that comes now tells of `fid` may be older than a change that was
    /// answered before.
    fn is_crossed(&self, id: u64, fid: Fid) -> bool {
        self.asking.iter().find(|ask| ask.id == id).is_none_or(|ask| ask.is_crossed(fid))
    }

    /// A question that no change crossed told of a directory.
    fn was_told(&mut self, attr: &Attr, until: Instant) {
        let newer = |(known, end): &(Attr, Instant)| known.version > attr.version && *end > until;
        if !self.dirs.get(&attr.fid()).is_some_and(newer) {
            self.keep(attr, until);
        }
    }

    /// A question that no change crossed told of a file or directory.
    fn heard(&mut self, attr: &Attr, until: Instant) {
        if attr.is_dir() {
            self.was_told(attr, until);
        }
        if attr.flags & ATTR_HAS_XATTR == 0 {
            self.is_bare(attr.fid(), until);
        }
    }

    /// A listing was answered. What crossed a change is not leased.
    fn was_listed(&mut self, id: u64, entries: &mut [Dirent], lease: Lease) -> Lease {
        let given = lease != Lease::default();
        let ask = self.answered(id).filter(|ask| given && !ask.crossed);
        for entry in entries.iter_mut().filter(|entry| entry.leased) {
            let fid = entry.attr.fid();
            entry.leased = ask.as_ref().is_some_and(|ask| !ask.is_crossed(fid));
            if entry.leased {
                self.heard(&entry.attr, lease.attrs);
            }
        }
        if ask.is_some() { lease } else { Lease::default() }
    }

    /// A change told of its directory, perhaps later than a change after it.
    fn learn(&mut self, attr: &Attr, until: Instant) {
        let known = self.dirs.get(&attr.fid());
        if known.is_some_and(|(known, end)| {
            known.version > attr.version || (known.version == attr.version && *end > until)
        }) {
            return;
        }
        self.keep(attr, until);
    }

    /// A directory has come to this version, and nothing is believed of it: a change before that,
    /// which is answered later, must not be believed either.
    fn outdate(&mut self, attr: &Attr) {
        let known = self.dirs.get(&attr.fid()).map_or(0, |(known, _)| known.version);
        self.keep(&Attr { version: known.max(attr.version), ..*attr }, Instant::default());
    }

    fn keep(&mut self, attr: &Attr, until: Instant) {
        if self.dirs.len() >= BELIEFS_MAX {
            self.dirs.clear();
        }
        self.dirs.insert(attr.fid(), (*attr, until));
    }

    /// A file has no extended attributes.
    fn is_bare(&mut self, fid: Fid, until: Instant) {
        if self.bare.len() >= BELIEFS_MAX {
            self.bare.clear();
        }
        self.bare.insert(fid, until);
    }

    fn has_no_xattrs(&self, fid: Fid, now: Instant) -> bool {
        !self.changing.contains_key(&fid) && self.bare.get(&fid).is_some_and(|until| *until > now)
    }

    fn get(&self, fid: Fid, now: Instant) -> Option<(Attr, Instant)> {
        let quiet = !self.changing.contains_key(&fid);
        self.dirs.get(&fid).filter(|(_, until)| quiet && *until > now).copied()
    }

    fn begin(&mut self, scope: &Scope) -> u64 {
        for dir in &scope.dirs {
            *self.changing.entry(*dir).or_default() += 1;
        }
        self.ask(scope.dirs.first().copied().unwrap_or(Fid::ZERO), true)
    }

    fn end(&mut self, id: u64, scope: &Scope, outcome: &Outcome) {
        for dir in &scope.dirs {
            let count = self.changing.get_mut(dir).expect("it began");
            *count -= 1;
            if *count == 0 {
                self.changing.remove(dir);
            }
        }
        scope.dirs.iter().for_each(|fid| {
            self.bare.remove(fid);
        });
        let crossed = self.answered(id).is_none_or(|ask| ask.crossed);
        let unknown = matches!(outcome, Outcome::Unknown);
        match outcome {
            Outcome::Refused => return,
            Outcome::Done { dir, until, .. } if !scope.crosses_all && !crossed => {
                self.learn(dir, *until)
            }
            _ if scope.wide || unknown => {
                self.dirs.clear();
                self.bare.clear();
            }
            Outcome::Done { dir, .. } if !scope.crosses_all => self.outdate(dir),
            _ => scope.dirs.iter().for_each(|dir| {
                self.dirs.remove(dir);
            }),
        }
        let all = scope.crosses_all || unknown;
        for ask in &mut self.asking {
            ask.crossed |= all || (!ask.is_change && scope.dirs.contains(&ask.about));
            if let Outcome::Done { file, .. } = outcome {
                ask.note(*file);
            }
            if !ask.is_change {
                scope.dirs.iter().for_each(|dir| ask.note(*dir));
            }
        }
    }
}

/// How a change ended.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// There is no answer, or nobody waited for it.
    Unknown,
    /// Nothing has changed.
    Refused,
    /// The directory then: its attributes and how long they hold, or only its version. And which
    /// file it was about.
    Done { dir: Attr, until: Instant, file: Fid },
}

/// What a change of this client's is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    dirs: Vec<Fid>,
    /// It changes more than the entries of a directory: whatever is under way may be about that.
    crosses_all: bool,
    /// It may change any directory.
    wide: bool,
}

impl Scope {
    /// A name comes or goes.
    pub(crate) fn entry(dir: Fid) -> Scope {
        Scope { dirs: vec![dir], ..Scope::default() }
    }

    /// A name goes. With that of a directory goes the directory.
    pub(crate) fn removal(dir: Fid, is_dir: bool) -> Scope {
        Scope { dirs: vec![dir], crosses_all: is_dir, wide: is_dir }
    }

    /// A file that has other names gets one more.
    pub(crate) fn link(dir: Fid) -> Scope {
        Scope { dirs: vec![dir], crosses_all: true, wide: false }
    }

    /// Attributes of a file or directory.
    pub(crate) fn attrs(fid: Fid) -> Scope {
        Scope::link(fid)
    }

    pub(crate) fn rename(from: Fid, to: Fid) -> Scope {
        Scope { dirs: vec![from, to], crosses_all: true, wide: true }
    }
}

/// A question under way; its answer comes to [`Asking::told`].
pub(crate) struct Asking {
    leases: Rc<Leases>,
    id: u64,
    since: Instant,
}

impl Asking {
    /// How long the answer holds.
    pub(crate) fn told(self, stat: &Stat) -> Lease {
        let mut beliefs = self.leases.beliefs.borrow_mut();
        if beliefs.answered(self.id).is_none_or(|ask| ask.is_crossed(stat.attr.fid())) {
            return Lease::default();
        }
        let lease = lease_of(self.since, stat);
        if lease.attrs > self.since {
            beliefs.heard(&stat.attr, lease.attrs);
        }
        lease
    }

    /// How long a page of the directory holds: the attributes of its leased entries for `attrs`
    /// from when it was asked for, their names for `name`. Entries that crossed a change are not
    /// leased.
    pub(crate) fn told_page(self, entries: &mut [Dirent], attrs: Span, name: Span) -> Lease {
        let lease = Lease { attrs: self.since + attrs, name: self.since + name };
        let given = attrs > Span::ZERO && name > Span::ZERO;
        let lease = if given { lease } else { Lease::default() };
        self.leases.beliefs.borrow_mut().was_listed(self.id, entries, lease)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.leases.beliefs.borrow_mut().answered(self.id);
    }
}

/// A change under way. Dropped without a word, it may have happened or not.
pub(crate) struct Changing {
    leases: Rc<Leases>,
    id: u64,
    scope: Scope,
    since: Instant,
    outcome: Outcome,
}

impl Changing {
    /// It failed. Only a server's refusal says that nothing has changed.
    pub(crate) fn failed(mut self, error: &Error) {
        if error.is_refusal() {
            self.outcome = Outcome::Refused;
        }
    }

    /// It happened, with this answer: how long that holds.
    pub(crate) fn done(mut self, stat: &Stat) -> Lease {
        let version = Attr { version: stat.transno, ..Attr::default() };
        let dir = self.scope.dirs.first().copied().unwrap_or(Fid::ZERO);
        let (dir, lease) = stat.dir.unwrap_or((version.with_fid(dir), Span::ZERO));
        let file = stat.attr.fid();
        self.outcome = Outcome::Done { dir, until: self.since + lease, file };
        let crossed = self.leases.beliefs.borrow().is_crossed(self.id, file);
        if crossed { Lease::default() } else { lease_of(self.since, stat) }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        if self.leases.bugs.keep_old_beliefs() {
            self.outcome = Outcome::Refused;
        }
        self.leases.beliefs.borrow_mut().end(self.id, &self.scope, &self.outcome);
    }
}

fn lease_of(since: Instant, stat: &Stat) -> Lease {
    let end = |span: Span| if span == Span::ZERO { Instant::default() } else { since + span };
    Lease { attrs: end(stat.lease), name: end(stat.name_lease) }
}

/// The leases of one client.
pub(crate) struct Leases {
    env: Env,
    bugs: Bugs,
    beliefs: RefCell<Beliefs>,
}

impl Leases {
    pub(crate) fn new(env: &Env, bugs: Bugs) -> Rc<Leases> {
        Rc::new(Leases { env: env.clone(), bugs, beliefs: RefCell::default() })
    }

    /// Something about `fid` is being asked.
    pub(crate) fn asking(self: &Rc<Self>, fid: Fid) -> Asking {
        let id = self.beliefs.borrow_mut().ask(fid, false);
        Asking { leases: self.clone(), id, since: self.env.now() }
    }

    /// Something is being changed.
    pub(crate) fn changing(self: &Rc<Self>, scope: Scope) -> Changing {
        let id = self.beliefs.borrow_mut().begin(&scope);
        Changing {
            leases: self.clone(),
            id,
            scope,
            since: self.env.now(),
            outcome: Outcome::Unknown,
        }
    }

    /// Whether `name` is an extended attribute that everybody may ask for, of a file that is known
    /// to have none.
    pub(crate) fn is_absent(&self, fid: Fid, name: &[u8]) -> bool {
        let open_to_all = name.starts_with(b"security.") || name.starts_with(b"system.posix_acl_");
        open_to_all && self.beliefs.borrow().has_no_xattrs(fid, self.env.now())
    }

    /// Attributes of a directory that nobody can have changed, if they are known.
    pub(crate) fn believed(&self, fid: Fid) -> Option<(Attr, Lease)> {
        let (attr, attrs) = self.beliefs.borrow().get(fid, self.env.now())?;
        Some((attr, Lease { attrs, ..Lease::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Fid = Fid::ROOT;
    const OTHER: Fid = Fid { oid: 7, ..Fid::ROOT };
    const FILE: Fid = Fid { oid: 8, ..Fid::ROOT };

    fn crossed(beliefs: &mut Beliefs, ask: u64, fid: Fid) -> bool {
        beliefs.answered(ask).expect("it was asked").is_crossed(fid)
    }

    fn at(ms: u64) -> Instant {
        Instant::default() + Span::millis(ms)
    }

    fn dir(version: u64) -> Attr {
        Attr { version, ..Attr::default() }.with_fid(D)
    }

    fn done(version: u64, until: u64) -> Outcome {
        Outcome::Done { dir: dir(version), until: at(until), file: FILE }
    }

    #[test]
    fn an_answer_that_crossed_a_change_holds_for_no_time() {
        let mut beliefs = Beliefs::default();
        let (before, scope) = (beliefs.ask(D, false), Scope::entry(D));
        let change = beliefs.begin(&scope);
        let (during, elsewhere) = (beliefs.ask(D, false), beliefs.ask(OTHER, false));
        assert!(!crossed(&mut beliefs, before, D), "it was answered before the change was");
        beliefs.end(change, &scope, &done(1, 50));
        let after = beliefs.ask(D, false);
        assert!(crossed(&mut beliefs, during, D));
        assert!(!crossed(&mut beliefs, after, D));
        assert!(!beliefs.is_crossed(elsewhere, OTHER));
        assert!(beliefs.is_crossed(elsewhere, D), "a lookup of the directory itself, from above");
        assert!(crossed(&mut beliefs, elsewhere, FILE), "the file through another of its names");
        assert!(beliefs.asking.is_empty());
    }

    #[test]
    fn of_a_page_what_crossed_a_change_is_not_leased() {
        let mut beliefs = Beliefs::default();
        let lease = Lease { attrs: at(50), name: at(50) };
        let entry = |fid| Dirent {
            cookie: 1,
            attr: Attr::default().with_fid(fid),
            has_attr: true,
            leased: true,
            name: b"n".to_vec(),
        };
        let listed = |beliefs: &mut Beliefs, ask, lease| {
            let mut entries = [entry(FILE), entry(OTHER)];
            let told = beliefs.was_listed(ask, &mut entries, lease);
            (told == lease, entries.map(|entry| entry.leased))
        };
        let ask = beliefs.ask(D, false);
        assert_eq!(listed(&mut beliefs, ask, lease), (true, [true, true]));
        assert!(beliefs.has_no_xattrs(FILE, at(49)), "its attributes say so");
        let ask = beliefs.ask(D, false);
        assert_eq!(listed(&mut beliefs, ask, Lease::default()), (true, [false, false]));
        let elsewhere = Fid { oid: 9, ..D };
        let (ask, scope) = (beliefs.ask(D, false), Scope::entry(elsewhere));
        let end = Outcome::Done { dir: dir(1).with_fid(elsewhere), until: at(0), file: FILE };
        let change = beliefs.begin(&scope);
        beliefs.end(change, &scope, &end);
        assert_eq!(
            listed(&mut beliefs, ask, lease),
            (true, [false, true]),
            "one of its files was changed meanwhile"
        );
        let (ask, scope) = (beliefs.ask(D, false), Scope::entry(D));
        let change = beliefs.begin(&scope);
        beliefs.end(change, &scope, &done(2, 50));
        assert_eq!(listed(&mut beliefs, ask, lease), (false, [false, false]), "a name came");
    }

    #[test]
    fn a_rename_forgets_every_directory() {
        let mut beliefs = Beliefs::default();
        beliefs.learn(&dir(1).with_fid(OTHER), at(50));
        let (inside, scope) = (Scope::entry(OTHER), Scope::rename(D, D));
        let (ask, create) = (beliefs.ask(OTHER, false), beliefs.begin(&inside));
        let rename = beliefs.begin(&scope);
        beliefs.end(rename, &scope, &done(3, 0));
        assert!(crossed(&mut beliefs, ask, OTHER));
        beliefs.end(
            create,
            &inside,
            &Outcome::Done { dir: dir(2).with_fid(OTHER), until: at(50), file: FILE },
        );
        assert_eq!(beliefs.get(OTHER, at(1)), None, "it may have been moved since");
        assert!(beliefs.changing.is_empty());
    }

    #[test]
    fn a_changing_directory_is_answered_after_its_change() {
        let mut beliefs = Beliefs::default();
        beliefs.learn(&dir(1), at(50));
        assert_eq!(beliefs.get(D, at(49)), Some((dir(1), at(50))));
        let scope = Scope::entry(D);
        let (first, second) = (beliefs.begin(&scope), beliefs.begin(&scope));
        assert_eq!(beliefs.get(D, at(1)), None);
        beliefs.end(second, &scope, &done(3, 60));
        assert_eq!(beliefs.get(D, at(1)), None, "the other change is under way");
        beliefs.end(first, &scope, &done(2, 70));
        assert_eq!(
            beliefs.get(D, at(1)),
            Some((dir(3), at(60))),
            "answers may overtake each other"
        );
        assert_eq!(beliefs.get(D, at(60)), None);
    }

    #[test]
    fn a_crossed_answer_ages_older_answers_that_come_after_it() {
        let mut beliefs = Beliefs::default();
        let (scope, chmod) = (Scope::entry(D), Scope::attrs(OTHER));
        let (resent, change) = (beliefs.begin(&scope), beliefs.begin(&chmod));
        beliefs.end(change, &chmod, &done(1, 0));
        let later = beliefs.begin(&scope);
        beliefs.end(resent, &scope, &done(5, 50));
        beliefs.end(later, &scope, &done(4, 70));
        assert_eq!(beliefs.get(D, at(1)), None, "the directory is at 5 by now");
    }

    #[test]
    fn an_answer_without_its_directory_ages_older_answers() {
        let mut beliefs = Beliefs::default();
        let scope = Scope::entry(D);
        let (first, second) = (beliefs.begin(&scope), beliefs.begin(&scope));
        beliefs.end(second, &scope, &done(3, 0));
        beliefs.end(first, &scope, &done(2, 70));
        assert_eq!(beliefs.get(D, at(1)), None);
        let chmod = Scope::attrs(D);
        let (create, change) = (beliefs.begin(&scope), beliefs.begin(&chmod));
        beliefs.end(change, &chmod, &done(5, 0));
        beliefs.end(create, &scope, &done(4, 70));
        assert_eq!(beliefs.get(D, at(1)), None);
        let change = beliefs.begin(&scope);
        beliefs.end(change, &scope, &done(9, 0));
        beliefs.was_told(&dir(3), at(80));
        assert_eq!(
            beliefs.get(D, at(1)),
            Some((dir(3), at(80))),
            "whoever asks after it is told what is"
        );
    }

    #[test]
    fn absent_xattrs_are_known_until_one_is_set_here() {
        let mut beliefs = Beliefs::default();
        beliefs.is_bare(FILE, at(50));
        assert!(beliefs.has_no_xattrs(FILE, at(49)) && !beliefs.has_no_xattrs(FILE, at(50)));
        let scope = Scope::attrs(FILE);
        let change = beliefs.begin(&scope);
        assert!(!beliefs.has_no_xattrs(FILE, at(1)));
        beliefs.end(change, &scope, &done(1, 0));
        assert!(!beliefs.has_no_xattrs(FILE, at(1)));
    }

    #[test]
    fn an_unawaited_answer_empties_the_cache_a_refusal_does_not() {
        let mut beliefs = Beliefs::default();
        beliefs.learn(&dir(1), at(50));
        let scope = Scope::entry(D);
        let change = beliefs.begin(&scope);
        beliefs.end(change, &scope, &Outcome::Refused);
        assert_eq!(beliefs.get(D, at(1)), Some((dir(1), at(50))));
        let (ask, change) = (beliefs.ask(OTHER, false), beliefs.begin(&scope));
        beliefs.end(change, &scope, &Outcome::Unknown);
        assert!(crossed(&mut beliefs, ask, OTHER));
        assert_eq!(beliefs.get(D, at(1)), None);
    }
}

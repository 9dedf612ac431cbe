//! What this client caches under grants of the MDT: until when an answer holds, and the
//! directories that need not be asked for again.
//!
//! [`ldlm::grants::Cache`] knows what is granted; the values are kept here, beside it. So far the
//! MDT gives grants that end by time. Their time counts from when this client *began* to ask, so
//! that a lost reply or a restart of the MDT makes it shorter and never longer. What this client
//! changes itself the MDT lets pass, so it is watched here.
//!
//! Invariants
//! - Of two answers about a file the one that knows of fewer changes is not believed, whichever
//!   comes first: it comes without a lease.
//! - What is believed of a directory is as it was after this client's last change that was
//!   answered, and is not told while a further one is under way.

mod change;
mod shown;
mod values;

use std::cell::RefCell;
use std::rc::Rc;

use env::Env;
use ldlm::grants::{Belief, Bits, Cache, CacheConfig, Given, Kind, Number, Question, Told};
use types::{Fid, Instant, Span, Transno};
use wire::Attr;
use wire::dirent::Dirent;

use crate::config::Bugs;
use crate::inode::Stat;
pub(crate) use change::Scope;
pub use shown::Lru;
use values::Values;

/// Files of which grants and values are kept by default. Grants that end by time are worth no more
/// memory.
const KEPT_MAX: u32 = 16_384;

/// Links, times, mode, owner: what a getattr tells.
const STAT: Bits = Bits::UPDATE.union(Bits::PERM).union(Bits::LAYOUT);

/// All that attributes tell: whether there are extended ones too.
const ATTRS: Bits = STAT.union(Bits::XATTR);

/// The same, and that the name stands for the file.
const NAMED: Bits = ATTRS.union(Bits::LOOKUP);

/// Until when, by this client's clock, the servers promise that no other client changes what an
/// answer told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The attributes; of a directory its entries too.
    pub attrs: Instant,
    /// That the name stands for this file.
    pub name: Instant,
}

/// Grants and values of one client. Neither knows a clock.
struct Known {
    cache: Cache,
    values: Values,
    numbers: u64,
    changes: u64,
    lru: Lru,
    /// Calls that were answered from here.
    hits: u64,
}

impl Default for Known {
    fn default() -> Known {
        let config = CacheConfig { lru_size: KEPT_MAX, ..CacheConfig::default() };
        Known {
            cache: Cache::new(config, Number(0)),
            values: Values::default(),
            numbers: 0,
            changes: 0,
            lru: Lru::default(),
            hits: 0,
        }
    }
}

impl Known {
    /// An answer tells of a file and gives `bits` of it. Returns those of which nothing newer is
    /// known.
    fn take(
        &mut self,
        question: Question,
        attr: &Attr,
        bits: Bits,
        as_of: Transno,
        now: Instant,
    ) -> Bits {
        if bits.is_empty() || as_of.is_none() {
            return Bits::empty();
        }
        self.numbers += 1;
        let given = Given { bits, number: Number(self.numbers), kind: Kind::Timed };
        let told = Told { fid: attr.fid(), given, as_of };
        let newer = self.cache.take(question, told, now);
        self.values.take(attr, bits, newer, self.lru.size);
        self.shed(now);
        newer
    }

    /// Lets the grants go that are too many.
    fn shed(&mut self, now: Instant) {
        let shed = self.cache.shed(now);
        assert!(shed.is_empty(), "what ends by time is given back to nobody");
    }

    /// The answer of a question, or of a change, that was sent at `since`: how long it holds.
    fn told(&mut self, question: Question, since: Instant, stat: &Stat, now: Instant) -> Lease {
        let attrs = if stat.lease > Span::ZERO { ATTRS } else { Bits::empty() };
        let name = if stat.name_lease > Span::ZERO { Bits::LOOKUP } else { Bits::empty() };
        let newer = self.take(question, &stat.attr, attrs | name, stat.as_of, now);
        lease_of(since, stat, newer)
    }

    /// The same of a page: what of its entries is not believed is not leased.
    fn listed(&mut self, question: Question, entries: &mut [Dirent], as_of: Transno, now: Instant) {
        for entry in entries.iter_mut().filter(|entry| entry.leased) {
            entry.leased = self.take(question, &entry.attr, NAMED, as_of, now) == NAMED;
        }
    }

    /// Attributes of a directory, and until when they hold.
    fn directory(&mut self, fid: Fid, now: Instant) -> Option<(Attr, Instant)> {
        let attr = self.values.directory(fid)?;
        let until = match self.cache.belief(fid, STAT, now) {
            Belief::No => return None,
            Belief::Dying => now,
            Belief::Until(until) => until,
        };
        self.hits += 1;
        Some((attr, until))
    }

    /// The MDT was started again or has ended the session: its history may lack changes that are
    /// known here.
    fn forget(&mut self, now: Instant) {
        self.cache.doubt();
        self.cache.restarted(Number(self.numbers), now);
        self.cache.recovered(Transno::NONE);
    }

    fn has_no_xattrs(&mut self, fid: Fid, now: Instant) -> bool {
        let is_known =
            self.values.is_bare(fid) && self.cache.belief(fid, Bits::XATTR, now) != Belief::No;
        self.hits += u64::from(is_known);
        is_known
    }
}

fn lease_of(since: Instant, stat: &Stat, newer: Bits) -> Lease {
    let end = |span: Span, bits| {
        let holds = span > Span::ZERO && newer.contains(bits);
        if holds { since + span } else { Instant::default() }
    };
    Lease { attrs: end(stat.lease, ATTRS), name: end(stat.name_lease, Bits::LOOKUP) }
}

/// A question under way; its answer comes to [`Asking::told`].
pub(crate) struct Asking {
    grants: Rc<Grants>,
    question: Question,
    since: Instant,
}

impl Asking {
    /// How long the answer holds.
    pub(crate) fn told(self, stat: &Stat) -> Lease {
        let now = self.grants.env.now();
        self.grants.known.borrow_mut().told(self.question, self.since, stat, now)
    }

    /// How long a page of the directory holds, which is as of a change: the attributes of its
    /// leased entries for `attrs` from when it was asked for, their names for `name`. Entries of
    /// which something newer is known are not leased.
    pub(crate) fn told_page(
        self,
        entries: &mut [Dirent],
        attrs: Span,
        name: Span,
        as_of: Transno,
    ) -> Lease {
        if attrs == Span::ZERO || name == Span::ZERO {
            entries.iter_mut().for_each(|entry| entry.leased = false);
            return Lease::default();
        }
        let now = self.grants.env.now();
        self.grants.known.borrow_mut().listed(self.question, entries, as_of, now);
        Lease { attrs: self.since + attrs, name: self.since + name }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.grants.known.borrow_mut().cache.finish(self.question);
    }
}

/// The grants of one client.
pub(crate) struct Grants {
    env: Env,
    bugs: Bugs,
    known: RefCell<Known>,
}

impl Grants {
    pub(crate) fn new(env: &Env, bugs: Bugs) -> Rc<Grants> {
        Rc::new(Grants { env: env.clone(), bugs, known: RefCell::default() })
    }

    /// The MDT was started again or has ended the session.
    pub(crate) fn forget(&self) {
        self.known.borrow_mut().forget(self.env.now());
    }

    /// Something is being asked.
    pub(crate) fn asking(self: &Rc<Self>) -> Asking {
        let since = self.env.now();
        let question = self.known.borrow_mut().cache.ask(since);
        Asking { grants: self.clone(), question, since }
    }

    /// Whether `name` is an extended attribute that everybody may ask for, of a file that is known
    /// to have none.
    pub(crate) fn is_absent(&self, fid: Fid, name: &[u8]) -> bool {
        let open_to_all = name.starts_with(b"security.") || name.starts_with(b"system.posix_acl_");
        open_to_all && self.known.borrow_mut().has_no_xattrs(fid, self.env.now())
    }

    /// Attributes of a directory that nobody can have changed, if they are known.
    pub(crate) fn believed(&self, fid: Fid) -> Option<(Attr, Lease)> {
        let (attr, attrs) = self.known.borrow_mut().directory(fid, self.env.now())?;
        Some((attr, Lease { attrs, ..Lease::default() }))
    }
}

#[cfg(test)]
mod tests;

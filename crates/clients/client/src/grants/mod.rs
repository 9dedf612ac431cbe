//! The client's cache of answers under the MDT's grants: how long an answer is valid, and which
//! directories need no new request.
//!
//! [`ldlm::grants::Cache`] tracks the grants; this module stores the values. A timed grant counts
//! from the moment when this client *began* to ask. So a lost reply or an MDT restart makes it
//! shorter and never longer. Other grants last until the MDT calls them back or the session's lease
//! ends (`recall.rs`). The MDT does not call back grants for this client's own changes, so this
//! module tracks those changes.
//!
//! Invariants
//! - Of two answers about a file, the client ignores the one that reflects fewer changes, in
//!   whatever order they arrive. That answer comes without a lease.
//! - The cached state of a directory is its state after this client's last answered change. It is
//!   not returned while a further change is under way.

mod all;
mod change;
mod hash;
mod kernel;
mod lease;
mod listings;
mod lru;
mod names;
mod opened;
mod pages;
mod recall;
mod restate;
mod scope;
mod shown;
mod values;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use endpoint::Remote;
use env::{Env, LocalFuture};
use ldlm::grants::{
    Belief, Bits, Bugs as GrantBugs, Cache, CacheConfig, Given, Number, Question, Stated, Told,
};
use types::{Fid, Instant, Transno};
use wire::Attr;
use wire::dirent::Dirent;

use crate::config::Bugs;
use crate::data::OnOpen;
use crate::stat::Stat;
pub(crate) use all::AllGrants;
pub(crate) use change::Changing;
pub use kernel::Kernel;
pub(crate) use lease::Gift;
pub use lease::Lease;
use lease::{ATTRS, NAMED, NEVER, STAT};
use listings::Listings;
pub use lru::Lru;
use names::Names;
pub(crate) use scope::Scope;
use values::Values;

/// Grants and values of one client. Neither knows a clock.
struct Known {
    cache: Cache,
    values: Values,
    names: Names,
    /// Bytes of open files.
    on_open: OnOpen,
    listings: Listings,
    /// The highest number that any answer had.
    seen: Number,
    changes: u64,
    /// Names that changes under way take, and whose files are not known.
    unknown: usize,
    /// Given back, and the MDT has not heard so.
    shed: Vec<Stated>,
    /// Stated to an MDT that was started again, and not answered.
    restating: Vec<Vec<Stated>>,
    /// How often the lease had been over.
    lapses: u64,
    recalls: Recalls,
    takings: Takings,
    /// Changes whose callers are gone, and whose fate is not known.
    unsettled: usize,
    lru: Lru,
    /// Calls that were answered from here.
    hits: u64,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            cache: Cache::new(CacheConfig::default(), Number(0)),
            values: Values::default(),
            names: Names::default(),
            on_open: OnOpen::default(),
            listings: Listings::default(),
            seen: Number(0),
            changes: 0,
            unknown: 0,
            shed: Vec::new(),
            restating: Vec::new(),
            lapses: 0,
            recalls: Recalls::default(),
            takings: Takings::default(),
            unsettled: 0,
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
        (gift, bits): (Gift, Bits),
        number: Number,
        as_of: Transno,
        now: Instant,
    ) -> Bits {
        let Some(kind) = gift.kind().filter(|_| !as_of.is_none()) else { return Bits::empty() };
        self.seen = self.seen.max(number);
        let given = Given { bits, number, kind };
        let told = Told { fid: attr.fid(), given, as_of };
        let newer = self.cache.take(question, told, now);
        self.values.take(attr, bits, newer, gift == Gift::Called, self.lru.size);
        self.shed(now);
        newer
    }

    /// Lets the grants go that are too many.
    fn shed(&mut self, now: Instant) {
        self.shed.extend(self.cache.shed(now));
    }

    /// The answer of a question that was sent at `since`: how long it holds.
    fn told(&mut self, question: Question, since: Instant, stat: &Stat, now: Instant) -> Lease {
        let newer = self.take_all(question, stat, now);
        self.found_empty(&stat.attr, newer);
        self.lease(newer, since, stat, now)
    }

    /// Takes what an answer tells of its file. Returns the bits of which nothing newer is known.
    fn take_all(&mut self, question: Question, stat: &Stat, now: Instant) -> Bits {
        let mut take = |gift: Gift, bits: Bits| {
            self.take(question, &stat.attr, (gift, bits), stat.grant, stat.as_of, now)
        };
        take(stat.lease, ATTRS)
            | take(stat.name_lease, Bits::LOOKUP)
            | take(stat.data_gift(), Bits::CACHE)
            | take(stat.write_gift(), Bits::WRITE)
    }

    /// How long an answer holds of which `newer` was taken.
    fn lease(&mut self, newer: Bits, since: Instant, stat: &Stat, now: Instant) -> Lease {
        let fid = stat.attr.fid();
        let mut end = |gift: Gift, bits: Bits| match newer.contains(bits) {
            true => self.end_of(fid, gift, bits, since, now),
            false => NEVER,
        };
        let (attrs, name) = (end(stat.lease, ATTRS), end(stat.name_lease, Bits::LOOKUP));
        Lease { attrs, name, recalls: self.recalls.now() }
    }

    /// Until when what was just taken holds.
    fn end_of(
        &mut self,
        fid: Fid,
        gift: Gift,
        bits: Bits,
        since: Instant,
        now: Instant,
    ) -> Instant {
        match gift {
            Gift::None => NEVER,
            Gift::Timed(span) => since + span,
            Gift::Called => match self.belief(fid, bits, now) {
                Belief::Until(end) => end,
                Belief::No | Belief::Dying => NEVER,
            },
        }
    }

    /// The same of a page: what of its entries is not believed is not leased.
    fn listed(
        &mut self,
        question: Question,
        entries: &mut [Dirent],
        gift: Gift,
        number: Number,
        as_of: Transno,
        now: Instant,
    ) {
        for entry in entries.iter_mut().filter(|entry| entry.leased) {
            let newer = self.take(question, &entry.attr, (gift, NAMED), number, as_of, now);
            entry.leased = newer == NAMED;
        }
    }

    /// Whether the cache answers. It does not for attributes while a name is taken of a file that
    /// is not known.
    fn belief(&mut self, fid: Fid, bits: Bits, now: Instant) -> Belief {
        match self.unknown > 0 && bits.contains(STAT) {
            true => Belief::No,
            false => self.cache.belief(fid, bits, now),
        }
    }

    /// Attributes of a file, and until when they hold.
    fn attributes(&mut self, fid: Fid, now: Instant) -> Option<(Attr, Instant)> {
        let attr = self.values.attributes(fid)?;
        let until = match self.belief(fid, STAT, now) {
            Belief::No => return None,
            Belief::Dying => now,
            Belief::Until(until) => until,
        };
        self.hits += 1;
        Some((attr, until))
    }

    /// The MDT has ended the session, or was started again when the lease may have been over: its
    /// history may lack changes that are known here.
    fn forget(&mut self, now: Instant) {
        self.recalls.count();
        self.cache.doubt();
        self.cache.lapsed();
        self.cache.restarted(self.seen, now);
        self.cache.recovered(Transno::NONE);
        self.names.clear();
        self.on_open.clear();
        self.listings.clear();
        self.shed.clear();
        self.restating.clear();
    }

    /// The lease was over. All that no other client wanted is given back, because the MDT may still
    /// count it as held.
    fn lapse(&mut self) {
        self.recalls.count();
        self.shed.extend(self.cache.restate().concat());
        self.cache.lapsed();
        self.on_open.clear();
        self.listings.clear();
    }

    fn has_no_xattrs(&mut self, fid: Fid, now: Instant) -> bool {
        let is_known =
            self.values.is_bare(fid) && self.cache.belief(fid, Bits::XATTR, now) != Belief::No;
        self.hits += u64::from(is_known);
        is_known
    }
}

/// How often anything was called back, given up or in doubt, at any MDT.
#[derive(Clone, Default)]
struct Recalls(Rc<Cell<u64>>);

impl Recalls {
    fn count(&self) {
        self.0.set(self.0.get() + 1);
    }

    fn now(&self) -> u64 {
        self.0.get()
    }
}

/// Changes of this client's, at any MDT, that take names: how many have begun, and how many of
/// them are over.
#[derive(Clone, Default)]
struct Takings(Rc<Cell<(u64, u64)>>);

impl Takings {
    fn begin(&self) {
        let (begun, over) = self.0.get();
        self.0.set((begun + 1, over));
    }

    fn end(&self) {
        let (begun, over) = self.0.get();
        self.0.set((begun, over + 1));
    }

    /// A number of the time since the last one was over; `None` while one is under way.
    fn quiet(&self) -> Option<u64> {
        let (begun, over) = self.0.get();
        (begun == over).then_some(begun)
    }
}

/// How long an answer would hold by its own word.
fn lease_of(since: Instant, stat: &Stat) -> Lease {
    let end = |gift| match gift {
        Gift::Timed(span) => since + span,
        Gift::None | Gift::Called => NEVER,
    };
    Lease { attrs: end(stat.lease), name: end(stat.name_lease), ..Lease::default() }
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
        self.told_one(stat)
    }

    /// The same of one of several files that the answer tells.
    pub(crate) fn told_one(&self, stat: &Stat) -> Lease {
        let now = self.grants.env.now();
        self.grants.known().told(self.question, self.since, stat, now)
    }

    /// The same of a name in a directory.
    pub(crate) fn told_name(self, dir: Fid, name: &[u8], stat: &Stat) -> Lease {
        self.told_one_name(dir, name, stat)
    }

    /// The same of one of several names that the answer tells.
    pub(crate) fn told_one_name(&self, dir: Fid, name: &[u8], stat: &Stat) -> Lease {
        let (now, fid) = (self.grants.env.now(), stat.attr.fid());
        let mut known = self.grants.known();
        let lease = known.told(self.question, self.since, stat, now);
        if stat.name_lease == Gift::Called && lease.name > now {
            known.stands_for((dir, name), fid);
        }
        lease
    }

    /// How long a page of the directory `dir` holds, which is as of a change: the attributes of
    /// its leased entries and their names, by what was granted of each. Entries of which something
    /// newer is known are not leased.
    pub(crate) fn told_page(
        self,
        entries: &mut [Dirent],
        (attrs, name): (Gift, Gift),
        number: Number,
        (dir, as_of): (Fid, Transno),
    ) -> Lease {
        if attrs == Gift::None || name == Gift::None {
            entries.iter_mut().for_each(|entry| entry.leased = false);
            return Lease::default();
        }
        let now = self.grants.env.now();
        let mut known = self.grants.known();
        known.listed(self.question, entries, attrs, number, as_of, now);
        if attrs == Gift::Called {
            for entry in entries.iter_mut().filter(|entry| entry.leased) {
                // what was taken first may have been given back to make room for the others
                let fid = entry.attr.fid();
                entry.leased = matches!(known.belief(fid, NAMED, now), Belief::Until(_));
            }
            for entry in entries.iter().filter(|entry| entry.leased) {
                known.stands_for((dir, &entry.name), entry.attr.fid());
            }
            let end = known.cache.names_until();
            return Lease { attrs: end, name: end, recalls: known.recalls.now() };
        }
        let end = |gift| match gift {
            Gift::Timed(span) => self.since + span,
            Gift::None | Gift::Called => NEVER,
        };
        Lease { attrs: end(attrs), name: end(name), recalls: known.recalls.now() }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.grants.known.borrow_mut().cache.finish(self.question);
    }
}

/// The grants that one MDT gives to one client.
pub(crate) struct Grants {
    env: Env,
    bugs: Bugs,
    known: RefCell<Known>,
    /// Index of the MDT.
    index: u32,
    /// Whose session they are of.
    mdt: RefCell<Weak<Remote>>,
    shared: Rc<all::Shared>,
}

impl Grants {
    fn new(
        env: &Env,
        (bugs, cache_bugs): (Bugs, GrantBugs),
        index: u32,
        shared: &Rc<all::Shared>,
    ) -> Rc<Grants> {
        let config = CacheConfig { bugs: cache_bugs, ..CacheConfig::default() };
        let cache = Cache::new(config, Number(0));
        let (recalls, takings) = (shared.recalls.clone(), shared.takings.clone());
        let mut known = Known { cache, recalls, takings, ..Known::default() };
        known.set_lru(shared.lru.get(), env.now());
        Rc::new(Grants {
            env: env.clone(),
            bugs,
            known: RefCell::new(known),
            index,
            mdt: RefCell::default(),
            shared: shared.clone(),
        })
    }

    /// Nothing that was held counts any more.
    pub(crate) fn forget(&self) -> Option<LocalFuture<'static, ()>> {
        self.known.borrow_mut().forget(self.env.now());
        self.kernel_forgets_all()
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
        open_to_all && self.has_no_xattrs(fid)
    }

    /// Whether a file is known to have no extended attributes.
    pub(crate) fn has_no_xattrs(&self, fid: Fid) -> bool {
        self.known().has_no_xattrs(fid, self.env.now())
    }

    /// Attributes of a file that nobody can have changed, if they are known.
    pub(crate) fn believed(&self, fid: Fid) -> Option<(Attr, Lease)> {
        let mut known = self.known();
        let (attr, attrs) = known.attributes(fid, self.env.now())?;
        Some((attr, Lease { attrs, recalls: known.recalls.now(), ..Lease::default() }))
    }

    /// Whether no other client can have changed attributes of a file that are known.
    pub(crate) fn is_believed(&self, fid: Fid) -> bool {
        self.known().belief(fid, STAT, self.env.now()) != Belief::No
    }

    /// Whether nobody can have made this name, of which it is known that there is none.
    pub(crate) fn has_no_name(&self, dir: Fid, name: &[u8]) -> bool {
        let has_kernel = self.shared.kernel().is_some(); // it has checked permissions
        has_kernel && self.known().has_no_name((dir, name), self.env.now())
    }
}

#[cfg(test)]
mod tests;

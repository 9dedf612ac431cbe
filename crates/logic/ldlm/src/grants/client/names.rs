//! Directories whose names are all known, so that absent names need no request.
//!
//! Names are kept as 8-byte hashes. The MDT answers for a hash that two names may have, or whose
//! change is under way.
//!
//! Invariants
//! - A name that exists has its hash in the set: only "absent" is ever answered from it.
//! - A set is complete only while UPDATE of its directory is held. It must be held without a break
//!   since before the first page of the listing was asked for.

use queues::FixedMap;
use types::{Fid, Instant};

use super::Cache;
use crate::grants::Bits;
use crate::grants::limits::{DIR_NAMES_MAX, LEASE_SLACK, NAMES_MAX};

/// What a directory's set says of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Ask the MDT.
    Unknown,
    /// There is none.
    Absent,
    /// There is one with this hash; which file it is, the set does not know.
    Present,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hashed {
    /// Two names may have it: it never leaves.
    is_shared: bool,
    /// It stands for a name.
    is_there: bool,
}

/// Changes under way of names with one hash.
#[derive(Clone, Copy, Default)]
struct Changing {
    count: u32,
    /// Two were under way together: their replies may come in the other order. Or it began before
    /// the set was complete: a page may have been read before it, after it, or after a later
    /// change.
    is_crossed: bool,
}

/// A reading of a directory, which makes the set complete that it began with, and no later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing(u64);

struct Names {
    listing: Listing,
    hashes: FixedMap<u64, Hashed>,
    is_complete: bool,
}

/// Sets of names of one client.
#[derive(Default)]
pub(super) struct Directories {
    sets: FixedMap<Fid, Names>,
    total: usize,
    listings: u64,
    changing: FixedMap<(Fid, u64), Changing>,
}

impl Directories {
    pub(super) fn forget(&mut self, directory: Fid) {
        if let Some(names) = self.sets.remove(&directory) {
            self.total -= names.hashes.len();
        }
    }

    pub(super) fn clear(&mut self) {
        (self.sets, self.total) = (FixedMap::default(), 0);
    }

    /// No change is under way any more.
    pub(super) fn end_all(&mut self) {
        self.changing.clear();
    }

    fn with(&mut self, directory: Fid, hash: u64, change: impl FnOnce(&mut Hashed)) {
        let Some(names) = self.sets.get_mut(&directory) else { return };
        let before = names.hashes.len();
        let hashed = names.hashes.entry(hash).or_default();
        change(hashed);
        let is_idle = !hashed.is_there && !hashed.is_shared;
        if is_idle {
            names.hashes.remove(&hash);
        }
        self.total = self.total + names.hashes.len() - before;
        if names.hashes.len() > DIR_NAMES_MAX || self.total > NAMES_MAX {
            self.forget(directory);
        }
    }
}

impl Cache {
    /// A set of names begins: the directory is new and empty, which makes it complete, or its first
    /// page is about to be asked for. Without UPDATE there is none.
    pub fn begin_names(&mut self, directory: Fid, is_empty: bool) -> Option<Listing> {
        if !self.bits_of(directory).contains(Bits::UPDATE) {
            return None;
        }
        self.directories.forget(directory);
        self.directories.listings += 1;
        let under_way = self.directories.changing.iter_mut();
        for (_, changing) in under_way.filter(|((changed, _), _)| *changed == directory) {
            changing.is_crossed = true;
        }
        let listing = Listing(self.directories.listings);
        let names = Names { listing, hashes: FixedMap::default(), is_complete: is_empty };
        self.directories.sets.insert(directory, names);
        Some(listing)
    }

    /// A page of the listing, or a change of this client's, says that a name exists.
    pub fn add_name(&mut self, directory: Fid, hash: u64) {
        self.directories.with(directory, hash, |hashed| {
            hashed.is_shared |= hashed.is_there;
            hashed.is_there = true;
        });
    }

    /// A change of this client's has removed a name.
    pub fn remove_name(&mut self, directory: Fid, hash: u64) {
        self.directories.with(directory, hash, |hashed| hashed.is_there &= hashed.is_shared);
    }

    /// The last page of a listing was added. Nothing happens if its set was forgotten meanwhile.
    pub fn complete_names(&mut self, directory: Fid, listing: Listing) {
        if let Some(names) = self.directories.sets.get_mut(&directory) {
            names.is_complete |= names.listing == listing;
        }
    }

    /// The set of a directory, if all names of it are known.
    #[must_use]
    pub fn known_names(&self, directory: Fid) -> Option<Listing> {
        let names = self.directories.sets.get(&directory).filter(|names| names.is_complete)?;
        Some(names.listing)
    }

    /// Whether no other client can have changed a name of the directory since the set of this
    /// listing began, complete or not.
    #[must_use]
    pub fn holds_names(&self, directory: Fid, listing: Listing, now: Instant) -> bool {
        let set = self.directories.sets.get(&directory);
        set.is_some_and(|names| names.listing == listing) && !self.are_names_suspended(now)
    }

    /// A change of a name is about to be sent.
    pub fn begin_name(&mut self, directory: Fid, hash: u64) {
        let set = self.directories.sets.get(&directory);
        let is_listed = set.is_some_and(|names| !names.is_complete);
        let changing = self.directories.changing.entry((directory, hash)).or_default();
        changing.count += 1;
        changing.is_crossed |= is_listed || changing.count > 1;
    }

    /// Its reply has come, and the name was added or removed before.
    pub fn end_name(&mut self, directory: Fid, hash: u64) {
        let key = (directory, hash);
        let Some(changing) = self.directories.changing.get_mut(&key) else { return };
        changing.count -= 1;
        let Changing { count, is_crossed } = *changing;
        if count == 0 {
            self.directories.changing.remove(&key);
        }
        if is_crossed {
            self.directories.with(directory, hash, |hashed| hashed.is_shared = true);
        }
    }

    /// What is known of a name. Attributes of the directory are another matter: they may be
    /// changing meanwhile.
    #[must_use]
    pub fn name(&self, directory: Fid, hash: u64, now: Instant) -> Name {
        let complete = self.directories.sets.get(&directory).filter(|names| names.is_complete);
        let is_changing = self.directories.changing.contains_key(&(directory, hash));
        let is_asked = is_changing || self.are_names_suspended(now);
        let Some(names) = complete.filter(|_| !is_asked) else {
            return Name::Unknown;
        };
        match names.hashes.get(&hash) {
            None => Name::Absent,
            Some(hashed) if hashed.is_shared => Name::Unknown,
            Some(_) => Name::Present,
        }
    }

    fn are_names_suspended(&self, now: Instant) -> bool {
        self.is_recovering || self.names_until() <= now
    }

    /// Until when what [`Cache::name`] says holds, unless UPDATE of the directory is dying.
    #[must_use]
    pub fn names_until(&self) -> Instant {
        Instant(self.lease_until.0.saturating_sub(LEASE_SLACK.0))
    }
}

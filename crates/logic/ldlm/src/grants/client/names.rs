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
use super::directories::{Changing, Listing, Names};
use crate::grants::Bits;
use crate::grants::limits::LEASE_SLACK;

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

    /// Whether there is a set of names of a directory, complete or not.
    #[must_use]
    pub fn has_names(&self, directory: Fid) -> bool {
        self.directories.sets.contains_key(&directory)
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

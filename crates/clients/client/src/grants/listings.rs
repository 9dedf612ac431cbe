//! Directories that this client has read under a grant. It reads them again without a request.
//!
//! ```text
//!  reading --page--> read --page--> ... --last page--> whole: absent names are known too
//!     |                                                  |
//!     +---- a recall, the lease's end, an own change of a name there: gone
//! ```
//!
//! Invariants
//! - A listing has the names of its directory up to its last cookie, without a gap, as they are
//!   now. Two things hold since before its first page was asked for. UPDATE of the directory is
//!   held without a break, and this client has not begun to change a name there.
//! - A listing keeps names, and no attributes. Attributes of an entry come from the values of its
//!   own grant.

use std::ops::Range;

use ldlm::grants::{Bits, Listing as Set};
use queues::FixedMap;
use types::{Fid, Instant};
use wire::Attr;
use wire::dirent::{self, Dirent};

use super::hash::hash_of;
use super::{Grants, Known, Lease};
use crate::DirPage;

/// Names in all listings, about 100 bytes each, and one for each listing. Beyond, all listings are
/// forgotten together.
const LISTED_MAX: usize = 262_144;

/// A page is asked for if the attributes of more than one in so many of its entries are not known:
/// one request brings them all.
const UNKNOWN_SHARE: usize = 8;

/// A name and its file.
struct Entry {
    cookie: u64,
    fid: Fid,
    file_type: u32,
    name: Box<[u8]>,
}

impl Entry {
    fn of(entry: &Dirent) -> Entry {
        Entry {
            cookie: entry.cookie,
            fid: entry.attr.fid(),
            file_type: entry.attr.file_type(),
            name: entry.name.as_slice().into(),
        }
    }
}

/// The names of a directory from its start on.
struct Listing {
    /// No other listing has it.
    token: u64,
    /// The set of names that breaks when another client may change one.
    set: Set,
    /// By cookie.
    entries: Vec<Entry>,
    /// Nothing is behind them.
    is_whole: bool,
    /// FID that `..` names.
    parent: Fid,
}

impl Listing {
    /// The cookie up to which it goes.
    fn last(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.cookie)
    }

    fn behind(&self, cookie: u64) -> usize {
        self.entries.partition_point(|entry| entry.cookie <= cookie)
    }

    /// The entries behind `after` that fit into `bytes_max`, at least one. Nothing if more may
    /// follow that this listing does not have.
    fn part(&self, after: u64, bytes_max: usize) -> Option<Range<usize>> {
        let first = self.behind(after);
        let rest = &self.entries[first..];
        let mut bytes = 0;
        let fitting = rest.iter().take_while(|entry| {
            bytes += dirent::encoded_len(entry.name.len());
            bytes <= bytes_max
        });
        let count = fitting.count().max(1).min(rest.len());
        (self.is_whole || count < rest.len()).then_some(first..first + count)
    }

    /// Whether a page behind `after` is what this listing has there, to its end if it ends there.
    /// `shown`: a cookie as pages have it.
    fn has(&self, after: u64, page: &DirPage, shown: &dyn Fn(u64) -> u64) -> bool {
        let first = self.behind(after);
        let end = first + page.entries.len();
        let Some(there) = self.entries.get(first..end) else { return false };
        there.iter().zip(&page.entries).all(|(own, told)| own.is(told, shown(own.cookie)))
            && (after != 0 || self.parent == page.parent)
            && (!page.at_end || (self.is_whole && end == self.entries.len()))
    }

    /// Adds a page behind `after`. False: the page is not in the order of cookies.
    fn extend(&mut self, after: u64, page: &DirPage) -> bool {
        let cookies = page.entries.iter().map(|entry| entry.cookie);
        if !std::iter::once(after).chain(cookies).is_sorted_by(|a, b| a < b) {
            return false;
        }
        let reaches = page.entries.last().map_or(after, |entry| entry.cookie);
        if self.is_whole || after > self.last() || reaches < self.last() {
            return true; // it leaves a gap, or is known already
        }
        let known = self.behind(after);
        self.entries.truncate(known);
        self.entries.extend(page.entries.iter().map(Entry::of));
        (self.is_whole, self.parent) = (page.at_end, page.parent);
        true
    }
}

/// A page under way, and the listing that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    dir: Fid,
    after: u64,
    token: u64,
}

/// Listings of one client.
#[derive(Default)]
pub(super) struct Listings {
    dirs: FixedMap<Fid, Listing>,
    /// Names in all of them, and one for each.
    total: usize,
    last_token: u64,
    /// Changes of names in a directory by this client that are under way.
    changing: FixedMap<Fid, u32>,
}

impl Listings {
    pub(super) fn clear(&mut self) {
        self.dirs.clear();
        self.total = 0;
    }

    pub(super) fn forget(&mut self, dir: Fid) {
        if let Some(listing) = self.dirs.remove(&dir) {
            self.total -= listing.entries.len() + 1;
        }
    }

    /// A change of this client's of a name there is about to be sent.
    pub(super) fn begin_change(&mut self, dir: Fid) {
        self.forget(dir);
        *self.changing.entry(dir).or_default() += 1;
    }

    /// That change is over, or its fate is known.
    pub(super) fn end_change(&mut self, dir: Fid) {
        let Some(count) = self.changing.get_mut(&dir) else { return };
        *count -= 1;
        if *count == 0 {
            self.changing.remove(&dir);
        }
    }

    fn begin(&mut self, dir: Fid, set: Set) {
        self.forget(dir);
        if self.total >= LISTED_MAX {
            self.clear();
        }
        self.last_token += 1;
        let token = self.last_token;
        let listing = Listing { token, set, entries: Vec::new(), is_whole: false, parent: dir };
        self.dirs.insert(dir, listing);
        self.total += 1;
    }

    /// A page of a listing came. True: the listing is whole now.
    fn extend(&mut self, reading: Reading, page: &DirPage) -> bool {
        let Reading { dir, after, token } = reading;
        let listing = self.dirs.get_mut(&dir).filter(|listing| listing.token == token);
        let Some(listing) = listing.filter(|listing| !listing.is_whole) else { return false };
        let before = listing.entries.len();
        let is_sound = listing.extend(after, page);
        let is_whole = listing.is_whole;
        self.total = self.total + listing.entries.len() - before;
        if !is_sound {
            self.forget(dir);
        } else if self.total > LISTED_MAX {
            self.clear();
        }
        is_whole && self.dirs.contains_key(&dir)
    }
}

impl Known {
    /// Whether the listing of a directory is what its names are now.
    fn is_listed(&self, dir: Fid, now: Instant) -> bool {
        let listing = self.listings.dirs.get(&dir);
        listing.is_some_and(|listing| self.cache.holds_names(dir, listing.set, now))
    }

    /// The listing of a directory whose names are now what it says.
    fn listing(&self, dir: Fid, now: Instant) -> Option<&Listing> {
        self.listings.dirs.get(&dir).filter(|_| self.is_listed(dir, now))
    }

    /// The number of that listing, which no other one has.
    pub(super) fn listed_since(&self, dir: Fid, now: Instant) -> Option<u64> {
        self.listing(dir, now).map(|listing| listing.token)
    }

    /// The same, if it has this page behind `after`. `shown`: a cookie as pages have it.
    pub(super) fn has_listed(
        &self,
        dir: Fid,
        after: u64,
        page: &DirPage,
        shown: &dyn Fn(u64) -> u64,
        now: Instant,
    ) -> Option<u64> {
        let listing = self.listing(dir, now)?;
        listing.has(after, page, shown).then_some(listing.token)
    }

    /// The last cookie of a listing, and how many entries it has behind `cookie`. Nothing if all
    /// names of the directory are known, or if none are kept.
    fn behind(&self, dir: Fid, cookie: u64, now: Instant) -> Option<(u64, usize)> {
        if !self.is_listed(dir, now) {
            return None;
        }
        let listing = self.listings.dirs.get(&dir)?;
        let goes_on = !listing.is_whole && cookie <= listing.last();
        goes_on.then(|| (listing.last(), listing.entries.len() - listing.behind(cookie)))
    }

    /// A page behind `after` is about to be asked for.
    pub(super) fn reading(&mut self, dir: Fid, after: u64, now: Instant) -> Option<Reading> {
        if !self.is_listed(dir, now) {
            self.listings.forget(dir);
            if after != 0 || self.listings.changing.contains_key(&dir) {
                return None;
            }
            let known = self.cache.known_names(dir);
            let set = known.or_else(|| self.cache.begin_names(dir, false))?;
            self.listings.begin(dir, set);
        }
        let listing = self.listings.dirs.get(&dir).filter(|listing| !listing.is_whole)?;
        Some(Reading { dir, after, token: listing.token })
    }

    /// The page has come.
    pub(super) fn read(&mut self, reading: Reading, page: &DirPage, now: Instant) {
        let dir = reading.dir;
        if !self.is_listed(dir, now) {
            self.listings.forget(dir);
            return;
        }
        if !self.listings.extend(reading, page) || self.cache.known_names(dir).is_some() {
            return;
        }
        let Some(listing) = self.listings.dirs.get(&dir) else { return };
        for entry in &listing.entries {
            self.cache.add_name(dir, hash_of(&entry.name));
        }
        self.cache.complete_names(dir, listing.set);
    }

    /// The page behind `after`, where it is known with the attributes of most of its entries.
    /// `is_open`: the objects of such a file may know better.
    pub(super) fn page(
        &mut self,
        dir: Fid,
        (after, bytes_max): (u64, usize),
        is_open: &dyn Fn(Fid) -> bool,
        now: Instant,
    ) -> Option<(DirPage, Lease)> {
        if !self.is_listed(dir, now) {
            return None;
        }
        let range = self.listings.dirs.get(&dir)?.part(after, bytes_max)?;
        let listing = self.listings.dirs.remove(&dir)?; // it comes back below
        let end = self.cache.names_until();
        let (hits, mut unknown) = (self.hits, 0);
        let mut entries = Vec::with_capacity(range.len());
        for entry in &listing.entries[range.clone()] {
            let known = self.entry(dir, entry, end, now);
            let is_hidden = is_open(entry.fid);
            unknown += usize::from(known.is_none() && !is_hidden);
            entries.push(entry.told(known, !is_hidden));
        }
        let (at_end, parent) = (range.end == listing.entries.len(), listing.parent);
        self.listings.dirs.insert(dir, listing);
        self.hits = hits;
        if unknown * UNKNOWN_SHARE > entries.len() {
            return None;
        }
        if !entries.is_empty() {
            planted::reached("client: a directory was read again without a request");
        }
        self.hits += 1;
        self.cache.belief(dir, Bits::UPDATE, now); // a use of the directory's grant
        let lease = Lease { attrs: end, name: end, recalls: self.recalls.now() };
        Some((DirPage { entries, at_end, parent }, lease))
    }

    /// Attributes of an entry, if they and its name hold until `end`.
    fn entry(&mut self, dir: Fid, entry: &Entry, end: Instant, now: Instant) -> Option<Attr> {
        let (attr, lease) = self.named((dir, &entry.name), now)?;
        let holds = lease.attrs >= end && lease.name >= end && attr.fid() == entry.fid;
        (holds && !crate::needs_glimpse(&attr)).then_some(attr)
    }
}

impl Entry {
    /// Whether a page says the same, with this cookie.
    fn is(&self, told: &Dirent, cookie: u64) -> bool {
        let (fid, kind) = (told.attr.fid(), told.attr.file_type());
        (cookie, self.fid, self.file_type) == (told.cookie, fid, kind) && *self.name == *told.name
    }

    /// As it is returned: with attributes where they are known.
    fn told(&self, known: Option<Attr>, may_be_leased: bool) -> Dirent {
        let bare = Attr { mode: self.file_type, ..Attr::default() }.with_fid(self.fid);
        Dirent {
            cookie: self.cookie,
            attr: known.unwrap_or(bare),
            has_attr: known.is_some(),
            leased: known.is_some() && may_be_leased,
            name: self.name.to_vec(),
        }
    }
}

impl Grants {
    /// The page of a directory behind `after`, where no other client can have changed it. Only
    /// where a kernel has found that the caller may read there.
    pub(crate) fn listed(
        &self,
        dir: Fid,
        (after, bytes_max): (u64, u32),
        is_open: &dyn Fn(Fid) -> bool,
    ) -> Option<(DirPage, Lease)> {
        self.shared.kernel()?;
        let now = self.env.now();
        self.known().page(dir, (after, bytes_max as usize), is_open, now)
    }

    /// The last cookie of a listing that is not whole, and how many entries it has behind `cookie`.
    pub(crate) fn listed_behind(&self, dir: Fid, cookie: u64) -> Option<(u64, usize)> {
        self.shared.kernel()?;
        let now = self.env.now();
        self.known().behind(dir, cookie, now)
    }

    /// The number of a directory's listing, if its names are now what the listing says. Another
    /// listing has another number.
    pub(crate) fn listed_since(&self, dir: Fid) -> Option<u64> {
        self.shared.kernel()?;
        let now = self.env.now();
        self.known().listed_since(dir, now)
    }

    /// The same, if it has this page behind `after`. `shown`: a cookie as pages have it.
    pub(crate) fn has_listed(
        &self,
        dir: Fid,
        after: u64,
        page: &DirPage,
        shown: &dyn Fn(u64) -> u64,
    ) -> Option<u64> {
        self.shared.kernel()?;
        let now = self.env.now();
        self.known().has_listed(dir, after, page, shown, now)
    }

    /// A page behind `after` is about to be asked for, which [`Grants::read`] is to keep.
    pub(crate) fn reading(&self, dir: Fid, after: u64) -> Option<Reading> {
        self.shared.kernel()?;
        let now = self.env.now();
        self.known().reading(dir, after, now)
    }

    /// The page that [`Grants::reading`] announced.
    pub(crate) fn read(&self, reading: Option<Reading>, page: &DirPage) {
        let Some(reading) = reading else { return };
        let now = self.env.now();
        self.known().read(reading, page, now);
    }
}

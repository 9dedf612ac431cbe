//! Striped directories: the shards that hold their names, as far as this client has heard.
//!
//! ```text
//!  a name of the directory --hash--> shard --its FID is the parent--> request to the shard's MDT
//!  a recall of a shard's attributes --> the kernel forgets those of the directory
//! ```
//! Callers and the kernel see the directory only.

use std::cell::RefCell;
use std::rc::Rc;

use layout::dir::Stripes;
use queues::FixedMap;
use types::{Fid, Instant};
use wire::Attr;
use wire::attr::AttrFlags;

/// Directories and shards that are remembered, about 100 bytes each. Of more of them only those
/// stay of whose directories the kernel still has attributes.
const SHARDS_KNOWN_MAX: usize = 262_144;

/// What is known of whether a directory is striped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is not.
    Plain,
    /// No reply has told of it, or that is forgotten.
    Unknown,
    /// It is.
    Striped(Option<Rc<Stripes>>),
}

#[derive(Default)]
struct Dir {
    is_striped: bool,
    stripes: Option<Rc<Stripes>>,
    /// Version of the directory, as attributes told it.
    version: u64,
    /// The kernel has attributes of it until then.
    told_until: Instant,
}

#[derive(Default)]
struct Known {
    dirs: FixedMap<Fid, Dir>,
    masters: FixedMap<Fid, Fid>,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Striped(RefCell<Known>);

impl Striped {
    /// Attributes of a directory came from its MDT.
    pub(crate) fn note(&self, attr: &Attr, now: Instant) {
        let mut known = self.0.borrow_mut();
        if !known.dirs.contains_key(&attr.fid()) {
            known.make_room(now);
        }
        let dir = known.dirs.entry(attr.fid()).or_default();
        dir.is_striped = attr.flags.contains(AttrFlags::STRIPED);
        if attr.version > dir.version || !dir.is_striped {
            dir.stripes = None; // they may be other ones now
        }
        dir.version = dir.version.max(attr.version);
    }

    pub(crate) fn kind(&self, dir: Fid) -> Kind {
        let known = self.0.borrow();
        match known.dirs.get(&dir) {
            Some(dir) if dir.is_striped => Kind::Striped(dir.stripes.clone()),
            Some(_) => Kind::Plain,
            None if known.masters.contains_key(&dir) => Kind::Plain,
            None => Kind::Unknown,
        }
    }

    /// The shards of a directory, where they are known.
    pub(crate) fn shards(&self, dir: Fid) -> Option<Rc<Stripes>> {
        self.0.borrow().dirs.get(&dir)?.stripes.clone()
    }

    /// The directory that a shard belongs to; another file itself.
    pub(crate) fn master(&self, fid: Fid) -> Fid {
        self.0.borrow().masters.get(&fid).copied().unwrap_or(fid)
    }

    /// Version of a directory that attributes told; zero if none did.
    pub(crate) fn version(&self, dir: Fid) -> u64 {
        self.0.borrow().dirs.get(&dir).map_or(0, |dir| dir.version)
    }

    /// The shards of a directory are these, by an answer to a question that was asked when this
    /// `version` of it was known. They are not kept if a later one is known by now.
    pub(crate) fn learn(
        &self,
        dir: Fid,
        stripes: Stripes,
        version: u64,
        now: Instant,
    ) -> Rc<Stripes> {
        let mut known = self.0.borrow_mut();
        known.make_room(now);
        let stripes = Rc::new(stripes);
        let shards = stripes.places().filter(|shard| *shard != dir);
        known.masters.extend(shards.map(|shard| (shard, dir)));
        let known = known.dirs.entry(dir).or_default();
        if known.version <= version {
            (known.is_striped, known.stripes) = (true, Some(stripes.clone()));
        }
        stripes
    }

    /// The shards of a directory have changed. Those that are known still lead to it.
    pub(crate) fn forget(&self, dir: Fid) {
        if let Some(dir) = self.0.borrow_mut().dirs.get_mut(&dir) {
            dir.stripes = None;
        }
    }

    /// The kernel has attributes of the directory until then.
    pub(crate) fn told(&self, dir: Fid, until: Instant) {
        if let Some(dir) = self.0.borrow_mut().dirs.get_mut(&dir) {
            dir.told_until = dir.told_until.max(until);
        }
    }
}

impl Known {
    fn make_room(&mut self, now: Instant) {
        if self.dirs.len().max(self.masters.len()) < SHARDS_KNOWN_MAX {
            return;
        }
        self.dirs.retain(|_, dir| dir.told_until > now);
        let dirs = &self.dirs;
        self.masters.retain(|_, master| dirs.contains_key(master));
    }
}

/// Attributes of a striped directory, of its own and those of its shards.
pub(crate) fn merge(dir: &mut Attr, shards: &[Attr]) {
    let sum = |of: fn(&Attr) -> u64| shards.iter().map(of).fold(0_u64, u64::saturating_add);
    (dir.size, dir.blocks) = (sum(|shard| shard.size), sum(|shard| shard.blocks));
    let subdirs = shards.iter().map(|shard| shard.nlink.saturating_sub(2));
    dir.nlink = subdirs.fold(2, u32::saturating_add);
    for shard in shards {
        dir.set_atime(dir.atime().max(shard.atime()));
        dir.set_mtime(dir.mtime().max(shard.mtime()));
        dir.set_ctime(dir.ctime().max(shard.ctime()));
    }
}

/// Cookies of a striped directory: 8 bits of the shard, 47 of the hash of the name, 8 of the number
/// among names with the same hash. Those of a shard have 16 bits of that number. More than 255
/// names with one hash are not made by chance.
pub(crate) mod cookie {
    const SHARD_SHIFT: u32 = 55;
    /// Places that cookies can name.
    pub(crate) const PLACES_MAX: usize = 256;
    const IN_SHARD: u64 = (1 << SHARD_SHIFT) - 1;

    /// Of an entry of a shard.
    pub(crate) fn outside(shard: usize, cookie: u64) -> u64 {
        let (hash, number) = (cookie >> 16, (cookie & 0xffff).min(0xff));
        (shard as u64) << SHARD_SHIFT | (hash << 8 | number) & IN_SHARD
    }

    /// The shard, and the cookie there.
    pub(crate) fn inside(cookie: u64) -> (usize, u64) {
        let (hash, number) = ((cookie & IN_SHARD) >> 8, cookie & 0xff);
        let shard = usize::try_from(cookie >> SHARD_SHIFT).unwrap_or(usize::MAX);
        (shard, hash << 16 | number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Timespec;

    fn stripes(first: u32, count: u32) -> Stripes {
        let shards = (first..first + count).map(|oid| Fid::new(0x2_0000_0400, oid)).collect();
        Stripes { hash: layout::dir::HASH_CRUSH2, version: 1, master: 0, shards, leaving: None }
    }

    #[test]
    fn attributes_add_up() {
        let shard = |nlink, size, mtime| {
            let mut attr = Attr { nlink, size, blocks: 8, ..Attr::default() };
            attr.set_mtime(Timespec::new(mtime, 5));
            attr
        };
        let mut dir = Attr { nlink: 2, size: 7, ..Attr::default() };
        dir.set_ctime(Timespec::new(9, 0));
        merge(&mut dir, &[shard(3, 100, 8), shard(2, 50, 20), shard(5, 1, 3)]);
        assert_eq!((dir.nlink, dir.size, dir.blocks), (6, 151, 24));
        assert_eq!((dir.mtime(), dir.ctime()), (Timespec::new(20, 5), Timespec::new(9, 0)));
    }

    #[test]
    fn cookies_name_shard_and_entry_and_keep_their_order() {
        let inside = [0, 1 << 16, (5 << 16) | 1, (5 << 16) | 0xff, ((1 << 47) - 1) << 16];
        let mut all = Vec::new();
        for shard in [0, 1, 255] {
            for of_shard in inside {
                let outside = cookie::outside(shard, of_shard);
                assert_eq!(cookie::inside(outside), (shard, of_shard));
                assert!(outside >> 63 == 0, "a kernel takes it for an offset");
                all.push(outside);
            }
        }
        assert!(all.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn shards_lead_to_their_directory() {
        let striped = Striped::default();
        let dir = Fid::new(0x2_0000_0400, 1);
        assert_eq!(striped.kind(dir), Kind::Unknown);
        striped.note(&Attr::default().with_fid(dir), Instant(0));
        assert_eq!(striped.kind(dir), Kind::Plain);
        striped
            .note(&Attr { flags: AttrFlags::STRIPED, ..Attr::default() }.with_fid(dir), Instant(0));
        assert_eq!(striped.kind(dir), Kind::Striped(None));
        let known = striped.learn(dir, stripes(10, 3), 0, Instant(0));
        assert_eq!(striped.kind(dir), Kind::Striped(Some(known.clone())));
        assert_eq!((striped.master(known.shards[2]), striped.master(dir)), (dir, dir));
        assert_eq!(striped.kind(known.shards[2]), Kind::Plain);
    }

    #[test]
    fn shards_from_before_a_later_version_of_their_directory_are_not_kept() {
        let striped = Striped::default();
        let dir = Fid::new(0x2_0000_0400, 1);
        let version =
            |version| Attr { flags: AttrFlags::STRIPED, version, ..Attr::default() }.with_fid(dir);
        striped.note(&version(5), Instant(0));
        let asked = striped.version(dir);
        striped.note(&version(6), Instant(0));
        striped.learn(dir, stripes(10, 3), asked, Instant(0));
        assert_eq!(striped.kind(dir), Kind::Striped(None), "version 6 may have other shards");
        let known = striped.learn(dir, stripes(20, 3), striped.version(dir), Instant(0));
        assert_eq!(striped.kind(dir), Kind::Striped(Some(known)));
    }

    #[test]
    fn what_the_kernel_has_is_not_forgotten() {
        let striped = Striped::default();
        let dir = |oid| Fid::new(0x2_0000_0401, oid);
        let most = SHARDS_KNOWN_MAX as u32 / 256;
        (0..most).for_each(|number| {
            striped.learn(dir(number), stripes(number * 256, 256), 0, Instant(0));
        });
        striped.told(dir(5), Instant(10));
        striped.learn(dir(most), stripes(most * 256, 256), 0, Instant(9));
        assert!(striped.shards(dir(5)).is_some() && striped.shards(dir(most)).is_some());
        assert_eq!((striped.kind(dir(6)), striped.0.borrow().masters.len()), (Kind::Unknown, 512));
    }
}

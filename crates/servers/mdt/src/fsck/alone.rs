//! Rules for the records of one MDT. Each transaction keeps them, so they hold in every image.

use std::collections::{BTreeMap, BTreeSet};

use types::Fid;
use wire::attr::{ATTR_SHARD, S_IFDIR};
use wire::updates::Record;

use super::image::{Entry, Image};
use crate::record::{INODE_HAS_LAYOUT, INODE_ORPHAN, Inode};

/// Every breach, in words.
pub(super) fn check(image: &Image) -> Vec<String> {
    let mut check = Check { image, bad: image.broken.clone() };
    check.places();
    check.entries();
    check.back_links();
    check.counts();
    check.are_there("orphan", &image.orphans);
    check.are_there("attributes of", &image.with_xattrs);
    check.layouts();
    check.records();
    check.bad
}

struct Check<'a> {
    image: &'a Image,
    bad: Vec<String>,
}

/// What the entries of a directory add up to.
#[derive(Clone, Copy, Default)]
struct Sum {
    subdirs: u32,
    bytes: u64,
}

impl Check<'_> {
    fn is_here(&self, fid: Fid) -> bool {
        fid.mdt_index() == self.image.index
    }

    /// An MDT has inodes and directories of its own.
    fn places(&mut self) {
        let inodes = self.image.inodes.keys();
        let dirs = self.image.entries.iter().map(|entry| &entry.dir);
        let files = self.image.links.iter().map(|link| &link.fid);
        let all: BTreeSet<&Fid> = inodes.chain(dirs).chain(files).collect();
        let index = self.image.index;
        let strange = all.into_iter().filter(|fid| fid.mdt_index() != index);
        self.bad.extend(strange.map(|fid| format!("MDT {index} has records of {fid}")));
    }

    fn entries(&mut self) {
        let mut seen = BTreeSet::new();
        let mut live = BTreeMap::new();
        for entry in &self.image.entries {
            let dir = entry.dir;
            if !seen.insert((dir, &entry.record.name)) {
                self.bad.push(format!("{dir} has a name twice"));
            }
            let is_live = *live.entry(dir).or_insert_with(|| {
                let inode = self.image.inodes.get(&dir);
                inode.is_some_and(|inode| inode.attr.is_dir() && inode.attr.nlink > 0)
            });
            if !is_live {
                self.bad.push(format!("entries of {dir}, which is no directory in the tree"));
            }
            if self.is_here(entry.record.fid) {
                self.child(entry);
            }
        }
    }

    /// The entry of a file on the same MDT.
    fn child(&mut self, entry: &Entry) {
        let (dir, fid) = (entry.dir, entry.record.fid);
        match self.image.inodes.get(&fid) {
            None => {
                self.bad.push(format!("an entry of {dir} names {fid} which is not there"));
            }
            Some(inode) => self.bad.extend(misfits(entry, inode)),
        }
    }

    /// Each entry of a file on the same MDT has its back-link, and each back-link its entry.
    fn back_links(&mut self) {
        let here = |entry: &&Entry| self.is_here(entry.record.fid);
        let entries = self.image.entries.iter().filter(here);
        let entries: BTreeSet<_> = entries
            .map(|entry| (entry.record.fid, entry.dir, entry.cookie, &entry.record.name))
            .collect();
        let links = self.image.links.iter().filter(|link| self.is_here(link.dir));
        let links: BTreeSet<_> =
            links.map(|link| (link.fid, link.dir, link.cookie, &link.name)).collect();
        if entries != links {
            self.bad.push("back-links and entries differ".to_owned());
        }
        let fids: BTreeSet<Fid> = self.image.links.iter().map(|link| link.fid).collect();
        self.are_there("back-link of", &fids);
    }

    /// Link counts, sizes of directories, orphans: as the entries and back-links have it.
    fn counts(&mut self) {
        let (mut names, mut sums) = (BTreeMap::<Fid, u32>::new(), BTreeMap::<Fid, Sum>::new());
        for link in &self.image.links {
            *names.entry(link.fid).or_default() += 1;
        }
        for entry in &self.image.entries {
            let sum = sums.entry(entry.dir).or_default();
            sum.bytes += entry.record.name.len() as u64;
            sum.subdirs += u32::from(entry.record.file_type == S_IFDIR);
        }
        for (fid, inode) in &self.image.inodes {
            let names = names.get(fid).copied().unwrap_or(0);
            let sum = sums.get(fid).copied().unwrap_or_default();
            self.count(*fid, inode, (names, sum));
        }
    }

    fn count(&mut self, fid: Fid, inode: &Inode, (names, sum): (u32, Sum)) {
        let (attr, is_dir) = (&inode.attr, inode.attr.is_dir());
        let is_shard = attr.flags & ATTR_SHARD != 0;
        // a shard has no name, and lives as long as its directory
        let lives = fid == Fid::ROOT || (is_shard && !inode.has(INODE_ORPHAN));
        let count = names + u32::from(lives);
        let links = match (count, is_dir) {
            (0, _) => 0,
            (_, true) => 2 + sum.subdirs,
            (count, false) => count,
        };
        if attr.nlink != links || (is_dir && count > 1) {
            self.bad.push(format!("{fid} has link count {} and {links} links", attr.nlink));
        }
        if is_dir && attr.size != sum.bytes {
            self.bad.push(format!("{fid} has size {} and {} bytes of names", attr.size, sum.bytes));
        }
        let is_orphan = count == 0;
        let is_listed = self.image.orphans.contains(&fid);
        if is_orphan != is_listed || is_orphan != inode.has(INODE_ORPHAN) {
            self.bad.push(format!("{fid} has {count} names and its orphan record differs"));
        }
    }

    fn are_there(&mut self, what: &str, fids: &BTreeSet<Fid>) {
        let missing = fids.iter().filter(|fid| !self.image.inodes.contains_key(fid));
        self.bad.extend(missing.map(|fid| format!("{what} {fid}, which is not there")));
    }

    /// What is done everywhere has no record.
    fn records(&mut self) {
        let mark = |mdt: u32| self.image.marks.get(&mdt).copied().unwrap_or(0);
        let done =
            self.image.records.iter().filter(|record| record.id.number < mark(record.id.mdt));
        let text = |record: &Record| {
            let (number, mdt) = (record.id.number, record.id.mdt);
            format!("operation {number:#x} of MDT {mdt} is done and has a record")
        };
        self.bad.extend(done.map(text));
    }

    fn layouts(&mut self) {
        let has = |(_, inode): &(&Fid, &Inode)| inode.has(INODE_HAS_LAYOUT);
        let laid_out = self.image.inodes.iter().filter(has).map(|(fid, _)| *fid);
        let mut stored = self.image.with_layouts.clone();
        if self.image.index != 0 {
            stored.remove(&Fid::ROOT); // a copy of the root's default
        }
        if stored != laid_out.collect::<BTreeSet<_>>() {
            self.bad.push("layouts and inodes that have one differ".to_owned());
        }
    }
}

/// Where an entry and its file contradict each other.
pub(super) fn misfits(entry: &Entry, inode: &Inode) -> Vec<String> {
    let (dir, fid, mut bad) = (entry.dir, entry.record.fid, Vec::new());
    if inode.attr.file_type() != entry.record.file_type {
        bad.push(format!("{fid} has another type than its entry"));
    }
    if inode.attr.is_dir() && inode.parent != dir {
        bad.push(format!("{fid} lies in {dir} and says {}", inode.parent));
    }
    if inode.attr.flags & ATTR_SHARD != 0 {
        bad.push(format!("{fid} is a shard and has a name in {dir}"));
    }
    bad
}

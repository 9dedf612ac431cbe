//! Rules for the records of one MDT. Each transaction keeps them, so they hold in every image.

use std::collections::{BTreeMap, BTreeSet};

use osd::Table;
use types::Fid;
use wire::attr::{AttrFlags, S_IFDIR, S_IFREG};

use super::finding::{Finding, Mend, Rule};
use super::image::{Entry, Image, Link};
use crate::keys;
use crate::record::{INODE_HAS_LAYOUT, INODE_ORPHAN, Inode};

/// Every breach.
pub(super) fn check(image: &Image) -> Vec<Finding> {
    let broken = image.broken.iter().cloned();
    let bad = broken.map(|text| Finding::new(Rule::Unreadable, Fid::ZERO, text)).collect();
    let mut check = Check { image, bad };
    check.places();
    check.entries();
    check.back_links();
    check.counts();
    check.have_inodes();
    check.layouts();
    check.stripings();
    check.records();
    check.bad
}

struct Check<'a> {
    image: &'a Image,
    bad: Vec<Finding>,
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

    fn add(&mut self, rule: Rule, fid: Fid, text: String, mend: Option<Mend>) {
        self.bad.push(Finding { mend, ..Finding::new(rule, fid, text) });
    }

    /// An MDT has inodes and directories of its own.
    fn places(&mut self) {
        let inodes = self.image.inodes.keys();
        let dirs = self.image.entries.iter().map(|entry| &entry.dir);
        let files = self.image.links.iter().map(|link| &link.fid);
        let all: BTreeSet<&Fid> = inodes.chain(dirs).chain(files).collect();
        let index = self.image.index;
        for fid in all.into_iter().filter(|fid| fid.mdt_index() != index) {
            let text = format!("MDT {index} has records of {fid}");
            self.add(Rule::ForeignRecord, *fid, text, None);
        }
    }

    fn entries(&mut self) {
        let mut seen = BTreeSet::new();
        let mut last = None;
        for entry in &self.image.entries {
            let dir = entry.dir;
            if last.replace(dir) != Some(dir) {
                self.directory(dir);
            }
            if !seen.insert((dir, &entry.record.name)) {
                let mend = Mend::RemoveName { dir, cookie: entry.cookie };
                let text = format!("{dir} has a name twice");
                let finding = Finding::new(Rule::NameTwice, dir, text);
                self.bad.push(finding.named(dir, &entry.record.name).mended_by(mend));
            }
            if self.is_here(entry.record.fid) {
                self.child(entry);
            }
        }
    }

    /// Entries are in a directory that is there.
    fn directory(&mut self, dir: Fid) {
        let mend = match self.image.inodes.get(&dir) {
            Some(inode) if inode.attr.is_dir() && inode.attr.nlink > 0 => return,
            Some(inode) if inode.attr.is_dir() => Mend::Revive(dir),
            None => Mend::Remake(dir),
            Some(_) => {
                let entries = self.image.entries_of(dir).iter();
                let key = |entry: &Entry| (Table::Dirents, keys::dirent(dir, entry.cookie));
                Mend::Delete { mdt: self.image.index, keys: entries.map(key).collect() }
            }
        };
        let text = format!("entries of {dir}, which is not a directory in the tree");
        self.add(Rule::StrayEntry, dir, text, Some(mend));
    }

    /// The entry of a file on the same MDT.
    fn child(&mut self, entry: &Entry) {
        let (dir, fid) = (entry.dir, entry.record.fid);
        match self.image.inodes.get(&fid) {
            None => {
                let text = format!("an entry of {dir} names {fid} which is not there");
                self.bad.push(dangling(entry, self.image, text));
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
        for (fid, dir, cookie, name) in entries.difference(&links) {
            self.bad.push(unknown_name(*fid, *dir, name, *cookie));
        }
        for (fid, dir, cookie, name) in links.difference(&entries) {
            self.bad.push(lost_name(*fid, *dir, name, *cookie));
        }
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
        let (count, links) = links(fid, inode, (names, sum.subdirs));
        let (is_orphan, is_listed) = (count == 0, self.image.orphans.contains(&fid));
        // a file that lost its name is found again; one that was removed goes
        let is_nameless = is_orphan && attr.nlink > 0;
        let size = if is_dir { sum.bytes } else { attr.size };
        if attr.nlink != links || (is_dir && count > 1) {
            let text = format!("{fid} has link count {} and {links} links", attr.nlink);
            let mend = match is_nameless {
                true => Mend::ToLostFound(fid),
                false => Mend::Count { fid, nlink: links, size },
            };
            let rule = if is_nameless { Rule::Nameless } else { Rule::LinkCount };
            let is_counted = !is_dir || count <= 1;
            self.add(rule, fid, text, Some(mend).filter(|_| is_counted));
        }
        if is_dir && attr.size != sum.bytes {
            let text = format!("{fid} has size {} and {} bytes of names", attr.size, sum.bytes);
            let mend = Mend::Count { fid, nlink: attr.nlink, size };
            self.add(Rule::DirectorySize, fid, text, Some(mend));
        }
        if is_orphan != is_listed || is_orphan != inode.has(INODE_ORPHAN) {
            let text = format!("{fid} has {count} names and its orphan record differs");
            let mend = Mend::SetOrphan { fid, is_orphan };
            self.add(Rule::OrphanRecord, fid, text, Some(mend).filter(|_| !is_nameless));
        }
    }

    /// What belongs to an inode has one.
    fn have_inodes(&mut self) {
        let image = self.image;
        let links: BTreeSet<Fid> = image.links.iter().map(|link| link.fid).collect();
        let with_xattrs = image.with_xattrs.keys().copied().collect();
        self.have_inode("orphan", &image.orphans, |fid| {
            vec![(Table::Orphans, fid.to_key().to_vec())]
        });
        self.have_inode("attributes of", &with_xattrs, |fid| {
            let names = image.with_xattrs.get(&fid).into_iter().flatten();
            names.map(|name| (Table::Xattrs, keys::xattr(fid, name))).collect()
        });
        let key = |link: &Link| (Table::Links, keys::link(link.fid, link.dir, link.cookie));
        self.have_inode("back-link of", &links, |fid| {
            image.links_of(fid).iter().map(key).collect()
        });
    }

    /// An inode is made again where something says what it was.
    fn have_inode(
        &mut self,
        what: &str,
        fids: &BTreeSet<Fid>,
        keys: impl Fn(Fid) -> Vec<(Table, Vec<u8>)>,
    ) {
        let mdt = self.image.index;
        for fid in fids.iter().filter(|fid| !self.image.inodes.contains_key(fid)) {
            let mend = match self.image.has_traces(*fid) && what != "orphan" {
                true => Mend::Remake(*fid),
                false => Mend::Delete { mdt, keys: keys(*fid) },
            };
            let text = format!("{what} {fid}, which is not there");
            self.add(Rule::NoInode, *fid, text, Some(mend));
        }
    }

    /// What is done everywhere has no record.
    fn records(&mut self) {
        let mark = |mdt: u32| self.image.marks.get(&mdt).copied().unwrap_or(0);
        let done = self.image.records.iter().filter(|it| it.id.number < mark(it.id.mdt));
        let finding = |record: &wire::updates::Record| {
            let (number, mdt) = (record.id.number, record.id.mdt);
            let text = format!("operation {number:#x} of MDT {mdt} is done and has a record");
            let keys = vec![(Table::Updates, record.id.to_key().to_vec())];
            let mend = Mend::Delete { mdt: self.image.index, keys };
            Finding::new(Rule::DoneOperation, Fid::ZERO, text).mended_by(mend)
        };
        let done: Vec<Finding> = done.map(finding).collect();
        self.bad.extend(done);
    }

    /// Layouts, and inodes that have one.
    fn layouts(&mut self) {
        let has = |(_, inode): &(&Fid, &Inode)| inode.has(INODE_HAS_LAYOUT);
        let laid_out = self.image.inodes.iter().filter(has).map(|(fid, _)| *fid);
        let laid_out: BTreeSet<Fid> = laid_out.collect();
        let mut stored = self.image.with_layouts.clone();
        if self.image.index != 0 {
            stored.remove(&Fid::ROOT); // a copy of the root's default
        }
        for fid in laid_out.difference(&stored) {
            let text = format!("{fid} says that it has a layout and has none");
            let mend = Mend::SetLayoutFlag { fid: *fid, has: false };
            self.add(Rule::LayoutFlag, *fid, text, Some(mend));
        }
        for fid in stored.difference(&laid_out) {
            let (rule, text, mend) = self.extra_layout(*fid);
            self.add(rule, *fid, text, Some(mend));
        }
    }

    /// Striped directories list their shards. So does each shard whose names move.
    fn stripings(&mut self) {
        let says = |inode: &Inode| inode.attr.flags.contains(AttrFlags::STRIPED);
        let striped = self.image.inodes.iter().filter(|(_, inode)| says(inode));
        let said: BTreeSet<Fid> = striped.map(|(fid, _)| *fid).collect();
        let is_master = |fid: &&Fid| {
            let inode = self.image.inodes.get(fid);
            inode.is_some_and(|inode| !inode.attr.flags.contains(AttrFlags::SHARD))
        };
        let listed: BTreeSet<Fid> = self.image.stripes.keys().filter(is_master).copied().collect();
        for fid in said.symmetric_difference(&listed) {
            let has = listed.contains(fid);
            let text = match has {
                true => format!("{fid} lists shards and says that it has none"),
                false => format!("{fid} says that it has shards and lists none"),
            };
            let mend = Mend::SetStriped { fid: *fid, has };
            self.add(Rule::StripedFlag, *fid, text, Some(mend));
        }
    }

    /// A layout of which the inode does not say so, or of no inode.
    fn extra_layout(&self, fid: Fid) -> (Rule, String, Mend) {
        if self.image.inodes.contains_key(&fid) {
            let text = format!("{fid} has a layout and says that it has none");
            return (Rule::LayoutFlag, text, Mend::SetLayoutFlag { fid, has: true });
        }
        let text = format!("layout of {fid}, which is not there");
        let mend = match self.image.layouts.contains_key(&fid) {
            true => Mend::Remake(fid),
            false => Mend::Delete {
                mdt: self.image.index,
                keys: vec![(Table::Layouts, fid.to_key().to_vec())],
            },
        };
        (Rule::NoInode, text, mend)
    }
}

/// How often a file is named, and the link count that it should have.
pub(crate) fn links(fid: Fid, inode: &Inode, (names, subdirs): (u32, u32)) -> (u32, u32) {
    let is_shard = inode.attr.flags.contains(AttrFlags::SHARD);
    // a shard has no name, and lives as long as its directory
    let lives = fid == Fid::ROOT || (is_shard && !inode.has(INODE_ORPHAN));
    let count = names + u32::from(lives);
    let links = match (count, inode.attr.is_dir()) {
        (0, _) => 0,
        (_, true) => 2 + subdirs,
        (count, false) => count,
    };
    (count, links)
}

/// An entry whose file is not there. The file is made again if other records say what it was.
pub(super) fn dangling(entry: &Entry, home: &Image, text: String) -> Finding {
    let (dir, fid) = (entry.dir, entry.record.fid);
    let was_file = entry.record.file_type == S_IFREG && home.layouts.contains_key(&fid);
    let has_names = !home.entries_of(fid).is_empty() || home.stripes.contains_key(&fid);
    let was_dir = entry.record.file_type == S_IFDIR && has_names;
    let mend = match was_file || was_dir {
        true => Mend::Remake(fid),
        false => Mend::RemoveName { dir, cookie: entry.cookie },
    };
    Finding::new(Rule::DanglingName, fid, text).named(dir, &entry.record.name).mended_by(mend)
}

/// A name that its file does not know.
pub(super) fn unknown_name(fid: Fid, dir: Fid, name: &[u8], cookie: u64) -> Finding {
    let text = format!("{fid} does not know its name `{}` in {dir}", String::from_utf8_lossy(name));
    let finding = Finding::new(Rule::UnknownName, fid, text).named(dir, name);
    finding.mended_by(Mend::AddLink { dir, cookie })
}

/// A name that a file knows and that no directory has.
pub(super) fn lost_name(fid: Fid, dir: Fid, name: &[u8], cookie: u64) -> Finding {
    let name_text = String::from_utf8_lossy(name);
    let text = format!("{fid} has no name `{name_text}` in {dir} and says so");
    let finding = Finding::new(Rule::LostName, fid, text).named(dir, name);
    finding.mended_by(Mend::RestoreName { fid, dir, cookie })
}

/// Where an entry and its file contradict each other.
pub(super) fn misfits(entry: &Entry, inode: &Inode) -> Vec<Finding> {
    let (dir, fid, cookie) = (entry.dir, entry.record.fid, entry.cookie);
    let mut bad = Vec::new();
    let mut add = |rule, text, mend| {
        let finding = Finding::new(rule, fid, text).named(dir, &entry.record.name);
        bad.push(finding.mended_by(mend));
    };
    let file_type = inode.attr.file_type();
    if file_type != entry.record.file_type {
        let text = format!("{fid} has another type than its entry");
        add(Rule::WrongType, text, Mend::SetType { dir, cookie, file_type });
    }
    if inode.attr.is_dir() && inode.parent != dir {
        let text = format!("{fid} lies in {dir} and says {}", inode.parent);
        add(Rule::WrongParent, text, Mend::SetParent { fid, parent: dir });
    }
    if inode.attr.flags.contains(AttrFlags::SHARD) {
        let text = format!("{fid} is a shard and has a name in {dir}");
        add(Rule::NamedShard, text, Mend::RemoveName { dir, cookie });
    }
    bad
}

//! Checks what must hold for an MDT's records at every moment, in the running image and in each
//! durable one: for tests and simulation. It reads everything, so no server calls it.

use std::collections::{BTreeMap, BTreeSet};

use osd::{StoreError, Table, View};
use types::Fid;

use crate::keys;
use crate::record::{DirentRecord, INODE_HAS_LAYOUT, INODE_ORPHAN, Inode};

/// Key and value as stored.
type Pair = (Vec<u8>, Vec<u8>);

/// Every breach, in words.
///
/// # Errors
/// What the store answers where it cannot be read.
pub fn fsck(view: &dyn View) -> Result<Vec<String>, StoreError> {
    let mut check = Check::default();
    check.read_inodes(&table(view, Table::Inodes)?);
    check.entries(&table(view, Table::Dirents)?, table(view, Table::Links)?);
    let orphans = fids(view, Table::Orphans)?;
    check.counts(&orphans);
    check.are_there("orphan", &orphans);
    check.are_there("attributes of", &fids(view, Table::Xattrs)?);
    check.layouts(&fids(view, Table::Layouts)?);
    Ok(check.bad)
}

fn table(view: &dyn View, table: Table) -> Result<Vec<Pair>, StoreError> {
    let mut pairs = Vec::new();
    view.scan(table, &[0], &mut |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        true
    })?;
    Ok(pairs)
}

/// The files that the keys of a table begin with.
fn fids(view: &dyn View, of: Table) -> Result<BTreeSet<Fid>, StoreError> {
    Ok(table(view, of)?.iter().filter_map(|(key, _)| Fid::from_key(key)).collect())
}

#[derive(Default)]
struct Check {
    inodes: BTreeMap<Fid, Inode>,
    /// Entries that name a file.
    names: BTreeMap<Fid, u32>,
    subdirs: BTreeMap<Fid, u32>,
    /// Bytes of the names in a directory.
    bytes: BTreeMap<Fid, u64>,
    bad: Vec<String>,
}

impl Check {
    fn read_inodes(&mut self, pairs: &[Pair]) {
        for (key, value) in pairs {
            match (Fid::from_key(key), Inode::decode(value)) {
                (Some(fid), Some(inode)) => drop(self.inodes.insert(fid, inode)),
                _ => self.bad.push(format!("no inode under {key:?}")),
            }
        }
    }

    /// Each entry leads to a file, each back-link to an entry.
    fn entries(&mut self, pairs: &[Pair], links: Vec<Pair>) {
        let (mut expected, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for (key, value) in pairs {
            let place = Fid::from_key(key).zip(keys::dirent_cookie(key));
            let (Some((dir, cookie)), Some(record)) = (place, DirentRecord::decode(value)) else {
                self.bad.push(format!("no entry under {key:?}"));
                continue;
            };
            expected.insert((keys::link(record.fid, dir, cookie), record.name.clone()));
            if !seen.insert((dir, record.name.clone())) {
                self.bad.push(format!("{dir} has a name twice"));
            }
            self.entry(dir, &record);
        }
        if links.into_iter().collect::<BTreeSet<_>>() != expected {
            self.bad.push("back-links and entries differ".to_owned());
        }
    }

    fn entry(&mut self, dir: Fid, record: &DirentRecord) {
        *self.bytes.entry(dir).or_default() += record.name.len() as u64;
        if !self.inodes.get(&dir).is_some_and(|inode| inode.attr.is_dir() && inode.attr.nlink > 0) {
            self.bad.push(format!("entries of {dir}, which is not a directory in the tree"));
        }
        let fid = record.fid;
        let Some(inode) = self.inodes.get(&fid) else {
            self.bad.push(format!("an entry of {dir} names {fid} which is not there"));
            return;
        };
        *self.names.entry(fid).or_default() += 1;
        if inode.attr.file_type() != record.file_type {
            self.bad.push(format!("{fid} has another type than its entry"));
        }
        if inode.attr.is_dir() {
            *self.subdirs.entry(dir).or_default() += 1;
            if inode.parent != dir {
                self.bad.push(format!("{fid} lies in {dir} and says {}", inode.parent));
            }
        }
    }

    /// Link counts, sizes of directories, orphans: as the entries have it.
    fn counts(&mut self, orphans: &BTreeSet<Fid>) {
        let of = |counts: &BTreeMap<Fid, u32>, fid: &Fid| counts.get(fid).copied().unwrap_or(0);
        for (fid, inode) in &self.inodes {
            let (attr, is_dir) = (&inode.attr, inode.attr.is_dir());
            let count = of(&self.names, fid) + u32::from(*fid == Fid::ROOT);
            let links = match (count, is_dir) {
                (0, _) => 0,
                (_, true) => 2 + of(&self.subdirs, fid),
                (count, false) => count,
            };
            if attr.nlink != links || (is_dir && count > 1) {
                self.bad.push(format!("{fid} has link count {} and {links} links", attr.nlink));
            }
            if is_dir && attr.size != self.bytes.get(fid).copied().unwrap_or(0) {
                self.bad.push(format!("{fid} has size {}", attr.size));
            }
            let is_orphan = count == 0;
            if is_orphan != orphans.contains(fid) || is_orphan != inode.has(INODE_ORPHAN) {
                self.bad.push(format!("{fid} has {count} names and its orphan record differs"));
            }
        }
    }

    fn are_there(&mut self, what: &str, fids: &BTreeSet<Fid>) {
        let missing = fids.iter().filter(|fid| !self.inodes.contains_key(fid));
        self.bad.extend(missing.map(|fid| format!("{what} {fid}, which is not there")));
    }

    fn layouts(&mut self, layouts: &BTreeSet<Fid>) {
        let has = |(_, inode): &(&Fid, &Inode)| inode.has(INODE_HAS_LAYOUT);
        let laid_out: BTreeSet<Fid> = self.inodes.iter().filter(has).map(|(fid, _)| *fid).collect();
        if *layouts != laid_out {
            self.bad.push("layouts and inodes that have one differ".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use osd::{MetaStore, WriteSet};

    use super::*;
    use crate::tests::store::TestStore;

    /// Breaches in an empty store after `change`.
    fn check(change: impl FnOnce(&mut WriteSet)) -> Vec<String> {
        let (store, mut set) = (TestStore::default(), WriteSet::new());
        change(&mut set);
        store.apply(&set).expect("a test store has room");
        let view = store.running().expect("a test store is never busy");
        fsck(&*view).expect("a test store can be read")
    }

    #[test]
    fn an_inode_without_a_name_and_an_orphan_without_an_inode_are_breaches() {
        let mut attr = wire::Attr { mode: 0o100_644, nlink: 1, ..wire::Attr::default() };
        attr = attr.with_fid(Fid::new(7, 8));
        let inode = Inode {
            attr,
            flags: 0,
            parent: Fid::ROOT,
            mtime_set: types::Timespec::default(),
            stripes: 0,
            symlink: Vec::new(),
        };
        let bad = check(|set| {
            set.put(Table::Inodes, Fid::new(7, 8).to_key(), inode.encode());
            set.put(Table::Orphans, Fid::new(7, 9).to_key(), [0]);
        });
        let text = bad.join("; ");
        assert_eq!(bad.len(), 3, "{text}");
        assert!(text.contains("has link count 1 and 0 links"), "{text}");
        assert!(text.contains("orphan [0x7:0x9:0x0], which is not there"), "{text}");
        assert_eq!(check(|_| {}), Vec::<String>::new());
    }
}

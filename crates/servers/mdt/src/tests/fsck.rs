//! What must hold of the records at every moment, whatever happened.

use std::collections::{BTreeMap, BTreeSet};

use osd::Table;
use types::Fid;

use super::store::TestStore;
use crate::keys;
use crate::record::{DirentRecord, INODE_HAS_LAYOUT, INODE_ORPHAN, Inode};

/// Every breach, in words.
pub(super) fn fsck(store: &TestStore) -> Vec<String> {
    let inodes: BTreeMap<Fid, Inode> = store
        .table(Table::Inodes)
        .into_iter()
        .map(|(key, value)| {
            (Fid::from_key(&key).expect("a FID"), Inode::decode(&value).expect("an inode"))
        })
        .collect();
    let mut bad = Vec::new();
    let mut names: BTreeMap<Fid, u32> = BTreeMap::new();
    let mut subdirs: BTreeMap<Fid, u32> = BTreeMap::new();
    let mut bytes: BTreeMap<Fid, u64> = BTreeMap::new();
    let mut links = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for (key, value) in store.table(Table::Dirents) {
        let dir = Fid::from_key(&key).expect("a FID");
        let record = DirentRecord::decode(&value).expect("an entry");
        let cookie = keys::dirent_cookie(&key).expect("a cookie");
        links.insert((keys::link(record.fid, dir, cookie), record.name.clone()));
        if !seen.insert((dir, record.name.clone())) {
            bad.push(format!("{dir} has a name twice"));
        }
        *bytes.entry(dir).or_default() += record.name.len() as u64;
        match inodes.get(&record.fid) {
            None => bad.push(format!("an entry of {dir} names {} which is not there", record.fid)),
            Some(inode) => {
                *names.entry(record.fid).or_default() += 1;
                if inode.attr.file_type() != record.file_type {
                    bad.push(format!("{} has another type than its entry", record.fid));
                }
                if inode.attr.is_dir() {
                    *subdirs.entry(dir).or_default() += 1;
                    if inode.parent != dir {
                        bad.push(format!("{} lies in {dir} and says {}", record.fid, inode.parent));
                    }
                }
            }
        }
        if !inodes.get(&dir).is_some_and(|inode| inode.attr.is_dir() && inode.attr.nlink > 0) {
            bad.push(format!("entries of {dir}, which is no directory in the tree"));
        }
    }
    let back: BTreeSet<_> = store.table(Table::Links).into_iter().collect();
    if back != links {
        bad.push("back-links and entries differ".to_owned());
    }
    let orphans: BTreeSet<Fid> =
        store.table(Table::Orphans).iter().filter_map(|(key, _)| Fid::from_key(key)).collect();
    for (fid, inode) in &inodes {
        let count = names.get(fid).copied().unwrap_or(0) + u32::from(*fid == Fid::ROOT);
        let expected = match (count, inode.attr.is_dir()) {
            (0, _) => 0,
            (_, true) => 2 + subdirs.get(fid).copied().unwrap_or(0),
            (count, false) => count,
        };
        if inode.attr.nlink != expected || (inode.attr.is_dir() && count > 1) {
            bad.push(format!("{fid} has link count {} and {expected} links", inode.attr.nlink));
        }
        if inode.attr.is_dir() && inode.attr.size != bytes.get(fid).copied().unwrap_or(0) {
            bad.push(format!("{fid} has size {}", inode.attr.size));
        }
        if (count == 0) != orphans.contains(fid) || (count == 0) != inode.has(INODE_ORPHAN) {
            bad.push(format!("{fid} has {count} names and its orphan record says otherwise"));
        }
    }
    bad.extend(
        orphans
            .iter()
            .filter(|fid| !inodes.contains_key(fid))
            .map(|fid| format!("orphan {fid} is not there")),
    );
    let layouts: BTreeSet<Fid> =
        store.table(Table::Layouts).iter().filter_map(|(key, _)| Fid::from_key(key)).collect();
    let laid_out: BTreeSet<Fid> = inodes
        .iter()
        .filter(|(_, inode)| inode.has(INODE_HAS_LAYOUT))
        .map(|(fid, _)| *fid)
        .collect();
    if layouts != laid_out {
        bad.push("layouts and inodes that have one differ".to_owned());
    }
    let xattrs: BTreeSet<Fid> =
        store.table(Table::Xattrs).iter().filter_map(|(key, _)| Fid::from_key(key)).collect();
    bad.extend(
        xattrs
            .iter()
            .filter(|fid| !inodes.contains_key(fid))
            .map(|fid| format!("attributes of {fid}, which is not there")),
    );
    bad
}

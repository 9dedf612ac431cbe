//! Mends: from breaches to the changes of stores that mend them.
//!
//! Mends of one stage read the same images, so they must not touch the same record. A mend waits
//! for the next round if another mend of the round has touched its record. Counts of directories
//! are not set along; a later stage does that.

use std::collections::{BTreeMap, BTreeSet};

use osd::{Table, WriteSet};
use types::{Fid, Timespec};
use wire::attr::{AttrFlags, S_IFDIR};

use super::finding::Mend;
use super::image::{Entry, Image, Link};
use super::system::System;
use crate::ids::encode_place;
use crate::keys;
use crate::limits::ID_RANGE;
use crate::record::{DestroyRecord, DirentRecord, INODE_HAS_LAYOUT, INODE_ORPHAN, Inode};

/// The record of an object gets this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub ost: u32,
    pub object: Fid,
    pub file: Fid,
    /// Number of the store of the file's MDT.
    pub store: u64,
}

/// An object is made that reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    pub owner: Owner,
    pub bytes: u64,
}

/// Changes of stores. Each set is of one mend, and is applied whole. Applying them again changes
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// With the indexes of the MDTs.
    pub sets: Vec<(u32, WriteSet)>,
    pub owners: Vec<Owner>,
    pub made: Vec<Made>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.owners.is_empty() && self.made.is_empty()
    }
}

/// What became of a mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planned {
    Done,
    /// In a later round.
    Later,
}

/// Changes of one mend.
#[derive(Debug, Default)]
pub(super) struct Draft {
    sets: BTreeMap<u32, WriteSet>,
    owners: Vec<Owner>,
    made: Vec<Made>,
    /// It only prepares: the mend itself comes in the next round.
    pub(super) is_first: bool,
}

impl Draft {
    fn of(&mut self, fid: Fid) -> &mut WriteSet {
        self.sets.entry(fid.mdt_index()).or_default()
    }

    pub(super) fn inode(&mut self, inode: &Inode) {
        let fid = inode.fid();
        self.of(fid).put(Table::Inodes, fid.to_key(), inode.encode());
    }

    pub(super) fn layout(&mut self, file: Fid, record: Vec<u8>) {
        self.of(file).put(Table::Layouts, file.to_key(), record);
    }

    pub(super) fn no_orphan(&mut self, fid: Fid) {
        self.of(fid).delete(Table::Orphans, fid.to_key());
    }

    pub(super) fn owner(&mut self, owner: Owner) {
        self.owners.push(owner);
    }

    fn remove(&mut self, entry: &Entry) {
        self.of(entry.dir).delete(Table::Dirents, keys::dirent(entry.dir, entry.cookie));
    }

    fn unlink(&mut self, link: &Link) {
        self.of(link.fid).delete(Table::Links, keys::link(link.fid, link.dir, link.cookie));
    }
}

/// The changes of a round.
pub(super) struct Plan<'a> {
    pub(super) system: &'a System<'a>,
    pub(super) now: Timespec,
    pub(super) changes: Changes,
    touched: BTreeSet<(u32, Table, Vec<u8>)>,
    /// Next ids of files.
    ids: BTreeMap<u32, (u64, u32)>,
    /// Next numbers of destroy records.
    destroys: BTreeMap<u32, u64>,
    /// Entries by the files that they lead to.
    names: BTreeMap<Fid, Vec<&'a Entry>>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(system: &'a System<'a>, now: Timespec) -> Plan<'a> {
        let mut names = BTreeMap::<Fid, Vec<&Entry>>::new();
        for entry in system.images.iter().flat_map(|image| &image.entries) {
            names.entry(entry.record.fid).or_default().push(entry);
        }
        let (changes, touched) = (Changes::default(), BTreeSet::new());
        let (ids, destroys) = (BTreeMap::new(), BTreeMap::new());
        Plan { system, now, changes, touched, ids, destroys, names }
    }

    /// Adds the changes of a mend, or says why there are none.
    pub(super) fn mend(&mut self, mend: &Mend) -> Result<Planned, String> {
        let draft = self.draft(mend)?;
        let is_first = draft.is_first;
        Ok(if self.take(draft) && !is_first { Planned::Done } else { Planned::Later })
    }

    fn draft(&mut self, mend: &Mend) -> Result<Draft, String> {
        let mut draft = Draft::default();
        match mend {
            Mend::Delete { mdt, keys } => {
                let set = draft.sets.entry(*mdt).or_default();
                keys.iter().for_each(|(table, key)| set.delete(*table, key.clone()));
            }
            Mend::RemoveName { dir, cookie } => self.remove_name(&mut draft, *dir, *cookie)?,
            Mend::Remake(fid) => self.remake(&mut draft, *fid)?,
            Mend::Revive(fid) => {
                let inode = self.without_orphan(&mut draft, *fid)?;
                self.counted(&mut draft, inode);
            }
            Mend::AsShard { shard, master } => {
                let mut inode = self.without_orphan(&mut draft, *shard)?;
                inode.parent = *master;
                inode.attr.flags |= AttrFlags::SHARD;
                self.counted(&mut draft, inode);
            }
            Mend::Unshard(fid) => {
                let mut inode = self.inode(*fid)?;
                inode.attr.flags &= !AttrFlags::SHARD;
                draft.inode(&inode);
            }
            Mend::SetStriped { fid, has } => {
                let mut inode = self.inode(*fid)?;
                inode.attr.flags.set(AttrFlags::STRIPED, *has);
                draft.inode(&inode);
            }
            Mend::MoveName { dir, cookie, to } => self.move_name(&mut draft, *dir, *cookie, *to)?,
            Mend::SetType { dir, cookie, file_type } => {
                let entry = self.entry(*dir, *cookie)?;
                let record = DirentRecord { file_type: *file_type, ..entry.record.clone() };
                draft.of(*dir).put(Table::Dirents, keys::dirent(*dir, *cookie), record.encode());
            }
            Mend::KeepOneName(fid) => self.keep_one_name(&mut draft, *fid),
            Mend::AddLink { dir, cookie } => {
                let entry = self.entry(*dir, *cookie)?;
                self.inode(entry.record.fid)?;
                self.link(&mut draft, entry.record.fid, (*dir, &entry.record.name), *cookie);
            }
            Mend::RestoreName { fid, dir, cookie } => {
                self.restore_name(&mut draft, *fid, *dir, *cookie)?;
            }
            Mend::SetParent { fid, parent } => {
                let mut inode = self.inode(*fid)?;
                inode.parent = *parent;
                draft.inode(&inode);
            }
            Mend::Cut(fid) => self.names_of(*fid).iter().for_each(|entry| {
                self.forget(&mut draft, entry);
            }),
            Mend::SetLayoutFlag { fid, has } => {
                let mut inode = self.inode(*fid)?;
                inode.flags &= !INODE_HAS_LAYOUT;
                inode.flags |= if *has { INODE_HAS_LAYOUT } else { 0 };
                draft.inode(&inode);
            }
            Mend::SetOrphan { fid, is_orphan } => {
                let mut inode = self.without_orphan(&mut draft, *fid)?;
                if *is_orphan {
                    draft.of(*fid).put(Table::Orphans, fid.to_key(), []);
                    inode.flags |= INODE_ORPHAN;
                    inode.attr.nlink = 0;
                }
                draft.inode(&inode);
            }
            Mend::ToLostFound(fid) => self.name_lost(&mut draft, *fid)?,
            Mend::Count { fid, nlink, size } => {
                let mut inode = self.inode(*fid)?;
                (inode.attr.nlink, inode.attr.size) = (*nlink, *size);
                draft.inode(&inode);
            }
            Mend::SetOwner { ost, object, file } => {
                let store = self.image(*file)?.store;
                draft.owner(Owner { ost: *ost, object: *object, file: *file, store });
            }
            Mend::GiveUp { file, stripe } => {
                draft.made.push(self.empty_object(*file, *stripe)?);
            }
            Mend::Destroy { base, ost, stripes } => {
                let number = self.destroy_number(*base)?;
                let record = DestroyRecord { base: *base, osts: vec![*ost; *stripes as usize] };
                draft.of(*base).put(Table::Destroys, number.to_be_bytes(), record.encode());
            }
            Mend::Adopt { base, file } => self.adopt(&mut draft, *base, *file)?,
        }
        Ok(draft)
    }

    /// Takes the changes of a draft, unless another mend has touched the same records.
    fn take(&mut self, draft: Draft) -> bool {
        let changed = draft.sets.iter().flat_map(|(mdt, set)| {
            set.changes.iter().map(|(table, key, _)| (*mdt, *table, key.clone()))
        });
        // ids only rise, and each mend has its own
        let changed = changed.filter(|(_, _, key)| key != keys::META_FILE_IDS);
        let changed: BTreeSet<_> = changed.collect();
        if !changed.is_disjoint(&self.touched) {
            return false;
        }
        self.touched.extend(changed);
        self.changes.sets.extend(draft.sets);
        self.changes.owners.extend(draft.owners);
        self.changes.made.extend(draft.made);
        true
    }

    pub(super) fn image(&self, fid: Fid) -> Result<&'a Image, String> {
        let mdt = fid.mdt_index();
        self.system.image_of(fid).ok_or_else(|| format!("MDT {mdt} is not here"))
    }

    pub(super) fn inode(&self, fid: Fid) -> Result<Inode, String> {
        self.system.inode(fid).cloned().ok_or_else(|| format!("{fid} is not there"))
    }

    fn entry(&self, dir: Fid, cookie: u64) -> Result<&'a Entry, String> {
        self.system.entry(dir, cookie).ok_or_else(|| format!("an entry of {dir} is not there"))
    }

    /// Entries that lead to a file.
    pub(super) fn names_of(&self, fid: Fid) -> Vec<&'a Entry> {
        self.names.get(&fid).cloned().unwrap_or_default()
    }

    /// A directory of which entries are in the tree.
    fn is_dir(&self, fid: Fid) -> bool {
        let inode = self.system.inode(fid);
        inode.is_some_and(|inode| inode.attr.is_dir() && inode.attr.nlink > 0)
    }

    /// An inode that has no orphan record any more.
    pub(super) fn without_orphan(&self, draft: &mut Draft, fid: Fid) -> Result<Inode, String> {
        let mut inode = self.inode(fid)?;
        inode.flags &= !INODE_ORPHAN;
        draft.no_orphan(fid);
        Ok(inode)
    }

    /// A directory with the counts of its entries.
    pub(super) fn counted(&self, draft: &mut Draft, mut inode: Inode) {
        let fid = inode.fid();
        let entries = self.system.image_of(fid).map(|image| image.entries_of(fid)).unwrap_or(&[]);
        let dirs = entries.iter().filter(|entry| entry.record.file_type == S_IFDIR);
        inode.attr.nlink = 2 + u32::try_from(dirs.count()).unwrap_or(u32::MAX - 2);
        inode.attr.size = entries.iter().map(|entry| entry.record.name.len() as u64).sum();
        draft.inode(&inode);
    }

    /// The back-link of an entry.
    fn link_of(&self, entry: &Entry) -> Option<&'a Link> {
        let fid = entry.record.fid;
        let is_local = fid.mdt_index() == entry.dir.mdt_index();
        let fits = |link: &&Link| {
            let is_there = link.dir == entry.dir && link.name == entry.record.name;
            is_there && (!is_local || link.cookie == entry.cookie)
        };
        self.system.image_of(fid)?.links_of(fid).iter().find(fits)
    }

    fn forget(&self, draft: &mut Draft, entry: &Entry) {
        draft.remove(entry);
        if let Some(link) = self.link_of(entry) {
            draft.unlink(link);
        }
    }

    fn remove_name(&self, draft: &mut Draft, dir: Fid, cookie: u64) -> Result<(), String> {
        self.forget(draft, self.entry(dir, cookie)?);
        Ok(())
    }

    /// Adds a back-link. Its number is the entry's cookie on the same MDT, and else a free one.
    fn link(&self, draft: &mut Draft, fid: Fid, (dir, name): (Fid, &[u8]), cookie: u64) {
        let links = self.system.image_of(fid).map(|image| image.links_of(fid)).unwrap_or(&[]);
        let of_dir = links.iter().filter(|link| link.dir == dir);
        let number = match fid.mdt_index() == dir.mdt_index() {
            true => cookie,
            false => of_dir.map(|link| link.cookie.saturating_add(1)).max().unwrap_or(0),
        };
        draft.of(fid).put(Table::Links, keys::link(fid, dir, number), name);
    }

    /// The place of a new name: the first free number of its hash.
    fn free_cookie(&self, dir: Fid, name: &[u8]) -> Result<u64, String> {
        let image = self.image(dir)?;
        let key = image.hash_key.ok_or("the MDT has no key for names: it was never started")?;
        let first = key.name(name) << 16;
        let (mut free, entries) = (first, image.entries_of(dir));
        for entry in &entries[entries.partition_point(|entry| entry.cookie < first)..] {
            if entry.cookie >> 16 != first >> 16 {
                break;
            }
            if entry.record.name == name {
                return Err(format!("{dir} has another `{}`", String::from_utf8_lossy(name)));
            }
            free += u64::from(entry.cookie == free);
        }
        match free >> 16 == first >> 16 {
            true => Ok(free),
            false => Err(format!("{dir} has too many names of one hash")),
        }
    }

    /// Enters a file, with its back-link.
    pub(super) fn enter(
        &self,
        draft: &mut Draft,
        (dir, name): (Fid, &[u8]),
        (fid, file_type): (Fid, u32),
    ) -> Result<(), String> {
        let cookie = self.free_cookie(dir, name)?;
        let record = DirentRecord { fid, file_type, name: name.to_vec() };
        draft.of(dir).put(Table::Dirents, keys::dirent(dir, cookie), record.encode());
        self.link(draft, fid, (dir, name), cookie);
        Ok(())
    }

    fn move_name(&self, draft: &mut Draft, dir: Fid, cookie: u64, to: Fid) -> Result<(), String> {
        let entry = self.entry(dir, cookie)?;
        let record = &entry.record;
        if !self.is_dir(to) {
            return Err(format!("{to} is not a directory"));
        }
        // a name that is there stays, and the file of the other one gets a name in lost+found
        if self.free_cookie(to, &record.name).is_ok() {
            self.enter(draft, (to, &record.name), (record.fid, record.file_type))?;
        }
        self.forget(draft, entry);
        Ok(())
    }

    /// The name that the inode knows best stays.
    fn keep_one_name(&self, draft: &mut Draft, fid: Fid) {
        let names = self.names_of(fid);
        let parent = self.system.inode(fid).map(|inode| inode.parent);
        let rank = |entry: &&&Entry| {
            (self.link_of(entry).is_none(), Some(entry.dir) != parent, entry.dir, entry.cookie)
        };
        let kept = names.iter().min_by_key(rank).map(|entry| (entry.dir, entry.cookie));
        for entry in names.iter().filter(|entry| Some((entry.dir, entry.cookie)) != kept) {
            self.forget(draft, entry);
        }
    }

    fn restore_name(
        &self,
        draft: &mut Draft,
        fid: Fid,
        dir: Fid,
        cookie: u64,
    ) -> Result<(), String> {
        let links = self.image(fid)?.links_of(fid);
        let is_it = |link: &&Link| (link.dir, link.cookie) == (dir, cookie);
        let link = links.iter().find(is_it).ok_or("the back-link is not there")?;
        draft.unlink(link);
        let inode = self.inode(fid)?;
        let names = self.names_of(fid);
        let is_lost = |other: &&Link| {
            !names.iter().any(|it| it.dir == other.dir && it.record.name == other.name)
        };
        let before = links.iter().filter(is_lost).take_while(|other| !is_it(other)).count();
        let names_max = if inode.attr.is_dir() { 1 } else { inode.attr.nlink as usize };
        let is_wanted = inode.attr.nlink > 0 && names.len() + before < names_max;
        if is_wanted && self.is_dir(dir) && self.free_cookie(dir, &link.name).is_ok() {
            self.enter(draft, (dir, &link.name), (fid, inode.attr.file_type()))?;
        }
        Ok(())
    }

    /// The object of a stripe, as long as the size of its file wants it.
    fn empty_object(&self, file: Fid, stripe: u32) -> Result<Made, String> {
        let image = self.image(file)?;
        let layout = image.layouts.get(&file).ok_or("the file has no layout")?;
        let (object, ost) = layout.object(stripe);
        let owner = Owner { ost: ost.0, object, file, store: image.store };
        let bytes = layout.object_size(stripe, self.inode(file)?.attr.size);
        Ok(Made { owner, bytes })
    }

    /// The next id of a file on the MDT of `fid`, which is given away.
    pub(super) fn new_fid(&mut self, draft: &mut Draft, mdt: u32) -> Result<Fid, String> {
        let stored = self.system.image(mdt).and_then(|image| image.file_ids);
        let (mut seq, mut next) =
            self.ids.get(&mdt).copied().or(stored).ok_or("the MDT was never started")?;
        if next > u32::MAX - 2 * ID_RANGE {
            (seq, next) = (seq + 1, 1);
        }
        self.ids.insert(mdt, (seq, next + 1));
        let set = draft.sets.entry(mdt).or_default();
        set.put(Table::Meta, keys::META_FILE_IDS, encode_place((seq, next + 1)));
        Ok(Fid::new(seq, next))
    }

    fn destroy_number(&mut self, base: Fid) -> Result<u64, String> {
        let last = self.image(base)?.destroys.keys().next_back();
        let first = last.map_or(0, |last| last + 1);
        let next = self.destroys.entry(base.mdt_index()).or_insert(first);
        *next += 1;
        Ok(*next - 1)
    }
}

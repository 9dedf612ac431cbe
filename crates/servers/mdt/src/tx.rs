//! One operation's changes while it decides. Reads go to the running image and to the operation's
//! own changes. Writes gather in a set that is applied whole or not at all.

use std::collections::{BTreeMap, BTreeSet};

use layout::composite::Composite;
use layout::{Asked, FileLayout, StripeSet, Striping};
use osd::{Table, View, WriteSet};
use target::{Decided, OpError};
use types::{Errno, Fid, Timespec, Transno};
use wire::updates::{Fact, Key, Place, Update, Want};
use wire::{Attr, SizeState};

use crate::cross::Facts;
use crate::effect::Effect;
use crate::hash::HashKey;
use crate::keys;
use crate::record::{
    DestroyRecord, DirentRecord, INODE_HAS_LAYOUT, INODE_HAS_XATTR, INODE_MOVES, INODE_ORPHAN,
    Inode,
};
use crate::share::ShareKey;

/// A directory entry where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) cookie: u64,
    pub(crate) record: DirentRecord,
}

/// What stays the same for all operations of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    /// Index of this MDT.
    pub(crate) mdt: u32,
    pub(crate) hash_key: HashKey,
    /// First FID of this run.
    pub(crate) first_file: Fid,
}

/// The changes of one operation.
pub(crate) struct Tx<'a> {
    pub(crate) view: &'a dyn View,
    here: u32,
    /// Of other MDTs, if it may concern them.
    facts: Option<&'a Facts>,
    /// Names that are absent for ever in shards that names leave.
    absent: Option<&'a BTreeSet<Place>>,
    /// Names that may be in shards which names leave: they are to move first.
    pub(crate) pulls: BTreeSet<Place>,
    /// Facts that were missing.
    pub(crate) missing: BTreeSet<Want>,
    /// All changes of names, at this MDT and at others, in order.
    pub(crate) updates: Vec<Update>,
    /// A replay could not repeat it from its reply alone.
    pub(crate) needs_record: bool,
    /// Names are to leave this MDT: what little it stores for that is stored on a full one, too.
    pub(crate) gives_room: bool,
    /// This inode gets another FID: nothing that a client caches of it or of its names holds, not
    /// even at the caller. No client has it open then.
    pub(crate) departs: Option<Fid>,
    /// Files on other MDTs that lost a name here.
    pub(crate) unnamed: Vec<Fid>,
    pub(crate) set: WriteSet,
    pub(crate) now: Timespec,
    hash_key: HashKey,
    first_file: Fid,                      // of this run
    inodes: BTreeMap<Fid, Option<Inode>>, // as the operation sees them; changed ones are in `dirty`
    dirty: BTreeMap<Fid, ()>,
    /// Directory, first possible cookie and free cookie of the name that was last looked for and
    /// not found.
    vacant: Option<(Fid, u64, u64)>,
    /// What the decision depends on, for commit on share.
    pub(crate) decides: Vec<ShareKey>,
    /// What others' decisions may depend on.
    pub(crate) changes: Vec<ShareKey>,
    /// What happens in memory once the set is applied.
    pub(crate) effects: Vec<Effect>,
    /// A new file whose bytes are to be written before it is decided again.
    pub(crate) unwritten: Option<Fid>,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(view: &'a dyn View, here: &Here, now: Timespec) -> Tx<'a> {
        let Here { mdt, hash_key, first_file } = *here;
        Tx {
            view,
            here: mdt,
            facts: None,
            absent: None,
            pulls: BTreeSet::new(),
            missing: BTreeSet::new(),
            updates: Vec::new(),
            needs_record: false,
            gives_room: false,
            departs: None,
            unnamed: Vec::new(),
            first_file,
            set: WriteSet::new(),
            now,
            hash_key,
            inodes: BTreeMap::new(),
            dirty: BTreeMap::new(),
            vacant: None,
            decides: Vec::new(),
            changes: Vec::new(),
            effects: Vec::new(),
            unwritten: None,
        }
    }

    /// The operation may concern other MDTs, of which this is known.
    pub(crate) fn crossing(self, facts: &'a Facts) -> Tx<'a> {
        Tx { facts: Some(facts), ..self }
    }

    /// These names are absent for ever in shards that names leave.
    pub(crate) fn without(self, absent: &'a BTreeSet<Place>) -> Tx<'a> {
        Tx { absent: Some(absent), ..self }
    }

    /// A name that is not in its shard must not be in the one that it leaves either: it moves
    /// first, if it is there.
    pub(crate) fn left(&mut self, place: Place) -> Decided<()> {
        if self.absent.is_some_and(|absent| absent.contains(&place)) {
            return Ok(());
        }
        self.pulls.insert(place);
        Err(OpError::Elsewhere)
    }

    /// Whether a file is on this MDT.
    pub(crate) fn is_here(&self, fid: Fid) -> bool {
        fid.mdt_index() == self.here
    }

    /// Index of this MDT.
    pub(crate) fn mdt(&self) -> u32 {
        self.here
    }

    /// Whether the operation needs a record: it changes something on another MDT, or it depends on
    /// one.
    pub(crate) fn crosses(&self) -> bool {
        self.needs_record || self.updates.iter().any(|update| !self.is_here(update.fid()))
    }

    /// The state of a key of another MDT.
    pub(crate) fn fact(&mut self, key: Key, changes: bool) -> Decided<Fact> {
        let facts = self.facts.ok_or(Errno::ESTALE)?;
        let want = Want { key, changes };
        if let Some(fact) = facts.get(&want) {
            self.needs_record = true; // a replay has no facts
            return Ok(fact.clone());
        }
        self.missing.insert(want);
        Err(OpError::Elsewhere)
    }

    /// The access list of a file on another MDT that was looked at.
    pub(crate) fn list_elsewhere(&self, fid: Fid) -> Option<Vec<u8>> {
        let want = Want { key: Key::Inode(fid), changes: false };
        match self.facts?.get(&want)? {
            Fact::Inode { acl, .. } => Some(acl.clone()).filter(|acl| !acl.is_empty()),
            _ => None,
        }
    }

    /// The same operation will ask for this key of another MDT, too: both are fetched at once.
    pub(crate) fn foresee(&mut self, key: Key, changes: bool) {
        if key.mdt() == self.here {
            return;
        }
        let want = Want { key, changes };
        if self.facts.is_some_and(|facts| facts.get(&want).is_none()) {
            self.missing.insert(want);
        }
    }

    /// A FID for a new file of an MDT; `number` tells several apart.
    pub(crate) fn new_fid(&mut self, mdt: u32, number: u32) -> Decided<Fid> {
        match self.fact(Key::New(mdt, number), true)? {
            Fact::New(fid) if fid.mdt_index() == mdt => Ok(fid),
            _ => Err(OpError::Broken("fact of another MDT")),
        }
    }

    /// The inode of `fid`, if there is one. The operation may change it.
    pub(crate) fn find(&mut self, fid: Fid) -> Decided<Option<Inode>> {
        self.look(fid, true)
    }

    fn look(&mut self, fid: Fid, changes: bool) -> Decided<Option<Inode>> {
        if !self.is_here(fid) {
            return match self.fact(Key::Inode(fid), changes)? {
                Fact::Inode { record, .. } => {
                    Inode::decode(&record).map(Some).ok_or(OpError::Broken("inode"))
                }
                _ => Ok(None),
            };
        }
        if let Some(known) = self.inodes.get(&fid) {
            return Ok(known.clone());
        }
        let inode = match self.view.get(Table::Inodes, &fid.to_key())? {
            Some(value) => Some(Inode::decode(&value).ok_or(OpError::Broken("inode"))?),
            None => None,
        };
        self.inodes.insert(fid, inode.clone());
        Ok(inode)
    }

    /// The same, of a file that is on this MDT alone.
    pub(crate) fn find_here(&mut self, fid: Fid) -> Decided<Option<Inode>> {
        if self.is_here(fid) { self.find(fid) } else { Ok(None) }
    }

    /// The inode of `fid`; `ESTALE` where there is none: the caller had the FID from us.
    pub(crate) fn inode(&mut self, fid: Fid) -> Decided<Inode> {
        self.find(fid)?.ok_or(OpError::Refused(Errno::ESTALE))
    }

    /// The inode of `fid`, which the operation leaves as it is but for what commutes.
    pub(crate) fn glance(&mut self, fid: Fid) -> Decided<Inode> {
        self.look(fid, false)?.ok_or(OpError::Refused(Errno::ESTALE))
    }

    /// The directory `fid`.
    pub(crate) fn dir(&mut self, fid: Fid) -> Decided<Inode> {
        let inode = self.glance(fid)?;
        if inode.attr.is_dir() { Ok(inode) } else { Err(Errno::ENOTDIR.into()) }
    }

    pub(crate) fn put(&mut self, inode: Inode) {
        assert!(self.is_here(inode.fid()), "an MDT stores inodes of its own");
        self.dirty.insert(inode.fid(), ());
        self.inodes.insert(inode.fid(), Some(inode));
    }

    /// Whether the file was there before the operation.
    pub(crate) fn was_there(&self, fid: Fid) -> bool {
        self.view.get(Table::Inodes, &fid.to_key()).is_ok_and(|found| found.is_some())
    }

    /// An inode as it was before the operation.
    pub(crate) fn before(&self, fid: Fid) -> Decided<Option<Inode>> {
        match self.view.get(Table::Inodes, &fid.to_key())? {
            Some(value) => Inode::decode(&value).map(Some).ok_or(OpError::Broken("inode")),
            None => Ok(None),
        }
    }

    /// An inode as the operation leaves it, if it looked at it.
    pub(crate) fn seen(&self, fid: Fid) -> Option<&Inode> {
        self.inodes.get(&fid).and_then(Option::as_ref)
    }

    /// All inodes of this MDT that the operation looked at and found.
    pub(crate) fn looked_at(&self) -> impl Iterator<Item = &Inode> {
        self.inodes.values().flatten()
    }

    /// FIDs of this MDT that the operation looked for, whether or not it found an inode.
    pub(crate) fn looked_for(&self) -> impl Iterator<Item = Fid> {
        self.inodes.keys().copied()
    }

    /// Files and directories that the operation changes, some of them more than once: attributes,
    /// entries, and whether somebody writes.
    pub(crate) fn touched(&self) -> impl Iterator<Item = Fid> {
        let keys = self.changes.iter().map(|key| match key {
            ShareKey::Entry(fid, _) | ShareKey::Inode(fid) | ShareKey::Contents(fid) => *fid,
        });
        let effects = self.effects.iter().filter_map(|effect| match effect {
            Effect::Opened { file, epoch: Some(_), .. } => Some(file.fid),
            Effect::Dirtied { fid, .. } | Effect::Gone(fid) => Some(*fid),
            _ => None,
        });
        self.dirty.keys().copied().chain(keys).chain(effects)
    }

    /// Cookie of the first possible entry of `name`.
    fn first_cookie(&self, name: &[u8]) -> u64 {
        self.hash_key.name(name) << 16
    }

    /// The entry `name` of `dir`.
    pub(crate) fn entry(&mut self, dir: Fid, name: &[u8]) -> Decided<Option<Entry>> {
        if !self.is_here(dir) {
            let place = Place { dir, name: name.to_vec() };
            return Ok(match self.fact(Key::Name(place), true)? {
                Fact::Name { child: fid, file_type } => {
                    let record = DirentRecord { fid, file_type, name: name.to_vec() };
                    Some(Entry { cookie: 0, record })
                }
                _ => None,
            });
        }
        let first = self.first_cookie(name);
        let mut found = Ok(None);
        let (mut free, from) = (first, keys::dirent(dir, first));
        self.scan_entries(keys::of_hash(&from), &from, &mut |cookie, value| {
            free += u64::from(cookie == free);
            match DirentRecord::decode(value) {
                None => found = Err(OpError::Broken("directory entry")),
                Some(record) if record.name == name => found = Ok(Some(Entry { cookie, record })),
                Some(_) => return true,
            }
            false
        })?;
        if matches!(found, Ok(None)) {
            self.vacant = Some((dir, first, free));
        }
        self.decides.push(ShareKey::Entry(dir, first >> 16));
        found
    }

    /// Visits the entries of `dir` with a cookie at or above `from`.
    pub(crate) fn scan_dir(
        &self,
        dir: Fid,
        from: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Decided<()> {
        self.scan_entries(&dir.to_key(), &keys::dirent(dir, from), visit)
    }

    /// The same of those whose keys begin with `prefix`.
    fn scan_entries(
        &self,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Decided<()> {
        self.view.scan_within((Table::Dirents, prefix), from, &mut |key, value| {
            keys::dirent_cookie(key).is_some_and(|cookie| visit(cookie, value))
        })?;
        Ok(())
    }

    /// Whether `dir` has no entry.
    pub(crate) fn is_empty(&mut self, dir: Fid) -> Decided<bool> {
        if !self.is_here(dir) {
            return Ok(self.fact(Key::Empty(dir), true)? == Fact::Empty(true));
        }
        let mut empty = true;
        self.scan_dir(dir, 0, &mut |_, _| {
            empty = false;
            false
        })?;
        self.decides.push(ShareKey::Contents(dir));
        Ok(empty)
    }

    /// Makes the entry `name` of `dir`, which must not exist: the smallest free number among equal
    /// hashes.
    pub(crate) fn insert_entry(
        &mut self,
        dir: Fid,
        name: &[u8],
        (child, file_type): (Fid, u32),
    ) -> Decided<()> {
        let first = self.first_cookie(name);
        let cookie = match self.vacant {
            // who looked for the name has seen all of its hash
            Some((of, hash, free)) if (of, hash) == (dir, first) => free,
            _ => self.free_cookie(dir, first)?,
        };
        if cookie >> 16 != first >> 16 {
            return Err(Errno::ENOSPC.into());
        }
        assert!(cookie >= first, "a name lies at or behind the first place of its hash");
        self.set_entry(dir, cookie, name, (child, file_type));
        Ok(())
    }

    fn free_cookie(&self, dir: Fid, first: u64) -> Decided<u64> {
        let (mut free, from) = (first, keys::dirent(dir, first));
        self.scan_entries(keys::of_hash(&from), &from, &mut |taken, _| {
            let is_next = taken == free;
            free += u64::from(is_next);
            is_next
        })?;
        Ok(free)
    }

    /// Points the entry at `cookie` to a file; a name that was there keeps its place.
    pub(crate) fn set_entry(
        &mut self,
        dir: Fid,
        cookie: u64,
        name: &[u8],
        (fid, file_type): (Fid, u32),
    ) {
        assert!(!name.is_empty(), "an entry has a name");
        assert!(self.is_here(dir), "an MDT stores names of its own directories");
        let record = DirentRecord { fid, file_type, name: name.to_vec() };
        self.set.put(Table::Dirents, keys::dirent(dir, cookie), record.encode());
        if self.is_here(fid) {
            self.set.put(Table::Links, keys::link(fid, dir, cookie), name);
        }
        self.entry_changed(dir, cookie);
    }

    /// Removes an entry and its back-link.
    pub(crate) fn remove_entry(&mut self, dir: Fid, entry: &Entry) {
        self.set.delete(Table::Dirents, keys::dirent(dir, entry.cookie));
        self.unlink_back(dir, entry);
        self.entry_changed(dir, entry.cookie);
    }

    /// Removes the back-link of an entry that gets another file.
    pub(crate) fn unlink_back(&mut self, dir: Fid, entry: &Entry) {
        let fid = entry.record.fid;
        if self.is_here(fid) {
            self.set.delete(Table::Links, keys::link(fid, dir, entry.cookie));
        } else {
            self.unnamed.push(fid);
        }
    }

    /// Adds the back-link of a name on another MDT. Its number is this MDT's own.
    pub(crate) fn link_elsewhere(&mut self, fid: Fid, at: &Place) -> Decided<()> {
        let (number, is_there) = self.find_elsewhere(fid, at)?;
        if !is_there {
            self.set.put(Table::Links, keys::link(fid, at.dir, number), at.name.clone());
        }
        Ok(())
    }

    /// Removes such a back-link.
    pub(crate) fn unlink_elsewhere(&mut self, fid: Fid, at: &Place) -> Decided<()> {
        let (number, is_there) = self.find_elsewhere(fid, at)?;
        if is_there {
            self.set.delete(Table::Links, keys::link(fid, at.dir, number));
        }
        Ok(())
    }

    /// The number of such a back-link, or a free one.
    fn find_elsewhere(&self, fid: Fid, at: &Place) -> Decided<(u64, bool)> {
        assert!(self.is_here(fid), "an MDT stores back-links of its own files");
        assert!(!self.is_here(at.dir), "a name on this MDT has its cookie as number");
        let prefix = [fid.to_key(), at.dir.to_key()].concat();
        let (mut free, mut found) = (0, None);
        self.view.scan_within((Table::Links, &prefix), &prefix, &mut |key, name| {
            let number = key[prefix.len()..].try_into().map_or(0, u64::from_be_bytes);
            free = number.saturating_add(1);
            found = (name == at.name).then_some(number);
            found.is_none()
        })?;
        Ok(found.map_or((free, false), |number| (number, true)))
    }

    fn entry_changed(&mut self, dir: Fid, cookie: u64) {
        self.changes.push(ShareKey::Entry(dir, cookie >> 16));
        self.changes.push(ShareKey::Contents(dir));
    }

    /// A directory's entry count changed by so many names and subdirectories, now. These commute:
    /// no dependency.
    pub(crate) fn touch_dir(&mut self, dir: Fid, name_bytes: i64, subdirs: i32) -> Decided<()> {
        let mut inode = self.inode(dir)?;
        inode.attr.size = inode.attr.size.saturating_add_signed(name_bytes);
        inode.attr.nlink = inode.attr.nlink.saturating_add_signed(subdirs);
        inode.attr.set_mtime(self.now);
        inode.attr.set_ctime(self.now);
        self.put(inode);
        Ok(())
    }

    /// The same, but the directory keeps its times: no user changed it.
    pub(crate) fn resize_dir(&mut self, dir: Fid, name_bytes: i64, subdirs: i32) -> Decided<()> {
        let mut inode = self.inode(dir)?;
        inode.attr.size = inode.attr.size.saturating_add_signed(name_bytes);
        inode.attr.nlink = inode.attr.nlink.saturating_add_signed(subdirs);
        self.put(inode);
        Ok(())
    }

    /// The layout of a file, if it has one.
    pub(crate) fn layout(&self, inode: &Inode) -> Decided<Option<FileLayout>> {
        let record = self.layout_record(inode)?;
        if inode.attr.is_dir() {
            return Ok(None);
        }
        match Striping::decode(inode.fid(), &record) {
            Ok(Striping::Layout(layout)) => Ok(Some(layout)),
            Ok(Striping::None) => Ok(None),
            Ok(Striping::Template(_)) | Err(_) => Err(OpError::Broken("layout")),
        }
    }

    /// The default of a directory, if it has one.
    pub(crate) fn template(&self, inode: &Inode) -> Decided<Option<Asked>> {
        let record = self.layout_record(inode)?;
        if record.is_empty() || !inode.attr.is_dir() {
            return Ok(None);
        }
        Asked::decode(&record).map(Some).map_err(|_| OpError::Broken("default layout"))
    }

    /// The default of the root, of which other MDTs than the first have a copy.
    pub(crate) fn root_template(&mut self) -> Decided<Option<Asked>> {
        if self.is_here(Fid::ROOT) {
            return self.find(Fid::ROOT)?.map_or(Ok(None), |root| self.template(&root));
        }
        let Some(copy) = self.view.get(Table::Layouts, &Fid::ROOT.to_key())? else {
            return Ok(None);
        };
        Asked::decode(&copy).map(Some).map_err(|_| OpError::Broken("default layout"))
    }

    /// Layout or default as stored, empty if none; one that this operation sets included.
    pub(crate) fn layout_record(&self, inode: &Inode) -> Decided<Vec<u8>> {
        if !inode.has(INODE_HAS_LAYOUT) {
            return Ok(Vec::new());
        }
        let key = inode.fid().to_key();
        let own = self
            .set
            .changes
            .iter()
            .rev()
            .find(|(table, changed, _)| *table == Table::Layouts && *changed == key);
        if let Some((_, _, value)) = own {
            return Ok(value.clone().unwrap_or_default());
        }
        Ok(self.view.get(Table::Layouts, &key)?.unwrap_or_default())
    }

    /// Gives a file its layout.
    pub(crate) fn set_layout(&mut self, inode: &mut Inode, layout: &FileLayout) {
        self.put_layout(inode, layout);
        inode.stripes = StripeSet::default(); // of the objects of this layout nothing is known yet
    }

    /// Raises the generation of a file's layout.
    pub(crate) fn renew_layout(&mut self, inode: &mut Inode, renewed: &FileLayout) {
        self.put_layout(inode, renewed);
    }

    /// Gives components of a file objects, or adds some: what it had keeps its place.
    pub(crate) fn grow_layout(&mut self, inode: &mut Inode, composite: Composite) {
        self.put_layout(inode, &FileLayout::composite(inode.fid(), composite));
    }

    /// Takes objects of a file away from its end; they are to be logged.
    pub(crate) fn shrink_layout(&mut self, inode: &mut Inode, composite: Composite) {
        let layout = FileLayout::composite(inode.fid(), composite);
        self.put_layout(inode, &layout);
        inode.stripes = inode.stripes.below(layout.stripes());
    }

    /// Two files have these layouts from now on: what was known of the objects of one is known of
    /// the other's.
    pub(crate) fn swap_layouts(
        &mut self,
        (one, of_one): (&mut Inode, &FileLayout),
        (other, of_other): (&mut Inode, &FileLayout),
    ) {
        self.put_layout(one, of_one);
        self.put_layout(other, of_other);
        std::mem::swap(&mut one.stripes, &mut other.stripes);
    }

    /// The objects of `base` on these OSTs are to be destroyed.
    pub(crate) fn log_destroy(&mut self, number: u64, base: Fid, osts: Vec<u32>) {
        let record = DestroyRecord { base, osts };
        self.set.put(Table::Destroys, number.to_be_bytes(), record.encode());
    }

    fn put_layout(&mut self, inode: &mut Inode, layout: &FileLayout) {
        self.set.put(Table::Layouts, inode.fid().to_key(), layout.encode());
        inode.flags |= INODE_HAS_LAYOUT;
        inode.attr.layout_version += 1;
    }

    /// Removes everything of a file that has no name and is open nowhere. Its objects go to the
    /// destroy log, unless nothing was ever written: the first write creates them. Only a file of
    /// this run is believed that: after a restart the mark of a writer may have been lost together
    /// with the writer. `number` is the log's next one, `log`
    /// how many records it takes at most. Says how many it got.
    pub(crate) fn destroy(&mut self, inode: &Inode, number: u64, log: usize) -> Decided<u64> {
        assert_eq!(inode.attr.nlink, 0, "only a file without a name goes");
        let fid = inode.fid();
        let key = fid.to_key();
        let mut logged = 0;
        let written = inode.attr.size_state() != SizeState::NeverWritten || fid < self.first_file;
        if inode.attr.is_file()
            && written
            && let Some(layout) = self.layout(inode)?
        {
            for record in destroys_of(&layout).into_iter().take(log) {
                self.set.put(Table::Destroys, (number + logged).to_be_bytes(), record.encode());
                logged += 1;
            }
            assert!(logged <= log as u64, "a file takes no more of the log than was planned");
        }
        if inode.has(INODE_HAS_LAYOUT) {
            self.set.delete(Table::Layouts, key);
        }
        if inode.has(INODE_HAS_XATTR) {
            let mut names = Vec::new();
            self.view.scan_within((Table::Xattrs, &key), &key, &mut |found, _| {
                names.push(found.to_vec());
                true
            })?;
            for name in names {
                self.set.delete(Table::Xattrs, name);
            }
        }
        if inode.has(INODE_ORPHAN) {
            self.set.delete(Table::Orphans, key);
        }
        if inode.has(INODE_MOVES) {
            self.set.delete(Table::Meta, keys::moves(fid));
            self.effects.push(Effect::Moving { dir: fid, is_on: false });
        }
        self.set.delete(Table::Inodes, key);
        self.dirty.remove(&fid);
        self.inodes.insert(fid, None);
        self.changes.push(ShareKey::Inode(fid));
        self.effects.push(Effect::Gone(fid));
        Ok(logged)
    }

    /// Nothing is read or decided any more: the whole set. Changed inodes carry `transno` as their
    /// version, unless that is the replay of something that later changes are durable after.
    pub(crate) fn finish(self, transno: Transno) -> Finished {
        assert!(self.missing.is_empty(), "an operation knows all that it decides on");
        let Tx { mut set, mut inodes, dirty, effects, changes, gives_room, .. } = self;
        for fid in dirty.keys() {
            let inode =
                inodes.get_mut(fid).and_then(Option::as_mut).expect("a changed inode is there");
            assert_eq!(inode.fid(), *fid, "an inode is kept under its own FID");
            inode.attr.version = inode.attr.version.max(transno.0);
            set.put(Table::Inodes, fid.to_key(), inode.encode());
        }
        Finished { set, effects, changes, gives_room, inodes, dirty }
    }
}

/// One record for the objects of each component.
fn destroys_of(layout: &FileLayout) -> Vec<DestroyRecord> {
    let data_target = |base: Fid| types::DOM_FIRST.saturating_add(base.mdt_index());
    let at_mdt = |base| DestroyRecord { base, osts: vec![data_target(base)] };
    let of = |one: &layout::Layout| DestroyRecord { base: one.base, osts: one.osts.clone() };
    let first = layout.mdt_object().map(at_mdt);
    first.into_iter().chain(layout.stripings().map(of)).collect()
}

/// What an operation came to, ready to be applied.
pub(crate) struct Finished {
    pub(crate) set: WriteSet,
    pub(crate) effects: Vec<Effect>,
    /// What others' decisions may depend on.
    pub(crate) changes: Vec<ShareKey>,
    /// As of the operation.
    pub(crate) gives_room: bool,
    inodes: BTreeMap<Fid, Option<Inode>>,
    dirty: BTreeMap<Fid, ()>,
}

impl Finished {
    /// Attributes of an inode as the operation leaves it, if it looked at it.
    pub(crate) fn attr(&self, fid: Fid) -> Option<&Attr> {
        self.inodes.get(&fid).and_then(Option::as_ref).map(|inode| &inode.attr)
    }

    /// The new version of an inode that the operation changed.
    pub(crate) fn version(&self, fid: Fid) -> Option<u64> {
        self.attr(fid).filter(|_| self.dirty.contains_key(&fid)).map(|attr| attr.version)
    }
}

/// Attributes of a fresh inode.
pub(crate) fn new_attr(fid: Fid, mode: u32, uid: u32, gid: u32, now: Timespec) -> Attr {
    let mut attr = Attr { mode, uid, gid, nlink: 1, ..Attr::default() }.with_fid(fid);
    attr.set_atime(now);
    attr.set_mtime(now);
    attr.set_ctime(now);
    attr.set_btime(now);
    attr
}

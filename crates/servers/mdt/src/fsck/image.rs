//! The records of one MDT, as they are at one moment.

use std::collections::{BTreeMap, BTreeSet};

use layout::FileLayout;
use layout::dir::Stripes;
use osd::{StoreError, Table, View};
use types::Fid;
use wire::updates::{self, OpId, Record};

use crate::burnt::Burnt;
use crate::hash::HashKey;
use crate::ids::encode_place;
use crate::keys::{self, LMV};
use crate::named::layout_in;
use crate::perm::{ACL_ACCESS, ACL_DEFAULT};
use crate::record::{
    DestroyRecord, DirentRecord, INODE_HAS_ACL, INODE_HAS_DEFAULT_ACL, INODE_HAS_XATTR, Inode,
};

/// Key and value as stored.
pub type Pair = (Vec<u8>, Vec<u8>);

/// A name as its directory stores it.
pub(super) struct Entry {
    pub(super) dir: Fid,
    pub(super) cookie: u64,
    pub(super) record: DirentRecord,
}

/// A back-link.
pub(super) struct Link {
    pub(super) fid: Fid,
    pub(super) dir: Fid,
    pub(super) cookie: u64,
    pub(super) name: Vec<u8>,
}

/// What an MDT's store holds.
#[derive(Default)]
pub struct Image {
    pub(super) index: u32,
    pub(super) inodes: BTreeMap<Fid, Inode>,
    pub(super) entries: Vec<Entry>,
    pub(super) links: Vec<Link>,
    pub(super) orphans: BTreeSet<Fid>,
    /// Files with extended attributes, with the names of these.
    pub(super) with_xattrs: BTreeMap<Fid, Vec<Vec<u8>>>,
    pub(super) with_layouts: BTreeSet<Fid>,
    /// Layouts of files.
    pub(super) layouts: BTreeMap<Fid, FileLayout>,
    /// Of striped directories, and of shards whose names move.
    pub(super) stripes: BTreeMap<Fid, Stripes>,
    pub(super) records: Vec<Record>,
    /// Objects that are to be destroyed, by the numbers of their records.
    pub(super) destroys: BTreeMap<u64, DestroyRecord>,
    /// Operations of an MDT below this number are done everywhere.
    pub(super) marks: BTreeMap<u32, u64>,
    /// Number of the store; zero before its first start.
    pub(super) store: u64,
    pub(super) hash_key: Option<HashKey>,
    /// Ends of what was reserved: sequence and number.
    pub(super) file_ids: Option<(u64, u32)>,
    pub(super) object_ids: Option<(u64, u32)>,
    /// Ids whose objects are being destroyed unless a file names them.
    pub(super) burnt_files: Burnt,
    pub(super) burnt_objects: Burnt,
    /// Ids that the last run may have given to files that clients can still bring back.
    pub(super) recent_files: Burnt,
    pub(super) recent_objects: Burnt,
    /// Clients, other than servers, that a recovery would wait for.
    pub(super) clients: usize,
    /// Records that cannot be read.
    pub(super) broken: Vec<String>,
    /// The MDT was forgotten.
    pub(super) is_forgotten: bool,
}

impl Image {
    /// The records of MDT `index`.
    ///
    /// # Errors
    /// What the store answers where it cannot be read.
    pub fn of(index: u32, view: &dyn View) -> Result<Image, StoreError> {
        Image::read(index, |table| {
            let mut pairs = Vec::new();
            view.scan(table, &[0], &mut |key, value| {
                pairs.push((key.to_vec(), value.to_vec()));
                true
            })?;
            Ok(pairs)
        })
    }

    /// The same, from whatever gives all pairs of a table.
    ///
    /// # Errors
    /// The first error of `pairs`.
    pub fn read<E>(
        index: u32,
        mut pairs: impl FnMut(Table) -> Result<Vec<Pair>, E>,
    ) -> Result<Image, E> {
        let mut image = Image { index, ..Image::default() };
        let fids = |pairs: Vec<Pair>| {
            pairs.iter().filter_map(|(key, _)| Fid::from_key(key)).collect::<BTreeSet<_>>()
        };
        pairs(Table::Inodes)?.iter().for_each(|pair| image.take_inode(pair));
        pairs(Table::Dirents)?.iter().for_each(|pair| image.take_entry(pair));
        pairs(Table::Links)?.into_iter().for_each(|pair| image.take_link(pair));
        pairs(Table::Updates)?.iter().for_each(|pair| image.take_record(pair));
        image.orphans = fids(pairs(Table::Orphans)?);
        pairs(Table::Xattrs)?.iter().for_each(|pair| image.take_xattr(pair));
        pairs(Table::Destroys)?.iter().for_each(|pair| image.take_destroy(pair));
        pairs(Table::Meta)?.iter().for_each(|pair| image.take_meta(pair));
        let layouts = pairs(Table::Layouts)?;
        layouts.iter().for_each(|pair| image.take_layout(pair));
        image.with_layouts = fids(layouts);
        let is_client = |pair: &&Pair| pair.1.get(8).is_some_and(|flags| flags & 1 == 0);
        image.clients = pairs(Table::Clients)?.iter().filter(is_client).count();
        image.note_recent();
        Ok(image)
    }

    /// Of an MDT that was forgotten: it has nothing, and nothing can be made on it.
    #[must_use]
    pub fn forgotten(index: u32) -> Image {
        Image { index, is_forgotten: true, ..Image::default() }
    }

    /// Whether the MDT was forgotten.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.is_forgotten
    }

    /// Index of the MDT.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Number of its inodes.
    #[must_use]
    pub fn inodes(&self) -> usize {
        self.inodes.len()
    }

    /// Number of its entries.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// In the order of their cookies, as they were read.
    pub(super) fn entries_of(&self, dir: Fid) -> &[Entry] {
        let first = self.entries.partition_point(|entry| entry.dir < dir);
        let rest = &self.entries[first..];
        &rest[..rest.partition_point(|entry| entry.dir == dir)]
    }

    /// In the order of directories and numbers.
    pub(super) fn links_of(&self, fid: Fid) -> &[Link] {
        let first = self.links.partition_point(|link| link.fid < fid);
        let rest = &self.links[first..];
        &rest[..rest.partition_point(|link| link.fid == fid)]
    }

    /// Whether other records say what a file was whose inode is not there.
    pub(super) fn has_traces(&self, fid: Fid) -> bool {
        self.layouts.contains_key(&fid)
            || self.stripes.contains_key(&fid)
            || !self.entries_of(fid).is_empty()
    }

    /// Flags that an inode has because of its extended attributes.
    pub(super) fn xattr_flags(&self, fid: Fid) -> u32 {
        let names = self.with_xattrs.get(&fid).map_or(&[][..], |names| names);
        names.iter().fold(0, |flags, name| {
            let of_name = match &name[..] {
                ACL_ACCESS => INODE_HAS_ACL,
                ACL_DEFAULT => INODE_HAS_DEFAULT_ACL,
                _ => 0,
            };
            flags | INODE_HAS_XATTR | of_name
        })
    }

    /// Ids that no record mentions, and that the last run may have given out.
    fn note_recent(&mut self) {
        let ends =
            [(self.file_ids, &mut self.recent_files), (self.object_ids, &mut self.recent_objects)];
        for (end, recent) in ends {
            if let Some((seq, end)) = end {
                recent.add(&encode_place((seq, end)), Fid::new(seq, end));
            }
        }
    }

    fn take_inode(&mut self, (key, value): &Pair) {
        match (Fid::from_key(key), Inode::decode(value)) {
            (Some(fid), Some(inode)) => drop(self.inodes.insert(fid, inode)),
            _ => self.broken.push(format!("no inode under {key:?}")),
        }
    }

    fn take_entry(&mut self, (key, value): &Pair) {
        let place = Fid::from_key(key).zip(keys::dirent_cookie(key));
        match (place, DirentRecord::decode(value)) {
            (Some((dir, cookie)), Some(record)) => {
                self.entries.push(Entry { dir, cookie, record });
            }
            _ => self.broken.push(format!("no entry under {key:?}")),
        }
    }

    fn take_link(&mut self, (key, name): Pair) {
        let dir = key.get(16..).and_then(Fid::from_key);
        let cookie = key.get(16..).and_then(keys::dirent_cookie);
        match (Fid::from_key(&key), dir, cookie) {
            (Some(fid), Some(dir), Some(cookie)) => {
                self.links.push(Link { fid, dir, cookie, name });
            }
            _ => self.broken.push(format!("no back-link under {key:?}")),
        }
    }

    fn take_xattr(&mut self, (key, value): &Pair) {
        let Some(fid) = Fid::from_key(key) else {
            return self.broken.push(format!("no attribute under {key:?}"));
        };
        self.with_xattrs.entry(fid).or_default().push(key[16..].to_vec());
        if &key[16..] != LMV {
            return;
        }
        match Stripes::decode(value) {
            Ok(stripes) => drop(self.stripes.insert(fid, stripes)),
            Err(_) => self.broken.push(format!("the striping of {fid} cannot be read")),
        }
    }

    fn take_layout(&mut self, (key, value): &Pair) {
        let Some(fid) = Fid::from_key(key) else {
            return self.broken.push(format!("no layout under {key:?}"));
        };
        match layout_in(fid, value) {
            Ok(Some(layout)) => drop(self.layouts.insert(fid, layout)),
            Ok(None) => {} // the default of a directory
            Err(_) if fid == Fid::ROOT => {}
            Err(_) => self.broken.push(format!("the layout of {fid} cannot be read")),
        }
    }

    fn take_destroy(&mut self, (key, value): &Pair) {
        let number = key[..].try_into().map(u64::from_be_bytes).ok();
        match number.zip(DestroyRecord::decode(value)) {
            Some((number, record)) => drop(self.destroys.insert(number, record)),
            None => self.broken.push(format!("no destroyed objects under {key:?}")),
        }
    }

    fn take_meta(&mut self, pair: &Pair) {
        let (key, value) = pair;
        let word = |at: usize| Some(u64::from_le_bytes(value.get(at..at + 8)?.try_into().ok()?));
        let place = || Some((word(0)?, u32::from_le_bytes(value.get(8..12)?.try_into().ok()?)));
        match &key[..] {
            keys::META_STORE => self.store = word(0).unwrap_or(0),
            keys::META_HASH_KEY => {
                self.hash_key = word(0).zip(word(8)).map(|(one, two)| HashKey(one, two));
            }
            keys::META_FILE_IDS => self.file_ids = place(),
            keys::META_OBJECT_IDS => self.object_ids = place(),
            keys::META_BURNT_FILES => self.burnt_files = Burnt::decode(value).unwrap_or_default(),
            keys::META_BURNT_OBJECTS => {
                self.burnt_objects = Burnt::decode(value).unwrap_or_default();
            }
            _ => self.take_mark(pair),
        }
    }

    fn take_mark(&mut self, (key, value): &Pair) {
        let Some(mdt) = key.strip_prefix(keys::META_DONE) else { return };
        let mdt = mdt.try_into().map(u32::from_be_bytes);
        let below = value[..].try_into().map(u64::from_le_bytes);
        match (mdt, below) {
            (Ok(mdt), Ok(below)) => drop(self.marks.insert(mdt, below)),
            _ => self.broken.push(format!("no mark under {key:?}")),
        }
    }

    fn take_record(&mut self, (key, value): &Pair) {
        let record = updates::decode::<Record>(value);
        let fits = |record: &Record| {
            OpId::from_key(key) == Some(record.id) && record.part(self.index).is_some()
        };
        match record.filter(fits) {
            Some(record) => self.records.push(record),
            None => self.broken.push(format!("no operation under {key:?}")),
        }
    }
}

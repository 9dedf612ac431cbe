//! The records of one MDT, as they are at one moment.

use std::collections::{BTreeMap, BTreeSet};

use layout::dir::Stripes;
use osd::{StoreError, Table, View};
use types::Fid;
use wire::updates::{self, OpId, Record};

use crate::cross::peer::LMV;
use crate::keys;
use crate::record::{DirentRecord, Inode};

/// Key and value as stored.
pub type Pair = (Vec<u8>, Vec<u8>);

/// An entry.
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
    pub(super) with_xattrs: BTreeSet<Fid>,
    pub(super) with_layouts: BTreeSet<Fid>,
    /// Of striped directories, and of shards whose names move.
    pub(super) stripes: BTreeMap<Fid, Stripes>,
    pub(super) records: Vec<Record>,
    /// Operations of an MDT below this number are done everywhere.
    pub(super) marks: BTreeMap<u32, u64>,
    /// Records that cannot be read.
    pub(super) broken: Vec<String>,
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
        let xattrs = pairs(Table::Xattrs)?;
        xattrs.iter().for_each(|pair| image.take_stripes(pair));
        image.with_xattrs = fids(xattrs);
        pairs(Table::Meta)?.iter().for_each(|pair| image.take_mark(pair));
        image.with_layouts = fids(pairs(Table::Layouts)?);
        Ok(image)
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

    fn take_stripes(&mut self, (key, value): &Pair) {
        let Some(dir) = Fid::from_key(key).filter(|dir| *key == keys::xattr(*dir, LMV)) else {
            return;
        };
        match Stripes::decode(value) {
            Ok(stripes) => drop(self.stripes.insert(dir, stripes)),
            Err(_) => self.broken.push(format!("the striping of {dir} cannot be read")),
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

//! The durable root: says up to which transaction `data.mdb` is trusted.
//!
//! LMDB commits into the page cache (`MDB_NOSYNC`). The next transaction runs while the disk still
//! works on the last one. The disk may then take pages in any order, including LMDB's two root
//! pages. So a start does not trust the root pages in `data.mdb`. After each sync of `data.mdb`, a
//! copy of both goes into the file `root`. An opening puts that copy back before LMDB reads
//! anything.
//!
//! Invariants
//! - A slot is written only after the sync of everything that its root pages refer to.
//! - Pages of the tree in the newest slot are not overwritten. Transaction N + 1 takes pages that
//!   N - 1 and earlier ones gave back, and is written out only when N is in a slot.
//! - The two slots are written in turn and lie in blocks of their own, so a torn write leaves the
//!   older one.
//!
//! Slot, little-endian, at byte 0 and 4,096:
//! - magic (8), version u32, CRC-32C u32 (over the whole, itself as zero);
//! - transaction u64 (0: nothing was ever committed), bytes of a page u32, zero u32;
//! - the first 152 bytes of page 0, those of page 1.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::DiskError;

const FILE: &str = "root";
const FILE_FRESH: &str = "root.new";
const MAGIC: &[u8; 8] = b"NACREROO";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 32;
/// Header of a page (16) and LMDB's `MDB_meta` (136).
const META_BYTES: usize = 152;
const SLOT_BYTES: usize = HEAD_BYTES + 2 * META_BYTES;
/// Between the slots: a write of the disk tears none of both.
const SLOT_STRIDE: u64 = 4_096;

// Places within a root page of LMDB, data version 1.
const PAGE_FLAGS: usize = 10;
const META_MAGIC: usize = 16;
const META_VERSION: usize = 20;
const META_PAGE_BYTES: usize = 40;
const META_TXN: usize = 144;
const PAGE_IS_META: u16 = 8;
const LMDB_MAGIC: u32 = 0xBEEF_C0DE;
const LMDB_VERSION: u32 = 1;

/// What one slot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    txn: u64,
    page_bytes: u32,
    metas: [[u8; META_BYTES]; 2],
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Root {
    /// Of a store in which nothing was ever committed.
    fn empty() -> Root {
        Root { txn: 0, page_bytes: 0, metas: [[0; META_BYTES]; 2] }
    }

    /// What the root pages of `data` say now.
    fn read(data: &File) -> Result<Root, String> {
        let mut metas = [[0; META_BYTES]; 2];
        data.read_exact_at(&mut metas[0], 0).map_err(|error| format!("page 0: {error}"))?;
        let page_bytes = u32_at(&metas[0], META_PAGE_BYTES);
        if !page_bytes.is_power_of_two() || !(512..=65_536).contains(&page_bytes) {
            return Err(format!("page 0: {page_bytes} bytes are no size of a page"));
        }
        data.read_exact_at(&mut metas[1], page_bytes.into())
            .map_err(|error| format!("page 1: {error}"))?;
        for (page, meta) in metas.iter().enumerate() {
            let flags = u16::from_le_bytes([meta[PAGE_FLAGS], meta[PAGE_FLAGS + 1]]);
            let known = flags & PAGE_IS_META != 0
                && u32_at(meta, META_MAGIC) == LMDB_MAGIC
                && u32_at(meta, META_VERSION) == LMDB_VERSION
                && u32_at(meta, META_PAGE_BYTES) == page_bytes;
            if !known {
                return Err(format!("page {page} is not a root page"));
            }
        }
        let txn = metas.iter().map(|meta| u64_at(meta, META_TXN)).max().unwrap_or(0);
        Ok(Root { txn, page_bytes, metas })
    }

    /// Puts its root pages into `data`, if others are there.
    fn restore(&self, data: &File) -> std::io::Result<()> {
        let mut changed = false;
        for (meta, page) in self.metas.iter().zip([0, u64::from(self.page_bytes)]) {
            let mut there = [0; META_BYTES];
            data.read_exact_at(&mut there, page)?;
            if there != *meta {
                data.write_all_at(meta, page)?;
                changed = true;
            }
        }
        if changed { data.sync_data() } else { Ok(()) }
    }

    fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut out = [0; SLOT_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.txn.to_le_bytes());
        out[24..28].copy_from_slice(&self.page_bytes.to_le_bytes());
        out[HEAD_BYTES..HEAD_BYTES + META_BYTES].copy_from_slice(&self.metas[0]);
        out[HEAD_BYTES + META_BYTES..].copy_from_slice(&self.metas[1]);
        let crc = crc32c::crc32c(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// None where the slot was never written or is torn.
    fn decode(slot: &[u8; SLOT_BYTES]) -> Option<Root> {
        let known = version_of(slot) == Some(VERSION);
        let meta = |at: usize| slot[at..at + META_BYTES].try_into().expect("bytes of a root page");
        known.then(|| Root {
            txn: u64_at(slot, 16),
            page_bytes: u32_at(slot, 24),
            metas: [meta(HEAD_BYTES), meta(HEAD_BYTES + META_BYTES)],
        })
    }
}

/// The version of a slot that is whole. Later versions keep its first 16 bytes, and the checksum
/// over as many bytes.
fn version_of(slot: &[u8; SLOT_BYTES]) -> Option<u32> {
    let mut bytes = *slot;
    bytes[12..16].fill(0);
    let is_whole = slot[..8] == *MAGIC && u32_at(slot, 12) == crc32c::crc32c(&bytes);
    is_whole.then(|| u32_at(slot, 8))
}

fn open(path: &Path) -> Result<File, DiskError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(DiskError::io(path, "cannot be opened"))
}

/// Makes the file with its first slot: it is never there without a whole one.
fn create(dir: &Path, first: &Root) -> Result<(), DiskError> {
    let (path, fresh) = (dir.join(FILE), dir.join(FILE_FRESH));
    let mut root = RootFile { file: open(&fresh)?, data: open(&dir.join("data.mdb"))?, next: 0 };
    root.write(first)
        .and_then(|()| std::fs::rename(&fresh, &path))
        .map_err(DiskError::io(&path, "cannot be made"))?;
    crate::durable::sync_dir(dir)
}

/// `data.mdb` and its durable root.
pub(crate) struct RootFile {
    file: File,
    data: File,
    next: u64, // the slot that is written next
}

impl RootFile {
    /// Brings `data.mdb` below `dir` back to its durable root. A store of a version without this
    /// file synced its own root pages: they are taken over.
    pub(crate) fn open(dir: &Path) -> Result<RootFile, DiskError> {
        let (path, data_path) = (dir.join(FILE), dir.join("data.mdb"));
        let had_data = std::fs::metadata(&data_path).is_ok_and(|found| found.len() > 0);
        let data = open(&data_path)?;
        let records = |why: String| DiskError::Records { path: dir.to_owned(), why };
        if !path.exists() {
            let first = if had_data { Root::read(&data).map_err(records)? } else { Root::empty() };
            data.sync_data().map_err(DiskError::io(&data_path, "sync"))?;
            create(dir, &first)?;
        }
        let mut root = RootFile { file: open(&path)?, data, next: 0 };
        root.check_version().map_err(records)?;
        let Some(newest) = root.newest() else {
            return Err(records(format!("both slots of {FILE} are damaged")));
        };
        if newest.txn == 0 {
            root.data.set_len(0) // nothing in it was ever committed
        } else if had_data {
            newest.restore(&root.data)
        } else {
            return Err(records("data.mdb is missing or empty".to_owned()));
        }
        .map_err(DiskError::io(&data_path, "durable root"))?;
        Ok(root)
    }

    /// The files of the store in `dir`, the bytes of a page, and the root page of its durable tree;
    /// nothing is changed.
    pub(crate) fn durable(dir: &Path) -> Result<(RootFile, usize, Vec<u8>), DiskError> {
        let (file, data) = (open(&dir.join(FILE))?, open(&dir.join("data.mdb"))?);
        let records = |why: String| DiskError::Records { path: dir.to_owned(), why };
        let mut root = RootFile { file, data, next: 0 };
        root.check_version().map_err(records)?;
        let newest = root.newest().filter(|newest| newest.txn > 0);
        let newest =
            newest.ok_or_else(|| records("nothing in it was ever committed".to_owned()))?;
        let meta = newest.metas.iter().max_by_key(|meta| u64_at(&meta[..], META_TXN));
        let meta = meta.expect("there are two").to_vec();
        Ok((root, newest.page_bytes as usize, meta))
    }

    /// Nothing if the file is shorter.
    fn slot(&self, slot: u64) -> Option<[u8; SLOT_BYTES]> {
        let mut bytes = [0; SLOT_BYTES];
        self.file.read_exact_at(&mut bytes, slot * SLOT_STRIDE).ok().map(|()| bytes)
    }

    /// The older slot may be readable where the newer one is of a later version, but its tree may
    /// be overwritten by then.
    fn check_version(&self) -> Result<(), String> {
        let versions = [0, 1].into_iter().filter_map(|slot| version_of(&self.slot(slot)?));
        match versions.max().filter(|version| *version > VERSION) {
            Some(version) => Err(format!(
                "{FILE}: version {version} is newer than {VERSION}, the newest that is known here"
            )),
            None => Ok(()),
        }
    }

    /// The newest whole slot; the other one is written next.
    fn newest(&mut self) -> Option<Root> {
        let slots = [0, 1].map(|slot| self.slot(slot).as_ref().and_then(Root::decode));
        let txn = |slot: &Option<Root>| slot.as_ref().map(|root| root.txn);
        let newest = usize::from(txn(&slots[1]) > txn(&slots[0]));
        self.next = 1 - newest as u64;
        slots.into_iter().nth(newest).flatten()
    }

    fn write(&mut self, root: &Root) -> std::io::Result<()> {
        self.file.write_all_at(&root.encode(), self.next * SLOT_STRIDE)?;
        self.file.sync_data()?;
        self.next = 1 - self.next;
        Ok(())
    }

    /// The same files once more, to read them.
    pub(crate) fn reader(&self) -> std::io::Result<RootFile> {
        Ok(RootFile { file: self.file.try_clone()?, data: self.data.try_clone()?, next: 0 })
    }

    /// Bytes of a page and the root page of the tree that was written out last; none of an empty
    /// store.
    pub(crate) fn tree(&self) -> Option<(usize, Vec<u8>)> {
        let root = Root::read(&self.data).ok()?;
        let newest = root.metas.iter().max_by_key(|meta| u64_at(&meta[..], META_TXN))?;
        Some((root.page_bytes as usize, newest.to_vec()))
    }

    pub(crate) fn data(&self) -> &File {
        &self.data
    }

    /// Makes durable what LMDB has written out. Nothing may be written out meanwhile.
    pub(crate) fn sync(&mut self) -> Result<(), String> {
        let root = Root::read(&self.data)?;
        self.data.sync_data().map_err(|error| format!("data.mdb: sync: {error}"))?;
        self.write(&root).map_err(|error| format!("{FILE}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(txn: u64) -> Root {
        Root { txn, page_bytes: 4_096, metas: [[txn as u8; META_BYTES], [7; META_BYTES]] }
    }

    #[test]
    fn a_slot_comes_back_or_is_refused() {
        let bytes = root(9).encode();
        assert_eq!(Root::decode(&bytes), Some(root(9)));
        for at in 0..SLOT_BYTES {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert_eq!(Root::decode(&torn), None, "byte {at}");
        }
    }

    #[test]
    fn a_slot_of_a_newer_version_is_not_taken_for_damage() {
        let dir = crate::testdir::TestDir::new();
        let mut roots = RootFile::open(dir.path()).expect("opens");
        roots.write(&root(8)).expect("writes");
        let mut newer = root(9).encode();
        newer[8] = 2;
        newer[12..16].fill(0);
        let crc = crc32c::crc32c(&newer);
        newer[12..16].copy_from_slice(&crc.to_le_bytes());
        roots.file.write_all_at(&newer, roots.next * SLOT_STRIDE).expect("writes");
        for refused in [RootFile::open(dir.path()).err(), RootFile::durable(dir.path()).err()] {
            let said = refused.expect("it does not go back to the older slot").to_string();
            assert!(said.contains("root: version 2 is newer than 1, the newest"), "{said}");
        }
    }

    #[test]
    fn a_torn_slot_leaves_the_older_one() {
        let dir = crate::testdir::TestDir::new();
        let mut roots = RootFile::open(dir.path()).expect("opens");
        for txn in 1..6 {
            roots.write(&root(txn)).expect("writes");
            assert_eq!(roots.newest(), Some(root(txn)));
        }
        let last = (1 - roots.next) * SLOT_STRIDE;
        roots.file.write_all_at(&[0; 100], last).expect("writes");
        assert_eq!(roots.newest(), Some(root(4)));
        roots.write(&root(5)).expect("writes");
        assert_eq!(roots.newest(), Some(root(5)), "the torn one was replaced");
    }
}

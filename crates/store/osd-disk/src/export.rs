//! An export: the records of a target in one file, from which its storage can be made again.
//!
//! ```text
//! head    0 magic "NACREMDX" | 8 version u16 | 10 length u16 | 12 crc32c u32
//!        16 instance u64 | 24 store u64 | 32 taken: seconds i64 | 40 nanoseconds u32
//!        44 length of the superblock u32 | 48 superblock
//! block   0 length of the content u32 | 4 kind u32 | 8 number u64 | 16 crc32c u32 | 20 zero u32
//!        24 content
//! ```
//! Little-endian. A block of kind 1 has changes, each `table u8, kind u8, length of the key u16,
//! length of the value u32`, key, value. Kind 0 of a change removes the key. The last block is of
//! kind 2 and holds the number of all changes, u64. Changes apply in their order.
//!
//! A block's checksum continues the head's checksum. It covers the block's own head with a zero in
//! the checksum's place. So a block of another export, or one in another place, is found too.

use std::io::{ErrorKind, Read};

use osd::{KEY_BYTES_MAX, Table};
use types::Timespec;

use crate::Superblock;

const MAGIC: &[u8; 8] = b"NACREMDX";
/// Version of the file.
pub const VERSION: u16 = 1;
const HEAD_BYTES: usize = 48;
const BLOCK_HEAD_BYTES: usize = 24;
const CHANGE_HEAD_BYTES: usize = 8;
const KIND_CHANGES: u32 = 1;
const KIND_END: u32 = 2;
/// A block that has reached so many bytes is full.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;
/// Longest value: far above what a request can carry.
pub(crate) const VALUE_BYTES_MAX: usize = 8 << 20;
/// Longest content of a block: all but the last change fit a full one.
const CONTENT_BYTES_MAX: usize = BLOCK_BYTES + CHANGE_HEAD_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX;
/// Longest head: a superblock has at most 16 addresses.
const HEAD_BYTES_MAX: usize = 1 << 10;

/// Whose records an export holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The target's superblock.
    pub superblock: Superblock,
    /// Its instance when the export was made.
    pub instance: u64,
    /// Number of its store; 0 where it has none.
    pub store: u64,
    /// When the export was begun.
    pub taken: Timespec,
}

/// A record that is put, or one that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub table: Table,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

impl Head {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let superblock = self.superblock.encode();
        let length = HEAD_BYTES + superblock.len();
        assert!(length <= HEAD_BYTES_MAX, "a superblock has a bound");
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(length as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.instance.to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        out.extend_from_slice(&self.taken.sec.to_le_bytes());
        out.extend_from_slice(&self.taken.nsec.to_le_bytes());
        out.extend_from_slice(&(superblock.len() as u32).to_le_bytes());
        out.extend_from_slice(&superblock);
        let crc = crc32c::crc32c(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// From its bytes; the error says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Head, String> {
        let length = head_bytes(bytes)?;
        let short = || "its head is cut short".to_owned();
        let whole = bytes.get(..length).ok_or_else(short)?;
        let mut plain = whole.to_vec();
        plain[12..16].fill(0);
        if take(whole, 12).map(u32::from_le_bytes) != Some(crc32c::crc32c(&plain)) {
            return Err("the checksum of its head is wrong: it is damaged".to_owned());
        }
        let word = |at| take(whole, at).map(u64::from_le_bytes).ok_or_else(short);
        let half = |at| take(whole, at).map(u32::from_le_bytes).ok_or_else(short);
        if half(44)? as usize != length - HEAD_BYTES {
            return Err("the length of its superblock is wrong".to_owned());
        }
        Ok(Head {
            superblock: Superblock::decode(&whole[HEAD_BYTES..])?,
            instance: word(16)?,
            store: word(24)?,
            taken: Timespec::new(word(32)?.cast_signed(), half(40)?),
        })
    }
}

/// Length of a head by its first bytes.
fn head_bytes(bytes: &[u8]) -> Result<usize, String> {
    if bytes.get(..8) != Some(MAGIC) {
        return Err("the file is not an export (nacre export-meta makes one)".to_owned());
    }
    let half = |at| take(bytes, at).map(u16::from_le_bytes).ok_or("its head is cut short");
    let (version, length) = (half(8)?, usize::from(half(10)?));
    if version != VERSION {
        return Err(format!("version {version} is not {VERSION}, which this program knows"));
    }
    if !(HEAD_BYTES..=HEAD_BYTES_MAX).contains(&length) {
        return Err("the length of its head is wrong".to_owned());
    }
    Ok(length)
}

/// Makes the bytes of a file, a block at a time.
pub(crate) struct Writer {
    seed: u32,
    number: u64,
    changes: u64,
    block: Vec<u8>,
}

impl Writer {
    /// A writer and the bytes of the head.
    pub(crate) fn new(head: &Head) -> (Writer, Vec<u8>) {
        let bytes = head.encode();
        (Writer { seed: crc32c::crc32c(&bytes), number: 0, changes: 0, block: fresh() }, bytes)
    }

    /// Adds a change; false where it is too long for an export.
    #[must_use]
    pub(crate) fn push(&mut self, table: Table, key: &[u8], value: Option<&[u8]>) -> bool {
        let length = value.map_or(0, <[u8]>::len);
        if length > VALUE_BYTES_MAX || key.len() > KEY_BYTES_MAX {
            return false;
        }
        let block = &mut self.block;
        block.extend_from_slice(&[table as u8, u8::from(value.is_some())]);
        block.extend_from_slice(&(key.len() as u16).to_le_bytes());
        block.extend_from_slice(&(length as u32).to_le_bytes());
        block.extend_from_slice(key);
        block.extend_from_slice(value.unwrap_or_default());
        self.changes += 1;
        true
    }

    pub(crate) fn is_full(&self) -> bool {
        self.block.len() >= BLOCK_HEAD_BYTES + BLOCK_BYTES
    }

    /// The bytes of the block with what was added since the last one.
    pub(crate) fn block(&mut self) -> Vec<u8> {
        let block = std::mem::replace(&mut self.block, fresh());
        self.seal(block, KIND_CHANGES)
    }

    /// The bytes of the last blocks.
    pub(crate) fn end(mut self) -> Vec<u8> {
        let mut out = self.block();
        let mut end = fresh();
        end.extend_from_slice(&self.changes.to_le_bytes());
        out.extend_from_slice(&self.seal(end, KIND_END));
        out
    }

    fn seal(&mut self, mut block: Vec<u8>, kind: u32) -> Vec<u8> {
        let length = block.len() - BLOCK_HEAD_BYTES;
        assert!(length <= CONTENT_BYTES_MAX, "a block is sealed when it is full");
        block[..4].copy_from_slice(&(length as u32).to_le_bytes());
        block[4..8].copy_from_slice(&kind.to_le_bytes());
        block[8..16].copy_from_slice(&self.number.to_le_bytes());
        self.number += 1;
        let crc = crc32c::crc32c_append(self.seed, &block);
        block[16..20].copy_from_slice(&crc.to_le_bytes());
        block
    }
}

fn fresh() -> Vec<u8> {
    vec![0; BLOCK_HEAD_BYTES]
}

/// Reads a file, and refuses what is damaged, cut short or has a tail.
pub struct Reader<R> {
    from: R,
    head: Head,
    seed: u32,
    number: u64,
    changes: u64,
    is_at_end: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    pub fn new(mut from: R) -> Result<Reader<R>, String> {
        let mut bytes = vec![0; HEAD_BYTES];
        fill(&mut from, &mut bytes)?;
        let length = head_bytes(&bytes)?;
        bytes.resize(length, 0);
        fill(&mut from, &mut bytes[HEAD_BYTES..])?;
        let head = Head::decode(&bytes)?;
        let seed = crc32c::crc32c(&bytes);
        Ok(Reader { from, head, seed, number: 0, changes: 0, is_at_end: false })
    }

    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The changes of the next block; nothing at the end.
    pub fn next_block(&mut self) -> Result<Option<Vec<Change>>, String> {
        if self.is_at_end {
            return Ok(None);
        }
        let (kind, content) = self.content()?;
        match kind {
            KIND_CHANGES => {
                let changes = changes(&content).ok_or("a block has a change that is none")?;
                self.changes += changes.len() as u64;
                Ok(Some(changes))
            }
            KIND_END if content == self.changes.to_le_bytes() => {
                self.is_at_end = true;
                match fill(&mut self.from, &mut [0]) {
                    Err(_) => Ok(None),
                    Ok(()) => Err("it goes on behind its end".to_owned()),
                }
            }
            KIND_END => Err("changes are missing in it".to_owned()),
            _ => Err(format!("block {} is of an unknown kind", self.number - 1)),
        }
    }

    fn content(&mut self) -> Result<(u32, Vec<u8>), String> {
        let number = self.number;
        let mut head = [0; BLOCK_HEAD_BYTES];
        fill(&mut self.from, &mut head)?;
        let half = |at| take(&head, at).map(u32::from_le_bytes).expect("inside of the head");
        let (length, kind, crc) = (half(0) as usize, half(4), half(16));
        if length > CONTENT_BYTES_MAX {
            return Err(format!("the length of block {number} is wrong: it is damaged"));
        }
        let mut content = Vec::new();
        let read = (&mut self.from).take(length as u64).read_to_end(&mut content);
        if read.map_err(|error| error.to_string())? < length {
            return Err(cut());
        }
        head[16..20].fill(0);
        let sum = crc32c::crc32c_append(crc32c::crc32c_append(self.seed, &head), &content);
        if sum != crc || take(&head, 8).map(u64::from_le_bytes) != Some(number) {
            return Err(format!("the checksum of block {number} is wrong: it is damaged"));
        }
        self.number += 1;
        Ok((kind, content))
    }
}

fn cut() -> String {
    "it is cut short".to_owned()
}

fn fill(from: &mut impl Read, into: &mut [u8]) -> Result<(), String> {
    from.read_exact(into).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => cut(),
        _ => error.to_string(),
    })
}

fn changes(mut content: &[u8]) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    while !content.is_empty() {
        let head: [u8; CHANGE_HEAD_BYTES] = take(content, 0)?;
        let table = *Table::ALL.get(usize::from(head[0]))?;
        let key = usize::from(u16::from_le_bytes([head[2], head[3]]));
        let value = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let is_sound = (1..=KEY_BYTES_MAX).contains(&key)
            && value <= VALUE_BYTES_MAX
            && (head[1] == 1 || head[1] == 0 && value == 0);
        if !is_sound {
            return None;
        }
        let rest = &content[CHANGE_HEAD_BYTES..];
        let (this, rest) = rest.split_at_checked(key + value)?;
        let (key, value) = this.split_at(key);
        let value = (head[1] == 1).then(|| value.to_vec());
        changes.push(Change { table, key: key.to_vec(), value });
        content = rest;
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Head {
        let mgs = vec!["10.0.0.1@tcp".parse().expect("a NID")];
        let fsname = "testfs".parse().expect("a name");
        let created = Timespec::new(1_700_000_000, 5);
        let superblock = Superblock::new(fsname, types::TargetId::mdt(0), 7 << 100, mgs, created);
        Head { superblock, instance: 9, store: 11, taken: Timespec::new(1_800_000_000, 6) }
    }

    fn file() -> (Vec<u8>, Vec<Change>) {
        let (mut writer, mut bytes) = Writer::new(&head());
        let mut all = Vec::new();
        for number in 0..40_u8 {
            let value = (number % 3 > 0).then(|| vec![number; usize::from(number)]);
            all.push(Change { table: Table::Inodes, key: vec![number + 1], value });
        }
        for (count, Change { table, key, value }) in all.iter().enumerate() {
            assert!(writer.push(*table, key, value.as_deref()));
            if count % 15 == 14 {
                bytes.extend(writer.block());
            }
        }
        bytes.extend(writer.end());
        (bytes, all)
    }

    fn read(bytes: &[u8]) -> Result<(Head, Vec<Change>), String> {
        let mut reader = Reader::new(bytes)?;
        let mut all = Vec::new();
        while let Some(some) = reader.next_block()? {
            all.extend(some);
        }
        Ok((reader.head().clone(), all))
    }

    #[test]
    fn what_was_written_is_read_in_its_order() {
        let (bytes, all) = file();
        assert_eq!(read(&bytes), Ok((head(), all)));
    }

    #[test]
    fn each_cut_each_flipped_bit_and_a_tail_are_refused() {
        let (bytes, _) = file();
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bad).is_err(), "bit {bit}");
        }
        assert!(read(&[&bytes[..], &[0]].concat()).expect_err("a tail").contains("behind"));
    }

    #[test]
    fn a_block_of_another_export_or_place_is_refused() {
        let of = |instance: u64| {
            let (mut writer, head) = Writer::new(&Head { instance, ..head() });
            let blocks = [1, 2].map(|key: u8| {
                assert!(writer.push(Table::Inodes, &[key], Some(b"value")));
                writer.block()
            });
            (head, blocks, writer.end())
        };
        let (head, [first, second], end) = of(9);
        let (_, [foreign, _], _) = of(10);
        assert!(read(&[&head[..], &first, &second, &end].concat()).is_ok());
        assert!(read(&[&head[..], &second, &first, &end].concat()).is_err());
        assert!(read(&[&head[..], &foreign, &second, &end].concat()).is_err());
        assert!(read(&[&head[..], &first, &end].concat()).is_err());
    }

    #[test]
    fn a_newer_version_is_refused_in_words() {
        let mut bytes = head().encode();
        bytes[8] = 2;
        assert!(Head::decode(&bytes).expect_err("newer").contains("version 2"));
    }

    /// Written from docs/formats/export.md: later versions must read it too.
    #[test]
    fn the_head_of_version_1_is_still_written() {
        let frozen = include_bytes!("../../../../fixtures/export-v1.bin");
        assert_eq!(read(frozen).map(|(head, _)| head), Ok(head()));
        assert_eq!(file().0, frozen);
    }
}

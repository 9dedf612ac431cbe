//! A checksum after each value: CRC-32C over table, key and value.
//!
//! A value with a wrong checksum is not returned. The checksum covers the key, so an intact value
//! in the place of another is found too.
//!
//! Stores of an older version have no checksums. Their records get them at the first opening, in
//! the order of tables and keys. A mark says how far that went: a record below the mark has a
//! checksum, one at or above it has none. So a crash, or a full disk, leaves a store that can be
//! read.

use osd::Table;

/// Tables of its own.
pub(super) const TABLES: usize = 1;
/// The table that says which records have checksums.
pub(super) const TABLE: &str = "sums";

pub(super) const SUM_BYTES: usize = 4;

/// Records of which key and value together have at most so many bytes are summed in one piece: the
/// records of nearly all files, of which three short sums take twice as long.
const PIECE_BYTES: usize = 512;

fn sum(table: Table, key: &[u8], value: &[u8]) -> [u8; SUM_BYTES] {
    // the length keeps a byte from moving between key and value
    let head = [table as u8, key.len() as u8, (key.len() >> 8) as u8];
    let (behind_key, end) = (head.len() + key.len(), head.len() + key.len() + value.len());
    let mut piece = [0; PIECE_BYTES];
    if let Some(piece) = piece.get_mut(..end) {
        piece[..head.len()].copy_from_slice(&head);
        piece[head.len()..behind_key].copy_from_slice(key);
        piece[behind_key..].copy_from_slice(value);
        return crc32c::crc32c(piece).to_le_bytes();
    }
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head), key);
    crc32c::crc32c_append(sum, value).to_le_bytes()
}

/// Which records have a checksum: those below this table and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    table: u8,
    key: Vec<u8>,
}

impl Sums {
    /// All records, of any table.
    pub(super) fn all() -> Sums {
        Sums { table: u8::MAX, key: Vec::new() }
    }

    /// None: a store of an older version.
    pub(super) fn none() -> Sums {
        Sums { table: 0, key: Vec::new() }
    }

    /// Those of the tables before `table`, and of it those below `key`.
    pub(super) fn below(table: u8, key: Vec<u8>) -> Sums {
        Sums { table, key }
    }

    pub(super) fn is_all(&self) -> bool {
        self.table == u8::MAX
    }

    /// The first record without one: its table's number, and a key at or before its own.
    pub(super) fn first_without(&self) -> (u8, &[u8]) {
        (self.table, &self.key)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        [&[self.table][..], &self.key].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Sums> {
        let (table, key) = bytes.split_first()?;
        Some(Sums { table: *table, key: key.to_vec() })
    }

    fn cover(&self, table: Table, key: &[u8]) -> bool {
        (table as u8, key) < (self.table, &self.key[..])
    }

    /// The value of what is stored; none where it is damaged.
    pub(super) fn value<'a>(&self, table: Table, key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
        if !self.cover(table, key) {
            return Some(stored);
        }
        let (value, found) = stored.split_at_checked(stored.len().checked_sub(SUM_BYTES)?)?;
        (sum(table, key, value) == found).then_some(value)
    }

    /// What to store, put into `out`.
    pub(super) fn store(&self, table: Table, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(value);
        if self.cover(table, key) {
            out.extend_from_slice(&sum(table, key, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_bit_of_key_or_value_is_found() {
        let (all, mut stored) = (Sums::all(), Vec::new());
        all.store(Table::Inodes, b"key", b"value", &mut stored);
        assert_eq!(stored, b"value\x9a\x19\x91\x2a", "bytes on disk are what they were");
        assert_eq!(all.value(Table::Inodes, b"key", &stored), Some(&b"value"[..]));
        for bit in 0..stored.len() * 8 {
            let mut damaged = stored.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(all.value(Table::Inodes, b"key", &damaged), None, "bit {bit}");
        }
        assert_eq!(all.value(Table::Inodes, b"kez", &stored), None);
        assert_eq!(all.value(Table::Links, b"key", &stored), None);
        assert_eq!(all.value(Table::Inodes, b"key", b"abc"), None, "too short for a checksum");
    }

    #[test]
    fn a_sum_in_one_piece_is_that_of_its_parts() {
        for value in [0, 1, PIECE_BYTES - 7, PIECE_BYTES - 6, PIECE_BYTES - 5, 3 * PIECE_BYTES] {
            let value = vec![7; value];
            let parts = [&[Table::Inodes as u8, 3, 0][..], b"key", &value];
            let whole = crc32c::crc32c(&parts.concat()).to_le_bytes();
            assert_eq!(sum(Table::Inodes, b"key", &value), whole, "{} bytes", value.len());
        }
    }

    #[test]
    fn records_above_the_mark_are_taken_as_they_are() {
        let sums = Sums::below(Table::Inodes as u8, b"m".to_vec());
        assert_eq!(Sums::decode(&sums.encode()), Some(sums.clone()));
        for (table, key, has) in [
            (Table::Meta, &b"z"[..], true),
            (Table::Inodes, b"l", true),
            (Table::Inodes, b"m", false),
            (Table::Dirents, b"a", false),
        ] {
            let mut stored = Vec::new();
            sums.store(table, key, b"v", &mut stored);
            assert_eq!(stored.len() > 1, has, "{table:?}");
            assert_eq!(sums.value(table, key, &stored), Some(&b"v"[..]));
        }
        assert!(!sums.is_all() && Sums::all().is_all());
    }
}

//! The contents of a transfer, and how its receiver checks them.
//!
//! `simple` and `full` fill the buffer with one magic word. `crc` makes each word from the sender,
//! the sequence and the word's place. So it also detects a page in the wrong place, of another
//! transfer or of another node. A receiving buffer is poisoned before data arrive ([`POISON`]), so
//! that bytes that never arrived are not those of the transfer before.

use wire::lst::Check;

/// Every eight bytes of a filled transfer (Lustre: `BRW_MAGIC`).
pub const MAGIC: u64 = 0xeeb0_eeb1_eeb2_eeb3;

/// Every byte of a receiving buffer before data arrive.
pub const POISON: u8 = 0xa5;

/// `simple` looks at both ends of each of these.
pub const PAGE_BYTES: usize = 4_096;

const WORD_BYTES: usize = 8;

/// Whose transfer it is: seed of the content with `crc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub sender: u64,
    /// Number of the transfer there.
    pub sequence: u64,
}

/// Data of `len` bytes for `check`.
#[must_use]
pub fn fill(check: Check, len: usize, origin: Origin) -> Vec<u8> {
    match check {
        Check::Crc => {
            let words = len.div_ceil(WORD_BYTES) as u64;
            let mut data: Vec<u8> =
                (0..words).flat_map(|index| word_of(origin, index).to_le_bytes()).collect();
            data.truncate(len);
            data
        }
        _ => magic(len),
    }
}

/// `len` bytes of [`MAGIC`].
#[must_use]
pub fn magic(len: usize) -> Vec<u8> {
    let mut data = MAGIC.to_le_bytes().repeat(len.div_ceil(WORD_BYTES));
    data.truncate(len);
    data
}

/// Whether `data` is what [`fill`] made. `offset` is that of the first byte in its page.
#[must_use]
pub fn is_intact(check: Check, data: &[u8], offset: usize, origin: Origin) -> bool {
    match check {
        Check::None | Check::Discard => true,
        Check::Simple => pages(data, offset).all(ends_are_intact),
        Check::Full => is_magic(data),
        Check::Crc => (0..)
            .zip(data.chunks(WORD_BYTES))
            .all(|(index, word)| *word == word_of(origin, index).to_le_bytes()[..word.len()]),
    }
}

fn is_magic(data: &[u8]) -> bool {
    let magic = MAGIC.to_le_bytes();
    let (words, rest) = data.as_chunks::<WORD_BYTES>();
    words.iter().all(|word| *word == magic) && *rest == magic[..rest.len()]
}

/// Both ends of a page, of which the first may be cut at its front and the last at its end. Cuts
/// are multiples of a word at the front; at the end the last whole word is looked at.
fn ends_are_intact(page: &[u8]) -> bool {
    let (words, rest) = page.as_chunks::<WORD_BYTES>();
    let magic = MAGIC.to_le_bytes();
    let ends = [words.first(), words.last()];
    ends.into_iter().flatten().all(|word| *word == magic) && *rest == magic[..rest.len()]
}

fn pages(data: &[u8], offset: usize) -> impl Iterator<Item = &[u8]> {
    let first = (PAGE_BYTES - offset % PAGE_BYTES).min(data.len());
    let (head, tail) = data.split_at(first);
    std::iter::once(head).chain(tail.chunks(PAGE_BYTES))
}

/// One word of a `crc` transfer: a finaliser of SplitMix64 (Steele, Lea, Flood 2014) over who,
/// which and where.
fn word_of(origin: Origin, index: u64) -> u64 {
    let mut z =
        origin.sender ^ origin.sequence.rotate_left(32) ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where a planted corruption goes: the first byte of a page, where every check looks.
#[must_use]
pub fn corruption_at(len: usize, sequence: u64) -> usize {
    let pages = len.div_ceil(PAGE_BYTES).max(1) as u64;
    usize::try_from(sequence % pages).expect("a page of a transfer") * PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Check; 5] = [Check::None, Check::Simple, Check::Full, Check::Crc, Check::Discard];
    const ORIGIN: Origin = Origin { sender: 7, sequence: 9 };

    /// Which checks accept data of `len` bytes in which `change` changed something.
    fn accepted(len: usize, offset: usize, change: impl Fn(&mut Vec<u8>)) -> [bool; 5] {
        ALL.map(|check| {
            let mut data = fill(check, len, ORIGIN);
            change(&mut data);
            is_intact(check, &data, offset, ORIGIN)
        })
    }

    #[test]
    fn what_was_filled_is_intact_at_every_size() {
        for len in [1, 7, 8, 9, 4_095, 4_096, 4_104, 1 << 20] {
            for offset in [0, 8, 4_088] {
                assert_eq!(accepted(len, offset, |_| {}), [true; 5], "{len} at {offset}");
            }
        }
    }

    #[test]
    fn a_changed_byte_is_seen_by_the_checks_that_look_there() {
        let flip = |at: usize| accepted(3 * PAGE_BYTES, 0, |data| data[at] ^= 1);
        assert_eq!(flip(PAGE_BYTES), [true, false, false, false, true]);
        assert_eq!(flip(2 * PAGE_BYTES - 1), [true, false, false, false, true]);
        assert_eq!(flip(PAGE_BYTES / 2), [true, true, false, false, true]);
    }

    #[test]
    fn the_ends_of_pages_move_with_the_offset() {
        let flip = |at: usize| accepted(2 * PAGE_BYTES, 8, |data| data[at] ^= 1)[1];
        assert!(!flip(PAGE_BYTES - 8), "first word of the second page");
        assert!(!flip(PAGE_BYTES - 16), "last word of the first page");
        assert!(flip(PAGE_BYTES));
    }

    #[test]
    fn swapped_pages_and_foreign_transfers_are_seen_by_crc_only() {
        let swapped = accepted(2 * PAGE_BYTES, 0, |data| data.rotate_left(PAGE_BYTES));
        assert_eq!(swapped, [true, true, true, false, true]);
        for origin in [Origin { sender: 8, ..ORIGIN }, Origin { sequence: 10, ..ORIGIN }] {
            assert!(!is_intact(Check::Crc, &fill(Check::Crc, 64, origin), 0, ORIGIN));
        }
    }

    #[test]
    fn poison_is_no_content() {
        assert_eq!(
            accepted(PAGE_BYTES, 0, |data| data.fill(POISON)),
            [true, false, false, false, true]
        );
    }

    #[test]
    fn a_planted_corruption_is_where_every_check_looks() {
        for len in [1, 8, 4_096, 1 << 20] {
            for sequence in [0, 1, 255, u64::MAX] {
                let seen = accepted(len, 0, |data| data[corruption_at(len, sequence)] ^= 1);
                assert_eq!(seen, [true, false, false, false, true]);
            }
        }
    }
}

//! Mapping between file and objects, as RAID-0 does it.
//!
//! With stripe size S, stripe count N, file offset o:
//! ```text
//! width = S * N      stripe = (o / S) mod N      object offset = (o / width) * S + o mod S
//! ```
//! Invariants
//! - The pieces of an extent cover it exactly once, in file order.
//! - `file_size` of the object sizes that `object_size` gives is the file size again.
//! - Sizes that a broken object claims saturate; nothing overflows.

use types::Extent;

use crate::Layout;

/// A run of bytes that is contiguous both in the file and in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the stripe, from 0.
    pub stripe: u32,
    /// First byte in the object.
    pub object_offset: u64,
    /// First byte in the file.
    pub file_offset: u64,
    /// Bytes, never zero.
    pub len: u64,
}

/// Iterator over the pieces of an extent.
#[derive(Clone, Debug)]
pub struct Pieces {
    stripe_size: u64,
    stripe_count: u64,
    at: u64,
    end: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.at >= self.end {
            return None;
        }
        let (file_offset, size, count) = (self.at, self.stripe_size, self.stripe_count);
        let chunk = file_offset / size;
        // A single stripe never changes objects: the whole extent is one piece.
        let left = if count == 1 { u64::MAX } else { size - file_offset % size };
        let len = left.min(self.end - file_offset);
        self.at += len;
        let stripe = (chunk % count) as u32; // below the stripe count, which fits 16 bits
        Some(Piece {
            stripe,
            object_offset: chunk / count * size + file_offset % size,
            file_offset,
            len,
        })
    }
}

impl Layout {
    /// Bytes before the first stripe's turn comes again.
    #[must_use]
    pub fn width(&self) -> u64 {
        u64::from(self.stripe_size) * u64::from(self.stripe_count)
    }

    /// Stripe that holds the byte at `offset`.
    #[must_use]
    pub fn stripe_of(&self, offset: u64) -> u32 {
        (offset / u64::from(self.stripe_size) % u64::from(self.stripe_count)) as u32
    }

    /// The pieces of `extent`, in file order.
    #[must_use]
    pub fn pieces(&self, extent: Extent) -> Pieces {
        Pieces {
            stripe_size: u64::from(self.stripe_size),
            stripe_count: u64::from(self.stripe_count),
            at: extent.start(),
            end: extent.end(),
        }
    }

    /// File size that object sizes add up to; `None` is an object that does not exist. Stripes
    /// beyond the list do not exist either.
    #[must_use]
    pub fn file_size(&self, object_sizes: &[Option<u64>]) -> u64 {
        let stripes = 0..u64::from(self.stripe_count);
        let ends = stripes
            .zip(object_sizes)
            .filter_map(|(stripe, size)| size.map(|size| self.file_end(stripe, size)));
        ends.max().unwrap_or(0)
    }

    /// Size that the object of `stripe` has in a file of `file_size` bytes without holes.
    #[must_use]
    pub fn object_size(&self, stripe: u32, file_size: u64) -> u64 {
        let size = u64::from(self.stripe_size);
        let rows = file_size / self.width();
        let before = u64::from(stripe).saturating_mul(size);
        rows * size + (file_size % self.width()).saturating_sub(before).min(size)
    }

    /// File offset of the byte at `offset` of an object.
    #[must_use]
    pub fn file_offset(&self, stripe: u32, offset: u64) -> u64 {
        let size = u128::from(self.stripe_size);
        let (row, within) = (u128::from(offset) / size, u128::from(offset) % size);
        let at = row * u128::from(self.width()) + u128::from(stripe) * size + within;
        u64::try_from(at).unwrap_or(u64::MAX)
    }

    /// File offset behind the last byte of an object of `object_size` bytes.
    fn file_end(&self, stripe: u64, object_size: u64) -> u64 {
        if object_size == 0 {
            return 0;
        }
        let size = u128::from(self.stripe_size);
        let (row, within) = (u128::from(object_size) / size, u128::from(object_size) % size);
        let (row, within) = if within == 0 { (row - 1, size) } else { (row, within) };
        let end = row * u128::from(self.width()) + u128::from(stripe) * size + within;
        u64::try_from(end).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::Fid;

    const MIB: u64 = 1 << 20;

    fn layout(stripe_size: u32, stripe_count: u16) -> Layout {
        Layout::plain(Fid::new(0x400, 1), stripe_size, stripe_count)
    }

    fn at(layout: &Layout, offset: u64) -> (u32, u64) {
        let extent = Extent::new(offset, offset + 1).expect("one byte");
        let piece = layout.pieces(extent).next().expect("a piece");
        (piece.stripe, piece.object_offset)
    }

    #[test]
    fn stripes_take_turns_and_their_objects_give_the_size() {
        let four = layout(1 << 20, 4);
        assert_eq!(at(&four, 5 * MIB + 100), (1, MIB + 100));
        assert_eq!(at(&four, 10 * MIB + 512), (2, 2 * MIB + 512));
        assert_eq!(at(&four, 4 * MIB), (0, MIB));
        assert_eq!(at(&four, 5 * MIB), (1, MIB));
        let eight = layout(1 << 20, 8);
        assert_eq!(at(&eight, 64 * MIB), (0, 8 * MIB));
        assert_eq!(at(&eight, 128 * MIB - 1), (7, 16 * MIB - 1));
        let sizes: Vec<_> = (0..4).map(|stripe| four.object_size(stripe, 6 * MIB + 10)).collect();
        assert_eq!(sizes, [2 * MIB, 2 * MIB, MIB + 10, MIB]);
        assert_eq!(four.file_size(&sizes.into_iter().map(Some).collect::<Vec<_>>()), 6 * MIB + 10);
    }

    #[test]
    fn one_stripe_is_one_piece() {
        let one = layout(1 << 16, 1);
        let pieces: Vec<_> = one.pieces(Extent::new(5, 10 * MIB).expect("not empty")).collect();
        assert_eq!(
            pieces,
            [Piece { stripe: 0, object_offset: 5, file_offset: 5, len: 10 * MIB - 5 }]
        );
        assert_eq!(one.pieces(Extent::ALL).count(), 1);
    }

    #[test]
    fn missing_objects_count_as_nothing() {
        let four = layout(1 << 16, 4);
        assert_eq!(four.file_size(&[None; 4]), 0);
        assert_eq!(four.file_size(&[Some(0), None]), 0);
        assert_eq!(four.file_size(&[None, Some(1)]), (1 << 16) + 1);
        assert_eq!(four.file_size(&[Some(u64::MAX); 4]), u64::MAX);
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        (1u32..0x1_0000, 1u16..=2000).prop_map(|(units, count)| layout(units << 16, count))
    }

    proptest! {
        #[test]
        fn pieces_cover_an_extent_exactly_once(units in 1u32..40, count in 1u16..9, start in 0u64..1 << 40, len in 1u64..8 << 20) {
            let layout = layout(units << 16, count);
            let mut next = start;
            for piece in layout.pieces(Extent::new(start, start + len).expect("not empty")) {
                prop_assert_eq!(piece.file_offset, next);
                prop_assert!(piece.len > 0 && piece.stripe < u32::from(count));
                let last = piece.object_offset + piece.len;
                // The piece's own object, cut behind the piece, ends where the piece ends in the
                // file.
                prop_assert_eq!(layout.file_end(u64::from(piece.stripe), last), next + piece.len);
                next += piece.len;
            }
            prop_assert_eq!(next, start + len);
        }

        #[test]
        fn every_piece_is_found_again_from_its_object(layout in layouts(), start in 0u64..1 << 50, len in 1u64..8 << 20) {
            for piece in layout.pieces(Extent::new(start, start + len).expect("not empty")) {
                prop_assert_eq!(layout.file_offset(piece.stripe, piece.object_offset), piece.file_offset);
            }
        }

        #[test]
        fn object_sizes_and_file_size_agree(layout in layouts(), file_size: u64) {
            let sizes: Vec<_> = (0..u32::from(layout.stripe_count)).map(|stripe| layout.object_size(stripe, file_size)).collect();
            prop_assert_eq!(sizes.iter().map(|size| u128::from(*size)).sum::<u128>(), u128::from(file_size));
            prop_assert_eq!(layout.file_size(&sizes.into_iter().map(Some).collect::<Vec<_>>()), file_size);
        }

        #[test]
        fn the_stripe_of_the_last_byte_alone_gives_the_size(layout in layouts(), file_size in 1u64..) {
            let last = layout.stripe_of(file_size - 1);
            prop_assert_eq!(layout.file_end(u64::from(last), layout.object_size(last, file_size)), file_size);
        }

        #[test]
        fn no_claimed_size_overflows(layout in layouts(), sizes in proptest::collection::vec(any::<Option<u64>>(), 0..9)) {
            let whole = layout.file_size(&sizes);
            prop_assert!(sizes.iter().zip(0..layout.stripe_count).all(|(size, _)| size.unwrap_or(0) <= whole));
        }
    }
}

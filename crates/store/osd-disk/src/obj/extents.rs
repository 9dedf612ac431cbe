//! The places of objects on the device: FIEMAP, and a cache of its answers.
//!
//! Only an order of requests depends on them: an outdated answer costs a seek and no data. So an
//! answer is kept until the object is truncated or removed. Writes into allocated space do not move
//! it. A range without an address is asked for each time. The kernel gives it one when it writes
//! pages back, and the store does not see that (`docs/design/rpc.md`, disk addresses).

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, BorrowedFd};

use types::{Errno, Extent, Fid};

/// Objects whose extents are remembered: as many as one head of ORR keeps idle.
pub(crate) const OBJECTS_MAX: usize = 4_096;

/// Extents asked for at once per object: one call answers what lies ahead of a sequential reader.
pub(crate) const EXTENTS_MAX: usize = 32;

/// Extents of one object that are remembered: 32 answers.
const PIECES_OF_OBJECT_MAX: usize = 32 * EXTENTS_MAX;

/// Extents that are remembered in all, 24 bytes each: 3 MiB.
const PIECES_MAX: usize = OBJECTS_MAX * EXTENTS_MAX;

/// `FS_IOC_FIEMAP` of `linux/fs.h`: `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// The address is not known, or not yet chosen (`FIEMAP_EXTENT_UNKNOWN`, `FIEMAP_EXTENT_DELALLOC`).
const WITHOUT_ADDRESS: u32 = 0x2 | 0x4;

#[derive(Clone, Copy, Default)]
#[repr(C)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct RawMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS_MAX],
}

const _: () = assert!(size_of::<RawExtent>() == 56 && size_of::<RawMap>() == 32 + 56 * EXTENTS_MAX);

/// A piece of an object that lies in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    logical: u64,
    physical: u64,
    length: u64,
}

impl Piece {
    fn end(&self) -> u64 {
        self.logical.saturating_add(self.length)
    }
}

/// Where `range` would begin, reckoned back from the first piece that it touches.
pub(crate) fn place(pieces: &[Piece], range: Extent) -> Option<u64> {
    let first = pieces.partition_point(|piece| piece.end() <= range.start());
    let piece = pieces.get(first).filter(|piece| piece.logical < range.end())?;
    Some(if range.start() >= piece.logical {
        piece.physical.saturating_add(range.start() - piece.logical)
    } else {
        piece.physical.saturating_sub(piece.logical - range.start())
    })
}

/// Asks the file system from byte `start` on; blocks, and may read metadata.
pub(crate) fn ask(file: BorrowedFd<'_>, start: u64) -> Result<Vec<Piece>, Errno> {
    let mut map = RawMap {
        start,
        length: u64::MAX - start,
        flags: 0,
        mapped: 0,
        count: EXTENTS_MAX as u32,
        reserved: 0,
        extents: [RawExtent::default(); EXTENTS_MAX],
    };
    // SAFETY: the argument is a `struct fiemap` with room for `count` extents behind it, as the
    // call wants it, and lives until the call returns.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) };
    if done < 0 {
        return Err(Errno::from_io(&std::io::Error::last_os_error()));
    }
    let mapped = usize::try_from(map.mapped).unwrap_or(0).min(EXTENTS_MAX);
    let known = map.extents[..mapped].iter().filter(|extent| extent.flags & WITHOUT_ADDRESS == 0);
    Ok(known
        .map(|extent| Piece {
            logical: extent.logical,
            physical: extent.physical,
            length: extent.length,
        })
        .collect())
}

/// What was learnt, oldest first out.
#[derive(Default)]
pub(crate) struct Extents {
    /// By logical place; those of an object do not overlap.
    known: BTreeMap<Fid, Vec<Piece>>,
    order: VecDeque<Fid>,
    /// In all.
    pieces: usize,
}

/// Adds the answer to one question, which holds where the memory says something else.
fn merge(known: &mut Vec<Piece>, answer: &[Piece]) {
    let (Some(first), Some(last)) = (answer.first(), answer.last()) else { return };
    let (start, end) = (first.logical, last.end());
    let from = known.partition_point(|piece| piece.end() <= start);
    let to = known.partition_point(|piece| piece.logical < end);
    known.splice(from..to, answer.iter().copied());
    // most of it lies behind its readers by then
    if known.len() > PIECES_OF_OBJECT_MAX {
        *known = answer.to_vec();
    }
}

impl Extents {
    pub(crate) fn place(&self, object: Fid, range: Extent) -> Option<u64> {
        place(self.known.get(&object)?, range)
    }

    pub(crate) fn learn(&mut self, object: Fid, pieces: Vec<Piece>) {
        if pieces.is_empty() {
            return;
        }
        if !self.known.contains_key(&object) {
            self.order.push_back(object);
        }
        let known = self.known.entry(object).or_default();
        self.pieces -= known.len();
        merge(known, &pieces);
        self.pieces += known.len();
        while self.order.len() > OBJECTS_MAX || self.pieces > PIECES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.pieces -= self.known.remove(&oldest).map_or(0, |known| known.len());
        }
    }

    pub(crate) fn forget(&mut self, object: Fid) {
        self.pieces -= self.known.remove(&object).map_or(0, |known| known.len());
        if self.order.len() > 2 * self.known.len() + EXTENTS_MAX {
            let known = &self.known;
            self.order.retain(|object| known.contains_key(object));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Extent {
        Extent::new(start, end).expect("not empty")
    }

    #[test]
    fn places_are_reckoned_from_the_first_piece_that_is_touched() {
        let pieces = [
            Piece { logical: 100, physical: 5_000, length: 50 },
            Piece { logical: 200, physical: 1_000, length: 50 },
        ];
        let check = |start, end, expected| {
            assert_eq!(place(&pieces, range(start, end)), expected, "{start}..{end}")
        };
        check(100, 110, Some(5_000));
        check(120, 300, Some(5_020));
        check(90, 110, Some(4_990));
        check(150, 200, None);
        check(160, 201, Some(960));
        check(250, 300, None);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten() {
        let mut extents = Extents::default();
        let fid = |oid| Fid { seq: 1, oid, ver: 0 };
        for oid in 0..2 * OBJECTS_MAX as u32 {
            extents
                .learn(fid(oid), vec![Piece { logical: 0, physical: u64::from(oid), length: 10 }]);
        }
        let last = fid(2 * OBJECTS_MAX as u32 - 1);
        assert_eq!((extents.known.len(), extents.order.len()), (OBJECTS_MAX, OBJECTS_MAX));
        assert_eq!(
            (extents.place(fid(0), range(0, 1)), extents.place(last, range(2, 3))),
            (None, Some(2 * OBJECTS_MAX as u64 + 1))
        );
        extents.forget(last);
        assert_eq!(extents.place(last, range(2, 3)), None);
        assert_eq!(extents.pieces, OBJECTS_MAX - 1);
    }

    /// What one question from `start` on is answered of an object in pieces of 10 bytes.
    fn answer(start: u64) -> Vec<Piece> {
        let piece =
            |number: u64| Piece { logical: number * 10, physical: number * 100, length: 10 };
        (start / 10..).take(EXTENTS_MAX).map(piece).collect()
    }

    #[test]
    fn readers_of_one_object_do_not_make_each_other_ask_again() {
        let (mut extents, object) = (Extents::default(), Fid { seq: 1, oid: 1, ver: 0 });
        let mut questions = 0;
        for step in 0..1_000 {
            for reader in 0..8 {
                let at = reader * 100_000 + step * 10;
                if extents.place(object, range(at, at + 10)).is_none() {
                    questions += 1;
                    extents.learn(object, answer(at));
                }
                assert_eq!(extents.place(object, range(at + 3, at + 10)), Some(at * 10 + 3));
            }
        }
        let least = 8 * 1_000_u64.div_ceil(EXTENTS_MAX as u64);
        assert!((least..=least * 3 / 2).contains(&questions), "{questions}, {least} of each alone");
        assert_eq!(extents.pieces, extents.known[&object].len());
        assert!(extents.pieces <= PIECES_OF_OBJECT_MAX);
    }

    #[test]
    fn a_newer_answer_holds_and_memory_is_bounded() {
        let mut known = Vec::new();
        merge(&mut known, &answer(0));
        let moved = Piece { logical: 35, physical: 7_000, length: 30 };
        merge(&mut known, &[moved]);
        assert!(known.is_sorted_by(|one, next| one.end() <= next.logical));
        assert_eq!(place(&known, range(40, 41)), Some(7_005));
        for start in (0..300).rev().map(|number| number * 10 * EXTENTS_MAX as u64) {
            merge(&mut known, &answer(start));
            assert!(known.len() <= PIECES_OF_OBJECT_MAX);
            assert!(known.is_sorted_by(|one, next| one.end() <= next.logical));
            assert!(place(&known, range(start, start + 1)).is_some());
        }
        let mut extents = Extents::default();
        for oid in 0..2 * OBJECTS_MAX as u32 {
            let object = Fid { seq: 1, oid, ver: 0 };
            (0..4).for_each(|part| extents.learn(object, answer(part * 1_000)));
            assert!(extents.pieces <= PIECES_MAX);
        }
        assert_eq!(extents.pieces, extents.known.values().map(Vec::len).sum::<usize>());
    }
}

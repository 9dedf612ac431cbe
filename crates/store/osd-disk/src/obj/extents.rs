//! Where objects lie on the device: FIEMAP, and a memory of what it said.
//!
//! Only an order of requests hangs on it: an answer that is out of date costs a seek and no data.
//! So what was learnt is kept until the object is cut or removed; writes into allocated space do
//! not move it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, BorrowedFd};

use types::{Errno, Extent, Fid};

/// Objects whose extents are remembered: as many as one head of ORR keeps idle, and at
/// [`EXTENTS_MAX`] of 24 bytes each below 4 MiB.
pub(crate) const OBJECTS_MAX: usize = 4_096;

/// Extents asked for, and remembered, at once per object: one call answers what lies ahead of a
/// sequential reader.
pub(crate) const EXTENTS_MAX: usize = 32;

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

/// Where `range` would begin, reckoned back from the first piece that it touches.
pub(crate) fn place(pieces: &[Piece], range: Extent) -> Option<u64> {
    let touches = |piece: &&Piece| {
        piece.logical < range.end() && piece.logical.saturating_add(piece.length) > range.start()
    };
    let piece = pieces.iter().find(touches)?;
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
    known: BTreeMap<Fid, Vec<Piece>>,
    order: VecDeque<Fid>,
}

impl Extents {
    pub(crate) fn place(&self, object: Fid, range: Extent) -> Option<u64> {
        place(self.known.get(&object)?, range)
    }

    pub(crate) fn learn(&mut self, object: Fid, pieces: Vec<Piece>) {
        if pieces.is_empty() {
            return;
        }
        if self.known.insert(object, pieces).is_none() {
            self.order.push_back(object);
        }
        while self.order.len() > OBJECTS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    pub(crate) fn forget(&mut self, object: Fid) {
        self.known.remove(&object);
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
    }
}

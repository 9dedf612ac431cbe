//! Ranges of an object: allocating room for them, punching holes, and finding where data or a hole
//! begins. Everything here may run on any thread.

use std::sync::Arc;

use osd::{Allocate, Found, ObjAttr, Seek};
use rustix::fs::{FallocateFlags, SeekFrom};
use types::Errno;

use super::files::{Files, Object, errno};

impl Files {
    /// Allocates, punches or zeroes. Room comes before size, so that a full device leaves the size
    /// as it was.
    pub(super) fn allocate(
        &self,
        object: &Arc<Object>,
        what: Allocate,
        offset: u64,
        length: u64,
    ) -> Result<ObjAttr, Errno> {
        let done = match what {
            Allocate::Reserve { grow } => object.reserve(offset, length, grow),
            Allocate::Punch => object.punch(offset, length),
            Allocate::Zero { grow } => object.zero(offset, length, grow),
        };
        self.note(object, true); // a failed call may have changed something too
        done?;
        object.attr()
    }
}

impl Object {
    fn fallocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> Result<(), Errno> {
        loop {
            match rustix::fs::fallocate(&self.file, flags, offset, length) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map_err(errno),
            }
        }
    }

    /// Allocates `[offset, offset + length)`; the size grows with it.
    pub(super) fn make_room(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.fallocate(FallocateFlags::empty(), offset, length)
    }

    fn reserve(&self, offset: u64, length: u64, grow: bool) -> Result<(), Errno> {
        self.fallocate(FallocateFlags::KEEP_SIZE, offset, length)?;
        if grow { self.fallocate(FallocateFlags::empty(), offset, length) } else { Ok(()) }
    }

    fn punch(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match self.fallocate(flags, offset, length) {
            // Farther than the file system has offsets: there is nothing behind the end.
            Err(Errno::EFBIG) => match self.attr()?.size.checked_sub(offset) {
                None | Some(0) => Ok(()),
                Some(left) => self.fallocate(flags, offset, left),
            },
            other => other,
        }
    }

    /// Where the file system cannot zero a range (tmpfs), it is punched and allocated again.
    fn zero(&self, offset: u64, length: u64, grow: bool) -> Result<(), Errno> {
        match self.fallocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, length)
        {
            Err(Errno::EOPNOTSUPP) => self.punch(offset, length)?,
            other => other?,
        }
        self.reserve(offset, length, grow)
    }

    /// First data or hole from `offset` on, and the size.
    pub(super) fn seek(&self, what: Seek, offset: u64) -> Result<Found, Errno> {
        let from = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        // The position that this sets is used by nobody: reads and writes name their offsets.
        let found = match rustix::fs::seek(&self.file, from) {
            Err(rustix::io::Errno::NXIO | rustix::io::Errno::INVAL) => None,
            other => Some(other.map_err(errno)?),
        };
        Ok(Found { offset: found, size: self.attr()?.size })
    }
}

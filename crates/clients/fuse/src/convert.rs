//! Conversion between the kernel's structures and the library's.

use client::{Attr, LockConflict, LockKind, LockMode, LockSpec, SetAttr, SetTime, Statfs};
use fusedev::abi;
use types::{Errno, Fid, Instant, NAME_BYTES_MAX, Span, Timespec};

use crate::limits::{FILE_BLOCK_BYTES, KERNEL_SLACK, OTHER_BLOCK_BYTES};

/// The kernel's end of a lock that reaches to the end of the file.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// How a file's inode number is made.
pub(crate) type Ino = fn(Fid) -> u64;

pub(crate) fn attr(attr: &Attr, ino: Ino) -> abi::Attr {
    abi::Attr {
        ino: ino(attr.fid()),
        size: attr.size,
        blocks: attr.blocks,
        // Times before 1970 keep their bits.
        atime: attr.atime as u64,
        mtime: attr.mtime as u64,
        ctime: attr.ctime as u64,
        atimensec: attr.atime_nsec,
        mtimensec: attr.mtime_nsec,
        ctimensec: attr.ctime_nsec,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        // What the protocol carries of a device number: 12 bits of major, 20 of minor.
        rdev: attr.rdev as u32,
        blksize: if attr.is_file() { FILE_BLOCK_BYTES } else { OTHER_BLOCK_BYTES },
        flags: 0,
    }
}

/// For how long the kernel may believe what it hears: seconds and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Valid {
    pub(crate) secs: u64,
    pub(crate) nanos: u32,
}

impl Valid {
    pub(crate) fn is_none(self) -> bool {
        self == Valid::default()
    }

    pub(crate) fn span(self) -> Span {
        Span(self.secs * Span::secs(1).0 + u64::from(self.nanos))
    }
}

/// Attributes that the kernel may believe for a time.
pub(crate) fn attr_out(of: &Attr, ino: Ino, valid: Valid) -> abi::AttrOut {
    abi::AttrOut {
        attr: attr(of, ino),
        attr_valid: valid.secs,
        attr_valid_nsec: valid.nanos,
        ..Default::default()
    }
}

/// For how long from when it hears so the kernel may believe what holds until `end`: less by what
/// it may take longer than it was told.
pub(crate) fn validity(end: Instant, now: Instant) -> Valid {
    let left = (end - now).0.saturating_sub(KERNEL_SLACK.0);
    let second = Span::secs(1).0;
    Valid { secs: left / second, nanos: (left % second) as u32 }
}

/// The same with the time of making.
pub(crate) fn statx_out(of: &Attr, ino: Ino, valid: Valid) -> abi::StatxOut {
    let time = |time: Timespec| abi::SxTime { tv_sec: time.sec, tv_nsec: time.nsec, reserved: 0 };
    let plain = attr(of, ino);
    let stat = abi::Statx {
        mask: libc::STATX_BASIC_STATS | libc::STATX_BTIME,
        blksize: plain.blksize,
        nlink: of.nlink,
        uid: of.uid,
        gid: of.gid,
        mode: of.mode as u16, // types and permissions fit
        ino: plain.ino,
        size: of.size,
        blocks: of.blocks,
        atime: time(of.atime()),
        btime: time(Timespec::new(of.btime, of.btime_nsec)),
        ctime: time(of.ctime()),
        mtime: time(of.mtime()),
        rdev_major: plain.rdev >> 8 & 0xfff,
        rdev_minor: plain.rdev & 0xff | plain.rdev >> 12 & 0xfff00,
        ..Default::default()
    };
    abi::StatxOut {
        stat,
        attr_valid: valid.secs,
        attr_valid_nsec: valid.nanos,
        ..Default::default()
    }
}

pub(crate) fn set_attr(args: &abi::SetattrIn, is_dir: bool) -> SetAttr {
    let has = |bit| args.valid & bit != 0;
    let time = |at: u32, now: u32, sec: u64, nsec: u32| match (has(now), has(at)) {
        (true, _) => Some(SetTime::Now),
        (false, true) => Some(SetTime::At(Timespec::new(sec as i64, nsec))),
        (false, false) => None,
    };
    let owner_changes = has(abi::FATTR_UID) || has(abi::FATTR_GID);
    SetAttr {
        mode: has(abi::FATTR_MODE).then_some(args.mode & 0o7777),
        uid: has(abi::FATTR_UID).then_some(args.uid),
        gid: has(abi::FATTR_GID).then_some(args.gid),
        size: has(abi::FATTR_SIZE).then_some(args.size),
        atime: time(abi::FATTR_ATIME, abi::FATTR_ATIME_NOW, args.atime, args.atimensec),
        mtime: time(abi::FATTR_MTIME, abi::FATTR_MTIME_NOW, args.mtime, args.mtimensec),
        ctime: None,
        projid: None,
        kill_suid: !is_dir && (owner_changes || has(abi::FATTR_KILL_SUIDGID)),
    }
}

pub(crate) fn statfs(of: &Statfs) -> abi::StatfsOut {
    let block = of.block_bytes as u32;
    abi::StatfsOut {
        blocks: of.blocks,
        bfree: of.blocks_free,
        bavail: of.blocks_avail,
        files: of.files,
        ffree: of.files_free,
        bsize: block,
        namelen: NAME_BYTES_MAX as u32,
        frsize: block,
        ..Default::default()
    }
}

pub(crate) fn lock_spec(args: &abi::LkIn, wait: bool) -> Result<LockSpec, Errno> {
    let mode = match i32::try_from(args.lk.kind) {
        Ok(libc::F_RDLCK) => LockMode::Shared,
        Ok(libc::F_WRLCK) => LockMode::Exclusive,
        Ok(libc::F_UNLCK) => LockMode::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    if args.lk_flags & abi::LK_FLOCK != 0 {
        return Ok(LockSpec::whole(LockKind::Flock, mode, args.owner, wait));
    }
    let end = if args.lk.end >= OFFSET_MAX { u64::MAX } else { args.lk.end + 1 };
    if args.lk.start >= end {
        return Err(Errno::EINVAL);
    }
    Ok(LockSpec { kind: LockKind::Posix, mode, start: args.lk.start, end, owner: args.owner, wait })
}

pub(crate) fn lock_out(conflict: Option<LockConflict>) -> abi::LkOut {
    let kind = |kind: i32| kind as u32;
    let lk = match conflict {
        None => abi::FileLock { kind: kind(libc::F_UNLCK), ..Default::default() },
        Some(conflict) => abi::FileLock {
            start: conflict.start.min(OFFSET_MAX),
            end: if conflict.end > OFFSET_MAX {
                OFFSET_MAX
            } else {
                conflict.end.saturating_sub(1)
            },
            kind: match conflict.mode {
                LockMode::Shared => kind(libc::F_RDLCK),
                LockMode::Exclusive => kind(libc::F_WRLCK),
                LockMode::Unlock => kind(libc::F_UNLCK),
            },
            pid: conflict.pid,
        },
    };
    abi::LkOut { lk }
}

/// A name as a directory can hold it.
pub(crate) fn name(name: &[u8]) -> Result<&[u8], Errno> {
    match name.len() {
        0 => Err(Errno::ENOENT),
        len if len > NAME_BYTES_MAX => Err(Errno::ENAMETOOLONG),
        _ => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use types::Span;

    use super::*;

    fn posix(start: u64, end: u64) -> Result<(u64, u64), Errno> {
        let lk = abi::FileLock { start, end, kind: libc::F_WRLCK as u32, pid: 1 };
        lock_spec(&abi::LkIn { lk, ..Default::default() }, false).map(|spec| (spec.start, spec.end))
    }

    #[test]
    fn lock_ends_change_from_inclusive_to_exclusive_and_back() {
        assert_eq!(posix(0, 0), Ok((0, 1)));
        assert_eq!(posix(10, OFFSET_MAX), Ok((10, u64::MAX)));
        assert_eq!(posix(5, 3), Err(Errno::EINVAL));
        for (start, end) in [(0, 0), (10, OFFSET_MAX)] {
            let (ours_start, ours_end) = posix(start, end).expect("a good range");
            let conflict =
                LockConflict { mode: LockMode::Shared, start: ours_start, end: ours_end, pid: 3 };
            let lk = lock_out(Some(conflict)).lk;
            assert_eq!((lk.start, lk.end, lk.kind, lk.pid), (start, end, libc::F_RDLCK as u32, 3));
        }
    }

    #[test]
    fn only_what_is_named_valid_is_set() {
        let args = abi::SetattrIn {
            valid: abi::FATTR_SIZE | abi::FATTR_MTIME_NOW,
            size: 9,
            mode: 7,
            ..Default::default()
        };
        let expected = SetAttr { size: Some(9), mtime: Some(SetTime::Now), ..SetAttr::default() };
        assert_eq!(set_attr(&args, false), expected);
    }

    #[test]
    fn a_change_of_owner_drops_set_user_id_except_on_directories() {
        let args = abi::SetattrIn { valid: abi::FATTR_UID, uid: 3, ..Default::default() };
        assert!(set_attr(&args, false).kill_suid);
        assert!(!set_attr(&args, true).kill_suid);
    }

    #[test]
    fn the_kernel_stops_believing_before_the_lease_ends() {
        let at = |ms| Instant::default() + Span::millis(ms);
        assert_eq!(validity(at(50), at(1)), Valid { secs: 0, nanos: 19_000_000 });
        assert!(validity(at(50), at(20)).is_none());
        assert!(validity(at(50), at(60)).is_none());
        assert!(validity(Instant::default(), at(60)).is_none(), "no lease");
        assert_eq!(validity(at(8_000), at(0)), Valid { secs: 7, nanos: 970_000_000 });
    }

    #[test]
    fn names_are_bounded() {
        assert_eq!(name(&[b'a'; 255]).map(<[u8]>::len), Ok(255));
        assert_eq!(name(&[b'a'; 256]), Err(Errno::ENAMETOOLONG));
    }
}

//! Operations as values: the elements of a sequence under test. Printed with `{:?}` they are the
//! report of a failure.

use std::fmt;

/// A path below the directory under test; empty for that directory itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<String>);

impl Path {
    /// From text with slashes.
    #[must_use]
    pub fn new(text: &str) -> Path {
        Path(text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }

    #[must_use]
    pub fn join(&self, name: &str) -> Path {
        let mut path = self.clone();
        path.0.push(name.to_owned());
        path
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|name| {
            if name.len() < 40 { name.clone() } else { format!("<{} bytes>", name.len()) }
        });
        write!(f, "/{}", names.collect::<Vec<_>>().join("/"))
    }
}

/// An extended attribute of the test.
pub type XattrName = u8;

/// One call on the file system. Slots are open files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Mkdir {
        path: Path,
        mode: u32,
    },
    Rmdir {
        path: Path,
    },
    Mkfifo {
        path: Path,
        mode: u32,
    },
    Symlink {
        path: Path,
        target: String,
    },
    Readlink {
        path: Path,
    },
    Create {
        path: Path,
        slot: u8,
        excl: bool,
        trunc: bool,
        append: bool,
        mode: u32,
        stripe: Option<(u32, i32)>,
    },
    Open {
        path: Path,
        slot: u8,
        trunc: bool,
        append: bool,
    },
    Close {
        slot: u8,
    },
    Unlink {
        path: Path,
    },
    Rename {
        from: Path,
        to: Path,
        flags: u32,
    },
    Link {
        from: Path,
        to: Path,
    },
    Stat {
        path: Path,
    },
    Fstat {
        slot: u8,
    },
    Truncate {
        path: Path,
        size: u64,
    },
    Ftruncate {
        slot: u8,
        size: u64,
    },
    Chmod {
        path: Path,
        mode: u32,
    },
    Chown {
        path: Path,
        uid: u32,
        gid: u32,
    },
    Utimens {
        path: Path,
        sec: i64,
        nsec: u32,
    },
    Write {
        slot: u8,
        offset: u64,
        len: u32,
        salt: u8,
    },
    Read {
        slot: u8,
        offset: u64,
        len: u32,
    },
    Fsync {
        slot: u8,
    },
    /// Mode as of `fallocate(2)`.
    Fallocate {
        slot: u8,
        mode: u32,
        offset: u64,
        len: u32,
    },
    /// Reads what is behind `offset` by SEEK_DATA and SEEK_HOLE: holes are not read.
    Extents {
        slot: u8,
        offset: u64,
    },
    CopyRange {
        from: u8,
        from_offset: u64,
        to: u8,
        to_offset: u64,
        len: u32,
    },
    /// O_TMPFILE in the directory `path`.
    Tmpfile {
        path: Path,
        slot: u8,
        mode: u32,
        excl: bool,
    },
    /// Another name, or the first, for an open file.
    LinkOpen {
        slot: u8,
        to: Path,
    },
    Sync,
    Readdir {
        path: Path,
        page_bytes: u32,
    },
    Setxattr {
        path: Path,
        name: XattrName,
        len: u32,
        salt: u8,
        flags: u32,
    },
    Getxattr {
        path: Path,
        name: XattrName,
    },
    Listxattr {
        path: Path,
    },
    Removexattr {
        path: Path,
        name: XattrName,
    },
}

/// `RENAME_NOREPLACE`.
pub const NOREPLACE: u32 = 1;
/// `RENAME_EXCHANGE`.
pub const EXCHANGE: u32 = 2;
pub const XATTR_CREATE: u32 = 1;
pub const XATTR_REPLACE: u32 = 2;
/// Open files of one sequence.
pub const SLOTS: u8 = 6;

/// The name of a test's extended attribute.
#[must_use]
pub fn xattr_name(name: XattrName) -> String {
    format!("user.x{name}")
}

/// Bytes that tell the write and the place in it they come from.
#[must_use]
pub fn pattern(salt: u8, len: usize) -> Vec<u8> {
    (0..len).map(|index| salt ^ (index as u8).wrapping_mul(31) ^ (index >> 8) as u8).collect()
}

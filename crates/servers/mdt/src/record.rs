//! Records of the MDT: little-endian structs, `{type u8, version u8, length u16}` first.
//!
//! A reader accepts a longer record of a later version and ignores its tail. It refuses another
//! type, and a length that the bytes do not have. `docs/formats/` draws the records.

use layout::StripeSet;
use types::{Fid, Timespec};
use wire::Attr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Inode record.
const TYPE_INODE: u8 = 1;
/// Directory entry.
const TYPE_DIRENT: u8 = 2;
/// Objects to destroy.
const TYPE_DESTROY: u8 = 3;
/// Version of all of them.
const VERSION: u8 = 1;

/// Bit of [`Inode::flags`]: `Table::Layouts` holds a layout (file) or a default template
/// (directory).
pub(crate) const INODE_HAS_LAYOUT: u32 = 1;
/// Bit of [`Inode::flags`]: there is an access ACL.
pub(crate) const INODE_HAS_ACL: u32 = 2;
/// Bit of [`Inode::flags`]: there is a default ACL.
pub(crate) const INODE_HAS_DEFAULT_ACL: u32 = 4;
/// Bit of [`Inode::flags`]: there are extended attributes.
pub(crate) const INODE_HAS_XATTR: u32 = 8;
/// Bit of [`Inode::flags`]: an orphan record exists (no name is left, but somebody has it open).
pub(crate) const INODE_ORPHAN: u32 = 16;
/// Bit of [`Inode::flags`]: made without a name (O_TMPFILE), and a link may give it one.
pub(crate) const INODE_LINKABLE: u32 = 32;
/// Bit of [`Inode::flags`]: a directory or shard whose names move to or from other shards. Its
/// striping is stored with it.
pub(crate) const INODE_MOVES: u32 = 64;

/// An inode: 176 bytes, behind it the target of a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct InodeFixed {
    kind: u8,
    version: u8,
    length: u16,
    flags: u32,
    attr: Attr,
    parent_seq: u64,
    parent_oid: u32,
    parent_ver: u32,
    mtime_set: i64,
    mtime_set_nsec: u32,
    /// Zero in records of before it had a meaning.
    depth: u32,
    /// Zero in records of before it had a meaning: nothing is known.
    stripes: u64,
}

const _: () = assert!(size_of::<InodeFixed>() == 176);

/// Behind an inode of a file that has objects of stripes from 64 on: 16 bytes, behind it the second
/// part of the set of these stripes. Programs of before this was written do not read it, and keep
/// it while they change the rest. It holds only for the layout and the first part that it names.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MoreStripes {
    mark: [u8; 4],
    layout_version: u32,
    first_part: u64,
}

/// [`MoreStripes::mark`].
const MORE_STRIPES: [u8; 4] = *b"strp";

/// An inode in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    /// Attributes as they travel.
    pub(crate) attr: Attr,
    /// `INODE_*`.
    pub(crate) flags: u32,
    /// Directories: where ".." leads.
    pub(crate) parent: Fid,
    /// When somebody last set mtime by hand: an older write does not win over it.
    pub(crate) mtime_set: Timespec,
    /// Stripes that have an object, as a closing client stated. Objects go only with their file, so
    /// these stay until a truncate to nothing: then no object needs to be there.
    pub(crate) stripes: StripeSet,
    /// Directories: levels between it and the root when it was made. A rename does not change it.
    pub(crate) depth: u32,
    /// Target of a symbolic link.
    pub(crate) symlink: Vec<u8>,
}

impl Inode {
    pub(crate) fn fid(&self) -> Fid {
        self.attr.fid()
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let more = self.more_stripes();
        let tail = if more.is_empty() { &self.symlink } else { &more };
        let length = size_of::<InodeFixed>() + tail.len();
        let fixed = InodeFixed {
            kind: TYPE_INODE,
            version: VERSION,
            length: u16::try_from(length).expect("a symbolic link is bounded, and stripes are"),
            flags: self.flags,
            attr: self.attr,
            parent_seq: self.parent.seq,
            parent_oid: self.parent.oid,
            parent_ver: self.parent.ver,
            mtime_set: self.mtime_set.sec,
            mtime_set_nsec: self.mtime_set.nsec,
            depth: self.depth,
            stripes: self.stripes.first_part(),
        };
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(fixed.as_bytes());
        out.extend_from_slice(tail);
        assert_eq!(out.len(), length, "a record is as long as it says");
        out
    }

    pub(crate) fn decode(value: &[u8]) -> Option<Inode> {
        let (fixed, rest) = InodeFixed::read_from_prefix(value).ok()?;
        let tail = rest.get(..usize::from(fixed.length).checked_sub(size_of::<InodeFixed>())?)?;
        let known = fixed.kind == TYPE_INODE && fixed.version >= VERSION;
        let more = if fixed.attr.is_file() { second_part(&fixed, tail) } else { None };
        let symlink: &[u8] = if more.is_some() { &[] } else { tail };
        known.then(|| Inode {
            attr: fixed.attr,
            flags: fixed.flags,
            parent: Fid { seq: fixed.parent_seq, oid: fixed.parent_oid, ver: fixed.parent_ver },
            mtime_set: Timespec::new(fixed.mtime_set, fixed.mtime_set_nsec),
            stripes: StripeSet::from_parts(fixed.stripes, more.unwrap_or_default()),
            depth: fixed.depth,
            symlink: symlink.to_vec(),
        })
    }

    /// What is behind the record for stripes from 64 on; empty where there are none.
    fn more_stripes(&self) -> Vec<u8> {
        let second_part = self.stripes.second_part();
        if second_part.is_empty() || !self.attr.is_file() {
            return Vec::new();
        }
        let head = MoreStripes {
            mark: MORE_STRIPES,
            layout_version: self.attr.layout_version,
            first_part: self.stripes.first_part(),
        };
        [head.as_bytes(), second_part.as_slice()].concat()
    }
}

/// The second part of a file's stripes in what is behind its inode; empty where another program has
/// changed the inode meanwhile. None: something else is there.
fn second_part<'a>(fixed: &InodeFixed, tail: &'a [u8]) -> Option<&'a [u8]> {
    let (head, rest) = MoreStripes::read_from_prefix(tail).ok()?;
    if head.mark != MORE_STRIPES {
        return None;
    }
    let holds =
        (head.layout_version, head.first_part) == (fixed.attr.layout_version, fixed.stripes);
    Some(if holds { rest } else { &[] })
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct DirentFixed {
    kind: u8,
    version: u8,
    length: u16,
    file_type: u32,
    seq: u64,
    oid: u32,
    ver: u32,
}

/// A directory entry: 24 bytes, behind it the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirentRecord {
    /// The file.
    pub(crate) fid: Fid,
    /// Type bits of its mode.
    pub(crate) file_type: u32,
    /// Its name there.
    pub(crate) name: Vec<u8>,
}

impl DirentRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let length = size_of::<DirentFixed>() + self.name.len();
        let fixed = DirentFixed {
            kind: TYPE_DIRENT,
            version: VERSION,
            length: u16::try_from(length).expect("a name is bounded"),
            file_type: self.file_type,
            seq: self.fid.seq,
            oid: self.fid.oid,
            ver: self.fid.ver,
        };
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(fixed.as_bytes());
        out.extend_from_slice(&self.name);
        out
    }

    pub(crate) fn decode(value: &[u8]) -> Option<DirentRecord> {
        let (fixed, rest) = DirentFixed::read_from_prefix(value).ok()?;
        let name = rest.get(..usize::from(fixed.length).checked_sub(size_of::<DirentFixed>())?)?;
        let known = fixed.kind == TYPE_DIRENT && fixed.version >= VERSION;
        known.then(|| DirentRecord {
            fid: Fid { seq: fixed.seq, oid: fixed.oid, ver: fixed.ver },
            file_type: fixed.file_type,
            name: name.to_vec(),
        })
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct DestroyFixed {
    kind: u8,
    version: u8,
    length: u16,
    count: u32,
    seq: u64,
    oid: u32,
    ver: u32,
}

/// Objects of a removed file: 24 bytes, behind it the OST index of each stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DestroyRecord {
    /// Object base.
    pub(crate) base: Fid,
    /// OST of stripe i.
    pub(crate) osts: Vec<u32>,
}

impl DestroyRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let length = size_of::<DestroyFixed>() + 4 * self.osts.len();
        let fixed = DestroyFixed {
            kind: TYPE_DESTROY,
            version: VERSION,
            length: u16::try_from(length).expect("a file has at most 2,000 stripes"),
            count: self.osts.len() as u32,
            seq: self.base.seq,
            oid: self.base.oid,
            ver: self.base.ver,
        };
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(fixed.as_bytes());
        out.extend_from_slice(self.osts.as_bytes());
        out
    }

    pub(crate) fn decode(value: &[u8]) -> Option<DestroyRecord> {
        let (fixed, rest) = DestroyFixed::read_from_prefix(value).ok()?;
        let osts = rest.get(..4 * fixed.count as usize)?;
        let known = fixed.kind == TYPE_DESTROY && fixed.version >= VERSION;
        known.then(|| DestroyRecord {
            base: Fid { seq: fixed.seq, oid: fixed.oid, ver: fixed.ver },
            osts: osts
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes(word.try_into().expect("a chunk of four")))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_go_there_and_back_and_no_cut_of_one_is_taken() {
        let inode = Inode {
            attr: Attr { mode: 0o120_777, nlink: 1, ..Attr::default() }.with_fid(Fid::new(7, 8)),
            flags: INODE_HAS_ACL,
            parent: Fid::ROOT,
            mtime_set: Timespec::new(-1, 5),
            stripes: StripeSet::from(1u64 << 63 | 5),
            depth: 3,
            symlink: b"over/there".to_vec(),
        };
        let dirent = DirentRecord {
            fid: Fid::new(1, 2),
            file_type: wire::attr::S_IFREG,
            name: b"a".to_vec(),
        };
        let destroy = DestroyRecord { base: Fid::new(3, 4), osts: vec![5, 0, 9] };
        let (i, d, o) = (inode.encode(), dirent.encode(), destroy.encode());
        assert_eq!(Inode::decode(&i), Some(inode));
        assert_eq!(DirentRecord::decode(&d), Some(dirent));
        assert_eq!(DestroyRecord::decode(&o), Some(destroy));
        assert!((0..i.len()).all(|len| Inode::decode(&i[..len]).is_none()));
        assert!((0..d.len()).all(|len| DirentRecord::decode(&d[..len]).is_none()));
        assert!((0..o.len()).all(|len| DestroyRecord::decode(&o[..len]).is_none()));
        assert_eq!(Inode::decode(&d), None, "another type is refused");
    }

    fn striped(stripes: StripeSet) -> Inode {
        let attr = Attr { mode: 0o100_644, nlink: 1, layout_version: 3, ..Attr::default() };
        Inode {
            attr: attr.with_fid(Fid::new(7, 8)),
            flags: INODE_HAS_LAYOUT,
            parent: Fid::ROOT,
            mtime_set: Timespec::default(),
            stripes,
            depth: 0,
            symlink: Vec::new(),
        }
    }

    #[test]
    fn any_stripe_of_a_file_is_kept_and_few_take_no_room() {
        let few = striped(StripeSet::from(u64::MAX));
        assert_eq!(few.encode().len(), size_of::<InodeFixed>(), "as ever");
        let many = striped([1, 64, 1_999].into_iter().collect());
        let bytes = many.encode();
        assert_eq!(bytes.len(), size_of::<InodeFixed>() + 16 + 31 * 8);
        assert_eq!(Inode::decode(&bytes), Some(many));
        assert!((0..bytes.len()).all(|len| Inode::decode(&bytes[..len]).is_none()));
    }

    #[test]
    fn stripes_that_an_older_program_went_past_say_nothing() {
        let many = striped([1, 64].into_iter().collect());
        let changed = |change: fn(&mut InodeFixed)| {
            let bytes = many.encode();
            let (mut fixed, tail) = InodeFixed::read_from_prefix(&bytes).expect("an inode");
            change(&mut fixed);
            Inode::decode(&[fixed.as_bytes(), tail].concat()).expect("an inode").stripes
        };
        assert_eq!(changed(|fixed| fixed.attr.mode = 0o100_600), many.stripes);
        assert!(changed(|fixed| fixed.stripes = 0).is_empty(), "cut to nothing");
        let other = changed(|fixed| fixed.attr.layout_version += 1);
        assert_eq!(other, StripeSet::from(2u64), "another layout");
    }
}

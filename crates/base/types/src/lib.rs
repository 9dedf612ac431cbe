//! The types that every part of Nacre shares: ids, addresses, times, access lists and errors, one
//! newtype each.
//!
//! Nothing here decides or performs anything. A value that exists is valid, because parsing rejects
//! bad input.

#![warn(missing_docs)]

mod acl;
mod byte_size;
mod counter;
mod errno;
mod fid;
mod histogram;
mod nid;
mod nid_list;
mod printable;
mod role;
mod split_mix;
mod target;
mod time;

pub use acl::Acl;
pub use byte_size::{ByteSize, ByteSizeError};
pub use counter::{Counter, CounterTable, Detail, Row};
pub use errno::Errno;
pub use fid::{FID_FIRST_NORMAL_SEQ, FID_SEQUENCES_PER_MDT_BITS, Fid, ParseFidError};
pub use histogram::{Histogram, Histograms};
pub use nid::{Net, Nid, NidAddr, PORT_DEFAULT, ParseNidError};
pub use nid_list::{NID_LIST_BYTES_MAX, NID_LIST_NIDS_MAX, NidList, NidListError, TooManyNids};
pub use printable::printable;
pub use role::Role;
pub use split_mix::SplitMix64;
pub use target::{
    DOM_FIRST, FsName, MDTS_MAX, ParseTargetError, TARGET_INDEX_MAX, TargetId, TargetKind,
};
pub use time::{Instant, Span, Timespec};

/// Supplementary groups that one request may carry: the kernel's own bound is 65,536, a request's
/// is a page.
pub const GROUPS_MAX: usize = 1_024;

/// Longest name of a directory entry, bytes (NAME_MAX).
pub const NAME_BYTES_MAX: usize = 255;

/// Longest symbolic link target, bytes (PATH_MAX without the NUL).
pub const SYMLINK_BYTES_MAX: usize = 4_095;

/// Number of a request at its client: rises, never reused within a session (Lustre: `xid`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(pub u64);

/// Place of a change in a target's history. Upper 32 bits: boot epoch of the target; lower: counter
/// from 1.
///
/// Zero means "changed nothing" (Lustre: `transno`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transno(pub u64);

impl Transno {
    /// Of a request that changed nothing.
    pub const NONE: Transno = Transno(0);

    /// First transno of a boot epoch.
    #[must_use]
    pub fn first_of_epoch(epoch: u32) -> Transno {
        Transno((u64::from(epoch) << 32) | 1)
    }

    /// Whether the request changed nothing.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The next place in history.
    #[must_use]
    pub fn next(self) -> Transno {
        Transno(self.0 + 1)
    }
}

/// Identity of a client mount for its whole life, chosen at random by the client (Lustre: client
/// UUID).
///
/// A peer that knows the whole number can take the client's place. So `{}` shows the upper 32 bits
/// alone, which name the client's parameters too. `{:x}` is the whole number, for records that no
/// other user reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u128);

impl ClientId {
    /// Stands for all clients in a fence. No client is called so: servers let none in.
    pub const EVERYBODY: ClientId = ClientId(u128::MAX);
}

impl std::fmt::Display for ClientId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

impl std::fmt::LowerHex for ClientId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// One run of a target: its boot epoch, raised durably before it accepts a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance(pub u64);

/// Index of an OST in its file system; stable for its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OstIndex(pub u32);

/// Index of an MDT in its file system; stable for its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MdtIndex(pub u32);

/// Index of a CPU partition of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CptIndex(pub u32);

/// Half-open byte range `[start, end)`; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    start: u64,
    end: u64,
}

impl Extent {
    /// The whole file.
    pub const ALL: Extent = Extent { start: 0, end: u64::MAX };

    /// `[start, end)`, or nothing where that is empty.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Option<Extent> {
        (start < end).then_some(Extent { start, end })
    }

    /// Offset of the first byte.
    #[must_use]
    pub fn start(self) -> u64 {
        self.start
    }

    /// First byte behind it.
    #[must_use]
    pub fn end(self) -> u64 {
        self.end
    }

    /// The shortest extent that has both.
    #[must_use]
    pub fn hull(self, other: Extent) -> Extent {
        Extent { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// Whether the two share a byte.
    #[must_use]
    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Who asks: the identity under which a server checks permissions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Creds {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups, at most [`GROUPS_MAX`].
    pub groups: Vec<u32>,
}

impl Creds {
    /// The superuser without supplementary groups.
    #[must_use]
    pub fn root() -> Creds {
        Creds::default()
    }

    /// Supplementary groups in the text of a thread's `/proc/PID/status`: at most [`GROUPS_MAX`].
    #[must_use]
    pub fn groups_in(status: &str) -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
        line.split_whitespace().filter_map(|gid| gid.parse().ok()).take(GROUPS_MAX).collect()
    }

    /// Whether `gid` is the effective or a supplementary group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientId, Creds, GROUPS_MAX};

    #[test]
    fn a_client_is_shown_by_a_quarter_of_its_number() {
        let client = ClientId(0x9a80_1122_3344_5566_7788_99aa_bbcc_ddee);
        assert_eq!(client.to_string(), "9a801122");
        assert_eq!(format!("{client:x}"), "9a80112233445566778899aabbccddee");
        assert_eq!(ClientId(7).to_string(), "00000000");
    }

    #[test]
    fn groups_are_read_from_their_line_up_to_the_bound() {
        assert_eq!(Creds::groups_in("Name:\tx\nGroups:\t4 20 1000 \nSigPnd:\t0\n"), [4, 20, 1000]);
        assert!(Creds::groups_in("Name:\tx\nGroups:\t \n").is_empty());
        assert!(Creds::groups_in("Name:\tx\n").is_empty());
        let many = format!("Groups:{}\n", " 7".repeat(GROUPS_MAX + 1));
        assert_eq!(Creds::groups_in(&many).len(), GROUPS_MAX);
    }
}

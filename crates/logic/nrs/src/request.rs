//! The view of a request that a policy gets.

use types::{Extent, Fid, Instant, Nid, OstIndex};
use wire::Opcode;

/// A request's identity of which the sender named none: uid, gid, projid, nodemap (Lustre: -1).
pub const ID_NONE: u32 = u32::MAX;

/// Whether a request moves data, and which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Io {
    Read,
    Write,
    Other,
}

/// Accessors of a queued request. All of them are pure and answer the same for as long as the
/// request is queued: what takes time (finding the export, asking the disk for an extent) is done
/// before the request is queued.
pub trait Request {
    /// Address of the node that sent it.
    fn nid(&self) -> Nid;
    /// The connection it came through, unique in the process; `None` for a request without one.
    fn export(&self) -> Option<u64>;
    /// What it asks for.
    fn opcode(&self) -> Opcode;
    /// Whether it moves data.
    fn io(&self) -> Io {
        match self.opcode() {
            Opcode::OstRead => Io::Read,
            Opcode::OstWrite => Io::Write,
            _ => Io::Other,
        }
    }
    /// Of the process on the client, or [`ID_NONE`].
    fn uid(&self) -> u32 {
        ID_NONE
    }
    /// Of the process on the client, or [`ID_NONE`].
    fn gid(&self) -> u32 {
        ID_NONE
    }
    /// Project of the file, in a request by an open handle, or [`ID_NONE`].
    fn projid(&self) -> u32 {
        ID_NONE
    }
    /// Tenant, or [`ID_NONE`].
    fn nodemap(&self) -> u32 {
        ID_NONE
    }
    /// Label of the job, empty if it has none.
    fn jobid(&self) -> &str {
        ""
    }
    /// The OST it goes to, if it goes to one.
    fn ost_index(&self) -> Option<OstIndex> {
        None
    }
    /// The object whose data it moves.
    fn object(&self) -> Option<Fid> {
        None
    }
    /// From its first to behind its last byte, holes included.
    fn range(&self) -> Option<Extent> {
        None
    }
    /// Where the first byte of `range` lies on the disk, bytes, if that was found out.
    fn physical_start(&self) -> Option<u64> {
        None
    }
    /// Bytes of data it moves.
    fn bytes(&self) -> u64 {
        0
    }
    fn arrival(&self) -> Instant;
    /// No policy may hold it beyond this: its sender cannot be kept waiting longer than arrival +
    /// `at_max` - `at_early_margin`. Expected to grow with the arrival.
    fn leave_by(&self) -> Instant;
}

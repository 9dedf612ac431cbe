//! FIDs as bodies hold them.

use types::Fid;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A FID in a message: 16 bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct WireFid {
    /// Sequence of the FID.
    pub seq: u64,
    /// Number in that sequence.
    pub oid: u32,
    /// Version, or stripe index.
    pub ver: u32,
}

impl From<Fid> for WireFid {
    fn from(fid: Fid) -> WireFid {
        WireFid { seq: fid.seq, oid: fid.oid, ver: fid.ver }
    }
}

impl From<WireFid> for Fid {
    fn from(fid: WireFid) -> Fid {
        Fid { seq: fid.seq, oid: fid.oid, ver: fid.ver }
    }
}

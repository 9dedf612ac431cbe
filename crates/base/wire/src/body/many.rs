//! Bodies of requests about many files.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{CloseReq, WireFid};
use crate::flags::GetattrsFlags;
use crate::{Request, decode_body};

bodies! {
    /// Getattr of many files. Buffer 1: their FIDs; where `parent` is not zero, their names in that
    /// directory, each with a NUL behind it.
    GetattrsReq (32) {
        /// Directory of the names; zero: files are named by their FIDs.
        parent: WireFid,
        /// Files asked for.
        count: u32,
        /// What is answered.
        flags: GetattrsFlags,
        /// Bytes of answers wanted at most.
        bytes_max: u32,
        /// Zero.
        reserved: u32,
    }
    /// Reply to getattrs. Buffer 1: [`crate::stats`] records, in the order asked for.
    GetattrsRep (16) {
        /// Files that are answered: the first ones of those asked for, at least one.
        count: u32,
        /// Zero.
        reserved: u32,
        /// Names all that this reply grants: it rises.
        grant: u64,
    }
    /// Closes of several files. Buffer 1: a [`CloseReq`](super::CloseReq) for each, no two of one
    /// file. A close that names stripes from 64 on goes alone.
    ClosesReq (8) {
        /// Closes, between 1 and [`CLOSES_MAX`].
        count: u32,
        /// Zero.
        reserved: u32,
    }
    /// Reply to closes. Buffer 1: [`crate::stats`] records without layouts, one for each close, in
    /// the order asked for.
    ClosesRep (8) {
        /// Closes that are answered: as many as were asked for.
        count: u32,
        /// Zero.
        reserved: u32,
    }
}

/// Closes of one request at most: their answers are as small as those of other requests (16 KiB),
/// and one transaction with them is short.
pub const CLOSES_MAX: usize = 64;

const _: () = assert!(CLOSES_MAX * crate::stats::HEADER_BYTES + size_of::<ClosesRep>() <= 16 << 10);

/// The closes of a request; `None` where they are none, more than [`CLOSES_MAX`], or not as many as
/// it says.
#[must_use]
pub fn closes(request: &Request) -> Option<Vec<CloseReq>> {
    let bytes = request.buf(1);
    let (each, rest) = bytes.as_chunks::<{ size_of::<CloseReq>() }>();
    let count = request.body::<ClosesReq>().count as usize;
    let is_whole = rest.is_empty() && each.len() == count && (1..=CLOSES_MAX).contains(&count);
    is_whole.then(|| each.iter().map(|close| decode_body(close)).collect())
}

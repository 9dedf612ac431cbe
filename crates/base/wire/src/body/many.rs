//! Bodies of requests about many files.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::WireFid;
use crate::flags::GetattrsFlags;

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
}

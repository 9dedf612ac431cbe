//! Bodies of requests and callbacks about grants.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::WireFid;
use crate::flags::{GrantBits, GrantsFlags};

bodies! {
    /// Head of a vector of grants, which is buffer 1 ([`crate::grants`]): of a callback, and of
    /// what a client tells of its grants.
    GrantsReq (16) {
        /// Elements of buffer 1.
        count: u32,
        /// What it says of the whole.
        flags: GrantsFlags,
        /// Zero.
        reserved: u64,
    }
    /// Reply to a callback, its errors too: the session that it is an answer in. Buffer 1: of a
    /// recall the [`GrantAck`]s that are ready at once, of a glimpse [`GrantSize`]s.
    CallbackRep (16) {
        /// Session of the client with the target.
        session: u64,
        /// The target, as in request headers.
        target: u32,
        /// Elements of buffer 1.
        count: u32,
    }
    /// Of one file: what is recalled, free, held, or asked for.
    GrantWord (32) {
        /// FID of the file.
        fid: WireFid,
        /// Number of the gift or recall; they rise. Completion: the cookie of the wait.
        number: u64,
        /// Recall: all that is asked back and not acknowledged. Shed, restate: what is held.
        bits: GrantBits,
        /// Zero.
        reserved: u16,
        /// Zero.
        reserved2: u32,
    }
    /// An acknowledgement: all bits of that recall are given up.
    GrantAck (48) {
        /// FID of the file.
        fid: WireFid,
        /// Number of the recall.
        number: u64,
        /// What is kept.
        kept: GrantBits,
        /// Zero.
        reserved: u16,
        /// With OPEN given up: handles that are open for reading,
        readers: u32,
        /// for writing,
        writers: u32,
        /// and to run the file.
        runners: u32,
        /// Zero.
        reserved2: u64,
    }
    /// Answer to a glimpse, of one file.
    GrantSize (64) {
        /// FID of the file.
        fid: WireFid,
        /// 1: the client writes it, and the rest counts.
        known: u32,
        /// Nanoseconds of mtime.
        mtime_nsec: u32,
        /// Bytes.
        size: u64,
        /// Units of 512 bytes.
        blocks: u64,
        /// Last write, seconds since 1970.
        mtime: i64,
        /// The open-for-write count under which the size is known.
        write_epoch: u64,
        /// Zero.
        reserved: u64,
    }
}

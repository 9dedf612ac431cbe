//! Every message of Nacre and its bytes: frames, request and reply headers, bodies, versions.
//!
//! An LND carries **frames** ([`Frame`]). A request or reply frame holds a fixed header and up to
//! [`BUFS_MAX`] buffers, each with its own length. Buffer 0 of a request is its body, a fixed
//! little-endian struct ([`body`]); names, layouts and inline data follow. **Readers ignore a
//! longer body and zero-extend a shorter one**: fields are appended, never reused, so an old and a
//! new node understand each other.
//!
//! Decoding checks every length before it allocates, never panics, and never trusts a count.

#![warn(missing_docs)]

#[cfg(target_endian = "big")]
compile_error!(
    "messages are little-endian structs used in place: a big-endian host needs conversions first"
);

pub mod attr;
pub mod body;
pub mod config;
pub mod dirent;
mod flags;
mod frame;
pub mod grants;
pub mod lst;
mod message;
mod opcode;
mod parts;
pub mod stats;
pub mod updates;
mod values;

pub use attr::{Attr, SizeState};
pub use flags::{ReplyFlags, RequestFlags};
pub use frame::{
    CrcMode, FRAME_BYTES_MAX, FRAME_HEADER_BYTES, FRAME_MAGIC, Frame, FrameError, FrameHeader,
    FrameKind, Hello, HelloRefusal,
};
pub use message::{
    BUFS_MAX, Message, MessageError, OPEN_BUFS, PROJID_NONE, REPLY_HEADER_BYTES,
    REQUEST_HEADER_BYTES, Reply, ReplyHeader, Request, RequestHeader, decode_body, encode_body,
};
pub use opcode::Opcode;
pub use parts::Parts;

/// Version of the protocol; HELLO carries it and a node refuses a lower one than [`VERSION_MIN`].
pub const VERSION: u16 = 1;
/// Oldest version that this code speaks.
pub const VERSION_MIN: u16 = 1;

/// Data up to this size rides inside a request or a reply, without a bulk phase (Lustre: short I/O,
/// 16 KiB).
pub const INLINE_BYTES_DEFAULT: u32 = 64 << 10;

/// Most bytes of a file that one request makes with all of them: what rides inside a request.
pub const PUT_BYTES_MAX: usize = INLINE_BYTES_DEFAULT as usize;

/// Largest bulk transfer of one RPC.
pub const BULK_BYTES_MAX: u32 = 4 << 20;

const _: () = assert!(BULK_BYTES_MAX as usize + FRAME_HEADER_BYTES <= FRAME_BYTES_MAX);
const _: () = assert!((INLINE_BYTES_DEFAULT as usize) < BULK_BYTES_MAX as usize);

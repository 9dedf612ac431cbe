//! The oracle: a reference file system, random operations that fit it, and the comparison of every
//! answer.
//!
//! A [`Runner`] carries an [`Op`] out through the client library and in the [`Model`], and reports
//! where the two differ. It is one sequential user of a directory of its own. Whatever happens to
//! servers and network meanwhile, the answers equal the model's, or a promise is broken.
//! [`verify_tree`] compares a whole tree through any client; [`shrink`] shortens a failing
//! sequence. Calls of several users on the same files are recorded as a [`history`], which some
//! order of the calls must explain.

mod check;
pub mod diary;
mod generate;
pub mod history;
mod model;
mod op;
mod place;
mod run;
mod shrink;
mod verify;

pub use check::explains;
pub use generate::{Taste, next_op};
pub use model::{BLOCK_BYTES, Body, Expect, Ino, Model, Node, ROOT, Slot, Unsynced};
pub use op::{
    EXCHANGE, NOREPLACE, Op, Path, SLOTS, XATTR_CREATE, XATTR_REPLACE, XattrName, pattern,
    xattr_name,
};
pub use place::{mkdir_at, mkdir_striped};
pub use run::{Answer, Mirror, Mismatch, Placing, Runner, read_entries, read_names, test_ctx};
pub use shrink::shrink;
pub use verify::{read_file, read_summary, verify_tree};

/// A short mark of some bytes, for summaries.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64 ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// How [`Model::summary`] and [`read_summary`] write one file down.
fn summary_line(
    mode: u32,
    nlink: u32,
    owner: (u32, u32),
    target: &str,
    xattrs: &[(XattrName, u64)],
) -> String {
    format!("{mode:o} {nlink} {}:{} '{target}' {xattrs:?}", owner.0, owner.1)
}

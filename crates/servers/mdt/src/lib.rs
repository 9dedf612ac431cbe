//! The metadata target: names, inodes, layouts, open files and locks of one MDT.
//!
//! # Bodies of replies
//!
//! Buffer 0 is the body, buffer 1 the data that belongs to it:
//!
//! | operation | buffer 0 | buffer 1 |
//! |---|---|---|
//! | getattr, lookup, create, open, setattr, link, close, setxattr, removexattr | `AttrRep` of the file | layout record (file), default template (directory), or empty |
//! | unlink, rename | `AttrRep` of the file that lost or changed its name | empty |
//!
//! Behind those of a create and an unlink may stand buffer 2, `DirRep`: the directory after it,
//! where it is leased.
//!
//! | operation | buffer 0 | buffer 1 |
//! |---|---|---|
//! | readdir | `ReaddirRep` | `wire::dirent` records |
//! | readlink | empty | target of the link |
//! | getxattr | empty | value |
//! | listxattr | empty | names, each with a NUL behind it |
//! | fid2path | empty | paths from the root (no leading slash; empty for the root), each with a NUL behind it |
//! | statfs | `StatfsRep` | |
//! | sync | `SyncRep` | |
//! | lock, unlock | `LockRep` | |
//!
//! `listxattr` tells `lustre.lov` (and `trusted.lov` to root) where there is a layout or a default,
//! and `getxattr` and `setxattr` take those names with the binary value of `lustre.lov`.

mod acl;
mod background;
mod boot;
mod burnt;
mod config;
mod engine;
#[doc(hidden)]
pub mod fuzz;
mod hash;
mod ids;
mod keys;
mod leases;
mod limits;
mod locks;
mod op;
mod opens;
mod perm;
mod record;
mod share;
mod spaces;
mod state;
mod tally;
mod target;
#[cfg(test)]
mod tests;
mod tx;

pub use self::target::Mdt;
pub use config::{Bugs, Lod, MdtConfig};
pub use spaces::OstAt;

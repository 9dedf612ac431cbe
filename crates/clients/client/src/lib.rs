//! The native client: a mounted Nacre file system as an asynchronous library, without FUSE and
//! without a kernel.
//!
//! ```text
//!  Client::mount        from the MGS: where the targets are
//!  namespace/           names and attributes: one request to the MDT each
//!  data/                bytes: a range becomes pieces, pieces become requests to OSTs, in parallel
//!  locks, xattr, statfs
//! ```
//!
//! # Use
//! [`Client::mount`] takes an environment ([`env::Env`]) and a [`MountConfig`] and returns a
//! [`Client`], a cheap handle that lives on one executor thread. Calls name files by FID.
//! [`Client::lookup`] or [`Client::lookup_path`] find a FID by name; [`Client::create`] and
//! [`Client::open`] return a [`File`] to read, write and close. [`Client::put`] makes a small file
//! with all of its bytes, in one request where it fits at the MDT. Each call carries a [`Ctx`],
//! which identifies the user on whose behalf it runs. The servers check permissions.
//! `examples/hello.rs` is a whole program.
//!
//! ```no_run
//! # async fn example(env: env::Env, config: client::MountConfig) -> client::Result<()> {
//! use client::{Client, Ctx, flags};
//! use types::Fid;
//!
//! let client = Client::mount(&env, config).await?;
//! let me = Ctx::root();
//! let (_, file) = client.create(&me, Fid::ROOT, b"hello", 0o644, flags::O_RDWR, None).await?;
//! file.write(0, "hello, world".into()).await?;
//! assert_eq!(&file.read(0, 64).await?[..], b"hello, world");
//! file.close().await?;
//! client.unmount().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Promises
//! - The client reuses nothing from an earlier call unless it cannot be wrong ([`Lease`]). When a
//!   write has returned, a read on any client sees it.
//! - A call whose server is away waits, without limit unless the mount is soft.
//!   [`Client::waiting_on`] names the servers. Acknowledged work survives the restart of any
//!   server.
//! - Dropping a call's future withdraws a change: the client does not send it again, and its server
//!   drops it unless it has begun. Operations of several steps (append, truncate, open, close) then
//!   run to their end in the background. No operation is left half done, and no handle leaks.
//! - Errors carry the errno for the application, and name the target and the operation ([`Error`]).
//!
//! Lustre: `llite` without the kernel, `lmv`, `lov`, `mdc` and `osc`.

#![warn(missing_docs)]

mod api;
mod atime;
mod client;
mod config;
mod data;
mod error;
mod file;
pub mod flags;
mod grants;
mod handle;
#[cfg(test)]
mod hostile;
mod inode;
mod join;
pub mod limits;
mod locks;
mod lost;
mod mount;
mod namespace;
mod operations;
mod resting;
mod size;
mod stat;
mod statahead;
mod statfs;
#[cfg(test)]
mod testing;
mod unconfirmed;
mod xattr;

pub use api::{
    Attr, DirPage, Glance, LockConflict, LockKind, LockMode, LockSpec, SeekFor, SetAttr, SetTime,
    Statfs, Striping, TargetSpace, TargetState,
};
pub use atime::{AccessTimes, Reads};
pub use client::Client;
pub use config::{Bugs, Ctx, MountConfig, RPC_BYTES_DEFAULT};
pub use data::{Appending, KeptStats, Migration, OnOpenStats};
pub use error::{Error, Result};
pub use file::File;
pub use grants::{Kernel, Lease, Lru};
pub use ldlm::grants::Bugs as GrantBugs;
pub use lost::Heard;
pub use namespace::{Behind, Listing, Looked, Objects};
pub use resting::OpenCacheStats;
pub use statahead::StataheadStats;
pub use unconfirmed::Unconfirmed;
pub use wire::body::StatfsState;
pub use wire::dirent::Dirent;

/// Whether the size of the file with these attributes must be asked of the OSTs
/// ([`Client::getattr_many`]).
#[must_use]
pub fn needs_glimpse(attr: &Attr) -> bool {
    attr.is_file() && attr.size_state() == wire::SizeState::Dirty
}

//! The kernel's FUSE protocol, on `/dev/fuse` or over io_uring: mounts, negotiates, receives
//! requests, returns answers.
//!
//! ```text
//!  kernel --- /dev/fuse --- Connection::serve --- Handler::handle(Request) --- Replier::reply
//!                 |  clones of the descriptor, each polled on the caller's own thread
//!                 |  or a ring with entries for the queue of every processor (`uring`)
//! ```
//!
//! - [`Connection::mount`] mounts and negotiates; [`Connection::serve`] runs until the mount is
//!   gone.
//! - A request is decoded, handed over and run to its first await on the thread that read it. Only
//!   a request that must wait becomes a task.
//! - If the serving process dies, its mount stays. The kernel closes the device, and every path of
//!   the mount is ENOTCONN until it is unmounted. No path leads to the directory below.
//! - A mount may have a guard, a process of its own ([`MountOptions::guard`]). Without it, a daemon
//!   that is killed while it notifies the kernel of a name may not end.
//! - Every request is answered exactly once: a [`Replier`] that is dropped unanswered answers EIO.
//! - An interrupt (a signal for the waiting caller) is reported through [`Replier::interrupted`];
//!   the handler decides.
//!
//! This crate uses the operating system and needs a tokio `LocalSet`. It is independent of Nacre.

#![allow(
    unsafe_code,
    reason = "ioctl, rings and descriptors passed between processes have no safe interface"
)]

pub mod abi;
mod caller;
mod connection;
mod device;
mod direct;
mod guard;
mod init;
mod mount;
mod notifier;
mod offer;
mod op;
mod origin;
mod pool;
mod readahead;
mod reply;
mod request;
mod request_size;
mod teller;
mod uring;

pub use caller::{
    command, environment, fatal_signal_pending, hostname, supplementary_groups, write_length,
};
pub use connection::{Connection, Handler, LocalFuture};
pub use direct::Direct;
pub use guard::run_guard;
pub use init::InitInfo;
pub use mount::{Channel, MountOptions, unmount_by_helper, unmount_detached};
pub use notifier::{Deaf, Hears, Name, Notifier};
pub use offer::UringOffer;
pub use op::{DecodeError, Header, Op, decode};
pub use reply::{Body, DirBuf, Reply};
pub use request::{Replier, Request};
pub use rustix::mount::MountFlags;

//! The body of `env` over the operating system: one tokio executor per thread, real clocks, two
//! LNDs.
//!
//! [`run`] makes an executor on the calling thread and hands an [`env::Env`] to `main`;
//! [`spawn_thread`] does so on a thread of its own. Everything made from an `Env` stays on its
//! thread. The network of the address decides which LND carries a link: `lo` stays inside this
//! process (and crosses threads), everything else is TCP.
//!
//! A task that panics ends the process: a broken invariant must not leave half a node running.

#![expect(
    unsafe_code,
    reason = "no crate here sets a memory policy (`bind`) or lets a timer be polled (`delay`)"
)]

mod bind;
mod body;
mod config;
mod delay;
mod executor;
mod gauge;
mod idle;
mod limits;
mod linger;
mod links;
mod lnd;
mod lnet;
mod lo;
mod rng;
mod runtime;
mod tcp;
mod topology;

pub use config::OsConfig;
pub use lnet::{Lnet, LnetSettings};
pub use runtime::{another, run, spawn_thread};
pub use topology::topology;

//! The daemons: targets served, a mount kept, a whole file system on one machine. Here the parts
//! meet the operating system: `env-os` is chosen, stores are opened, signals are heard, processes
//! are started and watched.
//!
//! | command | module |
//! |---|---|
//! | `nacre format` | [`format`] |
//! | `nacre serve` | [`serve`], over [`server`] |
//! | `nacre mount`, `nacre umount` | [`mount`], [`umount`] |
//! | `nacre up` | [`up`] |
//! | `nacre lst-node`, the console behind `lst` | [`lst`](mod@lst) |
//! | what `lctl` and `lfs` ask | [`ctl`], found through [`rundir`] |

#![warn(missing_docs)]

mod alias;
pub mod ctl;
pub mod format;
mod log;
pub mod lst;
pub mod machine;
mod metrics;
pub mod mount;
pub mod mounts;
pub mod panics;
mod permanent;
pub mod ping;
pub mod rundir;
pub mod serve;
pub mod server;
mod signals;
mod targets;
pub mod umount;
pub mod up;

/// Type of our mounts in the kernel's table.
pub const FUSE_TYPE: &str = "fuse.nacre";

//! The daemons: serve targets, keep a mount, run a whole file system on one machine. Here the parts
//! meet the operating system: this crate chooses `env-os`, opens stores, handles signals, and
//! starts and watches processes.
//!
//! | command | module |
//! |---|---|
//! | `nacre format` | [`mod@format`] |
//! | `nacre tune` | [`tune`] |
//! | `nacre serve` | [`serve`], over [`server`] |
//! | `nacre mount` with its guard, `nacre umount` | [`mount`], [`umount`] |
//! | `nacre up` | [`up`] |
//! | `nacre forget` | [`forget`](mod@forget) |
//! | `nacre export-meta` | [`export_meta`] |
//! | `nacre import-meta`, `nacre check-meta` | [`import_meta`], [`check_meta`] |
//! | `nacre fsck` | [`fsck`] |
//! | `nacre list-objects` | [`objects`] |
//! | `nacre unnamed` | [`unnamed`] |
//! | `nacre lst-node`, the console behind `lst` | [`lst`](mod@lst) |

mod alias;
pub mod check_meta;
pub mod executors;
pub mod export_meta;
pub mod forget;
pub mod format;
pub mod fsck;
pub mod import_meta;
mod log;
pub mod lst;
pub mod machine;
pub mod memory;
pub mod mount;
pub mod objects;
pub mod panics;
mod permanent;
pub mod ping;
pub mod pretend;
pub mod serve;
pub mod server;
mod signals;
mod targets;
pub mod tune;
pub mod umount;
pub mod unnamed;
pub mod up;

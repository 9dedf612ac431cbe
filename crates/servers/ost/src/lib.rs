//! The object storage target: objects of bytes behind locks, in the order of history (Lustre: `ofd`, `ost`).

#![warn(missing_docs)]

mod config;
mod target;

pub use config::{Bugs, OstConfig, StartError};
pub use target::Ost;

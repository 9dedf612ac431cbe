//! The management target: which targets a file system has, where they are, and its persistent parameters (Lustre: MGS).

#![warn(missing_docs)]

mod config;
mod target;

pub use config::{MgtConfig, StartError};
pub use target::Mgt;

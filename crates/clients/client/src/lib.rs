//! The native client library.
mod api;
mod config;
mod error;
mod skeleton;

pub use api::*;
pub use config::{Bugs, Ctx, MountConfig, RPC_BYTES_DEFAULT};
pub use error::{Error, Result};
pub use skeleton::{Client, File};

/// Whether the size of the file with these attributes must be asked of the OSTs ([`Client::getattr_many`]).
#[must_use]
pub fn needs_glimpse(attr: &Attr) -> bool {
    attr.is_file() && attr.size_state() == wire::SizeState::Dirty
}

//! The operations, by what they are about.

mod data;
pub(crate) mod dir;
mod lock;
mod namespace;
mod range;
mod xattr;

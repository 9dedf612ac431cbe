//! The operations, by what they are about.

mod data;
mod dir;
mod file;
mod lock;
mod namespace;
mod range;
mod whole;
mod xattr;

pub(crate) use xattr::Xattrs;

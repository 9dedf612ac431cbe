//! The operations, grouped by subject.

mod data;
mod dir;
mod file;
mod lock;
mod namespace;
mod range;
mod whole;
mod xattr;

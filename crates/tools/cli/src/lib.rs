//! `lfs`, `lctl` and `lst`: what users and administrators of Lustre type, with the output that
//! their scripts parse.
//!
//! Arguments are declared in each command's `Args`; what it does stands below. Data goes to stdout,
//! everything else to stderr. An exit status is the first error's number, 2 for wrong usage, 0 if
//! all went well.

mod failure;
mod form;
pub mod lctl;
pub mod lfs;
mod lov;
pub mod lst;
mod mountpoint;
mod out;
mod pools;
mod size;

pub use failure::Failed;

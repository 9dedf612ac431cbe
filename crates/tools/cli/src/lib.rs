//! `lfs`, `lctl` and `lst`: the commands of Lustre's users and administrators, with the output that
//! their scripts parse.
//!
//! Arguments are declared in each command's `Args`; the command's code follows below. Data goes to
//! stdout, everything else to stderr. The exit status is the number of the first error, 2 for wrong
//! usage, 0 for success.

mod failure;
mod form;
pub mod lctl;
pub mod lfs;
mod lmv;
mod lov;
pub mod lst;
mod mountpoint;
mod out;
mod pools;
mod size;
#[cfg(test)]
mod testing;

pub use failure::Failed;

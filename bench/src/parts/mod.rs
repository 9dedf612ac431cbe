//! The benchmarks, one file per subject. Each function is one part of a run.

pub(crate) mod before;
pub(crate) mod borders;
pub(crate) mod data;
pub(crate) mod devices;
pub(crate) mod dom;
pub(crate) mod drivers;
mod figures;
pub(crate) mod fio;
pub(crate) mod fuse;
pub(crate) mod layouts;
pub(crate) mod listing;
pub(crate) mod mdts;
pub(crate) mod metadata;
pub(crate) mod neighbours;
pub(crate) mod nodes;
pub(crate) mod pair;
pub(crate) mod pauses;
pub(crate) mod processes;
pub(crate) mod programs;
mod public;
pub(crate) mod rpc;
pub(crate) mod scheduler;
pub(crate) mod tests;
pub(crate) mod trees;
pub(crate) mod warm;
pub(crate) mod wide;
pub(crate) mod writes;

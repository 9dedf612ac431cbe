//! Benchmark drivers: metadata (`mdtest`), the RPC layer (`lnet`), FUSE itself (`fusedev`), bytes
//! (`ior`, `dd`), listings (`ls`). Each states a limit measured in the same run.

pub mod fusedev;
pub mod ior;
pub mod lnet;
pub mod ls;
pub mod mdtest;
mod setting;
mod stats;
mod steps;
mod tasks;

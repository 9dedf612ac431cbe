//! Drivers for measuring: metadata (`mdtest`) and the RPC layer (`lnet`). Each states a limit measured in the same run.

pub mod lnet;
pub mod mdtest;

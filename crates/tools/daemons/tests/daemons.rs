//! Tests of whole daemons in one binary: each would compile the same crates again.

// the fuzzer instruments all programs of a package: each links what instrumented code calls
use bolero as _;

mod executors;
mod lost_mgs;
mod storage;

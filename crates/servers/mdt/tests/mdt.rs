//! All tests of an MDT from outside in one binary: each would compile the same crates again.

// the fuzzer instruments all programs of a package: each links what instrumented code calls
use bolero as _;

#[path = "crossed/main.rs"]
mod crossed;
mod ranges;
mod recalled;
mod served;

//! All tests of the request scheduler in one binary: each would compile the same crates again.

mod closed;
mod commands;
mod common;
mod delay;
mod framework;
mod rounds;
mod slow_tbf;
mod storm;
mod tbf;

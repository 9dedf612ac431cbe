//! The LNet self-test over endpoint and service: `lst`'s node and its console.
//!
//! ```text
//!  lst -- Command --> Console -- LstControl --> SelfTest (source) == LstPing, LstBrw ==> SelfTest (destination)
//! ```
//! Every node serves a [`SelfTest`] under [`types::TargetId::LST`]. It joins one session at a time,
//! runs loops as a source and answers as a destination. A [`Console`] owns one session and talks to
//! its nodes. The crate `lst` decides; this crate carries the decisions out. Lustre uses portals
//! (50 for tests, 51 for the framework, 52 for bulk and replies); Nacre uses opcodes.

// the fuzzer instruments all programs of a package: each links what instrumented code calls
#[cfg(test)]
use bolero as _;

mod console;
mod data;
mod load;
mod peer;
mod target;

pub use console::Console;
pub use target::{SelfTest, SelfTestConfig, register};

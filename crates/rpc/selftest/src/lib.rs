//! The LNet self-test over endpoint and service: `lst`'s node and its console.
//!
//! ```text
//!  lst -- Command --> Console -- LstControl --> SelfTest (source) == LstPing, LstBrw ==> SelfTest (destination)
//! ```
//! Every node serves a [`SelfTest`] under [`types::TargetId::LST`]: it joins one session at a time,
//! runs loops as a source and answers as a destination. A [`Console`] owns one session and talks to
//! its nodes. What is decided is in `lst`; here it is carried out. Portals of Lustre: tests 50,
//! framework 51, bulk and replies 52; here opcodes.

mod console;
mod data;
mod load;
mod peer;
mod target;

pub use console::Console;
pub use target::{SelfTest, SelfTestConfig, register};

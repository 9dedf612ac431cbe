//! What threads meet through: the standard library's here, shuttle's where its tests look at the
//! same files (module `shuttled`).

pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
pub(super) use std::thread::{Builder, JoinHandle};

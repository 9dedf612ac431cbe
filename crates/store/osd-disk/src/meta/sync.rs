//! Synchronization types for threads: the standard library's, or shuttle's where its tests compile
//! the same files (module `shuttled`).

pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};

//! Synchronization types for threads: the standard library's, or shuttle's where its tests compile
//! the same files (module `shuttled`).

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
pub(super) use std::thread::{Builder, JoinHandle};

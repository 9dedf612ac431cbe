//! The locks and atomics of a crossing: the standard library's here, shuttle's if its tests compile
//! the same file (module `shuttled`).

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

//! What threads meet through: the standard library's here, shuttle's where its tests look at the
//! same file (module `shuttled`).

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

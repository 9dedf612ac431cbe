//! What threads meet through: the standard library's here, shuttle's where its tests look at the
//! same files (module `shuttled`).

pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};

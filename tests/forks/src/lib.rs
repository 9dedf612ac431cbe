//! Child processes of tests, apart from tests whose sockets or locks are gone when they are closed.
//!
//! Until a child runs its program, it has all descriptors of its parent. A socket that a test of
//! this process closes meanwhile stays open, and its address stays taken. A lock stays held.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static FORKS: RwLock<()> = RwLock::new(());

/// While it lives, no other test starts a child.
pub fn none() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, its owner may start one.
pub fn one() -> RwLockWriteGuard<'static, ()> {
    FORKS.write().unwrap_or_else(PoisonError::into_inner)
}

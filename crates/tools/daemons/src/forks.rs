//! Child processes of tests, apart from tests of locks that are gone when they are let go of.
//!
//! Until a child runs its program, it has all descriptors of this process. A lock that a test lets
//! go of meanwhile stays held.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static FORKS: RwLock<()> = RwLock::new(());

/// While it lives, no other test starts a child.
pub(crate) fn none() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, its owner may start one.
pub(crate) fn one() -> RwLockWriteGuard<'static, ()> {
    FORKS.write().unwrap_or_else(PoisonError::into_inner)
}

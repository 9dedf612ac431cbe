//! A mount's grants as an administrator sees and sets them.

use types::{Instant, Span};

use super::Known;
use crate::client::Client;

/// Grants that a client keeps, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lru {
    /// Files (Lustre: `lru_size`); what was used least goes first.
    pub size: u32,
    /// An unused grant goes after this (Lustre: `lru_max_age`).
    pub max_age: Span,
}

impl Default for Lru {
    fn default() -> Lru {
        Lru { size: ldlm::grants::LRU_SIZE, max_age: ldlm::grants::LRU_MAX_AGE }
    }
}

impl Known {
    pub(super) fn set_lru(&mut self, lru: Lru, now: Instant) {
        self.lru = lru;
        self.cache.set_lru(lru.size, lru.max_age);
        let mut count = usize::MAX;
        while self.cache.count() < count {
            count = self.cache.count();
            self.shed(now);
        }
    }
}

impl Known {
    /// Answers under way are taken as before.
    fn drop_all(&mut self, now: Instant) {
        self.shed.extend(self.cache.shed_all(now));
        self.listings.clear();
    }
}

impl Client {
    /// Files of which it holds a grant now (Lustre: `lock_count`).
    #[must_use]
    pub fn grants_held(&self) -> usize {
        let grants = &self.0.grants;
        grants.known.borrow().cache.held(grants.env.now())
    }

    /// Calls that a grant has answered without a request.
    #[must_use]
    pub fn grant_hits(&self) -> u64 {
        self.0.grants.known.borrow().hits
    }

    /// How many grants it keeps, and how long.
    #[must_use]
    pub fn lru(&self) -> Lru {
        self.0.grants.known.borrow().lru
    }

    /// Keeps so many from now on.
    pub fn set_lru(&self, lru: Lru) {
        let grants = &self.0.grants;
        grants.known.borrow_mut().set_lru(lru, grants.env.now());
        self.0.shed_grants();
    }

    /// Keeps none of those that it has (Lustre: `lru_size=clear`).
    pub fn drop_grants(&self) {
        let grants = &self.0.grants;
        grants.known.borrow_mut().drop_all(grants.env.now());
        self.0.shed_grants();
    }
}

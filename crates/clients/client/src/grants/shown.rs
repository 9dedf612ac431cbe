//! A mount's grants as an administrator sees and sets them.

use types::Instant;

use super::Known;
use super::lru::Lru;
use crate::client::Client;

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
    pub(super) fn drop_all(&mut self, now: Instant) {
        self.shed.extend(self.cache.shed_all(now));
        self.listings.clear();
    }
}

impl Client {
    /// Files of which it holds a grant now (Lustre: `lock_count`).
    #[must_use]
    pub fn grants_held(&self) -> usize {
        self.0.grants.sum(|known, now| known.cache.held(now))
    }

    /// Calls that a grant has answered without a request.
    #[must_use]
    pub fn grant_hits(&self) -> u64 {
        self.0.grants.sum(|known, _| known.hits as usize) as u64
    }

    /// How many grants of each MDT it keeps, and how long.
    #[must_use]
    pub fn lru(&self) -> Lru {
        self.0.grants.lru()
    }

    /// Keeps so many from now on.
    pub fn set_lru(&self, lru: Lru) {
        for mdt in self.0.grants.set_lru(lru) {
            self.0.shed_grants(mdt);
        }
    }

    /// Gives back those of which the kernel keeps nothing (Lustre: `lru_size=clear`).
    pub fn drop_grants(&self) {
        for mdt in self.0.grants.drop_all() {
            self.0.shed_grants(mdt);
        }
    }
}

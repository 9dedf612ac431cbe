//! At the client: the MDT comes back, or the session ends.
//!
//! ```text
//! healthy --restarted--> recovering: nothing is answered --restate, recovered--> healthy
//! ```

use types::{Fid, Instant, Transno};

use super::Cache;
use crate::grants::limits::VECTOR_MAX;
use crate::grants::{Bits, Number, Stated};

impl Cache {
    /// The MDT was started again and knows this session; `after` is its first number. Recalls of
    /// the instance before are void, and so are its answers that are still under way.
    ///
    /// A lease that may have ended before is no proof that this client was not expelled: then
    /// nothing is restated, and all is gone.
    pub fn restarted(&mut self, after: Number, now: Instant) {
        (self.is_recovering, self.arrivals_after) = (true, after);
        if now >= self.lease_until && !self.config.bugs.restate_after_lapse() {
            self.clear();
        }
        self.forget_dying();
        for fid in self.lists.fids(&self.slab) {
            let place = self.find(fid).expect("it is listed");
            self.slab.get_mut(place).dying = Bits::empty();
        }
    }

    /// All that is held, in vectors.
    #[must_use]
    pub fn restate(&self) -> Vec<Vec<Stated>> {
        let places = self.lists.fids(&self.slab).into_iter().filter_map(|fid| self.find(fid));
        let state = |place| {
            let entry = self.slab.get(place);
            Stated { fid: entry.fid, bits: entry.bits - entry.timed, number: entry.number }
        };
        let stated: Vec<_> = places.map(state).filter(|stated| !stated.bits.is_empty()).collect();
        stated.chunks(VECTOR_MAX).map(<[Stated]>::to_vec).collect()
    }

    /// Recovery is over. Changes from `lost_from` on did not come back, unless it is
    /// [`Transno::NONE`]: values that know of them are forgotten. Returns these files; the kernel
    /// is to forget them too.
    pub fn recovered(&mut self, lost_from: Transno) -> Vec<Fid> {
        self.is_recovering = false;
        if lost_from.is_none() || self.config.bugs.lost_changes_kept() {
            return Vec::new();
        }
        let mut lost = Vec::new();
        for fid in self.lists.fids(&self.slab) {
            let place = self.find(fid).expect("it is listed");
            let entry = self.slab.get_mut(place);
            let unknown = entry.from(lost_from);
            if unknown.is_empty() {
                continue;
            }
            entry.stale |= unknown;
            lost.push(fid);
            if unknown.contains(Bits::UPDATE) {
                self.directories.forget(fid);
            }
        }
        lost
    }

    /// The session is over, and with it all that it held; the next one began with `after`. Changes
    /// that were under way are not executed any more.
    pub fn session_over(&mut self, after: Number) {
        self.clear();
        (self.is_recovering, self.arrivals_after) = (false, after);
        (self.floor, self.lease_until) = (Number(0), Instant::default());
        self.changing.clear();
        self.directories.end_all();
        self.acks.clear();
    }
}

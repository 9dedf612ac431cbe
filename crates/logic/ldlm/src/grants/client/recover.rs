//! At the client: the MDT comes back, or the session ends.
//!
//! ```text
//! healthy --restarted--> recovering: nothing is answered --restate, refused, recovered--> healthy
//! ```
//! Grants that the MDT does not take are given up before anything is answered again.

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
        for place in self.lists.places(&self.slab) {
            self.slab.get_mut(place).dying = Bits::empty();
        }
    }

    /// Gives up what this client does not state: `bits` of all files, what ends by time, and values
    /// that know of changes after `durable`, which may not come back. Returns the files and bits of
    /// these values; the kernel is to forget them.
    pub fn give_up_after(&mut self, durable: Transno, bits: Bits) -> Vec<(Fid, Bits)> {
        let mut unsure = Vec::new();
        for place in self.lists.places(&self.slab) {
            let entry = self.slab.get(place);
            let lost = entry.from(Transno(durable.0 + 1)) - entry.timed;
            if !lost.is_empty() {
                unsure.push((entry.fid, lost));
            }
            let given_up = (lost | bits | entry.timed) & entry.bits;
            if !given_up.is_empty() {
                self.give_up_at(place, given_up);
            }
        }
        unsure
    }

    /// The MDT has taken `held` of the vector `stated`, in its order; the rest is given up. Returns
    /// the files and bits of it; the kernel is to forget them.
    pub fn refused(&mut self, stated: &[Stated], held: &[Stated]) -> Vec<(Fid, Bits)> {
        let mut answers = held.iter().peekable();
        let mut given_up = Vec::new();
        for stated in stated {
            let held = answers.next_if(|held| held.fid == stated.fid);
            let refused = stated.bits - held.map_or(Bits::empty(), |held| held.bits);
            if !refused.is_empty() {
                self.give_up(stated.fid, refused);
                given_up.push((stated.fid, refused));
            }
        }
        given_up
    }

    /// All that is held, in vectors. FIDs rise over all of them. So the MDT, which looks up the
    /// record of each file, finds the next one close by.
    #[must_use]
    pub fn restate(&self) -> Vec<Vec<Stated>> {
        let places = self.lists.places(&self.slab).into_iter();
        let state = |place| {
            let entry = self.slab.get(place);
            Stated { fid: entry.fid, bits: entry.bits - entry.timed, number: entry.number }
        };
        let stated = places.map(state).filter(|stated| !stated.bits.is_empty());
        let mut stated: Vec<_> = stated.collect();
        stated.sort_unstable_by_key(|stated| stated.fid);
        stated.chunks(VECTOR_MAX).map(<[Stated]>::to_vec).collect()
    }

    /// Whether the MDT was started again, and it is not known yet what it goes on counting as held.
    #[must_use]
    pub fn is_recovering(&self) -> bool {
        self.is_recovering
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
        for place in self.lists.places(&self.slab) {
            let entry = self.slab.get_mut(place);
            let (fid, unknown) = (entry.fid, entry.from(lost_from));
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

//! A session as a holder of grants: its lease, its recalls under way, and the grants that it may
//! not have.

use std::collections::{BTreeSet, VecDeque};

use queues::FixedMap;
use types::{Fid, Instant, Span};

use super::store::Listed;
use crate::grants::limits::{CALLBACK_DEADLINE, FLUSH_DEADLINE, RECALL_RESEND};
use crate::grants::{HolderId, Number};

/// A recall that is not acknowledged.
#[derive(Clone, Copy)]
pub(super) struct Recalled {
    /// Of the message sent last: more bits may have been asked for since the first.
    pub(super) number: Number,
    /// The first message: the deadline counts from it and is not prolonged.
    pub(super) since: Instant,
}

/// See the head of the file.
pub(super) struct Holder {
    pub(super) session: HolderId,
    pub(super) listed: Listed,
    /// Its cache ends, by this clock.
    pub(super) until: Instant,
    /// Grants with a lower number are void.
    pub(super) floor: Number,
    /// A client of the instance before: what it held is not known.
    pub(super) is_unstated: bool,
    /// The files of which it may have held something, where that instance has said so.
    pub(super) claims: Option<BTreeSet<Fid>>,
    /// The store says what it holds: it is given nothing more that is called back.
    pub(super) is_listed: bool,
    /// It has a callback lane.
    pub(super) has_callbacks: bool,
    /// It may have write rights at the OSTs.
    pub(super) writes: bool,
    /// Replies do not renew its lease.
    pub(super) is_stopped: bool,
    /// The engine gave it up; it goes when its lease is over.
    pub(super) is_evicted: bool,
    /// Its grants are void. They pass on once the OSTs refuse it, where they have to, and once that
    /// is recorded.
    pub(super) is_fencing: bool,
    /// The OSTs refuse it, whatever it still holds.
    pub(super) is_fenced: bool,
    /// The OSTs of these files do. Its lease is not over so far.
    pub(super) fenced_files: BTreeSet<Fid>,
    /// It was expelled, and is to be fenced.
    pub(super) fences: bool,
    /// Its grants pass on once it is durable that they are void.
    pub(super) is_recording: bool,
    pub(super) slow_until: Instant,
    /// By place of the grant.
    pub(super) recalled: FixedMap<u32, Recalled>,
    /// In the order in which they began; those that are over are skipped.
    order: VecDeque<(Instant, u32)>,
    /// The same of those before which data is sent to an OST.
    flushes: VecDeque<(Instant, u32)>,
    /// Places of grants whose recall goes out with the next vector.
    pub(super) outbox: Vec<u32>,
    pub(super) sent: Instant,
    /// The timer that is set for it; those for later times are void.
    pub(super) timer_at: Option<Instant>,
}

impl Holder {
    pub(super) fn new(session: HolderId, until: Instant) -> Holder {
        Holder {
            session,
            listed: Listed::default(),
            until,
            floor: Number(0),
            is_unstated: false,
            claims: None,
            is_listed: false,
            has_callbacks: false,
            writes: false,
            is_stopped: false,
            is_evicted: false,
            is_fencing: false,
            is_fenced: false,
            fenced_files: BTreeSet::new(),
            fences: false,
            is_recording: false,
            slow_until: Instant::default(),
            recalled: FixedMap::default(),
            order: VecDeque::new(),
            flushes: VecDeque::new(),
            outbox: Vec::new(),
            sent: Instant::default(),
            timer_at: None,
        }
    }

    /// Whether a reply renews its lease.
    pub(super) fn renews(&self) -> bool {
        !(self.is_unstated || self.is_stopped || self.is_evicted || self.is_fencing)
    }

    /// A recall goes out, the first or a further one of the grant at `place`. `flushes`: its client
    /// sends data to an OST before it answers.
    pub(super) fn recall(&mut self, place: u32, number: Number, flushes: bool, now: Instant) {
        if flushes {
            self.waits_longer(place);
        }
        let order = if flushes { &mut self.flushes } else { &mut self.order };
        let recalled = self.recalled.entry(place).or_insert_with(|| {
            order.push_back((now, place));
            Recalled { number, since: now }
        });
        recalled.number = number;
        if !self.outbox.contains(&place) {
            self.outbox.push(place);
        }
    }

    /// A recall that is under way now waits until data is sent, from when it began.
    fn waits_longer(&mut self, place: u32) {
        let Some(since) = self.recalled.get(&place).map(|recalled| recalled.since) else { return };
        let found = self.order.iter().position(|waits| *waits == (since, place));
        if found.and_then(|at| self.order.remove(at)).is_some() {
            let at = self.flushes.partition_point(|(other, _)| *other <= since);
            self.flushes.insert(at, (since, place));
        }
    }

    /// The recall of the grant at `place` is over.
    pub(super) fn answered(&mut self, place: u32) {
        self.recalled.remove(&place);
        self.outbox.retain(|waiting| *waiting != place);
        self.drop_answered();
    }

    /// All recalls are over.
    pub(super) fn forget_recalls(&mut self) {
        self.recalled.clear();
        self.order.clear();
        self.flushes.clear();
        self.outbox.clear();
    }

    fn drop_answered(&mut self) {
        for order in [&mut self.order, &mut self.flushes] {
            while let Some((since, place)) = order.front().copied() {
                if self.recalled.get(&place).is_some_and(|recalled| recalled.since == since) {
                    break;
                }
                order.pop_front();
            }
        }
    }

    /// When the oldest recall is overdue.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let first = self.order.front().map(|(since, _)| *since + CALLBACK_DEADLINE);
        let flush = self.flushes.front().map(|(since, _)| *since + FLUSH_DEADLINE);
        first.into_iter().chain(flush).min()
    }

    /// When something is to be done about it.
    pub(super) fn due(&self) -> Option<Instant> {
        let ends =
            (self.is_unstated || self.is_evicted || self.deadline().is_some()) && !self.is_fencing;
        let end = ends.then_some(self.until);
        let resend =
            (!self.recalled.is_empty() && !self.is_fencing).then_some(self.sent + RECALL_RESEND);
        let deadline = self.deadline().filter(|_| self.renews());
        [end, resend, deadline].into_iter().flatten().min()
    }

    /// How long it may still believe what it has.
    pub(super) fn left(&self, now: Instant) -> Span {
        self.until - now
    }
}

#[cfg(test)]
mod tests {
    use types::Span;

    use super::*;

    #[test]
    fn a_recall_that_becomes_a_flush_has_the_time_of_one() {
        let at = |secs| Instant::default() + Span::secs(secs);
        let mut holder = Holder::new(HolderId(1), at(100));
        holder.recall(7, Number(1), false, at(10));
        holder.recall(8, Number(2), true, at(11));
        assert_eq!(holder.deadline(), Some(at(10) + CALLBACK_DEADLINE));
        holder.recall(7, Number(3), true, at(12));
        assert_eq!(holder.deadline(), Some(at(10) + FLUSH_DEADLINE));
        holder.answered(7);
        assert_eq!(holder.deadline(), Some(at(11) + FLUSH_DEADLINE));
    }
}

//! Rounds: groups of requests take turns, a batch of at most a quantum each (spec rpc 5.2). What CRR-N, CRR-E, ORR and
//! TRR share; they differ in what a group is and in the order inside a batch.
//!
//! ```text
//! rounds  5: [ batch of a ] [ batch of c ]      6: [ batch of a ] [ batch of b ]      7: [ batch of a ]
//!             a1 a2 a3 a4    c1                      a5 a6 a7 a8    b1 b2                 a9
//! ```
//! A group that comes, or was idle, joins the round being served behind the batches that are open there. A batch that
//! has its quantum is closed; the group's next one stands in the next round. So appending keeps everything in order,
//! and every step is O(1), whatever is queued.
//!
//! Invariants
//! - A group has at most one batch in a round.
//! - Nothing stands before the round being served; while requests are queued, one stands in it.
//! - The first request of an idle group waits for at most one batch of each other group.
//! - A group without requests is forgotten after [`GROUP_IDLE_SECS`], or when there are too many of them.

use types::Instant;

use crate::calendar::{Batch, Calendar, Standing};
use crate::index::{Chained, Index, Key};
use crate::limits::QUANTUM_MAX;
use crate::slab::{NIL, Slab, Vacant};
use crate::{Id, Queue};

/// A group without requests keeps its place in the rounds for so long.
const GROUP_IDLE_SECS: u32 = 600;

/// Groups without requests that are kept at most, where nothing else is set.
pub(crate) const GROUPS_IDLE_MAX: u64 = 65_536;

/// Requests between the one that leaves and the one whose memory is asked for: some hundred nanoseconds of work.
const AHEAD: u32 = 3;

/// Groups forgotten per arrival at most: faster than they can come, and no arrival is slow.
const FORGOTTEN_MAX: usize = 2;

/// Largest cost of one request: a bulk transfer of the protocol's 64 MiB, in KiB.
const COST_MAX: u64 = 65_536;

/// One cache line: an arrival looks at one group.
#[repr(align(64))]
struct Group {
    key: Key,
    round: u64,
    seq: u64,
    left: i32,   // a quantum at most, and a cost below zero
    active: u32, // as many as a queue can hold
    open: u32,   // its batch of `round`, while that has requests
    chain: u32,
    idle_since_secs: u32,
    idle_prev: u32,
    idle_next: u32,
    epoch: u16,
}

const _: () = assert!(size_of::<Group>() == 64);
const _: () = assert!(QUANTUM_MAX + COST_MAX < i32::MAX as u64);

impl Vacant for Group {
    fn vacant() -> Group {
        Group {
            key: [0, 0],
            round: 0,
            seq: 0,
            left: 0,
            active: 0,
            open: NIL,
            epoch: 0,
            idle_since_secs: 0,
            chain: NIL,
            idle_prev: NIL,
            idle_next: NIL,
        }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.chain
    }
}

impl Chained for Group {
    fn key(&self) -> Key {
        self.key
    }
    fn next(&self) -> u32 {
        self.chain
    }
    fn set_next(&mut self, place: u32) {
        self.chain = place;
    }
}

/// Where a request stood that has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stood {
    pub(crate) round: u64,
    pub(crate) seq: u64,
    /// It was the last of its batch.
    pub(crate) last: bool,
}

/// See the head of the file.
pub(crate) struct Rounds {
    quantum: u64,
    groups_idle_max: u64,
    epoch: u16, // of the unit in which quanta are counted
    round: u64,
    seq: u64,
    len: usize,
    calendar: Calendar,
    groups: Slab<Group>,
    index: Index,
    idle_head: u32,
    idle_tail: u32,
    idle_len: u64,
}

impl Rounds {
    pub(crate) fn new(quantum: u64) -> Rounds {
        Rounds {
            quantum,
            groups_idle_max: GROUPS_IDLE_MAX,
            epoch: 0,
            round: 0,
            seq: 1,
            len: 0,
            calendar: Calendar::default(),
            groups: Slab::default(),
            index: Index::default(),
            idle_head: NIL,
            idle_tail: NIL,
            idle_len: 0,
        }
    }

    pub(crate) fn quantum(&self) -> u64 {
        self.quantum
    }

    /// Holds for batches opened from now on.
    pub(crate) fn set_quantum(&mut self, quantum: u64) {
        assert!(quantum > 0, "a batch has room for a request");
        self.quantum = quantum;
    }

    /// Costs are counted in another unit from now on: what is left of open batches means nothing any more.
    pub(crate) fn change_unit(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    pub(crate) fn groups_idle_max(&self) -> u64 {
        self.groups_idle_max
    }

    pub(crate) fn set_groups_idle_max(&mut self, count: u64) {
        self.groups_idle_max = count;
    }

    /// Groups it knows.
    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The round being served.
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// Bytes of its structures.
    pub(crate) fn bytes(&self) -> usize {
        self.calendar.bytes() + self.groups.bytes()
    }

    /// Appends a request of group `key`; answers the batch that it stands in.
    pub(crate) fn push<R>(&mut self, queue: &mut Queue<R>, id: Id, key: Key, cost: u64, now: Instant) -> u32 {
        let at = self.group(key, now);
        let (round_now, epoch) = (self.round, self.epoch);
        let group = self.groups.get_mut(at);
        if group.epoch != epoch {
            group.end_batch();
            group.left = 0;
            group.epoch = epoch;
        }
        if group.left <= 0 || group.round < round_now || group.active == 0 {
            if group.active == 0 && group.left > 0 {
                group.end_batch(); // it idled inside a batch, which is not continued
            }
            if group.round < round_now {
                (group.round, group.left) = (round_now, 0); // it missed rounds, and with them a debt
            }
            if group.seq < self.seq {
                self.seq += 1; // else it opened the last batch itself
                group.seq = self.seq;
            }
            group.draw(self.quantum);
            let batch = Batch::new(at, group.round, group.seq);
            if self.len == 0 {
                self.serve(batch.round);
            }
            let place = self.calendar.push(batch);
            self.groups.get_mut(at).open = place;
        }
        if self.groups.get(at).active == 0 {
            self.leave_idle(at);
        }
        let group = self.groups.get_mut(at);
        let place = group.open;
        group.active += 1;
        group.left -= i32::try_from(cost.clamp(1, COST_MAX)).expect("a small number");
        if group.left <= 0 {
            group.round += 1;
        }
        queue.set_tag(id, self.calendar.append(place, id).tag());
        self.len += 1;
        self.forget_idle(now);
        place
    }

    fn group(&mut self, key: Key, now: Instant) -> u32 {
        if let Some(at) = self.index.find(&self.groups, key) {
            return at;
        }
        let at = self.groups.insert(Group { key, epoch: self.epoch, ..Group::vacant() });
        self.index.insert(&mut self.groups, at);
        self.join_idle(at, now);
        at
    }

    /// The batch that is being served.
    pub(crate) fn front(&self) -> Option<u32> {
        self.calendar.first()
    }

    /// The first request of a batch.
    #[inline]
    pub(crate) fn first_of(&self, batch: u32) -> Option<Id> {
        self.calendar.first_of(batch)
    }

    /// The requests of a batch in the order they came.
    pub(crate) fn ids(&self, batch: u32) -> impl Iterator<Item = Id> {
        self.calendar.ids(batch)
    }

    /// The batch that a request stands in.
    pub(crate) fn batch_of<R>(&self, queue: &Queue<R>, id: Id) -> u32 {
        Standing::of_tag(queue.tag(id)).batch
    }

    /// The batch to which the next request of group `key` goes, if it is open.
    pub(crate) fn open_batch(&self, key: Key) -> Option<u32> {
        let group = self.groups.get(self.index.find(&self.groups, key)?);
        (group.left > 0 && group.active > 0 && group.epoch == self.epoch && group.open != NIL).then_some(group.open)
    }

    /// The next request of group `key` opens a batch.
    pub(crate) fn close(&mut self, key: Key) {
        if let Some(at) = self.index.find(&self.groups, key) {
            self.groups.get_mut(at).end_batch();
        }
    }

    /// Takes out a request, because it is its turn or against the order.
    pub(crate) fn leave<R>(&mut self, queue: &Queue<R>, id: Id, now: Instant, in_turn: bool) -> Stood {
        let standing = Standing::of_tag(queue.tag(id));
        let place = standing.batch;
        let front = in_turn || self.calendar.first() == Some(place);
        let last = self.calendar.take(standing);
        let batch = self.calendar.batches.get(place);
        let (at, stood) = (batch.group, Stood { round: batch.round, seq: batch.seq(self.seq), last });
        self.len -= 1;
        if last {
            self.calendar.remove(place);
            let group = self.groups.get_mut(at);
            if group.open == place {
                if group.active > 1 {
                    group.end_batch(); // its earlier batches still wait
                }
                group.open = NIL;
            }
            if front {
                self.move_on();
            }
        }
        let round = self.round;
        let group = self.groups.get_mut(at);
        group.active -= 1;
        if group.active == 0 {
            if !in_turn && group.round > round + 1 {
                (group.round, group.left) = (round + 1, 0); // what was not served does not count against it
            }
            self.join_idle(at, now);
        }
        stood
    }

    /// The round being served has lost its first batch.
    fn move_on(&mut self) {
        let round = match self.calendar.first() {
            Some(first) => self.round.max(self.calendar.batches.get(first).round),
            None => self.round + 1,
        };
        self.serve(round);
    }

    /// Asks for the memory of what leaves soon: in one call for a request, when a batch is over for the batch after the
    /// next one and for the next one's group.
    #[inline]
    pub(crate) fn look_ahead<R>(&self, queue: &Queue<R>, left: Stood) {
        let Some(front) = self.calendar.first() else { return };
        if let Some(id) = self.calendar.ahead(front, AHEAD) {
            queue.prefetch(id);
        }
        if left.last
            && let Some(next) = self.calendar.next(front)
        {
            self.groups.prefetch(self.calendar.batches.get(next).group);
            if let Some(after) = self.calendar.next(next) {
                self.calendar.batches.prefetch(after);
            }
        }
    }

    fn serve(&mut self, round: u64) {
        self.round = round;
        self.calendar.serve(round);
    }

    // ---- groups without requests, longest idle first -------------------------------------------------------------

    fn join_idle(&mut self, at: u32, now: Instant) {
        let tail = std::mem::replace(&mut self.idle_tail, at);
        let group = self.groups.get_mut(at);
        (group.idle_prev, group.idle_next, group.idle_since_secs) = (tail, NIL, secs(now));
        if tail == NIL {
            self.idle_head = at;
        } else {
            self.groups.get_mut(tail).idle_next = at;
        }
        self.idle_len += 1;
    }

    fn leave_idle(&mut self, at: u32) {
        let group = self.groups.get(at);
        let (prev, next) = (group.idle_prev, group.idle_next);
        if prev == NIL {
            self.idle_head = next;
        } else {
            self.groups.get_mut(prev).idle_next = next;
        }
        if next == NIL {
            self.idle_tail = prev;
        } else {
            self.groups.get_mut(next).idle_prev = prev;
        }
        self.idle_len -= 1;
    }

    fn forget_idle(&mut self, now: Instant) {
        for _ in 0..FORGOTTEN_MAX {
            let at = self.idle_head;
            if at == NIL
                || (self.idle_len <= self.groups_idle_max
                    && secs(now).saturating_sub(self.groups.get(at).idle_since_secs) < GROUP_IDLE_SECS)
            {
                return;
            }
            self.leave_idle(at);
            self.index.remove(&mut self.groups, at);
            self.groups.remove(at);
        }
    }
}

impl Group {
    /// What comes next stands in the next round.
    fn end_batch(&mut self) {
        if self.left > 0 {
            self.left = 0;
            self.round += 1;
        }
    }

    /// A quantum for a new batch; rounds pass until a debt is paid.
    fn draw(&mut self, quantum: u64) {
        let debt = u64::from(self.left.min(0).unsigned_abs());
        self.round += debt / quantum;
        self.left = i32::try_from(quantum - debt % quantum).expect("a small number");
    }
}

/// Whole seconds, enough of them for 136 years.
fn secs(at: Instant) -> u32 {
    u32::try_from(at.0 / 1_000_000_000).unwrap_or(u32::MAX)
}

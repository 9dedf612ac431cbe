//! Rounds: groups of requests take turns, a batch of at most a quantum each. CRR-N, CRR-E, ORR and
//! TRR share them; they differ in their groups and in the order inside a batch.
//!
//! ```text
//! rounds  5: [ batch of a ] [ batch of c ]      6: [ batch of a ] [ batch of b ]      7: [ batch of a ]
//!             a1 a2 a3 a4    c1                      a5 a6 a7 a8    b1 b2                 a9
//! ```
//! A new or idle group joins the round being served, behind the batches that are open there. A
//! batch that has its quantum is closed, and the group's next batch is in the next round. Batches
//! are served by round, then by their number. Of a group's batches only the first one waits for a
//! turn ([`Order`]). Every step is O(1), or O(log groups) for a group that comes back between
//! others.
//!
//! A client with fewer requests in flight than a quantum has none queued for a moment whenever its
//! last one has left. It asks again when that one is answered. A setting decides what happens to
//! the rest of its quantum ([`Place`]):
//! - `lustre`: the rest is lost, and each batch gets a new number. Of two clients with 5 and 8
//!   requests in flight, the first gets less. The order of the clients differs from round to round.
//! - `keep`: the number is the group's seat. All rounds walk the seats in the same order. A group
//!   that comes back goes on with the rest of its quantum at its seat, and because that turn is
//!   past, it is next. It may be one round late: the rest of the round before the one being served
//!   comes first. A group that is later than that has lost its seat.
//!
//! Invariants
//! - A group has at most one batch in a round.
//! - Nothing is before the round being served, but for late groups, which are before everything
//!   else. With `lustre`, that round has a request while requests are queued.
//! - The first request of an idle group waits for at most one batch of each other group. With
//!   `keep`, it also waits for late batches, so that it may wait for two.
//! - With `keep`, two groups that are never later than a round stay close together while both have
//!   a seat. Neither is ever ahead by more than two quanta and the cost of a request.
//! - A group without requests is forgotten after [`GROUP_IDLE_SECS`], or when there are too many of
//!   them.

use std::hint::black_box;

use queues::{Chained, Index, Key, NIL, Slab, Vacant};
use types::Instant;

use crate::batches::{Batch, Batches, INLINE, Rank, Standing};
use crate::limits::QUANTUM_MAX;
use crate::order::{First, Order, Row};
use crate::{Id, Queue};

/// A group without requests keeps its place in the rounds for so long.
const GROUP_IDLE_SECS: u32 = 600;

/// Groups without requests that are kept at most, where nothing else is set.
pub(crate) const GROUPS_IDLE_MAX: u64 = 65_536;

/// Groups forgotten per arrival at most: faster than they can come, and no arrival is slow.
const FORGOTTEN_MAX: usize = 2;

/// Largest cost of one request: a bulk transfer of the protocol's 64 MiB, in KiB.
const COST_MAX: u64 = 65_536;

/// Its first cache line is what an arrival looks at while a batch is open: the first requests of
/// that are kept here, so that the batch's own line is written once: when it is served, or when the
/// next one is opened, which is linked to it.
#[repr(C, align(64))]
pub(crate) struct Group {
    key: Key,
    held: [u32; INLINE as usize], // requests of its open batch
    open: u32,                    // the batch that takes more, or took the last one
    chain: u32,
    left: i32, // a quantum at most, and a cost below zero
    epoch: u16,
    held_count: u8, // or HELD_BY_BATCH
    round: u64,
    seq: u64,              // of its last batch; with `Place::Keep` its seat, or zero
    pub(crate) rank: Rank, // of its first batch
    pub(crate) first: u32, // batch of its requests that are queued
    last: u32,
    pub(crate) prev: u32, // in a list of the order, or among those without requests
    pub(crate) next: u32,
    idle_since_secs: u32,
    pub(crate) stray: bool, // in no list of the order
}

/// Count of held requests: none, they are in the batch, and so are those who come.
const HELD_BY_BATCH: u8 = INLINE as u8 + 1;

/// Rounds that a group may be late and keep its seat. With more of them, newcomers wait longer for
/// groups that come back, and in the model of `tests/closed.rs` the shares are no more equal.
const LATE_ROUNDS_MAX: u64 = 1;

const _: () = assert!(std::mem::offset_of!(Group, round) == 64 && size_of::<Group>() == 128);
const _: () = assert!(QUANTUM_MAX + COST_MAX < i32::MAX as u64);

impl Vacant for Group {
    fn vacant() -> Group {
        Group {
            key: [0, 0],
            held: [NIL; INLINE as usize],
            open: NIL,
            chain: NIL,
            left: 0,
            epoch: 0,
            held_count: 0,
            round: 0,
            seq: 0,
            rank: (0, 0),
            first: NIL,
            last: NIL,
            prev: NIL,
            next: NIL,
            idle_since_secs: 0,
            stray: false,
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
    #[expect(clippy::misnamed_getters, reason = "the next of its chain, not of its round")]
    fn next(&self) -> u32 {
        self.chain
    }
    fn set_next(&mut self, place: u32) {
        self.chain = place;
    }
}

/// What a group loses that has nothing queued for a moment: see the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Nothing, if it comes back in this round or in the next one. It keeps its seat, too.
    Keep,
    /// The rest of its quantum.
    Lustre,
}

/// Where a request stood that has left in its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stood {
    pub(crate) round: u64,
    pub(crate) seq: u64,
}

/// See the head of the file.
pub(crate) struct Rounds {
    quantum: u64,
    place: Place,
    groups_idle_max: u64,
    epoch: u16, // of the unit in which quanta are counted
    round: u64,
    seq: u64,
    len: usize,
    batches: Batches,
    order: Order,
    groups: Slab<Group>,
    index: Index,
    idle: Row,
    idle_len: u64,
    last: Stood,
    idle_until: Instant, // nobody has been idle for too long before
}

impl Rounds {
    /// Clients may choose the keys of groups, such as FIDs; they do not know `seed`.
    pub(crate) fn new(quantum: u64, seed: u64) -> Rounds {
        Rounds {
            quantum,
            place: Place::Lustre,
            groups_idle_max: GROUPS_IDLE_MAX,
            epoch: 0,
            round: 0,
            seq: 1,
            len: 0,
            batches: Batches::default(),
            order: Order::default(),
            groups: Slab::default(),
            index: Index::seeded(seed),
            idle: Row::EMPTY,
            idle_len: 0,
            last: Stood::default(),
            idle_until: Instant::default(),
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

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Holds for groups that come from now on.
    pub(crate) fn set_place(&mut self, place: Place) {
        self.place = place;
    }

    /// Costs are counted in another unit from now on: what is left of open batches means nothing
    /// any more.
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
        self.batches.bytes() + self.order.bytes() + self.groups.bytes()
    }

    /// Appends a request of group `key`; answers the batch that it stands in.
    pub(crate) fn push<R>(
        &mut self,
        queue: &mut Queue<R>,
        id: Id,
        key: Key,
        cost: u64,
        now: Instant,
    ) -> u32 {
        let at = self.group(key, now);
        let cost = i32::try_from(cost.clamp(1, COST_MAX)).expect("a small number");
        let group = self.groups.get_mut(at);
        let continued = group.open != NIL && group.left > 0 && group.epoch == self.epoch;
        let group = if continued { group } else { self.open_for(at) };
        group.left -= cost;
        let place = group.open;
        if group.left <= 0 {
            group.round += 1; // its batch has its quantum
        }
        let standing = group.hold(id).unwrap_or_else(|| self.append(at, id));
        queue.set_tag(id, standing.tag());
        self.len += 1;
        self.forget_idle(now);
        place
    }

    /// Opens a batch for group `at`, whose next request goes to none that is open.
    fn open_for(&mut self, at: u32) -> &mut Group {
        self.settle_group(at);
        let (round_now, epoch, quantum) = (self.round, self.epoch, self.quantum);
        let keep = self.place == Place::Keep;
        let group = self.groups.get_mut(at);
        // its last batch has its quantum: the next one may be straight behind it
        let full = group.open != NIL && group.left <= 0;
        let turn = (group.round, group.seq);
        group.open = NIL;
        let idle = group.first == NIL;
        if group.epoch != epoch {
            group.end_batch();
            group.left = 0;
            group.epoch = epoch;
        }
        if idle && !keep {
            group.end_batch(); // it idled inside a batch, which is not continued
        }
        group.pay(quantum); // before it is asked what it missed: a moment's pause pays no debt
        let seated = keep && group.seq > 0 && group.round + LATE_ROUNDS_MAX >= round_now;
        if group.round < round_now && !seated {
            (group.round, group.left) = (round_now, 0); // it missed rounds, and with them a debt
        }
        if group.seq < self.seq && !seated {
            self.seq += 1; // else it opened the last batch itself
            group.seq = self.seq;
        }
        if group.left <= 0 {
            group.draw(quantum);
        }
        let straight = full && turn == (group.round, group.seq);
        if self.len == 0 {
            self.round = group.round.max(round_now);
        }
        if idle {
            self.leave_idle(at);
        }
        self.push_batch(at, straight)
    }

    /// An empty batch of group `at` in its round, behind those that it has.
    fn push_batch(&mut self, at: u32, straight: bool) -> &mut Group {
        let group = self.groups.get_mut(at);
        let rank = (group.round, group.seq);
        assert!(rank.0 + LATE_ROUNDS_MAX >= self.round, "no group is later than that");
        let place = self.batches.push(group.last, Batch::new(at, rank), straight);
        (group.open, group.last, group.held_count) = (place, place, 0);
        if group.first == NIL {
            (group.first, group.rank) = (place, rank);
            self.order.insert(&mut self.groups, at);
        }
        self.groups.get_mut(at)
    }

    /// Puts a request into the open batch of group `at`, which holds no more of them itself.
    fn append(&mut self, at: u32, id: Id) -> Standing {
        self.settle_group(at);
        self.batches.append(self.groups.get(at).open, id)
    }

    /// Puts into the open batch of group `at`, if there is one, what is held of it.
    fn settle_group(&mut self, at: u32) {
        let group = self.groups.get_mut(at);
        if group.open != NIL && group.held_count <= INLINE as u8 {
            self.batches.fill(group.open, &group.held, group.held_count);
            group.held_count = HELD_BY_BATCH;
        }
    }

    /// From now on a batch has all its requests itself.
    pub(crate) fn settle(&mut self, place: u32) {
        let batch = self.batches.get(place);
        if batch.is_bare() {
            self.settle_group(batch.group);
        }
    }

    #[inline]
    fn group(&mut self, key: Key, now: Instant) -> u32 {
        match self.index.find(&self.groups, key) {
            Some(at) => at,
            None => self.new_group(key, now),
        }
    }

    fn new_group(&mut self, key: Key, now: Instant) -> u32 {
        let at = self.groups.insert(Group { key, epoch: self.epoch, ..Group::vacant() });
        self.index.insert(&mut self.groups, at);
        self.join_idle(at, now);
        at
    }

    /// The batch that is being served.
    pub(crate) fn front(&self) -> Option<u32> {
        self.order.first().map(|first| first.batch)
    }

    /// The requests of a batch in the order they came; it is settled.
    pub(crate) fn ids(&self, batch: u32) -> impl Iterator<Item = Id> {
        self.batches.ids(batch)
    }

    /// The batch that a request stands in.
    pub(crate) fn batch_of<R>(&self, queue: &Queue<R>, id: Id) -> u32 {
        Standing::of_tag(queue.tag(id)).batch
    }

    /// The batch to which the next request of group `key` goes, if it is open.
    pub(crate) fn open_batch(&self, key: Key) -> Option<u32> {
        let group = self.groups.get(self.index.find(&self.groups, key)?);
        (group.open != NIL && group.left > 0 && group.epoch == self.epoch).then_some(group.open)
    }

    /// The next request of group `key` opens a batch.
    pub(crate) fn close(&mut self, key: Key) {
        if let Some(at) = self.index.find(&self.groups, key) {
            self.settle_group(at);
            let group = self.groups.get_mut(at);
            group.open = NIL;
            group.end_batch();
        }
    }

    /// Where the request stood that left last in its turn.
    pub(crate) fn last(&self) -> Stood {
        self.last
    }

    /// Takes out a request, because it is its turn or against the order; whether it was the last of
    /// its batch.
    pub(crate) fn leave<R>(
        &mut self,
        queue: &Queue<R>,
        id: Id,
        now: Instant,
        in_turn: bool,
    ) -> bool {
        let standing = Standing::of_tag(queue.tag(id));
        self.settle(standing.batch);
        if in_turn {
            self.note_turn();
        }
        let last = self.batches.take(standing);
        self.len -= 1;
        if last {
            self.end(standing.batch, now, in_turn);
        }
        last
    }

    /// Takes the first request out of the batch that is being served.
    #[inline]
    pub(crate) fn pop<R>(&mut self, queue: &Queue<R>, front: u32, now: Instant) -> Option<Id> {
        self.note_turn();
        let batch = self.batches.get_mut(front);
        if let Some(id) = batch.pop_but_last() {
            self.len -= 1;
            return Some(id);
        }
        self.pop_other(queue, front, now)
    }

    /// The same, if that is the last one there or does not stand in the batch itself.
    fn pop_other<R>(&mut self, queue: &Queue<R>, front: u32, now: Instant) -> Option<Id> {
        self.settle(front);
        let (id, last) = self.batches.pop(front)?;
        self.len -= 1;
        if last {
            let ahead = self.order.is_ahead(); // those behind it have been looked at
            self.end(front, now, true);
            if !ahead {
                self.look_ahead(queue);
            }
        }
        Some(id)
    }

    /// The request that leaves stands in the batch that is served next.
    #[inline]
    fn note_turn(&mut self) {
        if let Some(First { rank: (round, seq), .. }) = self.order.first() {
            self.last = Stood { round, seq };
        }
    }

    /// The last request of batch `place` has left, and with it the batch.
    fn end(&mut self, place: u32, now: Instant, in_turn: bool) {
        let at = self.batches.get(place).group;
        let group = self.groups.get_mut(at);
        if group.first == place {
            let (next, straight) = self.batches.remove_first(place);
            if next == NIL {
                group.last = NIL;
            }
            self.end_turn(at, next, straight);
        } else {
            let prev = self.batches.remove_later(place);
            if group.last == place {
                group.last = prev;
            }
        }
        let group = self.groups.get_mut(at);
        let idle = group.first == NIL;
        if group.open == place {
            group.open = NIL;
            if !idle {
                group.end_batch(); // its earlier batches still wait
            }
        }
        if idle {
            let round = self.round + 1;
            if !in_turn && group.round > round {
                // what was not served does not count against it
                (group.round, group.left) = (round, 0);
            }
            self.join_idle(at, now);
        }
    }

    /// Batch `next` of group `at`, if there is one, is its first one from now on.
    fn end_turn(&mut self, at: u32, next: u32, straight: bool) {
        let front = self.order.remove(&mut self.groups, at);
        let group = self.groups.get_mut(at);
        group.first = next;
        if next != NIL {
            group.rank = match group.rank {
                (round, seq) if straight => (round + 1, seq),
                _ => {
                    let batch = self.batches.get(next);
                    (batch.round, batch.seq(group.seq))
                }
            };
            self.order.insert(&mut self.groups, at);
        }
        if front {
            self.move_on();
        }
    }

    /// The batch that was served is not there any more. Without another one, the round is over for
    /// Lustre. With seats it goes on with those who come back.
    fn move_on(&mut self) {
        self.round = match self.order.first() {
            Some(first) => self.round.max(first.rank.0),
            None => self.round + u64::from(self.place == Place::Lustre),
        };
    }

    /// Another batch is the front one: reads a word of what leaves soon, so that its cache lines
    /// arrive while other work goes on. Batches are served one after another, so each is met once:
    /// three batches before its turn its group is read, two batches before it its own line, one
    /// batch before it the lines it names.
    fn look_ahead<R>(&self, queue: &Queue<R>) {
        let mut following = self.order.following(&self.groups);
        let Some(next) = following.next() else { return };
        let group = self.groups.get(next);
        let batch = self.batches.get(group.first);
        if batch.is_bare() {
            group.held().for_each(|id| queue.look_ahead(id));
        } else {
            black_box(group.open);
            batch.inline().for_each(|id| queue.look_ahead(id));
        }
        if batch.next != NIL && !batch.straight {
            black_box(self.batches.get(batch.next).round);
        }
        let Some(second) = following.next() else { return };
        black_box(self.batches.get(self.groups.get(second).first).round);
        if let Some(third) = following.next() {
            black_box(self.groups.get(third).rank);
        }
    }

    // ---- groups without requests, longest idle first
    // -------------------------------------------------------------

    fn join_idle(&mut self, at: u32, now: Instant) {
        self.groups.get_mut(at).idle_since_secs = secs(now);
        self.idle.push(&mut self.groups, at);
        self.idle_len += 1;
    }

    fn leave_idle(&mut self, at: u32) {
        self.idle.unlink(&mut self.groups, at);
        self.idle_len -= 1;
    }

    #[inline]
    fn forget_idle(&mut self, now: Instant) {
        if self.idle.head != NIL && (self.idle_len > self.groups_idle_max || now >= self.idle_until)
        {
            self.forget_some(now);
        }
    }

    fn forget_some(&mut self, now: Instant) {
        for _ in 0..FORGOTTEN_MAX {
            let at = self.idle.head;
            if at == NIL {
                return;
            }
            let until = self.groups.get(at).idle_since_secs.saturating_add(GROUP_IDLE_SECS);
            self.idle_until = Instant(u64::from(until) * NANOS);
            if self.idle_len <= self.groups_idle_max && now < self.idle_until {
                return;
            }
            self.leave_idle(at);
            self.index.remove(&mut self.groups, at);
            self.groups.remove(at);
        }
    }
}

impl Group {
    /// Keeps one more request of its open batch, if it keeps them and has room.
    #[inline]
    fn hold(&mut self, Id(id): Id) -> Option<Standing> {
        *self.held.get_mut(usize::from(self.held_count))? = id;
        self.held_count += 1;
        Some(Standing::inline(self.open, self.held_count - 1))
    }

    /// The requests that it keeps of its open batch.
    fn held(&self) -> impl Iterator<Item = Id> {
        self.held.iter().take(usize::from(self.held_count)).map(|id| Id(*id))
    }

    /// What comes next stands in the next round.
    fn end_batch(&mut self) {
        if self.left > 0 {
            self.left = 0;
            self.round += 1;
        }
    }

    /// Rounds pass until no more than a part of a quantum is owed.
    fn pay(&mut self, quantum: u64) {
        if self.left < 0 {
            let debt = u64::from(self.left.unsigned_abs());
            self.round += debt / quantum;
            self.left = -i32::try_from(debt % quantum).expect("a small number");
        }
    }

    /// A quantum for a new batch, less what is owed.
    fn draw(&mut self, quantum: u64) {
        self.left = self.left.min(0) + i32::try_from(quantum).expect("a small number");
        assert!(self.left > 0, "what is owed has been paid but for a part of a quantum");
    }
}

/// Nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// Whole seconds, enough of them for 136 years.
fn secs(at: Instant) -> u32 {
    u32::try_from(at.0 / NANOS).unwrap_or(u32::MAX)
}

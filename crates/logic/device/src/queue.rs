//! One device: the requests that wait for it, those in progress, and when each is done.
//!
//! - Without an arm, up to `depth` requests are in progress at once. Each takes its latency, and
//!   then its bytes move behind those of the others, as over one bus. Reads begin at least a second
//!   divided by their bound apart, and so do writes.
//! - With an arm, one request is in progress at a time. Among the `depth` oldest, it is the next
//!   one in the direction of rising places, and behind the last the lowest one (C-LOOK). It takes a
//!   seek, half a turn, and the time that its bytes pass under the head. A request that begins
//!   where the last one ended takes neither a seek nor half a turn. A seek grows with the square
//!   root of its distance (Ruemmler and Wilkes, *An introduction to disk drive modeling*, 1994).
//!
//! Invariants
//! - Every submitted request is done once, and not before it could be.
//! - While a request is the oldest that waits, at most `2 * depth` others begin before it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use types::{Instant, Span};

use crate::Model;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Read,
    Write,
    /// Makes durable what was written.
    Sync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub kind: Kind,
    /// Where on the device, bytes.
    pub place: u64,
    pub bytes: u64,
}

/// Names a request that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What a device has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests: reads, writes, syncs.
    pub done: [u64; 3],
    /// Bytes of reads and of writes.
    pub bytes: [u64; 2],
    /// Movements of the arm.
    pub seeks: u64,
    /// Time with something to do.
    pub busy: Span,
    /// Sum over all requests, from when they came to when they were done.
    pub waited: Span,
    /// Most requests that it had at once.
    pub most: u64,
}

struct Waiting {
    ticket: Ticket,
    request: Request,
    since: Instant,
}

/// See the head of the file.
pub struct Device {
    model: Model,
    /// Bytes over which the longest seek goes.
    size: u64,
    waiting: VecDeque<Waiting>,
    /// What is worked on, by when it is done, and since when it is here.
    working: BinaryHeap<Reverse<(Instant, Ticket, Instant)>>,
    done: VecDeque<Ticket>,
    next: u64,
    /// When the bus is free.
    bus: Instant,
    /// When the next read and the next write may begin.
    begins: [Instant; 2],
    /// Behind the last byte that was moved.
    head: u64,
    /// How many began before the oldest that waits since it is the oldest.
    passed: u32,
    busy_since: Option<Instant>,
    stats: Stats,
}

/// Nanoseconds for `count` at `rate` in a second, rounded up; none without a rate.
pub(crate) fn time_for(count: u64, rate: u64) -> Span {
    if rate == 0 {
        return Span::ZERO;
    }
    let nanos = (u128::from(count) * 1_000_000_000).div_ceil(u128::from(rate));
    Span(u64::try_from(nanos).unwrap_or(u64::MAX / 4))
}

fn sum(a: Span, b: Span) -> Span {
    Span(a.0.saturating_add(b.0))
}

impl Device {
    /// An idle one. `store_bytes`: the size of the store that it stands for.
    #[must_use]
    pub fn new(model: Model, store_bytes: u64) -> Device {
        let size = if model.size_gib > 0 { model.size_gib << 30 } else { store_bytes.max(1) };
        Device {
            model,
            size,
            waiting: VecDeque::new(),
            working: BinaryHeap::new(),
            done: VecDeque::new(),
            next: 0,
            bus: Instant::default(),
            begins: [Instant::default(); 2],
            head: 0,
            passed: 0,
            busy_since: None,
            stats: Stats::default(),
        }
    }

    /// The numbers that it was made with.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Bytes over which places are spread.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Until `now`.
    #[must_use]
    pub fn stats(&self, now: Instant) -> Stats {
        let since = self.busy_since.map_or(Span::ZERO, |since| now - since);
        Stats { busy: sum(self.stats.busy, since), ..self.stats }
    }

    /// Requests that are not done.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.working.len()
    }

    /// Takes a request at `now`.
    pub fn submit(&mut self, request: Request, now: Instant) -> Ticket {
        self.handle_timeout(now);
        self.next += 1;
        let ticket = Ticket(self.next);
        self.waiting.push_back(Waiting { ticket, request, since: now });
        self.busy_since.get_or_insert(now);
        self.begin(now);
        self.stats.most = self.stats.most.max(self.pending() as u64);
        ticket
    }

    /// When something is done next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.working.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Ends what is done at `now`, each at its own time, and begins what follows it.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(Reverse((at, ticket, since))) = self.working.peek().copied() {
            if at > now {
                break;
            }
            self.working.pop();
            self.done.push_back(ticket);
            self.stats.waited = sum(self.stats.waited, at - since);
            self.begin(at);
            if self.pending() == 0
                && let Some(since) = self.busy_since.take()
            {
                self.stats.busy = sum(self.stats.busy, at - since);
            }
        }
    }

    /// Requests that are done, each once.
    pub fn poll_done(&mut self) -> Option<Ticket> {
        self.done.pop_front()
    }

    fn begin(&mut self, at: Instant) {
        let places = if self.model.has_arm() { 1 } else { self.model.depth as usize };
        while self.working.len() < places
            && let Some(Waiting { ticket, request, since }) = self.choose()
        {
            let until = if self.model.has_arm() {
                self.turn_to(request, at)
            } else {
                self.carry(request, at)
            };
            assert!(until >= at, "it ends after it began");
            self.count(request);
            self.working.push(Reverse((until, ticket, since)));
        }
    }

    fn choose(&mut self) -> Option<Waiting> {
        if !self.model.has_arm() {
            return self.waiting.pop_front();
        }
        // a sync is about what came before it: it waits for that, and nothing passes it
        let sync = self.waiting.iter().position(|one| one.request.kind == Kind::Sync);
        let among = sync.unwrap_or(self.waiting.len()).min(self.model.depth as usize);
        let ahead = |one: &Waiting| (one.request.place < self.head, one.request.place);
        let oldest = self.waiting.iter().take(among).enumerate();
        let mut at = oldest.min_by_key(|(at, one)| (ahead(one), *at)).map_or(0, |(at, _)| at);
        if self.passed >= self.model.depth.saturating_mul(2) {
            at = 0;
        }
        self.passed = if at == 0 { 0 } else { self.passed + 1 };
        self.waiting.remove(at)
    }

    /// Without an arm.
    fn carry(&mut self, request: Request, at: Instant) -> Instant {
        let model = &self.model;
        let (direction, rate, iops, latency) = match request.kind {
            Kind::Read => (0, model.read_mibps, model.read_iops, model.read_latency),
            Kind::Write => (1, model.write_mibps, model.write_iops, model.write_latency),
            Kind::Sync => return at + model.sync_latency,
        };
        let begin = at.max(self.begins[direction]);
        self.begins[direction] = begin + time_for(1, iops);
        let ready = begin + latency;
        if rate == 0 {
            return ready;
        }
        self.bus = ready.max(self.bus) + time_for(request.bytes, rate << 20);
        self.bus
    }

    /// With an arm.
    fn turn_to(&mut self, request: Request, at: Instant) -> Instant {
        let model = &self.model;
        let (rate, latency) = match request.kind {
            Kind::Read => (model.read_mibps, model.read_latency),
            Kind::Write => (model.write_mibps, model.write_latency),
            Kind::Sync => return at + model.sync_latency,
        };
        let mut until = at + latency + time_for(request.bytes, rate << 20);
        let distance = request.place.abs_diff(self.head).min(self.size);
        if distance > 0 {
            let part = u128::from(distance) * 1_000_000 / u128::from(self.size);
            let root = (part as u64).isqrt(); // thousandths
            let range = model.seek_max.0.saturating_sub(model.seek_min.0);
            until = until + model.seek_min + Span(range / 1_000 * root) + Span(model.turn.0 / 2);
            self.stats.seeks += 1;
        }
        self.head = request.place.saturating_add(request.bytes);
        until
    }

    fn count(&mut self, request: Request) {
        self.stats.done[request.kind as usize] += 1;
        if let Some(bytes) = self.stats.bytes.get_mut(request.kind as usize) {
            *bytes += request.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 1 << 40;

    /// Keeps `depth` of `requests` at the device until all are done; the time that it took.
    fn run(model: Model, depth: usize, requests: &[Request]) -> Span {
        let mut device = Device::new(model, SIZE);
        let (mut now, mut at) = (Instant::default(), 0);
        loop {
            while at < requests.len() && device.pending() < depth {
                device.submit(requests[at], now);
                at += 1;
            }
            let Some(next) = device.poll_timeout() else { return now - Instant::default() };
            now = next;
            device.handle_timeout(now);
        }
    }

    fn read(place: u64, bytes: u64) -> Request {
        Request { kind: Kind::Read, place, bytes }
    }

    /// 4 KiB each, all over the device.
    fn random(count: u64) -> Vec<Request> {
        (0..count).map(|i| read(i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % SIZE, 4096)).collect()
    }

    fn stream(from: u64, count: u64) -> Vec<Request> {
        (0..count).map(|i| read(from + i * MIB, MIB)).collect()
    }

    #[test]
    fn one_stream_moves_at_the_rate_of_the_device() {
        for (model, depth) in [(Model::disk(), 1), (Model::disk(), 8), (Model::flash(), 8)] {
            let mibps = 1_000.0 / run(model.clone(), depth, &stream(0, 1_000)).as_secs_f64();
            let rate = model.read_mibps as f64;
            assert!(mibps > 0.97 * rate && mibps <= rate, "{mibps:.0} of {rate}");
        }
    }

    #[test]
    fn flash_works_on_many_requests_and_a_disk_on_one() {
        let of = |model: Model, depth| 1_000.0 / run(model, depth, &random(1_000)).as_secs_f64();
        assert!((7_700.0..=8_100.0).contains(&of(Model::flash(), 32)), "its bound");
        let alone = of(Model::flash(), 1);
        assert!((8_000.0..10_000.0).contains(&(alone * 1.1)), "by its latency: {alone:.0}");
        let (alone, among) = (of(Model::disk(), 1), of(Model::disk(), 32));
        assert!((60.0..80.0).contains(&alone), "a disk's figure: {alone:.0}");
        assert!(among > 1.5 * alone, "the arm goes to the nearest: {among:.0}");
    }

    #[test]
    fn two_streams_on_one_disk_pay_for_seeks_and_on_flash_they_do_not() {
        let both: Vec<Request> = stream(0, 200)
            .into_iter()
            .zip(stream(SIZE / 2, 200))
            .flat_map(|(a, b)| [a, b])
            .collect();
        let mibps = |model| 400.0 / run(model, 2, &both).as_secs_f64();
        assert!(mibps(Model::disk()) < 0.6 * 120.0, "{:.0}", mibps(Model::disk()));
        assert!(mibps(Model::flash()) > 0.97 * 400.0);
    }

    #[test]
    fn a_sync_waits_for_what_came_before_it() {
        let mut device = Device::new(Model::disk(), SIZE);
        let now = Instant::default();
        let write = |place| Request { kind: Kind::Write, place, bytes: 4096 };
        let sync = Request { kind: Kind::Sync, place: 0, bytes: 0 };
        let order = [write(9 << 30), write(1 << 30), sync, write(0), write(2 << 30)];
        let tickets = order.map(|request| device.submit(request, now));
        let mut done = Vec::new();
        while let Some(next) = device.poll_timeout() {
            device.handle_timeout(next);
            done.extend(std::iter::from_fn(|| device.poll_done()));
        }
        assert_eq!(done[2], tickets[2], "{done:?}");
        let stats = device.stats(now);
        assert_eq!((stats.done, stats.bytes), ([0, 4, 1], [0, 4 * 4096]));
    }

    #[test]
    fn a_request_is_overtaken_by_a_bounded_number_of_others() {
        let mut device = Device::new(Model::disk(), SIZE);
        let mut now = Instant::default();
        device.submit(read(0, MIB), now);
        let old = device.submit(read(SIZE / 2, MIB), now);
        let depth = u64::from(Model::disk().depth);
        let mut before = 0;
        let mut next = 0;
        loop {
            while device.pending() < 64 {
                next += MIB; // always the next on the arm's way
                device.submit(read(next, MIB), now);
            }
            now = device.poll_timeout().expect("it has work");
            device.handle_timeout(now);
            if std::iter::from_fn(|| device.poll_done()).any(|ticket| ticket == old) {
                break;
            }
            before += 1;
        }
        assert!(before <= 1 + 2 * depth, "the first was being read: {before}");
    }

    proptest! {
        /// However late the caller comes, everything is done once, and idle time is not work.
        #[test]
        fn everything_is_done_once(
            disk in any::<bool>(),
            steps in prop::collection::vec((0..3_u8, 0..SIZE, 0..MIB, 0..30_000_000_u64), 1..200),
        ) {
            let model = if disk { Model::disk() } else { Model::flash() };
            let mut device = Device::new(model, SIZE);
            let (mut now, mut open, mut count) = (Instant::default(), std::collections::BTreeSet::new(), [0; 3]);
            for (kind, place, bytes, later) in steps {
                now = now + Span(later);
                let kind = [Kind::Read, Kind::Write, Kind::Sync][usize::from(kind)];
                count[kind as usize] += 1;
                open.insert(device.submit(Request { kind, place, bytes }, now));
                while let Some(ticket) = device.poll_done() {
                    prop_assert!(open.remove(&ticket));
                }
                prop_assert_eq!(device.pending(), open.len());
            }
            while let Some(next) = device.poll_timeout() {
                prop_assert!(next > now);
                now = next;
                device.handle_timeout(now);
            }
            while let Some(ticket) = device.poll_done() {
                prop_assert!(open.remove(&ticket));
            }
            let stats = device.stats(now);
            prop_assert!(open.is_empty() && device.pending() == 0);
            prop_assert_eq!(stats.done, count);
            prop_assert!(stats.busy <= (now - Instant::default()) && stats.waited >= stats.busy);
        }
    }
}

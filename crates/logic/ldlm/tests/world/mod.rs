//! One MDT and a few clients with their kernels, in virtual time. Messages are lost, repeated, late
//! and out of order. Clocks run apart. Clients freeze, die or stop answering. The MDT restarts.
//!
//! After every event, slow and plain checks verify:
//! - A client's cache and its kernel would give the MDT's answer.
//! - The MDT counts as held whatever a client holds.
//! - A client is recalled only for another client's change.
//! - No grant passes on from a session before the OSTs refuse it.
//! - No change waits longer than its bound.

mod client;
mod server;

use std::collections::BTreeMap;

use ldlm::grants::{Ack, Bits, Bugs, ChangeId, Head, Mode, Number, Recall, Stated, Told, Want};
use types::{Fid, Instant, Span, SplitMix64, Transno};

pub(crate) use client::Client;
pub(crate) use server::Server;

/// What may go wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Messages lost, and doubled, of a hundred.
    pub(crate) loss: u64,
    /// Messages that take up to 3 s, of a hundred.
    pub(crate) late: u64,
    /// Clients freeze, die, fall silent.
    pub(crate) moods: bool,
    pub(crate) restarts: bool,
    pub(crate) mode: Mode,
    /// No change waits longer.
    pub(crate) wait_max: Span,
}

pub(crate) const HEALTHY: Scenario = Scenario {
    name: "healthy",
    loss: 0,
    late: 0,
    moods: false,
    restarts: false,
    mode: Mode::Recall,
    wait_max: Span::millis(200),
};
/// Nobody is called.
pub(crate) const TIMED: Scenario = Scenario { name: "timed", mode: Mode::Timed, ..HEALTHY };
pub(crate) const LOSSY: Scenario =
    Scenario { name: "lossy", loss: 10, late: 5, wait_max: Span::secs(17), ..HEALTHY };
pub(crate) const MOODY: Scenario = Scenario {
    name: "moody",
    loss: 2,
    late: 0,
    moods: true,
    wait_max: Span::millis(16_100),
    ..HEALTHY
};
/// Beside, clients of the instance before are waited for, at most for their lease.
pub(crate) const RESTARTS: Scenario =
    Scenario { name: "restarts", restarts: true, late: 2, wait_max: Span::millis(27_200), ..MOODY };

pub(crate) const FILES: u32 = 4;
pub(crate) const PARTS: [Bits; 3] = [Bits::LOOKUP, Bits::UPDATE, Bits::PERM];
const CLIENTS: usize = 3;

pub(crate) fn file(number: u64) -> Fid {
    Fid::new(0x400, number as u32 + 1)
}

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Beat,
    Read(Want),
    Change(Vec<Want>),
    Restate(Vec<Vec<Stated>>),
}

/// Values that an answer tells of a file.
pub(crate) type Values = Vec<(Bits, Transno)>;

#[derive(Clone, Debug)]
pub(crate) enum Message {
    Request { xid: u64, request: Request },
    Ack(Vec<Ack>),
    Shed(Vec<Stated>),
    Reply { xid: u64, head: Head, told: Vec<(Told, Values)>, done: Transno },
    Recall(Vec<Recall>),
    Restarted { epoch: u32, after: Number },
    Recovered { xid: u64, epoch: u32, head: Head, lost_from: Transno },
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Work(usize),
    Beat(usize),
    Resend(usize, u64),
    ToServer {
        from: usize,
        epoch: u32,
        message: Message,
    },
    ToClient {
        to: usize,
        message: Message,
    },
    /// The kernel takes an invalidation.
    Kernel {
        client: usize,
        fid: Fid,
        number: Number,
        tries: u32,
    },
    Notified {
        client: usize,
        fid: Fid,
        number: Number,
    },
    Cache(usize),
    /// A change that waits is given up.
    GiveUp {
        epoch: u32,
        change: ChangeId,
    },
    Fence(usize),
    Fate(usize),
    Thaw(usize),
    Crash,
    Start,
    Timeout,
}

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) chance: SplitMix64,
    pub(crate) now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    order: u64,
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    /// Calls that the caches answered, changes done, recalls, restatements.
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl World {
    pub(crate) fn new(seed: u64, scenario: Scenario, bugs: Bugs) -> World {
        let mut chance = SplitMix64::new(seed);
        let holders_max = CLIENTS as u32 - chance.below(2) as u32; // timed grants beside, or none
        let server = Server::new(scenario.mode, holders_max, bugs, Instant(1_000_000_000));
        let clients = (0..CLIENTS).map(|at| Client::new(at, &mut chance, bugs)).collect();
        let mut world = World {
            scenario,
            chance,
            now: Instant(1_000_000_000),
            events: BTreeMap::new(),
            order: 0,
            server,
            clients,
            counts: BTreeMap::new(),
        };
        for client in 0..CLIENTS {
            world.connect(client);
            world.after(Span::millis(client as u64 + 1), Event::Beat(client));
            world.after(Span::millis(10), Event::Work(client));
            if scenario.moods {
                world.fate_later(client);
            }
        }
        if scenario.restarts {
            world.crash_later();
        }
        world
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn after(&mut self, span: Span, event: Event) {
        self.order += 1;
        self.events.insert((self.now + span, self.order), event);
    }

    pub(crate) fn between(&mut self, low: u64, high: u64) -> Span {
        Span::micros(low + self.chance.below(high - low))
    }

    pub(crate) fn fate_later(&mut self, client: usize) {
        let span = self.between(1_000_000, 60_000_000);
        self.after(span, Event::Fate(client));
    }

    pub(crate) fn crash_later(&mut self) {
        let span = self.between(1_000_000, 40_000_000);
        self.after(span, Event::Crash);
    }

    /// A message, with what may happen to it.
    pub(crate) fn send(&mut self, event: &Event) {
        let copies = match self.chance.below(100) {
            roll if roll < self.scenario.loss => 0,
            roll if roll < 2 * self.scenario.loss => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let is_late = self.chance.below(100) < self.scenario.late;
            let most = if is_late { 3_000_000 } else { 5_000 };
            let span = self.between(50, most);
            self.after(span, event.clone());
        }
    }

    /// Until `end` of virtual time.
    pub(crate) fn run(&mut self, span: Span) {
        let end = self.now + span;
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timer = self.server.mdt.as_ref().and_then(|mdt| mdt.poll_timeout());
            let next = event.into_iter().chain(timer).min().expect("clients always work");
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            let event = match event {
                Some(at) if timer.is_none_or(|timer| at <= timer) => {
                    self.events.pop_first().expect("it is there").1
                }
                _ => Event::Timeout,
            };
            self.handle(event);
            self.check();
        }
        self.server.check_waits(self.now, self.scenario);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ToServer { from, epoch, message } => self.at_server(from, epoch, message),
            Event::ToClient { to, message } => self.at_client(to, message),
            Event::GiveUp { epoch, change } => self.give_up(epoch, change),
            Event::Fence(client) => self.fence(client),
            Event::Crash => self.crash(),
            Event::Start => self.start(),
            Event::Timeout => self.timeout(),
            Event::Work(client) => self.work(client),
            Event::Beat(client) => self.beat(client),
            Event::Resend(client, xid) => self.resend(client, xid),
            Event::Kernel { client, fid, number, tries } => self.kernel(client, fid, number, tries),
            Event::Notified { client, fid, number } => self.notified(client, fid, number),
            Event::Cache(client) => self.pump(client),
            Event::Fate(client) => self.fate(client),
            Event::Thaw(client) => self.thaw(client),
        }
    }

    fn check(&mut self) {
        for at in 0..self.clients.len() {
            let now = self.clients[at].local(self.now);
            for (number, part) in (0..u64::from(FILES)).flat_map(|f| PARTS.map(|part| (f, part))) {
                let (fid, truth) = (file(number), self.server.truth(file(number), part));
                let client = &mut self.clients[at];
                if let Some(value) = client.kernel_value(fid, part, now) {
                    assert_eq!(value, truth, "kernel of {at}: {fid} {part:?} at {:?}", self.now);
                }
                if let Some(value) = client.cached(fid, part, now) {
                    assert_eq!(value, truth, "cache of {at}: {fid} {part:?} at {:?}", self.now);
                }
            }
            self.check_held(at, now);
        }
    }

    /// What a client holds, the MDT counts as held.
    fn check_held(&self, at: usize, now: Instant) {
        let client = &self.clients[at];
        let Some(mdt) = &self.server.mdt else { return };
        if client.epoch != self.server.epoch || client.is_recovering || client.is_dead() {
            return;
        }
        if client.cache.lease_until() <= now {
            return;
        }
        for fid in (0..u64::from(FILES)).map(file) {
            let (held, counted) = (client.cache.bits_of(fid), mdt.bits_of(client.session, fid));
            assert!(counted.contains(held), "{at} holds {held:?} of {fid}, the MDT {counted:?}");
        }
    }
}

/// A change as the server keeps it while it waits.
pub(crate) struct Waiting {
    pub(crate) client: usize,
    pub(crate) xid: u64,
    pub(crate) wants: Vec<Want>,
    pub(crate) since: Instant,
}

pub(crate) fn change_id(client: usize, xid: u64) -> ChangeId {
    ChangeId(((client as u64) << 32) | xid)
}

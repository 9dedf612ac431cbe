//! Clients that ask again when they are answered, and the share that each of them gets.

use std::collections::{BTreeMap, VecDeque};

use crate::common::{Chance, Req};
use nrs::{Head, HeadKind, Moment, ServiceHeads};
use types::{CptIndex, Instant};

/// Microseconds that a request takes in a slot: this on average, the half and one and a half of it
/// at the ends.
const SERVICE: u64 = 1_000;

/// Requests in flight of client i: 5 to 14, below, at and above the default quantum.
fn in_flight(client: u64) -> u64 {
    5 + client % 10
}

/// Requests of a client before its first window is looked at.
const WARM_ROUNDS: usize = 20;

/// A number of no client in a closed world.
const GUEST: u64 = 1_000_000;

/// A server and its clients. Each of them sends the next request when one is answered.
#[derive(Clone, Debug)]
struct World {
    policy: &'static str,
    place: &'static str,
    quantum: u64,
    /// Requests have 4 KiB to 1 MiB, and the quantum is counted in KiB.
    kib: bool,
    clients: u64,
    /// Requests that are served at once: the service's threads.
    slots: usize,
    /// Between an answer and the next request: this on average, in microseconds.
    turnaround: u64,
    /// One client after another comes with one request and goes away.
    guests: bool,
    seed: u64,
}

/// Ten clients with 5 to 14 requests in flight, the default quantum.
const TEN: World = World {
    policy: "crrn",
    place: "keep",
    quantum: 8,
    kib: false,
    clients: 10,
    slots: 4,
    turnaround: 500,
    guests: false,
    seed: 7,
};

/// Largest request of a world in KiB.
const COST_MAX: u64 = 1_024;

impl World {
    /// What a client has in a round.
    fn round(&self) -> u64 {
        self.clients * self.quantum
    }

    /// Whether the slowest client, with five requests in flight, has had its quantum and is back
    /// before a round has passed.
    fn returns_in_time(&self) -> bool {
        let trips = self.quantum.div_ceil(5);
        let trip = SERVICE * 3 / 2 + 2 * self.turnaround;
        self.slots as u64 * trips * trip <= self.round() * SERVICE
    }

    fn head(&self) -> Head<Req> {
        let policies = [nrs::crrn(), nrs::crre()];
        let mut head = Head::new("ost_io", HeadKind::Reg, CptIndex(0), &policies);
        let mut all = ServiceHeads { reg: vec![&mut head], hp: vec![] };
        let moment = Moment { now: Instant(1), seed: self.seed };
        all.select(self.policy, moment).expect("starts");
        let unit = if self.kib { "kib" } else { "rpc" };
        let quantum = self.quantum.to_string();
        for (name, value) in [("place", self.place), ("unit", unit), ("quantum", &quantum)] {
            all.set(&format!("nrs_{}_{name}", self.policy), value, moment).expect("it is there");
        }
        head.set_log(true);
        head
    }

    /// Plays until so many rounds have begun.
    fn play(&self, rounds: usize) -> Played {
        Play::new(self).run(rounds)
    }
}

/// Something that happens at a time of its own.
#[derive(Clone, Copy)]
enum Event {
    Arrives(u64),
    Answered(u64),
}

struct Play<'a> {
    world: &'a World,
    head: Head<Req>,
    chance: Chance,
    events: BTreeMap<(u64, u64), Event>, // by time and number
    number: u64,
    busy: usize,
    sent: BTreeMap<u64, u64>, // number of the last request that left, by client
    guest: Option<BTreeMap<u64, u64>>, // what others got since it waits
    round: u64,
    served: Vec<u64>,
    played: Played,
}

#[derive(Default)]
struct Played {
    /// What each client had got when a round began, in requests or KiB.
    begun: Vec<Vec<u64>>,
    /// What another client got while a guest waited, at most.
    overtaken: u64,
    guests: u64,
}

impl Played {
    /// What lies between the clients that got most and least in `rounds` whole rounds, at most.
    fn lead(&self, rounds: usize) -> u64 {
        let begun = &self.begun[WARM_ROUNDS..];
        let got = |from: &[u64], to: &[u64]| -> Vec<u64> {
            from.iter().zip(to).map(|(from, to)| to - from).collect()
        };
        begun
            .iter()
            .zip(&begun[rounds..])
            .map(|(from, to)| got(from, to))
            .map(|got| got.iter().max().expect("clients") - got.iter().min().expect("clients"))
            .max()
            .expect("there are windows")
    }
}

impl<'a> Play<'a> {
    fn new(world: &'a World) -> Play<'a> {
        let mut play = Play {
            world,
            head: world.head(),
            chance: Chance::new(world.seed),
            events: BTreeMap::new(),
            number: 0,
            busy: 0,
            sent: BTreeMap::new(),
            guest: None,
            round: 0,
            served: vec![0; world.clients as usize],
            played: Played::default(),
        };
        for client in 0..world.clients {
            for _ in 0..in_flight(client) {
                let time = play.chance.below(SERVICE);
                play.at(time, Event::Arrives(client));
            }
        }
        if world.guests {
            play.at(SERVICE, Event::Arrives(GUEST));
        }
        play
    }

    fn at(&mut self, time: u64, event: Event) {
        self.number += 1;
        self.events.insert((time, self.number), event);
    }

    fn run(mut self, rounds: usize) -> Played {
        while self.played.begun.len() < rounds {
            let ((time, _), event) = self.events.pop_first().expect("a closed system");
            match event {
                Event::Arrives(client) => self.arrive(time, client),
                Event::Answered(client) => {
                    self.busy -= 1;
                    let pause = 1 + self.chance.below(2 * self.world.turnaround);
                    self.at(time + pause, Event::Arrives(client));
                }
            }
            while self.busy < self.world.slots && self.serve(time) {}
        }
        self.played
    }

    fn arrive(&mut self, time: u64, client: u64) {
        let now = Instant(1 + time * 1_000);
        self.number += 1;
        let bytes = if self.world.kib { 4_096 << self.chance.below(9) } else { 4_096 };
        // a CRR-E group is an export, and those begin with one
        let request = Req { range: (0, bytes), ..Req::new(self.number, client + 1) };
        self.head.enqueue(request.at(now), now);
        if client >= GUEST {
            self.guest = Some(BTreeMap::new());
        }
    }

    /// Whether a request has left for a slot.
    fn serve(&mut self, time: u64) -> bool {
        let now = Instant(1 + time * 1_000);
        let Some(taken) = self.head.dequeue(now).taken() else { return false };
        self.head.finished(taken.policy, now);
        self.busy += 1;
        let (request, took) = (taken.request, SERVICE / 2 + self.chance.below(SERVICE));
        let client = request.client - 1;
        let before = self.sent.insert(client, request.number);
        assert!(before < Some(request.number), "a client's requests leave in their order");
        let round = round_of(&taken.log.expect("the log is on"));
        if round > self.round {
            self.round = round;
            self.played.begun.push(self.served.clone());
        }
        let cost = if self.world.kib { request.range.1 / 1_024 } else { 1 };
        if client >= GUEST {
            let others = self.guest.take().expect("it came");
            let most = others.into_values().max().unwrap_or(0);
            self.played.overtaken = self.played.overtaken.max(most);
            self.played.guests += 1;
            self.busy -= 1; // it is no load, only a question
            let pause = self.chance.below(20 * SERVICE);
            self.at(time + pause, Event::Arrives(GUEST + self.played.guests));
            return true;
        }
        self.served[client as usize] += cost;
        if let Some(others) = &mut self.guest {
            *others.entry(client).or_default() += cost;
        }
        self.at(time + took, Event::Answered(client));
        true
    }
}

/// The round of a line of the request log.
fn round_of(line: &str) -> u64 {
    let (_, rest) = line.split_once("round ").expect("it names the round");
    rest.split(',').next().and_then(|round| round.parse().ok()).expect("a number")
}

/// Worlds in which each client is back in time, drawn from seeds.
fn worlds(count: u64) -> impl Iterator<Item = World> {
    (1..).map(drawn).filter(World::returns_in_time).take(count as usize)
}

fn drawn(seed: u64) -> World {
    let mut chance = Chance::new(seed);
    World {
        policy: if chance.one_in(4) { "crre" } else { "crrn" },
        quantum: [8, 8, 1, 3, 12][chance.below(5) as usize],
        clients: 2 + chance.below(79),
        slots: [1, 2, 4, 16, 80][chance.below(5) as usize],
        turnaround: [1, 50, 500, 4_000, 20_000][chance.below(5) as usize],
        seed,
        ..TEN
    }
}

#[test]
fn a_client_with_one_large_request_at_a_time_pays_for_all_of_it() {
    let mut head = Head::new("ost_io", HeadKind::Reg, CptIndex(0), &[nrs::crrn()]);
    let mut all = ServiceHeads { reg: vec![&mut head], hp: vec![] };
    let moment = Moment { now: Instant(1), seed: 1 };
    all.select("crrn", moment).expect("starts");
    all.set("nrs_crrn_unit", "kib", moment).expect("it is there");
    let (large, small) = (4 << 20, 64 << 10);
    let request = |client: u64| {
        let bytes = if client == 1 { large } else { small };
        Req { range: (0, bytes), ..Req::new(0, client) }
    };
    let now = Instant(1);
    head.enqueue(request(1), now);
    for _ in 0..16 {
        head.enqueue(request(2), now);
    }
    let (mut bytes, mut returns) = ([0; 3], None);
    for step in 0..10_000 {
        let taken = head.dequeue(now).taken().expect("a closed system");
        head.finished(taken.policy, now);
        let client = taken.request.client;
        bytes[client as usize] += taken.request.range.1;
        if client == 1 {
            returns = Some(step + 3); // meanwhile it has none queued
        } else {
            head.enqueue(request(client), now);
        }
        if returns == Some(step) {
            head.enqueue(request(1), now);
        }
    }
    assert!(bytes[1].abs_diff(bytes[2]) <= 2 * large, "{bytes:?}");
}

#[test]
fn over_whole_rounds_clients_stay_within_a_quantum() {
    for world in worlds(40) {
        let played = world.play(WARM_ROUNDS + 60);
        for rounds in [1, 3, 10, 40] {
            let lead = played.lead(rounds);
            assert!(lead <= world.quantum, "{lead} after {rounds} rounds: {world:?}");
            // a client with requests for a whole turn is never between two parts of it
            assert!(lead == 0 || world.quantum > 5, "{lead} after {rounds} rounds: {world:?}");
        }
    }
}

#[test]
fn requests_of_mixed_cost_leave_clients_within_two_quanta() {
    for (quantum, clients, slots, turnaround) in
        [(8_192, 10, 4, 500), (8_192, 20, 16, 50), (8_192, 80, 16, 500), (2_048, 40, 4, 50)]
    {
        let world = World { quantum, kib: true, clients, slots, turnaround, ..TEN };
        let played = world.play(WARM_ROUNDS + 50);
        for rounds in [1, 3, 10, 40] {
            let lead = played.lead(rounds);
            let bound = 2 * quantum + 2 * COST_MAX;
            assert!(lead <= bound, "{lead} KiB after {rounds} rounds: {world:?}");
        }
    }
}

#[test]
fn in_lustres_way_clients_with_less_in_flight_than_a_quantum_get_less() {
    let lustre = World { place: "lustre", ..TEN };
    let lead = lustre.play(WARM_ROUNDS + 60).lead(40);
    assert!(lead > 5 * TEN.quantum, "it is not a matter of course: {lead}");
}

#[test]
fn a_newcomer_waits_for_two_quanta_of_each_other_client_at_most() {
    for quantum in [8, 1] {
        for (clients, slots, turnaround) in [(10, 4, 500), (10, 16, 4_000), (80, 80, 1_000)] {
            let world = World { quantum, clients, slots, turnaround, guests: true, ..TEN };
            let played = world.play(WARM_ROUNDS + 1_600 / quantum as usize);
            assert!(played.guests > 20, "{} guests: {world:?}", played.guests);
            let overtaken = played.overtaken;
            assert!(overtaken <= 2 * quantum, "overtaken {overtaken} times: {world:?}");
        }
    }
}

/// A client cannot have more served than it sends: with `f` requests in flight, that is `f` in the
/// time of a service and a turnaround, here 1.5 ms. Its share of the slots is `slots / clients`
/// requests in 1 ms.
#[test]
fn with_more_slots_than_the_smallest_client_can_fill_shares_follow_what_is_in_flight() {
    let lead = |slots, clients| {
        let world = World { slots, clients, ..TEN };
        world.play(WARM_ROUNDS + 60).lead(40)
    };
    // 5 in flight fill 33 slots of ten clients
    assert!(lead(30, 10) <= 2 * TEN.quantum, "{}", lead(30, 10));
    assert!(lead(40, 10) > 6 * TEN.quantum, "{}", lead(40, 10));
    assert!(lead(80, 10) > 20 * TEN.quantum, "{}", lead(80, 10));
    assert!(lead(80, 40) <= 2 * TEN.quantum, "{}", lead(80, 40));
}

/// A number that a policy shows in its state, such as `clients`.
fn shown(head: &mut Head<Req>, name: &str) -> u64 {
    let text = ServiceHeads { reg: vec![head], hp: vec![] }.stats().to_string();
    let (_, rest) = text.split_once(&format!("{name}: ")).expect("the policy shows it");
    let end = rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().expect("a number")
}

/// 20,000 clients come in no order, ask two or three times and go away for minutes, some of them
/// for so long that they are forgotten, while 2,000 requests are always queued.
#[test]
fn clients_that_come_and_go_hold_up_nobody_and_leave_nothing_behind() {
    let (clients, quantum, step) = (20_000, TEN.quantum, 2_000_000);
    let (mut head, mut chance) = (TEN.head(), Chance::new(TEN.seed));
    head.set_log(false);
    let (mut busy, mut got) = (VecDeque::new(), BTreeMap::new());
    let (mut waits, mut watched) = (None, 0);
    for number in 1..=600_000_u64 {
        let now = Instant(number * step);
        while busy.len() < 2_000 {
            let client = 1 + chance.below(clients);
            busy.extend(std::iter::repeat_n(client, 2 + chance.below(2) as usize));
        }
        let client = busy.pop_front().expect("there are clients");
        head.enqueue(Req::new(number, client).at(now), now);
        if number <= 2_000 {
            continue;
        }
        if waits.is_none() {
            waits = Some(number);
            got.clear();
        }
        let taken = head.dequeue(now).taken().expect("they are queued");
        head.finished(taken.policy, now);
        let served = got.entry(taken.request.client).or_insert(0);
        *served += 1;
        // each of the others has two turns at most before it
        assert!(*served <= 2 * quantum + 2, "{served} for client {}", taken.request.client);
        if waits == Some(taken.request.number) {
            (waits, watched) = (None, watched + 1);
        }
        if number % 100_000 == 0 {
            let bytes = shown(&mut head, "bytes");
            assert!(bytes <= 192 * clients, "{bytes} bytes after {number} requests");
            assert!(shown(&mut head, "clients") <= clients);
        }
    }
    assert!(watched > 20, "{watched} requests were watched");
    while let Some(taken) = head.dequeue(Instant(600_000 * step)).taken() {
        head.finished(taken.policy, Instant(600_000 * step));
    }
    // a client that stays forgets the others by and by
    for number in 0..clients {
        let now = Instant((1_000_000 + number) * step);
        head.enqueue(Req::new(number, 1).at(now), now);
        let taken = head.dequeue(now).taken().expect("it is alone");
        head.finished(taken.policy, now);
    }
    assert_eq!(shown(&mut head, "clients"), 1);
}

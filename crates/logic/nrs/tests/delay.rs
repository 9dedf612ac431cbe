//! `delay` against an ordered map by (millisecond, arrival). The tests compare which requests are
//! held, when each leaves, and in which order, with FIFO beside it. They also compare when the head
//! is to be asked again.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Chance, HELD_MAX, Req};
use nrs::{Dequeued, Handle, Head, HeadKind, Moment, Removal, ServiceHeads, WAIT_MIN, promote};
use types::{CptIndex, Instant, SplitMix64};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Requests queued at most: the map is looked through from end to end.
const QUEUED_MAX: usize = 250;

/// 10^6 operations in release, enough for each kind of step in debug.
const STEPS: u64 = if cfg!(debug_assertions) { 8_000 } else { 45_000 };
const SEEDS: u64 = if cfg!(debug_assertions) { 8 } else { 25 };

/// Every question at a time the head has named brings the answer one level of the wheel nearer.
const QUESTIONS_MAX: usize = 12;

struct Reference {
    chance: SplitMix64,
    min: u64, // ms
    max: u64,
    pct: u64,
    held: BTreeMap<(u64, u64), u64>, // millisecond, arrival -> number
    places: BTreeMap<u64, (u64, u64)>,
    fifo: BTreeMap<u64, u64>,            // arrival -> number
    leave_by: BTreeSet<(u64, u64, u64)>, // of the held: instant, arrival, number
    arrivals: u64,
    fifo_first: bool, // whose turn it is when both have requests
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// Number, and whether it was overdue.
    Request(u64, bool),
    NotBefore(u64),
    Empty,
}

impl Reference {
    fn new(seed: u64) -> Reference {
        Reference {
            chance: SplitMix64::new(SplitMix64::new(seed).bits()), // as partition 0 draws
            min: 5_000,
            max: 300_000,
            pct: 100,
            held: BTreeMap::new(),
            places: BTreeMap::new(),
            fifo: BTreeMap::new(),
            leave_by: BTreeSet::new(),
            arrivals: 0,
            fifo_first: true,
        }
    }

    fn enqueue(&mut self, number: u64, sent: u64, now: u64) {
        self.arrivals += 1;
        if self.chance.below(100) >= self.pct {
            self.fifo.insert(self.arrivals, number);
            return;
        }
        let until = now + (self.min + self.chance.below(self.max - self.min + 1)) * MS;
        let place = (until.div_ceil(MS), self.arrivals);
        self.held.insert(place, number);
        self.places.insert(number, place);
        self.leave_by.insert((sent + HELD_MAX.0, self.arrivals, number));
    }

    fn forget(&mut self, number: u64) -> bool {
        let Some(place) = self.places.remove(&number) else {
            let before = self.fifo.len();
            self.fifo.retain(|_, queued| *queued != number);
            return self.fifo.len() < before;
        };
        self.held.remove(&place);
        self.leave_by.retain(|(_, _, held)| *held != number);
        true
    }

    fn dequeue(&mut self, now: u64) -> Answer {
        let both = !self.fifo.is_empty() && !self.held.is_empty();
        let overdue =
            self.leave_by.first().filter(|(at, ..)| *at <= now).map(|(.., number)| *number);
        let due = self
            .held
            .first_key_value()
            .filter(|((tick, _), _)| tick * MS <= now)
            .map(|(_, number)| *number);
        let held = overdue
            .map(|number| Answer::Request(number, true))
            .or(due.map(|number| Answer::Request(number, false)));
        let fifo = self.fifo.first_key_value().map(|(_, number)| Answer::Request(*number, false));
        let fifo_wins = fifo.is_some() && (self.fifo_first || held.is_none());
        let answer = if fifo_wins { fifo } else { held };
        match answer {
            Some(Answer::Request(number, forced)) => {
                if both {
                    self.fifo_first = !fifo_wins;
                }
                self.forget(number);
                Answer::Request(number, forced)
            }
            _ => self.next(now),
        }
    }

    fn next(&self, now: u64) -> Answer {
        let Some(((tick, _), _)) = self.held.first_key_value() else { return Answer::Empty };
        let urgent = self.leave_by.first().expect("all that is held has a latest time").0;
        Answer::NotBefore((tick * MS).min(urgent).max(now + WAIT_MIN.0))
    }
}

struct World {
    seed: u64,
    step: u64,
    now: u64,
    chance: Chance,
    wave: u64, // how much more comes than goes, in percent
    head: Head<Req>,
    hp: Head<Req>,
    reference: Reference,
    queued: Vec<(u64, Handle)>,
    held: u64,
    forced: u64,
    waited: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let head = |kind| Head::new("ost_io", kind, CptIndex(0), &[nrs::delay()]);
        let mut world = World {
            seed,
            step: 0,
            now: seed * 777_777_777,
            chance: Chance::new(seed),
            wave: 50,
            head: head(HeadKind::Reg),
            hp: head(HeadKind::Hp),
            reference: Reference::new(seed),
            queued: Vec::new(),
            held: 0,
            forced: 0,
            waited: 0,
        };
        let moment = Moment { now: Instant(world.now), seed };
        ServiceHeads { reg: vec![&mut world.head], hp: vec![] }
            .select("delay", moment)
            .expect("starts");
        world
    }

    fn step(&mut self) {
        if self.step.is_multiple_of(500) {
            self.wave = 20 + self.chance.below(60);
        }
        match self.chance.below(100) {
            0..85 if self.chance.below(100) < self.wave => self.send(),
            0..85 => self.ask(),
            85..90 => self.remove(),
            90..92 => self.promote(),
            92..93 => self.tune(),
            _ => self.pass_time(),
        }
        assert_eq!(
            self.head.len(),
            self.reference.held.len() + self.reference.fifo.len(),
            "{}",
            self.at()
        );
    }

    fn at(&self) -> String {
        format!("seed {}, step {}, now {}", self.seed, self.step, self.now)
    }

    fn pass_time(&mut self) {
        let scale = match self.chance.below(100) {
            0..50 => MS,
            50..80 => 100 * MS,
            80..95 => SECOND,
            95..99 => 60 * SECOND,
            _ => 400 * SECOND,
        };
        self.now += self.chance.below(scale);
    }

    fn send(&mut self) {
        if self.head.len() == QUEUED_MAX {
            return;
        }
        self.now += 1; // no two latest times are equal
        // a request may have waited elsewhere: promoted ones are older than those they stand behind
        let age = if self.chance.one_in(8) {
            self.chance.below(self.now.min(600 * SECOND) + 1) / 2 * 2
        } else {
            0
        };
        let sent = self.now - age;
        if self.reference.leave_by.iter().any(|(at, ..)| *at == sent + HELD_MAX.0) {
            return;
        }
        self.reference.enqueue(self.step, sent, self.now);
        let handle = self.head.enqueue(Req::new(self.step, 1).at(Instant(sent)), Instant(self.now));
        self.queued.push((self.step, handle));
    }

    fn ask(&mut self) {
        let want = self.reference.dequeue(self.now);
        let got = self.head_says();
        match (got, want) {
            (Answer::NotBefore(got), Answer::NotBefore(want)) => self.see_waiting(got, want),
            (got, want) => {
                assert_eq!(got, want, "{}", self.at());
                if let Answer::Request(_, forced) = got {
                    self.forced += u64::from(forced);
                    self.held += 1;
                }
            }
        }
    }

    fn head_says(&mut self) -> Answer {
        match self.head.dequeue(Instant(self.now)) {
            Dequeued::Taken(taken) => {
                self.head.finished(taken.policy, Instant(self.now));
                Answer::Request(taken.request.number, taken.forced)
            }
            Dequeued::NotBefore(until) => Answer::NotBefore(until.0),
            Dequeued::Empty => Answer::Empty,
        }
    }

    /// The head may want to be asked too early, as the wheel turns, but not often, and never too
    /// late.
    fn see_waiting(&mut self, mut got: u64, want: u64) {
        assert!(
            got > self.now && got <= want,
            "{}: not before {got} where {want} is right",
            self.at()
        );
        self.waited += 1;
        if !self.chance.one_in(3) {
            return;
        }
        for _ in 0..QUESTIONS_MAX {
            if got == want {
                self.now = want;
                return;
            }
            self.now = got;
            let want = self.reference.dequeue(self.now);
            match (self.head_says(), want) {
                (Answer::NotBefore(again), Answer::NotBefore(want)) => {
                    assert!(
                        again > got && again <= want,
                        "{}: {again} after {got} where {want} is right",
                        self.at()
                    );
                    if again == want {
                        return;
                    }
                    got = again;
                }
                (got, want) => return assert_eq!(got, want, "{}", self.at()),
            }
        }
        panic!("{}: still not {want} after {QUESTIONS_MAX} questions", self.at());
    }

    fn some_queued(&mut self) -> Option<(u64, Handle)> {
        if self.queued.is_empty() {
            return None;
        }
        let at = self.chance.below(self.queued.len() as u64) as usize;
        Some(self.queued.swap_remove(at))
    }

    /// Of one that is queued or has left.
    fn remove(&mut self) {
        let Some((number, handle)) = self.some_queued() else { return };
        let removed = self.head.remove(handle, Instant(self.now), Removal::Gone).is_some();
        assert_eq!(removed, self.reference.forget(number), "{}: {number}", self.at());
    }

    fn promote(&mut self) {
        let Some((number, handle)) = self.some_queued() else { return };
        let promoted = promote(&mut self.head, &mut self.hp, handle, Instant(self.now)).is_some();
        assert_eq!(promoted, self.reference.forget(number), "{}: {number}", self.at());
        while self.hp.dequeue(Instant(self.now)).taken().is_some() {}
    }

    fn tune(&mut self) {
        let below = [50, 5_000, 1_000_000][self.chance.below(3) as usize];
        let (what, ms) = (self.chance.below(4), self.chance.below(below));
        let reference = &mut self.reference;
        let (parameter, value, fine) = match what {
            0 => ("nrs_delay_min", format!("{ms}ms"), ms <= reference.max),
            1 => ("nrs_delay_max", format!("{ms}ms"), ms >= reference.min),
            2 => ("nrs_delay_pct", (ms % 101).to_string(), true),
            _ => ("nrs_delay_reset", "1".to_owned(), true),
        };
        match what {
            0 if fine => reference.min = ms,
            1 if fine => reference.max = ms,
            2 => reference.pct = ms % 101,
            3 => (reference.min, reference.max, reference.pct) = (5_000, 300_000, 100),
            _ => {}
        }
        let moment = Moment { now: Instant(self.now), seed: 1 };
        let set =
            ServiceHeads { reg: vec![&mut self.head], hp: vec![] }.set(parameter, &value, moment);
        assert_eq!(set.is_ok(), fine, "{}: {parameter}={value}", self.at());
    }
}

#[test]
fn delay_holds_and_orders_as_the_ordered_map_does() {
    let (mut left, mut forced, mut waited) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for step in 0..STEPS {
            world.step = step;
            world.step();
        }
        assert_eq!(world.head.take_disabled(), [], "seed {seed}");
        left += world.held;
        forced += world.forced;
        waited += world.waited;
    }
    assert!(
        left > SEEDS * STEPS / 5 && forced > SEEDS && waited > SEEDS * STEPS / 50,
        "{left} left, {forced} forced, {waited} waits"
    );
}

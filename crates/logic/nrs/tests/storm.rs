//! Hot swaps, promotions, removals and failing policies under load, over many seeds. Nothing is
//! lost and nothing leaves twice. No request is held beyond its latest time, and FIFO keeps the
//! order of arrival.

use std::collections::BTreeMap;

use crate::common::{Chance, HELD_MAX, Mood, Req, Service, Strings, puppet};
use nrs::{
    Dequeued, Handle, Moment, PolicyIndex, PolicyState, Removal, Restart, Selected, promote,
};
use types::{Instant, Span};
use wire::Opcode;

const PARTITIONS: usize = 3;
const SECOND: u64 = 1_000_000_000;

struct Storm {
    chance: Chance,
    now: Instant,
    service: Service<Req>,
    moods: Vec<Strings>,
    /// What is queued: number -> head, handle.
    queued: BTreeMap<u64, (bool, usize, Handle)>,
    /// What is being handled.
    active: Vec<(bool, usize, PolicyIndex)>,
    restarts: Vec<Restart>,
    sent: u64,
    left: u64,
    broken: u64,
    swaps: u64,
    forced: u64,
}

const POLICIES: &[&str] = &[
    "fifo",
    "crrn",
    "crre",
    "orr",
    "trr",
    "puppet",
    "other",
    "puppet a",
    "other b",
    "crrn reg",
    "fifo hp",
    "puppet hp c",
    "orr reg",
    "delay",
    "tbf",
    "tbf nid+opcode",
    "tbf hp nid",
];

impl Storm {
    fn new(seed: u64) -> Storm {
        let ((one, mood), (two, other)) = (puppet("puppet"), puppet("other"));
        let mut policies = vec![one, two];
        policies.extend(nrs::policies());
        Storm {
            chance: Chance::new(seed),
            now: Instant(SECOND),
            service: Service::new(PARTITIONS as u32, &policies),
            moods: vec![mood, other],
            queued: BTreeMap::new(),
            active: Vec::new(),
            restarts: Vec::new(),
            sent: 0,
            left: 0,
            broken: 0,
            swaps: 0,
            forced: 0,
        }
    }

    fn moment(&mut self) -> Moment {
        Moment { now: self.now, seed: self.chance.next() }
    }

    fn head(&mut self, hp: bool, partition: usize) -> &mut nrs::Head<Req> {
        if hp { &mut self.service.hp[partition] } else { &mut self.service.reg[partition] }
    }

    fn step(&mut self) {
        match self.chance.below(1_000) {
            0..400 => self.send(),
            400..900 => self.serve(),
            900..930 => self.promote(),
            930..960 => self.remove(),
            960..985 => self.swap(),
            985..990 => self.tune(),
            990..992 => self.ask(),
            992..996 => self.change_mood(),
            _ => self.now = self.now + Span(self.chance.below(200 * SECOND)),
        }
    }

    fn send(&mut self) {
        self.sent += 1;
        let opcode = if self.chance.one_in(4) { Opcode::OstWrite } else { Opcode::OstRead };
        let (client, object) = (self.chance.below(9), self.chance.below(20));
        let start = self.chance.below(1 << 20);
        let request = Req {
            opcode,
            object,
            range: (start, start + 4096),
            ..Req::new(self.sent, client).at(self.now)
        };
        let (hp, partition, now) =
            (self.chance.one_in(5), self.chance.below(PARTITIONS as u64) as usize, self.now);
        let handle = self.head(hp, partition).enqueue(request, now);
        self.queued.insert(self.sent, (hp, partition, handle));
    }

    fn serve(&mut self) {
        if !self.active.is_empty() && (self.active.len() > 50 || self.chance.one_in(2)) {
            let at = self.chance.below(self.active.len() as u64) as usize;
            let (hp, partition, policy) = self.active.swap_remove(at);
            let now = self.now;
            self.head(hp, partition).finished(policy, now);
        }
        let (hp, partition, now) =
            (self.chance.one_in(3), self.chance.below(PARTITIONS as u64) as usize, self.now);
        let here = self
            .queued
            .values()
            .filter(|(queued_hp, at, _)| (*queued_hp, *at) == (hp, partition))
            .count();
        let oldest = self.oldest_held(hp, partition);
        match self.head(hp, partition).dequeue(now) {
            Dequeued::Taken(taken) => {
                let was = self.queued.remove(&taken.request.number);
                assert!(
                    was.is_some_and(|(from_hp, at, _)| (from_hp, at) == (hp, partition)),
                    "leaves once, from where it is"
                );
                self.active.push((hp, partition, taken.policy));
                self.forced += u64::from(taken.forced);
                self.left += 1;
            }
            Dequeued::NotBefore(until) => {
                assert!(here > 0 && until > now, "a time to come, for requests that are there");
                assert!(
                    oldest.is_none_or(|at| now < at + HELD_MAX),
                    "nobody is held beyond the latest time"
                );
            }
            Dequeued::Empty => assert_eq!(here, 0, "it is empty only when nothing is queued"),
        }
        self.broken += self.head(hp, partition).take_disabled().len() as u64;
    }

    fn oldest_held(&mut self, hp: bool, partition: usize) -> Option<Instant> {
        let handles: Vec<Handle> = self
            .queued
            .values()
            .filter(|(queued_hp, at, _)| (*queued_hp, *at) == (hp, partition))
            .map(|(_, _, handle)| *handle)
            .collect();
        let head = self.head(hp, partition);
        assert_eq!(
            head.len(),
            handles.len(),
            "everything queued is known, and everything known is queued"
        );
        handles.iter().map(|handle| head.get(*handle).expect("queued").at).min()
    }

    fn some_queued(&mut self) -> Option<u64> {
        let at = self.chance.below(self.queued.len().max(1) as u64) as usize;
        self.queued.keys().nth(at).copied()
    }

    fn promote(&mut self) {
        let Some(number) = self.some_queued() else { return };
        let (hp, partition, handle) = self.queued[&number];
        if !hp {
            let (reg, high) = (&mut self.service.reg[partition], &mut self.service.hp[partition]);
            let moved = promote(reg, high, handle, self.now).expect("it is queued");
            self.queued.insert(number, (true, partition, moved));
        }
    }

    fn remove(&mut self) {
        let Some(number) = self.some_queued() else { return };
        let (hp, partition, handle) = self.queued.remove(&number).expect("just seen");
        let now = self.now;
        let removed = self.head(hp, partition).remove(handle, now, Removal::Gone);
        assert_eq!(removed.map(|request| request.number), Some(number));
        self.left += 1;
    }

    fn swap(&mut self) {
        let moment = self.moment();
        if let Some(restart) = self.restarts.pop() {
            if self.chance.one_in(4) {
                self.service.all().give_up(restart);
            } else if let Ok(Selected::Draining(restart)) =
                self.service.all().resume(restart, moment)
            {
                self.restarts.push(restart);
            }
            return;
        }
        let name = POLICIES[self.chance.below(POLICIES.len() as u64) as usize];
        match self.service.all().select(name, moment) {
            Ok(Selected::Done) => self.swaps += 1,
            Ok(Selected::Draining(restart)) => self.restarts.push(restart),
            Err(_) => {} // it drains, or another one starts
        }
    }

    fn tune(&mut self) {
        let moment = self.moment();
        let values = [
            ("nrs_crrn_quantum", "3"),
            ("nrs_crrn_unit", "kib"),
            ("nrs_orr_offset_type", "logical"),
            ("nrs_orr_supported", "reads_and_writes"),
            ("nrs_trr_sweep", "cscan"),
            ("nrs_crre_quantum", "hp_quantum:1"),
            ("nrs_crrn_reset", "1"),
            ("nrs_orr_reset", "1"),
            ("nrs_delay_min", "1ms"),
            ("nrs_delay_pct", "50"),
            ("nrs_delay_reset", "1"),
            ("nrs_tbf_rule", "start slow nid={*} rate=0.1"),
            ("nrs_tbf_rule", "start node nid={*} rate=1 scope=node rank=default"),
            ("nrs_tbf_rule", "change default rate=2 depth=1"),
            ("nrs_tbf_rule", "stop slow"),
            ("nrs_tbf_reset", "1"),
        ];
        let (parameter, value) = values[self.chance.below(values.len() as u64) as usize];
        let _ = self.service.all().set(parameter, value, moment); // if it runs
    }

    /// Somebody looks: at a parameter, at what policies tell of themselves, at each request that
    /// leaves.
    fn ask(&mut self) {
        let _ = self.service.all().get("nrs_puppet_size", self.now); // if it runs
        let (hp, partition) =
            (self.chance.one_in(2), self.chance.below(PARTITIONS as u64) as usize);
        let on = self.chance.one_in(2);
        let head = self.head(hp, partition);
        head.set_log(on);
        for name in ["puppet", "other", "crrn", "tbf"] {
            let _ = head.policy_stats(name); // if it runs
        }
    }

    fn change_mood(&mut self) {
        let moods = [
            Mood::Fair,
            Mood::Fair,
            Mood::Fair,
            Mood::Holds(Instant(u64::MAX)),
            Mood::Holds(Instant(u64::MAX)),
            Mood::Holds(Instant(u64::MAX)),
            Mood::Holds(self.now + Span(self.chance.below(1_000 * SECOND))),
            Mood::Holds(Instant(u64::MAX)),
            Mood::RefusesAll,
            Mood::BreaksAtEnqueue,
            Mood::PanicsAtEnqueue,
            Mood::BreaksAtDequeue,
            Mood::PanicsAtDequeue,
            Mood::Repeats,
            Mood::Hides,
            Mood::BreaksAtRemove,
            Mood::PanicsAtRemove,
            Mood::PanicsAtFinished,
            Mood::PanicsAtLog,
            Mood::PanicsAtGet,
            Mood::PanicsAtStats,
        ];
        let which = self.chance.below(self.moods.len() as u64) as usize;
        *self.moods[which].borrow_mut() = moods[self.chance.below(moods.len() as u64) as usize];
    }

    /// The service ends: everything leaves.
    fn end(&mut self) {
        for (hp, partition, policy) in std::mem::take(&mut self.active) {
            let now = self.now;
            self.head(hp, partition).finished(policy, now);
        }
        for (hp, partition) in
            (0..PARTITIONS).flat_map(|partition| [(false, partition), (true, partition)])
        {
            let now = self.now;
            self.head(hp, partition).end();
            while let Some(taken) = self.head(hp, partition).dequeue(now).taken() {
                assert!(self.queued.remove(&taken.request.number).is_some(), "leaves once");
                self.left += 1;
                self.head(hp, partition).finished(taken.policy, now);
            }
            let head = self.head(hp, partition);
            assert!(head.is_empty());
            for policy in head.list() {
                assert_eq!((policy.counters.queued, policy.counters.active), (0, 0));
                assert!(
                    matches!(policy.state, PolicyState::Started | PolicyState::Stopped),
                    "nothing drains for ever"
                );
            }
        }
        assert!(self.queued.is_empty());
        assert_eq!(self.left, self.sent, "nothing lost, nothing twice");
    }
}

#[test]
fn nothing_is_lost_or_doubled_whatever_the_policies_do() {
    std::panic::set_hook(Box::new(|panic| {
        // those that policies were told to have are caught; others end the test and say why
        let text = panic.payload_as_str().unwrap_or_default();
        if !text.contains("went wrong") {
            eprintln!("{panic}");
        }
    }));
    let (mut swaps, mut broken, mut forced) = (0, 0, 0);
    for seed in 0..60 {
        let mut storm = Storm::new(seed);
        for _ in 0..5_000 {
            storm.step();
        }
        storm.end();
        swaps += storm.swaps;
        broken += storm.broken;
        forced += storm.forced;
    }
    assert!(
        swaps > 1_000 && broken > 100 && forced > 10,
        "{swaps} swaps, {broken} broken policies, {forced} forced"
    );
}

#[test]
fn fifo_keeps_arrival_order_after_broken_policies() {
    for seed in 0..50 {
        let mut storm = Storm::new(seed);
        let mut now = storm.now;
        for number in 0..300 {
            if number % 50 == 0 {
                let name = ["puppet", "other", "fifo"][storm.chance.below(3) as usize];
                let _ = storm.service.all().select(name, Moment { now, seed: number + 1 });
            }
            now = now + Span(1);
            storm.service.reg[0].enqueue(Req::new(number, 1).at(now), now);
        }
        for mood in &storm.moods {
            *mood.borrow_mut() = Mood::BreaksAtRemove;
        }
        // both break over a removal each; what is left leaves in order
        let head = &mut storm.service.reg[0];
        for handle in head.find(|request| request.number % 50 == 25) {
            assert!(head.remove(handle, now, Removal::Gone).is_some());
        }
        let mut left = Vec::new();
        while let Some(taken) = head.dequeue(now).taken() {
            head.finished(taken.policy, now);
            left.push(taken.request.number);
        }
        let expected: Vec<u64> = (0..300).filter(|number| number % 50 != 25).collect();
        assert_eq!(left, expected, "{seed}");
    }
}

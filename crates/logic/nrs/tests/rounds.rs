//! CRR-N, CRR-E, ORR and TRR against an ordered map of all requests. The map follows Lustre's rules
//! word by word, with ties in arrival order, and the rules of seats (`place=keep`).

use std::collections::BTreeMap;

use crate::common::{Chance, Req};
use nrs::{Descriptor, Handle, Head, HeadKind, Moment, Removal, ServiceHeads};
use types::{CptIndex, Extent, Instant};

const NOW: Instant = Instant(1);

/// Round, batch, first byte, last byte, arrival.
type Place = (u64, u64, u64, u64, u64);

#[derive(Default)]
struct Group {
    round: u64,
    seq: u64, // of its last batch, or its seat
    left: i64,
    active: u64,
}

struct Reference {
    quantum: u64,
    kib: bool,
    keep: bool,
    sorted: bool,
    cscan: bool,
    round: u64,
    seq: u64,
    arrivals: u64,
    at: Option<(u64, u64, u64, u64)>, // batch served last, and where in it
    groups: BTreeMap<u64, Group>,
    queue: BTreeMap<Place, (u64, u64)>, // number, group
    places: BTreeMap<u64, Place>,
}

impl Reference {
    fn enqueue(&mut self, number: u64, group: u64, range: Extent) {
        self.arrivals += 1;
        let (start, end) = if self.sorted { (range.start(), range.end()) } else { (0, 0) };
        let front = self.queue.first_key_value().map(|(place, _)| (place.0, place.1));
        let c = self.groups.entry(group).or_default();
        if let (true, Some(at)) = (self.cscan && c.left > 0 && c.active > 0, self.at)
            && front == Some((c.round, c.seq))
            && front == Some((at.0, at.1))
            && (start, end) < (at.2, at.3)
        {
            (c.left, c.round) = (0, c.round + 1);
        }
        let opens = c.left <= 0 || c.active == 0;
        if opens {
            if c.active == 0 && c.left > 0 && !self.keep {
                (c.round, c.left) = (c.round + 1, 0);
            }
            while c.left <= -(self.quantum as i64) {
                (c.round, c.left) = (c.round + 1, c.left + self.quantum as i64);
            }
            let seated = self.keep && c.seq > 0 && c.round + 1 >= self.round;
            if c.round < self.round && !seated {
                (c.round, c.left) = (self.round, 0);
            }
            if c.seq < self.seq && !seated {
                self.seq += 1;
                c.seq = self.seq;
            }
            if c.left <= 0 {
                c.left += self.quantum as i64;
            }
        }
        if self.queue.is_empty() {
            self.round = self.round.max(c.round);
        }
        let place = (c.round, c.seq, start, end, self.arrivals);
        assert!(c.round + 1 >= self.round, "no group is later than a round");
        if opens && !self.keep {
            assert!(c.round >= self.round, "late batches are of the time when seats were kept");
        }
        assert!(self.queue.insert(place, (number, group)).is_none());
        self.places.insert(number, place);
        c.active += 1;
        c.left -= if self.kib { (range.end() - range.start()).div_ceil(1024) as i64 } else { 1 };
        if c.left <= 0 {
            c.round += 1;
        }
    }

    fn change_unit(&mut self) {
        self.kib = !self.kib;
        for c in self.groups.values_mut() {
            c.round += u64::from(c.left > 0); // an open batch is over
            c.left = 0;
        }
    }

    fn dequeue(&mut self) -> Option<(u64, (u64, u64))> {
        let (place, _) = self.queue.first_key_value()?;
        let place = *place;
        self.at = Some((place.0, place.1, place.2, place.3));
        Some((self.leave(place), (place.0, place.1)))
    }

    fn leave(&mut self, place: Place) -> u64 {
        let smallest = self.queue.first_key_value().is_some_and(|(first, _)| *first == place);
        let (number, group) = self.queue.remove(&place).expect("queued");
        self.places.remove(&number);
        if smallest {
            self.round = self
                .queue
                .first_key_value()
                .map_or(self.round + u64::from(!self.keep), |(first, _)| self.round.max(first.0));
        }
        let c = self.groups.get_mut(&group).expect("known");
        c.active -= 1;
        number
    }

    fn remove(&mut self, number: u64) {
        let place = self.places[&number];
        let group = self.queue[&place].1;
        self.leave(place);
        let c = self.groups.get_mut(&group).expect("known");
        let end = (c.round, c.seq, u64::MAX, u64::MAX, u64::MAX);
        let batch = (c.round, c.seq, 0, 0, 0)..=end;
        if c.left > 0 && c.active > 0 && self.queue.range(batch).next().is_none() {
            (c.round, c.left) = (c.round + 1, 0); // a batch that has become empty is over
        }
        if c.active == 0 && c.round > self.round + 1 {
            (c.round, c.left) = (self.round + 1, 0);
        }
    }
}

struct Case {
    keep: bool,
    descriptor: Descriptor<Req>,
    group: fn(&Req) -> u64,
    tunables: &'static [(&'static str, &'static str)],
    kib: bool,
    unit_changes: bool,
    place_changes: bool,
    sorted: bool,
    cscan: bool,
}

fn set(head: &mut Head<Req>, parameter: &str, value: &str) {
    let moment = Moment { now: NOW, seed: 1 };
    ServiceHeads { reg: vec![head], hp: vec![] }
        .set(parameter, value, moment)
        .expect("a good value");
}

fn check(case: &Case, seed: u64, steps: u64) {
    let name = case.descriptor.name;
    let mut head =
        Head::new("ost_io", HeadKind::Reg, CptIndex(0), std::slice::from_ref(&case.descriptor));
    let moment = Moment { now: NOW, seed };
    ServiceHeads { reg: vec![&mut head], hp: vec![] }.select(name, moment).expect("starts");
    for (parameter, value) in case.tunables {
        set(&mut head, parameter, value);
    }
    let mut chance = Chance::new(seed);
    let clients = 1 + chance.below(23);
    let mut reference = Reference {
        quantum: 0,
        kib: case.kib,
        keep: case.keep,
        sorted: case.sorted,
        cscan: case.cscan,
        round: 0,
        seq: 1,
        arrivals: 0,
        at: None,
        groups: BTreeMap::new(),
        queue: BTreeMap::new(),
        places: BTreeMap::new(),
    };
    let mut queued: Vec<(u64, Handle)> = Vec::new();
    let mut wave = 0;
    for step in 0..steps {
        if step % 5_000 == 0 {
            wave = chance.below(80); // how much more comes than goes, in percent
            reference.quantum = 1 + chance.below(12) * if case.kib { 40 } else { 1 };
            set(&mut head, &format!("nrs_{name}_quantum"), &reference.quantum.to_string());
            if case.place_changes {
                reference.keep = !reference.keep;
                let place = if reference.keep { "keep" } else { "lustre" };
                set(&mut head, &format!("nrs_{name}_place"), place);
            }
            if case.unit_changes {
                reference.change_unit();
                set(
                    &mut head,
                    &format!("nrs_{name}_unit"),
                    if reference.kib { "kib" } else { "rpc" },
                );
            }
        }
        if chance.below(100) < wave {
            let start = chance.below(64) * 4096;
            // some ask more than others
            let client = 1 + chance.below(clients).min(chance.below(clients));
            let request = Req {
                range: (start, start + 4096 * (1 + chance.below(40))),
                ..Req::new(step, client)
            };
            let range = Extent::new(request.range.0, request.range.1).expect("not empty");
            reference.enqueue(step, (case.group)(&request), range);
            queued.push((step, head.enqueue(request, NOW)));
        } else if chance.one_in(5) && !queued.is_empty() {
            // gone already, or queued: both are asked for
            let (number, handle) = queued.swap_remove(chance.below(queued.len() as u64) as usize);
            let removed = head.remove(handle, NOW, Removal::Gone).map(|request| request.number);
            assert_eq!(
                removed,
                reference.places.contains_key(&number).then_some(number),
                "{name} {seed} {step}"
            );
            if removed.is_some() {
                reference.remove(number);
            }
        } else {
            let taken = head
                .dequeue(NOW)
                .taken()
                .map(|taken| (taken.request.number, head.finished(taken.policy, NOW)).0);
            assert_eq!(
                taken,
                reference.dequeue().map(|(number, _)| number),
                "{name} {seed} {step}"
            );
        }
        assert_eq!(head.len(), reference.queue.len(), "{name} {seed} {step}");
    }
    assert_eq!(head.take_disabled(), []);
    assert!(head.list()[1].counters.started > steps / 10, "FIFO has nothing to do");
}

/// 10^6 operations and more, over many small worlds.
fn check_million(case: &Case) {
    for seed in 0..25 {
        check(case, seed, 40_000);
    }
}

fn clients(request: &Req) -> u64 {
    request.client
}

fn plain(descriptor: Descriptor<Req>, keep: bool) -> Case {
    Case {
        keep,
        descriptor,
        group: clients,
        tunables: &[],
        kib: false,
        unit_changes: false,
        place_changes: false,
        sorted: false,
        cscan: false,
    }
}

#[test]
fn crrn_orders_as_the_ordered_map_does() {
    check_million(&plain(nrs::crrn(), true));
}

#[test]
fn crrn_in_lustres_way_orders_as_the_ordered_map_does() {
    let tunables = &[("nrs_crrn_place", "lustre")];
    check_million(&Case { tunables, ..plain(nrs::crrn(), false) });
}

#[test]
fn crrn_whose_place_changes_orders_as_the_ordered_map_does() {
    check_million(&Case { place_changes: true, ..plain(nrs::crrn(), true) });
}

#[test]
fn crrn_by_kib_orders_as_the_ordered_map_does() {
    let tunables = &[("nrs_crrn_unit", "kib")];
    check_million(&Case { tunables, kib: true, ..plain(nrs::crrn(), true) });
}

#[test]
fn crrn_by_kib_in_lustres_way_orders_as_the_ordered_map_does() {
    let tunables = &[("nrs_crrn_place", "lustre"), ("nrs_crrn_unit", "kib")];
    check_million(&Case { tunables, kib: true, ..plain(nrs::crrn(), false) });
}

#[test]
fn crrn_whose_unit_and_place_change_orders_as_the_ordered_map_does() {
    let changes = Case { unit_changes: true, place_changes: true, ..plain(nrs::crrn(), true) };
    check_million(&changes);
}

#[test]
fn crrn_whose_unit_changes_orders_as_the_ordered_map_does() {
    check_million(&Case { unit_changes: true, ..plain(nrs::crrn(), true) });
}

#[test]
fn crrn_whose_unit_changes_in_lustres_way_orders_as_the_ordered_map_does() {
    let tunables = &[("nrs_crrn_place", "lustre")];
    check_million(&Case { tunables, unit_changes: true, ..plain(nrs::crrn(), false) });
}

#[test]
fn crre_orders_as_the_ordered_map_does() {
    check_million(&plain(nrs::crre(), true));
}

#[test]
fn crre_in_lustres_way_orders_as_the_ordered_map_does() {
    let tunables = &[("nrs_crre_place", "lustre")];
    check_million(&Case { tunables, ..plain(nrs::crre(), false) });
}

fn objects(request: &Req) -> u64 {
    request.object
}

#[test]
fn orr_orders_as_the_ordered_map_does() {
    check_million(&Case { group: objects, sorted: true, ..plain(nrs::orr(), false) });
}

#[test]
fn orr_that_never_goes_back_orders_as_the_ordered_map_does() {
    let tunables = &[("nrs_orr_sweep", "cscan")];
    let orr = plain(nrs::orr(), false);
    check_million(&Case { group: objects, tunables, sorted: true, cscan: true, ..orr });
}

#[test]
fn trr_orders_as_the_ordered_map_does() {
    let group = |request: &Req| request.object % 8;
    check_million(&Case { group, sorted: true, ..plain(nrs::trr(), false) });
}

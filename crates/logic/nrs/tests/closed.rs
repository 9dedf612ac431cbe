//! Clients that ask again when they are answered, and the share that each of them gets.

mod common;

use std::collections::BTreeMap;

use common::{Chance, Req};
use nrs::{Head, HeadKind, Moment, ServiceHeads};
use types::{CptIndex, Instant};

/// Microseconds that a request takes in a slot, and between an answer and the next request.
const SERVICE: u64 = 1_000;

/// Requests in flight of the clients: below, at and above the quantum.
const IN_FLIGHT: std::ops::RangeInclusive<u64> = 5..=14;

/// What the clients get within 1,000 rounds, (most - least) / mean, in thousandths.
fn spread(policy: &str, place: &str, slots: usize, turnaround: u64) -> u64 {
    let policies = [nrs::crrn(), nrs::crre()];
    let mut head = Head::new("ost_io", HeadKind::Reg, CptIndex(0), &policies);
    let mut all = ServiceHeads { reg: vec![&mut head], hp: vec![] };
    let moment = Moment { now: Instant(1), seed: 1 };
    all.select(policy, moment).expect("starts");
    all.set(&format!("nrs_{policy}_place"), place, moment).expect("it is there");
    let mut chance = Chance::new(7);
    // by time and number: a client whose request arrives, or whose answer leaves its slot
    let mut events: BTreeMap<(u64, u64), (bool, u64)> = BTreeMap::new();
    let mut number = 0;
    let mut at = |events: &mut BTreeMap<_, _>, time: u64, what| {
        number += 1;
        events.insert((time, number), what);
        number
    };
    for client in IN_FLIGHT {
        for _ in 0..client {
            at(&mut events, chance.below(SERVICE), (true, client));
        }
    }
    let mut served: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut busy, mut done) = (0, 0);
    while done < 1_000 * 80 {
        let ((time, _), (arrives, client)) = events.pop_first().expect("a closed system");
        let now = Instant(1 + time * 1_000);
        if arrives {
            head.enqueue(Req::new(0, client).at(now), now);
        } else {
            busy -= 1;
            done += 1;
            *served.entry(client).or_default() += 1;
            at(&mut events, time + 1 + chance.below(2 * turnaround), (true, client));
        }
        while busy < slots
            && let Some(taken) = head.dequeue(now).taken()
        {
            busy += 1;
            head.finished(taken.policy, now);
            let took = SERVICE / 2 + chance.below(SERVICE);
            at(&mut events, time + took, (false, taken.request.client));
        }
    }
    let (most, least) = (served.values().max().expect("ten"), served.values().min().expect("ten"));
    (most - least) * 1_000 * served.len() as u64 / done
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
fn clients_with_fewer_and_more_in_flight_than_a_quantum_get_the_same() {
    for (slots, turnaround) in [(1, 100), (4, 100), (4, 4_000), (16, 500)] {
        for policy in ["crrn", "crre"] {
            let keep = spread(policy, "keep", slots, turnaround);
            assert!(keep <= 20, "{policy} {slots} {turnaround}: {keep} thousandths");
        }
    }
    assert!(spread("crrn", "lustre", 4, 1_000) > 60, "it is not a matter of course");
}

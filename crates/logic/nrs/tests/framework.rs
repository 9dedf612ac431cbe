//! Heads: swaps, readiness, forcing, broken policies, removal.

use crate::common::{HELD_MAX, Mood, Req, Service, Strings, puppet};
use nrs::{Dequeued, Head, HeadKind, Moment, PolicyState, Removal, Selected, promote};
use types::{CptIndex, Errno, Instant, Span};

const NOW: Moment = Moment { now: Instant(1_000_000_000), seed: 7 };

fn service() -> (Service<Req>, Strings, Strings) {
    let ((one, mood), (two, other)) = (puppet("puppet"), puppet("other"));
    (Service::new(2, &[one, two]), mood, other)
}

fn select(service: &mut Service<Req>, value: &str) -> Result<(), Errno> {
    match service.all().select(value, NOW) {
        Ok(Selected::Done) => Ok(()),
        Ok(Selected::Draining(restart)) => Err(service.all().give_up(restart).errno),
        Err(refusal) => Err(refusal.errno),
    }
}

fn put(head: &mut Head<Req>, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        head.enqueue(Req::new(number, 1).at(NOW.now), NOW.now);
    }
}

/// Everything that leaves at `now`, finished at once.
fn drain(head: &mut Head<Req>, now: Instant) -> Vec<u64> {
    let mut out = Vec::new();
    while let Dequeued::Taken(taken) = head.dequeue(now) {
        head.finished(taken.policy, now);
        out.push(taken.request.number);
    }
    out
}

fn states(head: &Head<Req>) -> Vec<(&'static str, &'static str, u64)> {
    head.list()
        .iter()
        .map(|policy| (policy.name, policy.state.name(), policy.counters.queued))
        .collect()
}

#[test]
fn without_a_primary_requests_leave_in_the_order_they_came() {
    let (mut service, ..) = service();
    let head = &mut service.reg[0];
    put(head, 1..=5);
    assert_eq!(drain(head, NOW.now), [1, 2, 3, 4, 5]);
    assert!(matches!(head.dequeue(NOW.now), Dequeued::Empty));
}

#[test]
fn what_the_primary_declines_goes_through_fifo_beside_it() {
    let (mut service, ..) = service();
    select(&mut service, "puppet").expect("starts");
    let head = &mut service.reg[0];
    for (number, client) in [(1, 0), (2, 0), (3, 1), (4, 1)] {
        head.enqueue(Req::new(number, client), NOW.now);
    }
    assert_eq!(
        states(head),
        [("fifo", "started", 2), ("puppet", "started", 2), ("other", "stopped", 0)]
    );
    assert_eq!(drain(head, NOW.now), [1, 4, 2, 3], "in turn");
    assert_eq!(head.list()[1].counters.declined, 2);
}

#[test]
fn a_replaced_policy_drains_in_turn_with_the_new_one() {
    let (mut service, ..) = service();
    select(&mut service, "puppet").expect("starts");
    put(&mut service.reg[0], 1..=3);
    select(&mut service, "other").expect("starts");
    assert_eq!(select(&mut service, "puppet"), Err(Errno::EAGAIN), "it still drains");
    let head = &mut service.reg[0];
    put(head, 4..=6);
    assert_eq!(
        states(head),
        [("fifo", "started", 0), ("puppet", "stopping", 3), ("other", "started", 3)]
    );
    let mut order = Vec::new();
    let mut unfinished = Vec::new();
    while let Some(taken) = head.dequeue(NOW.now).taken() {
        order.push(taken.request.number);
        unfinished.push(taken.policy);
    }
    assert_eq!(order, [3, 6, 2, 5, 1, 4]);
    assert_eq!(head.list()[1].state, PolicyState::Stopping, "its requests are being handled");
    for policy in unfinished {
        head.finished(policy, NOW.now);
    }
    assert_eq!(head.list()[1].state, PolicyState::Stopped);
    select(&mut service, "puppet").expect("starts again");
}

#[test]
fn a_throttled_policy_holds_up_no_other() {
    let (mut service, mood, _) = service();
    *mood.borrow_mut() = Mood::Holds(NOW.now + Span::secs(3));
    select(&mut service, "puppet").expect("starts");
    put(&mut service.reg[0], 1..=2);
    select(&mut service, "fifo").expect("always");
    let head = &mut service.reg[0];
    put(head, 3..=4);
    assert_eq!(drain(head, NOW.now), [3, 4]);
    match head.dequeue(NOW.now) {
        Dequeued::NotBefore(until) => assert_eq!(until, NOW.now + Span::secs(3)),
        other => panic!("{other:?}"),
    }
    assert_eq!(drain(head, NOW.now + Span::secs(3)), [2, 1]);
    assert_eq!(head.list()[1].state, PolicyState::Stopped);
}

#[test]
fn no_request_is_held_beyond_its_latest_time() {
    let (mut service, mood, _) = service();
    *mood.borrow_mut() = Mood::Holds(Instant(u64::MAX));
    select(&mut service, "puppet").expect("starts");
    let head = &mut service.reg[0];
    put(head, 1..=2);
    let later = NOW.now + Span::secs(10);
    head.enqueue(Req::new(3, 1).at(later), later);
    match head.dequeue(later) {
        Dequeued::NotBefore(until) => {
            assert_eq!(until, NOW.now + HELD_MAX, "a timer for the oldest")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(drain(head, NOW.now + HELD_MAX), [1, 2]);
    assert_eq!(head.list()[1].counters.forced, 2);
    assert_eq!(head.len(), 1);
    head.end();
    assert_eq!(drain(head, later), [3]);
}

#[test]
fn fifo_takes_over_from_a_broken_policy_in_order() {
    for (broken, call) in [
        (Mood::BreaksAtEnqueue, "enqueue"),
        (Mood::PanicsAtEnqueue, "enqueue"),
        (Mood::BreaksAtDequeue, "dequeue"),
        (Mood::PanicsAtDequeue, "dequeue"),
        (Mood::Repeats, "dequeue"),
        (Mood::Hides, "dequeue"),
        (Mood::PanicsAtFinished, "finished"),
    ] {
        let (mut service, mood, _) = service();
        select(&mut service, "puppet").expect("starts");
        let head = &mut service.reg[0];
        put(head, 1..=5);
        let first = head.dequeue(NOW.now).taken().expect("one");
        assert_eq!(first.request.number, 5);
        *mood.borrow_mut() = broken;
        head.enqueue(Req::new(6, 0), NOW.now);
        put(head, 7..=8);
        head.finished(first.policy, NOW.now);
        // found at the policy's turn, after FIFO's
        let expected =
            if call == "dequeue" { [6, 1, 2, 3, 4, 7, 8] } else { [1, 2, 3, 4, 6, 7, 8] };
        assert_eq!(drain(head, NOW.now), expected, "{broken:?}");
        let disabled = head.take_disabled();
        assert_eq!(
            disabled.iter().map(|event| (event.policy, event.call)).collect::<Vec<_>>(),
            [("puppet", call)],
            "{broken:?}"
        );
        assert_eq!(head.list()[1].state, PolicyState::Stopped, "{broken:?}");
        *mood.borrow_mut() = Mood::Fair;
        select(&mut service, "puppet").expect("may be started again");
        put(&mut service.reg[0], 1..=2);
        assert_eq!(drain(&mut service.reg[0], NOW.now), [2, 1]);
    }
}

#[test]
fn a_policy_that_holds_back_under_force_is_disabled() {
    let (mut service, mood, _) = service();
    *mood.borrow_mut() = Mood::Stubborn;
    select(&mut service, "puppet").expect("starts");
    let head = &mut service.reg[0];
    put(head, 1..=2);
    assert!(matches!(head.dequeue(NOW.now), Dequeued::NotBefore(_)));
    head.end();
    assert_eq!(drain(head, NOW.now), [1, 2]);
    assert_eq!(head.take_disabled().len(), 1);
}

#[test]
fn any_queued_request_can_be_removed() {
    for mood_at_removal in [Mood::Fair, Mood::BreaksAtRemove, Mood::PanicsAtRemove] {
        let (mut service, mood, _) = service();
        select(&mut service, "puppet").expect("starts");
        let head = &mut service.reg[0];
        let handles: Vec<_> =
            (1..=4).map(|number| head.enqueue(Req::new(number, number % 2), NOW.now)).collect();
        *mood.borrow_mut() = mood_at_removal;
        for at in [0, 2] {
            let request = head.remove(handles[at], NOW.now, Removal::Gone).expect("queued");
            assert_eq!(request.number, at as u64 + 1);
            assert_eq!(head.remove(handles[at], NOW.now, Removal::Gone), None, "it has left");
            assert_eq!(head.get(handles[at]), None);
        }
        head.enqueue(Req::new(9, 1), NOW.now);
        assert_eq!(head.get(handles[0]), None, "a handle never means another request");
        assert_eq!(head.find(|request| request.number > 2).len(), 2);
        let mut left = drain(head, NOW.now);
        left.sort_unstable();
        assert_eq!(left, [2, 4, 9], "{mood_at_removal:?}");
    }
}

#[test]
fn a_panic_over_a_log_line_disables_the_policy() {
    let (mut service, mood, _) = service();
    select(&mut service, "puppet").expect("starts");
    let head = &mut service.reg[0];
    head.set_log(true);
    put(head, 1..=4);
    *mood.borrow_mut() = Mood::PanicsAtLog;
    let first = head.dequeue(NOW.now).taken().expect("something is queued");
    assert_eq!((first.request.number, first.log), (4, None));
    head.finished(first.policy, NOW.now);
    let disabled = head.take_disabled();
    assert_eq!(
        disabled
            .iter()
            .map(|policy| (policy.policy, policy.call, policy.requests))
            .collect::<Vec<_>>(),
        [("puppet", "log", 3)]
    );
    assert_eq!(drain(head, NOW.now), [1, 2, 3], "through FIFO");
}

#[test]
fn a_panic_over_statistics_disables_the_policy() {
    for (broken, call) in [(Mood::PanicsAtGet, "get"), (Mood::PanicsAtStats, "stats")] {
        let (mut service, mood, _) = service();
        select(&mut service, "puppet").expect("starts");
        put(&mut service.reg[0], 1..=4);
        *mood.borrow_mut() = broken;
        if call == "get" {
            let refused =
                service.all().get("nrs_puppet_size", Instant(0)).expect_err("it went wrong");
            assert_eq!(
                (refused.errno, refused.text.contains("get went wrong")),
                (Errno::EIO, true),
                "{}",
                refused.text
            );
        } else {
            assert_eq!(service.reg[0].policy_stats("puppet"), None);
        }
        let disabled = service.reg[0].take_disabled();
        let told: Vec<_> =
            disabled.iter().map(|policy| (policy.policy, policy.call, policy.requests)).collect();
        assert_eq!(told, [("puppet", call, 4)]);
        assert_eq!(drain(&mut service.reg[0], NOW.now), [1, 2, 3, 4], "through FIFO");
    }
}

#[test]
fn a_panic_at_its_start_leaves_a_policy_stopped() {
    let (mut service, ..) = service();
    select(&mut service, "other").expect("starts");
    assert_eq!(select(&mut service, "puppet panic"), Err(Errno::EIO));
    let head = &mut service.reg[0];
    assert_eq!(
        states(head),
        [("fifo", "started", 0), ("puppet", "stopped", 0), ("other", "started", 0)]
    );
    put(head, 1..=2);
    assert_eq!(drain(head, NOW.now), [2, 1], "through the one that ran");
}

#[test]
fn a_promoted_request_goes_to_the_other_head() {
    let (mut service, ..) = service();
    select(&mut service, "puppet").expect("starts");
    let (reg, hp) = (&mut service.reg[0], &mut service.hp[0]);
    let handles: Vec<_> = (1..=3).map(|number| reg.enqueue(Req::new(number, 1), NOW.now)).collect();
    assert!(promote(reg, hp, handles[1], NOW.now).is_some());
    assert_eq!(promote(reg, hp, handles[1], NOW.now), None);
    assert_eq!((drain(reg, NOW.now), drain(hp, NOW.now)), (vec![3, 1], vec![2]));
    assert_eq!(reg.list()[1].counters.promoted, 1);
}

#[test]
fn the_request_log_is_written_on_demand() {
    let mut head: Head<Req> = Head::new("ost", HeadKind::Reg, CptIndex(0), &[]);
    put(&mut head, 1..=2);
    assert_eq!(head.dequeue(NOW.now).taken().and_then(|taken| taken.log), None);
    head.set_log(true);
    let line = head.dequeue(NOW.now).taken().and_then(|taken| taken.log);
    assert_eq!(line.as_deref(), Some("NRS start fifo request from 12345-0.0.0.1@tcp, seq: 2"));
}

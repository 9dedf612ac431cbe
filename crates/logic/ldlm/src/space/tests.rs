//! Examples as text, and random histories against a byte map.

use types::SplitMix64;

use super::*;
use crate::limits::{
    HELD_BYTES_MAX, HELD_BYTES_OF_SESSION_MAX, OWNER_BYTES, RANGE_BYTES, WAITERS_MAX,
    WAITERS_OF_SESSION_MAX,
};

fn request(kind: Kind, resource: u32, who: char, spec: &str, cookie: u64) -> LockRequest {
    let (from, to) = spec[1..].split_once('-').expect("from-to");
    LockRequest {
        resource: Fid::new(1, resource),
        kind,
        owner: owner(who),
        extent: Extent::new(from.parse().expect("number"), to.parse().expect("number"))
            .expect("not empty"),
        mode: if spec.starts_with('r') { Mode::Shared } else { Mode::Exclusive },
        pid: 1,
        cookie,
    }
}

fn owner(who: char) -> Owner {
    Owner { session: u64::from(u32::from(who)), id: 1 }
}

/// Steps `a:1r0-9` (owner a asks on file 1, waits), `a?1r0-9` (does not wait), `a-1r0-9` (unlocks),
/// `!a` (session goes). The answer of a step is its outcome and whom it let in.
fn check(kind: Kind, steps: &str, expected: &str) {
    let mut space = LockSpace::new();
    let mut seen = Vec::new();
    for (cookie, step) in steps.split_whitespace().enumerate() {
        let mut chars = step.chars();
        let who = chars.next().expect("owner");
        let (word, granted) = if who == '!' {
            let who = chars.next().expect("owner");
            ("", space.drop_session(owner(who).session))
        } else {
            let verb = chars.next().expect("verb");
            let file = chars.next().and_then(|digit| digit.to_digit(10)).expect("file");
            let request = request(kind, file, who, chars.as_str(), cookie as u64);
            if verb == '-' {
                ("", space.unlock(request.resource, kind, request.owner, request.extent))
            } else {
                let (outcome, granted) = space.enqueue(request, verb == ':');
                let word = match outcome {
                    Enqueued::Granted => "ok",
                    Enqueued::Waiting => "wait",
                    Enqueued::Refused => "no",
                    Enqueued::Deadlock => "deadlock",
                    Enqueued::Full => "full",
                };
                (word, granted)
            }
        };
        let granted: String = granted
            .iter()
            .map(|wait| char::from_u32(wait.session as u32).expect("a letter"))
            .collect();
        seen.push(
            format!("{word}+{granted}").trim_end_matches('+').trim_start_matches('+').to_owned(),
        );
    }
    let seen: Vec<_> = seen.iter().map(|step| if step.is_empty() { "." } else { step }).collect();
    assert_eq!(seen.join(" "), expected, "{steps}");
}

#[test]
fn ranges_of_different_owners_conflict_and_of_one_owner_never() {
    check(Kind::Posix, "a:1w0-10 a:1r5-20 b?1r0-5 b?1r5-10 b?1w30-40", "ok ok no ok ok");
    check(Kind::Posix, "a:1w0-10 a-1w3-6 b?1w3-6 b?1w2-6", "ok . ok no");
}

#[test]
fn a_file_is_held_by_another_session_than_ones_own() {
    let mut space = LockSpace::new();
    let ask = |who, id| LockRequest {
        owner: Owner { id, ..owner(who) },
        ..request(Kind::File, 1, who, "r0-10", id)
    };
    let file = ask('b', 0).resource;
    let held = |space: &LockSpace| {
        ['a', 'b', 'c'].map(|who| space.is_held_by_another(owner(who).session, file, Kind::File))
    };
    assert_eq!(held(&space), [false; 3]);
    let _held = [space.enqueue(ask('b', 1), true), space.enqueue(ask('b', 2), true)];
    assert_eq!(held(&space), [true, false, true]);
    assert!(!space.is_held_by_another(owner('a').session, file, Kind::Flock), "another kind");
    let _held = space.enqueue(ask('c', 3), true);
    assert_eq!(held(&space), [true; 3]);
    space.drop_session(owner('b').session);
    assert_eq!(held(&space), [true, true, false]);
}

#[test]
fn a_holder_is_awaited_while_another_session_waits() {
    let mut space = LockSpace::new();
    let ask = |who, cookie| request(Kind::File, 1, who, "w0-10", cookie);
    let file = ask('a', 0).resource;
    let awaited = |space: &LockSpace| {
        ['a', 'b', 'c'].map(|who| space.is_awaited(owner(who).session, file, Kind::File))
    };
    let _held = space.enqueue(ask('a', 0), true);
    let own = LockRequest { owner: Owner { id: 2, ..owner('a') }, ..ask('a', 1) };
    let first = |space: &LockSpace, asked: &LockRequest| {
        let held_up_by = space.held_up_first_by(asked);
        held_up_by.into_iter().collect::<Vec<_>>()
    };
    let _waits = space.enqueue(own, true);
    assert_eq!((awaited(&space), first(&space, &own)), ([false; 3], vec![]), "its own");
    let _waits = space.enqueue(ask('b', 2), true);
    assert_eq!(awaited(&space), [true, false, false]);
    assert_eq!(first(&space, &ask('b', 2)), [owner('a').session]);
    assert!(!space.is_awaited(owner('a').session, file, Kind::Flock), "another kind");
    let _waits = space.enqueue(ask('c', 3), true);
    assert!(first(&space, &ask('c', 3)).is_empty(), "b waited before");
    space.cancel(ask('c', 3).wait_id());
    space.leave(ask('b', 2).wait_id());
    assert_eq!(awaited(&space), [false; 3], "it may come back");
}

#[test]
fn a_downgrade_and_an_unlock_let_waiters_in() {
    check(Kind::Posix, "a:1w0-10 b:1r0-10 c:1r5-6 a:1r0-10", "ok wait wait ok+bc");
    check(Kind::Posix, "a:1w0-10 b:1w0-5 c:1w5-10 a-1w0-5 a-1w5-10", "ok wait wait b c");
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
    check(Kind::Posix, "a:1r0-9 b:1w0-9 c:1r0-9 a-1r0-9 b-1w0-9", "ok wait wait b c");
    check(Kind::Flock, "a:1r0-9 b:1w0-9 c?1r0-9 a-1r0-9", "ok wait no b");
}

#[test]
fn a_circle_of_posix_waits_is_refused() {
    check(Kind::Posix, "a:1w0-9 b:2w0-9 a:2w0-9 b:1w0-9", "ok ok wait deadlock");
    check(
        Kind::Posix,
        "a:1w0-9 b:2w0-9 c:3w0-9 a:2w0-9 b:3w0-9 c:1r2-3",
        "ok ok ok wait wait deadlock",
    );
    check(Kind::Posix, "a:1r0-9 b:1r0-9 a:1w0-9 b:1w0-9", "ok ok wait deadlock");
}

#[test]
fn a_place_in_line_alone_is_never_a_deadlock() {
    // b waits for a; a asks for more of the file and passes b.
    check(Kind::Posix, "a:1w0-5 b:1w0-9 a:1w5-9 a-1w0-9", "ok wait ok b");
    // c stands behind b, and b waits for d, and d for a, and a for c: c passes b.
    check(
        Kind::Posix,
        "d:2r0-9 c:1w0-9 a:3w0-9 b:2w0-9 c:2r0-9 d:3w0-9 a:1w0-9",
        "ok ok ok wait wait wait wait+c",
    );
}

#[test]
fn a_flock_conversion_that_waits_gives_the_old_lock_up() {
    check(Kind::Flock, "a:1r0-9 b:1r0-9 a:1w0-9 b:1w0-9 b-1w0-9", "ok ok wait ok a");
    check(Kind::Flock, "a:1r0-9 b:1r0-9 a?1w0-9 b?1w0-9", "ok ok no ok");
}

#[test]
fn a_session_that_goes_takes_locks_and_waits_along() {
    check(Kind::Posix, "a:1w0-9 b:1w0-9 c:1w0-9 !b !a", "ok wait wait . c");
}

#[test]
fn what_a_session_holds_of_one_file_goes_alone() {
    let mut space = LockSpace::new();
    let [first, other] = [1, 2].map(|file| request(Kind::File, file, 'a', "w0-9", 1));
    let [waits, still] =
        [(1, 2), (2, 3)].map(|(file, cookie)| request(Kind::File, file, 'b', "w0-9", cookie));
    assert_eq!([first, other].map(|lock| space.enqueue(lock, true).0), [Enqueued::Granted; 2]);
    assert_eq!([waits, still].map(|lock| space.enqueue(lock, true).0), [Enqueued::Waiting; 2]);
    assert_eq!(space.drop_file(first.owner.session, first.resource), [waits.wait_id()]);
    assert!(space.holds(&other) && !space.holds(&still) && space.held_ranges() == 2);
}

#[test]
fn holders_and_those_before_in_line_are_in_the_way() {
    let mut space = LockSpace::new();
    let ask = |space: &mut LockSpace, who, spec, cookie| {
        space.enqueue(request(Kind::Posix, 1, who, spec, cookie), true).0
    };
    assert_eq!(ask(&mut space, 'a', "w0-10", 0), Enqueued::Granted);
    assert_eq!(ask(&mut space, 'b', "w5-20", 1), Enqueued::Waiting);
    assert_eq!(ask(&mut space, 'c', "w15-20", 2), Enqueued::Waiting);
    let blockers = |who, spec, cookie| -> String {
        let sessions = space.sessions_in_the_way(&request(Kind::Posix, 1, who, spec, cookie));
        sessions.iter().map(|session| char::from_u32(*session as u32).expect("a letter")).collect()
    };
    assert_eq!(
        [blockers('b', "w5-20", 1), blockers('c', "w15-20", 2), blockers('d', "r0-20", 9)],
        ["a", "b", "abc"]
    );
    assert_eq!(blockers('d', "w20-30", 9), "");
}

#[test]
fn a_place_is_kept_for_whoever_comes_back() {
    let mut space = LockSpace::new();
    let a = request(Kind::File, 1, 'a', "w0-9", 1);
    let b = request(Kind::File, 1, 'b', "w0-9", 2);
    let c = request(Kind::File, 1, 'c', "w0-9", 3);
    assert_eq!(space.enqueue(a, true).0, Enqueued::Granted);
    assert_eq!(space.enqueue(b, true).0, Enqueued::Waiting);
    assert_eq!(space.enqueue(c, true).0, Enqueued::Waiting);
    space.leave(b.wait_id());
    assert!(space.is_absent(b.wait_id()));
    assert!(
        space.unlock(a.resource, a.kind, a.owner, Extent::ALL).is_empty(),
        "the line waits for b"
    );
    assert_eq!(space.enqueue(b, true).0, Enqueued::Granted);
    assert_eq!(space.waiters(), 1);
    space.leave(c.wait_id());
    assert!(space.unlock(b.resource, b.kind, b.owner, Extent::ALL).is_empty());
    assert!(space.cancel(c.wait_id()).is_empty());
    assert_eq!((space.waiters(), space.held_ranges()), (0, 0));
    assert!(space.resources.is_empty());
}

#[test]
fn a_wait_that_is_called_has_its_turn_once_and_is_not_passed() {
    let mut space = LockSpace::new();
    let [a, b, c, d] = ['a', 'b', 'c', 'd']
        .map(|who| request(Kind::Flock, 1, who, "w0-9", u64::from(u32::from(who))));
    let free = |space: &mut LockSpace, lock: LockRequest| {
        space.unlock(lock.resource, lock.kind, lock.owner, Extent::ALL)
    };
    assert_eq!(space.enqueue(a, true).0, Enqueued::Granted);
    for wait in [b, c] {
        assert_eq!(space.enqueue(wait, true).0, Enqueued::Waiting);
        space.leave_to_be_called(wait.wait_id());
        space.leave(wait.wait_id()); // a request of before, which is over now
        assert!(space.is_absent(wait.wait_id()) && !space.has_turns());
    }
    assert!(free(&mut space, a).is_empty(), "b has to ask");
    assert_eq!(space.take_turns(), [b]);
    assert_eq!(space.enqueue(d, false).0, Enqueued::Refused, "b and c are before it");
    assert!(space.take_turns().is_empty() && space.held_ranges() == 0);
    assert_eq!(space.enqueue(b, true).0, Enqueued::Granted);
    assert!(space.take_turns().is_empty());
    assert!(free(&mut space, b).is_empty());
    assert_eq!(space.take_turns(), [c]);
    assert!(space.cancel(c.wait_id()).is_empty());
    assert_eq!(space.enqueue(d, false).0, Enqueued::Granted);
    assert!(!space.has_turns() && space.waiters() == 0);
}

#[test]
fn waits_that_share_are_called_together_and_a_turn_ends_with_its_wait() {
    let mut space = LockSpace::new();
    let holder = request(Kind::Posix, 1, 'a', "w0-9", 1);
    let [b, c, d] = [('b', "r0-5"), ('c', "r2-9"), ('d', "w0-9")]
        .map(|(who, spec)| request(Kind::Posix, 1, who, spec, 7));
    assert_eq!(space.enqueue(holder, true).0, Enqueued::Granted);
    for wait in [b, c, d] {
        assert_eq!(space.enqueue(wait, true).0, Enqueued::Waiting);
        space.leave_to_be_called(wait.wait_id());
    }
    assert!(space.drop_session(holder.owner.session).is_empty());
    assert_eq!(space.take_turns(), [b, c]);
    assert!(space.end_waits(b.owner.session).is_empty());
    assert!(!space.has_turns(), "c is before d");
    assert!(space.cancel(c.wait_id()).is_empty());
    assert_eq!(space.take_turns(), [d]);
    assert_eq!(space.enqueue(d, true).0, Enqueued::Granted);
    assert_eq!((space.waiters(), space.held_ranges()), (0, 1));
}

#[test]
fn a_restated_lock_is_held_without_a_question() {
    let mut space = LockSpace::new();
    let a = request(Kind::Posix, 1, 'a', "w0-9", 1);
    assert!(space.restate(a));
    assert!(space.holds(&a));
    let conflict = space.test(&request(Kind::Posix, 1, 'b', "r3-4", 2)).expect("a holds it");
    assert_eq!((conflict.owner, conflict.extent), (a.owner, a.extent));
}

#[test]
fn a_lock_is_held_where_its_ranges_leave_no_hole() {
    let mut space = LockSpace::new();
    for (spec, cookie) in [("w0-5", 1), ("r5-9", 2), ("w12-15", 3)] {
        assert!(space.restate(request(Kind::Posix, 1, 'a', spec, cookie)));
    }
    let holds = |who, file, spec| space.holds(&request(Kind::Posix, file, who, spec, 9));
    for held in ["w0-5", "w1-5", "w3-4", "r0-5", "r0-9", "r4-6", "w12-15"] {
        assert!(holds('a', 1, held), "{held}");
    }
    for not_held in ["w0-6", "w5-6", "r0-10", "r8-10", "r9-10", "r0-15", "r11-13", "w15-16"] {
        assert!(!holds('a', 1, not_held), "{not_held}");
    }
    assert!(!holds('b', 1, "r0-5") && !holds('a', 2, "r0-5"));
}

#[test]
fn what_a_session_holds_is_found_and_goes_with_it() {
    let mut space = LockSpace::new();
    for (file, who, spec) in
        [(1, 'a', "w0-5"), (1, 'a', "w7-9"), (2, 'b', "r0-3"), (3, 'a', "r1-2")]
    {
        assert!(space.restate(request(Kind::Posix, file, who, spec, 1)));
    }
    let waiter = request(Kind::Posix, 2, 'c', "w0-1", 2);
    assert_eq!(space.enqueue(waiter, true).0, Enqueued::Waiting);
    let held = |space: &LockSpace, who| space.resources_of(owner(who).session);
    assert_eq!(held(&space, 'a'), [Fid::new(1, 1), Fid::new(1, 3)]);
    assert_eq!(held(&space, 'b'), [Fid::new(1, 2)]);
    assert!(held(&space, 'c').is_empty(), "it waits only");
    assert_eq!((space.held_ranges(), space.waiters()), (4, 1));
    assert!(space.drop_session(owner('a').session).is_empty());
    assert_eq!((space.held_ranges(), held(&space, 'a').len()), (1, 0));
    assert_eq!(space.drop_session(owner('b').session), [waiter.wait_id()]);
    assert_eq!((space.held_ranges(), space.waiters()), (1, 0));
}

#[test]
fn a_wait_is_told_apart_from_one_that_was_left() {
    let mut space = LockSpace::new();
    let [a, b, c] =
        ['a', 'b', 'c'].map(|who| request(Kind::File, 1, who, "w0-9", u64::from(u32::from(who))));
    assert_eq!(space.enqueue(a, true).0, Enqueued::Granted);
    assert_eq!(space.enqueue(b, true).0, Enqueued::Waiting);
    assert_eq!(space.enqueue(c, true).0, Enqueued::Waiting);
    space.leave(c.wait_id());
    let seen = |space: &LockSpace| {
        [a, b, c].map(|lock| (space.is_waiting(lock.wait_id()), space.is_absent(lock.wait_id())))
    };
    assert_eq!(seen(&space), [(false, false), (true, false), (true, true)]);
    space.cancel(c.wait_id());
    assert_eq!(seen(&space), [(false, false), (true, false), (false, false)]);
}

/// A lock on a file of its own.
fn on(session: u64, file: u32) -> LockRequest {
    let owner = Owner { session, id: 1 };
    let resource = Fid::new(2, file);
    LockRequest { resource, owner, ..request(Kind::Flock, 1, 'a', "w0-5", u64::from(file)) }
}

#[test]
fn a_session_has_so_many_locks_and_all_together_so_many() {
    let of_session = HELD_BYTES_OF_SESSION_MAX.div_ceil(OWNER_BYTES + RANGE_BYTES);
    let in_all = HELD_BYTES_MAX.div_ceil(OWNER_BYTES + RANGE_BYTES);
    let mut space = LockSpace::new();
    let mut held = 0;
    for session in 1.. {
        let have = (0..).take_while(|file| {
            let file = session as u32 * (of_session as u32 + 1) + file;
            space.enqueue(on(session, file), true).0 == Enqueued::Granted
        });
        let have = have.count();
        held += have;
        assert!(have == of_session || held == in_all, "{session} has {have} of {held}");
        if held == in_all {
            break;
        }
    }
    // somebody's end gives others room, but for himself, whatever the kind of lock
    space.drop_session(1);
    assert_eq!(space.enqueue(on(2, 1), true).0, Enqueued::Full);
    assert_eq!(
        space.enqueue(LockRequest { kind: Kind::Posix, ..on(2, 1) }, true).0,
        Enqueued::Full
    );
    assert_eq!(space.enqueue(on(9_999, 1), true).0, Enqueued::Granted);
}

#[test]
fn nothing_is_split_into_more_ranges_than_a_session_may_have() {
    let mut space = LockSpace::new();
    let whole = LockRequest { kind: Kind::Posix, extent: Extent::ALL, ..on(1, 1) };
    assert_eq!(space.enqueue(whole, true).0, Enqueued::Granted);
    let ranges = (HELD_BYTES_OF_SESSION_MAX - OWNER_BYTES) / RANGE_BYTES;
    let byte = |at: u64| Extent::new(at, at + 1).expect("not empty");
    let give = |at| LockRequest { extent: byte(at), ..whole };
    let mut at = 1;
    while !space.splits_beyond(&give(at)) {
        space.unlock(whole.resource, whole.kind, whole.owner, byte(at));
        at += 2;
        assert!(space.held_ranges() <= ranges, "{at}");
    }
    assert_eq!(space.held_ranges(), ranges);
    assert!(!space.splits_beyond(&give(0)), "a whole range can be given back");
    assert!(!space.splits_beyond(&LockRequest { extent: Extent::ALL, ..whole }));
    assert_eq!(space.enqueue(LockRequest { cookie: 9, ..whole }, true).0, Enqueued::Full);
}

#[test]
fn a_session_waits_for_so_many_locks_and_all_together_for_so_many() {
    let mut space = LockSpace::new();
    assert_eq!(space.enqueue(on(1, 0), true).0, Enqueued::Granted);
    let waits = |space: &mut LockSpace, session: u64, cookie: u32| {
        let request = LockRequest { cookie: u64::from(cookie), ..on(session, 0) };
        space.enqueue(request, true).0
    };
    for cookie in 0..WAITERS_OF_SESSION_MAX as u32 {
        // without the search for circles, which looks at who is ahead
        let id = WaitId { session: 2, cookie: u64::from(cookie) };
        space.waits.insert(id, (on(2, 0).resource, Kind::Flock));
        space.book.waits(2);
    }
    assert_eq!(waits(&mut space, 2, 1 << 20), Enqueued::Full);
    assert_eq!(waits(&mut space, 3, 1 << 20), Enqueued::Waiting);
    for _ in space.book.all.waits..WAITERS_MAX {
        space.book.waits(4);
    }
    assert_eq!(waits(&mut space, 5, 1), Enqueued::Full);
}

#[test]
fn what_is_stated_again_is_bounded_too() {
    let mut space = LockSpace::new();
    let have = (0..).take_while(|file| space.restate(on(1, *file))).count();
    assert_eq!(have, (2 * HELD_BYTES_OF_SESSION_MAX).div_ceil(OWNER_BYTES + RANGE_BYTES));
}

/// What a walk over all resources finds is what is known of each session.
#[test]
fn what_a_session_holds_is_known_through_all_changes() {
    let mut chance = SplitMix64::new(9);
    let mut space = LockSpace::new();
    let mut lost = 0;
    for cookie in 0..5_000 {
        let who = ['a', 'b', 'c'][chance.below(3) as usize];
        let kind = Kind::ALL[chance.below(3) as usize];
        let (mode, at) = (['r', 'w'][chance.below(2) as usize], chance.below(9));
        let file = 1 + chance.below(3) as u32;
        let asked = request(kind, file, who, &format!("{mode}{at}-{}", at + 1), cookie);
        let asked = LockRequest { owner: Owner { id: chance.below(2), ..asked.owner }, ..asked };
        let session = asked.owner.session;
        match chance.below(20) {
            0 => {
                lost += space.resources_of(session).len();
                drop(space.drop_session(session));
                assert!(space.resources_of(session).is_empty());
                assert!(space.waits.keys().all(|wait| wait.session != session));
            }
            1 => drop(space.drop_file(session, asked.resource)), // its waits there may be granted
            2..=7 => drop(space.unlock(asked.resource, kind, asked.owner, asked.extent)),
            roll => drop(space.enqueue(asked, roll < 11)),
        }
        let mut found = BTreeSet::new();
        for session in ['a', 'b', 'c'].map(|who| owner(who).session) {
            let held = space.resources.iter().filter(|(_, one)| one.held.has_of(session));
            found.extend(held.map(|(id, _)| (session, *id)));
        }
        assert_eq!(space.holds, found);
    }
    assert!(lost > 100, "{lost}");
}

/// What each owner should hold, byte by byte: a lock is there exactly when it was granted and not
/// given back.
/// With a walk over all of them this takes minutes (262 s, 0.1 s without).
#[test]
fn readers_of_one_file_are_not_walked_for_one_more() {
    const READERS: u64 = 50_000;
    let mut space = LockSpace::new();
    for reader in 0..READERS {
        let mut asked = on(reader, 1);
        asked.mode = Mode::Shared;
        assert_eq!(space.enqueue(asked, false).0, Enqueued::Granted);
    }
    assert_eq!(space.held_ranges(), READERS as usize);
    assert_eq!(space.enqueue(on(READERS, 1), false).0, Enqueued::Refused);
}

#[test]
fn random_histories_keep_the_invariants() {
    for seed in 1..40u64 {
        random_history(seed);
    }
}

fn random_history(seed: u64) {
    let mut chance = SplitMix64::new(seed);
    let mut random = move |bound: u64| chance.below(bound);
    let mut space = LockSpace::new();
    let mut asked: BTreeMap<WaitId, LockRequest> = BTreeMap::new();
    type Bytes = [Option<Mode>; 20];
    let mut model: BTreeMap<(Fid, Owner), Bytes> = BTreeMap::new();
    for cookie in 0..600 {
        let who = ['a', 'b', 'c', 'd'][random(4) as usize];
        let start = random(19);
        let spec = format!(
            "{}{}-{}",
            if random(2) == 0 { 'r' } else { 'w' },
            start,
            (start + 1 + random(8)).min(20)
        );
        let request = request(Kind::Posix, 1 + random(2) as u32, who, &spec, cookie);
        let is_waiting = asked.values().any(|waiting| waiting.owner == request.owner);
        let span = request.extent.start() as usize..request.extent.end() as usize;
        let mut granted = match random(10) {
            0..=5 if !is_waiting => {
                let (outcome, granted) = space.enqueue(request, true);
                match outcome {
                    Enqueued::Granted => {
                        model.entry((request.resource, request.owner)).or_default()[span]
                            .fill(Some(request.mode))
                    }
                    Enqueued::Waiting => drop(asked.insert(request.wait_id(), request)),
                    _ => {}
                }
                granted
            }
            6..=8 if !is_waiting => {
                model.entry((request.resource, request.owner)).or_default()[span].fill(None);
                space.unlock(request.resource, request.kind, request.owner, request.extent)
            }
            _ => match asked.keys().next().copied() {
                Some(wait) => {
                    asked.remove(&wait);
                    space.cancel(wait)
                }
                None => Vec::new(),
            },
        };
        for wait in granted.drain(..) {
            let request = asked.remove(&wait).expect("only waiters are let in");
            let span = request.extent.start() as usize..request.extent.end() as usize;
            model.entry((request.resource, request.owner)).or_default()[span]
                .fill(Some(request.mode));
        }
        assert_model(&space, &model);
        assert_eq!(space.waiters(), asked.len());
        // Nobody waits for ever: whoever waits, waits for an owner that runs.
        for request in asked.values() {
            assert!(
                !space.reaches(Kind::Posix, request.owner, request.owner)
                    || !space.walk(
                        Kind::Posix,
                        space.blockers(Kind::Posix, request.owner, false),
                        request.owner,
                        false
                    )
            );
            assert!(
                !space.blockers(Kind::Posix, request.owner, true).is_empty(),
                "a waiter that nobody blocks was forgotten"
            );
        }
    }
}

fn assert_model(space: &LockSpace, model: &BTreeMap<(Fid, Owner), [Option<Mode>; 20]>) {
    let begins = |bytes: &[Option<Mode>; 20], at: usize| {
        bytes[at].is_some() && (at == 0 || bytes[at - 1] != bytes[at])
    };
    let ranges = model.values().map(|bytes| (0..20).filter(|at| begins(bytes, *at)).count());
    assert_eq!(space.held_ranges(), ranges.sum::<usize>());
    for file in 1..=2 {
        let resource = Fid::new(1, file);
        for byte in 0..20u64 {
            let holders: Vec<Mode> = model
                .iter()
                .filter(|((fid, _), _)| *fid == resource)
                .filter_map(|(_, bytes)| bytes[byte as usize])
                .collect();
            assert!(
                holders.len() <= 1 || holders.iter().all(|mode| *mode == Mode::Shared),
                "exclusive means alone"
            );
        }
        for who in ['a', 'b', 'c', 'd'] {
            let mut held = [None; 20];
            let ranges = space
                .resources
                .get(&(resource, Kind::Posix))
                .and_then(|found| found.held.of(owner(who)));
            for (extent, mode, _) in ranges.into_iter().flat_map(Ranges::iter) {
                held[extent.start() as usize..extent.end() as usize].fill(Some(mode));
            }
            assert_eq!(held, model.get(&(resource, owner(who))).copied().unwrap_or_default());
        }
    }
}

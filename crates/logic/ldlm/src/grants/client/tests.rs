//! Tests of grants at a client: how long they are valid, and how they are given up.

use types::{Fid, Instant, Span, Transno};

use super::{Belief, Cache, CacheConfig, Name, Question};
use crate::grants::{
    Ack, Bits, CLIENT_GRANT_BYTES_MAX, ChangeId, DISTRUSTED, Given, Head, Kind, NOTIFY_STUCK,
    Number, Recall, Stated, Told, VECTOR_MAX, Want,
};

const X: Fid = Fid::ROOT;
const CHANGE: ChangeId = ChangeId(1);

fn at(ms: u64) -> Instant {
    Instant(1_000_000_000) + Span::millis(ms)
}

fn file(number: u32) -> Fid {
    Fid::new(0x400, number)
}

fn told(fid: Fid, bits: Bits, number: u64, as_of: u64) -> Told {
    let given = Given { bits, number: Number(number), kind: Kind::Recall };
    Told { fid, given, as_of: Transno(as_of) }
}

fn cache() -> Cache {
    Cache::new(CacheConfig::default(), Number(0))
}

/// A request at `ms`, answered at once; the bits whose values were taken.
fn hear(cache: &mut Cache, told: Told, ms: u64) -> Bits {
    let question = cache.ask(at(ms));
    let taken = answer(cache, question, told, ms);
    cache.finish(question);
    taken
}

fn answer(cache: &mut Cache, question: Question, told: Told, ms: u64) -> Bits {
    cache.heard(question, Head { floor: Number(0), renews: true }, at(ms));
    cache.take(question, told, at(ms))
}

fn recall(number: u64) -> Recall {
    Recall { fid: X, bits: Bits::UPDATE, number: Number(number) }
}

fn ack(number: u64) -> Ack {
    Ack { fid: X, number: Number(number) }
}

/// UPDATE of [`X`], of which the kernel keeps something until `ms`.
fn told_cache(ms: u64) -> Cache {
    let mut cache = cache();
    hear(&mut cache, told(X, Bits::UPDATE, 1, 1), 0);
    cache.told(X, at(ms));
    cache
}

#[test]
fn a_grant_is_believed_until_the_lease_ends_counted_from_the_request() {
    let mut cache = cache();
    let question = cache.ask(at(0));
    assert_eq!(answer(&mut cache, question, told(X, Bits::PERM, 1, 1), 700), Bits::PERM);
    cache.finish(question);
    assert_eq!(cache.belief(X, Bits::PERM, at(800)), Belief::Until(at(9_000)));
    assert_eq!(cache.belief(X, Bits::PERM | Bits::UPDATE, at(800)), Belief::No);
    assert_eq!(cache.belief(X, Bits::PERM, at(9_000)), Belief::No, "suspended");
    let beat = cache.ask(at(9_500));
    cache.heard(beat, Head { floor: Number(0), renews: true }, at(9_600));
    assert_eq!(cache.belief(X, Bits::PERM, at(9_700)), Belief::Until(at(18_500)), "and back");
    cache.heard(beat, Head { floor: Number(0), renews: false }, at(9_900));
    assert_eq!(cache.lease_until(), at(19_500));
}

#[test]
fn a_timed_grant_ends_by_time_counted_from_the_request() {
    let mut cache = cache();
    let mut timed = told(X, Bits::PERM, 1, 1);
    timed.given.kind = Kind::Timed;
    let question = cache.ask(at(0));
    assert_eq!(answer(&mut cache, question, timed, 20), Bits::PERM);
    assert_eq!(cache.belief(X, Bits::PERM, at(21)), Belief::Until(at(50)));
    assert_eq!(cache.belief(X, Bits::PERM, at(50)), Belief::No);
    assert_eq!(
        (cache.bits_of(X), answer(&mut cache, question, timed, 51)),
        (Bits::empty(), Bits::empty())
    );
}

#[test]
fn data_is_kept_since_the_gift_after_the_last_break() {
    let mut cache = cache();
    let since = |cache: &mut Cache, ms: u64| match cache.belief(X, Bits::CACHE, at(ms)) {
        Belief::Until(_) => Some(cache.cached_since(X)),
        Belief::No | Belief::Dying => None,
    };
    hear(&mut cache, told(X, Bits::CACHE, 1, 1), 0);
    hear(&mut cache, told(X, Bits::CACHE, 2, 1), 1);
    assert_eq!(since(&mut cache, 2), Some(1), "the same right, given twice");
    let wants = [Want { fid: X, bits: Bits::CACHE }];
    cache.begin(ChangeId(1), &wants);
    assert_eq!(since(&mut cache, 2), None, "this client may change it");
    let late = cache.ask(at(2));
    cache.end(ChangeId(1), &wants, Transno(5), at(2));
    assert_eq!(since(&mut cache, 2), None, "and has done so");
    answer(&mut cache, late, told(X, Bits::CACHE, 3, 4), 3);
    assert_eq!(since(&mut cache, 3), None, "an answer of before");
    hear(&mut cache, told(X, Bits::CACHE, 4, 5), 4);
    assert_eq!(since(&mut cache, 4), Some(2));
    cache.told(X, at(50_000));
    cache.told_last(X, at(8_000));
    cache.recall(Recall { fid: X, bits: Bits::CACHE, number: Number(5) }, at(5));
    assert_eq!((since(&mut cache, 5), cache.poll_acks()), (None, vec![]), "the kernel has it");
    assert!(cache.poll_notify(at(5)).is_some_and(|notify| notify.bits == Bits::CACHE));
    cache.notified(X, Number(5));
    assert_eq!(cache.poll_acks(), [ack(5)]);
    hear(&mut cache, told(X, Bits::CACHE, 6, 6), 6);
    assert_eq!((since(&mut cache, 6), since(&mut cache, 9_006)), (Some(3), None));
}

#[test]
fn a_name_that_is_granted_again_does_not_prolong_attributes() {
    let mut cache = cache();
    let timed = |bits, number| {
        let mut timed = told(X, bits, number, 1);
        timed.given.kind = Kind::Timed;
        timed
    };
    let both = Bits::LOOKUP | Bits::UPDATE;
    assert_eq!(hear(&mut cache, timed(both, 1), 0), both);
    assert_eq!(hear(&mut cache, timed(Bits::LOOKUP, 2), 30), Bits::LOOKUP);
    assert_eq!(cache.belief(X, Bits::LOOKUP, at(31)), Belief::Until(at(80)));
    assert_eq!(cache.belief(X, both, at(31)), Belief::Until(at(50)), "the first to end");
    assert_eq!(cache.belief(X, Bits::UPDATE, at(31)), Belief::Until(at(50)));
    assert_eq!(cache.belief(X, Bits::UPDATE, at(50)), Belief::No);
    assert_eq!(hear(&mut cache, timed(Bits::PERM, 3), 60), Bits::PERM);
    assert_eq!(cache.belief(X, Bits::UPDATE, at(61)), Belief::No, "it has ended");
    assert_eq!(cache.belief(X, Bits::LOOKUP, at(61)), Belief::Until(at(80)));
    cache.doubt();
    let early = cache.ask(at(62));
    assert_eq!(answer(&mut cache, early, timed(Bits::LOOKUP, 4), 63), Bits::LOOKUP);
    assert_eq!(cache.belief(X, Bits::LOOKUP, at(63)), Belief::Until(at(112)));
}

#[test]
fn no_late_answer_sets_a_value_back() {
    let mut cache = cache();
    let [early, late] = [0, 1].map(|ms| cache.ask(at(ms)));
    assert_eq!(answer(&mut cache, late, told(X, Bits::PERM, 2, 9), 5), Bits::PERM);
    let both = Bits::PERM | Bits::UPDATE;
    assert_eq!(answer(&mut cache, early, told(X, both, 1, 8), 6), Bits::UPDATE);
    assert!(matches!(cache.belief(X, both, at(7)), Belief::Until(_)));
}

#[test]
fn a_floor_voids_all_grants() {
    let mut cache = cache();
    hear(&mut cache, told(X, Bits::PERM, 1, 1), 0);
    let question = cache.ask(at(1));
    assert!(cache.heard(question, Head { floor: Number(5), renews: true }, at(2)));
    assert_eq!((cache.count(), cache.belief(X, Bits::PERM, at(3))), (0, Belief::No));
    assert_eq!(cache.take(question, told(X, Bits::PERM, 4, 1), at(3)), Bits::empty());
    assert_eq!(cache.take(question, told(X, Bits::PERM, 6, 1), at(3)), Bits::PERM);
    assert!(!cache.heard(question, Head { floor: Number(5), renews: true }, at(4)), "once");
}

#[test]
fn a_floor_that_came_without_its_reply_voids_older_gifts_and_no_later_ones() {
    let mut cache = cache();
    hear(&mut cache, told(X, Bits::PERM, 1, 1), 0);
    let [early, late] = [1, 2].map(|ms| cache.ask(at(ms)));
    assert!(cache.voided(Number(5)));
    assert_eq!(cache.belief(X, Bits::PERM, at(3)), Belief::No);
    assert_eq!(cache.take(late, told(X, Bits::PERM, 6, 1), at(3)), Bits::PERM);
    let older = told(file(7), Bits::PERM, 4, 1);
    assert_eq!(cache.take(early, older, at(4)), Bits::empty(), "it was given before");
    assert!(!cache.voided(Number(5)) && !cache.voided(Number(0)), "a reply that was overtaken");
    assert!(matches!(cache.belief(X, Bits::PERM, at(5)), Belief::Until(_)));
}

#[test]
fn a_dying_grant_answers_without_validity_until_the_kernel_was_told() {
    let mut cache = told_cache(5_000);
    cache.recall(recall(2), at(10));
    assert_eq!(cache.belief(X, Bits::UPDATE, at(11)), Belief::Dying);
    let notify = cache.poll_notify(at(11)).expect("the kernel keeps it");
    assert_eq!((notify.bits, notify.force, cache.poll_notify(at(11))), (Bits::UPDATE, false, None));
    assert_eq!((cache.poll_acks(), cache.belief(X, Bits::UPDATE, at(12))), (vec![], Belief::Dying));
    cache.notified(X, notify.number);
    assert_eq!(cache.poll_acks(), [ack(2)]);
    assert_eq!((cache.belief(X, Bits::UPDATE, at(13)), cache.poll_timeout()), (Belief::No, None));
}

#[test]
fn what_the_kernel_does_not_keep_is_given_up_at_once() {
    for mut cache in [told_cache(5), cache()] {
        cache.recall(recall(2), at(10));
        assert_eq!((cache.poll_notify(at(10)), cache.poll_acks()), (None, vec![ack(2)]));
        cache.recall(recall(2), at(11));
        assert_eq!(cache.poll_acks(), [ack(2)], "the first may be lost");
    }
}

#[test]
fn a_further_recall_is_told_to_the_kernel_and_answered_for_both() {
    let mut cache = told_cache(5_000);
    cache.recall(recall(2), at(10));
    cache.poll_notify(at(10));
    cache.recall(recall(3), at(11));
    assert_eq!(cache.poll_notify(at(11)).map(|notify| notify.number), Some(Number(3)));
    cache.notified(X, Number(2));
    assert_eq!(cache.poll_acks(), []);
    cache.notified(X, Number(3));
    assert_eq!(cache.poll_acks(), [ack(3)]);
}

#[test]
fn a_kernel_that_is_stuck_is_forced() {
    let mut cache = told_cache(5_000);
    cache.recall(recall(2), at(10));
    cache.poll_notify(at(10));
    assert_eq!((cache.poll_timeout(), cache.poll_notify(at(29))), (Some(at(30)), None));
    let forced = cache.poll_notify(at(10) + NOTIFY_STUCK).expect("it is due");
    assert!(forced.force);
}

#[test]
fn a_directory_in_which_the_kernel_was_stuck_has_no_validity() {
    let mut cache = told_cache(0);
    cache.distrust(X, at(0));
    assert_eq!(cache.belief(X, Bits::UPDATE, at(1)), Belief::Dying);
    assert!(DISTRUSTED > crate::grants::LEASE, "so it is held by other answers by then");
    hear(&mut cache, told(X, Bits::UPDATE, 2, 1), 30_000);
    assert!(matches!(cache.belief(X, Bits::UPDATE, at(30_000)), Belief::Until(_)));
}

#[test]
fn a_request_that_names_what_is_dying_gives_it_up() {
    let mut cache = told_cache(5_000);
    assert_eq!(cache.give_up_early(X, Bits::UPDATE), None, "nobody asked");
    cache.recall(recall(2), at(10));
    cache.poll_notify(at(10));
    assert_eq!(cache.give_up_early(X, Bits::PERM), None, "it is about something else");
    assert_eq!(cache.give_up_early(X, Bits::UPDATE | Bits::PERM), Some(ack(2)));
    cache.notified(X, Number(2));
    assert_eq!((cache.poll_acks(), cache.poll_timeout()), (vec![], None), "once");
}

#[test]
fn a_gift_that_was_given_up_before_it_came_is_not_taken() {
    let mut cache = cache();
    let question = cache.ask(at(0));
    cache.recall(recall(5), at(1));
    assert_eq!(answer(&mut cache, question, told(X, Bits::UPDATE, 4, 1), 2), Bits::empty());
    assert_eq!(answer(&mut cache, question, told(X, Bits::UPDATE, 6, 1), 2), Bits::UPDATE);
}

#[test]
fn what_is_gone_takes_no_memory_once_older_requests_are_over() {
    let mut cache = cache();
    let question = cache.ask(at(0));
    hear(&mut cache, told(X, Bits::UPDATE, 1, 1), 1);
    cache.recall(recall(2), at(2));
    assert_eq!((cache.count(), cache.slab.len()), (0, 1), "a late answer may come");
    hear(&mut cache, told(X, Bits::UPDATE, 3, 1), 3);
    cache.finish(question);
    assert_eq!((cache.count(), cache.slab.len()), (1, 1), "it was given anew");
    cache.recall(recall(4), at(4));
    assert_eq!((cache.slab.len(), cache.ghosts.len()), (0, 0));
}

#[test]
fn what_is_being_changed_is_awaited() {
    let mut cache = cache();
    hear(&mut cache, told(X, Bits::UPDATE | Bits::PERM, 1, 1), 0);
    let wants = [Want { fid: X, bits: Bits::UPDATE }];
    cache.begin(CHANGE, &wants);
    assert_eq!(cache.belief(X, Bits::UPDATE, at(1)), Belief::No);
    assert!(matches!(cache.belief(X, Bits::PERM, at(1)), Belief::Until(_)), "other bits");
    hear(&mut cache, told(X, Bits::UPDATE, 2, 2), 2);
    cache.end(CHANGE, &wants, Transno(2), at(3));
    assert!(matches!(cache.belief(X, Bits::UPDATE, at(3)), Belief::Until(_)), "it was told");
    cache.begin(CHANGE, &wants);
    cache.end(CHANGE, &wants, Transno::NONE, at(4));
    assert!(matches!(cache.belief(X, Bits::UPDATE, at(4)), Belief::Until(_)), "refused");
    cache.begin(CHANGE, &wants);
    cache.end(CHANGE, &wants, Transno(3), at(5));
    assert_eq!(cache.belief(X, Bits::UPDATE, at(5)), Belief::No, "held, but not known");
    assert_eq!(cache.bits_of(X), Bits::UPDATE | Bits::PERM);
    assert_eq!(hear(&mut cache, told(X, Bits::UPDATE, 3, 2), 6), Bits::empty(), "too old");
    assert_eq!(hear(&mut cache, told(X, Bits::UPDATE, 4, 3), 7), Bits::UPDATE);
}

#[test]
fn in_doubt_grants_are_kept_and_nothing_is_known() {
    let mut cache = cache();
    hear(&mut cache, told(X, Bits::PERM, 1, 1), 0);
    let mut timed = told(file(2), Bits::PERM, 2, 1);
    timed.given.kind = Kind::Timed;
    hear(&mut cache, timed, 0);
    let question = cache.ask(at(0));
    cache.doubt();
    assert_eq!((cache.belief(X, Bits::PERM, at(1)), cache.bits_of(X)), (Belief::No, Bits::PERM));
    assert_eq!((cache.belief(file(2), Bits::PERM, at(1)), cache.count()), (Belief::No, 1));
    assert_eq!(answer(&mut cache, question, told(X, Bits::PERM, 3, 9), 1), Bits::empty());
    cache.finish(question);
    assert_eq!(hear(&mut cache, told(X, Bits::PERM, 4, 9), 2), Bits::PERM);
    assert!(matches!(cache.belief(X, Bits::PERM, at(3)), Belief::Until(_)));
}

#[test]
fn the_least_used_is_given_back_unless_the_kernel_keeps_it() {
    let mut cache = Cache::new(CacheConfig { lru_size: 2, ..CacheConfig::default() }, Number(0));
    for number in 1..=4 {
        hear(&mut cache, told(file(number), Bits::PERM, u64::from(number), 1), 0);
    }
    cache.belief(file(1), Bits::PERM, at(1)); // used again
    cache.told(file(2), at(5_000));
    let fids: Vec<_> = cache.shed(at(2)).iter().map(|stated| stated.fid).collect();
    assert_eq!(fids, [file(3), file(4)]);
    assert_eq!((cache.shed(at(3)).len(), cache.count()), (0, 2));
    let age = CacheConfig::default().lru_max_age;
    assert_eq!(cache.shed(at(4) + age).len(), 2, "nobody used them");
}

#[test]
fn a_grant_whose_value_is_unknown_is_called_back_all_the_same() {
    let mut cache = told_cache(0);
    cache.begin(CHANGE, &[Want { fid: X, bits: Bits::UPDATE }]);
    cache.end(CHANGE, &[Want { fid: X, bits: Bits::UPDATE }], Transno(9), at(1));
    assert_eq!(cache.belief(X, Bits::UPDATE, at(2)), Belief::No);
    assert!(cache.is_called_back(X, Bits::UPDATE, at(2)));
    assert!(!cache.is_called_back(X, Bits::LOOKUP, at(2)), "it is not held");
    assert!(!cache.is_called_back(X, Bits::UPDATE, cache.names_until()), "the lease");
    cache.told(X, at(5_000));
    cache.recall(recall(2), at(3));
    assert!(!cache.is_called_back(X, Bits::UPDATE, at(3)), "it is called back already");
}

#[test]
fn after_a_change_by_way_of_another_mdt_only_later_answers_count() {
    let mut cache = told_cache(0);
    let wants = [Want { fid: X, bits: Bits::UPDATE }];
    cache.begin(CHANGE, &wants);
    assert_eq!(cache.belief(X, Bits::UPDATE, at(1)), Belief::No, "it is being changed");
    let late = cache.ask(at(1));
    cache.end_elsewhere(CHANGE, &wants);
    assert_eq!(cache.belief(X, Bits::UPDATE, at(1)), Belief::No, "and not known");
    assert_eq!(cache.take(late, told(X, Bits::UPDATE, 2, 8), at(2)), Bits::empty());
    cache.finish(late);
    assert_eq!(cache.belief(X, Bits::UPDATE, at(2)), Belief::No);
    assert_eq!(hear(&mut cache, told(X, Bits::UPDATE, 3, 9), 2), Bits::UPDATE);
    assert!(matches!(cache.belief(X, Bits::UPDATE, at(3)), Belief::Until(_)));
}

#[test]
fn a_change_by_way_of_another_mdt_outlives_the_session() {
    let mut cache = told_cache(0);
    let wants = [Want { fid: X, bits: Bits::UPDATE }];
    cache.begin(CHANGE, &wants);
    cache.session_over(Number(50));
    assert_eq!(hear(&mut cache, told(X, Bits::UPDATE, 51, 1), 1), Bits::UPDATE);
    cache.end_elsewhere(CHANGE, &wants);
    assert_eq!(cache.belief(X, Bits::UPDATE, at(2)), Belief::No, "that was before the change");
}

#[test]
fn all_names_of_a_directory_answer_what_is_absent() {
    let mut cache = cache();
    assert_eq!(cache.begin_names(X, true), None, "not without UPDATE");
    hear(&mut cache, told(X, Bits::UPDATE, 1, 1), 0);
    let listing = cache.begin_names(X, false).expect("UPDATE is held");
    cache.add_name(X, 1);
    assert_eq!(cache.name(X, 2, at(1)), Name::Unknown, "not read to the end");
    cache.complete_names(X, listing);
    assert_eq!((cache.name(X, 1, at(1)), cache.name(X, 2, at(1))), (Name::Present, Name::Absent));
    cache.begin_name(X, 2);
    assert_eq!(cache.name(X, 2, at(1)), Name::Unknown, "it is being made");
    cache.add_name(X, 2);
    cache.end_name(X, 2);
    cache.remove_name(X, 1);
    assert_eq!((cache.name(X, 1, at(1)), cache.name(X, 2, at(1))), (Name::Absent, Name::Present));
    assert_eq!(cache.name(X, 1, cache.names_until()), Name::Unknown, "the lease");
    cache.recall(recall(2), at(2));
    assert_eq!(cache.name(X, 9, at(2)), Name::Unknown);
}

#[test]
fn a_hash_of_two_names_is_asked_for() {
    let mut cache = told_cache(0);
    cache.begin_names(X, true);
    cache.add_name(X, 1);
    cache.add_name(X, 1);
    cache.remove_name(X, 1);
    assert_eq!(cache.name(X, 1, at(1)), Name::Unknown);
    [(); 2].iter().for_each(|()| cache.begin_name(X, 2));
    cache.add_name(X, 2); // made and removed at once: the replies do not say in which order
    cache.end_name(X, 2);
    cache.remove_name(X, 2);
    cache.end_name(X, 2);
    assert_eq!(cache.name(X, 2, at(1)), Name::Unknown);
}

#[test]
fn a_listing_from_before_a_recall_makes_no_later_set_complete() {
    let mut cache = told_cache(0);
    let old = cache.begin_names(X, false).expect("UPDATE is held");
    cache.recall(recall(2), at(1));
    hear(&mut cache, told(X, Bits::UPDATE, 3, 2), 2);
    let new = cache.begin_names(X, false).expect("UPDATE is held again");
    cache.complete_names(X, old);
    assert_eq!(cache.name(X, 1, at(3)), Name::Unknown);
    cache.complete_names(X, new);
    assert_eq!(cache.name(X, 1, at(3)), Name::Absent);
}

#[test]
fn a_set_of_names_holds_until_a_recall_or_the_end_of_the_lease() {
    let mut cache = told_cache(0);
    let old = cache.begin_names(X, false).expect("UPDATE is held");
    assert_eq!((cache.known_names(X), cache.holds_names(X, old, at(1))), (None, true));
    cache.complete_names(X, old);
    assert_eq!(cache.known_names(X), Some(old));
    cache.begin_name(X, 1);
    cache.end_name(X, 1);
    assert!(cache.holds_names(X, old, at(1)), "its own changes the client counts itself");
    assert!(!cache.holds_names(X, old, cache.names_until()), "the lease");
    cache.recall(recall(2), at(1));
    hear(&mut cache, told(X, Bits::UPDATE, 3, 2), 2);
    assert_eq!((cache.known_names(X), cache.holds_names(X, old, at(3))), (None, false));
    let new = cache.begin_names(X, false).expect("UPDATE is held again");
    assert_eq!([old, new].map(|listing| cache.holds_names(X, listing, at(3))), [false, true]);
    cache.doubt();
    assert!(!cache.holds_names(X, new, at(3)));
}

#[test]
fn a_restarted_mdt_is_told_what_is_held_while_the_lease_lasts() {
    let mut cache = told_cache(5_000);
    cache.recall(recall(2), at(10));
    cache.restarted(Number(100), at(20));
    assert!(cache.is_recovering());
    assert_eq!(cache.belief(X, Bits::UPDATE, at(20)), Belief::No, "it may be lost");
    let stated = cache.restate().concat();
    assert_eq!((stated.len(), stated[0].fid, stated[0].bits), (1, X, Bits::UPDATE));
    assert_eq!((cache.recovered(Transno::NONE), cache.is_recovering()), (Vec::new(), false));
    assert!(matches!(cache.belief(X, Bits::UPDATE, at(21)), Belief::Until(_)));
    cache.restarted(Number(200), at(30));
    assert_eq!(cache.recovered(Transno(1)), [X], "its value knows of a lost change");
    assert_eq!(cache.belief(X, Bits::UPDATE, at(31)), Belief::No);
    cache.restarted(Number(300), at(10_000));
    assert!(cache.restate().is_empty(), "the lease was over");
}

/// A client that holds these files, which it heard of in this order.
fn holding(files: impl Iterator<Item = u32>) -> Cache {
    let mut cache = cache();
    for (number, of) in (1..).zip(files) {
        hear(&mut cache, told(file(of), Bits::LOOKUP | Bits::PERM, number, 1), 0);
    }
    cache
}

#[test]
fn grants_are_stated_in_the_order_of_records_whatever_was_used_last() {
    let count = 3 * VECTOR_MAX as u32;
    let mut cache = holding((0..count).map(|of| of * 7 % count));
    assert!(matches!(cache.belief(file(1), Bits::PERM, at(1)), Belief::Until(_)));
    let vectors = cache.restate();
    assert_eq!(vectors.iter().map(Vec::len).collect::<Vec<_>>(), [VECTOR_MAX; 3]);
    let keys: Vec<_> = vectors.concat().iter().map(|stated| stated.fid.to_key()).collect();
    assert!(keys.is_sorted_by(|a, b| a < b));
}

#[test]
fn what_an_mdt_does_not_say_that_it_has_taken_is_given_up() {
    let mut cache = holding(0..5);
    cache.restarted(Number(100), at(1));
    let stated = cache.restate().concat();
    let held: Vec<_> = [0, 2, 3].map(|of| Stated { bits: Bits::PERM, ..stated[of] }).to_vec();
    let all = Bits::LOOKUP | Bits::PERM;
    let given_up = [(0, Bits::LOOKUP), (1, all), (2, Bits::LOOKUP), (3, Bits::LOOKUP), (4, all)];
    assert_eq!(cache.refused(&stated, &held), given_up.map(|(of, bits)| (file(of), bits)));
    let bits = [0, 1, 2, 3, 4].map(|of| cache.bits_of(file(of)));
    let [none, perm] = [Bits::empty(), Bits::PERM];
    assert_eq!(bits, [perm, none, perm, perm, none]);
}

#[test]
fn a_session_takes_its_grants_along() {
    let mut cache = told_cache(5_000);
    cache.begin(CHANGE, &[Want { fid: X, bits: Bits::PERM }]);
    let question = cache.ask(at(1));
    cache.session_over(Number(50));
    assert_eq!(
        (cache.count(), cache.take(question, told(X, Bits::PERM, 9, 1), at(2))),
        (0, Bits::empty())
    );
    assert_eq!(hear(&mut cache, told(X, Bits::PERM, 51, 1), 3), Bits::PERM);
    assert!(matches!(cache.belief(X, Bits::PERM, at(4)), Belief::Until(_)), "nothing is changing");
}

#[test]
fn a_grant_takes_at_most_400_bytes_with_its_attributes() {
    const ATTRIBUTES: usize = 200;
    let mut cache = cache();
    let count = 100_000;
    for number in 0..count {
        hear(&mut cache, told(file(number), Bits::all(), u64::from(number) + 1, 1), 0);
    }
    let each = cache.bytes() / cache.count();
    println!("{each} bytes a grant at the client, without values");
    assert!(cache.count() == count as usize && each + ATTRIBUTES <= CLIENT_GRANT_BYTES_MAX);
}

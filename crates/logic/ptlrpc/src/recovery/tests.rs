//! Tests of recovery: the order of replays, gaps in it, refusals, and how long clients are awaited.

use super::*;

const NOW: Instant = Instant(1_000_000_000);

fn recovery(known: &[u128]) -> Recovery<u64> {
    let config =
        RecoveryConfig { soft: Span::secs(30), hard: Span::secs(120), committed: Transno(10) };
    Recovery::new(config, known.iter().map(|id| (ClientId(*id), Known::Present)))
}

fn replay(r: &mut Recovery<u64>, client: u128, transno: u64) -> Option<u64> {
    let index = r.clients.get(&ClientId(client)).map_or(0, |client| client.arrived) + 1;
    replay_as(r, client, index, transno)
}

fn replay_as(r: &mut Recovery<u64>, client: u128, index: u32, transno: u64) -> Option<u64> {
    let (client, transno, item) = (ClientId(client), Transno(transno), transno);
    let replay = Replay { client, index, transno, xid: Xid(item), open: false, item };
    r.handle_replay(replay, NOW).map(|repeated| repeated.item)
}

fn run(r: &mut Recovery<u64>) -> Vec<u64> {
    let mut order = Vec::new();
    while let Some(item) = r.poll_execute(NOW) {
        order.push(item);
        r.handle_executed(NOW);
    }
    order
}

#[test]
fn changes_of_two_clients_execute_in_the_order_of_history() {
    let mut r = recovery(&[1, 2]);
    assert!(r.handle_connected(ClientId(1), NOW));
    assert_eq!((replay(&mut r, 1, 12), replay(&mut r, 1, 13)), (None, None));
    assert_eq!(run(&mut r), [0; 0], "11 may come from the other client");
    r.handle_connected(ClientId(2), NOW);
    replay(&mut r, 2, 11);
    replay(&mut r, 2, 14);
    assert_eq!(run(&mut r), [11, 12, 13, 14]);
}

#[test]
fn a_close_waits_for_the_durable_open_that_it_has_overtaken() {
    let mut r = recovery(&[1]);
    r.handle_connected(ClientId(1), NOW);
    assert_eq!(replay_as(&mut r, 1, 2, 11), None);
    assert_eq!(
        run(&mut r),
        [0; 0],
        "it is next in line, but its client's first replay is on its way"
    );
    let open = Replay {
        client: ClientId(1),
        index: 1,
        transno: Transno(5),
        xid: Xid(5),
        open: true,
        item: 5,
    };
    assert_eq!(r.handle_replay(open, NOW), None);
    assert_eq!(run(&mut r), [5, 11]);
}

#[test]
fn an_open_offered_again_does_not_undo_its_replayed_close() {
    let mut r = recovery(&[1]);
    r.handle_connected(ClientId(1), NOW);
    let open = |index| Replay {
        client: ClientId(1),
        index,
        transno: Transno(5),
        xid: Xid(5),
        open: true,
        item: 5,
    };
    assert_eq!(r.handle_replay(open(1), NOW), None);
    assert_eq!(replay_as(&mut r, 1, 2, 11), None);
    assert_eq!(run(&mut r), [5, 11]);
    r.handle_connected(ClientId(1), NOW);
    let repeated = Repeated { item: 5, refusal: None };
    assert_eq!(r.handle_replay(open(1), NOW), Some(repeated));
    assert_eq!(replay_as(&mut r, 1, 2, 11), Some(11));
}

#[test]
fn a_replay_that_was_refused_is_refused_again_and_bounded_many_are_remembered() {
    let mut r = recovery(&[1, 2]);
    let offer = |r: &mut Recovery<u64>, index: u32, transno: u64| {
        let (client, transno, item) = (ClientId(1), Transno(transno), transno);
        let xid = Xid(item);
        r.handle_replay(Replay { client, index, transno, xid, open: false, item }, NOW)
    };
    r.handle_connected(ClientId(1), NOW);
    assert!(offer(&mut r, 1, 11).is_none() && offer(&mut r, 2, 12).is_none());
    assert_eq!(r.poll_execute(NOW), Some(11));
    assert!(r.handle_refusal(ClientId(1), Xid(11), Errno::ENOSPC));
    r.handle_executed(NOW);
    assert_eq!(run(&mut r), [12]);

    r.handle_connected(ClientId(1), NOW);
    let again = [offer(&mut r, 1, 11), offer(&mut r, 2, 12)];
    let refused = Repeated { item: 11, refusal: Some(Errno::ENOSPC) };
    assert_eq!(again, [Some(refused), Some(Repeated { item: 12, refusal: None })]);

    let last = limits::REFUSALS_MAX as u64;
    let mut refuse = |client, xid| r.handle_refusal(ClientId(client), Xid(xid), Errno::EIO);
    assert!((1..last).all(|more| refuse(1, 100 + more)));
    assert!(!refuse(1, 100 + last), "there is no room");
    assert!(refuse(2, 11), "for others there is");
    r.forget_answers();
    assert!(r.clients.values().all(|client| client.refused.is_empty()));
}

#[test]
fn a_replay_of_who_is_not_waited_for_is_refused() {
    let mut r = recovery(&[1]);
    let (client, transno, item) = (ClientId(2), Transno(11), 11);
    let replay = Replay { client, index: 1, transno, xid: Xid(1), open: false, item };
    let refused = Repeated { item, refusal: Some(Errno::ENOTCONN) };
    assert_eq!(r.handle_replay(replay, NOW), Some(refused));
}

#[test]
fn what_the_network_reordered_is_no_gap() {
    let mut r = recovery(&[1]);
    r.handle_connected(ClientId(1), NOW);
    replay_as(&mut r, 1, 2, 15);
    assert_eq!(run(&mut r), [0; 0], "the first replay of this client is on its way");
    replay_as(&mut r, 1, 1, 13);
    assert_eq!(run(&mut r), [13, 15]);
}

#[test]
fn a_gap_is_passed_when_nobody_can_fill_it() {
    let mut r = recovery(&[1, 2]);
    r.handle_connected(ClientId(1), NOW);
    r.handle_connected(ClientId(2), NOW);
    replay(&mut r, 1, 15);
    assert_eq!(run(&mut r), [0; 0]);
    r.handle_done(ClientId(2), 0, NOW);
    assert_eq!(run(&mut r), [15]);
}

#[test]
fn a_missing_client_holds_its_gap_until_the_window_ends() {
    let mut r = recovery(&[1, 2]);
    assert_eq!(r.poll_timeout(), None, "no timer before the first attempt");
    r.handle_connected(ClientId(1), NOW);
    replay(&mut r, 1, 15);
    r.handle_done(ClientId(1), 99, NOW);
    r.handle_timeout(NOW + Span::secs(29));
    assert_eq!((run(&mut r), r.poll_evict()), (vec![], None));
    r.handle_timeout(NOW + Span::secs(30));
    assert_eq!((run(&mut r), r.poll_evict()), (vec![15], Some(ClientId(2))));
    assert_eq!(r.poll_finished(), Some(vec![99]));
    assert!(!r.is_active());
}

#[test]
fn who_is_done_holds_no_gap_when_it_goes() {
    let mut r = recovery(&[1, 2]);
    r.handle_connected(ClientId(1), NOW);
    r.handle_connected(ClientId(2), NOW);
    r.handle_done(ClientId(1), 1, NOW);
    r.handle_disconnected(ClientId(1), NOW);
    replay(&mut r, 2, 15);
    assert_eq!(run(&mut r), [15]);
    r.handle_done(ClientId(2), 2, NOW);
    assert_eq!(r.poll_finished(), Some(vec![1, 2]));
}

#[test]
fn who_is_done_and_comes_back_offers_again_what_was_executed() {
    let mut r = recovery(&[1, 2]);
    r.handle_connected(ClientId(1), NOW);
    r.handle_connected(ClientId(2), NOW);
    replay(&mut r, 1, 11);
    assert_eq!(run(&mut r), [11]);
    r.handle_done(ClientId(1), 1, NOW);
    r.handle_connected(ClientId(1), NOW);
    replay(&mut r, 2, 15);
    assert_eq!(run(&mut r), [0; 0], "it may say more than before");
    assert_eq!(replay(&mut r, 1, 11), Some(11));
    r.handle_done(ClientId(1), 3, NOW);
    assert_eq!(run(&mut r), [15]);
}

#[test]
fn the_hard_end_evicts_only_the_client_with_the_hole() {
    let mut r = recovery(&[1, 2]);
    r.handle_connected(ClientId(1), NOW);
    r.handle_connected(ClientId(2), NOW);
    replay_as(&mut r, 1, 2, 12); // its first never comes
    replay(&mut r, 2, 15);
    r.handle_timeout(NOW + Span::secs(119));
    assert_eq!((run(&mut r), r.poll_evict()), (vec![], None));
    r.handle_timeout(NOW + Span::secs(149));
    assert_eq!((r.poll_evict(), r.poll_evict()), (Some(ClientId(1)), None));
    assert_eq!(run(&mut r), [15]);
}

#[test]
fn the_hard_end_spares_a_client_that_still_replays() {
    let mut r = recovery(&[1]);
    r.handle_connected(ClientId(1), NOW);
    replay(&mut r, 1, 11);
    assert_eq!(r.poll_execute(NOW + Span::secs(110)), Some(11));
    r.handle_timeout(NOW + Span::secs(120));
    assert_eq!(r.poll_evict(), None, "its change takes long");
    r.handle_executed(NOW + Span::secs(130));
    r.handle_timeout(NOW + Span::secs(150));
    assert_eq!(r.poll_evict(), None);
    r.handle_timeout(NOW + Span::secs(180));
    assert_eq!(r.poll_evict(), Some(ClientId(1)));
}

#[test]
fn the_hard_end_evicts_the_client_whose_change_never_ends_and_no_other() {
    let mut r = recovery(&[1, 2]);
    r.handle_connected(ClientId(1), NOW);
    r.handle_connected(ClientId(2), NOW);
    replay(&mut r, 1, 11);
    assert_eq!(r.poll_execute(NOW), Some(11));
    r.handle_timeout(NOW + Span::secs(119));
    assert_eq!(r.poll_evict(), None);
    r.handle_timeout(NOW + Span::secs(149));
    assert_eq!((r.poll_evict(), r.poll_evict()), (Some(ClientId(1)), None));
    assert!(!r.is_complete(), "what it began is still under way");
    r.handle_executed(NOW + Span::secs(150));
    r.handle_done(ClientId(2), 2, NOW + Span::secs(150));
    assert!(r.poll_finished().is_some());
}

/// Each time that it is asked a window's length later, a client replays one more durable open.
#[test]
fn who_always_has_one_more_replay_does_not_recover_for_ever() {
    let mut r = recovery(&[1, 2]);
    r.handle_connected(ClientId(1), NOW);
    r.handle_connected(ClientId(2), NOW);
    r.handle_done(ClientId(2), 2, NOW);
    let mut at = NOW;
    for index in 1..=100 {
        at = at + Span::secs(29);
        let (client, xid) = (ClientId(1), Xid(index.into()));
        let transno = Transno(5);
        let open = Replay { client, index, transno, xid, open: true, item: 5 };
        let _known_once_it_is_evicted = r.handle_replay(open, at);
        while r.poll_execute(at).is_some() {
            r.handle_executed(at);
        }
        while r.poll_timeout().is_some_and(|due| due <= at) {
            r.handle_timeout(at);
        }
        if r.is_complete() {
            break;
        }
    }
    assert_eq!((r.poll_evict(), r.poll_evict()), (Some(ClientId(1)), None));
    assert!(at <= NOW + Span::secs(2 * 120 + 30), "it ended after {:?}", at - NOW);
}

#[test]
fn who_is_done_after_the_end_is_not_forgotten() {
    let mut r = recovery(&[1]);
    r.handle_connected(ClientId(1), NOW);
    r.handle_done(ClientId(1), 1, NOW);
    assert_eq!(r.poll_finished(), Some(vec![1]));
    r.handle_connected(ClientId(1), NOW);
    r.handle_done(ClientId(1), 2, NOW);
    assert_eq!((r.take_done(), r.take_done()), (vec![2], vec![]));
}

#[test]
fn a_repeated_replay_is_not_executed_again() {
    let mut r = recovery(&[1]);
    r.handle_connected(ClientId(1), NOW);
    replay(&mut r, 1, 11);
    assert_eq!(run(&mut r), [11]);
    assert_eq!(replay(&mut r, 1, 11), Some(11));
    assert_eq!(replay(&mut r, 1, 9), Some(9), "durable before");
}

#[test]
fn a_durable_open_is_repeated_before_what_follows() {
    let mut r = recovery(&[1, 2]);
    r.handle_connected(ClientId(1), NOW);
    r.handle_replay(
        Replay {
            client: ClientId(1),
            index: 1,
            transno: Transno(3),
            xid: Xid(3),
            open: true,
            item: 3,
        },
        NOW,
    );
    replay(&mut r, 1, 11);
    assert_eq!(run(&mut r), [3, 11]);
    assert_eq!(r.executed(), Transno(11));
}

/// Client 1 is done, client 9 is missing.
fn with(known: Known) -> Recovery<u64> {
    let config =
        RecoveryConfig { soft: Span::secs(30), hard: Span::secs(120), committed: Transno(10) };
    let mut r = Recovery::new(config, [(ClientId(1), Known::Present), (ClientId(9), known)]);
    r.handle_connected(ClientId(1), NOW);
    replay(&mut r, 1, 20);
    r.handle_done(ClientId(1), 5, NOW);
    r
}

#[test]
fn a_client_that_was_silent_before_is_waited_for_briefly_and_with_its_time() {
    let mut r = with(Known::Silent);
    let left = |r: &Recovery<u64>, at| r.waits_for(at).first().map(|awaited| awaited.left);
    assert_eq!(left(&r, NOW + Span::secs(2)), Some(Span::millis(2_200)));
    assert_eq!(r.poll_timeout(), Some(NOW + limits::SILENT_RETURN));
    r.handle_timeout(NOW + Span::secs(4));
    assert_eq!((run(&mut r), r.poll_evict()), (vec![], None));
    r.handle_timeout(NOW + limits::SILENT_RETURN);
    assert_eq!((run(&mut r), r.poll_evict()), (vec![20], Some(ClientId(9))));
    assert_eq!(r.poll_finished(), Some(vec![5]));
}

#[test]
fn a_silent_client_that_comes_back_has_the_time_of_the_others() {
    let mut r = with(Known::Silent);
    r.handle_connected(ClientId(9), NOW + Span::secs(1));
    r.handle_disconnected(ClientId(9), NOW + Span::secs(2));
    r.handle_timeout(NOW + Span::secs(31));
    assert_eq!((r.poll_evict(), r.poll_timeout()), (None, Some(NOW + Span::secs(32))));
    r.handle_timeout(NOW + Span::secs(32));
    assert_eq!(r.poll_evict(), Some(ClientId(9)));
}

#[test]
fn who_was_there_before_has_the_window() {
    let mut r = with(Known::Present);
    let has_lasted = |secs| r.has_lasted(Span::secs(4), NOW + Span::secs(secs));
    assert!(!has_lasted(3) && has_lasted(4));
    r.handle_timeout(NOW + Span::secs(29));
    assert_eq!(r.poll_evict(), None);
    r.handle_timeout(NOW + Span::secs(30));
    assert_eq!(r.poll_evict(), Some(ClientId(9)));
}

#[test]
fn a_server_that_is_down_is_waited_for_only_briefly() {
    let mut r = with(Known::Server);
    assert_eq!(r.poll_timeout(), Some(NOW + limits::SERVER_RETURN));
    r.handle_timeout(NOW + limits::SERVER_RETURN);
    assert_eq!((run(&mut r), r.poll_evict()), (vec![20], Some(ClientId(9))));
    assert_eq!(r.poll_finished(), Some(vec![5]));
}

#[test]
fn a_server_that_comes_back_at_once_keeps_its_session() {
    let mut r = with(Known::Server);
    assert!(r.poll_finished().is_none());
    r.handle_connected(ClientId(9), NOW + Span::secs(1));
    r.handle_timeout(NOW + limits::SERVER_RETURN);
    r.handle_done(ClientId(9), 6, NOW + Span::secs(3));
    assert_eq!((run(&mut r), r.poll_evict()), (vec![20], None));
    assert_eq!(r.poll_finished(), Some(vec![5, 6]));
}

#[test]
fn a_server_whose_link_breaks_later_has_its_time_again_and_none_if_it_is_done() {
    let mut r = with(Known::Server);
    let (broken, back) = (NOW + Span::secs(9), NOW + Span::secs(10));
    r.handle_connected(ClientId(9), NOW + Span::secs(1));
    r.handle_disconnected(ClientId(9), broken);
    assert_eq!(r.poll_timeout(), Some(broken + limits::SERVER_RETURN));
    r.handle_timeout(back);
    assert_eq!(r.poll_evict(), None);
    r.handle_connected(ClientId(9), back);
    r.handle_disconnected(ClientId(9), back);
    r.handle_timeout(back + limits::SERVER_RETURN);
    assert_eq!(r.poll_evict(), Some(ClientId(9)));

    let mut r = with(Known::Server);
    r.handle_connected(ClientId(9), NOW + Span::secs(1));
    r.handle_connected(ClientId(1), NOW + Span::secs(1));
    r.handle_done(ClientId(9), 6, NOW + Span::secs(1));
    r.handle_disconnected(ClientId(9), broken);
    r.handle_timeout(broken + limits::SERVER_RETURN);
    assert_eq!(r.poll_evict(), None, "nobody waits for it");
}

#[test]
fn without_known_clients_there_is_nothing_to_recover() {
    assert!(!recovery(&[]).is_active());
}

#[test]
fn a_change_that_was_not_executed_is_taken_when_it_is_offered_again() {
    let mut r = recovery(&[1]);
    r.handle_connected(ClientId(1), NOW);
    assert_eq!((replay(&mut r, 1, 11), replay(&mut r, 1, 12)), (None, None));
    assert_eq!(r.poll_execute(NOW), Some(11));
    r.handle_abandoned(NOW);
    r.handle_disconnected(ClientId(1), NOW);
    assert_eq!(r.poll_execute(NOW), None, "12 does not come before 11");
    r.handle_connected(ClientId(1), NOW);
    assert_eq!(replay(&mut r, 1, 11), None, "it was not executed");
    r.handle_offered_again(ClientId(1), 2, Transno(12));
    assert_eq!(run(&mut r), [11, 12]);
    assert_eq!(replay_as(&mut r, 1, 1, 11), Some(11), "now it was");
}

//! The answer of a change is remembered once, as it was given. A resend gets the same answer,
//! before and after a restart, and no change is repeated.

use crate::common::raw::{Client, ask, check, check_with_errors, connect};
use crate::common::{FULL, REFUSED, Rules, TARGET, TWICE, serve};
use bytes::Bytes;
use types::{Errno, NidAddr, Span, Transno};
use wire::{Opcode, Request, RequestFlags};

/// A change of `key` has this answer, which its resend gets too; it was executed once, and its
/// session has one record in the store if it was made.
fn answered_once(key: u64, errno: Option<Errno>) {
    check(move |env, _, toy, _, at| async move {
        let mut client = Client::connect(&env, at, None).await;
        let first = client.change(2, key, RequestFlags::empty()).await;
        assert_eq!(first.errno(), errno);
        assert_eq!(first.header.transno != 0, errno.is_none(), "only a change is in history");
        let again = client.change(2, key, RequestFlags::RESENT).await;
        assert_eq!((again.errno(), &again.bufs), (errno, &first.bufs));
        assert_eq!(again.header.transno, first.header.transno);
        assert_eq!(toy.executed.get(), 1);
        assert_eq!(toy.running.borrow().counters.get(&key).copied(), errno.is_none().then_some(1));
        assert_eq!(toy.running.borrow().replies.len(), usize::from(errno.is_none()));
    });
}

#[test]
fn a_success_is_answered_again() {
    answered_once(3, None);
}

#[test]
fn a_slow_success_is_answered_again() {
    answered_once(4, None);
}

#[test]
fn a_refusal_is_answered_again() {
    answered_once(REFUSED, Some(Errno::EPERM));
}

#[test]
fn a_change_that_is_tried_twice_is_answered_with_what_it_led_to() {
    answered_once(TWICE, None);
}

#[test]
fn a_full_store_is_answered_despite_a_recorded_success() {
    answered_once(FULL, Some(Errno::ENOSPC));
}

#[test]
fn a_floor_is_in_each_later_reply_of_its_session_and_in_none_of_before() {
    check(|env, _, toy, _, at| async move {
        let mut client = Client::connect(&env, at, None).await;
        let first = client.change(2, 3, RequestFlags::empty()).await;
        assert_eq!(first.header.floor, 0);
        for session in toy.exports.sessions() {
            session.set_floor(9);
        }
        let again = client.change(2, 3, RequestFlags::RESENT).await;
        assert_eq!((again.header.floor, again.bufs), (9, first.bufs));
        let refused = client.change(3, REFUSED, RequestFlags::empty()).await;
        assert_eq!((refused.header.floor, refused.errno()), (9, Some(Errno::EPERM)));
        let mut ping = client.request(Opcode::Ping, 4, 0, RequestFlags::empty());
        ping.header.tag = 0;
        assert_eq!(ask(&mut client.link, &ping).await.header.floor, 9, "a heartbeat");
        let mut link = env.connect(None, at).await.expect("it listens");
        let resumed = ask(&mut link, &connect(Some(client.joined), "")).await;
        assert_eq!((resumed.header.floor, resumed.errno()), (9, None), "the session goes on");
    });
}

#[test]
fn a_duplicate_of_an_executing_change_starts_nothing() {
    check(|env, _, toy, _, at| async move {
        let mut client = Client::connect(&env, at, None).await;
        let key: u64 = 4; // takes 700 us
        let (first, second) = {
            let body = Bytes::copy_from_slice(&key.to_le_bytes());
            let mut request = Request::new(Opcode::MdtSetattr, vec![body]);
            let header = &mut request.header;
            (header.xid, header.tag, header.target) = (2, 1, TARGET.to_u32());
            (header.session, header.instance) = (client.joined.session, client.joined.instance);
            (header.epoch, header.flags) = (client.joined.epoch, RequestFlags::MODIFIES);
            header.deadline_ms = 10_000;
            let first = request.clone();
            request.header.flags |= RequestFlags::RESENT;
            (first, request)
        };
        client.link.tx.send_message(&first).expect("open");
        let reply = ask(&mut client.link, &second).await;
        assert_eq!(reply.body::<u64>(), 1);
        let more = env.timeout(Span::secs(1), client.link.rx.recv()).await;
        assert!(more.is_none(), "one answer for both");
        assert_eq!(toy.executed.get(), 1);
    });
}

#[test]
fn a_later_request_on_the_tag_replaces_the_answer_before_it() {
    check(|env, _, toy, _, at| async move {
        let mut client = Client::connect(&env, at, None).await;
        assert_eq!(client.change(2, 3, RequestFlags::empty()).await.body::<u64>(), 1);
        assert_eq!(client.change(3, 3, RequestFlags::empty()).await.body::<u64>(), 2);
        assert_eq!(client.change(3, 3, RequestFlags::RESENT).await.body::<u64>(), 2);
        assert_eq!(toy.executed.get(), 2);
        assert_eq!(toy.running.borrow().replies.len(), 1, "one record a tag");
    });
}

#[test]
fn after_a_restart_the_stored_answer_is_given() {
    check(|env, server, toy, disk, at| async move {
        let mut client = Client::connect(&env, at, None).await;
        let first = client.change(2, 3, RequestFlags::empty()).await;
        toy.commit();
        let joined = client.joined;
        drop(client);
        let next = NidAddr { port: at.port + 1, ..at };
        let (_up, toy) = serve(server, next, disk, &Rules::default()).await;
        let mut client = Client::connect(&env, next, Some(joined)).await;
        let mut done = Request::new(Opcode::ReplayDone, Vec::new());
        let header = &mut done.header;
        (header.xid, header.target, header.flags) = (3, TARGET.to_u32(), RequestFlags::REPLAY);
        (header.session, header.instance) = (client.joined.session, client.joined.instance);
        (header.epoch, header.deadline_ms) = (client.joined.epoch, 10_000);
        assert_eq!(ask(&mut client.link, &done).await.errno(), None);
        let again = client.change(2, 3, RequestFlags::RESENT).await;
        assert_eq!(again.header.transno, first.header.transno);
        assert_eq!((again.bufs, toy.executed.get()), (first.bufs, 0));
    });
}

/// The link breaks before its client hears of the refusal. A commit during the recovery passes the
/// change that is lost.
#[test]
fn a_replay_that_was_refused_is_refused_again_and_its_client_takes_nothing_for_durable() {
    check_with_errors(|env, server, toy, disk, at| async move {
        let mut client = Client::connect(&env, at, None).await;
        assert_eq!(client.change(2, 3, RequestFlags::empty()).await.body::<u64>(), 1);
        toy.commit();
        let durable = toy.exports.last_committed().0;
        let lost = client.change(3, 6, RequestFlags::empty()).await.header.transno;
        let joined = client.joined;
        drop(client);

        let next = NidAddr { port: at.port + 1, ..at };
        let (_up, toy) = serve(server, next, disk, &Rules::default()).await;
        for _ in 0..3 {
            let mut client = Client::connect(&env, next, Some(joined)).await;
            assert_eq!(client.joined.last_committed, durable);
            let flags = RequestFlags::MODIFIES | RequestFlags::REPLAY;
            let mut replay = client.request(Opcode::MdtSetattr, 3, REFUSED, flags);
            (replay.header.transno, replay.header.replay_index) = (lost, 1);
            let reply = ask(&mut client.link, &replay).await;
            assert_eq!((reply.errno(), reply.header.last_committed), (Some(Errno::EPERM), durable));
            toy.exports.committed(Transno(lost));
        }
        assert_eq!(toy.executed.get(), 1);
    });
}

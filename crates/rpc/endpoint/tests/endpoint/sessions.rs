//! Sessions: how one begins, continues after a lost link or a restart, and ends.

use std::cell::Cell;
use std::rc::Rc;

use endpoint::CallError;
use types::{Errno, Span, TargetId};
use wire::body::{ConnectReq, connect};
use wire::{Opcode, RequestFlags};

use crate::server::Do;
use crate::{change, check, read};

#[test]
fn nothing_is_sent_before_the_first_call() {
    check(|world| async move {
        world.pause(5_000).await;
        assert!(world.server.links.borrow().is_empty());
        assert!(!world.remote.is_connected());
        assert_eq!(world.remote.state(), "NEW");
    });
}

#[test]
fn the_first_call_connects_and_names_the_session_that_it_got() {
    check(|world| async move {
        world.book.uuid.set((9 << 64) | 7);
        world.remote.call(read(3)).await.expect("answered");
        assert_eq!(world.server.order(), [Opcode::Connect, Opcode::MdtGetattr]);
        let first = world.server.seen(Opcode::Connect).remove(0);
        let body: ConnectReq = first.body();
        assert_eq!((body.client_low, body.client_high, body.resume), (5, 0, 0));
        assert_eq!((body.uuid_low, body.uuid_high), (7, 9));
        assert_eq!(first.buf(1), "client5");
        let header = world.server.seen(Opcode::MdtGetattr)[0].header;
        assert_eq!((header.session, header.instance, header.epoch), (77, 1, 1));
        assert!(world.remote.is_connected());
        assert_eq!((world.remote.state().as_str(), world.remote.instance().0), ("FULL", 1));
    });
}

#[test]
fn a_refused_connect_is_tried_again_and_the_caller_waits() {
    check(|world| async move {
        let refusals = [Err(Errno::ENODEV), Err(Errno::ENODEV), Err(Errno::EBUSY)];
        world.server.connects.borrow_mut().extend(refusals);
        let start = world.env.now();
        let outcome = world.begin(read(3));
        world.pause(20).await;
        assert!(outcome.borrow().is_none() && !world.remote.is_connected());
        let waits = world.remote.waiting_on().expect("it waits");
        assert_eq!(waits, "MDT0000 (reconnecting for 0 s)");
        while outcome.borrow().is_none() {
            world.pause(10).await;
        }
        assert!(world.env.now() - start >= Span::millis(50 + 100 + 200), "each pause doubles");
        assert_eq!(world.server.seen(Opcode::Connect).len(), 4);
        assert_eq!(world.remote.waiting_on(), None);
    });
}

#[test]
fn addresses_are_tried_in_turn() {
    check(|world| async move {
        let there = world.server.at;
        let nothing = types::NidAddr { port: 1, ..there };
        *world.book.addrs.borrow_mut() = vec![nothing, there];
        world.remote.call(read(3)).await.expect("at the second address");
    });
}

#[test]
fn a_changed_address_is_seen_at_the_next_attempt() {
    check(|world| async move {
        world.remote.call(read(3)).await.expect("answered");
        let moved = (world.other)(989);
        *world.book.addrs.borrow_mut() = vec![moved.at];
        world.server.reset();
        world.remote.call(read(4)).await.expect("answered at its new address");
        assert_eq!(moved.order(), [Opcode::Connect, Opcode::MdtGetattr]);
        assert_eq!(world.server.seen(Opcode::MdtGetattr).len(), 1);
    });
}

#[test]
fn targets_of_one_node_share_a_link() {
    check(|world| async move {
        let other = world.endpoint.remote(TargetId::ost(1));
        world.remote.call(read(3)).await.expect("answered");
        other.call(read(3)).await.expect("answered");
        assert_eq!(world.server.links.borrow().len(), 1);
        assert_eq!(world.server.seen(Opcode::Connect).len(), 2, "a session each");
        assert_eq!(world.endpoint.remotes().len(), 2);
        assert!(Rc::ptr_eq(&other, &world.endpoint.remote(other.id())));
    });
}

#[test]
fn a_connect_goes_on_when_the_link_to_another_node_ends() {
    check(|world| async move {
        let elsewhere = (world.other)(989);
        *world.book.addrs.borrow_mut() = vec![elsewhere.at];
        let other = world.endpoint.remote(TargetId::ost(1));
        other.call(read(1)).await.expect("answered");
        *world.book.addrs.borrow_mut() = vec![world.server.at];
        world.server.connect_pause.set(Span::secs(1));
        let outcome = world.begin(read(3));
        world.pause(200).await;
        elsewhere.reset();
        world.pause(2_000).await;
        assert!(outcome.borrow_mut().take().expect("answered").is_ok());
        let connects = world.server.seen(Opcode::Connect);
        let own = connects.iter().filter(|sent| sent.header.target == crate::TARGET.to_u32());
        assert_eq!(own.count(), 1);
    });
}

#[test]
fn a_lost_link_resumes_the_session_and_repeats_what_has_no_answer() {
    check(|world| async move {
        world.remote.call(read(1)).await.expect("connected");
        world.server.plan([Do::Reset]);
        world.remote.call(change(3)).await.expect("answered in the end");
        let sent = world.server.seen(Opcode::MdtSetattr);
        assert_eq!(sent.len(), 2);
        assert_eq!((sent[0].xid(), sent[0].header.tag), (sent[1].xid(), sent[1].header.tag));
        assert!(!sent[0].has(RequestFlags::RESENT) && sent[1].has(RequestFlags::RESENT));
        let resumed: ConnectReq = world.server.seen(Opcode::Connect)[1].body();
        assert_eq!((resumed.resume, resumed.session), (1, 77));
    });
}

#[test]
fn an_attempt_without_an_answer_breaks_the_session() {
    check(|world| async move {
        world.server.plan([Do::Hold]);
        let start = world.env.now();
        world.remote.call(read(3)).await.expect("answered when repeated");
        assert!(world.env.now() - start >= crate::ATTEMPT);
        assert_eq!(world.server.seen(Opcode::Connect).len(), 2);
    });
}

#[test]
fn a_server_that_asks_for_time_keeps_its_session() {
    check(|world| async move {
        world.server.plan([Do::HoldEarly]);
        let outcome = world.begin(read(3));
        world.pause(20_000).await;
        assert!(outcome.borrow().is_none());
        world.server.answer_held();
        world.pause(10).await;
        assert!(outcome.borrow_mut().take().expect("answered").is_ok());
        assert_eq!(world.server.seen(Opcode::Connect).len(), 1);
    });
}

#[test]
fn nonsense_closes_the_link_and_the_request_is_repeated() {
    check(|world| async move {
        world.server.plan([Do::Nonsense]);
        world.remote.call(read(3)).await.expect("answered when repeated");
        assert_eq!(world.server.seen(Opcode::Connect).len(), 2);
    });
}

#[test]
fn an_older_instance_is_not_listened_to() {
    check(|world| async move {
        world.server.instance.set(2);
        world.server.plan([Do::As(1)]);
        let answer = world.remote.call(read(3)).await.expect("answered when repeated");
        assert_eq!(answer.reply.header.instance, 2);
        assert_eq!(world.server.seen(Opcode::MdtGetattr).len(), 2);
    });
}

#[test]
fn a_restarted_server_gets_what_was_not_durable_again() {
    check(|world| async move {
        let first = world.remote.call(change(3)).await.expect("durable");
        world.server.committed.set(first.reply.header.transno);
        let lost = world.remote.call(change(4)).await.expect("not durable");
        assert_eq!((world.remote.kept(), world.remote.last_committed().0), (1, 1));
        world.server.instance.set(2);
        world.server.connects.borrow_mut().push_back(Ok(connect::RECOVER));
        world.remote.on_recovery(Rc::new(|| vec![read(8)]));
        world.server.seen.borrow_mut().clear();
        world.server.reset();
        world.remote.call(read(5)).await.expect("answered after recovery");
        let order = [
            Opcode::Connect,
            Opcode::MdtSetattr,
            Opcode::MdtGetattr,
            Opcode::ReplayDone,
            Opcode::MdtGetattr,
        ];
        assert_eq!(world.server.order(), order, "replay, what the hook restates, then new calls");
        let replay = world.server.seen(Opcode::MdtSetattr).remove(0);
        assert!(replay.has(RequestFlags::REPLAY));
        assert_eq!((replay.xid(), replay.header.transno), (lost.xid, lost.reply.header.transno));
        assert_eq!(replay.replay_buf(0), Some(lost.reply.buf(0)), "with its first answer");
        assert_eq!(world.server.seen(Opcode::MdtGetattr)[0].body::<u64>(), 8);
    });
}

#[test]
fn an_eviction_ends_changes_and_repeats_questions() {
    check(|world| async move {
        let told = Rc::new(Cell::new(0));
        let tells = Rc::clone(&told);
        world.remote.on_evicted(Rc::new(move || tells.set(tells.get() + 1)));
        world.remote.call(change(1)).await.expect("not durable, and lost later");
        world.server.plan([Do::Hold, Do::Hold]);
        let (changed, asked) = (world.begin(change(3)), world.begin(read(4)));
        world.pause(10).await;
        world.server.connects.borrow_mut().push_back(Ok(connect::EVICTED));
        world.server.reset();
        world.pause(1_000).await;
        let changed = changed.borrow_mut().take().expect("it has an outcome");
        assert_eq!(changed.err(), Some(CallError::Evicted));
        assert!(asked.borrow_mut().take().expect("it has an outcome").is_ok());
        assert_eq!((told.get(), world.remote.kept()), (1, 0));
        let again = world.server.seen(Opcode::MdtGetattr).pop().expect("it was repeated");
        assert_eq!(again.header.session, 78, "in the fresh session");
    });
}

#[test]
fn an_idle_session_is_pinged_and_learns_what_is_durable() {
    check(|world| async move {
        let answer = world.remote.call(change(3)).await.expect("answered");
        assert_eq!(world.remote.kept(), 1);
        world.server.committed.set(answer.reply.header.transno);
        world.pause(3_000).await;
        assert_eq!(world.remote.kept(), 0, "a ping's answer said so");
    });
}

#[test]
fn shutdown_ends_the_session_and_all_calls() {
    check(|world| async move {
        world.server.plan([Do::Hold]);
        let outcome = world.begin(read(3));
        world.pause(10).await;
        world.endpoint.shutdown().await;
        world.pause(10).await;
        let outcome = outcome.borrow_mut().take().expect("it has an outcome");
        assert_eq!(outcome.err(), Some(CallError::Shutdown));
        assert_eq!(world.server.order().last(), Some(&Opcode::Disconnect));
        assert_eq!(world.remote.call(read(4)).await.err(), Some(CallError::Shutdown));
    });
}

#[test]
fn shutdown_does_not_wait_for_a_dead_server() {
    check(|world| async move {
        world.remote.call(read(3)).await.expect("connected");
        world.server.connects.borrow_mut().extend([Err(Errno::EBUSY), Err(Errno::EBUSY)]);
        world.server.reset();
        let start = world.env.now();
        world.endpoint.shutdown().await;
        assert!(world.env.now() - start <= endpoint::limits::SHUTDOWN_WAIT);
    });
}

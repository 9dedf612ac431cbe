//! Calls that are answered, refused, given up or bounded.

use bytes::Bytes;
use endpoint::{Bulk, Call, CallError};
use types::{Creds, Errno, Span};
use wire::body::CancelReq;
use wire::{Opcode, PROJID_NONE, RequestFlags};

use crate::server::Do;
use crate::{change, check, check_with, read};

#[test]
fn an_answer_has_its_reply_and_the_number_of_its_request() {
    check(|world| async move {
        let creds = Creds { uid: 7, gid: 8, groups: vec![9] };
        let call = Call { creds, projid: 10, ..change(3) };
        let answer = world.remote.call(call).await.expect("answered");
        let sent = world.server.seen(Opcode::MdtSetattr).remove(0);
        assert_eq!((answer.reply.body::<u64>(), answer.xid), (3, sent.xid()));
        assert_eq!((sent.header.uid, sent.header.gid, &sent.groups[..]), (7, 8, &[9][..]));
        assert_eq!(sent.header.projid, 10);
        assert!(sent.has(RequestFlags::MODIFIES) && sent.header.tag != 0);
        assert!(!sent.has(RequestFlags::SYNC));
        let call = Call { sync: true, ..change(4) };
        world.remote.call(call).await.expect("answered");
        let sent = world.server.seen(Opcode::MdtSetattr).remove(1);
        assert!(sent.has(RequestFlags::SYNC) && sent.header.projid == PROJID_NONE);
    });
}

#[test]
fn a_refusal_is_the_callers() {
    check(|world| async move {
        world.server.plan([Do::Refuse(Errno::ENOENT)]);
        let refused = world.remote.call(read(3)).await.expect_err("refused");
        assert_eq!(refused, CallError::Errno(Errno::ENOENT));
        assert_eq!(refused.errno(), Errno::ENOENT);
        assert_eq!(world.server.seen(Opcode::Connect).len(), 1, "the session does not mind");
    });
}

#[test]
fn a_call_is_on_its_way_before_its_answer_is_waited_for() {
    check(|world| async move {
        let calling = world.remote.call(read(3));
        world.pause(100).await;
        assert_eq!(world.server.seen(Opcode::MdtGetattr).len(), 1);
        calling.await.expect("answered");
    });
}

#[test]
fn a_question_that_is_given_up_is_forgotten_and_a_change_taken_back() {
    check(|world| async move {
        world.server.plan([Do::Hold, Do::Hold, Do::Hold]);
        let (asked, changed) = (world.remote.call(read(3)), world.remote.call(change(4)));
        world.pause(10).await;
        drop((asked, changed));
        world.pause(10).await;
        world.server.reset();
        world.pause(1_000).await;
        assert_eq!(world.server.seen(Opcode::MdtGetattr).len(), 1, "not repeated");
        let changes = world.server.seen(Opcode::MdtSetattr);
        assert_eq!(changes.len(), 1, "not repeated either");
        let cancels = world.server.seen(Opcode::Cancel);
        assert_eq!(cancels.len(), 2, "told on each connection until it is answered");
        assert!(cancels.iter().all(|cancel| cancel.body::<CancelReq>().xid == changes[0].xid().0));
        assert_eq!(world.remote.kept(), 0);
    });
}

#[test]
fn a_question_that_is_given_up_before_it_was_sent_is_never_sent() {
    check(|world| async move {
        world.server.connects.borrow_mut().push_back(Err(Errno::EBUSY));
        drop(world.remote.call(read(3)));
        world.pause(1_000).await;
        assert!(world.server.seen(Opcode::MdtGetattr).is_empty());
    });
}

#[test]
fn patience_ends_a_call() {
    check(|world| async move {
        world.server.plan([Do::Hold]);
        let start = world.env.now();
        let call = Call { patience: Some(Span::secs(1)), ..read(3) };
        assert_eq!(world.remote.call(call).await.err(), Some(CallError::TimedOut));
        assert_eq!(world.env.now() - start, Span::secs(1));
    });
}

#[test]
fn an_inactive_target_answers_nothing_until_it_is_active_again() {
    check(|world| async move {
        world.server.plan([Do::Hold]);
        let outcome = world.begin(read(3));
        world.pause(10).await;
        world.remote.set_active(false);
        world.pause(10).await;
        let outcome = outcome.borrow_mut().take().expect("it has an outcome");
        assert_eq!(outcome.err(), Some(CallError::Inactive));
        assert_eq!(world.remote.state(), "INACTIVE");
        let refused = world.remote.call(read(4)).await.expect_err("at once");
        assert_eq!((refused.errno(), world.server.seen(Opcode::MdtGetattr).len()), (Errno::EIO, 1));
        world.remote.set_active(true);
        world.remote.call(read(5)).await.expect("answered");
    });
}

#[test]
fn no_more_requests_are_in_flight_than_the_bound_says() {
    let two = |config: &mut endpoint::EndpointConfig| config.import.rpcs_in_flight = 2;
    check_with(two, |world| async move {
        world.server.plan([Do::Hold, Do::Hold]);
        let outcomes: Vec<_> = (0..5).map(|key| world.begin(read(key))).collect();
        world.pause(100).await;
        assert_eq!(world.server.seen(Opcode::MdtGetattr).len(), 2);
        world.server.answer_held();
        world.pause(100).await;
        let done = outcomes.iter().filter(|outcome| outcome.borrow().is_some()).count();
        assert_eq!(done, 4, "the held one alone is not answered");
    });
}

#[test]
fn what_is_too_large_is_refused_at_once() {
    check(|world| async move {
        let many = vec![Bytes::from_static(b"x"); wire::BUFS_MAX + 1];
        let too_many = Call::new(Opcode::MdtGetattr, many);
        let too_long = Call { bulk: Bulk::Sink(wire::BULK_BYTES_MAX as usize + 1), ..read(3) };
        for call in [too_many, too_long] {
            let refused = world.remote.call(call).await.expect_err("refused");
            assert_eq!(refused, CallError::Errno(Errno::EMSGSIZE));
        }
        assert!(world.server.order().is_empty(), "nothing was sent");
    });
}

#[test]
#[should_panic(expected = "a change takes no bulk data back")]
fn a_change_cannot_ask_for_data() {
    check(|world| async move {
        let call = Call { bulk: Bulk::Sink(10), ..change(3) };
        let _ = world.remote.call(call).await;
    });
}

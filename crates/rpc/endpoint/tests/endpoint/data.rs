//! Data that goes with calls, and the account of data that is not durable.

use bytes::Bytes;
use endpoint::{Bulk, Call, EndpointConfig};
use types::Span;
use wire::Opcode;

use crate::server::Do;
use crate::{INLINE_BYTES, change, check, check_with, read};

fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| at as u8).collect()
}

/// A change with `len` bytes of data in two parts.
fn write(len: usize) -> Call {
    let data = bytes(len);
    let parts = vec![data.slice(..len / 3), data.slice(len / 3..)];
    Call { bulk: Bulk::Source(parts), ..change(3) }
}

fn ask(len: usize) -> Call {
    Call { bulk: Bulk::Sink(len), ..read(3) }
}

#[test]
fn little_data_rides_in_the_request() {
    check(|world| async move {
        world.remote.call(write(INLINE_BYTES)).await.expect("answered");
        let sent = world.server.seen(Opcode::MdtSetattr).remove(0);
        assert_eq!((sent.header.bulk_id, sent.buf(1)), (0, bytes(INLINE_BYTES)));
    });
}

#[test]
fn more_data_is_pulled() {
    check(|world| async move {
        world.server.plan([Do::Pull]);
        world.remote.call(write(100_000)).await.expect("answered");
        assert_eq!(*world.server.pulled.borrow(), [bytes(100_000)]);
        let sent = world.server.seen(Opcode::MdtSetattr).remove(0);
        assert_eq!((sent.header.bulk_len, sent.bufs.len()), (100_000, 1));
    });
}

#[test]
fn a_repeated_request_names_its_data_anew() {
    check(|world| async move {
        world.server.plan([Do::Reset, Do::Hold]);
        let outcome = world.begin(write(5_000));
        world.pause(500).await;
        let sent = world.server.seen(Opcode::MdtSetattr);
        let (old, new) = (sent[0].header.bulk_id, sent[1].header.bulk_id);
        assert_ne!(old, new);
        let link = world.server.links.borrow().last().expect("connected again").clone();
        assert_eq!(world.server.pull(&link, old, 5_000).await, None, "that attempt is over");
        assert_eq!(world.server.pull(&link, 999, 5_000).await, None, "it names nothing");
        assert_eq!(world.server.pull(&link, new, 5_000).await, Some(bytes(5_000)));
        world.server.answer_held();
        world.pause(10).await;
        assert!(outcome.borrow_mut().take().expect("answered").is_ok());
    });
}

#[test]
fn data_comes_back_pushed_or_inline() {
    check(|world| async move {
        world.server.plan([Do::Push(bytes(3_000)), Do::Inline(bytes(7)), Do::Inline(bytes(8))]);
        let pushed = world.remote.call(ask(4_000)).await.expect("answered");
        assert_eq!(pushed.data, bytes(3_000));
        let inline = world.remote.call(ask(4_000)).await.expect("answered");
        assert_eq!(inline.data, bytes(7), "the server chose to");
        let little = world.remote.call(ask(INLINE_BYTES)).await.expect("answered");
        assert_eq!(little.data, bytes(8));
        let sent = world.server.seen(Opcode::MdtGetattr);
        assert!(sent[0].header.bulk_id != 0 && sent[2].header.bulk_id == 0);
    });
}

#[test]
fn pushed_data_that_is_lost_is_asked_for_again() {
    check(|world| async move {
        world.server.plan([Do::PushNothing, Do::Push(bytes(3_000))]);
        let answer = world.remote.call(ask(3_000)).await.expect("answered");
        assert_eq!(answer.data, bytes(3_000));
        let sent = world.server.seen(Opcode::MdtGetattr);
        assert_ne!(sent[0].xid(), sent[1].xid(), "a request of its own");
    });
}

#[test]
fn written_bytes_are_unstable_until_they_are_durable() {
    check(|world| async move {
        world.server.plan([Do::Pull]);
        world.remote.call(write(5_000)).await.expect("answered");
        assert_eq!(world.remote.unstable_bytes(), 5_000);
        world.server.committed.set(world.server.transno.get());
        world.pause(3_000).await;
        assert_eq!(world.remote.unstable_bytes(), 0);
    });
}

#[test]
fn a_write_beyond_the_bound_waits_for_a_commit() {
    let small = |config: &mut EndpointConfig| config.unstable_bytes_max = 10_000;
    check_with(small, |world| async move {
        world.server.plan([Do::Pull, Do::Pull]);
        world.remote.call(write(4_000)).await.expect("answered");
        assert!(world.server.seen(Opcode::MdtSync).is_empty());
        world.remote.set_commit_call(Call::new(Opcode::MdtSync, Vec::new()));
        world.remote.call(write(8_000)).await.expect("answered");
        let order = world.server.order();
        let commit = order.iter().position(|seen| *seen == Opcode::MdtSync);
        let write = order.iter().rposition(|seen| *seen == Opcode::MdtSetattr);
        assert!(commit.is_some() && commit < write, "{order:?}");
    });
}

#[test]
fn many_changes_that_are_not_durable_ask_for_a_commit() {
    let small = |config: &mut EndpointConfig| config.replay_bytes_max = 2_000;
    check_with(small, |world| async move {
        world.remote.set_commit_call(Call::new(Opcode::MdtSync, Vec::new()));
        for key in 0..20 {
            world.remote.call(change(key)).await.expect("answered");
            world.env.sleep(Span::millis(1)).await;
        }
        let commits = world.server.seen(Opcode::MdtSync).len();
        assert!((1..20).contains(&commits), "{commits}");
        assert!(world.remote.kept() < 20);
    });
}

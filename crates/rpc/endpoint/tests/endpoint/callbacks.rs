//! Callbacks: which ones are handled, how many at once, and where the answer goes.

use std::cell::RefCell;
use std::rc::Rc;

use endpoint::{CallbackAnswer, OnCallback};
use ptlrpc::limits::CALLBACK_SLOTS;
use tokio::sync::Notify;
use types::Errno;
use wire::body::{CallbackRep, GrantAck};
use wire::{Frame, FrameKind, Opcode, Reply, ReplyFlags, Request, grants};

use crate::{World, check, read};

/// Handles callbacks once it is told to; what it was asked, by number.
fn listen(world: &World) -> (Rc<Notify>, Rc<RefCell<Vec<u64>>>) {
    let (go, asked) = (Rc::new(Notify::new()), Rc::new(RefCell::new(Vec::new())));
    let (goes, notes) = (Rc::clone(&go), Rc::clone(&asked));
    let handler: OnCallback = Rc::new(move |callback| {
        let number = callback.words()[0].number;
        notes.borrow_mut().push(number);
        let go = Rc::clone(&goes);
        Box::pin(async move {
            go.notified().await;
            Ok(CallbackAnswer::Acks(vec![GrantAck { number, ..GrantAck::default() }]))
        })
    });
    world.remote.on_callback(handler);
    (go, asked)
}

/// What was told since the last time.
fn told(world: &World) -> Vec<Reply> {
    world.server.told.borrow_mut().drain(..).collect()
}

#[test]
fn a_callback_is_handled_once_at_a_time_and_answered_on_the_newest_link() {
    check(|world| async move {
        world.remote.call(read(3)).await.expect("answered");
        let (go, asked) = listen(&world);
        let request = world.server.callback(1);
        world.server.call_back(&request);
        world.pause(10).await;
        world.server.reset();
        world.pause(200).await;
        assert!(world.remote.is_connected(), "again");
        world.server.call_back(&world.server.callback(1));
        world.pause(10).await;
        assert_eq!(*asked.borrow(), [1], "it is being handled");
        go.notify_waiters();
        world.pause(10).await;
        let told = told(&world);
        let [reply] = &told[..] else { panic!("one answer: {told:?}") };
        let CallbackRep { session, target, count } = reply.body();
        assert_eq!((session, target, count), (77, crate::TARGET.to_u32(), 1));
        assert_eq!((reply.header.xid, reply.header.instance, reply.errno()), (1, 1, None));
        assert_eq!(grants::answered::<GrantAck>(reply).expect("ours")[0].number, 1);
        world.server.call_back(&world.server.callback(1));
        world.pause(10).await;
        assert_eq!(*asked.borrow(), [1, 1], "later it is handled again");
    });
}

#[test]
fn callbacks_without_a_slot_are_told_to_come_again() {
    check(|world| async move {
        world.remote.call(read(3)).await.expect("answered");
        let (go, asked) = listen(&world);
        let most = CALLBACK_SLOTS as u64;
        (1..=most + 3).for_each(|xid| world.server.call_back(&world.server.callback(xid)));
        world.pause(10).await;
        assert_eq!(*asked.borrow(), (1..=most).collect::<Vec<_>>());
        let refused = told(&world);
        assert_eq!(refused.len(), 3);
        assert!(refused.iter().all(|reply| reply.has(ReplyFlags::BUSY)));
        world.remote.call(read(4)).await.expect("its own requests go on");
        go.notify_waiters();
        world.pause(10).await;
        assert_eq!(told(&world).len(), CALLBACK_SLOTS);
        world.server.call_back(&world.server.callback(most + 1));
        world.pause(10).await;
        assert_eq!(asked.borrow().last(), Some(&(most + 1)));
    });
}

#[test]
fn nobody_but_the_target_of_the_session_is_listened_to() {
    check(|world| async move {
        world.remote.call(read(3)).await.expect("answered");
        let (_, asked) = listen(&world);
        let changes: [fn(&mut Request); 4] = [
            |request| request.header.session += 1,
            |request| request.header.instance += 1,
            |request| request.header.epoch += 1,
            |request| request.header.target += 1,
        ];
        for change in changes {
            let mut request = world.server.callback(1);
            change(&mut request);
            world.server.call_back(&request);
            world.pause(10).await;
            let told = told(&world);
            let [reply] = &told[..] else { panic!("one answer: {told:?}") };
            assert!(reply.has(ReplyFlags::NO_SESSION));
            assert_eq!(reply.errno(), Some(Errno::ENOTCONN));
        }
        assert!(asked.borrow().is_empty());
    });
}

#[test]
fn a_callback_of_a_newer_target_is_refused_and_the_link_stays() {
    check(|world| async move {
        world.remote.call(read(3)).await.expect("answered");
        let (_, asked) = listen(&world);
        let links = world.server.links.borrow().len();
        let mut newer = world.server.callback(1);
        newer.header.opcode = u16::MAX;
        world.server.call_back(&newer);
        world.pause(200).await;
        let told = told(&world);
        let [reply] = &told[..] else { panic!("one answer: {told:?}") };
        assert_eq!(reply.errno(), Some(Errno::EOPNOTSUPP));
        assert!(asked.borrow().is_empty());
        assert_eq!(world.server.links.borrow().len(), links);
    });
}

#[test]
fn what_is_no_callback_costs_the_link() {
    check(|world| async move {
        for nonsense in [
            Request { header: Request::new(Opcode::Ping, Vec::new()).header, ..Request::default() },
            Request { bufs: vec![vec![1; 16].into()], ..world.server.callback(1) },
        ] {
            world.remote.call(read(3)).await.expect("answered");
            let (_, asked) = listen(&world);
            let links = world.server.links.borrow().len();
            let header = world.server.callback(1).header;
            let opcode = nonsense.header.opcode;
            let header = wire::RequestHeader { opcode, ..header };
            world.server.call_back(&Request { header, ..nonsense });
            world.pause(200).await;
            assert!(asked.borrow().is_empty());
            assert_eq!(world.server.links.borrow().len(), links + 1, "it connected anew");
        }
        let frame = Frame::new(FrameKind::Request, 0, bytes::Bytes::from_static(b"nonsense"));
        let links = world.server.links.borrow().len();
        world.server.links.borrow().last().expect("connected").send(frame).expect("open");
        world.pause(200).await;
        assert_eq!(world.server.links.borrow().len(), links + 1);
    });
}

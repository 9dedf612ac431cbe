//! Callbacks from a target to its clients. They pass whatever the client waits for and survive its
//! reconnects. A client that never answers costs a bounded amount of memory.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use crate::common::raw::{self, Client};
use crate::common::{
    Disk, RECALLED, Rules, TARGET, Toy, addr, call, client, increment, key, node, serve,
};
use endpoint::{Call, CallbackAnswer, Endpoint, OnCallback, Remote};
use env::{Env, Link};
use env_sim::{Sim, SimConfig};
use params::ParamTree;
use ptlrpc::limits::{CALLBACK_ANSWER_MAX, CALLBACKS_IN_FLIGHT, CALLBACKS_MAX};
use service::{CallbackError, Node, Session, spec};
use types::{Errno, Fid, Span};
use wire::body::{GrantAck, GrantBits, GrantWord, GrantsFlags};
use wire::grants::{self, Callback};
use wire::{FrameKind, Opcode, Reply, Request, RequestFlags};

const PATIENCE: Span = Span::secs(5);

struct World {
    env: Env,
    up: Rc<Node>,
    toy: Rc<Toy>,
    params: ParamTree,
    near: Rc<Endpoint>,
    remote: Rc<Remote>,
}

/// Runs `test` as a client of a served toy.
fn check<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F) {
    let sim = Sim::new(7, SimConfig::default());
    let server = node(&sim, "server", 1);
    let (disk, at, env) = (Rc::new(Disk::default()), addr(&server), server.env());
    let (up, toy) =
        sim.block_on(&server, async move { serve(env, at, disk, &Rules::default()).await });
    let handle = node(&sim, "client", 2);
    let near = client(&handle.env(), 2, at);
    let params = ParamTree::new();
    up.register_params(&params, &[&spec::MDT]);
    let remote = near.remote(TARGET);
    let world = World { env: handle.env(), up, toy, params, near, remote };
    let future = test(world);
    sim.block_on(&handle, future);
}

impl World {
    /// The session of the client, which is connected.
    async fn session(&self) -> Rc<Session> {
        self.remote.call(call(Opcode::MdtSync, 0)).await.expect("answered");
        self.toy.exports.sessions().remove(0)
    }

    fn on_callback<F>(&self, handler: impl Fn(Rc<Remote>, Callback) -> F + 'static)
    where
        F: Future<Output = Result<CallbackAnswer, Errno>> + 'static,
    {
        let remote = Rc::downgrade(&self.remote);
        let handler: OnCallback = Rc::new(move |callback| {
            Box::pin(handler(remote.upgrade().expect("it was called"), callback))
        });
        self.remote.on_callback(handler);
    }

    /// One slot of a partition for regular requests, so that they queue.
    fn narrow(&self) {
        let answers = self.params.set_now("mds.MDS.mdt.threads_max", "6").expect("it is there");
        answers.into_iter().for_each(|answer| drop(answer.expect("taken")));
    }
}

fn recall() -> Callback {
    let fid = Fid::new(0x2_0000_0401, 5).into();
    let bits = GrantBits::UPDATE;
    Callback::Recall(vec![GrantWord { fid, number: 9, bits, ..GrantWord::default() }])
}

/// What a client tells of a recall.
fn acks(callback: &Callback) -> Vec<GrantAck> {
    let ack = |word: &GrantWord| {
        let (fid, number) = (word.fid, word.number);
        GrantAck { fid, number, ..GrantAck::default() }
    };
    callback.words().iter().map(ack).collect()
}

#[test]
fn a_callback_is_answered_by_its_client() {
    check(|world| async move {
        let session = world.session().await;
        let refused = world.toy.exports.call_back(&session, &recall(), PATIENCE).await;
        assert_eq!(refused, Err(CallbackError::Refused(Errno::EOPNOTSUPP)), "nobody listens");
        world.on_callback(|_, callback| async move { Ok(CallbackAnswer::Acks(acks(&callback))) });
        let reply = world.toy.exports.call_back(&session, &recall(), PATIENCE).await;
        let told = grants::answered::<GrantAck>(&reply.expect("answered"));
        assert_eq!(told, Ok(acks(&recall())));
        assert_eq!(session.callbacks_unanswered(), 0);
    });
}

#[test]
fn all_requests_of_a_client_wait_for_what_is_recalled_from_it() {
    check(|world| async move {
        world.narrow();
        let session = world.session().await;
        world.on_callback(|remote, callback| async move {
            let told = grants::encode(&acks(&callback), GrantsFlags::empty());
            let ack = Call::new(Opcode::MdtAck, told);
            remote.call(ack).await.expect("it has a place of its own");
            Ok(CallbackAnswer::Acks(Vec::new()))
        });
        let done = Rc::new(Cell::new(0));
        for _ in 0..300 {
            let (remote, done) = (Rc::clone(&world.remote), Rc::clone(&done));
            world.env.spawn("waits", async move {
                remote.call(call(Opcode::MdtGetattr, RECALLED)).await.expect("answered");
                done.set(done.get() + 1);
            });
        }
        world.env.sleep(Span::millis(500)).await;
        assert_eq!((done.get(), world.toy.given_up.get()), (0, false));
        assert!(world.up.stats()["mdt"].queued > 0, "no slot of the server is free either");
        let begin = world.env.now();
        let reply = world.toy.exports.call_back(&session, &recall(), PATIENCE).await;
        assert!(reply.is_ok(), "{reply:?}");
        while done.get() < 300 {
            world.env.sleep(Span::millis(1)).await;
        }
        assert!(world.env.now() - begin < Span::millis(500), "{:?}", world.env.now() - begin);
    });
}

#[test]
fn a_client_that_never_answers_is_waited_for_within_bounds() {
    check(|world| async move {
        let session = world.session().await;
        let handled = Rc::new(Cell::new(0));
        let counted = Rc::clone(&handled);
        world.on_callback(move |_, _| {
            counted.set(counted.get() + 1);
            std::future::pending()
        });
        let begin = world.env.now();
        let call_back = || world.toy.exports.call_back(&session, &recall(), PATIENCE);
        let mut all: Vec<_> = (0..CALLBACKS_MAX).map(|_| call_back()).collect();
        assert_eq!(session.callbacks_unanswered(), CALLBACKS_MAX);
        assert_eq!(call_back().await, Err(CallbackError::Crowded));
        let first = all.remove(0);
        assert_eq!(first.await, Err(CallbackError::TimedOut));
        assert_eq!(world.toy.exports.callback_timeouts(), 1);
        assert_eq!(world.env.now() - begin, PATIENCE);
        world.env.sleep(Span::millis(100)).await;
        // the first has made room for one more; those that came again are not handled again
        assert_eq!(handled.get(), CALLBACKS_IN_FLIGHT + 1);
        world.remote.call(increment(4)).await.expect("its requests go on");
        drop(all);
        assert_eq!(session.callbacks_unanswered(), 0);
        world.toy.exports.evict(session.id);
        let last = call_back();
        assert_eq!(last.await, Err(CallbackError::SessionEnded));
        assert_eq!(call_back().await, Err(CallbackError::SessionEnded));
        drop(world.near);
    });
}

#[test]
fn what_a_recall_waits_for_passes_what_came_before() {
    check(|world| async move {
        world.narrow();
        let session = world.session().await;
        let order = Rc::new(RefCell::new(Vec::new()));
        let send = |number: u64| {
            let (remote, order) = (Rc::clone(&world.remote), Rc::clone(&order));
            world.env.spawn("call", async move {
                remote.call(increment(number)).await.expect("answered");
                order.borrow_mut().push(number);
            });
        };
        (0..40).for_each(|_| send(4));
        world.env.sleep(Span::micros(300)).await;
        send(10);
        world.env.sleep(Span::millis(2)).await;
        world.toy.awaited.borrow_mut().insert(10);
        let recalled = world.toy.exports.call_back(&session, &recall(), PATIENCE);
        assert!(
            world.up.nrs_stats(&spec::MDT).to_string().contains("promoted: 1"),
            "what waits moves"
        );
        send(10); // what comes later goes there at once
        let _refused = recalled.await;
        world.env.sleep(Span::millis(50)).await;
        let order = order.borrow();
        assert_eq!(order.iter().filter(|number| **number == 10).count(), 2, "{order:?}");
        let last = order.iter().rposition(|number| *number == 10).expect("counted");
        assert!(last < 15, "{order:?}");
        assert!(
            world.up.nrs_stats(&spec::MDT).to_string().contains("promoted: 1"),
            "nothing else moved"
        );
    });
}

/// The next frame, which is a callback.
async fn called(link: &mut Link) -> Request {
    let frame = link.rx.recv().await.expect("open");
    assert_eq!(frame.kind, FrameKind::Request);
    *Request::take(frame.into_payload()).expect("well formed")
}

fn answer(link: &Link, request: &Request) {
    let callback = Callback::decode(request).expect("a callback");
    let reply = grants::answer(&request.header, &acks(&callback));
    link.tx.send_message(&reply).expect("open");
}

#[test]
fn a_callback_and_a_reply_may_cross() {
    raw::check(|near, _, toy, _, at| async move {
        let mut client = Client::connect(&near, at, None).await;
        let session = toy.exports.sessions().remove(0);
        let slow = client.request(Opcode::MdtSetattr, 5, 4, RequestFlags::MODIFIES);
        assert_eq!(key(&slow) % 3, 1, "it takes its time");
        client.link.tx.send_message(&slow).expect("open");
        let calling = toy.exports.call_back(&session, &recall(), PATIENCE);
        let request = called(&mut client.link).await;
        let frame = client.link.rx.recv().await.expect("open");
        let reply = Reply::take(frame.into_payload()).expect("well formed");
        assert_eq!((reply.header.xid, reply.errno()), (5, None), "it waits for no callback");
        answer(&client.link, &request);
        answer(&client.link, &request); // a second answer is nobody's
        assert!(calling.await.is_ok());
        assert_eq!(client.change(6, 4, RequestFlags::empty()).await.errno(), None);
    });
}

#[test]
fn a_callback_without_an_answer_comes_again_with_the_next_connection() {
    raw::check(|near, _, toy, _, at| async move {
        let mut client = Client::connect(&near, at, None).await;
        let session = toy.exports.sessions().remove(0);
        let calling = toy.exports.call_back(&session, &recall(), PATIENCE);
        let first = called(&mut client.link).await;
        assert!(!first.has(RequestFlags::RESENT));
        client.link.tx.close();
        near.sleep(Span::millis(100)).await;
        // its answer comes first: without it the client would not know the session
        let mut client = Client::connect(&near, at, Some(client.joined)).await;
        let again = called(&mut client.link).await;
        assert!(again.has(RequestFlags::RESENT));
        assert_eq!((again.xid(), again.header.epoch), (first.xid(), client.joined.epoch));
        answer(&client.link, &again);
        assert!(calling.await.is_ok());
    });
}

#[test]
fn a_callback_is_repeated_while_nothing_is_said() {
    raw::check(|near, server, toy, _, at| async move {
        let mut client = Client::connect(&near, at, None).await;
        let session = toy.exports.sessions().remove(0);
        let told = Rc::new(RefCell::new(None));
        let (tells, calling) =
            (Rc::clone(&told), toy.exports.call_back(&session, &recall(), PATIENCE));
        server.spawn("calls", async move { *tells.borrow_mut() = Some(calling.await) });
        let first = called(&mut client.link).await;
        for _ in 0..2 {
            let again = called(&mut client.link).await;
            assert_eq!((again.xid(), again.has(RequestFlags::RESENT)), (first.xid(), true));
        }
        answer(&client.link, &first); // late
        near.sleep(Span::millis(100)).await;
        assert!(told.borrow_mut().take().is_some_and(|told| told.is_ok()));
    });
}

#[test]
fn only_the_client_of_a_session_answers_for_it() {
    raw::check(|near, _, toy, _, at| async move {
        let mut client = Client::connect(&near, at, None).await;
        let session = toy.exports.sessions().remove(0);
        let calling = toy.exports.call_back(&session, &recall(), PATIENCE);
        let request = called(&mut client.link).await;
        let stranger = near.connect(None, at).await.expect("it listens");
        answer(&stranger, &request);
        near.sleep(Span::millis(100)).await;
        assert_eq!(session.callbacks_unanswered(), 1, "nobody has answered");
        // nobody says so much
        let mut long = grants::answer(&request.header, &acks(&recall()));
        long.bufs.push(vec![0; CALLBACK_ANSWER_MAX].into());
        stranger.tx.send_message(&long).expect("open");
        near.sleep(Span::millis(100)).await;
        assert!(!stranger.tx.is_open(), "its link is closed");
        answer(&client.link, &request);
        assert!(calling.await.is_ok());
    });
}

//! The other paths of a request: bulk data, parking, durability, leases, shutdown, malformed
//! messages.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{
    self, Disk, Fixed, Rules, Toy, addr, call, client, increment, node, read, serve, write,
};
use bytes::Bytes;
use endpoint::{Call, CallError, Endpoint, EndpointConfig};
use env::{Env, Link};
use env_sim::{Cut, Faults, Sim, SimConfig};
use service::Node;
use types::{ClientId, Errno, Span};
use wire::body::{ConnectRep, ConnectReq};
use wire::{Frame, FrameKind, Opcode, Reply, Request, RequestFlags, encode_body};

/// Runs `test` as the client of a served toy.
fn check<F: Future<Output = ()> + 'static>(
    rules: Rules,
    faults: Faults,
    test: impl FnOnce(Env, World) -> F,
) {
    let sim = Sim::new(7, SimConfig { fail_on_error: false, ..SimConfig::default() });
    let (server, near) = (node(&sim, "server", 1), node(&sim, "client", 2));
    let (disk, at, env) = (Rc::new(Disk::default()), addr(&server), server.env());
    let (up, toy) = sim.block_on(&server, async move { serve(env, at, disk, &rules).await });
    sim.set_faults(faults);
    let env = near.env();
    let endpoint = client(&env, 5, at);
    let world = World {
        endpoint,
        up,
        toy,
        cut: Rc::new({
            let (control, server, near) = (sim.control(), server.clone(), near.clone());
            move |cut: bool| {
                if cut {
                    control.partition(&near, &server, Cut::BothWays)
                } else {
                    control.heal_all()
                }
            }
        }),
        at,
    };
    let future = test(env, world);
    sim.block_on(&near, future);
}

struct World {
    endpoint: Rc<Endpoint>,
    up: Rc<Node>,
    toy: Rc<Toy>,
    cut: Rc<dyn Fn(bool)>,
    at: types::NidAddr,
}

#[test]
fn data_goes_both_ways_inline_and_as_bulk_and_through_storms() {
    for faults in [Faults::default(), Faults::stormy()] {
        check(Rules::default(), faults, |_, world| async move {
            let remote = world.endpoint.remote(common::TARGET);
            for (key, len) in [(2, 100), (5, 2_000), (8, 100_000), (11, 1 << 20)] {
                let data = Bytes::from(vec![key as u8; len]);
                for _ in 0..10 {
                    remote.call(write(key, &data)).await.expect("written");
                    assert_eq!(remote.call(read(key)).await.expect("read").data, data);
                }
            }
        });
    }
}

#[test]
fn written_bytes_are_bounded_until_they_are_durable() {
    let rules = Rules { commit_every: Span::secs(100_000), ..Rules::default() };
    check(rules, Faults::default(), |_, world| async move {
        let remote = world.endpoint.remote(common::TARGET);
        remote.set_commit_call(call(Opcode::MdtSync, 0));
        let data = Bytes::from(vec![1; 4 << 20]);
        for key in 0..40 {
            remote.call(write(key * 3, &data)).await.expect("written");
            assert!(remote.unstable_bytes() <= 64 << 20);
        }
        assert!(remote.unstable_bytes() > 0);
        remote.call(call(Opcode::MdtSync, 0)).await.expect("committed");
        assert_eq!((remote.unstable_bytes(), remote.kept()), (0, 0));
    });
}

#[test]
fn changes_kept_for_replay_are_bounded() {
    let rules = Rules { commit_every: Span::secs(100_000), ..Rules::default() };
    check(rules, Faults::default(), |env, world| async move {
        let config = EndpointConfig {
            import: endpoint::ImportConfig { client: ClientId(6), ..Default::default() },
            replay_bytes_max: 64 << 10,
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::new(&env, config, Rc::new(Fixed(world.at, 0)));
        let remote = endpoint.remote(common::TARGET);
        remote.set_commit_call(call(Opcode::MdtSync, 0));
        let mut most = 0;
        for _ in 0..2_000 {
            remote.call(increment(1)).await.expect("done");
            most = most.max(remote.kept());
        }
        assert!(
            (100..400).contains(&most),
            "{most} changes were kept at once, of some 280 bytes each"
        );
    });
}

#[test]
fn parked_requests_leave_their_slots() {
    check(Rules::default(), Faults::default(), |env, world| async move {
        let remote = world.endpoint.remote(common::TARGET);
        let woken = Rc::new(Cell::new(0));
        for _ in 0..300 {
            let (remote, woken) = (Rc::clone(&remote), Rc::clone(&woken));
            env.spawn("waiter", async move {
                remote.call(call(Opcode::MdtLock, 0)).await.expect("granted");
                woken.set(woken.get() + 1);
            });
        }
        env.sleep(Span::secs(100)).await;
        assert_eq!(remote.call(increment(1)).await.expect("not blocked").reply.body::<u64>(), 1);
        assert_eq!(world.up.stats()["mdt"].active, 0);
        remote.call(call(Opcode::MdtUnlock, 0)).await.expect("done");
        env.sleep(Span::secs(1)).await;
        assert_eq!(woken.get(), 300);
    });
}

#[test]
fn a_lost_answer_is_asked_for_after_the_last_early_reply() {
    check(Rules::default(), Faults::default(), |env, world| async move {
        let remote = world.endpoint.remote(common::TARGET);
        remote.call(increment(1)).await.expect("done");
        let woken = Rc::new(Cell::new(false));
        let told = Rc::clone(&woken);
        env.spawn("waiter", async move {
            remote.call(call(Opcode::MdtLock, 0)).await.expect("granted");
            told.set(true);
        });
        env.sleep(Span::millis(500)).await;
        (world.cut)(true);
        world.toy.parked.notify_waiters();
        env.sleep(Span::millis(100)).await;
        (world.cut)(false);
        env.sleep(Span::secs(30)).await;
        env.sleep(Span::secs(2)).await;
        assert!(!woken.get());
        world.toy.parked.notify_waiters(); // it is a new execution
        env.sleep(Span::millis(100)).await;
        assert!(woken.get());
    });
}

#[test]
fn a_silent_client_is_evicted_and_told_so_and_goes_on() {
    let rules =
        Rules { silence_max: Span::secs(20), commit_every: Span::secs(1_000), ..Rules::default() };
    check(rules, Faults::default(), |env, world| async move {
        let remote = world.endpoint.remote(common::TARGET);
        let evicted = Rc::new(Cell::new(0));
        let count = Rc::clone(&evicted);
        remote.on_evicted(Rc::new(move || count.set(count.get() + 1)));
        remote.call(increment(3)).await.expect("done");
        env.sleep(Span::secs(60)).await;
        assert_eq!(evicted.get(), 0, "pings keep it alive");
        (world.cut)(true);
        env.sleep(Span::secs(60)).await;
        let late = Call { patience: Some(Span::secs(2)), ..call(Opcode::MdtGetattr, 0) };
        assert_eq!(remote.call(late).await.err(), Some(CallError::TimedOut));
        (world.cut)(false);
        assert_eq!(
            remote.call(call(Opcode::MdtGetattr, 0)).await.err(),
            Some(CallError::Errno(Errno::EOPNOTSUPP))
        );
        assert_eq!((evicted.get(), world.toy.evicted.get()), (1, 1));
        assert_eq!(remote.call(increment(3)).await.expect("goes on").reply.body::<u64>(), 2);
    });
}

#[test]
fn an_endpoint_ends_its_session_and_its_calls() {
    check(Rules::default(), Faults::default(), |env, world| async move {
        let remote = world.endpoint.remote(common::TARGET);
        remote.call(increment(3)).await.expect("done");
        let waiter = Rc::clone(&remote);
        let ended = Rc::new(Cell::new(None));
        let result = Rc::clone(&ended);
        env.spawn("waiter", async move {
            result.set(waiter.call(call(Opcode::MdtLock, 0)).await.err())
        });
        env.sleep(Span::millis(10)).await;
        world.endpoint.shutdown().await;
        env.sleep(Span::millis(10)).await;
        assert_eq!(ended.take(), Some(CallError::Shutdown));
        assert_eq!((world.toy.exports.sessions().len(), world.toy.evicted.get()), (0, 0));
    });
}

#[test]
fn nonsense_closes_the_link_it_came_on_and_no_other() {
    check(Rules::default(), Faults::default(), |env, world| async move {
        let remote = world.endpoint.remote(common::TARGET);
        remote.call(increment(3)).await.expect("done");
        let mut bad = env.connect(None, world.at).await.expect("a link");
        bad.tx
            .send(Frame::new(FrameKind::Request, 0, Bytes::from_static(b"nonsense")))
            .expect("open");
        assert_eq!(bad.rx.recv().await, None);
        assert_eq!(remote.call(increment(3)).await.expect("unharmed").reply.body::<u64>(), 2);
    });
}

/// A client of its own that offers 64 writes of 1 MiB.
async fn offer_writes(env: &Env, at: types::NidAddr) -> Link {
    let mut link = env.connect(None, at).await.expect("it listens");
    let target = common::TARGET.to_u32();
    let body = ConnectReq { client_low: 7, tags: 64, ..ConnectReq::default() };
    let mut request = Request::new(Opcode::Connect, vec![encode_body(&body)]);
    (request.header.xid, request.header.target) = (1, target);
    link.tx.send_message(&request).expect("open");
    let frame = link.rx.recv().await.expect("an answer");
    let joined: ConnectRep = Reply::take(frame.into_payload()).expect("well formed").body();
    for number in 1..=64 {
        let key = Bytes::copy_from_slice(&1_000_u64.to_le_bytes());
        let mut request = Request::new(Opcode::OstWrite, vec![key]);
        let header = &mut request.header;
        (header.xid, header.tag, header.target) = (1 + u64::from(number), number, target);
        (header.session, header.instance) = (joined.session, joined.instance);
        (header.epoch, header.flags) = (joined.epoch, RequestFlags::MODIFIES);
        (header.deadline_ms, header.bulk_id) = (10_000, number.into());
        header.bulk_len = 1 << 20;
        link.tx.send_message(&request).expect("open");
    }
    link
}

#[test]
fn a_client_that_sends_no_data_leaves_room_for_others_and_loses_its_link() {
    check(Rules::default(), Faults::default(), |env, world| async move {
        let remote = world.endpoint.remote(common::TARGET);
        remote.call(increment(3)).await.expect("done");
        let mut frozen = offer_writes(&env, world.at).await;
        env.sleep(Span::millis(100)).await;
        let start = env.now();
        let data = Bytes::from(vec![1; 4 << 20]);
        remote.call(write(2, &data)).await.expect("written");
        let took = env.now() - start;
        assert!(took < Span::secs(1), "{took:?}");
        while frozen.rx.recv().await.is_some() {}
        let took = env.now() - start;
        assert!(took < Span::secs(6), "its pulls ended together: {took:?}");
    });
}

//! Changes whose callers have given up or whose deadline has passed: they are dropped unless they
//! have begun, and are never executed later.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use crate::common::raw::Client;
use crate::common::{Disk, Rules, STUCK, TARGET, Toy, addr, client, increment, node, serve, write};
use bytes::Bytes;
use endpoint::{Call, Hold, Remote};
use env::Env;
use env_sim::{Sim, SimConfig};
use params::ParamTree;
use service::{Node, spec};
use types::{NidAddr, Span};
use wire::{Opcode, RequestFlags};

struct World {
    env: Env,
    at: NidAddr,
    remote: Rc<Remote>,
    up: Rc<Node>,
    toy: Rc<Toy>,
}

fn check<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F) {
    let sim = Sim::new(7, SimConfig::default());
    let server = node(&sim, "server", 1);
    let (disk, at, env) = (Rc::new(Disk::default()), addr(&server), server.env());
    let (up, toy) =
        sim.block_on(&server, async move { serve(env, at, disk, &Rules::default()).await });
    let near = node(&sim, "client", 2);
    let endpoint = client(&near.env(), 2, at);
    let world = World { env: near.env(), at, remote: endpoint.remote(TARGET), up, toy };
    let future = test(world);
    sim.block_on(&near, future);
    drop(endpoint);
}

impl World {
    /// Requests that come from now on wait for 30 s.
    async fn delay(&self) {
        self.up.nrs_select(&spec::MDT, "delay").await.expect("it starts");
        for (name, value) in
            [("nrs_delay_min", "30"), ("nrs_delay_max", "30"), ("nrs_delay_pct", "100")]
        {
            self.up.nrs_set(&spec::MDT, name, value).expect("in range");
        }
    }

    /// At most two changes are handled at once, and no early reply gives a client more time.
    fn narrow(&self) {
        let params = ParamTree::new();
        self.up.register_params(&params, &[&spec::MDT]);
        for (name, value) in [("at_max", "0"), ("mds.MDS.mdt.threads_max", "6")] {
            let answers = params.set_now(name, value).expect("it is there");
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        }
    }

    /// Requests that wait, requests that were dropped, and changes that were executed.
    fn counts(&self) -> (u64, u64, u64) {
        let stats = self.up.stats()["mdt"];
        (stats.queued, stats.dropped, self.toy.executed.get())
    }

    async fn pause(&self, ms: u64) {
        self.env.sleep(Span::millis(ms)).await;
    }
}

struct Told(Rc<Cell<bool>>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// The call, and whether its fate is known.
fn held(call: Call) -> (Call, Rc<Cell<bool>>) {
    let over = Rc::new(Cell::new(false));
    let hold = Hold(Some(Rc::new(Told(over.clone())) as _));
    (Call { hold, ..call }, over)
}

#[test]
fn a_change_that_waits_is_dropped_and_one_that_has_begun_is_not() {
    check(|world| async move {
        let (begins, begun) = held(increment(STUCK));
        let begins = world.remote.call(begins);
        world.pause(100).await;
        world.delay().await;
        let (waits, dropped) = held(increment(3));
        let waits = world.remote.call(waits);
        world.pause(100).await;
        assert!(!begun.get() && !dropped.get());
        drop((begins, waits));
        world.pause(100).await;
        assert!(!begun.get() && dropped.get(), "the server has said so, at once");
        world.pause(60_000).await;
        assert_eq!((begun.get(), world.toy.executed.get()), (true, 1));
        let counters = world.toy.running.borrow().counters.clone();
        assert_eq!(counters.into_iter().collect::<Vec<_>>(), [(STUCK, 1)]);
    });
}

#[test]
fn tags_of_dropped_changes_are_free_again() {
    check(|world| async move {
        world.delay().await;
        for _ in 0..2 {
            let calls: Vec<_> = (0..100).map(|key| world.remote.call(increment(3 * key))).collect();
            world.pause(500).await;
            drop(calls);
            world.pause(500).await;
        }
        world.up.nrs_set(&spec::MDT, "nrs_delay_pct", "0").expect("in range");
        let calls: Vec<_> = (0..100).map(|key| world.remote.call(increment(3 * key))).collect();
        for call in calls {
            call.await.expect("answered");
        }
        world.pause(60_000).await;
        assert_eq!(world.toy.executed.get(), 100);
    });
}

#[test]
fn a_request_behind_a_dropped_one_leaves_as_soon_as_its_rate_allows() {
    check(|world| async move {
        world.up.nrs_select(&spec::MDT, "tbf nid").await.expect("it starts");
        let rule = "start slow nid={*} bps=1MB/s depth=1";
        world.up.nrs_set(&spec::MDT, "nrs_tbf_rule", rule).expect("well formed");
        let answered = Rc::new(Cell::new(0));
        let begin = |key, bytes| {
            let (remote, answered) = (Rc::clone(&world.remote), Rc::clone(&answered));
            world.env.spawn("write", async move {
                let data = Bytes::from(vec![7; bytes]);
                remote.call(write(key, &data)).await.expect("answered");
                answered.set(key);
            })
        };
        begin(1, 1 << 20);
        world.pause(50).await;
        assert_eq!(answered.get(), 1, "the bucket was full");
        let second = begin(2, 1 << 20);
        world.pause(50).await;
        begin(3, 4_096);
        world.pause(50).await;
        second.abort();
        world.pause(200).await;
        assert_eq!(answered.get(), 3, "not after a second, for which the dropped one had to wait");
    });
}

/// Sends a change of `key` whose client waits `deadline_ms` for the answer.
fn send(client: &Client, tag: u32, key: u64, deadline_ms: u32) {
    let xid = 10 + u64::from(tag);
    let mut request = client.request(Opcode::MdtSetattr, xid, key, RequestFlags::MODIFIES);
    (request.header.tag, request.header.deadline_ms) = (tag, deadline_ms);
    client.link.tx.send_message(&request).expect("open");
}

/// A policy lets a request go before its deadline, so these wait for a slot.
#[test]
fn a_change_whose_deadline_passed_in_the_queue_is_dropped() {
    check(|world| async move {
        world.narrow();
        world.pause(500).await; // housekeeping looks at each full second
        let raw = Client::connect(&world.env, world.at, None).await;
        send(&raw, 1, STUCK, 10_000);
        send(&raw, 2, STUCK, 10_000);
        world.pause(100).await;
        send(&raw, 3, 3, 1_000);
        world.pause(500).await;
        assert_eq!(world.counts(), (1, 0, 0));
        world.pause(2_500).await;
        assert_eq!(world.counts(), (0, 1, 0), "housekeeping has taken it out");

        world.pause(36_500).await;
        send(&raw, 4, 3, 300);
        world.pause(350).await;
        assert_eq!(world.counts(), (1, 1, 0), "its deadline has passed, and no slot is free");
        world.pause(150).await;
        assert_eq!(world.counts(), (0, 2, 2), "it had its turn too late");
        world.pause(60_000).await;
        let counters = world.toy.running.borrow().counters.clone();
        assert_eq!(counters.into_iter().collect::<Vec<_>>(), [(STUCK, 2)]);
    });
}

//! Changes whose callers have given up: they are dropped unless they have begun, and are never
//! executed later.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use crate::common::{Disk, Rules, STUCK, TARGET, Toy, addr, client, increment, node, serve, write};
use bytes::Bytes;
use endpoint::{Call, Hold, Remote};
use env::Env;
use env_sim::{Sim, SimConfig};
use service::{Node, spec};
use types::Span;

struct World {
    env: Env,
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
    let world = World { env: near.env(), remote: endpoint.remote(TARGET), up, toy };
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

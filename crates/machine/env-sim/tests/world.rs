//! The simulated world keeps its promises: determinism, nodes that die, links with every fault.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use env::{Env, Link};
use env_sim::{Cut, FaultCounts, Faults, NodeHandle, Sim, SimConfig};
use types::{Nid, NidAddr, Span};
use wire::{Frame, FrameKind};

fn nid(last: u8) -> Nid {
    Nid::tcp([10, 0, 0, last].into())
}

fn at(last: u8) -> NidAddr {
    NidAddr { nid: nid(last), port: 988 }
}

fn request(id: u64) -> Frame {
    Frame::new(FrameKind::Request, id, Bytes::from(id.to_le_bytes().to_vec()))
}

/// Sends back every request as a reply.
fn serve_echo(node: &NodeHandle, at: NidAddr) {
    let env = node.env();
    node.env().spawn("echo", async move {
        let mut listener = env.listen(at).await.expect("the address is free");
        while let Ok(mut link) = listener.accept().await {
            env.spawn("echo link", async move {
                while let Some(frame) = link.rx.recv().await {
                    let _gone = link.tx.send(Frame { kind: FrameKind::Reply, ..frame });
                }
            });
        }
    });
}

/// Replies seen for `count` requests on one link, in order of arrival, until the link ends or
/// `patience` is over.
async fn ask(env: &Env, count: u64, patience: Span) -> Vec<u64> {
    let mut link = env.connect(None, at(1)).await.expect("somebody listens");
    for id in 1..=count {
        if link.tx.send(request(id)).is_err() {
            break;
        }
    }
    let mut seen = Vec::new();
    while let Some(Some(frame)) = env.timeout(patience, link.rx.recv()).await {
        seen.push(frame.id);
    }
    seen
}

fn world(seed: u64) -> (Sim, NodeHandle, NodeHandle) {
    let sim = Sim::new(seed, SimConfig::default());
    let server = sim.node("server", nid(1));
    let client = sim.node("client", nid(2));
    serve_echo(&server, at(1));
    (sim, server, client)
}

fn run_with(seed: u64, faults: Faults) -> (Vec<u64>, u64, FaultCounts) {
    let (sim, _server, client) = world(seed);
    let env = client.env();
    sim.run_for(Span::millis(1));
    sim.set_faults(faults);
    let seen = sim.block_on(&client, async move { ask(&env, 200, Span::secs(5)).await });
    (seen, sim.trace_hash(), sim.faults())
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let one = run_with(17, Faults::stormy());
    assert_eq!(one, run_with(17, Faults::stormy()));
    assert_ne!(one.1, run_with(18, Faults::stormy()).1);
}

#[test]
fn without_faults_everything_arrives_once_and_in_order() {
    let (seen, _, counts) = run_with(1, Faults::default());
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
    assert_eq!(counts, FaultCounts { delivered: 400, ..FaultCounts::default() });
}

#[test]
fn lost_messages_are_missing_and_counted() {
    let (seen, _, counts) = run_with(2, Faults { loss_ppm: 100_000, ..Faults::default() });
    assert!(counts.lost > 10, "{counts:?}");
    assert_eq!(seen.len() as u64, 200 - counts.lost);
    assert!(seen.is_sorted());
}

#[test]
fn duplicated_messages_come_twice() {
    let (seen, _, counts) = run_with(3, Faults { duplicate_ppm: 100_000, ..Faults::default() });
    assert!(counts.duplicated > 10, "{counts:?}");
    assert_eq!(seen.len() as u64, 200 + counts.duplicated);
}

#[test]
fn reordered_messages_all_come() {
    let (mut seen, _, counts) = run_with(4, Faults { reorder_ppm: 100_000, ..Faults::default() });
    assert!(counts.reordered > 10, "{counts:?}");
    assert!(!seen.is_sorted());
    seen.sort_unstable();
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
}

#[test]
fn a_reset_ends_the_link_for_both() {
    let (seen, _, counts) = run_with(5, Faults { reset_ppm: 20_000, ..Faults::default() });
    assert_eq!(counts.resets, 1);
    assert!(seen.len() < 200);
}

#[test]
fn delay_keeps_the_order() {
    let faults = Faults { delay_ppm: 500_000, delay_max: Span::secs(1), ..Faults::default() };
    let (seen, _, counts) = run_with(6, faults);
    assert!(counts.delayed > 50);
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
}

#[test]
fn nobody_listening_is_refused_and_a_dead_machine_times_out() {
    let sim = Sim::new(7, SimConfig::default());
    let (server, client) = (sim.node("server", nid(1)), sim.node("client", nid(2)));
    let connect = |sim: &Sim| {
        let env = client.env();
        sim.block_on(&client, async move {
            env.connect(None, at(1)).await.err().map(|error| error.kind())
        })
    };
    assert_eq!(connect(&sim), Some(std::io::ErrorKind::ConnectionRefused));
    server.kill_as(true);
    assert_eq!(connect(&sim), Some(std::io::ErrorKind::TimedOut));
}

#[test]
fn a_one_way_partition_swallows_one_way_and_tells_nobody() {
    let (sim, server, client) = world(8);
    let env = client.env();
    let link =
        sim.block_on(&client, async move { env.connect(None, at(1)).await.expect("listens") });
    sim.partition(&server, &client, Cut::OneWay);
    let env = client.env();
    let Link { tx, mut rx, .. } = link;
    let answer = sim.block_on(&client, async move {
        tx.send(request(1)).expect("the link looks well");
        let answer = env.timeout(Span::secs(60), rx.recv()).await;
        assert!(tx.is_open());
        answer
    });
    assert_eq!(answer, None, "no reply and no end of the link");
    assert_eq!((sim.faults().delivered, sim.faults().partitioned), (1, 1));
}

#[test]
fn killing_a_node_drops_its_tasks_and_its_peers_learn_of_it() {
    struct Dropped(Rc<Cell<bool>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    for machine in [false, true] {
        let (sim, server, client) = world(9);
        let (dropped, env) = (Rc::new(Cell::new(false)), server.env());
        let witness = Dropped(dropped.clone());
        server.env().spawn("sleeper", async move {
            env.sleep(Span::secs(1_000_000)).await;
            drop(witness);
        });
        let env = client.env();
        let mut link =
            sim.block_on(&client, async move { env.connect(None, at(1)).await.expect("listens") });
        server.kill_as(machine);
        assert!(dropped.get());
        let env = client.env();
        let (end, took) = sim.block_on(&client, async move {
            let start = env.now();
            let end = env.timeout(Span::secs(60), link.rx.recv()).await;
            (end, env.now() - start)
        });
        assert_eq!(end, Some(None), "the end is seen");
        assert_eq!(took > Span::millis(50), machine, "at once only if just the process died");
    }
}

#[test]
fn a_node_starts_again_with_nothing_left_from_before() {
    let (sim, server, client) = world(10);
    let old = server.env();
    sim.run_for(Span::millis(1));
    server.kill_as(true);
    let ran = Rc::new(Cell::new(false));
    let set = ran.clone();
    old.spawn("ghost", async move { set.set(true) });
    serve_echo(&server, at(1));
    let env = client.env();
    let seen = sim.block_on(&client, async move {
        env.sleep(Span::millis(1)).await;
        ask(&env, 3, Span::secs(1)).await
    });
    assert_eq!(seen, [1, 2, 3]);
    assert!(!ran.get(), "an environment of before the kill runs nothing");
}

#[test]
fn a_restarted_machine_resets_old_links() {
    let (sim, server, client) = world(11);
    let env = client.env();
    let link =
        sim.block_on(&client, async move { env.connect(None, at(1)).await.expect("listens") });
    server.kill_as(true);
    let _started = server.env();
    let env = client.env();
    let Link { tx, mut rx, .. } = link;
    let took = sim.block_on(&client, async move {
        let start = env.now();
        tx.send(request(1)).expect("nothing is known yet");
        assert_eq!(rx.recv().await, None);
        env.now() - start
    });
    assert!(took < Span::millis(10), "{took:?}");
}

#[test]
fn bulk_reaches_the_ticket_that_expects_it_and_nobody_else() {
    let sim = Sim::new(12, SimConfig::default());
    let (server, client) = (sim.node("server", nid(1)), sim.node("client", nid(2)));
    let got = Rc::new(RefCell::new(None));
    let (env, put) = (server.env(), got.clone());
    server.env().spawn("server", async move {
        let mut listener = env.listen(at(1)).await.expect("free");
        let link = listener.accept().await.expect("a client comes");
        let ticket = link.tx.expect_bulk(5, 4);
        *put.borrow_mut() = ticket.await;
    });
    let env = client.env();
    sim.block_on(&client, async move {
        env.sleep(Span::millis(1)).await;
        let link = env.connect(None, at(1)).await.expect("listens");
        env.sleep(Span::millis(1)).await;
        for (id, data) in [(4, "none"), (5, "too long"), (5, "data")] {
            link.tx
                .send(Frame::new(FrameKind::BulkData, id, Bytes::from_static(data.as_bytes())))
                .expect("open");
        }
        env.sleep(Span::millis(1)).await;
    });
    assert_eq!(got.take(), Some(Bytes::from_static(b"data")));
}

#[test]
fn a_sender_waits_for_room_and_goes_on_when_the_peer_reads() {
    let sim = Sim::new(13, SimConfig::default());
    let (server, client) = (sim.node("server", nid(1)), sim.node("client", nid(2)));
    let (env, read) = (server.env(), Rc::new(Cell::new(0u64)));
    let count = read.clone();
    server.env().spawn("slow reader", async move {
        let mut listener = env.listen(at(1)).await.expect("free");
        let mut link = listener.accept().await.expect("a client comes");
        env.sleep(Span::secs(10)).await;
        while link.rx.recv().await.is_some() {
            count.set(count.get() + 1);
        }
    });
    let env = client.env();
    let took = sim.block_on(&client, async move {
        env.sleep(Span::millis(1)).await;
        let link = env.connect(None, at(1)).await.expect("listens");
        let start = env.now();
        for id in 1..=2_000 {
            link.tx.room().await;
            link.tx.send(request(id)).expect("open");
        }
        let took = env.now() - start;
        env.sleep(Span::secs(1)).await;
        took
    });
    assert!(took >= Span::secs(9), "{took:?}");
    assert_eq!(read.get(), 2_000);
}

#[test]
#[should_panic(expected = "seed 14: task 'faulty' of node 'server' panicked")]
fn a_panic_names_the_seed_the_task_and_the_node() {
    let sim = Sim::new(14, SimConfig::default());
    let server = sim.node("server", nid(1));
    server.env().spawn("faulty", async { panic!("an invariant is broken") });
    sim.run_for(Span::secs(1));
}

#[test]
#[should_panic(expected = "seed 15: an error-level event")]
fn an_error_event_fails_the_run() {
    let sim = Sim::new(15, SimConfig::default());
    let server = sim.node("server", nid(1));
    server.env().spawn("logger", async { tracing::error!(target = "x", "the store is gone") });
    sim.run_for(Span::secs(1));
}

#[test]
#[should_panic(expected = "seed 16: a future that is waited for never finishes")]
fn a_run_that_is_stuck_says_so() {
    let sim = Sim::new(16, SimConfig::default());
    let node = sim.node("node", nid(1));
    sim.block_on(&node, std::future::pending::<()>());
}

#[test]
fn an_aborted_task_is_dropped_even_by_itself() {
    let sim = Sim::new(17, SimConfig::default());
    let node = sim.node("node", nid(1));
    let (env, reached) = (node.env(), Rc::new(Cell::new(0)));
    let (own, count) = (Rc::new(RefCell::new(None::<env::Task>)), reached.clone());
    let handle = own.clone();
    let task = env.spawn("suicide", async move {
        count.set(1);
        handle.borrow().as_ref().expect("set before the first poll").abort();
        std::future::pending::<()>().await;
        count.set(2);
    });
    *own.borrow_mut() = Some(task);
    assert!(sim.run_until_idle(Span::secs(1)));
    assert_eq!(reached.get(), 1);
    assert_eq!(sim.describe_tasks(), "");
}

#[test]
fn a_paused_node_answers_late_and_a_killed_one_is_not_paused() {
    let (sim, server, client) = world(3);
    sim.run_for(Span::millis(1));
    server.pause(Span::secs(10));
    let env = client.env();
    let (seen, at) =
        sim.block_on(&client, async move { (ask(&env, 2, Span::secs(12)).await, env.now()) });
    assert_eq!(seen, [1, 2]);
    assert!(at.0 >= 10_000_000_000, "{at:?}");
    assert_eq!(sim.faults().pauses, 1);
    server.pause(Span::secs(1_000));
    server.kill_as(false);
    serve_echo(&server, self::at(1));
    sim.run_for(Span::millis(1));
    let env = client.env();
    assert_eq!(sim.block_on(&client, async move { ask(&env, 1, Span::secs(1)).await }), [1]);
}

#[test]
fn clocks_drift_apart_and_sleep_by_their_own() {
    let (sim, fast, slow) = world(4);
    fast.drift_clock(100_000);
    slow.drift_clock(-100_000);
    for (node, true_secs) in [(&fast, 10.0 / 1.1), (&slow, 10.0 / 0.9)] {
        let (begin, env) = (sim.now(), node.env());
        let woke = sim.block_on(node, async move {
            let until = env.now() + Span::secs(10);
            env.sleep_until(until).await;
            env.now() >= until
        });
        assert!(woke, "nobody wakes before the time by its own clock");
        let took = (sim.now() - begin).as_secs_f64();
        assert!((took - true_secs).abs() < 0.001, "{took} s");
    }
}

#[test]
fn the_clocks_of_a_machine_that_is_stopped_stand_still() {
    let (sim, stopped, other) = world(4);
    let (own, others) = (stopped.env().now(), other.env().now());
    stopped.stand_still(Span::secs(60));
    sim.run_for(Span::secs(70));
    let (passed, all) = (stopped.env().now() - own, other.env().now() - others);
    assert!(passed >= Span::secs(10), "it goes on afterwards: {passed:?}");
    assert_eq!(all.0 - passed.0, Span::secs(60).0);
    let (begin, env) = (sim.now(), stopped.env());
    sim.block_on(&stopped, async move { env.sleep(Span::secs(5)).await });
    assert!((Span::secs(5)..Span::secs(6)).contains(&(sim.now() - begin)));
}

#[test]
fn messages_of_a_slow_node_come_late_and_in_order() {
    let (sim, server, client) = world(8);
    server.set_lag(Span::secs(1));
    let env = client.env();
    let (begin, seen) =
        (sim.now(), sim.block_on(&client, async move { ask(&env, 3, Span::millis(2_500)).await }));
    assert_eq!(seen, [1, 2, 3]);
    assert!(sim.now() - begin >= Span::secs(2), "a second each way");
}

#[test]
fn a_node_that_froze_after_a_message_sends_no_more_and_does_nothing_until_it_is_killed() {
    let (sim, server, client) = world(7);
    server.freeze_after_sends(Some(3));
    let asks = |patience| {
        let env = client.env();
        sim.block_on(&client, async move { ask(&env, 5, patience).await })
    };
    assert_eq!(asks(Span::secs(2)), [1, 2, 3]);
    assert!(server.is_frozen());
    server.resume();
    server.kill_as(false);
    serve_echo(&server, at(1));
    assert_eq!(asks(Span::secs(2)), [1, 2, 3, 4, 5]);
}

#[test]
fn a_node_that_froze_at_a_message_has_not_seen_it() {
    let (sim, server, client) = world(7);
    server.freeze_after_arrivals(Some(3));
    let env = client.env();
    let seen = sim.block_on(&client, async move { ask(&env, 5, Span::secs(2)).await });
    assert_eq!(seen, [1, 2]);
    assert!(server.is_frozen());
}

//! Client and server over the simulated network. Whatever is lost, repeated or restarted, an
//! acknowledged change is there, once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{self, Disk, Rules, addr, client, increment, node, read, serve, write};
use bytes::Bytes;
use env_sim::{Faults, Sim, SimConfig};
use types::Span;

/// Worlds per test; `NACRE_SEEDS` asks for more.
fn seeds() -> u64 {
    std::env::var("NACRE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(15)
}

struct Plan {
    clients: u64,
    parallel: u64,
    increments: u64,
    restarts: u64,
    faults: Faults,
}

/// Each of `clients` has `parallel` loops that raise a counter of their own; the answers must be 1,
/// 2, 3, ...
fn check(seed: u64, plan: &Plan) {
    let sim = Sim::new(
        seed,
        SimConfig { fail_on_error: false, polls_max: 20_000_000, ..SimConfig::default() },
    );
    let server = node(&sim, "server", 1);
    let disk = Rc::new(Disk::default());
    let at = addr(&server);
    let running = Rc::new(RefCell::new(None));
    let start = |disk: &Rc<Disk>| {
        let (disk, running) = (Rc::clone(disk), Rc::clone(&running));
        let env = server.env();
        let starts = env.clone();
        env.spawn("server", async move {
            let up = serve(starts, at, disk, &Rules::default()).await;
            *running.borrow_mut() = Some(up);
        });
    };
    start(&disk);
    let done = Rc::new(Cell::new(0));
    for id in 1..=plan.clients {
        let handle = node(&sim, "client", 10 + id as u8);
        let env = handle.env();
        let endpoint = client(&env, u128::from(id), at);
        for lane in 0..plan.parallel {
            let remote = endpoint.remote(common::TARGET);
            let (done, increments) = (Rc::clone(&done), plan.increments);
            env.spawn("client", async move {
                for expected in 1..=increments {
                    let answer = remote
                        .call(increment(id * 1_000 + lane))
                        .await
                        .expect("no server gives up on us");
                    assert_eq!(answer.reply.body::<u64>(), expected, "client {id} lane {lane}");
                    let data = Bytes::from(vec![expected as u8; 3_000]);
                    remote.call(write(id * 1_000 + lane, &data)).await.expect("written");
                    if expected % 4 == 0 {
                        let answer = remote.call(read(id * 1_000 + lane)).await.expect("read");
                        assert_eq!(answer.data, data, "client {id} lane {lane}");
                    }
                }
                done.set(done.get() + 1);
            });
        }
        std::mem::forget(endpoint); // lives as long as the world
    }
    let goal = plan.clients * plan.parallel;
    sim.set_faults(plan.faults);
    for _ in 0..plan.restarts {
        let pause = Span::millis(500 + sim.rng().below(2_500));
        if sim.run_until(pause, || done.get() == goal) {
            break;
        }
        server.kill();
        sim.run_for(Span::millis(sim.rng().below(1_000)));
        start(&disk);
    }
    if !sim.run_until(Span::secs(900), || done.get() == goal) {
        sim.stuck("increments are not all answered");
    }
    let up = running.borrow();
    let (_, toy) = up.as_ref().expect("it was started");
    assert_eq!(toy.evicted.get(), 0);
    let image = toy.running.borrow();
    for id in 1..=plan.clients {
        for lane in 0..plan.parallel {
            assert_eq!(image.counters.get(&(id * 1_000 + lane)), Some(&plan.increments));
        }
    }
}

#[test]
fn a_healthy_network_loses_nothing() {
    check(
        1,
        &Plan { clients: 2, parallel: 80, increments: 50, restarts: 0, faults: Faults::default() },
    );
}

#[test]
fn restarts_lose_and_double_nothing() {
    for seed in 0..seeds() {
        check(
            seed,
            &Plan {
                clients: 3,
                parallel: 10,
                increments: 300,
                restarts: 4,
                faults: Faults::default(),
            },
        );
    }
}

#[test]
fn storms_lose_and_double_nothing() {
    for seed in 100..(100 + seeds()) {
        check(
            seed,
            &Plan {
                clients: 3,
                parallel: 6,
                increments: 60,
                restarts: 0,
                faults: Faults::stormy(),
            },
        );
    }
}

#[test]
fn storms_and_restarts_together_lose_and_double_nothing() {
    for seed in 200..(200 + seeds()) {
        check(
            seed,
            &Plan {
                clients: 3,
                parallel: 6,
                increments: 60,
                restarts: 3,
                faults: Faults::stormy(),
            },
        );
    }
}

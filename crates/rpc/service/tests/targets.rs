//! Several targets in one node: how the requests of one affect those of the others.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Disk, Rules, STUCK, Toy, addr, client, increment, node};
use endpoint::Endpoint;
use env::{CptTable, Env};
use env_sim::{Sim, SimConfig};
use params::ParamTree;
use service::{HeadScope, Node, NodeConfig, Target, spec};
use types::{Errno, Span, SplitMix64, TargetId};

const SLOW: TargetId = TargetId { kind: types::TargetKind::Mdt, index: 0 };
const QUICK: TargetId = TargetId { kind: types::TargetKind::Mdt, index: 1 };
/// It is added later.
const LATE: TargetId = TargetId { kind: types::TargetKind::Mdt, index: 2 };

/// A change of this key takes 700 us.
const TAKES_TIME: u64 = 4;

struct World {
    env: Env,
    up: Rc<Node>,
    params: ParamTree,
    toys: Vec<Rc<Toy>>,
    clients: Vec<Rc<Endpoint>>,
}

impl World {
    fn set(&self, name: &str, value: &str) {
        let answers = self.params.set_now(&format!("mds.MDS.mdt.{name}"), value);
        answers.expect("it is there").into_iter().for_each(|one| drop(one.expect("taken")));
    }

    fn get(&self, name: &str) -> String {
        self.params.get(&format!("mds.MDS.mdt.{name}")).expect("it is there")[0].value.clone()
    }

    /// Serves one more.
    fn add(&self, target: TargetId) -> Rc<Toy> {
        let rules = Rules { target, ..Rules::default() };
        let toy = Toy::start(&self.env, &Rc::new(Disk::default()), &rules);
        self.up.add_target(Rc::clone(&toy) as Rc<dyn Target>);
        toy
    }

    /// Sends `count` changes of `key` to `target` from a client at once; tells when each is
    /// answered.
    fn load(&self, at: usize, target: TargetId, count: u64, key: u64) -> Rc<Cell<u64>> {
        let done = Rc::new(Cell::new(0));
        for _ in 0..count {
            let (remote, done) = (self.clients[at].remote(target), Rc::clone(&done));
            self.env.spawn("load", async move {
                remote.call(increment(key)).await.expect("answered");
                done.set(done.get() + 1);
            });
        }
        done
    }

    async fn see(&self, done: &[Rc<Cell<u64>>], total: u64) {
        while done.iter().map(|done| done.get()).sum::<u64>() < total {
            self.env.sleep(Span::millis(1)).await;
        }
    }
}

/// Runs `test` with two targets of one node with two CPTs, and three clients.
fn check<F: Future<Output = ()> + 'static>(seed: u64, test: impl FnOnce(World) -> F) {
    let sim = Sim::new(seed, SimConfig::default());
    let server = node(&sim, "server", 1);
    let (at, env) = (addr(&server), server.env());
    let clients = (2..5).map(|last| {
        let node = node(&sim, &format!("client{last}"), last);
        client(&node.env(), u128::from(last), at)
    });
    let clients: Vec<_> = clients.collect();
    let two = std::num::NonZeroU32::new(2).expect("two");
    let table = CptTable::new(two, std::num::NonZeroU32::MIN, 2, true).expect("virtual");
    let up = Node::new(&env, NodeConfig::new(table));
    let params = ParamTree::new();
    up.register_params(&params, &[&spec::MDT]);
    let mut world = World { env: env.clone(), up, params, toys: Vec::new(), clients };
    world.toys = [SLOW, QUICK].map(|target| world.add(target)).to_vec();
    let node = Rc::clone(&world.up);
    let test = test(world);
    sim.block_on(&server, async move {
        node.serve(env.listen(at).await.expect("the address is free"));
        test.await;
    });
}

/// How long a change at the quick target takes while all slots that the slow one may have are
/// taken.
fn beside_a_slow_one(scope: &'static str) -> Span {
    let took = Rc::new(Cell::new(Span::ZERO));
    let told = Rc::clone(&took);
    check(1, move |world| async move {
        world.set("threads_max", "6"); // three for each of two CPTs
        world.set("nrs_head_scope", scope);
        for at in 0..3 {
            world.load(at, SLOW, 8, STUCK);
        }
        world.env.sleep(Span::millis(50)).await;
        let start = world.env.now();
        let done = world.load(0, QUICK, 1, TAKES_TIME);
        world.see(&[done], 1).await;
        told.set(world.env.now() - start);
    });
    took.get()
}

#[test]
fn a_slow_target_takes_no_slot_of_another_that_has_its_own() {
    let (shared, apart) = (beside_a_slow_one("service"), beside_a_slow_one("target"));
    assert!(shared > Span::secs(10), "{shared:?}: the slow one has all slots of the service");
    assert!(apart < Span::millis(50), "{apart:?}");
}

#[test]
fn a_rate_is_the_servers_whatever_heads_its_targets_have() {
    for scope in ["service", "target", "cpt"] {
        check(2, move |world| async move {
            world.set("nrs_head_scope", scope);
            world.set("nrs_policies", "tbf nid");
            world.set("nrs_tbf_rule", "start all nid={*} rate=100 total=1");
            let done =
                [world.load(0, SLOW, 300, TAKES_TIME), world.load(1, QUICK, 300, TAKES_TIME)];
            world.env.sleep(Span::secs(2)).await;
            let got = done.map(|done| done.get());
            let sum = got.iter().sum::<u64>();
            assert!((190..=210).contains(&sum), "{scope}: {got:?}");
            assert!(got.iter().all(|count| (80..=120).contains(count)), "{scope}: {got:?}");
        });
    }
}

#[test]
fn each_target_has_the_slots_that_the_service_may_have() {
    check(3, |world| async move {
        world.set("threads_max", "8");
        world.set("nrs_head_scope", "target");
        world.load(0, SLOW, 40, STUCK);
        world.load(1, QUICK, 40, STUCK);
        world.env.sleep(Span::millis(20)).await;
        // one more is left to requests of high priority, and one that takes it leaves one
        assert_eq!(world.up.stats()["mdt"].active, 2 * 6);
        world.set("threads_max", "10");
        assert_eq!(world.up.stats()["mdt"].active, 2 * 8, "for targets too");
        world.set("high_priority_ratio", "3");
        assert_eq!(world.get("high_priority_ratio"), "3");
    });
}

#[test]
fn a_target_that_comes_later_has_heads_from_its_first_request_on() {
    check(4, |world| async move {
        world.set("nrs_head_scope", "target");
        world.set("nrs_policies", "tbf nid");
        world.set("nrs_tbf_rule", "start one nid={10.0.0.2@tcp} rate=500");
        let titles = || {
            let rules = world.get("nrs_tbf_rule");
            let regular = rules.split("high_priority").next().expect("the first part");
            let titles = regular.lines().filter(|line| line.ends_with(':') && !line.contains('_'));
            titles.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(titles(), ["others:", "MDT0000:", "MDT0001:"]);
        let late = world.add(LATE);
        let done = world.load(0, LATE, 20, TAKES_TIME);
        world.see(&[done], 20).await;
        assert_eq!(titles(), ["others:", "MDT0000:", "MDT0001:", "MDT0002:"]);
        assert!(world.get("nrs_tbf_rule").matches("one nid={10.0.0.2@tcp} 500").count() >= 4);
        assert_eq!(late.running.borrow().counters[&TAKES_TIME], 20);
    });
}

#[test]
fn a_target_that_comes_while_a_policy_drains_releases_nothing() {
    check(5, |world| async move {
        world.set("nrs_head_scope", "target");
        world.set("nrs_policies", "tbf nid");
        world.set("nrs_tbf_rule", "start one nid={*} rate=1 depth=1");
        let slow = world.load(0, SLOW, 20, TAKES_TIME);
        world.env.sleep(Span::millis(100)).await;
        world.set("nrs_policies", "crrn");
        let _late = world.add(LATE);
        let done = world.load(1, LATE, 1, TAKES_TIME);
        world.see(&[done], 1).await;
        let changed = world.up.set_head_scope(&spec::MDT, HeadScope::Service);
        assert_eq!(changed.map_err(|refusal| refusal.errno), Err(Errno::EAGAIN));
        world.env.sleep(Span::millis(500)).await;
        assert!(slow.get() <= 3, "{} of 20 in half a second", slow.get());
    });
}

/// Three targets, three clients, scopes and policies that change all the time. Everything is
/// executed once, at its own target, and where targets have slots of their own none has more
/// requests under way than those.
#[test]
fn changes_of_the_scope_lose_nothing_and_double_nothing() {
    const SEEDS: u64 = 24;
    const EACH: u64 = 40;
    for seed in 0..SEEDS {
        check(seed, move |world| async move {
            let mut rng = SplitMix64::new(seed);
            world.set("threads_max", "6");
            let late = world.add(LATE);
            let targets = [SLOW, QUICK, LATE];
            let mut done = Vec::new();
            for at in 0..3 {
                done.extend(targets.map(|target| world.load(at, target, EACH, TAKES_TIME)));
            }
            let total = 9 * EACH;
            while done.iter().map(|done| done.get()).sum::<u64>() < total {
                disturb(&world, &mut rng).await;
                world.env.sleep(Span::micros(rng.below(1_500))).await;
            }
            for toy in world.toys.iter().chain([&late]) {
                assert_eq!(toy.running.borrow().counters[&TAKES_TIME], 3 * EACH, "seed {seed}");
            }
            let stats = world.up.stats()["mdt"];
            assert_eq!((stats.queued, stats.active), (0, 0), "seed {seed}");
            assert_eq!(world.up.served_by_cpt(&spec::MDT).iter().sum::<u64>(), stats.served);
        });
    }
}

async fn disturb(world: &World, rng: &mut SplitMix64) {
    let scopes = [HeadScope::Service, HeadScope::Cpt, HeadScope::Target, HeadScope::Target];
    let policies = ["crrn", "fifo", "crre", "tbf nid", "tbf jobid", "crrn hp"];
    let changed = if rng.below(2) == 0 {
        let scope = scopes[usize::try_from(rng.below(4)).expect("of four")];
        world.up.set_head_scope(&spec::MDT, scope)
    } else {
        let policy = policies[usize::try_from(rng.below(6)).expect("of six")];
        let select = world.up.nrs_select(&spec::MDT, policy);
        // what has to drain goes on by itself
        world.env.timeout(Span::micros(200), select).await.unwrap_or(Ok(()))
    };
    if let Err(refusal) = changed {
        assert!(matches!(refusal.errno, Errno::EAGAIN | Errno::EBUSY), "{refusal}");
    }
}

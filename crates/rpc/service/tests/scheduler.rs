//! The scheduler in a running service: policies swapped under load, removal, promotion, scope,
//! slots, parameters.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::common::{
    Disk, Rules, STUCK, TARGET, Toy, addr, call, client, increment, key, node, read, serve, write,
};
use endpoint::Endpoint;
use env::Env;
use env_sim::{Sim, SimConfig};
use params::ParamTree;
use service::{HeadScope, Node, spec};
use types::{ClientId, Errno, Span};
use wire::Opcode;

struct World {
    env: Env,
    near: Rc<Endpoint>,
    up: Rc<Node>,
    toy: Rc<Toy>,
    params: ParamTree,
}

/// Runs `test` with a served toy and three clients of it; the first is `World::near`.
fn check<F: Future<Output = ()> + 'static>(test: impl FnOnce(World, Vec<Rc<Endpoint>>) -> F) {
    let sim = Sim::new(11, SimConfig::default());
    let server = node(&sim, "server", 1);
    let (disk, at, env) = (Rc::new(Disk::default()), addr(&server), server.env());
    let (up, toy) =
        sim.block_on(&server, async move { serve(env, at, disk, &Rules::default()).await });
    let nodes: Vec<_> = (2..5).map(|last| node(&sim, &format!("client{last}"), last)).collect();
    let clients: Vec<_> =
        nodes.iter().zip(2..).map(|(node, id)| client(&node.env(), id, at)).collect();
    let params = ParamTree::new();
    up.register_params(&params, &[&spec::MDT]);
    let world = World { env: nodes[0].env(), near: Rc::clone(&clients[0]), up, toy, params };
    let future = test(world, clients);
    sim.block_on(&nodes[0], future);
}

/// One slot of a partition for regular requests, so that they queue.
fn narrow(world: &World) {
    set(&world.params, "mds.MDS.mdt.threads_max", "6").expect("three for each of two partitions");
}

fn set(params: &ParamTree, name: &str, value: &str) -> Result<String, (Errno, String)> {
    let answers = params.set_now(name, value).expect("it is there");
    let answer = answers.into_iter().next().expect("one parameter");
    answer.map(|param| param.value).map_err(|error| (error.errno(), error.to_string()))
}

fn get(params: &ParamTree, name: &str) -> Result<String, Errno> {
    params.get(name).map(|found| found[0].value.clone()).map_err(|error| error.errno())
}

/// Sends `count` slow increments of `key` from each client at once; tells when each is answered.
fn load(world: &World, clients: &[Rc<Endpoint>], count: u64, key: u64) -> Rc<Cell<u64>> {
    assert_eq!(key % 3, 1, "a slow one");
    let done = Rc::new(Cell::new(0));
    for endpoint in clients {
        for _ in 0..count {
            let (remote, done) = (endpoint.remote(TARGET), Rc::clone(&done));
            world.env.spawn("load", async move {
                remote.call(increment(key)).await.expect("answered");
                done.set(done.get() + 1);
            });
        }
    }
    done
}

#[test]
fn a_thousand_swaps_under_load_lose_nothing_and_double_nothing() {
    check(|world, clients| async move {
        narrow(&world);
        let done = load(&world, &clients, 1_500, 4);
        let (mut swaps, mut refused) = (0, 0);
        while swaps < 1_000 {
            for value in ["crrn", "crre", "fifo", "crrn reg", "fifo hp", "crre hp", "fifo"] {
                match world.up.nrs_select(&spec::MDT, value).await {
                    Ok(()) => swaps += 1,
                    Err(refusal) => {
                        assert_eq!(refusal.errno, Errno::EAGAIN, "{refusal}");
                        refused += 1;
                    }
                }
                world.env.sleep(Span::micros(300)).await;
            }
        }
        assert!(done.get() < 4_500, "the load outlasts the swaps");
        world.up.nrs_select(&spec::MDT, "fifo").await.expect("fifo");
        while done.get() < 4_500 {
            world.env.sleep(Span::millis(10)).await;
        }
        assert_eq!(
            world.toy.running.borrow().counters[&4],
            4_500,
            "each once ({swaps} swaps, {refused} refused)"
        );
        let listed = world.up.nrs_policies(&spec::MDT);
        assert!(!listed.contains("stopping") && !listed.contains("queued: 1"), "{listed}");
        assert_eq!(world.up.stats()["mdt"].queued, 0);
    });
}

#[test]
fn round_robin_gives_a_small_client_its_turn() {
    check(|world, clients| async move {
        narrow(&world);
        set(&world.params, "mds.MDS.mdt.nrs_policies", "crrn").expect("started");
        assert_eq!(
            set(&world.params, "mds.MDS.mdt.nrs_crrn_quantum", "1"),
            Ok("reg_quantum:1\nhp_quantum:1\n".into())
        );
        let big = load(&world, &clients[..2], 60, 4);
        world.env.sleep(Span::millis(5)).await;
        let start = world.env.now();
        clients[2].remote(TARGET).call(increment(7)).await.expect("answered");
        let (took, left) = (world.env.now() - start, 120 - big.get());
        assert!(left > 60, "{left} of the others still wait: it passed them, after {took:?}");
    });
}

/// How many of 300 changes each of three clients has, of which two are of one partition by their
/// addresses.
fn shares(scope: Option<&'static str>) -> Vec<u64> {
    let shares = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&shares);
    check(move |world, clients| async move {
        narrow(&world);
        if let Some(scope) = scope {
            set(&world.params, "mds.MDS.mdt.nrs_head_scope", scope).expect("taken");
        }
        set(&world.params, "mds.MDS.mdt.nrs_policies", "crrn").expect("started");
        set(&world.params, "mds.MDS.mdt.nrs_crrn_quantum", "1").expect("it runs");
        let one = |client| load(&world, std::slice::from_ref(client), 300, 4);
        let done: Vec<_> = clients.iter().map(one).collect();
        let got = || done.iter().map(|done| done.get()).collect::<Vec<_>>();
        while got().iter().sum::<u64>() < 300 {
            world.env.sleep(Span::millis(1)).await;
        }
        *told.borrow_mut() = got();
    });
    shares.take()
}

#[test]
fn a_client_alone_on_its_partition_gets_no_more_than_the_others() {
    let (whole, apart) = (shares(None), shares(Some("cpt")));
    assert!(whole.iter().all(|count| (90..=110).contains(count)), "{whole:?}");
    assert!(apart.iter().any(|count| *count > 130), "with orders of their own: {apart:?}");
}

#[test]
fn an_evicted_session_leaves_the_queues() {
    check(|world, clients| async move {
        narrow(&world);
        load(&world, &clients[1..2], 64, 4);
        world.env.sleep(Span::millis(4)).await;
        let queued = world.up.stats()["mdt"].queued;
        assert!(queued > 20, "{queued}");
        let session = world
            .toy
            .exports
            .sessions()
            .into_iter()
            .find(|session| session.client == ClientId(3))
            .expect("connected");
        world.toy.exports.evict(session.id);
        world.env.sleep(Span::millis(2)).await;
        let stats = world.up.stats()["mdt"];
        assert_eq!((stats.queued, stats.dropped >= 20), (0, true), "{stats:?}");
    });
}

#[test]
fn a_request_under_a_called_back_lock_goes_first() {
    check(|world, clients| async move {
        narrow(&world);
        let order = Rc::new(RefCell::new(Vec::new()));
        for number in [4, 4, 4, 4, 4, 4, 4, 10] {
            let (remote, order) = (clients[0].remote(TARGET), Rc::clone(&order));
            world.env.spawn("call", async move {
                remote.call(increment(number)).await.expect("answered");
                order.borrow_mut().push(number);
            });
        }
        world.env.sleep(Span::millis(2)).await;
        assert_eq!(world.toy.exports.promote(ClientId(2), |request| key(request) == 10), 1);
        assert_eq!(
            world.toy.exports.promote(ClientId(2), |request| key(request) == 10),
            0,
            "it is there already"
        );
        world.env.sleep(Span::millis(50)).await;
        let place = order.borrow().iter().position(|number| *number == 10).expect("answered");
        assert!(place < 5, "{:?}", order.borrow());
        assert!(world.up.nrs_stats(&spec::MDT).to_string().contains("promoted: 1"));
    });
}

#[test]
fn a_promotion_looks_at_the_sessions_of_no_other_client() {
    check(|world, clients| async move {
        narrow(&world);
        clients[1].remote(TARGET).call(increment(3)).await.expect("connected");
        let other = world.toy.exports.session_of(ClientId(3)).expect("connected");
        load(&world, &clients[..1], 64, 4);
        world.env.sleep(Span::millis(4)).await;
        let (before, asked) = (Rc::strong_count(&other), Cell::new(0));
        let promoted = world.toy.exports.promote(ClientId(2), |_| {
            assert_eq!(Rc::strong_count(&other), before, "the session of another client");
            asked.set(asked.get() + 1);
            false
        });
        assert_eq!(promoted, 0);
        assert!(asked.get() > 0, "some of them wait");
    });
}

#[test]
fn a_restart_goes_on_with_the_last_request_of_its_policy() {
    check(|world, clients| async move {
        narrow(&world);
        world.up.nrs_select(&spec::MDT, "tbf nid").await.expect("started");
        world.near.remote(TARGET).call(increment(4)).await.expect("connected");
        let done = load(&world, &clients[..1], 4, 4);
        while world.up.stats()["mdt"].active == 0 {
            world.env.sleep(Span::micros(50)).await;
        }
        let start = world.env.now();
        world.up.nrs_select(&spec::MDT, "tbf jobid").await.expect("restarted");
        let took = world.env.now() - start;
        assert!(took > Span::micros(100) && took < Span::millis(5), "{took:?}");
        let listed = world.up.nrs_policies(&spec::MDT);
        assert!(listed.contains("name: tbf jobid\n    state: started"), "{listed}");
        while done.get() < 4 {
            world.env.sleep(Span::millis(1)).await;
        }
    });
}

#[test]
fn the_scope_of_the_heads_changes_under_load() {
    check(|world, clients| async move {
        narrow(&world);
        set(&world.params, "mds.MDS.mdt.nrs_policies", "crrn").expect("started");
        let done = load(&world, &clients, 400, 4);
        use HeadScope::{Cpt, Service, Target};
        for scope in [Target, Cpt, Service, Target, Service, Cpt] {
            world.env.sleep(Span::millis(20)).await;
            world.up.set_head_scope(&spec::MDT, scope).expect("nothing drains");
            assert_eq!(world.up.head_scope(&spec::MDT), scope);
            assert!(world.up.nrs_policies(&spec::MDT).contains("name: crrn\n    state: started"));
        }
        while done.get() < 1_200 {
            world.env.sleep(Span::millis(10)).await;
        }
        assert_eq!(world.toy.running.borrow().counters[&4], 1_200);
    });
}

#[test]
fn a_change_of_the_scope_keeps_rules_and_tunables() {
    check(|world, _clients| async move {
        let at = |name: &str| format!("mds.MDS.mdt.{name}");
        let on = |name: &str, value: &str| set(&world.params, &at(name), value).expect("taken");
        let scopes = ["service", "cpt", "target", "service", "target"];
        on("nrs_policies", "crrn");
        on("nrs_crrn_quantum", "reg_quantum:33 hp_quantum:7");
        for scope in scopes {
            on("nrs_head_scope", scope);
            let quanta = get(&world.params, &at("nrs_crrn_quantum"));
            assert_eq!(quanta, Ok("reg_quantum:33\nhp_quantum:7\n".into()), "{scope}");
        }
        on("nrs_policies", "tbf nid+jobid");
        for rule in [
            "start one nid={10.0.0.[1-9]@tcp}&jobid={dd.*},jobid={a b} rate=0.5 depth=7",
            "reg start two nid={10.0.0.4@tcp} bps=5MB/s scope=node realtime=1 total=1 class=nid",
            "start three jobid={x} rate=9 rank=one",
            "change default rate=77",
        ] {
            on("nrs_tbf_rule", rule);
        }
        let rules = || {
            let text = get(&world.params, &at("nrs_tbf_rule")).expect("they run");
            let of_first = text.split_once("CPT 0:\n").map_or(&*text, |(_, first)| first);
            of_first.split("CPT 1:").next().expect("the first head").to_owned()
        };
        on("nrs_head_scope", "cpt");
        let before = rules();
        assert!(before.contains("two nid={10.0.0.4@tcp} 5MB/s realtime=1 scope=node"), "{before}");
        for scope in ["service", "target"] {
            on("nrs_head_scope", scope);
            on("nrs_head_scope", "cpt");
            assert_eq!(rules(), before);
        }
        on("nrs_policies", "delay");
        on("nrs_delay_max", "900");
        on("nrs_delay_min", "400");
        on("nrs_head_scope", "service");
        assert!(get(&world.params, &at("nrs_delay_min")).expect("it runs").contains(":400"));
    });
}

#[test]
fn slots_grow_under_load_and_no_further_than_their_maximum() {
    check(|world, clients| async move {
        let started = || get(&world.params, "mds.MDS.mdt.threads_started").expect("a number");
        assert_eq!(started(), "6");
        set(&world.params, "mds.MDS.mdt.threads_max", "20").expect("in range");
        assert_eq!(world.up.slots(&spec::MDT), 20);
        assert_eq!(world.up.slots(&spec::OST_IO), 0, "nobody has asked for it");
        load(&world, &clients, 64, 4);
        world.env.sleep(Span::millis(5)).await;
        assert_eq!(started(), "20");
        assert_eq!(set(&world.params, "mds.MDS.mdt.threads_max", "8"), Ok("8".into()));
        assert_eq!(started(), "8");
        let range = |name: &str, value| {
            set(&world.params, &format!("mds.MDS.mdt.{name}"), value).map_err(|(errno, _)| errno)
        };
        assert_eq!(range("threads_max", "5"), Err(Errno::ERANGE));
        assert_eq!(range("threads_min", "10"), Err(Errno::ERANGE));
        assert_eq!(range("threads_max", "many"), Err(Errno::EINVAL));
        world.env.sleep(Span::millis(200)).await;
    });
}

#[test]
fn parameters_are_written_and_read_as_lustre_has_them() {
    check(|world, _clients| async move {
        let on =
            |name: &str, value: &str| set(&world.params, &format!("mds.MDS.mdt.{name}"), value);
        let refused = |name: &str, value: &str| on(name, value).expect_err("refused").0;
        assert_eq!(
            get(&world.params, "mds.MDS.mdt.nrs_crrn_quantum"),
            Err(Errno::ENODEV),
            "it is stopped"
        );
        assert_eq!(refused("nrs_crrn_quantum", "8"), Errno::ENODEV);
        assert_eq!(refused("nrs_policies", "bogus"), Errno::ENOENT);
        assert_eq!(refused("nrs_policies", "crrn reg hp"), Errno::EINVAL);
        let text = on("nrs_policies", "bogus").expect_err("refused").1;
        assert!(
            text.contains("nrs_policies=bogus") && text.contains("No such file or directory"),
            "{text}"
        );
        let shown = on("nrs_policies", "crrn reg").expect("started");
        assert!(shown.starts_with("\nregular_requests:\n  - name: fifo\n    state: started\n    fallback: yes\n    queued: 0\n    active: 0\n\n  - name: crrn\n    state: started\n"), "{shown}");
        assert!(shown.contains("\nhigh_priority_requests:\n  - name: fifo\n"), "{shown}");
        assert_eq!(on("nrs_crrn_quantum", "16"), Ok("reg_quantum:16\n".into()));
        assert_eq!(refused("nrs_crrn_quantum", "0"), Errno::EINVAL);
        assert_eq!(refused("nrs_crrn_quantum", "65536"), Errno::EINVAL);
        on("nrs_policies", "fifo").expect("started");
        on("nrs_policies", "crrn").expect("started");
        assert_eq!(
            get(&world.params, "mds.MDS.mdt.nrs_crrn_quantum"),
            Ok("reg_quantum:8\nhp_quantum:8\n".into()),
            "forgotten"
        );
        assert_eq!(
            on("nrs_crrn_quantum", "reg_quantum:32 hp_quantum:4"),
            Ok("reg_quantum:32\nhp_quantum:4\n".into())
        );
        assert_eq!(refused("nrs_head_scope", "node"), Errno::EINVAL);
        assert_eq!(on("high_priority_ratio", "3"), Ok("3".into()));
        assert_eq!(on("nrs_log", "on"), Ok("on".into()));
        assert_eq!(set(&world.params, "at_extra", "20"), Ok("20".into()));
        assert_eq!(
            set(&world.params, "at_min", "601").map_err(|(errno, _)| errno),
            Err(Errno::EINVAL)
        );
    });
}

#[test]
fn a_partition_that_serves_nothing_while_requests_wait_is_ill() {
    check(|world, clients| async move {
        narrow(&world);
        assert_eq!(set(&world.params, "at_max", "10"), Ok("10".into()));
        assert_eq!(set(&world.params, "at_unhealthy_factor", "1"), Ok("1".into()));
        assert_eq!(
            set(&world.params, "at_unhealthy_factor", "0").map_err(|(errno, _)| errno),
            Err(Errno::EINVAL)
        );
        world.env.sleep(Span::secs(60)).await;
        assert_eq!(world.up.starved(), "", "nothing to serve is not an illness");
        for key in [STUCK, STUCK, STUCK, STUCK, 4] {
            for client in &clients {
                let remote = client.remote(TARGET);
                world.env.spawn("call", async move { drop(remote.call(increment(key)).await) });
            }
        }
        world.env.sleep(Span::secs(8)).await;
        assert_eq!(world.up.starved(), "", "it may take a while");
        world.env.sleep(Span::secs(5)).await;
        let ill = world.up.starved();
        assert!(ill.starts_with("mds.MDS.mdt: partition 0 has served nothing for 1"), "{ill}");
        world.env.sleep(Span::secs(30)).await;
        assert_eq!(world.up.starved(), "", "something was served");
    });
}

#[test]
fn bytes_are_counted_as_the_target_classed_them() {
    check(|world, _clients| async move {
        let remote = world.near.remote(TARGET);
        let data = bytes::Bytes::from(vec![7; 5_000]);
        remote.call(write(4, &data)).await.expect("written");
        remote.call(read(4)).await.expect("read: pushed as bulk");
        remote.call(write(7, &data.slice(..9))).await.expect("written");
        remote.call(read(7)).await.expect("read: inline");
        remote.call(increment(4)).await.expect("no data");
        let stats = get(&world.params, "mds.MDS.mdt.stats").expect("some");
        let line = |name: &str, text: &str| {
            assert!(stats.contains(&format!("{name:<25} {text}\n")), "{stats}");
        };
        line("read_bytes", "2 samples [bytes] 9 5000 5009 25000081");
        line("write_bytes", "2 samples [bytes] 9 5000 5009 25000081");
    });
}

#[test]
fn what_was_handled_is_counted_and_remembered() {
    check(|world, _clients| async move {
        set(&world.params, "mds.MDS.mdt.req_buffer_history_max", "2").expect("set");
        let remote = world.near.remote(TARGET);
        for _ in 0..3 {
            remote.call(increment(4)).await.expect("answered");
        }
        remote.call(call(Opcode::MdtSync, 0)).await.expect("answered");
        let stats = get(&world.params, "mds.MDS.mdt.stats").expect("some");
        let line = |name: &str| {
            stats.lines().find(|line| line.starts_with(name)).map(str::to_owned).expect("a line")
        };
        assert!(line("req_waittime").contains(" 4 samples [usec] "), "{stats}");
        assert!(line("mds_setattr").contains(" 3 samples [usec] 700 "), "{stats}");
        let history = get(&world.params, "mds.MDS.mdt.req_history").expect("some");
        let lines: Vec<_> = history.lines().collect();
        assert_eq!(lines.len(), 2, "{history}");
        assert!(
            lines[0].starts_with("3:MDT0000:12345-10.0.0.2@tcp:x")
                && lines[0].ends_with(" mds_setattr"),
            "{history}"
        );
        assert!(lines[1].contains(":Complete:") && lines[1].ends_with(" mds_sync"), "{history}");
        set(&world.params, "mds.MDS.mdt.stats", "0").expect("cleared");
        assert_eq!(get(&world.params, "mds.MDS.mdt.stats"), Ok(String::new()));
        let timeouts = get(&world.params, "mds.MDS.mdt.timeouts").expect("some");
        assert_eq!(timeouts.lines().count(), 2, "one a partition");
        assert!(timeouts.contains("service : cur 5 worst 1 (at "), "{timeouts}");
    });
}

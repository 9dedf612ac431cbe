//! A console and its nodes on the simulated network.

// the fuzzer instruments all programs of a package: each links what instrumented code calls
use bolero as _;

use std::num::NonZeroU32;
use std::rc::Rc;

use env::{CptTable, Env};
use env_sim::{NodeHandle, Sim, SimConfig};
use lst::command::{Answer, Command, NewSession};
use lst::{Interval, NodeState, RateOptions, render_net, render_rpc};
use params::ParamTree;
use selftest::{Console, SelfTest, SelfTestConfig};
use service::{Node, NodeConfig};
use types::{Nid, NidAddr, PORT_DEFAULT, Span};
use wire::lst::{Check, Kind};

const MIB: u32 = 1 << 20;

/// A node that serves its self-test until it is killed.
fn serve(sim: &Sim, handle: &NodeHandle, params: &ParamTree) {
    let (env, nid, params) = (handle.env(), handle.nid(), params.clone());
    let task = env.clone();
    sim.block_on(handle, async move {
        let one = NonZeroU32::MIN;
        let node = Node::new(&env, NodeConfig::new(CptTable::new(one, one, 1, true).expect("one")));
        let tester = SelfTest::new(&env, SelfTestConfig { nid: Some(nid), is_open: false });
        selftest::register(&params, std::slice::from_ref(&tester));
        node.add_target(tester);
        let listener = env.listen(NidAddr { nid, port: PORT_DEFAULT }).await.expect("free");
        node.serve(listener);
        task.spawn("held", async move {
            let _node = node;
            std::future::pending::<()>().await;
        });
    });
}

struct World {
    sim: Sim,
    console: NodeHandle,
    nodes: Vec<NodeHandle>,
    params: Vec<ParamTree>,
}

impl World {
    fn new(seed: u64, count: u8) -> World {
        World::with(seed, count, SimConfig::default())
    }

    fn with(seed: u64, count: u8, config: SimConfig) -> World {
        let sim = Sim::new(seed, config);
        let nid = |last: u8| Nid::tcp(std::net::Ipv4Addr::new(10, 0, 0, last));
        let console = sim.node("console", nid(200));
        let nodes: Vec<_> =
            (1..=count).map(|last| sim.node(&format!("n{last}"), nid(last))).collect();
        let params: Vec<_> = nodes.iter().map(|_| ParamTree::new()).collect();
        nodes.iter().zip(&params).for_each(|(node, params)| serve(&sim, node, params));
        World { sim, console, nodes, params }
    }

    fn run<T: 'static>(&self, main: impl AsyncFnOnce(Env) -> T + 'static) -> T {
        let env = self.console.env();
        self.sim.block_on(&self.console, async move { main(env).await })
    }
}

fn config(name: &str, force: bool) -> NewSession {
    NewSession {
        name: name.into(),
        key: 7,
        timeout: Span::secs(300),
        force,
        port: PORT_DEFAULT,
        nid: None,
    }
}

async fn good(console: &Rc<Console>, command: Command) -> Answer {
    let answer = console.execute(command.clone()).await;
    assert_eq!((answer.status, answer.err.as_str()), (0, ""), "{command:?}: {answer:?}");
    answer
}

fn group(name: &str, nids: &str) -> Command {
    Command::AddGroup { name: name.into(), nids: vec![nids.into()] }
}

fn test(kind: Kind, loops: Option<u32>) -> Command {
    Command::AddTest {
        batch: "batch".into(),
        loops,
        concurrency: 4,
        distribute: "1:1".into(),
        from: "clients".into(),
        to: "servers".into(),
        kind,
    }
}

fn brw(write: bool, check: Check, size: u32) -> Kind {
    Kind::Brw { write, check, size, offset: 0 }
}

async fn groups(console: &Rc<Console>) {
    let answer = good(console, group("servers", "10.0.0.[1-2]@tcp")).await;
    assert_eq!(answer.out, "10.0.0.[1-2]@tcp are added to session\n");
    good(console, group("clients", "10.0.0.[3-4]@tcp")).await;
}

fn batch() -> String {
    "batch".into()
}

fn run() -> Command {
    Command::Run { batch: batch(), timeout_secs: 5 }
}

async fn intervals(env: &Env, console: &Rc<Console>, of: &str) -> Vec<Interval> {
    let ask = Command::Sample { of: vec![of.into()], timeout_secs: 5 };
    let before = good(console, ask.clone()).await;
    env.sleep(Span::secs(1)).await;
    let now = good(console, ask).await;
    let pairs = before.samples[0].nodes.iter().zip(&now.samples[0].nodes);
    let interval = |((_, before), (_, now)): (&(u64, _), &(u64, _))| {
        Interval::between(Option::as_ref(before)?, Option::as_ref(now)?)
    };
    pairs.map(|pair| interval(pair).expect("both answered")).collect()
}

#[test]
fn a_batch_of_every_test_runs_is_measured_and_stops() {
    let world = World::new(1, 4);
    world.run(async |env| {
        let console = Console::start(&env, config("rw", false));
        groups(&console).await;
        for kind in [
            Kind::Ping,
            brw(false, Check::Simple, MIB),
            brw(true, Check::Full, 4_096),
            brw(true, Check::Crc, 8_192),
        ] {
            assert_eq!(good(&console, test(kind, None)).await.out, "Test was added successfully\n");
        }
        assert_eq!(good(&console, run()).await.out, "batch is running now\n");
        let query =
            Command::Query { batch: batch(), test: 0, server: false, all: false, timeout_secs: 5 };
        assert_eq!(good(&console, query.clone()).await.out, "batch [0] is running\n");
        let nodes = intervals(&env, &console, "clients").await;
        let text = render_rpc("clients", &nodes);
        for title in ["[ping] ", "[brw read] ", "[brw write] "] {
            assert!(text.contains(title), "{text}");
        }
        let net = render_net("clients", &nodes, RateOptions::default());
        assert!(!net.contains("[R] Avg: 0 ") && net.lines().count() == 6, "{net}");
        assert_eq!(good(&console, query.clone()).await.out, "batch [0] is running\n");
        let stopped = good(&console, Command::Stop { batch: batch(), force: false }).await.out;
        assert!(stopped.ends_with("Batch is stopped\n"), "{stopped}");
        assert_eq!(good(&console, query).await.out, "batch [0] is stopped\n");
        let errors = good(
            &console,
            Command::ShowError { of: vec!["clients".into(), "servers".into()], session: false },
        )
        .await;
        assert_eq!(
            errors.out,
            "clients:\nTotal 0 error nodes in clients\nservers:\nTotal 0 error nodes in servers\n"
        );
        let end = good(&console, Command::EndSession).await;
        assert_eq!((end.out.as_str(), end.ends), ("session is ended\n", true));
    });
}

#[test]
fn a_small_transfer_has_its_bulk_phase() {
    let world = World::new(2, 4);
    world.run(async |env| {
        let console = Console::start(&env, config("s", false));
        groups(&console).await;
        good(&console, test(brw(false, Check::None, 4_096), Some(100))).await;
        let ask = Command::Sample { of: vec!["clients".into()], timeout_secs: 5 };
        let before = good(&console, ask.clone()).await;
        good(&console, run()).await;
        env.sleep(Span::secs(20)).await;
        let now = good(&console, ask).await;
        let stat = |answer: &Answer| answer.samples[0].nodes[0].1.clone().expect("answered");
        let (before, now) = (stat(&before), stat(&now));
        assert_eq!(
            (now.done[1].count, now.done[1].bytes, now.running),
            (400, 400 * 4_096, 0),
            "the loops have ended"
        );
        let received = now.net.recv_count - before.net.recv_count;
        assert!(received >= 800, "{received} messages: data and reply of each transfer");
    });
}

#[test]
fn a_planted_corruption_is_found_in_both_directions() {
    for (check, write) in
        [(Check::Simple, false), (Check::Full, true), (Check::Crc, false), (Check::Crc, true)]
    {
        let world = World::new(3, 4);
        let spoils = if write { 2 } else { 0 }; // the first client or the first server
        world.params[spoils].set_now("lst.corrupt_every", "10").expect("a parameter");
        world.run(async move |env| {
            let console = Console::start(&env, config("c", false));
            groups(&console).await;
            good(&console, test(brw(write, check, 4 * 4_096), Some(25))).await;
            good(&console, run()).await;
            env.sleep(Span::secs(20)).await;
            let errors = good(&console, Command::ShowError { of: vec!["clients".into()], session: true }).await;
            let expected =
                "clients:\n12345-10.0.0.3@tcp: [Session 10 brw errors, 0 ping errors]\nTotal 1 error nodes in clients\n";
            assert_eq!(errors.out, expected, "{check:?} write {write}");
        });
    }
}

#[test]
fn a_node_of_another_session_is_busy_until_it_is_forced() {
    let world = World::new(4, 4);
    world.run(async |env| {
        let (first, second) = (
            Console::start(&env, config("first", false)),
            Console::start(&env, config("second", false)),
        );
        groups(&first).await;
        let answer = second.execute(group("mine", "10.0.0.1@tcp")).await;
        assert!(answer.err.contains("it is in session first"), "{answer:?}");
        let list =
            Command::ListGroup { groups: vec!["mine".into()], states: vec![NodeState::Busy] };
        assert!(good(&second, list).await.out.contains("12345-10.0.0.1@tcp: Busy"));
        let third = Console::start(&env, config("third", true));
        good(&third, group("taken", "10.0.0.1@tcp")).await;
        let ping =
            good(&first, Command::Ping { group: Some("servers".into()), batch: None, nodes: None })
                .await;
        assert!(
            ping.out.contains("10.0.0.1@tcp: Busy [session: third")
                && ping.out.contains("10.0.0.2@tcp: Active [session: first"),
            "{ping:?}"
        );
        good(
            &first,
            Command::UpdateGroup {
                name: "servers".into(),
                clean: vec![NodeState::Busy],
                refresh: false,
                remove: None,
            },
        )
        .await;
        let counts =
            good(&first, Command::ListGroup { groups: vec!["servers".into()], states: vec![] })
                .await;
        assert!(counts.out.ends_with("\t1\t0\t0\t0\t1\tservers\n"), "{counts:?}");
        good(&third, Command::EndSession).await;
        good(
            &second,
            Command::UpdateGroup {
                name: "mine".into(),
                clean: vec![],
                refresh: true,
                remove: None,
            },
        )
        .await;
    });
}

#[test]
fn a_node_whose_console_died_drops_the_session_and_its_load() {
    let slow = SimConfig {
        delay_min: Span::millis(40),
        delay_max: Span::millis(60),
        ..SimConfig::default()
    };
    let world = World::with(5, 4, slow);
    world.run(async |env| {
        let console = Console::start(&env, config("dying", false));
        groups(&console).await;
        good(&console, test(Kind::Ping, None)).await;
        good(&console, run()).await;
        env.sleep(Span::secs(250)).await; // its pings keep the session for as long as it lives
        let query = good(
            &console,
            Command::Query { batch: batch(), test: 0, server: false, all: true, timeout_secs: 5 },
        )
        .await;
        assert_eq!(query.out.matches("Running").count(), 2, "{query:?}");
    });
    world.console.kill();
    let name =
        |world: &World| world.params[2].get("lst.session").expect("a parameter")[0].value.clone();
    world.run(async |env| env.sleep(Span::secs(90)).await);
    assert_eq!(name(&world), "dying");
    world.run(async |env| env.sleep(Span::secs(15)).await);
    assert_eq!(name(&world), "");
}

#[test]
fn a_session_without_commands_ends_after_its_timeout() {
    let world = World::new(6, 4);
    world.run(async |env| {
        let console = Console::start(&env, config("idle", false));
        groups(&console).await;
        let before = env.now();
        console.ended().await;
        let after = env.now() - before;
        assert!(after >= Span::secs(300) && after < Span::secs(315), "{after:?}");
    });
    assert_eq!(world.params[0].get("lst.session").expect("a parameter")[0].value, "");
}

#[test]
fn a_session_does_not_end_under_a_command_that_takes_longer_than_its_timeout() {
    let world = World::new(8, 4);
    let victim = world.nodes[0].clone();
    let console = world.run(async |env| {
        let timeout = Span::secs(20);
        let console = Console::start(&env, NewSession { timeout, ..config("short", false) });
        groups(&console).await;
        console
    });
    victim.kill();
    world.run(async move |env| {
        let before = env.now();
        console.execute(Command::Sample { of: vec!["servers".into()], timeout_secs: 60 }).await;
        assert!(env.now() - before >= Span::secs(60), "it waited for the node");
        good(&console, Command::ShowSession).await;
    });
}

#[test]
fn a_node_that_goes_down_is_told_and_comes_back_by_refresh() {
    let world = World::new(7, 4);
    let (victim, params) = (world.nodes[0].clone(), ParamTree::new());
    let console = world.run(async |env| {
        let console = Console::start(&env, config("s", false));
        groups(&console).await;
        console
    });
    victim.kill();
    let of = Rc::clone(&console);
    world.run(async move |env| {
        env.sleep(Span::secs(30)).await;
        let list = good(
            &of,
            Command::ListGroup { groups: vec!["servers".into()], states: vec![NodeState::Down] },
        )
        .await;
        assert!(list.out.contains("10.0.0.1@tcp: Down"), "{list:?}");
    });
    serve(&world.sim, &victim, &params);
    world.run(async move |_env| {
        good(
            &console,
            Command::UpdateGroup {
                name: "servers".into(),
                clean: vec![],
                refresh: true,
                remove: None,
            },
        )
        .await;
        let list = good(
            &console,
            Command::ListGroup { groups: vec!["servers".into()], states: vec![NodeState::Active] },
        )
        .await;
        assert!(list.out.ends_with("Total 2 nodes [ servers ]\n"), "{list:?}");
    });
}

#[test]
fn what_is_wrong_is_refused_with_a_reason() {
    let world = World::new(8, 4);
    world.run(async |env| {
        let console = Console::start(&env, config("s", false));
        groups(&console).await;
        let refused = async |command: Command, text: &str| {
            let answer = console.execute(command).await;
            assert!(answer.status != 0 && answer.err.contains(text), "{answer:?}");
        };
        refused(group("servers", "10.0.0.1@tcp"), "servers already exists").await;
        refused(group("bad", "10.0.0.1"), "names no network").await;
        refused(group("bad", "10.0.0.1@o2ib"), "no driver").await;
        refused(Command::Run { batch: "none".into(), timeout_secs: 5 }, "Can't find none").await;
        refused(run(), "no tests").await;
        refused(Command::DelGroup { name: "none".into() }, "Can't find none").await;
        refused(test(brw(true, Check::Full, MIB + 1), None), "Invalid argument").await;
        refused(
            Command::Sample { of: vec!["10.0.0.9@tcp".into()], timeout_secs: 1 },
            "Can't find 10.0.0.9@tcp",
        )
        .await;
        refused(
            Command::ShowError { of: vec!["nobody".into()], session: false },
            "Can't find nobody",
        )
        .await;
        let unreachable = console.execute(group("far", "10.9.9.9@tcp")).await;
        assert!(unreachable.err.contains("RPC failed on 12345-10.9.9.9@tcp"), "{unreachable:?}");
        let list = good(
            &console,
            Command::ListGroup { groups: vec!["far".into()], states: vec![NodeState::Unknown] },
        )
        .await;
        assert!(list.out.contains("10.9.9.9@tcp: Unknown"));
    });
}

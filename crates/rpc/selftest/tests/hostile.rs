//! Fuzz target: a node's self-test on hostile bodies.
//!
//! The input is a program of requests of one console that speaks for two sessions, to one of two
//! nodes. Bodies are partly valid, because random bytes would only reach the first check of each
//! handler. Every request is answered. After each one:
//! - The node is in the session that a console last joined and did not leave.
//! - It answers tests of that session alone.
//!
//! After the program, the end of the session ends every loop: the node sends nothing more.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Answer, Bulk, Call, Endpoint, EndpointConfig, Resolve};
use env::CptTable;
use env_sim::{NodeHandle, Sim, SimConfig};
use selftest::{SelfTest, SelfTestConfig};
use service::{Node, NodeConfig};
use types::{ClientId, Instant, Nid, NidAddr, PORT_DEFAULT, Span, SplitMix64, TargetId};
use wire::body::{LstBrwReq, LstPing};
use wire::lst::{Ask, At, Check, Control, Kind, SessionId, TestSpec, Told};
use wire::{Opcode, encode_body};

/// Bytes of a program, about 10 a request.
const PROGRAM_BYTES_MAX: usize = 300;
const PROGRAMS: usize = 2_000;
const TIME: std::time::Duration = std::time::Duration::from_secs(3);

/// A node that hears nothing of its session for so long leaves it.
const SILENCE_MAX: Span = Span::secs(100);
/// What the pings of idle connections come to within [`QUIET`].
const PINGS_MAX: u64 = 20;
const QUIET: Span = Span::secs(10);

const OPCODES: [Opcode; 8] = [
    Opcode::LstControl,
    Opcode::LstControl,
    Opcode::LstControl,
    Opcode::LstControl,
    Opcode::LstPing,
    Opcode::LstBrw,
    Opcode::LstBrw,
    Opcode::MgsConfig,
];
const ONE: SessionId = SessionId { console: 1, stamp: 11 };
const TWO: SessionId = SessionId { console: 2, stamp: 22 };
/// One that no program joins.
const STRANGER: SessionId = SessionId { console: 9, stamp: 99 };
const SESSIONS: [SessionId; 8] =
    [ONE, ONE, ONE, ONE, ONE, TWO, TWO, SessionId { console: u64::MAX, stamp: 0 }];
const WORDS: [u32; 8] = [1, 8, 4_096, 1, 1 << 20, 0, (1 << 20) + 1, u32::MAX];
/// Of transfers in loops, which go on between two requests of the program.
const SIZES: [u32; 6] = [1, 8, 4_096, 65_536, 0, (1 << 20) + 1];
const CONCURRENCIES: [u32; 6] = [1, 2, 1, 0, 1_025, u32::MAX];
const NAMES: [&str; 6] = ["b", "b", "b", "other", "", "\u{1b}[2J\n"];
const CHECKS: [Check; 5] = [Check::None, Check::Simple, Check::Full, Check::Crc, Check::Discard];

/// Choices, one byte each; zero where there are no more.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn is_done(&self) -> bool {
        self.0.len() == 0
    }

    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    fn name(&mut self) -> String {
        match self.byte() {
            long @ 250.. => "\u{1b}x".repeat(usize::from(long)),
            choice => NAMES[usize::from(choice) % NAMES.len()].to_owned(),
        }
    }

    fn kind(&mut self) -> Kind {
        if self.byte() < 64 {
            return Kind::Ping;
        }
        let (write, check) = (self.byte() >= 128, self.of(&CHECKS));
        Kind::Brw { write, check, size: self.of(&SIZES), offset: self.of(&[0, 8, 4, u32::MAX]) }
    }

    fn destinations(&mut self) -> Vec<At> {
        let nids = ["10.0.0.2@tcp", "10.0.0.1@tcp", "10.0.0.77@tcp", "0@lo"];
        let all: Vec<u64> =
            nids.iter().map(|nid| nid.parse::<Nid>().expect("a NID").0).chain([u64::MAX]).collect();
        (0..self.byte() % 4).map(|_| At { nid: self.of(&all), port: PORT_DEFAULT }).collect()
    }

    fn ask(&mut self) -> Ask {
        match self.byte() % 12 {
            0..3 => Ask::Join { name: self.name(), force: self.byte() >= 64 },
            3 => Ask::Leave,
            4..7 => {
                let (batch, test) = (self.name(), u32::from(self.byte() % 4));
                let loops = self.of(&[None, Some(3), Some(0)]);
                let spec =
                    TestSpec { kind: self.kind(), loops, concurrency: self.of(&CONCURRENCIES) };
                Ask::AddTest { batch, test, spec, with: self.destinations() }
            }
            7..9 => Ask::Run { batch: self.name() },
            9 => Ask::Stop { batch: self.name(), force: self.byte() >= 128 },
            10 => Ask::Query { batch: self.name(), test: u32::from(self.byte() % 4) },
            _ => Ask::Stat,
        }
    }

    fn call(&mut self) -> Call {
        let opcode = self.of(&OPCODES);
        let mut bulk = Bulk::None;
        let body = match opcode {
            Opcode::LstControl => {
                let control = Control { session: self.of(&SESSIONS), ask: self.ask() };
                wire::config::encode(&control)
            }
            Opcode::LstPing => {
                let session = self.of(&SESSIONS).stamp;
                encode_body(&LstPing { session, sequence: 1, reserved: 0 })
            }
            _ => {
                let (length, write) = (self.of(&WORDS), u32::from(self.byte() >= 128));
                let bytes = (length as usize).min(1 << 20);
                bulk = match write {
                    0 => Bulk::Sink(bytes),
                    _ => Bulk::Source(vec![Bytes::from(vec![self.byte(); bytes])]),
                };
                encode_body(&LstBrwReq {
                    length,
                    write,
                    check: u32::from(self.byte() % 6),
                    session: self.of(&SESSIONS).stamp,
                    offset: self.of(&WORDS),
                    ..LstBrwReq::default()
                })
            }
        };
        let mut call = Call { bulk, ..Call::new(opcode, vec![body]) };
        self.damage(&mut call);
        call
    }

    /// Some requests are not as a console or a node of ours would write them.
    fn damage(&mut self, call: &mut Call) {
        let (how, at, with) = (self.byte(), usize::from(self.byte()), self.byte());
        let body = &call.bufs[0];
        match how {
            0..24 => {
                let mut bytes = body.to_vec();
                let at = at % bytes.len();
                bytes[at] ^= with;
                call.bufs[0] = bytes.into();
            }
            24..36 => call.bufs[0] = body.slice(..at % body.len()),
            36..40 => (call.bulk, call.bufs) = (Bulk::None, Vec::new()),
            40..44 => call.bufs.push(Bytes::from(vec![with; at * 7])),
            44..48 => call.bufs[0] = Bytes::from(vec![with; at * 64]),
            48..54 => call.bulk = Bulk::Source(vec![Bytes::from(vec![with; at * 64])]),
            54..60 if !call.modifies => call.bulk = Bulk::Sink(at * 64),
            _ => {}
        }
    }
}

struct Fixed(NidAddr);

impl Resolve for Fixed {
    fn addrs(&self, _target: TargetId) -> Vec<NidAddr> {
        vec![self.0]
    }
}

struct World {
    sim: Sim,
    node: NodeHandle,
    console: NodeHandle,
    endpoint: Rc<Endpoint>,
    /// The session of the node.
    joined: Option<SessionId>,
    /// When the node heard of it last.
    heard: Instant,
}

fn serve(sim: &Sim, handle: &NodeHandle) {
    let (env, nid) = (handle.env(), handle.nid());
    let task = env.clone();
    sim.block_on(handle, async move {
        let one = NonZeroU32::MIN;
        let node = Node::new(&env, NodeConfig::new(CptTable::new(one, one, 1, true).expect("one")));
        node.add_target(SelfTest::new(&env, SelfTestConfig { nid: Some(nid), is_open: false }));
        node.serve(env.listen(NidAddr { nid, port: PORT_DEFAULT }).await.expect("free"));
        task.spawn("held", async move {
            let _node = node; // lives as long as the machine
            std::future::pending::<()>().await;
        });
    });
}

impl World {
    fn new() -> World {
        let sim = Sim::new(7, SimConfig::default());
        let nid = |last| Nid::tcp(std::net::Ipv4Addr::new(10, 0, 0, last));
        let [node, other, console] = [("node", 1), ("other", 2), ("console", 9)]
            .map(|(name, last)| sim.node(name, nid(last)));
        serve(&sim, &node);
        serve(&sim, &other);
        let at = NidAddr { nid: node.nid(), port: PORT_DEFAULT };
        let import = endpoint::ImportConfig { client: ClientId(1), ..Default::default() };
        let config = EndpointConfig { import, ..EndpointConfig::default() };
        let endpoint = Endpoint::new(&console.env(), config, Rc::new(Fixed(at)));
        World { sim, node, console, endpoint, joined: None, heard: Instant::default() }
    }

    fn call(&self, call: Call) -> Option<Answer> {
        let (remote, opcode) = (self.endpoint.remote(TargetId::LST), call.opcode);
        let asked = async move { remote.call(call).await };
        let answer = self.sim.block_on_for(&self.console, Span::secs(300), asked);
        answer.unwrap_or_else(|| panic!("{opcode:?} is not answered")).ok()
    }

    fn control(&self, session: SessionId, ask: Ask) -> Told {
        let bufs = vec![wire::config::encode(&Control { session, ask })];
        let answer = self.call(Call::new(Opcode::LstControl, bufs)).expect("it decodes");
        wire::config::decode(&answer.reply.buf(0)).expect("an answer")
    }

    /// The session that the node says it is in.
    fn session(&self) -> Option<SessionId> {
        match self.control(STRANGER, Ask::Ping) {
            Told::NoSession => None,
            Told::Busy { name, session } => {
                assert!(!name.chars().any(char::is_control), "{name:?}");
                Some(session)
            }
            other => panic!("to a stranger: {other:?}"),
        }
    }

    /// One request of the program; its operation if it succeeded.
    fn step(&mut self, choices: &mut Choices<'_>) -> Option<Opcode> {
        let call = choices.call();
        let (opcode, first) = (call.opcode, call.bufs.first().cloned().unwrap_or_default());
        let answer = self.call(call);
        let is_done = answer.is_some();
        match (opcode, answer) {
            (Opcode::LstControl, Some(answer)) => {
                let told = wire::config::decode(&answer.reply.buf(0)).expect("an answer");
                self.note(&wire::config::decode(&first).expect("it was understood"), &told);
            }
            (Opcode::LstPing | Opcode::LstBrw, Some(_)) => {
                assert!(self.joined.is_some(), "tests are of a session");
            }
            _ => {}
        }
        self.check();
        is_done.then_some(opcode)
    }

    /// What a control request has changed.
    fn note(&mut self, control: &Control, told: &Told) {
        if let Told::Busy { session, .. } = told {
            assert_ne!(*session, control.session);
        }
        let is_ours = self.joined == Some(control.session);
        match (&control.ask, told) {
            (Ask::Join { .. }, Told::Done) => self.joined = Some(control.session),
            (Ask::Leave, Told::Done) => self.joined = None,
            (_, Told::Done | Told::Running(_) | Told::Stat(_)) => assert!(is_ours, "{control:?}"),
            _ => {}
        }
        if self.joined == Some(control.session) {
            self.heard = self.console.env().now();
        }
    }

    fn check(&mut self) {
        let is = self.session();
        let is_silent = self.console.env().now() - self.heard >= Span(SILENCE_MAX.0 / 2);
        if is.is_none() && is_silent {
            self.joined = None;
        }
        assert_eq!(is, self.joined);
        for stamp in [ONE, TWO, STRANGER].map(|session| session.stamp) {
            let ping = LstPing { session: stamp, sequence: 7, reserved: 0 };
            let answer = self.call(Call::new(Opcode::LstPing, vec![encode_body(&ping)]));
            let is_its = self.joined.is_some_and(|session| session.stamp == stamp);
            assert_eq!(answer.is_some(), is_its, "a test of session {stamp}");
        }
    }

    /// Nothing that was started goes on without its session.
    fn end(&self) {
        if let Some(session) = self.joined {
            assert_eq!(self.control(session, Ask::Leave), Told::Done);
        }
        assert_eq!(self.session(), None);
        self.sim.run_for(Span::secs(3));
        let sent = || self.node.env().net_counters().send_count;
        let before = sent();
        self.sim.run_for(QUIET);
        assert!(sent() - before <= PINGS_MAX, "{} messages", sent() - before);
    }
}

#[test]
fn handlers() {
    let programs = bolero::produce::<Vec<u8>>().with().len(0..=PROGRAM_BYTES_MAX);
    bolero::check!()
        .with_iterations(PROGRAMS)
        .with_test_time(TIME)
        .with_generator(programs)
        .for_each(|program: &Vec<u8>| {
            let mut choices = Choices(program.iter());
            let mut world = World::new();
            while !choices.is_done() {
                world.step(&mut choices);
            }
            world.end();
        });
}

/// The generator is of use: its plain requests succeed, of each operation.
#[test]
fn some_requests_of_the_generator_succeed() {
    let mut world = World::new();
    let mut random = SplitMix64::new(1);
    let program: Vec<u8> = (0..3_000).map(|_| random.bits() as u8).collect();
    let mut choices = Choices(program.iter());
    let mut done = BTreeMap::<Opcode, u32>::new();
    while !choices.is_done() {
        if let Some(opcode) = world.step(&mut choices) {
            *done.entry(opcode).or_default() += 1;
        }
    }
    let all = [Opcode::LstControl, Opcode::LstPing, Opcode::LstBrw];
    assert!(all.iter().all(|opcode| done.contains_key(opcode)), "{done:?}");
    world.end();
}

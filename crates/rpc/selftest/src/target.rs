//! The node's side: it joins a session, answers tests and runs its own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use bytes::Bytes;
use env::{Env, LocalFuture, Task};
use lst::pattern::{self, Origin, POISON};
use lst::{Action, Member, Run, limits};
use params::ParamTree;
use service::{Class, ClientRecord, Exports, ExportsConfig, Incoming, Session, Target, spec};
use types::{Errno, Instance, Nid, NidAddr, Span, TargetId, Transno};
use wire::body::{LstBrwReq, LstPing};
use wire::lst::{At, Check, Control, Net, Told};
use wire::{Opcode, Reply, Request};

use crate::data::Source;
use crate::load;
use crate::peer::Peer;

/// Settings of a node's self-test.
#[derive(Clone, Copy, Debug, Default)]
pub struct SelfTestConfig {
    /// Own address, from which tests go out; none lets the system choose.
    pub nid: Option<Nid>,
    /// Answers tests of nobody's session too: for a driver that measures without a console.
    pub is_open: bool,
}

pub struct SelfTest {
    pub(crate) env: Env,
    config: SelfTestConfig,
    exports: Rc<Exports>,
    pub(crate) member: RefCell<Member>,
    pub(crate) source: Source,
    pub(crate) sequence: Cell<u64>,
    runs: RefCell<BTreeMap<Run, Running>>,
    peers: RefCell<BTreeMap<NidAddr, Rc<Peer>>>,
    watched: Cell<bool>,
}

struct Running {
    stop: Rc<Cell<bool>>,
    tasks: Vec<Task>,
    live: usize,
}

impl SelfTest {
    /// In no session; to be added to a [`service::Node`].
    pub fn new(env: &Env, config: SelfTestConfig) -> Rc<SelfTest> {
        let exports = ExportsConfig {
            target: TargetId::LST,
            // rises from start to start
            instance: Instance(u64::try_from(env.wall().sec).unwrap_or(0).max(1)),
            known: Vec::new(),
            replies: Vec::new(),
            last_committed: Transno::NONE,
            recovery_window: Span::secs(30),
            recovery_window_max: Span::secs(120),
            abort_recovery: true,
            has_more_to_recover: false,
            lease: Span::secs(150),
            silence_max: Span::secs(150),
        };
        Rc::new(SelfTest {
            env: env.clone(),
            config,
            exports: Exports::new(env, exports),
            member: RefCell::default(),
            source: Source::default(),
            sequence: Cell::new(0),
            runs: RefCell::default(),
            peers: RefCell::default(),
            watched: Cell::new(false),
        })
    }

    /// Stamp of the session, zero in none.
    pub(crate) fn stamp(&self) -> u64 {
        self.member.borrow().session().map_or(0, |(id, _)| id.stamp)
    }

    // ---- control
    // --------------------------------------------------------------------------------------------

    fn control(self: &Rc<Self>, request: &Request) -> Result<Reply, Errno> {
        let control: Control = wire::config::decode(&request.buf(0)).ok_or(Errno::EPROTO)?;
        let (mut told, actions) = self.member.borrow_mut().handle(control, self.env.now());
        if let Told::Stat(stat) = &mut told {
            let net = self.env.net_counters();
            stat.net = Net {
                send_count: net.send_count,
                recv_count: net.recv_count,
                send_bytes: net.send_bytes,
                recv_bytes: net.recv_bytes,
            };
        }
        self.perform(actions);
        let poison = self.member.borrow().looks_at_data().then_some(POISON);
        self.env.poison_bulk(poison);
        self.watch();
        Ok(Reply::ok(&request.header, vec![wire::config::encode(&told)]))
    }

    fn perform(self: &Rc<Self>, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start { run, spec, with } => self.start(run, spec, &with),
                Action::Stop { run, force } => self.stop(run, force),
                Action::Leave => {
                    for (_, peer) in std::mem::take(&mut *self.peers.borrow_mut()) {
                        self.env.spawn("lst.hang-up", async move { peer.shutdown().await });
                    }
                }
            }
        }
    }

    fn start(self: &Rc<Self>, run: Run, spec: wire::lst::TestSpec, with: &[At]) {
        let stop = Rc::new(Cell::new(false));
        let mut tasks = Vec::new();
        for at in with {
            let peer = self.peer(NidAddr { nid: Nid(at.nid), port: at.port });
            for _ in 0..spec.concurrency {
                let job = load::Job {
                    node: Rc::clone(self),
                    run,
                    spec,
                    peer: Rc::clone(&peer),
                    stop: Rc::clone(&stop),
                };
                tasks.push(self.env.spawn("lst.load", job.run()));
            }
        }
        let live = tasks.len();
        self.runs.borrow_mut().insert(run, Running { stop, tasks, live });
    }

    fn peer(&self, at: NidAddr) -> Rc<Peer> {
        let mut peers = self.peers.borrow_mut();
        let made = || Peer::new(&self.env, self.config.nid, at, limits::RPC_TIMEOUT);
        Rc::clone(peers.entry(at).or_insert_with(made))
    }

    fn stop(&self, run: Run, force: bool) {
        if let Some(running) = self.runs.borrow().get(&run) {
            running.stop.set(true);
        }
        let ended = if force { self.runs.borrow_mut().remove(&run) } else { None };
        ended.iter().flat_map(|running| &running.tasks).for_each(Task::abort);
    }

    /// A loop's end, whatever ended it.
    pub(crate) fn loop_ended(&self, run: Run) {
        self.member.borrow_mut().loop_ended(run);
        let mut runs = self.runs.borrow_mut();
        if let Some(running) = runs.get_mut(&run) {
            running.live -= 1;
            if running.live == 0 {
                runs.remove(&run);
            }
        }
    }

    /// Ends a session of which nothing is heard.
    fn watch(self: &Rc<Self>) {
        if self.member.borrow().poll_timeout().is_none() || self.watched.replace(true) {
            return;
        }
        let node = Rc::clone(self);
        self.env.spawn("lst.watch", async move {
            loop {
                let due = node.member.borrow().poll_timeout();
                let Some(due) = due else { break };
                node.env.sleep_until(due).await;
                let actions = node.member.borrow_mut().handle_timeout(node.env.now());
                if !actions.is_empty() {
                    tracing::warn!(
                        "no message of the self-test session came in time: it is over here"
                    );
                }
                node.perform(actions);
            }
            node.env.poison_bulk(None);
            node.watched.set(false);
        });
    }

    // ---- tests
    // --------------------------------------------------------------------------------------------

    fn admits(&self, stamp: u64) -> Result<(), Errno> {
        if self.member.borrow().admits(stamp) || (self.config.is_open && stamp == 0) {
            return Ok(());
        }
        self.member.borrow_mut().count_dropped();
        Err(Errno::ESHUTDOWN)
    }

    fn ping(&self, request: &Request) -> Result<Reply, Errno> {
        let ping: LstPing = request.body();
        self.admits(ping.session)?;
        Ok(Reply::ok(&request.header, request.bufs.clone()))
    }

    async fn brw(&self, incoming: &Incoming) -> Result<Reply, Errno> {
        let request: LstBrwReq = incoming.request.body();
        self.admits(request.session)?;
        let check = Check::from_u32(request.check).ok_or(Errno::EINVAL)?;
        let length = request.length as usize;
        if request.length > limits::BRW_BYTES_MAX || length == 0 {
            return Err(Errno::EINVAL);
        }
        let origin = Origin { sender: request.sender, sequence: request.sequence };
        let mut reply = Reply::ok(&incoming.request.header, vec![Bytes::new()]);
        if request.write == 0 {
            incoming.push_bulk(&mut reply, self.source.make(check, length, origin));
            return Ok(reply);
        }
        let data = incoming.pull().await?;
        if data.len() != length
            || !pattern::is_intact(check, &data, request.offset as usize, origin)
        {
            tracing::warn!(peer = %incoming.peer(), length, "data of the self-test arrived damaged");
            return Err(Errno::EBADMSG);
        }
        Ok(reply)
    }

    async fn execute(self: Rc<Self>, incoming: Incoming) -> Reply {
        let done = match incoming.request.opcode() {
            Opcode::LstBrw => self.brw(&incoming).await,
            Opcode::LstControl => self.control(&incoming.request),
            _ => Err(Errno::EOPNOTSUPP),
        };
        done.unwrap_or_else(|errno| Reply::error(&incoming.request.header, errno))
    }
}

/// `lst.session`, and `lst.corrupt_every` for tests of the data check: of each node of this
/// process.
pub fn register(params: &ParamTree, nodes: &[Rc<SelfTest>]) {
    let all: Rc<[Weak<SelfTest>]> = nodes.iter().map(Rc::downgrade).collect();
    let of = Rc::clone(&all);
    params.register("lst.session", move || {
        let name =
            |node: Rc<SelfTest>| node.member.borrow().session().map(|(_, name)| name.to_owned());
        let names: BTreeSet<String> =
            of.iter().filter_map(Weak::upgrade).filter_map(name).collect();
        names.into_iter().collect::<Vec<_>>().join("\n")
    });
    let (of, to) = (Rc::clone(&all), all);
    let read = move || {
        of.iter()
            .find_map(Weak::upgrade)
            .map_or(0, |node| node.source.corrupt_every.get())
            .to_string()
    };
    params.register_rw("lst.corrupt_every", read, move |value| {
        let every =
            value.trim().parse().map_err(|_| "expected a count of transfers, or 0".to_owned())?;
        to.iter().filter_map(Weak::upgrade).for_each(|node| node.source.corrupt_every.set(every));
        Ok(())
    });
}

impl Target for SelfTest {
    fn id(&self) -> TargetId {
        TargetId::LST
    }

    fn exports(&self) -> Rc<Exports> {
        Rc::clone(&self.exports)
    }

    fn rpcs_in_flight(&self) -> u32 {
        limits::CONCURRENCY_MAX
    }

    fn class(&self, request: &Request) -> Class {
        let service =
            if request.opcode() == Opcode::LstControl { &spec::LST_CONTROL } else { &spec::LST };
        let reads = |body: &LstBrwReq| body.write == 0;
        let body = (request.opcode() == Opcode::LstBrw).then(|| request.body()).filter(reads);
        Class::of(service).answering(body.map_or(0, |body| u64::from(body.length)))
    }

    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply> {
        if incoming.request.opcode() == Opcode::LstPing {
            let pong = self
                .ping(&incoming.request)
                .unwrap_or_else(|errno| Reply::error(&incoming.request.header, errno));
            // nothing to wait for: a smaller future than that of a transfer
            return Box::pin(std::future::ready(pong));
        }
        Box::pin(self.execute(incoming))
    }

    fn remember_client(
        self: Rc<Self>,
        _record: ClientRecord,
    ) -> LocalFuture<'static, Result<(), Errno>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn sessions_ended(
        self: Rc<Self>,
        _sessions: Vec<Rc<Session>>,
        _evicted: bool,
    ) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use env_sim::{Sim, SimConfig};
    use wire::lst::{Ask, Kind, SessionId, TestSpec};

    use super::*;

    fn told(node: &Rc<SelfTest>, ask: Ask) -> Told {
        let session = SessionId { console: 1, stamp: 2 };
        let bufs = vec![wire::config::encode(&Control { session, ask })];
        let reply = node.control(&Request::new(Opcode::LstControl, bufs)).expect("it decodes");
        wire::config::decode(&reply.bufs[0]).expect("an answer")
    }

    /// Both messages may come in one batch of their link.
    #[test]
    fn loops_that_are_stopped_before_they_begin_have_ended() {
        let sim = Sim::new(1, SimConfig::default());
        let handle = sim.node("node", "10.0.0.1@tcp".parse().expect("a NID"));
        let env = handle.env();
        sim.block_on(&handle, async move {
            let node = SelfTest::new(&env, SelfTestConfig::default());
            let batch = || "batch".to_owned();
            let spec = TestSpec { kind: Kind::Ping, loops: None, concurrency: 8 };
            let with = vec![At { nid: Nid::LO.0, port: 1 }; 3];
            let running = || told(&node, Ask::Query { batch: batch(), test: 0 });
            for ask in [
                Ask::Join { name: "rw".to_owned(), force: false },
                Ask::AddTest { batch: batch(), test: 1, spec, with },
                Ask::Run { batch: batch() },
            ] {
                assert_eq!(told(&node, ask), Told::Done);
            }
            assert_eq!(running(), Told::Running(24));
            assert_eq!(told(&node, Ask::Stop { batch: batch(), force: true }), Told::Done);
            env.sleep(Span::millis(1)).await;
            assert_eq!(running(), Told::Running(0));
            assert_eq!(told(&node, Ask::Run { batch: batch() }), Told::Done, "it may run again");
        });
    }
}

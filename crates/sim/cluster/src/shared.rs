//! Several users on common files and directories. Some order of their calls must explain all
//! answers ([`oracle::history`]).
//!
//! Clients die in the middle of their work and others take their place. A call of a dead client
//! takes effect at any time after its begin, or never. Servers are killed only when everything that
//! was acknowledged to a dead client is durable. Otherwise a client and a server could die together
//! and leave only a prefix of the calls; the blackout of other scenarios covers that.

mod board;
mod call;
mod diary;
mod worker;

use std::cell::RefCell;
use std::rc::Rc;

use client::Client;
use env_sim::{Faults, NodeHandle, Rng};
use types::{Instant, Span};

use crate::Scenario;
use crate::fixture::Cluster;
use crate::nemesis::Nemesis;
use crate::restriper::Restriper;
use crate::run::{self, PEACE_MAX};
use crate::schedule::Plan;

pub(crate) use board::Board;
use board::Troubles;
use worker::Worker;

/// Users of each client.
const USERS: u32 = 2;
/// Work takes at most this long, servers' recoveries included.
const WORK_MAX: Span = Span::secs(1_800);
/// What a client was told is durable by then: a commit interval, and the longest commit.
const DURABLE: Span = Span::secs(4);

/// What two clients were after is not leased for 30 s.
const QUIET: Span = Span::secs(31);
/// Quiet times of a run, at most.
const QUIET_MAX: u32 = 4;

/// What oscillators of computers are off by, and some.
const DRIFT_PPM_MAX: u64 = 200;

/// Who has not come to its point by then dies without.
const PATIENCE: Span = Span::secs(3);
/// The point is at most this power of two.
const DOUBLINGS: u64 = 7;

/// When a client dies: with the last of so many messages that it sends, or that come to it, which
/// it does not see any more.
#[derive(Clone, Copy, Debug)]
enum ClientPoint {
    Send(u64),
    Arrival(u64),
}

impl ClientPoint {
    /// Small numbers are as likely as large ones.
    fn draw(rng: &mut Rng) -> ClientPoint {
        let most = 1 << rng.range(0, DOUBLINGS);
        let count = rng.range(1, most);
        match rng.chance(500_000) {
            true => ClientPoint::Send(count),
            false => ClientPoint::Arrival(count),
        }
    }
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) ops: u64,
    pub(crate) nemesis: Nemesis,
    pub(crate) failure: Option<String>,
}

pub(crate) fn run(
    cluster: &Cluster,
    (seed, scenario): (u64, &Scenario),
    plan: &Rc<Plan>,
) -> Outcome {
    let mut rng = cluster.sim.rng();
    let scenario = swarm(scenario, &mut rng);
    if scenario.diaries {
        cluster.set_recovery_window(Scenario::window_of_diaries(seed));
    }
    let mut run = Run::start(cluster, scenario, rng, plan);
    run.has_components = seed % 2 == 1;
    let failure = run.all().err();
    let ops = run.board.borrow().calls();
    Outcome { ops, nemesis: run.nemesis, failure }
}

/// Which faults this seed has: fewer at a time reach further.
fn swarm(scenario: &Scenario, rng: &mut Rng) -> Scenario {
    let mut drawn = *scenario;
    if rng.chance(300_000) {
        drawn.storm = Faults::default();
    }
    drawn.partitions &= rng.chance(600_000);
    drawn.power_cuts &= rng.chance(700_000);
    drawn.restarts = rng.range(0, u64::from(scenario.restarts)) as u32;
    drawn.hard_faults =
        rng.range(u64::from(scenario.hard_faults.min(1)), u64::from(scenario.hard_faults)) as u32;
    drawn.full_mdt = match rng.chance(400_000) {
        true => rng.range(0, u64::from(scenario.full_mdt)) as u32,
        false => 0,
    };
    drawn.client_kills = rng.range(0, u64::from(scenario.client_kills)) as u32;
    if scenario.hard_faults > 0 && rng.chance(350_000) {
        (drawn.diaries, drawn.power_cuts) = (true, true);
        drawn.restarts = rng.range(1, u64::from(scenario.restarts)) as u32;
        (drawn.client_kills, drawn.full_mdt) = (0, 0);
        drawn.partitions = false; // their end would bring back who is kept away
    }
    drawn
}

/// Clocks run apart by so many millionths.
fn drift(rng: &mut Rng) -> i32 {
    rng.range(0, 2 * DRIFT_PPM_MAX) as i32 - DRIFT_PPM_MAX as i32
}

struct Run<'a> {
    cluster: &'a Cluster,
    scenario: Scenario,
    rng: Rng,
    nodes: Vec<NodeHandle>,
    board: Rc<RefCell<Board>>,
    workers: Vec<Worker>,
    nemesis: Nemesis,
    /// Clients that still have to die.
    deaths: u32,
    /// One that dies at a point, or then.
    dying: Option<(usize, Instant)>,
    /// Quiet times to come, at most.
    quiet: u32,
    users: u32,
    /// The wide file gets its objects part by part.
    has_components: bool,
    restriper: Option<Restriper>,
}

impl<'a> Run<'a> {
    fn start(cluster: &'a Cluster, scenario: Scenario, mut rng: Rng, plan: &Rc<Plan>) -> Run<'a> {
        let nodes: Vec<_> = (0..scenario.clients)
            .map(|index| cluster.client_node(&format!("client{index}"), index))
            .collect();
        if scenario.hard_faults > 0 && rng.chance(500_000) {
            let servers = cluster.servers.iter().map(|server| &server.node);
            nodes.iter().chain(servers).for_each(|node| node.drift_clock(drift(&mut rng)));
        }
        let nemesis = Nemesis::new(rng.fork(), &scenario, nodes.clone(), plan);
        let is_hard = scenario.hard_faults > 0;
        let troubles = Troubles { fullness: nemesis.fullness(), power_lost: nemesis.power_lost() };
        let board = Rc::new(RefCell::new(Board::new(cluster.sim.control(), is_hard, troubles)));
        let deaths = scenario.client_kills;
        let quiet = if scenario.diaries { 0 } else { QUIET_MAX };
        Run {
            cluster,
            scenario,
            rng,
            nodes,
            board,
            workers: Vec::new(),
            nemesis,
            deaths,
            dying: None,
            quiet,
            users: 0,
            has_components: false,
            restriper: None,
        }
    }

    fn all(&mut self) -> Result<(), String> {
        self.set_up()?;
        self.work()?;
        self.peace()?;
        self.look()?;
        self.board.borrow().check()?;
        self.nodes.iter().for_each(|node| node.kill_as(false));
        run::sweep(self.cluster, &self.cluster.client_node("sweeper", 103))
    }

    fn set_up(&mut self) -> Result<(), String> {
        let node = self.cluster.client_node("maker", 101);
        let maker = self.cluster.mount(&node);
        let has_components = self.has_components;
        let places = self.places();
        let arena = self.ask(&node, "set-up", &maker, async move |client| {
            let made = board::make_arena(client, has_components, &places).await;
            made.map_err(|error| error.to_string())
        })?;
        if self.scenario.restripes {
            let node = self.cluster.client_node("restriper", 104);
            let client = self.cluster.mount(&node);
            let (dirs, mdts) = (arena.dirs.to_vec(), self.cluster.mdt_count());
            let rng = self.rng.fork();
            self.restriper = Some(Restriper::start(&node, client, dirs, mdts, rng));
        }
        self.board.borrow_mut().arena = arena;
        self.board.borrow_mut().are_spread = self.scenario.restripes;
        if self.scenario.diaries {
            for who in 0..self.scenario.clients * USERS {
                let fid = self.ask(&node, "set-up", &maker, async move |client| {
                    diary::make(client, who).await.map_err(|error| error.to_string())
                })?;
                self.board.borrow_mut().begin_diary(who, fid);
            }
        }
        self.leave(&node, maker);
        (0..self.nodes.len()).for_each(|index| self.put_to_work(index));
        Ok(())
    }

    /// The MDTs of the directories.
    fn places(&mut self) -> Vec<u32> {
        let mdts = self.cluster.mdt_count();
        let first = if mdts == 1 { 0 } else { self.rng.below(u64::from(mdts)) as u32 };
        board::places(mdts, first)
    }

    fn put_to_work(&mut self, index: usize) {
        let node = self.nodes[index].clone();
        let client = self.cluster.mount_in_background(&node);
        let each = self.scenario.ops / (self.scenario.clients * USERS);
        for _ in 0..USERS {
            let who = self.users;
            self.users += 1;
            let (board, rng) = (self.board.clone(), self.rng.fork());
            let keeps = self.scenario.diaries;
            self.workers.push(Worker::start(&node, client.clone(), (who, each, keeps), board, rng));
        }
    }

    fn work(&mut self) -> Result<(), String> {
        let until = self.cluster.sim.now() + WORK_MAX;
        let is_idle = |workers: &[Worker]| workers.iter().all(Worker::is_idle);
        while !(is_idle(&self.workers)
            && self.nemesis.is_done()
            && !self.nemesis.is_hard(self.cluster)
            && self.deaths == 0
            && self.dying.is_none())
        {
            let pause = self.nemesis.pause();
            self.cluster.sim.run_until(pause, || false);
            self.check_failure()?;
            if self.quiet > 0 && self.nemesis.is_all_up() && self.rng.chance(50_000) {
                self.be_quiet();
            }
            if self.must_spare() {
                self.nemesis.spare_servers_until(self.cluster.sim.now() + DURABLE);
            }
            self.replace_some();
            self.nemesis.act(self.cluster);
            if self.cluster.sim.now() > until {
                return Err(format!("still working after {} s", WORK_MAX.0 / 1_000_000_000));
            }
        }
        Ok(())
    }

    /// What a client that dies or is evicted was told must be durable, unless only its own diary
    /// tells of it.
    fn must_spare(&self) -> bool {
        let has_deaths = self.deaths > 0 || self.dying.is_some();
        has_deaths || (self.nemesis.is_hard(self.cluster) && !self.scenario.diaries)
    }

    /// Nobody does anything for so long that directories may be leased again.
    fn be_quiet(&mut self) {
        self.quiet -= 1;
        self.nemesis.calm(self.cluster);
        let until = self.cluster.sim.now() + QUIET;
        self.board.borrow_mut().quiet_until = until;
        self.cluster.sim.narrate("lets all be quiet");
        self.cluster.sim.run_for(QUIET);
    }

    /// Clients die, some of them at a point.
    fn replace_some(&mut self) {
        let now = self.cluster.sim.now();
        if let Some((index, _)) =
            self.dying.take_if(|(index, until)| self.nodes[*index].is_frozen() || now >= *until)
        {
            if self.nodes[index].is_frozen() {
                planted::reached("sim: a client died at a point");
            }
            self.replace(index);
        }
        if self.deaths == 0 || self.dying.is_some() || !self.rng.chance(100_000) {
            return;
        }
        self.deaths -= 1;
        let index = self.rng.index(self.nodes.len());
        if self.rng.chance(400_000) {
            return self.replace(index);
        }
        let (node, point) = (&self.nodes[index], ClientPoint::draw(&mut self.rng));
        self.cluster.sim.narrate(&format!("lets {} die at {point:?}", node.name()));
        match point {
            ClientPoint::Send(count) => node.freeze_after_sends(Some(count)),
            ClientPoint::Arrival(count) => node.freeze_after_arrivals(Some(count)),
        }
        self.dying = Some((index, now + PATIENCE));
    }

    /// A client dies, and another one comes at its place.
    fn replace(&mut self, index: usize) {
        let node = self.nodes[index].clone();
        self.cluster.sim.narrate(&format!("kills {}", node.name()));
        let dying = self.workers.iter().filter(|worker| worker.node.nid() == node.nid());
        dying.for_each(|worker| worker.dies(&self.board));
        node.kill();
        self.workers.retain(|worker| worker.node.nid() != node.nid());
        self.put_to_work(index);
    }

    fn check_failure(&self) -> Result<(), String> {
        self.board.borrow().failure().map_or(Ok(()), Err)
    }

    fn peace(&mut self) -> Result<(), String> {
        self.nemesis.make_peace(self.cluster);
        let board = self.board.clone();
        self.workers.iter().for_each(Worker::rest);
        self.restriper.iter().for_each(Restriper::allow_rest);
        let until = self.cluster.sim.now() + PEACE_MAX;
        while self.cluster.sim.now() < until {
            let is_over = || self.restriper.iter().all(Restriper::is_over);
            let rested = || self.workers.iter().all(Worker::has_left) && is_over();
            let done = self.cluster.sim.run_until(Span::millis(500), rested);
            self.nemesis.restart_the_failed(self.cluster);
            self.check_failure()?;
            if done {
                return Ok(());
            }
        }
        let doing = board.borrow().under_way();
        Err(format!("the faults are over and not everything finishes: {doing}"))
    }

    /// A fresh client looks at everything: what it finds is the end of the history.
    fn look(&mut self) -> Result<(), String> {
        let node = self.cluster.client_node("looker", 102);
        let client = self.cluster.mount(&node);
        let (board, who) = (self.board.clone(), self.users);
        self.ask(&node, "looking", &client, async move |client| {
            worker::look(client, who, board).await;
            Ok(())
        })?;
        self.leave(&node, client);
        self.check_failure()
    }

    fn ask<T: 'static>(
        &self,
        node: &NodeHandle,
        what: &str,
        client: &Client,
        work: impl AsyncFnOnce(&Client) -> Result<T, String> + 'static,
    ) -> Result<T, String> {
        run::ask(self.cluster, node, what, client, work)
    }

    fn leave(&self, node: &NodeHandle, client: Client) {
        run::leave(self.cluster, node, client);
    }
}

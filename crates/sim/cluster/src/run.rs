//! One run: start, work under faults, peace, verification, blackout.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx};
use env_sim::{NodeHandle, Rng};
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Template};
use oracle::{Placing, Runner, mkdir_at, read_entries, test_ctx, verify_tree};
use types::{Fid, Span};

use crate::fixture::Cluster;
use crate::nemesis::Nemesis;
use crate::races::{self, Arena, Racer};
use crate::restriper::Restriper;
use crate::schedule::{Plan, Recording, Schedule};
use crate::user::User;
use crate::{Report, Scenario, blackout, directed, fsck, hostile, shared};

/// After the faults everything finishes within this: recovery windows of a cluster whose servers
/// all restarted.
pub(crate) const PEACE_MAX: Span = Span::secs(400);
/// Removed objects are gone within this.
pub(crate) const SWEEP_MAX: Span = Span::secs(200);
/// What lies between the clocks of clients, nanoseconds: the first is behind the servers, the third
/// ahead of them.
const CLOCK_STEP_NS: i64 = 700_000_000;
const WORK_MAX: Span = Span::secs(3 * 3600);

/// Runs `scenario` from `seed`. A broken promise is told in the report; a panic of the code under
/// test, an error-level event and a run that is stuck panic, with the seed in the message.
#[must_use]
pub fn run(seed: u64, scenario: &Scenario) -> Report {
    run_recorded(seed, scenario, &Rc::default())
}

/// As [`run`]; `recording` tells afterwards what was done, also where the run has panicked.
pub fn run_recorded(seed: u64, scenario: &Scenario, recording: &Rc<Recording>) -> Report {
    run_plan(seed, scenario, Plan::Draw(recording.clone()))
}

/// Repeats what `kept` names of a recorded run.
pub fn run_part(
    seed: u64,
    scenario: &Scenario,
    recording: &Rc<Recording>,
    kept: &Schedule,
) -> Report {
    run_plan(seed, scenario, Plan::Repeat(recording.clone(), kept.clone()))
}

fn run_plan(seed: u64, scenario: &Scenario, plan: Plan) -> Report {
    drop(planted::take_counts());
    let report = run_once(seed, scenario, &Rc::new(plan));
    Report { marks: planted::take_counts(), ..report }
}

fn run_once(seed: u64, scenario: &Scenario, plan: &Rc<Plan>) -> Report {
    let cluster = Cluster::new(seed, scenario);
    if cluster.is_on_disk() {
        planted::reached("sim: servers were on osd-disk");
    }
    cluster.boot();
    if let Some(script) = scenario.script {
        return directed::run(&cluster, seed, scenario, script);
    }
    if scenario.shared {
        let outcome = shared::run(&cluster, (seed, scenario), plan);
        let report = report(&cluster, (seed, scenario), &outcome.nemesis);
        return Report { ops: outcome.ops, failure: outcome.failure, ..report };
    }
    let mut run = Run::start(&cluster, scenario, plan);
    let failure = run.all().err();
    let ops = run.users.iter().map(User::ops).sum();
    let races = run.racers.iter().map(Racer::rounds).sum();
    Report { ops, races, failure, ..report(&cluster, (seed, scenario), &run.nemesis) }
}

/// What was done to the cluster.
fn report(cluster: &Cluster, (seed, scenario): (u64, &Scenario), nemesis: &Nemesis) -> Report {
    Report {
        seed,
        scenario: scenario.name,
        ops: 0,
        races: 0,
        restarts: nemesis.kills,
        power_cuts: nemesis.power_cuts,
        crash_points: nemesis.crash_points(),
        swaps: cluster.servers.iter().map(|server| server.swaps()).sum(),
        faults: cluster.sim.faults(),
        on_disk: cluster.is_on_disk(),
        virtual_ms: cluster.sim.now().0 / 1_000_000,
        marks: BTreeMap::new(),
        trace_hash: cluster.sim.trace_hash(),
        failure: None,
    }
}

struct Run<'a> {
    cluster: &'a Cluster,
    scenario: &'a Scenario,
    rng: Rng,
    nodes: Vec<NodeHandle>,
    users: Vec<User>,
    arena: Option<Arena>,
    racers: Vec<Racer>,
    nemesis: Nemesis,
    plan: Rc<Plan>,
    hostile: Option<NodeHandle>,
    restriper: Option<Restriper>,
    fresh: u32,
}

impl<'a> Run<'a> {
    fn start(cluster: &'a Cluster, scenario: &'a Scenario, plan: &Rc<Plan>) -> Run<'a> {
        let mut rng = cluster.sim.rng();
        let nodes: Vec<_> = (0..scenario.clients)
            .map(|index| cluster.client_node(&format!("client{index}"), index))
            .collect();
        for (index, node) in (0..).zip(&nodes) {
            node.skew_clock(CLOCK_STEP_NS * (index - 1));
        }
        let nemesis = Nemesis::new(rng.fork(), scenario, nodes.clone(), plan);
        let (users, racers, plan) = (Vec::new(), Vec::new(), plan.clone());
        Run {
            cluster,
            scenario,
            rng,
            nodes,
            users,
            arena: None,
            racers,
            nemesis,
            plan,
            hostile: None,
            restriper: None,
            fresh: 100,
        }
    }

    fn all(&mut self) -> Result<(), String> {
        self.set_up()?;
        self.work()?;
        self.peace()?;
        self.verify()?;
        if self.scenario.blackout && self.rng.chance(500_000) {
            self.blackout()?;
        }
        self.sweep()
    }

    fn ask<T: 'static>(
        &self,
        node: &NodeHandle,
        what: &str,
        client: &Client,
        work: impl AsyncFnOnce(&Client) -> Result<T, String> + 'static,
    ) -> Result<T, String> {
        ask(self.cluster, node, what, client, work)
    }

    fn set_up(&mut self) -> Result<(), String> {
        let node = self.fresh_node();
        let maker = self.cluster.mount(&node);
        if self.cluster.has_data() {
            self.ask(&node, "set-up", &maker, async |client| begin_at_mdt(client).await)?;
        }
        let count = self.scenario.clients * self.scenario.users;
        let mdts = self.cluster.mdt_count();
        let bases = self.ask(&node, "set-up", &maker, async move |client| {
            make_bases(client, count, mdts).await
        })?;
        if self.scenario.races {
            let arena = self.ask(&node, "set-up", &maker, async |client| {
                races::make_arena(client).await.map_err(|error| error.to_string())
            })?;
            self.arena = Some(arena);
        }
        let own = match self.scenario.hostile {
            true => Some(self.ask(&node, "set-up", &maker, async |client| {
                let made = client.mkdir(&test_ctx(), Fid::ROOT, b"hostile", 0o777).await;
                Ok(made.map_err(|error| error.to_string())?.fid())
            })?),
            false => None,
        };
        self.leave(&node, maker);
        if let Some(own) = own {
            let known: Vec<Fid> = [own, Fid::ROOT].into_iter().chain(bases.clone()).collect();
            let node = self.cluster.client_node("hostile", 201);
            hostile::start(&node, self.cluster.addrs(), &known, &mut self.rng);
            self.hostile = Some(node);
        }
        for (index, client_node) in self.nodes.clone().iter().enumerate() {
            let client = self.cluster.mount(client_node);
            self.put_to_work(index as u32, client_node, &client, &bases);
        }
        if self.scenario.restripes {
            let node = self.fresh_node();
            let client = self.cluster.mount(&node);
            let rng = self.rng.fork();
            self.restriper = Some(Restriper::start(&node, client, bases.clone(), mdts, rng));
        }
        if self.scenario.ghost {
            self.haunt()?;
        }
        Ok(())
    }

    fn put_to_work(&mut self, index: u32, node: &NodeHandle, client: &Client, bases: &[Fid]) {
        let ops =
            u64::from(self.scenario.ops.div_ceil(self.scenario.clients * self.scenario.users));
        let mdts = self.cluster.mdt_count();
        for user in 0..self.scenario.users {
            let number = index * self.scenario.users + user;
            let base = bases[number as usize];
            let name = format!("user {index}.{user}");
            let runner = Runner::new(client.clone(), base).placing(Placing::InTurn(mdts));
            let (rng, what) = (self.rng.fork(), (ops, &self.plan));
            self.users.push(User::start((number, &name), node, runner, rng, what));
        }
        if let Some(arena) = self.arena {
            let from = self.cluster.sim.now();
            self.racers.push(Racer::start(
                node,
                client.clone(),
                arena,
                index,
                self.rng.fork(),
                from,
            ));
        }
    }

    /// A client that opens and locks and is never seen again.
    fn haunt(&mut self) -> Result<(), String> {
        let node = self.cluster.client_node("ghost", 200);
        let client = self.cluster.mount(&node);
        self.ask(&node, "ghost", &client, async |client| {
            haunt(client).await.map_err(|error| error.to_string())
        })?;
        self.cluster.sim.run_for(Span::millis(1_500));
        drop(client);
        node.kill();
        Ok(())
    }

    fn work(&mut self) -> Result<(), String> {
        let until = self.cluster.sim.now() + WORK_MAX;
        loop {
            let pause = self.nemesis.pause();
            self.cluster.sim.run_until(pause, || false);
            self.check_failures()?;
            self.nemesis.act(self.cluster);
            if self.nemesis.is_done() {
                self.users.iter().for_each(User::allow_rest);
            }
            if self.users.iter().all(User::is_idle) && self.nemesis.is_done() {
                return Ok(());
            }
            if self.cluster.sim.now() > until {
                return Err(format!(
                    "still working after {} s; {}",
                    WORK_MAX.0 / 1_000_000_000,
                    self.doing()
                ));
            }
        }
    }

    fn check_failures(&self) -> Result<(), String> {
        let users = self.users.iter().filter_map(User::failure);
        let racers = self.racers.iter().filter_map(Racer::failure);
        let ended = self.cluster.servers.iter().filter_map(|server| {
            let reason = server.failure().filter(|_| self.scenario.hostile)?;
            Some(format!("{} has ended: {reason}", server.target))
        });
        users.chain(racers).chain(ended).next().map_or(Ok(()), Err)
    }

    fn doing(&self) -> String {
        let users = self.users.iter().filter(|user| !user.is_idle()).map(User::doing);
        let racers = self.racers.iter().filter(|racer| !racer.is_idle()).map(Racer::doing);
        users.chain(racers).collect::<Vec<_>>().join("; ")
    }

    fn peace(&mut self) -> Result<(), String> {
        self.nemesis.make_peace(self.cluster);
        self.racers.iter().for_each(Racer::allow_rest);
        self.restriper.iter().for_each(Restriper::allow_rest);
        let until = self.cluster.sim.now() + PEACE_MAX;
        while self.cluster.sim.now() < until {
            let done = self.cluster.sim.run_until(Span::millis(500), || {
                self.users.iter().all(User::is_idle)
                    && self.racers.iter().all(Racer::is_idle)
                    && self.restriper.iter().all(Restriper::is_over)
            });
            self.nemesis.restart_the_failed(self.cluster);
            self.check_failures()?;
            if done {
                return Ok(());
            }
        }
        Err(format!("the faults are over and not everything finishes: {}", self.doing()))
    }

    fn verify(&mut self) -> Result<(), String> {
        let node = self.fresh_node();
        let client = self.cluster.mount(&node);
        for user in &self.users {
            let (base, model) = (user.base, user.mirror.borrow().model.clone());
            let check = async move |client: &Client| verify_tree(client, base, &model).await;
            self.ask(
                &node,
                &format!("tree of {} through a fresh client", user.name),
                &client,
                check,
            )?;
        }
        if let Some(arena) = self.arena {
            let books: Vec<_> = self.racers.iter().map(Racer::book).collect();
            let check = async move |client: &Client| races::check(client, arena, &books).await;
            self.ask(&node, "races", &client, check)?;
        }
        self.leave(&node, client);
        Ok(())
    }

    /// Some more work, then the power goes everywhere.
    fn blackout(&mut self) -> Result<(), String> {
        let node = self.fresh_node();
        let client = self.cluster.mount(&node);
        for node in &self.nodes {
            assert!(
                self.users.iter().any(|user| user.node.nid() == node.nid()),
                "every client has a user"
            );
        }
        self.ask(&node, "sync", &client, async |client| {
            client.sync().await.map_err(|error| error.to_string())
        })?;
        self.leave(&node, client);
        // users' own syncs start their trails: nothing of the work so far may be lost after a
        // second of commits
        self.cluster.sim.run_for(Span::secs(3));
        for user in &self.users {
            user.mirror.borrow_mut().all_is_durable();
            user.work_on(1_000_000);
        }
        self.cluster.sim.run_for(self.rng.span(Span::millis(500), Span::secs(8)));
        self.check_failures()?;
        for node in &self.nodes {
            node.kill_as(true);
        }
        for server in &self.cluster.servers {
            server.kill(true);
            server.power_cut(self.rng.bits());
        }
        self.cluster.boot();
        self.check_blackout()
    }

    fn check_blackout(&mut self) -> Result<(), String> {
        let node = self.fresh_node();
        let client = self.cluster.mount(&node);
        for user in &self.users {
            let (base, trail) = (user.base, blackout::Trail::of(&user.mirror.borrow()));
            let check = async move |client: &Client| blackout::check(client, base, trail).await;
            self.ask(&node, &format!("tree of {} after the blackout", user.name), &client, check)?;
        }
        self.leave(&node, client);
        Ok(())
    }

    fn sweep(&mut self) -> Result<(), String> {
        self.nodes.iter().chain(&self.hostile).for_each(|node| node.kill_as(false));
        sweep(self.cluster, &self.fresh_node())
    }

    fn fresh_node(&mut self) -> NodeHandle {
        self.fresh += 1;
        self.cluster.client_node(&format!("fresh{}", self.fresh), self.fresh)
    }

    fn leave(&self, node: &NodeHandle, client: Client) {
        leave(self.cluster, node, client);
    }
}

/// Runs `work` on a client; it must not take longer than peace does.
pub(crate) fn ask<T: 'static>(
    cluster: &Cluster,
    node: &NodeHandle,
    what: &str,
    client: &Client,
    work: impl AsyncFnOnce(&Client) -> Result<T, String> + 'static,
) -> Result<T, String> {
    let own = client.clone();
    let answer = cluster.sim.block_on_for(node, PEACE_MAX, async move { work(&own).await });
    match answer {
        Some(answer) => answer.map_err(|error| format!("{what}: {error}")),
        None => Err(format!(
            "{what}: not finished after {} s; waits for {:?}",
            PEACE_MAX.0 / 1_000_000_000,
            client.waiting_on()
        )),
    }
}

pub(crate) fn leave(cluster: &Cluster, node: &NodeHandle, client: Client) {
    cluster.sim.block_on_for(node, Span::secs(60), client.unmount());
    node.kill_as(false);
}

/// The records of MDTs fit together, and no operation of several is left. When everything is
/// removed, through a client on `node`, no inode and no object is left anywhere, also of files
/// whose creation was lost with their creator.
pub(crate) fn sweep(cluster: &Cluster, node: &NodeHandle) -> Result<(), String> {
    fsck::at_peace(cluster)?;
    let client = cluster.mount(node);
    ask(cluster, node, "removing everything", &client, async |client| {
        remove_below(client, Fid::ROOT).await.map_err(|error| error.to_string())?;
        client.sync().await.map_err(|error| error.to_string())
    })?;
    let clean = || cluster.objects() == 0 && cluster.inode_count() <= 1;
    if !cluster.sim.run_until(SWEEP_MAX, clean) {
        let inodes: Vec<_> = cluster.inodes().iter().map(Fid::to_string).collect();
        let objects: Vec<_> =
            cluster.servers.iter().flat_map(|server| server.disk.objects()).collect();
        let objects: Vec<_> = objects.iter().take(8).map(Fid::to_string).collect();
        return Err(format!(
            "everything was removed, but inodes {inodes:?} and objects {objects:?} are left"
        ));
    }
    leave(cluster, node, client);
    fsck::at_peace(cluster)
}

/// Directories of users, in turn on all MDTs.
async fn make_bases(client: &Client, count: u32, mdts: u32) -> Result<Vec<Fid>, String> {
    let mut bases = Vec::new();
    for index in 0..count {
        let name = format!("user{index}");
        let at = (Fid::ROOT, name.as_bytes());
        let made = mkdir_at(client, &test_ctx(), at, 0o755, index % mdts).await;
        bases.push(made.map_err(|error| error.to_string())?.fid());
    }
    Ok(bases)
}

/// Files that ask for no layout have their first bytes at the MDT.
async fn begin_at_mdt(client: &Client) -> Result<(), String> {
    let unit = u64::from(layout::STRIPE_SIZE_UNIT);
    let of = |count| Template { stripe_count: count, ..Template::default() };
    let parts = [
        (unit, Wanted::Mdt),
        (4 * unit, Wanted::Striped(of(1))),
        (END_OF_FILE, Wanted::Striped(of(2))),
    ];
    let components = parts.map(|(end, wanted)| TemplateComponent { end, wanted });
    let asked = Asked::Composite(CompositeTemplate { components: components.into() });
    let value = layout::lov::encode_any_dir(&asked).map_err(|error| error.to_string())?;
    let ctx = Ctx::root();
    let set = client.setxattr(&ctx, Fid::ROOT, b"lustre.lov", Bytes::from(value), 0);
    set.await.map_err(|error| error.to_string())
}

async fn haunt(client: &Client) -> Result<(), client::Error> {
    use client::{LockKind, LockMode, LockSpec};
    let ctx = test_ctx();
    let dir = client.mkdir(&ctx, Fid::ROOT, b"ghost", 0o777).await?.fid();
    let (_, open) = client.create(&ctx, dir, b"open", 0o666, 0o2, None).await?;
    open.write(0, Bytes::from(vec![1; 200_000])).await?;
    let (_, orphan) = client.create(&ctx, dir, b"orphan", 0o666, 0o2, None).await?;
    orphan.write(0, Bytes::from(vec![2; 200_000])).await?;
    client.unlink(&ctx, dir, b"orphan").await?;
    client
        .lock(&ctx, open.fid(), LockSpec::whole(LockKind::Flock, LockMode::Exclusive, 1, true))
        .await?;
    std::mem::forget((open, orphan)); // closed by nobody: the machine dies
    Ok(())
}

pub(crate) async fn remove_below(client: &Client, dir: Fid) -> Result<(), client::Error> {
    let ctx = test_ctx();
    for (name, attr) in read_entries(client, &ctx, dir, 1 << 16).await? {
        if attr.is_dir() {
            Box::pin(remove_below(client, attr.fid())).await?;
            client.rmdir(&ctx, dir, &name).await?;
        } else {
            client.unlink(&ctx, dir, &name).await?;
        }
    }
    Ok(())
}

//! Faults that hit the cluster while it works: storms, partitions, resets, kills, power cuts, sick
//! stores.

mod hard;
mod point;
mod room;

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use env_sim::{Cut, Faults, NodeHandle, Rng};
use service::{HeadScope, ServiceSpec, spec};
use types::{Span, TargetKind};

use crate::fixture::Cluster;
use crate::schedule::{DoneAct, Plan};
use crate::server::{CrashPoint, Swap};
use crate::{Scenario, fsck};
use hard::Hard;
use point::{Death, Points};
pub(crate) use room::Fullness;
use room::Room;

/// Longest cut: a client that is away for longer than its lease ([`Scenario::lease`]) and in
/// somebody's way is rightly evicted, and it needs a while to return.
const CUT_MAX: Span = Span::secs(5);
/// Quiet after a cut, so that two in a row are not one long absence.
const QUIET: Span = Span::secs(12);

/// Policies and what is set right after their start: delays that a run has time for, limits that
/// bite.
const SWAPS: &[Swap] = &[
    Swap { policy: "fifo", tunables: &[] },
    Swap { policy: "crrn", tunables: &[("nrs_crrn_quantum", "1")] },
    Swap { policy: "crre", tunables: &[] },
    Swap {
        policy: "orr",
        tunables: &[("nrs_orr_supported", "reads_and_writes"), ("nrs_orr_offset_type", "logical")],
    },
    Swap { policy: "trr", tunables: &[("nrs_trr_quantum", "2")] },
    Swap { policy: "tbf nid", tunables: &[("nrs_tbf_rule", "change default rate=200")] },
    Swap {
        policy: "tbf opcode",
        tunables: &[("nrs_tbf_rule", "start slow opcode={ost_write mds_reint} rate=100 total=1")],
    },
    Swap {
        policy: "delay",
        tunables: &[("nrs_delay_min", "0"), ("nrs_delay_max", "1"), ("nrs_delay_pct", "30")],
    },
];

/// How many swaps in a million change whose heads requests wait in.
const SCOPE_PPM: u32 = 250_000;

/// A server that is down, and when it comes back.
struct Down {
    server: usize,
    at: types::Instant,
    /// Where it dies again.
    again: Option<CrashPoint>,
}

/// Drives the faults of one run.
pub(crate) struct Nemesis {
    rng: Rng,
    scenario: Scenario,
    clients: Vec<NodeHandle>,
    down: Vec<Down>,
    /// Ends of what goes on: a storm, partitions.
    calm_at: Option<types::Instant>,
    heal_at: Option<types::Instant>,
    cut_from: types::Instant,
    /// No server is killed before.
    kill_from: types::Instant,
    hard: Hard,
    points: Points,
    room: Room,
    /// Times that the MDT's disk is still to be full.
    full_left: u32,
    plan: Rc<Plan>,
    /// Acts to repeat, in place of drawn ones.
    repeats: Option<VecDeque<Rc<DoneAct>>>,
    pub(crate) kills: u32,
    pub(crate) power_cuts: u32,
    /// When a server's machine has last lost power.
    power_lost: PowerLost,
}

/// A time that others see change.
pub(crate) type PowerLost = Rc<Cell<types::Instant>>;

impl Nemesis {
    pub(crate) fn new(
        mut rng: Rng,
        scenario: &Scenario,
        clients: Vec<NodeHandle>,
        plan: &Rc<Plan>,
    ) -> Nemesis {
        let (down, calm_at, heal_at) = (Vec::new(), None, None);
        let hard = Hard::new(&mut rng, scenario.hard_faults);
        Nemesis {
            rng,
            scenario: *scenario,
            clients,
            down,
            calm_at,
            heal_at,
            cut_from: types::Instant(0),
            kill_from: types::Instant(0),
            hard,
            points: Points::default(),
            room: Room::default(),
            full_left: scenario.full_mdt,
            plan: plan.clone(),
            repeats: plan.acts_to_repeat(),
            kills: 0,
            power_cuts: 0,
            power_lost: PowerLost::default(),
        }
    }

    /// Whether it has done what it came for.
    pub(crate) fn is_done(&self) -> bool {
        match &self.repeats {
            Some(repeats) => repeats.is_empty(),
            None => {
                self.kills >= self.scenario.restarts && self.hard.left() == 0 && self.full_left == 0
            }
        }
    }

    /// When disks are full.
    pub(crate) fn fullness(&self) -> Rc<Fullness> {
        self.room.told()
    }

    /// When a server's machine has last lost power.
    pub(crate) fn power_lost(&self) -> PowerLost {
        self.power_lost.clone()
    }

    /// Servers that died right after something that they did.
    pub(crate) fn crash_points(&self) -> u32 {
        self.points.reached
    }

    /// Kills no server before `until`.
    pub(crate) fn spare_servers_until(&mut self, until: types::Instant) {
        self.kill_from = until;
    }

    /// Whether something goes on, or is to come, that may cost a client its sessions.
    pub(crate) fn is_hard(&self, cluster: &Cluster) -> bool {
        self.hard.is_on(cluster.sim.now())
    }

    pub(crate) fn is_all_up(&self) -> bool {
        self.down.is_empty() && !self.points.is_armed()
    }

    /// Ends what is done to the network.
    pub(crate) fn calm(&mut self, cluster: &Cluster) {
        cluster.sim.set_faults(Faults::default());
        cluster.sim.heal_all();
        (self.calm_at, self.heal_at) = (None, None);
    }

    /// When it wants to be asked again.
    pub(crate) fn pause(&mut self) -> Span {
        match self.repeats.as_ref().and_then(VecDeque::front) {
            // the next act at its time, the restarts before it near theirs
            Some(_) => Span::millis(20),
            None => self.rng.span(Span::millis(50), Span::millis(700)),
        }
    }

    /// Lets time pass over what goes on, and perhaps begins something.
    pub(crate) fn act(&mut self, cluster: &Cluster) {
        self.end_what_is_over(cluster);
        self.restart_the_failed(cluster);
        fsck::after_recoveries(cluster);
        let due = |act: &mut Rc<DoneAct>| act.at <= cluster.sim.now();
        let Some(repeats) = &mut self.repeats else {
            let before = self.rng.clone();
            if self.begin(cluster) {
                self.plan.began_act(cluster.sim.now(), &before);
            }
            return;
        };
        if let Some(act) = repeats.pop_front_if(due) {
            self.rng = act.rng.clone();
            self.begin(cluster);
        }
    }

    /// Whether something began.
    fn begin(&mut self, cluster: &Cluster) -> bool {
        match self.rng.below(100) {
            0..=11 if self.may_kill(cluster) => self.kill_one(cluster),
            12..=24 if self.scenario.storm != Faults::default() && self.calm_at.is_none() => {
                cluster.sim.set_faults(self.scenario.storm);
                self.calm_at =
                    Some(cluster.sim.now() + self.rng.span(Span::millis(500), Span::secs(6)));
            }
            25..=36
                if self.scenario.partitions
                    && self.heal_at.is_none()
                    && cluster.sim.now() >= self.cut_from =>
            {
                self.cut_off(cluster);
            }
            37..=41 if self.scenario.partitions => self.reset(cluster),
            42..=46 if self.scenario.sick_stores => self.sicken(cluster),
            47..=79 if self.scenario.swaps => self.swap(cluster),
            80..=87 if self.hard.left() > 0 => {
                self.hard.act(&mut self.rng, cluster, (&self.clients, &mut self.room));
            }
            88..=92 if self.full_left > 0 => return self.fill_mdt(cluster),
            93..=96 if cluster.mdt_count() > 1 => self.disturb_mdts(cluster),
            _ => return false,
        }
        true
    }

    /// Links of a client and a server break, or those of two servers in about one of four cases.
    fn reset(&mut self, cluster: &Cluster) {
        let drawn = self.rng.index(self.clients.len() + self.clients.len().div_ceil(3));
        let mut servers: Vec<&NodeHandle> =
            cluster.servers.iter().map(|server| &server.node).collect();
        let server = servers.swap_remove(self.rng.index(servers.len()));
        let other = match self.clients.get(drawn) {
            Some(client) => client,
            None => servers[self.rng.index(servers.len())],
        };
        cluster.sim.narrate(&format!("resets links of {} and {}", other.name(), server.name()));
        cluster.sim.reset_links(other, server);
    }

    /// An MDT has no room for a while.
    fn fill_mdt(&mut self, cluster: &Cluster) -> bool {
        let index = cluster.any_mdt(&mut self.rng);
        let can = cluster.servers[index].has_recovered();
        if can {
            self.full_left -= 1;
            self.room.fill(&mut self.rng, cluster, index);
        }
        can
    }

    /// An MDT stops for a while, or two do not hear of each other.
    fn disturb_mdts(&mut self, cluster: &Cluster) {
        let mut mdts: Vec<&NodeHandle> = cluster.mdts().map(|mdt| &mdt.node).collect();
        let one = mdts.swap_remove(self.rng.index(mdts.len()));
        if self.rng.chance(500_000) {
            let span = self.rng.span(Span::ZERO, CUT_MAX);
            cluster.sim.narrate(&format!("pauses {} for {:.3} s", one.name(), span.as_secs_f64()));
            return one.pause(span);
        }
        let is_quiet = self.heal_at.is_none() && cluster.sim.now() >= self.cut_from;
        let other = mdts[self.rng.index(mdts.len())];
        match self.rng.below(3) {
            0 if is_quiet => self.cut(cluster, one, other, Cut::BothWays),
            1 if is_quiet => self.cut(cluster, one, other, Cut::OneWay),
            _ => cluster.sim.reset_links(one, other),
        }
    }

    fn cut(&mut self, cluster: &Cluster, one: &NodeHandle, other: &NodeHandle, cut: Cut) {
        cluster.sim.narrate(&format!("cuts {} and {}, {cut:?}", one.name(), other.name()));
        cluster.sim.partition(one, other, cut);
        self.heal_at = Some(cluster.sim.now() + self.rng.span(Span::millis(100), CUT_MAX));
    }

    /// Another policy for some service of some server, or heads of another scope; what cannot be
    /// started now is refused, and that is all.
    fn swap(&mut self, cluster: &Cluster) {
        let index = self.rng.index(cluster.servers.len());
        let server = &cluster.servers[index];
        let services: &[&'static ServiceSpec] = match server.target.kind {
            TargetKind::Ost => &[&spec::OST_IO, &spec::OST],
            TargetKind::Mdt => &[&spec::MDT, &spec::MDT_READPAGE, &spec::LDLM_CANCELD],
            _ => &[&spec::MGS],
        };
        let service = *self.rng.pick(services);
        if self.rng.chance(SCOPE_PPM) {
            let scope = *self.rng.pick(&[HeadScope::Service, HeadScope::Cpt, HeadScope::Target]);
            cluster.sim.narrate(&format!(
                "heads of {} in {} are of each {scope:?}",
                service.name, server.target
            ));
            return server.set_head_scope(service, scope);
        }
        let swap = *self.rng.pick(SWAPS);
        cluster
            .sim
            .narrate(&format!("starts {} in {} of {}", swap.policy, service.name, server.target));
        server.swap(service, swap);
    }

    /// Ends everything and starts whoever is down.
    pub(crate) fn make_peace(&mut self, cluster: &Cluster) {
        self.calm(cluster);
        if let Some((victim, death)) = self.points.give_up(cluster) {
            self.kill(cluster, victim, death);
        }
        self.room.end_all(cluster);
        cluster.servers.iter().for_each(|server| {
            server.node.resume();
            server.node.set_lag(Span::ZERO);
            server.cure();
        });
        self.clients.iter().for_each(|client| {
            client.resume();
            client.set_lag(Span::ZERO);
        });
        for down in self.down.drain(..) {
            cluster.servers[down.server].boot();
        }
        self.restart_the_failed(cluster);
    }

    /// A server whose store has failed gets a new process.
    pub(crate) fn restart_the_failed(&self, cluster: &Cluster) {
        for server in &cluster.servers {
            if let Some(reason) = server.take_failure() {
                cluster.sim.narrate(&format!("restarts {}: {reason}", server.target));
                server.kill(false);
                server.boot();
            }
        }
    }

    fn any_server(&mut self, cluster: &Cluster) -> NodeHandle {
        let index = self.rng.index(cluster.servers.len());
        cluster.servers[index].node.clone()
    }

    fn end_what_is_over(&mut self, cluster: &Cluster) {
        self.hard.end_what_is_over(cluster);
        self.room.end_what_is_over(cluster);
        let now = cluster.sim.now();
        if self.calm_at.is_some_and(|at| now >= at) {
            cluster.sim.set_faults(Faults::default());
            self.calm_at = None;
        }
        if self.heal_at.is_some_and(|at| now >= at) {
            cluster.sim.heal_all();
            cluster.sim.narrate("heals all");
            self.heal_at = None;
            self.cut_from = now + QUIET;
        }
        if let Some((victim, death)) = self.points.due(cluster) {
            self.kill(cluster, victim, death);
        }
        let back: Vec<Down> = self.down.extract_if(.., |down| now >= down.at).collect();
        for down in back {
            cluster.servers[down.server].boot();
            if down.again.is_some() && !self.points.is_armed() && self.may_kill(cluster) {
                let death = Death::draw(&mut self.rng, false);
                self.points.arm(&mut self.rng, cluster, down.server, (down.again, death));
            }
        }
    }

    fn may_kill(&self, cluster: &Cluster) -> bool {
        let dying = u32::from(self.points.is_armed());
        self.kills + dying < self.scenario.restarts
            && self.down.len() + (dying as usize) < 2
            && cluster.sim.now() >= self.kill_from
    }

    /// An MDT in a third of the cases: the most is at stake there.
    fn kill_one(&mut self, cluster: &Cluster) {
        let victims: Vec<usize> =
            (0..cluster.servers.len()).filter(|index| !self.is_down(*index)).collect();
        let mut victim = *self.rng.pick(&victims);
        if self.rng.chance(300_000) {
            let is_mdt = |index: &&usize| cluster.servers[**index].target.kind == TargetKind::Mdt;
            let mdts: Vec<usize> = victims.iter().filter(is_mdt).copied().collect();
            victim = match mdts[..] {
                [] => victim,
                [only] => only, // draws nothing
                _ => *self.rng.pick(&mdts),
            };
        }
        let has_points = self.scenario.crash_points && !self.points.is_armed();
        if self.scenario.diaries && self.rng.chance(700_000) {
            let is_ost = |index: &&usize| cluster.servers[**index].target.kind == TargetKind::Ost;
            let osts: Vec<usize> = victims.iter().filter(is_ost).copied().collect();
            victim = if osts.is_empty() { victim } else { *self.rng.pick(&osts) };
        }
        let death = Death::draw(&mut self.rng, has_points);
        if has_points && self.rng.chance(400_000) {
            return self.points.arm(&mut self.rng, cluster, victim, (None, death));
        }
        let server = &cluster.servers[victim];
        if !death.machine
            && self.rng.chance(300_000)
            && let Some(stop) = server.stop()
        {
            // in good order: everything is committed before the process ends
            cluster.sim.block_on_for(&server.node, Span::secs(10), stop);
        }
        self.kill(cluster, victim, death);
    }

    fn kill(&mut self, cluster: &Cluster, victim: usize, death: Death) {
        let server = &cluster.servers[victim];
        // what an OST has in its page cache survives a process
        let machine =
            death.machine || (self.scenario.diaries && server.target.kind == TargetKind::Ost);
        let what = if machine { "machine" } else { "process" };
        cluster.sim.narrate(&format!("kills {} ({what})", server.target));
        server.kill(machine);
        if machine {
            self.power_lost.set(cluster.sim.now());
        }
        if machine && self.scenario.power_cuts {
            server.power_cut(death.cut);
            self.power_cuts += 1;
        }
        self.kills += 1;
        if self.scenario.diaries && self.rng.chance(700_000) {
            let client = self.rng.pick(&self.clients).clone();
            self.hard.keep_away(&mut self.rng, cluster, (&client, &server.node));
        }
        let at = cluster.sim.now() + death.away;
        self.down.push(Down { server: victim, at, again: death.again });
    }

    fn is_down(&self, server: usize) -> bool {
        self.points.is_at(server) || self.down.iter().any(|down| down.server == server)
    }

    fn cut_off(&mut self, cluster: &Cluster) {
        for _ in 0..self.rng.range(1, 3) {
            let client = self.rng.pick(&self.clients).clone();
            let server = self.any_server(cluster);
            cluster.sim.narrate(&format!("cuts {} and {}", client.name(), server.name()));
            match self.rng.below(3) {
                0 => cluster.sim.partition(&client, &server, Cut::OneWay),
                1 => cluster.sim.partition(&server, &client, Cut::OneWay),
                _ => cluster.sim.partition(&client, &server, Cut::BothWays),
            }
        }
        self.heal_at = Some(cluster.sim.now() + self.rng.span(Span::millis(100), CUT_MAX));
    }

    fn sicken(&mut self, cluster: &Cluster) {
        let index = self.rng.index(cluster.servers.len());
        let server = &cluster.servers[index];
        let data = server.data_disk().filter(|_| self.rng.chance(500_000));
        let has_objects = server.target.kind == TargetKind::Ost || data.is_some();
        let disk = data.unwrap_or(&server.disk);
        if has_objects && self.rng.chance(500_000) {
            disk.fail_next_sync();
        } else {
            disk.fail_next_commit();
        }
    }
}

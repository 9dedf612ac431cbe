//! The whole cluster in one world: servers, addresses, clients.

use std::cell::{Cell, OnceCell};
use std::net::Ipv4Addr;
use std::rc::Rc;

use client::{Client, MountConfig};
use device::Model;
use env::Env;
use env_sim::{Cut, NodeHandle, Rng, Sim, SimConfig};
use mdt::GrantMode;
use osd::Table;
use osd::mem::{MemDisk, MemDiskConfig};
use service::spec;
use types::{ClientId, Fid, FsName, Nid, NidAddr, PORT_DEFAULT, Span, TargetId, TargetKind};

use crate::one_core::Meter;
use crate::server::{CPTS_MAX, Plan, RECOVERY_WINDOW, Server, Swap};
use crate::store::{Scratch, Store};
use crate::{Scenario, Script};

/// Tells the chances of devices from others of the same seed.
const DEVICES: u64 = 0xde71_ce00;

/// A cluster on a simulated network.
pub struct Cluster {
    pub sim: Sim,
    pub(crate) servers: Vec<Server>,
    plan: Plan,
    /// Where servers are on `osd-disk`.
    scratch: Option<Scratch>,
}

/// What takes time in a world in which nothing fails.
pub(crate) struct Machine {
    /// What MDTs and OSTs pretend to be on.
    pub(crate) devices: [Option<Model>; 2],
    /// Shortest and longest time of a message on its way.
    pub(crate) delay: (Span, Span),
    /// Shortest and longest time of a poll of any task, of which the world runs one at a time.
    pub(crate) poll: (Span, Span),
    /// Counts the CPU time of MDTs, each of which has one core; none where requests take no time.
    pub(crate) meter: Option<Rc<Meter>>,
}

impl Machine {
    /// As a scenario has it in a seed.
    fn drawn(seed: u64, scenario: &Scenario) -> Machine {
        let SimConfig { delay_min, delay_max, poll_min, poll_max, .. } = SimConfig::default();
        let (delay, poll) = ((delay_min, delay_max), (poll_min, poll_max));
        Machine { devices: devices(seed, scenario), delay, poll, meter: None }
    }
}

fn nid(group: u8, index: u32) -> Nid {
    Nid::tcp(Ipv4Addr::new(10, 0, group, 1 + index as u8))
}

/// What MDTs and OSTs of a world pretend to be on.
fn devices(seed: u64, scenario: &Scenario) -> [Option<Model>; 2] {
    let mut chance = Rng::new(seed ^ DEVICES); // apart from the world's own chances
    let mut draw = || match chance.range(0, 2) {
        0 => None,
        1 => Some(Model::flash()),
        _ => Some(Model::disk()),
    };
    if scenario.devices { [draw(), draw()] } else { [None, None] }
}

impl Cluster {
    /// One MGS, the scenario's MDTs and OSTs, each on a node and a fresh disk of its own; nothing
    /// runs yet.
    #[must_use]
    pub fn new(seed: u64, scenario: &Scenario) -> Cluster {
        Cluster::on(Machine::drawn(seed, scenario), seed, scenario)
    }

    /// The same, where this takes time.
    pub(crate) fn on(machine: Machine, seed: u64, scenario: &Scenario) -> Cluster {
        let config = SimConfig {
            delay_min: machine.delay.0,
            delay_max: machine.delay.1,
            poll_min: machine.poll.0,
            poll_max: machine.poll.1,
            print: scenario.print,
            fail_on_error: !scenario.sick_stores
                && scenario.hard_faults == 0
                && !scenario.hostile
                && scenario.script != Some(Script::Damaged),
            ..SimConfig::default()
        };
        let sim = Sim::new(seed, config);
        let mdts = (0..scenario.mdt_count(seed)).map(TargetId::mdt);
        let osts = (0..scenario.osts).map(TargetId::ost);
        let targets = [TargetId::MGT].into_iter().chain(mdts).chain(osts);
        let addrs: Vec<_> = targets
            .enumerate()
            .map(|(index, target)| {
                (target, NidAddr { nid: nid(0, index as u32), port: PORT_DEFAULT })
            })
            .collect();
        let fsname = "testfs".parse::<FsName>().expect("a good name");
        let plan = Plan {
            fsname,
            addrs: Rc::new(addrs.clone()),
            bugs: scenario.bugs(),
            // apart from the world's own chances
            cpts: Rng::new(seed).range(1, u64::from(CPTS_MAX)) as u32,
            lease: scenario.lease(),
            grants: scenario.grants(seed),
            split: scenario.split(seed),
            has_pools: scenario.script == Some(Script::Layouts),
            devices: machine.devices,
            meter: machine.meter,
            is_sick: scenario.sick_stores || scenario.script == Some(Script::Damaged),
            window: Rc::new(Cell::new(RECOVERY_WINDOW)),
            unheard_of: Rc::default(),
        };
        let scratch = scenario.is_on_disk(seed).then(Scratch::new);
        let server = |(target, addr): (TargetId, NidAddr)| {
            let node = sim.node(&target.to_string(), addr.nid);
            let disk = MemDisk::new(MemDiskConfig {
                commit_max: scenario.commit_max,
                ..MemDiskConfig::default()
            });
            let begins = scenario.begins_at_mdt(seed);
            let data = (begins && target.kind == TargetKind::Mdt).then(|| {
                let disk = MemDisk::new(MemDiskConfig {
                    commit_max: scenario.commit_max,
                    ..MemDiskConfig::default()
                });
                Store::new(disk, TargetId::dom(target.index), scratch.as_ref())
            });
            let store = Store::new(disk, target, scratch.as_ref()).beside(data);
            Server::new(target, node, store, plan.clone())
        };
        let servers = addrs.into_iter().map(server).collect();
        Cluster { sim, servers, plan, scratch }
    }

    /// Whether grants are called back.
    pub(crate) fn calls_back(&self) -> bool {
        self.plan.grants == GrantMode::Recall
    }

    /// Recoveries that begin from now on wait this long without progress.
    pub(crate) fn set_recovery_window(&self, window: Span) {
        self.plan.window.set(window);
    }

    /// Whether its servers are on `osd-disk`.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.scratch.is_some()
    }

    /// Boots every server and waits until the MGS knows all of them.
    pub fn boot(&self) {
        self.servers.iter().for_each(Server::boot);
        if !self.sim.run_until(Span::secs(120), || self.servers.iter().all(Server::is_registered)) {
            self.sim.stuck("a fresh cluster does not come up");
        }
    }

    /// A cluster that runs, with two clients on nodes of their own; nothing else happens there.
    #[must_use]
    pub fn with_two_clients(scenario: &Scenario) -> (Cluster, [(NodeHandle, Client); 2]) {
        let cluster = Cluster::new(1, scenario);
        cluster.boot();
        let clients = [0, 1].map(|index| {
            let node = cluster.client_node(&format!("c{index}"), index);
            let client = cluster.mount(&node);
            (node, client)
        });
        cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
        (cluster, clients)
    }

    /// What a call of one of these clients returns, which it does within a minute.
    ///
    /// # Panics
    /// If it does not, or fails.
    pub fn run<T: 'static>(
        &self,
        (node, client): &(NodeHandle, Client),
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> T {
        let own = client.clone();
        let done = self.sim.block_on_for(node, Span::secs(60), async move { work(&own).await });
        done.expect("it is answered").expect("it is done")
    }

    /// A node for a client.
    #[must_use]
    pub fn client_node(&self, name: &str, index: u32) -> NodeHandle {
        self.sim.node(name, nid(1, index))
    }

    /// How a client of this cluster mounts.
    #[must_use]
    pub fn mount_config(&self, env: &Env, name: &str) -> MountConfig {
        let client = ClientId((u128::from(env.random()) << 64) | u128::from(env.random()));
        let mut config =
            MountConfig::new(vec![self.plan.addr(TargetId::MGT)], self.plan.fsname, client);
        config.endpoint.import.name = name.to_owned();
        (config.bugs, config.grant_bugs) = (self.plan.bugs.client, self.plan.bugs.grants);
        config.endpoint.import.bugs = self.plan.bugs.import;
        config
    }

    /// Mounts on `node` and waits for it, for two minutes at most.
    #[must_use]
    pub fn mount(&self, node: &NodeHandle) -> Client {
        let env = node.env();
        let config = self.mount_config(&env, node.name());
        let mounted = self
            .sim
            .block_on_for(node, Span::secs(120), async move { Client::mount(&env, config).await });
        match mounted {
            Some(Ok(client)) => client,
            Some(Err(error)) => self.sim.stuck(&format!("a client cannot mount: {error}")),
            None => self.sim.stuck("a mount takes longer than two minutes"),
        }
    }

    /// Mounts on `node` while the world goes on; the client is there when it has succeeded.
    pub(crate) fn mount_in_background(&self, node: &NodeHandle) -> Rc<OnceCell<Client>> {
        let (env, slot) = (node.env(), Rc::<OnceCell<Client>>::default());
        let (config, own) = (self.mount_config(&env, node.name()), slot.clone());
        node.env().spawn("mount", async move {
            while own.get().is_none() {
                match Client::mount(&env, config.clone()).await {
                    Ok(client) => drop(own.set(client)),
                    Err(_) => env.sleep(Span::millis(500)).await,
                }
            }
        });
        slot
    }

    /// Cuts `node` off from every server of this kind.
    pub fn cut_off(&self, node: &NodeHandle, kind: TargetKind) {
        for server in self.servers.iter().filter(|server| server.target.kind == kind) {
            self.sim.partition(node, &server.node, Cut::BothWays);
        }
    }

    /// Breaks the links between `node` and every server of this kind.
    pub fn break_links(&self, node: &NodeHandle, kind: TargetKind) {
        for server in self.servers.iter().filter(|server| server.target.kind == kind) {
            self.sim.reset_links(node, &server.node);
        }
    }

    /// Cuts `node` off from the server of one target.
    pub fn cut_off_from(&self, node: &NodeHandle, target: TargetId) {
        for server in self.servers.iter().filter(|server| server.target == target) {
            self.sim.partition(node, &server.node, Cut::BothWays);
        }
    }

    /// Cuts every MDT off from every OST.
    pub fn cut_mdts_off_from_osts(&self) {
        self.mdts().for_each(|mdt| self.cut_off(&mdt.node, TargetKind::Ost));
    }

    /// Starts a policy for the data of every OST, and sets its tunables.
    pub fn schedule_data(
        &self,
        policy: &'static str,
        tunables: &'static [(&'static str, &'static str)],
    ) {
        for server in self.servers.iter().filter(|server| server.target.kind == TargetKind::Ost) {
            server.swap(&spec::OST_IO, Swap { policy, tunables });
        }
    }

    /// The disk of each OST has room for so many bytes of objects from now on.
    pub fn limit_osts(&self, bytes: u64) {
        for server in self.servers.iter().filter(|server| server.target.kind == TargetKind::Ost) {
            server.disk.set_object_bytes(bytes);
        }
    }

    /// The same of one OST.
    ///
    /// # Panics
    /// If there is none of this index.
    pub fn limit_ost(&self, index: u32, bytes: u64) {
        let wanted = TargetId::ost(index);
        let ost = self.servers.iter().find(|server| server.target == wanted);
        ost.expect("a cluster has the OST").disk.set_object_bytes(bytes);
    }

    /// Sets a permanent parameter of the file system.
    ///
    /// # Panics
    /// If the MGS refuses that, or does not answer.
    pub fn set_param(&self, name: &'static str, value: &'static str) {
        let server = &self.servers[self.mdt_index(0)];
        let set = server.set_param(name, value);
        let set = self.sim.block_on_for(&server.node, Span::secs(30), set);
        set.expect("the MGS answers").expect("a good parameter");
    }

    /// The records of an MDT take no more room from now on, or may grow again.
    ///
    /// # Panics
    /// If there is none of this index.
    pub fn fill_mdt(&self, index: u32, is_full: bool) {
        self.servers[self.mdt_index(index)].disk.set_records_full(is_full);
    }

    /// Kills an MDT and starts it again.
    ///
    /// # Panics
    /// If there is none of this index.
    pub fn restart_mdt(&self, index: u32) {
        let mdt = &self.servers[self.mdt_index(index)];
        mdt.kill(false);
        mdt.boot();
    }

    /// Cuts the power of an MDT's machine, which loses a part of what was not synced, chosen by
    /// `seed`, and starts it again.
    ///
    /// # Panics
    /// If there is none of this index.
    pub fn cut_power_of_mdt(&self, index: u32, seed: u64) {
        let mdt = &self.servers[self.mdt_index(index)];
        mdt.kill(true);
        mdt.power_cut(seed);
        self.sim.run_for(Span::millis(500));
        mdt.boot();
    }

    /// Where all targets are.
    pub(crate) fn addrs(&self) -> &[(TargetId, NidAddr)] {
        &self.plan.addrs
    }

    /// Objects on all OSTs, and beside the MDT.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.servers.iter().map(Server::objects).sum()
    }

    /// Whether files begin at the MDTs.
    pub(crate) fn has_data(&self) -> bool {
        self.mdts().any(|mdt| mdt.data_disk().is_some())
    }

    /// MDT `index`, among the servers.
    pub(crate) fn mdt_index(&self, index: u32) -> usize {
        let wanted = TargetId::mdt(index);
        let mdt = self.servers.iter().position(|server| server.target == wanted);
        mdt.expect("a cluster has the MDT")
    }

    /// All MDTs, by index.
    pub(crate) fn mdts(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|server| server.target.kind == TargetKind::Mdt)
    }

    /// Indexes of all MDTs.
    #[must_use]
    pub fn mdt_count(&self) -> u32 {
        self.mdts().count() as u32
    }

    /// Some MDT, among the servers.
    pub(crate) fn any_mdt(&self, rng: &mut Rng) -> usize {
        let index = match self.mdt_count() {
            1 => 0, // draws nothing
            count => rng.index(count as usize) as u32,
        };
        self.mdt_index(index)
    }

    /// How many durable inodes all MDTs have.
    pub(crate) fn inode_count(&self) -> usize {
        let is_fid = |key: &[u8]| Fid::from_key(key).is_some();
        self.mdts().map(|mdt| mdt.disk.count_records(Table::Inodes, is_fid)).sum()
    }

    /// Durable inodes of all MDTs.
    pub(crate) fn inodes(&self) -> Vec<Fid> {
        let records = self.mdts().flat_map(|mdt| mdt.disk.records(Table::Inodes));
        records.filter_map(|(key, _)| Fid::from_key(&key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use oracle::test_ctx;
    use types::Fid;

    use super::*;

    #[test]
    fn a_directory_at_a_new_mdt_waits_until_the_other_mdt_knows_it() {
        let cluster = Cluster::new(1, &Scenario { mdts: (2, 2), ..Scenario::calm() });
        cluster.boot();
        let node = cluster.client_node("c", 0);
        let (client, unheard_of) = (cluster.mount(&node), cluster.plan.unheard_of.clone());
        unheard_of.set(Some(1));
        let env = node.env();
        node.env().spawn("is heard of", async move {
            env.sleep(Span::secs(1)).await;
            unheard_of.set(None);
        });
        let made = cluster.sim.block_on_for(&node, Span::secs(30), async move {
            let spread = layout::dir::Asked { index: 1, count: 1, ..Default::default() };
            client.mkdir_spread(&test_ctx(), Fid::ROOT, b"far", 0o755, Some(&spread)).await
        });
        assert_eq!(made.expect("an answer").expect("a directory").fid().mdt_index(), 1);
    }
}

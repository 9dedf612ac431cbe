//! Faults that may cost a client its sessions and the calls under way on them: long pauses, long
//! cuts between any two nodes, clocks that jump, disks that are full, slow or cannot be read, nodes
//! whose messages are slow.

use env_sim::{Cut, NodeHandle, Rng};
use osd::Table;
use types::{Instant, Span, TargetKind};

use crate::fixture::Cluster;
use crate::server::Server;

use super::room::Room;

/// Pauses and cuts.
const SHORTEST: Span = Span::millis(1);
const LONGEST: Span = Span::secs(300);
/// As often as the shortest can be doubled without being longer than the longest.
const DOUBLINGS: u64 = 18;
const _: () = assert!(SHORTEST.0 << DOUBLINGS <= LONGEST.0);
const _: () = assert!(LONGEST.0 < SHORTEST.0 << (DOUBLINGS + 1));
/// A clock jumps so far at most, forwards or back, in nanoseconds.
const JUMP_NS_MAX: u64 = 100_000_000_000;
/// Servers wait for 12 s or 30 s without progress.
const AWAY: (Span, Span) = (Span::secs(40), Span::secs(90));
/// Each write, read or commit of a slow disk takes up to so much longer.
const DISK_SLOW_MAX: Span = Span::secs(2);
/// Each message of a slow node takes so much longer at most.
const LAG_MAX: Span = Span::secs(2);
/// Disks and nodes are slow for so long at most.
const SLOW_MAX: Span = Span::secs(60);
/// Records are damaged for so long at most.
const DAMAGED_MAX: Span = Span::secs(5);
/// What may be: what makes up files and names.
const DAMAGED: [Table; 5] =
    [Table::Inodes, Table::Dirents, Table::Links, Table::Xattrs, Table::Layouts];
/// Reads in a row that fail.
const READS_MAX: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pause,
    Cut,
    Jump,
    Full,
    Unreadable,
    Damaged,
    SlowDisk,
    Lag,
}

const KINDS: [Kind; 8] = [
    Kind::Pause,
    Kind::Cut,
    Kind::Jump,
    Kind::Full,
    Kind::Unreadable,
    Kind::Damaged,
    Kind::SlowDisk,
    Kind::Lag,
];

/// What goes on, and what is still to come.
pub(super) struct Hard {
    left: u32,
    /// Those that this run has.
    kinds: Vec<Kind>,
    until: Instant,
    cuts: Vec<(Instant, NodeHandle, NodeHandle)>,
    slow: Vec<(Instant, usize)>,
    /// No record is damaged from then on.
    whole_at: Instant,
    lagging: Vec<(Instant, NodeHandle)>,
}

impl Hard {
    pub(super) fn new(rng: &mut Rng, count: u32) -> Hard {
        let mut kinds = KINDS.to_vec();
        if count > 0 {
            kinds.retain(|_| rng.chance(600_000));
        }
        if kinds.is_empty() {
            kinds.push(Kind::Pause);
        }
        let (cuts, slow, lagging) = (Vec::new(), Vec::new(), Vec::new());
        Hard { left: count, kinds, until: Instant(0), cuts, slow, whole_at: Instant(0), lagging }
    }

    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// Whether something is to come or goes on.
    pub(super) fn is_on(&self, now: Instant) -> bool {
        self.left > 0 || now < self.until
    }

    pub(super) fn act(
        &mut self,
        rng: &mut Rng,
        cluster: &Cluster,
        (clients, room): (&[NodeHandle], &mut Room),
    ) {
        self.left -= 1;
        let now = cluster.sim.now();
        let span = log_uniform(rng);
        let nodes: Vec<&NodeHandle> =
            clients.iter().chain(cluster.servers.iter().map(|server| &server.node)).collect();
        let node = *rng.pick(&nodes);
        let kind = *rng.pick(&self.kinds);
        cluster.sim.narrate(&format!(
            "{kind:?} at {} for {:.3} s",
            node.name(),
            span.as_secs_f64()
        ));
        match kind {
            Kind::Pause => {
                node.pause(span);
                self.until = self.until.max(now + span);
            }
            Kind::Cut => {
                let other = *rng.pick(&nodes);
                let cut = if rng.chance(500_000) { Cut::BothWays } else { Cut::OneWay };
                cluster.sim.partition(node, other, cut);
                self.cuts.push((now + span, node.clone(), other.clone()));
                self.until = self.until.max(now + span);
            }
            Kind::Jump => {
                let ns = rng.below(2 * JUMP_NS_MAX) as i64 - JUMP_NS_MAX as i64;
                node.skew_clock(ns);
            }
            Kind::Full => {
                let index = match rng.chance(500_000) {
                    true => cluster.any_mdt(rng),
                    false => any_ost(rng, cluster),
                };
                self.until = self.until.max(room.fill(rng, cluster, index));
            }
            Kind::Unreadable => {
                let index = any_ost(rng, cluster);
                cluster.servers[index].disk.fail_reads(rng.range(1, READS_MAX) as u32);
            }
            Kind::Damaged => {
                damage(rng, cluster);
                self.whole_at = now + rng.span(Span::ZERO, DAMAGED_MAX);
                self.until = self.until.max(self.whole_at);
            }
            Kind::SlowDisk => {
                let (index, end) = (rng.index(cluster.servers.len()), now + span.min(SLOW_MAX));
                cluster.servers[index].disk.set_slow(rng.span(Span::ZERO, DISK_SLOW_MAX));
                self.slow.push((end, index));
                self.until = self.until.max(end);
            }
            Kind::Lag => {
                let end = now + span.min(SLOW_MAX);
                node.set_lag(rng.span(Span::ZERO, LAG_MAX));
                self.lagging.push((end, node.clone()));
                self.until = self.until.max(end);
            }
        }
    }

    /// A client cannot reach a server for longer than a recovery waits for it.
    pub(super) fn keep_away(
        &mut self,
        rng: &mut Rng,
        cluster: &Cluster,
        (client, server): (&NodeHandle, &NodeHandle),
    ) {
        let (span, now) = (rng.span(AWAY.0, AWAY.1), cluster.sim.now());
        cluster.sim.narrate(&format!("keeps {} away from {}", client.name(), server.name()));
        if rng.chance(300_000) {
            client.pause(span);
        } else {
            cluster.sim.partition(client, server, Cut::BothWays);
            self.cuts.push((now + span, client.clone(), server.clone()));
        }
        self.until = self.until.max(now + span);
    }

    pub(super) fn end_what_is_over(&mut self, cluster: &Cluster) {
        let now = cluster.sim.now();
        for (_, one, other) in self.cuts.extract_if(.., |(at, ..)| now >= *at) {
            cluster.sim.heal(&one, &other);
        }
        if now >= self.whole_at {
            cluster.mdts().for_each(|mdt| mdt.disk.mend_records());
        }
        for (_, index) in self.slow.extract_if(.., |(at, _)| now >= *at) {
            cluster.servers[index].disk.set_slow(Span::ZERO);
        }
        for (_, node) in self.lagging.extract_if(.., |(at, _)| now >= *at) {
            node.set_lag(Span::ZERO);
        }
    }
}

/// Some record of the MDT.
fn damage(rng: &mut Rng, cluster: &Cluster) {
    let disk = &cluster.servers[cluster.any_mdt(rng)].disk;
    let table = *rng.pick(&DAMAGED);
    let records = disk.records(table);
    if !records.is_empty() {
        disk.damage_record(table, &rng.pick(&records).0);
    }
}

fn any_ost(rng: &mut Rng, cluster: &Cluster) -> usize {
    let is_ost = |server: &Server| server.target.kind == TargetKind::Ost;
    let osts: Vec<usize> =
        (0..cluster.servers.len()).filter(|index| is_ost(&cluster.servers[*index])).collect();
    *rng.pick(&osts)
}

/// Each length twice as long is as likely as the one before, and the last one reaches to
/// [`LONGEST`].
fn log_uniform(rng: &mut Rng) -> Span {
    let doublings = rng.range(0, DOUBLINGS);
    let twice = Span(SHORTEST.0 << doublings);
    let most = if doublings == DOUBLINGS { LONGEST } else { twice };
    rng.span(Span(twice.0 / 2), most)
}

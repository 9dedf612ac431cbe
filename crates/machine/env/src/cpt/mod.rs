//! CPU partitions (`docs/design/cpt.md`): sets of CPUs to which threads, queues and memory belong.
//!
//! The default number follows the rule of Lustre 2.3, the only one with published measurements
//! behind it. Partitions may be virtual (more of them than CPUs, or with CPUs in common), so that
//! all per-partition code runs on a small machine.
//!
//! Pure: the CPUs and nodes of the machine come in as a [`Topology`].

mod pattern;
mod rotor;
mod topology;

use std::fmt::Write as _;
use std::num::NonZeroU32;

use types::CptIndex;

pub use pattern::{CpuPattern, PatternFault, parse_list};
pub use rotor::{Arrival, Portal, PortalRotor};
pub use topology::{Cpu, DISTANCE_LOCAL, DISTANCE_REMOTE, Topology};

/// Which CPUs each partition has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CptTable {
    partitions: Vec<Partition>,
    distances: Vec<Vec<u32>>,
    /// Partitions by default on this machine.
    estimate: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Partition {
    cpus: Vec<u32>,
    nodes: Vec<u32>,
}

/// How partitions are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CptSettings {
    /// `cpu_npartitions`; 0 leaves it to the pattern or the estimate, 1 turns partitions off.
    pub npartitions: u32,
    /// Lustre's `cpu_pattern`; empty: none.
    pub pattern: String,
    /// `cpu_virtual`: partitions may share CPUs.
    pub is_virtual: bool,
}

/// Partitions that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CptError {
    /// More partitions than CPUs, and they are not virtual.
    #[error(
        "cpu_npartitions={wanted} is more than the {cpus} CPUs here; set cpu_virtual=1 to share CPUs between partitions"
    )]
    TooMany {
        /// Asked for.
        wanted: u32,
        /// CPUs of this machine.
        cpus: u32,
    },
    /// Over the bound of a node.
    #[error("cpu_npartitions={0} is more than {CPTS_MAX}")]
    OverBound(u32),
    /// The pattern cannot be read.
    #[error(transparent)]
    Pattern(#[from] PatternFault),
    /// Both settings, and they disagree.
    #[error(
        "cpu_pattern has {pattern} partitions, cpu_npartitions={wanted}: leave one of them out"
    )]
    Disagree {
        /// In brackets.
        pattern: u32,
        /// Asked for.
        wanted: u32,
    },
    /// A CPU or node that is not there.
    #[error("cpu_pattern: '{0}' of partition {1} is not online here")]
    Offline(u32, u32),
    /// A CPU in two partitions.
    #[error("cpu_pattern: CPU '{0}' is in partitions {1} and {2}; set cpu_virtual=1 to share it")]
    Overlap(u32, u32, u32),
    /// Nothing is left of a partition.
    #[error("cpu_pattern: partition {0} has no CPU")]
    Empty(u32),
    /// A list of partitions names one that does not exist.
    #[error("partition '{wanted}' does not exist: there are {count}")]
    NoSuch {
        /// Named.
        wanted: u32,
        /// How many there are.
        count: u32,
    },
}

/// Partitions of one node at most.
pub const CPTS_MAX: u32 = 256;

/// More partitions than so many times the estimate are worth a warning.
const ESTIMATES_MAX: u32 = 4;

impl CptTable {
    /// `npartitions` over CPUs `0..cpus`, evenly; 0 asks for the default of [`CptTable::estimate`].
    pub fn new(
        cpus: NonZeroU32,
        nodes: NonZeroU32,
        npartitions: u32,
        virtual_cpts: bool,
    ) -> Result<CptTable, CptError> {
        let settings =
            CptSettings { npartitions, pattern: String::new(), is_virtual: virtual_cpts };
        CptTable::build(&Topology::even(cpus, nodes), &settings)
    }

    /// What `settings` mean on this machine.
    pub fn build(machine: &Topology, settings: &CptSettings) -> Result<CptTable, CptError> {
        let pattern: CpuPattern = settings.pattern.parse()?;
        let mut cpus = if !pattern.partitions.is_empty() {
            named(machine, settings, &pattern)?
        } else if pattern.by_node && settings.npartitions == 0 {
            machine.nodes().iter().map(|node| machine.cpus_of(*node)).collect()
        } else {
            even(machine, settings)?
        };
        for (index, cpus) in cpus.iter_mut().enumerate() {
            let mut position = 0;
            cpus.retain(|cpu| {
                let kept =
                    !pattern.without.contains(cpu) && !pattern.without_each.contains(&position);
                position += 1;
                kept
            });
            if cpus.is_empty() {
                return Err(CptError::Empty(number(index)));
            }
        }
        let partitions: Vec<_> = cpus
            .into_iter()
            .map(|cpus| Partition { nodes: machine.nodes_of(&cpus), cpus })
            .collect();
        let distances = partitions
            .iter()
            .map(|from| partitions.iter().map(|to| apart(machine, from, to)).collect())
            .collect();
        let estimate = CptTable::estimate(machine.count(), machine.node_count());
        Ok(CptTable { partitions, distances, estimate })
    }

    /// Default number of partitions: 1 up to 4 CPUs; else the smallest power of two n with
    /// `cpus <= 2 n^2`, made compatible with the NUMA nodes, then lowered until it divides the CPUs
    /// (the rule of Lustre 2.3 to 2.9).
    #[must_use]
    pub fn estimate(cpus: NonZeroU32, nodes: NonZeroU32) -> u32 {
        let (cpus, nodes) = (cpus.get(), nodes.get());
        if cpus <= 4 {
            return 1;
        }
        let mut n = 2;
        while cpus > 2 * n * n {
            n *= 2;
        }
        let mut compatible = nodes;
        if n <= nodes {
            while compatible > n {
                compatible /= 2;
            }
        } else {
            while 2 * compatible <= n {
                compatible *= 2;
            }
        }
        n = compatible.max(1);
        while !cpus.is_multiple_of(n) {
            n -= 1;
        }
        n
    }

    /// How many there are, at least one.
    #[must_use]
    pub fn count(&self) -> NonZeroU32 {
        u32::try_from(self.partitions.len())
            .ok()
            .and_then(NonZeroU32::new)
            .expect("a table has 1 to CPTS_MAX partitions")
    }

    /// Indices from 0 up.
    pub fn all(&self) -> impl Iterator<Item = CptIndex> + use<> {
        (0..self.count().get()).map(CptIndex)
    }

    /// CPUs of a partition.
    #[must_use]
    pub fn cpus(&self, cpt: CptIndex) -> &[u32] {
        &self.partitions[cpt.0 as usize].cpus
    }

    /// NUMA nodes of a partition's CPUs, ascending.
    #[must_use]
    pub fn nodes(&self, cpt: CptIndex) -> &[u32] {
        &self.partitions[cpt.0 as usize].nodes
    }

    /// CPUs of all partitions, ascending.
    #[must_use]
    pub fn all_cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> =
            self.partitions.iter().flat_map(|partition| partition.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// `[1-3]` as partitions that exist here.
    pub fn parse_list(&self, text: &str) -> Result<Vec<CptIndex>, CptError> {
        let count = self.count().get();
        let list = parse_list(text, CPTS_MAX)?;
        match list.iter().find(|cpt| **cpt >= count) {
            Some(wanted) => Err(CptError::NoSuch { wanted: *wanted, count }),
            None => Ok(list.into_iter().map(CptIndex).collect()),
        }
    }

    /// What an administrator should be told: so many partitions cost more than they give.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let (count, estimate) = (self.count().get(), self.estimate);
        let many = count > estimate * ESTIMATES_MAX;
        many.then(|| {
            format!(
                "{count} CPU partitions are many for this machine: {estimate} would be the default"
            )
        })
    }

    /// As `cpu_partition_table` prints it: one line per partition.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        for (index, partition) in self.partitions.iter().enumerate() {
            let cpus: Vec<_> = partition.cpus.iter().map(u32::to_string).collect();
            let _ = writeln!(out, "{index}\t: {}", cpus.join(" "));
        }
        out
    }

    /// As `cpu_partition_distance` prints it: for each partition the others with their distance,
    /// `0:10 1:21`.
    #[must_use]
    pub fn render_distance(&self) -> String {
        let mut out = String::new();
        for (index, row) in self.distances.iter().enumerate() {
            let row: Vec<_> =
                row.iter().enumerate().map(|(to, distance)| format!("{to}:{distance}")).collect();
            let _ = writeln!(out, "{index}\t: {}", row.join(" "));
        }
        out
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("partitions are bounded by CPTS_MAX")
}

/// Evenly shared out; threads of a core, cores of a socket and sockets of a node stay together.
fn even(machine: &Topology, settings: &CptSettings) -> Result<Vec<Vec<u32>>, CptError> {
    let cpus = machine.count().get();
    let count = match settings.npartitions {
        0 => CptTable::estimate(machine.count(), machine.node_count()),
        count => count,
    };
    if count > CPTS_MAX {
        return Err(CptError::OverBound(count));
    }
    if count > cpus && !settings.is_virtual {
        return Err(CptError::TooMany { wanted: count, cpus });
    }
    let ids: Vec<u32> = machine.cpus().iter().map(|cpu| cpu.id).collect();
    let share = |cpt: u32| {
        if count > cpus {
            return vec![ids[(cpt % cpus) as usize]];
        }
        let mut own =
            ids[(cpt * cpus / count) as usize..((cpt + 1) * cpus / count) as usize].to_vec();
        own.sort_unstable();
        own
    };
    Ok((0..count).map(share).collect())
}

/// As the brackets say.
fn named(
    machine: &Topology,
    settings: &CptSettings,
    pattern: &CpuPattern,
) -> Result<Vec<Vec<u32>>, CptError> {
    let count = number(pattern.partitions.len());
    if settings.npartitions != 0 && settings.npartitions != count {
        return Err(CptError::Disagree { pattern: count, wanted: settings.npartitions });
    }
    let mut owners: std::collections::BTreeMap<u32, u32> = std::collections::BTreeMap::new();
    let mut all = Vec::new();
    for (index, list) in pattern.partitions.iter().enumerate() {
        let index = number(index);
        let mut cpus = Vec::new();
        for item in list {
            let found = if pattern.by_node {
                machine.cpus_of(*item)
            } else {
                machine.cpu(*item).map(|cpu| cpu.id).into_iter().collect()
            };
            if found.is_empty() {
                return Err(CptError::Offline(*item, index));
            }
            cpus.extend(found);
        }
        for cpu in &cpus {
            let before = owners.insert(*cpu, index).filter(|owner| *owner != index);
            if let Some(owner) = before.filter(|_| !settings.is_virtual) {
                return Err(CptError::Overlap(*cpu, owner, index));
            }
        }
        cpus.sort_unstable();
        all.push(cpus);
    }
    Ok(all)
}

/// The farthest of their nodes.
fn apart(machine: &Topology, from: &Partition, to: &Partition) -> u32 {
    let pairs = from
        .nodes
        .iter()
        .flat_map(|from| to.nodes.iter().map(move |to| machine.distance(*from, *to)));
    pairs.max().unwrap_or(DISTANCE_LOCAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(value: u32) -> NonZeroU32 {
        NonZeroU32::new(value).expect("not zero")
    }

    /// The machine of the published measurements: 2 sockets of 6 cores with 2 threads, threads of a
    /// core 12 apart.
    fn machine() -> Topology {
        let cpu = |id: u32| Cpu { node: id % 12 / 6, socket: id % 12 / 6, core: id % 12, id };
        Topology::new((0..24).map(cpu).collect(), vec![vec![10, 21], vec![21, 10]]).expect("CPUs")
    }

    fn built(npartitions: u32, pattern: &str) -> Result<CptTable, String> {
        let settings = CptSettings { npartitions, pattern: pattern.into(), is_virtual: false };
        CptTable::build(&machine(), &settings).map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_is_that_of_lustre_2_3() {
        let rows = [
            (4, 1, 1),
            (8, 1, 2),
            (16, 2, 4),
            (24, 2, 4),
            (32, 2, 4),
            (48, 2, 8),
            (64, 2, 8),
            (128, 2, 8),
            (256, 8, 16),
        ];
        for (cpus, nodes, expected) in rows {
            assert_eq!(
                CptTable::estimate(n(cpus), n(nodes)),
                expected,
                "{cpus} CPUs, {nodes} nodes"
            );
        }
    }

    #[test]
    fn partitions_share_out_all_cpus_once() {
        let table = CptTable::new(n(24), n(2), 5, false).expect("fits");
        let mut all: Vec<_> = (0..5).flat_map(|cpt| table.cpus(CptIndex(cpt)).to_vec()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..24).collect::<Vec<_>>());
    }

    #[test]
    fn more_partitions_than_cpus_must_be_virtual() {
        assert!(matches!(CptTable::new(n(2), n(1), 4, false), Err(CptError::TooMany { .. })));
        let table = CptTable::new(n(2), n(1), 4, true).expect("virtual");
        assert_eq!(table.render(), "0\t: 0\n1\t: 1\n2\t: 0\n3\t: 1\n");
    }

    #[test]
    fn threads_of_a_core_stay_together() {
        let table = built(0, "").expect("four by the rule");
        assert_eq!(
            table.render(),
            "0\t: 0 1 2 12 13 14\n1\t: 3 4 5 15 16 17\n2\t: 6 7 8 18 19 20\n3\t: 9 10 11 21 22 23\n"
        );
        assert_eq!(
            table.render_distance(),
            "0\t: 0:10 1:10 2:21 3:21\n1\t: 0:10 1:10 2:21 3:21\n2\t: 0:21 1:21 2:10 3:10\n3\t: 0:21 1:21 2:10 3:10\n"
        );
        assert_eq!(table.warning(), None);
        assert!(built(17, "").expect("fits").warning().is_some_and(|text| text.contains("17")));
        assert_eq!(built(16, "").expect("fits").warning(), None);
    }

    #[test]
    fn each_form_of_a_pattern_means_what_it_says() {
        let lines = |npartitions, pattern: &str| {
            built(npartitions, pattern).expect(pattern).render().replace('\n', "|")
        };
        let nodes = "0\t: 0 1 2 3 4 5 12 13 14 15 16 17|1\t: 6 7 8 9 10 11 18 19 20 21 22 23|";
        assert_eq!(lines(0, "N"), nodes);
        assert_eq!(lines(0, "N 0[0] 1[1]"), nodes);
        assert_eq!(
            lines(0, "N 1[0] 0[1]"),
            "0\t: 6 7 8 9 10 11 18 19 20 21 22 23|1\t: 0 1 2 3 4 5 12 13 14 15 16 17|"
        );
        assert_eq!(lines(3, "N").matches('|').count(), 3);
        assert_eq!(lines(0, "0[0-6/2] 1[23,1]"), "0\t: 0 2 4 6|1\t: 1 23|");
        assert_eq!(lines(2, "0[0] 1[1]"), "0\t: 0|1\t: 1|");
        assert_eq!(lines(1, "X[0-21]"), "0\t: 22 23|");
        assert_eq!(
            lines(0, "X[0,23]").lines().next(),
            Some("0\t: 1 2 12 13 14|1\t: 3 4 5 15 16 17|2\t: 6 7 8 18 19 20|3\t: 9 10 11 21 22|")
        );
        assert_eq!(lines(0, "N X[0]").split('|').next(), Some("0\t: 1 2 3 4 5 12 13 14 15 16 17"));
        assert_eq!(
            lines(0, "C[0-1]"),
            "0\t: 2 12 13 14|1\t: 5 15 16 17|2\t: 8 18 19 20|3\t: 11 21 22 23|"
        );
        assert_eq!(lines(0, "N C[0-1]").split('|').next(), Some("0\t: 2 3 4 5 12 13 14 15 16 17"));
    }

    #[test]
    fn what_a_machine_does_not_have_is_refused() {
        for (npartitions, pattern, part) in [
            (0, "0[0-24]", "'24' of partition 0 is not online"),
            (0, "N 0[0] 1[2]", "'2' of partition 1 is not online"),
            (0, "0[0,1] 1[1]", "CPU '1' is in partitions 0 and 1"),
            (3, "0[0] 1[1]", "cpu_pattern has 2 partitions, cpu_npartitions=3"),
            (0, "N X[0-5,12-17]", "partition 0 has no CPU"),
            (0, "C[0-5]", "partition 0 has no CPU"),
            (25, "", "more than the 24 CPUs"),
            (257, "", "more than 256"),
        ] {
            let error = built(npartitions, pattern).expect_err(pattern);
            assert!(error.contains(part), "{error}");
        }
        let shared =
            CptSettings { npartitions: 0, pattern: "0[0,1] 1[1]".into(), is_virtual: true };
        assert_eq!(CptTable::build(&machine(), &shared).expect("virtual").all_cpus(), [0, 1]);
    }

    #[test]
    fn a_list_names_partitions_that_exist() {
        let table = built(0, "").expect("four");
        assert_eq!(table.parse_list("[1-3]"), Ok(vec![CptIndex(1), CptIndex(2), CptIndex(3)]));
        assert_eq!(table.parse_list("[0,2]"), Ok(vec![CptIndex(0), CptIndex(2)]));
        let error = |text: &str| table.parse_list(text).expect_err(text).to_string();
        assert!(error("[1-4]").contains("'4' does not exist"));
        assert!(error("1").contains("'1'"));
    }
}

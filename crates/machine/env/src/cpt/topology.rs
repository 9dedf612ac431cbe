//! CPUs of a machine and the memory near them, as plain values. `env-os` reads them from the
//! system.

use std::num::NonZeroU32;

/// Distance of a node to itself, as firmware tells it (ACPI SLIT).
pub const DISTANCE_LOCAL: u32 = 10;

/// Distance of two nodes where the system tells none.
pub const DISTANCE_REMOTE: u32 = 20;

/// An online CPU and where it is in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu {
    /// NUMA node; first, so that CPUs sort by what they share.
    pub node: u32,
    /// Number of the socket (physical package).
    pub socket: u32,
    /// Core of the socket; threads of a core share it.
    pub core: u32,
    /// Number of the system.
    pub id: u32,
}

/// What partitions are cut from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
    nodes: Vec<u32>,
    distances: Vec<Vec<u32>>,
}

impl Topology {
    /// Of online CPUs; `distances[a][b]` belongs to the node numbers that occur, in ascending
    /// order. A matrix of another size is replaced by [`DISTANCE_LOCAL`] and [`DISTANCE_REMOTE`].
    /// Nothing where `cpus` is empty.
    #[must_use]
    pub fn new(mut cpus: Vec<Cpu>, distances: Vec<Vec<u32>>) -> Option<Topology> {
        if cpus.is_empty() {
            return None;
        }
        cpus.sort_unstable();
        cpus.dedup_by_key(|cpu| cpu.id);
        let mut nodes: Vec<u32> = cpus.iter().map(|cpu| cpu.node).collect();
        nodes.dedup();
        let fits =
            distances.len() == nodes.len() && distances.iter().all(|row| row.len() == nodes.len());
        let distances = if fits { distances } else { flat(nodes.len()) };
        Some(Topology { cpus, nodes, distances })
    }

    /// CPUs `0..cpus`, one thread a core, in `nodes` equal runs.
    #[must_use]
    pub fn even(cpus: NonZeroU32, nodes: NonZeroU32) -> Topology {
        let (count, nodes) = (cpus.get(), nodes.get().min(cpus.get()));
        let cpus = (0..count)
            .map(|id| Cpu { node: id * nodes / count, socket: 0, core: id, id })
            .collect();
        Topology::new(cpus, Vec::new()).expect("at least one CPU")
    }

    /// CPUs, those next to each other that share most.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// Nodes that have CPUs, ascending.
    #[must_use]
    pub fn nodes(&self) -> &[u32] {
        &self.nodes
    }

    /// Numbers of a node's CPUs, ascending.
    #[must_use]
    pub fn cpus_of(&self, node: u32) -> Vec<u32> {
        let mut cpus: Vec<u32> =
            self.cpus.iter().filter(|cpu| cpu.node == node).map(|cpu| cpu.id).collect();
        cpus.sort_unstable();
        cpus
    }

    /// The CPU of this number, if it is online.
    #[must_use]
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.id == id)
    }

    /// Nodes of these CPUs, ascending.
    #[must_use]
    pub fn nodes_of(&self, cpus: &[u32]) -> Vec<u32> {
        let mut nodes: Vec<u32> =
            cpus.iter().filter_map(|id| self.cpu(*id)).map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Distance of two nodes that have CPUs.
    #[must_use]
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        let at = |node| self.nodes.binary_search(&node).ok();
        match (at(from), at(to)) {
            (Some(from), Some(to)) => self.distances[from][to],
            _ => DISTANCE_REMOTE,
        }
    }

    /// How many CPUs.
    #[must_use]
    pub fn count(&self) -> NonZeroU32 {
        u32::try_from(self.cpus.len()).ok().and_then(NonZeroU32::new).expect("a topology has CPUs")
    }

    /// How many nodes.
    #[must_use]
    pub fn node_count(&self) -> NonZeroU32 {
        u32::try_from(self.nodes.len())
            .ok()
            .and_then(NonZeroU32::new)
            .expect("every CPU has a node")
    }
}

fn flat(nodes: usize) -> Vec<Vec<u32>> {
    let row = |from| {
        (0..nodes).map(|to| if from == to { DISTANCE_LOCAL } else { DISTANCE_REMOTE }).collect()
    };
    (0..nodes).map(row).collect()
}

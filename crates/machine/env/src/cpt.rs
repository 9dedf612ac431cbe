//! CPU partitions: sets of CPUs to which threads, queues and memory belong (spec rpc part 2).
//!
//! The default number follows the 2.3 rule, the only one with published measurements behind it. Partitions may be
//! virtual (more of them than CPUs), so that all per-partition code runs on a small machine.

use std::num::NonZeroU32;

/// Which CPUs each partition has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CptTable {
    partitions: Vec<Vec<u32>>,
}

/// A partition count that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CptError {
    /// More partitions than CPUs, and they are not virtual.
    #[error("cpu_npartitions={wanted} is more than the {cpus} CPUs here; set cpu_virtual=1 to share CPUs between partitions")]
    TooMany {
        /// Asked for.
        wanted: u32,
        /// CPUs of this machine.
        cpus: u32,
    },
    /// Over the bound of a node.
    #[error("cpu_npartitions={0} is more than {CPTS_MAX}")]
    OverBound(u32),
}

/// Partitions of one node at most.
pub const CPTS_MAX: u32 = 256;

impl CptTable {
    /// `npartitions` over CPUs `0..cpus`, evenly; 0 asks for the default of [`CptTable::estimate`].
    pub fn new(cpus: NonZeroU32, nodes: NonZeroU32, npartitions: u32, virtual_cpts: bool) -> Result<CptTable, CptError> {
        let count = if npartitions == 0 { CptTable::estimate(cpus, nodes) } else { npartitions };
        if count > CPTS_MAX {
            return Err(CptError::OverBound(count));
        }
        if count > cpus.get() && !virtual_cpts {
            return Err(CptError::TooMany { wanted: count, cpus: cpus.get() });
        }
        let cpus = cpus.get();
        let partitions = (0..count)
            .map(|cpt| if count > cpus { vec![cpt % cpus] } else { (cpt * cpus / count..(cpt + 1) * cpus / count).collect() })
            .collect();
        Ok(CptTable { partitions })
    }

    /// Default number of partitions: 1 up to 4 CPUs; else the smallest power of two n with `cpus <= 2 n^2`, made
    /// compatible with the NUMA nodes, then lowered until it divides the CPUs (spec rpc 2.2, the 2.3 rule).
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
        u32::try_from(self.partitions.len()).ok().and_then(NonZeroU32::new).expect("a table has 1 to CPTS_MAX partitions")
    }

    /// CPUs of a partition.
    #[must_use]
    pub fn cpus(&self, cpt: types::CptIndex) -> &[u32] {
        &self.partitions[cpt.0 as usize]
    }

    /// As `cpu_partition_table` prints it: one line per partition.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        for (index, cpus) in self.partitions.iter().enumerate() {
            let cpus: Vec<_> = cpus.iter().map(u32::to_string).collect();
            out.push_str(&format!("{index}\t: {}\n", cpus.join(" ")));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(value: u32) -> NonZeroU32 {
        NonZeroU32::new(value).expect("not zero")
    }

    #[test]
    fn the_default_follows_the_table_of_the_specification() {
        let rows = [(4, 1, 1), (8, 1, 2), (16, 2, 4), (24, 2, 4), (32, 2, 4), (48, 2, 8), (64, 2, 8), (128, 2, 8), (256, 8, 16)];
        for (cpus, nodes, expected) in rows {
            assert_eq!(CptTable::estimate(n(cpus), n(nodes)), expected, "{cpus} CPUs, {nodes} nodes");
        }
    }

    #[test]
    fn partitions_share_out_all_cpus_once() {
        let table = CptTable::new(n(24), n(2), 5, false).expect("fits");
        let mut all: Vec<_> = (0..5).flat_map(|cpt| table.cpus(types::CptIndex(cpt)).to_vec()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..24).collect::<Vec<_>>());
    }

    #[test]
    fn more_partitions_than_cpus_must_be_virtual() {
        assert!(matches!(CptTable::new(n(2), n(1), 4, false), Err(CptError::TooMany { .. })));
        let table = CptTable::new(n(2), n(1), 4, true).expect("virtual");
        assert_eq!(table.render(), "0\t: 0\n1\t: 1\n2\t: 0\n3\t: 1\n");
    }
}

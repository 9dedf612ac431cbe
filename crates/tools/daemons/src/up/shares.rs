//! The executors of an `up` in one process: which targets each serves, and where. Pure.
//!
//! The first one has the MGT and the address of the MGS. Another one has the address that its first
//! target has with `--separate`, so each executor is a node with a NID of its own.

use types::{NidAddr, TargetId};

use super::address::Block;
use crate::executors::{fitting, in_turn};
use crate::targets::TargetDir;

/// What one executor serves.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) at: NidAddr,
    pub(super) targets: Vec<TargetDir>,
}

impl Share {
    pub(super) fn has(&self, target: TargetId) -> bool {
        self.targets.iter().any(|found| found.superblock.target == target)
    }
}

/// Of `wanted` executors, those that have something to serve.
pub(super) fn shares(targets: &[TargetDir], wanted: u32, block: &Block) -> Vec<Share> {
    let ids: Vec<TargetId> = targets.iter().map(|found| found.superblock.target).collect();
    let share = |(index, ids): (usize, Vec<TargetId>)| {
        let own = targets.iter().filter(|found| ids.contains(&found.superblock.target));
        let first = ids.first().filter(|_| index > 0);
        let at = first.map_or(block.mgs(), |first| block.of(*first));
        Share { at, targets: own.cloned().collect() }
    };
    in_turn(&ids, fitting(&ids, wanted)).into_iter().enumerate().map(share).collect()
}

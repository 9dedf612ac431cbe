//! The workers: each remembers its answers and knows the files that must be there at the end.

mod append;
mod blocks;
mod counter;
mod ledger;
mod names;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::chance::Chance;
use super::found::Found;
use super::life::{Life, Over};
use super::machines::Machines;
use super::times::{MDS, MOUNTS, Nodes, OSTS, ost};

/// One thread's work.
pub(super) trait Worker: Send {
    /// Its mount, and the servers that its calls need.
    fn place(&self) -> (usize, Nodes);

    /// Works while the life goes on, then makes durable what it has.
    fn live(&mut self, life: &Life<'_>) -> Result<(), Over>;

    /// Compares what is there now, below `fresh`, with what it was told.
    fn verify(&self, fresh: &Path, found: &Found);
}

pub(super) type Crew = Vec<Box<dyn Worker>>;

/// An application's pace.
const PACE_MS: (u64, u64) = (5, 30);

fn pause(chance: &mut Chance) {
    std::thread::sleep(Duration::from_millis(chance.between(PACE_MS.0, PACE_MS.1)));
}

fn with_ost(index: usize) -> Nodes {
    Nodes::of(&[MDS, ost(index)])
}

fn all_servers() -> Nodes {
    (0..OSTS).fold(Nodes::of(&[MDS]), |nodes, index| nodes.with(ost(index)))
}

/// Makes their directories too.
pub(super) fn crew(machines: &Machines, seed: u64) -> Crew {
    let mut chance = Chance::new(seed ^ 0x5eed);
    for (dir, place) in [
        ("private", Some(0)),
        ("shared", Some(1)),
        ("counter", Some(2)),
        ("names", Some(3)),
        ("spread", None),
        ("blocks", None),
    ] {
        machines.make_dir(dir, place);
    }
    let (shared, spread, counter) = (Arc::default(), Arc::default(), Arc::default());
    let mut crew: Crew = Vec::new();
    for index in 0..MOUNTS {
        let mut next = || Chance::new(chance.next());
        crew.push(Box::new(append::Append::private(index, next())));
        crew.push(Box::new(append::Append::shared(index, Arc::clone(&shared), next())));
        crew.push(Box::new(append::Append::spread(index, Arc::clone(&spread), next())));
        crew.push(Box::new(names::Names::new(index, next())));
        crew.push(Box::new(blocks::Blocks::new(index, next())));
        crew.push(Box::new(counter::Counter::new(index, Arc::clone(&counter), next())));
    }
    crew
}

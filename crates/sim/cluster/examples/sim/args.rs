//! The command line.

use std::ops::Range;
use std::time::Duration;

use clap::Parser;
use cluster::{Numbers, Ops, PLANTED, Planted, Scenario, Schedule, Slice, Stores};

const AFTER: &str = "\
Examples:
  sim --seed 17 --log info                one seed, told step by step
  sim --scenario kills --seeds 1..201     many, over all cores
  sim --suite --drawn 100 --from HASH     what CI runs
  sim --slice 3/20 --seeds 0..10000       a twentieth of them, over all scenarios, recorded
  sim --scenario matrix --pairs 0..500    each pair of deaths in 500 rows; all rows take hours
  sim --seed 17 --shrink                  what a failing seed needs to fail
  sim --bugs                              each planted bug must be found
  sim --rates                             four MDTs beside one, components beside one striping
  sim --bug mdt.skip_reply_record --seeds 1..40

Exit codes: 0 all seeds passed (with --bugs: all bugs were found); 1 a seed failed, a bug was not
found, or a kind of fault or a rare branch never occurred; 2 the command line is wrong; 3 the
simulator itself failed.";

/// Runs whole simulated clusters from seeds and compares every answer with a reference file system.
#[derive(Parser)]
#[command(name = "sim", after_help = AFTER, disable_version_flag = true)]
pub(crate) struct Args {
    /// One seed.
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub(crate) seed: Option<u64>,
    /// Seeds from A to B - 1; 0..10 without any.
    #[arg(long, value_name = "A..B", value_parser = range)]
    pub(crate) seeds: Option<Range<u64>>,
    #[arg(long, value_name = "NAME", default_value = "storm", value_parser = scenario)]
    #[arg(help = format!("What happens in a run: one of {}", Scenario::NAMES.join(", ")))]
    pub(crate) scenario: Scenario,
    /// Run with a planted bug, in the scenario in which it must be found.
    #[arg(long, value_name = "NAME", conflicts_with = "scenario", value_parser = planted)]
    pub(crate) bug: Option<&'static Planted>,
    /// Try every planted bug: some seed must fail with it and pass without it.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "bug", "suite"])]
    pub(crate) bugs: bool,
    /// With --bugs: try all seeds from 1 on, and keep those that find a bug, to be tried first.
    #[arg(long, requires = "bugs")]
    pub(crate) record: bool,
    /// Print the names of all planted bugs and of all rare branches.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "bug", "suite", "bugs"])]
    pub(crate) names: bool,
    /// Run the fixed seeds of every scenario; together they must reach every rare branch.
    #[arg(long, conflicts_with_all = ["seed", "seeds", "bug"])]
    pub(crate) suite: bool,
    /// With --suite: run so many more seeds of storm and of kernel, drawn from the text of --from,
    /// and a quarter of them also in matrix.
    #[arg(long, value_name = "COUNT", requires_all = ["suite", "from"], default_value_t = 0)]
    pub(crate) drawn: u32,
    /// The K-th of N equal parts of --seeds, whose seeds go through all scenarios in turn. Only
    /// failures are printed as they come; totals and failures are kept in target/sim/K-of-N.txt.
    #[arg(long, value_name = "K/N", requires = "seeds")]
    #[arg(conflicts_with_all = ["scenario", "bug", "suite", "bugs"])]
    pub(crate) slice: Option<Slice>,
    /// An MDT dies at every point of every operation of several MDTs, and again at every point of
    /// the recovery. Rows A to B - 1 of all of these; all rows without any.
    #[arg(long, value_name = "A..B", num_args = 0..=1, value_parser = rows)]
    #[arg(conflicts_with_all = ["seed", "seeds", "bug", "bugs", "names", "suite", "slice"])]
    pub(crate) pairs: Option<Option<Range<u64>>>,
    /// Measure rates in virtual time: four MDTs beside one, and streams into files of several
    /// components beside files of one striping. With --seed in another world.
    #[arg(long)]
    #[arg(conflicts_with_all = ["seeds", "bug", "bugs", "names", "suite", "slice", "pairs"])]
    pub(crate) rates: bool,
    /// Text from which seeds are drawn; CI gives the hash of the tree that is checked.
    #[arg(long, value_name = "TEXT")]
    pub(crate) from: Option<String>,
    /// Find a small part of the operations and faults of --seed with which it still fails.
    #[arg(long, requires = "seed", conflicts_with_all = ["suite", "bugs", "keep_ops"])]
    pub(crate) shrink: bool,
    /// With --shrink: look for so many seconds.
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    secs: u64,
    /// Repeat these operations of --seed alone: 0:1-4,9;2:7 are five of user 0 and one of user 2.
    #[arg(long, value_name = "OPS", requires_all = ["seed", "keep_faults"])]
    keep_ops: Option<Ops>,
    /// Repeat these faults of --seed alone: 1-4,9.
    #[arg(long, value_name = "FAULTS", requires_all = ["seed", "keep_ops"])]
    keep_faults: Option<Numbers>,
    /// Servers are on osd-disk in every seed, not in one of eight.
    #[arg(long)]
    on_disk: bool,
    /// Operations of a run, in place of the scenario's own number.
    #[arg(long, value_name = "N")]
    pub(crate) ops: Option<u32>,
    /// Print events up to this level: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<tracing::Level>,
    /// Seeds that run at the same time; as many as there are cores without any.
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
}

impl Args {
    /// The run that is asked for, apart from its seed.
    pub(crate) fn scenario(&self) -> Scenario {
        self.adjust(self.bug.map_or(self.scenario, Planted::scenario))
    }

    /// `scenario` with what the command line sets in every run.
    pub(crate) fn adjust(&self, mut scenario: Scenario) -> Scenario {
        scenario.ops = self.ops.unwrap_or(scenario.ops);
        scenario.print = self.log;
        if self.on_disk {
            scenario.stores = Stores::Disk;
        }
        scenario
    }

    pub(crate) fn kept(&self) -> Option<Schedule> {
        let (ops, faults) = (self.keep_ops.clone()?, self.keep_faults.clone()?);
        Some(Schedule { ops, faults })
    }

    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.secs)
    }

    pub(crate) fn seeds(&self) -> Range<u64> {
        match self.seed {
            Some(seed) => seed..seed + 1,
            None => self.seeds.clone().unwrap_or(0..10),
        }
    }

    /// One at a time where events are printed: they would mix.
    pub(crate) fn jobs(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if self.log.is_some() { 1 } else { self.jobs.unwrap_or(cores).max(1) }
    }
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    ends.filter(|range: &Range<u64>| !range.is_empty())
        .ok_or_else(|| "a range is A..B, with A below B".to_owned())
}

fn rows(text: &str) -> Result<Range<u64>, String> {
    let (rows, all) = (range(text)?, cluster::pair_rows());
    if rows.end <= all { Ok(rows) } else { Err(format!("there are rows 0 to {}", all - 1)) }
}

fn scenario(name: &str) -> Result<Scenario, String> {
    Scenario::by_name(name).ok_or_else(|| "there is no such scenario".to_owned())
}

fn planted(name: &str) -> Result<&'static Planted, String> {
    let known = PLANTED.iter().find(|planted| planted.name == name);
    known.ok_or_else(|| "there is no such bug; --names prints them".to_owned())
}

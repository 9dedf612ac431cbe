//! The definition of a run: its work, its faults, its outcome.

use std::collections::BTreeMap;

use env_sim::{FaultCounts, Faults};
use mdt::GrantMode;
use types::{Span, SplitMix64};

use crate::planted::Bugs;
use crate::server::RECOVERY_WINDOW;

/// What happens in a run that aims at one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// One modifies on top of another's uncommitted change; the other one dies together with the
    /// MDT.
    Share,
    /// One still writes when the file and its objects were removed.
    Late,
    /// The answer to a durable change is lost with its MDT.
    Resend,
    /// Clients die, and then the servers do, again and again.
    Dead,
    /// An OST loses objects of files that were closed and not synced, whose writer is dead.
    Lost,
    /// An evicted client has to hear what of its work is lost.
    Told,
    /// Callers are killed whose writes an OST has not begun, or has.
    Killed,
    /// Several look and change at once.
    Leases,
    /// A client vanishes in the middle of an append, and its write comes late.
    Fence,
    /// Records of an MDT are damaged.
    Damaged,
    /// Programs work on several mounts, each through its kernel's memory.
    Kernel,
    /// Components are taken from a file that others have open.
    Layouts,
    /// Two clients cut a file at the same moment.
    Cuts,
    /// A file moves into other objects while others use it.
    Migrations,
    /// A small file is overwritten while others have bytes of it that came with their opens.
    OnOpen,
    /// A client keeps its writes to a file for a while, and others look at it.
    Kept,
    /// A file is overwritten while kernels keep its pages.
    Pages,
    /// An MDT dies at every point of an operation of several MDTs.
    Matrix,
    /// An MDT dies at every point, and again at every point of the recovery.
    Pairs,
}

/// Where servers keep what they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    Memory,
    /// On `osd-disk` in one of eight seeds.
    Drawn,
    /// On `osd-disk`.
    Disk,
}

/// How MDTs keep what clients cache coherent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// Grants end by time.
    Timed,
    /// In half of the seeds they are called back.
    Drawn,
    /// They are called back.
    Recall,
}

/// Of so many seeds one has its servers on `osd-disk` where that is drawn.
const DISK_ONE_OF: u64 = 8;

/// In one of so many seeds of a scenario that draws them, grants are called back.
const RECALL_ONE_OF: u64 = 2;
/// Apart from the world's own chances.
const GRANTS_SALT: u64 = 0x6772_616e_7473_2121;
const MDTS_SALT: u64 = 0x6d64_7473_6d64_7473;
const WINDOW_SALT: u64 = 0x7769_6e64_6f77_2121;
/// Apart from other chances of a seed.
const DISK_SALT: u64 = 0x6f73_642d_6469_736b;

/// The first seed of [`Scenario::has_all_layouts`].
pub(crate) const ALL_LAYOUTS_FROM: u64 = 1_000;

/// The recovery window of daemons.
const WINDOW_OF_DAEMONS: Span = Span::secs(12);

#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name, for the line that replays it.
    pub name: &'static str,
    pub clients: u32,
    /// Sequential users per client, each in a directory of its own.
    pub users: u32,
    /// Operations of all users together, at least.
    pub ops: u32,
    pub osts: u32,
    /// MDTs: at least and at most, as the seed says.
    pub mdts: (u32, u32),
    /// Names of directories move to other MDTs and back.
    pub restripes: bool,
    /// Restarts of random servers.
    pub restarts: u32,
    /// Faults of the network during its bad times.
    pub storm: Faults,
    /// Cut clients off from servers for a while.
    pub partitions: bool,
    /// Cut the power of a machine whose server is killed, every other time.
    pub power_cuts: bool,
    /// Servers die right after the n-th message, applied set or commit, not only between.
    pub crash_points: bool,
    /// One more client that opens and locks files and never returns.
    pub ghost: bool,
    /// Races in a shared directory.
    pub races: bool,
    /// In the end everything loses its power at once.
    pub blackout: bool,
    /// Longest commit or sync of a disk: long ones are more often cut in the middle.
    pub commit_max: Span,
    /// The MDT has a data target beside it, for objects with an inode.
    pub dom: bool,
    /// Targets pretend to be on flash or disks, as the seed says.
    pub devices: bool,
    /// Commits and syncs of stores fail now and then.
    pub sick_stores: bool,
    /// Policies of the servers' schedulers are swapped all the time.
    pub swaps: bool,
    /// Users on common files, in place of those in directories of their own and of races.
    pub shared: bool,
    /// Clients that die at work, at most.
    pub client_kills: u32,
    /// Faults that may cost a client its sessions (module `nemesis`), at most.
    pub hard_faults: u32,
    /// A client that sends what no client may.
    pub hostile: bool,
    /// Users keep diaries: acknowledged work may be lost, and is told.
    pub diaries: bool,
    /// Times that the MDT has no room for more records, at most.
    pub full_mdt: u32,
    pub stores: Stores,
    pub granted: Granted,
    /// Instead of users, races and the nemesis.
    pub script: Option<Script>,
    /// The planted bug that is on.
    pub bug: Option<&'static str>,
    /// Prints events up to this level.
    pub print: Option<tracing::Level>,
}

impl Scenario {
    /// No faults at all: client and servers against the model.
    #[must_use]
    pub fn calm() -> Scenario {
        Scenario {
            name: "calm",
            clients: 2,
            users: 2,
            ops: 1_000,
            osts: 4,
            mdts: (1, 1),
            restripes: false,
            restarts: 0,
            storm: Faults::default(),
            partitions: false,
            power_cuts: false,
            crash_points: false,
            ghost: false,
            races: true,
            blackout: false,
            commit_max: Span::millis(20),
            dom: false,
            devices: false,
            sick_stores: false,
            swaps: false,
            shared: false,
            client_kills: 0,
            hard_faults: 0,
            hostile: false,
            diaries: false,
            full_mdt: 0,
            stores: Stores::Memory,
            granted: Granted::Timed,
            script: None,
            bug: None,
            print: None,
        }
    }

    /// Everything that may happen to a cluster.
    #[must_use]
    pub fn storm() -> Scenario {
        Scenario {
            name: "storm",
            clients: 3,
            users: 2,
            ops: 2_000,
            restarts: 5,
            storm: Faults::stormy(),
            partitions: true,
            power_cuts: true,
            crash_points: true,
            ghost: true,
            blackout: true,
            stores: Stores::Drawn,
            granted: Granted::Drawn,
            ..Scenario::calm()
        }
    }

    /// Servers are killed on a healthy network.
    #[must_use]
    pub fn kills() -> Scenario {
        Scenario {
            name: "kills",
            stores: Stores::Drawn,
            granted: Granted::Drawn,
            restarts: 8,
            power_cuts: true,
            crash_points: true,
            clients: 3,
            ..Scenario::calm()
        }
    }

    /// Stores fail under the servers.
    #[must_use]
    pub fn sick() -> Scenario {
        Scenario {
            name: "sick",
            stores: Stores::Drawn,
            granted: Granted::Drawn,
            sick_stores: true,
            crash_points: true,
            restarts: 6,
            clients: 3,
            blackout: true,
            ..Scenario::calm()
        }
    }

    /// Everything of [`Scenario::storm`] while schedulers change their policies.
    #[must_use]
    pub fn swaps() -> Scenario {
        Scenario { name: "swaps", swaps: true, ..Scenario::storm() }
    }

    /// Servers and power are lost while disks are slow.
    #[must_use]
    pub fn slow() -> Scenario {
        let commit_max = Span::millis(600);
        Scenario { name: "slow", commit_max, devices: true, ..Scenario::kills() }
    }

    /// Everything of [`Scenario::storm`], and files begin at the MDT if nothing else is said.
    #[must_use]
    pub fn dom() -> Scenario {
        Scenario { name: "dom", dom: true, ..Scenario::storm() }
    }

    /// Clients that build on each other's uncommitted changes, and die.
    #[must_use]
    pub fn share() -> Scenario {
        Scenario { name: "share", script: Some(Script::Share), ..Scenario::calm() }
    }

    /// Writes that come after the end of their file.
    #[must_use]
    pub fn late() -> Scenario {
        Scenario { name: "late", script: Some(Script::Late), ..Scenario::calm() }
    }

    /// Answers that are lost when their changes are durable.
    #[must_use]
    pub fn resend() -> Scenario {
        Scenario { name: "resend", script: Some(Script::Resend), ..Scenario::calm() }
    }

    /// Restarts with clients that are dead.
    #[must_use]
    pub fn dead() -> Scenario {
        Scenario { name: "dead", script: Some(Script::Dead), ..Scenario::calm() }
    }

    /// Objects that do not come back.
    #[must_use]
    pub fn lost() -> Scenario {
        Scenario { name: "lost", script: Some(Script::Lost), ..Scenario::calm() }
    }

    /// Evictions that lose acknowledged work.
    #[must_use]
    pub fn told() -> Scenario {
        Scenario { name: "told", script: Some(Script::Told), ..Scenario::calm() }
    }

    /// Writes whose callers are killed.
    #[must_use]
    pub fn killed() -> Scenario {
        Scenario { name: "killed", script: Some(Script::Killed), ..Scenario::calm() }
    }

    /// Components that go while others use them.
    #[must_use]
    pub fn layouts() -> Scenario {
        let script = Some(Script::Layouts);
        Scenario { name: "layouts", script, dom: true, ..Scenario::calm() }
    }

    /// Two clients that cut a file at the same moment.
    #[must_use]
    pub fn cuts() -> Scenario {
        let script = Some(Script::Cuts);
        let (dom, granted) = (true, Granted::Drawn);
        Scenario { name: "cuts", script, dom, granted, ..Scenario::calm() }
    }

    /// A file that moves into other objects while others use it.
    #[must_use]
    pub fn migrations() -> Scenario {
        let script = Some(Script::Migrations);
        Scenario { name: "migrations", script, ..Scenario::calm() }
    }

    /// Bytes that came with an open, of a file that is overwritten.
    #[must_use]
    pub fn on_open() -> Scenario {
        let script = Some(Script::OnOpen);
        let (dom, granted) = (true, Granted::Recall);
        Scenario { name: "on_open", script, dom, granted, ..Scenario::calm() }
    }

    /// Writes that are acknowledged before they are sent, of a file that others look at.
    #[must_use]
    pub fn kept() -> Scenario {
        let script = Some(Script::Kept);
        Scenario { name: "kept", script, granted: Granted::Recall, ..Scenario::calm() }
    }

    /// Pages that kernels keep, of a file that is overwritten.
    #[must_use]
    pub fn pages() -> Scenario {
        let script = Some(Script::Pages);
        Scenario { name: "pages", script, granted: Granted::Recall, ..Scenario::calm() }
    }

    /// Clients that believe for a moment what others change.
    #[must_use]
    pub fn leases() -> Scenario {
        let script = Some(Script::Leases);
        Scenario { name: "leases", script, granted: Granted::Drawn, ..Scenario::calm() }
    }

    /// Several users on common files, under all faults that leave a living client unharmed.
    #[must_use]
    pub fn shared() -> Scenario {
        Scenario {
            name: "shared",
            shared: true,
            client_kills: 3,
            full_mdt: 3,
            ops: 900,
            restarts: 3,
            ghost: false,
            races: false,
            blackout: false,
            ..Scenario::storm()
        }
    }

    /// The same as [`Scenario::shared`] over several MDTs, each with directories of its own.
    #[must_use]
    pub fn mdts() -> Scenario {
        Scenario { name: "mdts", mdts: (2, 4), ..Scenario::shared() }
    }

    /// The same as [`Scenario::storm`] over several MDTs: trees of users are spread over them.
    /// Without a blackout, because each MDT has a history of its own: all of them together may come
    /// back to a state that never was.
    #[must_use]
    pub fn forest() -> Scenario {
        Scenario { name: "forest", mdts: (2, 4), blackout: false, ..Scenario::storm() }
    }

    /// The same as [`Scenario::mdts`], while the names of the shared directories move.
    #[must_use]
    pub fn moves() -> Scenario {
        Scenario { name: "moves", restripes: true, ..Scenario::mdts() }
    }

    /// The same as [`Scenario::forest`], while the names of the users' directories move.
    #[must_use]
    pub fn splits() -> Scenario {
        Scenario { name: "splits", restripes: true, ..Scenario::forest() }
    }

    /// MDTs that die at every point of operations of several MDTs.
    #[must_use]
    pub fn matrix() -> Scenario {
        let script = Some(Script::Matrix);
        Scenario { name: "matrix", script, mdts: (3, 3), osts: 1, ..Scenario::calm() }
    }

    /// The same as [`Scenario::matrix`] for every pair of points. A seed is a row of
    /// [`crate::pair_rows`]. All rows take hours, so the scenario is not in [`Scenario::NAMES`].
    #[must_use]
    pub fn pairs() -> Scenario {
        Scenario { name: "pairs", script: Some(Script::Pairs), ..Scenario::matrix() }
    }

    /// Writes of a client that was given up.
    #[must_use]
    pub fn fence() -> Scenario {
        Scenario { name: "fence", script: Some(Script::Fence), ..Scenario::calm() }
    }

    /// Honest clients beside one that sends what no client may, while servers restart.
    #[must_use]
    pub fn hostile() -> Scenario {
        Scenario {
            name: "hostile",
            hostile: true,
            ops: 600,
            restarts: 2,
            power_cuts: true,
            ..Scenario::calm()
        }
    }

    /// Records that are not what was stored.
    #[must_use]
    pub fn damaged() -> Scenario {
        Scenario { name: "damaged", script: Some(Script::Damaged), ..Scenario::calm() }
    }

    /// Programs on several mounts, each with a kernel that believes what it is told for a while.
    #[must_use]
    pub fn kernel() -> Scenario {
        let script = Some(Script::Kernel);
        Scenario { name: "kernel", script, granted: Granted::Drawn, ..Scenario::calm() }
    }

    /// The same as [`Scenario::shared`] under faults that may cost a client its sessions: its calls
    /// may fail then, and what they did is not known; every call that succeeds is still explained.
    #[must_use]
    pub fn hard() -> Scenario {
        Scenario { name: "hard", hard_faults: 5, full_mdt: 0, ..Scenario::shared() }
    }

    /// Names of all scenarios that CI runs.
    pub const NAMES: [&str; 32] = [
        "calm",
        "storm",
        "kills",
        "sick",
        "slow",
        "swaps",
        "share",
        "late",
        "resend",
        "dead",
        "lost",
        "told",
        "killed",
        "leases",
        "shared",
        "fence",
        "damaged",
        "kernel",
        "hostile",
        "hard",
        "dom",
        "layouts",
        "migrations",
        "on_open",
        "kept",
        "pages",
        "mdts",
        "forest",
        "moves",
        "splits",
        "matrix",
        "cuts",
    ];

    #[must_use]
    pub fn by_name(name: &str) -> Option<Scenario> {
        Some(match name {
            "calm" => Scenario::calm(),
            "storm" => Scenario::storm(),
            "kills" => Scenario::kills(),
            "sick" => Scenario::sick(),
            "slow" => Scenario::slow(),
            "swaps" => Scenario::swaps(),
            "share" => Scenario::share(),
            "late" => Scenario::late(),
            "resend" => Scenario::resend(),
            "dead" => Scenario::dead(),
            "lost" => Scenario::lost(),
            "told" => Scenario::told(),
            "killed" => Scenario::killed(),
            "leases" => Scenario::leases(),
            "shared" => Scenario::shared(),
            "fence" => Scenario::fence(),
            "damaged" => Scenario::damaged(),
            "kernel" => Scenario::kernel(),
            "hostile" => Scenario::hostile(),
            "hard" => Scenario::hard(),
            "dom" => Scenario::dom(),
            "layouts" => Scenario::layouts(),
            "migrations" => Scenario::migrations(),
            "on_open" => Scenario::on_open(),
            "kept" => Scenario::kept(),
            "pages" => Scenario::pages(),
            "mdts" => Scenario::mdts(),
            "forest" => Scenario::forest(),
            "moves" => Scenario::moves(),
            "splits" => Scenario::splits(),
            "matrix" => Scenario::matrix(),
            "cuts" => Scenario::cuts(),
            "pairs" => Scenario::pairs(),
            _ => return None,
        })
    }

    /// The scenario of a seed where seeds go through all of them in turn. Every scenario has odd
    /// seeds and even ones, which may differ: turns of an even number each begin one further on.
    #[must_use]
    pub fn of_seed(seed: u64) -> Scenario {
        let count = Scenario::NAMES.len() as u64;
        let turn = if count.is_multiple_of(2) { seed / count } else { 0 };
        let index = (seed + turn) % count;
        Scenario::by_name(Scenario::NAMES[index as usize]).expect("each name has a scenario")
    }

    /// How to run `seed` of this scenario again.
    #[must_use]
    pub fn replay_line(&self, seed: u64) -> String {
        let stores = if self.stores == Stores::Disk { " --on-disk" } else { "" };
        match self.bug {
            None => {
                format!("replay: cargo xtask sim --seed {seed} --scenario {}{stores}", self.name)
            }
            Some(bug) => format!("replay: cargo xtask sim --seed {seed} --bug {bug}{stores}"),
        }
    }

    /// Whether files begin at the MDT: in scenarios of them, in odd seeds where stores fail, and
    /// where files move into all layouts.
    pub(crate) fn begins_at_mdt(&self, seed: u64) -> bool {
        let moves = self.script == Some(Script::Migrations) && self.has_all_layouts(seed);
        self.dom || moves || (self.sick_stores && seed % 2 == 1)
    }

    /// Whether **layouts** and **migrations** draw from all layouts, overstriped ones and those
    /// with data at an MDT among them. The seeds below keep the runs that they had.
    pub(crate) fn has_all_layouts(&self, seed: u64) -> bool {
        let has_layouts = matches!(self.script, Some(Script::Layouts | Script::Migrations));
        has_layouts && seed >= ALL_LAYOUTS_FROM
    }

    /// Whether directories are split by themselves: small ones, in odd seeds where names move.
    pub(crate) fn split(&self, seed: u64) -> mdt::Split {
        let is_on = self.restripes && seed % 2 == 1;
        mdt::Split { is_on, count: 8, delta: 2 }
    }

    /// How many MDTs there are.
    pub(crate) fn mdt_count(&self, seed: u64) -> u32 {
        let (least, most) = self.mdts;
        least + (SplitMix64::new(seed ^ MDTS_SALT).bits() % u64::from(most - least + 1)) as u32
    }

    pub(crate) fn is_on_disk(&self, seed: u64) -> bool {
        match self.stores {
            Stores::Memory => false,
            Stores::Drawn => SplitMix64::new(seed ^ DISK_SALT).bits().is_multiple_of(DISK_ONE_OF),
            Stores::Disk => true,
        }
    }

    pub(crate) fn grants(&self, seed: u64) -> GrantMode {
        let drawn = SplitMix64::new(seed ^ GRANTS_SALT).bits();
        match self.granted {
            Granted::Timed => GrantMode::Timed,
            Granted::Recall => GrantMode::Recall,
            Granted::Drawn if drawn.is_multiple_of(RECALL_ONE_OF) => GrantMode::Recall,
            Granted::Drawn => GrantMode::Timed,
        }
    }

    /// A storm may lose a heartbeat and the Connect after it without a sign, which costs an attempt
    /// each (10 s), after a cut (5 s). Only where clients are meant to be evicted is the lease what
    /// it is in use.
    pub(crate) fn lease(&self) -> Span {
        if self.script == Some(Script::Fence) { Span::secs(10) } else { Span::secs(30) }
    }

    /// The recovery window where clients that live may be evicted: in half of the seeds it is the
    /// one of daemons. Elsewhere it is longer.
    pub(crate) fn window_of_diaries(seed: u64) -> Span {
        let is_usual = SplitMix64::new(seed ^ WINDOW_SALT).bits().is_multiple_of(2);
        if is_usual { WINDOW_OF_DAEMONS } else { RECOVERY_WINDOW }
    }

    pub(crate) fn bugs(&self) -> Bugs {
        self.bug.map_or_else(Bugs::default, Bugs::plant)
    }
}

/// What a run was like.
#[derive(Clone, Debug)]
pub struct Report {
    pub seed: u64,
    pub scenario: &'static str,
    /// Operations that were compared with the model.
    pub ops: u64,
    /// Rounds of races.
    pub races: u64,
    pub restarts: u32,
    /// Of them after a power cut.
    pub power_cuts: u32,
    /// Of them right after the n-th message, applied set or commit.
    pub crash_points: u32,
    pub swaps: u32,
    /// What was done to the network.
    pub faults: FaultCounts,
    /// Servers were on `osd-disk`.
    pub on_disk: bool,
    /// Virtual milliseconds.
    pub virtual_ms: u64,
    /// How often rare branches were reached.
    pub marks: BTreeMap<&'static str, u64>,
    /// Witness of determinism.
    pub trace_hash: u64,
    /// The first broken promise.
    pub failure: Option<String>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let faults = &self.faults;
        write!(
            f,
            "seed {}: {} operations, {} races, {} restarts ({} with power cut, {} at a point), {} swaps, {:.1} s; {} messages, {} lost, {} twice, \
             {} reordered, {} late, {} partitioned, {} resets, {} refused",
            self.seed,
            self.ops,
            self.races,
            self.restarts,
            self.power_cuts,
            self.crash_points,
            self.swaps,
            self.virtual_ms as f64 / 1e3,
            faults.delivered,
            faults.lost,
            faults.duplicated,
            faults.reordered,
            faults.delayed,
            faults.partitioned,
            faults.resets,
            faults.refused,
        )?;
        if self.on_disk {
            f.write_str("; on osd-disk")?;
        }
        match &self.failure {
            None => Ok(()),
            Some(failure) => write!(f, "\nFAILED: {failure}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn recoveries_of_diaries_are_of_both_lengths() {
        let windows: BTreeSet<Span> = (1..=20).map(Scenario::window_of_diaries).collect();
        assert_eq!(windows, BTreeSet::from([WINDOW_OF_DAEMONS, RECOVERY_WINDOW]));
    }
}

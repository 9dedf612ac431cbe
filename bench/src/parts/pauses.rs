//! Longest calls on four MDTs. One MDT is killed and comes back: calls of a mount in a directory of
//! that MDT, and in those of the others. The same where two clients died before the MDT, and where
//! they died with it. A large directory is split: creates of four mounts in it. And on one MDT,
//! which is killed while its client holds many grants.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use mounted::{Scratch, Up, daemon_of, kill};

use super::mdts::{cold, fill};
use crate::bed::Bed;
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// Servers may die more often than `up` allows elsewhere.
const UP: [&str; 4] = ["--mdts", "4", "--crashes-max", "1000"];
const MDTS: usize = 4;
/// Ends a client at once.
const SIGKILL: i32 = 9;
/// Killed one after another in each turn. The first MDT has the root, which all paths name.
const VICTIMS: [usize; 3] = [1, 2, 3];
const TURNS_MAX: u32 = 2;
/// Work before a kill, and after it.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_secs(4);
/// Between two files of a task, so that calls do not wait for a processor.
const REST: Duration = Duration::from_millis(2);

/// Milliseconds of the longest call on the other MDTs, and on the one that was killed.
const OTHERS_MS: f64 = 50.0;
const OWN_MS: f64 = 2_000.0;

/// Deaths of two clients and of their MDT.
struct Deaths {
    id: &'static str,
    title: &'static str,
    /// Between the clients and the MDT.
    ahead: Duration,
    /// Of the longest call on the MDT.
    most_ms: Option<f64>,
}

/// The records of an MDT say which clients are silent. It waits for these only briefly when it
/// starts again. They do not say which clients die with it.
const DEATHS: [Deaths; 2] = [
    Deaths {
        id: "mdt-pauses/own-silent-clients",
        title: "longest call on an MDT that is killed 2 s after two clients",
        ahead: Duration::from_secs(2),
        most_ms: Some(5_000.0),
    },
    Deaths {
        id: "mdt-pauses/own-dead-clients",
        title: "the same, killed in the same moment as the clients, whose window is 12 s: no bound",
        ahead: Duration::ZERO,
        most_ms: None,
    },
];
/// Own addresses of the clients.
const DEAD: [u8; 2] = [121, 122];

/// Grants that a client states to an MDT that starts again, and milliseconds that they may add to
/// the longest call.
const RESTATED: &str = "100000";
const RESTATED_MS: f64 = 500.0;
/// Files of which a mount holds a grant, in lines of all mounts here.
const HELD: &str = "ldlm.namespaces.*-mdc-*.lock_count";
const FORGET: &str = "ldlm.namespaces.*-mdc-*.lru_size";

/// Entries of the directory that is split, in a short run and in a full one.
const ENTRIES: [&str; 2] = ["20000", "1000000"];
/// Own addresses of the mounts that make files in it, beside the first one.
const MOUNTS: [u8; 3] = [111, 112, 113];
/// Milliseconds of the longest create meanwhile.
const SPLIT_MS: f64 = 100.0;
/// Creates without a split, the time in which a split is watched, and between two looks at it.
const QUIET: Duration = Duration::from_secs(5);
const SPLIT_MAX: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_secs(1);

const COMMAND: &str = "nacre up --separate --mdts 4; kill -9 of an MDT; meanwhile create, stat and \
                       unlink in a directory of each MDT, one after another";

pub(crate) fn of_mdts(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let mut up = Up::with(Scratch::new("bench-pauses"), Some(bed.fresh("pauses")), &UP);
    let turns = scale.pairs.min(TURNS_MAX);
    let mut rows = killed(&up, turns)?;
    for deaths in &DEATHS {
        rows.push(killed_after_clients(&mut up, turns, deaths)?);
    }
    up.stop();
    fs::remove_dir_all(up.data())?;
    rows.push(split(bed, scale)?);
    rows.push(restated(bed, turns)?);
    Ok(rows)
}

fn killed(up: &Up, turns: u32) -> Result<Vec<Row>> {
    let files: Vec<PathBuf> = make_dirs(up).iter().map(|dir| dir.join("file.")).collect();
    let (mut own, mut others, mut quiet) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..turns {
        quiet.extend(longest(&files, &STEPS, || sleep(BEFORE + AFTER))?);
        for victim in VICTIMS {
            let pauses = longest(&files, &STEPS, || die(up, victim))?;
            for (mdt, pause) in pauses.into_iter().enumerate() {
                let pauses = if mdt == victim { &mut own } else { &mut others };
                pauses.push(pause);
            }
        }
    }
    let row = |id: &str, title: &str, pauses: &[f64], bound: f64| {
        let values = [pauses, quiet.as_slice()].map(|values| vec![most(values)]);
        Row::of(id, title, "ms", values, Some(Bound::AtMost(bound)), COMMAND)
    };
    let [title, own_title] = [
        "longest call on three MDTs while the fourth is killed, beside none killed",
        "longest call on an MDT that is killed, beside none killed",
    ];
    Ok(vec![
        row("mdt-pauses/others", title, &others, OTHERS_MS),
        row("mdt-pauses/own", own_title, &own, OWN_MS),
    ])
}

/// Kills an MDT while the tasks are at work.
fn die(up: &Up, mdt: usize) {
    die_after(up, mdt, || {});
}

/// Does something first, and then kills an MDT.
fn die_after(up: &Up, mdt: usize, first: impl FnOnce()) {
    sleep(BEFORE);
    first();
    up.kill_server(&format!("MDT{mdt:04}"));
    sleep(AFTER);
}

/// The longest call on an MDT whose clients have died. Each of them has a file open there, in a
/// directory that no task uses.
fn killed_after_clients(up: &mut Up, turns: u32, deaths: &Deaths) -> Result<Row> {
    let mut pauses = Vec::new();
    for (turn, victim) in (0..turns).zip(VICTIMS) {
        let mounts = DEAD.map(|last| up.second_mount(last));
        let ahead = deaths.ahead.as_millis();
        let (index, theirs) = (victim.to_string(), format!("theirs.{ahead}.{turn}"));
        let _silent = up.tool(&["lfs", "mkdir", "-i", &index, &theirs]);
        let open = |(at, mount): (usize, &PathBuf)| {
            let file = File::create(mount.join(&theirs).join(format!("open.{at}")))?;
            file.sync_all()?; // after the kill no client makes it again
            io::Result::Ok(file)
        };
        let held = mounts.iter().enumerate().map(open).collect::<io::Result<Vec<File>>>()?;
        let files = [up.at(&format!("mdt.{victim}")).join("file.")];
        let clients = || {
            mounts.iter().for_each(|mount| kill(daemon_of(mount), SIGKILL));
            sleep(deaths.ahead);
        };
        pauses.extend(longest(&files, &STEPS, || die_after(up, victim, clients))?);
        drop(held);
    }
    let command = format!("{COMMAND}; kill -9 of two mounts {:?} before", deaths.ahead);
    let bound = deaths.most_ms.map(Bound::AtMost);
    let values = [vec![most(&pauses)], Vec::new()];
    Ok(Row::of(deaths.id, deaths.title, "ms", values, bound, &command))
}

/// What grants add to the longest call while an MDT is killed, to which a client states them then.
fn restated(bed: &Bed, turns: u32) -> Result<Row> {
    let args = ["--mdts", "1", "--osts", "1", "--crashes-max", "1000"];
    let mut up = Up::with(Scratch::new("bench-restated"), Some(bed.fresh("restated")), &args);
    for dir in ["many", "used"] {
        fs::create_dir(up.at(dir))?;
    }
    let (many, files) = (up.at(&fill(&up, "many", RESTATED)?), [up.at("used").join("file.")]);
    let (mut added, mut held) = (Vec::new(), u64::MAX);
    for _ in 0..turns {
        up.set(FORGET, "clear");
        let without = most(&longest(&files, &STEPS, || die(&up, 0))?);
        cold(&up, &many)?;
        held = held.min(most_held(&up.param(HELD)));
        added.push(most(&longest(&files, &STEPS, || die(&up, 0))?) - without);
    }
    up.stop();
    fs::remove_dir_all(up.data())?;
    let title = format!("what {held} grants add to the longest call while an MDT is killed");
    let command = format!(
        "nacre up --separate --mdts 1 --osts 1; nacre bench mdtest --native NID:/testfs -d many -F \
         -C -n {RESTATED} --keep; ls -lU DIR; kill -9 of the MDT; beside the same after lctl \
         set_param {FORGET}=clear"
    );
    // with fewer grants it would be another figure
    let bound = (held >= RESTATED.parse::<u64>()?).then_some(Bound::AtMost(RESTATED_MS));
    Ok(Row::of("mdt-pauses/restated", &title, "ms", [added, Vec::new()], bound, &command))
}

/// The largest of the numbers, one in a line.
fn most_held(shown: &str) -> u64 {
    shown.lines().filter_map(|line| line.trim().parse().ok()).max().unwrap_or(0)
}

/// A directory on each MDT.
fn make_dirs(up: &Up) -> Vec<PathBuf> {
    let make = |mdt: usize| {
        let (index, name) = (mdt.to_string(), format!("mdt.{mdt}"));
        let _silent = up.tool(&["lfs", "mkdir", "-i", &index, &name]);
        up.at(&name)
    };
    (0..MDTS).map(make).collect()
}

/// Creates of four mounts in a large directory while its names move to four MDTs.
fn split(bed: &Bed, scale: Scale) -> Result<Row> {
    let entries = ENTRIES[usize::from(!scale.is_quick())];
    let mut up = Up::with(Scratch::new("bench-split"), Some(bed.fresh("split")), &UP);
    let _silent = up.tool(&["lfs", "mkdir", "-i", "0", "split"]);
    let _silent = up.tool(&["lfs", "setdirstripe", "-D", "-c", "1", "-i", "0", "split"]);
    let dir = fill(&up, "split", entries)?;
    let mut mounts = vec![up.mount().to_owned()];
    mounts.extend(MOUNTS.map(|last| up.second_mount(last)));
    let files = |kind: &str| -> Vec<PathBuf> {
        let file = |(at, mount): (usize, &PathBuf)| mount.join(&dir).join(format!("{kind}.{at}."));
        mounts.iter().enumerate().map(file).collect()
    };
    let quiet = longest(&files("before"), &STEPS[..1], || sleep(QUIET))?;
    let busy = longest(&files("meanwhile"), &STEPS[..1], || {
        let _said = up.tool(&["lfs", "setdirstripe", "-c", "4", &dir]);
        wait_split(&up, &dir);
    })?;
    up.stop();
    fs::remove_dir_all(up.data())?;
    let title = format!("longest create while {entries} names move to four MDTs, beside none move");
    let values = [busy, quiet].map(|values| vec![most(&values)]);
    let command = format!(
        "nacre up --separate --mdts 4; nacre bench mdtest --native NID:/testfs -d split -F -C \
         -n {entries} --keep; lfs setdirstripe -c 4 DIR; meanwhile creates in it of four mounts"
    );
    let bound = Some(Bound::AtMost(SPLIT_MS));
    Ok(Row::of("mdt-pauses/split", &title, "ms", values, bound, &command))
}

/// Until all names have moved, or the time is over.
fn wait_split(up: &Up, dir: &str) {
    let begun = Instant::now();
    while up.tool(&["lfs", "getdirstripe", "-H", dir]).contains("migrating") {
        if begun.elapsed() > SPLIT_MAX {
            eprintln!("names still move after {SPLIT_MAX:?}");
            return;
        }
        sleep(POLL);
    }
}

/// Milliseconds of the longest call of each task while `work` is done. Each task has the beginning
/// of its files' paths.
fn longest(files: &[PathBuf], steps: &[Step], work: impl FnOnce()) -> Result<Vec<f64>> {
    let ends = &AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        let end = Ends(ends);
        let tasks: Vec<_> =
            files.iter().map(|file| scope.spawn(move || calls(file, steps, ends))).collect();
        work();
        drop(end);
        let times = tasks.into_iter().map(|task| task.join().expect("a task does not panic"));
        times.collect::<io::Result<Vec<f64>>>()
    })?;
    Ok(times)
}

/// Tasks end when this is dropped, also where something fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One call with a path.
type Step = fn(&Path) -> io::Result<()>;

fn make(path: &Path) -> io::Result<()> {
    File::create_new(path).map(drop)
}

fn look_at(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

const STEPS: [Step; 3] = [make, look_at, remove];

/// All steps for one file after another, until the end. Milliseconds of the longest call.
fn calls(file: &Path, steps: &[Step], ends: &AtomicBool) -> io::Result<f64> {
    let mut longest = 0.0_f64;
    for number in 0_u64.. {
        let mut path = file.as_os_str().to_owned();
        path.push(number.to_string());
        for step in steps {
            let begun = Instant::now();
            step(Path::new(&path))?;
            longest = longest.max(begun.elapsed().as_secs_f64() * 1e3);
        }
        if ends.load(Ordering::Relaxed) {
            break;
        }
        sleep(REST);
    }
    Ok(longest)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests_of_pauses {
    use super::*;

    #[test]
    fn the_mount_with_the_most_grants_counts() {
        assert_eq!(most_held("12\n100003\n 7\n\n"), 100_003);
        assert_eq!(most_held(""), 0);
    }

    #[test]
    fn calls_end_and_leave_nothing() {
        let scratch = Scratch::new("pauses");
        let files = ["a.", "b."].map(|name| scratch.path().join(name));
        let times = longest(&files, &STEPS, || sleep(REST * 3)).expect("calls succeed");
        assert!(times.len() == 2 && times.iter().all(|time| *time > 0.0), "{times:?}");
        assert_eq!(most(&[1.0, 3.0, 2.0]), 3.0);
        let count = || fs::read_dir(scratch.path()).expect("opens").count();
        assert_eq!(count(), 0);
        longest(&files, &STEPS[..1], || sleep(REST * 3)).expect("calls succeed");
        assert!(count() >= 2, "files that are only made stay");
    }
}

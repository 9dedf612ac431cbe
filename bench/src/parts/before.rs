//! This commit beside an older one, in turns: mdtest and IOR on a file system of each binary, and
//! `lnet`. `--against` names the older binary. The drivers of mdtest and IOR are those of this
//! commit. mdtest also runs with `grants=timed`, which is what the older commit had.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mounted::{PATIENCE, Scratch, Up, is_dead, is_mounted, kill, nacre_bin, wait_bounded};

use super::{data, metadata, rpc};
use crate::bed::{Bed, nacre, nacre_of};
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// The older commit's share that this one has to reach.
const LEAST: f64 = 0.97;

/// Seconds in which mdtest makes files with timed grants, at most.
const TIMED_SECONDS_MAX: u32 = 5;

/// Grants that end by themselves. MDTs of other file systems here have them too meanwhile.
const GRANTS: &str = "mdt.*.grants";

/// Ends a file system in order.
const SIGTERM: i32 = 15;

const COMMAND: &str = "cargo xtask bench --only before --against OLDER";

pub(crate) fn older(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let binary = bed.older().context("--against names no older binary")?;
    let mut ours = Up::with(Scratch::new("bench-now"), Some(bed.fresh("now")), &[]);
    let theirs = Older::start(binary, &bed.fresh("before"))?;
    let mounts = [ours.mount().to_owned(), theirs.mount.clone()];
    let mut rows = mdtest(scale, &mounts, "mdtest-own", &["-u"])?;
    rows.extend(mdtest(scale, &mounts, "mdtest-shared", &[])?);
    rows.extend(timed(&ours, scale, &mounts)?);
    rows.extend(ior(scale, &mounts, "ior-4", &["-N", "4", "-F"])?);
    rows.extend(ior(scale, &mounts, "ior-1", &["-N", "1"])?);
    drop(theirs);
    ours.stop();
    rows.extend(lnet(binary, scale)?);
    Ok(rows)
}

/// mdtest while this commit's MDT gives timed grants.
fn timed(ours: &Up, scale: Scale, mounts: &[PathBuf; 2]) -> Result<Vec<Row>> {
    let scale = Scale { seconds: scale.seconds.min(TIMED_SECONDS_MAX), ..scale };
    ours.set(GRANTS, "timed");
    let own = mdtest(scale, mounts, "mdtest-own-timed", &["-u"]);
    let shared = mdtest(scale, mounts, "mdtest-shared-timed", &[]);
    ours.set(GRANTS, "recall");
    Ok([own?, shared?].concat())
}

fn mdtest(scale: Scale, mounts: &[PathBuf; 2], name: &str, more: &[&str]) -> Result<Vec<Row>> {
    let bound = Some(LEAST);
    let phases: [metadata::Wanted; 4] = [
        ("File creation", bound),
        ("File stat", bound),
        ("File read", bound),
        ("File removal", bound),
    ];
    let (seconds, pairs) = (scale.seconds.to_string(), scale.pairs.to_string());
    let (ours, theirs) = (metadata::text(&mounts[0])?, metadata::text(&mounts[1])?);
    let mut args = vec!["bench", "mdtest", "-d", &ours, "-N", "4", "-F", "-W", &seconds];
    args.extend(more);
    args.extend(["--drop-caches", "--against", &theirs, "--pairs", &pairs, "--json"]);
    let rows = metadata::rows(&format!("before/{name}"), &nacre(&args)?, &phases, COMMAND)?;
    Ok(titled(name, rows))
}

fn ior(scale: Scale, mounts: &[PathBuf; 2], name: &str, more: &[&str]) -> Result<Vec<Row>> {
    let seconds = scale.seconds.to_string();
    let mut options = more.to_vec();
    options.extend(["-t", "1m", "-b", data::BLOCK, "-D", &seconds, "-e", "--drop-caches"]);
    let files = mounts.each_ref().map(|mount| mount.join("ior"));
    let names = ["MOUNT/ior", "OLDER/ior"];
    let part = format!("before/{name}");
    Ok(titled(name, data::between(scale, &part, &options, &files, names, [LEAST; 2])?))
}

/// Rows of several settings are in one table.
fn titled(name: &str, rows: Vec<Row>) -> Vec<Row> {
    let title = |row: Row| Row { title: format!("{name}: {}", row.title), ..row };
    rows.into_iter().map(title).collect()
}

/// Both binaries, each with a client and a server of its own.
fn lnet(older: &Path, scale: Scale) -> Result<Vec<Row>> {
    let options = ["--inflight", "64", "--sides", "rpc", "--pairs", "1", "--json"];
    let args = [&["bench", "lnet", "--seconds", rpc::seconds(scale)][..], &options].concat();
    let mut turns: [Vec<rpc::Output>; 2] = Default::default();
    for _ in 0..scale.pairs {
        for (turns, binary) in turns.iter_mut().zip([&*nacre_bin(), older]) {
            turns.push(nacre_of(binary, &args)?);
        }
    }
    rows_of_turns(&turns)
}

/// A row for each case, with the rates of both binaries.
fn rows_of_turns([ours, theirs]: &[Vec<rpc::Output>; 2]) -> Result<Vec<Row>> {
    let first = ours.first().context("no turn was measured")?;
    let rates = |turns: &[rpc::Output], name: &str| -> Vec<f64> {
        let cases = turns.iter().flat_map(|turn| &turn.cases).filter(|case| case.case == name);
        cases.flat_map(|case| &case.sides).flat_map(|side| side.rates.clone()).collect()
    };
    let row = |case: &rpc::Case| {
        let both = [rates(ours, &case.case), rates(theirs, &case.case)];
        ensure!(both[0].len() == both[1].len(), "'{}' is not measured by both", case.case);
        let (id, title) = (format!("before/lnet/{}", case.case), format!("lnet: {}", case.case));
        anyhow::Ok(Row::of(&id, &title, &case.unit, both, Some(Bound::Ratio(LEAST)), COMMAND))
    };
    first.cases.iter().map(row).collect()
}

/// `up --separate` of the older binary; it ends with the value.
struct Older {
    child: Child,
    mount: PathBuf,
    scratch: Scratch,
}

impl Older {
    /// With its targets in `data`. Its daemons have a run directory of their own.
    fn start(binary: &Path, data: &Path) -> Result<Older> {
        let scratch = Scratch::new("before");
        let (mount, run) = (scratch.path().join("mnt"), scratch.path().join("run"));
        fs::create_dir(&run)?;
        let log = fs::File::create(scratch.path().join("up.log"))?;
        let mut command = Command::new(binary);
        command.args(["up", "--separate", "--mdts", "1", "-o", "transport=classic"]);
        command.arg("--data").arg(data).arg("--mount").arg(&mount).env("NACRE_RUN", &run);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| binary.display().to_string())?;
        let mut older = Older { child, mount, scratch };
        older.wait_mounted()?;
        Ok(older)
    }

    fn wait_mounted(&mut self) -> Result<()> {
        let start = Instant::now();
        while !is_mounted(&self.mount) || is_dead(&self.mount) {
            let has_ended = self.child.try_wait()?.is_some();
            if has_ended || start.elapsed() >= PATIENCE {
                let log = fs::read_to_string(self.scratch.path().join("up.log"));
                anyhow::bail!("the older binary did not mount:\n{}", log.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Older {
    fn drop(&mut self) {
        kill(self.child.id(), SIGTERM);
        if wait_bounded(&mut self.child).is_none() {
            let _it_may_be_gone = self.child.kill();
            let _it_was_killed = self.child.wait();
        }
        if is_mounted(&self.mount) {
            let _it_may_be_gone = Command::new("umount").arg("-l").arg(&self.mount).status();
        }
    }
}

#[cfg(test)]
mod tests_of_turns {
    use super::*;

    fn turn(rates: &[(&str, f64)]) -> rpc::Output {
        let side = |rate| rpc::Side { side: "rpc".to_owned(), rates: vec![rate], cpu_us: 1.0 };
        let case = |(name, rate): &(&str, f64)| rpc::Case {
            case: (*name).to_owned(),
            unit: "RPC/s".to_owned(),
            sides: vec![side(*rate)],
        };
        rpc::Output { cases: rates.iter().map(case).collect() }
    }

    #[test]
    fn turns_of_both_binaries_become_a_row_for_each_case() {
        let ours =
            vec![turn(&[("ping", 96.0), ("read", 5.0)]), turn(&[("ping", 98.0), ("read", 5.0)])];
        let theirs =
            vec![turn(&[("ping", 100.0), ("read", 5.0)]), turn(&[("ping", 100.0), ("read", 5.0)])];
        let rows = rows_of_turns(&[ours, theirs]).expect("both measured both");
        assert_eq!(rows[0].id, "before/lnet/ping");
        assert_eq!((&rows[0].ours, &rows[0].limit), (&vec![96.0, 98.0], &vec![100.0, 100.0]));
        assert_eq!((rows[0].is_reached(), rows[1].is_reached()), (Some(true), Some(true)));
        let missing = [vec![turn(&[("ping", 1.0)])], vec![turn(&[("read", 1.0)])]];
        assert!(rows_of_turns(&missing).is_err());
    }
}

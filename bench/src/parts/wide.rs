//! The cost of objects: unlink of files of 32 stripes beside files of one, and of small files at
//! the MDT beside those on OSTs. Also `lfs migrate`, which gives a file other objects, beside `cp`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mounted::{Scratch, Up};

use super::metadata::text;
use super::public::drop_caches;
use super::{dom, layouts};
use crate::bed::Bed;
use crate::disk::free_gib;
use crate::machine::CpuTime;
use crate::row::{Bound, Row, Spread};
use crate::scale::Scale;

const STRIPES: u64 = 32;
const STRIPE_BYTES: u64 = 64 << 10;
const TURNS_MAX: u32 = 3;
/// Files of a turn: with objects that were never written, and with a byte in each.
const FILES: u64 = 1_000;
const FILES_WRITTEN: u64 = 200;
/// Unlinks per second, of those of files of one stripe.
const LEAST: f64 = 0.95;
const LEAST_WRITTEN: f64 = 0.9;

/// Files whose objects are waited for until they are gone, and turns of that.
const FILES_GONE: u64 = 2_000;
const TURNS_GONE: u32 = 3;
/// Commits come this often meanwhile, because objects go when their unlink is committed.
pub(super) const COMMIT_MS: &str = "100";
/// Microseconds of an object until its space is back.
const GONE_US: f64 = 20.0;
/// Small files that are unlinked until space is back, and the rate of those with their bytes at the
/// MDT, of the rate without.
const SMALL_FILES: u64 = 10_000;
const SMALL_BYTES: usize = 32 << 10;
const SMALL_LEAST: f64 = 1.3;
const GONE_MAX: Duration = Duration::from_secs(60);
const GONE_POLL: Duration = Duration::from_millis(50);

/// GiB that move in a full run, turns of that, and the GiB that stay free on the disk.
const MOVED_GIB: u64 = 10;
const TURNS_MOVED: u32 = 2;
const SPARE_GIB: u64 = 8;
/// MiB that move in a short run.
const MOVED_MIB: u64 = 512;
/// Of the rate of `cp`.
const MIGRATE_LEAST: f64 = 0.9;

pub(crate) fn objects(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let turns = scale.pairs.min(TURNS_MAX);
    let osts = STRIPES.to_string();
    let args = ["--osts", &osts[..]];
    let mut up = Up::with(Scratch::new("bench-wide"), Some(bed.fresh("wide")), &args);
    let never = unlinks(&up, turns, "never written", (FILES, false))?;
    let written = unlinks(&up, turns, "written", (FILES_WRITTEN, true))?;
    up.stop();
    up.start_again(&["--osts", &osts, "--commit-interval-ms", COMMIT_MS]);
    let gone = space(&up, turns.min(TURNS_GONE))?;
    let small = Row { idle: None, ..small_files(&up, STRIPES, scale, "wide/unlink-dom")? };
    up.stop();
    fs::remove_dir_all(up.data())?;
    Ok(vec![never, written, gone, small, migration(bed, scale)?])
}

fn unlinks(up: &Up, turns: u32, what: &str, (files, written): (u64, bool)) -> Result<Row> {
    let mut rates = [Vec::new(), Vec::new()];
    for turn in 0..turns {
        for (side, stripes) in [STRIPES, 1].into_iter().enumerate() {
            let name = format!("{}-{stripes}-{turn}", what.replace(' ', "-"));
            let dir = striped(up, &name, stripes)?;
            (0..files)
                .try_for_each(|number| make(&dir.join(number.to_string()), stripes, written))?;
            drop_caches()?;
            let start = Instant::now();
            (0..files).try_for_each(|number| fs::remove_file(dir.join(number.to_string())))?;
            rates[side].push(files as f64 / start.elapsed().as_secs_f64());
        }
    }
    let title = format!("unlink of files of {STRIPES} stripes, {what}, of files of one");
    let least = if written { LEAST_WRITTEN } else { LEAST };
    let id = format!("wide/unlink-{}", if written { "written" } else { "new" });
    let command = "unlink(2), one after another";
    Ok(Row::of(&id, &title, "files/s", rates, Some(Bound::Ratio(least)), command))
}

/// From the first unlink until no object is left, less the same of files of one stripe.
fn space(up: &Up, turns: u32) -> Result<Row> {
    let further = (FILES_GONE * (STRIPES - 1)) as f64;
    let mut values = Vec::new();
    for turn in 0..turns {
        let many = until_gone(up, turn, STRIPES)?;
        let one = until_gone(up, turn, 1)?;
        values.push((many - one) * 1e6 / further);
    }
    let title = format!("unlink of files of {STRIPES} stripes until space is back: an object");
    let command = "unlink(2), one after another, until OST*/objects are empty; less files of one";
    let values = [values, Vec::new()];
    Ok(Row::of("wide/space", &title, "us", values, Some(Bound::AtMost(GONE_US)), command))
}

/// Seconds.
fn until_gone(up: &Up, turn: u32, stripes: u64) -> Result<f64> {
    wait_until_gone(up, STRIPES)?;
    let dir = striped(up, &format!("gone-{stripes}-{turn}"), stripes)?;
    (0..FILES_GONE).try_for_each(|number| make(&dir.join(number.to_string()), stripes, true))?;
    // small writes are sent some time after they are acknowledged
    wait_for(up, STRIPES, |count| count >= FILES_GONE * stripes)?;
    drop_caches()?;
    let start = Instant::now();
    (0..FILES_GONE).try_for_each(|number| fs::remove_file(dir.join(number.to_string())))?;
    wait_until_gone(up, STRIPES)?;
    Ok(start.elapsed().as_secs_f64())
}

fn wait_until_gone(up: &Up, osts: u64) -> Result<()> {
    wait_for(up, osts, |count| count == 0)
}

/// Waits for a number of objects.
fn wait_for(up: &Up, osts: u64, is_so: impl Fn(u64) -> bool) -> Result<()> {
    let start = Instant::now();
    loop {
        let count = objects_left(up, osts)? as u64;
        if is_so(count) {
            return Ok(());
        }
        ensure!(start.elapsed() < GONE_MAX, "{count} objects are there after {GONE_MAX:?}");
        std::thread::sleep(GONE_POLL);
    }
}

/// Files below `objects` of all OSTs and of the MDT's data target.
fn objects_left(up: &Up, osts: u64) -> Result<usize> {
    let mut targets = vec![up.target("MDT0000").join("data")];
    targets.extend((0..osts).map(|ost| up.target(&format!("OST{ost:04x}"))));
    let mut count = 0;
    for target in targets {
        for dir in fs::read_dir(target.join("objects"))? {
            count += fs::read_dir(dir?.path())?.count();
        }
    }
    Ok(count)
}

/// Unlinks of files of 32 KiB until space is back: bytes at the MDT beside an object on an OST. The
/// file system has this number of OSTs. The row has the idle part of the machine.
pub(super) fn small_files(up: &Up, osts: u64, scale: Scale, id: &str) -> Result<Row> {
    let (mut rates, mut idle) = ([Vec::new(), Vec::new()], Vec::new());
    for turn in 0..scale.pairs.min(TURNS_GONE) {
        for (side, layout) in dom::LAYOUTS.into_iter().enumerate() {
            wait_until_gone(up, osts)?;
            let dir = up.at(&format!("small-{side}-{turn}"));
            fs::create_dir(&dir)?;
            layouts::set(up, layout, &text(&dir)?);
            let files: Vec<PathBuf> =
                (0..SMALL_FILES).map(|number| dir.join(number.to_string())).collect();
            files.iter().try_for_each(|file| fs::write(file, [b's'; SMALL_BYTES]))?;
            wait_for(up, osts, |count| count >= SMALL_FILES)?;
            drop_caches()?;
            let (before, start) = (CpuTime::now()?, Instant::now());
            files.iter().try_for_each(fs::remove_file)?;
            wait_until_gone(up, osts)?;
            rates[side].push(files.len() as f64 / start.elapsed().as_secs_f64());
            idle.push(before.idle_until(CpuTime::now()?));
        }
    }
    let title = "unlink of 32 KiB at the MDT until space is back, of those on OSTs";
    let command = "unlink(2), one after another, until objects of all targets are gone";
    let bound = Some(Bound::Ratio(SMALL_LEAST));
    let idle = Spread::of(&idle).map(|idle| idle.median);
    Ok(Row { idle, ..Row::of(id, title, "files/s", rates, bound, command) })
}

/// A new directory whose files have this many stripes.
fn striped(up: &Up, name: &str, stripes: u64) -> Result<PathBuf> {
    let dir = up.at(name);
    fs::create_dir(&dir)?;
    let (count, size) = (stripes.to_string(), STRIPE_BYTES.to_string());
    let _silent = up.tool(&["lfs", "setstripe", "-c", &count, "-S", &size, &text(&dir)?]);
    Ok(dir)
}

fn make(path: &Path, stripes: u64, written: bool) -> std::io::Result<()> {
    let file = File::create(path)?;
    let written = if written { stripes } else { 0 };
    (0..written).try_for_each(|stripe| file.write_all_at(b"x", stripe * STRIPE_BYTES))
}

/// A file moves to as many objects as it does not have now.
fn migration(bed: &Bed, scale: Scale) -> Result<Row> {
    let mib = moved_mib(scale, free_gib(&bed.limit())?);
    let turns = scale.pairs.min(TURNS_MOVED);
    let dir = bed.ours().join("wide");
    fs::create_dir(&dir)?;
    let (file, copy) = (dir.join("file"), dir.join("copy"));
    let mut made = File::create(&file)?;
    (0..mib).try_for_each(|number| made.write_all(&vec![number as u8; 1 << 20]))?;
    made.sync_all()?;
    drop(made);
    let rate = |start: Instant| mib as f64 / start.elapsed().as_secs_f64();
    let mut rates = [Vec::new(), Vec::new()];
    for turn in 0..turns {
        let stripes = (2 - turn % 2).to_string();
        drop_caches()?;
        let start = Instant::now();
        let _silent = bed.up().tool(&["lfs", "migrate", "-c", &stripes, &text(&file)?]);
        rates[0].push(rate(start));
        drop_caches()?;
        let start = Instant::now();
        let ended = Command::new("cp").args([&file, &copy]).status()?;
        ensure!(ended.success(), "cp ended with {ended}");
        rates[1].push(rate(start));
        fs::remove_file(&copy)?;
    }
    fs::remove_dir_all(&dir)?;
    let title = format!("lfs migrate of {mib} MiB beside cp");
    let command = "lfs migrate -c 2 FILE; cp FILE COPY";
    let bound = Some(Bound::Ratio(MIGRATE_LEAST));
    Ok(Row::of("wide/migrate", &title, "MiB/s", rates, bound, command))
}

/// As much as fits three times: the file, its new objects or a copy, and objects that are not
/// destroyed yet.
fn moved_mib(scale: Scale, free_gib: u64) -> u64 {
    if scale.is_quick() {
        return MOVED_MIB;
    }
    let room = free_gib.saturating_sub(SPARE_GIB) / 3;
    (room.min(MOVED_GIB) << 10).max(MOVED_MIB)
}

#[cfg(test)]
mod tests_of_sizes {
    use super::*;

    #[test]
    fn no_more_moves_than_fits() {
        assert_eq!(moved_mib(Scale::QUICK, 100), 512);
        let full = [100, 38, 20, 9, 0].map(|free| moved_mib(Scale::FULL, free));
        assert_eq!(full, [10 << 10, 10 << 10, 4 << 10, 512, 512]);
    }
}

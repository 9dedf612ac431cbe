//! What many objects cost: unlink of files of 32 stripes beside files of one, and `lfs migrate`,
//! which gives a file other objects, beside `cp`.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use mounted::{Scratch, Up};

use super::metadata::text;
use super::public::drop_caches;
use crate::bed::Bed;
use crate::row::{Bound, Row};
use crate::scale::Scale;

const STRIPES: u64 = 32;
const STRIPE_BYTES: u64 = 64 << 10;
const TURNS_MAX: u32 = 5;
/// Files of a turn: with objects that were never written, and with a byte in each.
const FILES: u64 = 1_000;
const FILES_WRITTEN: u64 = 200;
/// Unlinks per second, of those of files of one stripe.
const LEAST: f64 = 0.95;
const LEAST_WRITTEN: f64 = 0.9;

/// MiB that move.
const MOVED_MIB: usize = 512;
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
    Ok(vec![never, written, migration(bed, turns)?])
}

fn unlinks(up: &Up, turns: u32, what: &str, (files, written): (u64, bool)) -> Result<Row> {
    let mut rates = [Vec::new(), Vec::new()];
    for turn in 0..turns {
        for (side, stripes) in [STRIPES, 1].into_iter().enumerate() {
            let dir = up.at(&format!("{}-{stripes}-{turn}", what.replace(' ', "-")));
            fs::create_dir(&dir)?;
            let (count, size) = (stripes.to_string(), STRIPE_BYTES.to_string());
            let path = text(&dir)?;
            let _silent = up.tool(&["lfs", "setstripe", "-c", &count, "-S", &size, &path]);
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

fn make(path: &Path, stripes: u64, written: bool) -> std::io::Result<()> {
    let file = File::create(path)?;
    let written = if written { stripes } else { 0 };
    (0..written).try_for_each(|stripe| file.write_all_at(b"x", stripe * STRIPE_BYTES))
}

/// A file moves to as many objects as it does not have now.
fn migration(bed: &Bed, turns: u32) -> Result<Row> {
    let dir = bed.ours().join("wide");
    fs::create_dir(&dir)?;
    let (file, copy) = (dir.join("file"), dir.join("copy"));
    let mut made = File::create(&file)?;
    (0..MOVED_MIB).try_for_each(|number| made.write_all(&vec![number as u8; 1 << 20]))?;
    made.sync_all()?;
    drop(made);
    let rate = |start: Instant| MOVED_MIB as f64 / start.elapsed().as_secs_f64();
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
    let (title, command) = ("lfs migrate beside cp", "lfs migrate -c 2 FILE; cp FILE COPY");
    let bound = Some(Bound::Ratio(MIGRATE_LEAST));
    Ok(Row::of("wide/migrate", title, "MiB/s", rates, bound, command))
}

//! Small writes: 4 KiB at a time by `dd`, beside ext4; and appends of one mount, and of two mounts
//! in turn.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mounted::{Scratch, Up};

use super::metadata::text;
use super::public::drop_caches;
use crate::bed::Bed;
use crate::machine::output;
use crate::row::{Bound, Row};
use crate::scale::Scale;

const TURNS_MAX: u32 = 3;
/// Seconds in which a turn appends, at most.
const SECONDS_MAX: u32 = 3;

/// Calls of `dd`, and the bytes of all.
const DD_CALLS: &str = "65536";
const DD_BYTES: u64 = 256 << 20;
/// Millions of bytes per second, the fsync at the end included.
const DD_LEAST: f64 = 100.0;

const LINE: [u8; 100] = [b'a'; 100];
/// Appends per second by one mount.
const APPENDS_LEAST: f64 = 20_000.0;
/// The same by two mounts in turn: each append is to a file that the other mount has changed.
const TURNS_LEAST: f64 = 500.0;

pub(crate) fn small(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let turns = scale.pairs.min(TURNS_MAX);
    let mut rows = vec![dd(&[bed.ours().to_owned(), bed.limit()], turns)?];
    let args = ["--osts", "1"];
    let mut up = Up::with(Scratch::new("bench-writes"), Some(bed.fresh("writes")), &args);
    let mounts = [up.mount().to_owned(), up.second_mount(102)];
    let span = Duration::from_secs(scale.seconds.min(SECONDS_MAX).into());
    let (mut one, mut both) = (Vec::new(), Vec::new());
    for turn in 0..turns {
        one.push(appends(&mounts[..1], &format!("one.{turn}"), span)?);
        both.push(appends(&mounts, &format!("both.{turn}"), span)?);
    }
    up.stop();
    let row = |id: &str, title: &str, unit: &str, values: Vec<f64>, least: f64| {
        let bound = Some(Bound::AtLeast(least));
        let command = "write(2) of 100 bytes with O_APPEND, one after another, then fsync(2)";
        Row::of(id, title, unit, [values, Vec::new()], bound, command)
    };
    let title = "appends of 100 bytes by two mounts in turn";
    rows.push(row("writes/append", "appends of 100 bytes", "appends/s", one, APPENDS_LEAST));
    rows.push(row("writes/turns", title, "hand-overs/s", both, TURNS_LEAST));
    Ok(rows)
}

fn dd(sides: &[PathBuf; 2], turns: u32) -> Result<Row> {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..turns {
        for (dir, rates) in sides.iter().zip(&mut rates) {
            rates.push(written_by_dd(&dir.join("dd"))?);
        }
    }
    let title = "dd of 256 MiB in calls of 4 KiB, with fsync";
    let command = format!("dd if=/dev/zero of=FILE bs=4k count={DD_CALLS} conv=fsync");
    Ok(Row::of("writes/dd", title, "MB/s", rates, Some(Bound::AtLeast(DD_LEAST)), &command))
}

/// MB per second.
fn written_by_dd(file: &Path) -> Result<f64> {
    drop_caches()?;
    let (out, count) = (format!("of={}", text(file)?), format!("count={DD_CALLS}"));
    let start = Instant::now();
    output("dd", &["if=/dev/zero", &out, "bs=4k", &count, "conv=fsync", "status=none"])?;
    let rate = DD_BYTES as f64 / 1e6 / start.elapsed().as_secs_f64();
    ensure!(fs::metadata(file)?.len() == DD_BYTES, "{} is cut", file.display());
    fs::remove_file(file)?;
    Ok(rate)
}

/// Appends of all mounts to one file, in turn; appends per second.
fn appends(mounts: &[PathBuf], name: &str, span: Duration) -> Result<f64> {
    let open =
        |mount: &PathBuf| OpenOptions::new().append(true).create(true).open(mount.join(name));
    let mut files = mounts.iter().map(open).collect::<io::Result<Vec<File>>>()?;
    let (start, mut count) = (Instant::now(), 0_u64);
    while start.elapsed() < span {
        for file in &mut files {
            file.write_all(&LINE)?;
            count += 1;
        }
    }
    files.iter().try_for_each(File::sync_all)?;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    for mount in mounts {
        let bytes = fs::metadata(mount.join(name))?.len();
        ensure!(bytes == count * LINE.len() as u64, "{bytes} bytes after {count} appends");
    }
    Ok(rate)
}

#[cfg(test)]
mod tests_of_appends {
    use super::*;

    #[test]
    fn both_sides_append_in_turn() {
        let scratch = Scratch::new("appends");
        let dir = scratch.path().to_owned();
        let rate = appends(&[dir.clone(), dir], "log", Duration::from_millis(5));
        assert!(rate.expect("all bytes are there") > 0.0);
    }
}

//! Small files with their bytes at the MDT (DoM) beside the same files with an object on an OST:
//! mdtest's phases, and opens of files of which nothing is cached.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mounted::range::syncfs;

use super::metadata::{Output, Wanted, rows, text};
use super::public::drop_caches;
use crate::bed::{Bed, nacre};
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// Layouts of the two directories.
pub(super) const LAYOUTS: [&str; 2] = ["-E 64K -L mdt -E -1 -c 1 -S 1M", "-c 1 -S 1M"];
/// Turns at most, and seconds in which files are made: one turn of mdtest has eight phases. Files
/// that are put take longer, because a syncfs comes each second beside some of them.
const TURNS_MAX: u32 = 3;
const SECONDS_MAX: u32 = 2;
const PUT_SECONDS_MAX: u32 = 3;

/// Processes of mdtest.
const TASKS: &str = "4";

/// mdtest's phases with 32 KiB in each file, of the rates without DoM.
const WITH_BYTES: [Wanted; 4] = [
    ("File creation", Some(1.4)),
    ("File stat", Some(1.0)),
    ("File read", Some(1.4)),
    ("File removal", Some(1.3)),
];
/// The same of empty files.
const EMPTY: [Wanted; 4] = [
    ("File creation", Some(1.0)),
    ("File stat", Some(1.0)),
    ("File read", Some(1.0)),
    ("File removal", Some(1.0)),
];

/// Files that are opened in a turn, and the bytes of each.
const FILES: u64 = 2_000;
const FILE_BYTES: usize = 4 << 10;
/// Before they are opened: closes, and removals of objects, go on for a while after their calls.
const SETTLE: Duration = Duration::from_secs(3);
/// Opens per second, of those without DoM.
const OPENS_LEAST: f64 = 1.4;
/// Requests of an open and a read: a LOOKUP, and an OPEN that brings the bytes. The rest is for the
/// directory itself.
const RPCS_MOST: f64 = 2.02;
/// The same where the directory was listed: an OPEN alone.
const LISTED_RPCS_MOST: f64 = 1.02;
/// Files per second that one request makes, of those that are made, written and closed.
const PUTS_LEAST: f64 = 1.0;
/// The same of ext4's files, and of ext4's with a syncfs each second.
const PUTS_OF_EXT4: f64 = 0.35;
const PUTS_OF_SYNCED: f64 = 0.5;
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Its requests. The rest is for what is not a file.
const PUT_RPCS_MOST: f64 = 1.02;
/// Scatters numbers, so that names are no series which is looked up ahead.
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

pub(crate) fn small_files(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let dirs = ["with-dom", "without-dom"].map(|name| bed.ours().join(name));
    for (dir, layout) in dirs.iter().zip(LAYOUTS) {
        fs::create_dir(dir)?;
        let dir = text(dir)?;
        let words: Vec<&str> = ["lfs", "setstripe"].into_iter().chain(layout.split(' ')).collect();
        let _silent = bed.up().tool(&[&words[..], &[&dir]].concat());
    }
    let mut all = phases_of_32k(scale, &dirs, ("dom-32k", "32 KiB"))?;
    all.extend(phases_of_empty(scale, &dirs, ("dom-empty", "0 bytes"), TASKS)?);
    all.extend(opens(bed, scale, &dirs)?);
    all.extend(puts(bed, scale)?);
    all.extend(puts_beside_ext4(bed, scale)?);
    dirs.iter().try_for_each(fs::remove_dir_all)?;
    Ok(all)
}

/// mdtest's phases with 32 KiB in each file, in a directory with DoM and in one without.
pub(super) fn phases_of_32k(
    scale: Scale,
    dirs: &[PathBuf; 2],
    names: (&str, &str),
) -> Result<Vec<Row>> {
    phases(scale, dirs, names, &["-N", TASKS, "-w", "32768", "-e", "32768"], &WITH_BYTES)
}

/// The same with empty files and with this number of tasks.
pub(super) fn phases_of_empty(
    scale: Scale,
    dirs: &[PathBuf; 2],
    names: (&str, &str),
    tasks: &str,
) -> Result<Vec<Row>> {
    phases(scale, dirs, names, &["-N", tasks], &EMPTY)
}

fn phases(
    scale: Scale,
    dirs: &[PathBuf; 2],
    (id, size): (&str, &str),
    more: &[&str],
    wanted: &[Wanted],
) -> Result<Vec<Row>> {
    let seconds = scale.seconds.min(SECONDS_MAX).to_string();
    let pairs = scale.pairs.min(TURNS_MAX).to_string();
    let mut options = vec!["-F", "-u", "-W", &seconds, "--drop-caches"];
    options.extend(more);
    let (with, without) = (text(&dirs[0])?, text(&dirs[1])?);
    let mut args = vec!["bench", "mdtest", "-d", &with];
    args.extend(&options);
    args.extend(["--against", &without, "--pairs", &pairs, "--json"]);
    let output: Output = nacre(&args)?;
    let command = format!(
        "nacre bench mdtest -d WITH-DOM {} --against WITHOUT --pairs {pairs}",
        options.join(" ")
    );
    let mut found = rows(id, &output, wanted, &command)?;
    found.iter_mut().for_each(|row| row.title = format!("{}, files of {size}", row.title));
    Ok(found)
}

/// The native library makes files of 32 KiB at the MDT in one call, beside create, write and close.
fn puts(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let (address, seconds) = (bed.up().address(), scale.seconds.min(PUT_SECONDS_MAX).to_string());
    let options = ["--in-flight", "64", "-F", "-C", "-W", &seconds, "-w", "32768", "--at-mdt"];
    let (mut rates, mut requests) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..scale.pairs.min(TURNS_MAX) {
        for (side, more) in [&["--put"][..], &[]].into_iter().enumerate() {
            let mut args = vec!["bench", "mdtest", "--native", &address, "--json"];
            args.extend(options.iter().chain(more));
            let output: Output = nacre(&args)?;
            let phase = output.phases.first().context("no phase")?;
            rates[side].push(phase.rate);
            requests[side].push(phase.requests_per_file.context("no requests")?);
        }
    }
    let options = options.join(" ");
    let command = format!("nacre bench mdtest --native NID:/testfs {options} --put, and without");
    let (least, most) = (Some(Bound::Ratio(PUTS_LEAST)), Some(Bound::AtMost(PUT_RPCS_MOST)));
    let title = "32 KiB in one call of the native library, beside create, write and close";
    Ok(vec![
        Row::of("dom/put", title, "files/s", rates, least, &command),
        Row::of("dom/put-rpcs", "the same: requests", "RPCs a file", requests, most, &command),
    ])
}

/// The same puts beside one process on ext4, whose files are as safe as ours only if they are
/// synced.
fn puts_beside_ext4(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let (address, limit) = (bed.up().address(), bed.limit());
    let seconds = scale.seconds.min(PUT_SECONDS_MAX).to_string();
    let options = ["-F", "-C", "-W", &seconds, "-w", "32768"];
    let native = ["--native", &address, "--in-flight", "64", "--at-mdt", "--put"];
    let (mut ours, mut plain, mut synced) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.pairs.min(TURNS_MAX) {
        ours.push(created(&[&native[..], &options[..]].concat())?);
        let path = text(&limit)?;
        let words = [&["-d", &path][..], &options[..]].concat();
        plain.push(created(&words)?);
        synced.push(with_syncs(&limit, || created(&words))?);
    }
    let options = options.join(" ");
    let command = format!(
        "nacre bench mdtest --native NID:/testfs --in-flight 64 --at-mdt --put {options}; \
         nacre bench mdtest -d EXT4 {options}"
    );
    let synced_command = format!("{command} & while sleep 1; do sync -f EXT4; done");
    let title = "32 KiB in one call of the native library, beside ext4";
    let synced_title = format!("{title} with a syncfs each second");
    let [least, synced_least] =
        [PUTS_OF_EXT4, PUTS_OF_SYNCED].map(|least| Some(Bound::Ratio(least)));
    let (rates, synced) = ([ours.clone(), plain], [ours, synced]);
    Ok(vec![
        Row::of("dom/put-ext4", title, "files/s", rates, least, &command),
        Row::of("dom/put-synced", &synced_title, "files/s", synced, synced_least, &synced_command),
    ])
}

/// Files per second of mdtest's first phase, with nothing dirty before.
fn created(options: &[&str]) -> Result<f64> {
    drop_caches()?;
    let output: Output = nacre(&[&["bench", "mdtest", "--json"][..], options].concat())?;
    Ok(output.phases.first().context("no phase")?.rate)
}

/// Works while the file system of a directory is synced again and again.
fn with_syncs<T>(dir: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let (dir, over) = (File::open(dir)?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let syncs = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(SYNC_EVERY);
                syncfs(&dir)?;
            }
            anyhow::Ok(())
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        syncs.join().expect("a task does not panic")?;
        done
    })
}

/// Each file is opened and read once, one after another.
fn opens(bed: &Bed, scale: Scale, dirs: &[PathBuf; 2]) -> Result<Vec<Row>> {
    let (mut rates, mut requests) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut listed = Vec::new();
    for turn in 0..scale.pairs.min(TURNS_MAX) {
        // new files: handles of those before may rest with the client
        for (side, dir) in dirs.iter().enumerate() {
            let [rate, each] = opened(bed, &dir.join(format!("opened.{turn}")), false)?;
            rates[side].push(rate);
            requests[side].push(each);
        }
        listed.push(opened(bed, &dirs[0].join(format!("listed.{turn}")), true)?[1]);
    }
    let command = "open and read of 2,000 files of 4 KiB, one after another, nothing cached";
    let after = "the same after a listing of the directory";
    let least = Some(Bound::Ratio(OPENS_LEAST));
    let [most, listed_most] = [RPCS_MOST, LISTED_RPCS_MOST].map(|most| Some(Bound::AtMost(most)));
    let [rpcs, unit] = ["the same: requests", "RPCs a file"];
    let listed = [listed, Vec::new()];
    Ok(vec![
        Row::of("dom/open-read", "open and read of 4 KiB", "files/s", rates, least, command),
        Row::of("dom/open-read-rpcs", rpcs, unit, requests, most, command),
        Row::of("dom/open-read-listed-rpcs", after, unit, listed, listed_most, command),
    ])
}

/// Makes files and opens each of them; files per second, and requests a file. Nothing is cached
/// before but, where the directory is listed, its names.
fn opened(bed: &Bed, dir: &Path, is_listed: bool) -> Result<[f64; 2]> {
    make(dir)?;
    std::thread::sleep(SETTLE);
    bed.up().set("ldlm.namespaces.*-mdc-*.lru_size", "clear");
    drop_caches()?;
    if is_listed {
        ensure!(fs::read_dir(dir)?.count() as u64 == FILES, "{} is not whole", dir.display());
    }
    let (before, start) = (sent(bed), Instant::now());
    read(dir)?;
    let rate = FILES as f64 / start.elapsed().as_secs_f64();
    Ok([rate, (sent(bed) - before) as f64 / FILES as f64])
}

fn make(dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    (0..FILES).try_for_each(|number| fs::write(dir.join(name(number)), [b'd'; FILE_BYTES]))?;
    Ok(())
}

fn read(dir: &Path) -> Result<()> {
    for number in 0..FILES {
        ensure!(fs::read(dir.join(name(number)))?.len() == FILE_BYTES, "file {number} is cut");
    }
    Ok(())
}

fn name(number: u64) -> String {
    format!("{:016x}", number.wrapping_mul(SCATTER))
}

fn sent(bed: &Bed) -> u64 {
    without_closes(&bed.up().param("llite.*.rpcs"))
}

/// Requests in the text of `llite.*.rpcs`. Closes travel together, and not while a caller waits.
fn without_closes(text: &str) -> u64 {
    let row = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        if name.contains("close") { None } else { count.trim().parse::<u64>().ok() }
    };
    text.lines().filter_map(row).sum()
}

#[cfg(test)]
mod tests_of_counts {
    use super::*;

    #[test]
    fn closes_are_not_counted() {
        assert_eq!(without_closes("mds_getattr_name 20\nmds_close 7\nmds_open 20\n\n"), 40);
        assert_eq!(without_closes(""), 0);
    }

    #[test]
    fn names_are_in_no_order() {
        let names: Vec<String> = (0..FILES).map(name).collect();
        let is_series = |pair: &[String]| {
            let [a, b] = [&pair[0], &pair[1]].map(|name| u64::from_str_radix(name, 16));
            a.ok().zip(b.ok()).is_some_and(|(a, b)| a.wrapping_add(1) == b)
        };
        assert!(!names.windows(2).any(is_series));
        let apart: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(apart.len(), names.len());
    }
}

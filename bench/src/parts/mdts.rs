//! Directories over four MDTs beside a directory of one MDT, in one file system: metadata rates
//! and their cost, a listing, and renames from one MDT to another. Streams into files of several
//! components beside files of one, both over four MDTs. Creates and unlinks at four MDTs on
//! simulated devices beside those at one.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use mounted::{Scratch, Up};

use super::metadata::{Output, Phase, text};
use super::public::drop_caches;
use super::{data, layouts};
use crate::bed::{Bed, nacre, quoted};
use crate::row::{Bound, Cpu, Row, Spread};
use crate::scale::Scale;

/// CPU of an operation in a directory of four shards, of the same in a directory of one MDT.
const CPU_MOST: f64 = 1.15;
/// The same of stats and reads by the native library.
const NATIVE_CPU_MOST: f64 = 1.05;
/// Turns of mdtest on a mount, and seconds in which it makes files.
const RATE_TURNS_MAX: u32 = 3;
const RATE_SECONDS_MAX: u32 = 3;
/// Turns of the native library, and seconds in which it makes files.
const TURNS_MAX: u32 = 3;
const NATIVE_SECONDS_MAX: u32 = 3;
const STREAM_SECONDS_MAX: u32 = 3;
/// So slow that four MDTs do not need all CPUs. Files have bytes, because creates alone do not wait
/// for an MDT's device.
const DEVICE: &str = "MDT*:flash,write_iops=1000";
/// On such MDTs: mdtest's name of a phase, and the beginnings of its id and of its title.
const ON_DEVICES: [(&str, &str, &str); 2] = [
    ("File creation", "device", "creation of 32 KiB"),
    ("File removal", "device-removal", "removal of 32 KiB"),
];
/// Creates and unlinks at four such MDTs, of those at one: a directory for each call in flight, and
/// one of four shards.
const OWN_LEAST: f64 = 3.6;
const SHARED_LEAST: f64 = 3.2;
/// Renames per second from one MDT to another, 64 in flight, and files of a turn.
const RENAMES_LEAST: f64 = 5_000.0;
const RENAMED: &str = "20000";
/// The same of a cold listing's time, and of a rename to another MDT.
const LISTING_MOST: f64 = 1.05;
const RENAME_MOST: f64 = 3.0;
/// Files of the listing, and files that move.
const FILES: [usize; 2] = [20_000, 100_000];
const MOVED: usize = 1_000;
/// Directories of streams: of several components, and of one.
const STREAMED: [&str; 2] = ["progressive", "plain"];
const PHASES: [&str; 4] = ["File creation", "File stat", "File read", "File removal"];

pub(crate) fn spread(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let args = ["--mdts", "4"];
    let mut up = Up::with(Scratch::new("bench-mdts"), Some(bed.fresh("mdts")), &args);
    make_dirs(&up);
    let mut rows = rates(&up, scale, "shared", "shards", &[])?;
    rows.extend(rates(&up, scale, "own", "each", &["-u"])?);
    rows.extend(native(&up, scale, ("native-shared", "native, shared"), "shards", &[])?);
    rows.extend(native(&up, scale, ("native-own", "native, own"), "each", &["-u"])?);
    rows.push(listing(&up, scale)?);
    rows.extend(stream(&up, scale)?);
    rows.push(renames(&up, scale)?);
    rows.push(renames_in_flight(&up, scale)?);
    up.stop();
    fs::remove_dir_all(up.data())?;
    rows.extend(on_devices(bed, scale)?);
    Ok(rows)
}

/// Directories of one MDT, of four shards, with children on an MDT each, and for renames.
pub(super) fn make_dirs(up: &Up) {
    let lines = [
        "mkdir -i 0 one",
        "setdirstripe -D -c 1 -i 0 one",
        "mkdir -c 4 -i 0,1,2,3 shards",
        "setdirstripe -D -c 4 shards",
        "mkdir -i 0 each",
        "setdirstripe -D -c 1 -i -1 --max-inherit-rr 3 each",
        "mkdir -i 0 near",
        "setdirstripe -D -c 1 -i 0 near",
        "mkdir -i 1 far",
        "setdirstripe -D -c 1 -i 1 far",
    ];
    for line in lines {
        drop(up.tool(&["lfs"].into_iter().chain(line.split(' ')).collect::<Vec<_>>()));
    }
}

/// mdtest below `dir`, in turns with the same on one MDT.
fn rates(up: &Up, scale: Scale, what: &str, dir: &str, more: &[&str]) -> Result<Vec<Row>> {
    let seconds = scale.seconds.min(RATE_SECONDS_MAX).to_string();
    let pairs = scale.pairs.min(RATE_TURNS_MAX).to_string();
    let mut options = vec!["-N", "4", "-F", "-W", &seconds, "--drop-caches"];
    options.extend(more);
    let (ours, limit) = (text(&up.at(dir))?, text(&up.at("one"))?);
    let mut args = vec!["bench", "mdtest", "-d", &ours];
    args.extend(&options);
    args.extend(["--against", &limit, "--pairs", &pairs, "--json"]);
    let output: Output = nacre(&args)?;
    let options = options.join(" ");
    let command =
        format!("nacre bench mdtest -d {dir} {options} --against ONE-MDT --pairs {pairs}");
    let title = format!("{what} directory");
    beside_one((what, &title[..]), &output, &command, |_| CPU_MOST)
}

/// The native library, 64 calls in flight, in turns below `dir` and on one MDT.
fn native(
    up: &Up,
    scale: Scale,
    names: (&str, &str),
    dir: &str,
    more: &[&str],
) -> Result<Vec<Row>> {
    let (address, seconds) = (up.address(), scale.seconds.min(NATIVE_SECONDS_MAX).to_string());
    let options = [&["--in-flight", "64", "-F", "-W", &seconds][..], more].concat();
    let mut all = Output { phases: Vec::new(), against: Vec::new() };
    for _ in 0..scale.pairs.min(TURNS_MAX) {
        for (dir, phases) in [(dir, &mut all.phases), ("one", &mut all.against)] {
            let args = ["bench", "mdtest", "--native", &address, "-d", dir, "--json"];
            let output: Output = nacre(&[&args[..], &options[..]].concat())?;
            phases.extend(output.phases);
        }
    }
    let options = options.join(" ");
    let command = format!("nacre bench mdtest --native NID:/testfs -d {dir} {options}, and -d one");
    let most = |phase: &str| match phase {
        "File stat" | "File read" => NATIVE_CPU_MOST,
        _ => CPU_MOST,
    };
    beside_one(names, &all, &command, most)
}

/// Creates and unlinks of files of 32 KiB at MDTs whose devices take few writes, of those at one
/// such MDT.
fn on_devices(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let up_args = ["--mdts", "4", "--device", DEVICE];
    let data = bed.fresh("mdts-device");
    let mut up = Up::with(Scratch::new("bench-mdts-device"), Some(data), &up_args);
    make_dirs(&up);
    let (address, seconds) = (up.address(), scale.seconds.min(STREAM_SECONDS_MAX).to_string());
    let options =
        ["--in-flight", "64", "-F", "-C", "-r", "-W", &seconds, "-w", "32768", "--at-mdt", "--put"];
    let cpus = std::thread::available_parallelism()?.get();
    let cases: [(&str, &str, &[&str], f64); 2] =
        [("own", "each", &["-u"], OWN_LEAST), ("shared", "shards", &[], SHARED_LEAST)];
    let mut rows = Vec::new();
    for (id, dir, more, least) in cases {
        let mut sides = [Vec::new(), Vec::new()];
        for _ in 0..scale.pairs.min(TURNS_MAX) {
            for (dir, side) in [dir, "one"].into_iter().zip(&mut sides) {
                let args = ["bench", "mdtest", "--native", &address, "-d", dir, "--json"];
                let output: Output = nacre(&[&args[..], &options[..], more].concat())?;
                side.extend(output.phases);
            }
        }
        let command = format!(
            "nacre up --separate {}; \
             nacre bench mdtest --native NID:/testfs -d {dir} {}, and -d one",
            quoted(&up_args),
            [&options[..], more].concat().join(" ")
        );
        rows.extend(device_rows((id, least), &sides, cpus, &command));
    }
    up.stop();
    fs::remove_dir_all(up.data())?;
    Ok(rows)
}

/// A row for each of [`ON_DEVICES`], with the idle part of the machine while it was measured.
fn device_rows(
    (id, least): (&str, f64),
    sides: &[Vec<Phase>; 2],
    cpus: usize,
    command: &str,
) -> Vec<Row> {
    let row = |(phase, kind, what): &(&str, &str, &str)| {
        let each = |side: &[Phase], value: &dyn Fn(&Phase) -> f64| -> Vec<f64> {
            side.iter().filter(|one| one.phase == *phase).map(value).collect()
        };
        let rates = sides.each_ref().map(|side| each(side, &|one| one.rate));
        let idle = sides.each_ref().map(|side| each(side, &|one| one.idle(cpus))).concat();
        let idle = Spread::of(&idle).map(|idle| idle.median);
        let (id, title) = (format!("mdts/{kind}-{id}"), format!("{what}, device, {id} directory"));
        let bound = Some(Bound::Ratio(least));
        Row { idle, ..Row::of(&id, &title, "files/s", rates, bound, command) }
    };
    ON_DEVICES.iter().map(row).collect()
}

/// Rows of each phase beside the same on one MDT: the rate, and the CPU with its bound.
fn beside_one(
    (id, title): (&str, &str),
    output: &Output,
    command: &str,
    most: impl Fn(&str) -> f64,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for phase in PHASES {
        let each = |side: &[Phase], value: fn(&Phase) -> f64| -> Vec<f64> {
            side.iter().filter(|one| one.phase == phase).map(value).collect()
        };
        let costs =
            [&output.phases, &output.against].map(|side| each(side, |one| one.cpu_s_per_10000));
        let cpu = Spread::of(&costs[0]).with_context(|| format!("no phase '{phase}'"))?;
        let word = phase.strip_prefix("File ").unwrap_or(phase);
        let row = |kind: &str, unit: &str, values: [Vec<f64>; 2], bound| {
            let [ours, limit] = values;
            let what = match kind {
                "" => "",
                "-requests" => ", requests",
                _ => ", CPU",
            };
            Row {
                id: format!("mdts/{id}-{word}{kind}"),
                title: format!("{word}, {title}{what}"),
                unit: unit.to_owned(),
                ours,
                limit,
                cpu: Some(Cpu { value: cpu.median, unit: "s per 10,000".to_owned() }),
                idle: None,
                bound,
                command: command.to_owned(),
            }
        };
        let speeds = [&output.phases, &output.against].map(|side| each(side, |one| one.rate));
        rows.push(row("", "files/s", speeds, None));
        rows.push(row("-cpu", "s per 10,000", costs, Some(Bound::RatioAtMost(most(phase)))));
        // whether CPU grows because there are more requests, or because each costs more
        let requests = [&output.phases, &output.against].map(|side| -> Vec<f64> {
            let phases = side.iter().filter(|one| one.phase == phase);
            phases.filter_map(|one| one.requests_per_file).collect()
        });
        if requests.iter().all(|side| !side.is_empty()) {
            rows.push(row("-requests", "requests per file", requests, None));
        }
    }
    Ok(rows)
}

/// `ls -lU` after dropped caches.
fn listing(up: &Up, scale: Scale) -> Result<Row> {
    let files = FILES[usize::from(!scale.is_quick())];
    let filled = |top: &str| anyhow::Ok(up.at(&fill(up, top, &files.to_string())?));
    let dirs = [filled("shards")?, filled("one")?];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..scale.pairs {
        for (dir, times) in dirs.iter().zip(&mut times) {
            times.push(cold(up, dir)?);
        }
    }
    let title = format!("ls -lU of {files} files in four shards, cold");
    Ok(beside("mdts/listing", &title, "s", times, LISTING_MOST, "ls -lU DIR"))
}

/// Makes a directory with this many entries in the empty directory `top`; its path below the mount.
pub(super) fn fill(up: &Up, top: &str, entries: &str) -> Result<String> {
    let address = up.address();
    let output: Output = nacre(&[
        "bench", "mdtest", "--native", &address, "-d", top, "-F", "-C", "-n", entries, "--keep",
        "--json",
    ])?;
    ensure!(!output.phases.is_empty(), "no files were made");
    let tree = fs::read_dir(up.at(top))?.next().context("mdtest has left no tree")??;
    Ok(format!("{top}/{}/dir.0", tree.file_name().display()))
}

/// Seconds of `ls -lU` with nothing cached.
pub(super) fn cold(up: &Up, dir: &Path) -> Result<f64> {
    up.set("ldlm.namespaces.*.lru_size", "clear");
    drop_caches()?;
    let start = Instant::now();
    let status = Command::new("ls").arg("-lU").arg(dir).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "ls ended with {status}");
    Ok(start.elapsed().as_secs_f64())
}

/// The median time of a rename from a directory to one of another MDT, beside one of the same.
fn renames(up: &Up, scale: Scale) -> Result<Row> {
    let [from, to] = ["near/from", "near/to"].map(|dir| up.at(dir));
    fs::create_dir(&from)?;
    fs::create_dir(&to)?;
    for number in 0..MOVED {
        File::create(from.join(number.to_string()))?;
    }
    let moved = |from: &Path, to: &Path| -> Result<f64> {
        let mut times = Vec::new();
        for number in 0..MOVED {
            let name = number.to_string();
            let start = Instant::now();
            fs::rename(from.join(&name), to.join(&name))?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(Spread::of(&times).context("renames")?.median)
    };
    let (far, mut times) = (up.at("far"), [Vec::new(), Vec::new()]);
    for _ in 0..scale.pairs {
        times[0].push(moved(&from, &far)?);
        moved(&far, &from)?;
        times[1].push(moved(&from, &to)?);
        moved(&to, &from)?;
    }
    let title = "rename to a directory of another MDT";
    Ok(beside("mdts/rename", title, "us", times, RENAME_MOST, "rename(2), one after another"))
}

/// Renames per second of one native client.
fn renames_in_flight(up: &Up, scale: Scale) -> Result<Row> {
    let address = up.address();
    let tree = ["--in-flight", "64", "-F", "-C", "-n", RENAMED, "-d", "near"];
    let options = [&tree[..], &["--rename-to", "far"]].concat();
    let args = ["bench", "mdtest", "--native", &address, "--json"];
    let mut values = Vec::new();
    for _ in 0..scale.pairs.min(TURNS_MAX) {
        let output: Output = nacre(&[&args[..], &options[..]].concat())?;
        let renames = output.phases.iter().find(|phase| phase.phase == "File rename");
        values.push(renames.context("renames were measured")?.rate);
    }
    let title = "renames to a directory of another MDT, 64 in flight";
    let command = format!("nacre bench mdtest --native NID:/testfs {}", options.join(" "));
    let (values, bound) = ([values, Vec::new()], Some(Bound::AtLeast(RENAMES_LEAST)));
    Ok(Row::of("mdts/renames", title, "renames/s", values, bound, &command))
}

/// The streams of part `layouts`, as often as there, in directories of four shards. Each MDT takes
/// the OSTs in turn on its own, so files of several MDTs may share an OST, on one side only. So
/// each file is made beforehand on an OST of its own.
fn stream(up: &Up, scale: Scale) -> Result<Vec<Row>> {
    let seconds = scale.seconds.min(STREAM_SECONDS_MAX).to_string();
    let options = layouts::streams(&seconds);
    for dir in STREAMED {
        drop(up.tool(&["lfs", "mkdir", "-c", "4", "-i", "0,1,2,3", dir]));
        drop(up.tool(&["lfs", "setdirstripe", "-D", "-c", "4", dir]));
    }
    let mut sides = [Vec::new(), Vec::new()];
    for side in turns(scale.pairs) {
        for (layout, file) in files_of(side) {
            layouts::set(up, &layout, &file);
        }
        let file = text(&up.at(STREAMED[side]).join("ior"))?;
        let args = ["bench", "ior", "-o", &file, "--json"];
        let output: data::Output = nacre(&[&args[..], &options[..]].concat())?;
        sides[side].extend(output.runs);
    }
    let [runs, against] = sides;
    let output = data::Output { runs, against };
    let options = options.join(" ");
    let [ours, limit] = layouts::LAYOUTS;
    let command = format!(
        "lfs setstripe {ours} -i N PROGRESSIVE/ior.0000000N; nacre bench ior -o PROGRESSIVE/ior \
         {options}, and with {limit} below PLAIN"
    );
    let mut rows = data::rows("mdts", &output, layouts::BOUNDS, &command)?;
    for row in &mut rows {
        row.title = format!("{}, IOR over four MDTs, several components beside one", row.title);
    }
    Ok(rows)
}

/// Sides in the order of their runs. The first one of a turn changes: the files of the last run are
/// still being destroyed while the next one writes.
fn turns(pairs: u32) -> impl Iterator<Item = usize> {
    (0..pairs as usize).flat_map(|turn| [turn % 2, (turn + 1) % 2])
}

/// Layout and name of the file of each process.
fn files_of(side: usize) -> impl Iterator<Item = (String, String)> {
    let (layout, dir) = (layouts::LAYOUTS[side], STREAMED[side]);
    (0..4).map(move |task| (format!("{layout} -i {task}"), format!("{dir}/ior.{task:08}")))
}

fn beside(id: &str, title: &str, unit: &str, times: [Vec<f64>; 2], most: f64, how: &str) -> Row {
    Row::of(id, title, unit, times, Some(Bound::RatioAtMost(most)), how)
}

#[cfg(test)]
mod tests_of_devices {
    use super::*;

    #[test]
    fn creates_and_unlinks_have_rows_and_the_busy_ones_are_void() {
        let phase = |phase: &str, rate, cpu_s_per_10000| Phase {
            phase: phase.to_owned(),
            rate,
            cpu_s_per_10000,
            requests_per_file: None,
        };
        let side = |creates, unlinks| {
            vec![phase("File creation", creates, 1.0), phase("File removal", unlinks, 2.0)]
        };
        let sides = [side(4_000.0, 9_000.0), side(1_000.0, 8_000.0)];
        let rows = device_rows(("own", OWN_LEAST), &sides, 2, "nacre bench mdtest");
        let shown: Vec<_> = rows.iter().map(|row| (&row.id[..], row.is_reached())).collect();
        let expected = [("mdts/device-own", Some(true)), ("mdts/device-removal-own", None)];
        assert_eq!(shown, expected);
        assert_eq!(rows[1].title, "removal of 32 KiB, device, own directory");
    }

    #[test]
    fn phases_that_count_requests_have_a_row_for_them() {
        let ids = |requests_per_file| {
            let phase = |phase: &str| Phase {
                phase: phase.to_owned(),
                rate: 1_000.0,
                cpu_s_per_10000: 1.0,
                requests_per_file,
            };
            let side = || PHASES.map(phase).to_vec();
            let output = Output { phases: side(), against: side() };
            let rows = beside_one(("own", "own directory"), &output, "nacre", |_| CPU_MOST);
            let rows = rows.expect("all phases are there");
            rows.into_iter().map(|row| (row.id, row.title)).collect::<Vec<_>>()
        };
        let row = ("mdts/own-stat-requests".to_owned(), "stat, own directory, requests".to_owned());
        assert!(ids(Some(1.0)).contains(&row));
        assert_eq!((ids(Some(1.0)).len(), ids(None).len()), (12, 8), "a row each, and none");
    }
}

#[cfg(test)]
mod tests_of_streams {
    use super::*;

    #[test]
    fn both_sides_go_first_and_have_their_files_on_the_same_osts() {
        assert_eq!(turns(3).collect::<Vec<_>>(), [0, 1, 1, 0, 0, 1]);
        for (side, dir) in (0..).zip(STREAMED) {
            for (task, (layout, file)) in files_of(side).enumerate() {
                assert_eq!(layout, format!("{} -i {task}", layouts::LAYOUTS[side]));
                assert_eq!(file, format!("{dir}/ior.0000000{task}"));
            }
        }
    }
}

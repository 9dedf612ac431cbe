//! Files that the kernel has already: a file that was read before, programs and their libraries,
//! attributes and bytes of small files. Beside the same on ext4.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bed::Bed;
use crate::machine::output;
use crate::row::{Bound, Row};
use crate::scale::Scale;

const TURNS_MAX: u32 = 5;
/// MiB of the file that is read.
const MIB: usize = 1 << 10;
/// Of ext4's rate.
const READ_LEAST: f64 = 0.9;

/// Shells that are started in a turn, and most of ext4's time.
const SHELLS: u32 = 1_000;
const SHELLS_MOST: f64 = 1.5;
const BASH: &str = "/bin/bash";

/// Small files, the tasks that share them, and the bytes of each.
const FILES: usize = 20_000;
const TASKS: usize = 4;
const FILE_BYTES: usize = 4 << 10;
/// Stats per second, of ext4's.
const STAT_LEAST: f64 = 0.5;
/// Opens per second, each with a read and a close.
const OPENS_LEAST: f64 = 26_000.0;

pub(crate) fn again(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let turns = scale.pairs.min(TURNS_MAX);
    let sides = [bed.ours(), &bed.limit()].map(|dir| dir.join("warm"));
    sides.iter().try_for_each(fs::create_dir)?;
    let rows = vec![
        second_read(&sides, turns)?,
        shells(&sides, turns)?,
        small(&sides, turns, &STATS)?,
        small(&sides, turns, &OPENS)?,
    ];
    sides.iter().try_for_each(fs::remove_dir_all)?;
    Ok(rows)
}

fn second_read(sides: &[PathBuf; 2], turns: u32) -> Result<Row> {
    let files = sides.each_ref().map(|dir| dir.join("bytes"));
    for file in &files {
        let mut made = File::create(file)?;
        (0..MIB).try_for_each(|number| made.write_all(&vec![number as u8; 1 << 20]))?;
        made.sync_all()?;
        drop(made);
        read_whole(file)?;
    }
    let rates = in_turns(turns, |side| read_whole(&files[side]))?;
    let (title, bound) = ("second read of 1 GiB", Some(Bound::Ratio(READ_LEAST)));
    Ok(Row::of("warm/read", title, "MiB/s", rates, bound, "dd if=FILE of=/dev/null bs=1M"))
}

/// Reads a file of [`MIB`] MiB; MiB per second.
fn read_whole(path: &Path) -> Result<f64> {
    let (mut buffer, mut bytes) = (vec![0_u8; 1 << 20], 0);
    let start = Instant::now();
    let mut file = File::open(path)?;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            more => bytes += more,
        }
    }
    ensure!(bytes == MIB << 20, "{} has {bytes} bytes", path.display());
    Ok(MIB as f64 / start.elapsed().as_secs_f64())
}

/// Shells that end at once. They and their libraries are on the file system that is measured.
fn shells(sides: &[PathBuf; 2], turns: u32) -> Result<Row> {
    let needed = libraries(&output("ldd", &[BASH])?);
    let loader = needed.iter().find(|path| is_loader(path)).context("bash needs a loader")?;
    let loader = loader.file_name().context("a file has a name")?;
    for dir in sides {
        for file in needed.iter().map(PathBuf::as_path).chain([Path::new(BASH)]) {
            fs::copy(file, dir.join(file.file_name().context("a file has a name")?))?;
        }
        start_shells(dir, &dir.join(loader), 1)?;
    }
    let times = in_turns(turns, |side| {
        let start = Instant::now();
        start_shells(&sides[side], &sides[side].join(loader), SHELLS)?;
        Ok(start.elapsed().as_secs_f64())
    })?;
    let (title, bound) = ("bash -c true, 1,000 times", Some(Bound::RatioAtMost(SHELLS_MOST)));
    let command = "DIR/LOADER --library-path DIR DIR/bash -c true";
    Ok(Row::of("warm/shells", title, "s", times, bound, command))
}

fn start_shells(dir: &Path, loader: &Path, count: u32) -> Result<()> {
    let script = "for ((i = 0; i < COUNT; i++)); do \
        \"$LOADER\" --library-path \"$DIR\" \"$DIR/bash\" -c true || exit 1; done";
    let ended = Command::new(BASH)
        .args(["-c", script])
        .env("DIR", dir)
        .env("LOADER", loader)
        .env("COUNT", count.to_string())
        .status()?;
    ensure!(ended.success(), "shells of {} ended with {ended}", dir.display());
    Ok(())
}

/// Files that `ldd` names.
fn libraries(ldd: &str) -> Vec<PathBuf> {
    let words = ldd.lines().map(str::split_whitespace);
    words
        .filter_map(|mut words| words.find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}

fn is_loader(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-"))
}

/// What is done to each of many small files.
struct Case {
    id: &'static str,
    title: &'static str,
    bound: Bound,
    each: fn(&Path) -> Result<()>,
}

const STATS: Case = Case {
    id: "warm/stat",
    title: "stat again, four tasks",
    bound: Bound::Ratio(STAT_LEAST),
    each: |path| Ok(fs::metadata(path).map(drop)?),
};

const OPENS: Case = Case {
    id: "warm/open-read",
    title: "open, read 4 KiB, close again, four tasks",
    bound: Bound::AtLeast(OPENS_LEAST),
    each: |path| {
        ensure!(fs::read(path)?.len() == FILE_BYTES, "{} is cut", path.display());
        Ok(())
    },
};

fn small(sides: &[PathBuf; 2], turns: u32, case: &Case) -> Result<Row> {
    let dirs = sides.each_ref().map(|dir| dir.join("small"));
    for dir in dirs.iter().filter(|dir| !dir.exists()) {
        fs::create_dir(dir)?;
        at_once(dir, |path| Ok(fs::write(path, [b'w'; FILE_BYTES])?))?;
    }
    for dir in &dirs {
        at_once(dir, case.each)?;
    }
    let rates = in_turns(turns, |side| {
        let start = Instant::now();
        at_once(&dirs[side], case.each)?;
        Ok(FILES as f64 / start.elapsed().as_secs_f64())
    })?;
    let command = "20,000 files of 4 KiB in one directory, a quarter for each task";
    Ok(Row::of(case.id, case.title, "files/s", rates, Some(case.bound), command))
}

/// Does something to all files of a directory, each task to its share.
fn at_once(dir: &Path, each: impl Fn(&Path) -> Result<()> + Sync) -> Result<()> {
    let share = |task: usize| {
        let mut numbers = (0..FILES).filter(|number| number % TASKS == task);
        numbers.try_for_each(|number| each(&dir.join(number.to_string())))
    };
    std::thread::scope(|scope| {
        let share = &share;
        let tasks: Vec<_> = (0..TASKS).map(|task| scope.spawn(move || share(task))).collect();
        tasks.into_iter().try_for_each(|task| task.join().expect("a task does not panic"))
    })
}

/// Values of our side and of the limit's.
fn in_turns(turns: u32, measure: impl Fn(usize) -> Result<f64>) -> Result<[Vec<f64>; 2]> {
    let mut values = [Vec::new(), Vec::new()];
    for _ in 0..turns {
        for (side, values) in values.iter_mut().enumerate() {
            values.push(measure(side)?);
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests_of_libraries {
    use super::*;

    #[test]
    fn files_are_read_from_what_ldd_prints() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n";
        let found = libraries(text);
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert_eq!([is_loader(&found[0]), is_loader(&found[1])], [false, true]);
    }

    #[test]
    fn sides_take_turns() {
        let values = in_turns(2, |side| Ok(side as f64)).expect("nothing fails");
        assert_eq!(values, [vec![0.0; 2], vec![1.0; 2]]);
    }
}

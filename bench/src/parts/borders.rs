//! Random calls of 4 KiB with O_DIRECT against the size of files. The first bytes of a file are at
//! the MDT or on a flash OST, up to several borders, and the others on a disk. Files without
//! components have all bytes on the disk. All devices are simulated.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use mounted::range::open_direct;
use mounted::{Scratch, Up};

use super::devices::{AT_MDT, AT_MDT_BYTES, HEADS, UP};
use super::layouts::set;
use super::metadata::text;
use crate::bed::{Bed, quoted};
use crate::machine::CpuTime;
use crate::row::Row;
use crate::scale::Scale;

/// Tasks, each with a file of its own.
const TASKS: usize = 4;
/// Seconds of a phase at most: a run has 90 phases.
const SECONDS_MAX: u32 = 1;
const CALL_BYTES: usize = 4 << 10;

/// Names and bytes of the files' sizes.
const SIZES: [(&str, usize); 5] =
    [("32K", 32 << 10), ("128K", 128 << 10), ("512K", 512 << 10), ("2M", 2 << 20), ("8M", 8 << 20)];
const BORDERS: [&str; 4] = ["64K", "256K", "1M", "4M"];
/// Places of the bytes below a border: name, and options of `lfs setstripe`.
const PLACES: [(&str, &str); 2] = [("at the MDT", "-L mdt"), ("on flash", "-c 1 -i 0 -S 64K")];
/// Of bytes on the disk.
const DISK: &str = "-c 1 -i 2 -S 1M";
/// Files without components.
const PLAIN: &str = "no components";

/// Name of the plot's file, and the calls that it shows.
pub(crate) const PLOTS: [(&str, &str); 2] = [("borders-write", "write"), ("borders-read", "read")];

/// Calls per second, and the idle part of the machine meanwhile.
#[derive(Clone, Copy)]
struct Value {
    rate: f64,
    idle: f64,
}

/// One call with a buffer at a place.
type Access = fn(&File, &mut [u8], u64) -> io::Result<()>;

pub(crate) fn by_size(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let mut up = Up::with(Scratch::new("bench-borders"), Some(bed.fresh("borders")), &UP);
    HEADS.iter().for_each(|head| up.set(head, "target"));
    up.set(AT_MDT, AT_MDT_BYTES[0]);
    let rows = rows(&up, Duration::from_secs(scale.seconds.min(SECONDS_MAX).into()));
    HEADS.iter().for_each(|head| up.set(head, "service")); // the bed's servers have it too
    up.set(AT_MDT, AT_MDT_BYTES[1]);
    up.stop();
    fs::remove_dir_all(up.data())?;
    rows
}

/// Names of the layouts and their options, first that without components.
fn layouts() -> Vec<(String, String)> {
    let mut all = vec![(PLAIN.to_owned(), DISK.to_owned())];
    for border in BORDERS {
        for (place, first) in PLACES {
            let options = format!("-E {border} {first} -E -1 {DISK}");
            all.push((format!("{border} {place}"), options));
        }
    }
    all
}

fn rows(up: &Up, span: Duration) -> Result<Vec<Row>> {
    let layouts = layouts();
    for (name, options) in &layouts {
        let dir = up.at(&word(name));
        fs::create_dir(&dir)?;
        set(up, options, &text(&dir)?);
    }
    let mut rows = Vec::new();
    for (size, bytes) in SIZES {
        let mut plain = None;
        for (name, _) in &layouts {
            let values = measure(&up.at(&word(name)), bytes, span)?;
            rows.extend(shown(name, size, values, plain));
            plain = plain.or(Some(values));
        }
    }
    Ok(rows)
}

/// Without blanks.
fn word(name: &str) -> String {
    name.replace(' ', "-")
}

/// Writes to new files of this size, then reads of them.
fn measure(dir: &Path, bytes: usize, span: Duration) -> Result<[Value; 2]> {
    let paths: Vec<_> = (0..TASKS).map(|task| dir.join(format!("file.{task}"))).collect();
    let files = paths.iter().map(|path| made(path, bytes)).collect::<Result<Vec<File>>>()?;
    let written = phase(&files, bytes, span, write)?;
    files.iter().try_for_each(File::sync_all)?;
    let read = phase(&files, bytes, span, read)?;
    drop(files);
    paths.iter().try_for_each(fs::remove_file)?;
    Ok([written, read])
}

/// A new file with all its bytes.
fn made(path: &Path, bytes: usize) -> Result<File> {
    let file = File::create_new(path)?;
    file.write_all_at(&vec![b'b'; bytes], 0)?;
    file.sync_all()?;
    Ok(open_direct(path)?)
}

fn write(file: &File, buffer: &mut [u8], place: u64) -> io::Result<()> {
    file.write_all_at(buffer, place)
}

fn read(file: &File, buffer: &mut [u8], place: u64) -> io::Result<()> {
    file.read_exact_at(buffer, place)
}

/// Calls of all tasks, each to its file.
fn phase(files: &[File], bytes: usize, span: Duration, access: Access) -> Result<Value> {
    let (before, start) = (CpuTime::now()?, Instant::now());
    let count = std::thread::scope(|scope| {
        let tasks: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(move || calls(file, bytes, start + span, access)))
            .collect();
        let counts = tasks.into_iter().map(|task| task.join().expect("a task does not panic"));
        counts.sum::<io::Result<u64>>()
    })?;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    Ok(Value { rate, idle: before.idle_until(CpuTime::now()?) })
}

/// Calls of one task until `end`.
fn calls(file: &File, bytes: usize, end: Instant, access: Access) -> io::Result<u64> {
    // O_DIRECT wants buffers on the boundaries of the device's blocks
    let mut memory = vec![b'b'; 2 * CALL_BYTES];
    let start = memory.as_ptr().align_offset(CALL_BYTES);
    let buffer = &mut memory[start..start + CALL_BYTES];
    let mut count = 0;
    while Instant::now() < end {
        access(file, buffer, place(count, bytes))?;
        count += 1;
    }
    Ok(count)
}

/// Where a call goes in a file of this size. Sizes are powers of two, so the walk meets each place
/// once before it begins again.
fn place(number: u64, bytes: usize) -> u64 {
    let places = (bytes / CALL_BYTES) as u64;
    let step = (places as f64 * 0.618) as u64 | 1;
    let at = number.wrapping_mul(step) % places;
    at * CALL_BYTES as u64
}

/// Rows of writes and of reads.
fn shown(name: &str, size: &str, values: [Value; 2], plain: Option<[Value; 2]>) -> [Row; 2] {
    let command = format!(
        "nacre up --separate --mdts 1 {}; lctl set_param {AT_MDT}={}; lfs setstripe -E BORDER \
         {}|{} -E -1 {DISK} DIR; pwrite(2) and pread(2) of 4 KiB with O_DIRECT, {TASKS} tasks",
        quoted(&UP),
        AT_MDT_BYTES[0],
        PLACES[0].1,
        PLACES[1].1,
    );
    let row = |access: &str, ours: Value, plain: Option<Value>| {
        let id = format!("borders/{access}-{}-{size}", word(name));
        let title = format!("{access}, {name}, {size}");
        let rates = [vec![ours.rate], plain.iter().map(|plain| plain.rate).collect()];
        let idle = plain.map_or(ours.idle, |plain| plain.idle.min(ours.idle));
        Row { idle: Some(idle), ..Row::of(&id, &title, "calls/s", rates, None, &command) }
    };
    let [written, read] = values;
    let [plain_written, plain_read] = [plain.map(|[it, _]| it), plain.map(|[_, it]| it)];
    [row("write", written, plain_written), row("read", read, plain_read)]
}

/// Calls per second by KiB of a file, a line for each layout.
pub(crate) fn lines(rows: &[&Row], access: &str) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in rows.iter().filter(|row| row.id.starts_with("borders/")) {
        let parts: Vec<&str> = row.title.split(", ").collect();
        let [kind, layout, size] = &parts[..] else { continue };
        let bytes = SIZES.iter().find(|(name, _)| name == size).map(|(_, bytes)| *bytes);
        let (true, Some(bytes), Some(rate)) = (*kind == access, bytes, row.ours.first()) else {
            continue;
        };
        let point = ((bytes >> 10) as f64, *rate);
        match lines.iter_mut().find(|line| line.0 == *layout) {
            Some(line) => line.1.push(point),
            None => lines.push(((*layout).to_owned(), vec![point])),
        }
    }
    lines
}

#[cfg(test)]
mod tests_of_borders {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_walk_meets_every_place_once() {
        for (size, bytes) in SIZES {
            let places = bytes / CALL_BYTES;
            let met: BTreeSet<u64> = (0..places as u64).map(|it| place(it, bytes)).collect();
            assert_eq!(met.len(), places, "{size}");
            assert!(met.iter().all(|at| *at as usize + CALL_BYTES <= bytes), "{size}");
        }
    }

    #[test]
    fn layouts_have_names_of_their_own() {
        let layouts = layouts();
        let names: BTreeSet<String> = layouts.iter().map(|(name, _)| word(name)).collect();
        assert_eq!((names.len(), layouts.len()), (9, 9));
        assert!(layouts.iter().all(|(name, _)| !name.contains(',')), "titles have commas");
        assert_eq!(layouts[2].1, "-E 64K -c 1 -i 0 -S 64K -E -1 -c 1 -i 2 -S 1M");
    }

    #[test]
    fn each_layout_is_a_line_and_is_compared_with_the_plain_one() {
        let value = |rate: f64, idle: f64| Value { rate, idle };
        let plain = [value(100.0, 0.9), value(200.0, 0.5)];
        let mut rows = shown(PLAIN, "32K", plain, None).to_vec();
        let fast = [value(400.0, 0.4), value(300.0, 0.8)];
        rows.extend(shown("64K on flash", "32K", fast, Some(plain)));
        rows.extend(shown("64K on flash", "8M", fast, Some(plain)));
        assert!(rows[0].ratio().is_none());
        assert_eq!(rows[2].ratio().map(|ratio| ratio.median), Some(4.0));
        assert_eq!((rows[2].idle, rows[3].idle), (Some(0.4), Some(0.5)));
        assert_eq!(rows[3].id, "borders/read-64K-on-flash-32K");
        let rows: Vec<&Row> = rows.iter().collect();
        let expected = [
            (PLAIN.to_owned(), vec![(32.0, 200.0)]),
            ("64K on flash".to_owned(), vec![(32.0, 300.0), (8_192.0, 300.0)]),
        ];
        assert_eq!(lines(&rows, "read"), expected);
    }

    #[test]
    fn tasks_call_until_the_time_is_over() {
        let scratch = Scratch::new("borders");
        let path = scratch.path().join("file");
        fs::write(&path, vec![b'b'; 32 << 10]).expect("written");
        let file = File::options().read(true).write(true).open(&path).expect("opens");
        let files = [file];
        for access in [write as Access, read] {
            let value = phase(&files, 32 << 10, Duration::from_millis(20), access);
            assert!(value.expect("calls succeed").rate > 0.0);
        }
    }
}

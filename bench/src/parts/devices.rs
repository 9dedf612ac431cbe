//! Streams on a simulated disk: into progressive files beside plain ones, and beside a neighbour
//! whose small files are on flash or on the same disk. Small files with their bytes at an MDT on
//! flash beside those with an object on flash.
//!
//! A row counts only if the machine was idle for a part of the time: else the devices were not what
//! everything waited for. Rows have that part, and are void below [`crate::row::IDLE_LEAST`].

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mounted::{Scratch, Up, nacre_bin};

use super::data::{BLOCK, Output};
use super::layouts::set;
use super::metadata::text;
use super::public::drop_caches;
use super::{dom, wide};
use crate::bed::{Bed, nacre, quoted};
use crate::machine::CpuTime;
use crate::row::{Bound, Row, Spread};
use crate::scale::Scale;

pub(super) const UP: [&str; 8] = [
    "--osts",
    "3",
    "--device",
    "MDT*:flash",
    "--device",
    "OST000[01]:flash",
    "--device",
    "OST0002:disk",
];

/// Where small files are made. Executors without work sleep at once, because to look on for work
/// counts as busy.
const UP_FLASH: [&str; 8] =
    ["--osts", "1", "--device", "MDT*:flash", "--device", "OST*:flash", "--linger-us", "0"];

/// Where small files are removed until their space is back, with frequent commits.
const UP_OFTEN: [&str; 10] = [
    "--osts",
    "1",
    "--device",
    "MDT*:flash",
    "--device",
    "OST*:flash",
    "--linger-us",
    "0",
    "--commit-interval-ms",
    wide::COMMIT_MS,
];

const TURNS_MAX: u32 = 3;
const SECONDS_MAX: u32 = 4;
/// Processes of mdtest with empty files: more of them would need all CPUs, and no device.
const EMPTY_TASKS: &str = "1";
/// Before a stream is measured beside a neighbour.
const SETTLE: Duration = Duration::from_secs(1);

/// Of the stream into plain files, or of the stream that is alone.
const LEAST: f64 = 0.95;

/// Each service has a head and slots of its own for each target.
pub(super) const HEADS: [&str; 2] =
    ["ost.OSS.ost_io.nrs_head_scope", "mds.MDS.mdt_io.nrs_head_scope"];

/// What an MDT takes of a file, with the largest border and as it is elsewhere.
pub(super) const AT_MDT: &str = "lod.*.dom_stripesize";
pub(super) const AT_MDT_BYTES: [&str; 2] = ["4M", "1M"];

/// Layouts with names: of the stream, and of the neighbours.
const LAYOUTS: [(&str, &str); 6] = [
    ("plain", "-c 1 -i 2 -S 1M"),
    ("progressive", "-E 1M -L mdt -E -1 -c 1 -i 2 -S 1M"),
    ("progressive-4m", "-E 4M -L mdt -E -1 -c 1 -i 2 -S 1M"),
    ("on-disk", "-c 1 -i 2 -S 1M"),
    ("on-flash", "-E 1M -c 1 -i 0 -S 1M -E -1 -c 1 -i 2 -S 1M"),
    ("on-flash-4m", "-E 4M -c 1 -i 0 -S 1M -E -1 -c 1 -i 2 -S 1M"),
];

/// The same of small files, with their bytes at the MDT and without.
const SMALL: [(&str, &str); 2] =
    [("with-dom", "-E 64K -L mdt -E -1 -c 1 -i 0 -S 1M"), ("without-dom", "-c 1 -i 0 -S 1M")];

/// Directories of streams, and the beginning of their files' names there.
const STREAMED: [&str; 2] = ["plain", "progressive"];
const STREAM: &str = "stream";

/// What a neighbour does until it ends.
#[derive(Clone, Copy)]
enum Work {
    /// Random calls of 4 KiB to files of this size.
    Random(&'static str),
    /// Files of 32 KiB are made, read and removed.
    Mdtest,
}

impl Work {
    /// Its command, without the name of the program.
    fn words(self, dir: &str) -> Vec<String> {
        let line = match self {
            Work::Random(size) => format!(
                "bench ior -o {dir}/small -N 2 -F -B -z -t 4k -b {size} -e -i 1000000 --json"
            ),
            Work::Mdtest => format!(
                "bench mdtest -d {dir} -N 1 -F -u -n 500 -w 32768 -e 32768 -i 1000000 --json"
            ),
        };
        line.split(' ').map(str::to_owned).collect()
    }
}

/// A stream, and what else goes on.
struct Case {
    id: &'static str,
    title: &'static str,
    /// Directory of the stream.
    dir: &'static str,
    /// Directory of a neighbour, and what it does there.
    neighbour: Option<(&'static str, Work)>,
    /// Place of the case that it is compared with.
    of: Option<usize>,
    least: Option<f64>,
}

/// Files of a neighbour that are no longer than 1 MiB are below either border, so they are measured
/// with one border in each place.
const CASES: [Case; 13] = [
    Case { id: "plain", title: "", dir: "plain", neighbour: None, of: None, least: None },
    Case {
        id: "progressive",
        title: "progressive files of plain ones",
        dir: "progressive",
        neighbour: None,
        of: Some(0),
        least: Some(LEAST),
    },
    Case {
        id: "beside-mdt",
        title: "beside 1 MiB files at the MDT, of alone",
        dir: "progressive",
        neighbour: Some(("progressive", Work::Random("1m"))),
        of: Some(1),
        least: Some(LEAST),
    },
    Case {
        id: "beside-mdtest",
        title: "beside mdtest with 32 KiB at the MDT, of alone",
        dir: "progressive",
        neighbour: Some(("progressive", Work::Mdtest)),
        of: Some(1),
        least: Some(LEAST),
    },
    Case {
        id: "beside-mdt-4m",
        title: "beside 4 MiB files at the MDT, of alone",
        dir: "progressive",
        neighbour: Some(("progressive-4m", Work::Random("4m"))),
        of: Some(1),
        least: Some(LEAST),
    },
    Case {
        id: "beside-flash",
        title: "beside 1 MiB files on flash OSTs, of alone",
        dir: "progressive",
        neighbour: Some(("on-flash", Work::Random("1m"))),
        of: Some(1),
        least: Some(LEAST),
    },
    Case {
        id: "beside-flash-4m",
        title: "beside 4 MiB files on flash OSTs, of alone",
        dir: "progressive",
        neighbour: Some(("on-flash-4m", Work::Random("4m"))),
        of: Some(1),
        least: Some(LEAST),
    },
    Case {
        id: "beside-flash-mdtest",
        title: "beside mdtest with 32 KiB on flash OSTs, of alone",
        dir: "progressive",
        neighbour: Some(("on-flash", Work::Mdtest)),
        of: Some(1),
        least: Some(LEAST),
    },
    Case {
        id: "beside-mdt-above",
        title: "beside 4 MiB files, 1 MiB at the MDT and the rest on the same disk, of alone",
        dir: "progressive",
        neighbour: Some(("progressive", Work::Random("4m"))),
        of: Some(1),
        least: None,
    },
    Case {
        id: "beside-above",
        title: "beside 4 MiB files, 3 MiB of which are on the same disk, of alone",
        dir: "progressive",
        neighbour: Some(("on-flash", Work::Random("4m"))),
        of: Some(1),
        least: None,
    },
    Case {
        id: "beside-disk",
        title: "beside 1 MiB files on the same disk, of alone",
        dir: "progressive",
        neighbour: Some(("on-disk", Work::Random("1m"))),
        of: Some(1),
        least: None,
    },
    Case {
        id: "beside-disk-4m",
        title: "beside 4 MiB files on the same disk, of alone",
        dir: "progressive",
        neighbour: Some(("on-disk", Work::Random("4m"))),
        of: Some(1),
        least: None,
    },
    Case {
        id: "beside-disk-mdtest",
        title: "beside mdtest with 32 KiB on the same disk, of alone",
        dir: "progressive",
        neighbour: Some(("on-disk", Work::Mdtest)),
        of: Some(1),
        least: None,
    },
];

/// Of a case: MiB per second that were written and read, and the idle part of the machine.
#[derive(Default)]
struct Values {
    rates: [Vec<f64>; 2],
    idle: Vec<f64>,
}

pub(crate) fn streams(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let mut up = Up::with(Scratch::new("bench-devices"), Some(bed.fresh("devices")), &UP);
    HEADS.iter().for_each(|head| up.set(head, "target"));
    up.set(AT_MDT, AT_MDT_BYTES[0]);
    for (name, layout) in LAYOUTS {
        fs::create_dir(up.at(name))?;
        set(&up, layout, &text(&up.at(name))?);
    }
    let mut all: Vec<Values> = CASES.iter().map(|_| Values::default()).collect();
    for _ in 0..scale.pairs.min(TURNS_MAX) {
        renew(&up, scale)?;
        for (case, values) in CASES.iter().zip(&mut all) {
            measure(&up, scale, case, values)?;
        }
    }
    let seconds = seconds(scale);
    let mut rows = Vec::new();
    for (case, values) in CASES.iter().zip(&all) {
        if let Some(other) = case.of.and_then(|of| all.get(of)) {
            rows.extend(beside(case, values, other, &seconds));
        }
    }
    HEADS.iter().for_each(|head| up.set(head, "service")); // the bed's servers have it too
    up.set(AT_MDT, AT_MDT_BYTES[1]);
    up.stop();
    fs::remove_dir_all(up.data())?;
    rows.extend(small_files(bed, scale)?);
    rows.push(removals(bed, scale)?);
    Ok(rows)
}

fn seconds(scale: Scale) -> String {
    scale.seconds.min(SECONDS_MAX).to_string()
}

fn stream_options(seconds: &str) -> [&str; 13] {
    ["-N", "2", "-F", "-B", "-t", "64m", "-b", BLOCK, "-D", seconds, "-e", "-k", "--json"]
}

/// Makes the streams' files anew. All cases of a turn use the same ones, because how far the head
/// moves between the files of two tasks depends on their places on the disk.
fn renew(up: &Up, scale: Scale) -> Result<()> {
    let seconds = seconds(scale);
    for dir in STREAMED.map(|dir| up.at(dir)) {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(STREAM) {
                fs::remove_file(entry.path())?;
            }
        }
        let file = text(&dir.join(STREAM))?;
        let options = stream_options(&seconds);
        let _made: Output =
            nacre(&[&["bench", "ior", "-o", &file, "-w"][..], &options[..]].concat())?;
    }
    Ok(())
}

/// Writes and reads a stream once.
fn measure(up: &Up, scale: Scale, case: &Case, values: &mut Values) -> Result<()> {
    drop_caches()?;
    let neighbour =
        case.neighbour.map(|(dir, work)| Neighbour::start(up, dir, work)).transpose()?;
    std::thread::sleep(SETTLE);
    let (file, seconds) = (text(&up.at(case.dir).join(STREAM))?, seconds(scale));
    let before = CpuTime::now()?;
    let args = [&["bench", "ior", "-o", &file][..], &stream_options(&seconds)[..]].concat();
    let output: Output = nacre(&args)?;
    values.idle.push(before.idle_until(CpuTime::now()?));
    if let Some(neighbour) = neighbour {
        neighbour.end()?;
    }
    for (access, rates) in ["write", "read"].into_iter().zip(&mut values.rates) {
        let run = output.runs.iter().find(|run| run.access == access);
        rates.push(run.with_context(|| format!("no {access} phase"))?.mib_s);
    }
    Ok(())
}

/// Rows of writing and reading.
fn beside(case: &Case, values: &Values, other: &Values, seconds: &str) -> [Row; 2] {
    let stream = stream_options(seconds).join(" ");
    let neighbour = case.neighbour.map_or_else(String::new, |(dir, work)| {
        format!("; beside it {}nacre {}", made(dir), work.words(dir).join(" "))
    });
    let command = format!(
        "nacre up --separate --mdts 1 {}; {}nacre bench ior -o {}/{STREAM} {stream}{neighbour}",
        quoted(&UP),
        made(case.dir),
        case.dir
    );
    let idle = [values, other].into_iter().filter_map(|side| Spread::of(&side.idle));
    let idle = idle.map(|spread| spread.median).reduce(f64::min);
    [("write", 0), ("read", 1)].map(|(access, at)| {
        let title = format!("{access}, {}", case.title);
        let rates = [values.rates[at].clone(), other.rates[at].clone()];
        let id = format!("devices/{}-{access}", case.id);
        let bound = case.least.map(Bound::Ratio);
        Row { idle, ..Row::of(&id, &title, "MiB/s", rates, bound, &command) }
    })
}

/// How a directory is made.
fn made(dir: &str) -> String {
    let layouts = LAYOUTS.iter().filter(|(name, _)| *name == dir);
    layouts.map(|(name, layout)| format!("lfs setstripe {layout} {name}; ")).collect()
}

/// A neighbour at work, in a process group of its own. It ends with this, and its tasks with it.
struct Neighbour {
    child: Child,
    dir: PathBuf,
}

impl Neighbour {
    fn start(up: &Up, dir: &str, work: Work) -> Result<Neighbour> {
        let dir = up.at(dir);
        let mut command = Command::new(nacre_bin());
        command.args(work.words(&text(&dir)?)).process_group(0).stdout(Stdio::null());
        let child = command.spawn().context("a neighbour starts")?;
        Ok(Neighbour { child, dir })
    }

    /// It must have been at work until now.
    fn end(mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "the neighbour in {} ended: {ended:?}", self.dir.display());
        Ok(())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // tasks would go on until their phase is over
        let group = self.child.id().to_string();
        let kill = ["-c", "kill -s KILL -- -\"$0\"", &group];
        let _it_may_have_ended = Command::new("sh").args(kill).status();
        let _it_was_killed = self.child.wait();
    }
}

/// mdtest with 32 KiB in each file and with empty files, both sides on flash.
fn small_files(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let mut up = Up::with(Scratch::new("bench-flash"), Some(bed.fresh("flash")), &UP_FLASH);
    HEADS.iter().for_each(|head| up.set(head, "target"));
    for (name, layout) in SMALL {
        fs::create_dir(up.at(name))?;
        set(&up, layout, &text(&up.at(name))?);
    }
    let dirs = SMALL.map(|(name, _)| up.at(name));
    let names = ("devices/dom", "32 KiB, on flash");
    let mut rows = with_idle(|| dom::phases_of_32k(scale, &dirs, names))?;
    let names = ("devices/dom-empty", "0 bytes, one task, on flash");
    rows.extend(with_idle(|| dom::phases_of_empty(scale, &dirs, names, EMPTY_TASKS))?);
    HEADS.iter().for_each(|head| up.set(head, "service")); // the bed's servers have it too
    up.stop();
    fs::remove_dir_all(up.data())?;
    Ok(rows.into_iter().map(|row| began_with(&UP_FLASH, row)).collect())
}

/// Rows with the idle part of the machine while all of them were measured.
fn with_idle(measure: impl FnOnce() -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    let before = CpuTime::now()?;
    let mut rows = measure()?;
    let idle = Some(before.idle_until(CpuTime::now()?));
    rows.iter_mut().for_each(|row| row.idle = idle);
    Ok(rows)
}

/// A row whose command begins with `up`.
fn began_with(up: &[&str], row: Row) -> Row {
    let command = format!("nacre up --separate --mdts 1 {}; {}", quoted(up), row.command);
    Row { command, ..row }
}

/// Unlinks of files of 32 KiB until space is back, both sides on flash.
fn removals(bed: &Bed, scale: Scale) -> Result<Row> {
    let data = bed.fresh("removals");
    let mut up = Up::with(Scratch::new("bench-removals"), Some(data), &UP_OFTEN);
    HEADS.iter().for_each(|head| up.set(head, "target"));
    let row = wide::small_files(&up, 1, scale, "devices/unlink-dom");
    HEADS.iter().for_each(|head| up.set(head, "service"));
    up.stop();
    fs::remove_dir_all(up.data())?;
    let row = began_with(&UP_OFTEN, row?);
    Ok(Row { title: format!("{}, on flash", row.title), ..row })
}

#[cfg(test)]
mod tests_of_cases {
    use super::*;

    #[test]
    fn cases_have_layouts_and_come_after_those_that_they_are_compared_with() {
        let has = |dir: &str| LAYOUTS.iter().any(|(name, _)| *name == dir);
        for (at, case) in CASES.iter().enumerate() {
            assert!(has(case.dir) && case.neighbour.is_none_or(|(dir, _)| has(dir)), "{}", case.id);
            assert!(case.of.is_none_or(|of| of < at), "{}", case.id);
        }
    }

    #[test]
    fn a_neighbour_has_a_command() {
        let none = Values::default();
        let [row, _] = beside(&CASES[2], &none, &none, "5");
        let (_, neighbour) = row.command.split_once("; beside it ").expect("it has one");
        let directory = "lfs setstripe -E 1M -L mdt -E -1 -c 1 -i 2 -S 1M progressive; ";
        let ior = neighbour.strip_prefix(directory).expect("its directory is made");
        assert!(ior.starts_with("nacre bench ior -o progressive/small -N 2 "), "{ior}");
    }

    #[test]
    fn a_row_is_void_where_a_side_was_busy() {
        let values = |idle: f64| Values { rates: [vec![9.0], vec![8.0]], idle: vec![idle] };
        let [write, read] = beside(&CASES[1], &values(0.5), &values(0.4), "5");
        assert_eq!((write.idle, write.is_reached()), (Some(0.4), Some(true)));
        assert_eq!((read.id.as_str(), read.ours), ("devices/progressive-read", vec![8.0]));
        let [write, _] = beside(&CASES[1], &values(0.9), &values(0.2), "5");
        assert_eq!(write.is_reached(), None);
    }
}

//! `lfs migrate`: moves the bytes of files into other objects while others read and write them. The
//! mount's daemon does the work; this command polls its progress. With `-m` it moves the names of
//! directories to other MDTs. It prints nothing on success without `-v`.

mod inodes;
mod names;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ctl::progress::{Progress, Unit, per_second};
use ctl::{Ask, Migration, Reply};
use types::Errno;

use self::names::Goal;
use super::setdirstripe::{hash, mdt_count, mdts_in};
use super::setstripe::{Parts, Wish};
use crate::failure::First;
use crate::{Failed, mountpoint, out, size};

const COMMAND: &str = "lfs migrate";
/// Between questions how far it is.
const ASKED_EVERY: Duration = Duration::from_millis(100);
/// The first ones come sooner: small files are moved at once.
const ASKED_FIRST: Duration = Duration::from_millis(5);

/// Arguments of `lfs migrate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With -m, the names of directories move, and of all directories below them. Inodes stay on their\nMDTs without --inodes, so files keep their inode numbers. New files are made on the new MDT. Only\nroot may do this. The MDTs go on with directories that were begun if the command ends early; run it\nagain for the others.\n\nExamples:\n  lfs migrate -c 4 big.dat                  over four OSTs\n  lfs migrate -E 64k -L mdt -E -1 -c 1 f    the first bytes to the MDT\n  lfs migrate -n --copy results/ f          as new files in results/, unless a program writes f\n  lfs migrate -m 1 project/                 names of project/ and all below to MDT0001\n  lfs migrate -d -m 0,2 -c 2 big/           names of big/ alone over two MDTs\n  lfs migrate -m 1 --inodes project/        all of project/, with its inodes, to MDT0001"
)]
pub(super) struct Args {
    #[command(flatten)]
    parts: Parts,
    /// Programs that write the file wait while their last changes are copied (default).
    #[arg(short = 'b', long)]
    block: bool,
    /// No program waits: the copy of a file is given up if a program changes the file.
    #[arg(short = 'n', long, conflicts_with = "block")]
    non_block: bool,
    /// Print a line for each file.
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Without effect: the mount's daemon copies, without the kernel's cache.
    #[arg(short = 'D', long)]
    non_direct: bool,
    /// As many stripes as fit the size of each file: the root of its GiB, and one.
    #[arg(
        short = 'A',
        long,
        conflicts_with_all = ["end", "count", "overstripes", "osts", "pattern", "extension", "copy", "yaml"]
    )]
    auto_stripe: bool,
    /// Also the files that this file lists, one a line; -: standard input.
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// Names in the list end with a NUL, as find -print0 prints them. Without files, the list is
    /// standard input.
    #[arg(short = '0', long)]
    null: bool,
    /// Take the layout of this file or directory.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["end", "count", "overstripes", "size", "index", "pool", "osts", "pattern", "extension"]
    )]
    copy: Option<PathBuf>,
    /// Take the layout that `lfs getstripe -y` printed into this file.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["end", "count", "overstripes", "size", "index", "pool", "osts", "pattern", "extension", "copy"]
    )]
    yaml: Option<PathBuf>,
    /// Move the names of directories, and of all directories below them, to this MDT, or over these
    /// MDTs: indices and ranges such as 0,2,5-7.
    #[arg(
        short = 'm',
        long = "mdt-index",
        value_name = "MDT[,MDT]",
        value_parser = listed,
        conflicts_with_all = ["end", "overstripes", "size", "index", "pool", "osts", "pattern", "extension", "mirrors", "block", "non_block", "auto_stripe", "copy", "yaml"]
    )]
    mdts: Option<Mdts>,
    /// With -m: over this many MDTs, the named one and those behind it; -1: all. -c is the same.
    #[arg(
        long,
        value_name = "N",
        requires = "mdts",
        conflicts_with = "count",
        allow_hyphen_values = true,
        value_parser = mdt_count
    )]
    mdt_count: Option<u32>,
    /// With -m: how names are spread over several MDTs: all_char, fnv_1a_64, crush or crush2.
    #[arg(
        short = 'H',
        long = "mdt-hash",
        value_name = "HASH",
        requires = "mdts",
        value_parser = hash
    )]
    hash: Option<u32>,
    /// With -m: only the directories that are named, and none below them.
    #[arg(short = 'd', long, requires = "mdts")]
    directory: bool,
    /// With -m: inodes move, too, and get other numbers. Files that are open stay.
    #[arg(long, requires = "mdts")]
    inodes: bool,
    /// Files to move; with -m, directories.
    #[arg(required_unless_present_any = ["files_from", "null"])]
    paths: Vec<PathBuf>,
}

/// The value of `-m`: at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mdts(Vec<u32>);

fn listed(text: &str) -> Result<Mdts, String> {
    mdts_in(text).map(Mdts)
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    let paths = paths(args)?;
    if let Some(mdts) = &args.mdts {
        let wrong = |text| Failed::new(Errno::EINVAL.raw(), format!("error: {COMMAND}: {text}"));
        let goal = goal(args, mdts).map_err(wrong)?;
        return match args.inodes {
            true => inodes::run(&paths, &goal, args),
            false => names::run(&paths, &goal, args.directory, args.verbose),
        };
    }
    let Args { parts, copy, yaml, .. } = args;
    let wish = Wish::of(parts, copy.as_deref(), yaml.as_deref(), COMMAND)?;
    let (mut first, progress) = (First::default(), Progress::new(COMMAND, Unit::Bytes));
    for path in &paths {
        let done = if args.auto_stripe {
            fitting(path, parts).and_then(|wish| migrate(path, &wish, args, &progress))
        } else {
            migrate(path, &wish, args, &progress)
        };
        if let Err(failed) = done {
            progress.erase();
            first.note(&failed);
        }
    }
    first.end()
}

/// The paths that are named, and those that are listed.
fn paths(args: &Args) -> Result<Vec<PathBuf>, Failed> {
    let mut paths = args.paths.clone();
    if args.files_from.is_none() && !(args.null && paths.is_empty()) {
        return Ok(paths);
    }
    let end = if args.null { 0 } else { b'\n' };
    let list = args.files_from.as_ref().filter(|path| path.as_os_str() != "-");
    let read = match list {
        Some(path) => File::open(path).and_then(|mut list| names_in(&mut list, end)),
        None => names_in(&mut io::stdin().lock(), end),
    };
    let shown = list.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
    paths.extend(read.map_err(|error| Failed::io(&error, COMMAND, &shown))?);
    Ok(paths)
}

/// The names in a list, of which each has this byte behind it.
fn names_in(list: &mut dyn Read, end: u8) -> io::Result<Vec<PathBuf>> {
    let mut bytes = Vec::new();
    list.read_to_end(&mut bytes)?;
    let names = bytes.split(|byte| *byte == end).filter(|name| !name.is_empty());
    Ok(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
}

/// A layout whose stripes fit the size of the file.
fn fitting(path: &Path, parts: &Parts) -> Result<Wish, Failed> {
    let found = std::fs::metadata(path);
    let found = found.map_err(|error| Failed::io(&error, COMMAND, &path.display().to_string()))?;
    Wish::of(&parts.with_count(stripes_for(found.len())), None, None, COMMAND)
}

/// Stripes of a file with so many bytes, as Lustre counts them.
fn stripes_for(bytes: u64) -> i32 {
    let count = (bytes >> 30).isqrt() + 1;
    i32::try_from(count.min(layout::STRIPE_COUNT_MAX.into())).unwrap_or(1)
}

fn goal(args: &Args, Mdts(mdts): &Mdts) -> Result<Goal, String> {
    let count = args.parts.count().map(|count| mdt_count(&count.to_string()));
    let count = count.transpose()?.or(args.mdt_count);
    Goal::of(mdts, count, args.hash)
}

fn migrate(path: &Path, wish: &Wish, args: &Args, progress: &Progress) -> Result<(), Failed> {
    let shown = path.display().to_string();
    let found = std::fs::metadata(path).map_err(|error| Failed::path(&error, COMMAND, path))?;
    if found.is_dir() {
        let text = format!(
            "error: {COMMAND}: '{shown}' is a directory: name files (lfs find DIR -type f -print0 | xargs -0 lfs migrate), or move its names to another MDT with -m"
        );
        return Err(Failed::new(Errno::EISDIR.raw(), text));
    }
    if !found.is_file() {
        let text = format!("error: {COMMAND}: '{shown}' is not a regular file");
        return Err(Failed::new(Errno::EINVAL.raw(), text));
    }
    wish.check(path, COMMAND)?;
    let whole = std::fs::canonicalize(path);
    let whole = whole.map_err(|error| Failed::io(&error, COMMAND, &shown))?;
    let mount = mountpoint::of(&whole, COMMAND)?;
    let inside = mountpoint::inside(&mount, &whole, COMMAND)?;
    let begin = Ask::Migrate {
        path: inside,
        striping: wish.value.clone(),
        gives_way: args.non_block && !args.block,
    };
    let began = Instant::now();
    let mut state = ask(&mount, &begin)?;
    progress.begin(&shown, Unit::Bytes);
    while !state.is_done {
        let is_young = began.elapsed() < ASKED_EVERY;
        std::thread::sleep(if is_young { ASKED_FIRST } else { ASKED_EVERY });
        state = ask(&mount, &Ask::MigrationState { number: state.number })?;
        progress.show(state.copied, state.size, &format!("round {}", state.rounds));
    }
    if let Some(failure) = state.failure {
        return Err(failed(&shown, &failure));
    }
    if args.verbose {
        progress.erase();
        out::line(summary(&shown, &state, began.elapsed()));
    }
    Ok(())
}

/// Does `work` while all bytes of a file are on OSTs. Then its first ones go to its MDT again. If
/// the command ends early, they stay on an OST.
fn by_way_of_osts(
    path: &Path,
    args: &Args,
    progress: &Progress,
    work: &mut dyn FnMut() -> Result<(), Failed>,
) -> Result<(), Failed> {
    let before = Wish::of(&args.parts, Some(path), None, COMMAND)?;
    let plain = args.parts.count().is_none().then(|| args.parts.with_count(1));
    let plain = Wish::of(plain.as_ref().unwrap_or(&args.parts), None, None, COMMAND)?;
    migrate(path, &plain, args, progress)?;
    let done = work();
    migrate(path, &before, args, progress).and(done)
}

fn ask(mount: &mountpoint::Mount, question: &Ask) -> Result<Migration, Failed> {
    match mountpoint::ask(mount, question, COMMAND)? {
        Reply::Migration(state) => Ok(state),
        _ => Err(Failed::of(Errno::EPROTO, COMMAND, "the daemon of the mount")),
    }
}

fn failed(shown: &str, failure: &ctl::Failure) -> Failed {
    let is = |errno: Errno| failure.errno == errno.raw();
    let why = if is(Errno::EBUSY) {
        "a program changed it meanwhile"
    } else if is(Errno::ENODATA) {
        "the layout that is asked for ends before the file does"
    } else {
        &failure.text
    };
    Failed::new(failure.errno, format!("error: {COMMAND}: '{shown}': {why}"))
}

/// `f: 1.0G in 3 rounds, 512.0M/s; others waited 12 ms at the end`.
fn summary(shown: &str, state: &Migration, took: Duration) -> String {
    let Migration { copied, rounds, pause_ms, .. } = state;
    let rounds = match rounds {
        1 => "1 round".to_owned(),
        rounds => format!("{rounds} rounds"),
    };
    let (bytes, rate) = (human(*copied), human(per_second(*copied, took)));
    format!("{shown}: {bytes} in {rounds}, {rate}/s; others waited {pause_ms} ms at the end")
}

fn human(bytes: u64) -> String {
    size::human(bytes, 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    fn check(line: &str) -> Result<Args, clap::Error> {
        parse(line.split_whitespace())
    }

    #[test]
    fn options_are_those_of_setstripe_and_two_more() {
        let args = check("migrate -n -E 1m -c 1 -E -1 -c 4 f g").expect("fits");
        assert!(args.non_block && args.paths.len() == 2);
        for wrong in ["migrate -b -n f", "migrate -c 2 --copy g f", "migrate -c 2"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_can_be_listed() {
        let names = |text: &str, end| names_in(&mut text.as_bytes(), end).expect("read");
        assert_eq!(names("a\n\nb c\n", b'\n'), [PathBuf::from("a"), PathBuf::from("b c")]);
        assert_eq!(names("a\nb\0c", 0), [PathBuf::from("a\nb"), PathBuf::from("c")]);
        for line in ["migrate -0 -c 2", "migrate --files-from - -c 2", "migrate -D -0 f"] {
            assert!(check(line).is_ok(), "{line}");
        }
        let list = std::env::temp_dir().join(format!("nacre-migrate-list-{}", std::process::id()));
        std::fs::write(&list, "a\nb\n").expect("written");
        let args = check(&format!("migrate --files-from {} c", list.display())).expect("fits");
        assert_eq!(paths(&args), Ok(["c", "a", "b"].map(PathBuf::from).to_vec()));
        std::fs::remove_file(&list).expect("removed");
        assert!(paths(&args).is_err(), "the list is gone");
    }

    #[test]
    fn stripes_can_follow_the_size() {
        let gib = |count: u64| stripes_for(count << 30);
        assert_eq!([stripes_for(5), gib(1), gib(4), gib(99)], [1, 2, 3, 10]);
        assert_eq!(stripes_for(u64::MAX), 2_000);
        assert!(check("migrate -A -S 1M -p flash f").is_ok());
        for wrong in ["migrate -A -c 2 f", "migrate -A -m 1 d", "migrate -A --copy g f"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_go_where_the_options_say() {
        let of = |line: &str| {
            let args = check(line).expect(line);
            goal(&args, args.mdts.as_ref().expect("-m"))
        };
        assert_eq!(of("migrate -m 2 d"), Goal::of(&[2], None, None));
        assert_eq!(of("migrate -m 0,2-3 -c 3 -H crush d"), of("migrate -H crush -m 0,2,3 d"));
        assert_eq!(of("migrate -m 1 -c -1 d"), of("migrate -m 1 --mdt-count -1 d"));
        assert!(of("migrate -m 0,1 -c 3 d").is_err() && of("migrate -m 0 -c 999 d").is_err());
        assert!(check("migrate -d -v -m 1 d e").expect("fits").directory);
        assert!(check("migrate -m 1 --inodes d f").expect("fits").inodes);
        for wrong in [
            "migrate -m 1 -S 1m d",
            "migrate -m 1 -C 2 d",
            "migrate -m 1 -i 0 d",
            "migrate -m 1 -n d",
            "migrate -m 1 --copy g d",
            "migrate -m -1 d",
            "migrate -d d",
            "migrate --inodes d",
            "migrate -c 2 -H crush d",
            "migrate -m 1",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn it_says_what_was_done() {
        let state = Migration {
            copied: 512 << 20,
            size: 1 << 30,
            rounds: 1,
            pause_ms: 12,
            ..Migration::default()
        };
        let done = "f: 512.0M in 1 round, 512.0M/s; others waited 12 ms at the end";
        assert_eq!(summary("f", &state, Duration::from_secs(1)), done);
    }
}

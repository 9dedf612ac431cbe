//! `lfs migrate`: moves the bytes of files into other objects while others read and write them. The
//! mount's daemon does the work; this command polls its progress. It prints nothing on success
//! without `-v`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ctl::progress::{Progress, Unit, per_second};
use ctl::{Ask, Migration, Reply};
use types::Errno;

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
    after_help = "Examples:\n  lfs migrate -c 4 big.dat                  over four OSTs\n  lfs migrate -E 64k -L mdt -E -1 -c 1 f    the first bytes to the MDT\n  lfs migrate -n --copy results/ f          as new files in results/, unless a program writes f"
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
    /// Take the layout of this file or directory.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["end", "count", "size", "index", "pool", "osts", "pattern", "extension"]
    )]
    copy: Option<PathBuf>,
    /// Take the layout that `lfs getstripe -y` printed into this file.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["end", "count", "size", "index", "pool", "osts", "pattern", "extension", "copy"]
    )]
    yaml: Option<PathBuf>,
    /// Move directories to other MDTs (not yet).
    #[arg(short = 'm', long = "mdt-index", value_name = "INDEX", hide = true)]
    mdts: Option<String>,
    /// Files to move.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    if args.mdts.is_some() {
        let text = format!(
            "error: {COMMAND}: moving files to another MDT (-m) is not supported yet; without -m bytes move to other OSTs"
        );
        return Err(Failed::new(Errno::EOPNOTSUPP.raw(), text));
    }
    let Args { parts, copy, yaml, .. } = args;
    let wish = Wish::of(parts, copy.as_deref(), yaml.as_deref(), COMMAND)?;
    let (mut first, progress) = (First::default(), Progress::new(COMMAND, Unit::Bytes));
    for path in &args.paths {
        if let Err(failed) = migrate(path, &wish, args, &progress) {
            progress.erase();
            first.note(&failed);
        }
    }
    first.end()
}

fn migrate(path: &Path, wish: &Wish, args: &Args, progress: &Progress) -> Result<(), Failed> {
    let shown = path.display().to_string();
    let found = std::fs::metadata(path).map_err(|error| Failed::io(&error, COMMAND, &shown))?;
    if found.is_dir() {
        let text = format!(
            "error: {COMMAND}: '{shown}' is a directory: only -m moves directories, and -m is not supported yet; name files (lfs find DIR -type f -print0 | xargs -0 lfs migrate)"
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
    let mount = mountpoint::of(Some(&whole), COMMAND)?;
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
        let moved = run(&check("migrate -m 1 f").expect("known")).expect_err("not yet");
        assert!(moved.text.contains("-m"), "{}", moved.text);
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

//! `lfs setstripe`: creates a file with a layout, gives one to a file that has none, or sets a
//! directory's default. Silent on success.

use std::path::{Path, PathBuf};

use ctl::{Ask, Reply, Target};
use layout::Template;
use types::Errno;

use super::pool;
use crate::failure::First;
use crate::{Failed, lov, mountpoint, pools, size};

const COMMAND: &str = "lfs setstripe";

/// Smallest unit of a stripe size, as in Lustre.
const STRIPE_SIZE_UNIT: u64 = 64 << 10;

/// Arguments of `lfs setstripe`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  lfs setstripe -c 4 -S 4m big.dat     a new file over four OSTs in stripes of 4 MiB\n  lfs setstripe -c -1 results/         new files in results/ go over all OSTs\n  lfs setstripe -d results/            back to the file system's default"
)]
pub(super) struct Args {
    /// Stripes: 0 default, -1 over all OSTs.
    #[arg(
        short = 'c',
        long = "stripe-count",
        visible_alias = "count",
        value_name = "COUNT",
        allow_negative_numbers = true
    )]
    count: Option<i32>,
    /// Bytes of a stripe, a multiple of 64k; 0 default.
    #[arg(short = 'S', long = "stripe-size", visible_alias = "size", value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// OST of the first stripe: -1 any.
    #[arg(
        short = 'i',
        long = "stripe-index",
        visible_alias = "index",
        value_name = "INDEX",
        allow_negative_numbers = true
    )]
    index: Option<i32>,
    /// Pool of OSTs, POOL or FSNAME.POOL; `none`: of no pool.
    #[arg(short = 'p', long, value_name = "POOL")]
    pool: Option<String>,
    /// OSTs of the stripes, in order: 0,2,5-7.
    #[arg(
        short = 'o',
        long = "ost-list",
        visible_alias = "ost",
        value_name = "LIST",
        conflicts_with = "index"
    )]
    osts: Option<String>,
    /// Remove the default of a directory.
    #[arg(short = 'd', long, conflicts_with_all = ["count", "size", "index", "pool", "osts"])]
    delete: bool,
    /// Files to create (or that have no layout yet), directories whose default to set.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    let template = template(args)?;
    let mut first = First::default();
    for path in &args.paths {
        if let Err(failed) = set(path, &template, args) {
            first.note(&failed);
        }
    }
    first.end()
}

fn template(args: &Args) -> Result<Template, Failed> {
    let wrong =
        |text: String| Failed::new(Errno::EINVAL.raw(), format!("error: {COMMAND}: {text}"));
    let size = args.size.unwrap_or(0);
    let stripe_size =
        u32::try_from(size).map_err(|_| wrong(format!("stripe size {size} is 4 GiB or more")))?;
    if !size.is_multiple_of(STRIPE_SIZE_UNIT) {
        return Err(wrong(format!(
            "bad stripe size {size}, must be a multiple of {STRIPE_SIZE_UNIT} bytes"
        )));
    }
    let osts = args.osts.as_deref().map_or(Ok(Vec::new()), parse_list).map_err(&wrong)?;
    let listed = i32::try_from(osts.len()).unwrap_or(i32::MAX);
    let count = args.count.unwrap_or(listed);
    if !(-1..=2000).contains(&count) {
        return Err(wrong(format!("bad stripe count {count}: -1 (all), 0 (default) to 2000")));
    }
    if listed > 0 && count != listed {
        return Err(wrong(format!("stripe count {count} does not fit the list of {listed} OSTs")));
    }
    let start = osts
        .first()
        .map_or_else(|| args.index.unwrap_or(-1), |ost| i32::try_from(*ost).unwrap_or(-1));
    if !(-1..=types::TARGET_INDEX_MAX as i32).contains(&start) {
        let last = types::TARGET_INDEX_MAX;
        return Err(wrong(format!("bad stripe offset {start}: -1 (any), 0 to {last}")));
    }
    let pool = padded(args.pool.as_deref().unwrap_or_default()).map_err(wrong)?;
    Ok(Template { stripe_size, stripe_count: count, start, pool, osts })
}

/// The pool as a layout has it. `none` and `ignore` are no pool, and what is not said comes from
/// the directory.
fn padded(named: &str) -> Result<[u8; layout::POOL_BYTES], String> {
    let (_, name) = pools::parse(named);
    if matches!(name, "" | "none" | "ignore" | "inherit") {
        return Ok([0; layout::POOL_BYTES]);
    }
    layout::pool::padded(name).map_err(|error| format!("bad pool '{named}': {error}"))
}

/// `0,2,5-7`.
fn parse_list(text: &str) -> Result<Vec<u32>, String> {
    let bad = || format!("bad OST list '{text}': expected indices and ranges such as 0,2,5-7");
    let index = |part: &str| {
        part.parse::<u32>().ok().filter(|index| *index <= types::TARGET_INDEX_MAX).ok_or_else(bad)
    };
    let mut osts = Vec::new();
    for part in text.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (index(low)?, index(high)?);
        if low > high || osts.len() + (high - low) as usize >= 2000 {
            return Err(bad());
        }
        osts.extend(low..=high);
    }
    let mut sorted = osts.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() == osts.len() {
        Ok(osts)
    } else {
        Err(format!("bad OST list '{text}': an OST stands there twice"))
    }
}

fn set(path: &Path, template: &Template, args: &Args) -> Result<(), Failed> {
    let shown = path.display().to_string();
    let fail = |error: std::io::Error| {
        Failed::io(&error, COMMAND, &format!("setstripe error for '{shown}'"))
    };
    let found = std::fs::metadata(path);
    let is_dir = found.as_ref().is_ok_and(std::fs::Metadata::is_dir);
    if args.delete && !is_dir {
        return Err(Failed::of(
            Errno::ENOTDIR,
            COMMAND,
            &format!("cannot remove the layout of '{shown}'"),
        ));
    }
    if args.delete {
        return remove(path).map_err(fail);
    }
    let named = args.pool.as_deref().unwrap_or_default();
    let value = layout::lov::encode_dir(template);
    match found {
        Ok(found) => {
            check_osts(path, template)?;
            pool::check(path, template, named)?;
            if found.is_file() && lov::read(path).map_err(fail)?.is_some() {
                return Err(set_already(&shown));
            }
            put(path, &value).map_err(fail)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            create(path, template, named, value)
        }
        Err(error) => Err(fail(error)),
    }
}

/// The servers would refuse an OST that does not exist, without saying which.
fn check_osts(path: &Path, template: &Template) -> Result<(), Failed> {
    let start = u32::try_from(template.start).ok();
    let named: Vec<u32> = template.osts.iter().copied().chain(start).collect();
    if named.is_empty() {
        return Ok(());
    }
    let mount = mountpoint::of(Some(path), COMMAND)?;
    let Reply::Targets(targets) = mountpoint::ask(&mount, &Ask::Osts, COMMAND)? else {
        return Ok(());
    };
    match unknown(&named, &targets) {
        None => Ok(()),
        Some(index) => {
            let text = format!(
                "error: {COMMAND}: OST index {index} does not exist in {}: see lfs osts",
                mount.fsname()
            );
            Err(Failed::new(Errno::EINVAL.raw(), text))
        }
    }
}

/// The first index that no OST has.
fn unknown(named: &[u32], targets: &[Target]) -> Option<u32> {
    named.iter().copied().find(|index| targets.iter().all(|target| target.index != *index))
}

fn set_already(shown: &str) -> Failed {
    Failed::new(
        Errno::EEXIST.raw(),
        format!("{COMMAND}: setstripe error for '{shown}': stripe already set"),
    )
}

fn put(path: &Path, value: &[u8]) -> std::io::Result<()> {
    Ok(rustix::fs::setxattr(path, lov::XATTR, value, rustix::fs::XattrFlags::empty())?)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match rustix::fs::removexattr(path, lov::XATTR) {
        Err(rustix::io::Errno::NODATA) => Ok(()), // there was none
        other => Ok(other?),
    }
}

/// A new file without data. It gets its layout as it is made, which the kernel's create cannot say:
/// the mount's daemon is asked, and the servers check that we may.
fn create(path: &Path, template: &Template, named: &str, striping: Vec<u8>) -> Result<(), Failed> {
    let shown = path.display().to_string();
    let wrong = || Failed::of(Errno::EINVAL, COMMAND, &format!("setstripe error for '{shown}'"));
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(wrong)?.to_owned();
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    check_osts(parent, template)?;
    pool::check(parent, template, named)?;
    let mount = mountpoint::of(Some(parent), COMMAND)?;
    let dir = mountpoint::inside(&mount, parent, COMMAND)?;
    match mountpoint::ask(&mount, &Ask::Create { dir, name, umask: umask(), striping }, COMMAND) {
        Ok(_) => Ok(()),
        Err(failed) if i32::from(failed.status) == Errno::EEXIST.raw() => Err(set_already(&shown)),
        Err(failed) => Err(Failed { text: format!("{}: '{shown}'", failed.text), ..failed }),
    }
}

fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn check(line: &str) -> Result<Template, String> {
        let parsed = Line::try_parse_from(format!("setstripe {line}").split_whitespace())
            .map_err(|error| error.to_string())?;
        template(&parsed.args).map_err(|failed| failed.text)
    }

    #[test]
    fn a_layout_is_what_the_options_say() {
        let all = check("-c -1 -S 4M -i 2 -p none d").expect("fits");
        assert_eq!(
            (all.stripe_count, all.stripe_size, all.start, all.pool),
            (-1, 4 << 20, 2, [0; 16])
        );
        let pooled = check("-p testfs.flash d").expect("fits");
        assert_eq!((pooled.pool_name().as_str(), check("-p flash d")), ("flash", Ok(pooled)));
        let listed = check("-o 3,0-1 f").expect("fits");
        assert_eq!((listed.osts, listed.stripe_count, listed.start), (vec![3, 0, 1], 3, 3));
        let default = check("--stripe-count=2 f g").expect("fits");
        assert_eq!((default.stripe_count, default.stripe_size, default.start), (2, 0, -1));
    }

    #[test]
    fn an_ost_that_is_not_there_is_named() {
        let target = |index| Target {
            kind: "OST".into(),
            index,
            name: String::new(),
            state: String::new(),
            is_active: true,
            nid: String::new(),
        };
        let targets = [target(0), target(3)];
        assert_eq!([unknown(&[3, 0], &targets), unknown(&[0, 2, 9], &targets)], [None, Some(2)]);
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (line, part) in [
            ("-S 1000 f", "bad stripe size 1000"),
            ("-c -2 f", "bad stripe count -2"),
            ("-c 3 -o 1,2 f", "list of 2 OSTs"),
            ("-o 1,1 f", "twice"),
            ("-o 2-1 f", "bad OST list"),
            ("-S 4G f", "4 GiB"),
            ("-i 70000 f", "bad stripe offset"),
            ("-p testfs.fl/ash f", "bad pool 'testfs.fl/ash'"),
            ("-d -c 1 f", "cannot be used with"),
        ] {
            let error = check(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    /// Fuzz target: a list of OSTs names each once, and its own numbers are a list that is equal.
    #[test]
    fn ost_lists() {
        const LETTERS: &[u8] = b"0123456789,-";
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=40);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| {
                let letter = |byte: &u8| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]);
                let text: String = input.iter().map(letter).collect();
                if let Ok(osts) = parse_list(&text) {
                    assert!((1..=2_000).contains(&osts.len()));
                    let words: Vec<_> = osts.iter().map(u32::to_string).collect();
                    assert_eq!(parse_list(&words.join(",")), Ok(osts));
                }
            });
    }
}

//! `lfs setstripe`: creates a file with a layout, gives a layout to a file without one, or sets a
//! directory's default. It prints nothing on success.

mod change;
mod list;
mod parts;
mod yaml;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ctl::{Ask, RawPath, Reply, Space};
use types::Errno;

use self::parts::Named;
pub(super) use self::parts::Parts;
use super::pool;
use crate::failure::First;
use crate::{Failed, lov, mountpoint};

const COMMAND: &str = "lfs setstripe";

/// Arguments of `lfs setstripe`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  lfs setstripe -c 4 -S 4m big.dat     a new file over four OSTs in stripes of 4 MiB\n  lfs setstripe -c -1 results/         new files in results/ go over all OSTs\n  lfs setstripe -E 64m -c 1 -E -1 -c 8 results/    large files over more OSTs than small ones\n  lfs setstripe -E 1g -z 64m -p flash -E -1 -p disk d    on to the disks where flash is full\n  lfs setstripe --component-del -I 3 big.dat       without its third component\n  lfs setstripe -d results/            back to the file system's default"
)]
pub(super) struct Args {
    #[command(flatten)]
    parts: Parts,
    /// Remove the default of a directory.
    #[arg(short = 'd', long, conflicts_with_all = ["end", "count", "overstripes", "size", "index", "pool", "osts", "pattern", "extension"])]
    delete: bool,
    /// Add the components to files that end before the end of the file.
    #[arg(long, visible_alias = "comp-add", requires = "end")]
    component_add: bool,
    /// Take a component (-I) and all behind it away from files, with their data.
    #[arg(
        long,
        visible_alias = "comp-del",
        group = "component_change",
        conflicts_with_all = ["component_add", "end", "count", "overstripes", "size", "index", "pool", "osts", "pattern", "extension", "delete"]
    )]
    component_del: bool,
    /// Set or clear flags of a component (not yet: they are about mirrors).
    #[arg(
        long,
        alias = "comp-set",
        group = "component_change",
        hide = true,
        conflicts_with_all = ["component_add", "end", "count", "overstripes", "size", "index", "pool", "osts", "pattern", "extension", "delete"]
    )]
    component_set: bool,
    /// The component that goes first.
    #[arg(
        short = 'I',
        long,
        visible_alias = "comp-id",
        value_name = "ID",
        requires = "component_change"
    )]
    component_id: Option<u32>,
    /// ^init: the first component without objects goes first.
    #[arg(long, visible_alias = "comp-flags", value_name = "FLAGS", requires = "component_change")]
    component_flags: Option<String>,
    /// Take the layout of this file or directory.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["end", "count", "overstripes", "size", "index", "pool", "osts", "pattern", "extension", "delete", "component_add", "component_del"]
    )]
    copy: Option<PathBuf>,
    /// Take the layout that `lfs getstripe -y` printed into this file.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["end", "count", "overstripes", "size", "index", "pool", "osts", "pattern", "extension", "delete", "component_add", "component_del", "copy"]
    )]
    yaml: Option<PathBuf>,
    /// Files to create, files without a layout, or directories to give a default.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    if args.component_set {
        return Err(change::no_flags(args.component_flags.as_deref()));
    }
    let Args { parts, copy, yaml, .. } = args;
    let wish = Wish {
        deletes: args.delete,
        ..Wish::of(parts, copy.as_deref(), yaml.as_deref(), COMMAND)?
    };
    let mut first = First::default();
    for path in &args.paths {
        let done = match (args.component_add, args.component_del) {
            (true, _) => wish.check(path, COMMAND).and_then(|()| change::add(path, &wish.value)),
            (_, true) => change::delete(path, args.component_id, args.component_flags.as_deref()),
            _ => set(path, &wish),
        };
        if let Err(failed) = done {
            first.note(&failed);
        }
    }
    first.end()
}

/// What is to be set, or that the default of a directory is to be removed.
pub(super) struct Wish {
    /// Of `lustre.lov`.
    pub(super) value: Vec<u8>,
    stripings: Vec<Named>,
    deletes: bool,
}

impl Wish {
    /// What the options say, or the file that they name.
    pub(super) fn of(
        parts: &Parts,
        copy: Option<&Path>,
        yaml: Option<&Path>,
        command: &str,
    ) -> Result<Wish, Failed> {
        let wrong =
            |text: String| Failed::new(Errno::EINVAL.raw(), format!("error: {command}: {text}"));
        let (value, stripings) = match (copy, yaml) {
            (Some(from), _) => (change::copied(from, command)?, Vec::new()),
            (None, from) => {
                let (asked, stripings) = match from {
                    Some(from) => (change::written(from, command)?, Vec::new()),
                    None => parts.asked().map_err(&wrong)?,
                };
                let value = layout::lov::encode_any_dir(&asked);
                (value.map_err(|error| wrong(error.to_string()))?, stripings)
            }
        };
        Ok(Wish { value, stripings, deletes: false })
    }

    /// The servers would refuse an OST or a pool that does not exist, without saying which.
    pub(super) fn check(&self, path: &Path, command: &str) -> Result<(), Failed> {
        check_osts(path, &self.stripings, command)?;
        self.stripings
            .iter()
            .try_for_each(|Named { template, pool: named }| pool::check(path, template, named))
    }
}

fn set(path: &Path, wish: &Wish) -> Result<(), Failed> {
    let shown = path.display().to_string();
    let fail = |error: std::io::Error| {
        Failed::io(&error, COMMAND, &format!("setstripe error for '{shown}'"))
    };
    let found = std::fs::metadata(path);
    let is_dir = found.as_ref().is_ok_and(std::fs::Metadata::is_dir);
    if wish.deletes && !is_dir {
        let text = format!(
            "{COMMAND}: cannot remove the layout of '{shown}': {}: -d removes a directory's default; use lfs migrate",
            Errno::ENOTDIR
        );
        return Err(Failed::new(Errno::ENOTDIR.raw(), text));
    }
    if wish.deletes {
        return remove(path).map_err(fail);
    }
    match found {
        Ok(found) => {
            wish.check(path, COMMAND)?;
            if found.is_file() && lov::read(path).map_err(fail)?.is_some() {
                return Err(set_already(&shown));
            }
            put(path, &wish.value).map_err(fail)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(path, wish),
        Err(error) => Err(fail(error)),
    }
}

/// The OSTs that stripings name.
fn osts_named(stripings: &[Named]) -> BTreeSet<u32> {
    let of = |Named { template, .. }: &Named| {
        let start = u32::try_from(template.start).ok();
        template.osts.iter().copied().chain(start).collect::<Vec<_>>()
    };
    stripings.iter().flat_map(of).collect()
}

/// The OSTs that stripings name exist, and take new files. One question, because an OST that is
/// away takes seconds to be given up.
fn check_osts(path: &Path, stripings: &[Named], command: &str) -> Result<(), Failed> {
    let named = osts_named(stripings);
    if named.is_empty() {
        return Ok(());
    }
    let mount = mountpoint::of(path, command)?;
    let Reply::Spaces(spaces) = mountpoint::ask(&mount, &Ask::Df, command)? else {
        return Ok(());
    };
    named
        .iter()
        .try_for_each(|index| check_ost(*index, &spaces, mount.fsname()))
        .map_err(|(errno, text)| Failed::new(errno.raw(), format!("error: {command}: {text}")))
}

fn check_ost(index: u32, spaces: &[Space], fsname: &str) -> Result<(), (Errno, String)> {
    let is_it = |space: &&Space| space.target.kind == "OST" && space.target.index == index;
    let Some(Space { target, letters, .. }) = spaces.iter().find(is_it) else {
        let text = format!("OST index {index} does not exist in {fsname}: see lfs osts");
        return Err((Errno::EINVAL, text));
    };
    match closed(letters) {
        None => Ok(()),
        Some(param) => {
            let name = &target.name;
            let text = format!(
                "{name} gets no new files: name another OST, or set obdfilter.{name}.{param}=0"
            );
            Err((Errno::EREMOTEIO, text))
        }
    }
}

/// The parameter that closes a target with these states for new files and directories, if one does.
pub(super) fn closed(letters: &str) -> Option<&'static str> {
    let states = [('N', "no_create"), ('R', "readonly")];
    states.into_iter().find(|(letter, _)| letters.contains(*letter)).map(|(_, param)| param)
}

fn set_already(shown: &str) -> Failed {
    Failed::new(
        Errno::EEXIST.raw(),
        format!(
            "{COMMAND}: setstripe error for '{shown}': stripe already set; lfs migrate moves its bytes"
        ),
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
fn create(path: &Path, wish: &Wish) -> Result<(), Failed> {
    let shown = path.display().to_string();
    let wrong = || Failed::of(Errno::EINVAL, COMMAND, &format!("setstripe error for '{shown}'"));
    let name = RawPath(path.file_name().ok_or_else(wrong)?.as_bytes().to_vec());
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    wish.check(parent, COMMAND)?;
    let striping = wish.value.clone();
    let mount = mountpoint::of(parent, COMMAND)?;
    let dir = mountpoint::inside(&mount, parent, COMMAND)?;
    match mountpoint::ask(&mount, &Ask::Create { dir, name, umask: umask(), striping }, COMMAND) {
        Ok(_) => Ok(()),
        Err(failed) if i32::from(failed.status) == Errno::EEXIST.raw() => Err(set_already(&shown)),
        Err(failed) => Err(Failed { text: format!("{}: '{shown}'", failed.text), ..failed }),
    }
}

/// The umask of this process.
pub(super) fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    #[test]
    fn all_osts_of_all_components_are_asked_for_at_once() {
        let of = |start, osts: &[u32]| Named {
            template: layout::Template { start, osts: osts.to_vec(), ..Default::default() },
            pool: String::new(),
        };
        let named = osts_named(&[of(-1, &[]), of(2, &[]), of(1, &[1, 2, 7])]);
        assert_eq!(named, BTreeSet::from([1, 2, 7]));
    }

    #[test]
    fn components_are_named_where_they_change() {
        let parsed = |line: &str| parse::<Args>(line.split_whitespace());
        for line in [
            "setstripe --component-set -I 1 --component-flags=^prefer f",
            "setstripe --comp-set --comp-flags prefer f",
            "setstripe --component-del -I 2 f",
        ] {
            assert!(parsed(line).is_ok(), "{line}");
        }
        for line in [
            "setstripe -I 1 f",
            "setstripe --component-set --component-del -I 1 f",
            "setstripe --component-set -c 1 f",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
        let args = parsed("setstripe --component-set -I 1 --comp-flags prefer f").expect("fits");
        let failed = run(&args).expect_err("it is about mirrors");
        assert_eq!(i32::from(failed.status), Errno::EOPNOTSUPP.raw());
    }

    #[test]
    fn a_default_is_removed_whole() {
        let error = parse::<Args>("setstripe -d -c 1 f".split_whitespace());
        assert!(error.expect_err("one or the other").to_string().contains("cannot be used with"));
        let args: Args = parse("setstripe -d f".split_whitespace()).expect("fits");
        assert!(args.delete);
        let nothing = args.parts.asked().expect("fits").0;
        assert!(nothing.is_default());
    }

    #[test]
    fn an_ost_that_is_not_there_or_closed_is_named() {
        let space = |index, letters: &str| Space {
            target: ctl::Target {
                kind: "OST".into(),
                index,
                name: format!("testfs-OST{index:04x}"),
                state: "FULL".into(),
                is_active: true,
                nid: String::new(),
            },
            space: None,
            letters: letters.into(),
        };
        let spaces = [space(0, ""), space(1, "DN"), space(2, "R"), space(3, "DS")];
        let check = |index| {
            check_ost(index, &spaces, "testfs").map_err(|(errno, text)| (errno.raw(), text))
        };
        assert_eq!((check(0), check(3)), (Ok(()), Ok(())), "the OST itself says if it is full");
        let unknown = "OST index 9 does not exist in testfs: see lfs osts".to_owned();
        assert_eq!(check(9), Err((Errno::EINVAL.raw(), unknown)));
        let closed = |param| format!("name another OST, or set obdfilter.testfs-OST{param}=0");
        for (index, param) in [(1, "0001.no_create"), (2, "0002.readonly")] {
            let (errno, text) = check(index).expect_err("it is closed");
            assert_eq!(errno, Errno::EREMOTEIO.raw());
            assert!(text.ends_with(&closed(param)), "{text}");
        }
    }
}

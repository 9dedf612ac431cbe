//! `lfs getstripe`: shows layouts, whole or field by field.

mod components;
mod fields;
mod filter;
mod render;
mod shown;

use std::io;
use std::path::{Path, PathBuf};

use types::Errno;

use self::fields::{Fallback, Fields};
use self::shown::Shown;
use crate::failure::First;
use crate::{Failed, lfs::ids, lov, mountpoint};

pub(crate) use filter::spelled;

const COMMAND: &str = "lfs getstripe";

/// Arguments of `lfs getstripe`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "One field option prints its value alone, a line for each path or component. Several print name and\nvalue. An option of components with a value leaves the others out. The value is behind = or, of -I\nand -E, behind the letter.\n\nExamples:\n  lfs getstripe FILE\n  lfs getstripe -c FILE       number of stripes\n  lfs getstripe -I1 -L FILE   pattern of component 1\n  lfs getstripe -d DIR        default for new files in DIR\n  lfs getstripe -y FILE       as YAML\n  lfs getstripe --why DIR     which defaults and pools decide"
)]
pub(super) struct Args {
    /// Of a directory: its default only, not the files in it.
    #[arg(short = 'd', long)]
    directory: bool,
    /// Only the default layout of the file system, whatever the path is.
    #[arg(short = 'D', long)]
    default: bool,
    /// Why: which default and pool decide where new files go, and whether a file is like them.
    #[arg(long)]
    why: bool,
    /// Descend into directories.
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Raw values of a directory's default: zeros and -1 instead of the file system's defaults.
    #[arg(short = 'R', long)]
    raw: bool,
    /// As YAML.
    #[arg(short = 'y', long)]
    yaml: bool,
    /// As JSON.
    #[arg(long, conflicts_with = "yaml")]
    json: bool,
    /// Also magic and object of the MDT.
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Only the objects.
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Only files with an object on this OST: index or name.
    #[arg(short = 'O', long = "obd", visible_alias = "ost", value_name = "OST")]
    ost: Option<String>,
    #[command(flatten)]
    fields: Fields,
    /// Files and directories.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    let only = args.ost.as_deref().map(ost_index).transpose()?;
    let mut first = First::default();
    if args.why {
        for path in &args.paths {
            match lov::why(path) {
                Ok(text) => crate::out::print(&format!("{}\n{text}", path.display())),
                Err(error) => {
                    first.note(&Failed::io(&error, COMMAND, &path.display().to_string()));
                }
            }
        }
        return first.end();
    }
    let mut all = Vec::new();
    for path in &args.paths {
        if !args.default {
            collect(args, path, true, &mut all, &mut first);
            continue;
        }
        match mountpoint::of(path, COMMAND) {
            Ok(mount) => collect(args, &mount.dir, true, &mut all, &mut first),
            Err(failed) => first.note(&failed),
        }
    }
    all.retain(|shown| only.is_none_or(|ost| has_object(shown, ost)));
    crate::out::print(&render::all(args, &all));
    first.end()
}

fn has_object(shown: &Shown, ost: u32) -> bool {
    let has = |lov: &layout::lov::Lov| lov.stripes.iter().any(|stripe| stripe.ost == ost);
    shown.layout.as_ref().is_some_and(|layout| layout.stripings().any(has))
}

/// `3`, `OST0003`, `testfs-OST0003_UUID`.
fn ost_index(text: &str) -> Result<u32, Failed> {
    let named = || {
        text.parse::<types::TargetId>()
            .ok()
            .filter(|id| id.kind == types::TargetKind::Ost)
            .map(|id| id.index)
    };
    let index = text.parse().ok().or_else(named);
    index.ok_or_else(|| Failed::of(Errno::EINVAL, COMMAND, &format!("'{text}' is not an OST")))
}

fn collect(args: &Args, path: &Path, is_named: bool, out: &mut Vec<Shown>, first: &mut First) {
    let (is_dir, shown) = match show(args, path) {
        Ok(found) => found,
        Err(failed) => return first.note(&failed),
    };
    out.extend(shown);
    if !is_dir || args.directory || args.default || !(is_named || args.recursive) {
        return;
    }
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return first.note(&Failed::io(&error, COMMAND, &path.display().to_string())),
    };
    let (below, errors) = in_order(entries.map(|entry| entry.map(|entry| entry.path())));
    for error in &errors {
        first.note(&Failed::io(error, COMMAND, &path.display().to_string()));
    }
    for path in &below {
        collect(args, path, false, out, first);
    }
}

/// The paths of a directory by name, and why it could not be read to its end.
fn in_order(entries: impl Iterator<Item = io::Result<PathBuf>>) -> (Vec<PathBuf>, Vec<io::Error>) {
    let (mut paths, mut errors) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Ok(path) => paths.push(path),
            Err(error) => errors.push(error),
        }
    }
    paths.sort();
    (paths, errors)
}

/// What is to be shown of `path`: nothing for links and devices. Says whether it is a directory.
fn show(args: &Args, path: &Path) -> Result<(bool, Option<Shown>), Failed> {
    let shown = path.display().to_string();
    let metadata =
        std::fs::symlink_metadata(path).map_err(|error| Failed::path(&error, COMMAND, path))?;
    let is_dir = metadata.is_dir();
    if !is_dir && !metadata.is_file() {
        return Ok((false, None));
    }
    let mut layout = lov::of(path, COMMAND)?;
    let mut fallback = Fallback::default();
    if is_dir && !args.raw {
        fallback = lov::fallback(path).as_ref().map_or(fallback, Fallback::from);
    } else if is_dir && layout.is_some() {
        let is_own = lov::has_own(path).map_err(|error| Failed::io(&error, COMMAND, &shown))?;
        layout = layout.filter(|_| is_own);
    }
    let wants_fid = args.fields.fid || args.fields.mdt;
    let fid = wants_fid.then(|| ids::fid_of(path)).transpose()?;
    Ok((is_dir, Some(Shown { path: path.to_owned(), is_dir, layout, fallback, fid })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_read_to_its_end_is_an_error() {
        let failed = || io::Error::from_raw_os_error(Errno::EIO.raw());
        let entries = [Ok("b".into()), Ok("a".into()), Err(failed())];
        let (paths, errors) = in_order(entries.into_iter());
        assert_eq!(paths, [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!(errors.len(), 1);
    }
}

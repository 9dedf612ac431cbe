//! `lfs getdirstripe`: shows on which MDTs directories are, and where their new subdirectories go.

mod render;

use std::path::{Path, PathBuf};

use types::{Errno, TargetId, TargetKind};

use self::render::{Fields, Shown};
use crate::failure::First;
use crate::{Failed, lfs::ids, lmv};

const COMMAND: &str = "lfs getdirstripe";

/// Arguments of `lfs getdirstripe`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A plain directory has the count 0. One field option prints its value alone; several print name and value.\n\nExamples:\n  lfs getdirstripe DIR       its MDT, or its shards\n  lfs getdirstripe -i DIR    index of its MDT\n  lfs getdirstripe -D DIR    default for new directories in DIR\n  lfs getdirstripe -r DIR    the same of all directories below"
)]
pub(super) struct Args {
    /// The default for new subdirectories.
    #[arg(short = 'D', long)]
    default: bool,
    /// Descend into directories.
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Nothing for a directory without a default.
    #[arg(short = 'R', long)]
    raw: bool,
    /// As YAML.
    #[arg(short = 'y', long)]
    yaml: bool,
    /// Also the FID and the magic.
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Only directories with a part on this MDT: index or name.
    #[arg(short = 'O', long = "obd", visible_alias = "mdt", value_name = "MDT", value_parser = mdt)]
    mdt: Option<u32>,
    #[command(flatten)]
    fields: Fields,
    /// Directories.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    let mut first = First::default();
    for path in &args.paths {
        each(args, path, &mut first);
    }
    first.end()
}

/// `3`, `MDT0003`, `testfs-MDT0003_UUID`.
fn mdt(text: &str) -> Result<u32, String> {
    let named = || text.parse::<TargetId>().ok().filter(|id| id.kind == TargetKind::Mdt);
    let index = text.parse().ok().or_else(|| named().map(|id| id.index));
    index.ok_or_else(|| {
        format!("'{text}' is not an MDT: expected an index or a name, as 1 or MDT0001")
    })
}

fn each(args: &Args, path: &Path, first: &mut First) {
    match show(args, path) {
        Ok(Some(shown)) if args.mdt.is_none_or(|mdt| shown.is_on(mdt)) => {
            crate::out::print(&render::text(args, &shown));
        }
        Ok(_) => {}
        Err(failed) => return first.note(&failed),
    }
    if !args.recursive {
        return;
    }
    match subdirectories(path) {
        Ok(below) => below.iter().for_each(|path| each(args, path, first)),
        Err(error) => first.note(&Failed::io(&error, COMMAND, &path.display().to_string())),
    }
}

/// By name.
fn subdirectories(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// What there is to show of a directory; nothing of one without a default where only what is stored
/// was asked for.
fn show(args: &Args, path: &Path) -> Result<Option<Shown>, Failed> {
    let name = path.display().to_string();
    let found = std::fs::metadata(path).map_err(|error| Failed::path(&error, COMMAND, path))?;
    if !found.is_dir() {
        return Err(Failed::of(Errno::ENOTDIR, COMMAND, &name));
    }
    let fid = ids::fid_of(path)?;
    if args.default {
        let default = lmv::default(path, COMMAND)?;
        return Ok((default.is_some() || !args.raw).then(|| Shown::default_of(name, fid, default)));
    }
    Ok(Some(Shown::of(name, fid, lmv::stripes(path, COMMAND)?)))
}

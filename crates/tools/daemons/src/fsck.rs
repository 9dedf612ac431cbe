//! `nacre fsck`: checks a whole file system, and repairs it.
//!
//! A file system that is stopped is read from its stores, which are locked meanwhile. One that is
//! served is read from copies of its records, which its servers make. Copies of several targets are
//! not of one moment. So a breach counts only if a second look at later copies finds the same. A
//! repair asks the MDTs to look there once more, and to mend the breaches of that moment. Targets
//! on several machines are checked by copies that an administrator has collected.
//!
//! `docs/design/fsck.md` has the rules.

mod copies;
mod live;
mod report;
mod stores;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ctl::progress::{Progress, Unit};
use mdt::fsck::{self, Finding, Image, Rounds, System};
use osd_disk::{DiskError, superblock};
use types::{FsName, TargetId, TargetKind, Timespec};

use crate::server::kept_in;
use crate::targets::{self, TargetDir};
use crate::up;
use report::Report;
use stores::Stores;

/// Exit status where all was well; those of fsck(8).
pub const CLEAN: u8 = 0;
/// All that was wrong is repaired.
pub const REPAIRED: u8 = 1;
/// Something is wrong still.
pub const LEFT: u8 = 4;
/// The check could not be made.
pub const FAILED: u8 = 8;
pub const WRONG_USAGE: u8 = 16;

/// What the line on a terminal counts.
const TARGETS: Unit = Unit::Step("target");

/// What to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data directory of an `up`, where no directories are named.
    pub data: PathBuf,
    /// Directories of targets, or of such directories.
    pub dirs: Vec<PathBuf>,
    /// Directories with copies of all targets, in place of targets.
    pub copies: Vec<PathBuf>,
    pub repair: bool,
    /// A file system that is served is repaired, too, as far as MDTs can do so while they serve.
    pub live: bool,
    /// Bytes of lost objects read as zeros after a repair.
    pub give_up_bytes: bool,
    pub json: bool,
}

/// Checks, prints the report, and returns the exit status.
pub fn run(options: &Options, out: &mut dyn Write) -> u8 {
    match checked(options).and_then(|report| printed(&report, options, out)) {
        Ok(status) => status,
        Err(error) => {
            ctl::say!("nacre fsck: {error:#}");
            FAILED
        }
    }
}

fn printed(report: &Report, options: &Options, out: &mut dyn Write) -> Result<u8> {
    match options.json {
        true => report.json(out)?,
        false => report.text(out)?,
    }
    out.flush()?;
    report.summary(options.repair);
    Ok(report.status())
}

fn checked(options: &Options) -> Result<Report> {
    if !options.copies.is_empty() {
        return copies::check(&options.copies);
    }
    let found = found(options)?;
    let fsname = targets::fsname_of(&found).context("no MDT and no OST is here: name them")?;
    let parts: Vec<TargetDir> =
        found.into_iter().filter(|it| it.superblock.target.kind != TargetKind::Mgt).collect();
    let is_mdt = |target: &TargetDir| target.superblock.target.kind == TargetKind::Mdt;
    ensure!(parts.iter().any(is_mdt), "no MDT is here: name the directories of all targets");
    let mut locks = Vec::new();
    for target in &parts {
        match superblock::lock(&target.dir) {
            Ok(lock) => locks.push(lock),
            Err(DiskError::InUse(dir)) if options.repair && !options.live => bail!(
                "{} is served: a repair needs a stopped file system. Stop its servers, check it \
                 without --repair, or add --live for what MDTs can mend while they serve ({})",
                target.name(),
                dir.display()
            ),
            Err(DiskError::InUse(_)) => {
                drop(locks);
                return match options.repair {
                    true => live::repair(fsname, &parts),
                    false => live::check(fsname, &parts),
                };
            }
            Err(error) => return Err(error.into()),
        }
    }
    for target in &parts {
        targets::check_parts(target)?;
    }
    let progress = Progress::new("open the targets", TARGETS);
    let stores = Stores::open(fsname, &parts, &progress)?;
    let report = env_os::run(env_os::OsConfig::default(), |_env| async {
        stopped(options, &stores, &progress).await
    });
    drop(progress);
    report
}

/// All targets, those of MDTs' data included.
fn found(options: &Options) -> Result<Vec<TargetDir>> {
    let mut dirs = options.dirs.clone();
    if dirs.is_empty() {
        let data = &options.data;
        let shown = data.display();
        ensure!(data.is_dir(), "{shown}: no such directory: name one with --data, or the targets");
        let mut known = up::known_dirs(data)?;
        if let Some(gone) = known.iter().find(|dir| !dir.is_dir()) {
            bail!("{}: this target is not there: is its disk mounted?", gone.display());
        }
        known.extend(targets::find_in(data)?.into_iter().map(|target| target.dir));
        for dir in known {
            dirs.push(dir.canonicalize().with_context(|| dir.display().to_string())?);
        }
        dirs.sort();
        dirs.dedup();
        ensure!(
            !dirs.is_empty(),
            "{shown}: no target is here: name the directories of all targets"
        );
    }
    let mut all = targets::find(&dirs)?;
    let mdts: Vec<PathBuf> = all.iter().map(|target| target.dir.clone()).collect();
    for dir in mdts {
        if superblock::has_data(&dir)? {
            all.extend(targets::open(&superblock::data_dir(&dir))?);
        }
    }
    Ok(all)
}

/// Checks stores that are open here alone, and repairs them.
async fn stopped(options: &Options, stores: &Stores, progress: &Progress) -> Result<Report> {
    let mut rounds = Rounds::new(options.give_up_bytes);
    let mut first = None;
    loop {
        let (images, osts) = stores.read(progress).await?;
        let system = System::new(&images, &osts);
        complete(&system, stores.fsname)?;
        if let Some(why) = system.stands_against_repair().filter(|_| options.repair) {
            bail!("no repair: {why} (without --repair all breaches are shown)");
        }
        progress.begin("compare", TARGETS);
        let now = fsck::check(&system);
        let report = first.get_or_insert_with(|| Report::new(stores.fsname, &system, &now));
        let changes = match options.repair {
            true => rounds.next(&system, &now, wall()),
            false => None,
        };
        let Some(changes) = changes else {
            report.settle(&system, (&rounds.done, &rounds.failed), &now);
            return first.context("a first look");
        };
        progress.begin("repair", TARGETS);
        stores.apply(&changes).await?;
    }
}

/// MDTs that were forgotten, as far as targets have read it from the MGS.
fn forgotten_in(fsname: FsName, found: &[TargetDir]) -> BTreeSet<u32> {
    let kept = found.iter().filter_map(|target| kept_in(&target.dir));
    let last = kept.max_by_key(|config| config.version);
    last.map(|config| config.forgotten_mdts(fsname)).unwrap_or_default()
}

/// A forgotten MDT that is not here has nothing any more.
fn add_forgotten(images: &mut Vec<Image>, forgotten: &BTreeSet<u32>) {
    let here: BTreeSet<u32> = images.iter().map(Image::index).collect();
    images.extend(forgotten.difference(&here).copied().map(Image::forgotten));
}

/// Says nothing of a part: names would seem to lead nowhere.
fn complete(system: &System<'_>, fsname: FsName) -> Result<()> {
    let name = |mdt: &u32| TargetId::mdt(*mdt).name(fsname);
    let absent: Vec<String> = system.absent().iter().map(name).collect();
    let list = absent.join(", ");
    ensure!(absent.is_empty(), "names lead to {list}, not here: name the directories of all MDTs");
    Ok(())
}

fn wall() -> Timespec {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timespec::new(since.as_secs().cast_signed(), since.subsec_nanos())
}

/// Breaches that both looks found.
fn in_both(one: Vec<Finding>, other: &[Finding]) -> Vec<Finding> {
    let is_there = |finding: &Finding| {
        other.iter().any(|it| (it.rule, &it.text) == (finding.rule, &finding.text))
    };
    one.into_iter().filter(is_there).collect()
}

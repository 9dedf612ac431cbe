//! `nacre format`: creates targets.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use ctl::progress::{Progress, Unit};
use osd_disk::{Superblock, superblock};
use types::{FsName, MDTS_MAX, NidAddr, TargetId, TargetKind, Timespec};

#[derive(Clone, Debug)]
pub struct Options {
    pub fsname: FsName,
    /// One target, or several that shall share `dir`.
    pub targets: Vec<TargetId>,
    /// Where the MGS is; empty where it is among the targets.
    pub mgs: Vec<NidAddr>,
    /// Destroy what was there.
    pub reformat: bool,
    pub dir: PathBuf,
}

/// Old objects are in directories of the same size.
const REMOVED: Unit = Unit::Step("directory");

/// Makes the targets and says so on stderr.
pub fn run(options: &Options) -> Result<()> {
    for (name, dir) in make(options)? {
        ctl::say!("{name}: formatted in {}", dir.display());
    }
    Ok(())
}

/// The same options, if they can be meant.
pub fn checked(options: Options) -> Result<Options> {
    check(&options)?;
    Ok(options)
}

fn check(options: &Options) -> Result<()> {
    let has_mgs = options.targets.contains(&TargetId::MGT);
    ensure!(
        has_mgs || !options.mgs.is_empty(),
        "--mgsnode NID is required without --mgs: a target must find its MGS"
    );
    crate::tune::check_count(&options.mgs)?;
    let is_mdt = |id: &&TargetId| id.kind == TargetKind::Mdt;
    let too_high = options.targets.iter().filter(is_mdt).find(|id| id.index >= MDTS_MAX);
    ensure!(
        too_high.is_none(),
        "--index: a file system has at most {MDTS_MAX} MDTs, so it is at most {}",
        MDTS_MAX - 1
    );
    Ok(())
}

/// Makes the targets: their names and where they are.
pub(crate) fn make(options: &Options) -> Result<Vec<(String, PathBuf)>> {
    check(options)?;
    let (mut made, progress) = (Vec::new(), Progress::new("format", REMOVED));
    for target in &options.targets {
        let name = target.name(options.fsname);
        let dir =
            if options.targets.len() == 1 { options.dir.clone() } else { options.dir.join(&name) };
        let superblock =
            Superblock::new(options.fsname, *target, random_uuid()?, options.mgs.clone(), now());
        progress.begin(&name, REMOVED);
        superblock::format_watched(&dir, &superblock, options.reformat, &mut |gone, all| {
            progress.show(gone, all, "removes the old target");
        })?;
        made.push((name, dir));
    }
    Ok(made)
}

/// 128 bits of the kernel's randomness.
pub(crate) fn random_uuid() -> Result<u128> {
    let mut bytes = [0; 16];
    let mut source = std::fs::File::open("/dev/urandom").context("/dev/urandom")?;
    std::io::Read::read_exact(&mut source, &mut bytes).context("/dev/urandom")?;
    Ok(u128::from_le_bytes(bytes))
}

fn now() -> Timespec {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timespec::new(since.as_secs().cast_signed(), since.subsec_nanos())
}

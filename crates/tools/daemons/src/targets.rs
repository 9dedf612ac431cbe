//! Targets on disk: a directory with a superblock, or a directory of such directories.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use osd_disk::{DiskError, Superblock, superblock};
use types::{FsName, TargetId, TargetKind};

#[derive(Clone, Debug)]
pub(crate) struct TargetDir {
    pub(crate) dir: PathBuf,
    pub(crate) superblock: Superblock,
}

impl TargetDir {
    /// `testfs-OST0002`, `MGS`.
    pub(crate) fn name(&self) -> String {
        self.superblock.target.name(self.superblock.fsname)
    }
}

/// Every target in `dirs`: each is one itself, or each of its subdirectories that is one.
pub(crate) fn find(dirs: &[PathBuf]) -> Result<Vec<TargetDir>> {
    let mut found = Vec::new();
    for dir in dirs {
        let here = find_in(dir)?;
        if here.is_empty() {
            return Err(DiskError::NotFormatted(dir.clone()).into());
        }
        found.extend(here);
    }
    found.sort_by_key(|target| target.superblock.target);
    check_together(&found)?;
    Ok(found)
}

/// The targets in one directory; none is no error.
pub(crate) fn find_in(dir: &Path) -> Result<Vec<TargetDir>> {
    if let Some(target) = open(dir)? {
        return Ok(vec![target]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry.with_context(|| dir.display().to_string())?.path();
        if path.is_dir() {
            found.extend(open(&path)?);
        }
    }
    found.sort_by_key(|target| target.superblock.target);
    Ok(found)
}

/// The target that `dir` is, if it is one.
pub(crate) fn open(dir: &Path) -> Result<Option<TargetDir>> {
    ensure!(dir.is_dir(), "{}: no such directory: name the directory of a target", dir.display());
    match superblock::open(dir) {
        Ok(superblock) => Ok(Some(TargetDir { dir: dir.to_owned(), superblock })),
        Err(DiskError::NotFormatted(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A target that has been served has its records and objects.
pub(crate) fn check_parts(target: &TargetDir) -> Result<(), DiskError> {
    let missing = superblock::missing_parts(&target.dir, &target.superblock)?;
    if missing.is_empty() { Ok(()) } else { Err(lost(target, missing)) }
}

pub(crate) fn lost(target: &TargetDir, missing: Vec<PathBuf>) -> DiskError {
    DiskError::Lost { path: target.dir.clone(), name: target.name(), missing }
}

/// A request names its target by kind and index: one process serves one file system, and no target
/// twice.
fn check_together(found: &[TargetDir]) -> Result<()> {
    for pair in found.windows(2) {
        if pair[0].superblock.target == pair[1].superblock.target {
            bail!(
                "{} and {} are both {}: name each target once",
                pair[0].dir.display(),
                pair[1].dir.display(),
                pair[0].name()
            );
        }
    }
    let mut names = found.iter().filter(|target| target.superblock.target.kind != TargetKind::Mgt);
    if let Some(first) = names.next()
        && let Some(other) =
            names.find(|target| target.superblock.fsname != first.superblock.fsname)
    {
        bail!(
            "{} and {} are of different file systems: serve them in two processes",
            first.name(),
            other.name()
        );
    }
    Ok(())
}

/// The file system that a set of targets belongs to; an MGS alone belongs to none.
pub(crate) fn fsname_of(found: &[TargetDir]) -> Option<FsName> {
    found
        .iter()
        .find(|target| target.superblock.target != TargetId::MGT)
        .map(|target| target.superblock.fsname)
}

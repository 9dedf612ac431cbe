//! `nacre tune`: writes where the MGS is to targets that are stopped.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use osd_disk::{DiskError, Superblock, superblock};
use types::{NidAddr, TargetId, TargetKind};

use crate::targets::{self, TargetDir};

#[derive(Clone, Debug)]
pub struct Options {
    /// Where the MGS is: alternatives, tried in turn.
    pub mgs: Vec<NidAddr>,
    /// Targets, or directories of targets.
    pub dirs: Vec<PathBuf>,
}

/// Changes the targets and says so on stderr. Nothing is changed unless all are stopped.
///
/// # Errors
/// There are no targets that use an MGS, or one is served, or too many addresses are named.
pub fn run(options: &Options) -> Result<()> {
    for line in change(options)? {
        ctl::say!("{line}");
    }
    Ok(())
}

/// What was done, a line for each target.
fn change(options: &Options) -> Result<Vec<String>> {
    check_count(&options.mgs)?;
    let targets = those(options)?;
    let locks = targets.iter().map(|target| superblock::lock(&target.dir));
    let _locks = locks.collect::<Result<Vec<_>, _>>()?;
    let mut lines = Vec::new();
    for target in &targets {
        let before = superblock::open(&target.dir)?; // as it is under the lock
        let was = shown(&before.mgs);
        superblock::update(&target.dir, &Superblock { mgs: options.mgs.clone(), ..before })?;
        if !target.superblock.target.is_dom() {
            lines.push(format!("{}: MGS at {} (was {was})", target.name(), shown(&options.mgs)));
        }
    }
    Ok(lines)
}

/// A superblock has room for so many.
pub(crate) fn check_count(mgs: &[NidAddr]) -> Result<()> {
    ensure!(
        mgs.len() <= superblock::MGS_MAX,
        "--mgsnode: a target keeps at most {} addresses of its MGS: name no more",
        superblock::MGS_MAX
    );
    Ok(())
}

/// The targets that use an MGS, with the data targets of MDTs.
fn those(options: &Options) -> Result<Vec<TargetDir>> {
    let mut found = Vec::new();
    for dir in &options.dirs {
        let here = targets::find_in(dir)?;
        if here.is_empty() {
            return Err(DiskError::NotFormatted(dir.clone()).into());
        }
        found.extend(here);
    }
    for target in &mut found {
        // one directory may be named in two ways
        target.dir = target.dir.canonicalize().unwrap_or_else(|_| target.dir.clone());
    }
    found.sort_by(|one, next| one.dir.cmp(&next.dir));
    found.dedup_by(|next, one| next.dir == one.dir);
    found.retain(|target| target.superblock.target != TargetId::MGT);
    ensure!(!found.is_empty(), "an MGS keeps no address of itself: name targets that use it");
    let mut data = Vec::new();
    for target in &found {
        if target.superblock.target.is_dom() {
            let mdt = target.dir.parent().unwrap_or(&target.dir);
            bail!("{} holds data of an MDT: name {}", target.dir.display(), mdt.display());
        }
        let is_mdt = target.superblock.target.kind == TargetKind::Mdt;
        if is_mdt && superblock::has_data(&target.dir)? {
            data.extend(targets::open(&superblock::data_dir(&target.dir))?);
        }
    }
    found.extend(data);
    Ok(found)
}

fn shown(mgs: &[NidAddr]) -> String {
    match mgs {
        [] => "its own node".to_owned(),
        _ => mgs.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use types::Timespec;

    use super::*;

    fn at(text: &str) -> NidAddr {
        text.parse().expect("a NID")
    }

    #[test]
    fn stopped_targets_learn_where_their_mgs_is() {
        let _alone = forks::none();
        let dir = std::env::temp_dir().join(format!("nacre-tune-{}", std::process::id()));
        let format = |place: &str, target, uuid| {
            let fsname = "testfs".parse().expect("a name");
            let mgs = vec![at("10.0.0.1@tcp")];
            let fresh = Superblock::new(fsname, target, uuid, mgs, Timespec::default());
            superblock::format(&dir.join(place), &fresh, false).expect("formats");
        };
        format("mgs", TargetId::MGT, 1);
        format("mdt", TargetId::mdt(0), 6);
        format("mdt/data", TargetId::dom(0), 7);
        format("ost", TargetId::ost(0), 8);
        superblock::mark_served(&dir.join("ost")).expect("marks");
        let options = |place: &str, mgs: &[NidAddr]| Options {
            mgs: mgs.to_vec(),
            dirs: vec![dir.join(place)],
        };
        let there = |place: &str| superblock::open(&dir.join(place)).expect("a target");
        let refused = |options: Options| change(&options).expect_err("refused").to_string();

        let new = [at("10.0.0.8@tcp"), at("10.0.0.9@tcp")];
        let held = superblock::lock(&dir.join("ost")).expect("free");
        assert!(refused(options("", &new)).contains("in use"));
        assert_eq!(there("mdt").mgs, [at("10.0.0.1@tcp")], "nothing is changed");
        drop(held);
        let lines = change(&options("", &new)).expect("changes");
        assert_eq!(
            lines,
            [
                "testfs-MDT0000: MGS at 10.0.0.8@tcp,10.0.0.9@tcp (was 10.0.0.1@tcp)",
                "testfs-OST0000: MGS at 10.0.0.8@tcp,10.0.0.9@tcp (was 10.0.0.1@tcp)",
            ]
        );
        for (place, uuid) in [("mdt", 6), ("mdt/data", 7), ("ost", 8)] {
            assert_eq!((there(place).mgs, there(place).uuid), (new.to_vec(), uuid), "{place}");
        }
        assert!(there("ost").was_served() && !there("mdt").was_served(), "all else stays");
        assert_eq!(there("mgs").mgs, [at("10.0.0.1@tcp")]);

        assert!(refused(options("mgs", &new)).contains("name targets"));
        assert!(refused(options("mdt/data", &new)).contains("data of an MDT"));
        assert!(refused(options("nowhere", &new)).contains("no such directory"));
        let many = vec![at("10.0.0.8@tcp"); superblock::MGS_MAX + 1];
        assert!(refused(options("ost", &many)).contains("at most 16"));
        std::fs::remove_dir_all(&dir).expect("cleaned up");
    }
}

//! The data target of an MDT: the objects that it stores for files beside their inodes.
//!
//! It is an OST except for its name ([`TargetId::dom`]). It lives in the directory `data` of the
//! MDT and is served with it: at the same addresses, and neither without the other. The first start
//! of an MDT creates it, also if the MDT is older than data targets. From then on it must exist.
//!
//! Its identity follows from the MDT's identity. So a new data target beside an MDT that was
//! restored from an export is the same target to the MGS. Beside an MDT that was served before, its
//! instances begin at the clock's value. So they are above those of a lost data target.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use osd_disk::{Superblock, TargetLock, superblock};
use types::{TargetId, TargetKind, Timespec};

use super::Culprit;
use crate::targets::{self, TargetDir};

/// A target that is about to be served.
pub(super) type Locked = (TargetDir, TargetLock);

/// Finds or makes the data targets of the MDTs among `locked`, and locks them.
pub(super) fn beside(locked: &[Locked]) -> Result<Vec<Locked>> {
    let mdts = locked.iter().filter(|(target, _)| target.superblock.target.kind == TargetKind::Mdt);
    mdts.map(|(mdt, _)| {
        let data = prepared(mdt).context(Culprit::of(mdt))?;
        let lock = superblock::lock(&data.dir).context(Culprit::of(mdt))?;
        Ok((data, lock))
    })
    .collect()
}

/// The data targets that are there.
pub(super) fn there(found: &[TargetDir]) -> Result<Vec<TargetDir>> {
    let mut all = Vec::new();
    for mdt in found.iter().filter(|found| found.superblock.target.kind == TargetKind::Mdt) {
        if superblock::has_data(&mdt.dir).context(Culprit::of(mdt))? {
            let data = targets::open(&superblock::data_dir(&mdt.dir));
            all.extend(data.context(Culprit::of(mdt))?);
        }
    }
    Ok(all)
}

/// Nobody serves one without its MDT.
pub(super) fn refuse_alone(found: &[TargetDir]) -> Result<()> {
    match found.iter().find(|target| target.superblock.target.is_dom()) {
        None => Ok(()),
        Some(data) => {
            let dir = data.dir.parent().unwrap_or(&data.dir).display();
            anyhow::bail!("{} holds data of an MDT: serve {dir}", data.dir.display())
        }
    }
}

/// Whether a data target that has not started may follow one that was lost: its MDT has been
/// served.
pub(super) fn follows(found: &[TargetDir], data: &TargetDir) -> bool {
    let mdt = data.superblock.target.dom_of();
    let is_mdt = |found: &&TargetDir| Some(found.superblock.target) == mdt;
    found.iter().find(is_mdt).is_some_and(|mdt| mdt.superblock.was_served())
}

/// The data target of an MDT, made where the MDT has none yet.
fn prepared(mdt: &TargetDir) -> Result<TargetDir> {
    let dir = superblock::data_dir(&mdt.dir);
    let wanted = of(&mdt.superblock);
    if !superblock::has_data(&mdt.dir)? {
        superblock::format(&dir, &wanted, false)?;
        tracing::info!("{}: made in {}", wanted.name(), dir.display());
    }
    superblock::mark_data(&mdt.dir)?;
    let found = targets::open(&dir)?.with_context(|| format!("{}: no target", dir.display()))?;
    let theirs = &found.superblock;
    ensure!(
        (theirs.fsname, theirs.target, theirs.uuid) == (wanted.fsname, wanted.target, wanted.uuid),
        "{} belongs to another MDT than {}",
        dir.display(),
        mdt.dir.display()
    );
    Ok(found)
}

fn of(mdt: &Superblock) -> Superblock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timespec::new(since.as_secs().cast_signed(), since.subsec_nanos());
    Superblock::new(mdt.fsname, TargetId::dom(mdt.target.index), mdt.uuid ^ 1, mdt.mgs.clone(), now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mdt_gets_its_data_target_once_and_takes_no_other() {
        let _alone = forks::none();
        let dir = std::env::temp_dir().join(format!("nacre-data-{}", std::process::id()));
        let (fsname, mgs) = ("testfs".parse().expect("a name"), Vec::new());
        let superblock = Superblock::new(fsname, TargetId::mdt(0), 6, mgs, Timespec::default());
        superblock::format(&dir, &superblock, false).expect("formats");
        let mdt = || targets::open(&dir).expect("readable").expect("there");
        let made = prepared(&mdt()).expect("made");
        assert_eq!((made.name(), made.superblock.uuid), ("testfs-DOM0000".to_owned(), 7));
        assert_eq!(prepared(&mdt()).expect("found").superblock, made.superblock);
        assert!(refuse_alone(&[mdt()]).is_ok());
        let alone = refuse_alone(std::slice::from_ref(&made)).expect_err("its MDT is served");
        assert!(alone.to_string().ends_with(&dir.display().to_string()), "{alone}");

        let other = Superblock { uuid: 9, ..mdt().superblock };
        superblock::update(&dir, &other).expect("written");
        assert!(prepared(&mdt()).expect_err("of another").to_string().contains("another MDT"));
        std::fs::remove_dir_all(&made.dir).expect("removed");
        superblock::mark_served(&dir).expect("written");
        std::fs::create_dir(dir.join("records")).expect("made");
        std::fs::write(dir.join("records/data.mdb"), "records").expect("written");
        let lost = targets::check_parts(&mdt()).expect_err("it had one").to_string();
        assert!(lost.contains("data"), "{lost}");
        std::fs::remove_dir_all(&dir).expect("cleaned up");
    }
}

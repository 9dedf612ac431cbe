//! The targets that a file system is known to have, from every record of them: `up.json`, the
//! configurations beside existing targets, and the MGS's records.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use osd::MetaStore;
use osd_disk::{DiskMeta, MetaOptions, superblock};
use types::{FsName, TargetId};

use super::place::Known;
use crate::server::kept_in;
use crate::targets::TargetDir;

/// What `up.json` and the kept configurations say.
pub(super) fn noted(noted: &[Known], found: &[TargetDir]) -> BTreeSet<TargetId> {
    let ids =
        found.iter().filter_map(|target| kept_in(&target.dir)).flat_map(|config| config.targets);
    let ids = ids.map(|info| info.id).chain(noted.iter().map(|known| known.id));
    ids.filter_map(TargetId::from_u32).filter(|id| !id.is_dom()).collect()
}

/// What the MGS says, if it is there. Asked only before something is made: it takes the MGS's lock
/// for a moment.
pub(super) fn by_mgs(found: &[TargetDir], fsname: FsName) -> Result<Vec<TargetId>> {
    let mgs = found.iter().find(|target| target.superblock.target == TargetId::MGT);
    match mgs {
        Some(mgs) if superblock::has_records(&mgs.dir) => {
            read(&mgs.dir, fsname).with_context(|| mgs.name())
        }
        _ => Ok(Vec::new()),
    }
}

/// What the MGS still knows; none where it cannot be asked.
pub(super) fn left_by_mgs(found: &[TargetDir], fsname: FsName) -> Option<BTreeSet<TargetId>> {
    let left = by_mgs(found, fsname).ok()?;
    (!left.is_empty()).then(|| left.into_iter().collect())
}

fn read(dir: &Path, fsname: FsName) -> Result<Vec<TargetId>> {
    let _lock = superblock::lock(dir)?;
    let meta = DiskMeta::open(dir, &MetaOptions::default())?;
    let view = meta.running()?;
    let mut known = mgt::registered(&*view, fsname)?;
    known.retain(|id| !id.is_dom()); // a part of its MDT
    Ok(known)
}

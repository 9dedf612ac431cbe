//! The damage that a power cut may do to the records, for simulations on a file system that loses
//! nothing.

use std::os::unix::fs::FileExt;
use std::path::Path;

use types::SplitMix64;

use super::root::RootFile;
use super::walk;
use crate::DiskError;

/// Overwrites pages of `data.mdb` below `dir`, a target's directory, of a store that nobody has
/// open: both root pages, and of the pages that the durable root does not hold a part that is drawn
/// from `seed`. A commit that was written out and not synced may have left anything there.
pub fn tear_records(dir: &Path, seed: u64) -> Result<(), DiskError> {
    let dir = dir.join("records");
    let (root, page_bytes, meta) = RootFile::durable(&dir)?;
    let unused = walk::unused(root.data(), page_bytes, &meta);
    let unused = unused.map_err(|why| DiskError::Records {
        path: dir.clone(),
        why: format!("the durable root: {why}"),
    })?;
    let mut chance = SplitMix64::new(seed);
    let keep = chance.below(101);
    let mut page = vec![0; page_bytes];
    for number in [0, 1].into_iter().chain(unused) {
        if number > 1 && chance.below(100) < keep {
            continue;
        }
        page.fill_with(|| chance.bits() as u8);
        let written = root.data().write_all_at(&page, number * page_bytes as u64);
        written.map_err(DiskError::io(&dir, "data.mdb"))?;
    }
    Ok(())
}

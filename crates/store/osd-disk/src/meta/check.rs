//! The check of all pages and records before a store is opened.

use std::path::Path;
use std::time::Instant;

use osd::{StoreError, Table};

use super::root::RootFile;
use super::sums::{Sums, TABLE};
use super::walk::{self, Damage, Walked};

/// Damaged records that the log names; of more it says how many.
const NAMED_MAX: u64 = 16;
/// What to do about a damaged tree.
const WAY_OUT: &str =
    "nothing of it is served; restore this target from a backup, or format it again and lose it";

/// An error where LMDB must not see the tree. A damaged record is logged, and EIO later.
pub(super) fn all(root: &RootFile, dir: &Path) -> Result<(), String> {
    let Some((page_bytes, meta)) = root.tree() else { return Ok(()) };
    let start = Instant::now();
    let mut records = Records::new(dir);
    let mut visit = |name: &[u8], key: &[u8], value: &[u8]| {
        if let Some(error) = records.look(name, key, value) {
            records.tell(&error);
        }
    };
    let walked = walk::walk(root.data(), page_bytes, &meta, &mut visit);
    let Walked { pages, records: count } = walked.map_err(|damage| refusal(&damage))?;
    let (damaged, ms) = (records.damaged, start.elapsed().as_millis());
    if damaged > 0 {
        tracing::error!(records = %dir.display(), damaged, "records are damaged: their callers get EIO");
    }
    tracing::debug!(records = %dir.display(), pages, count, ms, "all pages were checked");
    Ok(())
}

/// Why a store is not served.
pub(super) fn refusal(damage: &Damage) -> String {
    format!("{damage}: {WAY_OUT}")
}

/// The checksums of records, as a walk meets them.
pub(super) struct Records<'a> {
    dir: &'a Path,
    sums: Sums,
    damaged: u64,
}

impl Records<'_> {
    pub(super) fn new(dir: &Path) -> Records<'_> {
        Records { dir, sums: Sums::none(), damaged: 0 }
    }

    /// Says if a record is damaged. The mark of the checksums comes first: its table's name is
    /// before all others.
    pub(super) fn look(&mut self, name: &[u8], key: &[u8], value: &[u8]) -> Option<StoreError> {
        if name == TABLE.as_bytes() {
            self.sums = Sums::decode(value).unwrap_or_else(Sums::none);
            return None;
        }
        let table = table(name)?;
        let is_whole = self.sums.value(table, key, value).is_some();
        (!is_whole).then(|| StoreError::Damaged { table, key: key.to_vec() })
    }

    /// Names a damaged record in the log, if it is one of the first.
    pub(super) fn tell(&mut self, error: &StoreError) {
        self.damaged += 1;
        if self.damaged <= NAMED_MAX {
            tracing::error!(records = %self.dir.display(), %error, "found by a check of all records");
        }
    }
}

fn table(name: &[u8]) -> Option<Table> {
    let number = std::str::from_utf8(name).ok()?.strip_prefix('t')?.parse().ok()?;
    Table::ALL.get::<usize>(number).copied()
}

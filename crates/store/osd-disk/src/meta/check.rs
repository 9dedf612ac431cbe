//! The check of all pages and records before a store is opened.

use std::path::Path;
use std::time::Instant;

use osd::{StoreError, Table};

use super::root::RootFile;
use super::sums::Sums;
use super::upgrade;
use super::walk::{self, Walked};

/// Damaged records that the log names; of more it says how many.
const NAMED_MAX: u64 = 16;
/// What to do about a damaged tree.
const WAY_OUT: &str =
    "nothing of it is served; restore this target from a backup, or format it anew and lose it";

/// An error where LMDB must not see the tree. A damaged record is logged, and EIO later.
pub(super) fn all(root: &RootFile, dir: &Path) -> Result<(), String> {
    let Some((page_bytes, meta)) = root.tree() else { return Ok(()) };
    let start = Instant::now();
    let mut records = Records { dir, sums: Sums::none(), damaged: 0 };
    let mut visit = |name: &[u8], key: &[u8], value: &[u8]| records.visit(name, key, value);
    let walked = walk::walk(root.data(), page_bytes, &meta, &mut visit);
    let Walked { pages, records: count } =
        walked.map_err(|damage| format!("{damage}: {WAY_OUT}"))?;
    let (damaged, ms) = (records.damaged, start.elapsed().as_millis());
    if damaged > 0 {
        tracing::error!(records = %dir.display(), damaged, "records are damaged: their users are told EIO");
    }
    tracing::debug!(records = %dir.display(), pages, count, ms, "all pages were checked");
    Ok(())
}

struct Records<'a> {
    dir: &'a Path,
    sums: Sums,
    damaged: u64,
}

impl Records<'_> {
    /// The mark of the checksums comes first: its table's name is before all others.
    fn visit(&mut self, name: &[u8], key: &[u8], value: &[u8]) {
        if name == upgrade::TABLE.as_bytes() {
            self.sums = Sums::decode(value).unwrap_or_else(Sums::none);
            return;
        }
        let Some(table) = table(name) else { return };
        if self.sums.value(table, key, value).is_none() {
            self.damaged += 1;
            if self.damaged <= NAMED_MAX {
                let error = StoreError::Damaged { table, key: key.to_vec() };
                tracing::error!(records = %self.dir.display(), %error, "found at the start");
            }
        }
    }
}

fn table(name: &[u8]) -> Option<Table> {
    let number = std::str::from_utf8(name).ok()?.strip_prefix('t')?.parse().ok()?;
    Table::ALL.get::<usize>(number).copied()
}

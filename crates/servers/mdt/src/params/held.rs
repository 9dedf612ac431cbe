//! `mdt.*.held`: what the store of an MDT has. An MDT that holds nothing can be forgotten.

use osd::{StoreError, Table, View};
use target::Leaves;

use crate::limits::HELD_MAX;
use crate::target::Mdt;

/// What is counted, by table.
const TABLES: [(&str, Table); 3] =
    [("inodes", Table::Inodes), ("operations", Table::Updates), ("removals", Table::Destroys)];

/// Registers it.
pub(super) fn register(leaves: &Leaves<'_, Mdt>) {
    leaves.read("held", |mdt| {
        let view = mdt.engine.store.meta().running();
        let held = view.and_then(|view| text(&*view));
        held.unwrap_or_else(|_| "unknown\n".to_owned())
    });
}

/// A line for each table, counted up to [`HELD_MAX`].
fn text(view: &dyn View) -> Result<String, StoreError> {
    let mut text = String::new();
    for (name, table) in TABLES {
        let mut count = 0_u32;
        view.scan(table, &[0], &mut |_, _| {
            count += 1;
            count < HELD_MAX
        })?;
        let more = if count < HELD_MAX { "" } else { " or more" };
        text += &format!("{name} {count}{more}\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use osd::{MetaStore, WriteSet};
    use types::Fid;

    use super::*;
    use crate::tests::store::TestStore;

    #[test]
    fn records_are_counted_up_to_a_bound() {
        let meta = TestStore::default();
        let held = || text(&*meta.running().expect("ready")).expect("reads");
        assert_eq!(held(), "inodes 0\noperations 0\nremovals 0\n");
        let mut set = WriteSet::new();
        set.put(Table::Destroys, 0_u64.to_be_bytes(), *b"x");
        for oid in 0..=HELD_MAX {
            set.put(Table::Inodes, Fid::new(7, oid).to_key(), *b"x");
        }
        meta.apply(&set).expect("room");
        let all = format!("inodes {HELD_MAX} or more\noperations 0\nremovals 1\n");
        assert_eq!(held(), all);
    }
}

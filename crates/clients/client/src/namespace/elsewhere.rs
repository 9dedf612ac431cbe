//! Files that have names at another MDT than their own, as far as this client has heard. An fsync
//! of such a file makes the names durable too.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use types::Fid;

/// Files that are remembered, about 100 bytes each. Of more of them only the MDTs are.
const FILES_MAX: usize = 65_536;

#[derive(Default)]
struct Known {
    by_file: BTreeMap<Fid, BTreeSet<u32>>,
    /// MDTs with names of files that are forgotten.
    of_others: BTreeSet<u32>,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Elsewhere(RefCell<Known>);

impl Elsewhere {
    /// A name of the file is in this directory.
    pub(crate) fn note(&self, dir: Fid, file: Fid) {
        let mdt = dir.mdt_index();
        if file.is_zero() || file.mdt_index() == mdt {
            return;
        }
        let mut known = self.0.borrow_mut();
        if known.by_file.len() >= FILES_MAX && !known.by_file.contains_key(&file) {
            let forgotten = std::mem::take(&mut known.by_file);
            known.of_others.extend(forgotten.into_values().flatten());
        }
        known.by_file.entry(file).or_default().insert(mdt);
    }

    /// The other MDTs that may have names of the file.
    pub(crate) fn mdts_of(&self, file: Fid) -> BTreeSet<u32> {
        let known = self.0.borrow();
        let named = known.by_file.get(&file).into_iter().flatten().chain(&known.of_others);
        named.copied().filter(|mdt| *mdt != file.mdt_index()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(mdt: u32, oid: u32) -> Fid {
        let per_mdt = 1 << types::FID_SEQUENCES_PER_MDT_BITS;
        Fid::new(types::FID_FIRST_NORMAL_SEQ + u64::from(mdt) * per_mdt, oid)
    }

    #[test]
    fn names_at_other_mdts_are_remembered() {
        let names = Elsewhere::default();
        names.note(fid(0, 1), fid(0, 2));
        assert!(names.0.borrow().by_file.is_empty(), "it is where the file is");
        names.note(fid(0, 1), fid(1, 2));
        names.note(fid(2, 1), fid(1, 2));
        assert_eq!(names.mdts_of(fid(1, 2)), BTreeSet::from([0, 2]));
        assert!(names.mdts_of(fid(1, 3)).is_empty());
    }

    #[test]
    fn of_too_many_files_the_mdts_are_remembered() {
        let names = Elsewhere::default();
        (0..=FILES_MAX as u32).for_each(|oid| names.note(fid(3, 1), fid(1, oid)));
        assert_eq!(names.0.borrow().by_file.len(), 1);
        assert_eq!(names.mdts_of(fid(2, 7)), BTreeSet::from([3]));
        assert!(names.mdts_of(fid(3, 7)).is_empty(), "its own MDT is asked anyway");
    }
}

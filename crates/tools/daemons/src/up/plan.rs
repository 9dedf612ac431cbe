//! Which targets an `up` creates, and which are missing. Pure.
//!
//! A target that is known (to `up.json`, to the MGS) is never created again. If its directory does
//! not hold it, its disk is not mounted.

use std::collections::BTreeSet;

use types::{TargetId, TargetKind};

/// See the head of the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Neither known nor there.
    pub(super) make: Vec<TargetId>,
    /// Known and not there.
    pub(super) missing: Vec<TargetId>,
}

impl Plan {
    pub(super) fn new(
        wanted: &[TargetId],
        known: &BTreeSet<TargetId>,
        found: &BTreeSet<TargetId>,
    ) -> Plan {
        let is_new = |target: &&TargetId| !known.contains(target) && !found.contains(target);
        let plan = Plan {
            make: wanted.iter().filter(is_new).copied().collect(),
            missing: known.difference(found).copied().collect(),
        };
        assert!(
            plan.make.iter().all(|target| !known.contains(target)),
            "what is known is not made"
        );
        plan
    }
}

/// MDTs of a new file system, unless a number is asked for: directories are spread over them.
const MDTS_OF_NEW: u32 = 2;

/// How many MDTs there are to be at least. Without a number, a file system with MDTs gets no
/// further one.
pub(super) fn mdts_wanted<'a>(
    asked: Option<u32>,
    mut there: impl Iterator<Item = &'a TargetId>,
) -> u32 {
    let has_some = there.any(|target| target.kind == TargetKind::Mdt);
    asked.unwrap_or(if has_some { 1 } else { MDTS_OF_NEW })
}

/// OSTs, unless a number is asked for.
pub(super) const OSTS: u32 = 4;

/// A line for each kind of which fewer are asked for than there are, because none is removed.
pub(super) fn kept(
    mdts: Option<u32>,
    osts: Option<u32>,
    there: &BTreeSet<TargetId>,
) -> Vec<String> {
    let count = |is_kind: fn(&TargetId) -> bool| there.iter().filter(|id| is_kind(id)).count();
    let rows = [
        ("--mdts", "MDTs", mdts, count(|id| id.kind == TargetKind::Mdt)),
        ("--osts", "OSTs", osts, count(|id| id.is_ost())),
    ];
    let fewer = rows.into_iter().filter_map(|(option, kind, asked, there)| {
        let asked = asked.filter(|asked| (*asked as usize) < there)?;
        Some(format!("the file system has {there} {kind}, and {option} {asked} removes none"))
    });
    fewer.collect()
}

/// Whether nothing can be mounted without `target`: the MGS, and the MDT that has the root.
pub(super) fn is_needed_to_mount(target: TargetId) -> bool {
    let target = target.dom_of().unwrap_or(target);
    target == TargetId::MGT || target == TargetId::mdt(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(targets: &[TargetId]) -> BTreeSet<TargetId> {
        targets.iter().copied().collect()
    }

    #[test]
    fn a_new_file_system_has_two_mdts_and_another_one_keeps_its_number() {
        let wanted = |asked, there: &[TargetId]| mdts_wanted(asked, there.iter());
        assert_eq!(wanted(None, &[]), 2);
        assert_eq!(wanted(None, &[TargetId::MGT, TargetId::ost(0)]), 2, "an `up` broke off");
        let [one, three] = [&[TargetId::mdt(0)][..], &[0, 1, 2].map(TargetId::mdt)];
        assert_eq!((wanted(None, one), wanted(None, three)), (1, 1), "no further one");
        assert_eq!((wanted(Some(1), &[]), wanted(Some(4), one)), (1, 4));
    }

    #[test]
    fn fewer_targets_than_there_are_get_a_line() {
        let there = set(&[TargetId::MGT, TargetId::mdt(0), TargetId::ost(0), TargetId::ost(1)]);
        assert_eq!(kept(Some(1), Some(2), &there), [""; 0]);
        assert_eq!(kept(None, None, &there), [""; 0]);
        let line = "the file system has 2 OSTs, and --osts 1 removes none";
        assert_eq!(kept(Some(1), Some(1), &there), [line]);
        assert_eq!(kept(Some(1), Some(1), &set(&[])), [""; 0], "a new file system");
    }

    #[test]
    fn a_mount_needs_the_mgs_and_the_mdt_with_the_root() {
        let needed = [TargetId::MGT, TargetId::mdt(0), TargetId::dom(0)];
        assert!(needed.into_iter().all(is_needed_to_mount));
        let others = [TargetId::mdt(1), TargetId::dom(1), TargetId::ost(0)];
        assert!(!others.into_iter().any(is_needed_to_mount));
    }

    #[test]
    fn what_is_known_is_never_made_again() {
        let (mgs, mdt) = (TargetId::MGT, TargetId::mdt(0));
        let osts = [0, 1, 2].map(TargetId::ost);
        let two = [mgs, mdt, osts[0], osts[1]];
        let three = [mgs, mdt, osts[0], osts[1], osts[2]];
        let check = |wanted: &[TargetId], known: &[TargetId], found: &[TargetId]| {
            let plan = Plan::new(wanted, &set(known), &set(found));
            (plan.make, plan.missing)
        };
        assert_eq!(check(&two, &[], &[]), (two.to_vec(), vec![]), "a fresh file system");
        assert_eq!(check(&two, &two, &two), (vec![], vec![]));
        assert_eq!(check(&two, &two, &two[..3]), (vec![], vec![osts[1]]), "a disk is not mounted");
        assert_eq!(check(&two, &two, &[]), (vec![], two.to_vec()), "no disk is mounted");
        assert_eq!(check(&three, &two, &two), (vec![osts[2]], vec![]), "it grows");
        assert_eq!(
            check(&two, &three, &three),
            (vec![], vec![]),
            "fewer are wanted than there are"
        );
        assert_eq!(check(&two, &[], &two), (vec![], vec![]), "found without a note of it");
        assert_eq!(check(&two, &[], &two[..3]), (vec![osts[1]], vec![]));
    }
}

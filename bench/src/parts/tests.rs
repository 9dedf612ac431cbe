//! Figures of the mounted tests with the counts of a release: fairness, rates, swaps, pauses.

use anyhow::Result;

use super::figures;
use crate::bed::Bed;
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// Target of the mounted tests.
const TARGET: &str = "all";

/// Parts of the names of the tests that each part of a run has.
const FAIRNESS: &[&str] = &["crrn_gives_every_client_its_share"];
const SWAPS: &[&str] = &[
    "hot_swaps_through_all_policies_lose_nothing_and_stall_nobody",
    "a_class_gets_its_rate_over_four_partitions",
];
const KILLS: &[&str] = &[
    "kills_lose_nothing",
    "kills_of_all_kinds_in_turn_lose_nothing",
    "kills_of_four_mdts_lose_nothing",
];

pub(crate) fn fairness(_bed: &Bed, _scale: Scale) -> Result<Vec<Row>> {
    of_tests(FAIRNESS)
}

pub(crate) fn swaps(_bed: &Bed, _scale: Scale) -> Result<Vec<Row>> {
    of_tests(SWAPS)
}

pub(crate) fn kills(_bed: &Bed, _scale: Scale) -> Result<Vec<Row>> {
    of_tests(KILLS)
}

fn of_tests(names: &[&str]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &name in names {
        let test = ["test", "--quiet", "--release", "-p", "mounted", "--test", TARGET, name];
        let args = [&test[..], &["--", "--test-threads=1"]].concat();
        rows.extend(figures::of_cargo(&args, bound)?);
    }
    Ok(rows)
}

fn bound(id: &str) -> Option<Bound> {
    let last = id.rsplit('/').next().unwrap_or(id);
    match last {
        "spread-crrn" => Some(Bound::AtMost(0.5)),
        "spread-default" => Some(Bound::AtMost(2.0)),
        "lone-gain" => Some(Bound::AtLeast(3.4)),
        "lone-total" => Some(Bound::AtLeast(0.99)),
        "swaps-slowest" => Some(Bound::AtMost(100.0)),
        "pause" => Some(Bound::AtMost(5.0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests_of_names {
    use super::{FAIRNESS, KILLS, SWAPS, TARGET};

    /// The chart of pauses shows these four. Without one of them a run cannot be published.
    #[test]
    fn all_kinds_of_kills_are_run() {
        let source = include_str!("../../../tests/mounted/tests/kill.rs");
        for kind in ["kill-mdt", "kill-ost", "kill-mgs", "kill-all-kinds"] {
            let call = format!("survive_kills(\"{kind}\"");
            let (before, _) = source.split_once(&call).expect("it is killed");
            let (_, test) = before.rsplit_once("fn ").expect("by a test");
            assert!(KILLS.iter().any(|name| test.contains(*name)), "{kind}");
        }
    }

    #[test]
    fn the_target_of_the_mounted_tests_exists() {
        let package = include_str!("../../../tests/mounted/Cargo.toml");
        assert!(package.contains(&format!("name = \"{TARGET}\"")), "{TARGET}");
    }

    #[test]
    fn each_name_is_part_of_a_test() {
        let sources = [
            (FAIRNESS, include_str!("../../../tests/mounted/tests/fairness.rs")),
            (SWAPS, include_str!("../../../tests/mounted/tests/nrs.rs")),
            (KILLS, include_str!("../../../tests/mounted/tests/kill.rs")),
        ];
        for (names, source) in sources {
            for name in names {
                assert!(source.contains(&format!("{name}() {{")), "{name}");
            }
        }
    }
}

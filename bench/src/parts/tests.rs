//! Figures of the mounted tests with the counts of a release: fairness, rates, swaps, pauses.

use anyhow::Result;

use super::figures;
use crate::bed::Bed;
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// The mounted tests' target, each with a part of the names of those that are run.
const NAMES: [[&str; 3]; 5] = [
    ["--test", "all", "crrn_gives_every_client_its_share"],
    ["--test", "all", "hot_swaps_through_all_policies_lose_nothing_and_stall_nobody"],
    ["--test", "all", "a_class_gets_its_rate_over_four_partitions"],
    ["--test", "all", "kills_lose_nothing"],
    ["--test", "all", "kills_of_all_kinds_in_turn_lose_nothing"],
];

pub(crate) fn servers(_bed: &Bed, _scale: Scale) -> Result<Vec<Row>> {
    let tests = ["test", "--quiet", "--release", "-p", "mounted"];
    let alone = ["--", "--test-threads=1"];
    let mut rows = Vec::new();
    for name in NAMES {
        rows.extend(figures::of_cargo(&[&tests[..], &name, &alone].concat(), bound)?);
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
    use super::NAMES;

    /// The chart of pauses shows these four. Without one of them a run cannot be published.
    #[test]
    fn all_kinds_of_kills_are_run() {
        let source = include_str!("../../../tests/mounted/tests/kill.rs");
        for kind in ["kill-mdt", "kill-ost", "kill-mgs", "kill-all-kinds"] {
            let call = format!("survive_kills(\"{kind}\"");
            let (before, _) = source.split_once(&call).expect("it is killed");
            let (_, test) = before.rsplit_once("fn ").expect("by a test");
            assert!(NAMES.iter().any(|[_, _, name]| test.contains(*name)), "{kind}");
        }
    }

    #[test]
    fn the_target_of_the_mounted_tests_exists() {
        let package = include_str!("../../../tests/mounted/Cargo.toml");
        for [_, target, name] in NAMES {
            assert!(package.contains(&format!("name = \"{target}\"")), "{target}: {name}");
        }
    }
}

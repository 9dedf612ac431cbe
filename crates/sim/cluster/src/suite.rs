//! The seeds that CI runs: a fixed set, and some that depend on the tree.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use types::SplitMix64;

use crate::Scenario;
use crate::scenario::ALL_LAYOUTS_FROM;

/// Fixed seeds of each scenario, from 1 on. Directed runs are short.
const FIXED: &[(&str, u64)] = &[
    ("storm", 200),
    ("kills", 20),
    ("slow", 20),
    ("sick", 20),
    ("leases", 40),
    ("share", 40),
    ("late", 40),
    ("resend", 40),
    ("dead", 20),
    ("lost", 40),
    ("told", 20),
    ("fence", 40),
    ("damaged", 30),
    ("kernel", 400), // with those below and 100 drawn ones 1,000, of 0.12 s each
    ("hostile", 20),
    ("killed", 20),
    ("swaps", 20),
    ("shared", 60),
    ("hard", 40),
    ("dom", 60),
    ("cuts", 40),
    ("layouts", 40),
    ("migrations", 40),
    ("on_open", 40),
    ("kept", 60),
    ("pages", 40),
    ("mdts", 60),
    ("forest", 40),
    ("moves", 40),
    ("splits", 40),
    ("matrix", 58), // 52 with one death in each cell, and some with two
];

/// Seeds of [`Scenario::kernel`] in which mounts have faults too.
const HARD_KERNELS: Range<u64> = 1_000..1_500;

/// Seeds from [`ALL_LAYOUTS_FROM`] on, of scenarios that draw from all layouts there.
const OF_ALL_LAYOUTS: &[(&str, u64)] = &[("layouts", 100), ("migrations", 100)];

/// Drawn seeds fit into 32 bits, so that people can read and type them.
const DRAWN_BITS: u32 = 32;

/// One of so many drawn seeds also runs in [`Scenario::matrix`]: 100 are 1,000 cells of two deaths.
const MATRIX_ONE_OF: usize = 4;

/// The fixed seeds of every scenario, and `drawn` ones of [`Scenario::storm`] and
/// [`Scenario::kernel`]. Some of these also run in [`Scenario::matrix`].
#[must_use]
pub fn suite(drawn: &[u64]) -> Vec<(u64, Scenario)> {
    let usual = FIXED.iter().map(|(name, count)| (name, 1, *count));
    let more = OF_ALL_LAYOUTS.iter();
    let more = more.map(|(name, count)| (name, ALL_LAYOUTS_FROM, *count));
    let fixed = usual.chain(more).flat_map(|(name, first, count)| {
        let scenario = Scenario::by_name(name).expect("the scenarios of the suite exist");
        (first..first + count).map(move |seed| (seed, scenario))
    });
    let kernels = HARD_KERNELS.chain(drawn.iter().copied());
    let kernels = kernels.map(|seed| (seed, Scenario::kernel()));
    let storms = drawn.iter().map(|seed| (*seed, Scenario::storm()));
    let matrices = drawn.iter().step_by(MATRIX_ONE_OF).map(|seed| (*seed, Scenario::matrix()));
    fixed.chain(kernels).chain(storms).chain(matrices).collect()
}

/// `count` seeds that depend on `text` alone: the same text gives the same seeds.
#[must_use]
pub fn draw_seeds(text: &str, count: u32) -> Vec<u64> {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut draw = SplitMix64::new(hash);
    (0..count).map(|_| draw.bits() >> (u64::BITS - DRAWN_BITS)).collect()
}

/// The `number`th of `count` equal parts of some seeds, from 1 on; written as `3/20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    number: u64,
    count: u64,
}

/// A slice is K/N, with K from 1 to N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseSliceError;

impl fmt::Display for ParseSliceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a slice is K/N, with K from 1 to N")
    }
}

impl std::error::Error for ParseSliceError {}

impl FromStr for Slice {
    type Err = ParseSliceError;

    fn from_str(text: &str) -> Result<Slice, ParseSliceError> {
        let (number, count) = text.split_once('/').ok_or(ParseSliceError)?;
        let parse = |text: &str| text.parse::<u64>().map_err(|_| ParseSliceError);
        let slice = Slice { number: parse(number)?, count: parse(count)? };
        (1..=slice.count).contains(&slice.number).then_some(slice).ok_or(ParseSliceError)
    }
}

impl fmt::Display for Slice {
    /// As the name of a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-of-{}", self.number, self.count)
    }
}

impl Slice {
    /// The seeds of this part.
    #[must_use]
    pub fn of(self, seeds: &Range<u64>) -> Range<u64> {
        let before = |parts: u64| {
            let seeds = u128::from(seeds.end - seeds.start) * u128::from(parts);
            u64::try_from(seeds / u128::from(self.count)).expect("a part is less than the whole")
        };
        seeds.start + before(self.number - 1)..seeds.start + before(self.number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::directed::cells_of_two_deaths;

    #[test]
    fn the_slices_of_a_range_are_the_range() {
        for count in [1, 3, 7, 20] {
            let slice = |number: u64| format!("{number}/{count}").parse::<Slice>().expect("good");
            assert!((1..=count).flat_map(|number| slice(number).of(&(5..105))).eq(5..105));
        }
        for text in ["3/2", "0/2", "2", "a/3"] {
            assert_eq!(text.parse::<Slice>(), Err(ParseSliceError), "{text}");
        }
    }

    #[test]
    fn seeds_in_a_row_go_through_all_scenarios_odd_and_even() {
        let seeds = 100..100 + 3 * Scenario::NAMES.len() as u64;
        let runs = seeds.map(|seed| (Scenario::of_seed(seed).name, seed % 2));
        let all = Scenario::NAMES.into_iter().flat_map(|name| [(name, 0), (name, 1)]);
        assert_eq!(runs.collect::<BTreeSet<_>>(), all.collect());
    }

    #[test]
    fn the_same_text_draws_the_same_seeds_and_another_text_others() {
        let one = draw_seeds("4b825dc642cb6eb9a060e54bf8d69288fbee4904", 100);
        assert_eq!(one, draw_seeds("4b825dc642cb6eb9a060e54bf8d69288fbee4904", 100));
        assert_eq!(one[..10], draw_seeds("4b825dc642cb6eb9a060e54bf8d69288fbee4904", 10));
        let other = draw_seeds("4b825dc642cb6eb9a060e54bf8d69288fbee4905", 100);
        assert!(one.iter().all(|seed| *seed < 1 << DRAWN_BITS && !other.contains(seed)));
    }

    #[test]
    fn a_hundred_drawn_seeds_kill_twice_in_a_thousand_cells() {
        let count = |seeds: &[u64]| {
            let runs = suite(seeds).into_iter();
            runs.filter(|(seed, run)| run.name == "matrix" && cells_of_two_deaths(*seed) > 0)
                .count()
        };
        let drawn = draw_seeds("4b825dc642cb6eb9a060e54bf8d69288fbee4904", 100);
        let seeds = count(&drawn) - count(&[]);
        assert_eq!(seeds as u32 * cells_of_two_deaths(drawn[0]), 1_000);
        assert!(count(&[]) > 0, "the fixed ones reach every rare branch without drawn ones");
    }

    #[test]
    fn a_thousand_seeds_run_under_the_kernels_model_and_mounts_have_faults_in_most_of_them() {
        let drawn = draw_seeds("4b825dc642cb6eb9a060e54bf8d69288fbee4904", 100);
        let runs = suite(&drawn).into_iter().filter(|(_, run)| run.name == "kernel");
        let seeds: BTreeSet<u64> = runs.map(|(seed, _)| seed).collect();
        assert_eq!(seeds.len(), 1_000, "no seed runs twice");
        assert!(drawn.iter().all(|seed| seeds.contains(seed)));
        assert_eq!(seeds.range(1_000..).count(), 600);
    }

    #[test]
    fn a_hundred_seeds_of_layouts_and_of_migrations_draw_from_all_layouts() {
        for scenario in [Scenario::layouts(), Scenario::migrations()] {
            let runs = suite(&[]).into_iter();
            let all = runs.filter(|(seed, run)| {
                run.name == scenario.name && run.has_all_layouts(*seed) && run.begins_at_mdt(*seed)
            });
            assert_eq!(all.count(), 100, "{}", scenario.name);
        }
        assert!(!Scenario::migrations().begins_at_mdt(ALL_LAYOUTS_FROM - 1), "as before");
    }

    #[test]
    fn every_scenario_with_faults_has_fixed_seeds() {
        let runs = suite(&[]);
        for name in Scenario::NAMES.iter().filter(|name| **name != "calm") {
            let seeds = runs.iter().filter(|(_, scenario)| scenario.name == *name).count();
            assert!(seeds >= 20, "{name} has {seeds}");
        }
    }
}

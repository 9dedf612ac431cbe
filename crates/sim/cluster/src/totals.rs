//! Totals over many runs. They prove that no fault is tested in name only.

use std::collections::BTreeMap;

use env_sim::{FaultCounts, Faults};

use crate::{Report, Scenario};

/// Sums over runs.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub runs: u64,
    ops: u64,
    races: u64,
    restarts: u64,
    power_cuts: u64,
    crash_points: u64,
    swaps: u64,
    faults: FaultCounts,
    virtual_ms: u64,
    marks: BTreeMap<&'static str, u64>,
    fewest_ops: Option<u64>,
    fewest_restarts: Option<u32>,
}

impl Totals {
    pub fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.ops += report.ops;
        self.races += report.races;
        self.restarts += u64::from(report.restarts);
        self.power_cuts += u64::from(report.power_cuts);
        self.crash_points += u64::from(report.crash_points);
        self.swaps += u64::from(report.swaps);
        self.virtual_ms += report.virtual_ms;
        self.fewest_ops = Some(self.fewest_ops.map_or(report.ops, |fewest| fewest.min(report.ops)));
        self.fewest_restarts = Some(
            self.fewest_restarts.map_or(report.restarts, |fewest| fewest.min(report.restarts)),
        );
        for (mark, count) in &report.marks {
            *self.marks.entry(mark).or_default() += count;
        }
        let (sum, one) = (&mut self.faults, &report.faults);
        sum.delivered += one.delivered;
        sum.lost += one.lost;
        sum.duplicated += one.duplicated;
        sum.reordered += one.reordered;
        sum.delayed += one.delayed;
        sum.partitioned += one.partitioned;
        sum.resets += one.resets;
        sum.refused += one.refused;
        sum.connect_timeouts += one.connect_timeouts;
        sum.kills += one.kills;
        sum.silent_ends += one.silent_ends;
        sum.pauses += one.pauses;
    }

    /// How often each rare branch was reached.
    #[must_use]
    pub fn marks(&self) -> &BTreeMap<&'static str, u64> {
        &self.marks
    }

    /// Kinds of faults that `scenario` is for and that never occurred.
    #[must_use]
    pub fn missing(&self, scenario: &Scenario) -> Vec<&'static str> {
        let Faults {
            loss_ppm, duplicate_ppm, reorder_ppm, delay_ppm, reset_ppm, refuse_ppm, ..
        } = scenario.storm;
        let (faults, is_cut) = (&self.faults, scenario.partitions);
        let kinds = [
            ("lost messages", loss_ppm > 0, faults.lost),
            ("messages that come twice", duplicate_ppm > 0, faults.duplicated),
            ("messages out of order", reorder_ppm > 0, faults.reordered),
            ("late messages", delay_ppm > 0, faults.delayed),
            ("partitions", is_cut, faults.partitioned),
            ("connects that time out", is_cut, faults.connect_timeouts),
            ("resets", is_cut || reset_ppm > 0, faults.resets),
            ("refused connects", refuse_ppm > 0, faults.refused),
            ("links that end silently", scenario.restarts > 0, faults.silent_ends),
            ("restarts", scenario.restarts > 0, self.restarts),
            ("power cuts", scenario.power_cuts, self.power_cuts),
            ("crash points", scenario.crash_points, self.crash_points),
            ("swaps of policies", scenario.swaps, self.swaps),
            ("pauses", scenario.hard_faults > 0, faults.pauses),
        ];
        kinds
            .into_iter()
            .filter(|(_, wanted, count)| *wanted && *count == 0)
            .map(|(name, ..)| name)
            .collect()
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let faults = &self.faults;
        writeln!(
            f,
            "total of {} seeds: {} operations (at least {} each), {} races, {} restarts (at least {} each), {} power cuts, {} crash points, \
             {} swaps of policies, {} kills of nodes, {:.0} s",
            self.runs,
            self.ops,
            self.fewest_ops.unwrap_or(0),
            self.races,
            self.restarts,
            self.fewest_restarts.unwrap_or(0),
            self.power_cuts,
            self.crash_points,
            self.swaps,
            faults.kills,
            self.virtual_ms as f64 / 1e3,
        )?;
        write!(
            f,
            "faults hit: {} messages, {} lost, {} twice, {} reordered, {} late, {} partitioned, {} resets, {} refused, \
             {} connect timeouts, {} silent ends, {} pauses",
            faults.delivered,
            faults.lost,
            faults.duplicated,
            faults.reordered,
            faults.delayed,
            faults.partitioned,
            faults.resets,
            faults.refused,
            faults.connect_timeouts,
            faults.silent_ends,
            faults.pauses,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_misses_the_faults_that_it_is_for_and_no_others() {
        let none = Totals::default();
        assert_eq!(none.missing(&Scenario::storm()).len(), 12);
        assert_eq!(
            none.missing(&Scenario::kills()),
            ["links that end silently", "restarts", "power cuts", "crash points"]
        );
        assert_eq!(none.missing(&Scenario::calm()), Vec::<&str>::new());
        let faults = FaultCounts { lost: 1, ..FaultCounts::default() };
        let report = Report {
            seed: 1,
            scenario: "storm",
            ops: 2_000,
            races: 0,
            restarts: 5,
            power_cuts: 0,
            crash_points: 0,
            swaps: 0,
            faults,
            on_disk: false,
            virtual_ms: 0,
            marks: BTreeMap::from([("a rare branch", 3)]),
            trace_hash: 0,
            failure: None,
        };
        let mut totals = none;
        totals.add(&report);
        totals.add(&report);
        assert_eq!(totals.marks().get("a rare branch"), Some(&6));
        let missing = totals.missing(&Scenario::storm());
        assert!(
            !missing.contains(&"lost messages")
                && !missing.contains(&"restarts")
                && missing.contains(&"partitions")
        );
    }
}

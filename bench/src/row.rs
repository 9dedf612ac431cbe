//! Benchmark results: rows of values, ours and the limit's, measured in turns.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// One part of a run, as kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PartResult {
    pub(crate) part: String,
    /// Wall-clock seconds that the part took.
    pub(crate) seconds: f64,
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
}

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Stable name, `part/case`.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) unit: String,
    /// One value per turn.
    pub(crate) ours: Vec<f64>,
    /// The limit in the same turns; empty where the figure stands alone.
    pub(crate) limit: Vec<f64>,
    /// CPU of the whole machine, median of our turns.
    pub(crate) cpu: Option<Cpu>,
    /// The idle part of the machine, of a row that measures simulated devices.
    #[serde(default)]
    pub(crate) idle: Option<f64>,
    pub(crate) bound: Option<Bound>,
    /// What anybody can run to repeat it.
    pub(crate) command: String,
}

/// A row of simulated devices is void if the machine was idle for a smaller part of the time.
pub(crate) const IDLE_LEAST: f64 = 0.3;

/// CPU time and what it was spent on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cpu {
    pub(crate) value: f64,
    /// Such as `s per GiB`.
    pub(crate) unit: String,
}

/// What a row has to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Bound {
    /// Ours over the limit, at least.
    Ratio(f64),
    /// Ours over the limit, at most.
    RatioAtMost(f64),
    /// Our value, at most.
    AtMost(f64),
    /// Our value, at least.
    AtLeast(f64),
}

/// Middle, least and largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without values. The median of an even count is the mean of the two in the middle.
    pub(crate) fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        };
        Some(Spread { median, min, max })
    }
}

impl Row {
    /// Values of turns without the machine's CPU: ours, and the limit's if there is one.
    pub(crate) fn of(
        id: &str,
        title: &str,
        unit: &str,
        [ours, limit]: [Vec<f64>; 2],
        bound: Option<Bound>,
        command: &str,
    ) -> Row {
        Row {
            id: id.to_owned(),
            title: title.to_owned(),
            unit: unit.to_owned(),
            ours,
            limit,
            cpu: None,
            idle: None,
            bound,
            command: command.to_owned(),
        }
    }

    /// Our values alone, with a bound of their own.
    pub(crate) fn alone(&self, bound: Bound) -> Row {
        let (id, title) = (format!("{}-alone", self.id), format!("{}, alone", self.title));
        Row { id, title, limit: Vec::new(), cpu: None, bound: Some(bound), ..self.clone() }
    }

    /// The machine's CPU as a figure with a bound.
    pub(crate) fn cost(&self, most: f64) -> Option<Row> {
        let cpu = self.cpu.clone()?;
        let (id, title) = (format!("{}-cpu", self.id), format!("{}, CPU", self.title));
        let values = [vec![cpu.value], Vec::new()];
        Some(Row::of(&id, &title, &cpu.unit, values, Some(Bound::AtMost(most)), &self.command))
    }

    /// Ours over the limit within each turn.
    pub(crate) fn ratio(&self) -> Option<Spread> {
        let ratios: Vec<f64> =
            self.ours.iter().zip(&self.limit).map(|(ours, limit)| ours / limit).collect();
        Spread::of(&ratios)
    }

    /// Whether it says nothing, because the machine was too busy.
    pub(crate) fn is_void(&self) -> bool {
        self.idle.is_some_and(|idle| idle < IDLE_LEAST)
    }

    /// Whether the bound is reached; `None` without one, or if the row is void.
    pub(crate) fn is_reached(&self) -> Option<bool> {
        if self.is_void() {
            return None;
        }
        let ours = Spread::of(&self.ours)?.median;
        Some(match self.bound? {
            Bound::Ratio(least) => self.ratio()?.median >= least,
            Bound::RatioAtMost(most) => self.ratio()?.median <= most,
            Bound::AtMost(most) => ours <= most,
            Bound::AtLeast(least) => ours >= least,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn row(ours: &[f64], limit: &[f64], bound: Option<Bound>) -> Row {
        Row {
            id: "mdtest-own/create".to_owned(),
            title: "create".to_owned(),
            unit: "files/s".to_owned(),
            ours: ours.to_vec(),
            limit: limit.to_vec(),
            cpu: None,
            idle: None,
            bound,
            command: "nacre bench mdtest".to_owned(),
        }
    }

    pub(crate) fn result(part: &str, rows: Vec<Row>) -> PartResult {
        let machine = Machine::look().expect("it is there");
        PartResult { part: part.to_owned(), seconds: 1.0, machine, rows }
    }

    #[test]
    fn a_ratio_is_taken_within_each_turn() {
        let row = row(&[1.0, 4.0, 3.0], &[2.0, 2.0, 4.0], Some(Bound::Ratio(0.7)));
        let ratio = row.ratio().expect("three turns");
        assert_eq!((ratio.median, ratio.min, ratio.max), (0.75, 0.5, 2.0));
        assert_eq!(row.is_reached(), Some(true));
    }

    #[test]
    fn values_and_cpu_have_bounds_of_their_own() {
        let mut row = row(&[5.0], &[10.0], Some(Bound::Ratio(0.1)));
        assert!(row.cost(1.0).is_none());
        row.cpu = Some(Cpu { value: 2.0, unit: "s per 10,000".to_owned() });
        let alone = row.alone(Bound::AtLeast(6.0));
        assert_eq!(
            (alone.id.as_str(), alone.is_reached()),
            ("mdtest-own/create-alone", Some(false))
        );
        let cost = row.cost(2.5).expect("it has CPU");
        assert_eq!((cost.unit.as_str(), cost.is_reached()), ("s per 10,000", Some(true)));
        assert_eq!(row.is_reached(), Some(true));
    }

    #[test]
    fn bounds_hold_in_their_direction() {
        assert_eq!(row(&[5.0], &[], Some(Bound::AtMost(4.0))).is_reached(), Some(false));
        assert_eq!(row(&[5.0], &[], Some(Bound::AtLeast(4.0))).is_reached(), Some(true));
        assert_eq!(row(&[5.0], &[], None).is_reached(), None);
        let slower = |most| row(&[3.0], &[2.0], Some(Bound::RatioAtMost(most))).is_reached();
        assert_eq!((slower(1.5), slower(1.4)), (Some(true), Some(false)));
        assert_eq!(row(&[5.0], &[], Some(Bound::Ratio(1.0))).is_reached(), None);
    }

    #[test]
    fn the_median_of_an_even_count_is_between() {
        assert_eq!(Spread::of(&[4.0, 1.0]).expect("values").median, 2.5);
        assert_eq!(Spread::of(&[]), None);
    }
}

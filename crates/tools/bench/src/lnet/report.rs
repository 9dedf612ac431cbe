//! Medians, ranges and ratios.

use anyhow::Result;
use serde::Serialize;
use wire::CrcMode;

use super::{Case, Sample, Side, Test};
use crate::stats::decimals;

/// All turns of one case, per side.
pub(super) struct Row {
    pub(super) case: Case,
    pub(super) sides: Vec<(Side, Vec<Sample>)>,
}

/// Middle, least and largest.
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let median = (at(values.len() / 2) + at(values.len().saturating_sub(1) / 2)) / 2.0;
        Spread { median, min: at(0), max: at(values.len().saturating_sub(1)) }
    }

    fn scaled(&self, by: f64) -> Spread {
        Spread { median: self.median * by, min: self.min * by, max: self.max * by }
    }
}

impl Case {
    pub(super) fn title(&self) -> String {
        let Case { test, inflight, bytes, crc, .. } = *self;
        let size = if bytes >= 1 << 20 {
            format!("{} MiB", bytes >> 20)
        } else {
            format!("{} KiB", bytes >> 10)
        };
        let crc = if crc == CrcMode::All { "crc" } else { "no crc" };
        match test {
            Test::Ping => format!("ping, {inflight} in flight"),
            Test::Read => format!("read {size}, {crc}, {inflight} in flight"),
            Test::Write => format!("write {size}, {crc}, {inflight} in flight"),
        }
    }
}

impl Row {
    /// Unit of a rate, and its factor.
    fn unit(&self) -> (&'static str, f64) {
        match self.case.test {
            Test::Ping => ("RPC/s", 1.0),
            Test::Read | Test::Write => ("MiB/s", self.case.bytes as f64 / f64::from(1 << 20)),
        }
    }

    /// Rate of side `index` over that of the first side, within each turn.
    fn ratio(&self, index: usize) -> Spread {
        let (own, first) = (&self.sides[index].1, &self.sides[0].1);
        Spread::of(own.iter().zip(first).map(|(own, first)| own.rate / first.rate))
    }
}

/// One case as text.
pub(super) fn print(row: &Row) {
    let (unit, factor) = row.unit();
    println!("{}", row.case.title());
    for (index, (side, samples)) in row.sides.iter().enumerate() {
        let rate = Spread::of(samples.iter().map(|sample| sample.rate)).scaled(factor);
        let cpu = Spread::of(samples.iter().map(|sample| sample.cpu_us));
        print!(
            "  {:<5}{:>10.0} {unit} ({:.0} .. {:.0})",
            side.name(),
            rate.median,
            rate.min,
            rate.max
        );
        print!("   cpu {:>7.2} us", cpu.median);
        if index > 0 {
            let ratio = row.ratio(index);
            print!(
                "   {:.2} of {} ({:.2} .. {:.2})",
                ratio.median,
                row.sides[0].0.name(),
                ratio.min,
                ratio.max
            );
        }
        println!();
    }
}

/// A case as JSON, its sides in the order of measuring.
#[derive(Serialize)]
struct CaseJson {
    case: String,
    unit: &'static str,
    sides: Vec<SideJson>,
}

#[derive(Serialize)]
struct SideJson {
    side: &'static str,
    rates: Vec<f64>,
    cpu_us: f64,
    ratio: f64,
}

#[derive(Serialize)]
struct Cases {
    cases: Vec<CaseJson>,
}

/// All cases as JSON.
pub(super) fn json(rows: &[Row]) -> Result<String> {
    let cases = rows.iter().map(case).collect();
    Ok(serde_json::to_string(&Cases { cases })?)
}

fn case(row: &Row) -> CaseJson {
    let (unit, factor) = row.unit();
    let side = |(index, (side, samples)): (usize, &(Side, Vec<Sample>))| SideJson {
        side: side.name(),
        rates: samples.iter().map(|sample| decimals(sample.rate * factor, 1)).collect(),
        cpu_us: decimals(Spread::of(samples.iter().map(|sample| sample.cpu_us)).median, 3),
        ratio: decimals(row.ratio(index).median, 3),
    };
    let sides = row.sides.iter().enumerate().map(side).collect();
    CaseJson { case: row.case.title(), unit, sides }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_tells_middle_and_ends() {
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0].into_iter()).median, 2.5);
    }
}

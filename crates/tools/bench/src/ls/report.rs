//! The table of all measurements, the cost of a stripe, and JSON.

use anyhow::Result;
use serde::Serialize;

use super::servers;
use super::{LsArgs, Sample};
use crate::stats::decimals;

/// The report as JSON.
#[derive(Serialize)]
struct Report<'a> {
    setting: &'a str,
    samples: &'a [Sample],
    slopes: Vec<Slope>,
}

/// What one more stripe costs a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Slope {
    state: String,
    through: String,
    way: String,
    us_per_stripe: f64,
}

pub(super) fn setting(args: &LsArgs) -> String {
    format!(
        "servers: {} processes in memory on loopback, {} OSTs each; {} us from node to node, one way\n\
         clients: native library, all in one process, or a mount; each measurement has a new one",
        servers::processes(args),
        args.osts_per_server,
        args.delay_us
    )
}

pub(super) fn print(args: &LsArgs, setting: &str, samples: &[Sample]) -> Result<()> {
    let slopes = slopes(samples);
    if args.json {
        let samples: Vec<Sample> = samples.iter().map(rounded).collect();
        let report = Report { setting, samples: &samples, slopes };
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    for group in groups(samples) {
        table(&group, args.open);
    }
    println!("\nwhat one more stripe adds to a file");
    for Slope { state, through, way, us_per_stripe } in &slopes {
        println!("  {state:<8} {through:<12} {way:<18} {us_per_stripe:>10.3} us");
    }
    Ok(())
}

/// Samples by state and by what has listed, as they were measured.
fn groups(samples: &[Sample]) -> Vec<Vec<&Sample>> {
    let mut groups: Vec<Vec<&Sample>> = Vec::new();
    for sample in samples {
        let is_its = |group: &&mut Vec<&Sample>| {
            group.iter().any(|one| one.state == sample.state && one.through == sample.through)
        };
        match groups.iter_mut().find(is_its) {
            Some(group) => group.push(sample),
            None => groups.push(vec![sample]),
        }
    }
    groups
}

/// Of one group.
fn table(rows: &[&Sample], open: u32) {
    let Some(first) = rows.first() else { return };
    println!("\n{}; {}", of_state(&first.state, open), first.through);
    println!(
        "  {:<18} {:>7} {:>9} {:>12} {:>12}  by operation",
        "way", "stripes", "files", "us a file", "RPCs a file"
    );
    for row in rows {
        let each = row.requests.iter().map(|(name, count)| format!("{name} {count:.4}"));
        println!(
            "  {:<18} {:>7} {:>9} {:>12.2} {:>12.4}  {}",
            row.way,
            row.stripes,
            row.files,
            row.us_per_file,
            row.rpcs_per_file,
            each.collect::<Vec<_>>().join(", ")
        );
    }
}

fn of_state(state: &str, open: u32) -> String {
    match state {
        "open" => format!("open: another client has {open} of 100 files open for writing"),
        _ => "clean: no file is open".to_owned(),
    }
}

fn rounded(sample: &Sample) -> Sample {
    let requests = sample.requests.iter();
    Sample {
        seconds: decimals(sample.seconds, 3),
        us_per_file: decimals(sample.us_per_file, 3),
        rpcs_per_file: decimals(sample.rpcs_per_file, 5),
        requests: requests.map(|(name, count)| (name.clone(), decimals(*count, 5))).collect(),
        ..sample.clone()
    }
}

/// Stripes and time of each measurement.
pub(super) type Points = Vec<(f64, f64)>;

/// The measurements of each way of each group that have one stripe or more, and one of them.
pub(super) fn lines(samples: &[Sample]) -> Vec<(&Sample, Points)> {
    let mut lines: Vec<(&Sample, Points)> = Vec::new();
    for sample in samples.iter().filter(|sample| sample.stripes > 0) {
        let point = (f64::from(sample.stripes), sample.us_per_file);
        match lines.iter_mut().find(|(first, _)| is_one_line(first, sample)) {
            Some((_, points)) => points.push(point),
            None => lines.push((sample, vec![point])),
        }
    }
    lines
}

/// By least squares, of each line that has two stripe counts.
fn slopes(samples: &[Sample]) -> Vec<Slope> {
    let found = lines(samples).into_iter().filter_map(|(first, points)| {
        let us_per_stripe = decimals(slope(&points)?, 4);
        let Sample { state, through, way, .. } = first.clone();
        Some(Slope { state, through, way, us_per_stripe })
    });
    found.collect()
}

fn is_one_line(one: &Sample, other: &Sample) -> bool {
    one.state == other.state && one.through == other.through && one.way == other.way
}

fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let across: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let along: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    (across > 0.0).then(|| along / across)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(through: &str, way: &str, stripes: u32, us_per_file: f64) -> Sample {
        Sample {
            state: "clean".into(),
            through: through.into(),
            way: way.into(),
            stripes,
            files: 10,
            seconds: 1.0,
            us_per_file,
            rpcs_per_file: 1.0,
            requests: Vec::new(),
        }
    }

    #[test]
    fn a_slope_is_what_one_more_stripe_adds() {
        let samples = [
            sample("library", "old", 0, 999.0),
            sample("library", "old", 1, 12.0),
            sample("library", "old", 2, 14.0),
            sample("library", "old", 4, 18.0),
            sample("library", "new", 1, 5.0),
            sample("ls -lU", "old", 1, 20.0),
            sample("library", "new", 4, 5.0),
            sample("library", "once", 4, 5.0),
            sample("ls -lU", "old", 3, 50.0),
        ];
        let slope = |through: &str, way: &str, us_per_stripe| Slope {
            state: "clean".into(),
            through: through.into(),
            way: way.into(),
            us_per_stripe,
        };
        let expected = [
            slope("library", "old", 2.0),
            slope("library", "new", 0.0),
            slope("ls -lU", "old", 15.0),
        ];
        assert_eq!(slopes(&samples), expected);
    }

    #[test]
    fn a_slope_of_points_beside_a_line_is_that_of_least_squares() {
        assert_eq!(slope(&[(1.0, 1.0), (2.0, 4.0), (3.0, 4.0)]), Some(1.5));
        assert_eq!(slope(&[(4.0, 1.0), (4.0, 9.0)]), None, "one count of stripes");
        assert_eq!(slope(&[]), None);
    }

    #[test]
    fn each_state_and_program_has_a_table() {
        let open = Sample { state: "open".into(), ..sample("library", "old", 1, 1.0) };
        let samples = [
            sample("library", "old", 1, 1.0),
            sample("du -s", "old", 1, 2.0),
            open,
            sample("library", "old", 2, 3.0),
        ];
        let us = |group: &Vec<&Sample>| -> Vec<f64> {
            group.iter().map(|sample| sample.us_per_file).collect()
        };
        let found: Vec<Vec<f64>> = groups(&samples).iter().map(us).collect();
        assert_eq!(found, [vec![1.0, 3.0], vec![2.0], vec![1.0]]);
    }
}

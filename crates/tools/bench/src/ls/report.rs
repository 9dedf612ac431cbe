//! The table of all measurements, what a stripe costs, and JSON.

use anyhow::Result;
use serde::Serialize;

use super::servers::Servers;
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
    way: String,
    us_per_stripe: f64,
}

pub(super) fn setting(args: &LsArgs, servers: &Servers) -> String {
    format!(
        "servers: {} processes in memory on loopback, {} OSTs each; {} us from node to node, one way\n\
         clients: native library, all in one process; each measurement begins without anything cached",
        servers.count(),
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
    for state in &args.states {
        let rows: Vec<&Sample> = samples.iter().filter(|sample| sample.state == *state).collect();
        println!("\n{}", of_state(state, args.open));
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
    println!("\nwhat one more stripe adds to a file");
    for slope in &slopes {
        println!("  {:<8} {:<18} {:>10.3} us", slope.state, slope.way, slope.us_per_stripe);
    }
    Ok(())
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

/// By least squares, of each way of each state that has two stripe counts above zero.
fn slopes(samples: &[Sample]) -> Vec<Slope> {
    let mut found: Vec<Slope> = Vec::new();
    for sample in samples {
        let is_known = |slope: &Slope| slope.state == sample.state && slope.way == sample.way;
        if found.iter().any(is_known) {
            continue;
        }
        let of_way = samples.iter().filter(|other| {
            other.state == sample.state && other.way == sample.way && other.stripes > 0
        });
        let points: Vec<(f64, f64)> =
            of_way.map(|sample| (f64::from(sample.stripes), sample.us_per_file)).collect();
        if let Some(us_per_stripe) = slope(&points) {
            let (state, way) = (sample.state.clone(), sample.way.clone());
            found.push(Slope { state, way, us_per_stripe: decimals(us_per_stripe, 4) });
        }
    }
    found
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

    fn sample(way: &str, stripes: u32, us_per_file: f64) -> Sample {
        Sample {
            state: "clean".into(),
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
            sample("old", 0, 999.0),
            sample("old", 1, 12.0),
            sample("old", 2, 14.0),
            sample("old", 4, 18.0),
            sample("new", 1, 5.0),
            sample("new", 4, 5.0),
            sample("once", 4, 5.0),
        ];
        let slope = |way: &str, us_per_stripe| Slope {
            state: "clean".into(),
            way: way.into(),
            us_per_stripe,
        };
        assert_eq!(slopes(&samples), [slope("old", 2.0), slope("new", 0.0)]);
    }
}

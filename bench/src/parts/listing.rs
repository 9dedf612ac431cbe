//! Attributes of all files of a directory, against the stripe count of the files.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::bed::{Bed, nacre};
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// Output of `nacre bench ls --json`.
#[derive(Deserialize)]
struct Output {
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    state: String,
    way: String,
    stripes: u32,
    us_per_file: f64,
    rpcs_per_file: f64,
}

/// Stripes at which ways are compared, and the most that are measured.
const COMPARED: u32 = 32;
const WIDEST: u32 = 64;

/// Ways that `nacre` is compared with, and how much faster it has to be.
const OLDER: &[(&str, f64)] =
    &[("2x-sync", 1_000.0), ("1x-parallel", 50.0), ("statahead+agl 32", 20.0)];

pub(crate) fn stripes(_bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let seconds = (2 * scale.seconds).to_string();
    let files = if scale.is_quick() { "50000" } else { "400000" };
    let options = ["--files", files, "--seconds", &seconds];
    let args = [&["bench", "ls", "--json"][..], &options].concat();
    let output: Output = nacre(&args)?;
    rows(&output.samples, &format!("nacre bench ls {}", options.join(" ")))
}

fn rows(samples: &[Sample], command: &str) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = samples.iter().map(|sample| alone(sample, command)).collect();
    let find = |state: &str, way: &str, stripes: u32| {
        let is_it = |one: &&Sample| one.state == state && one.way == way && one.stripes == stripes;
        samples.iter().find(is_it).with_context(|| format!("{state}, {way}, {stripes} stripes"))
    };
    let row = |case: &str, unit: &str, ours: f64, limit: Option<f64>, bound: Bound| Row {
        id: format!("listing/{case}"),
        title: case.to_owned(),
        unit: unit.to_owned(),
        ours: vec![ours],
        limit: limit.into_iter().collect(),
        cpu: None,
        bound: Some(bound),
        command: command.to_owned(),
    };
    let clean = find("clean", "nacre", COMPARED)?;
    for (way, times) in OLDER {
        let older = find("clean", way, COMPARED)?;
        let rates = [clean, older].map(|sample| 1e6 / sample.us_per_file);
        let case = format!("clean, {COMPARED} stripes, of {way}");
        rows.push(row(&case, "files/s", rates[0], Some(rates[1]), Bound::Ratio(*times)));
    }
    for (state, wide, most, rpcs) in
        [("clean", WIDEST, 1.05, 0.001_2), ("open", COMPARED, 1.2, 0.003)]
    {
        let [one, many] = [find(state, "nacre", 1)?, find(state, "nacre", wide)?];
        let (ours, limit) = (many.us_per_file, Some(one.us_per_file));
        let case = format!("{state}, {wide} stripes, of one");
        rows.push(row(&case, "us a file", ours, limit, Bound::RatioAtMost(most)));
        let case = format!("{state}, requests a file");
        let sent = find(state, "nacre", COMPARED)?.rpcs_per_file;
        rows.push(row(&case, "RPCs", sent, None, Bound::AtMost(rpcs)));
    }
    Ok(rows)
}

fn alone(sample: &Sample, command: &str) -> Row {
    let Sample { state, way, stripes, us_per_file, .. } = sample;
    let case = format!("{state}, {way}, {stripes} stripes");
    Row {
        id: format!("listing/{case}"),
        title: case,
        unit: "us a file".to_owned(),
        ours: vec![*us_per_file],
        limit: Vec::new(),
        cpu: None,
        bound: None,
        command: command.to_owned(),
    }
}

/// State, way, and time by stripes of each line of the plot.
pub(crate) fn lines(rows: &[&Row]) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in rows {
        let parts: Vec<&str> = row.title.split(", ").collect();
        let [state, way, stripes] = parts[..] else { continue };
        let stripes = stripes.strip_suffix(" stripes").and_then(|count| count.parse().ok());
        let (Some(stripes), Some(us)) = (stripes, row.ours.first()) else { continue };
        let name = format!("{state}: {way}");
        match lines.iter_mut().find(|line| line.0 == name) {
            Some(line) => line.1.push((stripes, *us)),
            None => lines.push((name, vec![(stripes, *us)])),
        }
    }
    lines
}

#[cfg(test)]
mod tests_of_rows {
    use super::*;

    fn sample(state: &str, way: &str, stripes: u32, us_per_file: f64) -> Sample {
        Sample { state: state.into(), way: way.into(), stripes, us_per_file, rpcs_per_file: 0.001 }
    }

    #[test]
    fn ways_are_compared_and_drawn() {
        let mut samples = Vec::new();
        for stripes in [1, COMPARED, WIDEST] {
            samples.push(sample("clean", "nacre", stripes, 5.0));
            samples.push(sample("open", "nacre", stripes, 8.0));
            samples.extend(OLDER.iter().map(|(way, _)| sample("clean", way, stripes, 200.0)));
        }
        let rows = rows(&samples, "nacre bench ls").expect("all are there");
        let ratio = rows.iter().find(|row| row.title == "clean, 32 stripes, of 1x-parallel");
        let ratio = ratio.expect("compared");
        assert_eq!(
            (ratio.ratio().map(|ratio| ratio.median), ratio.is_reached()),
            (Some(40.0), Some(false))
        );
        let reached = rows.iter().filter(|row| row.is_reached() == Some(true)).count();
        assert_eq!(reached, 5, "the last older way, and four of nacre alone");
        let lines = lines(&rows.iter().collect::<Vec<_>>());
        assert_eq!(lines.len(), 5);
        assert_eq!(
            lines[0],
            ("clean: nacre".to_owned(), vec![(1.0, 5.0), (32.0, 5.0), (64.0, 5.0)])
        );
    }
}

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
    slopes: Vec<Slope>,
}

#[derive(Deserialize)]
struct Sample {
    state: String,
    through: String,
    way: String,
    stripes: u32,
    us_per_file: f64,
    rpcs_per_file: f64,
    /// By operation.
    requests: Vec<(String, f64)>,
}

/// What one more stripe adds to a file.
#[derive(Deserialize)]
struct Slope {
    state: String,
    through: String,
    way: String,
    us_per_stripe: f64,
}

/// What lists without a mount.
const LIBRARY: &str = "library";

/// What lists on a mount: name of the plot's file, and as `nacre bench ls` shows it.
pub(crate) const PROGRAMS: [(&str, &str); 3] =
    [("listing-ls", "ls -lU"), ("listing-find", "find -size"), ("listing-du", "du -s")];

/// Stripes at which ways are compared, and the most that are measured.
const COMPARED: u32 = 32;
const WIDEST: u32 = 64;

/// Stripes of the library's files, and seconds of each older way there and on a mount. There are
/// four such ways with two states each, and three programs.
const STRIPES: &str = "0,1,8,32,64,160";
const SECONDS_MAX: u32 = 2;
const MOUNT_SECONDS_MAX: u32 = 1;

/// Windows of statahead beside 2011's 32, and the objects and seconds of each way then.
const WINDOWS: &str = "8,16,64,128";
const WINDOW_OBJECTS: &str = "32000";

/// Ways that `nacre` is compared with, and how much faster it has to be.
const OLDER: &[(&str, f64)] =
    &[("2x-sync", 1_000.0), ("1x-parallel", 50.0), ("statahead+agl 32", 20.0)];

/// The native library at many stripe counts, and programs on mounts at some.
pub(crate) fn stripes(_bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let files = if scale.is_quick() { "50000" } else { "400000" };
    let seconds = scale.seconds.min(SECONDS_MAX).to_string();
    let library = ["--through", LIBRARY, "--stripes", STRIPES, "--files", files];
    let (output, command) = listed(&[&library[..], &["--seconds", &seconds]].concat())?;
    let mut rows = rows(&output, &command)?;
    let seconds = scale.seconds.min(MOUNT_SECONDS_MAX).to_string();
    let stripes = ["--stripes", "1,32,64", "--files", "50000", "--seconds", &seconds];
    let (output, command) = listed(&[&["--through", "ls,find,du"][..], &stripes].concat())?;
    rows.extend(output.samples.iter().map(|sample| alone(sample, &command)));
    rows.extend(output.slopes.iter().map(|slope| of_slope(slope, &command)));
    rows.extend(by_window(scale)?);
    Ok(rows)
}

/// The older ways with statahead, with other windows. Their rows are without a bound.
fn by_window(scale: Scale) -> Result<Vec<Row>> {
    let seconds = scale.seconds.min(SECONDS_MAX).to_string();
    let stripes = COMPARED.to_string();
    let ways = ["--ways", "statahead,statahead+agl", "--windows", WINDOWS];
    let files = ["--states", "clean", "--stripes", &stripes, "--objects", WINDOW_OBJECTS];
    let library = ["--through", LIBRARY, "--seconds", &seconds];
    let (output, command) = listed(&[&ways[..], &files, &library].concat())?;
    Ok(output.samples.iter().map(|sample| of_window(sample, &command)).collect())
}

/// Its title has a word more than others, so that it is no point of a line in a plot.
fn of_window(sample: &Sample, command: &str) -> Row {
    let Sample { state, way, stripes, us_per_file, .. } = sample;
    let case = format!("{state}, {way}, by window, {stripes} stripes");
    plain(&case, "us a file", *us_per_file, command)
}

fn listed(options: &[&str]) -> Result<(Output, String)> {
    let output = nacre(&[&["bench", "ls", "--json"][..], options].concat())?;
    Ok((output, format!("nacre bench ls {}", options.join(" "))))
}

fn rows(output: &Output, command: &str) -> Result<Vec<Row>> {
    let samples = &output.samples;
    let mut rows: Vec<Row> = samples.iter().map(|sample| alone(sample, command)).collect();
    rows.extend(output.slopes.iter().map(|slope| of_slope(slope, command)));
    let compared = samples.iter().filter(|sample| sample.stripes == COMPARED);
    rows.extend(compared.flat_map(|sample| by_operation(sample, command)));
    let find = |state: &str, way: &str, stripes: u32| {
        let is_it = |one: &&Sample| one.state == state && one.way == way && one.stripes == stripes;
        samples.iter().find(is_it).with_context(|| format!("{state}, {way}, {stripes} stripes"))
    };
    let row = |case: &str, unit: &str, ours: f64, limit: Option<f64>, bound: Bound| {
        let values = [vec![ours], limit.into_iter().collect()];
        Row::of(&format!("listing/{case}"), case, unit, values, Some(bound), command)
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
    let Sample { stripes, us_per_file, .. } = sample;
    let case = format!("{}, {stripes} stripes", name(&sample.state, &sample.way, &sample.through));
    plain(&case, "us a file", *us_per_file, command)
}

fn of_slope(slope: &Slope, command: &str) -> Row {
    let case = format!("{}, one more stripe", name(&slope.state, &slope.way, &slope.through));
    plain(&case, "us a file", slope.us_per_stripe, command)
}

/// RPCs of a file, each operation in a row of its own.
fn by_operation(sample: &Sample, command: &str) -> Vec<Row> {
    let Sample { state, through, way, stripes, requests, .. } = sample;
    let row = |(operation, count): &(String, f64)| {
        let case = format!("{}, {operation} at {stripes} stripes", name(state, way, through));
        plain(&case, "RPCs a file", *count, command)
    };
    requests.iter().map(row).collect()
}

/// Of what was measured; that the library lists is not said.
fn name(state: &str, way: &str, through: &str) -> String {
    match through {
        LIBRARY => format!("{state}, {way}"),
        program => format!("{state}, {way}, {program}"),
    }
}

fn plain(case: &str, unit: &str, value: f64, command: &str) -> Row {
    let values = [vec![value], Vec::new()];
    Row::of(&format!("listing/{case}"), case, unit, values, None, command)
}

/// State, way, and time by stripes of each line of a plot: of the library, or of a program.
pub(crate) fn lines(rows: &[&Row], program: Option<&str>) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in rows {
        let parts: Vec<&str> = row.title.split(", ").collect();
        let (state, way, stripes) = match (&parts[..], program) {
            ([state, way, stripes], None) => (state, way, stripes),
            ([state, way, it, stripes], Some(program)) if *it == program => (state, way, stripes),
            _ => continue,
        };
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
        Sample {
            state: state.into(),
            through: LIBRARY.into(),
            way: way.into(),
            stripes,
            us_per_file,
            rpcs_per_file: 0.001,
            requests: vec![("mds_readpage".into(), 0.001)],
        }
    }

    fn slope(way: &str, us_per_stripe: f64) -> Slope {
        let (state, through) = ("clean".into(), LIBRARY.into());
        Slope { state, through, way: way.into(), us_per_stripe }
    }

    fn output() -> Output {
        let mut samples = Vec::new();
        for stripes in [1, COMPARED, WIDEST] {
            samples.push(sample("clean", "nacre", stripes, 5.0));
            samples.push(sample("open", "nacre", stripes, 8.0));
            samples.extend(OLDER.iter().map(|(way, _)| sample("clean", way, stripes, 200.0)));
        }
        Output { samples, slopes: vec![slope("nacre", 0.01)] }
    }

    #[test]
    fn ways_are_compared_and_drawn() {
        let rows = rows(&output(), "nacre bench ls").expect("all are there");
        let ratio = rows.iter().find(|row| row.title == "clean, 32 stripes, of 1x-parallel");
        let ratio = ratio.expect("compared");
        assert_eq!(
            (ratio.ratio().map(|ratio| ratio.median), ratio.is_reached()),
            (Some(40.0), Some(false))
        );
        let reached = rows.iter().filter(|row| row.is_reached() == Some(true)).count();
        assert_eq!(reached, 5, "the last older way, and four of nacre alone");
        let lines = lines(&rows.iter().collect::<Vec<_>>(), None);
        assert_eq!(lines.len(), 5);
        assert_eq!(
            lines[0],
            ("clean: nacre".to_owned(), vec![(1.0, 5.0), (32.0, 5.0), (64.0, 5.0)])
        );
    }

    #[test]
    fn slopes_and_operations_have_rows() {
        let rows = rows(&output(), "nacre bench ls").expect("all are there");
        let value = |id: &str| rows.iter().find(|row| row.id == id).map(|row| row.ours.clone());
        assert_eq!(value("listing/clean, nacre, one more stripe"), Some(vec![0.01]));
        let each = "listing/open, nacre, mds_readpage at 32 stripes";
        assert_eq!(value(each), Some(vec![0.001]));
        let ids: std::collections::BTreeSet<&str> =
            rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len(), "each has an id of its own");
    }

    #[test]
    fn each_program_has_lines_of_its_own() {
        let of = |through: &str| Sample {
            through: through.into(),
            ..sample("clean", "statahead 32", 8, 70.0)
        };
        let rows = [LIBRARY, "ls -lU", "du -s"].map(|through| alone(&of(through), "nacre"));
        assert_eq!(rows[1].id, "listing/clean, statahead 32, ls -lU, 8 stripes");
        let rows: Vec<&Row> = rows.iter().collect();
        for program in [None, Some("ls -lU"), Some("du -s")] {
            let expected = ("clean: statahead 32".to_owned(), vec![(8.0, 70.0)]);
            assert_eq!(lines(&rows, program), [expected]);
        }
        assert!(lines(&rows, Some("find -size")).is_empty());
    }

    #[test]
    fn other_windows_have_rows_and_no_lines() {
        let row = of_window(&sample("clean", "statahead 8", COMPARED, 70.0), "nacre");
        assert_eq!(row.id, "listing/clean, statahead 8, by window, 32 stripes");
        assert!(lines(&[&row], None).is_empty() && lines(&[&row], Some("ls -lU")).is_empty());
    }
}

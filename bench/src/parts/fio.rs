//! Random 4 KiB I/O by four jobs with O_DIRECT, compared with ext4. It uses fio where fio is
//! installed, otherwise our own driver with the same pattern.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::data;
use super::metadata::text;
use crate::bed::Bed;
use crate::machine::output;
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// Turns of each pattern.
const TURNS_MAX: u32 = 5;
const BOUNDS: [(&str, f64); 2] = [("randread", 0.50), ("randwrite", 0.45)];

pub(crate) fn random(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let is_there = Command::new("fio").arg("--version").output().is_ok_and(|o| o.status.success());
    if is_there {
        return by_fio(bed, scale);
    }
    eprintln!("fio is not installed: nacre bench ior does the same pattern");
    by_own(bed, scale)
}

/// Our own driver. It writes into fresh files, and fio over blocks that are there.
pub(super) fn by_own(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let seconds = scale.seconds.to_string();
    let options =
        ["-N", "4", "-F", "-t", "4k", "-b", "128m", "-z", "-B", "-D", &seconds, "--drop-caches"];
    data::ior(bed, scale, "random", &options, [0.45, 0.50])
}

pub(super) fn by_fio(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let sides = [bed.ours().join("fio"), bed.limit().join("fio")];
    for dir in &sides {
        std::fs::create_dir_all(dir)?;
        fio(dir, "write", "1m", &[])?;
    }
    let runtime = format!("--runtime={}", scale.seconds);
    let mut rows = Vec::new();
    for (pattern, bound) in BOUNDS {
        let mut values = [Vec::new(), Vec::new()];
        for _ in 0..scale.pairs.min(TURNS_MAX) {
            for (dir, values) in sides.iter().zip(&mut values) {
                values.push(fio(dir, pattern, "4k", &["--direct=1", "--time_based", &runtime])?);
            }
        }
        let [ours, limit] = values;
        rows.push(Row {
            id: format!("random/{pattern}"),
            title: pattern.to_owned(),
            unit: "IOPS".to_owned(),
            ours,
            limit,
            cpu: None,
            idle: None,
            bound: Some(Bound::Ratio(bound)),
            command: format!(
                "fio --rw={pattern} --bs=4k --size=128m --numjobs=4 --direct=1 --ioengine=psync {runtime} --time_based"
            ),
        });
    }
    for dir in sides {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(rows)
}

/// Operations per second of all four jobs.
fn fio(dir: &Path, pattern: &str, block: &str, more: &[&str]) -> Result<f64> {
    let dir = format!("--directory={}", text(dir)?);
    let (rw, bs) = (format!("--rw={pattern}"), format!("--bs={block}"));
    let mut args = vec!["--name=job", &dir, &rw, &bs, "--size=128m", "--numjobs=4"];
    args.extend(["--ioengine=psync", "--group_reporting", "--output-format=json"]);
    args.extend(more);
    iops(&serde_json::from_str(&output("fio", &args)?)?, pattern)
}

fn iops(report: &Value, pattern: &str) -> Result<f64> {
    let direction = if pattern.ends_with("read") { "read" } else { "write" };
    report["jobs"][0][direction]["iops"].as_f64().context("fio reports iops")
}

#[cfg(test)]
mod tests_of_fio {
    use super::*;

    #[test]
    fn the_direction_of_the_pattern_counts() {
        let report = serde_json::json!({"jobs": [{"read": {"iops": 5.0}, "write": {"iops": 7.0}}]});
        assert_eq!(iops(&report, "randread").expect("there"), 5.0);
        assert_eq!(iops(&report, "randwrite").expect("there"), 7.0);
        assert!(iops(&Value::Null, "randread").is_err());
    }
}

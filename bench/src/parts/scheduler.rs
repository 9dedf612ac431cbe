//! Scheduling policies alone, without a server: pairs per second, and a queue of 10,000,000
//! requests.

use anyhow::Result;

use super::figures;
use crate::bed::Bed;
use crate::row::{Bound, Row};
use crate::scale::Scale;

pub(crate) fn speed(_bed: &Bed, _scale: Scale) -> Result<Vec<Row>> {
    let example = ["run", "--quiet", "--release", "-p", "nrs", "--example", "speed", "--"];
    let mut rows = figures::of_cargo(&[&example[..], &["table"]].concat(), bound)?;
    rows.extend(figures::of_cargo(&[&example[..], &["deep", "crrn", "4"]].concat(), bound)?);
    Ok(rows)
}

fn bound(id: &str) -> Option<Bound> {
    match id {
        "scheduler/deep-pair" => Some(Bound::AtMost(100.0)),
        "scheduler/deep-worst-insertion" | "scheduler/deep-worst-pair" => Some(Bound::AtMost(20.0)),
        "scheduler/deep-bytes" => Some(Bound::AtMost(64.0)),
        id if id.starts_with("scheduler/pairs-") => Some(Bound::AtLeast(2.0)),
        _ => None,
    }
}

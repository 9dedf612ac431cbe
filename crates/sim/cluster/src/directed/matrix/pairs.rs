//! Every pair of points: an MDT dies at one, and during the recovery an MDT dies at another.
//!
//! A row names a case, what the caller does, which call begins first, and for each death the MDT
//! and the kind of its point. The first point rises from 1 until the operation is over before it.
//! For each first point the second one rises from 1 until the recovery is over before it.

use super::{CASES, Case, Death, KINDS, Kind, POINTS_MAX};
use crate::directed::Stage;

/// The caller lives or dies, and calls first or second.
const WAYS: u64 = 4;
/// No recovery has so many points of one kind on one MDT.
const AGAIN_POINTS_MAX: u64 = 1_000;

/// Where an MDT dies, apart from the count.
type Place = (u32, Kind);

struct Row {
    case: &'static Case,
    caller_dies: bool,
    is_rival_first: bool,
    first: Place,
    again: Place,
}

/// Number of rows: as many seeds of the scenario `pairs`, from 0 on, try every pair.
#[must_use]
pub fn pair_rows() -> u64 {
    CASES.iter().map(rows_of).sum()
}

fn places_of(case: &Case) -> u64 {
    (case.mdts.len() * KINDS.len()) as u64
}

fn rows_of(case: &Case) -> u64 {
    WAYS * places_of(case).pow(2)
}

impl Row {
    fn of(row: u64) -> Option<Row> {
        let mut left = row;
        for case in CASES {
            let rows = rows_of(case);
            if left < rows {
                return Some(Row::of_case(case, left));
            }
            left -= rows;
        }
        None
    }

    fn of_case(case: &'static Case, index: u64) -> Row {
        let places = places_of(case);
        let place = |index: u64| {
            let index = (index % places) as usize;
            (case.mdts[index / KINDS.len()], KINDS[index % KINDS.len()])
        };
        let way = index / places.pow(2);
        Row {
            case,
            caller_dies: way & 1 != 0,
            is_rival_first: way & 2 != 0,
            first: place(index),
            again: place(index / places),
        }
    }

    fn death(&self, first: u64, again: u64) -> Death {
        Death {
            mdt: self.first.0,
            point: (self.first.1)(first),
            again: Some((self.again.0, (self.again.1)(again))),
            is_rival_first: self.is_rival_first,
        }
    }
}

impl Stage<'_> {
    pub(in crate::directed) fn pairs(&mut self, row: u64) -> Result<(), String> {
        let Some(row) = Row::of(row) else {
            return Err(format!("there are {} rows, from 0 on", pair_rows()));
        };
        let mut cast = self.cast();
        for first in 1..=POINTS_MAX {
            let mut again = 1;
            loop {
                let death = row.death(first, again);
                match self.cell(&mut cast, (row.case, row.caller_dies), death)? {
                    0 if again == 1 => return Ok(()),
                    0 | 1 => break,
                    _ => again += 1,
                }
                if again > AGAIN_POINTS_MAX {
                    return Err(format!("{}: {death:?} and no end", row.case.name));
                }
            }
        }
        Err(format!("{}: {:?} and no end", row.case.name, row.death(POINTS_MAX, 1)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_name_each_pair_of_places_once() {
        let rows: BTreeSet<String> = (0..pair_rows())
            .map(|row| Row::of(row).expect("each row has a case"))
            .map(|row| {
                let is_rival_first = row.is_rival_first;
                format!(
                    "{} {} {is_rival_first} {:?}",
                    row.case.name,
                    row.caller_dies,
                    row.death(1, 1)
                )
            })
            .collect();
        assert_eq!(rows.len() as u64, pair_rows());
        assert!(Row::of(pair_rows()).is_none());
    }
}

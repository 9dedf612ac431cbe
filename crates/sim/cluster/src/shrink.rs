//! Shrinks a failing seed's schedule: its faults, then its operations, then its faults again.

use crate::schedule::Schedule;

/// Runs of one pass at most; the caller's `fails` may end it sooner by saying no.
const TRIES_MAX: usize = 10_000;

/// The smallest part of `whole` that was found for which `fails` still holds.
pub fn shrink(whole: &Schedule, mut fails: impl FnMut(&Schedule) -> bool) -> Schedule {
    let mut best = whole.clone();
    loop {
        let before = best.sizes();
        let faults: Vec<u32> = best.faults.0.iter().copied().collect();
        let faults = oracle::shrink(&faults, TRIES_MAX, |faults| fails(&best.with_faults(faults)));
        best = best.with_faults(&faults);
        let ops = oracle::shrink(&best.op_list(), TRIES_MAX, |ops| fails(&best.with_ops(ops)));
        best = best.with_ops(&ops);
        if best.sizes() == before {
            return best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_failure_needs_is_left() {
        let whole = Schedule {
            ops: "0:0-99;1:0-99;2:0-9".parse().expect("good"),
            faults: "0-40".parse().expect("good"),
        };
        let needs = Schedule {
            ops: "0:17;1:3,80".parse().expect("good"),
            faults: "5,31".parse().expect("good"),
        };
        let small = shrink(&whole, |part| {
            let ops = part.op_list();
            needs.op_list().iter().all(|op| ops.contains(op))
                && needs.faults.0.is_subset(&part.faults.0)
        });
        assert_eq!(small, needs);
    }
}

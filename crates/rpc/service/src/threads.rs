//! How many requests of a service are handled at once. Lustre's threads are worker slots here. An
//! empty slot costs nothing, but the number of slots is the queue depth to the disk.
//!
//! Invariants
//! - A partition has at least two slots, or three if it has a high-priority head. One stays free
//!   for other requests.
//! - A partition never has more slots than its limit. It gets one more only when its slots are
//!   busy.

use crate::ServiceSpec;

/// Why a number of threads was refused; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ThreadsError {
    /// Not a number.
    Invalid(String),
    /// Too few, too many, or the wrong way round.
    Range(String),
}

/// Bounds of a service's slots, per partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threads {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

/// Fewest slots of a partition that a user may ask for.
const LEAST: u32 = 2;

/// How often a user's number may exceed the service's own maximum (Lustre).
const OVER_MAX: u32 = 8;

impl Threads {
    /// As the service has them when nobody asked: `partitions` of them, with `cpus` CPUs each, of
    /// which `per_core` share a core; `cpus_all` in the machine.
    pub(crate) fn of(
        spec: &ServiceSpec,
        partitions: u32,
        cpus: u32,
        cpus_all: u32,
        per_core: u32,
    ) -> Threads {
        let min = spec.init.max(least(spec));
        let limit = if spec.base == 0 {
            spec.max / partitions
        } else {
            limit(spec, partitions, cpus, cpus_all, per_core)
        };
        Threads { min, max: limit.max(min) }
    }

    /// As many as `partitions` of them have together.
    pub(crate) fn times(self, partitions: u32) -> Threads {
        Threads { min: self.min * partitions, max: self.max * partitions }
    }

    /// With `total` as the user's `threads_max`.
    pub(crate) fn with_max(
        self,
        spec: &ServiceSpec,
        partitions: u32,
        total: &str,
    ) -> Result<Threads, ThreadsError> {
        let max = per_partition(spec, partitions, total)?;
        if max < self.min {
            return Err(ThreadsError::Range(format!(
                "threads_max {total} is below threads_min {}",
                self.min * partitions
            )));
        }
        Ok(Threads { max, ..self })
    }

    /// With `total` as the user's `threads_min`.
    pub(crate) fn with_min(
        self,
        spec: &ServiceSpec,
        partitions: u32,
        total: &str,
    ) -> Result<Threads, ThreadsError> {
        let min = per_partition(spec, partitions, total)?;
        if min > self.max {
            return Err(ThreadsError::Range(format!(
                "threads_min {total} is above threads_max {}",
                self.max * partitions
            )));
        }
        Ok(Threads { min, ..self })
    }
}

fn least(spec: &ServiceSpec) -> u32 {
    LEAST + u32::from(spec.has_hp)
}

fn per_partition(spec: &ServiceSpec, partitions: u32, total: &str) -> Result<u32, ThreadsError> {
    let total = total.trim();
    let number: u32 = total
        .parse()
        .map_err(|_| ThreadsError::Invalid(format!("'{total}' is not a number of threads")))?;
    let (each, most) = (number / partitions, OVER_MAX * spec.max);
    if each < least(spec) || number > most {
        let fewest = least(spec) * partitions;
        return Err(ThreadsError::Range(format!(
            "{number} threads: {} has from {fewest} to {most}",
            spec.name
        )));
    }
    Ok(each)
}

fn limit(spec: &ServiceSpec, partitions: u32, cpus: u32, cpus_all: u32, per_core: u32) -> u32 {
    let mut n = spec.base;
    if partitions == 1 {
        let (mut more, mut reach) = (spec.base, 4);
        while reach <= cpus_all && more > 0 {
            (more, reach) = (more / 2, reach * 2);
            n += more;
        }
    }
    let mut factor =
        if per_core > 1 { spec.factor - spec.factor / 2 + spec.factor / 8 } else { spec.factor };
    let mut left = cpus;
    while factor > 0 && left > 0 {
        n += left.min(4) * factor;
        (factor, left) = (factor - 1, left.saturating_sub(4));
    }
    if n * partitions > spec.max { spec.base.max(spec.max / partitions) } else { n }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{MDT, MGS, OST_CREATE, OST_IO};

    #[test]
    fn limits_follow_the_examples_of_lustres_manual() {
        let check = |spec, partitions: u32, each| {
            assert_eq!(
                Threads::of(spec, partitions, 24 / partitions, 24, 2).max,
                each,
                "{} over {partitions}",
                spec.name
            );
        };
        check(&MDT, 1, 180);
        check(&MDT, 4, 92);
        check(&MDT, 12, 74);
        check(&OST_IO, 4, 92);
        check(&OST_IO, 12, 64);
        check(&MGS, 1, 32);
        assert_eq!(Threads::of(&OST_CREATE, 1, 2, 2, 1), Threads { min: 2, max: 10 });
    }

    #[test]
    fn what_a_user_asks_is_a_total_and_divided() {
        let threads = Threads::of(&OST_IO, 4, 6, 24, 2);
        assert_eq!(threads.with_max(&OST_IO, 4, "128"), Ok(Threads { min: 3, max: 32 }));
        assert_eq!(threads.with_max(&OST_IO, 4, "131\n"), Ok(Threads { min: 3, max: 32 }));
        assert_eq!(threads.with_min(&OST_IO, 4, "16"), Ok(Threads { min: 4, max: 92 }));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let threads = Threads::of(&OST_IO, 4, 6, 24, 2);
        for text in ["0", "11", "4097"] {
            assert!(
                matches!(threads.with_max(&OST_IO, 4, text), Err(ThreadsError::Range(_))),
                "{text}"
            );
        }
        assert!(
            matches!(threads.with_min(&OST_IO, 4, "400"), Err(ThreadsError::Range(_))),
            "above threads_max"
        );
        let narrow = threads.with_min(&OST_IO, 4, "80").expect("fits");
        assert!(
            matches!(narrow.with_max(&OST_IO, 4, "40"), Err(ThreadsError::Range(_))),
            "below threads_min"
        );
        for text in ["", "x", "-1", "1.5"] {
            assert!(
                matches!(threads.with_max(&OST_IO, 4, text), Err(ThreadsError::Invalid(_))),
                "{text}"
            );
        }
    }
}

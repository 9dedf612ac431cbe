//! Rates of two samples, in rows, and the slowest service with the clients and jobs that load it.
//! Pure.
//!
//! - A daemon that is in one sample only adds nothing: its counters may be of any length of time.
//! - A counter that has gone down was cleared in between, and begins at zero.

use std::collections::BTreeMap;

use crate::Count;
use crate::sample::{Key, Kind, Life, Sample, Service};

/// A service whose requests wait for less is not called slow, microseconds.
const SLOW_US: f64 = 1_000.0;

/// Clients and jobs that are named as its load.
const NAMED: usize = 2;

/// By which column rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Operations,
    Bytes,
}

/// Rates of a client, a job or a target, per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub name: String,
    /// Name of a client.
    pub detail: String,
    pub operations: f64,
    /// Bytes.
    pub read: f64,
    pub written: f64,
}

impl Row {
    fn rank(&self, order: Order) -> f64 {
        match order {
            Order::Operations => self.operations,
            Order::Bytes => self.read + self.written,
        }
    }
}

/// A service of a daemon.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceRow {
    pub name: String,
    pub daemon: String,
    /// Policy in force.
    pub policy: String,
    /// Requests per second.
    pub requests: f64,
    /// Mean wait of a request in the queue, microseconds.
    pub wait_us: f64,
    /// Requests that wait, on average over the time between the samples.
    pub waiting: f64,
    /// Requests that wait now.
    pub queued: u64,
}

/// The service whose requests wait most in sum, if they wait long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slow {
    pub service: ServiceRow,
    /// Its daemon's busiest jobs and clients, with their share of the operations in percent.
    pub jobs: Vec<(String, f64)>,
    pub clients: Vec<(String, f64)>,
}

/// See the head of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Between the samples; zero before there are two.
    pub seconds: f64,
    pub clients: Vec<Row>,
    pub jobs: Vec<Row>,
    pub targets: Vec<Row>,
    /// Longest sum of waits first.
    pub services: Vec<ServiceRow>,
    pub slow: Option<Slow>,
    /// Daemons that do not answer.
    pub silent: Vec<String>,
}

impl Rates {
    /// Of two samples that were taken this long after one another.
    #[must_use]
    pub fn between(before: &Sample, after: &Sample, seconds: f64) -> Rates {
        let seconds = seconds.max(0.001);
        let counts = differences(before, after);
        let rows = |kind| rows(&counts, kind, seconds, after);
        let services = services(before, after, seconds);
        let slow = services.first().filter(|(_, row)| row.wait_us >= SLOW_US);
        Rates {
            seconds,
            clients: rows(Kind::Client),
            jobs: rows(Kind::Job),
            targets: rows(Kind::Target),
            slow: slow.map(|(life, row)| Slow {
                service: row.clone(),
                jobs: shares(&counts, life, Kind::Job),
                clients: shares(&counts, life, Kind::Client),
            }),
            services: services.into_iter().map(|(_, row)| row).collect(),
            silent: after.silent.clone(),
        }
    }
}

/// Rows in an order, the largest first; equal ones by name.
pub(crate) fn sorted(rows: &[Row], order: Order) -> Vec<&Row> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    let by_rank = |a: &&Row, b: &&Row| b.rank(order).total_cmp(&a.rank(order));
    rows.sort_by(|a, b| by_rank(a, b).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// From `before` to `after`.
fn since(before: u64, after: u64) -> u64 {
    after.checked_sub(before).unwrap_or(after)
}

fn difference(before: Count, after: Count) -> Count {
    Count {
        operations: since(before.operations, after.operations),
        read: since(before.read, after.read),
        written: since(before.written, after.written),
    }
}

/// Of each key, without those of daemons that are new.
fn differences<'a>(before: &Sample, after: &'a Sample) -> BTreeMap<&'a Key, Count> {
    let known = after.counts.iter().filter(|(key, _)| before.lives.contains(&key.life));
    let difference = |(key, count): (&'a Key, &Count)| {
        let older = before.counts.get(key).copied().unwrap_or_default();
        (key, difference(older, *count))
    };
    known.map(difference).collect()
}

/// Sums over daemons, by name.
fn rows(counts: &BTreeMap<&Key, Count>, kind: Kind, seconds: f64, sample: &Sample) -> Vec<Row> {
    let mut sums: BTreeMap<&str, Count> = BTreeMap::new();
    for (key, count) in counts.iter().filter(|(key, _)| key.kind == kind) {
        let sum = sums.entry(&key.name).or_default();
        *sum = sum.plus(*count);
    }
    let row = |(name, count): (&str, Count)| Row {
        name: name.to_owned(),
        detail: sample.names.get(name).cloned().unwrap_or_default(),
        operations: count.operations as f64 / seconds,
        read: count.read as f64 / seconds,
        written: count.written as f64 / seconds,
    };
    sums.into_iter().map(row).collect()
}

/// Services that are in both samples, with their daemons.
fn services(before: &Sample, after: &Sample, seconds: f64) -> Vec<(Life, ServiceRow)> {
    let row = |((life, name), now): (&(Life, String), &Service)| {
        let then = before.services.get(&(life.clone(), name.clone()))?;
        let requests = since(then.requests, now.requests);
        let waited = since(then.waited_us, now.waited_us) as f64;
        let row = ServiceRow {
            name: name.clone(),
            daemon: life.0.clone(),
            policy: now.policy.clone(),
            requests: requests as f64 / seconds,
            wait_us: waited / requests.max(1) as f64,
            waiting: waited / 1e6 / seconds,
            queued: now.queued,
        };
        Some((life.clone(), row))
    };
    let mut all: Vec<(Life, ServiceRow)> = after.services.iter().filter_map(row).collect();
    all.sort_by(|(_, a), (_, b)| b.waiting.total_cmp(&a.waiting));
    all
}

/// The busiest of a kind on one daemon, with their share of its operations in percent.
fn shares(counts: &BTreeMap<&Key, Count>, life: &Life, kind: Kind) -> Vec<(String, f64)> {
    let here = |key: &Key| key.life == *life && key.kind == kind;
    let mut all: Vec<(&str, u64)> = counts
        .iter()
        .filter(|(key, count)| here(key) && count.operations > 0)
        .map(|(key, count)| (key.name.as_str(), count.operations))
        .collect();
    let sum = all.iter().fold(0_u64, |sum, (_, operations)| sum.saturating_add(*operations));
    all.sort_by_key(|(_, operations)| std::cmp::Reverse(*operations));
    let share = |(name, operations): (&str, u64)| {
        (name.to_owned(), operations as f64 * 100.0 / sum.max(1) as f64)
    };
    all.into_iter().take(NAMED).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(name: &str) -> Life {
        (name.to_owned(), 7)
    }

    fn key(kind: Kind, daemon: &str, name: &str) -> Key {
        Key { kind, life: life(daemon), name: name.to_owned() }
    }

    fn count(operations: u64, written: u64) -> Count {
        Count { operations, read: 0, written }
    }

    fn service(requests: u64, waited_us: u64) -> Service {
        Service { requests, waited_us, policy: "fifo".into(), queued: 3 }
    }

    fn sample(counts: &[(Key, Count)], services: &[(&str, Service)]) -> Sample {
        let service = |(daemon, service): &(&str, Service)| {
            ((life(daemon), "ost_io".to_owned()), service.clone())
        };
        Sample {
            lives: [life("a"), life("b")].into(),
            counts: counts.iter().cloned().collect(),
            services: services.iter().map(service).collect(),
            names: [("n1".to_owned(), "node1:/mnt".to_owned())].into(),
            silent: vec!["c".into()],
        }
    }

    #[test]
    fn rates_are_sums_over_daemons_and_sorted_as_asked() {
        let jobs = |dd: u64, cp: u64, bytes: u64| {
            let all = [
                (key(Kind::Job, "a", "dd.0"), count(dd, 10)),
                (key(Kind::Job, "b", "dd.0"), count(dd, 10)),
                (key(Kind::Job, "a", "cp.0"), count(cp, 10 + bytes)),
            ];
            sample(&all, &[])
        };
        let rates = Rates::between(&jobs(10, 10, 0), &jobs(20, 12, 600), 2.0);
        let shown = |order| -> Vec<_> {
            let sorted = sorted(&rates.jobs, order).into_iter();
            sorted.map(|row| (row.name.as_str(), row.operations, row.written)).collect()
        };
        assert_eq!(shown(Order::Operations), [("dd.0", 10.0, 0.0), ("cp.0", 1.0, 300.0)]);
        assert_eq!(shown(Order::Bytes), [("cp.0", 1.0, 300.0), ("dd.0", 10.0, 0.0)]);
        assert_eq!((rates.slow.is_none(), rates.silent), (true, vec!["c".to_owned()]));
    }

    #[test]
    fn a_cleared_counter_begins_at_zero_and_a_new_daemon_counts_later() {
        let before = sample(&[(key(Kind::Target, "a", "t"), count(100, 0))], &[]);
        let now = [
            (key(Kind::Target, "a", "t"), count(5, 0)),
            (key(Kind::Target, "new", "u"), count(9_000, 0)),
        ];
        let rates = Rates::between(&before, &sample(&now, &[]), 1.0);
        let shown: Vec<_> =
            rates.targets.iter().map(|row| (row.name.as_str(), row.operations)).collect();
        assert_eq!(shown, [("t", 5.0)]);
    }

    #[test]
    fn the_slowest_service_is_named_with_those_that_load_it() {
        let work = |operations: [u64; 3]| {
            [
                (key(Kind::Job, "a", "dd.0"), count(operations[0], 0)),
                (key(Kind::Job, "a", "cp.0"), count(operations[1], 0)),
                (key(Kind::Job, "b", "tar.0"), count(operations[2], 0)),
                (key(Kind::Client, "a", "n1"), count(operations[0], 0)),
            ]
        };
        let before = sample(&work([0, 0, 0]), &[("a", service(0, 0)), ("b", service(0, 0))]);
        let waits = [("a", service(10, 4_000_000)), ("b", service(100, 2_000_000))];
        let rates = Rates::between(&before, &sample(&work([75, 25, 500]), &waits), 2.0);
        let daemons: Vec<_> = rates.services.iter().map(|row| row.daemon.as_str()).collect();
        assert_eq!(daemons, ["a", "b"], "by the sum of waits");
        let slow = rates.slow.expect("requests wait for 0.4 s");
        assert_eq!((slow.service.wait_us, slow.service.waiting), (400_000.0, 2.0));
        assert_eq!(slow.jobs, [("dd.0".to_owned(), 75.0), ("cp.0".to_owned(), 25.0)]);
        assert_eq!(slow.clients, [("n1".to_owned(), 100.0)]);
        assert_eq!(rates.clients[0].detail, "node1:/mnt");
    }

    #[test]
    fn short_waits_are_not_called_slow() {
        let before = sample(&[], &[("a", service(0, 0))]);
        let rates = Rates::between(&before, &sample(&[], &[("a", service(10, 9_000))]), 1.0);
        assert_eq!(rates.slow, None);
        assert_eq!((rates.services[0].wait_us, rates.services[0].requests), (900.0, 10.0));
    }
}

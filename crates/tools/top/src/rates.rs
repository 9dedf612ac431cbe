//! Rates of two samples, in rows. The slowest service with the clients and jobs that load it, and
//! those whose requests wait longest. Pure.
//!
//! - A daemon that is in one sample only adds nothing: its counters may be of any length of time.
//! - A counter that has gone down was cleared in between, and begins at zero.

use std::collections::BTreeMap;

use crate::Count;
use crate::sample::{Key, Kind, Life, Sample, Service};

/// What waits for less is not called slow, microseconds.
const SLOW_US: f64 = 1_000.0;

/// Clients and jobs that are named each.
const NAMED: usize = 2;

/// By which column rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Operations,
    Bytes,
    Wait,
}

impl Order {
    /// With their keys.
    pub(crate) const ALL: [(char, Order); 3] =
        [('o', Order::Operations), ('b', Order::Bytes), ('w', Order::Wait)];

    pub(crate) fn of_key(key: char) -> Option<Order> {
        Order::ALL.iter().find(|(of, _)| *of == key).map(|(_, order)| *order)
    }
}

/// Rates of a client, a job or a target, per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub name: String,
    /// Name of a client.
    pub detail: String,
    /// Requests of a client or a job. Operations of a target, as a request may have several.
    pub operations: f64,
    /// Bytes.
    pub read: f64,
    pub written: f64,
    /// Mean wait of a request in the queue, microseconds. None without requests.
    pub wait_us: Option<f64>,
}

impl Row {
    fn rank(&self, order: Order) -> f64 {
        match order {
            Order::Operations => self.operations,
            Order::Bytes => self.read + self.written,
            Order::Wait => self.wait_us.unwrap_or(0.0),
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

/// Jobs and clients that stand out, each with a number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Named {
    pub jobs: Vec<(String, f64)>,
    pub clients: Vec<(String, f64)>,
}

/// The service whose requests wait most in sum, if they wait long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slow {
    pub service: ServiceRow,
    /// The busiest at its targets, with their share of the requests there in percent.
    pub load: Named,
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
    /// Those whose requests wait longest, if they wait long, with their mean waits in microseconds.
    pub late: Named,
    /// Daemons that do not answer.
    pub silent: Vec<String>,
    /// They are of metrics, which have the busiest clients and jobs only.
    pub is_partial: bool,
    /// Daemons whose metrics have left out even more.
    pub cut: Vec<String>,
}

impl Rates {
    /// Of two samples that were taken this long after one another.
    #[must_use]
    pub fn between(before: &Sample, after: &Sample, seconds: f64) -> Rates {
        let seconds = seconds.max(0.001);
        let counts = differences(before, after);
        let rows = |kind| rows(&counts, kind, seconds, after);
        let (clients, jobs) = (rows(Kind::Client), rows(Kind::Job));
        let services = services(before, after, seconds);
        let slow = services.first().filter(|(_, row)| row.wait_us >= SLOW_US);
        let load = |life: &Life, service: &str| Named {
            jobs: shares(&counts, Kind::Job, life, service),
            clients: shares(&counts, Kind::Client, life, service),
        };
        Rates {
            seconds,
            slow: slow
                .map(|(life, row)| Slow { service: row.clone(), load: load(life, &row.name) }),
            late: Named { jobs: longest(&jobs), clients: longest(&clients) },
            clients,
            jobs,
            targets: rows(Kind::Target),
            services: services.into_iter().map(|(_, row)| row).collect(),
            silent: after.silent.clone(),
            is_partial: after.is_partial,
            cut: after.cut.clone(),
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
        requests: since(before.requests, after.requests),
        waited_us: since(before.waited_us, after.waited_us),
    }
}

/// Of each key, without those of daemons that are new. A key that is new among metrics may have had
/// its count before.
fn differences<'a>(before: &Sample, after: &'a Sample) -> BTreeMap<&'a Key, Count> {
    let is_known = |key: &Key| {
        before.lives.contains(&key.life) && (!after.is_partial || before.counts.contains_key(key))
    };
    let known = after.counts.iter().filter(|(key, _)| is_known(key));
    let difference = |(key, count): (&'a Key, &Count)| {
        let older = before.counts.get(key).copied().unwrap_or_default();
        (key, difference(older, *count))
    };
    known.map(difference).collect()
}

/// The load that a subject makes. A daemon of another version may count no requests.
fn load(kind: Kind, count: Count) -> u64 {
    match kind {
        Kind::Client | Kind::Job if count.requests > 0 => count.requests,
        _ => count.operations,
    }
}

/// The queue times of a target are those of its clients.
fn add_waits(sums: &mut BTreeMap<&str, Count>, counts: &BTreeMap<&Key, Count>) {
    for (key, count) in counts.iter().filter(|(key, _)| key.kind == Kind::Client) {
        if let Some(sum) = sums.get_mut(key.target.as_str()) {
            let Count { requests, waited_us, .. } = *count;
            *sum = sum.plus(Count { requests, waited_us, ..Count::default() });
        }
    }
}

/// Sums over daemons and targets, by name.
fn rows(counts: &BTreeMap<&Key, Count>, kind: Kind, seconds: f64, sample: &Sample) -> Vec<Row> {
    let mut sums: BTreeMap<&str, Count> = BTreeMap::new();
    for (key, count) in counts.iter().filter(|(key, _)| key.kind == kind) {
        let sum = sums.entry(&key.name).or_default();
        *sum = sum.plus(*count);
    }
    if kind == Kind::Target {
        add_waits(&mut sums, counts);
    }
    let wait = |count: Count| count.waited_us as f64 / count.requests as f64;
    let row = |(name, count): (&str, Count)| Row {
        name: name.to_owned(),
        detail: sample.names.get(name).cloned().unwrap_or_default(),
        operations: load(kind, count) as f64 / seconds,
        read: count.read as f64 / seconds,
        written: count.written as f64 / seconds,
        wait_us: (count.requests > 0).then(|| wait(count)),
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
            policy: policy(then, now),
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

/// The policy in force. Where that is not known, the one that has started most requests between the
/// samples, or at all.
fn policy(then: &Service, now: &Service) -> String {
    let used = |(name, started): (&String, &u64)| {
        let before = then.started.get(name).copied().unwrap_or(0);
        (since(before, *started), *started, name.clone())
    };
    let most = now.started.iter().map(used).max();
    most.map_or_else(|| now.policy.clone(), |(_, _, name)| name)
}

/// Whether requests for a target queue at a service, by their names.
fn is_served(target: &str, service: &str) -> bool {
    let index = target.rsplit_once('-').map_or("", |(_fsname, index)| index);
    let is_of = |kind: &str| index.starts_with(kind);
    match service {
        "mdt_io" => is_of("DOM"),
        "mdt_out" => is_of("DOM") || is_of("MDT"),
        mdt if mdt.starts_with("mdt") => is_of("MDT"),
        ost if ost.starts_with("ost") => is_of("OST"),
        _ => false,
    }
}

/// The busiest of a kind at the targets of a service, with their share of the load in percent.
fn shares(
    counts: &BTreeMap<&Key, Count>,
    kind: Kind,
    life: &Life,
    service: &str,
) -> Vec<(String, f64)> {
    let here = |key: &Key| key.kind == kind && key.life == *life && is_served(&key.target, service);
    let mut loads: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, count) in counts.iter().filter(|(key, _)| here(key)) {
        let sum = loads.entry(&key.name).or_default();
        *sum = sum.saturating_add(load(kind, *count));
    }
    let all = loads.values().fold(0_u64, |sum, load| sum.saturating_add(*load));
    let mut busiest: Vec<(&str, u64)> = loads.into_iter().filter(|(_, load)| *load > 0).collect();
    busiest.sort_by_key(|(_, load)| std::cmp::Reverse(*load));
    let share =
        |(name, load): (&str, u64)| (name.to_owned(), load as f64 * 100.0 / all.max(1) as f64);
    busiest.into_iter().take(NAMED).map(share).collect()
}

/// Names and waits.
fn longest(rows: &[Row]) -> Vec<(String, f64)> {
    let long = |row: &&Row| row.wait_us.is_some_and(|wait| wait >= SLOW_US);
    let rows = sorted(rows, Order::Wait).into_iter().filter(long);
    rows.take(NAMED).map(|row| (row.name.clone(), row.wait_us.unwrap_or(0.0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(name: &str) -> Life {
        (name.to_owned(), 7)
    }

    fn key(kind: Kind, daemon: &str, name: &str) -> Key {
        Key { kind, life: life(daemon), target: "t-OST0000".into(), name: name.to_owned() }
    }

    fn count(operations: u64, written: u64) -> Count {
        Count { operations, written, ..Count::default() }
    }

    fn requests(requests: u64, waited_us: u64) -> Count {
        Count { requests, waited_us, ..Count::default() }
    }

    fn service(requests: u64, waited_us: u64) -> Service {
        let (policy, started) = ("fifo".into(), BTreeMap::new());
        Service { requests, waited_us, policy, started, queued: 3 }
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
            is_partial: false,
            cut: Vec::new(),
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
    fn clients_have_waits_and_a_target_has_those_of_its_clients() {
        let at = |n1: Count, n2: Count| {
            let all = [
                (key(Kind::Client, "a", "n1"), n1),
                (key(Kind::Client, "a", "n2"), n2),
                (key(Kind::Target, "a", "t-OST0000"), count(8, 0)),
                (key(Kind::Target, "a", "t-OST0001"), count(8, 0)),
            ];
            sample(&all, &[])
        };
        let before = at(requests(10, 100), requests(10, 100));
        let after = at(requests(40, 400), requests(20, 70_100));
        let rates = Rates::between(&before, &after, 2.0);
        let shown = |row: &Row| (row.operations, row.wait_us);
        let by_wait = sorted(&rates.clients, Order::Wait);
        assert_eq!((by_wait[0].name.as_str(), by_wait[1].name.as_str()), ("n2", "n1"));
        assert_eq!(shown(by_wait[0]), (5.0, Some(7_000.0)));
        assert_eq!(shown(by_wait[1]), (15.0, Some(10.0)));
        assert_eq!(shown(&rates.targets[0]), (0.0, Some(70_300.0 / 40.0)));
        assert_eq!(shown(&rates.targets[1]), (0.0, None));
        assert_eq!((rates.slow, rates.late.clients), (None, vec![("n2".to_owned(), 7_000.0)]));
    }

    #[test]
    fn what_is_new_among_metrics_counts_from_the_next_sample() {
        let of = |clients: &[(Key, Count)]| Sample { is_partial: true, ..sample(clients, &[]) };
        let (n1, n2) = (key(Kind::Client, "a", "n1"), key(Kind::Client, "a", "n2"));
        let before = of(&[(n1.clone(), requests(10, 0))]);
        let after = of(&[(n1, requests(12, 0)), (n2, requests(1_000_000, 0))]);
        let rates = Rates::between(&before, &after, 1.0);
        assert_eq!((rates.clients.len(), rates.clients[0].operations), (1, 2.0));
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
        assert_eq!(slow.load.jobs, [("dd.0".to_owned(), 75.0), ("cp.0".to_owned(), 25.0)]);
        assert_eq!(slow.load.clients, [("n1".to_owned(), 100.0)]);
        assert_eq!(rates.clients[0].detail, "node1:/mnt");
    }

    #[test]
    fn the_load_of_a_service_is_that_of_its_targets() {
        let mut flood = key(Kind::Client, "a", "n1");
        flood.target = "t-MDT0000".into();
        let at = |asked: u64, wrote: u64, waited: u64| {
            let write = (key(Kind::Client, "a", "n2"), requests(wrote, 0));
            let all = [(flood.clone(), requests(asked, 0)), write];
            let services = [((life("a"), "mdt".to_owned()), service(asked, waited))].into();
            Sample { services, ..sample(&all, &[]) }
        };
        let rates = Rates::between(&at(0, 0, 0), &at(10, 9_000, 1_000_000), 1.0);
        let slow = rates.slow.expect("requests wait");
        assert_eq!(slow.load.clients, [("n1".to_owned(), 100.0)]);
        for (target, service) in
            [("t-OST0000", "ost_io"), ("a-b-DOM0000", "mdt_io"), ("t-MDT0001", "mdt_readpage")]
        {
            assert!(is_served(target, service), "{target} {service}");
        }
        for (target, service) in
            [("t-OST0000", "mdt"), ("t-DOM0000", "mdt"), ("t-MDT0001", "mdt_io"), ("MGS", "mgs")]
        {
            assert!(!is_served(target, service), "{target} {service}");
        }
    }

    #[test]
    fn a_policy_is_known_by_its_requests_where_metrics_do_not_name_it() {
        let of = |fifo: u64, tbf: u64| Service {
            started: [("fifo".to_owned(), fifo), ("tbf".to_owned(), tbf)].into(),
            ..Service::default()
        };
        assert_eq!(policy(&of(9_000, 0), &of(9_001, 50)), "tbf");
        assert_eq!(policy(&of(9_000, 50), &of(9_000, 50)), "fifo", "none was used");
        assert_eq!(policy(&service(0, 0), &service(0, 0)), "fifo", "the one in force");
    }

    #[test]
    fn short_waits_are_not_called_slow() {
        let before = sample(&[], &[("a", service(0, 0))]);
        let rates = Rates::between(&before, &sample(&[], &[("a", service(10, 9_000))]), 1.0);
        assert_eq!(rates.slow, None);
        assert_eq!((rates.services[0].wait_us, rates.services[0].requests), (900.0, 10.0));
    }
}

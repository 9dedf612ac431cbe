//! Prometheus: a daemon's parameters as metrics, under `lustre_exporter`'s names where it has them.
//!
//! The text is made from the parameter tree, as that exporter makes it from `/proc`. So the output
//! of `lctl get_param` and of a scrape cannot differ. Counters come as tables
//! ([`ParamTree::tables`]); the parameter's own text is printed from the same tables. Tasks of the
//! daemon's executor serve the text over plain HTTP/1.1. A scrape makes its text in one turn (well
//! below a millisecond for a server of ten targets) and never waits for a server or a disk.
//!
//! **Bounded**: at most `text::SERIES_MAX` series. Peers and jobs have bounds of their own: the
//! peers with the fewest credits and the jobs with the most operations are kept.
//! `nacre_metrics_dropped_series` counts the series that were left out.

mod http;
mod jobs;
mod text;

use std::net::SocketAddr;

use env::Env;
use env_os::Lnet;
use params::ParamTree;
use types::{Counter, CounterTable, Detail, Row};

pub use http::Endpoint;

use text::Exposition;

/// Peers whose credits are shown: those whose queue was deepest.
const PEERS_MAX: usize = 64;

/// Parameters that are one number each: pattern (its second part is the target), name, help.
const NUMBERS: &[(&str, &str, &str)] = &[
    ("kbytestotal", "lustre_capacity_kibibytes", "Capacity of the pool in kibibytes"),
    ("kbytesfree", "lustre_free_kibibytes", "Number of kibibytes free in the pool"),
    (
        "kbytesavail",
        "lustre_available_kibibytes",
        "Number of kibibytes readily available in the pool",
    ),
    (
        "filestotal",
        "lustre_inodes_maximum",
        "The maximum number of inodes (objects) the filesystem can hold",
    ),
    ("filesfree", "lustre_inodes_free", "The number of inodes (objects) available"),
    ("num_exports", "lustre_exports_total", "Number of clients that are connected"),
    ("dirty_data_bytes", "nacre_dirty_data_bytes", "Bytes written that are not durable yet"),
    (
        "last_committed",
        "nacre_last_committed",
        "Transaction number up to which everything is durable",
    ),
    ("open_handles", "nacre_open_handles", "Files held open by clients"),
    ("locks_held", "nacre_locks_held", "File locks held"),
    ("locks_waiting", "nacre_locks_waiting", "File locks waited for"),
    ("leases_held", "nacre_leases_held", "Short leases held by clients"),
    ("lost", "nacre_lost_changes", "Acknowledged changes that are lost"),
    ("lock_count", "lustre_lock_count_total", "Number of locks"),
];

/// Parameter of a target's kind, and lustre_exporter's word for its component.
const COMPONENTS: &[(&str, &str)] = &[
    ("obdfilter", "ost"),
    ("mdt", "mdt"),
    ("mdt_data", "mdt_data"),
    ("mgs", "mgs"),
    ("llite", "client"),
    ("ldlm.namespaces", "ldlm"),
];

/// Statistics files in Lustre's form: pattern, component.
const STATS: &[(&str, &str)] = &[
    ("obdfilter.*.stats", "ost"),
    ("mdt.*.md_stats", "mdt"),
    ("mdt_data.*.stats", "mdt_data"),
    ("llite.*.stats", "client"),
    ("llite.*.md_stats", "client"),
];

/// The same for what each job did.
const JOBS: &[(&str, &str)] = &[
    ("obdfilter.*.job_stats", "ost"),
    ("mdt.*.job_stats", "mdt"),
    ("mdt_data.*.job_stats", "mdt_data"),
];

/// Answers scrapers at `at`, if anywhere. A monitor must not stop a daemon: where it cannot listen,
/// one line of the log says so and the daemon goes on without it.
pub async fn start(
    env: &Env,
    at: Option<SocketAddr>,
    params: ParamTree,
    lnet: Lnet,
) -> Option<Endpoint> {
    let (at, env2) = (at?, env.clone());
    match http::serve(env, at, move || gather(&env2, &params, &lnet)).await {
        Ok(endpoint) => {
            tracing::info!("metrics at http://{}/metrics", endpoint.addr());
            Some(endpoint)
        }
        Err(error) => {
            tracing::warn!("no metrics: cannot listen at {at}: {error}");
            None
        }
    }
}

/// What a scrape tells.
fn gather(env: &Env, params: &ParamTree, lnet: &Lnet) -> String {
    let mut out = Exposition::default();
    health(params, &mut out);
    for (base, component) in COMPONENTS {
        for (leaf, name, help) in NUMBERS {
            for (target, value) in values(params, base, leaf) {
                if let Ok(value) = value.trim().parse::<f64>() {
                    out.gauge(name, help, &[("component", component), ("target", &target)], value);
                }
            }
        }
    }
    for (pattern, component) in STATS {
        for (name, table) in params.tables(pattern) {
            target_stats(&mut out, component, part(&name, 1), &table);
        }
    }
    for (pattern, component) in JOBS {
        for (name, table) in params.tables(pattern) {
            jobs::add(&mut out, component, part(&name, 1), &table);
        }
    }
    for (pattern, skip) in [
        ("ost.OSS.*.stats", 2),
        ("mds.MDS.*.stats", 2),
        ("mgs.MGS.*.stats", 2),
        ("ldlm.services.*.stats", 2),
    ] {
        for (name, table) in params.tables(pattern) {
            service_stats(&mut out, part(&name, skip), &table);
        }
    }
    for (name, table) in params.tables("*.*.*.requests_by_cpt") {
        let CounterTable::Numbers(counts) = table else { continue };
        for (cpt, count) in counts.into_iter().enumerate() {
            let labels = [("service", part(&name, 2)), ("cpt", &cpt.to_string())];
            out.counter(
                "nacre_cpt_requests_total",
                "Requests that a CPU partition has handled",
                &labels,
                count as f64,
            );
        }
    }
    network(env, lnet, &mut out);
    out.finish()
}

/// Part `at` of a parameter's name.
fn part(name: &str, at: usize) -> &str {
    name.split('.').nth(at).unwrap_or_default()
}

/// Rows that have samples, of a table that is not by key.
fn lines(table: &CounterTable) -> impl Iterator<Item = &Row> {
    let rows: &[Row] = if let CounterTable::Lines { rows, .. } = table { rows } else { &[] };
    rows.iter().filter(|row| row.counter.samples > 0)
}

fn health(params: &ParamTree, out: &mut Exposition) {
    let text = params
        .get("health_check")
        .ok()
        .and_then(|found| found.into_iter().next())
        .map(|param| param.value);
    let is_healthy = text.is_some_and(|text| text.trim() == "healthy");
    let labels = [("component", "health"), ("target", "lustre")];
    out.gauge(
        "lustre_health_check",
        "Current health status: 1 is healthy, 0 is unhealthy",
        &labels,
        f64::from(is_healthy),
    );
}

/// Target and value of `BASE.*.LEAF`.
fn values(params: &ParamTree, base: &str, leaf: &str) -> Vec<(String, String)> {
    let found = params.get(&format!("{base}.*.{leaf}")).unwrap_or_default();
    let depth = base.split('.').count();
    found
        .into_iter()
        .map(|param| (param.name.split('.').nth(depth).unwrap_or_default().to_owned(), param.value))
        .collect()
}

fn target_stats(out: &mut Exposition, component: &str, target: &str, table: &CounterTable) {
    for line in lines(table) {
        let labels = [("component", component), ("target", target)];
        let Some(kind) =
            line.name.strip_suffix("_bytes").filter(|kind| matches!(*kind, "read" | "write"))
        else {
            let labels = [labels[0], labels[1], ("operation", line.name)];
            out.counter(
                "lustre_stats_total",
                "Number of operations the filesystem has performed.",
                &labels,
                line.counter.samples as f64,
            );
            continue;
        };
        let (samples, minimum, maximum, total) = match kind {
            "read" => READ_NAMES,
            _ => WRITE_NAMES,
        };
        out.counter(
            samples,
            "Total number of transfers that have been recorded.",
            &labels,
            line.counter.samples as f64,
        );
        if line.detail >= Detail::Sum {
            let Counter { min, max, sum, .. } = line.counter;
            out.gauge(minimum, "The minimum transfer size in bytes.", &labels, min as f64);
            out.gauge(maximum, "The maximum transfer size in bytes.", &labels, max as f64);
            out.counter(
                total,
                "The total number of bytes that have been transferred.",
                &labels,
                sum as f64,
            );
        }
    }
}

type ByteNames = (&'static str, &'static str, &'static str, &'static str);

const READ_NAMES: ByteNames = (
    "lustre_read_samples_total",
    "lustre_read_minimum_size_bytes",
    "lustre_read_maximum_size_bytes",
    "lustre_read_bytes_total",
);
const WRITE_NAMES: ByteNames = (
    "lustre_write_samples_total",
    "lustre_write_minimum_size_bytes",
    "lustre_write_maximum_size_bytes",
    "lustre_write_bytes_total",
);

fn service_stats(out: &mut Exposition, service: &str, table: &CounterTable) {
    for line in lines(table) {
        let labels = [("service", service), ("counter", line.name), ("unit", line.unit)];
        let Counter { samples, max, sum, .. } = line.counter;
        let help = "Samples of a service's counter";
        out.gauge("nacre_service_samples", help, &labels, samples as f64);
        if line.detail >= Detail::Sum {
            out.gauge(
                "nacre_service_maximum",
                "Largest sample of a service's counter",
                &labels,
                max as f64,
            );
            let help = "Sum of a service's counter";
            out.counter("nacre_service_sum_total", help, &labels, sum as f64);
        }
    }
}

fn network(env: &Env, lnet: &Lnet, out: &mut Exposition) {
    let counters = env.net_counters();
    let labels = [("component", "lnet"), ("target", "lnet")];
    for (name, help, value) in [
        (
            "lustre_send_count_total",
            "Total number of messages that have been sent",
            counters.send_count,
        ),
        (
            "lustre_receive_count_total",
            "Total number of messages that have been received",
            counters.recv_count,
        ),
        ("lustre_send_bytes_total", "Total number of bytes sent", counters.send_bytes),
        ("lustre_receive_bytes_total", "Total number of bytes received", counters.recv_bytes),
    ] {
        out.counter(name, help, &labels, value as f64);
    }
    const HELP: &str =
        "Credits for messages: at rest, now, and the lowest ever; below zero is a queue";
    let level = |out: &mut Exposition, name, label: (&str, &str), level: env::Level| {
        for (what, value) in [("max", level.max), ("now", level.now), ("min", level.min)] {
            out.gauge(name, HELP, &[label, ("level", what)], value as f64);
        }
    };
    for (cpt, credits) in lnet.interface_levels().into_iter().enumerate() {
        level(out, "nacre_lnet_interface_credits", ("cpt", &cpt.to_string()), credits);
    }
    let mut peers = lnet.peer_levels();
    out.gauge("nacre_lnet_peers", "Peers that are known", &[], peers.len() as f64);
    peers.sort_by_key(|(nid, _, level, _)| (level.min, *nid));
    out.dropped(peers.len().saturating_sub(PEERS_MAX) * 4);
    for (nid, _, credits, bytes) in peers.into_iter().take(PEERS_MAX) {
        let nid = nid.to_string();
        level(out, "nacre_lnet_peer_credits", ("nid", &nid), credits);
        out.gauge(
            "nacre_lnet_peer_queue_bytes",
            "Bytes of messages that are not sent",
            &[("nid", &nid)],
            bytes as f64,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Timespec;

    #[test]
    fn parameters_become_metrics_under_the_names_of_the_exporter() {
        let params = ParamTree::new();
        params.register("health_check", || "healthy".into());
        params.register("obdfilter.testfs-OST0001.kbytesavail", || "4096".into());
        let show = |name: &str, table: CounterTable| {
            params.register_table(name, move || Ok(table.clone()), None);
        };
        let reads = counter(&[4_096, 1_048_576, 1_048_576]);
        let rows = vec![
            Row::bytes("read_bytes", reads),
            Row::bytes("write_bytes", Counter::default()),
            Row::requests("create", 7),
        ];
        let at = Some(Timespec::new(1, 2));
        show("obdfilter.testfs-OST0001.stats", CounterTable::Lines { at, rows });
        let groups = vec![("dd.0".to_owned(), vec![Row::bytes("read_bytes", counter(&[1, 2]))])];
        let jobs = CounterTable::Groups { title: "job_stats", label: "job_id", groups };
        show("obdfilter.testfs-OST0001.job_stats", jobs);
        let waits = Row {
            name: "req_waittime",
            unit: "usec",
            counter: counter(&[1, 2, 3, 5, 9]),
            detail: Detail::Squares,
        };
        show("ost.OSS.ost_io.stats", CounterTable::Lines { at: None, rows: vec![waits] });
        show("ost.OSS.ost_io.requests_by_cpt", CounterTable::Numbers(vec![5, 0]));
        let text = env_os::run(env_os::OsConfig::default(), |env| async move {
            gather(&env, &params, &Lnet::default())
        });
        assert_eq!(text, include_str!("scrape.txt"));
    }

    fn counter(samples: &[u64]) -> Counter {
        let mut counter = Counter::default();
        samples.iter().for_each(|sample| counter.add(*sample));
        counter
    }

    #[test]
    fn a_taken_port_leaves_a_daemon_without_metrics() {
        env_os::run(env_os::OsConfig::default(), |env| async move {
            let any = "127.0.0.1:0".parse().expect("an address");
            let first = start(&env, Some(any), ParamTree::new(), Lnet::default())
                .await
                .expect("a free port");
            assert!(
                start(&env, Some(first.addr()), ParamTree::new(), Lnet::default()).await.is_none()
            );
            assert!(start(&env, None, ParamTree::new(), Lnet::default()).await.is_none());
        });
    }
}

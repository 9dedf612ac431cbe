//! Prometheus: a daemon's parameters as metrics, under `lustre_exporter`'s names where it has them.
//!
//! The text is made of the parameter tree, as that exporter makes it of `/proc`: what `lctl
//! get_param` shows and what a scrape shows cannot differ. It is served over plain HTTP/1.1 by
//! tasks of the daemon's executor; a scrape makes its text in one turn (well below a millisecond
//! for a server of ten targets) and never waits for a server or a disk.
//!
//! **Bounded**: at most `text::SERIES_MAX` series; beyond their own bounds peers are left out,
//! those with the fewest credits last, and jobs, those that did most last.
//! `nacre_metrics_dropped_series` counts what was left out.

mod http;
mod jobs;
mod text;

use std::net::SocketAddr;

use env::Env;
use env_os::Lnet;
use params::ParamTree;

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
    ("lock_count", "lustre_lock_count_total", "Number of locks"),
];

/// Parameter of a target's kind, and lustre_exporter's word for its component.
const COMPONENTS: &[(&str, &str)] = &[
    ("obdfilter", "ost"),
    ("mdt", "mdt"),
    ("mgs", "mgs"),
    ("llite", "client"),
    ("ldlm.namespaces", "ldlm"),
];

/// Statistics files in Lustre's form: pattern, component.
const STATS: &[(&str, &str)] = &[
    ("obdfilter.*.stats", "ost"),
    ("mdt.*.md_stats", "mdt"),
    ("llite.*.stats", "client"),
    ("llite.*.md_stats", "client"),
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
        for param in params.get(pattern).unwrap_or_default() {
            let target = param.name.split('.').nth(1).unwrap_or_default().to_owned();
            target_stats(&mut out, component, &target, &param.value);
        }
    }
    for (pattern, component) in [("obdfilter.*.job_stats", "ost"), ("mdt.*.job_stats", "mdt")] {
        for param in params.get(pattern).unwrap_or_default() {
            let target = param.name.split('.').nth(1).unwrap_or_default();
            jobs::add(&mut out, component, target, &param.value);
        }
    }
    for (pattern, skip) in [
        ("ost.OSS.*.stats", 2),
        ("mds.MDS.*.stats", 2),
        ("mgs.MGS.*.stats", 2),
        ("ldlm.services.*.stats", 2),
    ] {
        for param in params.get(pattern).unwrap_or_default() {
            let service = param.name.split('.').nth(skip).unwrap_or_default().to_owned();
            service_stats(&mut out, &service, &param.value);
        }
    }
    for param in params.get("*.*.*.requests_by_cpt").unwrap_or_default() {
        let service = param.name.split('.').nth(2).unwrap_or_default();
        for (cpt, count) in param.value.split_whitespace().enumerate() {
            let labels = [("service", service), ("cpt", &cpt.to_string())];
            out.counter(
                "nacre_cpt_requests_total",
                "Requests that a CPU partition has handled",
                &labels,
                number(count),
            );
        }
    }
    network(env, lnet, &mut out);
    out.finish()
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or(0.0)
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

/// One line of a statistics file: `name samples "samples" [unit] min max sum sumsq`; the numbers
/// behind the unit are left out by some.
struct StatLine<'a> {
    name: &'a str,
    samples: f64,
    unit: &'a str,
    numbers: Vec<f64>,
}

fn stat_lines(text: &str) -> impl Iterator<Item = StatLine<'_>> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, samples) = (words.next()?, words.next()?.parse().ok()?);
        (words.next() == Some("samples")).then_some(())?;
        let unit = words.next()?.trim_matches(['[', ']']);
        Some(StatLine {
            name,
            samples,
            unit,
            numbers: words.filter_map(|word| word.parse().ok()).collect(),
        })
    })
}

fn target_stats(out: &mut Exposition, component: &str, target: &str, text: &str) {
    for line in stat_lines(text) {
        let labels = [("component", component), ("target", target)];
        let Some(kind) =
            line.name.strip_suffix("_bytes").filter(|kind| matches!(*kind, "read" | "write"))
        else {
            let labels = [labels[0], labels[1], ("operation", line.name)];
            out.counter(
                "lustre_stats_total",
                "Number of operations the filesystem has performed.",
                &labels,
                line.samples,
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
            line.samples,
        );
        if let [min, max, sum, ..] = line.numbers[..] {
            out.gauge(minimum, "The minimum transfer size in bytes.", &labels, min);
            out.gauge(maximum, "The maximum transfer size in bytes.", &labels, max);
            out.counter(
                total,
                "The total number of bytes that have been transferred.",
                &labels,
                sum,
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

fn service_stats(out: &mut Exposition, service: &str, text: &str) {
    for line in stat_lines(text) {
        let labels = [("service", service), ("counter", line.name), ("unit", line.unit)];
        out.gauge("nacre_service_samples", "Samples of a service's counter", &labels, line.samples);
        if let [_, max, sum, ..] = line.numbers[..] {
            out.gauge(
                "nacre_service_maximum",
                "Largest sample of a service's counter",
                &labels,
                max,
            );
            out.counter("nacre_service_sum_total", "Sum of a service's counter", &labels, sum);
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

    #[test]
    fn parameters_become_metrics_under_the_names_of_the_exporter() {
        let params = ParamTree::new();
        params.register("health_check", || "healthy".into());
        params.register("obdfilter.testfs-OST0001.kbytesavail", || "4096".into());
        params.register("obdfilter.testfs-OST0001.stats", || {
            "snapshot_time 1.2 secs.nsecs\nread_bytes 3 samples [bytes] 4096 1048576 2101248\ncreate 7 samples [usecs] 1 2 3 4\n".into()
        });
        params.register("obdfilter.testfs-OST0001.job_stats", || {
            "job_stats:\n- job_id          dd.0\n  read_bytes:     { samples: 2, unit: bytes, min: 1, max: 2, sum: 3 }\n".into()
        });
        params.register("ost.OSS.ost_io.stats", || {
            "req_waittime 5 samples [usec] 1 9 20 90\n".into()
        });
        params.register("ost.OSS.ost_io.requests_by_cpt", || "5 0".into());
        let text = env_os::run(env_os::OsConfig::default(), |env| async move {
            gather(&env, &params, &Lnet::default())
        });
        for line in [
            "# TYPE lustre_available_kibibytes gauge",
            "lustre_available_kibibytes{component=\"ost\",target=\"testfs-OST0001\"} 4096",
            "lustre_health_check{component=\"health\",target=\"lustre\"} 1",
            "lustre_read_bytes_total{component=\"ost\",target=\"testfs-OST0001\"} 2101248",
            "lustre_stats_total{component=\"ost\",target=\"testfs-OST0001\",operation=\"create\"} 7",
            "lustre_job_read_bytes_total{component=\"ost\",target=\"testfs-OST0001\",jobid=\"dd.0\"} 3",
            "nacre_service_sum_total{service=\"ost_io\",counter=\"req_waittime\",unit=\"usec\"} 20",
            "nacre_cpt_requests_total{service=\"ost_io\",cpt=\"0\"} 5",
            "nacre_lnet_interface_credits{cpt=\"0\",level=\"max\"} 8192",
            "nacre_metrics_dropped_series 0",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
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

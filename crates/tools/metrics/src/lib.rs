//! Prometheus: a daemon's parameters as metrics, under `lustre_exporter`'s names where it has them.
//!
//! The text is made from the parameter tree, as that exporter makes it from `/proc`. So the output
//! of `lctl get_param` and of a scrape cannot differ. Counters come as tables
//! ([`ParamTree::tables`]); the parameter's own text is printed from the same tables. Tasks of the
//! daemon's executor serve the text over plain HTTP/1.1. A scrape makes its text in one turn (well
//! below a millisecond for a server of ten targets) and never waits for a server or a disk.
//!
//! **Bounded**: at most `text::SERIES_MAX` series. Peers and jobs have bounds of their own: the
//! peers with the fewest credits and the jobs with the most operations are kept. Jobs come last, so
//! they are left out first. `nacre_metrics_dropped_series` counts the series that were left out.

#[cfg(test)]
mod documents;
mod families;
mod http;
mod jobs;
mod network;
mod services;
mod targets;
mod text;

use std::net::SocketAddr;

use env::Env;
use env_os::Lnet;
use params::ParamTree;
use types::{CounterTable, Row};

pub use http::Endpoint;

use text::Exposition;

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

/// The text of a scrape.
fn gather(env: &Env, params: &ParamTree, lnet: &Lnet) -> String {
    let mut out = Exposition::default();
    daemon(&mut out, params);
    targets::add(&mut out, params);
    services::add(&mut out, params);
    network::add(&mut out, env, lnet);
    targets::add_jobs(&mut out, params);
    out.finish()
}

/// Version, health and memory.
fn daemon(out: &mut Exposition, params: &ParamTree) {
    let value = |name: &str| Some(params.get(name).ok()?.into_iter().next()?.value);
    if let Some(version) = value("version") {
        out.add(families::BUILD, &[("version", version.trim())], 1.0);
    }
    let is_healthy = value("health_check").is_some_and(|text| text.trim() == "healthy");
    let labels = [("component", "health"), ("target", "lustre")];
    out.add(families::HEALTH, &labels, f64::from(is_healthy));
    for (name, family) in
        [("req_bytes", families::REQUEST_MEMORY), ("req_bytes_max", families::REQUEST_MEMORY_MAX)]
    {
        if let Some(bytes) = value(name).and_then(|text| text.trim().parse().ok()) {
            out.add(family, &[], bytes);
        }
    }
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

/// Values of `BASE.*.LEAF`, each with the part of its name that `*` is.
fn values(params: &ParamTree, base: &str, leaf: &str) -> Vec<(String, String)> {
    let found = params.get(&format!("{base}.*.{leaf}")).unwrap_or_default();
    let depth = base.split('.').count();
    found.into_iter().map(|param| (part(&param.name, depth).to_owned(), param.value)).collect()
}

#[cfg(test)]
mod tests {
    use types::{Counter, Detail, Timespec};

    use super::*;

    /// Parameters for each family, as the daemons have them.
    fn tree() -> ParamTree {
        let params = ParamTree::new();
        for (name, value) in [
            ("version", "0.1.0"),
            ("health_check", "healthy"),
            ("req_bytes", "4096"),
            ("req_bytes_max", "2147483648"),
            ("mgs.MGS.num_exports", "3"),
            ("llite.testfs-9a80.lost", "1"),
            ("llite.testfs-9a80.waiting_on", "OST0000: lost\nOST0001: lost"),
            ("llite.testfs-9a80.writeback_bytes", "65536"),
            ("llite.testfs-9a80.writeback_stats", "writes: 40\nbytes: 4000\nruns: 2\nno_room: 3"),
            ("llite.testfs-9a80.opencache_stats", "opens: 50\ncloses: 60\nresting: 6"),
            ("llite.testfs-9a80.statahead_stats", AHEAD),
            ("ldlm.namespaces.testfs-MDT0000-mdc-9a80.lock_count", "7"),
            ("ldlm.namespaces.testfs-MDT0000-mdc-9a80.grant_hits", "70"),
            ("obdfilter.testfs-OST0001.kbytesavail", "4096"),
            ("obdfilter.testfs-OST0001.kbytesfree", ""),
            ("obdfilter.testfs-OST0001.dirty_data_bytes", "512"),
            ("obdfilter.testfs-OST0001.scrub_status", "status: damaged\npages_checked: 7\n"),
        ] {
            params.register(name, move || value.to_owned());
        }
        for (index, name) in OF_MDT.iter().enumerate() {
            let value = (index + 1).to_string();
            params.register(format!("mdt.testfs-MDT0000.{name}"), move || value.clone());
        }
        params.register("mdt.testfs-MDT0000.recovery_status", || RECOVERY.to_owned());
        params.register("mdt.testfs-MDT0000.som_status", || {
            "queued: 18\nrepaired: 17\nwritten: 1\nscrub: waiting\n".to_owned()
        });
        params.register("ost.OSS.ost_io.nrs_stats", || NRS.to_owned());
        let show = |name: &str, table: CounterTable| {
            params.register_table(name, move || Ok(table.clone()), None);
        };
        let rows = vec![
            Row::bytes("read_bytes", counter(&[4_096, 1_048_576, 1_048_576])),
            Row::bytes("write_bytes", counter(&[7])),
            Row::requests("create", 7),
            Row::requests("sync", 0),
        ];
        let at = Some(Timespec::new(1, 2));
        show("obdfilter.testfs-OST0001.stats", CounterTable::Lines { at, rows: rows.clone() });
        let groups = vec![("dd.0".to_owned(), rows)];
        let jobs = CounterTable::Groups { title: "job_stats", label: "job_id", groups };
        show("obdfilter.testfs-OST0001.job_stats", jobs);
        let row = |name, unit, samples: &[u64]| {
            let (counter, detail) = (counter(samples), Detail::Squares);
            Row { name, unit, counter, detail }
        };
        let rows = vec![
            row("req_waittime", "usec", &[1, 2, 3, 5, 9]),
            row("req_qdepth", "reqs", &[4, 2]),
            row("ost_read", "usec", &[250_000, 500_000]),
        ];
        show("ost.OSS.ost_io.stats", CounterTable::Lines { at: None, rows });
        show("ost.OSS.ost_io.requests_by_cpt", CounterTable::Numbers(vec![5, 0]));
        params
    }

    const OF_MDT: [&str; 16] = [
        "kbytestotal",
        "kbytesfree",
        "filestotal",
        "filesfree",
        "last_committed",
        "evictions",
        "callback_timeouts",
        "open_handles",
        "locks_held",
        "locks_waiting",
        "leases_held",
        "lease_waits",
        "grants_held",
        "grants_recalled",
        "grant_waits",
        "grants_expelled",
    ];

    const RECOVERY: &str = "status: RECOVERING\ntime_remaining: 9\nconnected_clients: 2/3\n\
                            completed_clients: 1/3\nreplayed_requests: 40\n\
                            queued_requests: 5\nnext_transno: 77\n";

    const AHEAD: &str = "statahead total: 5\nstatahead wrong: 1\nagl total: 30\n\
                         fname_total: 900\nhit_total: 800\nmiss_total: 20";

    const NRS: &str = "regular_requests:\n  - { name: fifo, queued: 2, active: 1, started: 8, \
                       declined: 0, removed: 0, promoted: 0, forced: 3, waited_us: 1500000, \
                       waited_us_max: 1000000 }\n";

    #[test]
    fn parameters_become_metrics_under_the_names_of_the_exporter() {
        let params = tree();
        let text = env_os::run(env_os::OsConfig::default(), |env| async move {
            gather(&env, &params, &Lnet::default())
        });
        assert_eq!(text, include_str!("scrape.txt"));
        // no peer is known here
        let of_peers = [families::PEER_CREDITS.name, families::PEER_QUEUE.name];
        for family in families::ALL {
            let is_shown = text.contains(&format!("# HELP {} {}\n", family.name, family.help));
            assert!(is_shown != of_peers.contains(&family.name), "{}", family.name);
        }
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

//! Prometheus: a daemon's parameters as metrics, under `lustre_exporter`'s names where it has them.
//!
//! The text is made from the parameter tree, as that exporter makes it from `/proc`. So the output
//! of `lctl get_param` and of a scrape cannot differ. Numbers, counters and states are read as
//! values ([`ParamTree::typed`]). A parameter's own text is printed from the same value, and no
//! text is parsed here. Tasks of the daemon's executor serve the text over plain HTTP/1.1. A scrape
//! makes its text in one turn (well below a millisecond for a server of ten targets) and never
//! waits for a server or a disk.
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
use params::{ParamTree, Verdict};
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
    for version in params.get("version").unwrap_or_default() {
        out.add(families::BUILD, &[("version", version.value.trim())], 1.0);
    }
    let is_healthy = params.typed::<Verdict>("health_check").iter().any(|(_, now)| now.is_well);
    let labels = [("component", "health"), ("target", "lustre")];
    out.add(families::HEALTH, &labels, f64::from(is_healthy));
    for (name, family) in
        [("req_bytes", families::REQUEST_MEMORY), ("req_bytes_max", families::REQUEST_MEMORY_MAX)]
    {
        for (_, bytes) in params.typed::<u64>(name) {
            out.add(family, &[], bytes as f64);
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
fn values<T: 'static>(params: &ParamTree, base: &str, leaf: &str) -> Vec<(String, T)> {
    let depth = base.split('.').count();
    let found = params.typed::<T>(&format!("{base}.*.{leaf}")).into_iter();
    found.map(|(name, value)| (part(&name, depth).to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use nrs::{Counters, HeadKind, HeadStats, NrsStats, PolicyStats};
    use params::{Fields, Lines};
    use ptlrpc::{Progress, RecoveryPhase, RecoveryStatus};
    use types::{Counter, Detail, Span, Timespec, Transno};

    use super::*;

    /// Parameters for each family, as the daemons have them.
    fn tree() -> ParamTree {
        let params = ParamTree::new();
        params.register("version", || "0.1.0".to_owned());
        params.register_typed("health_check", || Ok(Some(Verdict::health(""))));
        for (name, value) in [
            ("req_bytes", 4_096),
            ("req_bytes_max", 2_147_483_648),
            ("mgs.MGS.num_exports", 3),
            ("llite.testfs-9a80.lost", 1),
            ("llite.testfs-9a80.writeback_bytes", 65_536),
            ("ldlm.namespaces.testfs-MDT0000-mdc-9a80.lock_count", 7),
            ("ldlm.namespaces.testfs-MDT0000-mdc-9a80.grant_hits", 70),
            ("obdfilter.testfs-OST0001.kbytesavail", 4_096),
            ("obdfilter.testfs-OST0001.dirty_data_bytes", 512),
        ] {
            params.register_number(name, move || value);
        }
        params.register_typed("obdfilter.testfs-OST0001.kbytesfree", || Ok(None::<u64>));
        let written = vec![("writes", 40), ("bytes", 4_000), ("runs", 2), ("no_room", 3)];
        let opened = vec![("opens", 50), ("closes", 60), ("resting", 6)];
        for (name, fields) in [
            ("writeback_stats", written),
            ("opencache_stats", opened),
            ("statahead_stats", AHEAD.to_vec()),
        ] {
            let name = format!("llite.testfs-9a80.{name}");
            params.register_typed(name, move || Ok(Some(Fields(fields.clone()))));
        }
        params.register_typed("llite.testfs-9a80.waiting_on", || {
            let lines = ["OST0000: lost", "OST0001: lost"].map(str::to_owned);
            Ok(Some(Lines(lines.to_vec())))
        });
        params.register_typed("obdfilter.testfs-OST0001.scrub_status", || {
            Ok(Some(Verdict { is_well: false, text: "status: damaged\n".to_owned() }))
        });
        for (index, name) in OF_MDT.iter().enumerate() {
            let value = index as u64 + 1;
            params.register_number(format!("mdt.testfs-MDT0000.{name}"), move || value);
        }
        params.register_typed("mdt.testfs-MDT0000.recovery_status", || Ok(Some(recovering())));
        let sizes = vec![("queued", 18), ("repaired", 17), ("written", 1)];
        params.register_typed("mdt.testfs-MDT0000.som_status", move || {
            Ok(Some(Fields(sizes.clone())))
        });
        params.register_typed("ost.OSS.ost_io.nrs_stats", || Ok(Some(scheduled())));
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

    const AHEAD: &[(&str, u64)] = &[
        ("statahead total", 5),
        ("statahead wrong", 1),
        ("agl total", 30),
        ("fname_total", 900),
        ("hit_total", 800),
        ("miss_total", 20),
    ];

    fn recovering() -> RecoveryStatus {
        RecoveryStatus {
            phase: RecoveryPhase::Recovering,
            remaining_secs: 9,
            progress: Progress { connected: 2, completed: 1, clients: 3 },
            replayed: 40,
            queued: 5,
            next: Transno(77),
            waits_for: String::new(),
        }
    }

    fn scheduled() -> NrsStats {
        let counters = Counters {
            queued: 2,
            active: 1,
            started: 8,
            forced: 3,
            waited: Span::millis(1_500),
            waited_max: Span::secs(1),
            ..Counters::default()
        };
        let policies = vec![PolicyStats { name: "fifo", counters, parts: Vec::new() }];
        NrsStats(vec![HeadStats { kind: HeadKind::Reg, policies }])
    }

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

//! Prometheus: a daemon's parameters as metrics, under `lustre_exporter`'s names where it has them.
//!
//! The text is made from the parameter tree, as that exporter makes it from `/proc`. So the output
//! of `lctl get_param` and of a scrape cannot differ. Numbers, counters and states are read as
//! values ([`ParamTree::typed`]). A parameter's own text is printed from the same value, and no
//! text is parsed here. Tasks of the daemon's executor serve the text over plain HTTP/1.1. A scrape
//! makes its text in one turn, which is well below a millisecond for a server of ten targets. It
//! never waits for a server or a disk.
//!
//! Where a process has several executors, one of them answers for all. It asks the others for their
//! series, waits for them at most one second, and joins them.
//!
//! **Bounded**: at most `text::SERIES_MAX` series of an executor. Peers, client nodes and jobs have
//! bounds of their own. The peers with the fewest credits, the nodes with the most requests and the
//! jobs with the most operations are kept. Jobs come last, so they are left out first.
//! `nacre_metrics_dropped_series` counts the series that were left out, except those of nodes.

mod clients;
#[cfg(test)]
mod documents;
mod families;
mod http;
mod jobs;
mod network;
mod process;
mod services;
mod targets;
mod text;

use std::net::SocketAddr;
use std::rc::Rc;

use env::{Env, LocalFuture};
use env_os::Lnet;
use params::{ParamTree, Verdict};
use tokio::sync::{mpsc, oneshot};
use types::{CounterTable, Row, Span};

pub use http::Endpoint;
pub use text::Part;

use text::Exposition;

/// How long the executors of a process may take for their parts of a scrape. One that takes longer
/// is left out of it.
const OTHERS_WAIT: Span = Span::secs(1);

/// Scrapers that may wait for one executor.
pub const SCRAPES_WAITING_MAX: usize = 8;

/// A question to another executor of the process for its part of a scrape.
pub type Scrape = oneshot::Sender<Part>;

/// Everything that an executor shows.
#[derive(Clone)]
pub struct Shown {
    pub params: ParamTree,
    pub lnet: Lnet,
    /// Index of the executor, where its process has several. It becomes the label `executor`.
    pub executor: Option<usize>,
}

/// Answers scrapers at `at`, if anywhere, also for the other executors of the process. A monitor
/// must not stop a daemon: where it cannot listen, one line of the log says so and the daemon goes
/// on without it.
pub async fn start(
    env: &Env,
    at: Option<SocketAddr>,
    shown: Shown,
    others: Vec<mpsc::Sender<Scrape>>,
) -> Option<Endpoint> {
    let (at, env2, others) = (at?, env.clone(), Rc::new(others));
    let page = move || -> LocalFuture<'static, Part> {
        let asked = ask(&others);
        let mut own = parts(&env2, &shown);
        process::add(&mut own);
        let own = own.finish();
        if asked.is_empty() {
            return Box::pin(std::future::ready(own));
        }
        Box::pin(with_others(env2.clone(), own, asked, OTHERS_WAIT))
    };
    match http::serve(env, at, page).await {
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

/// Answers the executor of this process that scrapers ask, until that one ends.
pub async fn answer(env: Env, shown: Shown, mut scrapes: mpsc::Receiver<Scrape>) {
    while let Some(scrape) = scrapes.recv().await {
        let _it_has_waited_long_enough = scrape.send(gather(&env, &shown));
    }
}

/// Asks all of them, but for those that have too many questions already.
fn ask(others: &[mpsc::Sender<Scrape>]) -> Vec<Option<oneshot::Receiver<Part>>> {
    let ask = |other: &mpsc::Sender<Scrape>| {
        let (answer, part) = oneshot::channel();
        other.try_send(answer).ok().map(|()| part)
    };
    others.iter().map(ask).collect()
}

async fn with_others(
    env: Env,
    own: Part,
    asked: Vec<Option<oneshot::Receiver<Part>>>,
    wait: Span,
) -> Part {
    let until = env.now() + wait;
    let mut all = own;
    for part in asked {
        let answered = match part {
            Some(part) => env.timeout(until - env.now(), part).await.and_then(Result::ok),
            None => None,
        };
        all.join(answered);
    }
    all
}

/// A scrape of one executor, without its process.
fn gather(env: &Env, shown: &Shown) -> Part {
    parts(env, shown).finish()
}

fn parts(env: &Env, Shown { params, lnet, executor }: &Shown) -> Exposition {
    let mut out = Exposition::of(*executor);
    daemon(&mut out, params);
    targets::add(&mut out, params);
    services::add(&mut out, params);
    network::add(&mut out, env, lnet);
    targets::add_shares(&mut out, params);
    out
}

/// Version, health and memory.
fn daemon(out: &mut Exposition, params: &ParamTree) {
    for version in params.get("version").unwrap_or_default() {
        out.add(families::BUILD, &[("version", version.value.trim())], 1.0);
    }
    out.is_well = params.typed::<Verdict>("health_check").iter().any(|(_, now)| now.is_well);
    let (labels, is_well) = ([("component", "health"), ("target", "lustre")], out.is_well);
    out.add(families::HEALTH, &labels, f64::from(is_well));
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
    use types::{Counter, Detail, Histogram, Histograms, Span, Timespec, Transno};

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
        params.register_typed("osc.testfs-OST0001-osc-9a80.state", || {
            Ok(Some(Verdict { is_well: false, text: "DISCONN".to_owned() }))
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
        let waited = counter(&[250_000, 1_500_000]);
        let waits = Row { name: jobs::WAITS, unit: "usecs", counter: waited, detail: Detail::Sum };
        let shares = [rows, vec![waits]].concat();
        for (title, label, key) in
            [("job_stats", "job_id", "dd.0"), ("export_stats", "nid", "10.0.0.1@tcp")]
        {
            let groups = vec![(key.to_owned(), shares.clone())];
            let table = CounterTable::Groups { title, label, groups };
            show(&format!("obdfilter.testfs-OST0001.{title}"), table);
        }
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
        params.register_typed("ost.OSS.ost_io.req_histograms", || Ok(Some(durations())));
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

    fn durations() -> Histograms {
        let of = |samples: &[u64]| {
            let mut histogram = Histogram::default();
            samples.iter().for_each(|micros| histogram.add(*micros));
            histogram
        };
        let handled = of(&[250_000, 500_000]);
        Histograms(vec![
            ("req_waittime", of(&[1, 2, 3, 5, 9])),
            ("req_handling", handled),
            ("ost_read", handled),
            ("ost_write", of(&[])),
        ])
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
            gather(&env, &shown(params)).to_string()
        });
        assert_eq!(text, include_str!("scrape.txt"));
        // no peer is known here, and the process has a part of its own
        let of_peers = [families::PEER_CREDITS.name, families::PEER_QUEUE.name];
        for family in families::ALL {
            let is_shown = text.contains(&format!("# HELP {} {}\n", family.name, family.help));
            let is_absent = of_peers.contains(&family.name) || family.name.contains("process_");
            assert!(is_shown != is_absent, "{}", family.name);
        }
    }

    fn shown(params: ParamTree) -> Shown {
        Shown { params, lnet: Lnet::default(), executor: None }
    }

    #[test]
    fn one_executor_answers_for_all_and_waits_for_none_that_is_stuck() {
        env_os::run(env_os::OsConfig::default(), |env| async move {
            let (stuck, _is_never_read) = mpsc::channel(SCRAPES_WAITING_MAX);
            let (other, scrapes) = mpsc::channel(SCRAPES_WAITING_MAX);
            let elsewhere = move |env: Env| async move {
                let shown = Shown { executor: Some(1), ..shown(tree()) };
                answer(env, shown, scrapes).await;
            };
            let thread = env_os::spawn_thread("other", env_os::OsConfig::default(), elsewhere);
            let own = gather(&env, &Shown { executor: Some(0), ..shown(tree()) });
            let others = vec![other, stuck];
            // a busy machine may need more than a second for the other one's part
            let (begun, wait) = (env.now(), Span::secs(5));
            let all = with_others(env.clone(), own, ask(&others), wait).await;
            assert!(env.now() - begun < Span(2 * wait.0), "it waits once");
            assert!(!all.is_well, "one does not answer");
            let text = all.to_string();
            for executor in 0..2 {
                let labels = "component=\"client\",target=\"testfs-9a80\"";
                let line =
                    format!("nacre_lost_changes_total{{{labels},executor=\"{executor}\"}} 1\n");
                assert!(text.contains(&line), "{text}");
            }
            assert_eq!(text.matches("# HELP nacre_lost_changes_total ").count(), 1);
            let own = gather(&env, &Shown { executor: Some(0), ..shown(tree()) });
            let all = with_others(env.clone(), own, ask(&others[..1]), Span::secs(60)).await;
            assert!(all.is_well);
            drop(others);
            thread.expect("a thread").join().expect("no panic");
        });
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
            let try_at = |at| start(&env, at, shown(ParamTree::new()), Vec::new());
            let first = try_at(Some(any)).await.expect("a free port");
            assert!(try_at(Some(first.addr())).await.is_none());
            assert!(try_at(None).await.is_none());
        });
    }
}

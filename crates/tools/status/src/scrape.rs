//! The answers of daemons on any machine, as `--metrics` shows them: metrics become the parameters
//! that [`crate::model`] reads. They have fewer than a daemon of this machine answers.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use ctl::Who;
use ctl::everywhere::Daemon;
use types::printable;

use crate::ask::{Answered, Heard, Params};

/// Time of each step of a scrape: to connect, and to receive a part of the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of an answer at most: that of 4,096 series is well below 1 MiB for each executor.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Metrics of a target or mount that are parameters as they are, and the parameter.
const NUMBERS: &[(&str, &str)] = &[
    ("lustre_capacity_kibibytes", "kbytestotal"),
    ("lustre_available_kibibytes", "kbytesavail"),
    ("lustre_inodes_maximum", "filestotal"),
    ("lustre_inodes_free", "filesfree"),
    ("lustre_exports_total", "num_exports"),
    ("nacre_lost_changes_total", "lost"),
];

/// Components of metrics, and the first part of the names of their parameters.
const BASES: &[(&str, &str)] = &[
    ("mgs", "mgs"),
    ("mdt", "mdt"),
    ("mdt_data", "mdt_data"),
    ("ost", "obdfilter"),
    ("client", "llite"),
];

/// Asks the daemons that answer Prometheus at these addresses, all at once.
#[must_use]
pub fn ask(addresses: &[String]) -> Vec<Answered> {
    let answered = |(at, text): (&String, io::Result<String>)| {
        let heard = text.map(|text| heard(at, &text)).map_err(|error| error.to_string());
        let pid = heard.as_ref().map_or(0, |heard| heard.who.pid);
        let daemon = Daemon { name: at.clone(), pid, socket: PathBuf::new() };
        Answered { daemon, heard }
    };
    addresses.iter().zip(fetch_all(addresses)).map(answered).collect()
}

/// The metrics of these addresses, asked for at once.
#[must_use]
pub fn fetch_all(addresses: &[String]) -> Vec<io::Result<String>> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = addresses.iter().map(|at| scope.spawn(move || fetch(at))).collect();
        asked.into_iter().map(|answer| answer.join().expect("a scrape does not panic")).collect()
    })
}

/// Tries all addresses of a host, as `::1` and `127.0.0.1` of localhost.
fn connect(at: &str) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "no address");
    for addr in at.to_socket_addrs()? {
        match TcpStream::connect_timeout(&addr, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// `GET /metrics`.
fn fetch(at: &str) -> io::Result<String> {
    let mut stream = connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let question = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "no metrics")),
    }
}

/// A series: its name, labels and value.
#[derive(Debug, PartialEq)]
pub struct Series<'a> {
    pub name: &'a str,
    pub labels: Vec<(&'a str, String)>,
    pub value: f64,
}

impl Series<'_> {
    /// Empty where it has no such label.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(label, _)| *label == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Counters are whole numbers.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.value as u64
    }
}

/// A line of the exposition format. None for a comment, and for what is not understood.
#[must_use]
pub fn series(line: &str) -> Option<Series<'_>> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, quoted) = rest.split_once("=\"")?;
            let (value, behind) = unquoted(quoted)?;
            labels.push((label, value));
            rest = behind.strip_prefix(',').unwrap_or(behind);
        }
        rest = rest.strip_prefix('}')?;
    }
    Some(Series { name, labels, value: rest.trim().parse().ok()? })
}

/// The value up to its quotation mark, and the text behind it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return text.get(at + 1..).map(|rest| (value, rest)),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// What a daemon would answer to the questions of [`crate::model::PATTERNS`], as far as its metrics
/// say it.
fn heard(at: &str, text: &str) -> Heard {
    let all: Vec<Series<'_>> = text.lines().filter_map(series).collect();
    let mut heard = Heard::default();
    for series in &all {
        numbers(&mut heard.params, series);
        match series.name {
            "nacre_process_info" => heard.who.pid = series.label("pid").parse().unwrap_or(0),
            "nacre_build_info" => {
                heard.params.insert("version".into(), printable(series.label("version")));
            }
            "lustre_health_check" if series.value == 0.0 => {
                let ill = "NOT HEALTHY\nnacre status on its machine shows the reason";
                heard.params.insert("health_check".into(), ill.into());
            }
            _ => {}
        }
    }
    recoveries(&mut heard.params, &all);
    policies(&mut heard.params, &all);
    heard.who.kind = "server".into();
    if let Some(mount) = all.iter().find(|series| series.name == "nacre_awaited_servers") {
        connections(&mut heard, at, mount, &all);
    }
    heard
}

/// `obdfilter.testfs-OST0000`
fn base(series: &Series<'_>) -> Option<String> {
    let (_, base) = BASES.iter().find(|(component, _)| *component == series.label("component"))?;
    Some(format!("{base}.{}", printable(series.label("target"))))
}

fn numbers(params: &mut Params, series: &Series<'_>) {
    let Some((_, leaf)) = NUMBERS.iter().find(|(name, _)| *name == series.name) else { return };
    if let Some(base) = base(series) {
        params.insert(format!("{base}.{leaf}"), series.count().to_string());
    }
}

fn recoveries(params: &mut Params, all: &[Series<'_>]) {
    for state in all.iter().filter(|series| series.name == "nacre_recovery_state") {
        let Some(base) = base(state) else { continue };
        let of_it = |series: &&Series<'_>| {
            series.label("target") == state.label("target")
                && series.label("component") == state.label("component")
        };
        let value = |name: &str, which: &str| {
            let is = |series: &&Series<'_>| series.name == name && series.label("state") == which;
            all.iter().filter(of_it).find(is).map_or(0, Series::count)
        };
        let status = match state.count() {
            0 => "COMPLETE",
            1 => "WAITING",
            _ => "RECOVERING",
        };
        let left = value("nacre_recovery_remaining_seconds", "");
        let back = value("nacre_recovery_clients", "connected");
        let known = value("nacre_recovery_clients", "known");
        let text = format!(
            "status: {status}\ntime_remaining: {left}\nconnected_clients: {back}/{known}\n"
        );
        params.insert(format!("{base}.recovery_status"), text);
    }
}

/// Requests of a policy: those that wait, run, and have been started.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    queued: u64,
    active: u64,
    started: u64,
}

/// Metrics do not say which policy is in force. The one that has started most requests is shown.
fn policies(params: &mut Params, all: &[Series<'_>]) {
    let mut loads: BTreeMap<(String, String), BTreeMap<String, Load>> = BTreeMap::new();
    for series in all.iter().filter(|series| series.name.starts_with("nacre_nrs_")) {
        let head = (printable(series.label("service")), printable(series.label("head")));
        let policies = loads.entry(head).or_default();
        let load = policies.entry(printable(series.label("policy"))).or_default();
        let sum = match series.name {
            "nacre_nrs_queued_requests" => &mut load.queued,
            "nacre_nrs_active_requests" => &mut load.active,
            "nacre_nrs_started_requests_total" => &mut load.started,
            _ => continue,
        };
        *sum = sum.saturating_add(series.count());
    }
    // `high_priority` is before `regular` in the map, and behind it in the text
    for ((service, head), policies) in loads.iter().rev() {
        let most = policies.values().map(|load| load.started).max().unwrap_or(0);
        let mut text = format!("{head}_requests:\n");
        for (name, load) in policies {
            let is_it = most > 0 && load.started == most;
            let state = if is_it { "started" } else { "stopped" };
            let Load { queued, active, .. } = load;
            text.push_str(&format!(
                "  - name: {name}\n    state: {state}\n    fallback: no\n    \
                 queued: {queued}\n    active: {active}\n"
            ));
        }
        params.entry(format!("ost.{service}.nrs_policies")).or_default().push_str(&text);
    }
}

/// The mount that a client serves, and its sessions with targets. One that no call has used yet
/// looks like one that is lost, so sessions count only while the mount waits for a server.
fn connections(heard: &mut Heard, at: &str, mount: &Series<'_>, all: &[Series<'_>]) {
    let instance = printable(mount.label("target"));
    let fsname = instance.rsplit_once('-').map_or("", |(fsname, _)| fsname).to_owned();
    let (kind, mounted) = ("client".to_owned(), Some(at.to_owned()));
    heard.who = Who { kind, fsname, mount: mounted, ..std::mem::take(&mut heard.who) };
    let awaited = mount.count();
    if awaited > 0 {
        let waits = format!("servers: {awaited}");
        heard.params.insert(format!("llite.{instance}.waiting_on"), waits);
    }
    for series in all.iter().filter(|series| series.name == "nacre_import_up") {
        let name = printable(series.label("target"));
        let is_of = |kind: &&&str| name.contains(&format!("-{kind}-"));
        let Some(kind) = ["mdc", "mdc_data", "osc"].iter().find(is_of) else { continue };
        let state = match (series.count(), awaited) {
            (0, 0) => "NEW",
            (0, _) => "DISCONN",
            _ => "FULL",
        };
        heard.params.insert(format!("{kind}.{name}.state"), state.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{self, Verdict};

    #[test]
    fn series_have_labels_and_values() {
        let parsed = series("a{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 2.5").expect("a series");
        assert_eq!((parsed.name, parsed.value, parsed.label("x")), ("a", 2.5, "1"));
        assert_eq!((parsed.label("y"), parsed.label("z")), ("a\"b\\c\nd", ""));
        assert_eq!(series("up 1").map(|series| series.value), Some(1.0));
        for odd in ["", "# HELP a b", "a", "a{x} 1", "a{x=\"1} 1", "a{x=\"1\" 1", "a{} x"] {
            assert_eq!(series(odd), None, "{odd}");
        }
    }

    const SERVER: &str = "\
        nacre_process_info{name=\"nacre\",pid=\"42\"} 1\n\
        nacre_build_info{version=\"nacre 0.1.0\"} 1\n\
        lustre_health_check{component=\"health\",target=\"lustre\"} 1\n\
        lustre_capacity_kibibytes{component=\"ost\",target=\"t-OST0000\"} 9000\n\
        lustre_available_kibibytes{component=\"ost\",target=\"t-OST0000\"} 4000\n\
        lustre_inodes_maximum{component=\"ost\",target=\"t-OST0000\"} 900\n\
        lustre_inodes_free{component=\"ost\",target=\"t-OST0000\"} 800\n\
        lustre_exports_total{component=\"ost\",target=\"t-OST0000\"} 3\n\
        nacre_recovery_state{component=\"ost\",target=\"t-OST0000\"} 2\n\
        nacre_recovery_remaining_seconds{component=\"ost\",target=\"t-OST0000\"} 11\n\
        nacre_recovery_clients{component=\"ost\",target=\"t-OST0000\",state=\"known\"} 2\n\
        nacre_recovery_clients{component=\"ost\",target=\"t-OST0000\",state=\"connected\"} 1\n\
        nacre_nrs_queued_requests{service=\"ost_io\",head=\"regular\",policy=\"tbf\"} 2\n\
        nacre_nrs_started_requests_total{service=\"ost_io\",head=\"regular\",policy=\"tbf\"} 6\n\
        nacre_nrs_started_requests_total{service=\"ost_io\",head=\"regular\",policy=\"fifo\"} 1\n\
        nacre_nrs_started_requests_total{service=\"ost_io\",head=\"high_priority\",policy=\"fifo\"} 1\n";

    const CLIENT: &str = "\
        lustre_health_check{component=\"health\",target=\"lustre\"} 0\n\
        nacre_awaited_servers{component=\"client\",target=\"t-9a80\"} 1\n\
        nacre_lost_changes_total{component=\"client\",target=\"t-9a80\"} 5\n\
        nacre_import_up{component=\"client\",target=\"t-OST0000-osc-9a80\"} 0\n\
        nacre_import_up{component=\"client\",target=\"t-MDT0000-mdc-9a80\"} 1\n";

    fn answered(at: &str, text: &str) -> Answered {
        let daemon = Daemon { name: at.to_owned(), pid: 0, socket: PathBuf::new() };
        Answered { daemon, heard: Ok(heard(at, text)) }
    }

    #[test]
    fn metrics_of_servers_and_mounts_become_a_status() {
        let both = [answered("oss1:9169", SERVER), answered("node1:9169", CLIENT)];
        let status = model::status(&both, &[]);
        assert_eq!(status.verdict, Verdict::Degraded);
        let wanted = [
            "t-OST0000 is in recovery: 1 of 2 clients are back, 11 s left",
            "node1:9169 has no connection to t-OST0000 (DISCONN)",
        ];
        assert_eq!(status.troubles, wanted);
        let target = &status.targets[1];
        assert_eq!(
            (target.name.as_str(), target.role, target.sessions),
            ("t-OST0000", "OST", Some(3))
        );
        assert_eq!(
            target.space.map(|space| (space.kib_free, space.files_free)),
            Some((4_000, 800))
        );
        assert_eq!(
            (status.targets[0].name.as_str(), status.targets[0].state.as_str()),
            ("t-MDT0000", "up")
        );
        let service = &status.services[0];
        assert_eq!((service.regular.as_str(), service.queued), ("tbf", 2));
        assert_eq!(service.high_priority.as_deref(), Some("fifo"));
        let mount = &status.mounts[0];
        assert_eq!((mount.fsname.as_str(), mount.lost), ("t", 5));
        assert_eq!(mount.waiting_on, ["servers: 1"]);
        assert_eq!(status.daemons[0].version, "nacre 0.1.0");
    }
}

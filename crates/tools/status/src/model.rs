//! One [`Status`] of all answers, and its troubles.
//!
//! Pure: the same answers give the same status. The JSON that `nacre status --json` prints is this
//! type; `docs/operations.md` lists its keys, which stay.

use std::collections::{BTreeMap, BTreeSet};

use ctl::everywhere::Daemon;
use serde::Serialize;
use types::printable;

use crate::ask::{Answered, Heard, MountAt, Params};
use crate::read::{self, Recovery, Session};

/// The parameters that [`status`] reads.
pub const PATTERNS: &[&str] = &[
    "{version,health_check}",
    "{mgs,mdt,mdt_data,obdfilter}.*.{recovery_status,exports,mntdev}",
    "{mgs,mdt,mdt_data,obdfilter}.*.{kbytestotal,kbytesavail,filestotal,filesfree}",
    "{mdt,mdt_data,obdfilter}.*.{degraded,readonly,no_create}",
    "*.*.*.nrs_policies",
    "llite.*.{waiting_on,lost}",
    "{mdc,mdc_data,osc}.*.{state,active,import}",
];

/// First parts of the names of a target's parameters, and the target's role.
const ROLES: [(&str, &str); 4] =
    [("mgs", "MGS"), ("mdt", "MDT"), ("mdt_data", "DOM"), ("obdfilter", "OST")];

/// States that an administrator may give a target, by parameter, with the letters of `lfs df`.
const MARKS: [(&str, char); 3] = [("degraded", 'D'), ("readonly", 'R'), ("no_create", 'N')];

/// First parts of the names of a connector's parameters.
const CONNECTORS: [&str; 3] = ["mdc", "mdc_data", "osc"];

/// A target with less than one part in this many free gets no new files.
const FULL_PARTS: u64 = 1_000;

/// A target with fewer free objects gets no new files.
const FULL_FILES: u64 = 32;

/// How everything is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No trouble was found.
    Well,
    /// At least one trouble was found.
    Degraded,
    /// No daemon runs here, and nothing is mounted.
    Nothing,
}

impl Verdict {
    /// For scripts. 1 and 2 are every command's failure and wrong usage.
    #[must_use]
    pub fn exit_status(self) -> u8 {
        match self {
            Verdict::Well => 0,
            Verdict::Degraded => 3,
            Verdict::Nothing => 4,
        }
    }
}

/// Everything that one look has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    pub verdict: Verdict,
    /// A line for each trouble.
    pub troubles: Vec<String>,
    pub daemons: Vec<DaemonState>,
    pub targets: Vec<Target>,
    pub services: Vec<Service>,
    /// Clients of the MDTs of this machine.
    pub clients: Vec<Session>,
    pub mounts: Vec<Mount>,
}

/// A daemon of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DaemonState {
    pub name: String,
    pub pid: u32,
    /// `server` or `client`; empty where it does not answer.
    pub kind: String,
    pub version: String,
    /// Why there is no answer.
    pub silence: Option<String>,
}

/// A target of this machine, or one that a mount here uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    pub name: String,
    /// `MGS`, `MDT`, `DOM` (the data of an MDT) or `OST`.
    pub role: &'static str,
    /// `up`, `waiting`, `recovering`, `inactive`, or the state of a mount's connection.
    pub state: String,
    /// What its administrator said of it, a letter each: `D` degraded, `R` read-only, `N` gets no
    /// new files. Empty where another machine serves it.
    pub letters: String,
    /// Name of its daemon; none where another machine serves it.
    pub daemon: Option<String>,
    /// Its directory, or the address of its server.
    pub at: String,
    pub space: Option<Space>,
    /// Clients and servers that are connected.
    pub sessions: Option<u64>,
    /// Its recovery, while requests wait for that.
    pub recovery: Option<Recovery>,
}

/// Room of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Space {
    pub kib_total: u64,
    pub kib_free: u64,
    pub files_total: u64,
    pub files_free: u64,
}

impl Space {
    /// Whether it gets no new files. Some file systems have no limit of files and report zero.
    fn is_full(&self) -> bool {
        let few = self.files_total > 0 && self.files_free < FULL_FILES;
        few || self.kib_free < self.kib_total / FULL_PARTS
    }
}

/// A service with its policies. Servers with equal policies share an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Service {
    pub name: String,
    /// Policy in force for regular requests.
    pub regular: String,
    /// The same for high-priority requests, where the service has a head for them.
    pub high_priority: Option<String>,
    /// Requests that wait, on all these servers.
    pub queued: u64,
    /// Requests that a policy has released and that are not finished.
    pub active: u64,
    /// Daemons.
    pub servers: Vec<String>,
}

/// A mount of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    pub dir: String,
    pub fsname: String,
    /// Name of its daemon; none if that is gone.
    pub daemon: Option<String>,
    /// Targets that its callers wait for.
    pub waiting_on: Vec<String>,
    /// Acknowledged changes that are lost.
    pub lost: u64,
}

/// A mount's connection to a target.
struct Connector {
    target: String,
    role: &'static str,
    /// State of the import.
    import: String,
    is_active: bool,
    nid: String,
}

impl Connector {
    /// As the table of targets shows it.
    fn state(&self) -> String {
        match (self.is_active, self.import.as_str()) {
            (false, _) => "inactive".into(),
            (true, "FULL") => "up".into(),
            (true, other) => other.to_lowercase(),
        }
    }

    /// Whether calls that need the target wait. A connector that no call has used yet is NEW: it is
    /// away if the target's address is of this machine alone, and no daemon here serves it.
    fn is_away(&self, is_local: bool) -> bool {
        let is_lost = match self.import.as_str() {
            "FULL" => false,
            "NEW" => !is_local && self.nid.starts_with("127."),
            _ => true,
        };
        self.is_active && is_lost
    }
}

/// Makes one status of all answers and mounts.
#[must_use]
pub fn status(answers: &[Answered], table: &[MountAt]) -> Status {
    let mut status = Status {
        verdict: Verdict::Nothing,
        troubles: Vec::new(),
        daemons: answers.iter().map(daemon).collect(),
        targets: Vec::new(),
        services: services(answers),
        clients: clients(answers),
        mounts: mounts(answers, table),
    };
    for (answered, heard) in those_that_answer(answers) {
        status.targets.extend(targets(&answered.daemon, &heard.params));
    }
    status.troubles.extend(silent(answers));
    status.troubles.extend(ill(answers));
    status.troubles.extend(status.targets.iter().filter_map(trouble_of));
    add_connectors(&mut status, answers);
    add_known(&mut status.targets, answers);
    status.troubles.extend(status.mounts.iter().filter_map(gone));
    status.targets.sort_by_key(|target| (order(target.role), target.name.clone()));
    status.verdict = match (answers.is_empty() && table.is_empty(), status.troubles.is_empty()) {
        (true, _) => Verdict::Nothing,
        (_, true) => Verdict::Well,
        (_, false) => Verdict::Degraded,
    };
    status
}

fn those_that_answer(answers: &[Answered]) -> impl Iterator<Item = (&Answered, &Heard)> {
    answers.iter().filter_map(|answered| Some((answered, answered.heard.as_ref().ok()?)))
}

fn order(role: &str) -> usize {
    ROLES.iter().position(|(_, known)| *known == role).unwrap_or(ROLES.len())
}

fn daemon(answered: &Answered) -> DaemonState {
    let Daemon { name, pid, .. } = answered.daemon.clone();
    let (kind, version, silence) = match &answered.heard {
        Ok(heard) => {
            let version = heard.params.get("version").map_or("", |version| version.trim());
            (heard.who.kind.clone(), version.to_owned(), None)
        }
        Err(why) => (String::new(), String::new(), Some(why.clone())),
    };
    DaemonState { name, pid, kind, version, silence }
}

fn silent(answers: &[Answered]) -> Vec<String> {
    let line = |answered: &Answered| {
        let why = answered.heard.as_ref().err()?;
        Some(format!("{}: {why}", answered.daemon))
    };
    answers.iter().filter_map(line).collect()
}

/// Servers that report that they are not healthy. A mount is not healthy while it waits for a
/// target, and its connectors say that.
fn ill(answers: &[Answered]) -> Vec<String> {
    let line = |(answered, heard): (&Answered, &Heard)| {
        let text = heard.params.get("health_check").filter(|_| heard.who.kind == "server")?;
        let lines = text.trim().strip_prefix("NOT HEALTHY")?;
        let reasons: Vec<&str> = lines.lines().filter(|line| !line.is_empty()).collect();
        Some(format!("{} is not healthy: {}", answered.daemon, reasons.join("; ")))
    };
    those_that_answer(answers).filter_map(line).collect()
}

/// Parts of a parameter's name: kind, object, leaf.
fn parts(name: &str) -> Option<(&str, &str, &str)> {
    let (kind, rest) = name.split_once('.')?;
    let (object, leaf) = rest.split_once('.')?;
    Some((kind, object, leaf))
}

fn number(params: &Params, name: &str) -> Option<u64> {
    params.get(name)?.trim().parse().ok()
}

/// The targets that this daemon serves.
fn targets(daemon: &Daemon, params: &Params) -> Vec<Target> {
    let target = |(name, text): (&String, &String)| {
        let (kind, object, leaf) = parts(name)?;
        let role = ROLES.iter().find(|(known, _)| *known == kind)?.1;
        let recovery = (leaf == "recovery_status").then(|| read::recovery(text))??;
        let base = format!("{kind}.{object}");
        let is_running = recovery.is_running();
        let state = if is_running { recovery.status.to_lowercase() } else { "up".to_owned() };
        let is_marked = |(leaf, _): &&(&str, char)| {
            number(params, &format!("{base}.{leaf}")).is_some_and(|mark| mark != 0)
        };
        Some(Target {
            name: object.to_owned(),
            role,
            state,
            letters: MARKS.iter().filter(is_marked).map(|(_, letter)| *letter).collect(),
            daemon: Some(daemon.name.clone()),
            at: params.get(&format!("{base}.mntdev")).cloned().unwrap_or_default(),
            space: space(params, &base),
            sessions: params
                .get(&format!("{base}.exports"))
                .map(|text| read::sessions(text).len() as u64)
                .or_else(|| number(params, &format!("{base}.num_exports"))),
            recovery: is_running.then_some(recovery),
        })
    };
    params.iter().filter_map(target).collect()
}

fn space(params: &Params, base: &str) -> Option<Space> {
    let of = |leaf: &str| number(params, &format!("{base}.{leaf}"));
    Some(Space {
        kib_total: of("kbytestotal")?,
        kib_free: of("kbytesavail")?,
        files_total: of("filestotal")?,
        files_free: of("filesfree")?,
    })
}

fn trouble_of(target: &Target) -> Option<String> {
    if let Some(recovery) = &target.recovery {
        let Recovery { seconds_left, connected, known, waiting_for, .. } = recovery;
        let left = if target.state == "waiting" {
            "no client has come back yet".to_owned()
        } else {
            format!("{connected} of {known} clients are back, {seconds_left} s left")
        };
        let awaited = if waiting_for.is_empty() {
            String::new()
        } else {
            format!("; it waits for {waiting_for}")
        };
        return Some(format!("{} is in recovery: {left}{awaited}", target.name));
    }
    let is_full = target.space.is_some_and(|space| space.is_full());
    is_full.then(|| {
        let few = "less than 0.1 % of its space, or fewer than 32 objects, are free";
        format!("{} is full: {few}", target.name)
    })
}

/// Clients of the MDTs, each once.
fn clients(answers: &[Answered]) -> Vec<Session> {
    let mut found = BTreeSet::new();
    for (_, heard) in those_that_answer(answers) {
        for (name, text) in &heard.params {
            if matches!(parts(name), Some(("mdt", _, "exports"))) {
                found.extend(read::sessions(text).into_iter().filter(|one| !one.is_server()));
            }
        }
    }
    found.into_iter().collect()
}

/// Services of all servers; those with equal policies are one entry.
fn services(answers: &[Answered]) -> Vec<Service> {
    let mut found: BTreeMap<(String, String, Option<String>), Service> = BTreeMap::new();
    for (answered, heard) in those_that_answer(answers) {
        for (name, text) in &heard.params {
            let Some(path) = name.strip_suffix(".nrs_policies") else { continue };
            let Some(policies) = read::policies(text) else { continue };
            let service = path.rsplit('.').next().unwrap_or(path);
            let (regular, high_priority) = (policies.regular, policies.high_priority);
            let key = (service.to_owned(), regular.clone(), high_priority.clone());
            let entry = found.entry(key).or_insert_with(|| Service {
                name: service.to_owned(),
                regular,
                high_priority,
                queued: 0,
                active: 0,
                servers: Vec::new(),
            });
            entry.queued = entry.queued.saturating_add(policies.queued);
            entry.active = entry.active.saturating_add(policies.active);
            entry.servers.push(answered.daemon.name.clone());
        }
    }
    found.into_values().collect()
}

/// The value of `llite.*.LEAF`; a mount has one.
fn of_mount<'a>(params: &'a Params, leaf: &str) -> Option<&'a String> {
    let is_it = |name: &str| matches!(parts(name), Some(("llite", _, found)) if found == leaf);
    params.iter().find(|(name, _)| is_it(name)).map(|(_, value)| value)
}

/// Mounts of the kernel's table, and daemons that serve none there: they end, or their mount is in
/// another namespace.
fn mounts(answers: &[Answered], table: &[MountAt]) -> Vec<Mount> {
    let mut all: Vec<Mount> = table.iter().map(|at| mount(answers, at)).collect();
    for (answered, heard) in those_that_answer(answers) {
        let Some(dir) = &heard.who.mount else { continue };
        let is_there = |at: &MountAt| is_of(at, &answered.daemon);
        if !table.iter().any(is_there) {
            let (dir, fsname) = (dir.clone(), heard.who.fsname.clone());
            let daemon = Some(answered.daemon.clone());
            all.push(mount(answers, &MountAt { dir, fsname, daemon }));
        }
    }
    all
}

/// Whether this daemon serves the mount. Two paths may lead to its socket.
fn is_of(at: &MountAt, daemon: &Daemon) -> bool {
    at.daemon.as_ref().is_some_and(|of| of.pid == daemon.pid && of.name == daemon.name)
}

fn mount(answers: &[Answered], at: &MountAt) -> Mount {
    let is_its = |answered: &&Answered| is_of(at, &answered.daemon);
    let heard = answers.iter().find(is_its).and_then(|answered| answered.heard.as_ref().ok());
    let value = |leaf| heard.and_then(|heard| of_mount(&heard.params, leaf));
    let waiting = value("waiting_on").map_or("", String::as_str);
    Mount {
        dir: printable(&at.dir),
        fsname: printable(&at.fsname),
        daemon: at.daemon.as_ref().map(|daemon| daemon.name.clone()),
        waiting_on: waiting.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        lost: value("lost").and_then(|text| text.trim().parse().ok()).unwrap_or(0),
    }
}

fn gone(mount: &Mount) -> Option<String> {
    let Mount { dir, daemon, .. } = mount;
    daemon.is_none().then(|| format!("{dir}: no daemon serves this mount; umount(8) removes it"))
}

/// The connectors of a mount.
fn connectors(params: &Params) -> Vec<Connector> {
    let connector = |(name, state): (&String, &String)| {
        let (kind, object, leaf) = parts(name)?;
        // a target that was forgotten has no state any more
        if leaf != "state" || !CONNECTORS.contains(&kind) || state.trim().is_empty() {
            return None;
        }
        let (target, _instance) = object.rsplit_once(&format!("-{kind}-"))?;
        let role = match kind {
            "mdc" => "MDT",
            "mdc_data" => "DOM",
            _ => "OST",
        };
        let leaf = |leaf: &str| params.get(&format!("{kind}.{object}.{leaf}"));
        Some(Connector {
            target: target.to_owned(),
            role,
            import: state.trim().to_owned(),
            is_active: leaf("active").is_none_or(|active| active.trim() != "0"),
            nid: leaf("import").and_then(|text| read::address(text)).unwrap_or_default(),
        })
    };
    params.iter().filter_map(connector).collect()
}

/// Adds the targets that a mount knows and no daemon here serves, and the troubles of connections.
fn add_connectors(status: &mut Status, answers: &[Answered]) {
    let local: BTreeSet<String> = status.targets.iter().map(|target| target.name.clone()).collect();
    let mut inactive = BTreeSet::new();
    let mut elsewhere: BTreeMap<String, Target> = BTreeMap::new();
    for (_, heard) in those_that_answer(answers) {
        let dir = printable(heard.who.mount.as_deref().unwrap_or_default());
        for connector in connectors(&heard.params) {
            let Connector { target, nid, import, .. } = &connector;
            if connector.is_away(local.contains(target)) {
                let at = if nid.is_empty() { String::new() } else { format!(" at {nid}") };
                let line = format!("{dir} has no connection to {target}{at} ({import})");
                status.troubles.push(line);
            }
            if !connector.is_active {
                inactive.insert(target.clone());
            }
            if local.contains(target) {
                continue;
            }
            let seen = elsewhere.entry(target.clone()).or_insert_with(|| remote(&connector));
            if connector.state() == "up" {
                seen.state = connector.state();
            }
        }
    }
    for target in &inactive {
        let line = format!("{target} is out of use (active=0): calls that need it fail with EIO");
        status.troubles.push(line);
    }
    let is_inactive = |target: &&mut Target| inactive.contains(&target.name);
    for target in status.targets.iter_mut().filter(is_inactive) {
        target.state = "inactive".to_owned();
    }
    status.targets.extend(elsewhere.into_values());
}

fn remote(connector: &Connector) -> Target {
    Target {
        name: connector.target.clone(),
        role: connector.role,
        state: connector.state(),
        letters: String::new(),
        daemon: None,
        at: connector.nid.clone(),
        space: None,
        sessions: None,
        recovery: None,
    }
}

/// Adds the MDTs and OSTs that a server knows and that neither a daemon nor a mount here has shown.
fn add_known(targets: &mut Vec<Target>, answers: &[Answered]) {
    let shown: BTreeSet<String> = targets.iter().map(|target| target.name.clone()).collect();
    let known: BTreeSet<&String> =
        those_that_answer(answers).flat_map(|(_, heard)| known_to(&heard.who)).collect();
    for name in known.into_iter().filter(|name| !shown.contains(*name)) {
        let is = |role: &str| name.contains(&format!("-{role}"));
        let role = ["MDT", "DOM"].into_iter().find(|role| is(role)).unwrap_or("OST");
        targets.push(Target {
            name: name.clone(),
            role,
            state: "not here".into(),
            letters: String::new(),
            daemon: None,
            at: String::new(),
            space: None,
            sessions: None,
            recovery: None,
        });
    }
}

fn known_to(who: &ctl::Who) -> impl Iterator<Item = &String> {
    who.mdts.iter().chain(&who.osts)
}

#[cfg(test)]
mod tests;

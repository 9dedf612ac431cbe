//! Reads the texts of parameters. A text that is not understood gives nothing; it is never an
//! error, because a daemon may be older or newer than this command. The text in Lustre's form is
//! the interface that stays between versions. So the control socket has no second interface of
//! typed values.

use serde::Serialize;

/// A target's recovery, from `recovery_status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// `WAITING`, `RECOVERING` or `COMPLETE`.
    pub status: String,
    pub seconds_left: u64,
    /// Clients that are back.
    pub connected: u64,
    /// Clients that it knows from before.
    pub known: u64,
    /// The missing clients, with the time that each has left, or other MDTs.
    pub waiting_for: String,
}

impl Recovery {
    /// Whether requests wait for it.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.status != "COMPLETE"
    }
}

/// Reads `recovery_status`.
#[must_use]
pub fn recovery(text: &str) -> Option<Recovery> {
    let field = |name: &str| {
        let of = |line: &str| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned);
        text.lines().find_map(of)
    };
    let (connected, known) = field("connected_clients")
        .unwrap_or_default()
        .split_once('/')
        .map_or((0, 0), |(connected, known)| {
            (connected.parse().unwrap_or(0), known.parse().unwrap_or(0))
        });
    Some(Recovery {
        status: field("status")?,
        seconds_left: field("time_remaining").and_then(|text| text.parse().ok()).unwrap_or(0),
        connected,
        known,
        waiting_for: field("waiting_for").unwrap_or_default(),
    })
}

/// A session of a target, from a line of `exports`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Session {
    /// Id of the client or server, as far as targets show it.
    pub id: String,
    /// Its name for itself: machine and mount point.
    pub name: String,
    pub nid: String,
}

impl Session {
    /// Whether it is another server's, which calls itself `TARGET ... at ADDRESS`. A client's name
    /// has a colon in its first word.
    pub(crate) fn is_server(&self) -> bool {
        let first = self.name.split(' ').next().unwrap_or_default();
        first == "MGS" || first.parse::<types::TargetId>().is_ok()
    }
}

/// Reads `exports`.
#[must_use]
pub fn sessions(text: &str) -> Vec<Session> {
    let session = |line: &str| {
        let mut words = line.splitn(4, ' ').map(str::to_owned);
        let (id, _session, nid) = (words.next()?, words.next()?, words.next()?);
        Some(Session { id, nid, name: words.next().unwrap_or_default() })
    };
    text.lines().filter_map(session).collect()
}

/// The policies of a service, from `nrs_policies`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// The policy in force for regular requests.
    pub regular: String,
    /// The same for high-priority requests, where the service has a head for them.
    pub high_priority: Option<String>,
    /// Requests that wait.
    pub queued: u64,
    /// Requests that a policy has released and that are not finished.
    pub active: u64,
}

/// One entry of the list.
#[derive(Default)]
struct Policy {
    name: String,
    state: String,
    is_fallback: bool,
}

/// Reads `nrs_policies`.
#[must_use]
pub fn policies(text: &str) -> Option<Policies> {
    let (regular, high) = match text.split_once("high_priority_requests:") {
        Some((regular, high)) => (regular, Some(high)),
        None => (text, None),
    };
    let (mut queued, mut active) = (0, 0);
    let mut force = |head: &str| {
        let (list, counts) = head_of(head);
        queued = counts.0.saturating_add(queued);
        active = counts.1.saturating_add(active);
        in_force(&list)
    };
    let regular = force(regular.split_once("regular_requests:")?.1);
    let high_priority = high.map(&mut force);
    Some(Policies { regular, high_priority, queued, active })
}

/// Zero where it is not one.
fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// The policies of a head, and the sums of their waiting and running requests.
fn head_of(text: &str) -> (Vec<Policy>, (u64, u64)) {
    let (mut list, mut counts) = (Vec::<Policy>::new(), (0, 0));
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("- name: ") {
            list.push(Policy { name: name.to_owned(), ..Policy::default() });
            continue;
        }
        let (Some((key, value)), Some(policy)) = (line.split_once(": "), list.last_mut()) else {
            continue;
        };
        match key {
            "state" => policy.state = value.to_owned(),
            "fallback" => policy.is_fallback = value == "yes",
            "queued" => counts.0 = number(value).saturating_add(counts.0),
            "active" => counts.1 = number(value).saturating_add(counts.1),
            _ => {}
        }
    }
    (list, counts)
}

/// The policy that orders new requests, and in brackets those that start or stop.
fn in_force(list: &[Policy]) -> String {
    let runs = |policy: &&Policy| policy.state == "started";
    let primary = list.iter().filter(runs).find(|policy| !policy.is_fallback);
    let fallback = list.iter().filter(runs).find(|policy| policy.is_fallback);
    let mut shown =
        primary.or(fallback).map_or_else(|| "none".into(), |policy| policy.name.clone());
    for policy in list {
        if matches!(policy.state.as_str(), "starting" | "stopping") {
            shown.push_str(&format!(" ({} is {})", policy.name, policy.state));
        }
    }
    shown
}

/// The address of a connector's server, from its `import`.
#[must_use]
pub fn address(import: &str) -> Option<String> {
    let of = |line: &str| line.trim().strip_prefix("current_connection: ").map(str::to_owned);
    import.lines().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECOVERING: &str = "status: RECOVERING\ntime_remaining: 11\nconnected_clients: 1/2\n\
        completed_clients: 1/2\nreplayed_requests: 4\nqueued_requests: 0\nnext_transno: 77\n\
        waiting_for: node1:/mnt (11 s), node2:/mnt (2 s, was silent before)\n";

    #[test]
    fn recovery_names_the_missing_clients() {
        let read = recovery(RECOVERING).expect("a status");
        assert!(read.is_running());
        assert_eq!((read.seconds_left, read.connected, read.known), (11, 1, 2));
        assert_eq!(read.waiting_for, "node1:/mnt (11 s), node2:/mnt (2 s, was silent before)");
        let over = recovery("status: COMPLETE\ntime_remaining: 0\nconnected_clients: 2/2\n");
        assert!(over.is_some_and(|over| !over.is_running() && over.waiting_for.is_empty()));
        assert_eq!(recovery(""), None);
    }

    #[test]
    fn a_session_may_have_blanks_in_its_name() {
        let text = "00000007 0x3 127.0.0.11@tcp node1:/mnt/a b\nodd\n";
        let read = sessions(text);
        assert_eq!(read.len(), 1);
        assert_eq!(
            (read[0].name.as_str(), read[0].nid.as_str()),
            ("node1:/mnt/a b", "127.0.0.11@tcp")
        );
    }

    fn policy(name: &str, state: &str, fallback: &str, queued: u64) -> String {
        format!(
            "  - name: {name}\n    state: {state}\n    fallback: {fallback}\n    queued: {queued}\n    active: 1\n\n"
        )
    }

    #[test]
    fn the_policy_in_force_is_the_one_that_was_started() {
        let fifo = policy("fifo", "started", "yes", 0);
        let text = format!(
            "\nregular_requests:\n{fifo}{}{}high_priority_requests:\n{fifo}",
            policy("crrn", "stopped", "no", 0),
            policy("tbf nid", "started", "no", 5)
        );
        let read = policies(&text).expect("a list");
        assert_eq!(
            (read.regular.as_str(), read.high_priority.as_deref()),
            ("tbf nid", Some("fifo"))
        );
        assert_eq!((read.queued, read.active), (5, 4));
        let text = format!("\nregular_requests:\n{fifo}{}", policy("orr", "stopping", "no", 2));
        let read = policies(&text).expect("a list");
        assert_eq!((read.regular.as_str(), read.high_priority), ("fifo (orr is stopping)", None));
        assert_eq!(policies("odd"), None);
    }

    /// Fuzz target: damaged text gives less than whole text, and nothing that is not in it.
    #[test]
    fn parameters() {
        let fifo = policy("fifo", "started", "yes", 3);
        let policies_text = format!("\nregular_requests:\n{fifo}high_priority_requests:\n{fifo}");
        let exports = "00000007 0x3 127.0.0.11@tcp node1:/mnt/a b\n".repeat(2);
        let texts = [RECOVERING, policies_text.as_str(), exports.as_str()];
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .for_each(|input: &[u8]| {
                for text in texts {
                    let mut bytes = text.as_bytes().to_vec();
                    for change in input.chunks_exact(2).take(6) {
                        let at = usize::from(change[0]) % bytes.len();
                        bytes[at] = change[1];
                    }
                    let text = String::from_utf8_lossy(&bytes);
                    if let Some(recovery) = recovery(&text) {
                        assert!(text.contains(&recovery.status));
                        assert!(text.contains(&recovery.waiting_for));
                    }
                    let sessions = sessions(&text);
                    assert!(sessions.len() <= text.lines().count());
                    assert!(sessions.iter().all(|session| text.contains(&session.nid)));
                    let _none_or_some = (policies(&text), address(&text));
                }
            });
    }

    #[test]
    fn a_connector_knows_its_server() {
        let import = "import:\n    name: a\n    target: b_UUID\n    state: FULL\n    connection:\n        \
            current_connection: 127.0.0.4@tcp\n";
        assert_eq!(address(import).as_deref(), Some("127.0.0.4@tcp"));
        assert_eq!(address(""), None);
    }
}

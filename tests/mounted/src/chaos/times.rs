//! The time of each fault, the errors that it excuses, and the time that a call took beyond it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Object storage servers.
pub(super) const OSTS: usize = 4;
pub(super) const MOUNTS: usize = 2;
/// The metadata server, which is the management server too.
pub(super) const MDS: usize = 0;

pub(super) fn ost(index: usize) -> usize {
    1 + index
}

pub(super) fn mount(index: usize) -> usize {
    1 + OSTS + index
}

/// All servers, as [`Nodes`] has them.
const SERVERS: u16 = (1 << (1 + OSTS)) - 1;

pub(super) fn is_mount(node: usize) -> bool {
    node > OSTS
}

pub(super) fn name(node: usize) -> String {
    match node {
        MDS => "mds".to_owned(),
        node if node <= OSTS => format!("ost{}", node - 1),
        node => {
            ["a", "b"].get(node - 1 - OSTS).map_or("fresh".to_owned(), |name| (*name).to_owned())
        }
    }
}

/// A set of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nodes(u16);

impl Nodes {
    pub(super) fn of(nodes: &[usize]) -> Nodes {
        Nodes(nodes.iter().fold(0, |set, node| set | 1 << node))
    }

    pub(super) fn with(self, node: usize) -> Nodes {
        Nodes(self.0 | 1 << node)
    }

    fn has(self, node: usize) -> bool {
        self.0 & 1 << node != 0
    }

    fn all(self) -> impl Iterator<Item = usize> {
        (0..16).filter(move |node| self.has(*node))
    }

    pub(super) fn shown(self) -> String {
        self.all().map(name).collect::<Vec<_>>().join("-")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Killed,
    Frozen,
    /// Between two nodes, in one direction or both.
    Cut,
    /// The process and what its disk had not taken yet.
    Power,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    fault: Fault,
    nodes: Nodes,
    from: Duration,
    to: Option<Duration>,
}

/// A call takes at most this beyond the time that the servers it needs were away: a lease that has
/// to run out, and a recovery that waits for the dead.
pub(super) const EXCESS_MAX: Duration = Duration::from_secs(16);
/// What the restart of a server adds that comes within the same call: recovery waits for the dead
/// once more.
const RESTART: Duration = Duration::from_secs(5);
/// What the other mount adds that dies or falls silent within the same call: what it holds is free
/// when its lease is over.
const SILENCE: Duration = Duration::from_secs(11);
/// A mount that is silent for less keeps its sessions, where no server restarts meanwhile.
const SILENCE_MAX: Duration = Duration::from_secs(6);
/// What a restart or an eviction may take to be noticed by all.
const NOTICED: Duration = Duration::from_secs(16);

/// Every fault of a run.
pub(super) struct Times {
    start: Instant,
    events: Mutex<Vec<Event>>,
}

/// A fault that was begun.
#[derive(Clone, Copy)]
pub(super) struct Begun(usize);

impl Times {
    pub(super) fn new() -> Times {
        Times { start: Instant::now(), events: Mutex::default() }
    }

    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn begin(&self, fault: Fault, nodes: Nodes) -> Begun {
        let mut events = self.events.lock().expect("no panic holds it");
        events.push(Event { fault, nodes, from: self.now(), to: None });
        Begun(events.len() - 1)
    }

    pub(super) fn end(&self, begun: Begun) {
        let now = self.now();
        self.events.lock().expect("no panic holds it")[begun.0].to = Some(now);
    }

    fn events(&self) -> Vec<Event> {
        self.events.lock().expect("no panic holds it").clone()
    }

    /// How much of a call from `begin` to `end` that needs `needs` no fault explains.
    pub(super) fn excess(&self, begin: Duration, end: Duration, needs: Nodes) -> Duration {
        excess(&self.events(), begin, end, needs)
    }

    /// How much of it may be: one fault explains [`EXCESS_MAX`], each further one its own wait.
    pub(super) fn allowed(&self, begin: Duration, end: Duration, needs: Nodes) -> Duration {
        allowed(&self.events(), begin, end, needs)
    }

    /// Whether a handle that the mount opened at `opened` may have lost its session by `now`.
    pub(super) fn may_be_evicted(&self, mount: usize, opened: Duration, now: Duration) -> bool {
        may_be_evicted(&self.events(), mount, opened, now)
    }

    /// Grows whenever the mount falls silent and whenever it is heard again.
    pub(super) fn silences(&self, mount: usize) -> usize {
        let events = self.events();
        let silences = events.iter().filter(|event| event.silences(mount));
        silences.map(|event| 1 + usize::from(event.to.is_some())).sum()
    }

    /// The faults between two moments, in words.
    pub(super) fn told(&self, begin: Duration, end: Duration) -> String {
        let told = |event: &Event| {
            let to = event.to.map_or("now".to_owned(), |to| format!("{:.1}", to.as_secs_f64()));
            format!(
                "{:?} {} {:.1}-{to}",
                event.fault,
                event.nodes.shown(),
                event.from.as_secs_f64()
            )
        };
        let meanwhile = |event: &&Event| event.from < end && event.to.is_none_or(|to| to > begin);
        self.events().iter().filter(meanwhile).map(told).collect::<Vec<_>>().join(", ")
    }
}

impl Event {
    /// A call that needs these nodes cannot go on meanwhile. A mount that holds what the call waits
    /// for may be any: it cannot end its own call where it is cut off from a server that both need.
    fn concerns(&self, needs: Nodes) -> bool {
        let common = self.nodes.0 & needs.0;
        if self.fault == Fault::Cut {
            common == self.nodes.0 || common & SERVERS != 0 && self.nodes.all().any(is_mount)
        } else {
            common != 0
        }
    }

    /// What it may add to a call that waits for another fault already.
    fn adds(&self, needs: Nodes) -> Duration {
        let dies = matches!(self.fault, Fault::Killed | Fault::Power);
        let restarts = dies && self.nodes.0 & needs.0 & SERVERS != 0;
        let holder = self.nodes.all().any(|node| is_mount(node) && !needs.has(node));
        let silent = holder && (self.fault != Fault::Cut || self.nodes.has(MDS));
        let of = |is: bool, span: Duration| if is { span } else { Duration::ZERO };
        of(restarts, RESTART) + of(silent, SILENCE)
    }

    fn silences(&self, mount: usize) -> bool {
        matches!(self.fault, Fault::Frozen | Fault::Cut) && self.nodes.has(mount)
    }

    fn restarts_a_server(&self) -> bool {
        matches!(self.fault, Fault::Killed | Fault::Power)
            && self.nodes.all().any(|node| !is_mount(node))
    }
}

fn allowed(events: &[Event], begin: Duration, end: Duration, needs: Nodes) -> Duration {
    let meanwhile = |event: &&Event| event.from < end && event.to.is_none_or(|to| to > begin);
    let adds: Vec<Duration> =
        events.iter().filter(meanwhile).map(|event| event.adds(needs)).collect();
    let most = adds.iter().max().copied().unwrap_or_default();
    EXCESS_MAX + adds.iter().sum::<Duration>() - most
}

fn excess(events: &[Event], begin: Duration, end: Duration, needs: Nodes) -> Duration {
    let mut spans: Vec<(Duration, Duration)> = events
        .iter()
        .filter(|event| event.concerns(needs))
        .map(|event| (event.from.max(begin), event.to.unwrap_or(end).min(end)))
        .filter(|(from, to)| from < to)
        .collect();
    spans.sort_unstable();
    let (mut away, mut seen) = (Duration::ZERO, begin);
    for (from, to) in spans {
        away += to.saturating_sub(from.max(seen));
        seen = seen.max(to);
    }
    (end - begin) - away
}

fn may_be_evicted(events: &[Event], mount: usize, opened: Duration, now: Duration) -> bool {
    events.iter().filter(|event| event.silences(mount)).any(|silence| {
        let to = silence.to.unwrap_or(now);
        let a_server_restarts =
            events.iter().filter(|event| event.restarts_a_server()).any(|down| {
                down.from < to + NOTICED && down.to.unwrap_or(now) + NOTICED > silence.from
            });
        silence.from < now
            && to + NOTICED > opened
            && (to - silence.from >= SILENCE_MAX || a_server_restarts)
    })
}

#[cfg(test)]
mod tests {
    use super::{EXCESS_MAX, Event, Fault, MDS, Nodes, RESTART, SILENCE};
    use super::{allowed, excess, may_be_evicted, mount, ost};
    use std::time::Duration;

    fn event(fault: Fault, nodes: &[usize], from: u64, to: u64) -> Event {
        let secs = Duration::from_secs;
        Event { fault, nodes: Nodes::of(nodes), from: secs(from), to: Some(secs(to)) }
    }

    #[test]
    fn what_faults_explain_is_counted_once() {
        let events = [
            event(Fault::Frozen, &[MDS], 1, 5),
            event(Fault::Killed, &[ost(1)], 3, 8),
            event(Fault::Killed, &[ost(2)], 9, 12),
            event(Fault::Cut, &[mount(0), ost(1)], 12, 14),
            event(Fault::Cut, &[mount(1), ost(2)], 14, 20),
        ];
        let of = |begin, end| {
            let needs = Nodes::of(&[MDS, ost(1), mount(0)]);
            excess(&events, Duration::from_secs(begin), Duration::from_secs(end), needs).as_secs()
        };
        assert_eq!((of(0, 20), of(2, 4), of(4, 7)), (20 - 7 - 2, 0, 0));
    }

    #[test]
    fn a_cut_of_the_holder_from_a_server_that_both_need_explains_a_wait() {
        let needs = Nodes::of(&[MDS, ost(1), mount(0)]);
        let of = |to: usize| {
            let events = [event(Fault::Cut, &[mount(1), to], 2, 9)];
            excess(&events, Duration::ZERO, Duration::from_secs(10), needs).as_secs()
        };
        assert_eq!((of(ost(1)), of(ost(2))), (3, 10));
    }

    #[test]
    fn each_further_fault_adds_its_own_wait() {
        let needs = Nodes::of(&[MDS, ost(1), mount(0)]);
        let of = |events: &[Event]| {
            allowed(events, Duration::ZERO, Duration::from_secs(60), needs) - EXCESS_MAX
        };
        let restart = |node, at| event(Fault::Killed, &[node], at, at + 1);
        assert_eq!(of(&[]), Duration::ZERO);
        assert_eq!(of(&[restart(MDS, 5)]), Duration::ZERO, "the first is what is allowed anyway");
        assert_eq!(of(&[restart(MDS, 5), restart(ost(1), 9)]), RESTART);
        assert_eq!(of(&[restart(MDS, 5), restart(ost(2), 9)]), Duration::ZERO, "another's server");
        let holder = event(Fault::Frozen, &[mount(1)], 20, 40);
        assert_eq!(of(&[restart(MDS, 5), holder]), RESTART, "one of the two comes first");
        assert_eq!(of(&[holder, holder]), SILENCE);
        let later = event(Fault::Killed, &[MDS], 61, 62);
        assert_eq!(of(&[holder, later]), Duration::ZERO, "after the call");
        let own = event(Fault::Frozen, &[mount(0)], 20, 40);
        assert_eq!(of(&[holder, own]), Duration::ZERO, "the call's own mount: it is away");
    }

    #[test]
    fn a_short_silence_excuses_nothing_unless_a_server_restarts() {
        let secs = Duration::from_secs;
        let short = event(Fault::Frozen, &[mount(0)], 100, 103);
        let long = event(Fault::Cut, &[mount(0), MDS], 100, 110);
        let down = event(Fault::Power, &[ost(0)], 104, 105);
        let evicted = |events: &[Event], opened: u64, now: u64| {
            may_be_evicted(events, mount(0), secs(opened), secs(now))
        };
        assert!(!evicted(&[short], 90, 104));
        assert!(evicted(&[short, down], 90, 106));
        assert!(evicted(&[long], 90, 111) && !evicted(&[long], 127, 130));
        assert!(!may_be_evicted(&[long], mount(1), secs(90), secs(111)));
    }
}

//! Credits of this node's interface, and the contents of `peers` and `nis`. All threads that write
//! to sockets share it.
//!
//! A message is **done** when its last byte has been handed to the socket: TCP's window and its
//! buffers do the rest. So credits bound the messages that are held here, and a peer that takes
//! nothing is seen as soon as its window is closed. `lo` has no credits, as in Lustre, because
//! nothing leaves memory.
//!
//! The lock is taken once for each message and once for each write that finishes messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use env::{Credits, share_of_cpt};
use types::{CptIndex, Instant, Nid};

use crate::executor::now;
use crate::limits::{KNOWN_MAX, PEERS_MAX};
use crate::links;

/// Settings of an interface, with the names and defaults of Lustre's `ksocklnd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LnetSettings {
    /// Messages under way to all peers.
    pub credits: u32,
    /// Messages under way to one peer; the peer's own word for it may be lower.
    pub peer_credits: u32,
    /// Messages that a router holds for one peer; 0 is `peer_credits`. There are no routers: shown,
    /// and nothing more.
    pub peer_buffer_credits: u32,
    /// Partitions over which interface credits are split.
    pub cpts: u32,
    /// Links that the interface takes, within its part of three quarters of the process's
    /// descriptors.
    pub links_max: usize,
    /// Executors of the process that listen, each with an interface of its own. They share the
    /// descriptors.
    pub executors: NonZeroU32,
}

impl Default for LnetSettings {
    fn default() -> LnetSettings {
        LnetSettings {
            credits: crate::limits::CREDITS,
            peer_credits: crate::limits::PEER_CREDITS,
            peer_buffer_credits: 0,
            cpts: 1,
            links_max: crate::limits::LINKS_MAX,
            executors: NonZeroU32::MIN,
        }
    }
}

/// An interface and its peers; a cheap handle.
#[derive(Clone)]
pub struct Lnet(Arc<Inner>);

struct Inner {
    settings: LnetSettings,
    state: Mutex<State>,
}

struct State {
    credits: Credits<Nid, Arc<Gate>>,
    peers: BTreeMap<Nid, Known>,
    nid: Option<Nid>,
    started: Instant,
    links: usize,
    /// Peers of an earlier run of this node.
    expected: BTreeSet<Nid>,
}

struct Known {
    links: u32,
    heard: Instant,
}

/// Where messages of one queue wait for their credit.
#[derive(Default)]
pub(crate) struct Gate {
    released: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    /// How many messages may go since this was last asked.
    pub(crate) fn take_released(&self) -> usize {
        if self.released.load(Ordering::Relaxed) == 0 {
            0
        } else {
            self.released.swap(0, Ordering::Acquire)
        }
    }

    /// One more may go.
    pub(crate) fn release(&self) {
        self.released.fetch_add(1, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whom to wake at the next release; false if there has been one.
    pub(crate) fn park(&self, waker: &Waker) -> bool {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
        self.released.load(Ordering::Acquire) == 0
    }
}

impl std::fmt::Debug for Lnet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lnet").field(&self.0.settings).finish()
    }
}

impl Default for Lnet {
    fn default() -> Lnet {
        Lnet::new(LnetSettings::default())
    }
}

impl Lnet {
    #[must_use]
    pub fn new(settings: LnetSettings) -> Lnet {
        let share = share_of_cpt(settings.credits, settings.peer_credits, settings.cpts);
        let credits = Credits::new(settings.cpts, share);
        let state = Mutex::new(State {
            credits,
            peers: BTreeMap::new(),
            nid: None,
            started: now(),
            links: 0,
            expected: BTreeSet::new(),
        });
        Lnet(Arc::new(Inner { settings, state }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Messages that a peer is told to take in a row.
    pub(crate) fn peer_credits(&self) -> u32 {
        self.0.settings.peer_credits
    }

    /// The interface's address, as the first listener or connector has it.
    pub(crate) fn known_as(&self, nid: Nid) {
        self.state().nid.get_or_insert(nid);
    }

    /// These peers came to an earlier run of this node. Strangers that connect and say nothing do
    /// not keep them out. At most `KNOWN_MAX` are remembered.
    pub fn expect(&self, peers: impl Iterator<Item = Nid>) {
        let mut state = self.state();
        for peer in peers.filter(|peer| *peer != Nid::default()) {
            if state.expected.len() < KNOWN_MAX {
                state.expected.insert(peer);
            }
        }
    }

    /// Whether `peer` came to an earlier run of this node.
    pub(crate) fn is_expected(&self, peer: Nid) -> bool {
        self.state().expected.contains(&peer)
    }

    /// One more link to `peer`, which takes `credits` messages in a row.
    pub(crate) fn open(&self, peer: Nid, cpt: CptIndex, credits: u32) {
        let mut state = self.state();
        let credits = credits.min(self.0.settings.peer_credits).max(1);
        if state.peers.len() >= PEERS_MAX {
            let gone = state
                .peers
                .iter()
                .find(|(nid, known)| known.links == 0 && **nid != peer)
                .map(|(nid, _)| *nid);
            if let Some(gone) = gone.filter(|gone| state.credits.remove_peer(*gone)) {
                state.peers.remove(&gone);
            }
        }
        state.credits.add_peer(peer, cpt.0, credits);
        let known = state.peers.entry(peer).or_insert(Known { links: 0, heard: now() });
        known.links += 1;
        known.heard = now();
        state.links += 1;
    }

    /// Links that all peers may have in a process with so many descriptors.
    pub(crate) fn links_max(&self, descriptors: Option<u64>) -> usize {
        let LnetSettings { links_max, executors, .. } = self.0.settings;
        links::within(descriptors.map(|count| count / u64::from(executors.get())), links_max)
    }

    /// Whether `peer` may have one more link where all may have `links_max`.
    pub(crate) fn has_place(&self, peer: Nid, links_max: usize) -> bool {
        let state = self.state();
        let own = state.peers.get(&peer).map_or(0, |known| known.links as usize);
        links::has_place(own, state.links, links_max)
    }

    /// A message of `bytes` behind `gate`: whether it goes now. If not, the gate is opened later.
    pub(crate) fn send(&self, peer: Nid, gate: &Arc<Gate>, bytes: usize) -> bool {
        self.state().credits.send(peer, || Arc::clone(gate), bytes)
    }

    /// Whether messages of a partition wait for a credit of the interface.
    pub(crate) fn is_short(&self, cpt: CptIndex) -> bool {
        let state = self.state();
        let own = cpt.0 % self.0.settings.cpts.max(1);
        let level = state.credits.interfaces().nth(own as usize);
        level.is_some_and(|level| level.now < 0)
    }

    /// Messages to `peer` are done.
    pub(crate) fn complete(&self, peer: Nid, messages: &[usize]) {
        let mut go = Vec::new();
        let mut state = self.state();
        state.credits.complete_all(peer, messages, &mut go);
        drop(state);
        go.iter().for_each(|gate| gate.release());
    }

    /// What waits at `gate` never goes; messages that went and were not done are.
    pub(crate) fn close(&self, peer: Nid, gate: &Arc<Gate>, messages: usize, bytes: usize) {
        let mut go = Vec::new();
        let mut state = self.state();
        let (count, freed) = state.credits.withdraw(peer, |at| Arc::ptr_eq(at, gate), &mut go);
        let under_way = messages - count;
        for index in 0..under_way {
            let share = if index == 0 { bytes - freed } else { 0 };
            state.credits.complete(peer, share, &mut go);
        }
        drop(state);
        go.iter().for_each(|gate| gate.release());
    }

    /// A link to `peer` is gone.
    pub(crate) fn hang_up(&self, peer: Nid) {
        let mut state = self.state();
        if let Some(known) = state.peers.get_mut(&peer) {
            known.links -= 1;
            state.links -= 1;
        }
    }

    /// Something came from `peer`.
    pub(crate) fn heard(&self, peer: Nid) {
        if let Some(known) = self.state().peers.get_mut(&peer) {
            known.heard = now();
        }
    }

    /// As Lustre's `peers`: a line each.
    #[must_use]
    pub fn peers(&self) -> String {
        let mut out = format!(
            "{:<24} {:>4} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {}\n",
            "nid", "refs", "state", "last", "max", "rtr", "min", "tx", "min", "queue"
        );
        let state = self.state();
        let rtr = match self.0.settings.peer_buffer_credits {
            0 => self.0.settings.peer_credits,
            credits => credits,
        };
        for (nid, level, bytes) in state.credits.peers() {
            let Some(known) = state.peers.get(&nid) else { continue };
            let alive = if known.links > 0 { "up" } else { "down" };
            let last = (now() - known.heard).0 / 1_000_000_000;
            let _ = writeln!(
                out,
                "{:<24} {:>4} {alive:>5} {last:>5} {:>5} {rtr:>5} {rtr:>5} {:>5} {:>5} {bytes}",
                nid.to_string(),
                known.links + 1,
                level.max,
                level.now,
                level.min
            );
        }
        out
    }

    /// As Lustre's `nis`: a line for each interface and partition.
    #[must_use]
    pub fn nis(&self) -> String {
        let mut out = format!(
            "{:<24} {:>6} {:>5} {:>4} {:>4} {:>4} {:>5} {:>5} {:>5}\n",
            "nid", "status", "alive", "refs", "peer", "rtr", "max", "tx", "min"
        );
        let state = self.state();
        let mut line = |nid: Nid, refs: u32, peer: u32, max: i64, now: i64, min: i64| {
            let alive = (crate::executor::now() - state.started).0 / 1_000_000_000;
            let nid = nid.to_string();
            let _ = writeln!(
                out,
                "{nid:<24} {:>6} {alive:>5} {refs:>4} {peer:>4} {:>4} {max:>5} {now:>5} {min:>5}",
                "up", 0
            );
        };
        let levels: Vec<_> = state.credits.interfaces().collect();
        for _ in &levels {
            line(Nid::LO, 1, 0, 0, 0, 0);
        }
        if let Some(nid) = state.nid {
            let links: u32 = state.peers.values().map(|known| known.links).sum();
            for level in levels {
                line(nid, links + 1, self.0.settings.peer_credits, level.max, level.now, level.min);
            }
        }
        out
    }

    /// Peer, links, credits at rest, now and lowest, and queued bytes: for monitoring.
    #[must_use]
    pub fn peer_levels(&self) -> Vec<(Nid, u32, env::Level, usize)> {
        let state = self.state();
        let links = |nid: &Nid| state.peers.get(nid).map_or(0, |known| known.links);
        state.credits.peers().map(|(nid, level, bytes)| (nid, links(&nid), level, bytes)).collect()
    }

    /// Credits of the interface, by partition.
    #[must_use]
    pub fn interface_levels(&self) -> Vec<env::Level> {
        self.state().credits.interfaces().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_peers_is_expected_after_a_restart() {
        let lnet = Lnet::default();
        let at = |last: usize| Nid::tcp(std::net::Ipv4Addr::from(0x0a00_0000 + last as u32));
        lnet.expect([Nid::default(), at(1)].into_iter());
        assert!(lnet.is_expected(at(1)) && !lnet.is_expected(at(2)));
        assert!(!lnet.is_expected(Nid::default()), "a record without an address");
        lnet.expect((0..2 * KNOWN_MAX).map(at));
        assert_eq!(lnet.state().expected.len(), KNOWN_MAX);
    }

    #[test]
    fn peers_and_nis_read_as_lustres() {
        let lnet = Lnet::new(LnetSettings {
            credits: 256,
            peer_credits: 8,
            peer_buffer_credits: 0,
            cpts: 4,
            ..LnetSettings::default()
        });
        let peer: Nid = "192.168.1.10@tcp".parse().expect("a NID");
        lnet.known_as("10.0.0.5@tcp".parse().expect("a NID"));
        lnet.open(peer, CptIndex(1), 256);
        let gate = Arc::new(Gate::default());
        let went = (0..10).filter(|_| lnet.send(peer, &gate, 100)).count();
        assert_eq!(went, 8);
        let header =
            "nid                      refs state  last   max   rtr   min    tx   min queue\n";
        assert_eq!(
            lnet.peers(),
            format!(
                "{header}192.168.1.10@tcp            2    up     0     8     8     8    -2    -2 1000\n"
            )
        );
        let nis = lnet.nis();
        assert!(
            nis.starts_with(
                "nid                      status alive refs peer  rtr   max    tx   min\n0@lo "
            ),
            "{nis}"
        );
        assert_eq!(
            nis.lines().nth(6),
            Some("10.0.0.5@tcp                 up     0    2    8    0    64    56    56")
        );
        lnet.complete(peer, &[100, 100]);
        assert_eq!(gate.take_released(), 2);
        lnet.close(peer, &gate, 8, 800);
        lnet.hang_up(peer);
        assert!(lnet.peers().contains("  down "), "{}", lnet.peers());
        assert!(lnet.peers().ends_with("     8    -2 0\n"), "{}", lnet.peers());
    }

    #[test]
    fn executors_of_a_process_share_its_descriptors() {
        let links = |executors: u32| {
            let executors = NonZeroU32::new(executors).expect("one at least");
            Lnet::new(LnetSettings { executors, ..LnetSettings::default() }).links_max(Some(4_096))
        };
        assert_eq!(links(1), 4 * links(4));
        assert!(links(4_096) >= 1, "an interface takes one link at least");
    }

    #[test]
    fn all_links_of_an_address_share_its_credits() {
        let lnet =
            Lnet::new(LnetSettings { credits: 16, peer_credits: 8, ..LnetSettings::default() });
        let [greedy, other]: [Nid; 2] =
            ["10.0.0.1@tcp", "10.0.0.2@tcp"].map(|nid| nid.parse().expect("a NID"));
        let gates: Vec<_> = (0..4).map(|_| Arc::new(Gate::default())).collect();
        gates.iter().for_each(|_| lnet.open(greedy, CptIndex(0), 256));
        let sends = gates.iter().cycle().take(100);
        assert_eq!(sends.filter(|gate| lnet.send(greedy, gate, 100)).count(), 8);
        assert!(!lnet.is_short(CptIndex(0)), "it waits for its own");
        lnet.open(other, CptIndex(0), 256);
        let gate = Arc::new(Gate::default());
        assert_eq!((0..8).filter(|_| lnet.send(other, &gate, 100)).count(), 8);
    }
}

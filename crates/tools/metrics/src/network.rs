//! The network: messages, credits and the queues of peers.

use env::{Env, Level};
use env_os::Lnet;

use crate::families::{self, Family};
use crate::text::Exposition;

/// Peers whose credits are shown: those whose queue was deepest.
const PEERS_MAX: usize = 64;

pub(crate) fn add(out: &mut Exposition, env: &Env, lnet: &Lnet) {
    let counters = env.net_counters();
    let labels = [("component", "lnet"), ("target", "lnet")];
    for (family, value) in [
        (families::SENT, counters.send_count),
        (families::RECEIVED, counters.recv_count),
        (families::SENT_BYTES, counters.send_bytes),
        (families::RECEIVED_BYTES, counters.recv_bytes),
    ] {
        out.add(family, &labels, value as f64);
    }
    for (cpt, credits) in lnet.interface_levels().into_iter().enumerate() {
        level(out, families::INTERFACE_CREDITS, ("cpt", &cpt.to_string()), credits);
    }
    let mut peers = lnet.peer_levels();
    out.add(families::PEERS, &[], peers.len() as f64);
    peers.sort_by_key(|(nid, _, level, _)| (level.min, *nid));
    out.dropped(peers.len().saturating_sub(PEERS_MAX) * 4);
    for (nid, _, credits, bytes) in peers.into_iter().take(PEERS_MAX) {
        let nid = nid.to_string();
        level(out, families::PEER_CREDITS, ("nid", &nid), credits);
        out.add(families::PEER_QUEUE, &[("nid", &nid)], bytes as f64);
    }
}

fn level(out: &mut Exposition, family: &'static Family, label: (&str, &str), level: Level) {
    for (what, value) in [("max", level.max), ("now", level.now), ("min", level.min)] {
        out.add(family, &[label, ("level", what)], value as f64);
    }
}

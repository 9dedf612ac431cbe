//! Crash points: a server dies right after its n-th action of a kind, in the middle of whatever it
//! would have done next.

use env_sim::Rng;
use osd::mem::Deed;
use types::{Instant, Span};

use crate::fixture::Cluster;
use crate::server::{CrashPoint, Server};

/// It is killed without having come to its point then.
const PATIENCE: Span = Span::secs(3);
/// The n-th time is at most two to the power of this.
const DOUBLINGS: u64 = 7;
/// The same for a server that has just been started: in the middle of its recovery.
const DOUBLINGS_AT_START: u64 = 4;

/// How a server dies, and what comes then.
#[derive(Clone, Copy)]
pub(super) struct Death {
    /// The machine dies, not the process alone.
    pub(super) machine: bool,
    /// Its chances, of what the machine's disk loses.
    pub(super) cut: u64,
    /// It is down for so long.
    pub(super) away: Span,
    /// Where its next run is to die.
    pub(super) again: Option<CrashPoint>,
}

impl Death {
    pub(super) fn draw(rng: &mut Rng, has_points: bool) -> Death {
        Death {
            machine: rng.chance(500_000),
            cut: rng.bits(),
            away: rng.span(Span::ZERO, Span::secs(3)),
            again: (has_points && rng.chance(300_000)).then(|| draw(rng, DOUBLINGS_AT_START)),
        }
    }
}

/// Small numbers are as likely as large ones.
fn draw(rng: &mut Rng, doublings: u64) -> CrashPoint {
    let most = 1 << rng.range(0, doublings);
    let count = rng.range(1, most);
    match rng.below(3) {
        0 => CrashPoint::Deed(Deed::Apply, count),
        1 => CrashPoint::Deed(Deed::Commit, count),
        _ => CrashPoint::Send(count),
    }
}

/// A server that is to die at its point.
struct Armed {
    server: usize,
    until: Instant,
    death: Death,
}

/// At most one server at a time has a point.
#[derive(Default)]
pub(super) struct Points {
    armed: Option<Armed>,
    /// Servers that died at theirs.
    pub(super) reached: u32,
}

impl Points {
    pub(super) fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    pub(super) fn is_at(&self, server: usize) -> bool {
        self.armed.as_ref().is_some_and(|armed| armed.server == server)
    }

    /// It dies at a point that is drawn, or at `point`.
    pub(super) fn arm(
        &mut self,
        rng: &mut Rng,
        cluster: &Cluster,
        server: usize,
        (point, death): (Option<CrashPoint>, Death),
    ) {
        assert!(!self.is_armed(), "the one that has a point must die first");
        let point = point.unwrap_or_else(|| draw(rng, DOUBLINGS));
        let victim = &cluster.servers[server];
        cluster.sim.narrate(&format!("lets {} die at {point:?}", victim.target));
        victim.die_at(point);
        self.armed = Some(Armed { server, until: cluster.sim.now() + PATIENCE, death });
    }

    /// Who has died at its point, or was waited for in vain and is to be killed.
    pub(super) fn due(&mut self, cluster: &Cluster) -> Option<(usize, Death)> {
        let is_frozen = |server: &Server| server.node.is_frozen();
        let armed = self.armed.take_if(|armed| {
            is_frozen(&cluster.servers[armed.server]) || cluster.sim.now() >= armed.until
        })?;
        self.reached += u32::from(is_frozen(&cluster.servers[armed.server]));
        Some((armed.server, armed.death))
    }

    /// Nobody dies at a point any more; who has died there already is told.
    pub(super) fn give_up(&mut self, cluster: &Cluster) -> Option<(usize, Death)> {
        if let Some(armed) = &mut self.armed {
            let server = &cluster.servers[armed.server];
            match server.node.is_frozen() {
                true => armed.until = cluster.sim.now(),
                false => {
                    server.spare();
                    self.armed = None;
                }
            }
        }
        self.due(cluster)
    }
}

//! Disks that are full for a while: those of OSTs in hard runs, and the MDT's in other runs as
//! well.

use std::cell::Cell;
use std::rc::Rc;

use env_sim::Rng;
use types::{Instant, Span, TargetKind};

use crate::fixture::Cluster;

/// A disk is full for so long at most: some calls wait for room in vain, and others not.
const FULL_MAX: Span = Span::secs(12);

/// When disks of a kind of targets were full.
#[derive(Default)]
struct Times {
    disks: Cell<usize>,
    last: Cell<Instant>,
}

/// When disks were full, for those who are told so.
#[derive(Default)]
pub(crate) struct Fullness {
    mdt: Times,
    osts: Times,
}

impl Fullness {
    fn of(&self, kind: TargetKind) -> &Times {
        if kind == TargetKind::Ost { &self.osts } else { &self.mdt }
    }

    /// Whether a disk of such a target was full at any moment from `begin` until now.
    pub(crate) fn was_since(&self, kind: TargetKind, begin: Instant) -> bool {
        let times = self.of(kind);
        times.disks.get() > 0 || times.last.get() >= begin
    }
}

/// Which disks are full, and until when.
#[derive(Default)]
pub(super) struct Room {
    full: Vec<(Instant, usize)>,
    told: Rc<Fullness>,
}

impl Room {
    pub(super) fn told(&self) -> Rc<Fullness> {
        self.told.clone()
    }

    /// The disk of this server is full from now on; until when, is told. That of an MDT only while
    /// it serves: what it had before a crash has its place, though it is not there yet.
    pub(super) fn fill(&mut self, rng: &mut Rng, cluster: &Cluster, index: usize) -> Instant {
        let (server, now) = (&cluster.servers[index], cluster.sim.now());
        let end = now + rng.span(Span::ZERO, FULL_MAX);
        let kind = server.target.kind;
        if self.full.iter().any(|(_, other)| *other == index)
            || (kind == TargetKind::Mdt && !server.has_recovered())
        {
            return now;
        }
        cluster.sim.narrate(&format!("fills {}", server.target));
        match kind {
            TargetKind::Ost => server.disk.set_full(true),
            _ => server.disk.set_records_full(true),
        }
        self.full.push((end, index));
        let disks = &self.told.of(kind).disks;
        disks.set(disks.get() + 1);
        end
    }

    pub(super) fn end_what_is_over(&mut self, cluster: &Cluster) {
        let now = cluster.sim.now();
        for (_, index) in self.full.extract_if(.., |(at, _)| now >= *at) {
            let server = &cluster.servers[index];
            cluster.sim.narrate(&format!("{} has room", server.target));
            server.disk.set_full(false);
            server.disk.set_records_full(false);
            let times = self.told.of(server.target.kind);
            times.disks.set(times.disks.get() - 1);
            times.last.set(now);
        }
    }

    /// All disks have room again.
    pub(super) fn end_all(&mut self, cluster: &Cluster) {
        let now = cluster.sim.now();
        self.full.iter_mut().for_each(|(end, _)| *end = now);
        self.end_what_is_over(cluster);
    }
}

//! Files whose sizes are to be found out, and what became of others.

use std::rc::Rc;

use params::Fields;
use tokio::sync::Notify;
use types::{Fid, Instant, Span};

use super::judge::Verdict;
use super::queue::{Queue, Waiting};
use super::scrub::Scrub;
use crate::SomConfig;

/// From the moment at which a file has no writer. A client that lives tells the size itself within
/// this time, and files of one client come together.
const GATHER: Span = Span::secs(1);

/// What became of files since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    repaired: u64,
    written: u64,
    lost: u64,
    given_up: u64,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Som {
    pub(crate) config: SomConfig,
    pub(super) queue: Queue,
    pub(super) scrub: Scrub,
    counts: Counts,
    /// There may be something to repair, or the instance is over.
    pub(super) wanted: Rc<Notify>,
    /// The scrub has another reason to look at what it has to do.
    pub(super) scrub_wanted: Rc<Notify>,
}

impl Som {
    pub(crate) fn new(config: SomConfig, now: Instant) -> Som {
        Som {
            config,
            queue: Queue::default(),
            scrub: Scrub::new(now),
            counts: Counts::default(),
            wanted: Rc::default(),
            scrub_wanted: Rc::default(),
        }
    }

    /// A file may be DIRTY and without a writer.
    pub(crate) fn found(&mut self, fid: Fid) {
        if !self.queue.found(fid) {
            self.scrub_wanted.notify_one();
        }
        self.wanted.notify_one();
    }

    /// The settings have changed, or the instance is over.
    pub(crate) fn wake(&self) {
        self.wanted.notify_one();
        self.scrub_wanted.notify_one();
    }

    /// When the next file has its turn.
    pub(super) fn next(&mut self, now: Instant) -> Option<Instant> {
        if !self.config.repair {
            return None;
        }
        self.queue.admit(now + GATHER);
        self.queue.next_due()
    }

    /// A file that was taken from the queue has come to this.
    pub(super) fn ended(&mut self, waiting: Waiting, verdict: Verdict, now: Instant) {
        match verdict {
            Verdict::Settled => {}
            Verdict::Known(_) => self.counts.repaired += 1,
            Verdict::Written => self.counts.written += 1,
            Verdict::Lost => self.counts.lost += 1,
            Verdict::Later => self.counts.given_up += u64::from(!self.queue.later(waiting, now)),
        }
    }

    /// As `som_status` shows it.
    pub(crate) fn status(&self) -> Fields {
        let Counts { repaired, written, lost, given_up } = self.counts;
        let (passes, inodes, dirty) = self.scrub.counts();
        Fields(vec![
            ("queued", self.queue.len() as u64),
            ("repaired", repaired),
            ("written", written),
            ("lost", lost),
            ("given_up", given_up),
            ("dropped", self.queue.dropped()),
            ("passes", passes),
            ("inodes", inodes),
            ("dirty", dirty),
        ])
    }

    /// As `som_scrub_status` shows it.
    pub(crate) fn scrub_status(&self) -> String {
        let state = if self.config.scrub_rate == 0 { "off" } else { self.scrub.state() };
        match self.scrub.position() {
            Some(at) => format!("scrub: {state}\nposition: {at}"),
            None => format!("scrub: {state}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_what_became_of_files() {
        let now = Instant::default();
        let mut som = Som::new(SomConfig::default(), now);
        assert_eq!(som.next(now), None);
        (1..=4).for_each(|oid| som.found(Fid::new(0x400, oid)));
        assert_eq!(som.next(now), Some(now + GATHER));
        let taken = som.queue.take(now + GATHER, 4);
        let verdicts = [Verdict::Settled, Verdict::Written, Verdict::Lost, Verdict::Later];
        for (waiting, verdict) in taken.into_iter().zip(verdicts) {
            som.ended(waiting, verdict, now);
        }
        let status = som.status().to_string();
        let counts = "queued: 1\nrepaired: 0\nwritten: 1\nlost: 1\ngiven_up: 0\ndropped: 0\n";
        assert!(status.starts_with(counts), "{status}");
        som.config.repair = false;
        assert_eq!(som.next(now), None, "it is switched off");
        som.config.scrub_rate = 0;
        assert_eq!(som.scrub_status(), "scrub: off");
    }
}

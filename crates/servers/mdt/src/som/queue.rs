//! DIRTY files that no client has open for writing any more, until their size is found out.
//!
//! Invariants
//! - A file is here at most once.
//! - At most [`SOM_FILES_MAX`] files are here. One more is dropped, and the scrub finds it again.
//! - A file that was tried in vain comes back after a longer pause each time. After [`TRIES_MAX`]
//!   tries it is left to the scrub.

use std::collections::{BTreeMap, BTreeSet};

use types::{Fid, Instant, Span};

/// Files in the queue, some 150 bytes each: 10 MiB.
pub(crate) const SOM_FILES_MAX: usize = 65_536;

/// How often a file is tried. All pauses together are an hour, which is the pause between two
/// passes of the scrub.
pub(crate) const TRIES_MAX: u32 = 22;

/// Pause after the first try in vain. It doubles with each further one...
pub(crate) const RETRY_PAUSE: Span = Span::secs(1);

/// ...so often: to 256 s. When an OST comes back after long, its files are tried within this time.
/// A full queue costs 256 looks a second.
const DOUBLINGS_MAX: u32 = 8;

/// A file whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) fid: Fid,
    /// How often it was tried in vain.
    tries: u32,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// All files, with the tries so far.
    files: BTreeMap<Fid, u32>,
    /// Those that have a time.
    due: BTreeSet<(Instant, Fid)>,
    /// Those that were found since the last [`Queue::admit`].
    fresh: Vec<Fid>,
    dropped: u64,
}

impl Queue {
    /// A file may have to be settled. False: it was dropped.
    pub(crate) fn found(&mut self, fid: Fid) -> bool {
        if self.files.contains_key(&fid) {
            return true;
        }
        if !self.has_room() {
            self.dropped += 1;
            return false;
        }
        self.files.insert(fid, 0);
        self.fresh.push(fid);
        true
    }

    /// Files that were found have their turn from `at` on.
    pub(crate) fn admit(&mut self, at: Instant) {
        self.due.extend(self.fresh.drain(..).map(|fid| (at, fid)));
        assert_eq!(self.due.len(), self.files.len(), "every file has a time");
    }

    /// When the next file has its turn.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes files whose turn it is at `now`.
    pub(crate) fn take(&mut self, now: Instant, most: usize) -> Vec<Waiting> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((at, fid)) = self.due.pop_first()
        {
            if at > now {
                self.due.insert((at, fid));
                break;
            }
            let tries = self.files.remove(&fid).expect("a file with a time is in the queue");
            taken.push(Waiting { fid, tries });
        }
        taken
    }

    /// A file that was taken was tried in vain. False: it is left to the scrub.
    pub(crate) fn later(&mut self, waiting: Waiting, now: Instant) -> bool {
        let Waiting { fid, tries } = waiting;
        if self.files.contains_key(&fid) {
            return true; // it was found again meanwhile
        }
        if tries + 1 >= TRIES_MAX || !self.has_room() {
            return false;
        }
        self.files.insert(fid, tries + 1);
        self.due.insert((now + Span(RETRY_PAUSE.0 << tries.min(DOUBLINGS_MAX)), fid));
        true
    }

    /// A file that was taken was not tried.
    pub(crate) fn put_back(&mut self, waiting: Waiting, now: Instant) {
        let Waiting { fid, tries } = waiting;
        if self.has_room() && !self.files.contains_key(&fid) {
            self.files.insert(fid, tries);
            self.due.insert((now, fid));
        }
    }

    /// Whether one more file is not dropped.
    pub(crate) fn has_room(&self) -> bool {
        assert!(self.files.len() <= SOM_FILES_MAX, "the queue is bounded");
        self.files.len() < SOM_FILES_MAX
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Files that were dropped because the queue was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fid(oid: u32) -> Fid {
        Fid::new(0x400, oid)
    }

    fn at(secs: u64) -> Instant {
        Instant::default() + Span::secs(secs)
    }

    fn fids(taken: &[Waiting]) -> Vec<u32> {
        taken.iter().map(|waiting| waiting.fid.oid).collect()
    }

    #[test]
    fn a_file_is_there_once_and_has_its_turn_after_a_while() {
        let mut queue = Queue::default();
        for oid in [7, 3, 7] {
            assert!(queue.found(fid(oid)));
        }
        assert_eq!((queue.len(), queue.next_due()), (2, None), "they have no time");
        queue.admit(at(5));
        assert!(queue.found(fid(3)) && queue.take(at(4), 9).is_empty());
        assert_eq!(queue.next_due(), Some(at(5)));
        assert_eq!(fids(&queue.take(at(5), 1)), [3]);
        assert!(queue.found(fid(3)), "it may have been written since");
        queue.admit(at(6));
        assert_eq!(fids(&queue.take(at(9), 9)), [7, 3]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn what_is_tried_in_vain_comes_back_more_and_more_rarely_for_an_hour() {
        let mut queue = Queue::default();
        queue.found(fid(1));
        queue.admit(at(0));
        let (mut now, mut pauses) = (at(0), Vec::new());
        loop {
            let waiting = queue.take(now, 9)[0];
            if !queue.later(waiting, now) {
                break;
            }
            let next = queue.next_due().expect("it comes back");
            pauses.push((next - now).as_millis() / 1_000);
            now = next;
        }
        assert_eq!(pauses[..10], [1, 2, 4, 8, 16, 32, 64, 128, 256, 256]);
        assert!((3_500..3_700).contains(&pauses.iter().sum::<u64>()), "{pauses:?}");
        assert_eq!((queue.len(), queue.next_due()), (0, None));
    }

    #[test]
    fn a_file_that_was_not_tried_keeps_its_turn() {
        let mut queue = Queue::default();
        queue.found(fid(1));
        queue.admit(at(0));
        for _ in 0..3 * TRIES_MAX {
            let waiting = queue.take(at(1), 9)[0];
            queue.put_back(waiting, at(1));
        }
        assert_eq!((queue.len(), queue.next_due()), (1, Some(at(1))));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let mut queue = Queue::default();
        (0..SOM_FILES_MAX as u32).for_each(|oid| assert!(queue.found(fid(oid))));
        assert!(!queue.has_room() && !queue.found(fid(u32::MAX)) && queue.found(fid(5)));
        assert_eq!((queue.len(), queue.dropped()), (SOM_FILES_MAX, 1));
        queue.admit(at(0));
        let taken = queue.take(at(0), 2);
        assert!(queue.found(fid(u32::MAX)) && queue.later(taken[0], at(0)));
        assert!(!queue.later(taken[1], at(0)), "others have its place");
    }
}

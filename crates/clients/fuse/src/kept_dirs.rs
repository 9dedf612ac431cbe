//! The names that the kernel may keep of each directory, as its handles and answers.
//! [`crate::kept_names`] says when it may use them.

use std::collections::{BTreeMap, BTreeSet};

use types::Instant;

use crate::limits::{ANSWER_LATE, FRESH_LEAST};

/// What a reading of a directory from its start told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Until when the kernel has all entries that it has for long.
    until: Instant,
    /// Entries that it has for a moment, or not.
    others: u32,
    /// Answers with names, and the one with their end.
    answers: u32,
}

impl Pass {
    /// Nothing is told yet.
    pub(crate) const START: Pass = Pass { until: Instant(u64::MAX), others: 0, answers: 0 };

    /// One more answer.
    pub(crate) fn answered(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    /// The kernel has one more entry, with attributes, until `until`.
    pub(crate) fn told(&mut self, until: Instant, now: Instant) {
        if until > now + FRESH_LEAST {
            self.until = until.min(self.until);
        } else {
            self.others = self.others.saturating_add(1);
        }
    }

    /// Whether a caller that looks at each entry is served with fewer requests if it takes the
    /// names from the kernel. Attributes that the kernel does not have come with the names.
    fn pays(self, now: Instant) -> bool {
        self.until > now + FRESH_LEAST && self.others <= self.answers
    }
}

/// Threads that were told something, and may not have run since. A thread that asks again has
/// taken in what it was told.
#[derive(Clone, Copy, Debug, Default)]
struct Hearers {
    at: Instant,
    thread: u32,
    /// Others were told shortly before.
    several: bool,
}

impl Hearers {
    /// Whether all have taken it in, where `thread` asks now.
    fn have_heard(self, thread: u32, now: Instant) -> bool {
        now - self.at >= ANSWER_LATE || (!self.several && self.thread == thread)
    }

    /// A further thread is about to hear.
    fn tell(&mut self, thread: u32, now: Instant) {
        let several = !self.have_heard(thread, now);
        *self = Hearers { at: now, thread, several };
    }
}

/// What a thread is about to hear through a handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The listing under which it is so.
    pub(crate) listed: Option<u64>,
    pub(crate) is_start: bool,
    /// There are no more names.
    pub(crate) is_end: bool,
}

/// What the kernel may have of a directory's names.
#[derive(Default)]
struct KeptDir {
    /// Open handles through which it keeps names.
    handles: BTreeSet<u64>,
    /// Another number after each open that drops what was kept, and each end that was told.
    state: u64,
    /// The listing under which all names were told.
    of: Option<u64>,
    /// Some names were told under another one, or under none.
    is_mixed: bool,
    /// It may have heard of their end.
    is_whole: bool,
    /// Who was told names from the start on, and who was told of the end. No two threads are told
    /// one of each at a time: an end that comes late would follow names that it does not end.
    starts: Hearers,
    ends: Hearers,
    /// What the last whole reading told.
    pass: Option<Pass>,
}

/// How a directory is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The names that the kernel has stay as they are, and are not used.
    Aside,
    /// They are dropped, and new ones are kept.
    New,
    /// They are used.
    Kept,
}

/// The same of all directories.
#[derive(Default)]
pub(crate) struct KeptDirs {
    dirs: BTreeMap<u64, KeptDir>,
    by_handle: BTreeMap<u64, u64>,
    states: u64,
}

impl KeptDirs {
    /// A thread opens a directory while the client's listing of it has the number `listed`.
    pub(crate) fn open(
        &mut self,
        (nodeid, fh): (u64, u64),
        listed: Option<u64>,
        thread: u32,
        now: Instant,
    ) -> Opening {
        let dir = self.dirs.entry(nodeid).or_default();
        let is_held = !dir.is_mixed && dir.of.is_some() && dir.of == listed;
        let pays = !dir.is_whole || dir.pass.is_some_and(|pass| pass.pays(now));
        let is_alone = dir.handles.is_empty();
        let is_complete = dir.is_whole && dir.ends.have_heard(thread, now);
        let opening = match is_held {
            true if pays && (is_alone || is_complete) => Opening::Kept,
            false if is_alone => Opening::New,
            _ => Opening::Aside,
        };
        if opening == Opening::New {
            self.states += 1;
            *dir = KeptDir { state: self.states, pass: dir.pass, ..KeptDir::default() };
        }
        if opening != Opening::Aside {
            dir.handles.insert(fh);
            self.by_handle.insert(fh, nodeid);
        }
        opening
    }

    pub(crate) fn close(&mut self, fh: u64) {
        let Some(nodeid) = self.by_handle.remove(&fh) else { return };
        if let Some(dir) = self.dirs.get_mut(&nodeid) {
            dir.handles.remove(&fh);
        }
    }

    /// The kernel has dropped its last reference to a node, and so all its names.
    pub(crate) fn forget(&mut self, nodeid: u64) {
        self.dirs.remove(&nodeid);
    }

    /// Whether the kernel keeps names that it hears through this handle.
    pub(crate) fn has(&self, fh: u64) -> bool {
        self.by_handle.contains_key(&fh)
    }

    /// Until when a thread may not hear names from the start on, because another one may not have
    /// taken in the end yet.
    pub(crate) fn start_after(&self, fh: u64, thread: u32, now: Instant) -> Option<Instant> {
        let ends = self.dirs.get(self.by_handle.get(&fh)?)?.ends;
        (!ends.have_heard(thread, now)).then_some(ends.at + ANSWER_LATE)
    }

    /// A thread is about to hear a part through a handle. Returns whether the kernel may take what
    /// it has for all names, if that is the end.
    pub(crate) fn told(&mut self, fh: u64, part: Part, thread: u32, now: Instant) -> bool {
        let nodeid = self.by_handle.get(&fh);
        let Some(dir) = nodeid.and_then(|nodeid| self.dirs.get_mut(nodeid)) else { return true };
        if part.is_start {
            dir.starts.tell(thread, now);
        }
        dir.is_mixed |= part.listed.is_none() || (dir.of.is_some() && dir.of != part.listed);
        if dir.is_mixed || (part.is_end && !dir.starts.have_heard(thread, now)) {
            return false;
        }
        dir.of = part.listed;
        if part.is_end {
            dir.ends.tell(thread, now);
            dir.is_whole = true;
            self.states += 1;
            dir.state = self.states;
        }
        true
    }

    /// A reading of a directory has come to its end.
    pub(crate) fn passed(&mut self, nodeid: u64, pass: Pass) {
        if let Some(dir) = self.dirs.get_mut(&nodeid) {
            dir.pass = Some(pass);
        }
    }

    /// The kernel has dropped so many entries of a directory, or their attributes.
    pub(crate) fn lost(&mut self, nodeid: u64, entries: u32) {
        if let Some(pass) = self.dirs.get_mut(&nodeid).and_then(|dir| dir.pass.as_mut()) {
            pass.others = pass.others.saturating_add(entries);
        }
    }

    /// The kernel will look all names up again.
    pub(crate) fn lost_all(&mut self) {
        self.dirs.values_mut().for_each(|dir| dir.pass = None);
    }

    pub(crate) fn is_open(&self, nodeid: u64) -> bool {
        self.dirs.get(&nodeid).is_some_and(|dir| !dir.handles.is_empty())
    }

    /// Whether the kernel may read names through an open handle that are not those of the listing
    /// `listed`.
    pub(crate) fn is_stale(&self, nodeid: u64, listed: impl FnOnce() -> Option<u64>) -> bool {
        let dir = self.dirs.get(&nodeid);
        dir.is_some_and(|dir| {
            let is_used = dir.is_whole && !dir.handles.is_empty();
            is_used && (dir.is_mixed || dir.of != listed())
        })
    }

    /// Directories with open handles whose names the kernel may have.
    pub(crate) fn used(&self) -> Vec<u64> {
        let nodes: BTreeSet<u64> = self.by_handle.values().copied().collect();
        let is_whole = |nodeid: &u64| self.dirs.get(nodeid).is_some_and(|dir| dir.is_whole);
        nodes.into_iter().filter(is_whole).collect()
    }

    /// The state of a directory.
    pub(crate) fn state(&self, nodeid: u64) -> u64 {
        self.dirs.get(&nodeid).map_or(0, |dir| dir.state)
    }

    /// The kernel has dropped all names that it had in this state. It uses none that it hears late
    /// without those.
    pub(crate) fn dropped(&mut self, nodeid: u64, state: u64) {
        if let Some(dir) = self.dirs.get_mut(&nodeid).filter(|dir| dir.state == state) {
            dir.is_whole = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use types::Span;

    use super::*;

    const DIR: u64 = 7;
    const THREAD: u32 = 1;
    const OTHER: u32 = 2;

    fn at(ms: u64) -> Instant {
        Instant(1_000_000_000) + Span::millis(ms)
    }

    fn start(listed: Option<u64>) -> Part {
        Part { listed, is_start: true, is_end: false }
    }

    fn end(listed: Option<u64>) -> Part {
        Part { listed, is_start: false, is_end: true }
    }

    /// How handle `fh` is opened by the thread that lists.
    fn open(dirs: &mut KeptDirs, fh: u64, listed: u64, now: Instant) -> Opening {
        dirs.open((DIR, fh), Some(listed), THREAD, now)
    }

    /// A directory whose names were told to their end under the listing `of`, through handle 1.
    fn whole(of: u64) -> KeptDirs {
        let mut dirs = KeptDirs::default();
        assert_eq!(dirs.open((DIR, 1), None, THREAD, at(0)), Opening::New);
        assert!(dirs.told(1, start(Some(of)), THREAD, at(0)));
        assert!(dirs.told(1, end(Some(of)), THREAD, at(0)));
        let mut pass = Pass::START;
        pass.told(at(9_000), at(0));
        dirs.passed(DIR, pass);
        dirs
    }

    #[test]
    fn names_are_used_again_while_their_listing_lasts() {
        let mut dirs = whole(5);
        assert_eq!(open(&mut dirs, 2, 5, at(1)), Opening::Kept);
        assert_eq!(open(&mut dirs, 3, 6, at(1)), Opening::Aside, "others may hear late");
        assert!(dirs.has(2) && !dirs.has(3));
        [1, 2].into_iter().for_each(|fh| dirs.close(fh));
        assert_eq!(open(&mut dirs, 4, 6, at(1)), Opening::New);
        assert!(dirs.told(4, start(Some(6)), THREAD, at(1)));
        assert_eq!(open(&mut dirs, 5, 6, at(1)), Opening::Aside, "one at a time until the end");
        dirs.close(4);
        assert_eq!(open(&mut dirs, 6, 6, at(1)), Opening::Kept, "a part is as good");
        dirs.forget(DIR);
        assert_eq!(open(&mut dirs, 7, 6, at(1)), Opening::New);
    }

    #[test]
    fn no_end_is_told_behind_names_of_two_listings() {
        for other in [None, Some(6)] {
            let mut dirs = whole(5);
            assert_eq!(open(&mut dirs, 2, 5, at(1)), Opening::Kept);
            assert!(!dirs.told(2, start(other), THREAD, at(1)));
            assert!(!dirs.told(1, end(Some(5)), THREAD, at(1)), "of the other handle too");
            assert_eq!(open(&mut dirs, 3, 5, at(1)), Opening::Aside);
            [1, 2].into_iter().for_each(|fh| dirs.close(fh));
            assert_eq!(open(&mut dirs, 4, 5, at(1)), Opening::New);
        }
    }

    #[test]
    fn no_thread_hears_a_start_while_another_may_take_in_an_end_late() {
        let mut dirs = whole(5);
        assert_eq!(dirs.open((DIR, 2), Some(5), OTHER, at(1)), Opening::Aside);
        assert_eq!(dirs.open((DIR, 2), Some(5), OTHER, at(30)), Opening::Kept);
        let mut dirs = whole(5);
        assert_eq!(dirs.start_after(1, THREAD, at(1)), None, "it asks again");
        assert_eq!(dirs.start_after(1, OTHER, at(1)), Some(at(30)));
        assert!(dirs.told(1, start(Some(5)), OTHER, at(40)));
        assert!(!dirs.told(1, end(Some(5)), THREAD, at(41)), "it is late itself");
        assert!(dirs.told(1, end(Some(5)), OTHER, at(42)));
    }

    #[test]
    fn names_of_an_ended_listing_are_dropped_while_a_handle_may_use_them() {
        let mut dirs = whole(5);
        assert!(!dirs.is_stale(DIR, || Some(5)) && dirs.is_stale(DIR, || None));
        assert_eq!(dirs.used(), [DIR]);
        let state = dirs.state(DIR);
        assert!(dirs.told(1, end(Some(5)), THREAD, at(1)), "the listing lasts");
        dirs.dropped(DIR, state);
        assert!(dirs.is_stale(DIR, || None), "names may be kept again since");
        let state = dirs.state(DIR);
        dirs.dropped(DIR, state);
        assert!(!dirs.is_stale(DIR, || None) && dirs.is_open(DIR) && dirs.used().is_empty());
        dirs.close(1);
        assert!(!dirs.is_open(DIR));
    }

    #[test]
    fn the_kernel_asks_for_names_where_it_would_ask_for_more_entries() {
        let mut dirs = whole(5);
        dirs.close(1);
        assert_eq!(open(&mut dirs, 2, 5, at(8_500)), Opening::Aside, "they end soon");
        let mut pass = Pass { answers: 2, ..Pass::START };
        [at(9_000), at(20), at(20)].into_iter().for_each(|until| pass.told(until, at(0)));
        dirs.passed(DIR, pass);
        assert_eq!(open(&mut dirs, 3, 5, at(1)), Opening::Kept, "two directories");
        dirs.lost(DIR, 1);
        assert_eq!(open(&mut dirs, 4, 5, at(1)), Opening::Aside);
        dirs.passed(DIR, pass);
        dirs.lost_all();
        assert_eq!(open(&mut dirs, 5, 5, at(1)), Opening::Aside);
    }
}

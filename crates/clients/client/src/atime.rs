//! Access times of open files: which reads count, and what a stat shows before the close sends the
//! time to the MDT.
//!
//! Invariants
//! - A time is pending from the read that counts until the MDT has it, or until this client sets
//!   another time by hand.
//! - While a time is pending, a stat at this client shows it.
//!
//! Pure: time comes in as an argument. Lustre: `ll_inode_info.lli_atime` with `atime_diff`.

use types::Timespec;
use wire::Attr;

use crate::limits;

/// Which reads change access times, as mount(8) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// None (`noatime`, or a mount without changes).
    Never,
    /// The first after a change, and the first of a day (`relatime`).
    #[default]
    Relative,
    /// Each (`strictatime`).
    Always,
}

/// How a mount keeps access times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessTimes {
    /// Which reads count.
    pub reads: Reads,
    /// Also those of directories (not so: `nodiratime`).
    pub dirs: bool,
}

impl Default for AccessTimes {
    fn default() -> AccessTimes {
        AccessTimes { reads: Reads::default(), dirs: true }
    }
}

impl AccessTimes {
    /// Whether a read at `now` counts for what has these times.
    #[must_use]
    pub fn counts(self, attr: &Attr, now: Timespec) -> bool {
        (self.dirs || !attr.is_dir())
            && self.reads.count(attr.atime(), attr.mtime().max(attr.ctime()), now)
    }
}

impl Reads {
    fn count(self, atime: Timespec, changed: Timespec, now: Timespec) -> bool {
        match self {
            Reads::Never => false,
            Reads::Relative => {
                atime <= changed || atime.sec.saturating_add(limits::ATIME_SECS) <= now.sec
            }
            Reads::Always => true,
        }
    }
}

/// Access time of a file that is open here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    /// As the MDT said last.
    stored: Timespec,
    /// Last change that this client knows of.
    changed: Timespec,
    /// For the MDT to hear.
    pending: Option<Timespec>,
}

impl Access {
    /// Attributes came from the MDT.
    pub(crate) fn learn(&mut self, attr: &Attr) {
        self.stored = attr.atime();
        self.changed_at(attr.mtime().max(attr.ctime()));
    }

    pub(crate) fn changed_at(&mut self, at: Timespec) {
        self.changed = self.changed.max(at);
    }

    /// The contents are read.
    pub(crate) fn read(&mut self, reads: Reads, now: Timespec) {
        if reads.count(self.pending.unwrap_or(self.stored), self.changed, now) {
            self.pending = Some(now);
        }
    }

    /// What the next close tells.
    pub(crate) fn pending(&self) -> Option<Timespec> {
        self.pending
    }

    /// The MDT has heard `told`.
    pub(crate) fn told(&mut self, told: Timespec) {
        if self.pending == Some(told) {
            (self.stored, self.pending) = (told, None);
        }
    }

    /// An access time was set by hand: it counts, not the reads before.
    pub(crate) fn was_set(&mut self) {
        self.pending = None;
    }

    /// Puts what is pending into what the MDT says.
    pub(crate) fn show(&self, attr: &mut Attr) {
        if let Some(pending) = self.pending {
            attr.set_atime(pending.max(attr.atime()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::attr::{S_IFDIR, S_IFREG};

    fn at(sec: i64) -> Timespec {
        Timespec::new(sec, 0)
    }

    fn attr(mode: u32, atime: i64, mtime: i64) -> Attr {
        Attr { mode, atime, mtime, ..Attr::default() }
    }

    fn access(atime: i64, mtime: i64) -> Access {
        let mut access = Access::default();
        access.learn(&attr(S_IFREG, atime, mtime));
        access
    }

    #[test]
    fn relatime_counts_the_first_read_after_a_change_and_of_a_day() {
        let now = 1_000_000;
        for (atime, mtime, counts) in [
            (10, 20, true),
            (now - 1, 20, false),
            (now - limits::ATIME_SECS, 20, true),
            (20, 20, true),
        ] {
            let mut access = access(atime, mtime);
            access.read(Reads::Relative, at(now));
            assert_eq!(access.pending(), counts.then_some(at(now)), "{atime} {mtime}");
        }
        let mut access = access(10, 20);
        access.read(Reads::Relative, at(30));
        access.read(Reads::Relative, at(40));
        assert_eq!(access.pending(), Some(at(30)));
        access.changed_at(at(50));
        access.read(Reads::Relative, at(60));
        assert_eq!(access.pending(), Some(at(60)));
    }

    #[test]
    fn noatime_counts_nothing_and_strictatime_everything() {
        let mut access = access(10, 20);
        access.read(Reads::Never, at(30));
        assert_eq!(access.pending(), None);
        for now in [30, 31] {
            access.read(Reads::Always, at(now));
            assert_eq!(access.pending(), Some(at(now)));
        }
        let without_dirs = AccessTimes { reads: Reads::Always, dirs: false };
        assert!(
            !without_dirs.counts(&attr(S_IFDIR, 1, 2), at(3))
                && without_dirs.counts(&attr(S_IFREG, 1, 2), at(3))
        );
    }

    #[test]
    fn what_is_pending_is_shown_until_it_is_told_or_set() {
        let mut access = access(10, 20);
        access.read(Reads::Relative, at(30));
        let shown = |access: &Access, atime| {
            let mut attr = attr(S_IFREG, atime, 20);
            access.show(&mut attr);
            attr.atime
        };
        assert_eq!((shown(&access, 10), shown(&access, 40)), (30, 40));
        let mut later = access;
        later.read(Reads::Always, at(50));
        later.told(at(30));
        assert_eq!((later.pending(), shown(&later, 10)), (Some(at(50)), 50));
        access.told(at(30));
        assert_eq!((access.pending(), shown(&access, 10)), (None, 10));
        later.was_set();
        assert_eq!((later.pending(), shown(&later, 10)), (None, 10));
    }
}

//! The room and the states of the file system's MDTs, as they last reported them, and the choice of
//! an MDT for a new directory. In memory only: a restart asks again.

use std::collections::BTreeMap;
use std::rc::Rc;

use placement::{Mdt, MdtAllocator, Policy, Space, Wish};
use tokio::sync::Notify;
use types::{FsName, TargetId};
use wire::body::StatfsState;

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    space: Option<Space>,
    /// It gets no new directories.
    is_closed: bool,
    /// It gets none by choice while others can take them.
    is_degraded: bool,
}

/// See the head of the file.
pub(crate) struct Mdts {
    fsname: FsName,
    seen: BTreeMap<u32, Seen>,
    allocator: MdtAllocator,
    /// A directory was placed by the figures: they should be fresh.
    pub(crate) wanted: Rc<Notify>,
}

impl Mdts {
    /// Knows nothing yet; all chance comes from `seed`.
    pub(crate) fn new(fsname: FsName, seed: u64) -> Mdts {
        let wanted = Rc::new(Notify::new());
        Mdts { fsname, seen: BTreeMap::new(), allocator: MdtAllocator::new(seed), wanted }
    }

    /// An MDT told its room, and the states that its administrator gave it.
    pub(crate) fn told(&mut self, mdt: u32, space: Space, state: StatfsState) {
        let was = self.seen.get(&mdt).is_some_and(|seen| seen.is_closed);
        let takes_none = StatfsState::NO_CREATE | StatfsState::READ_ONLY;
        let is_closed = state.intersects(takes_none) || space.is_full(was);
        let is_degraded = state.contains(StatfsState::DEGRADED);
        if is_closed != was {
            let word = if is_closed { "no new directories" } else { "new directories again" };
            let target_id = TargetId::mdt(mdt).name(self.fsname);
            let bytes_avail = space.bytes_avail;
            tracing::info!(target: "mdt", %target_id, bytes_avail, "gets {word} by choice");
        }
        self.seen.insert(mdt, Seen { space: Some(space), is_closed, is_degraded });
    }

    /// An MDT took no new directory, or did not answer: it gets none until it has told its room.
    pub(crate) fn refused(&mut self, mdt: u32) {
        self.seen.entry(mdt).or_default().is_closed = true;
        self.wanted.notify_one();
    }

    /// Whether an MDT takes new directories, as far as is known.
    pub(crate) fn is_open(&self, mdt: u32) -> bool {
        self.seen.get(&mdt).is_none_or(|seen| !seen.is_closed)
    }

    /// The MDT of a new directory, out of those of `mdts`; `now` in seconds.
    pub(crate) fn choose(
        &mut self,
        wish: &Wish,
        mdts: &[u32],
        policy: &Policy,
        now: u64,
    ) -> Option<u32> {
        let all = self.known(mdts, None, 1);
        self.allocator.choose(wish, &all, policy, now)
    }

    /// The MDTs of further shards of a directory: the MDT of its first one, and how many more.
    pub(crate) fn choose_others(
        &mut self,
        shards: (u32, usize),
        mdts: &[u32],
        policy: &Policy,
        now: u64,
    ) -> Vec<u32> {
        let all = self.known(mdts, Some(shards.0), shards.1);
        self.allocator.choose_others(shards, &all, policy, now)
    }

    /// What is known of these MDTs, which should be fresh. Degraded ones are usable if fewer than
    /// `least` others are there, except for `first`.
    fn known(&self, mdts: &[u32], first: Option<u32>, least: usize) -> Vec<Mdt> {
        self.wanted.notify_one();
        let is_sound = |mdt: &&u32| self.seen.get(*mdt).is_none_or(|seen| !seen.is_degraded);
        let others = mdts.iter().filter(|mdt| Some(**mdt) != first);
        let needs_all = others.filter(is_sound).count() < least;
        let of = |mdt: &u32| Mdt {
            index: *mdt,
            usable: needs_all || is_sound(&mdt),
            space: self.seen.get(mdt).and_then(|seen| seen.space),
        };
        mdts.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mdts() -> Mdts {
        Mdts::new("testfs".parse().expect("a name"), 0)
    }

    #[test]
    fn an_mdt_is_closed_until_it_tells_that_it_has_room() {
        let mut mdts = mdts();
        let room = Space { bytes: 1 << 30, bytes_avail: 1 << 29, files_free: 1_000 };
        assert!(mdts.is_open(1), "nothing is known");
        mdts.refused(1);
        assert!(!mdts.is_open(1) && mdts.is_open(0));
        mdts.told(1, room, StatfsState::empty());
        assert!(mdts.is_open(1));
        mdts.told(1, room, StatfsState::NO_CREATE);
        assert!(!mdts.is_open(1), "its administrator says so");
        mdts.told(1, room, StatfsState::empty());
        mdts.told(1, room, StatfsState::READ_ONLY);
        assert!(!mdts.is_open(1), "it takes nothing at all");
        mdts.told(1, Space { files_free: 40, ..room }, StatfsState::empty());
        assert!(!mdts.is_open(1), "too little for an MDT that was closed");
    }

    #[test]
    fn a_degraded_mdt_is_chosen_only_if_the_others_are_too_few() {
        let mut mdts = mdts();
        let room = Space { bytes: 1 << 30, bytes_avail: 1 << 29, files_free: 1_000 };
        mdts.told(1, room, StatfsState::DEGRADED);
        mdts.told(2, room, StatfsState::empty());
        assert!(mdts.is_open(1), "it may be named");
        let wish = Wish { parent: 1, depth: 9, may_turn: false };
        let mut choose = |all: &[u32]| mdts.choose(&wish, all, &Policy::default(), 0);
        assert_eq!((choose(&[1, 2]), choose(&[1])), (Some(2), Some(1)));
        let mut others = |count| mdts.choose_others((2, count), &[1, 2, 3], &Policy::default(), 0);
        assert_eq!(others(1), [3]);
        assert_eq!(others(2), [3, 1]);
        mdts.told(2, room, StatfsState::DEGRADED);
        let other = mdts.choose_others((1, 1), &[1, 2, 3], &Policy::default(), 0);
        assert_eq!(other, [3], "also where the first one is degraded");
    }
}

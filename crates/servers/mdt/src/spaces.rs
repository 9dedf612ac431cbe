//! What room the OSTs have, as they told last, and the choice of OSTs by it. In memory only: a
//! restart asks again.

use std::collections::BTreeMap;
use std::rc::Rc;

use layout::Template;
use placement::{Allocator, Ost, PlacementError, Policy, Space};
use tokio::sync::Notify;

/// An OST of the file system, as the configuration knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OstAt {
    pub index: u32,
    /// Its node: stripes side by side go to different nodes where they can.
    pub node: u64,
    /// Not taken out of use by an administrator.
    pub is_active: bool,
}

impl From<u32> for OstAt {
    /// An active one, on a node that is like any other.
    fn from(index: u32) -> OstAt {
        OstAt { index, node: 0, is_active: true }
    }
}

/// Why an OST gets no new files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// It has no room, or too little: others are better, but what is removed gives it room.
    Full,
    /// Its disk takes nothing.
    ReadOnly,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    space: Space,
    closed: Option<Closed>,
}

pub(crate) struct Spaces {
    seen: BTreeMap<u32, Seen>,
    allocator: Allocator,
    /// Somebody chose by the figures: they should be fresh.
    pub(crate) wanted: Rc<Notify>,
}

impl Spaces {
    /// Knows nothing yet; all chance comes from `seed`.
    pub(crate) fn new(seed: u64) -> Spaces {
        Spaces {
            seen: BTreeMap::new(),
            allocator: Allocator::new(seed),
            wanted: Rc::new(Notify::new()),
        }
    }

    /// An OST told its room, and whether it takes anything.
    pub(crate) fn told(&mut self, index: u32, space: Space, closed: Option<Closed>) {
        let was = self.seen.get(&index).and_then(|seen| seen.closed);
        let closed = closed.or_else(|| space.is_full(was.is_some()).then_some(Closed::Full));
        if closed != was {
            let word = match closed {
                Some(Closed::Full) => "no new files while others have room: it is full",
                Some(Closed::ReadOnly) => "no new files: it is read-only",
                None => "new files again",
            };
            tracing::info!(target: "mdt", ost = index, bytes_avail = space.bytes_avail, "gets {word}");
        }
        self.seen.insert(index, Seen { space, closed });
    }

    /// Whether an OST has room for new files, as far as is known.
    pub(crate) fn any_open(&self, osts: &[OstAt]) -> bool {
        osts.iter().any(|ost| ost.is_active && self.closed(ost).is_none())
    }

    fn closed(&self, ost: &OstAt) -> Option<Closed> {
        self.seen.get(&ost.index)?.closed
    }

    /// OSTs for a file; `now` in seconds. While all are full the full ones are taken: objects are
    /// made by the first write, which asks the OST itself, while the figures here may be older than
    /// what has been removed since.
    pub(crate) fn place(
        &mut self,
        template: &Template,
        osts: &[OstAt],
        policy: &Policy,
        now: u64,
    ) -> Result<Vec<u32>, PlacementError> {
        self.wanted.notify_one();
        let is_full_taken = !self.any_open(osts);
        let known: Vec<Ost> = osts.iter().map(|ost| self.candidate(ost, is_full_taken)).collect();
        self.allocator.choose(template, &known, policy, now)
    }

    fn candidate(&self, ost: &OstAt, is_full_taken: bool) -> Ost {
        let bytes_avail = self.seen.get(&ost.index).map(|seen| seen.space.bytes_avail);
        let takes = match self.closed(ost) {
            None => true,
            Some(Closed::Full) => is_full_taken,
            Some(Closed::ReadOnly) => false,
        };
        Ost { index: ost.index, node: ost.node, usable: ost.is_active && takes, bytes_avail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spaces: &mut Spaces, osts: &[OstAt]) -> Result<Vec<u32>, PlacementError> {
        let all = Template { stripe_count: -1, ..Template::default() };
        let mut chosen = spaces.place(&all, osts, &Policy::default(), 0)?;
        chosen.sort_unstable();
        Ok(chosen)
    }

    #[test]
    fn full_and_inactive_osts_are_left_out() {
        let mut spaces = Spaces::new(0);
        let osts = [0, 1, 2].map(OstAt::from);
        let room = |bytes_avail| Space { bytes: 1_000_000, bytes_avail, files_free: 1_000 };
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 1, 2]));
        spaces.told(1, room(10), None);
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 2]));
        spaces.told(1, room(1_500), None);
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 2]), "not at once");
        spaces.told(1, room(2_000), None);
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 1, 2]));
        let one_inactive = [osts[0], OstAt { is_active: false, ..osts[1] }, osts[2]];
        assert_eq!(check(&mut spaces, &one_inactive), Ok(vec![0, 2]));
    }

    #[test]
    fn while_all_osts_are_full_full_ones_are_taken() {
        let mut spaces = Spaces::new(0);
        let osts = [0, 1, 2].map(OstAt::from);
        let room = Space { bytes: 1_000_000, bytes_avail: 10, files_free: 1_000 };
        spaces.told(0, room, None);
        spaces.told(1, room, Some(Closed::Full));
        spaces.told(2, Space { bytes_avail: 5_000, ..room }, Some(Closed::ReadOnly));
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 1]));
        assert!(!spaces.any_open(&osts), "they are asked often");
        let one_inactive = [osts[0], OstAt { is_active: false, ..osts[1] }, osts[2]];
        assert_eq!(check(&mut spaces, &one_inactive), Ok(vec![0]));
        (0..2).for_each(|index| spaces.told(index, room, Some(Closed::ReadOnly)));
        assert_eq!(check(&mut spaces, &osts), Err(PlacementError::NoneUsable));
    }
}

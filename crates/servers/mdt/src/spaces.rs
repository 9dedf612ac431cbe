//! What room the OSTs have, as they told last, and the choice of OSTs by it. In memory only: a restart asks again.

use std::collections::BTreeMap;
use std::rc::Rc;

use layout::Template;
use placement::{Allocator, Ost, PlacementError, Policy, Space};
use tokio::sync::Notify;

/// An OST of the file system, as the configuration knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OstAt {
    /// Index.
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

#[derive(Clone, Copy, Debug)]
struct Seen {
    space: Space,
    /// Gets no new files.
    is_closed: bool,
}

/// Figures and allocator.
pub(crate) struct Spaces {
    seen: BTreeMap<u32, Seen>,
    allocator: Allocator,
    /// Somebody chose by the figures: they should be fresh.
    pub(crate) wanted: Rc<Notify>,
}

impl Spaces {
    /// Knows nothing yet; all chance comes from `seed`.
    pub(crate) fn new(seed: u64) -> Spaces {
        Spaces { seen: BTreeMap::new(), allocator: Allocator::new(seed), wanted: Rc::new(Notify::new()) }
    }

    /// An OST told its room; `is_closed`: and that it takes nothing.
    pub(crate) fn told(&mut self, index: u32, space: Space, is_closed: bool) {
        let was_closed = self.seen.get(&index).is_some_and(|seen| seen.is_closed);
        let is_closed = is_closed || space.is_full(was_closed);
        if is_closed != was_closed {
            let word = if is_closed { "no new files: it is full" } else { "new files again" };
            tracing::info!(target: "mdt", ost = index, bytes_avail = space.bytes_avail, "gets {word}");
        }
        self.seen.insert(index, Seen { space, is_closed });
    }

    /// Whether an OST may get new files, as far as is known.
    pub(crate) fn any_open(&self, osts: &[OstAt]) -> bool {
        osts.iter().any(|ost| self.usable(ost))
    }

    fn usable(&self, ost: &OstAt) -> bool {
        ost.is_active && self.seen.get(&ost.index).is_none_or(|seen| !seen.is_closed)
    }

    /// OSTs for a file; `now` in seconds.
    pub(crate) fn place(
        &mut self,
        template: &Template,
        osts: &[OstAt],
        policy: &Policy,
        now: u64,
    ) -> Result<Vec<u32>, PlacementError> {
        self.wanted.notify_one();
        let known: Vec<Ost> = osts.iter().map(|ost| self.candidate(ost)).collect();
        self.allocator.choose(template, &known, policy, now)
    }

    fn candidate(&self, ost: &OstAt) -> Ost {
        let bytes_avail = self.seen.get(&ost.index).map(|seen| seen.space.bytes_avail);
        Ost { index: ost.index, node: ost.node, usable: self.usable(ost), bytes_avail }
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
    fn full_and_inactive_osts_are_left_out_until_they_have_room_again() {
        let mut spaces = Spaces::new(0);
        let osts = [0, 1, 2].map(OstAt::from);
        let room = |bytes_avail| Space { bytes: 1_000_000, bytes_avail, files_free: 1_000 };
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 1, 2]));
        spaces.told(1, room(10), false);
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 2]));
        spaces.told(1, room(1_500), false);
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 2]), "not at once");
        spaces.told(1, room(2_000), false);
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 1, 2]));
        let one_inactive = [osts[0], OstAt { is_active: false, ..osts[1] }, osts[2]];
        assert_eq!(check(&mut spaces, &one_inactive), Ok(vec![0, 2]));
        (0..3).for_each(|index| spaces.told(index, room(2_000), true));
        assert_eq!(check(&mut spaces, &osts), Err(PlacementError::NoneUsable));
        assert!(!spaces.any_open(&osts));
    }
}

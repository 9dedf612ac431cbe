//! The part of a write that no OST has executed. A part that was executed is not sent again,
//! because another client may have written the same bytes since.
//!
//! Invariant: the extents are in the order of the file and share no byte.
//!
//! Pure.

use std::cell::RefCell;

use types::Extent;

use super::group::Part;

/// See the head of the file.
pub(super) struct Left(RefCell<Vec<Extent>>);

impl Left {
    /// Of a write that was not sent yet.
    pub(super) fn all(extent: Extent) -> Left {
        Left(RefCell::new(vec![extent]))
    }

    /// What is to be sent.
    pub(super) fn extents(&self) -> Vec<Extent> {
        self.0.borrow().clone()
    }

    /// An OST has executed these parts.
    pub(super) fn executed(&self, parts: &[Part]) {
        let mut left = self.0.borrow_mut();
        for done in parts.iter().filter_map(|part| part.extent()) {
            *left = left.iter().flat_map(|extent| without(*extent, done)).collect();
        }
    }
}

/// What `extent` has before and behind `done`.
fn without(extent: Extent, done: Extent) -> impl Iterator<Item = Extent> {
    let before = Extent::new(extent.start(), extent.end().min(done.start()));
    let behind = Extent::new(extent.start().max(done.end()), extent.end());
    before.into_iter().chain(behind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::group::{runs, runs_of};
    use crate::testing::layout;

    const KIB: u64 = 1 << 10;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start * KIB, end * KIB).expect("not empty")
    }

    #[test]
    fn what_was_executed_is_not_left() {
        let left = Left::all(extent(0, 100));
        let part = |start: u64, len: u64| Part { file_offset: start * KIB, len: len * KIB };
        left.executed(&[part(20, 10), part(0, 5)]);
        assert_eq!(left.extents(), [extent(5, 20), extent(30, 100)]);
        left.executed(&[part(15, 20), part(200, 5), part(40, 0)]);
        assert_eq!(left.extents(), [extent(5, 15), extent(35, 100)]);
        left.executed(&[part(0, 100)]);
        assert!(left.extents().is_empty());
    }

    #[test]
    fn the_requests_of_one_stripe_are_left_as_they_were() {
        let (layout, all) = (layout(2), extent(32, 300));
        let first = runs(&layout, all, 1 << 20);
        let left = Left::all(all);
        left.executed(&first[0].parts);
        assert_eq!(runs_of(&layout, left.extents(), 1 << 20), first[1..]);
    }
}

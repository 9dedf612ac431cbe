//! Files whose closes brought their bytes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use types::{Fid, Instant};

use crate::limits::{BROUGHT_FILES_MAX, BROUGHT_FOR, PUT_REFUSED_FOR};

/// Files whose closes brought their bytes a short while ago.
#[derive(Default)]
pub(crate) struct Brought {
    files: RefCell<BTreeMap<Fid, Instant>>,
    /// The same in the order of time, and those that were opened since.
    order: RefCell<VecDeque<(Fid, Instant)>>,
    /// Until then none does so.
    rests: Cell<Instant>,
}

impl Brought {
    pub(super) fn may_bring(&self, now: Instant) -> bool {
        self.rests.get() <= now
    }

    pub(super) fn rest(&self, now: Instant) {
        self.rests.set(now + PUT_REFUSED_FOR);
    }

    pub(super) fn note(&self, fid: Fid, now: Instant) {
        let (mut files, mut order) = (self.files.borrow_mut(), self.order.borrow_mut());
        while let Some((old, until)) = order.pop_front_if(|(_, until)| *until <= now) {
            if files.get(&old) == Some(&until) {
                files.remove(&old);
            }
        }
        if order.len() < BROUGHT_FILES_MAX {
            let until = now + BROUGHT_FOR;
            files.insert(fid, until);
            order.push_back((fid, until));
        }
        assert!(files.len() <= order.len(), "each file has its place in the order");
    }

    /// A file is opened again.
    pub(crate) fn is_opened(&self, fid: Fid, now: Instant) {
        let until = self.files.borrow_mut().remove(&fid);
        if until.is_some_and(|until| now < until) {
            self.rest(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::Span;

    use super::*;

    #[test]
    fn a_mount_that_opens_its_new_files_again_stops_for_a_while() {
        let (brought, start) = (Brought::default(), Instant::default());
        let at = |seconds| start + Span::secs(seconds);
        let file = |oid| Fid { oid, ..Fid::ROOT };
        brought.note(file(1), at(1));
        brought.is_opened(file(2), at(1));
        assert!(brought.may_bring(at(1)), "another file is opened");
        brought.is_opened(file(1), at(1) + BROUGHT_FOR);
        assert!(brought.may_bring(at(3)), "its close is durable by then");
        brought.note(file(1), at(4));
        brought.is_opened(file(1), at(4));
        assert!(!brought.may_bring(at(5)));
        assert!(brought.may_bring(at(4) + PUT_REFUSED_FOR));
        for oid in 0..=BROUGHT_FILES_MAX as u32 {
            brought.note(file(oid), at(9));
        }
        assert_eq!(brought.files.borrow().len(), BROUGHT_FILES_MAX);
    }

    /// A step looks at the files that are over, and not at all of them.
    #[test]
    fn files_are_forgotten_in_the_order_in_which_they_came() {
        let (brought, start) = (Brought::default(), Instant::default());
        let file = |oid| Fid { oid, ..Fid::ROOT };
        let at = |oid: u32| start + Span::millis(u64::from(oid));
        for oid in 0..2 * BROUGHT_FILES_MAX as u32 {
            brought.note(file(oid), at(oid));
            let oldest = brought.order.borrow().front().copied().expect("one is there");
            assert!(at(oid) < oldest.1, "what is over has gone");
            assert!(brought.files.borrow().len() <= 1_500);
        }
        let last = 2 * BROUGHT_FILES_MAX as u32 - 1;
        brought.note(file(last), at(last + 1)); // again
        brought.note(file(0), at(last) + BROUGHT_FOR);
        assert!(brought.files.borrow().contains_key(&file(last)), "its later time counts");
    }
}

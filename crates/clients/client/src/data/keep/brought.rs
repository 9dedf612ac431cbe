//! Files whose closes brought their bytes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use types::{Fid, Instant};

use crate::limits::{BROUGHT_FILES_MAX, BROUGHT_FOR, PUT_REFUSED_FOR};

/// Files whose closes brought their bytes a short while ago.
#[derive(Default)]
pub(crate) struct Brought {
    files: RefCell<BTreeMap<Fid, Instant>>,
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
        let mut files = self.files.borrow_mut();
        if files.len() >= BROUGHT_FILES_MAX {
            files.retain(|_, until| now < *until);
        }
        if files.len() < BROUGHT_FILES_MAX {
            files.insert(fid, now + BROUGHT_FOR);
        }
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
        assert!(brought.files.borrow().len() <= BROUGHT_FILES_MAX);
    }
}

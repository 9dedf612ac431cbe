//! Directories whose new files are not offered to the MDT with their bytes.

use std::cell::RefCell;
use std::collections::BTreeMap;

use types::{Fid, Instant};

use crate::limits;

/// Directories whose new files do not fit at the MDT, and so are not offered with their bytes.
#[derive(Default)]
pub(crate) struct Refused(RefCell<BTreeMap<Fid, (usize, Instant)>>);

impl Refused {
    /// Whether the MDT has refused a file of no more bytes a short while ago.
    pub(super) fn holds(&self, dir: Fid, bytes: usize, now: Instant) -> bool {
        let known = self.0.borrow();
        known.get(&dir).is_some_and(|(least, until)| bytes >= *least && now < *until)
    }

    pub(super) fn note(&self, dir: Fid, bytes: usize, now: Instant) {
        let mut known = self.0.borrow_mut();
        if known.len() >= limits::PUT_REFUSED_MAX {
            known.clear();
        }
        known.insert(dir, (bytes, now + limits::PUT_REFUSED_FOR));
    }
}

#[cfg(test)]
mod tests {
    use types::Span;

    use super::*;

    #[test]
    fn a_refused_length_is_not_offered_again_for_a_while() {
        let refused = Refused::default();
        let (dir, start) = (Fid::ROOT, Instant::default());
        refused.note(dir, 4_096, start);
        assert!(refused.holds(dir, 4_096, start) && refused.holds(dir, 65_536, start));
        assert!(!refused.holds(dir, 4_095, start), "it may fit");
        assert!(!refused.holds(Fid::ZERO, 4_096, start));
        assert!(!refused.holds(dir, 4_096, start + limits::PUT_REFUSED_FOR));
        for number in 0..limits::PUT_REFUSED_MAX as u32 {
            refused.note(Fid::new(7, number + 1), 1, start + Span::secs(1));
        }
        assert!(refused.0.borrow().len() <= limits::PUT_REFUSED_MAX);
    }
}

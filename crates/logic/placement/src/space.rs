//! When an OST is too full for new files. Existing files may still grow on it until it is really
//! full.
//!
//! Pure. Lustre: `osp_statfs`.

/// Part of an OST below which it gets no new files: 0.1 % (Lustre: `osp.*.reserved_mb_low`); it is
/// back at twice as much.
const RESERVED_PART: u64 = 1_000;

/// Free objects below which an OST gets no new files.
const FILES_LOW: u64 = 32;

/// Free objects at which it gets some again.
const FILES_HIGH: u64 = 65;

/// Room on an OST, as it told last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub bytes: u64,
    /// Bytes free for users.
    pub bytes_avail: u64,
    /// Objects that can still be made.
    pub files_free: u64,
}

impl Space {
    /// Whether the OST gets no new files, given whether it got none so far: between the two marks
    /// all stays as it was.
    #[must_use]
    pub fn is_full(&self, was_full: bool) -> bool {
        let factor = if was_full { 2 } else { 1 };
        let files = if was_full { FILES_HIGH } else { FILES_LOW };
        self.bytes_avail < self.bytes / RESERVED_PART * factor
            || self.bytes_avail == 0
            || self.files_free < files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(was_full: bool, bytes_avail: u64, files_free: u64) -> bool {
        Space { bytes: 1_000_000, bytes_avail, files_free }.is_full(was_full)
    }

    #[test]
    fn an_ost_is_full_below_one_mark_and_back_above_the_other() {
        assert_eq!(
            [check(false, 1_000, 99), check(false, 999, 99), check(false, 1_000, 31)],
            [false, true, true]
        );
        assert_eq!(
            [check(true, 1_999, 99), check(true, 2_000, 65), check(true, 2_000, 64)],
            [true, false, true]
        );
        assert!(
            Space { files_free: 100, ..Space::default() }.is_full(false),
            "no room at all, however small it is"
        );
    }

    proptest! {
        #[test]
        fn who_is_let_back_is_not_taken_out_again_at_once(bytes: u64, bytes_avail: u64, files_free: u64) {
            let space = Space { bytes, bytes_avail, files_free };
            prop_assert!(space.is_full(true) || !space.is_full(false));
        }
    }
}

//! How many refused connections a listener writes to its log.
//!
//! Any stranger can have a connection refused, as often as it likes. So that it can neither fill
//! the disk nor keep the executor busy with writing, [`COMPLAINTS_MAX`] lines are written within
//! [`COMPLAINTS_PERIOD`]. The next line says how many were left out.
//!
//! Pure: the acceptor asks before it writes.

use types::Instant;

use crate::limits::{COMPLAINTS_MAX, COMPLAINTS_PERIOD};

#[derive(Default)]
pub(super) struct Complaints {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl Complaints {
    /// Whether a line may be written now; if so, how many were left out since the last one.
    pub(super) fn admit(&mut self, now: Instant) -> Option<u64> {
        if now >= self.since + COMPLAINTS_PERIOD {
            (self.since, self.written) = (now, 0);
        }
        if self.written == COMPLAINTS_MAX {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_writes_a_bounded_number_of_lines() {
        let mut complaints = Complaints::default();
        let start = Instant(0) + COMPLAINTS_PERIOD;
        let many = u64::from(COMPLAINTS_MAX) + 1_000;
        let written = (0..many).filter_map(|number| complaints.admit(Instant(start.0 + number)));
        assert_eq!(written.collect::<Vec<_>>(), vec![0; COMPLAINTS_MAX as usize]);
        let later = start + COMPLAINTS_PERIOD;
        assert_eq!(complaints.admit(later), Some(1_000), "they are counted");
        assert_eq!(complaints.admit(later), Some(0));
    }
}

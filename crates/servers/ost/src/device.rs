//! A slower device than the one that is there, for experiments: transfers leave one behind the
//! other at a set rate.
//!
//! What a scheduler does is only seen where requests wait for something. With a rate below what the
//! machine can do, they wait here, in the slots of `ost_io`, and behind those in its NRS heads, as
//! before a slow disk.

use std::cell::Cell;

use types::{Instant, Span};

/// The highest rate that may be set, bytes a second.
pub(crate) const BYTES_PER_SEC_MAX: u64 = 1 << 40;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Device {
    bytes_per_sec: Cell<u64>,
    free_at: Cell<Instant>,
}

impl Device {
    /// Bytes a second; 0 takes the device away.
    pub(crate) fn set_bytes_per_sec(&self, rate: u64) {
        self.bytes_per_sec.set(rate.min(BYTES_PER_SEC_MAX));
        self.free_at.set(Instant::default());
    }

    pub(crate) fn bytes_per_sec(&self) -> u64 {
        self.bytes_per_sec.get()
    }

    /// When a transfer of `bytes` that is handed over at `now` is through; `None` without a device.
    pub(crate) fn occupy(&self, now: Instant, bytes: u64) -> Option<Instant> {
        let rate = self.bytes_per_sec.get();
        if rate == 0 {
            return None;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let until = self.free_at.get().max(now) + Span(u64::try_from(nanos).unwrap_or(u64::MAX));
        assert!(until >= now, "a transfer ends after it began");
        self.free_at.set(until);
        Some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_leave_one_behind_the_other() {
        let device = Device::default();
        assert_eq!(device.occupy(Instant(5), 1_000), None, "no device");
        device.set_bytes_per_sec(1_000_000);
        let ms = |ms: u64| Instant(ms * 1_000_000);
        assert_eq!(device.occupy(ms(10), 1_000), Some(ms(11)));
        assert_eq!(device.occupy(ms(10), 2_000), Some(ms(13)), "behind the first");
        assert_eq!(device.occupy(ms(20), 1_000), Some(ms(21)), "an idle device saves nothing up");
    }
}

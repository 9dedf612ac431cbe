//! Data of transfers: made, checked, and corrupted if a test of the check asks for it.

use std::cell::Cell;
use std::sync::OnceLock;

use bytes::Bytes;
use lst::limits::BRW_BYTES_MAX;
use lst::pattern::{self, Origin};
use wire::lst::Check;

/// Content that is the same for every transfer, made once in a process.
static MAGIC: OnceLock<Bytes> = OnceLock::new();

/// Makes what is sent.
#[derive(Default)]
pub(crate) struct Source {
    /// Every so many transfers one byte is changed behind its maker's back; 0 never.
    pub(crate) corrupt_every: Cell<u64>,
    sent: Cell<u64>,
}

impl Source {
    /// `len` bytes for `check`, at most [`BRW_BYTES_MAX`].
    pub(crate) fn make(&self, check: Check, len: usize, origin: Origin) -> Bytes {
        let data = match check {
            Check::Crc => Bytes::from(pattern::fill(check, len, origin)),
            _ => MAGIC
                .get_or_init(|| Bytes::from(pattern::magic(BRW_BYTES_MAX as usize)))
                .slice(..len),
        };
        let sent = self.sent.get() + 1;
        self.sent.set(sent);
        match self.corrupt_every.get() {
            0 => data,
            every if !sent.is_multiple_of(every) => data,
            _ => corrupted(&data, sent),
        }
    }
}

fn corrupted(data: &[u8], sequence: u64) -> Bytes {
    let mut bad = data.to_vec();
    if let Some(byte) = bad.get_mut(pattern::corruption_at(data.len(), sequence)) {
        *byte ^= 1;
    }
    Bytes::from(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_transfer_in_n_is_spoilt() {
        let source = Source::default();
        let origin = Origin::default();
        let good = |check| pattern::is_intact(check, &source.make(check, 8_192, origin), 0, origin);
        assert!((0..10).all(|_| good(Check::Full)));
        source.corrupt_every.set(3);
        let spoilt = (0..9)
            .filter(|turn| !good(if turn % 2 == 0 { Check::Simple } else { Check::Crc }))
            .count();
        assert_eq!(spoilt, 3);
        source.corrupt_every.set(0);
        assert!(good(Check::Full), "the shared content was not touched");
    }
}

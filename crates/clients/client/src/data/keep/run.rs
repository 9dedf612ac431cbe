//! Bytes that are acknowledged and not sent: one run of a file without a gap, and when it is due.
//!
//! Invariants
//! - A run has every byte from its start to its end, each as it was written last.
//! - A run is due at [`KEPT_IDLE`] after its last write and [`KEPT_AGE`] after its first one, or at
//!   once when it has [`RUN_BYTES`].
//! - A write that does not touch the run is not taken: the run is sent first.
//!
//! Pure: the caller passes in the time.

use bytes::{Bytes, BytesMut};
use types::{Extent, Instant, Timespec};

use crate::limits::{KEPT_AGE, KEPT_IDLE, RUN_BYTES};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Run {
    start: u64,
    bytes: BytesMut,
    begun: Instant,
    last: Instant,
    /// Time of the last write, as OSTs are told.
    pub(super) mtime: Timespec,
}

impl Run {
    /// Of one write at `now`. Its bytes are copied only if they have another owner.
    pub(super) fn new(offset: u64, data: Bytes, mtime: Timespec, now: Instant) -> Run {
        assert!(!data.is_empty(), "a write has bytes");
        Run { start: offset, bytes: BytesMut::from(data), begun: now, last: now, mtime }
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// What it covers.
    pub(super) fn extent(&self) -> Extent {
        Extent::new(self.start, self.end()).expect("a run has bytes")
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes by which a write makes the run longer; nothing where it is not taken.
    pub(super) fn growth(&self, offset: u64, len: usize) -> Option<usize> {
        let is_within = (self.start..=self.end()).contains(&offset) && !self.is_full();
        let beyond = (offset + len as u64).saturating_sub(self.end());
        is_within.then_some(beyond as usize)
    }

    /// Takes a write that [`Run::growth`] allows.
    pub(super) fn put(&mut self, offset: u64, data: &[u8], mtime: Timespec, now: Instant) {
        assert!(self.growth(offset, data.len()).is_some(), "a run has no gap");
        let at = (offset - self.start) as usize;
        let over = data.len().min(self.bytes.len() - at);
        self.bytes[at..at + over].copy_from_slice(&data[..over]);
        self.bytes.extend_from_slice(&data[over..]);
        self.last = now;
        self.mtime = self.mtime.max(mtime);
    }

    /// Whether it is sent without waiting.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= RUN_BYTES
    }

    /// When its first write was made.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// When it is to be sent.
    pub(super) fn due(&self) -> Instant {
        (self.last + KEPT_IDLE).min(self.begun + KEPT_AGE)
    }

    /// What it covers, and its bytes.
    pub(super) fn into_parts(self) -> (Extent, Bytes) {
        let (extent, len) = (self.extent(), self.bytes.len());
        // they stay in memory until the OST's commit
        let is_wasteful = self.bytes.capacity() > len + len / 4;
        let bytes = match is_wasteful {
            true => Bytes::copy_from_slice(&self.bytes),
            false => self.bytes.freeze(),
        };
        (extent, bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::Span;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::default() + Span::millis(ms)
    }

    fn run(offset: u64, data: &str) -> Run {
        Run::new(offset, Bytes::copy_from_slice(data.as_bytes()), Timespec::default(), at(0))
    }

    #[test]
    fn a_write_joins_the_run_that_it_touches() {
        let mut own = run(10, "abcd");
        assert_eq!((own.growth(9, 1), own.growth(15, 1)), (None, None));
        assert_eq!(
            (own.growth(10, 2), own.growth(12, 4), own.growth(14, 3)),
            (Some(0), Some(2), Some(3))
        );
        own.put(12, b"XYZ", Timespec::new(5, 0), at(7));
        own.put(10, b"-", Timespec::new(4, 0), at(8));
        assert_eq!(own.mtime, Timespec::new(5, 0));
        let (extent, bytes) = own.into_parts();
        assert_eq!((extent.start(), extent.end(), &bytes[..]), (10, 15, &b"-bXYZ"[..]));
    }

    /// As the data of a FUSE message that is not lent out of a larger buffer.
    #[test]
    fn bytes_with_one_owner_are_sent_without_a_copy() {
        let message = Bytes::from(vec![7; 33 << 10]);
        let data = message.slice(80..);
        drop(message);
        let at_first = data.as_ptr();
        let (extent, sent) = Run::new(0, data, Timespec::default(), at(0)).into_parts();
        assert_eq!((sent.as_ptr(), sent.len() as u64), (at_first, extent.end()));
        let copied = Run::new(0, sent.clone(), Timespec::default(), at(0)).into_parts().1;
        assert_ne!(copied.as_ptr(), sent.as_ptr());
        assert_eq!(copied, sent);
    }

    #[test]
    fn it_is_due_when_it_rests_or_is_old_or_full() {
        let mut own = run(0, "a");
        assert_eq!(own.due(), at(0) + KEPT_IDLE);
        own.put(1, b"b", Timespec::default(), at(90));
        assert_eq!(own.due(), at(90) + KEPT_IDLE);
        own.put(2, b"c", Timespec::default(), at(990));
        assert_eq!(own.due(), at(0) + KEPT_AGE);
        own.put(3, &vec![0; RUN_BYTES], Timespec::default(), at(991));
        assert!(own.is_full() && own.growth(4, 1).is_none());
    }

    proptest! {
        /// What runs send, one after the other, makes of a file what the writes made of it.
        #[test]
        fn runs_make_of_a_file_what_its_writes_did(
            writes in prop::collection::vec((0..60_u64, 1..20_usize, any::<u8>()), 1..60),
            sends in prop::collection::vec(any::<bool>(), 60),
        ) {
            let (mut slow, mut sent) = (vec![0; 100], vec![0; 100]);
            let mut own: Option<Run> = None;
            let mut send = |run: Option<Run>| {
                if let Some(run) = run {
                    let (extent, bytes) = run.into_parts();
                    sent[extent.start() as usize..extent.end() as usize].copy_from_slice(&bytes);
                }
            };
            for ((offset, len, fill), is_sent) in writes.into_iter().zip(sends) {
                let data = vec![fill; len];
                slow[offset as usize..offset as usize + len].copy_from_slice(&data);
                match own.as_mut().filter(|run| run.growth(offset, len).is_some()) {
                    Some(run) => run.put(offset, &data, Timespec::default(), at(0)),
                    None => {
                        send(own.take());
                        own = Some(Run::new(offset, data.into(), Timespec::default(), at(0)));
                    }
                }
                if is_sent {
                    send(own.take());
                }
            }
            send(own.take());
            prop_assert_eq!(slow, sent);
        }
    }
}

//! Counts the frames and bytes on their way from one thread to another, and lets a task wait until
//! there are fewer.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::OsConfig;

/// Bytes and frames in one direction.
#[derive(Default)]
pub(crate) struct Gauge {
    bytes: AtomicUsize,
    frames: AtomicUsize,
    pub(crate) taken: Notify,
}

impl Gauge {
    /// One frame more; the bytes with it.
    pub(crate) fn put(&self, bytes: usize) -> usize {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    pub(crate) fn take(&self, frames: usize, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.frames.fetch_sub(frames, Ordering::Relaxed);
        self.taken.notify_waiters();
    }

    /// Bytes on their way.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there is room for another frame.
    pub(crate) fn fits(&self, config: &OsConfig) -> bool {
        let (bytes, frames) =
            (self.bytes.load(Ordering::Relaxed), self.frames.load(Ordering::Relaxed));
        bytes < config.queue_bytes_max && frames < config.queue_frames_max
    }
}

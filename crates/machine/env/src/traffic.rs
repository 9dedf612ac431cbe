//! The traffic that a node has sent and received, as its LNDs count it.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

/// LNet messages and their payload bytes since the node started. Frame headers and heartbeats are
/// not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounters {
    /// Messages sent.
    pub send_count: u64,
    /// Messages received.
    pub recv_count: u64,
    /// Bytes sent.
    pub send_bytes: u64,
    /// Bytes received.
    pub recv_bytes: u64,
}

/// The account of one node's links, and what its LNDs do to buffers before data arrive. All LNDs
/// use it, also those that read and write on threads of their own.
#[derive(Debug)]
pub struct Traffic {
    send_count: AtomicU64,
    recv_count: AtomicU64,
    send_bytes: AtomicU64,
    recv_bytes: AtomicU64,
    /// A byte, or [`NO_POISON`].
    poison: AtomicU16,
}

const NO_POISON: u16 = u16::MAX;

impl Default for Traffic {
    fn default() -> Traffic {
        Traffic {
            send_count: AtomicU64::new(0),
            recv_count: AtomicU64::new(0),
            send_bytes: AtomicU64::new(0),
            recv_bytes: AtomicU64::new(0),
            poison: AtomicU16::new(NO_POISON),
        }
    }
}

/// A copy is an account of its own, and starts at zero.
impl Clone for Traffic {
    fn clone(&self) -> Traffic {
        let copy = Traffic::default();
        copy.set_poison(self.poison());
        copy
    }
}

impl Traffic {
    /// A message of `bytes` was handed to the network.
    pub fn sent(&self, bytes: usize) {
        self.sent_all(1, bytes);
    }

    /// So many messages were, `bytes` in all.
    pub fn sent_all(&self, count: usize, bytes: usize) {
        self.send_count.fetch_add(count as u64, Ordering::Relaxed);
        self.send_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A message of `bytes` came.
    pub fn received(&self, bytes: usize) {
        self.received_all(1, bytes);
    }

    /// So many messages came, `bytes` in all.
    pub fn received_all(&self, count: usize, bytes: usize) {
        self.recv_count.fetch_add(count as u64, Ordering::Relaxed);
        self.recv_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Sums since the start.
    #[must_use]
    pub fn counters(&self) -> NetCounters {
        NetCounters {
            send_count: self.send_count.load(Ordering::Relaxed),
            recv_count: self.recv_count.load(Ordering::Relaxed),
            send_bytes: self.send_bytes.load(Ordering::Relaxed),
            recv_bytes: self.recv_bytes.load(Ordering::Relaxed),
        }
    }

    /// See [`crate::Env::poison_bulk`].
    pub fn set_poison(&self, poison: Option<u8>) {
        self.poison.store(poison.map_or(NO_POISON, u16::from), Ordering::Relaxed);
    }

    /// What every byte of a bulk buffer has to be before data are read into it.
    #[must_use]
    pub fn poison(&self) -> Option<u8> {
        u8::try_from(self.poison.load(Ordering::Relaxed)).ok()
    }
}

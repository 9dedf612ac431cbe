//! What a node has sent and received, as its LNDs count it.

use std::cell::Cell;

/// LNet messages and their payload bytes since the node started. Frame headers and heartbeats are not counted.
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

/// The account of one executor's links, and what its LNDs do to buffers before data arrive. All LNDs use it.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    counters: Cell<NetCounters>,
    poison: Cell<Option<u8>>,
}

impl Traffic {
    /// A message of `bytes` was handed to the network.
    pub fn sent(&self, bytes: usize) {
        let mut counters = self.counters.get();
        counters.send_count += 1;
        counters.send_bytes += bytes as u64;
        self.counters.set(counters);
    }

    /// A message of `bytes` came.
    pub fn received(&self, bytes: usize) {
        let mut counters = self.counters.get();
        counters.recv_count += 1;
        counters.recv_bytes += bytes as u64;
        self.counters.set(counters);
    }

    /// Everything so far.
    #[must_use]
    pub fn counters(&self) -> NetCounters {
        self.counters.get()
    }

    /// See [`crate::Env::poison_bulk`].
    pub fn set_poison(&self, poison: Option<u8>) {
        self.poison.set(poison);
    }

    /// What every byte of a bulk buffer has to be before data are read into it.
    #[must_use]
    pub fn poison(&self) -> Option<u8> {
        self.poison.get()
    }
}

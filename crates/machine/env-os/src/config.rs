//! A node's settings for its executor and its LNDs.

use std::num::NonZeroU32;

use env::{CptTable, Traffic};
use types::{CptIndex, Nid, NidAddr, Span};
use wire::CrcMode;

use crate::Lnet;

/// Settings of one executor. All links of its `Env` share them.
#[derive(Clone, Debug)]
pub struct OsConfig {
    /// CPUs that the executor's thread is bound to; empty leaves it free.
    pub cpus: Vec<u32>,
    /// An executor without work looks for more for so long before it sleeps, where that is likely
    /// to help; zero never does.
    pub linger: Span,
    /// Plaintext is accepted on addresses that are not loopback.
    pub insecure: bool,
    /// Every user of this machine may connect over loopback, not only root and the own user.
    pub trust_local_users: bool,
    /// Whether bulk data is checksummed. Headers and messages always are.
    pub crc: CrcMode,
    /// A connect, or a peer's HELLO on all three connections, takes at most this long. A connection
    /// that says nothing may last longer while there is room for others.
    pub handshake: Span,
    /// A control connection that was idle for so long gets a heartbeat.
    pub heartbeat: Span,
    /// No news from the peer for so long closes the link (Lustre: `peer_timeout`); zero never does.
    pub peer_timeout: Span,
    /// The same of a peer that takes nothing, while messages to others wait for a credit of the
    /// interface.
    pub stuck_timeout: Span,
    /// Bytes queued on a link from which on `room()` waits.
    pub queue_bytes_max: usize,
    /// Messages queued on a link from which on `room()` waits.
    pub queue_frames_max: usize,
    /// Threads per CPT that do the socket work of its links; 0 leaves it to the executor, which is
    /// the fastest where CPUs are few.
    pub lnd_threads: u32,
    /// CPU partitions; none is one that has all CPUs.
    pub cpts: Option<CptTable>,
    /// Partitions that links are bound to; empty: all.
    pub link_cpts: Vec<CptIndex>,
    /// Credits of the interface. Clones share them.
    pub lnet: Lnet,
    /// Addresses of any network that are inside this process: links to them take `lo`.
    pub lo_alias: Vec<NidAddr>,
    /// What links send arrives so much later, as over a longer way: for measurements. Zero: at
    /// once.
    pub delay: Span,
    /// Counts what the executor's links carry; starts at zero.
    pub traffic: Traffic,
}

impl OsConfig {
    /// Partition of a link to `peer`.
    #[must_use]
    pub fn link_cpt(&self, peer: Nid) -> CptIndex {
        let count = self.cpts.as_ref().map_or(NonZeroU32::MIN, CptTable::count);
        peer.cpt_among(&self.link_cpts, count)
    }
}

impl Default for OsConfig {
    fn default() -> OsConfig {
        OsConfig {
            cpus: Vec::new(),
            linger: Span::ZERO,
            insecure: false,
            trust_local_users: false,
            crc: CrcMode::All,
            handshake: Span::secs(5),
            heartbeat: Span::secs(5),
            peer_timeout: Span::secs(180),
            stuck_timeout: Span::secs(10),
            queue_bytes_max: 8 << 20,
            queue_frames_max: 1_024,
            lnd_threads: 0,
            cpts: None,
            link_cpts: Vec::new(),
            lnet: Lnet::default(),
            lo_alias: Vec::new(),
            delay: Span::ZERO,
            traffic: Traffic::default(),
        }
    }
}

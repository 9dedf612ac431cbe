//! What a node may set about its executor and its LNDs.

use env::Traffic;
use types::{NidAddr, Span};
use wire::CrcMode;

/// Settings of one executor. All links of its `Env` share them.
#[derive(Clone, Debug)]
pub struct OsConfig {
    /// CPUs that the executor's thread is bound to; empty leaves it free.
    pub cpus: Vec<u32>,
    /// Plaintext is accepted on addresses that are not loopback.
    pub insecure: bool,
    /// Whether bulk data is checksummed. Headers and messages always are.
    pub crc: CrcMode,
    /// A connect, or a peer's HELLO on all three connections, takes at most this long.
    pub handshake: Span,
    /// A control connection that was idle for so long gets a heartbeat.
    pub heartbeat: Span,
    /// No news from the peer for so long closes the link (Lustre: `peer_timeout`); zero never does.
    pub peer_timeout: Span,
    /// Bytes queued on a link from which on `room()` waits.
    pub queue_bytes_max: usize,
    /// Messages queued on a link from which on `room()` waits; the peer's own word for it may be lower.
    pub queue_frames_max: usize,
    /// Addresses of any network that are inside this process: links to them take `lo`.
    pub lo_alias: Vec<NidAddr>,
    /// Counts what the executor's links carry; starts at zero.
    pub traffic: Traffic,
}

impl Default for OsConfig {
    fn default() -> OsConfig {
        OsConfig {
            cpus: Vec::new(),
            insecure: false,
            crc: CrcMode::All,
            handshake: Span::secs(5),
            heartbeat: Span::secs(5),
            peer_timeout: Span::secs(180),
            queue_bytes_max: 8 << 20,
            queue_frames_max: 1_024,
            lo_alias: Vec::new(),
            traffic: Traffic::default(),
        }
    }
}

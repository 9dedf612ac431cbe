//! Settings of an OST.

use types::{FsName, Span};

/// Settings of one OST.
#[derive(Clone, Debug)]
pub struct OstConfig {
    pub fsname: FsName,
    /// Index of this OST.
    pub index: u32,
    /// Acknowledged changes are durable after this long at the latest (1 s).
    pub commit_interval: Span,
    /// Strike all known clients out at once: a restarting `up` knows that they are dead.
    pub abort_recovery: bool,
    /// How long returning clients are waited for (12 s).
    pub recovery_window: Span,
    /// At most, with extensions (120 s).
    pub recovery_window_max: Span,
    /// Silence after which a session may be evicted.
    pub lease: Span,
    /// Pretend to be on this device.
    pub device: Option<device::Model>,
    /// Deliberate mistakes, for tests of the tests.
    pub bugs: Bugs,
}

impl OstConfig {
    /// Defaults for OST `index` of `fsname`.
    #[must_use]
    pub fn new(fsname: FsName, index: u32) -> OstConfig {
        OstConfig {
            fsname,
            index,
            commit_interval: Span::secs(1),
            abort_recovery: false,
            recovery_window: Span::secs(12),
            recovery_window_max: Span::secs(120),
            lease: Span::secs(150),
            device: None,
            bugs: Bugs::default(),
        }
    }
}

planted::bugs! {
    /// Planted bugs: each switch breaks one promise, and the simulation must find it.
    pub struct Bugs in "ost" {
        /// The record transaction is committed before the data that it speaks of.
        commit_records_before_data,
        /// Destroys leave no tombstone: a late write brings an object back.
        skip_tombstones,
        /// A change that had to wait for another one of the same bytes is answered and not made.
        lose_overlap,
        /// Data is read and written under a layout that is told to be old.
        believe_old_layouts,
        /// A sync is answered before the commit.
        ack_sync_before_commit,
    }
}

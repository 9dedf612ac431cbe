//! Rare branches that the seeds of CI must reach, each at least once. A branch that no seed reaches
//! is tested in name only.
//!
//! These branches are not listed, because 580 seeds did not reach them:
//! - More uncommitted keys than commit on share remembers: 262,144. A run changes some thousand.
//! - A write to a destroyed object, because the fence of its client refuses it first. The tests of
//!   `ost` make one.
//! - A replayed write that a destroy has overtaken, and a replay whose data does not arrive.
//! - A request that is dropped because its deadline passed before a handler had it. The tests of
//!   `service` make one.

/// As [`planted::reached`] names them in the code.
pub const MARKS: &[&str] = &[
    "client: a change waited for one of its own",
    "client: a directory was read again without a request",
    "client: a grant was called back",
    "client: a migration copied in its last pass",
    "client: a read was answered by an open",
    "client: an old layout was refused",
    "client: it was fenced",
    "endpoint: data was asked for that no request has",
    "fuse: a directory was locked while a name in it was called back",
    "fuse: a file was opened through the page cache",
    "fuse: a name was called back",
    "fuse: pages in doubt were dropped before a read",
    "fuse: pages were called back",
    "import: a client learned that it was evicted",
    "mdt: a component of a file got objects",
    "mdt: a component with objects grew",
    "mdt: a change waited for a lease",
    "mdt: a change waited for another client's commit",
    "mdt: a change waited for leases of the instance before",
    "mdt: a change waited for what was called back",
    "mdt: a grant was called back",
    "mdt: a lapsed client was fenced",
    "mdt: a file took over other objects",
    "mdt: a layout changed before it was swapped",
    "mdt: a layout that was refused was renewed",
    "mdt: a lease ended in somebody's way",
    "mdt: a lock waited for a fence",
    "mdt: a session ended with locks held",
    "mdt: an open came with the bytes of its file",
    "mdt: an orphan was swept",
    "mdt: ids that a restart burnt were swept",
    "ost: a client was fenced",
    "ost: a client was fenced during recovery",
    "ost: a fenced client was refused",
    "ost: a lost object was missed",
    "ost: an old layout was refused",
    "recovery: a client reconnected amid its replays",
    "recovery: a gap was passed",
    "recovery: a missing client was given up",
    "recovery: a replay came again after it was executed",
    "recovery: a replay came again while it was queued",
    "recovery: a window expired",
    "service: a change was resent",
    "service: a change was resent after a restart",
    "service: a handler went without its data",
    "service: a request came again while it was executed",
    "service: a stale request was dropped",
    "service: an early reply was sent",
    "service: an open was repeated for its resend",
    "sim: a client died at a point",
    "sim: a damaged record kept an MDT from starting",
    "sim: a damaged record was EIO",
    "sim: a full MDT refused a change",
    "sim: a hostile client was let in",
    "sim: a hostile client's link was closed",
    "sim: a target was as slow as a disk",
    "sim: an fsync told of lost work",
    "sim: requests moved to heads of another scope",
    "sim: servers were on osd-disk",
];

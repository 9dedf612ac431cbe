//! The results of an attempt to execute an operation, and the origin of an attempt that the MDT
//! makes for itself.

use std::rc::Rc;

use ldlm::grants::{ChangeId, HolderId};
use types::{Fid, Instant, Timespec, Transno};
use wire::Reply;
use wire::updates::{OpId, Record};

use crate::cross::{Claim, Crossing, Needs};

/// What became of an attempt.
pub(crate) enum Attempted {
    /// It is executed. With its record and transno, if other MDTs have a part in it.
    Done(Reply, Option<(Rc<Record>, Transno)>),
    /// It waits until [`crate::op::Caller::change`] is ready.
    Parked,
    /// It waits until OSTs refuse a client that the MDT has given up.
    Unfenced,
    /// It waits until another operation frees what it has reserved. With the keys that it changes
    /// here.
    Held(Vec<Claim>),
    /// It waits for the parts of operations of other MDTs.
    Half(Vec<OpId>),
    /// Other MDTs are to be asked first.
    Needs(Needs),
    /// The bytes of this new file are to be written first.
    Writes(Fid),
    /// It waits for the end of a commit, which may not cover the bytes of its new file.
    Unordered,
    /// It waits for the end of a write of bytes of its file, which a close has brought.
    Brought,
}

/// The MDT itself, as it asks for an operation.
pub(crate) struct OwnCaller<'a> {
    /// Server's time.
    pub(crate) now: Timespec,
    /// Its monotonic clock.
    pub(crate) clock: Instant,
    /// Names the change until it is executed or given up.
    pub(crate) change: ChangeId,
    /// What is known of other MDTs.
    pub(crate) crossing: &'a Crossing,
    /// When a session was heard of last.
    pub(crate) heard: &'a dyn Fn(HolderId) -> Option<Instant>,
}

/// What became of an attempt of the MDT's own.
pub(crate) enum OwnAttempt<T> {
    /// It is executed. With its record and transno, if other MDTs have a part in it.
    Done(T, Option<(Rc<Record>, Transno)>),
    /// As [`Attempted::Parked`].
    Parked,
    /// As [`Attempted::Held`].
    Held,
    /// As [`Attempted::Needs`].
    Needs(Needs),
}

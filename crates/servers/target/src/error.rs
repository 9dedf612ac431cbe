//! Errors: why a target does not start, and why an operation does not happen now.

use osd::StoreError;
use types::{Errno, Instant};

/// Why a target does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The store cannot be read or changed.
    #[error("records: {0}")]
    Records(#[from] StoreError),
    /// The objects cannot be read or changed.
    #[error("objects: {0}")]
    Objects(Errno),
    /// A record that no version has written.
    #[error("records: {0} is broken")]
    Broken(String),
    /// A store of a later version.
    #[error("records: format {found} is newer than {known}, the newest that is known here")]
    Newer {
        /// Version that the store has.
        found: u32,
        /// Newest version that this program reads.
        known: u32,
    },
}

/// Why an operation does not happen now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// The caller's fault: this is the answer.
    #[error("{0}")]
    Refused(Errno),
    /// Commit, then decide again: it depends on another client's change, or ids must become durable
    /// first.
    #[error("a commit comes first")]
    CommitFirst,
    /// Decide again then: another client holds a lease on what it changes.
    #[error("another client holds a lease")]
    LeasedUntil(Instant),
    /// It depends on other targets that are to be asked first.
    #[error("another target is to be asked first")]
    Elsewhere,
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record that cannot be read.
    #[error("broken record: {0}")]
    Broken(&'static str),
}

impl From<Errno> for OpError {
    fn from(errno: Errno) -> OpError {
        OpError::Refused(errno)
    }
}

/// What deciding returns.
pub type Decided<T> = Result<T, OpError>;

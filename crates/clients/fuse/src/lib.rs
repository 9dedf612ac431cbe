//! The FUSE client: translates the kernel's requests into calls of the native library.
//!
//! ```text
//!  kernel --- fusedev --- Fs (Handler) --- client::Client
//!                          | nodes    node id <-> FID, lookups counted, ids computed from FIDs
//!                          | handles  open files and directories
//!                          | appends  long appends, which come in pieces
//!                          | callers  supplementary groups
//!                          | jobid    labels of the callers' jobs
//!                          | pages    data that the kernel keeps
//!                          | kept_dirs  names of directories that it keeps
//! ```
//!
//! - The kernel caches names and attributes only under grants of the MDT. A grant ends by time, or
//!   the MDT calls it back. It caches data of files that no client has open for writing
//!   (`page_cache`). A change by another client waits until the grants that it affects have ended.
//!   So the next call on any client sees a completed change.
//! - Permissions are checked twice: by the kernel (`default_permissions`, ACLs) and, bindingly, by
//!   the servers.
//! - No request blocks another: each is a future on the one thread.
//! - A killed caller returns even if a server is away. Its request is completed in the background
//!   and undone where it would leak (an open handle, a node reference).
//!
//! Lustre: `llite`.

mod appends;
mod brief;
mod callers;
mod convert;
mod dirs;
mod error;
mod fresh;
mod fs;
mod guard;
mod handles;
mod handling;
mod jobid;
mod kept_dirs;
mod kept_names;
mod limits;
mod mounted;
mod names;
mod news;
mod nodes;
mod op;
mod page_cache;
mod pages;
mod recall;
mod tally;
mod tell;
#[cfg(test)]
mod waits;
mod xattrs;

planted::bugs! {
    /// Switches that break a promise on purpose: the simulation must find each one.
    pub struct Bugs in "fuse" {
        /// The kernel is told the whole lease, which it takes longer than it was told.
        believe_whole_leases,
        /// The kernel is not told what is called back.
        keep_called_back,
        /// What is called back is acknowledged though the kernel may believe it for a moment.
        acknowledge_early,
        /// Pages are kept and read after the right to keep them was called back.
        keep_pages,
        /// A page of a listing reaches the kernel late, and with the validity that it had when the
        /// client answered, whatever was called back meanwhile.
        tell_old_pages,
    }
}

pub use fs::Manner;
pub use jobid::{JOBID_BYTES_MAX, Jobids};
pub use mounted::{MountError, Mounted, handler, mount, options};
pub use tally::Tally;

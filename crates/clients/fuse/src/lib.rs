//! The FUSE client: the kernel's requests become calls of the native library.
//!
//! ```text
//!  kernel --- fusedev --- Fs (Handler) --- client::Client
//!                          | nodes    node id <-> FID, lookups counted, ids computed from FIDs
//!                          | handles  open files and directories
//!                          | appends  long appends, which come in pieces
//!                          | callers  supplementary groups
//!                          | jobid    labels of the callers' jobs
//! ```
//!
//! - The kernel caches names and attributes only as long as the MDT's short lease on them lasts,
//!   and no data: files are opened for direct I/O. Changes by other clients wait for the lease, so
//!   what one client did is seen by the next call on any other.
//! - Permissions are checked twice: by the kernel (`default_permissions`, ACLs) and, bindingly, by
//!   the servers.
//! - No request blocks another: each is a future of the one thread.
//! - A caller that is killed gets out although a server is away; what it had asked for is finished
//!   behind its back and undone where it would leak (an open handle, a node reference).
//!
//! Lustre: `llite`.

mod appends;
mod callers;
mod convert;
mod dirs;
mod error;
mod fs;
mod handles;
mod jobid;
mod limits;
mod mounted;
mod names;
mod news;
mod nodes;
mod op;
mod recall;
mod tell;
#[cfg(test)]
mod waits;

planted::bugs! {
    /// Switches that break a promise on purpose: the simulation must find each one.
    pub struct Bugs in "fuse" {
        /// The kernel is told the whole lease, which it takes longer than it was told.
        believe_whole_leases,
        /// The kernel is not told what is called back.
        keep_called_back,
        /// What is called back is acknowledged though the kernel may believe it for a moment.
        acknowledge_early,
    }
}

pub use fs::Manner;
pub use jobid::{JOBID_BYTES_MAX, Jobids};
pub use mounted::{MountError, Mounted, handler, mount, options};

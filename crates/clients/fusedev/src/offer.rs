//! Makes the kernel offer FUSE over io_uring, for tests and benchmarks of both transports.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;

/// Whether the kernel offers io_uring to new mounts.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// While it lives, new mounts are offered io_uring; afterwards the parameter is what it was. One at
/// a time on a machine: others wait. A mount that has begun keeps its transport.
pub struct UringOffer {
    file: File,
    before: String,
}

impl UringOffer {
    /// Whether this kernel has the transport at all.
    #[must_use]
    pub fn is_possible() -> bool {
        Path::new(PARAMETER).exists()
    }

    /// Sets the parameter; needs root.
    ///
    /// # Errors
    /// The kernel has no such parameter, or it may not be set.
    pub fn make() -> io::Result<UringOffer> {
        let file = File::open(PARAMETER)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        let before = std::fs::read_to_string(PARAMETER)?;
        std::fs::write(PARAMETER, "Y")?;
        Ok(UringOffer { file, before })
    }
}

impl Drop for UringOffer {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(PARAMETER, self.before.trim()) {
            tracing::error!(%error, "{PARAMETER} could not be put back");
        }
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

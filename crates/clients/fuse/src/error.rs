//! Maps a failed call of the client to the kernel's errno.

use types::Errno;

/// The errno of a failed call. What a server did not decide is worth a line in the log.
pub(crate) fn errno(error: client::Error) -> Errno {
    let errno = error.errno();
    if error.target().is_some()
        && matches!(errno, Errno::EIO | Errno::ETIMEDOUT | Errno::ESHUTDOWN | Errno::EPROTO)
    {
        tracing::warn!(%error, "a call failed");
    }
    errno
}

//! Errors: the errno for the application, and the target and the stage for the reader of the log.

use std::fmt;

use endpoint::CallError;
use types::{Errno, Fid, TargetId, TargetKind};

/// Failure of a client call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    errno: Errno,
    stage: &'static str,
    target: Option<TargetId>,
    fid: Option<Fid>,
    why: Why,
    /// What else a person should know.
    more: Option<Box<str>>,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The server answered so, or the client decided it from what it knows.
    Refused,
    /// The session was lost with everything in it.
    Evicted,
    /// The target is set inactive.
    Inactive,
    /// Mount option `soft`: patience ended.
    TimedOut,
    /// Nobody waited any more.
    Withdrawn,
    /// The client is being unmounted.
    Shutdown,
}

/// What client calls return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Decided here, without a server: `stage` says where.
    #[must_use]
    pub fn local(errno: Errno, stage: &'static str) -> Error {
        Error { errno, stage, target: None, fid: None, why: Why::Refused, more: None }
    }

    /// A call to `target` failed at `stage`.
    #[must_use]
    pub fn call(error: &CallError, target: TargetId, stage: &'static str) -> Error {
        let why = match error {
            CallError::Errno(_) => Why::Refused,
            CallError::Evicted => Why::Evicted,
            CallError::Inactive => Why::Inactive,
            CallError::TimedOut => Why::TimedOut,
            CallError::Withdrawn => Why::Withdrawn,
            CallError::Shutdown => Why::Shutdown,
        };
        Error { errno: error.errno(), stage, target: Some(target), fid: None, why, more: None }
    }

    /// Which file it was about.
    #[must_use]
    pub fn about(mut self, fid: Fid) -> Error {
        self.fid = Some(fid);
        self
    }

    /// Whose word it is, where no call to it failed.
    pub(crate) fn by(mut self, target: TargetId) -> Error {
        self.target = Some(target);
        self
    }

    /// What a person should know besides.
    pub(crate) fn saying(mut self, more: String) -> Error {
        self.more = Some(more.into_boxed_str());
        self
    }

    /// A server's answer, or a decision before anything was sent: nothing has happened.
    pub(crate) fn is_refusal(&self) -> bool {
        self.why == Why::Refused
    }

    /// The number that the application sees.
    #[must_use]
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// An OST's answer to a layout that is not the newest, or to an object that is gone.
    pub(crate) fn is_old_layout(&self) -> bool {
        let at_ost = self.target.is_none_or(|target| target.kind == TargetKind::Ost);
        self.errno == Errno::ESTALE && self.why == Why::Refused && at_ost
    }

    /// Which target it was, if one was asked.
    #[must_use]
    pub fn target(&self) -> Option<TargetId> {
        self.target
    }

    /// What was being done: an operation's name as statistics print it.
    #[must_use]
    pub fn stage(&self) -> &'static str {
        self.stage
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stage)?;
        if let Some(fid) = self.fid {
            write!(f, " {fid}")?;
        }
        if let Some(target) = self.target {
            write!(f, " at {target}")?;
        }
        write!(f, ": {} ({})", self.errno, self.errno.name())?;
        f.write_str(match self.why {
            Why::Refused => "",
            Why::Evicted => ": this client was evicted there",
            Why::Inactive => ": the target is set inactive",
            Why::TimedOut => ": gave up after the time that mount option soft allows",
            Why::Withdrawn => ": it was given up before it began",
            Why::Shutdown => ": the client is unmounting",
        })?;
        self.more.as_ref().map_or(Ok(()), |more| write!(f, ": {more}"))
    }
}

impl std::error::Error for Error {}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        error.errno
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_target_and_stage() {
        let error = Error::local(Errno::EIO, "write").by(TargetId::mdt(1));
        assert_eq!(error.target(), Some(TargetId::mdt(1)));
        assert!(error.to_string().starts_with("write at MDT0001: "), "{error}");
        let error = Error::call(&CallError::TimedOut, TargetId::ost(2), "ost_read")
            .about(Fid::new(0x400, 7));
        let text = error.to_string();
        assert!(
            text.starts_with(
                "ost_read [0x400:0x7:0x0] at OST0002: Connection timed out (ETIMEDOUT)"
            ),
            "{text}"
        );
        assert_eq!(
            Error::local(Errno::ENOTDIR, "lookup").to_string(),
            "lookup: Not a directory (ENOTDIR)"
        );
    }
}

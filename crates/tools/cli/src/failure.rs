//! How a command fails: a message for stderr and an exit status.

use std::path::Path;

use types::Errno;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Exit status: an error number.
    pub status: u8,
    /// For stderr, whole lines without the last newline; empty where everything has been said.
    pub text: String,
}

impl Failed {
    /// With a number and a text.
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Failed {
        Failed { status: u8::try_from(errno).unwrap_or(1).max(1), text: text.into() }
    }

    /// `COMMAND: what: strerror`.
    pub(crate) fn of(errno: Errno, command: &str, what: &str) -> Failed {
        Failed::new(errno.raw(), format!("{command}: {what}: {errno}"))
    }

    /// The number of an operating-system error, also of one that was wrapped in words.
    pub(crate) fn number(error: &std::io::Error) -> Errno {
        match error.kind() {
            _ if error.raw_os_error().is_some() => Errno::from_io(error),
            std::io::ErrorKind::ConnectionRefused => Errno::ECONNREFUSED,
            std::io::ErrorKind::TimedOut => Errno::ETIMEDOUT,
            std::io::ErrorKind::NotFound => Errno::ENOENT,
            std::io::ErrorKind::PermissionDenied => Errno::EACCES,
            _ => Errno::EIO,
        }
    }

    /// An operating-system error about a path that was typed.
    pub(crate) fn path(error: &std::io::Error, command: &str, path: &Path) -> Failed {
        let mut failed = Failed::io(error, command, &path.display().to_string());
        if Failed::number(error) == Errno::ENOENT {
            failed.text.push_str(": name one that is there");
        }
        failed
    }

    /// An operating-system error about `what`.
    pub(crate) fn io(error: &std::io::Error, command: &str, what: &str) -> Failed {
        let number = Failed::number(error);
        if error.raw_os_error().is_some() && number.name() != "E?" {
            Failed::of(number, command, what)
        } else {
            Failed::new(number.raw(), format!("{command}: {what}: {error}"))
        }
    }
}

/// The first failure of many: each was printed when it came, its number is the command's.
#[derive(Default)]
pub(crate) struct First(Option<u8>);

impl First {
    /// Prints and remembers.
    pub(crate) fn note(&mut self, failed: &Failed) {
        if !failed.text.is_empty() {
            ctl::say!("{}", failed.text);
        }
        self.0.get_or_insert(failed.status);
    }

    /// What the command ends with.
    pub(crate) fn end(self) -> Result<(), Failed> {
        match self.0 {
            None => Ok(()),
            Some(status) => Err(Failed { status, text: String::new() }),
        }
    }
}

//! Data for stdout. If the reader closes the pipe early (`head`), the command ends quietly. If data
//! cannot be written, the command says so and fails: a script must not take a part for all of it.

use std::io::{self, ErrorKind, Write};

use crate::Failed;

/// Writes `text` as it is.
pub(crate) fn print(text: &str) {
    bytes(text.as_bytes());
}

/// Writes bytes that need not be text: names of files.
pub(crate) fn bytes(data: &[u8]) {
    let mut out = io::stdout().lock();
    let Err(error) = out.write_all(data).and_then(|()| out.flush()) else { return };
    let Some(failed) = failure(&error) else { std::process::exit(0) };
    ctl::say!("{}", failed.text);
    std::process::exit(failed.status.into())
}

/// Writes `text` and a newline.
pub(crate) fn line(text: impl std::fmt::Display) {
    print(&format!("{text}\n"));
}

/// What the command says and ends with; nothing where the reader wants no more.
fn failure(error: &io::Error) -> Option<Failed> {
    if error.kind() == ErrorKind::BrokenPipe {
        return None;
    }
    let failed = Failed::io(error, "error", "stdout");
    let text = format!("{}: the output is cut short; write it elsewhere", failed.text);
    Some(Failed { text, ..failed })
}

#[cfg(test)]
mod tests {
    use types::Errno;

    use super::*;

    #[test]
    fn a_full_disk_is_a_failure_and_a_reader_that_has_gone_is_none() {
        let of = |errno: Errno| failure(&io::Error::from_raw_os_error(errno.raw()));
        assert_eq!(of(Errno::EPIPE), None);
        let full = of(Errno::ENOSPC).expect("a failure");
        assert_eq!(i32::from(full.status), Errno::ENOSPC.raw());
        assert!(full.text.starts_with("error: stdout: No space left on device: "), "{full:?}");
    }
}

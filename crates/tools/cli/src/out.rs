//! Data for stdout. If the reader closes the pipe early (`head`), the command ends quietly.

use std::io::Write;

/// Writes `text` as it is.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Writes `text` and a newline.
pub(crate) fn line(text: impl std::fmt::Display) {
    print(&format!("{text}\n"));
}

//! Messages for people, on stderr. A reader that has gone (`| head`, a logger that died) must not
//! end a daemon, and `eprintln!` would panic then.

use std::fmt::Arguments;
use std::io::Write;

/// Prints a line to stderr; nobody need read it.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => { $crate::say::line(::std::format_args!($($words)*)) };
}

/// What [`say!`](crate::say!) does.
pub fn line(words: Arguments<'_>) {
    // One write for a line: several processes may share a terminal.
    text(&format!("{words}\n"));
}

/// Prints a text as it is.
pub fn text(text: &str) {
    let _nobody_reads = std::io::stderr().lock().write_all(text.as_bytes());
}

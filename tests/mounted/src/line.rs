//! Command lines of the binary under test, such as `lfs mkdir -i 1 d`.

use std::path::Path;
use std::process::{Command, Output};

use crate::nacre_bin;

/// Runs `nacre` in `dir` with the words of `line`.
pub fn nacre(dir: impl AsRef<Path>, line: &str) -> Output {
    let words = line.split_whitespace();
    Command::new(nacre_bin()).args(words).current_dir(dir).output().expect("nacre starts")
}

/// Its output; fails the test if it fails.
pub fn good(dir: impl AsRef<Path>, line: &str) -> String {
    let done = nacre(dir, line);
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

/// It ends with `status`, and its error contains `part`.
pub fn refused(dir: impl AsRef<Path>, line: &str, status: i32, part: &str) {
    let done = nacre(dir, line);
    let error = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(status), "{line}: {error}");
    assert!(error.contains(part), "{line}: '{part}' is not in: {error}");
}

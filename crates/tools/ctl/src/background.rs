//! A daemon that a command starts in the background: this executable again, with other arguments.
//!
//! The daemon's stderr is its log. Its first line on stdout reports that it is usable. A daemon
//! that cannot start ends without one.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// Bytes at the end of a log that are read for its last lines.
const LOG_TAIL_BYTES_MAX: u64 = 16 << 10;

/// The first that is heard of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// It printed this line and runs.
    Line(String),
    /// It ended without a line.
    Ended(ExitStatus),
}

/// Starts `nacre ARGUMENTS` in the background and waits for its first line.
pub fn start(arguments: &[OsString], log: File) -> Result<First> {
    let exe = std::env::current_exe().context("own executable")?;
    first_line_of(Command::new(exe).arg0("nacre").args(arguments), log)
}

fn first_line_of(command: &mut Command, log: File) -> Result<First> {
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().context("the daemon does not start")?;
    let out = child.stdout.take().context("the daemon's stdout is a pipe")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).context("the daemon's first line")?;
    if line.is_empty() {
        return Ok(First::Ended(child.wait().context("the daemon's end")?));
    }
    Ok(First::Line(line))
}

/// The last `lines` lines of a log, none of them before byte `from`, without reading all of it.
#[must_use]
pub fn log_tail(path: &Path, from: u64, lines: usize) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(LOG_TAIL_BYTES_MAX).max(from)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_or_the_end_of_a_daemon_is_seen() {
        let dir = std::env::temp_dir().join(format!("nacre-background-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let log = dir.join("log");
        let started = |script: &str| {
            let file = File::create(&log).unwrap();
            first_line_of(Command::new("sh").args(["-c", script]), file).unwrap()
        };
        assert_eq!(started("echo ready; echo more"), First::Line("ready\n".into()));
        match started("echo one >&2; echo two >&2; echo three >&2; exit 3") {
            First::Ended(status) => assert_eq!(status.code(), Some(3)),
            First::Line(line) => panic!("no line was printed, but {line:?} was seen"),
        }
        assert_eq!(log_tail(&log, 0, 2), "  two\n  three\n");
        assert_eq!(log_tail(&log, 8, 2), "  three\n");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

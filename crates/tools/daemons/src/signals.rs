//! SIGTERM and SIGINT as a future. SIGHUP is another one, or reopens the log file of a daemon.
//! SIGUSR1 reopens the log file of any process, and never ends one. A process that was started with
//! SIGHUP ignored, as nohup(1) starts it, outlives its terminal.

use std::io;
use std::sync::OnceLock;

use crate::log;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGHUP in a mask of signals.
const HANGUP: u64 = 1;

/// Whether SIGHUP was ignored before this process handled it.
static OUTLIVES_TERMINAL: OnceLock<bool> = OnceLock::new();

/// Hears SIGTERM, SIGINT, SIGHUP and SIGUSR1 from its making on.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
    usr1: Signal,
    outlives_terminal: bool,
    /// It opens the log again, and says so there.
    has_log: bool,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        // the handler below replaces what was inherited
        let outlives_terminal = *OUTLIVES_TERMINAL.get_or_init(|| {
            std::fs::read_to_string("/proc/self/status").is_ok_and(|it| ignores_hangups(&it))
        });
        let term = signal(SignalKind::terminate())?;
        let int = signal(SignalKind::interrupt())?;
        let hup = signal(SignalKind::hangup())?;
        let usr1 = signal(SignalKind::user_defined1())?;
        Ok(Signals { term, int, hup, usr1, outlives_terminal, has_log: true })
    }

    /// The same signals once more in this process, without their effect on the log.
    pub(crate) fn again() -> io::Result<Signals> {
        Ok(Signals { has_log: false, ..Signals::new()? })
    }

    /// Completes with the name of the next signal.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                biased;
                _ = self.term.recv() => return "SIGTERM",
                _ = self.int.recv() => return "SIGINT",
                _ = self.hup.recv() => {
                    if log::is_of_daemon() {
                        self.reopen_log("SIGHUP");
                    } else if !self.stays() {
                        return "SIGHUP";
                    }
                }
                // as scripts for the rotation of logs send it
                _ = self.usr1.recv() => self.reopen_log("SIGUSR1"),
            }
        }
    }

    fn reopen_log(&self, signal: &str) {
        if self.has_log {
            log::reopen(signal);
        }
    }

    fn stays(&self) -> bool {
        if self.outlives_terminal && self.has_log {
            tracing::info!("SIGHUP: ignored, as at the start of this process");
        }
        self.outlives_terminal
    }
}

/// What `/proc/PID/status` says of SIGHUP.
fn ignores_hangups(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & HANGUP != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_ignored_signals_is_read() {
        let status =
            |mask: &str| format!("SigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t1\n");
        assert!(ignores_hangups(&status("0000000000000001")));
        assert!(ignores_hangups(&status("0000000000001007")));
        assert!(!ignores_hangups(&status("0000000000001006")));
        assert!(!ignores_hangups("") && !ignores_hangups("SigIgn:\tx\n"));
    }
}

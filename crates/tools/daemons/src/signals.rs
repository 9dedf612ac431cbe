//! SIGTERM and SIGINT as a future. SIGHUP is another one, or reopens the log if the daemon has a
//! log of its own.

use std::io;

use crate::log;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears SIGTERM, SIGINT and SIGHUP from its making on.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        let term = signal(SignalKind::terminate())?;
        let int = signal(SignalKind::interrupt())?;
        let hup = signal(SignalKind::hangup())?;
        Ok(Signals { term, int, hup })
    }

    /// Completes with the name of the next signal.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                biased;
                _ = self.term.recv() => return "SIGTERM",
                _ = self.int.recv() => return "SIGINT",
                _ = self.hup.recv() => if !log::reopen() { return "SIGHUP" },
            }
        }
    }
}

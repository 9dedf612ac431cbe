//! SIGTERM and SIGINT as a future. SIGHUP is another one, or reopens the log if the daemon has a
//! log of its own. SIGUSR1 reopens such a log too, and never ends a daemon.

use std::io;

use crate::log;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears SIGTERM, SIGINT, SIGHUP and SIGUSR1 from its making on.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
    usr1: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Signals> {
        let term = signal(SignalKind::terminate())?;
        let int = signal(SignalKind::interrupt())?;
        let hup = signal(SignalKind::hangup())?;
        let usr1 = signal(SignalKind::user_defined1())?;
        Ok(Signals { term, int, hup, usr1 })
    }

    /// Completes with the name of the next signal.
    pub(crate) async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                biased;
                _ = self.term.recv() => return "SIGTERM",
                _ = self.int.recv() => return "SIGINT",
                _ = self.hup.recv() => if !log::reopen("SIGHUP") { return "SIGHUP" },
                // as scripts for the rotation of logs send it
                _ = self.usr1.recv() => {
                    let _has_a_log = log::reopen("SIGUSR1");
                }
            }
        }
    }
}

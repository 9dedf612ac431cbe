//! A recovery as `recovery_status` shows it.

use std::fmt;

use types::Transno;

use super::Progress;

/// How far a recovery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryPhase {
    /// No client has tried to come back yet.
    Waiting,
    /// It is under way.
    Recovering,
    /// It is over, or there was none.
    Complete,
}

impl RecoveryPhase {
    /// Lustre's word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            RecoveryPhase::Waiting => "WAITING",
            RecoveryPhase::Recovering => "RECOVERING",
            RecoveryPhase::Complete => "COMPLETE",
        }
    }
}

/// What `recovery_status` shows. It prints that text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryStatus {
    pub phase: RecoveryPhase,
    /// Time left without further progress; zero before it has started and after its end.
    pub remaining_secs: u64,
    pub progress: Progress,
    /// Requests that were replayed since the target started.
    pub replayed: u64,
    /// Replayed requests that wait for their turn.
    pub queued: usize,
    /// The change that would be executed next.
    pub next: Transno,
    /// The clients or other targets for which it waits, in words; empty where there are none.
    pub waits_for: String,
}

impl fmt::Display for RecoveryStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { connected, completed, clients } = self.progress;
        writeln!(f, "status: {}", self.phase.word())?;
        writeln!(f, "time_remaining: {}", self.remaining_secs)?;
        writeln!(f, "connected_clients: {connected}/{clients}")?;
        writeln!(f, "completed_clients: {completed}/{clients}")?;
        writeln!(f, "replayed_requests: {}", self.replayed)?;
        writeln!(f, "queued_requests: {}", self.queued)?;
        writeln!(f, "next_transno: {}", self.next.0)?;
        if !self.waits_for.is_empty() {
            writeln!(f, "waiting_for: {}", self.waits_for)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_prints_a_line_for_each_of_its_parts() {
        let status = RecoveryStatus {
            phase: RecoveryPhase::Recovering,
            remaining_secs: 9,
            progress: Progress { connected: 2, completed: 1, clients: 3 },
            replayed: 40,
            queued: 5,
            next: Transno(77),
            waits_for: "node1 for 9 s".to_owned(),
        };
        let text = "status: RECOVERING\ntime_remaining: 9\nconnected_clients: 2/3\n\
                    completed_clients: 1/3\nreplayed_requests: 40\nqueued_requests: 5\n\
                    next_transno: 77\n";
        assert_eq!(status.to_string(), format!("{text}waiting_for: node1 for 9 s\n"));
        let alone = RecoveryStatus { waits_for: String::new(), ..status };
        assert_eq!(alone.to_string(), text);
    }
}

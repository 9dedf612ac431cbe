//! A recovery as others see it: how far it is and for whom it waits, also as `recovery_status`.

use std::fmt;

use types::{ClientId, Instant, Span, Transno};

use super::Recovery;
use super::client::Known;

/// How many clients a recovery has heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Those that are back.
    pub connected: usize,
    /// Those that have nothing more to replay.
    pub completed: usize,
    /// All that it knows and has not evicted.
    pub clients: usize,
}

/// A client that a recovery waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    pub client: ClientId,
    pub known: Known,
    /// It is there, and has not replayed all.
    pub present: bool,
    /// How much longer, if nothing happens.
    pub left: Span,
}

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

impl<R> Recovery<R> {
    /// For whom it waits, and how much longer: who is missing, and who has not replayed all. None
    /// before the first sign of anybody.
    #[must_use]
    pub fn waits_for(&self, now: Instant) -> Vec<Awaited> {
        let Some(started) = self.started.filter(|_| self.active) else { return Vec::new() };
        let waiting = self.clients.iter().filter(|(_, client)| !client.done);
        waiting
            .map(|(id, client)| {
                let until = client.returns_by(started).unwrap_or(self.window);
                let known = client.known;
                Awaited { client: *id, known, present: client.present, left: until - now }
            })
            .collect()
    }

    /// How many clients are back.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            connected: self.clients.values().filter(|client| client.present).count(),
            completed: self.clients.values().filter(|client| client.done).count(),
            clients: self.clients.len(),
        }
    }

    /// Time left without further progress; none before it has started and after its end.
    #[must_use]
    pub fn left(&self, now: Instant) -> Option<Span> {
        (self.active && self.started.is_some()).then(|| self.window - now)
    }

    /// How it stands, for `recovery_status`.
    #[must_use]
    pub fn status(&self, now: Instant) -> RecoveryStatus {
        RecoveryStatus {
            phase: match (self.active, self.started) {
                (false, _) => RecoveryPhase::Complete,
                (true, None) => RecoveryPhase::Waiting,
                (true, Some(_)) => RecoveryPhase::Recovering,
            },
            remaining_secs: self.left(now).map_or(0, |left| left.as_millis() / 1_000),
            progress: self.progress(),
            replayed: self.replayed,
            queued: self.queue.len(),
            next: self.executed.next(),
            waits_for: String::new(),
        }
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

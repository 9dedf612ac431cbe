//! The clients and other targets that a recovery waits for, in words.

use ptlrpc::{Awaited, Known, RecoveryPhase, RecoveryStatus};
use types::Span;

use super::Exports;
use crate::limits;

impl Exports {
    /// What `recovery_status` shows. Behind its clients, a target may wait for other targets.
    pub fn recovery_status(&self) -> RecoveryStatus {
        let status = self.recovery.borrow().status(self.env.now());
        let targets = self.awaited_targets.borrow();
        if targets.is_empty() || !self.is_recovering() {
            return RecoveryStatus { waits_for: self.awaited(), ..status };
        }
        let names: Vec<&str> =
            targets.iter().take(limits::AWAITED_NAMES_MAX).map(String::as_str).collect();
        RecoveryStatus { phase: RecoveryPhase::Recovering, waits_for: names.join(", "), ..status }
    }

    /// Recovery waits for another target from now on, or no more. Its clients are back.
    pub fn awaits_target(&self, name: &str, is_awaited: bool) {
        let mut targets = self.awaited_targets.borrow_mut();
        match is_awaited {
            true => targets.insert(name.to_owned()),
            false => targets.remove(name),
        };
    }

    /// How long recovery has taken so far, and for whom it waits; none before the first client has
    /// tried to come back, and none when it is over.
    pub fn recovery_wait(&self) -> Option<(Span, String)> {
        let started = self.recovery.borrow().started().filter(|_| self.is_recovering())?;
        Some((self.env.now() - started, self.awaited()))
    }

    /// For whom recovery waits and how long, for people.
    pub(super) fn awaited(&self) -> String {
        let awaited = self.recovery.borrow().waits_for(self.env.now());
        let names: Vec<String> =
            awaited.iter().take(limits::AWAITED_NAMES_MAX).map(|one| self.describe(one)).collect();
        let more = awaited.len() - names.len();
        let rest = if more > 0 { format!(", {more} more") } else { String::new() };
        names.join(", ") + &rest
    }

    fn describe(&self, awaited: &Awaited) -> String {
        let name = self
            .session_of(awaited.client)
            .map_or_else(|| awaited.client.to_string(), |session| session.name.clone());
        let seconds = awaited.left.as_millis().div_ceil(1_000);
        match (awaited.present, awaited.known) {
            (true, _) => format!("{name} ({seconds} s, is replaying)"),
            (false, Known::Silent) => format!("{name} ({seconds} s, was silent before)"),
            (false, _) => format!("{name} ({seconds} s)"),
        }
    }
}

//! Which client waits for which: `mdt.*.grants_waiting_on`, and a line in the log.

use ldlm::grants::{ChangeId, HolderId};
use types::{Instant, Span};

use super::{Recalls, UNKNOWN};

/// A change that waits for longer is logged, once. Clients acknowledge within milliseconds.
pub(super) const LOG_AFTER: Span = Span::secs(1);

/// Changes that the parameter shows.
const SHOWN_MAX: usize = 64;

impl Recalls {
    /// Changes that wait for grants, a line each. The oldest come first.
    pub(crate) fn waiting_on(&self) -> Vec<String> {
        let parked = self.parked.borrow();
        let oldest = parked.iter().take(SHOWN_MAX);
        oldest.filter_map(|(change, parked)| self.wait_of(*change, parked.since)).collect()
    }

    pub(super) fn log_wait(&self, change: ChangeId, since: Instant) {
        if let Some(wait) = self.wait_of(change, since) {
            tracing::info!(target: "mdt", %wait, "a change waits for other clients' grants");
        }
    }

    fn wait_of(&self, change: ChangeId, since: Instant) -> Option<String> {
        let now = self.env.now();
        let (by, files, holders) = {
            let state = self.engine.state.borrow();
            let called = &state.grants.called;
            let (by, files) = called.waiter(change)?;
            (by, files, called.waiting_on(change, now))
        };
        let by = by.map_or_else(|| "the MDT".to_owned(), |session| self.name(session));
        let mut names: Vec<_> = holders.into_iter().map(|session| self.name(session)).collect();
        if names.is_empty() {
            names.push("timed grants".to_owned()); // which have no holder, or it is ready
        }
        let files: Vec<_> = files.iter().map(ToString::to_string).collect();
        let secs = (now - since).as_millis() / 1_000;
        Some(format!("{by} waits for {} for {secs} s: {}", names.join(", "), files.join(" ")))
    }

    fn name(&self, session: HolderId) -> String {
        if session == UNKNOWN {
            return "clients that were evicted before the restart".to_owned();
        }
        let known = self.exports.session(session.0);
        known.map_or_else(|| format!("session {}", session.0), |known| known.name.clone())
    }
}

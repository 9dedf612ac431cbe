//! Which client waits for which: `mdt.*.grants_waiting_on`, a line in the log, and the client's own
//! `llite.*.waiting_on`.

use ldlm::grants::{ChangeId, HolderId};
use types::{Instant, Span};

use super::{Recalls, UNKNOWN};

/// A change that waits for longer is logged, and its client is told, once. Clients acknowledge
/// within milliseconds.
pub(super) const TELL_AFTER: Span = Span::secs(1);

/// Changes that the parameter shows.
const SHOWN_MAX: usize = 64;

/// A change that waits.
struct Wait {
    by: String,
    /// Names of the clients that it waits for.
    on: String,
    files: String,
    secs: u64,
}

impl Wait {
    fn line(&self) -> String {
        let Wait { by, on, files, secs } = self;
        format!("{by} waits for {on} for {secs} s: {files}")
    }
}

impl Recalls {
    /// Changes that wait for grants, a line each. The oldest come first.
    pub(crate) fn waiting_on(&self) -> Vec<String> {
        let parked = self.parked.borrow();
        let oldest = parked.iter().take(SHOWN_MAX);
        let waits = oldest.filter_map(|(change, parked)| self.wait_of(*change, parked.since));
        waits.map(|wait| wait.line()).collect()
    }

    pub(super) fn tell_wait(&self, change: ChangeId, since: Instant, say: impl Fn(&str)) {
        if let Some(wait) = self.wait_of(change, since) {
            say(&wait.on);
            let wait = wait.line();
            tracing::info!(target: "mdt", %wait, "a change waits for other clients' grants");
        }
    }

    fn wait_of(&self, change: ChangeId, since: Instant) -> Option<Wait> {
        let now = self.env.now();
        let (by, files, holders) = {
            let state = self.engine.state.borrow();
            let called = &state.grants.called;
            let (by, files) = called.waiter(change)?;
            (by, files, called.waiting_on(change, now))
        };
        let mut names: Vec<_> = holders.into_iter().map(|session| self.name(session)).collect();
        if names.is_empty() {
            names.push("timed grants".to_owned()); // which have no holder, or it is ready
        }
        let files: Vec<_> = files.iter().map(ToString::to_string).collect();
        Some(Wait {
            by: by.map_or_else(|| "the MDT".to_owned(), |session| self.name(session)),
            on: names.join(", "),
            files: files.join(" "),
            secs: (now - since).as_millis() / 1_000,
        })
    }

    fn name(&self, session: HolderId) -> String {
        if session == UNKNOWN {
            return "clients that were evicted before the restart".to_owned();
        }
        let known = self.exports.session(session.0);
        known.map_or_else(|| format!("session {}", session.0), |known| known.name.clone())
    }
}

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

/// Clients and files that are named of one change.
const NAMED_MAX: usize = 16;

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
        let on = match holders.is_empty() {
            true => "timed grants".to_owned(), // which have no holder, or it is ready
            false => first(holders.into_iter().map(|session| self.name(session))),
        };
        Some(Wait {
            by: by.map_or_else(|| "the MDT".to_owned(), |session| self.name(session)),
            on,
            files: first(files.iter().map(ToString::to_string)),
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

/// The first of them, and how many there are besides. After a restart a change may wait for all
/// clients that were there before.
fn first(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = all.len().saturating_sub(NAMED_MAX);
    let mut shown: Vec<String> = all.take(NAMED_MAX).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_bounded_number() {
        let of = |count: usize| first((0..count).map(|number| format!("c{number}")));
        assert_eq!((of(1).as_str(), of(2).as_str()), ("c0", "c0, c1"));
        assert!(of(NAMED_MAX).ends_with(", c15") && of(10_000).ends_with(", c15, 9984 more"));
    }
}

//! Clients that are not asked for sizes, because they did not answer.

use std::collections::BTreeMap;

use types::{ClientId, Instant};

use crate::limits::{WRITER_REST, WRITERS_SILENT_MAX};

/// Clients that did not answer a question, and until when they are not asked.
#[derive(Debug, Default)]
pub(crate) struct Silent(BTreeMap<ClientId, Instant>);

impl Silent {
    pub(crate) fn begin(&mut self, client: ClientId, now: Instant) {
        if self.0.len() >= WRITERS_SILENT_MAX {
            self.0.retain(|_, until| *until > now);
        }
        if self.0.len() < WRITERS_SILENT_MAX {
            self.0.insert(client, now + WRITER_REST);
        }
        assert!(self.0.len() <= WRITERS_SILENT_MAX, "the table is bounded");
    }

    pub(crate) fn has(&self, client: ClientId, now: Instant) -> bool {
        self.0.get(&client).is_some_and(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_silent_is_asked_again_later() {
        let (mut silent, now) = (Silent::default(), Instant::default());
        silent.begin(ClientId(7), now);
        assert!(silent.has(ClientId(7), now) && !silent.has(ClientId(8), now));
        assert!(!silent.has(ClientId(7), now + WRITER_REST));
        for client in 0..3 * WRITERS_SILENT_MAX {
            silent.begin(ClientId(client as u128), now);
        }
        assert!(silent.0.len() <= WRITERS_SILENT_MAX);
    }
}

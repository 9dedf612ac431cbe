//! **dead**: client processes die, and servers die again and again soon after. Surviving clients do
//! not wait long for dead ones, and wait for each once.

use bytes::Bytes;
use client::Client;
use env_sim::NodeHandle;
use layout::Template;
use oracle::test_ctx;
use types::{Fid, Span};

use super::{O_EXCL, O_RDWR, Stage};

/// Clients that die in one run.
const DEATHS: u32 = 3;
/// Restarts after each death; the last one runs to its end.
const RESTARTS: u32 = 4;
/// From its client's death until a server may die: its link breaks at once, and the record is
/// durable with the next commit (1 s).
const SEEN: Span = Span::secs(3);
/// Longest call of a client that lives, from the last restart on: 5 s for the dead, twice where a
/// call needs the MDT and then an OST, and what the others need to come back.
const CALL_MAX: Span = Span::secs(12);

impl Stage<'_> {
    pub(super) fn dead(&mut self) -> Result<(), String> {
        let alive = self.enter("alive");
        self.work(&alive, "first")?;
        for death in 0..DEATHS {
            let dying = self.enter("dying");
            self.work(&dying, &format!("dying{death}"))?;
            dying.0.kill_as(false);
            self.cluster.sim.run_for(SEEN);
            for restart in 0..RESTARTS {
                self.restart_all();
                if restart + 1 < RESTARTS {
                    self.pause(Span::secs(4)); // in the midst of the recovery, often
                }
            }
            let start = self.cluster.sim.now();
            self.work(&alive, &format!("alive{death}"))?;
            let took = self.cluster.sim.now() - start;
            if took > CALL_MAX {
                return Err(format!("who lives waited {took:?} after death {death}"));
            }
            // all that are known come back now
            self.restart_all();
            let start = self.cluster.sim.now();
            self.work(&alive, &format!("again{death}"))?;
            let took = self.cluster.sim.now() - start;
            if took > Span::secs(4) {
                return Err(format!("who lives waited {took:?} once more for the dead"));
            }
        }
        Ok(())
    }

    fn restart_all(&mut self) {
        for server in &self.cluster.servers {
            server.kill(false);
        }
        self.restarts += 1;
        self.pause(Span::millis(500));
        for server in &self.cluster.servers {
            server.boot();
        }
    }

    /// A file that touches every server.
    fn work(&mut self, who: &(NodeHandle, Client), name: &str) -> Result<(), String> {
        let own = name.to_owned();
        self.ask(who, name, async move |client| {
            let striped =
                Template { stripe_size: 64 << 10, stripe_count: -1, ..Template::default() };
            let (_, file) = client
                .create(
                    &test_ctx(),
                    Fid::ROOT,
                    own.as_bytes(),
                    0o666,
                    O_RDWR | O_EXCL,
                    Some(&striped.into()),
                )
                .await?;
            for stripe in 0..4 {
                file.write(stripe * (64 << 10), Bytes::from_static(b"striped")).await?;
            }
            file.close().await
        })
    }
}

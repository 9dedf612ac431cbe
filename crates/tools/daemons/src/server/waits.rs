//! Reports for which clients and MDTs a target's recovery waits, and when the wait ends.

use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use env::Env;
use types::{Span, TargetId};

use super::Server;

/// A recovery is over sooner unless a client is missing: live ones come back within a second,
/// another server is waited for 2 s.
const TOLD_AFTER: Span = Span::secs(3);

const LOOK_EVERY: Span = Span::millis(250);

impl Server {
    /// From now on a line for each recovery that waits, and one when it ends.
    pub fn tell_recoveries(self: &Rc<Self>, say: fn(&str)) {
        let (env, server) = (self.env.clone(), Rc::downgrade(self));
        self.env.spawn("recovery told", tell(env, server, say));
    }
}

/// The MDTs that do not answer. Behind its clients, an MDT waits for others.
fn mdts(server: &Server) -> String {
    let remotes = server.endpoint.mdts().into_iter();
    let remotes = remotes.map(|index| server.endpoint.remote(TargetId::mdt(index)));
    let away: Vec<String> = remotes.filter_map(|remote| remote.waiting_on()).collect();
    if away.is_empty() { "other MDTs".to_owned() } else { away.join(", ") }
}

async fn tell(env: Env, server: Weak<Server>, say: fn(&str)) {
    let mut told: BTreeMap<String, Span> = BTreeMap::new();
    loop {
        let Some(now) = server.upgrade() else { return };
        for target in &now.targets {
            let exports = target.body.exports();
            let (wait, was_told) = (exports.recovery_wait(), told.contains_key(&target.name));
            match wait {
                Some((span, awaited)) if was_told || span >= TOLD_AFTER => {
                    if told.insert(target.name.clone(), span).is_none() {
                        let awaited = if awaited.is_empty() { mdts(&now) } else { awaited };
                        say(&format!("{} is recovering and waits for {awaited}", target.name));
                    }
                }
                Some(_) => {}
                None => {
                    if let Some(span) = told.remove(&target.name) {
                        let secs = span.as_millis().div_ceil(1_000);
                        say(&format!("{} has recovered, after {secs} s", target.name));
                    }
                }
            }
        }
        let is_over = now.targets.iter().all(|target| !target.body.exports().is_recovering());
        drop(now);
        if is_over {
            return;
        }
        env.sleep(LOOK_EVERY).await;
    }
}

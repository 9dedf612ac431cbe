//! Time until a new client has a session.

use env::Env;
use serde_json::{Value, json};
use types::{NidAddr, Span};
use wire::Opcode;

use crate::peer;

const FROM: u8 = 67;
const EVERY: Span = Span::millis(100);

pub(crate) fn run(at: NidAddr, span: Span) -> Value {
    env_os::run(peer::config(), |env| async move {
        let until = env.now() + span;
        let mut took = Vec::new();
        let mut failed = 0;
        while env.now() < until {
            match connect(&env, at).await {
                Some(span) => took.push(span.0 as f64 / 1e6),
                None => failed += 1,
            }
            env.sleep(EVERY).await;
        }
        took.sort_by(f64::total_cmp);
        let median = took.get(took.len() / 2);
        json!({ "connects": took.len(), "failed": failed, "median_ms": median, "slowest_ms": took.last() })
    })
}

/// Until it has a session, which it then gives back.
async fn connect(env: &Env, at: NidAddr) -> Option<Span> {
    let begin = env.now();
    let (mut link, joined) = peer::meet(env, peer::local(FROM), at).await?;
    let took = env.now() - begin;
    link.tx.send(peer::request(&joined, 2, Opcode::Disconnect, Vec::new()).to_frame()).ok()?;
    link.rx.recv().await?;
    Some(took)
}

//! More requests than a TBF class lets through: all of them wait, and each answered one is followed
//! by another.

use std::cell::Cell;
use std::rc::Rc;

use env::Env;
use serde_json::{Value, json};
use types::{Fid, NidAddr, Span};
use wire::{Reply, ReplyFlags};

use crate::peer;

const FROM: u8 = 66;
/// A session may not have them all.
const SESSIONS: u64 = 8;
/// Between two looks at what is missing.
const TICK: Span = Span::millis(50);

#[derive(Default)]
struct Counts {
    sent: Cell<u64>,
    done: Cell<u64>,
    busy: Cell<u64>,
    lost: Cell<u64>,
}

pub(crate) fn run(at: NidAddr, requests: u64, span: Span) -> Value {
    env_os::run(peer::config(), |env| async move {
        let counts = Rc::new(Counts::default());
        for _ in 0..SESSIONS {
            let own = session(env.clone(), at, requests / SESSIONS, Rc::clone(&counts));
            env.spawn("flood", own);
        }
        env.sleep(span).await;
        let Counts { sent, done, busy, lost } = &*counts;
        let waiting = sent.get() - done.get() - busy.get();
        json!({ "waiting": waiting, "done": done.get(), "busy": busy.get(), "lost": lost.get() })
    })
}

/// Keeps so many requests waiting, over and over.
async fn session(env: Env, at: NidAddr, requests: u64, counts: Rc<Counts>) {
    let add = |count: &Cell<u64>, more| count.set(count.get() + more);
    let (mut xid, mut open) = (1, 0);
    let object = Fid::new(env.random(), 1); // nobody has it
    loop {
        let Some((mut link, joined)) = peer::meet(&env, peer::local(FROM), at).await else {
            add(&counts.lost, 1);
            env.sleep(Span::secs(1)).await;
            continue;
        };
        'link: loop {
            for _ in open..requests {
                xid += 1;
                let request = peer::read(&joined, xid, object);
                if link.tx.send(request.to_frame()).is_err() {
                    break 'link;
                }
                add(&counts.sent, 1);
            }
            open = requests;
            let until = env.now() + TICK;
            while let Some(answer) = env.timeout_at(until, link.rx.recv()).await {
                let Some(frame) = answer else { break 'link };
                let Ok(reply) = Reply::take(frame.into_payload()) else { break 'link };
                if reply.has(ReplyFlags::EARLY) {
                    continue;
                }
                open -= 1;
                add(if reply.has(ReplyFlags::BUSY) { &counts.busy } else { &counts.done }, 1);
            }
        }
        add(&counts.lost, 1);
        add(&counts.done, open);
        open = 0;
    }
}

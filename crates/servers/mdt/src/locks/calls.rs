//! Calls to clients whose waits for locks have their turn ([`Callback::Complete`]).
//!
//! A call grants nothing: its client asks again, and the reply grants the lock. So a call may be
//! lost, come twice, or come when its wait is over. A client that is not called asks again after
//! some seconds.
//!
//! Invariant: a session has one of these calls without an answer at most, so recalls find a place
//! in its lane. Waits that have their turn meanwhile go with the next call.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ldlm::LockRequest;
use service::Exports;
use wire::body::GrantWord;
use wire::grants::{Callback, VECTOR_MAX};

use super::Locks;
use crate::limits::LOCK_CALL_PATIENCE;

/// Sessions with a call under way, and what the next call to each of them says.
#[derive(Default)]
struct Calls(BTreeMap<u64, Vec<GrantWord>>);

impl Calls {
    /// Waits have their turn. Returns the sessions that have no call under way: each is to be
    /// called. What does not fit into a call is left out.
    fn add(&mut self, turns: &[LockRequest]) -> Vec<u64> {
        let mut idle = Vec::new();
        for turn in turns {
            let session = turn.owner.session;
            let next = self.0.entry(session).or_insert_with(|| {
                idle.push(session);
                Vec::new()
            });
            if next.len() < VECTOR_MAX {
                next.push(word(turn));
            }
        }
        idle
    }

    /// What the next call to a session says. Nothing: it has no call under way from now on.
    fn take(&mut self, session: u64) -> Option<Vec<GrantWord>> {
        let next = std::mem::take(self.0.get_mut(&session)?);
        if next.is_empty() {
            self.0.remove(&session);
            return None;
        }
        Some(next)
    }
}

fn word(turn: &LockRequest) -> GrantWord {
    GrantWord { fid: turn.resource.into(), number: turn.cookie, ..GrantWord::default() }
}

impl Locks {
    /// Calls clients, as long as the MDT lives.
    pub(crate) async fn call_clients(
        self: Rc<Self>,
        exports: Rc<Exports>,
        is_stopped: impl Fn() -> bool,
    ) {
        let calls = Rc::new(RefCell::new(Calls::default()));
        loop {
            self.turned.notified().await;
            if is_stopped() {
                return;
            }
            let turns = self.inner.borrow_mut().space.take_turns();
            let idle = calls.borrow_mut().add(&turns);
            for session in idle {
                let calling = call(exports.clone(), calls.clone(), session);
                self.env.spawn("mdt_lock_call", calling);
            }
        }
    }

    /// Lets the background task see that the instance is over.
    pub(crate) fn wake(&self) {
        self.turned.notify_one();
    }
}

/// Calls one client until none of its waits has its turn.
async fn call(exports: Rc<Exports>, calls: Rc<RefCell<Calls>>, id: u64) {
    loop {
        let next = calls.borrow_mut().take(id);
        let Some(words) = next else { return };
        let Some(session) = exports.session(id) else { continue };
        let calling = exports.call_back(&session, &Callback::Complete(words), LOCK_CALL_PATIENCE);
        if let Err(error) = calling.await {
            tracing::debug!(target: "mdt", session = id, %error, "a client does not hear that its locks are free");
        }
    }
}

#[cfg(test)]
mod tests {
    use ldlm::{Kind, Mode, Owner};
    use types::{Extent, Fid};

    use super::*;

    fn turn(session: u64, cookie: u64) -> LockRequest {
        LockRequest {
            resource: Fid::new(1, 7),
            kind: Kind::Flock,
            owner: Owner { session, id: cookie },
            extent: Extent::ALL,
            mode: Mode::Exclusive,
            pid: 1,
            cookie,
        }
    }

    fn cookies(words: Option<Vec<GrantWord>>) -> Option<Vec<u64>> {
        words.map(|words| words.iter().map(|word| word.number).collect())
    }

    #[test]
    fn a_session_has_one_call_at_a_time() {
        let mut calls = Calls::default();
        assert_eq!(calls.add(&[turn(1, 10), turn(2, 20), turn(1, 11)]), [1, 2]);
        assert_eq!(cookies(calls.take(1)), Some(vec![10, 11]));
        assert!(calls.add(&[turn(1, 12), turn(1, 13)]).is_empty(), "it is being called");
        assert_eq!(cookies(calls.take(1)), Some(vec![12, 13]));
        assert_eq!((cookies(calls.take(1)), cookies(calls.take(1))), (None, None));
        assert_eq!(calls.add(&[turn(1, 14)]), [1]);
        assert_eq!(cookies(calls.take(2)), Some(vec![20]));
    }

    #[test]
    fn a_client_that_does_not_answer_costs_a_bounded_vector() {
        let mut calls = Calls::default();
        let turns: Vec<_> = (0..3 * VECTOR_MAX as u64).map(|cookie| turn(1, cookie)).collect();
        assert_eq!(calls.add(&turns), [1]);
        assert!(calls.add(&turns).is_empty());
        assert_eq!(calls.take(1).map(|words| words.len()), Some(VECTOR_MAX));
        assert_eq!(cookies(calls.take(1)), None);
    }
}

//! Waits for locks of which an MDT says when to ask again
//! ([`Callback::Complete`](wire::grants::Callback::Complete)).
//!
//! A call grants nothing. The waiter asks again, as it does after a restart of the MDT and after
//! the end of the session. A call too many costs a request, and a call for a wait that is over has
//! no effect.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;

/// All such waits, by cookie: the MDT, and what wakes the waiter.
#[derive(Default)]
pub(crate) struct Turns(RefCell<BTreeMap<u64, (u32, Rc<Notify>)>>);

impl Turns {
    /// A wait begins at an MDT. From now on no call for it is lost.
    pub(super) fn begin(self: &Rc<Self>, mdt: u32, cookie: u64) -> Turn {
        let called = Rc::new(Notify::new());
        self.0.borrow_mut().insert(cookie, (mdt, called.clone()));
        Turn { turns: self.clone(), cookie, called }
    }

    /// The waiter is to ask this MDT again, or look whether it is given up.
    pub(crate) fn call(&self, mdt: u32, cookie: u64) {
        let waits = self.0.borrow();
        if let Some((of, called)) = waits.get(&cookie)
            && *of == mdt
        {
            called.notify_one();
        }
    }

    /// All waiters at an MDT are to ask again.
    pub(crate) fn call_all(&self, mdt: u32) {
        let waits = self.0.borrow();
        waits.values().filter(|(of, _)| *of == mdt).for_each(|(_, called)| called.notify_one());
    }
}

/// One wait; dropped, it is over.
pub(super) struct Turn {
    turns: Rc<Turns>,
    cookie: u64,
    called: Rc<Notify>,
}

impl Turn {
    /// Completes when the waiter is to ask again. One call is remembered until then.
    pub(super) async fn come(&self) {
        self.called.notified().await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.0.borrow_mut().remove(&self.cookie);
    }
}

#[cfg(test)]
mod tests {
    use types::Span;

    use super::*;

    #[test]
    fn a_call_wakes_its_own_wait_alone_also_before_that_waits() {
        env_os::run(env_os::OsConfig::default(), |env| async move {
            let turns: Rc<Turns> = Rc::default();
            let (one, other) = (turns.begin(0, 7), turns.begin(1, 8));
            let has_come =
                async |turn: &Turn| env.timeout(Span::millis(1), turn.come()).await.is_some();
            turns.call(0, 7);
            turns.call(0, 7);
            turns.call(0, 8); // of another MDT
            turns.call(0, 9); // of nothing
            assert!(has_come(&one).await && !has_come(&one).await && !has_come(&other).await);
            turns.call_all(1);
            assert!(has_come(&other).await && !has_come(&one).await);
            drop((one, other));
            assert!(turns.0.borrow().is_empty());
        });
    }
}

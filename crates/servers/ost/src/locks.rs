//! Extent locks of objects, held for the length of one operation: `ldlm`'s grant core, plus the
//! tasks to wake.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ldlm::{ExtentLocks, LockId, Mode, Outcome};
use service::Incoming;
use tokio::sync::oneshot;
use types::{Extent, Fid};

#[derive(Default)]
struct State {
    core: ExtentLocks,
    waiting: BTreeMap<LockId, oneshot::Sender<()>>,
}

const STAYS: &str = "a waiter stays in the table until it is granted or gives up";

/// All extent locks of one OST.
#[derive(Clone, Default)]
pub(crate) struct Locks(Rc<RefCell<State>>);

/// Held, or a place in the line; dropping it gives it back.
pub(crate) struct Held {
    id: LockId,
    locks: Locks,
}

impl Locks {
    /// Waits for `extent` of `object`, first come, first served. While it waits, `incoming` has no
    /// worker slot: those are for requests that could go on.
    pub(crate) async fn lock(
        &self,
        incoming: &Incoming,
        object: Fid,
        extent: Extent,
        mode: Mode,
    ) -> Held {
        let (held, wait) = self.enqueue(object, extent, mode);
        if let Some(wait) = wait {
            let _had_a_slot = incoming.step_aside();
            wait.await.expect(STAYS);
        }
        held
    }

    /// The same for the target itself.
    pub(crate) async fn lock_alone(&self, object: Fid, extent: Extent, mode: Mode) -> Held {
        let (held, wait) = self.enqueue(object, extent, mode);
        if let Some(wait) = wait {
            wait.await.expect(STAYS);
        }
        held
    }

    fn enqueue(
        &self,
        object: Fid,
        extent: Extent,
        mode: Mode,
    ) -> (Held, Option<oneshot::Receiver<()>>) {
        let mut state = self.0.borrow_mut();
        let (id, outcome) = state.core.enqueue(object, extent, mode);
        let wait = (outcome != Outcome::Granted).then(|| {
            let (granted, wait) = oneshot::channel();
            state.waiting.insert(id, granted);
            wait
        });
        (Held { id, locks: self.clone() }, wait)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.locks.0.borrow_mut();
        state.waiting.remove(&self.id);
        for id in state.core.cancel(self.id) {
            if let Some(granted) = state.waiting.remove(&id) {
                let _gave_up_meanwhile = granted.send(());
            }
        }
    }
}

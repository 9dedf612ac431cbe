//! The state that the halves and the tasks of a link share, and how the link ends.
//!
//! Any fault ends in [`Shared::close`], which runs once. It drops the writing halves, the tasks and
//! with them the sockets. It fails the tickets and wakes the reader.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use env::BulkTable;
use tokio::task::AbortHandle;
use types::Nid;

use super::crossing::Crossing;
use super::fault::Fault;
use super::outbox::Outbox;
use crate::executor::spawn;
use crate::lnd::Lnd;

/// Shared by both halves and all tasks of a link.
pub(super) struct Shared {
    pub(super) config: Rc<Lnd>,
    pub(super) peer: Nid,
    pub(super) control: Outbox,
    pub(super) bulk_out: Outbox,
    pub(super) bulk: BulkTable,
    crossing: Option<Arc<Crossing>>,
    open: Cell<bool>,
    tasks: RefCell<Vec<AbortHandle>>,
    /// The task that reads control, while it waits.
    pub(super) reader: RefCell<Option<Waker>>,
    /// Something came since the watch last looked.
    pub(super) heard: Cell<bool>,
    /// The reader has taken everything that is there: silence is the peer's.
    pub(super) starved: Cell<bool>,
}

impl Shared {
    /// Of an open link to `peer`, with its queues of control and of bulk.
    pub(super) fn new(
        config: Rc<Lnd>,
        peer: Nid,
        [control, bulk_out]: [Outbox; 2],
        bulk: BulkTable,
        crossing: Option<Arc<Crossing>>,
    ) -> Shared {
        Shared {
            config,
            peer,
            control,
            bulk_out,
            bulk,
            crossing,
            open: Cell::new(true),
            tasks: RefCell::default(),
            reader: RefCell::default(),
            heard: Cell::new(true),
            starved: Cell::new(false),
        }
    }

    /// Runs a task of this link; its fault is the link's.
    pub(super) fn task(self: &Rc<Self>, task: impl Future<Output = Result<(), Fault>> + 'static) {
        let shared = Rc::clone(self);
        let handle = spawn(async move {
            if let Err(fault) = task.await {
                shared.fail(&fault);
            }
        });
        self.tasks.borrow_mut().push(handle);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Ends the link because of `fault`.
    pub(super) fn fail(&self, fault: &Fault) {
        if self.open.get() && fault.is_news() {
            tracing::warn!(peer = %self.peer, %fault, "link closed");
        }
        self.close();
    }

    /// Ends the link; what fits into the sockets still leaves.
    pub(super) fn close(&self) {
        if !self.open.replace(false) {
            return;
        }
        if let Some(crossing) = &self.crossing {
            crossing.hang_up();
        }
        self.control.close();
        self.bulk_out.close();
        self.config.lnet.hang_up(self.peer);
        self.bulk.fail_all();
        for task in self.tasks.borrow_mut().drain(..) {
            task.abort();
        }
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
    }
}

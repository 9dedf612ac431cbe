//! Bulk data in flight: the ids that a link expects, and the tasks that wait for them. Used by
//! every LND.
//!
//! A table may be shared with the thread that reads the link's socket.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use queues::Ascending;
use tokio::sync::oneshot;

struct Slot {
    len_max: usize,
    done: oneshot::Sender<Bytes>,
}

type Slots = Mutex<Ascending<u64, Slot>>;

fn lock(slots: &Slots) -> MutexGuard<'_, Ascending<u64, Slot>> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The expected bulk ids of one link. An id is used once.
#[derive(Clone, Default)]
pub struct BulkTable(Arc<Slots>);

impl BulkTable {
    /// Expects no data: what comes is dropped.
    #[must_use]
    pub fn new() -> BulkTable {
        BulkTable::default()
    }

    /// Expects data of `id`, at most `len_max` bytes. Dropping the ticket ends that.
    #[must_use]
    pub fn expect(&self, id: u64, len_max: usize) -> BulkTicket {
        let (done, wait) = oneshot::channel();
        let before = lock(&self.0).insert(id, Slot { len_max, done });
        assert!(before.is_none(), "a bulk id is used once");
        BulkTicket { id, wait, table: Arc::downgrade(&self.0) }
    }

    /// Whether `len` bytes for `id` are welcome: asked before anything is allocated for them.
    #[must_use]
    pub fn admits(&self, id: u64, len: usize) -> bool {
        lock(&self.0).get(id).is_some_and(|slot| len <= slot.len_max)
    }

    /// Hands data to whoever waits; says whether anybody did.
    pub fn deliver(&self, id: u64, data: Bytes) -> bool {
        let slot = {
            let mut slots = lock(&self.0);
            let admitted = slots.get(id).is_some_and(|slot| data.len() <= slot.len_max);
            if admitted { slots.remove(id) } else { None }
        };
        slot.is_some_and(|slot| slot.done.send(data).is_ok())
    }

    /// The link is down: every ticket resolves to nothing.
    pub fn fail_all(&self) {
        drop(std::mem::take(&mut *lock(&self.0)));
    }
}

/// Resolves to the data, or to nothing when the link went down.
pub struct BulkTicket {
    id: u64,
    wait: oneshot::Receiver<Bytes>,
    table: Weak<Slots>,
}

impl Future for BulkTicket {
    type Output = Option<Bytes>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        Pin::new(&mut self.wait).poll(cx).map(Result::ok)
    }
}

impl Drop for BulkTicket {
    fn drop(&mut self) {
        if let Some(slots) = self.table.upgrade() {
            lock(&slots).remove(self.id);
        }
    }
}

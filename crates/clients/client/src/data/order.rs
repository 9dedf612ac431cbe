//! Changes of one file's data that are under way at this client.
//!
//! - A change that overlaps an earlier one waits until the fate of the earlier one is known.
//!   Neither the path to an OST nor its scheduler may reorder them.
//! - A change is under way until its target has executed it or never will, even if its caller was
//!   killed. Until then this client states no size.

use std::cell::Cell;
use std::rc::Rc;

use types::Extent;

use crate::inode::Inode;

/// A change from its begin until its fate is known; whoever sends a part of it holds it too.
pub(crate) struct DataChange {
    inode: Rc<Inode>,
    number: u64,
    /// A part was given up before its answer came.
    is_unsure: Cell<bool>,
}

impl DataChange {
    pub(crate) fn begin(inode: &Rc<Inode>, range: Extent) -> Rc<DataChange> {
        let number = inode.under_way.order.borrow_mut().begin(range);
        Rc::new(DataChange { inode: Rc::clone(inode), number, is_unsure: Cell::new(false) })
    }

    /// Returns when no earlier change of the same bytes is under way.
    pub(crate) async fn turn(&self) {
        self.inode.under_way.wait_while(|order| order.must_wait(self.number)).await;
    }

    /// Nobody will hear the answer: what the objects are is to be asked once it is over.
    pub(crate) fn give_up(&self) {
        self.is_unsure.set(true);
    }
}

impl Drop for DataChange {
    fn drop(&mut self) {
        if self.is_unsure.get() {
            self.inode.forget();
        }
        self.inode.under_way.order.borrow_mut().end(self.number);
        self.inode.under_way.ended.notify_waiters();
    }
}

/// A change that the file's lock orders, from before it has the lock until its end.
pub(crate) struct LockedChange(Rc<Inode>);

impl LockedChange {
    pub(crate) fn begin(inode: &Rc<Inode>) -> LockedChange {
        inode.under_way.order.borrow_mut().locked += 1;
        LockedChange(Rc::clone(inode))
    }
}

impl Drop for LockedChange {
    fn drop(&mut self) {
        self.0.under_way.order.borrow_mut().locked -= 1;
        self.0.under_way.ended.notify_waiters();
    }
}

//! Changes of one file's data that are under way at this client.
//!
//! - A change that overlaps an earlier one waits until the fate of the earlier one is known.
//!   Neither the path to an OST nor its scheduler may reorder them.
//! - A change is under way until its target has executed it or never will, even if its caller was
//!   killed. Until then this client states no size.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;
use types::Extent;

use crate::inode::Inode;

/// Ranges by number, in the order in which they began.
#[derive(Debug, Default)]
struct Order {
    drawn: u64,
    ranges: BTreeMap<u64, Extent>,
    /// Changes without a place in the order: the file's lock orders them.
    locked: u64,
}

impl Order {
    fn begin(&mut self, range: Extent) -> u64 {
        self.drawn += 1;
        self.ranges.insert(self.drawn, range);
        self.drawn
    }

    fn end(&mut self, number: u64) {
        let range = self.ranges.remove(&number);
        assert!(range.is_some(), "a change ends once");
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.locked == 0
    }

    /// Whether one that began earlier touches the same bytes.
    fn must_wait(&self, number: u64) -> bool {
        let range = self.ranges[&number];
        self.ranges.range(..number).any(|(_, earlier)| earlier.overlaps(range))
    }
}

/// The changes of a file that are under way.
#[derive(Default)]
pub(crate) struct UnderWay {
    order: RefCell<Order>,
    ended: Notify,
}

impl UnderWay {
    pub(crate) fn is_empty(&self) -> bool {
        self.order.borrow().is_empty()
    }

    /// Returns when no change is under way.
    pub(crate) async fn settled(&self) {
        self.wait_while(|order| !order.is_empty()).await;
    }

    /// Returns when no change that has a place in the order is under way: the others may wait for
    /// the file's lock, which the caller holds.
    pub(crate) async fn settled_under_lock(&self) {
        self.wait_while(|order| !order.ranges.is_empty()).await;
    }

    async fn wait_while(&self, condition: impl Fn(&Order) -> bool) {
        loop {
            let ended = self.ended.notified();
            if !condition(&self.order.borrow()) {
                return;
            }
            ended.await;
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_change_of_the_same_bytes_waits_for_the_earlier_one() {
        let mut order = Order::default();
        let range = |start, end| Extent::new(start, end).expect("not empty");
        let first = order.begin(range(0, 100));
        let beside = order.begin(range(100, 200));
        let over = order.begin(range(50, 150));
        let waits = |order: &Order| [first, beside, over].map(|number| order.must_wait(number));
        assert_eq!(waits(&order), [false, false, true]);
        let again = order.begin(range(0, 10));
        order.end(first);
        assert!(!order.must_wait(again) && order.must_wait(over));
        order.end(beside);
        assert!(!order.must_wait(over));
    }
}

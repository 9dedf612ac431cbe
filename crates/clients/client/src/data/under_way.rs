//! Which changes of a file's data are under way, and in which order they began.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tokio::sync::Notify;
use types::Extent;

/// Ranges by number, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Order {
    drawn: u64,
    ranges: BTreeMap<u64, Extent>,
    /// Changes without a place in the order: the file's lock orders them.
    pub(super) locked: u64,
}

impl Order {
    pub(super) fn begin(&mut self, range: Extent) -> u64 {
        self.drawn += 1;
        self.ranges.insert(self.drawn, range);
        self.drawn
    }

    pub(super) fn end(&mut self, number: u64) {
        let range = self.ranges.remove(&number);
        assert!(range.is_some(), "a change ends once");
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.locked == 0
    }

    /// Whether one that began earlier touches the same bytes.
    pub(super) fn must_wait(&self, number: u64) -> bool {
        let range = self.ranges[&number];
        self.ranges.range(..number).any(|(_, earlier)| earlier.overlaps(range))
    }
}

/// The changes of a file that are under way.
#[derive(Default)]
pub(crate) struct UnderWay {
    pub(super) order: RefCell<Order>,
    pub(super) ended: Notify,
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

    pub(super) async fn wait_while(&self, condition: impl Fn(&Order) -> bool) {
        loop {
            let ended = self.ended.notified();
            if !condition(&self.order.borrow()) {
                return;
            }
            ended.await;
        }
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

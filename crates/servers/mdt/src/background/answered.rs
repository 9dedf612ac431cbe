//! How far OSTs are with the destroy log.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tokio::sync::Notify;

/// How far each OST that the log names is: it has destroyed the objects of all records below,
/// durably or not.
#[derive(Default)]
pub(crate) struct Answered {
    pub(super) upto: RefCell<BTreeMap<u32, u64>>,
    pub(super) changed: Notify,
}

impl Answered {
    pub(super) fn note(&self, ost: u32, upto: u64) {
        self.upto.borrow_mut().insert(ost, upto);
        self.changed.notify_waiters();
    }
}

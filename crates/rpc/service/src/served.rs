//! A target as its node serves it.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::{Exports, Target};

/// A target, its sessions, and whether the node still serves it.
pub(crate) struct Served {
    pub(crate) target: Rc<dyn Target>,
    pub(crate) exports: Rc<Exports>,
    pub(crate) gone: Cell<bool>,
    ended: Notify,
}

impl Served {
    pub(crate) fn new(target: Rc<dyn Target>) -> Rc<Served> {
        let exports = target.exports();
        Rc::new(Served { exports, target, gone: Cell::new(false), ended: Notify::new() })
    }

    /// Serves it no longer: what it executes is dropped, and gives its slots back to others.
    pub(crate) fn end(&self) {
        self.gone.set(true);
        self.exports.wake.notify_one();
        self.ended.notify_waiters();
    }

    /// Completes once it is served no longer.
    pub(crate) async fn ended(&self) {
        let ended = self.ended.notified();
        if !self.gone.get() {
            ended.await;
        }
    }
}

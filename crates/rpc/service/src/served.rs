//! A target as its node serves it.

use std::cell::Cell;
use std::rc::Rc;

use crate::{Exports, Target};

/// A target, its sessions, and whether the node still serves it.
pub(crate) struct Served {
    pub(crate) target: Rc<dyn Target>,
    pub(crate) exports: Rc<Exports>,
    pub(crate) gone: Cell<bool>,
}

impl Served {
    pub(crate) fn new(target: Rc<dyn Target>) -> Rc<Served> {
        Rc::new(Served { exports: target.exports(), target, gone: Cell::new(false) })
    }
}

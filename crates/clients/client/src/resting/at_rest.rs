//! Handles of a mount that no caller uses.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use types::{Span, Xid};
use wire::body::Claim;

use super::table::Table;
use crate::Ctx;
use crate::inode::Inode;

/// How long a handle rests by default. A script or a build opens the same files again within
/// seconds.
const RESTING_AGE_DEFAULT: Span = Span::secs(10);

/// A handle that nobody uses.
pub(super) struct Resting {
    pub(super) inode: Rc<Inode>,
    pub(super) ctx: Ctx,
    pub(super) flags: u32,
    pub(super) handle: u64,
    pub(super) claim: Claim,
    pub(super) xid: Xid,
    /// Since when the file's data may be kept without a break.
    pub(super) held_since: u32,
}

/// The handles of a mount that nobody uses.
pub(crate) struct AtRest {
    pub(super) table: RefCell<Table<Resting>>,
    pub(super) age: Cell<Span>,
    /// A task looks after them.
    pub(super) is_minded: Cell<bool>,
    pub(super) opens: Cell<u64>,
    pub(super) closes: Cell<u64>,
}

impl Default for AtRest {
    fn default() -> AtRest {
        AtRest {
            table: RefCell::default(),
            age: Cell::new(RESTING_AGE_DEFAULT),
            is_minded: Cell::default(),
            opens: Cell::default(),
            closes: Cell::default(),
        }
    }
}

impl AtRest {
    /// The sessions end, and with them all handles.
    pub(crate) fn clear(&self) {
        self.table.borrow_mut().clear();
    }
}

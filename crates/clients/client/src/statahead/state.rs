//! Series of names that are asked ahead, and how many.

use std::cell::{Cell, RefCell};

use tokio::sync::Notify;

use super::series::AllSeries;
use crate::limits;

/// State of a mount's questions ahead.
pub(crate) struct Statahead {
    pub(super) series: RefCell<AllSeries>,
    /// Names of a series that are asked ahead at most; zero: none.
    pub(super) max: Cell<u32>,
    pub(super) agl: Cell<bool>,
    /// Calls of it under way.
    pub(super) agl_calls: Cell<u32>,
    pub(super) answered: Notify,
}

impl Default for Statahead {
    fn default() -> Statahead {
        Statahead {
            series: RefCell::default(),
            max: Cell::new(limits::STATAHEAD_DEFAULT),
            agl: Cell::new(true),
            agl_calls: Cell::new(0),
            answered: Notify::new(),
        }
    }
}

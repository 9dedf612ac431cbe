//! Which phase of a benchmark runs, on a terminal.

use std::cell::Cell;
use std::fmt::Display;

use ctl::progress::{Progress, Unit};

const PHASE: Unit = Unit::Step("phase");

/// The phases of all runs, one after the other.
pub(crate) struct Steps {
    progress: Progress,
    begun: Cell<u64>,
    all: u64,
}

impl Steps {
    /// Of a benchmark with so many phases.
    pub(crate) fn new(label: &str, all: usize) -> Steps {
        Steps { progress: Progress::new(label, PHASE), begun: Cell::new(0), all: all as u64 }
    }

    /// The next one begins.
    pub(crate) fn begin(&self, phase: impl Display) {
        let begun = self.begun.get();
        self.progress.show(begun, self.all, &phase.to_string());
        self.begun.set(begun + 1);
    }

    /// Makes room for results on the terminal.
    pub(crate) fn erase(&self) {
        self.progress.erase();
    }
}

//! Events of `tracing` during a run. Error-level events are kept, because they fail the run. Others
//! can be printed with virtual time and node, to read how a failing seed went.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Shared between the simulation and its subscriber, which `tracing` wants `Sync`.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) now: AtomicU64,
    /// The node whose task was polled last, by its place in `names`.
    node: AtomicUsize,
    names: Mutex<Vec<String>>,
    errors: Mutex<Vec<String>>,
    error_count: AtomicU64,
    print: Option<Level>,
}

impl Watch {
    pub(crate) fn new(print: Option<Level>) -> Arc<Watch> {
        let none_yet = AtomicUsize::new(usize::MAX);
        Arc::new(Watch { print, node: none_yet, ..Watch::default() })
    }

    pub(crate) fn add_node(&self, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    pub(crate) fn set_node(&self, node: usize) {
        self.node.store(node, Ordering::Relaxed);
    }

    pub(crate) fn prints(&self, level: Level) -> bool {
        self.print.is_some_and(|most| level <= most)
    }

    pub(crate) fn error_count(&self) -> u64 {
        self.error_count.load(Ordering::Relaxed)
    }

    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn line(&self, event: &Event<'_>) -> String {
        let now = self.now.load(Ordering::Relaxed);
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let node = names.get(self.node.load(Ordering::Relaxed)).cloned().unwrap_or_default();
        drop(names);
        let mut text = Line(format!(
            "{:>5}.{:06} {:<5} {node} {}:",
            now / 1_000_000_000,
            now % 1_000_000_000 / 1_000,
            event.metadata().level(),
            event.metadata().target(),
        ));
        event.record(&mut text);
        text.0
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = if field.name() == "message" {
            write!(self.0, " {value:?}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
        written.expect("a string takes everything");
    }
}

/// The subscriber of one run.
pub(crate) struct WatchSubscriber(pub(crate) Arc<Watch>);

impl Subscriber for WatchSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && (*metadata.level() == Level::ERROR
                || self.0.print.is_some_and(|most| *metadata.level() <= most))
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let line = self.0.line(event);
        if self.0.print.is_some() {
            eprintln!("{line}");
        }
        if *event.metadata().level() == Level::ERROR {
            self.0.errors.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            self.0.error_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

//! Findings of a run: violations, and the count and duration of each call.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// Violations that are kept as text; all are counted.
const TEXTS_MAX: usize = 200;

/// What a violation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Acknowledged by fsync and not there.
    Lost,
    Doubled,
    Torn,
    /// Content that no call explains.
    Wrong,
    /// A call that failed where nothing excuses it.
    Error,
    /// A call that took too long.
    Slow,
    /// A process that ended or did not end, a panic in a log.
    Machine,
}

#[derive(Clone, Debug)]
pub(super) struct Wrong {
    pub(super) at: Duration,
    pub(super) kind: Kind,
    pub(super) text: String,
}

impl Wrong {
    pub(super) fn new(at: Duration, kind: Kind, text: impl Into<String>) -> Wrong {
        Wrong { at, kind, text: text.into() }
    }
}

/// One sort of call.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    pub(super) count: u64,
    /// Excused ones.
    pub(super) errors: u64,
    pub(super) longest: Duration,
    /// Beyond the faults.
    pub(super) excess: Duration,
}

#[derive(Default)]
pub(super) struct Found {
    wrong: Mutex<(u64, Vec<Wrong>)>,
    calls: Mutex<BTreeMap<&'static str, Call>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Found {
    pub(super) fn add(&self, wrong: Wrong) {
        eprintln!("{:8.2} s {:?}: {}", wrong.at.as_secs_f64(), wrong.kind, wrong.text);
        let mut kept = self.wrong.lock().expect("no panic holds it");
        kept.0 += 1;
        if kept.1.len() < TEXTS_MAX {
            kept.1.push(wrong);
        }
    }

    /// Found after the run.
    pub(super) fn at_the_end(&self, kind: Kind, text: impl Into<String>) {
        self.add(Wrong::new(Duration::ZERO, kind, text));
    }

    pub(super) fn called(&self, what: &'static str, took: Duration, excess: Duration, ok: bool) {
        let mut calls = self.calls.lock().expect("no panic holds it");
        let call = calls.entry(what).or_default();
        call.count += 1;
        call.errors += u64::from(!ok);
        call.longest = call.longest.max(took);
        call.excess = call.excess.max(excess);
    }

    pub(super) fn count(&self, what: &'static str, more: u64) {
        *self.counts.lock().expect("no panic holds it").entry(what).or_default() += more;
    }

    pub(super) fn wrong(&self) -> (u64, Vec<Wrong>) {
        self.wrong.lock().expect("no panic holds it").clone()
    }

    pub(super) fn calls(&self) -> BTreeMap<&'static str, Call> {
        self.calls.lock().expect("no panic holds it").clone()
    }

    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().expect("no panic holds it").clone()
    }
}

//! Extent locks: byte ranges of objects, held for the length of one server operation.
//!
//! Grant rule: a request is granted when it conflicts with no granted range and with no earlier
//! waiter of the same object. An operation takes its whole range of an object in one request and
//! waits for no second one. So there is no deadlock to detect here.

use std::collections::BTreeMap;

use types::{Extent, Fid};

use crate::{Mode, Outcome};

/// Names one request of an [`ExtentLocks`]; rises, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub u64);

#[derive(Clone, Copy)]
struct Range {
    extent: Extent,
    mode: Mode,
    granted: bool,
}

impl Range {
    fn conflicts(&self, other: &Range) -> bool {
        self.extent.overlaps(other.extent) && !self.mode.admits(other.mode)
    }
}

/// All extent locks of a target, by object.
///
/// Every [`ExtentLocks::enqueue`] is followed by exactly one [`ExtentLocks::cancel`] of its id,
/// granted or not. Waiters have no bound here. Each one is a request that a server executes, and a
/// server bounds those: in number for each session, and in bytes for all.
#[derive(Default)]
pub struct ExtentLocks {
    next: u64,
    objects: BTreeMap<Fid, BTreeMap<LockId, Range>>, // in order of arrival: ids rise
    resource_of: BTreeMap<LockId, Fid>,
}

impl ExtentLocks {
    #[must_use]
    pub fn new() -> ExtentLocks {
        ExtentLocks::default()
    }

    /// Asks for `extent` of `object`.
    pub fn enqueue(&mut self, object: Fid, extent: Extent, mode: Mode) -> (LockId, Outcome) {
        let id = LockId(self.next);
        self.next += 1;
        let queue = self.objects.entry(object).or_default();
        let mut range = Range { extent, mode, granted: false };
        range.granted = queue.values().all(|earlier| !earlier.conflicts(&range));
        queue.insert(id, range);
        self.resource_of.insert(id, object);
        (id, if range.granted { Outcome::Granted } else { Outcome::Waiting })
    }

    /// Gives a granted lock back, or leaves the line. Returns the waiters that are granted now.
    pub fn cancel(&mut self, id: LockId) -> Vec<LockId> {
        let Some(object) = self.resource_of.remove(&id) else { return Vec::new() };
        let queue = self.objects.get_mut(&object).expect("an object with a lock has a queue");
        let gone = queue.remove(&id).expect("a known id stands in its queue");
        if queue.is_empty() {
            self.objects.remove(&object);
            return Vec::new();
        }
        admit(queue, &gone)
    }

    /// Whether the lock is held.
    #[must_use]
    pub fn is_granted(&self, id: LockId) -> bool {
        let object = self.resource_of.get(&id);
        object
            .and_then(|object| self.objects.get(object)?.get(&id))
            .is_some_and(|range| range.granted)
    }

    /// Requests in all, granted and waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.resource_of.len()
    }

    /// Whether nothing is held or waited for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resource_of.is_empty()
    }
}

/// Grants every waiter that conflicted with `gone` and conflicts with nothing earlier any more.
/// Later *granted* ranges cannot conflict with an earlier waiter: they would have queued behind it.
fn admit(queue: &mut BTreeMap<LockId, Range>, gone: &Range) -> Vec<LockId> {
    let candidates: Vec<LockId> = queue
        .iter()
        .filter(|(_, range)| !range.granted && range.conflicts(gone))
        .map(|(id, _)| *id)
        .collect();
    let mut granted = Vec::new();
    for id in candidates {
        let range = queue[&id];
        if queue.range(..id).all(|(_, earlier)| !earlier.conflicts(&range)) {
            queue.get_mut(&id).expect("found a line above").granted = true;
            granted.push(id);
        }
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::SplitMix64;

    /// `steps`: "+a r0-9" asks, "-a" cancels; the answer lists what each step granted.
    fn check(steps: &str, expected: &str) {
        let mut locks = ExtentLocks::new();
        let mut names: BTreeMap<String, LockId> = BTreeMap::new();
        let mut seen = Vec::new();
        let mut tokens = steps.split_whitespace();
        while let Some(token) = tokens.next() {
            let name = token[1..].to_owned();
            let granted: Vec<LockId> = if token.starts_with('+') {
                let spec = tokens.next().expect("a range follows");
                let (from, to) = spec[1..].split_once('-').expect("from-to");
                let extent =
                    Extent::new(from.parse().expect("number"), to.parse().expect("number"))
                        .expect("not empty");
                let mode = if spec.starts_with('r') { Mode::Shared } else { Mode::Exclusive };
                let (id, outcome) = locks.enqueue(Fid::new(1, 1), extent, mode);
                names.insert(name, id);
                if outcome == Outcome::Granted { vec![id] } else { Vec::new() }
            } else {
                locks.cancel(names[&name])
            };
            let granted: Vec<_> = granted
                .iter()
                .map(|id| names.iter().find(|(_, known)| *known == id).expect("named").0.clone())
                .collect();
            seen.push(format!("[{}]", granted.join(" ")));
        }
        assert_eq!(seen.join(" "), expected, "{steps}");
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        check("+a r0-10 +b r5-20 +c w0-5 -a -b", "[a] [b] [] [c] []");
        check("+a w0-10 +b w10-20 -a -b", "[a] [b] [] []");
    }

    #[test]
    fn a_reader_does_not_pass_a_waiting_writer() {
        check("+a r0-10 +w w0-10 +b r0-10 -a -w", "[a] [] [] [w] [b]");
    }

    #[test]
    fn a_waiter_that_leaves_lets_the_next_in() {
        check("+a r0-10 +w w0-10 +b r0-10 +c r2-3 -w", "[a] [] [] [] [b c]");
    }

    #[test]
    fn whoever_conflicts_with_nobody_is_granted_past_the_line() {
        check("+a w0-10 +b w0-10 +c w20-30", "[a] [] [c]");
    }

    #[test]
    fn random_histories_agree_with_the_naive_rule() {
        let mut chance = SplitMix64::new(1);
        let mut random = move |bound: u64| chance.below(bound);
        let mut locks = ExtentLocks::new();
        // in order of arrival; granted is recomputed to a fixpoint
        let mut model: Vec<(LockId, Range)> = Vec::new();
        for _ in 0..20_000 {
            if model.len() < 12 && random(2) == 0 {
                let start = random(20);
                let extent = Extent::new(start, start + 1 + random(10)).expect("not empty");
                let mode = if random(2) == 0 { Mode::Shared } else { Mode::Exclusive };
                let (id, _) = locks.enqueue(Fid::new(1, 1), extent, mode);
                model.push((id, Range { extent, mode, granted: false }));
            } else if !model.is_empty() {
                let (id, _) = model.remove(random(model.len() as u64) as usize);
                for granted in locks.cancel(id) {
                    assert!(locks.is_granted(granted));
                }
            }
            for index in 0..model.len() {
                let (_, range) = model[index];
                model[index].1.granted =
                    model[..index].iter().all(|(_, earlier)| !earlier.conflicts(&range));
            }
            assert!(model.iter().all(|(id, range)| locks.is_granted(*id) == range.granted));
        }
        assert_eq!((locks.len(), locks.is_empty()), (model.len(), model.is_empty()));
    }
}

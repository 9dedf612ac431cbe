//! Classes with requests that wait to be attached to the rules of a later command.
//!
//! ```text
//! shelves   [ generation | heap of turns ]   the oldest first; one heap for each command
//! ```
//! A command moves the heap of all classes here as it is. Each later call takes a few entries out,
//! in the order of their turns, and attaches their classes. A class that a call attaches by itself
//! leaves its entry behind. Nothing looks for that entry; it is skipped when its turn comes.
//!
//! Invariants
//! - A class with requests is in the policy's heap, or it is stale. A stale class has the
//!   generation of a shelf, and that shelf has exactly one entry of it.
//! - No class takes a shelf's generation later. So an entry is of a stale class exactly when the
//!   class at its place has the generation of its shelf.
//! - An entry waits only for entries that were here before it.

use std::collections::VecDeque;

use queues::IndexedHeap;

use super::Turn;

struct Shelf {
    generation: u64,
    heap: IndexedHeap<Turn>,
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct Stale {
    shelves: VecDeque<Shelf>,
}

impl Stale {
    /// Whether it has no entries.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.shelves.is_empty()
    }

    /// Takes over the heap of the classes that were attached to the rules of `generation`.
    pub(super) fn shelve(&mut self, generation: u64, heap: &mut IndexedHeap<Turn>) {
        if !heap.is_empty() {
            self.shelves.push_back(Shelf { generation, heap: std::mem::take(heap) });
        }
    }

    /// Takes the next entry out: a class's place, and the generation that the class has if it is
    /// still stale.
    pub(super) fn pop(&mut self) -> Option<(u32, u64)> {
        let Shelf { generation, heap } = self.shelves.front_mut()?;
        let (Turn { class, .. }, _) = heap.pop().expect("a shelf has entries");
        let generation = *generation;
        if heap.is_empty() {
            self.shelves.pop_front();
        }
        Some((class, generation))
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use types::{Instant, Span};

    use crate::testing::{Req, Server, ms};
    use crate::{Dequeued, Removal, TbfNode, WAIT_MIN};

    use super::super::ATTACH_STEP;

    fn server(node: TbfNode) -> Server {
        let mut server = Server::new(1, &[Rc::new(node).descriptor()]);
        server.select("tbf uid").expect("it starts");
        server
    }

    fn send(server: &mut Server, uid: u32, number: u64) -> crate::Handle {
        server.put(0, Req { uid, number, ..Req::default() })
    }

    fn rule(server: &mut Server, command: &str) {
        server.set("nrs_tbf_rule", command).unwrap_or_else(|error| panic!("{command}: {error}"));
    }

    /// Users whose burst is over, each with one request that a slow rule holds back.
    fn held_back(attach_step: usize, users: u32) -> Server {
        let mut server = server(TbfNode::with_attach_step(attach_step));
        rule(&mut server, "start slow uid={*} rate=0.001 depth=1");
        for number in 0..2 {
            for uid in 0..users {
                send(&mut server, uid, number);
            }
        }
        assert_eq!(server.run(ms(1), u64::MAX).len(), users as usize, "the burst of each");
        server
    }

    /// A line of `nrs_stats`.
    fn counter(server: &mut Server, name: &str) -> usize {
        let stats = server.heads[0].policy_stats("tbf").expect("it runs");
        let line =
            stats.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name} in {stats}")).parse().expect("a number")
    }

    /// How often `step` attaches a class.
    fn attaches(server: &mut Server, step: impl FnOnce(&mut Server)) -> usize {
        let before = counter(server, "attached");
        step(server);
        counter(server, "attached") - before
    }

    /// Without `stale`, each of the commands attaches a million classes before it ends.
    #[test]
    fn a_command_over_a_million_classes_attaches_few_at_once() {
        const CLASSES: usize = 1_000_000;
        let mut server = server(TbfNode::default());
        rule(&mut server, "change default rate=0.001 depth=1");
        let handles: Vec<_> =
            (0..CLASSES).map(|uid| send(&mut server, uid as u32, uid as u64)).collect();
        for command in ["start a uid={*} rate=5", "change a rate=0.5 total=1", "stop a"] {
            let count = attaches(&mut server, |server| rule(server, command));
            assert_eq!(count, ATTACH_STEP, "{command}");
        }
        let lag = |server: &mut Server| server.set("nrs_tbf_rt_lag", "3").expect("in range");
        let reset = |server: &mut Server| server.set("nrs_tbf_reset", "1").expect("its only value");
        assert_eq!(attaches(&mut server, lag), ATTACH_STEP);
        assert_eq!(attaches(&mut server, reset), ATTACH_STEP);
        // those that a command attached are the last to be attached again
        assert_eq!(counter(&mut server, "classes_stale"), CLASSES - ATTACH_STEP);
        let last = CLASSES as u32 - 1;
        let sent = attaches(&mut server, |server| {
            send(server, last, CLASSES as u64);
        });
        assert_eq!(sent, ATTACH_STEP + 1, "its own class first");
        let handle = handles[CLASSES - 2];
        let removed = attaches(&mut server, |server| {
            assert!(server.heads[0].remove(handle, Instant(0), Removal::Gone).is_some());
        });
        assert_eq!(removed, ATTACH_STEP + 1);
        let mut left = 0;
        let mut leave = |server: &mut Server| {
            let taken = server.heads[0].dequeue(Instant(0)).taken();
            assert!(taken.is_some(), "the default's rate holds nothing back");
            left += 1;
        };
        while counter(&mut server, "classes_stale") > 0 {
            assert!(attaches(&mut server, &mut leave) <= ATTACH_STEP);
        }
        while !server.heads[0].is_empty() {
            leave(&mut server);
        }
        assert_eq!(left, CLASSES, "one came and one was removed");
        assert!(counter(&mut server, "attached") < CLASSES * 2 + 8 * ATTACH_STEP);
        assert!(server.heads[0].take_disabled().is_empty());
    }

    #[test]
    fn stale_classes_wait_and_others_go_on() {
        let mut server = held_back(2, 10);
        rule(&mut server, "change slow rate=0.002");
        assert_eq!(counter(&mut server, "classes_stale"), 8);
        server.set("nrs_tbf_stats", "top:10").expect("understood");
        assert_eq!(server.get("nrs_tbf_rule").matches("ref 10").count(), 1);
        rule(&mut server, "stop slow");
        let stats = server.get("nrs_tbf_stats");
        assert_eq!((stats.matches("rule: -").count(), stats.matches("default").count()), (8, 2));
        let now = server.now;
        for waiting in [6, 4] {
            assert!(matches!(server.heads[0].dequeue(now), Dequeued::Taken(_)));
            assert_eq!(counter(&mut server, "classes_stale"), waiting);
        }
        let taken = |server: &mut Server| match server.heads[0].dequeue(now) {
            Dequeued::Taken(taken) => taken.request.uid,
            other => panic!("{other:?}"),
        };
        send(&mut server, 77, 0);
        let mut left: Vec<u32> = (0..9).map(|_| taken(&mut server)).collect();
        left.sort_unstable();
        assert!(left.contains(&77), "{left:?}");
        assert!(server.heads[0].is_empty());
    }

    #[test]
    fn nothing_ready_and_classes_stale_is_ask_again() {
        let mut server = held_back(1, 5);
        // the buckets stay as they are: so do the tickets
        rule(&mut server, "start other uid={9} rate=5");
        let now = server.now;
        for waiting in (0..4).rev() {
            let answer = server.heads[0].dequeue(now);
            let again = if waiting > 0 { now + WAIT_MIN } else { ms(1_000_000) };
            // a request leaves within its latest time in any case
            let again = again.min(Instant(0) + Span::secs(595));
            let until = matches!(answer, Dequeued::NotBefore(until) if until == again);
            assert!(until, "{answer:?}, with {waiting}");
            assert_eq!(counter(&mut server, "classes_stale"), waiting);
        }
        // under force nothing is held back, stale or not
        rule(&mut server, "stop other");
        assert_eq!(counter(&mut server, "classes_stale"), 4);
        server.select("fifo now").expect("always");
        assert_eq!(server.run(now + Span::millis(1), u64::MAX).len(), 5);
        assert!(server.heads[0].take_disabled().is_empty());
    }
}

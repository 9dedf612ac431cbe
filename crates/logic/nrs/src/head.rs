//! A head: one primary policy or none, and FIFO as the fallback for what the primary does not take.
//!
//! Invariants
//! - The fallback never refuses, so no request is lost.
//! - A primary that was replaced is drained by force, in turn with what runs beside it, and then dropped.
//! - Where several instances hold requests, they are asked in turn.

use std::collections::VecDeque;

use crate::Fifo;

/// Orders requests.
pub trait Policy<R> {
    /// As `nrs_policies` prints it.
    fn name(&self) -> &'static str;
    /// Takes a request, or gives it back: "not mine".
    fn enqueue(&mut self, request: R) -> Result<(), R>;
    /// The next request. A policy may hold requests back, but not under `force`.
    fn dequeue(&mut self, force: bool) -> Option<R>;
    /// Requests it holds.
    fn len(&self) -> usize;
    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where an instance is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyState {
    /// Takes requests.
    Started,
    /// Replaced; drains.
    Stopping,
}

impl PolicyState {
    /// As `nrs_policies` prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PolicyState::Started => "started",
            PolicyState::Stopping => "stopping",
        }
    }
}

/// One head of a service partition.
pub struct Head<R> {
    fallback: Fifo<R>,
    primary: Option<Box<dyn Policy<R>>>,
    stopping: VecDeque<Box<dyn Policy<R>>>,
    turn: usize,
}

impl<R> Default for Head<R> {
    fn default() -> Head<R> {
        Head { fallback: Fifo::default(), primary: None, stopping: VecDeque::new(), turn: 0 }
    }
}

impl<R> Head<R> {
    /// Makes `policy` the primary; new requests go to it at once, the old primary drains.
    pub fn start(&mut self, policy: Box<dyn Policy<R>>) {
        self.start_fallback();
        self.primary = Some(policy);
    }

    /// Back to FIFO alone.
    pub fn start_fallback(&mut self) {
        self.stopping.extend(self.primary.take());
        self.stopping.retain(|policy| !policy.is_empty());
    }

    /// Queues a request; cannot fail.
    pub fn enqueue(&mut self, request: R) {
        let refused = match &mut self.primary {
            Some(primary) => primary.enqueue(request),
            None => Err(request),
        };
        if let Err(request) = refused {
            let taken = self.fallback.enqueue(request);
            assert!(taken.is_ok(), "the fallback takes everything");
        }
    }

    /// The next request; none if there is none, or if all that is left is held back.
    pub fn dequeue(&mut self) -> Option<R> {
        if self.primary.is_none() && self.stopping.is_empty() {
            return self.fallback.dequeue(false); // the idle path
        }
        let instances = 2 + self.stopping.len();
        for step in 0..instances {
            let at = (self.turn + step) % instances;
            if let Some(request) = self.dequeue_at(at) {
                self.turn = (at + 1) % instances;
                self.stopping.retain(|policy| !policy.is_empty());
                return Some(request);
            }
        }
        None
    }

    fn dequeue_at(&mut self, instance: usize) -> Option<R> {
        match instance {
            0 => self.primary.as_mut()?.dequeue(false),
            1 => self.fallback.dequeue(false),
            _ => self.stopping[instance - 2].dequeue(true),
        }
    }

    /// Requests in all instances.
    #[must_use]
    pub fn len(&self) -> usize {
        let stopping: usize = self.stopping.iter().map(|policy| policy.len()).sum();
        self.fallback.len() + self.primary.as_ref().map_or(0, |policy| policy.len()) + stopping
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name, state and requests of each instance, the fallback first.
    #[must_use]
    pub fn instances(&self) -> Vec<(&'static str, PolicyState, usize)> {
        let mut out = vec![(self.fallback.name(), PolicyState::Started, self.fallback.len())];
        out.extend(self.primary.iter().map(|policy| (policy.name(), PolicyState::Started, policy.len())));
        out.extend(self.stopping.iter().map(|policy| (policy.name(), PolicyState::Stopping, policy.len())));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes even numbers, gives the highest first, and holds them back unless forced.
    #[derive(Default)]
    struct Even(Vec<u32>);

    impl Policy<u32> for Even {
        fn name(&self) -> &'static str {
            "even"
        }
        fn enqueue(&mut self, request: u32) -> Result<(), u32> {
            if request.is_multiple_of(2) {
                self.0.push(request);
                self.0.sort_unstable();
                Ok(())
            } else {
                Err(request)
            }
        }
        fn dequeue(&mut self, force: bool) -> Option<u32> {
            if force { self.0.pop() } else { None }
        }
        fn len(&self) -> usize {
            self.0.len()
        }
    }

    fn drain(head: &mut Head<u32>) -> Vec<u32> {
        std::iter::from_fn(|| head.dequeue()).collect()
    }

    #[test]
    fn what_the_primary_refuses_goes_through_the_fallback() {
        let mut head = Head::default();
        head.start(Box::new(Even::default()));
        (1..=4).for_each(|request| head.enqueue(request));
        assert_eq!(drain(&mut head), [1, 3]);
        assert_eq!(head.len(), 2);
    }

    #[test]
    fn a_replaced_primary_is_drained_by_force_in_turn_and_dropped() {
        let mut head = Head::default();
        head.start(Box::new(Even::default()));
        (1..=4).for_each(|request| head.enqueue(request));
        head.start_fallback();
        head.enqueue(6);
        let mut left = drain(&mut head);
        assert_eq!(head.instances(), [("fifo", PolicyState::Started, 0)]);
        left.sort_unstable();
        assert_eq!(left, [1, 2, 3, 4, 6], "nothing is lost");
    }
}

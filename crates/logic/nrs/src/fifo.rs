//! FIFO: requests leave in the order they came. The fallback of every head; it takes everything.

use std::collections::VecDeque;

use crate::Policy;

/// See the head of the file.
pub struct Fifo<R>(VecDeque<R>);

impl<R> Default for Fifo<R> {
    fn default() -> Fifo<R> {
        Fifo(VecDeque::new())
    }
}

impl<R> Policy<R> for Fifo<R> {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn enqueue(&mut self, request: R) -> Result<(), R> {
        self.0.push_back(request);
        Ok(())
    }

    fn dequeue(&mut self, _force: bool) -> Option<R> {
        self.0.pop_front()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_leave_in_the_order_they_came() {
        let mut fifo = Fifo::default();
        for request in 1..=3 {
            assert_eq!(fifo.enqueue(request), Ok(()));
        }
        assert_eq!(
            [fifo.dequeue(false), fifo.dequeue(false), fifo.dequeue(false), fifo.dequeue(false)],
            [Some(1), Some(2), Some(3), None]
        );
    }
}

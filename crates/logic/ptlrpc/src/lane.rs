//! A target's callbacks to one client: when each is sent, and when it is sent again.
//!
//! - Callbacks are sent in the order of their xids, at most [`limits::CALLBACKS_IN_FLIGHT`] at
//!   once. Resends go first.
//! - A callback is answered, withdrawn by its caller, or ends with the session: its waiter is given
//!   back once.
//! - At most [`limits::CALLBACKS_MAX`] callbacks are without an answer, and at most
//!   [`limits::CALLBACK_BYTES_MAX`] bytes of them.
//!
//! A client may be asked the same twice, and answers twice. A callback states the wanted result, so
//! repeating it changes nothing.

use std::collections::BTreeSet;

use bytes::Bytes;
use queues::Ascending;
use types::Xid;
use wire::grants::Callback;
use wire::{Request, RequestFlags};

use crate::limits;

/// Callbacks of one session.
#[derive(Debug)]
pub struct Lane<W> {
    last: u64,
    unanswered: Ascending<Xid, Box<Out<W>>>,
    /// Those of them that are to be sent.
    waiting: BTreeSet<Xid>,
    bytes: usize,
}

#[derive(Debug)]
struct Out<W> {
    request: Request,
    bytes: usize,
    waiter: W,
}

/// The client has so many callbacks without an answer that there is no room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

impl<W> Default for Lane<W> {
    fn default() -> Lane<W> {
        Lane { last: 0, unanswered: Ascending::new(), waiting: BTreeSet::new(), bytes: 0 }
    }
}

impl<W> Lane<W> {
    /// Takes a callback in, to be sent when its turn comes.
    pub fn submit(&mut self, callback: &Callback, waiter: W) -> Result<Xid, Crowded> {
        let bufs = callback.to_bufs();
        let bytes = bufs.iter().map(Bytes::len).sum();
        if self.unanswered.len() >= limits::CALLBACKS_MAX
            || self.bytes + bytes > limits::CALLBACK_BYTES_MAX
        {
            return Err(Crowded);
        }
        self.last += 1;
        let xid = Xid(self.last);
        let mut request = Request::new(callback.opcode(), bufs);
        request.header.xid = xid.0;
        self.unanswered.insert(xid, Box::new(Out { request, bytes, waiter }));
        self.waiting.insert(xid);
        self.bytes += bytes;
        Ok(xid)
    }

    /// The next one to send, its header complete but for the session; ask until there is none.
    pub fn poll_transmit(&mut self) -> Option<&mut Request> {
        if self.in_flight() >= limits::CALLBACKS_IN_FLIGHT {
            return None;
        }
        let xid = self.waiting.pop_first()?;
        self.unanswered.get_mut(xid).map(|out| &mut out.request)
    }

    /// The answer to a callback, late or repeated ones too; gives back who waits for it.
    pub fn handle_reply(&mut self, xid: Xid) -> Option<W> {
        if self.waiting.contains(&xid) && !self.has_been_sent(xid) {
            return None; // nobody has asked this so far
        }
        self.take(xid)
    }

    /// Its caller no longer waits.
    pub fn withdraw(&mut self, xid: Xid) -> Option<W> {
        self.take(xid)
    }

    /// It has had no answer for long: it is sent again.
    pub fn send_again(&mut self, xid: Xid) {
        if let Some(out) = self.unanswered.get_mut(xid)
            && !self.waiting.contains(&xid)
        {
            out.request.header.flags |= RequestFlags::RESENT;
            self.waiting.insert(xid);
        }
    }

    /// The connection is new: whatever has no answer is sent again.
    pub fn handle_connected(&mut self) {
        let sent: Vec<Xid> =
            self.unanswered.iter().map(|(xid, _)| xid).filter(|xid| !self.waits(*xid)).collect();
        sent.into_iter().for_each(|xid| self.send_again(xid));
    }

    /// The session is over; gives back everybody who waits.
    pub fn end(&mut self) -> Vec<W> {
        (self.bytes, self.waiting) = (0, BTreeSet::new());
        std::mem::take(&mut self.unanswered).into_values().map(|out| out.waiter).collect()
    }

    /// Callbacks without an answer.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    fn in_flight(&self) -> usize {
        self.unanswered.len() - self.waiting.len()
    }

    fn waits(&self, xid: Xid) -> bool {
        self.waiting.contains(&xid)
    }

    fn has_been_sent(&self, xid: Xid) -> bool {
        self.unanswered.get(xid).is_some_and(|out| out.request.has(RequestFlags::RESENT))
    }

    fn take(&mut self, xid: Xid) -> Option<W> {
        let out = self.unanswered.remove(xid)?;
        self.waiting.remove(&xid);
        self.bytes -= out.bytes;
        Some(out.waiter)
    }
}

#[cfg(test)]
mod tests {
    use wire::body::GrantWord;
    use wire::grants::VECTOR_MAX;

    use super::*;

    fn recall(words: usize) -> Callback {
        Callback::Recall(vec![GrantWord::default(); words])
    }

    fn sent(lane: &mut Lane<u64>) -> Vec<(u64, bool)> {
        let next =
            || lane.poll_transmit().map(|out| (out.header.xid, out.has(RequestFlags::RESENT)));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn callbacks_leave_in_order_and_few_at_once() {
        let mut lane = Lane::default();
        let most = limits::CALLBACKS_IN_FLIGHT as u64;
        for number in 1..=most + 2 {
            assert_eq!(lane.submit(&recall(1), number), Ok(Xid(number)));
        }
        assert_eq!(sent(&mut lane), (1..=most).map(|xid| (xid, false)).collect::<Vec<_>>());
        assert_eq!(lane.handle_reply(Xid(most + 1)), None, "nobody has asked this");
        assert_eq!((lane.handle_reply(Xid(3)), lane.handle_reply(Xid(3))), (Some(3), None));
        assert_eq!(sent(&mut lane), [(most + 1, false)]);
        assert_eq!(lane.withdraw(Xid(1)), Some(1), "its place is another's");
        assert_eq!(sent(&mut lane), [(most + 2, false)]);
    }

    #[test]
    fn what_has_no_answer_is_sent_again_on_the_next_connection() {
        let mut lane = Lane::default();
        for number in 1..=3 {
            lane.submit(&recall(1), number).expect("there is room");
        }
        assert_eq!(sent(&mut lane).len(), 3);
        lane.handle_reply(Xid(2));
        lane.submit(&recall(1), 4).expect("there is room");
        lane.handle_connected();
        assert_eq!(sent(&mut lane), [(1, true), (3, true), (4, false)]);
        lane.send_again(Xid(3));
        assert_eq!(lane.handle_reply(Xid(3)), Some(3), "the answer to the first time comes late");
        lane.send_again(Xid(3));
        assert_eq!(sent(&mut lane), []);
    }

    #[test]
    fn a_client_that_never_answers_costs_a_bounded_part_of_memory() {
        let mut lane = Lane::default();
        while lane.submit(&recall(VECTOR_MAX), 0).is_ok() {}
        assert_eq!(lane.unanswered(), limits::CALLBACKS_IN_FLIGHT);
        assert_eq!(lane.submit(&recall(VECTOR_MAX), 0), Err(Crowded));
        assert_eq!(lane.end().len(), limits::CALLBACKS_IN_FLIGHT);
        while lane.submit(&recall(1), 0).is_ok() {}
        assert_eq!(lane.unanswered(), limits::CALLBACKS_MAX);
        assert_eq!(sent(&mut lane).len(), limits::CALLBACKS_IN_FLIGHT);
        lane.withdraw(Xid(lane.last));
        assert!(lane.submit(&recall(1), 0).is_ok());
    }
}

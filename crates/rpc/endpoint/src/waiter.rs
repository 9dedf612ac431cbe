//! The waiter for the answer to a request.

use env::BulkTicket;
use wire::Reply;

use crate::promise::{Awaited, Promise, promise};
use crate::{Call, CallError, Hold};

/// Who waits for an answer, and what lives until the request is over.
pub(crate) struct Waiter {
    promise: Option<Promise<Outcome>>,
    _hold: Hold,
}

impl Waiter {
    pub(crate) fn new(call: &mut Call) -> (Waiter, Awaited<Outcome>) {
        let (promise, outcome) = promise();
        (Waiter { promise: Some(promise), _hold: std::mem::take(&mut call.hold) }, outcome)
    }

    /// Tells the caller, who may be gone, once; the rest lives on.
    pub(crate) fn tell(&mut self, outcome: Outcome) {
        if let Some(promise) = self.promise.take() {
            promise.keep(outcome);
        }
    }
}

/// What a waiting caller is told.
pub(crate) enum Outcome {
    Done { reply: Box<Reply>, ticket: Option<BulkTicket> },
    Failed(CallError),
}

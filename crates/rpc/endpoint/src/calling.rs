//! A call under way: the future that its caller awaits.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use env::{BulkTicket, LocalFuture};
use types::Xid;
use wire::Reply;

use crate::promise::{Awaited, Promise, promise};
use crate::remote::Remote;
use crate::{Answer, Call, CallError, Hold};

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

/// The answer to a call, once it comes. Dropped before that: a call that changes nothing is
/// forgotten; a change is not sent again, and its target is asked to drop it if it has not begun
/// ([`Call::hold`] lives until that is known). A close and an unlock go on.
#[must_use = "a call whose answer nobody waits for is given up"]
pub struct Calling(Stage);

enum Stage {
    Refused(CallError),
    Sent(Sent),
    Long(LocalFuture<'static, Result<Answer, CallError>>),
}

impl Calling {
    pub(crate) fn refused(error: CallError) -> Calling {
        Calling(Stage::Refused(error))
    }

    pub(crate) fn sent(sent: Sent) -> Calling {
        Calling(Stage::Sent(sent))
    }

    pub(crate) fn long(future: LocalFuture<'static, Result<Answer, CallError>>) -> Calling {
        Calling(Stage::Long(future))
    }
}

impl Future for Calling {
    type Output = Result<Answer, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Stage::Refused(error) => Poll::Ready(Err(error.clone())),
            Stage::Sent(sent) => {
                let done = ready!(Pin::new(&mut *sent).poll(cx));
                Poll::Ready(done.map(|(reply, _)| Answer {
                    reply,
                    data: Bytes::new(),
                    xid: sent.xid,
                }))
            }
            Stage::Long(future) => future.as_mut().poll(cx),
        }
    }
}

/// A request that its import has; it is abandoned when nobody waits for it any more.
pub(crate) struct Sent {
    remote: Rc<Remote>,
    xid: Xid,
    outcome: Awaited<Outcome>,
    is_over: bool,
}

impl Sent {
    pub(crate) fn new(remote: Rc<Remote>, xid: Xid, outcome: Awaited<Outcome>) -> Sent {
        Sent { remote, xid, outcome, is_over: false }
    }

    pub(crate) fn xid(&self) -> Xid {
        self.xid
    }
}

impl Future for Sent {
    type Output = Result<(Box<Reply>, Option<BulkTicket>), CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.is_over, "an answer is waited for once");
        let outcome = ready!(Pin::new(&mut self.outcome).poll(cx));
        self.is_over = true;
        Poll::Ready(match outcome {
            Some(Outcome::Done { reply, ticket }) => match reply.errno() {
                None => Ok((reply, ticket)),
                Some(errno) => Err(CallError::Errno(errno)),
            },
            Some(Outcome::Failed(error)) => Err(error),
            None => Err(CallError::Shutdown),
        })
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if !self.is_over {
            self.remote.abandon(self.xid);
        }
    }
}

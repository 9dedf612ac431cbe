//! A call: how it starts, and the future that its caller awaits.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use env::{BulkTicket, LocalFuture};
use types::{Errno, Xid};
use wire::{BUFS_MAX, BULK_BYTES_MAX, Reply, ReplyFlags};

use crate::promise::Awaited;
use crate::remote::Remote;
use crate::waiter::Outcome;
use crate::{Answer, Bulk, Call, CallError};

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

impl Remote {
    /// Asks the target: the answer comes through restarts and recovery. A call that waits for
    /// nothing here is on its way when this returns; any other starts when its answer is first
    /// waited for.
    pub fn call(self: &Rc<Self>, call: Call) -> Calling {
        if call.bulk.is_none() && call.patience.is_none() {
            return match self.check(&call) {
                Ok(()) => Calling::sent(self.submit(call)),
                Err(refused) => Calling::refused(refused),
            };
        }
        let (remote, patience) = (Rc::clone(self), call.patience);
        Calling::long(Box::pin(async move {
            // pinned here: a large future that does not move
            let answer = std::pin::pin!(remote.exchange(call));
            match patience {
                None => answer.await,
                Some(patience) => remote
                    .core
                    .env
                    .timeout(patience, answer)
                    .await
                    .unwrap_or(Err(CallError::TimedOut)),
            }
        }))
    }

    /// A call with data, from the wait for room to the last byte pushed.
    async fn exchange(self: &Rc<Self>, mut call: Call) -> Result<Answer, CallError> {
        self.check(&call)?;
        if let Bulk::Source(_) = &call.bulk {
            self.room(call.bulk.len() as u64).await?;
        }
        loop {
            // pushed data may be lost after its reply arrived: then a read is simply asked for
            // again
            let sink = matches!(call.bulk, Bulk::Sink(_));
            let again = sink.then(|| call.clone());
            let mut sent = self.submit(call);
            let (reply, ticket) = (&mut sent).await?;
            let (Some(repeat), true) = (again, reply.has(ReplyFlags::BULK)) else {
                let data = if sink { reply.buf(1) } else { Bytes::new() };
                return Ok(Answer { reply, data, xid: sent.xid() });
            };
            let data = match ticket {
                Some(ticket) => {
                    self.core.env.timeout(self.core.config.import.attempt, ticket).await.flatten()
                }
                None => None,
            };
            if let Some(data) = data {
                return Ok(Answer { reply, data, xid: sent.xid() });
            }
            call = repeat;
        }
    }

    /// Gives the request to the import, and sends it if the import lets it go.
    fn submit(self: &Rc<Self>, call: Call) -> Sent {
        let (submit, outcome) = self.prepare(call);
        let now = self.core.env.now();
        let xid = self.import.borrow_mut().submit(submit, now);
        self.drive();
        self.pump_at(now);
        if self.import.borrow().replay_bytes() > self.core.config.replay_bytes_max {
            self.ask_for_commit();
        }
        Sent::new(Rc::clone(self), xid, outcome)
    }

    /// Forgets or takes back a request whose caller went away.
    fn abandon(self: &Rc<Self>, xid: Xid) {
        let forgotten = self.import.borrow_mut().abandon(xid);
        drop(forgotten); // not while the import is borrowed: what it holds may ask it
        self.pump();
    }

    fn check(&self, call: &Call) -> Result<(), CallError> {
        if self.core.stopped.get() {
            return Err(CallError::Shutdown);
        }
        if !self.active.get() {
            return Err(CallError::Inactive);
        }
        if self.import.borrow().is_full() {
            return Err(CallError::Errno(Errno::EBUSY));
        }
        let sink_of_change = call.modifies && matches!(call.bulk, Bulk::Sink(_));
        assert!(!sink_of_change, "a change takes no bulk data back: it could not be resent");
        if call.bulk.len() > BULK_BYTES_MAX as usize || call.bufs.len() > BUFS_MAX {
            return Err(CallError::Errno(Errno::EMSGSIZE));
        }
        Ok(())
    }

    /// Waits until `bytes` more may be unstable.
    async fn room(self: &Rc<Self>, bytes: u64) -> Result<(), CallError> {
        let max = self.core.config.unstable_bytes_max;
        loop {
            let held = self.gauge.bytes();
            if held + bytes > max / 2 {
                self.ask_for_commit();
            }
            if held == 0 || held + bytes <= max {
                return Ok(());
            }
            self.gauge.fell.notified().await;
            if !self.active.get() {
                return Err(CallError::Inactive);
            }
            if self.core.stopped.get() {
                return Err(CallError::Shutdown);
            }
        }
    }

    fn ask_for_commit(self: &Rc<Self>) {
        if self.committing.get() {
            return;
        }
        let Some(call) = self.commit_call.borrow().clone() else { return };
        self.committing.set(true);
        let remote = Rc::clone(self);
        self.core.env.spawn("endpoint.commit", async move {
            if let Err(error) = remote.call(call).await {
                tracing::warn!(target_id = %remote.name(), %error, "the target did not commit when asked to");
            }
            remote.committing.set(false);
            remote.gauge.fell.notify_waiters();
        });
    }
}

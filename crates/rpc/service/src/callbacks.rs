//! Callbacks from a target to the client of a session, on the session's own link.
//!
//! They go out on the control connection at once, whatever the client has asked for and whatever
//! bulk is under way. A callback lives as long as its caller waits and the session lasts. On the
//! next connection it is sent again. [`ptlrpc::Lane`] bounds their number.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use env::{Env, LocalFuture};
use ptlrpc::limits::{CALLBACK_ANSWER_MAX, CALLBACK_RESEND};
use tokio::sync::oneshot;
use types::{Errno, Instant, Span, Xid};
use wire::body::CallbackRep;
use wire::grants::Callback;
use wire::{Frame, Reply, ReplyFlags};

use crate::node::{Node, Nonsense};
use crate::peer::Peer;
use crate::{Exports, Session};

/// Why a callback has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// The client refused it.
    #[error("the client refused: {0}")]
    Refused(Errno),
    /// The caller's patience ended.
    #[error("the client has not answered in time")]
    TimedOut,
    /// The client was evicted or has disconnected.
    #[error("the session has ended")]
    SessionEnded,
    /// The client has too many without an answer.
    #[error("the client leaves too many callbacks without an answer")]
    Crowded,
}

/// A callback under way; dropped, it is given up.
#[must_use = "a callback whose answer nobody waits for is given up"]
pub struct CallingBack(LocalFuture<'static, Result<Reply, CallbackError>>);

impl Future for CallingBack {
    type Output = Result<Reply, CallbackError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl Exports {
    /// Calls the client of `session` back and waits for its answer, at most for `patience`. It is
    /// on its way when this returns, if the client is connected and a place is free. Just before
    /// a recall, what the client has sent and somebody waits for goes to the high-priority heads.
    pub fn call_back(
        &self,
        session: &Rc<Session>,
        callback: &Callback,
        patience: Span,
    ) -> CallingBack {
        if matches!(callback, Callback::Recall(_)) {
            self.promote_awaited(session);
        }
        let begun = Unanswered::begin(session, callback);
        let (env, until) = (self.env.clone(), self.env.now() + patience);
        let timeouts = Rc::clone(&self.callback_timeouts);
        CallingBack(Box::pin(async move {
            let answer = begun?.wait(&env, until).await;
            if matches!(answer, Err(CallbackError::TimedOut)) {
                timeouts.set(timeouts.get() + 1);
            }
            answer
        }))
    }
}

/// A callback without an answer; given up when dropped.
struct Unanswered {
    session: Rc<Session>,
    xid: Xid,
    answer: oneshot::Receiver<Reply>,
}

impl Unanswered {
    fn begin(session: &Rc<Session>, callback: &Callback) -> Result<Unanswered, CallbackError> {
        if session.is_ended() {
            return Err(CallbackError::SessionEnded);
        }
        let (caller, answer) = oneshot::channel();
        let taken = session.lane.borrow_mut().submit(callback, caller);
        let xid = taken.map_err(|_crowded| CallbackError::Crowded)?;
        session.send_callbacks();
        Ok(Unanswered { session: Rc::clone(session), xid, answer })
    }

    async fn wait(mut self, env: &Env, until: Instant) -> Result<Reply, CallbackError> {
        loop {
            let next = until.min(env.now() + CALLBACK_RESEND);
            match env.timeout_at(next, &mut self.answer).await {
                Some(Ok(reply)) => {
                    return reply
                        .errno()
                        .map_or(Ok(reply), |errno| Err(CallbackError::Refused(errno)));
                }
                Some(Err(_)) => return Err(CallbackError::SessionEnded),
                None if env.now() >= until => return Err(CallbackError::TimedOut),
                None => self.session.send_callback_again(self.xid),
            }
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let given_up = self.session.lane.borrow_mut().withdraw(self.xid);
        if given_up.is_some() {
            self.session.send_callbacks(); // its place is another's
        }
    }
}

impl Session {
    /// Callbacks that its client has not answered.
    pub fn callbacks_unanswered(&self) -> usize {
        self.lane.borrow().unanswered()
    }

    /// Sends what has a place, if the client is connected.
    pub(crate) fn send_callbacks(&self) {
        let Some(peer) = self.peer.borrow().upgrade() else { return };
        let mut lane = self.lane.borrow_mut();
        while let Some(request) = lane.poll_transmit() {
            let header = &mut request.header;
            (header.session, header.epoch) = (self.id, self.epoch.get());
            (header.instance, header.target) =
                (self.shared.instance.0, self.shared.target.to_u32());
            // a link that is down is noticed by its reader
            let _ = peer.tx.send_message(request);
        }
    }

    /// Not to a client that takes nothing: each time would stand in the link's queue.
    fn send_callback_again(&self, xid: Xid) {
        let peer = self.peer.borrow().upgrade();
        if peer.is_some_and(|peer| peer.takes_more()) {
            self.lane.borrow_mut().send_again(xid);
            self.send_callbacks();
        }
    }

    /// One that the client could not take now, or did not know the session for, is sent again
    /// later.
    fn answered(&self, reply: Reply) {
        if reply.has(ReplyFlags::BUSY) || reply.has(ReplyFlags::NO_SESSION) {
            return;
        }
        let caller = self.lane.borrow_mut().handle_reply(Xid(reply.header.xid));
        if let Some(caller) = caller {
            let _gone = caller.send(reply);
            self.send_callbacks(); // its place is another's
        }
    }

    /// The session is over: whoever waits for its client learns that.
    pub(crate) fn end_callbacks(&self) {
        let callers = self.lane.borrow_mut().end();
        drop(callers); // not while the lane is borrowed: they may call others
    }
}

impl Node {
    /// An answer to a callback. One that comes through another link than the session's is as
    /// unknown as one that nobody waits for.
    pub(crate) fn called_back(&self, peer: &Rc<Peer>, frame: Frame) -> Result<(), Nonsense> {
        if frame.payload_len() > CALLBACK_ANSWER_MAX {
            return Err(Nonsense::LongAnswer(frame.payload_len()));
        }
        let reply = *Reply::take(frame.into_payload())?;
        if let Some(session) = self.calling(&reply, peer) {
            session.answered(reply);
        }
        Ok(())
    }

    fn calling(&self, reply: &Reply, peer: &Rc<Peer>) -> Option<Rc<Session>> {
        let CallbackRep { session, target, .. } = reply.body();
        let served = self.targets.borrow().get(&target).cloned()?;
        let ours = reply.header.instance == served.exports.instance().0;
        let is_known = |session: &Rc<Session>| ours && !session.is_ended() && session.is_of(peer);
        served.exports.session(session).filter(is_known)
    }
}

//! Callbacks of a target. Each is handled in a task of its own, even while this client's requests
//! wait.
//!
//! - A callback is accepted only from the target of the session, on the session's own link.
//! - Handlers begin in the order in which callbacks arrive.
//! - At most [`CALLBACK_SLOTS`] callbacks of one target are handled at once. Further ones are
//!   refused as busy, and the target sends them again.
//! - A callback that arrives again while it is handled is answered once, on the newest link. One
//!   that arrives again later is handled again. It states the wanted result, so repeating it
//!   changes nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use env::{Env, LinkTx, LocalFuture};
use ptlrpc::limits::CALLBACK_SLOTS;
use types::Errno;
use wire::body::{GrantAck, GrantSize};
use wire::grants::{self, Callback};
use wire::{MessageError, Reply, ReplyFlags, Request, RequestHeader};

/// What a client tells its target at once; whatever takes longer it tells with requests of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackAnswer {
    /// To a recall: what is given up already. To a completion: nothing.
    Acks(Vec<GrantAck>),
    /// To a glimpse.
    Sizes(Vec<GrantSize>),
}

/// Handles a callback.
pub type OnCallback = Rc<dyn Fn(Callback) -> LocalFuture<'static, Result<CallbackAnswer, Errno>>>;

/// Those of one target.
#[derive(Default)]
pub(crate) struct Callbacks {
    handler: RefCell<Option<OnCallback>>,
    /// Being handled: session and number, and where the answer goes.
    handled: Rc<RefCell<BTreeMap<(u64, u64), LinkTx>>>,
}

impl Callbacks {
    /// Without a handler callbacks are refused.
    pub(crate) fn set_handler(&self, handler: OnCallback) {
        *self.handler.borrow_mut() = Some(handler);
    }

    /// A callback of the present session, in the turn of the link's reader.
    pub(crate) fn handle(
        &self,
        env: &Env,
        link: &LinkTx,
        request: Box<Request>,
    ) -> Result<(), MessageError> {
        let callback = Callback::decode(&request)?;
        let header = request.header;
        let handler = self.handler.borrow().clone();
        let Some(handler) = handler else {
            refuse(link, &header, Errno::EOPNOTSUPP, ReplyFlags::empty());
            return Ok(());
        };
        let key = (header.session, header.xid);
        {
            let mut handled = self.handled.borrow_mut();
            if !handled.contains_key(&key) && handled.len() >= CALLBACK_SLOTS {
                refuse(link, &header, Errno::EAGAIN, ReplyFlags::BUSY);
                return Ok(());
            }
            if handled.insert(key, link.clone()).is_some() {
                return Ok(()); // it is being handled
            }
        }
        let (handled, handling) = (Rc::clone(&self.handled), handler(callback));
        env.spawn("endpoint.callback", async move {
            let told = handling.await;
            let link = handled.borrow_mut().remove(&key);
            let Some(link) = link else { return };
            match told {
                Ok(CallbackAnswer::Acks(acks)) => send(&link, &grants::answer(&header, &acks)),
                Ok(CallbackAnswer::Sizes(sizes)) => send(&link, &grants::answer(&header, &sizes)),
                Err(errno) => refuse(&link, &header, errno, ReplyFlags::empty()),
            }
        });
        Ok(())
    }
}

/// Answers a callback that is not handled.
pub(crate) fn refuse(link: &LinkTx, header: &RequestHeader, errno: Errno, flags: ReplyFlags) {
    let none: [GrantAck; 0] = [];
    let mut reply = grants::answer(header, &none);
    reply.header.status = errno.raw().unsigned_abs();
    reply.header.flags = flags;
    send(link, &reply);
}

/// A link that is down is noticed by its reader.
fn send(link: &LinkTx, reply: &Reply) {
    let _ = link.send_message(reply);
}

//! The answer to a request for which there is no room.

use types::Errno;
use wire::{Reply, ReplyFlags, Request};

use crate::{ServiceSpec, Session, memory};

/// The answer to a request that its client shall send again later: the later, the more it holds.
pub(crate) fn reply(request: &Request, session: &Session, service: &'static ServiceSpec) -> Reply {
    let pause = memory::pause(session.memory.of(service));
    let mut reply = Reply::error(&request.header, Errno::EAGAIN);
    reply.header.flags = ReplyFlags::BUSY;
    reply.header.lease_ms = u32::try_from(pause.as_millis()).expect("a few seconds");
    reply
}

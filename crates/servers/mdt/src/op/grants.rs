//! What clients say of their grants. Only timed ones are given so far, which nobody calls back: an
//! acknowledgement or a shed gives up what nobody holds, which is no error (it may have crossed the
//! end of a grant), and of those that are stated again none goes on: the answer lists those that
//! do.

use env::LocalFuture;
use service::Incoming;
use types::Errno;
use wire::body::{GrantAck, GrantWord, GrantsFlags};
use wire::{MessageError, Opcode, Reply, Request, grants};

use crate::target::Mdt;

pub(crate) fn serve<'a>(
    _mdt: &'a Mdt,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    let told = check(&incoming.request).map_err(|_| Errno::EPROTO);
    let none: [GrantWord; 0] = [];
    let answer = || Reply::ok(&incoming.request.header, grants::encode(&none, GrantsFlags::LAST));
    Box::pin(std::future::ready(told.map(|()| answer())))
}

/// Whether it can be read.
fn check(request: &Request) -> Result<(), MessageError> {
    match request.opcode() {
        Opcode::MdtAck => grants::decode::<GrantAck>(&request.bufs).map(|_| ()),
        _ => grants::decode::<GrantWord>(&request.bufs).map(|_| ()),
    }
}

//! Reserve: room for writes that a client acknowledges before it sends them ([`crate::reserve`]).
//! In memory only. After a restart, clients state in the recovery the room that they still need.

use service::Incoming;
use types::Errno;
use wire::body::{OstReserveRep, OstReserveReq, ReserveFlags, StatfsState};
use wire::{Reply, encode_body};

use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let body: OstReserveReq = incoming.request.body();
    let session = incoming.session.id;
    let done = ost.reserved.borrow().done();
    let space = ost.objects.space().await?;
    if incoming.session.is_ended() {
        return Err(Errno::ESTALE); // nobody would give back what it gets
    }
    let total = {
        let mut reserved = ost.reserved.borrow_mut();
        reserved.saw(space.bytes, space.bytes_free, done, ost.env.now());
        if body.flags.contains(ReserveFlags::RESTATE) && ost.exports.is_recovering() {
            reserved.restate(session, body.number, body.total)
        } else if body.flags.contains(ReserveFlags::RELEASE) {
            reserved.give_back(session, body.number, body.total)
        } else if ost.has_closed_rooms() {
            reserved.close(session)
        } else {
            // a read-only OST promises nothing more
            let is_open = !ost.marks.has(StatfsState::READ_ONLY);
            reserved.ask(session, body.number, if is_open { body.total } else { 0 })
        }
    };
    Ok(Reply::ok(&incoming.request.header, vec![encode_body(&OstReserveRep { total })]))
}

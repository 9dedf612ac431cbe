//! A client without an endpoint. It respects no bound.

use bytes::Bytes;
use env::{Env, Link};
use env_os::OsConfig;
use types::{Fid, Nid, NidAddr, TargetId};
use wire::body::{Claim, ConnectRep, ConnectReq, OstIoReq};
use wire::{Opcode, Reply, Request, RequestFlags, encode_body};

/// The target of all of them.
const TARGET: TargetId = TargetId { kind: types::TargetKind::Ost, index: 0 };

pub(crate) fn config() -> OsConfig {
    OsConfig::default()
}

/// `127.0.0.last@tcp`.
pub(crate) fn local(last: u8) -> Nid {
    Nid::tcp(std::net::Ipv4Addr::new(127, 0, 0, last))
}

/// A fresh client's session on a link.
async fn join(env: &Env, link: &mut Link) -> Option<ConnectRep> {
    let body = ConnectReq {
        client_low: env.random(),
        client_high: env.random(),
        tags: 64,
        ..ConnectReq::default()
    };
    let mut request = Request::new(Opcode::Connect, vec![encode_body(&body)]);
    (request.header.xid, request.header.target) = (1, TARGET.to_u32());
    link.tx.send(request.to_frame()).ok()?;
    let reply = Reply::take(link.rx.recv().await?.into_payload()).ok()?;
    reply.errno().is_none().then(|| reply.body())
}

/// Connects, for one client.
pub(crate) async fn meet(env: &Env, from: Nid, at: NidAddr) -> Option<(Link, ConnectRep)> {
    let mut link = env.connect(Some(from), at).await.ok()?;
    let joined = join(env, &mut link).await?;
    Some((link, joined))
}

/// Bytes of a read or a write: what rides in a message.
const BYTES: u32 = 64 << 10;

/// Reads an object.
pub(crate) fn read(joined: &ConnectRep, xid: u64, object: Fid) -> Request {
    request(joined, xid, Opcode::OstRead, vec![encode_body(&on(object))])
}

/// Writes one, which is made by that.
pub(crate) fn write(joined: &ConnectRep, xid: u64, object: Fid) -> Request {
    let bufs = vec![encode_body(&on(object)), Bytes::from(vec![6; BYTES as usize])];
    let mut request = request(joined, xid, Opcode::OstWrite, bufs);
    request.header.flags = RequestFlags::MODIFIES;
    request.header.tag = 1;
    request
}

/// A request of that session.
pub(crate) fn request(joined: &ConnectRep, xid: u64, opcode: Opcode, bufs: Vec<Bytes>) -> Request {
    let mut request = Request::new(opcode, bufs);
    let header = &mut request.header;
    (header.xid, header.target, header.deadline_ms) = (xid, TARGET.to_u32(), 60_000);
    (header.session, header.instance) = (joined.session, joined.instance);
    header.epoch = joined.epoch;
    request
}

/// The beginning of an object, for the store of an MDT that there is not.
fn on(object: Fid) -> OstIoReq {
    let claim = Claim { session: 1 << 32, store: 0x6666, capability: [0; 2] };
    let (object, parent) = (object.into(), object.into());
    OstIoReq { object, parent, length: BYTES, claim, ..OstIoReq::default() }
}

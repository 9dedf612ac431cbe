//! A client that builds its requests itself, for requests that no endpoint sends.

use std::rc::Rc;

use bytes::Bytes;
use env::{Env, Link};
use env_sim::{Sim, SimConfig};
use types::NidAddr;
use wire::body::{ConnectRep, ConnectReq};
use wire::{FrameKind, Opcode, Reply, Request, RequestFlags, encode_body};

use super::{Disk, Rules, TARGET, Toy, addr, node, serve};

/// A client that writes its requests itself.
pub(crate) struct Client {
    pub(crate) link: Link,
    pub(crate) joined: ConnectRep,
}

impl Client {
    pub(crate) async fn connect(env: &Env, at: NidAddr, former: Option<ConnectRep>) -> Client {
        Client::connect_as(env, at, former, "").await
    }

    pub(crate) async fn connect_as(
        env: &Env,
        at: NidAddr,
        former: Option<ConnectRep>,
        name: &str,
    ) -> Client {
        Client::ask(env, at, &connect(former, name)).await
    }

    /// The client of this number.
    pub(crate) async fn connect_number(
        env: &Env,
        at: NidAddr,
        former: Option<ConnectRep>,
        number: u64,
    ) -> Client {
        let mut request = connect(former, "");
        let body = ConnectReq { client_low: number, ..request.body() };
        request.bufs[0] = encode_body(&body);
        Client::ask(env, at, &request).await
    }

    async fn ask(env: &Env, at: NidAddr, connect: &Request) -> Client {
        let mut link = env.connect(None, at).await.expect("it listens");
        let reply = ask(&mut link, connect).await;
        assert_eq!(reply.errno(), None);
        Client { link, joined: reply.body() }
    }

    /// Sends the change of `key` as `xid` on tag 1.
    pub(crate) async fn change(&mut self, xid: u64, key: u64, flags: RequestFlags) -> Reply {
        let request = self.request(Opcode::MdtSetattr, xid, key, RequestFlags::MODIFIES | flags);
        ask(&mut self.link, &request).await
    }

    /// A request of this session, on tag 1.
    pub(crate) fn request(
        &self,
        opcode: Opcode,
        xid: u64,
        key: u64,
        flags: RequestFlags,
    ) -> Request {
        let body = Bytes::copy_from_slice(&key.to_le_bytes());
        let mut request = Request::new(opcode, vec![body]);
        let header = &mut request.header;
        (header.xid, header.tag, header.target) = (xid, 1, TARGET.to_u32());
        (header.session, header.instance) = (self.joined.session, self.joined.instance);
        (header.epoch, header.flags) = (self.joined.epoch, flags);
        header.deadline_ms = 10_000;
        request
    }
}

/// A Connect of client 7.
pub(crate) fn connect(former: Option<ConnectRep>, name: &str) -> Request {
    let body = ConnectReq {
        client_low: 7,
        tags: 8,
        resume: u32::from(former.is_some()),
        session: former.map_or(0, |former| former.session),
        ..ConnectReq::default()
    };
    let name = Bytes::copy_from_slice(name.as_bytes());
    let mut request = Request::new(Opcode::Connect, vec![encode_body(&body), name]);
    (request.header.xid, request.header.target) = (1, TARGET.to_u32());
    request
}

pub(crate) async fn ask(link: &mut Link, request: &Request) -> Reply {
    link.tx.send_message(request).expect("open");
    let frame = link.rx.recv().await.expect("an answer");
    assert_eq!(frame.kind, FrameKind::Reply);
    let reply = *Reply::take(frame.into_payload()).expect("well formed");
    assert_eq!(reply.header.xid, request.header.xid);
    reply
}

/// Runs `test` with the environment of a client, a served toy, its disk and its address.
pub(crate) fn check<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(Env, Env, Rc<Toy>, Rc<Disk>, NidAddr) -> F,
) {
    check_in(SimConfig::default(), test);
}

/// The same where the server logs errors.
pub(crate) fn check_with_errors<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(Env, Env, Rc<Toy>, Rc<Disk>, NidAddr) -> F,
) {
    check_in(SimConfig { fail_on_error: false, ..SimConfig::default() }, test);
}

fn check_in<F: Future<Output = ()> + 'static>(
    config: SimConfig,
    test: impl FnOnce(Env, Env, Rc<Toy>, Rc<Disk>, NidAddr) -> F,
) {
    let sim = Sim::new(3, config);
    let (server, near) = (node(&sim, "server", 1), node(&sim, "client", 2));
    let (disk, at, env) = (Rc::new(Disk::default()), addr(&server), server.env());
    let starts = Rc::clone(&disk);
    let (_up, toy) =
        sim.block_on(&server, async move { serve(env, at, starts, &Rules::default()).await });
    let future = test(near.env(), server.env(), toy, disk, at);
    sim.block_on(&near, future);
}

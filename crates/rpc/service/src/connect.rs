//! Connect and Disconnect: sessions begin, continue and end.

use std::rc::Rc;

use bytes::Bytes;
use types::{ClientId, Errno, Nid, TargetId};
use wire::body::{ConnectRep, ConnectReq, connect};
use wire::{Reply, ReplyFlags, Request, RequestHeader, encode_body};

use crate::exports::{Connecting, Exports};
use crate::node::Node;
use crate::peer::Peer;
use crate::served::Served;
use crate::session::{Silence, printable};
use crate::{Session, limits};

fn client_name(request: &Request) -> String {
    printable(&String::from_utf8_lossy(&request.buf(1)))
}

/// What is needed of a Connect. It may wait for a commit, and the rest of what came with it would
/// stay in memory meanwhile, in no account.
pub(crate) fn slim(mut request: Box<Request>) -> Request {
    let own = |buf: &Bytes, max: usize| Bytes::copy_from_slice(&buf[..buf.len().min(max)]);
    let body = own(&request.buf(0), size_of::<ConnectReq>());
    let name = own(&request.buf(1), limits::NAME_BYTES_MAX);
    (request.bufs, request.groups) = (vec![body, name], Vec::new());
    request.header.replay_bufs = 0;
    *request
}

/// Sessions of the servers that ran before `client` under its name and at its address. A server
/// starts with the locks of its targets in hand, so they are dead, and would be waited for in vain.
/// One whose link is still up stays: it ends with its lease. Nodes of a self-test lock nothing and
/// have one name.
fn former_lives(exports: &Exports, client: ClientId, nid: Nid, name: &str) -> Vec<Rc<Session>> {
    let is_cut = name.chars().count() >= limits::NAME_CHARS_MAX; // two may begin alike
    if is_cut || exports.target == TargetId::LST {
        return Vec::new();
    }
    let is_former = |session: &Rc<Session>| {
        let (is_other, is_up) = (session.client != client, session.is_connected());
        let is_there = session.nid.get() == nid && session.name == name;
        session.is_server && is_other && is_there && !is_up
    };
    let mut former = exports.sessions();
    former.retain(is_former);
    if !former.is_empty() {
        planted::reached("connect: a server's former life ended");
    }
    former
}

impl Node {
    pub(crate) async fn connect(
        self: Rc<Self>,
        served: Rc<Served>,
        peer: Rc<Peer>,
        request: Request,
    ) {
        let exports = &served.exports;
        let req: ConnectReq = request.body();
        let client = ClientId((u128::from(req.client_high) << 64) | u128::from(req.client_low));
        if client == ClientId::EVERYBODY {
            tracing::warn!(target_id = %exports.name(), nid = %peer.nid, "refused: no client has this number");
            return peer.reply(&Reply::error(&request.header, Errno::EINVAL));
        }
        if exports.is_meant_for_another(&req) {
            tracing::warn!(target_id = %exports.name(), client = %client_name(&request), "refused: the client looks for a target of another file system");
            return peer.reply(&Reply::error(&request.header, Errno::ENODEV));
        }
        let decided = exports.decide(client, &req, &peer, request.header.xid);
        exports.wake.notify_one(); // the window may have opened
        match decided {
            Connecting::Busy => {} // asked twice at once: the other is answered
            Connecting::Elsewhere => {
                tracing::warn!(target_id = %exports.name(), %client, nid = %peer.nid, "refused: this client is connected from another address");
                peer.reply(&Reply::error(&request.header, Errno::EACCES));
            }
            Connecting::NoServer => {
                tracing::warn!(target_id = %exports.name(), %client, nid = %peer.nid, "refused for now: the client claims to be a server, and the MGS knows none there");
                peer.reply(&Reply::error(&request.header, Errno::EACCES));
            }
            Connecting::Full => {
                if exports.full_said.is_due(self.env.now()) {
                    tracing::warn!(target_id = %exports.name(), %client, nid = %peer.nid, "refused: no room for another session");
                }
                peer.reply(&Reply::error(&request.header, Errno::EBUSY));
            }
            Connecting::Wait => {
                let mut reply = Reply::error(&request.header, Errno::EBUSY);
                reply.header.flags = ReplyFlags::RECOVERING;
                reply.header.instance = exports.instance().0;
                peer.reply(&reply);
            }
            Connecting::Resume(session) => {
                let recover = exports.is_recovering();
                if recover {
                    exports.recovery.borrow_mut().handle_connected(client, self.env.now());
                }
                exports.attach(&session, &peer, request.header.xid);
                // what housekeeping notes at this moment must not be written behind this
                let noting = exports.noting.read().await;
                if session.noted.get().is_silent {
                    // a target that dies within the second would wait too short for this client
                    let record = session.record(Silence::default());
                    if Rc::clone(&served.target).note_clients(vec![record], true).await {
                        session.noted.set(Silence::default());
                    } // else it has no lease until housekeeping has noted it
                }
                drop(noting);
                if session.ended.get() || !session.is_of(&peer) {
                    return; // its client has connected once more meanwhile
                }
                let outcome = if recover { connect::RECOVER } else { connect::RESUMED };
                self.welcome(&served, &peer, &request, &session, outcome);
                self.pump_recovery(exports);
            }
            Connecting::Fresh { old, evicted } => {
                exports.begin_connecting(client, peer.nid);
                self.begin_session(&served, &peer, &request, client, old, evicted).await;
                exports.end_connecting(client);
            }
        }
    }

    async fn begin_session(
        self: &Rc<Self>,
        served: &Rc<Served>,
        peer: &Rc<Peer>,
        request: &Request,
        client: ClientId,
        old: Option<Rc<Session>>,
        evicted: bool,
    ) {
        let exports = &served.exports;
        if let Some(old) = old {
            self.end_sessions(served, vec![old], evicted).await;
        }
        let req: ConnectReq = request.body();
        if req.is_server != 0 {
            let former = former_lives(exports, client, peer.nid, &client_name(request));
            self.end_sessions(served, former, false).await;
        }
        if exports.is_recovering() && req.is_server == 0 {
            return; // asks again, and is told to wait
        }
        let mut record = exports.fresh(client, client_name(request), req.is_server != 0);
        record.nid = peer.nid;
        if let Err(errno) = Rc::clone(&served.target).remember_client(record.clone()).await {
            peer.reply(&Reply::error(&request.header, errno));
            return;
        }
        let session = Session::new(&record, &exports.shared, self.env.now());
        session.attach(peer, request.header.xid, self.env.now());
        exports.insert(&session);
        self.welcome(
            served,
            peer,
            request,
            &session,
            if evicted { connect::EVICTED } else { connect::NEW },
        );
    }

    fn welcome(
        &self,
        served: &Served,
        peer: &Peer,
        request: &Request,
        session: &Session,
        outcome: u32,
    ) {
        let exports = &served.exports;
        let replays = outcome == connect::RECOVER;
        session.replays_after.set(replays.then(|| exports.recovery.borrow().committed()));
        let req: ConnectReq = request.body();
        let body = ConnectRep {
            session: session.id,
            instance: exports.instance().0,
            last_committed: session.told_committed().0,
            outcome,
            epoch: session.epoch.get(),
            tags: req.tags.clamp(1, limits::TAGS_MAX),
            rpcs_in_flight: served.target.rpcs_in_flight(),
            inline_bytes: self.config.inline_bytes,
            bulk_bytes: wire::BULK_BYTES_MAX,
            lease_secs: u32::try_from(exports.lease.as_millis() / 1_000).unwrap_or(u32::MAX),
            window_ms: 0,
            store: served.target.store_number(),
        };
        self.answer(peer, session, Reply::ok(&request.header, vec![encode_body(&body)]));
        session.send_callbacks(); // behind the answer, without which the client knows no session
    }

    pub(crate) async fn disconnect(
        self: Rc<Self>,
        served: Rc<Served>,
        peer: Rc<Peer>,
        session: Rc<Session>,
        header: RequestHeader,
    ) {
        self.end_sessions(&served, vec![Rc::clone(&session)], false).await;
        self.answer(&peer, &session, Reply::ok(&header, Vec::new()));
    }

    /// Ends sessions; recovery no longer waits for them.
    pub(crate) async fn end_sessions(
        self: &Rc<Self>,
        served: &Rc<Served>,
        sessions: Vec<Rc<Session>>,
        evicted: bool,
    ) {
        let exports = &served.exports;
        let there = |session: &Rc<Session>| !session.ended.get();
        let sessions: Vec<Rc<Session>> = sessions.into_iter().filter(there).collect();
        if sessions.is_empty() {
            return;
        }
        for session in &sessions {
            exports.remove(session);
            exports.recovery.borrow_mut().handle_gone(session.client);
            self.drop_queued(session, |_| true).await;
            if evicted {
                exports.evicted.set(exports.evicted.get() + 1);
                tracing::info!(target_id = %exports.name(), client = %session.name, nid = %session.address(), "evicted");
            }
        }
        Rc::clone(&served.target).sessions_ended(sessions, evicted).await;
        self.pump_recovery(exports);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Opcode;

    #[test]
    fn a_connect_that_waits_holds_its_body_and_its_name_alone() {
        let body = ConnectReq { client_low: 7, ..ConnectReq::default() };
        let name = "\u{10348}".repeat(1 << 20);
        let bufs = vec![encode_body(&body), name.clone().into(), vec![0_u8; 1 << 20].into()];
        let request = slim(Box::new(Request::new(Opcode::Connect, bufs)));
        assert!(request.bufs.iter().map(Bytes::len).sum::<usize>() < 1_024);
        assert_eq!((request.body::<ConnectReq>().client_low, request.bufs.len()), (7, 2));
        assert_eq!(client_name(&request), printable(&name));
        let without = slim(Box::new(Request::new(Opcode::Connect, Vec::new())));
        assert_eq!(
            (without.body::<ConnectReq>().client_low, client_name(&without)),
            (0, String::new())
        );
    }
}

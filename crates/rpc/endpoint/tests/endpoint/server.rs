//! A server that handles each request as a script says and records what it received.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use env::{Env, Link, LinkTx};
use types::{Errno, NidAddr, Span};
use wire::body::{ConnectRep, ConnectReq, GrantWord, connect};
use wire::grants::Callback;
use wire::{Frame, FrameKind, Opcode, Reply, ReplyFlags, Request, RequestFlags, encode_body};

/// What becomes of a request.
pub(crate) enum Do {
    /// It is answered with its own body.
    Answer,
    Refuse(Errno),
    /// It is answered by [`Server::answer_held`], if at all.
    Hold,
    /// As `Hold`, and the client is told to wait for a minute.
    HoldEarly,
    /// The link is closed.
    Reset,
    /// Bytes that are no reply come instead.
    Nonsense,
    /// It is answered in the name of this instance.
    As(u64),
    /// Its data is pulled, then it is answered.
    Pull,
    /// This goes back as bulk data.
    Push(Bytes),
    /// The reply says so, but the data never comes.
    PushNothing,
    /// This goes back inside the reply.
    Inline(Bytes),
}

pub(crate) struct Server {
    env: Env,
    pub(crate) at: NidAddr,
    /// Every request but pings, oldest first.
    pub(crate) seen: RefCell<Vec<Request>>,
    pub(crate) links: RefCell<Vec<LinkTx>>,
    /// Outcomes of the next Connects; then NEW, or RESUMED where a session is named.
    pub(crate) connects: RefCell<VecDeque<Result<u32, Errno>>>,
    /// How long it takes to answer a Connect.
    pub(crate) connect_pause: Cell<Span>,
    /// What becomes of the next operations; then they are answered.
    pub(crate) script: RefCell<VecDeque<Do>>,
    held: RefCell<Vec<(LinkTx, Request)>>,
    pub(crate) pulled: RefCell<Vec<Bytes>>,
    /// Answers to callbacks.
    pub(crate) told: RefCell<Vec<Reply>>,
    pub(crate) instance: Cell<u64>,
    pub(crate) session: Cell<u64>,
    epoch: Cell<u32>,
    pub(crate) transno: Cell<u64>,
    pub(crate) committed: Cell<u64>,
}

impl Server {
    pub(crate) fn start(env: &Env, at: NidAddr) -> Rc<Server> {
        let server = Rc::new(Server {
            env: env.clone(),
            at,
            seen: RefCell::default(),
            links: RefCell::default(),
            connects: RefCell::default(),
            connect_pause: Cell::default(),
            script: RefCell::default(),
            held: RefCell::default(),
            pulled: RefCell::default(),
            told: RefCell::default(),
            instance: Cell::new(1),
            session: Cell::new(77),
            epoch: Cell::new(0),
            transno: Cell::new(0),
            committed: Cell::new(0),
        });
        let (accepts, listen) = (Rc::clone(&server), env.listen(at));
        env.spawn("accept", async move {
            let mut listener = listen.await.expect("the address is free");
            while let Ok(link) = listener.accept().await {
                accepts.links.borrow_mut().push(link.tx.clone());
                accepts.env.spawn("read", Rc::clone(&accepts).read(link));
            }
        });
        server
    }

    pub(crate) fn plan(&self, script: impl IntoIterator<Item = Do>) {
        self.script.borrow_mut().extend(script);
    }

    /// Closes all links.
    pub(crate) fn reset(&self) {
        self.links.borrow_mut().drain(..).for_each(|link| link.close());
    }

    /// Requests of `opcode` that came, oldest first.
    pub(crate) fn seen(&self, opcode: Opcode) -> Vec<Request> {
        self.seen.borrow().iter().filter(|request| request.opcode() == opcode).cloned().collect()
    }

    /// Opcodes in the order in which they came.
    pub(crate) fn order(&self) -> Vec<Opcode> {
        self.seen.borrow().iter().map(Request::opcode).collect()
    }

    /// Answers the oldest request that is held.
    pub(crate) fn answer_held(&self) {
        let (link, request) = self.held.borrow_mut().remove(0);
        let _ = link.send_message(&self.reply(&request));
    }

    /// A callback in the present session, to be sent on one of the links.
    pub(crate) fn callback(&self, xid: u64) -> Request {
        let callback = Callback::Recall(vec![GrantWord { number: xid, ..GrantWord::default() }]);
        let mut request = Request::new(callback.opcode(), callback.to_bufs());
        let header = &mut request.header;
        (header.xid, header.target) = (xid, crate::TARGET.to_u32());
        (header.session, header.instance) = (self.session.get(), self.instance.get());
        header.epoch = self.epoch.get();
        request
    }

    /// Sends it on the newest link.
    pub(crate) fn call_back(&self, request: &Request) {
        self.links.borrow().last().expect("connected").send_message(request).expect("open");
    }

    async fn read(self: Rc<Self>, mut link: Link) {
        while let Some(frame) = link.rx.recv().await {
            if frame.kind == FrameKind::Reply {
                let reply = *Reply::take(frame.into_payload()).expect("well formed");
                self.told.borrow_mut().push(reply);
                continue;
            }
            if frame.kind != FrameKind::Request {
                continue;
            }
            let request = *Request::take(frame.into_payload()).expect("well formed");
            if request.opcode() != Opcode::Ping {
                self.seen.borrow_mut().push(request.clone());
            }
            match request.opcode() {
                Opcode::Connect => self.connect(&link.tx, &request),
                Opcode::Ping | Opcode::Disconnect | Opcode::ReplayDone => {
                    let _ = link.tx.send_message(&self.reply(&request));
                }
                Opcode::MdtSync => {
                    self.committed.set(self.transno.get());
                    let _ = link.tx.send_message(&self.reply(&request));
                }
                _ => {
                    let next = self.script.borrow_mut().pop_front().unwrap_or(Do::Answer);
                    self.act(&link.tx, request, next);
                }
            }
        }
    }

    fn connect(&self, link: &LinkTx, request: &Request) {
        let resumes = request.body::<ConnectReq>().resume != 0;
        let usual = Ok(if resumes { connect::RESUMED } else { connect::NEW });
        let outcome = match self.connects.borrow_mut().pop_front().unwrap_or(usual) {
            Ok(outcome) => outcome,
            Err(errno) => {
                let _ = link.send_message(&Reply::error(&request.header, errno));
                return;
            }
        };
        if outcome == connect::EVICTED {
            self.session.set(self.session.get() + 1);
        }
        self.epoch.set(self.epoch.get() + 1);
        let body = ConnectRep {
            session: self.session.get(),
            instance: self.instance.get(),
            last_committed: self.committed.get(),
            outcome,
            epoch: self.epoch.get(),
            tags: 64,
            rpcs_in_flight: 64,
            inline_bytes: 1_024,
            bulk_bytes: wire::BULK_BYTES_MAX,
            lease_secs: 150,
            window_ms: 0,
            store: 0,
        };
        let mut reply = self.reply(request);
        reply.bufs = vec![encode_body(&body)];
        let (link, pause) = (link.clone(), self.env.sleep(self.connect_pause.get()));
        self.env.spawn("connected", async move {
            pause.await;
            let _ = link.send_message(&reply);
        });
    }

    /// With the request's own body, and a place in history for a change.
    fn reply(&self, request: &Request) -> Reply {
        let mut reply = Reply::ok(&request.header, vec![request.buf(0)]);
        if request.has(RequestFlags::REPLAY) {
            reply.header.transno = request.header.transno;
        } else if request.has(RequestFlags::MODIFIES) {
            self.transno.set(self.transno.get() + 1);
            reply.header.transno = self.transno.get();
        }
        reply.header.instance = self.instance.get();
        reply.header.last_committed = self.committed.get();
        reply
    }

    fn act(self: &Rc<Self>, link: &LinkTx, request: Request, what: Do) {
        let send = |reply: &Reply| {
            let _ = link.send_message(reply);
        };
        match what {
            Do::Answer => send(&self.reply(&request)),
            Do::Refuse(errno) => send(&Reply::error(&request.header, errno)),
            Do::Hold => self.held.borrow_mut().push((link.clone(), request)),
            Do::HoldEarly => {
                let mut early = Reply::ok(&request.header, Vec::new());
                (early.header.flags, early.header.lease_ms) = (ReplyFlags::EARLY, 60_000);
                send(&early);
                self.held.borrow_mut().push((link.clone(), request));
            }
            Do::Reset => link.close(),
            Do::Nonsense => {
                let frame = Frame::new(FrameKind::Reply, 0, Bytes::from_static(b"nonsense"));
                let _ = link.send(frame);
            }
            Do::As(instance) => {
                let mut reply = self.reply(&request);
                reply.header.instance = instance;
                send(&reply);
            }
            Do::Pull => {
                let (server, link) = (Rc::clone(self), link.clone());
                self.env.spawn("pull", async move {
                    let id = request.header.bulk_id;
                    let data = server.pull(&link, id, request.header.bulk_len as usize).await;
                    server.pulled.borrow_mut().push(data.expect("the client has it"));
                    let _ = link.send_message(&server.reply(&request));
                });
            }
            Do::Push(data) => {
                let _ = link.send(Frame::new(FrameKind::BulkData, request.header.bulk_id, data));
                let mut reply = self.reply(&request);
                reply.header.flags |= ReplyFlags::BULK;
                send(&reply);
            }
            Do::PushNothing => {
                let mut reply = self.reply(&request);
                reply.header.flags |= ReplyFlags::BULK;
                send(&reply);
            }
            Do::Inline(data) => {
                let mut reply = self.reply(&request);
                reply.bufs.push(data);
                send(&reply);
            }
        }
    }

    /// Asks for a bulk; nothing if it does not come within a second.
    pub(crate) async fn pull(&self, link: &LinkTx, id: u64, len: usize) -> Option<Bytes> {
        let ticket = link.expect_bulk(id, len);
        link.send(Frame::new(FrameKind::BulkPull, id, Bytes::new())).expect("open");
        self.env.timeout(Span::secs(1), ticket).await.flatten()
    }
}

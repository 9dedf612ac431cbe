//! A server that keeps a list of changes: exports and recovery as a service drives them, over a
//! store that forgets uncommitted changes.

use std::collections::BTreeMap;

use ptlrpc::{Admission, Export, Known, Recovery, RecoveryConfig, Replay};
use types::{ClientId, Errno, Instant, Span, Transno, Xid};
use wire::body::{ConnectRep, ConnectReq, connect};
use wire::{Opcode, Reply, ReplyFlags, Request, RequestFlags, encode_body};

/// Nobody is evicted for being away: the histories are about the changes.
const WINDOW: Span = Span::secs(1_000_000);
const TAGS: u32 = 64;

#[derive(Clone, Default)]
struct Image {
    changes: Vec<(u64, u64)>, // transno and number
    replies: BTreeMap<(usize, u32), Reply>,
    last: u64,
}

struct Session {
    id: u64,
    epoch: u32,
    connect_xid: u64,
    link: u32,
    absent: bool,
    export: Export<()>,
}

impl Session {
    fn new(id: u64, absent: bool) -> Session {
        Session { id, epoch: 0, connect_xid: 0, link: 0, absent, export: Export::new(TAGS) }
    }

    fn attach(&mut self, link: u32, connect_xid: u64) {
        (self.link, self.connect_xid, self.absent) = (link, connect_xid, false);
        self.epoch += 1;
    }
}

type Held = (usize, Request);

pub(crate) struct Server {
    disk: Image,
    running: Image,
    /// Durable: which session each client has.
    known: BTreeMap<usize, u64>,
    sessions: BTreeMap<usize, Session>,
    sessions_made: u64,
    instance: u64,
    committed: u64,
    assigned: u64,
    recovery: Recovery<Held>,
    open: bool,
    replies: Vec<(usize, u32, Reply)>,
}

fn recovery(committed: u64, known: &BTreeMap<usize, u64>) -> Recovery<Held> {
    let config = RecoveryConfig { soft: WINDOW, hard: WINDOW, committed: Transno(committed) };
    Recovery::new(config, known.keys().map(|client| (id(*client), Known::Present)))
}

fn id(client: usize) -> ClientId {
    ClientId(client as u128 + 1)
}

impl Server {
    pub(crate) fn new() -> Server {
        Server {
            disk: Image::default(),
            running: Image::default(),
            known: BTreeMap::new(),
            sessions: BTreeMap::new(),
            sessions_made: 0,
            instance: 1,
            committed: 0,
            assigned: 0,
            recovery: recovery(0, &BTreeMap::new()),
            open: true,
            replies: Vec::new(),
        }
    }

    pub(crate) fn restart(&mut self) {
        self.running = self.disk.clone();
        self.instance += 1;
        (self.committed, self.assigned) = (self.disk.last, self.disk.last);
        self.sessions = self
            .known
            .iter()
            .map(|(client, session)| (*client, Session::new(*session, true)))
            .collect();
        for ((client, tag), reply) in &self.disk.replies {
            if let Some(session) = self.sessions.get_mut(client) {
                session.export.restore(*tag, reply.clone());
            }
        }
        self.recovery = recovery(self.committed, &self.known);
        self.open = !self.recovery.is_active();
        self.replies.clear();
    }

    pub(crate) fn commit(&mut self) {
        self.disk = self.running.clone();
        self.committed = self.assigned;
    }

    pub(crate) fn changes(&self) -> Vec<u64> {
        self.running.changes.iter().map(|(_, number)| *number).collect()
    }

    pub(crate) fn take_replies(&mut self) -> Vec<(usize, u32, Reply)> {
        std::mem::take(&mut self.replies)
    }

    pub(crate) fn break_link(&mut self, client: usize, now: Instant) {
        if self.sessions.get(&client).is_some_and(|session| !session.absent) {
            self.recovery.handle_disconnected(id(client), now);
        }
    }

    fn tell(&mut self, client: usize, link: u32, mut reply: Reply) {
        (reply.header.instance, reply.header.last_committed) = (self.instance, self.committed);
        self.replies.push((client, link, reply));
    }

    fn tell_newest(&mut self, client: usize, reply: Reply) {
        let link = self.sessions[&client].link;
        self.tell(client, link, reply);
    }

    pub(crate) fn handle(&mut self, client: usize, link: u32, request: &Request, now: Instant) {
        if request.opcode() == Opcode::Connect {
            self.connect(client, link, request, now);
            return;
        }
        let header = &request.header;
        let ours = header.instance == self.instance;
        let session = self
            .sessions
            .get(&client)
            .filter(|session| ours && !session.absent && session.id == header.session);
        let Some(session) = session else {
            let mut reply = Reply::error(header, Errno::ENOTCONN);
            reply.header.flags = ReplyFlags::NO_SESSION;
            self.tell(client, link, reply);
            return;
        };
        if session.epoch == header.epoch {
            self.admit(client, link, request, now);
        }
    }

    fn connect(&mut self, client: usize, link: u32, request: &Request, now: Instant) {
        let (req, xid) = (request.body::<ConnectReq>(), request.header.xid);
        self.recovery.handle_attempt(now);
        let outcome = match self.sessions.get_mut(&client) {
            Some(session) if xid <= session.connect_xid => return,
            Some(session) if req.resume != 0 => {
                assert_eq!(session.id, req.session, "a session is resumed as it was");
                session.attach(link, xid);
                if self.open { connect::RESUMED } else { connect::RECOVER }
            }
            None if !self.open => {
                let mut reply = Reply::error(&request.header, Errno::EBUSY);
                reply.header.flags = ReplyFlags::RECOVERING;
                self.tell(client, link, reply);
                return;
            }
            old => {
                assert_eq!(req.resume, 0, "a session that was told is durable");
                if old.is_some() {
                    self.recovery.handle_gone(id(client));
                }
                self.sessions_made += 1;
                let mut session = Session::new(self.sessions_made, false);
                session.attach(link, xid);
                self.known.insert(client, session.id);
                self.sessions.insert(client, session);
                connect::NEW
            }
        };
        if outcome == connect::RECOVER {
            self.recovery.handle_connected(id(client), now);
        }
        let session = &self.sessions[&client];
        let body = ConnectRep {
            session: session.id,
            instance: self.instance,
            last_committed: self.committed,
            outcome,
            epoch: session.epoch,
            tags: req.tags,
            rpcs_in_flight: TAGS,
            ..ConnectRep::default()
        };
        self.tell(client, link, Reply::ok(&request.header, vec![encode_body(&body)]));
    }

    fn admit(&mut self, client: usize, link: u32, request: &Request, now: Instant) {
        let header = &request.header;
        let replays = request.has(RequestFlags::REPLAY) && header.transno != 0;
        let done = request.opcode() == Opcode::ReplayDone;
        if (replays || done) && !self.open {
            self.hold(client, request, now);
            return;
        }
        if replays || done || request.opcode() == Opcode::Ping {
            self.tell(client, link, replayed(request));
            return;
        }
        if !self.open {
            let mut reply = Reply::error(header, Errno::EAGAIN);
            reply.header.flags = ReplyFlags::RECOVERING;
            self.tell(client, link, reply);
            return;
        }
        let session = self.sessions.get_mut(&client).expect("checked before");
        match session.export.admit(header) {
            Admission::Execute if request.has(RequestFlags::MODIFIES) => {
                let reply = self.execute(client, request);
                self.tell(client, link, reply);
            }
            Admission::Execute => self.tell(client, link, Reply::ok(header, Vec::new())),
            Admission::Answered(reply) => self.tell(client, link, reply),
            Admission::Stale => {}
            Admission::Executing | Admission::BadTag => {
                panic!("everything executes at once, on correct tags")
            }
        }
    }

    fn hold(&mut self, client: usize, request: &Request, now: Instant) {
        let export = &mut self.sessions.get_mut(&client).expect("checked before").export;
        let (index, transno) = (request.header.replay_index, Transno(request.header.transno));
        if export.executing_mut(request.xid()).is_some() {
            self.recovery.handle_offered_again(id(client), index, transno);
            return;
        }
        export.begin(request.xid(), ());
        let item = (client, request.clone());
        if request.opcode() == Opcode::ReplayDone {
            self.recovery.handle_done(id(client), item, now);
            return;
        }
        let replay =
            Replay { client: id(client), index, transno, xid: request.xid(), open: false, item };
        if let Some(repeated) = self.recovery.handle_replay(replay, now) {
            let (client, request) = repeated.item;
            self.finish(client, request.xid());
            self.tell_newest(client, replayed(&request));
        }
    }

    fn finish(&mut self, client: usize, xid: Xid) {
        self.sessions.get_mut(&client).expect("sessions stay").export.finished(xid);
    }

    /// Recovery, as far as it goes.
    pub(crate) fn pump(&mut self, now: Instant) {
        if self.open {
            return;
        }
        while let Some((client, request)) = self.recovery.poll_execute(now) {
            let reply = self.execute(client, &request);
            self.finish(client, request.xid());
            self.tell_newest(client, reply);
            self.recovery.handle_executed(now);
        }
        if let Some(waiting) = self.recovery.poll_finished() {
            self.open = true;
            for (client, request) in waiting {
                self.finish(client, request.xid());
                self.tell_newest(client, replayed(&request));
            }
        }
    }

    fn execute(&mut self, client: usize, request: &Request) -> Reply {
        let header = &request.header;
        let transno = if request.has(RequestFlags::REPLAY) {
            header.transno
        } else {
            self.assigned.max(self.instance << 32) + 1
        };
        self.assigned = self.assigned.max(transno);
        assert!(transno > self.running.last, "history goes forward");
        self.running.last = transno;
        let number = request.body::<u64>();
        assert!(self.running.changes.iter().all(|(_, other)| *other != number), "executed twice");
        self.running.changes.push((transno, number));
        let mut reply = Reply::ok(header, vec![encode_body(&number)]);
        reply.header.transno = transno;
        let export = &mut self.sessions.get_mut(&client).expect("checked before").export;
        export.remember(header.tag, &reply);
        self.running.replies.insert((client, header.tag), reply.clone());
        reply
    }
}

/// The answer to what needs no execution.
fn replayed(request: &Request) -> Reply {
    let mut reply = Reply::ok(&request.header, Vec::new());
    reply.header.transno = request.header.transno;
    reply
}

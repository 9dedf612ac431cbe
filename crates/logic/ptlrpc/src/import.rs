//! A client's side of one session: which request may be sent when, what is kept, what a restart makes necessary.
//!
//! ```text
//! NEW/DISCONN --poll_connect--> CONNECTING --NEW, RESUMED--> FULL
//!                                   |  \---EVICTED--> (everything of the old session is dropped) --> FULL
//!                                   \--RECOVER--> REPLAY --all answered--> REPLAY_LOCKS --re-stated--> REPLAY_WAIT
//!                                                              --ReplayDone answered--> FULL
//! any --handle_disconnect, attempt timed out, NO_SESSION--> DISCONN
//! ```
//! Invariants
//! - A tag belongs to at most one unanswered request, and xids on one tag rise.
//! - A request is sent again with its first xid and tag, flagged RESENT, resends in xid order before anything new.
//! - A change that was answered is kept until it is known to be durable, and replayed in transno order.
//! - A waiter is given back exactly once: by [`Handled::Done`] or by [`Event::Lost`].

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use types::{ClientId, Instance, Instant, Span, TargetId, Transno, Xid};
use wire::body::{ConnectRep, ConnectReq, connect};
use wire::{BUFS_MAX, Opcode, Reply, ReplyFlags, Request, RequestFlags, encode_body};

use crate::kept::{Kept, Place, ReplayList};
use crate::{Keep, PeerMisbehaved, limits};

/// Draws xids; shared by the imports of one endpoint, so that an xid names one request of the whole endpoint.
/// The low bits name the lane, that is the import: a reply finds its way without a table.
#[derive(Clone, Debug)]
pub struct XidSource {
    counter: Rc<Cell<u64>>,
    lane: u64,
}

impl XidSource {
    /// Lane 0 of a new endpoint that starts at `wall_secs` (since 1970): its xids are above those of a former life of
    /// the same client, as long as that drew fewer than a million a second.
    #[must_use]
    pub fn new(wall_secs: u64) -> XidSource {
        let first = ((wall_secs & 0x7fff_ffff) << 20).max(1);
        XidSource { counter: Rc::new(Cell::new(first)), lane: 0 }
    }

    /// The same counter, drawing for another import.
    #[must_use]
    pub fn lane(&self, lane: u32) -> XidSource {
        assert!(lane < limits::LANES_MAX, "the endpoint bounds its imports");
        XidSource { counter: Rc::clone(&self.counter), lane: u64::from(lane) }
    }

    /// Which import drew `xid`.
    #[must_use]
    pub fn lane_of(xid: Xid) -> u32 {
        (xid.0 % u64::from(limits::LANES_MAX)) as u32
    }

    /// The next one.
    #[must_use]
    pub fn draw(&self) -> Xid {
        let count = self.counter.get();
        self.counter.set(count + 1);
        Xid(count * u64::from(limits::LANES_MAX) + self.lane)
    }
}

/// Settings of an [`Import`].
#[derive(Clone, Debug)]
pub struct ImportConfig {
    /// The target at the other end.
    pub target: TargetId,
    /// Who we are.
    pub client: ClientId,
    /// Name for people.
    pub name: String,
    /// A server's own connection.
    pub is_server: bool,
    /// Time that one attempt has.
    pub attempt: Span,
    /// Requests in flight.
    pub rpcs_in_flight: u32,
    /// Modifying requests in flight.
    pub tags: u32,
    /// Silence after which an idle connection is pinged.
    pub ping_every: Span,
    /// The same while changes are not known to be durable.
    pub ping_dirty: Span,
    /// Pause before the second attempt to connect.
    pub reconnect_min: Span,
    /// Longest such pause.
    pub reconnect_max: Span,
}

/// Where the session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Never connected.
    New,
    /// Connect is under way.
    Connecting,
    /// Replaying to a restarted target.
    Replay,
    /// Re-stating locks.
    ReplayLocks,
    /// Done; the others are not.
    ReplayWait,
    /// Normal service.
    Full,
    /// Lost; a new attempt follows.
    Disconn,
}

impl State {
    /// As the `import` parameter prints it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::New => "NEW",
            State::Connecting => "CONNECTING",
            State::Replay => "REPLAY",
            State::ReplayLocks => "REPLAY_LOCKS",
            State::ReplayWait => "REPLAY_WAIT",
            State::Full => "FULL",
            State::Disconn => "DISCONN",
        }
    }

    fn is_connected(self) -> bool {
        !matches!(self, State::New | State::Connecting | State::Disconn)
    }
}

/// A request to submit. Its header needs opcode, flags (MODIFIES, SYNC), identity and label; the import fills in the rest.
pub struct Submit<B, W> {
    /// The request.
    pub request: Request,
    /// What must be at hand when it is sent, again and again.
    pub bulk: B,
    /// Given back with the answer.
    pub waiter: W,
    /// How long it stays in the replay list.
    pub keep: Keep,
}

/// To be sent now: header complete except for the bulk id, which the driver draws.
pub struct Transmit<'a, B> {
    /// What to send.
    pub request: &'a mut Request,
    /// Its bulk data.
    pub bulk: &'a mut B,
}

/// An answered request.
pub struct Completed<B, W> {
    /// Its number.
    pub xid: Xid,
    /// Who waits; none for the import's own requests.
    pub waiter: Option<W>,
    /// Its bulk data, unless it is kept for replay.
    pub bulk: Option<B>,
    /// The answer.
    pub reply: Reply,
}

/// What a reply led to.
pub enum Handled<B, W> {
    /// Its request is done.
    Done(Completed<B, W>),
    /// Nothing to do for the driver but to poll.
    Progress,
    /// The session must be opened again.
    Reconnect,
}

/// What the driver should know.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<W> {
    /// The session was lost with everything in it.
    Evicted,
    /// A change whose outcome is unknown and will stay so.
    Lost(W),
    /// State locks again: [`Import::restate`] each, then [`Import::restated`].
    AskRestate,
    /// Normal service.
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    User,
    Restate,
    Control,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Queued,
    Sent {
        deadline: Instant,
        /// Counts against the requests in flight; one that waits for somebody else at the server does not.
        counted: bool,
    },
    /// In the resend list.
    Resend,
    /// The target said "recovering": again at this time.
    Later(Instant),
}

struct Out<B, W> {
    request: Request,
    bulk: B,
    waiter: Option<W>,
    keep: Keep,
    kind: Kind,
    phase: Phase,
}

impl<B, W> Out<B, W> {
    fn modifies(&self) -> bool {
        self.request.has(RequestFlags::MODIFIES)
    }

    /// An open says so: a restarted target that finds its answer has still lost its handle.
    fn mark_resent(&mut self) {
        self.phase = Phase::Resend;
        self.request.header.flags |= RequestFlags::RESENT;
        if self.keep == Keep::Open {
            self.request.header.flags |= RequestFlags::OPEN;
        }
    }
}

/// One client's session with one target. See the head of the file.
///
/// After every `handle_*` and `submit` poll [`Import::poll_event`], then [`Import::poll_transmit`], until both are empty.
/// [`Import::poll_connect`] is asked when neither connected nor connecting, and again at [`Import::poll_timeout`].
pub struct Import<B, W> {
    config: ImportConfig,
    xids: XidSource,
    state: State,
    wanted: bool,
    session: u64,
    epoch: u32,
    instance: Instance,
    committed: Transno,
    out: BTreeMap<Xid, Out<B, W>>,
    queue: VecDeque<Xid>,
    queue_modifying: VecDeque<Xid>,
    queue_control: VecDeque<Xid>,
    resend: VecDeque<Xid>,
    tags_free: Vec<u32>,
    tags_max: u32,
    rpcs_max: u32,
    in_flight: u32,
    kept: ReplayList<B>,
    replay: VecDeque<Place>,
    replay_sent: BTreeMap<Xid, (Place, Instant)>,
    replay_index: u32,
    restated: bool,
    done_xid: Option<Xid>,
    ping: Option<Xid>,
    active_at: Instant,
    connect_at: Instant,
    connect_deadline: Instant,
    backoff: Span,
    since: Instant,
    events: VecDeque<Event<W>>,
}

impl<B: Default, W> Import<B, W> {
    /// Not connected and not wanting to be until something is submitted.
    #[must_use]
    pub fn new(config: ImportConfig, xids: XidSource, now: Instant) -> Import<B, W> {
        let tags_max = config.tags.clamp(1, limits::TAGS_MAX);
        let rpcs_max = config.rpcs_in_flight.clamp(1, limits::TAGS_MAX);
        Import {
            xids,
            state: State::New,
            wanted: false,
            session: 0,
            epoch: 0,
            instance: Instance(0),
            committed: Transno::NONE,
            out: BTreeMap::new(),
            queue: VecDeque::new(),
            queue_modifying: VecDeque::new(),
            queue_control: VecDeque::new(),
            resend: VecDeque::new(),
            tags_free: (1..=tags_max).rev().collect(),
            tags_max,
            rpcs_max,
            in_flight: 0,
            kept: ReplayList::new(),
            replay: VecDeque::new(),
            replay_sent: BTreeMap::new(),
            replay_index: 0,
            restated: false,
            done_xid: None,
            ping: None,
            active_at: now,
            connect_at: now,
            connect_deadline: now,
            backoff: config.reconnect_min,
            since: now,
            events: VecDeque::new(),
            config,
        }
    }

    /// Where the session stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Since when.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Everything up to here is durable at the target.
    #[must_use]
    pub fn last_committed(&self) -> Transno {
        self.committed
    }

    /// The run of the target that was last talked to.
    #[must_use]
    pub fn instance(&self) -> Instance {
        self.instance
    }

    /// Whether a session is open.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.state.is_connected()
    }

    /// Unanswered requests of callers.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.out.values().filter(|out| out.kind == Kind::User).count()
    }

    /// Whether the queue is at its bound.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queue.len() + self.queue_modifying.len() >= limits::QUEUED_MAX
    }

    /// Changes kept for replay.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Takes a request in; it is sent when tags, requests in flight and state allow.
    pub fn submit(&mut self, submit: Submit<B, W>, now: Instant) -> Xid {
        if !self.wanted {
            self.wanted = true;
            self.connect_at = now;
        }
        let out = Out {
            request: submit.request,
            bulk: submit.bulk,
            waiter: Some(submit.waiter),
            keep: submit.keep,
            kind: Kind::User,
            phase: Phase::Queued,
        };
        self.enqueue(out)
    }

    /// Re-states one lock during REPLAY_LOCKS.
    pub fn restate(&mut self, submit: Submit<B, W>) -> Xid {
        let mut request = submit.request;
        request.header.flags |= RequestFlags::REPLAY;
        request.header.flags &= !RequestFlags::MODIFIES;
        self.enqueue(Out {
            request,
            bulk: submit.bulk,
            waiter: Some(submit.waiter),
            keep: Keep::No,
            kind: Kind::Restate,
            phase: Phase::Queued,
        })
    }

    /// All locks were given to [`Import::restate`].
    pub fn restated(&mut self) {
        self.restated = true;
        self.advance_recovery();
    }

    fn enqueue(&mut self, mut out: Out<B, W>) -> Xid {
        let xid = self.xids.draw();
        out.request.header.xid = xid.0;
        match out.kind {
            Kind::User if out.modifies() => self.queue_modifying.push_back(xid),
            Kind::User => self.queue.push_back(xid),
            Kind::Restate | Kind::Control => self.queue_control.push_back(xid),
        }
        self.out.insert(xid, out);
        xid
    }

    fn enqueue_control(&mut self, opcode: Opcode) -> Xid {
        self.enqueue(Out {
            request: Request::new(opcode, Vec::new()),
            bulk: B::default(),
            waiter: None,
            keep: Keep::No,
            kind: Kind::Control,
            phase: Phase::Queued,
        })
    }

    /// Its caller no longer waits: a request that changes nothing is forgotten, a change goes on.
    pub fn abandon(&mut self, xid: Xid) -> Option<W> {
        let out = self.out.get_mut(&xid)?;
        let waiter = out.waiter.take();
        if !out.modifies() && out.kind == Kind::User {
            let phase = out.phase;
            self.out.remove(&xid);
            match phase {
                Phase::Queued => self.queue.retain(|queued| *queued != xid),
                Phase::Resend => self.resend.retain(|queued| *queued != xid),
                Phase::Sent { counted, .. } => self.in_flight -= u32::from(counted),
                Phase::Later(_) => {}
            }
        }
        waiter
    }

    /// Nobody waits any longer: requests that change nothing are forgotten, changes go on.
    pub fn abandon_all(&mut self) -> Vec<W> {
        let xids: Vec<Xid> = self.out.keys().copied().collect();
        xids.into_iter().filter_map(|xid| self.abandon(xid)).collect()
    }

    /// The bulk data of a request that is in flight or being replayed: what a server pulls.
    pub fn bulk_mut(&mut self, xid: Xid) -> Option<&mut B> {
        if let Some((place, _)) = self.replay_sent.get(&xid) {
            return self.kept.get_mut(*place).map(|kept| &mut kept.bulk);
        }
        self.out.get_mut(&xid).map(|out| &mut out.bulk)
    }

    // ---- connecting -------------------------------------------------------------------------------------------

    /// A Connect to send, if one is due.
    pub fn poll_connect(&mut self, now: Instant) -> Option<Request> {
        let idle = matches!(self.state, State::New | State::Disconn);
        if !self.wanted || !idle || now < self.connect_at {
            return None;
        }
        let (from, to) = self.kept.range();
        let body = ConnectReq {
            client_low: self.config.client.0 as u64,
            client_high: (self.config.client.0 >> 64) as u64,
            tags: self.tags_max,
            resume: u32::from(self.session != 0),
            session: self.session,
            instance: self.instance.0,
            replay_from: from.0,
            replay_to: to.0,
            is_server: u32::from(self.config.is_server),
            reserved: 0,
        };
        let mut request =
            Request::new(Opcode::Connect, vec![encode_body(&body), Bytes::copy_from_slice(self.config.name.as_bytes())]);
        request.header.xid = self.xids.draw().0;
        request.header.target = self.config.target.to_u32();
        request.header.deadline_ms = millis(self.config.attempt);
        self.enter(State::Connecting, now);
        self.connect_deadline = now + self.config.attempt;
        Some(request)
    }

    /// The attempt to connect came to nothing.
    pub fn handle_connect_failed(&mut self, now: Instant) {
        if self.state == State::Connecting {
            self.state = State::Disconn; // `since` stays: one outage
            self.connect_at = now + self.backoff;
            self.backoff = Span((self.backoff.0 * 2).min(self.config.reconnect_max.0));
        }
    }

    /// The answer to Connect. Status other than zero ("wait, recovering" among them) is a failed attempt.
    pub fn handle_connected(&mut self, reply: &Reply, now: Instant) -> Result<(), PeerMisbehaved> {
        if self.state != State::Connecting {
            return Ok(());
        }
        if reply.errno().is_some() {
            self.handle_connect_failed(now);
            return Ok(());
        }
        let rep: ConnectRep = reply.body();
        if let Err(error) = self.check_connected(&rep) {
            self.handle_connect_failed(now);
            return Err(error);
        }
        self.backoff = self.config.reconnect_min;
        self.active_at = now;
        (self.session, self.epoch, self.instance) = (rep.session, rep.epoch, Instance(rep.instance));
        match rep.outcome {
            connect::RECOVER => {
                self.note_committed(Transno(rep.last_committed));
                self.replay = self.kept.places().into();
                self.replay_index = 0;
                self.restated = false;
                self.enter(State::Replay, now);
                self.advance_recovery();
            }
            connect::RESUMED => {
                self.note_committed(Transno(rep.last_committed));
                self.enter_full(now);
            }
            _ => {
                if rep.outcome == connect::EVICTED {
                    self.drop_session();
                }
                self.committed = Transno(rep.last_committed);
                self.negotiate(&rep);
                self.enter_full(now);
            }
        }
        Ok(())
    }

    fn check_connected(&self, rep: &ConnectRep) -> Result<(), PeerMisbehaved> {
        if rep.instance < self.instance.0 {
            return Err(PeerMisbehaved::StaleInstance { got: rep.instance, seen: self.instance.0 });
        }
        if rep.session == 0 {
            return Err(PeerMisbehaved::Connect("it names no session"));
        }
        if rep.tags == 0 || rep.rpcs_in_flight == 0 {
            return Err(PeerMisbehaved::Connect("it allows no request"));
        }
        let resumes = matches!(rep.outcome, connect::RESUMED | connect::RECOVER);
        if resumes && rep.session != self.session {
            return Err(PeerMisbehaved::Connect("it resumes another session"));
        }
        if rep.outcome == connect::NEW && self.session != 0 {
            return Err(PeerMisbehaved::Connect("it starts a session where one was to be resumed"));
        }
        Ok(())
    }

    fn negotiate(&mut self, rep: &ConnectRep) {
        self.tags_max = self.config.tags.clamp(1, rep.tags.min(limits::TAGS_MAX));
        self.rpcs_max = self.config.rpcs_in_flight.clamp(1, rep.rpcs_in_flight.min(limits::TAGS_MAX));
        self.tags_free = (1..=self.tags_max).rev().collect();
    }

    /// Evicted: what was acknowledged and not durable is gone, what is unanswered and modifying has no knowable outcome.
    fn drop_session(&mut self) {
        self.kept.clear();
        self.events.push_back(Event::Evicted);
        let lost: Vec<Xid> =
            self.out.iter().filter(|(_, out)| out.modifies() && out.phase != Phase::Queued).map(|(xid, _)| *xid).collect();
        for xid in lost {
            let out = self.out.remove(&xid).expect("taken from the map just now");
            self.events.extend(out.waiter.map(Event::Lost));
        }
        self.resend.retain(|xid| self.out.contains_key(xid));
    }

    // ---- replies ----------------------------------------------------------------------------------------------

    /// A reply of the target, to whatever request. Late ones are harmless.
    pub fn handle_reply(&mut self, mut reply: Reply, now: Instant) -> Result<Handled<B, W>, PeerMisbehaved> {
        if !self.state.is_connected() {
            return Ok(Handled::Progress);
        }
        let got = reply.header.instance;
        if got < self.instance.0 && got != 0 {
            return Err(PeerMisbehaved::StaleInstance { got, seen: self.instance.0 });
        }
        if reply.has(ReplyFlags::NO_SESSION) || got > self.instance.0 {
            self.handle_disconnect(now);
            return Ok(Handled::Reconnect);
        }
        self.note_committed(Transno(reply.header.last_committed));
        let xid = Xid(reply.header.xid);
        if self.extend(xid, &reply, now) {
            return Ok(Handled::Progress);
        }
        if self.replay_sent.remove(&xid).is_some() {
            self.advance_recovery();
            return Ok(Handled::Progress);
        }
        let Some(out) = self.out.get(&xid) else { return Ok(Handled::Progress) };
        let Phase::Sent { counted, .. } = out.phase else { return Ok(Handled::Progress) };
        let keeps = out.modifies() && reply.errno().is_none() && (reply.header.transno != 0 || out.keep == Keep::Open);
        let bufs = out.request.bufs.len() + reply.bufs.len();
        if keeps && bufs > BUFS_MAX {
            return Err(PeerMisbehaved::TooManyBuffers(bufs));
        }
        self.in_flight -= u32::from(counted);
        if reply.has(ReplyFlags::RECOVERING) {
            let out = self.out.get_mut(&xid).expect("looked up just now");
            out.phase = Phase::Later(now + limits::RECOVERING_RETRY);
            return Ok(Handled::Progress);
        }
        let out = self.out.remove(&xid).expect("looked up just now");
        if out.request.header.tag != 0 {
            self.tags_free.push(out.request.header.tag);
        }
        if out.kind != Kind::User {
            return Ok(self.control_done(xid, out, reply, now));
        }
        if let Keep::Close { open } = out.keep
            && !keeps
        {
            self.kept.forget_open(open);
        }
        let bulk = if keeps { self.keep(out.request, out.bulk, out.keep, &mut reply) } else { Some(out.bulk) };
        Ok(Handled::Done(Completed { xid, waiter: out.waiter, bulk, reply }))
    }

    /// An early reply is not the answer yet: the server asks for time.
    fn extend(&mut self, xid: Xid, reply: &Reply, now: Instant) -> bool {
        if !reply.has(ReplyFlags::EARLY) {
            return false;
        }
        let until = now + Span::millis(u64::from(reply.header.lease_ms));
        if let Some((_, deadline)) = self.replay_sent.get_mut(&xid) {
            *deadline = until.max(*deadline);
        } else if let Some(Out { phase: Phase::Sent { deadline, counted }, .. }) = self.out.get_mut(&xid) {
            *deadline = until.max(*deadline);
            self.in_flight -= u32::from(std::mem::take(counted));
        }
        true
    }

    fn keep(&mut self, mut request: Request, bulk: B, keep: Keep, reply: &mut Reply) -> Option<B> {
        let durable = reply.header.transno != 0 && reply.transno() <= self.committed;
        if durable && keep == Keep::No {
            return Some(bulk);
        }
        request.header.transno = reply.header.transno;
        request.header.replay_bufs = reply.bufs.len() as u8;
        request.header.flags = (request.header.flags | RequestFlags::REPLAY) & !(RequestFlags::RESENT | RequestFlags::OPEN);
        request.bufs.extend(reply.bufs.iter().cloned());
        self.kept.insert(Kept { request, bulk, keep }, self.committed);
        None
    }

    fn control_done(&mut self, xid: Xid, out: Out<B, W>, reply: Reply, now: Instant) -> Handled<B, W> {
        if self.ping == Some(xid) {
            self.ping = None;
        }
        if self.done_xid == Some(xid) {
            self.done_xid = None;
            if reply.errno().is_some() {
                self.handle_disconnect(now);
                return Handled::Reconnect;
            }
            if self.state == State::ReplayWait {
                self.enter_full(now);
            }
        }
        self.advance_recovery();
        if out.waiter.is_none() {
            return Handled::Progress;
        }
        Handled::Done(Completed { xid, waiter: out.waiter, bulk: Some(out.bulk), reply })
    }

    fn note_committed(&mut self, upto: Transno) {
        if upto > self.committed {
            self.committed = upto;
            self.kept.prune(upto);
        }
    }

    /// REPLAY → REPLAY_LOCKS → REPLAY_WAIT, as far as it goes.
    fn advance_recovery(&mut self) {
        if self.state == State::Replay && self.replay.is_empty() && self.replay_sent.is_empty() {
            self.state = State::ReplayLocks;
            self.events.push_back(Event::AskRestate);
        }
        let restating = self.restated && !self.out.values().any(|out| out.kind == Kind::Restate);
        if self.state == State::ReplayLocks && restating {
            self.state = State::ReplayWait;
            self.done_xid = Some(self.enqueue_control(Opcode::ReplayDone));
        }
    }

    // ---- faults and time --------------------------------------------------------------------------------------

    /// The link is gone, or the session is not known: everything unanswered will be sent again.
    pub fn handle_disconnect(&mut self, now: Instant) {
        if !self.state.is_connected() {
            self.handle_connect_failed(now);
            return;
        }
        self.enter(State::Disconn, now);
        self.connect_at = now;
        self.in_flight = 0;
        self.replay.clear();
        self.replay_sent.clear();
        self.queue_control.clear();
        (self.ping, self.done_xid, self.restated) = (None, None, false);
        let restates: Vec<Xid> = self.out.iter().filter(|(_, out)| out.kind != Kind::User).map(|(xid, _)| *xid).collect();
        for xid in restates {
            let out = self.out.remove(&xid).expect("taken from the map just now");
            // the next recovery asks for them again
            self.events.extend(out.waiter.map(Event::Lost));
        }
        self.resend.clear();
        for (xid, out) in &mut self.out {
            if out.phase != Phase::Queued {
                out.mark_resent();
                self.resend.push_back(*xid);
            }
        }
    }

    /// Time has passed. True: an attempt timed out, the session is disconnected, and the link is not to be trusted.
    pub fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.state == State::Connecting && now >= self.connect_deadline {
            self.handle_connect_failed(now);
            return true;
        }
        if !self.state.is_connected() {
            return false;
        }
        if self.attempt_deadline().is_some_and(|deadline| now >= deadline) {
            self.handle_disconnect(now);
            return true;
        }
        if self.state == State::Full {
            self.release_later(now);
            if now >= self.ping_at() && self.ping.is_none() {
                self.ping = Some(self.enqueue_control(Opcode::Ping));
            }
        }
        false
    }

    fn release_later(&mut self, now: Instant) {
        for (xid, out) in &mut self.out {
            if matches!(out.phase, Phase::Later(at) if now >= at) {
                out.mark_resent();
                self.resend.push_back(*xid);
            }
        }
        self.resend.make_contiguous().sort_unstable();
    }

    /// When [`Import::handle_timeout`] or [`Import::poll_connect`] want to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.state {
            State::New | State::Disconn => self.wanted.then_some(self.connect_at),
            State::Connecting => Some(self.connect_deadline),
            State::Full => self.attempt_deadline().into_iter().chain(self.later()).chain([self.ping_at()]).min(),
            State::Replay | State::ReplayLocks | State::ReplayWait => self.attempt_deadline(),
        }
    }

    fn attempt_deadline(&self) -> Option<Instant> {
        let sent = self.out.values().filter_map(|out| match out.phase {
            Phase::Sent { deadline, .. } => Some(deadline),
            _ => None,
        });
        sent.chain(self.replay_sent.values().map(|(_, deadline)| *deadline)).min()
    }

    fn later(&self) -> Option<Instant> {
        self.out.values().filter_map(|out| if let Phase::Later(at) = out.phase { Some(at) } else { None }).min()
    }

    fn ping_at(&self) -> Instant {
        if self.ping.is_some() {
            return Instant(u64::MAX);
        }
        let idle = if self.kept.is_dirty() { self.config.ping_dirty } else { self.config.ping_every };
        self.active_at + idle
    }

    // ---- sending ----------------------------------------------------------------------------------------------

    /// The next request to send; ask until there is none.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit<'_, B>> {
        match self.state {
            State::New | State::Connecting | State::Disconn => None,
            State::Replay => self.transmit_replay(now),
            State::ReplayLocks | State::ReplayWait => {
                let xid = self.queue_control.pop_front()?;
                Some(self.transmit(xid, now))
            }
            State::Full => {
                let xid = self.next_full()?;
                Some(self.transmit(xid, now))
            }
        }
    }

    fn next_full(&mut self) -> Option<Xid> {
        if let Some(xid) = self.queue_control.pop_front() {
            return Some(xid);
        }
        if self.in_flight >= self.rpcs_max {
            return None;
        }
        if let Some(xid) = self.resend.pop_front() {
            return Some(xid);
        }
        let modifying = self.queue_modifying.front().filter(|_| !self.tags_free.is_empty());
        match (self.queue.front(), modifying) {
            (Some(plain), Some(modifying)) if plain < modifying => self.queue.pop_front(),
            (Some(_), None) => self.queue.pop_front(),
            (_, Some(_)) => self.queue_modifying.pop_front(),
            (None, None) => None,
        }
    }

    fn transmit(&mut self, xid: Xid, now: Instant) -> Transmit<'_, B> {
        let acked = self.out.keys().next().copied().expect("the request itself is unanswered");
        let out = self.out.get_mut(&xid).expect("a queued xid has its request");
        let counted = out.kind == Kind::User;
        if out.modifies() && out.request.header.tag == 0 {
            out.request.header.tag = self.tags_free.pop().expect("asked before the request was chosen");
        }
        out.phase = Phase::Sent { deadline: now + self.config.attempt, counted };
        self.in_flight += u32::from(counted);
        self.active_at = now;
        let header = &mut out.request.header;
        header.acked_xid = acked.0;
        header.session = self.session;
        header.epoch = self.epoch;
        header.instance = self.instance.0;
        header.target = self.config.target.to_u32();
        header.deadline_ms = millis(self.config.attempt);
        Transmit { request: &mut out.request, bulk: &mut out.bulk }
    }

    fn transmit_replay(&mut self, now: Instant) -> Option<Transmit<'_, B>> {
        if self.replay_sent.len() >= self.rpcs_max as usize {
            return None;
        }
        let acked = self.out.keys().next().map_or(0, |xid| xid.0);
        let place = loop {
            // a commit during recovery may have pruned some
            let place = self.replay.pop_front()?;
            if self.kept.get_mut(place).is_some() {
                break place;
            }
        };
        self.replay_sent.insert(place.1, (place, now + self.config.attempt));
        self.active_at = now;
        let durable = place.0 <= self.committed;
        self.replay_index += 1;
        let index = self.replay_index;
        let (session, epoch, instance) = (self.session, self.epoch, self.instance);
        let kept = self.kept.get_mut(place).expect("looked up just now");
        let header = &mut kept.request.header;
        if durable {
            header.flags |= RequestFlags::OPEN;
        }
        header.replay_index = index;
        header.acked_xid = acked;
        header.session = session;
        header.epoch = epoch;
        header.instance = instance.0;
        header.deadline_ms = millis(self.config.attempt);
        Some(Transmit { request: &mut kept.request, bulk: &mut kept.bulk })
    }

    /// What the driver should know; ask until there is nothing.
    pub fn poll_event(&mut self) -> Option<Event<W>> {
        self.events.pop_front()
    }

    /// Ends everything: waiters are given back, and a Disconnect to send where a session is open.
    pub fn shut_down(&mut self, now: Instant) -> (Vec<W>, Option<Request>) {
        let waiters = std::mem::take(&mut self.out).into_values().filter_map(|out| out.waiter).collect();
        let request = self.state.is_connected().then(|| {
            let mut request = Request::new(Opcode::Disconnect, Vec::new());
            request.header.xid = self.xids.draw().0;
            request.header.session = self.session;
            request.header.epoch = self.epoch;
            request.header.instance = self.instance.0;
            request.header.target = self.config.target.to_u32();
            request.header.deadline_ms = millis(self.config.attempt);
            request
        });
        self.queue.clear();
        self.queue_modifying.clear();
        self.queue_control.clear();
        self.resend.clear();
        self.replay.clear();
        self.replay_sent.clear();
        self.kept.clear();
        self.session = 0;
        self.wanted = false;
        self.enter(State::New, now);
        (waiters, request)
    }

    fn enter(&mut self, state: State, now: Instant) {
        if self.state.is_connected() || state != State::Connecting {
            self.since = now;
        }
        self.state = state;
    }

    fn enter_full(&mut self, now: Instant) {
        self.enter(State::Full, now);
        self.events.push_back(Event::Full);
    }
}

fn millis(span: Span) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

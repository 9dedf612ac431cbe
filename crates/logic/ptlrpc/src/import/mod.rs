//! A client's side of one session: when each request may be sent, which requests are kept, and the
//! steps after a restart.
//!
//! ```text
//! NEW/DISCONN --poll_connect--> CONNECTING --NEW, RESUMED--> FULL
//!                                   |  \---EVICTED--> (everything of the old session is dropped) --> FULL
//!                                   \--RECOVER--> REPLAY --all answered--> REPLAY_LOCKS --restated--> REPLAY_WAIT
//!                                                              --ReplayDone answered--> FULL
//! any --handle_disconnect, attempt timed out, NO_SESSION--> DISCONN
//! ```
//! Each concern has one file: [`connect`] opens and loses the session, [`send`] chooses what goes
//! out next, [`reply`] takes answers in. [`replay`] repeats history to a restarted target, [`time`]
//! watches deadlines and pings, [`withdraw`] takes back requests that no caller waits for. Each
//! states the invariants that it keeps. These hold for all together:
//! - A tag belongs to at most one unanswered request, and xids on one tag rise.
//! - Every unanswered request is in `out`, and in exactly one of: a queue, `resend`, phase `Sent`,
//!   phase `Later`, phase `Withdrawn`.
//! - A waiter is given back exactly once: by [`Handled::Done`], [`Event::Lost`],
//!   [`Event::Withdrawn`], or when its request is forgotten.

mod config;
mod connect;
mod exchange;
mod replay;
mod reply;
mod send;
mod time;
mod withdraw;
mod xids;

use std::collections::{BTreeMap, VecDeque};

use queues::Ascending;
use types::{Instance, Instant, Span, TargetId, Transno, Xid};
use wire::body::{Claim, OpenWord};
use wire::{Opcode, Request, RequestFlags, RequestHeader};

pub use config::{Bugs, ImportConfig};
pub use exchange::{Completed, Event, Handled, State, Submit, Transmit, Undone};
pub use xids::XidSource;

use crate::kept::{Place, ReplayList};
use crate::{Keep, limits};

/// The lease of a session, as its client counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How long it is.
    pub span: Span,
    /// When it ends.
    pub until: Instant,
    /// How often it has been over.
    pub lapses: u64,
    /// What the target gave with lower numbers is void, although the lease may last by this
    /// client's clock.
    pub floor: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    User,
    Restate,
    Control,
    /// Takes back the change of this number.
    Cancel(Xid),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Queued,
    Sent {
        at: Instant,
        deadline: Instant,
        place: Counted,
    },
    /// In the resend list.
    Resend,
    /// The target said "recovering" or "busy": again at this time.
    Later(Instant),
    /// Taken back: not sent any more; its answer may still come.
    Withdrawn,
}

/// Among which requests in flight one counts.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Counted {
    /// Nowhere: the import's own, and one that waits for somebody else at the server.
    #[default]
    Free,
    /// Those that the target allows.
    Window,
    /// Those beside them that give something up.
    GivesUp,
}

struct Out<B, W> {
    request: Box<Request>,
    bulk: B,
    waiter: Option<W>,
    keep: Keep,
    urgent: bool,
    kind: Kind,
    phase: Phase,
    /// For whom it waits, as the target has said.
    awaits: Option<Box<str>>,
}

impl<B, W> Out<B, W> {
    fn modifies(&self) -> bool {
        self.request.has(RequestFlags::MODIFIES)
    }

    /// A recovering target takes it.
    fn passes(&self) -> bool {
        self.kind == Kind::User && self.request.opcode().passes_recovery()
    }

    /// It gives up what others may wait for.
    fn gives_up(&self) -> bool {
        self.kind == Kind::User && self.request.opcode().gives_up()
    }

    /// It has places of its own, which nothing else takes.
    fn is_urgent(&self) -> bool {
        self.gives_up() || (self.kind == Kind::User && self.urgent)
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
/// After every `handle_*` and `submit` poll [`Import::poll_event`], then [`Import::poll_transmit`],
/// until both are empty. [`Import::poll_connect`] is asked when neither connected nor connecting,
/// and again at [`Import::poll_timeout`].
pub struct Import<B, W> {
    target: TargetId,
    config: ImportConfig,
    xids: XidSource,
    state: State,
    wanted: bool,
    session: u64,
    epoch: u32,
    instance: Instance,
    /// As the target told it when the session began.
    store: u64,
    /// Silence that the target bears, zero where it did not tell.
    lease: Span,
    /// When the last request was sent that was answered: from then on the target counts.
    leased_from: Instant,
    /// It was over so often.
    lapses: u64,
    /// The highest that a reply had.
    floor: u64,
    /// The session is given up: the next Connect begins another one.
    renounced: bool,
    committed: Transno,
    /// Boxed: they move neither with their neighbours nor into the replay list.
    out: Ascending<Xid, Box<Out<B, W>>>,
    queue: VecDeque<Xid>,
    queue_modifying: VecDeque<Xid>,
    queue_control: VecDeque<Xid>,
    /// What a recovering target takes too, sent before or not.
    queue_passing: VecDeque<Xid>,
    /// What gives something up, sent before or not.
    queue_giving_up: VecDeque<Xid>,
    resend: VecDeque<Xid>,
    /// Changes to be taken back, of which the target does not know yet.
    withdrawn: VecDeque<Xid>,
    tags_free: Vec<u32>,
    tags_max: u32,
    rpcs_max: u32,
    in_flight: u32,
    giving_up: u32,
    kept: ReplayList<B>,
    replay: VecDeque<Place>,
    replay_sent: BTreeMap<Xid, (Place, Instant)>,
    replay_index: u32,
    /// Locks to be restated; they are not in `out` yet.
    restates: VecDeque<Submit<B, W>>,
    /// Restated locks in `out`.
    restates_out: u32,
    restated: bool,
    /// In a recovery: what was durable before it.
    durable_before: Option<Transno>,
    /// The target lacks what its former run did not make durable, and not all of that is repeated.
    unrepeated: bool,
    done_xid: Option<Xid>,
    ping: Option<Xid>,
    /// What the server expects requests of an opcode to take; each opcode has its service.
    estimates: BTreeMap<u16, Span>,
    active_at: Instant,
    connect_at: Instant,
    connect_sent: Instant,
    connect_deadline: Instant,
    backoff: Span,
    since: Instant,
    events: VecDeque<Event<B, W>>,
}
impl<B: Default, W> Import<B, W> {
    /// Not connected and not wanting to be until something is submitted.
    #[must_use]
    pub fn new(
        target: TargetId,
        config: ImportConfig,
        xids: XidSource,
        now: Instant,
    ) -> Import<B, W> {
        let tags_max = config.tags.clamp(1, limits::TAGS_MAX);
        let rpcs_max = config.rpcs_in_flight.clamp(1, limits::TAGS_MAX);
        Import {
            target,
            xids,
            state: State::New,
            wanted: false,
            session: 0,
            epoch: 0,
            instance: Instance(0),
            store: 0,
            lease: Span::ZERO,
            leased_from: now,
            lapses: 0,
            floor: 0,
            renounced: false,
            committed: Transno::NONE,
            out: Ascending::new(),
            queue: VecDeque::new(),
            queue_modifying: VecDeque::new(),
            queue_control: VecDeque::new(),
            queue_passing: VecDeque::new(),
            queue_giving_up: VecDeque::new(),
            resend: VecDeque::new(),
            withdrawn: VecDeque::new(),
            tags_free: (1..=tags_max).rev().collect(),
            tags_max,
            rpcs_max,
            in_flight: 0,
            giving_up: 0,
            kept: ReplayList::new(),
            replay: VecDeque::new(),
            replay_sent: BTreeMap::new(),
            replay_index: 0,
            restates: VecDeque::new(),
            restates_out: 0,
            restated: false,
            durable_before: None,
            unrepeated: false,
            done_xid: None,
            ping: None,
            estimates: BTreeMap::new(),
            active_at: now,
            connect_at: now,
            connect_sent: now,
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

    #[must_use]
    pub fn since(&self) -> Instant {
        self.since
    }

    /// What a client tells OSTs of this target, an MDT; zeros before the first session.
    #[must_use]
    pub fn claim(&self) -> Claim {
        Claim { session: self.session, store: self.store, ..Claim::default() }
    }

    /// Whether the target has heard of this client within its lease: what the session holds is held
    /// still, by this client's clock.
    #[must_use]
    pub fn is_leased(&self, now: Instant) -> bool {
        let within = self.lease == Span::ZERO || now - self.leased_from < self.lease;
        self.state.is_connected() && !self.renounced && within
    }

    /// The session's lease: how long it is, when it ends by this client's clock, and how often it
    /// has been over since the start. What was held before such a time may be another's since.
    #[must_use]
    pub fn lease(&self, now: Instant) -> Lease {
        let until = self.leased_from + self.lease;
        let held = self.session != 0 && !self.renounced && until > now;
        let lapses = self.lapses + u64::from(!held);
        Lease { span: self.lease, until, lapses, floor: self.floor }
    }

    /// The target has heard of this client at `at` or later.
    fn renew_lease(&mut self, at: Instant, now: Instant) {
        if self.leased_from + self.lease <= now {
            self.lapses += 1;
        }
        let at = if self.config.bugs.lease_from_reply() { now } else { at };
        self.leased_from = self.leased_from.max(at);
    }

    /// What was given with numbers below `floor` is void. Numbers rise, so a reply that was made
    /// earlier, or is sent again, takes nothing back.
    fn note_floor(&mut self, floor: u64) {
        if floor > self.floor {
            self.floor = floor;
            self.events.push_back(Event::Voided);
        }
    }

    /// Everything up to here is durable at the target.
    #[must_use]
    pub fn last_committed(&self) -> Transno {
        self.committed
    }

    /// What this client knew to be durable when the recovery of the target began that it takes part
    /// in: a recovery brings all changes up to here back, and perhaps not those after it.
    #[must_use]
    pub fn durable_before(&self) -> Transno {
        self.durable_before.unwrap_or(self.committed)
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

    /// For which other clients an unanswered request waits, as the target has said. Of several such
    /// requests one counts.
    #[must_use]
    pub fn awaits(&self) -> Option<&str> {
        self.out.values().find_map(|out| out.awaits.as_deref())
    }

    /// Whether a target that calls this client back means the session as it stands.
    #[must_use]
    pub fn is_called_by(&self, header: &RequestHeader) -> bool {
        self.state.is_connected()
            && !self.renounced
            && (header.session, header.epoch, header.instance)
                == (self.session, self.epoch, self.instance.0)
    }

    /// Whether the queue is at its bound.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let special = self.queue_passing.len() + self.queue_giving_up.len();
        self.queue.len() + self.queue_modifying.len() + special >= limits::QUEUED_MAX
    }

    /// Changes kept for replay.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Open handles that no replay brings back: the target is told of them when it has restarted,
    /// after all replays. In the order of their opens.
    #[must_use]
    pub fn stated_opens(&self) -> Vec<OpenWord> {
        self.kept.stated()
    }

    /// Answered changes that are not known to be durable.
    pub fn unconfirmed(&self) -> impl Iterator<Item = &Request> {
        self.kept.unconfirmed()
    }

    /// Bytes of the changes that are not known to be durable, bulk data not counted.
    #[must_use]
    pub fn replay_bytes(&self) -> u64 {
        self.kept.bytes()
    }

    /// Takes a request in; it is sent when tags, requests in flight and state allow.
    pub fn submit(&mut self, submit: Submit<B, W>, now: Instant) -> Xid {
        if !self.wanted {
            self.wanted = true;
            self.connect_at = now;
        }
        let out = Box::new(Out {
            request: submit.request,
            bulk: submit.bulk,
            waiter: Some(submit.waiter),
            keep: submit.keep,
            urgent: submit.urgent,
            kind: Kind::User,
            phase: Phase::Queued,
            awaits: None,
        });
        self.enqueue(out)
    }

    fn enqueue(&mut self, mut out: Box<Out<B, W>>) -> Xid {
        let xid = self.xids.draw();
        out.request.header.xid = xid.0;
        match out.kind {
            Kind::User if out.passes() => self.queue_passing.push_back(xid),
            Kind::User if out.is_urgent() => self.queue_giving_up.push_back(xid),
            Kind::User if out.modifies() => self.queue_modifying.push_back(xid),
            Kind::User => self.queue.push_back(xid),
            Kind::Restate | Kind::Control | Kind::Cancel(_) => self.queue_control.push_back(xid),
        }
        self.out.insert(xid, out);
        xid
    }

    /// A request that was sent is out no longer, or waits for somebody else at the server.
    fn leave(&mut self, place: Counted) {
        self.in_flight -= u32::from(place == Counted::Window);
        self.giving_up -= u32::from(place == Counted::GivesUp);
    }

    fn enqueue_control(&mut self, opcode: Opcode) -> Xid {
        self.enqueue_own(Kind::Control, Request::new(opcode, Vec::new()))
    }

    fn enqueue_own(&mut self, kind: Kind, request: Request) -> Xid {
        self.enqueue(Box::new(Out {
            request: Box::new(request),
            bulk: B::default(),
            waiter: None,
            keep: Keep::No,
            urgent: false,
            kind,
            phase: Phase::Queued,
            awaits: None,
        }))
    }

    /// The bulk data of a request that is in flight or being replayed: what a server pulls.
    pub fn bulk_mut(&mut self, xid: Xid) -> Option<&mut B> {
        if let Some((place, _)) = self.replay_sent.get(&xid) {
            return self.kept.get_mut(*place).map(|kept| &mut kept.bulk);
        }
        self.out.get_mut(xid).map(|out| &mut out.bulk)
    }

    /// What the driver should know; ask until there is nothing.
    pub fn poll_event(&mut self) -> Option<Event<B, W>> {
        self.events.pop_front()
    }

    /// Ends everything: waiters are given back, and a Disconnect to send where a session is open.
    pub fn shut_down(&mut self, now: Instant) -> (Vec<W>, Option<Request>) {
        let restates = self.take_restates();
        let out = std::mem::take(&mut self.out).into_values().filter_map(|out| out.waiter);
        let waiters = out.chain(restates).collect();
        let request = self.state.is_connected().then(|| {
            let mut request = Request::new(Opcode::Disconnect, Vec::new());
            request.header.xid = self.xids.draw().0;
            request.header.session = self.session;
            request.header.epoch = self.epoch;
            request.header.instance = self.instance.0;
            request.header.target = self.target.to_u32();
            request.header.deadline_ms = millis(self.config.attempt);
            request
        });
        self.queue.clear();
        self.queue_modifying.clear();
        self.queue_control.clear();
        self.queue_passing.clear();
        self.queue_giving_up.clear();
        self.resend.clear();
        self.withdrawn.clear();
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
        self.durable_before = None;
        self.unrepeated = false;
        self.enter(State::Full, now);
        self.events.push_back(Event::Full);
    }
}

fn millis(span: Span) -> u32 {
    u32::try_from(span.as_millis()).unwrap_or(u32::MAX)
}

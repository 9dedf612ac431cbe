//! An MDT whose requests take CPU time: one core executes them, one at a time, in the order in
//! which the scheduler has chosen them.
//!
//! The code of the MDT takes no virtual time. So each request first waits until the core has done
//! the requests before it, and then for as long as it takes itself. Meanwhile it has its slot, as
//! in a daemon. Work of an MDT without a request takes no time.

use std::cell::Cell;
use std::rc::Rc;

use env::{Env, LocalFuture};
use service::{Class, ClientRecord, Exports, Incoming, Session, Target};
use types::{Errno, Extent, Fid, Instant, Span, TargetId};
use wire::body::ClosesReq;
use wire::{Opcode, Reply, Request};

/// CPU time of a request and its answer, of both sides: "ping, 64 in flight" of bench/README.md, as
/// measured at a8a611e0.
const MESSAGE: Span = Span(2_240);

/// CPU time of a create and its close at an MDT: docs/performance/metadata.md.
const CREATE_AND_CLOSE: Span = Span(10_000);

/// A create without its close.
const CHANGE: Span = Span(CREATE_AND_CLOSE.0 - MESSAGE.0);

/// CPU time of a request. A close costs a message. Opens and changes cost as much as a create, and
/// all others a message: they have not been measured alone.
fn cost(request: &Request) -> Span {
    match request.opcode() {
        Opcode::MdtClose => MESSAGE,
        Opcode::MdtCloses => {
            let closes = u64::from(request.body::<ClosesReq>().count);
            Span(MESSAGE.0.saturating_mul(closes))
        }
        opcode if opcode.modifies() => CHANGE,
        _ => MESSAGE,
    }
}

/// CPU time that requests have taken at all MDTs.
#[derive(Default)]
pub(crate) struct Meter(Cell<u64>);

impl Meter {
    fn count(&self, cost: Span) {
        self.0.set(self.0.get() + cost.0);
    }

    /// So far.
    pub(crate) fn total(&self) -> Span {
        Span(self.0.get())
    }
}

/// See the head of the file.
pub(crate) struct OneCore {
    env: Env,
    target: Rc<dyn Target>,
    /// When the core has done what it has.
    free: Cell<Instant>,
    meter: Rc<Meter>,
}

impl OneCore {
    pub(crate) fn new(env: &Env, target: Rc<dyn Target>, meter: &Rc<Meter>) -> OneCore {
        OneCore { env: env.clone(), target, free: Cell::default(), meter: meter.clone() }
    }

    /// Gives the core a request; when it is done.
    fn take(&self, cost: Span) -> Instant {
        self.meter.count(cost);
        let done = self.free.get().max(self.env.now()) + cost;
        self.free.set(done);
        done
    }
}

impl Target for OneCore {
    fn id(&self) -> TargetId {
        self.target.id()
    }

    fn exports(&self) -> Rc<Exports> {
        self.target.exports()
    }

    fn store_number(&self) -> u64 {
        self.target.store_number()
    }

    fn rpcs_in_flight(&self) -> u32 {
        self.target.rpcs_in_flight()
    }

    fn class(&self, request: &Request) -> Class {
        self.target.class(request)
    }

    fn is_awaited(&self, session: &Session, request: &Request) -> bool {
        self.target.is_awaited(session, request)
    }

    fn locate(self: Rc<Self>, object: Fid, range: Extent) -> LocalFuture<'static, Option<u64>> {
        self.target.clone().locate(object, range)
    }

    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply> {
        let done = self.take(cost(&incoming.request));
        Box::pin(async move {
            self.env.sleep_until(done).await;
            self.target.clone().handle(incoming).await
        })
    }

    fn remember_client(
        self: Rc<Self>,
        record: ClientRecord,
    ) -> LocalFuture<'static, Result<(), Errno>> {
        self.target.clone().remember_client(record)
    }

    fn note_clients(
        self: Rc<Self>,
        records: Vec<ClientRecord>,
        commits: bool,
    ) -> LocalFuture<'static, bool> {
        self.target.clone().note_clients(records, commits)
    }

    fn sessions_ended(
        self: Rc<Self>,
        sessions: Vec<Rc<Session>>,
        evicted: bool,
    ) -> LocalFuture<'static, ()> {
        self.target.clone().sessions_ended(sessions, evicted)
    }

    fn failed(&self) -> LocalFuture<'static, String> {
        self.target.failed()
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        self.target.clone().recovery_done()
    }
}

//! One target from the client's side: drives a [`ptlrpc::Import`] with links, timers and hooks.
//!
//! No borrow of the import is held across an await or a hook. [`Remote::pump`] carries out the
//! import's requests. It is called after everything that may have changed the import.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind::PermissionDenied;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use env::{LinkTx, LocalFuture};
use ptlrpc::{
    Event, Handled, Import, Lease, PeerMisbehaved, State, Submit, Transmit, Undone, XidSource,
};
use types::{Instance, Instant, Span, TargetId, TargetKind, Transno, Xid};
use wire::body::{Claim, OpenWord};
use wire::{BULK_BYTES_MAX, MessageError, Reply, Request, RequestFlags, RequestHeader};

use crate::bulk::{BulkState, Gauge, Unstable, concat};
use crate::callbacks::Callbacks;
use crate::outage::{Outage, Told};
use crate::promise::{Awaited, Promise, promise};
use crate::shared::{Core, SharedLink};
use crate::waiter::{Outcome, Waiter};
use crate::{Bulk, Call, CallError, OnCallback};

/// Tells the calls that state held locks again.
type Restate = Rc<dyn Fn() -> Vec<Call>>;
type AfterRestate = Rc<dyn Fn(&[Box<Reply>]) -> Option<LocalFuture<'static, ()>>>;
type BeforeRestate = Rc<dyn Fn() -> Option<LocalFuture<'static, ()>>>;

/// A request about the session, the number of its link, and who waits for its answer.
type ControlWait = (Xid, u64, Promise<Box<Reply>>);

/// Takes the answered changes that the target will not have.
type OnUndone = Rc<dyn Fn(&[Request], Undone)>;

/// A target, and the session with it.
pub struct Remote {
    pub(crate) core: Rc<Core>,
    pub(crate) target: TargetId,
    pub(crate) import: RefCell<Import<BulkState, Waiter>>,
    link: RefCell<Option<Rc<SharedLink>>>,
    callbacks: Callbacks,
    /// Who waits for the answer to Connect or Disconnect.
    control: RefCell<Option<ControlWait>>,
    wake: Rc<tokio::sync::Notify>,
    driven: Cell<bool>,
    pub(crate) active: Cell<bool>,
    on_evicted: RefCell<Option<Rc<dyn Fn()>>>,
    on_voided: RefCell<Option<Rc<dyn Fn()>>>,
    on_recovery: RefCell<Option<Restate>>,
    before_restate: RefCell<Option<BeforeRestate>>,
    after_restate: RefCell<Option<AfterRestate>>,
    /// How often it was asked for.
    restates: Cell<u64>,
    on_undone: RefCell<Option<OnUndone>>,
    pub(crate) gauge: Rc<Gauge>,
    pub(crate) commit_call: RefCell<Option<Call>>,
    pub(crate) committing: Cell<bool>,
    /// Attempts to connect that have failed.
    attempts: Cell<usize>,
    outage: RefCell<Outage>,
    /// Why the last attempt found no way to the target, where its machine said so.
    refusal: RefCell<Option<String>>,
}

impl Remote {
    pub(crate) fn new(core: Rc<Core>, target: TargetId, xids: XidSource) -> Rc<Remote> {
        let config = core.config.import.clone();
        let import = RefCell::new(Import::new(target, config, xids, core.env.now()));
        Rc::new(Remote {
            core,
            target,
            import,
            link: RefCell::default(),
            callbacks: Callbacks::default(),
            control: RefCell::default(),
            wake: Rc::default(),
            driven: Cell::new(false),
            active: Cell::new(true),
            on_evicted: RefCell::default(),
            on_voided: RefCell::default(),
            on_recovery: RefCell::default(),
            before_restate: RefCell::default(),
            after_restate: RefCell::default(),
            restates: Cell::new(0),
            on_undone: RefCell::default(),
            gauge: Rc::default(),
            commit_call: RefCell::default(),
            committing: Cell::new(false),
            attempts: Cell::new(0),
            outage: RefCell::default(),
            refusal: RefCell::default(),
        })
    }

    pub fn id(&self) -> TargetId {
        self.target
    }

    /// Everything up to here is durable at the target, as far as it told.
    pub fn last_committed(&self) -> Transno {
        self.import.borrow().last_committed()
    }

    /// The run of the target that was last talked to.
    pub fn instance(&self) -> Instance {
        self.import.borrow().instance()
    }

    /// What this client tells OSTs of the target, an MDT.
    pub fn claim(&self) -> Claim {
        self.import.borrow().claim()
    }

    /// Whether the target has heard of this client within its lease.
    pub fn is_leased(&self) -> bool {
        self.import.borrow().is_leased(self.core.env.now())
    }

    /// How long the target promises to wait for this client before others get what it holds.
    pub fn lease(&self) -> Lease {
        self.import.borrow().lease(self.core.env.now())
    }

    /// Gives `session` up with everything in it, if it is the present one: an OST has said that it
    /// is over.
    pub fn renounce(self: &Rc<Self>, session: u64) {
        let given_up = self.import.borrow_mut().renounce(session, self.core.env.now());
        if given_up {
            *self.link.borrow_mut() = None;
            self.wake.notify_one();
            self.pump();
        }
    }

    /// Why the machine of the target lets this one in no more, by its last answer. Another attempt
    /// may find another machine, or one that has changed its mind.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.borrow().clone()
    }

    /// Whether a session is open.
    pub fn is_connected(&self) -> bool {
        self.import.borrow().is_connected()
    }

    /// Whether no attempt to connect has ended so far: the target may be there or not.
    pub fn is_untried(&self) -> bool {
        self.attempts.get() == 0 && self.import.borrow().claim().session == 0
    }

    /// Whether a new call ends soon, as far as is known: the target is there and does not recover,
    /// or is out of use.
    pub fn answers(&self) -> bool {
        !self.active.get() || self.import.borrow().state() == State::Full
    }

    /// `FULL`, `REPLAY`, ... as the `import` parameter prints it.
    pub fn state(&self) -> String {
        let name = if self.active.get() { self.import.borrow().state().name() } else { "INACTIVE" };
        name.to_owned()
    }

    /// Written bytes that the target has not made durable.
    pub fn unstable_bytes(&self) -> u64 {
        self.gauge.bytes()
    }

    /// Answered changes and opens kept for replay.
    pub fn kept(&self) -> usize {
        self.import.borrow().kept()
    }

    /// Looks at the answered changes that are not known to be durable.
    pub fn unconfirmed<T>(&self, look: impl FnOnce(&mut dyn Iterator<Item = &Request>) -> T) -> T {
        look(&mut self.import.borrow().unconfirmed())
    }

    /// Called with each callback of the target, in the turn of the link's reader; what it answers
    /// with is awaited in a task of its own. It must not wait for what the target does only once
    /// the callback is answered. Without it callbacks are refused.
    pub fn on_callback(&self, handler: OnCallback) {
        self.callbacks.set_handler(handler);
    }

    /// Whether a callback with this header, from the link of this number, is in this session.
    pub(crate) fn is_called_by(&self, serial: u64, header: &RequestHeader) -> bool {
        let ours = self.link.borrow().as_ref().is_some_and(|link| link.serial == serial);
        ours && header.target == self.target.to_u32() && self.import.borrow().is_called_by(header)
    }

    pub(crate) fn handle_callback(
        &self,
        link: &LinkTx,
        request: Box<Request>,
    ) -> Result<(), MessageError> {
        self.callbacks.handle(&self.core.env, link, request)
    }

    /// Called when the session was lost with everything in it.
    pub fn on_evicted(&self, hook: Rc<dyn Fn()>) {
        *self.on_evicted.borrow_mut() = Some(hook);
    }

    /// Called when the target has said that what it gave before is void ([`Lease::floor`]), before
    /// any caller runs that a reply of that moment answers.
    pub fn on_voided(&self, hook: Rc<dyn Fn()>) {
        *self.on_voided.borrow_mut() = Some(hook);
    }

    /// Called with changes that were answered and are lost, each with the buffers of its reply
    /// behind its own.
    pub fn on_undone(&self, hook: OnUndone) {
        *self.on_undone.borrow_mut() = Some(hook);
    }

    /// Asked after replay, before ReplayDone: calls that restate locks.
    pub fn on_recovery(&self, hook: Rc<dyn Fn() -> Vec<Call>>) {
        *self.on_recovery.borrow_mut() = Some(hook);
    }

    /// Asked before that: what is to be over first. Until then this client takes part in no
    /// recovery of the target, and nothing of it is answered.
    pub fn before_restate(&self, hook: Rc<dyn Fn() -> Option<LocalFuture<'static, ()>>>) {
        *self.before_restate.borrow_mut() = Some(hook);
    }

    /// Called with the answers to the calls of [`Remote::on_recovery`], in their order. This client
    /// takes part in the recovery no further before what it returns is over.
    pub fn after_restate(&self, hook: AfterRestate) {
        *self.after_restate.borrow_mut() = Some(hook);
    }

    /// What this client knew to be durable before the recovery that the target is in.
    #[must_use]
    pub fn durable_before(&self) -> Transno {
        self.import.borrow().durable_before()
    }

    /// Open handles that no replay brings back: for [`Remote::on_recovery`].
    #[must_use]
    pub fn stated_opens(&self) -> Vec<OpenWord> {
        self.import.borrow().stated_opens()
    }

    /// The call that makes everything durable: sent when unstable bytes come near their bound.
    pub fn set_commit_call(&self, call: Call) {
        *self.commit_call.borrow_mut() = Some(call);
    }

    /// Takes the target out of use, or back. Inactive: calls fail at once, waiting ones too.
    pub fn set_active(&self, active: bool) {
        self.active.set(active);
        if !active {
            let tell = |waiter: &mut Waiter| waiter.tell(Outcome::Failed(CallError::Inactive));
            let forgotten = self.import.borrow_mut().abandon_all(tell);
            drop(forgotten); // not while the import is borrowed: what they hold may ask it
            self.gauge.fell.notify_waiters();
        }
    }

    /// For whom callers wait, and since when; nothing in normal service.
    pub fn waiting_on(&self) -> Option<String> {
        let import = self.import.borrow();
        if import.state() == State::Full || import.pending() == 0 {
            return None;
        }
        let doing = match import.state() {
            State::New | State::Connecting | State::Disconn => "reconnecting",
            _ => "recovering",
        };
        let secs = (self.core.env.now() - import.since()).as_millis() / 1_000;
        Some(format!("{} ({doing} for {secs} s)", self.target))
    }

    /// For which other clients a caller waits while the target is in service, as it has said.
    pub fn held_up_by(&self) -> Option<String> {
        let import = self.import.borrow();
        let awaited = import.awaits().filter(|_| import.state() == State::Full)?;
        Some(format!("{} (waits for {awaited})", self.target))
    }

    /// A request as its import takes it.
    pub(crate) fn prepare(&self, mut call: Call) -> (Submit<BulkState, Waiter>, Awaited<Outcome>) {
        let (waiter, outcome) = Waiter::new(&mut call);
        assert!(call.bulk.len() <= BULK_BYTES_MAX as usize, "checked before a request is made");
        let inline = self.core.config.inline_bytes as usize;
        let mut request = Box::new(Request::new(call.opcode, call.bufs));
        let mut bulk = BulkState::default();
        match call.bulk {
            Bulk::None => {}
            Bulk::Source(parts) => {
                let len: usize = parts.iter().map(Bytes::len).sum();
                bulk._unstable = Some(Unstable::new(&self.gauge, len));
                if len <= inline && request.bufs.len() == 1 {
                    request.bufs.push(concat(&parts));
                } else {
                    (bulk.source, bulk.source_len) = (parts, len as u32);
                }
            }
            Bulk::Sink(len) => {
                request.header.bulk_len = len as u32;
                bulk.sink = if len > inline { len as u32 } else { 0 };
            }
        }
        let header = &mut request.header;
        if call.modifies {
            header.flags |= RequestFlags::MODIFIES;
        }
        if call.sync {
            header.flags |= RequestFlags::SYNC;
        }
        (header.uid, header.gid) = (call.creds.uid, call.creds.gid);
        (header.projid, header.jobid) = (call.projid, call.jobid);
        request.groups = call.creds.groups;
        (Submit { request, bulk, waiter, keep: call.keep, urgent: call.urgent }, outcome)
    }

    /// The data that a server pulls.
    pub(crate) fn source(&self, xid: Xid) -> Option<Vec<Bytes>> {
        self.import.borrow_mut().bulk_mut(xid).map(|bulk| bulk.source.clone())
    }

    pub(crate) fn handle_reply(
        self: &Rc<Self>,
        serial: u64,
        reply: Box<Reply>,
        now: Instant,
    ) -> Result<(), PeerMisbehaved> {
        let xid = Xid(reply.header.xid);
        {
            let mut control = self.control.borrow_mut();
            if let Some((.., waiter)) = control.take_if(|(waits, ..)| *waits == xid) {
                waiter.keep(reply);
                return Ok(());
            }
        }
        if self.link.borrow().as_ref().is_none_or(|link| link.serial != serial) {
            return Ok(()); // of a session that has moved on
        }
        let handled = self.import.borrow_mut().handle_reply(reply, now)?;
        match handled {
            Handled::Progress => {}
            Handled::Reconnect => {
                *self.link.borrow_mut() = None;
                self.wake.notify_one();
            }
            Handled::Done(done) => {
                let ticket = done.bulk.and_then(|bulk| {
                    self.withdraw_data(&bulk);
                    bulk.ticket
                });
                if let Some(mut waiter) = done.waiter {
                    waiter.tell(Outcome::Done { reply: done.reply, ticket });
                }
            }
        }
        Ok(())
    }

    /// The request is over: its data is not pulled any more.
    fn withdraw_data(&self, bulk: &BulkState) {
        if bulk.id != 0 && bulk.sink == 0 {
            self.core.withdraw(bulk.id);
        }
    }

    /// Does what the import asks for, until it asks for nothing.
    pub(crate) fn pump(self: &Rc<Self>) {
        self.pump_at(self.core.env.now());
    }

    /// The same, where the caller has looked at the clock.
    pub(crate) fn pump_at(self: &Rc<Self>, now: Instant) {
        loop {
            self.transmit(now);
            let event = self.import.borrow_mut().poll_event();
            match event {
                None => return,
                Some(Event::Full) => {}
                Some(Event::Lost(mut waiter)) => {
                    waiter.tell(Outcome::Failed(CallError::Evicted));
                }
                Some(Event::Withdrawn { mut waiter, bulk }) => {
                    self.withdraw_data(&bulk);
                    waiter.tell(Outcome::Failed(CallError::Withdrawn));
                }
                Some(Event::Evicted) => {
                    self.tell_eviction();
                    let hook = self.on_evicted.borrow().clone();
                    if let Some(hook) = hook {
                        hook();
                    }
                }
                Some(Event::Undone { changes, why }) => {
                    let hook = self.on_undone.borrow().clone();
                    match hook {
                        Some(hook) => hook(&changes, why),
                        None => {
                            tracing::warn!(target_id = %self.name(), ?why, changes = changes.len(), "changes that were answered are lost");
                        }
                    }
                }
                Some(Event::AskRestate) => self.restate(),
                Some(Event::Voided) => {
                    let hook = self.on_voided.borrow().clone();
                    if let Some(hook) = hook {
                        hook();
                    }
                }
            }
        }
    }

    fn restate(self: &Rc<Self>) {
        let round = self.restates.get() + 1;
        self.restates.set(round);
        let hook = self.before_restate.borrow().clone();
        let Some(first) = hook.and_then(|hook| hook()) else { return self.restate_now() };
        let weak = Rc::downgrade(self);
        self.core.env.spawn("endpoint.restate", async move {
            first.await;
            let Some(remote) = weak.upgrade() else { return };
            if remote.is_restating(round) {
                remote.restate_now();
                remote.pump();
            }
        });
    }

    /// Whether the target still waits for what was begun to be stated in this round.
    fn is_restating(&self, round: u64) -> bool {
        self.import.borrow().state() == State::ReplayLocks && self.restates.get() == round
    }

    fn restate_now(self: &Rc<Self>) {
        let hook = self.on_recovery.borrow().clone();
        let mut outcomes = Vec::new();
        for call in hook.map(|hook| hook()).unwrap_or_default() {
            let (submit, outcome) = self.prepare(call);
            self.import.borrow_mut().restate(submit);
            outcomes.push(outcome);
        }
        match self.after_restate.borrow().clone() {
            Some(after) => self.restated_later(outcomes, after),
            None => self.import.borrow_mut().restated(),
        }
    }

    fn restated_later(self: &Rc<Self>, outcomes: Vec<Awaited<Outcome>>, after: AfterRestate) {
        let (weak, round) = (Rc::downgrade(self), self.restates.get());
        self.core.env.spawn("endpoint.restated", async move {
            let mut replies = Vec::new();
            for outcome in outcomes {
                match outcome.await {
                    Some(Outcome::Done { reply, .. }) => replies.push(reply),
                    Some(Outcome::Failed(_)) | None => return, // the next connection begins anew
                }
            }
            let is_awaited = || weak.upgrade().filter(|remote| remote.is_restating(round));
            if is_awaited().is_none() {
                return;
            }
            if let Some(last) = after(&replies) {
                last.await;
            }
            if let Some(remote) = is_awaited() {
                remote.import.borrow_mut().restated();
                remote.pump();
            }
        });
    }

    fn transmit(&self, now: Instant) {
        let link = self.link.borrow();
        let Some(link) = &*link else { return };
        let mut import = self.import.borrow_mut();
        while let Some(transmit) = import.poll_transmit(now) {
            self.draw_bulk(
                link,
                &transmit.request.xid(),
                transmit.bulk,
                &mut transmit.request.header,
            );
            let Transmit { request, .. } = transmit;
            if link.tx.send_message(request).is_err() {
                return; // the reader notices and disconnects
            }
        }
    }

    fn draw_bulk(
        &self,
        link: &SharedLink,
        xid: &Xid,
        bulk: &mut BulkState,
        header: &mut RequestHeader,
    ) {
        assert!(bulk.source_len == 0 || bulk.sink == 0, "data goes one way");
        if bulk.source_len > 0 {
            self.core.withdraw(bulk.id);
            bulk.id = self.core.offer(*xid);
            (header.bulk_id, header.bulk_len) = (bulk.id, bulk.source_len);
        } else if bulk.sink > 0 {
            bulk.id = self.core.draw_bulk_id();
            bulk.ticket = Some(link.tx.expect_bulk(bulk.id, bulk.sink as usize));
            header.bulk_id = bulk.id;
        }
    }

    pub(crate) fn link_ended(self: &Rc<Self>, serial: u64) {
        let ours = self.link.borrow().as_ref().is_some_and(|link| link.serial == serial);
        if ours {
            *self.link.borrow_mut() = None;
            self.import.borrow_mut().handle_disconnect(self.core.env.now());
            self.pump();
        }
        // a Connect or Disconnect on that link gets no answer any more
        drop(self.control.borrow_mut().take_if(|(_, on, _)| *on == serial));
        self.wake.notify_one();
    }

    /// Starts the task that connects, keeps time and pings.
    pub(crate) fn drive(self: &Rc<Self>) {
        if self.driven.replace(true) {
            if !self.import.borrow().is_connected() {
                self.wake.notify_one();
            }
            return;
        }
        let (env, wake) = (self.core.env.clone(), Rc::clone(&self.wake));
        let weak = Rc::downgrade(self);
        self.core.env.spawn("endpoint.driver", async move {
            while let Some(until) = Remote::step(&weak).await {
                env.timeout_at(until, wake.notified()).await;
            }
        });
    }

    /// One round of the driver; says when the next is due. `None`: nobody needs it any more.
    async fn step(weak: &Weak<Remote>) -> Option<Instant> {
        let remote = weak.upgrade()?;
        if remote.core.stopped.get() {
            return None;
        }
        let now = remote.core.env.now();
        remote.tell_outage(now);
        let uuid = remote.core.resolve.uuid(remote.target);
        let connect = if remote.active.get() {
            remote.import.borrow_mut().poll_connect(now, uuid)
        } else {
            None
        };
        if let Some(request) = connect {
            remote.connect(request).await;
        } else {
            let suspect = remote.import.borrow_mut().handle_timeout(now);
            if suspect {
                remote.drop_link(now);
            }
        }
        remote.pump();
        let now = remote.core.env.now();
        remote.tell_outage(now);
        let tick = now + remote.core.config.import.ping_dirty.min(Span::secs(1));
        let due = remote.import.borrow().poll_timeout();
        Some(due.map_or(tick, |due| due.min(tick)).max(now + Span::millis(1)))
    }

    /// Name of the target in the log.
    pub fn name(&self) -> String {
        self.core.resolve.name(self.target)
    }

    /// Says when the target is away, and when it is back. One that is out of use is nobody's loss.
    fn tell_outage(&self, now: Instant) {
        let is_connected = self.import.borrow().is_connected();
        let told = self.outage.borrow_mut().look(is_connected, now);
        if !self.active.get() {
            *self.outage.borrow_mut() = Outage::default();
            return;
        }
        let Some(told) = told else { return };
        let addrs = self.core.resolve.addrs(self.target);
        let addr = addrs
            .get(self.attempts.get() % addrs.len().max(1))
            .map_or_else(|| "no known address".to_owned(), ToString::to_string);
        let target = self.name();
        match told {
            Told::Lost | Told::NoAnswer(_) => {
                tracing::warn!("connection to {target} at {addr} {told}");
            }
            Told::Restored(_) | Told::Found(_) => {
                tracing::info!("connection to {target} at {addr} {told}");
            }
        }
    }

    /// Says what is lost with the session. The MGS and the self-test have neither files nor locks.
    /// The MGS evicts all clients with each restart.
    fn tell_eviction(&self) {
        let target_id = self.name();
        match self.target.kind {
            TargetKind::Mgt | TargetKind::Lst => {
                tracing::debug!(%target_id, "a new session: the last one had no open files or locks");
            }
            TargetKind::Mdt | TargetKind::Ost => {
                tracing::warn!(%target_id, "evicted: open files and locks of this session are void there");
            }
        }
    }

    /// After an attempt timed out: a link on which nothing arrived at all is closed for everybody.
    fn drop_link(&self, now: Instant) {
        if let Some(link) = self.link.borrow_mut().take()
            && now - link.heard.get() >= Span(self.core.config.import.attempt.0 / 2)
        {
            link.tx.close();
        }
    }

    async fn connect(self: &Rc<Self>, request: Request) {
        let attempt = self.core.config.import.attempt;
        let answer = self.core.env.timeout(attempt, self.connect_once(&request)).await;
        let connected = match answer {
            Some(Some((link, reply))) if link.tx.is_open() => {
                *self.link.borrow_mut() = Some(link);
                self.import.borrow_mut().handle_connected(&reply, self.core.env.now())
            }
            _ => {
                self.import.borrow_mut().handle_connect_failed(self.core.env.now());
                Ok(())
            }
        };
        if let Err(error) = connected {
            tracing::warn!(target_id = %self.name(), %error, "cannot connect");
        }
        if !self.import.borrow().is_connected() {
            *self.link.borrow_mut() = None;
            self.attempts.set(self.attempts.get().wrapping_add(1));
        }
    }

    async fn connect_once(
        self: &Rc<Self>,
        request: &Request,
    ) -> Option<(Rc<SharedLink>, Box<Reply>)> {
        let addrs = self.core.resolve.addrs(self.target);
        let addr = *addrs.get(self.attempts.get() % addrs.len().max(1))?;
        let made = self.core.link(addr).await;
        let denied = made.as_ref().err().filter(|error| error.kind() == PermissionDenied);
        *self.refusal.borrow_mut() = denied.map(ToString::to_string);
        let link = match made {
            Ok(link) => link,
            Err(error) => {
                tracing::debug!(target_id = %self.name(), %addr, %error, "no link");
                return None;
            }
        };
        let (waiter, wait) = promise();
        *self.control.borrow_mut() = Some((request.xid(), link.serial, waiter));
        let suspect = Suspect {
            link: &link,
            since: self.core.env.now(),
            env: &self.core.env,
            armed: Cell::new(true),
        };
        link.tx.send_message(request).ok()?;
        let reply = wait.await;
        suspect.armed.set(false);
        reply.map(|reply| (Rc::clone(&link), reply))
    }

    /// Ends the session; the receiver resolves when the target has agreed.
    pub(crate) fn begin_shutdown(&self) -> Option<Awaited<Box<Reply>>> {
        let (waiters, request) = self.import.borrow_mut().shut_down(self.core.env.now());
        for mut waiter in waiters {
            waiter.tell(Outcome::Failed(CallError::Shutdown));
        }
        self.gauge.fell.notify_waiters();
        self.wake.notify_one();
        let (request, link) = (request?, self.link.borrow_mut().take()?);
        let (waiter, wait) = promise();
        *self.control.borrow_mut() = Some((request.xid(), link.serial, waiter));
        link.tx.send_message(&request).ok()?;
        Some(wait)
    }
}

/// Closes a link on which Connect got no answer while nothing else arrived either.
struct Suspect<'a> {
    link: &'a SharedLink,
    since: Instant,
    env: &'a env::Env,
    armed: Cell<bool>,
}

impl Drop for Suspect<'_> {
    fn drop(&mut self) {
        let quiet = self.link.heard.get() <= self.since && self.env.now() > self.since;
        if self.armed.get() && quiet {
            self.link.tx.close();
        }
    }
}

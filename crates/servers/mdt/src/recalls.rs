//! Grants that are called back: sends recalls, wakes changes that waited, and lets leases end.
//! [`ldlm::grants::Mdt`] decides, and the engine asks it at each change.
//!
//! ```text
//! execute --begin--> executed                        a holder's client
//!            \-----> parked, Recall -----callback-------> gives up
//!                      ^  Ready <---acknowledgement--------/    or its lease ends
//! ```
//! A session's lease counts from when the MDT last heard from it. While a client leaves recalls
//! without an answer, replies stop renewing the lease and say so. If a lease ended in the way of a
//! change, each reply to that client has a floor from then on. By the client's own clock, the lease
//! may last. The floor is durable before the change goes on, so the next instance of the MDT
//! honours nothing of it either. If a client is evicted whose lease lasts, the next instance waits
//! for that lease, although it does not know the client.

mod shown;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use env::Env;
use ldlm::grants::{
    Ack, Bits, ChangeId, HolderId, Number, Output, PeerMisbehaved, RECALL_RESEND, Recall, Stated,
};
use osd::{Table, WriteSet};
use service::{ClientRecord, Exports};
use tokio::sync::{Mutex, Notify, oneshot};
use types::{Fid, Instant, Span};
use wire::body::{GrantAck, GrantBits, GrantWord};
use wire::grants::{self, Callback};

use crate::boot::Void;
use crate::engine::Engine;
use crate::limits::{LISTED_ALL_MAX, LISTED_MAX};
use crate::{keys, listed};

/// Stands for all sessions that an earlier instance has evicted and forgotten.
const UNKNOWN: HolderId = HolderId(u64::MAX);

/// See the head of the file.
pub(crate) struct Recalls {
    env: Env,
    engine: Rc<Engine>,
    exports: Rc<Exports>,
    /// Changes that wait.
    parked: RefCell<BTreeMap<ChangeId, Parked>>,
    last_change: Cell<u64>,
    /// When the timer that is set goes off.
    armed: Cell<Option<Instant>>,
    rearm: Notify,
    /// The store says that sessions were evicted whose leases may last.
    is_lapsing: Cell<bool>,
    /// Vectors are taken in the order in which they came, although the store cannot be read at
    /// times: after the last one of a client, nothing that it states is taken.
    pub(crate) stating: Mutex<()>,
    /// Since the start: changes that waited, grants that were called back, sessions that were not
    /// waited for.
    pub(crate) waits: Cell<u64>,
    pub(crate) recalled: Cell<u64>,
    pub(crate) expelled: Cell<u64>,
}

/// A change that waits.
struct Parked {
    ready: oneshot::Sender<()>,
    /// When it began to wait.
    since: Instant,
}

/// A change until it is executed or given up.
pub(crate) struct Changing {
    recalls: Rc<Recalls>,
    pub(crate) id: ChangeId,
    /// When it began to wait for the first time.
    since: Cell<Option<Instant>>,
    /// The log and its client know that it waits.
    is_told: Cell<bool>,
}

impl Changing {
    /// Completes when nothing is in its way any more; it is to be tried again then. `say` hears the
    /// names of the clients that it waits for, if that lasts.
    pub(crate) async fn ready(&self, say: impl Fn(&str)) {
        let since = self.since.get().unwrap_or(self.recalls.env.now());
        self.since.set(Some(since));
        let (ready, mut is_ready) = oneshot::channel();
        let before = self.recalls.parked.borrow_mut().insert(self.id, Parked { ready, since });
        assert!(before.is_none(), "a change waits once");
        self.recalls.drive(); // it may be ready by now
        if !self.is_told.get() {
            let tell_at = since + shown::TELL_AFTER;
            if self.recalls.env.timeout_at(tell_at, &mut is_ready).await.is_some() {
                return;
            }
            self.is_told.set(true);
            self.recalls.tell_wait(self.id, since, say);
        }
        let _over = is_ready.await;
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.recalls.parked.borrow_mut().remove(&self.id);
        self.recalls.engine.state.borrow_mut().grants.called.end(self.id);
    }
}

impl Recalls {
    pub(crate) fn new(env: &Env, engine: &Rc<Engine>, exports: &Rc<Exports>) -> Rc<Recalls> {
        Rc::new(Recalls {
            env: env.clone(),
            engine: engine.clone(),
            exports: exports.clone(),
            parked: RefCell::default(),
            last_change: Cell::new(0),
            armed: Cell::new(None),
            rearm: Notify::new(),
            is_lapsing: Cell::new(false),
            stating: Mutex::new(()),
            waits: Cell::new(0),
            recalled: Cell::new(0),
            expelled: Cell::new(0),
        })
    }

    /// A change begins.
    pub(crate) fn change(self: &Rc<Self>) -> Changing {
        self.last_change.set(self.last_change.get() + 1);
        let id = ChangeId(self.last_change.get());
        Changing { recalls: self.clone(), id, since: Cell::default(), is_told: Cell::default() }
    }

    /// When a session was heard of last, if it lasts.
    pub(crate) fn heard(&self, session: HolderId) -> Option<Instant> {
        self.exports.session(session.0).map(|session| session.heard())
    }

    /// Sessions of earlier runs: what they hold is not known where clients may hold what is called
    /// back.
    pub(crate) fn resume(&self, may_hold: bool, void: &Void) {
        let now = self.env.now();
        let called = &mut self.engine.state.borrow_mut().grants.called;
        called.set_recovering(self.exports.is_recovering());
        for session in self.exports.sessions().into_iter().filter(|session| !session.is_server) {
            let id = HolderId(session.id);
            if may_hold {
                called.expect(id, session.silent_before(), now);
                if let Some(files) = void.listed.get(&session.id) {
                    called.claims(id, files.clone());
                }
            } else {
                called.connect(id, now);
            }
            called.set_listed(id, void.listed.contains_key(&session.id));
            called.set_callbacks(id, true);
            session.set_leased(!may_hold);
            if may_hold && void.expelled.contains(&session.id) {
                called.void(id, now);
                session.set_leased(called.renews(id));
                session.set_floor(called.floor(id).0);
            }
        }
        self.is_lapsing.set(void.is_lapsing);
        if may_hold && void.is_lapsing {
            called.expect(UNKNOWN, Span::ZERO, now);
            called.evict(UNKNOWN, now);
        }
    }

    /// What each of these holds whose link is gone, for the next instance. Those that have a list
    /// keep it, because they are given nothing that it lacks. It is not taken from the reserve of a
    /// full store, because a start works without it.
    pub(crate) fn list(&self, records: &[ClientRecord]) {
        let (mut set, mut ids, mut room) = (WriteSet::new(), Vec::new(), LISTED_ALL_MAX);
        {
            let called = &self.engine.state.borrow().grants.called;
            for record in records.iter().filter(|record| record.silent) {
                let id = HolderId(record.session);
                let is_gone = self.exports.session(record.session).is_some_and(|session| {
                    !session.is_connected() && !session.is_absent() && !session.is_server
                });
                let files = called.files_of(id, room.min(LISTED_MAX)).filter(|_| is_gone);
                let Some(files) = files else { continue };
                assert!(files.len() <= room, "all lists of a set have a bound");
                room -= files.len();
                ids.push(id);
                set.put(Table::Meta, keys::listed(record.session), listed::encode(&files));
            }
        }
        if set.is_empty() {
            return;
        }
        if let Err(error) = self.engine.apply_own(&set) {
            tracing::debug!(%error, "the next start may wait for leases of silent clients");
            return;
        }
        let called = &mut self.engine.state.borrow_mut().grants.called;
        ids.into_iter().for_each(|id| called.set_listed(id, true));
    }

    /// The store has no list any more of those that are back.
    pub(crate) fn lists_end(&self, records: &[ClientRecord]) {
        let called = &mut self.engine.state.borrow_mut().grants.called;
        let back = records.iter().filter(|record| !record.silent);
        back.for_each(|record| called.set_listed(HolderId(record.session), false));
    }

    /// Says in the set that forgets an evicted session that its lease may last.
    pub(crate) fn remember_lapsing(&self, set: &mut WriteSet) {
        if self.engine.state.borrow().grants.called.is_lapsing() {
            set.put(Table::Meta, keys::META_LAPSING, []);
            self.is_lapsing.set(true);
        }
    }

    /// The store does not say so for longer than it is true.
    fn end_lapsing(&self) {
        if !self.is_lapsing.get() || self.engine.state.borrow().grants.called.is_lapsing() {
            return;
        }
        let mut set = target::from_reserve();
        set.delete(Table::Meta, keys::META_LAPSING);
        match self.engine.apply_own(&set) {
            Ok(()) => self.is_lapsing.set(false),
            Err(error) => tracing::debug!(%error, "the next start may wait for a lease in vain"),
        }
    }

    /// Makes it durable that a session was expelled. What it had passes on after that.
    fn record(self: &Rc<Self>, session: HolderId) {
        let recalls = self.clone();
        self.env.spawn("mdt_expelled", async move {
            if session != UNKNOWN && !recalls.recorded(session).await {
                return;
            }
            let now = recalls.env.now();
            recalls.engine.state.borrow_mut().grants.called.recorded(session, now);
            recalls.show_lease(session); // a new one begins
            recalls.drive();
        });
    }

    /// False: this instance is over.
    async fn recorded(&self, session: HolderId) -> bool {
        let mut set = target::from_reserve();
        set.put(Table::Meta, keys::expelled(session.0), []);
        while !self.engine.store.failure().has_happened() {
            let recorded = match self.engine.apply_when_ready(&set).await {
                Ok(()) => self.engine.commit().await,
                Err(error) => Err(error),
            };
            match recorded {
                Ok(upto) => {
                    self.exports.committed(upto);
                    return true;
                }
                Err(error) => {
                    tracing::warn!(target: "mdt", %error, "changes wait: the store does not take the end of a lease");
                    self.env.sleep(RECALL_RESEND).await;
                }
            }
        }
        false
    }

    /// A session begins.
    pub(crate) fn connect(&self, session: u64) {
        let now = self.env.now();
        let called = &mut self.engine.state.borrow_mut().grants.called;
        let id = HolderId(session);
        if !called.knows(id) {
            called.connect(id, now);
            called.set_callbacks(id, true);
        }
    }

    /// A session is over: evicted, or left by its client, which holds nothing then.
    pub(crate) fn end(self: &Rc<Self>, session: &service::Session, evicted: bool) {
        let now = self.env.now();
        let id = HolderId(session.id);
        {
            let called = &mut self.engine.state.borrow_mut().grants.called;
            if evicted {
                called.answered(id, session.heard());
                called.evict(id, now);
            } else {
                called.leave(id, now);
            }
        }
        self.drive();
    }

    /// The OSTs refuse a session that is over.
    pub(crate) fn fenced(self: &Rc<Self>, session: u64) {
        let now = self.env.now();
        self.engine.state.borrow_mut().grants.called.fenced(HolderId(session), now);
        self.drive();
    }

    /// The OSTs of one file do.
    pub(crate) fn fenced_of(self: &Rc<Self>, session: u64, fid: Fid) {
        let now = self.env.now();
        let called = &mut self.engine.state.borrow_mut().grants.called;
        called.fenced_of(HolderId(session), fid, now);
    }

    /// Recalls are acknowledged.
    pub(crate) fn ack(self: &Rc<Self>, session: u64, acks: &[GrantAck]) {
        let ack = |ack: &GrantAck| Ack { fid: ack.fid.into(), number: Number(ack.number) };
        let acks: Vec<_> = acks.iter().map(ack).collect();
        let now = self.env.now();
        self.engine.state.borrow_mut().grants.called.ack(HolderId(session), &acks, now);
        self.show_lease(HolderId(session));
        self.drive();
    }

    /// A client gives back what it has no use for.
    pub(crate) fn shed(self: &Rc<Self>, session: u64, shed: &[GrantWord]) {
        let now = self.env.now();
        let shed: Vec<_> = shed.iter().map(stated).collect();
        self.engine.state.borrow_mut().grants.called.shed(HolderId(session), &shed, now);
        self.show_lease(HolderId(session));
        self.drive();
    }

    /// What a client of the instance before holds; `is_last`: that is all of it. `credible`: what
    /// of each may be true. Returns what it goes on holding.
    pub(crate) fn restate(
        self: &Rc<Self>,
        session: u64,
        words: &[GrantWord],
        credible: &[Bits],
        is_last: bool,
    ) -> Result<Vec<GrantWord>, PeerMisbehaved> {
        let (now, session) = (self.env.now(), HolderId(session));
        let mut held: Vec<_> = words.iter().map(stated).collect();
        self.engine.state.borrow().grants.called.check_stated(session, &held)?;
        assert_eq!(held.len(), credible.len(), "each grant that was stated is judged");
        held.iter_mut().zip(credible).for_each(|(held, bits)| held.bits &= *bits);
        held.retain(|held| !held.bits.is_empty());
        {
            let called = &mut self.engine.state.borrow_mut().grants.called;
            called.restate_checked(session, &held, now);
            if is_last {
                called.restated(session, now);
            }
            held.iter_mut().for_each(|held| held.bits = called.goes_on(session, held));
        }
        assert!(held.len() <= words.len(), "no client goes on holding what it did not state");
        self.show_lease(session);
        self.drive();
        Ok(held.iter().filter(|held| !held.bits.is_empty()).map(word_of).collect())
    }

    /// Replies say whether they renew the lease, and which grants are void.
    fn show_lease(&self, session: HolderId) {
        let state = self.engine.state.borrow();
        let called = &state.grants.called;
        let (renews, floor) = (called.renews(session), called.floor(session));
        drop(state);
        if let Some(session) = self.exports.session(session.0) {
            session.set_leased(renews);
            session.set_floor(floor.0);
        }
    }

    /// Does what is to be done. To be called after each call of the table.
    pub(crate) fn drive(self: &Rc<Self>) {
        loop {
            let output = self.engine.state.borrow_mut().grants.called.poll_output();
            let Some(output) = output else { break };
            self.perform(output);
        }
        let next = self.engine.state.borrow().grants.called.poll_timeout();
        self.end_lapsing();
        if next.is_some_and(|next| self.armed.get().is_none_or(|armed| next < armed)) {
            self.rearm.notify_one();
        }
    }

    fn perform(self: &Rc<Self>, output: Output) {
        match output {
            Output::Ready(change) => {
                if let Some(parked) = self.parked.borrow_mut().remove(&change) {
                    let _gone = parked.ready.send(());
                }
            }
            Output::Record(session) => self.record(session),
            Output::Expelled { session: UNKNOWN, .. } => {}
            Output::Recall { session, recalls } => self.recall(session, &recalls),
            Output::Expelled { session, fence } => {
                if fence {
                    planted::reached("mdt: a client with writes of its own was given up");
                    self.exports.evict(session.0); // the end of its session fences it
                }
                planted::reached("mdt: a lease ended in somebody's way");
                self.expelled.set(self.expelled.get() + 1);
                self.show_lease(session);
                let name = self.exports.session(session.0).map(|session| session.name.clone());
                tracing::info!(target: "mdt", session = session.0, client = name.as_deref(), "a client's lease is over: its cache is void");
            }
        }
    }

    /// The table sends it again if it is not answered.
    fn recall(self: &Rc<Self>, id: HolderId, recalls: &[Recall]) {
        assert!(!recalls.is_empty(), "a recall names a grant");
        let Some(session) = self.exports.session(id.0) else { return };
        planted::reached("mdt: a grant was called back");
        let before = self.recalled.replace(self.recalled.get() + recalls.len() as u64);
        if self.engine.config.bugs.recall_skips_holder() && before.is_multiple_of(2) {
            let ack = |recall: &Recall| Ack { fid: recall.fid, number: recall.number };
            let acks: Vec<_> = recalls.iter().map(ack).collect();
            let now = self.env.now();
            self.engine.state.borrow_mut().grants.called.ack(id, &acks, now);
            return;
        }
        let callback = Callback::Recall(recalls.iter().map(word).collect());
        let calling = self.exports.call_back(&session, &callback, RECALL_RESEND);
        let recalls = Rc::downgrade(self);
        self.env.spawn("mdt_recall", async move {
            let acks = calling.await.map(|reply| grants::answered::<GrantAck>(&reply));
            let Some(recalls) = recalls.upgrade() else { return };
            match acks {
                Ok(Ok(acks)) => recalls.ack(id.0, &acks),
                Ok(Err(error)) => {
                    tracing::warn!(%error, "a client's answer to a recall cannot be understood")
                }
                Err(error) => tracing::debug!(%error, "a recall is not answered"),
            }
        });
    }

    /// Time passes for the table, as long as the MDT lives.
    pub(crate) async fn run(self: Rc<Self>, is_stopped: impl Fn() -> bool) {
        loop {
            let next = self.engine.state.borrow().grants.called.poll_timeout();
            self.armed.set(next);
            match next {
                Some(next) => drop(self.env.timeout_at(next, self.rearm.notified()).await),
                None => self.rearm.notified().await,
            }
            if is_stopped() {
                return;
            }
            self.pass();
        }
    }

    /// Lets the background task see that the instance is over.
    pub(crate) fn wake(&self) {
        self.rearm.notify_one();
    }

    fn pass(self: &Rc<Self>) {
        let awaited = self.engine.state.borrow().grants.called.awaited();
        let now = self.env.now();
        {
            let mut state = self.engine.state.borrow_mut();
            for session in &awaited {
                state.grants.heard_of(*session, self.heard(*session));
            }
            state.grants.called.handle_timeout(now);
        }
        awaited.into_iter().for_each(|session| self.show_lease(session));
        self.drive();
    }
}

fn word(recall: &Recall) -> GrantWord {
    GrantWord {
        fid: recall.fid.into(),
        number: recall.number.0,
        bits: GrantBits::from_bits_truncate(recall.bits.bits().into()),
        ..GrantWord::default()
    }
}

fn word_of(held: &Stated) -> GrantWord {
    GrantWord {
        fid: held.fid.into(),
        number: held.number.0,
        bits: GrantBits::from_bits_truncate(held.bits.bits().into()),
        ..GrantWord::default()
    }
}

fn stated(word: &GrantWord) -> Stated {
    let bits = Bits::from_bits_truncate(word.bits.bits() as u8);
    Stated { fid: word.fid.into(), bits, number: Number(word.number) }
}

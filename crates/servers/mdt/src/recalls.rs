//! Grants that are called back: sends recalls, wakes changes that waited, and lets leases end.
//! [`ldlm::grants::Mdt`] decides what is to be done; the engine asks it at each change.
//!
//! ```text
//! execute --begin--> executed                        a holder's client
//!            \-----> parked, Recall -----callback-------> gives up
//!                      ^  Ready <---acknowledgement--------/    or its lease ends
//! ```
//! A session's lease counts from when the MDT last heard from it. While a client leaves recalls
//! without an answer, replies stop renewing the lease and say so. After a lease has ended in the
//! way of a change, each reply to that client has a floor, because by the client's own clock the
//! lease may last.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use env::Env;
use ldlm::grants::{
    Ack, Bits, ChangeId, HolderId, Number, Output, PeerMisbehaved, RECALL_RESEND, Recall, Stated,
};
use service::Exports;
use tokio::sync::{Notify, oneshot};
use types::{Fid, Instant};
use wire::body::{GrantAck, GrantBits, GrantWord};
use wire::grants::{self, Callback};

use crate::engine::Engine;

/// See the head of the file.
pub(crate) struct Recalls {
    env: Env,
    engine: Rc<Engine>,
    exports: Rc<Exports>,
    /// Changes that wait.
    parked: RefCell<BTreeMap<ChangeId, oneshot::Sender<()>>>,
    last_change: Cell<u64>,
    /// When the timer that is set goes off.
    armed: Cell<Option<Instant>>,
    rearm: Notify,
    /// Since the start: changes that waited, grants that were called back, sessions that were not
    /// waited for.
    pub(crate) waits: Cell<u64>,
    pub(crate) recalled: Cell<u64>,
    pub(crate) expelled: Cell<u64>,
}

/// A change until it is executed or given up.
pub(crate) struct Changing {
    recalls: Rc<Recalls>,
    pub(crate) id: ChangeId,
}

impl Changing {
    /// Completes when nothing is in its way any more; it is to be tried again then.
    pub(crate) async fn ready(&self) {
        let (tell, told) = oneshot::channel();
        let before = self.recalls.parked.borrow_mut().insert(self.id, tell);
        assert!(before.is_none(), "a change waits once");
        self.recalls.drive(); // it may be ready by now
        let _over = told.await;
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
            waits: Cell::new(0),
            recalled: Cell::new(0),
            expelled: Cell::new(0),
        })
    }

    /// A change begins.
    pub(crate) fn change(self: &Rc<Self>) -> Changing {
        self.last_change.set(self.last_change.get() + 1);
        Changing { recalls: self.clone(), id: ChangeId(self.last_change.get()) }
    }

    /// When a session was heard of last, if it lasts.
    pub(crate) fn heard(&self, session: HolderId) -> Option<Instant> {
        self.exports.session(session.0).map(|session| session.heard())
    }

    /// Sessions of earlier runs: what they hold is not known where clients may hold what is called
    /// back.
    pub(crate) fn resume(&self, may_hold: bool) {
        let now = self.env.now();
        let called = &mut self.engine.state.borrow_mut().grants.called;
        called.set_recovering(self.exports.is_recovering());
        for session in self.exports.sessions().into_iter().filter(|session| !session.is_server) {
            let id = HolderId(session.id);
            if may_hold {
                called.expect(id, session.silent_before(), now);
            } else {
                called.connect(id, now);
            }
            called.set_callbacks(id, true);
            session.set_leased(!may_hold);
        }
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

    /// What a client of the instance before holds; `is_last`: that is all of it. Returns what it
    /// goes on holding.
    pub(crate) fn restate(
        self: &Rc<Self>,
        session: u64,
        words: &[GrantWord],
        is_last: bool,
    ) -> Result<Vec<GrantWord>, PeerMisbehaved> {
        let now = self.env.now();
        let held: Vec<_> = words.iter().map(stated).collect();
        let is_held = {
            let called = &mut self.engine.state.borrow_mut().grants.called;
            called.restate(HolderId(session), &held, now)?;
            if is_last {
                called.restated(HolderId(session), now);
            }
            let goes_on = |held: &Stated| {
                !held.bits.is_empty()
                    && called.bits_of(HolderId(session), held.fid).contains(held.bits)
            };
            held.iter().map(goes_on).collect::<Vec<_>>()
        };
        assert_eq!(words.len(), is_held.len(), "each grant that was stated is judged");
        self.show_lease(HolderId(session));
        self.drive();
        let stated = words.iter().zip(is_held);
        Ok(stated.filter(|(_, is_held)| *is_held).map(|(word, _)| *word).collect())
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
        if next.is_some_and(|next| self.armed.get().is_none_or(|armed| next < armed)) {
            self.rearm.notify_one();
        }
    }

    fn perform(self: &Rc<Self>, output: Output) {
        match output {
            Output::Ready(change) => {
                if let Some(ready) = self.parked.borrow_mut().remove(&change) {
                    let _gone = ready.send(());
                }
            }
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
        self.recalled.set(self.recalled.get() + recalls.len() as u64);
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

fn stated(word: &GrantWord) -> Stated {
    let bits = Bits::from_bits_truncate(word.bits.bits() as u8);
    Stated { fid: word.fid.into(), bits, number: Number(word.number) }
}

//! One MDT being served: its parts, and what is common to its requests and tasks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use endpoint::Endpoint;
use env::Env;
use ldlm::grants::Mode;
use osd::{StoreError, Table, WriteSet};
use service::{Exports, Seldom};
use target::Decided;
use tokio::sync::Notify;
use types::{ClientId, Errno, Fid};

use crate::background::answered::Answered;
use crate::cross::{Deliveries, Guests};
use crate::engine::Engine;
use crate::keys;
use crate::locks::Locks;
use crate::recalls::Recalls;
use crate::silent::Silent;
use crate::tally::Tally;

pub struct Mdt {
    pub(crate) env: Env,
    pub(crate) engine: Rc<Engine>,
    pub(crate) osts: Option<Rc<Endpoint>>,
    pub(crate) destroys_grew: Notify,
    /// Records of the destroy log below this were searched for OSTs.
    pub(crate) destroys_seen: Cell<u64>,
    pub(crate) destroys_answered: Answered,
    pub(crate) exports: Rc<Exports>,
    pub(crate) locks: Rc<Locks>,
    pub(crate) recalls: Rc<Recalls>,
    /// Operations of other MDTs that have reserved something here.
    pub(crate) guests: Guests,
    /// Operations of several MDTs that this one coordinates.
    pub(crate) deliveries: Deliveries,
    /// An OST refuses a client whose session has ended.
    pub(crate) fences_fell: Notify,
    /// The log says that too many of them wait.
    pub(crate) fences_said: Seldom,
    /// Clients that do not tell sizes.
    pub(crate) silent: RefCell<Silent>,
    pub(crate) tally: Tally,
    pub(crate) stopped: Cell<bool>,
}

/// What an MDT holds in memory for clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Open files.
    pub open_handles: usize,
    /// Ranges that are locked.
    pub locks_held: usize,
    /// Requests that wait for a lock.
    pub locks_waiting: usize,
    /// Short leases.
    pub leases_held: usize,
    /// Changes that waited for another client's lease since the start.
    pub lease_waits: u64,
    /// Grants that are called back.
    pub grants_held: usize,
    /// Those that were, since the start.
    pub grants_recalled: u64,
    /// Changes that waited for that.
    pub grant_waits: u64,
    /// Sessions whose lease ended in somebody's way.
    pub grants_expelled: u64,
}

impl Mdt {
    /// The device that it pretends to be on, if there is one.
    #[must_use]
    pub fn device(&self) -> &target::Device {
        self.engine.store.device()
    }

    /// Ends this instance as if its storage had failed: it is of no use without another target.
    pub fn fail(&self, reason: &str) {
        self.engine.store.failure().fail(reason);
    }

    /// Commits and ends the background tasks; an error when the last changes are not durable.
    pub async fn stop(self: &Rc<Self>) -> Result<(), StoreError> {
        self.stopped.set(true);
        self.part_from_peers();
        let committed = self.engine.commit().await.map(|upto| self.exports.committed(upto));
        self.engine.wake_all();
        self.recalls.wake();
        self.locks.wake();
        self.deliveries.wake();
        self.engine.state.borrow().moves.wanted.notify_one();
        self.destroys_grew.notify_waiters();
        self.engine.state.borrow().spaces.wanted.notify_one();
        self.engine.state.borrow().mdts.wanted.notify_one();
        self.engine.state.borrow().som.wake();
        committed
    }

    /// What is held in memory for clients.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (locks_held, locks_waiting) = self.locks.counts();
        let mut state = self.engine.state.borrow_mut();
        Counts {
            open_handles: state.opens.len(),
            locks_held,
            locks_waiting,
            leases_held: state.grants.count(self.env.now()),
            lease_waits: self.engine.store.lease_waits(),
            grants_held: state.grants.called.count(),
            grants_recalled: self.recalls.recalled.get(),
            grant_waits: self.recalls.waits.get(),
            grants_expelled: self.recalls.expelled.get(),
        }
    }

    /// Which clients' changes wait for which clients' grants, a line each.
    #[must_use]
    pub fn grants_waiting_on(&self) -> Vec<String> {
        self.recalls.waiting_on()
    }

    /// Gives this kind of grants from now on. Before the first that is called back, the store says
    /// so: after a restart nobody else knows what clients hold.
    pub(crate) fn set_grants(&self, mode: Mode) {
        let is_recorded = {
            let grants = &mut self.engine.state.borrow_mut().grants;
            grants.set_mode(mode);
            grants.is_recorded()
        };
        if mode == Mode::Recall && !is_recorded {
            let recorded = record_calls(self.engine.clone(), self.exports.clone());
            self.env.spawn("mdt_calls_back", recorded);
        }
    }

    /// Directories and shards of this MDT whose names are to move.
    #[doc(hidden)]
    #[must_use]
    pub fn names_to_move(&self) -> Vec<types::Fid> {
        self.engine.state.borrow().moves.all().into_iter().map(|(dir, _)| dir).collect()
    }

    /// How often this run has looked whether operations of several MDTs are durable everywhere.
    #[doc(hidden)]
    #[must_use]
    pub fn looks_at_deliveries(&self) -> u64 {
        self.deliveries.looks.get()
    }

    /// Whether and when directories are split by themselves from now on.
    #[doc(hidden)]
    pub fn set_split(&self, split: crate::Split) {
        self.engine.state.borrow_mut().split = split;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get() || self.engine.store.failure().has_happened()
    }

    /// Makes everything so far durable and tells the sessions.
    pub(crate) async fn commit(&self) -> Result<(), Errno> {
        let upto = self.engine.commit().await.map_err(|error| error.errno())?;
        self.exports.committed(upto);
        Ok(())
    }

    /// Tries until `attempt` succeeds or cannot ([`target::Store::persist`]).
    pub(crate) async fn persist<T>(&self, attempt: impl FnMut() -> Decided<T>) -> Result<T, Errno> {
        let engine = &self.engine;
        let done = engine.store.persist(&self.env, async || self.commit().await, attempt).await;
        if engine.store.failure().has_happened() {
            engine.wake_all();
        }
        done
    }

    /// Lets go of what an ended session held.
    pub(crate) async fn let_go(self: &Rc<Self>, client: ClientId, session: u64) {
        let closed = self.engine.close_session(client, session);
        // During recovery somebody else may still re-open them; its end sweeps.
        if !self.exports.is_recovering() {
            self.sweep(&closed).await;
        }
        if !self.engine.config.bugs.keep_lapsed_locks() {
            self.locks.drop_session(session);
        }
        self.recalls.fenced(session);
    }
}

/// The parts of an ended session that pass on before its end.
impl Mdt {
    /// Lets go of what an ended session held of one file.
    pub(crate) async fn let_go_of(self: &Rc<Self>, client: ClientId, session: u64, fid: Fid) {
        let was_open = self.engine.close_file(client, session, fid);
        if was_open && !self.exports.is_recovering() {
            self.sweep(&[fid]).await;
        }
        if !self.engine.config.bugs.keep_lapsed_locks() {
            self.locks.drop_file(session, fid);
        }
        self.recalls.fenced_of(session, fid);
    }
}

/// Says durably that clients may hold what is called back; it is given from then on.
async fn record_calls(engine: Rc<Engine>, exports: Rc<Exports>) {
    let mut set = WriteSet::new();
    set.put(Table::Meta, keys::META_CALLS_BACK, []);
    let recorded = match engine.apply_when_ready(&set).await {
        Ok(()) => engine.commit().await,
        Err(error) => Err(error),
    };
    match recorded {
        Ok(upto) => {
            exports.committed(upto);
            engine.state.borrow_mut().grants.recorded(true);
        }
        Err(error) => {
            tracing::warn!(target: "mdt", %error, "grants end by time: the store takes no record");
        }
    }
}

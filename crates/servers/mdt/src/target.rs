//! The target from the service layer's side: sessions around the engine, and requests that wait.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use endpoint::Endpoint;
use env::{Env, LocalFuture};
use ldlm::grants::{ChangeId, Mode};
use osd::{MetaStore, StoreError, Table, WriteSet};
use service::{
    Class, ClientRecord, Exports, ExportsConfig, Incoming, Seldom, Session, Target, spec,
};
use target::{Decided, StartError};
use tokio::sync::Notify;
use types::{ClientId, Errno, Fid, TargetId, Transno};
use wire::{Reply, Request, RequestFlags};

use crate::attempt::Attempted;
use crate::boot::{self, Seed};
use crate::cross::{Coordinator, Deliveries, Delivery, Guests, Halves, Needs};
use crate::engine::{Engine, History};
use crate::limits::{HELD_WAIT, LONG_ANSWER_MAX};
use crate::locks::Locks;
use crate::op::{Caller, Run};
use crate::puts::Putting;
use crate::recalls::{Changing, Recalls};
use crate::spaces::OstAt;
use crate::tally::Tally;
use crate::writers::Silent;
use crate::{MdtConfig, background, keys, op, som};

pub struct Mdt {
    pub(crate) env: Env,
    pub(crate) engine: Rc<Engine>,
    pub(crate) osts: Option<Rc<Endpoint>>,
    pub(crate) destroys_grew: Notify,
    /// Records of the destroy log below this were searched for OSTs.
    pub(crate) destroys_seen: Cell<u64>,
    pub(crate) destroys_answered: background::destroy::Answered,
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
    fences_said: Seldom,
    /// Clients that do not tell sizes.
    pub(crate) silent: RefCell<Silent>,
    pub(crate) tally: Tally,
    stopped: Cell<bool>,
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

/// The history of the session that a request belongs to.
struct Sessions<'a> {
    exports: &'a Exports,
    incoming: &'a Incoming,
}

impl History for Sessions<'_> {
    fn next(&self) -> Transno {
        self.exports.next_transno(self.incoming)
    }

    fn record(&self, transno: Transno, reply: &mut Reply) -> (Vec<u8>, Vec<u8>) {
        self.exports.record(self.incoming, transno, reply)
    }
}

impl Mdt {
    /// Opens what `store` holds (a fresh store gets its root directory), raises the epoch and
    /// starts the background tasks. `osts`: asking side for destroys; `ost_list`: the OSTs that
    /// there are.
    pub async fn start(
        env: &Env,
        config: MdtConfig,
        store: Rc<dyn MetaStore>,
        osts: Option<Rc<Endpoint>>,
        ost_list: Rc<dyn Fn() -> Vec<OstAt>>,
    ) -> Result<Rc<Mdt>, StartError> {
        let seed = Seed {
            words: [env.random(), env.random()],
            round_robin: env.random(),
            store: env.random(),
            now: env.wall(),
            clock: env.now(),
        };
        let booted = boot::boot(&store, &config, &seed).await?;
        let exports = Exports::new(
            env,
            ExportsConfig {
                target: TargetId::mdt(config.index),
                instance: booted.instance,
                known: booted.known,
                replies: booted.replies,
                last_committed: booted.state.last_transno,
                recovery_window: config.recovery_window,
                recovery_window_max: config.recovery_window_max,
                abort_recovery: config.abort_recovery,
                has_more_to_recover: osts.is_some() && !booted.state.crossed.peers.is_empty(),
                lease: config.lease,
                silence_max: config.silence_max,
            },
        );
        let lock_place = config.lock_place;
        let mdts = osts.clone();
        let mdt_list = move || mdts.as_ref().map_or_else(Vec::new, |endpoint| endpoint.mdts());
        let engine = Rc::new(Engine::new(config, store, booted.state, ost_list, Rc::new(mdt_list)));
        let recalls = Recalls::new(env, &engine, &exports);
        recalls.resume(booted.may_hold, &booted.void);
        let mdt = Rc::new(Mdt {
            env: env.clone(),
            engine,
            osts,
            destroys_grew: Notify::new(),
            destroys_seen: Cell::new(0),
            destroys_answered: background::destroy::Answered::default(),
            exports,
            locks: Locks::new(env, lock_place),
            recalls,
            guests: Guests::default(),
            deliveries: Deliveries::default(),
            fences_fell: Notify::new(),
            fences_said: Seldom::default(),
            silent: RefCell::default(),
            tally: Tally::default(),
            stopped: Cell::new(false),
        });
        mdt.engine.store.device().set(env, 0, mdt.engine.config.device.clone());
        mdt.start_committing();
        mdt.start_recalls();
        for record in booted.crossed {
            mdt.deliver(Rc::new(record), Transno::NONE);
        }
        if mdt.osts.is_some() {
            for lapsed in booted.lapsed {
                mdt.engine.state.borrow_mut().fences.begin(&lapsed, true);
                mdt.let_go_later(lapsed);
            }
            for session in mdt.exports.sessions() {
                mdt.engine.state.borrow_mut().fences.returned(session.client);
            }
            env.spawn("mdt_destroy", background::destroy::run(mdt.clone()));
            env.spawn("mdt_spaces", background::spaces::run(mdt.clone()));
            env.spawn("mdt_mdts", background::mdts::run(mdt.clone()));
            env.spawn("mdt_updates", mdt.clone().end_deliveries());
            env.spawn("mdt_moves", background::moves::run(mdt.clone()));
            env.spawn("mdt_som", som::run(mdt.clone()));
            env.spawn("mdt_som_scrub", som::scrub::run(mdt.clone()));
            if mdt.engine.config.index != 0 {
                env.spawn("mdt_root", background::root::run(mdt.clone()));
            }
        }
        if !mdt.exports.is_recovering() || mdt.engine.config.bugs.sweep_orphans_early() {
            mdt.sweep_orphans().await;
        }
        Ok(mdt)
    }

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

    /// Whether all is durable that was applied, and known to be: a commit may take along what was
    /// applied after it was asked for.
    fn is_durable(&self) -> bool {
        let state = self.engine.state.borrow();
        self.engine.store.meta().dirty_bytes() == 0
            && self.exports.last_committed() >= state.last_transno
            && self.engine.destroys_durable.get() >= state.destroy_next
    }

    fn start_recalls(self: &Rc<Self>) {
        let (recalls, mdt) = (self.recalls.clone(), Rc::downgrade(self));
        let is_stopped = move || mdt.upgrade().is_none_or(|mdt| mdt.is_stopped());
        self.env.spawn("mdt_recalls", recalls.run(is_stopped));
    }

    fn start_committing(self: &Rc<Self>) {
        let commit = async |mdt: Rc<Mdt>| {
            if mdt.is_stopped() {
                return false;
            }
            mdt.is_durable() || mdt.commit().await.is_ok()
        };
        let engine = &self.engine;
        let task = engine.pace.start(&self.env, "mdt_commit", Rc::downgrade(self), commit);
        drop(task); // it ends with the MDT
    }

    async fn run(self: Rc<Self>, incoming: Incoming) -> Reply {
        let request = &incoming.request;
        let began = self.env.now();
        let as_of = Cell::new(Transno::NONE);
        let outcome = match op::row(request.opcode()).map(|row| &row.run) {
            Some(Run::Serve(serve)) => serve(&self, &incoming).await,
            Some(Run::Decide(_)) => self.execute(&incoming, &as_of).await,
            None => Err(Errno::EOPNOTSUPP),
        };
        let mut reply = outcome.unwrap_or_else(|errno| Reply::error(&request.header, errno));
        reply.header.as_of = as_of.get().0;
        self.read_on_open(&incoming, &mut reply).await;
        self.ask_writers(&incoming, &mut reply).await;
        let now = self.env.now();
        self.tally.count(now, now - began, request, &reply);
        self.engine.store.failure().unless_over(reply).await
    }

    /// One operation of the namespace; waits for commits as it must. `as_of` becomes the last
    /// change when it was decided: what it answers, a refusal too, is so from then on.
    async fn execute(
        self: &Rc<Self>,
        incoming: &Incoming,
        as_of: &Cell<Transno>,
    ) -> Result<Reply, Errno> {
        let request = &incoming.request;
        let may_wait = request.opcode().modifies()
            || op::caching::is_exact(request)
            || op::permits::reads_by_mode(request);
        let changing = may_wait.then(|| self.recalls.change());
        let mut coordinator = Coordinator::new(self);
        let outcome = self.decide(incoming, as_of, changing.as_ref(), &mut coordinator).await;
        // of this operation: nothing was awaited since it was applied
        let is_stretched = std::mem::take(&mut self.engine.state.borrow_mut().is_stretched);
        if changing.is_some() {
            drop(changing);
            self.recalls.drive(); // a lease may have ended in its way, also if it was refused
        }
        let (reply, delivery) = outcome?;
        if let Some(delivery) = delivery {
            incoming.step_aside();
            self.executed(&delivery).await;
        }
        if is_stretched || (request.has(RequestFlags::SYNC) && request.opcode().modifies()) {
            self.commit().await?;
        }
        Ok(reply)
    }

    /// Tries until the operation is applied or refused. Where other MDTs have parts in it, these
    /// are on their way then; a replay does not wait for them.
    async fn decide(
        self: &Rc<Self>,
        incoming: &Incoming,
        as_of: &Cell<Transno>,
        changing: Option<&Changing>,
        coordinator: &mut Coordinator,
    ) -> Result<(Reply, Option<Rc<Delivery>>), Errno> {
        let request = &incoming.request;
        let mut read = Halves::default();
        let mut putting = Putting::default();
        loop {
            if !coordinator.is_current() {
                coordinator.begin_again();
            }
            let attempted = self
                .persist(|| self.attempt(incoming, as_of, changing, coordinator, (&read, &putting)))
                .await?;
            let attempted = match self.put_step(incoming, attempted, &mut putting).await? {
                Some(attempted) => attempted,
                None => continue,
            };
            match attempted {
                Attempted::Done(reply, None) => return Ok((reply, None)),
                Attempted::Done(reply, Some((record, transno))) => {
                    coordinator.applied(&record);
                    let delivery = self.deliver(record, transno);
                    return Ok((reply, Some(delivery).filter(|_| !incoming.is_replay())));
                }
                Attempted::Parked => {
                    planted::reached("mdt: a change waited for what was called back");
                    self.recalls.waits.set(self.recalls.waits.get() + 1);
                    incoming.park();
                    let changing = changing.expect("what only reads waits for nobody");
                    changing.ready(|names| incoming.say_awaited(names)).await;
                }
                Attempted::Unfenced => {
                    planted::reached("mdt: a file waited for the fence of a lost client");
                    incoming.step_aside();
                    let _looks_again =
                        self.env.timeout(HELD_WAIT, self.fences_fell.notified()).await;
                }
                Attempted::Held(changes) => {
                    coordinator.begin_again(); // who waits has nothing that others wait for
                    coordinator.will_change(changes);
                    incoming.step_aside();
                    let _looks_again =
                        self.env.timeout(HELD_WAIT, self.guests.freed.notified()).await;
                }
                Attempted::Half(ops) => {
                    planted::reached("mdt: a read waited for an operation of several MDTs");
                    self.other_halves(incoming, &ops, &mut read).await;
                }
                Attempted::Writes(_) | Attempted::Unordered | Attempted::Brought => {
                    unreachable!("the step before has gone on with it")
                }
                Attempted::Needs(needs) => {
                    let acquired = coordinator.acquire(needs, Some(incoming)).await;
                    match acquired {
                        Err(errno) if coordinator.goes_elsewhere(errno, request.opcode()) => {}
                        acquired => acquired?,
                    }
                }
            }
        }
    }

    fn attempt(
        &self,
        incoming: &Incoming,
        as_of: &Cell<Transno>,
        changing: Option<&Changing>,
        coordinator: &Coordinator,
        (read, putting): (&Halves, &Putting),
    ) -> Decided<Attempted> {
        if incoming.session.is_ended() {
            return Err(Errno::ESTALE.into()); // what it holds was let go during a wait
        }
        if !coordinator.is_current() {
            return Ok(Attempted::Needs(Needs::default())); // it begins again
        }
        if putting.written().is_some_and(|written| !self.engine.may_apply(written)) {
            return Ok(Attempted::Unordered);
        }
        let heard = |session| self.recalls.heard(session);
        let id = incoming.session.id;
        let locked = |fid| self.locks.is_file_held_by_another(id, fid);
        let begun = self.env.now();
        let is_long = || self.env.now() - begun >= LONG_ANSWER_MAX;
        let caller = Caller {
            request: &incoming.request,
            client: incoming.session.client,
            session: id,
            creds: incoming.creds(),
            replay: incoming.is_replay(),
            recovering: self.exports.is_recovering(),
            now: self.env.wall(),
            clock: begun,
            change: changing.map_or(ChangeId(0), |changing| changing.id),
            crossing: &coordinator.crossing,
            passed: &read.passed,
            heard: &heard,
            locked: &locked,
            is_long: &is_long,
            put: putting.written(),
        };
        let history = Sessions { exports: &self.exports, incoming };
        let decided = self.engine.attempt(&caller, &history);
        as_of.set(self.exports.last_assigned());
        decided
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

    async fn remember(&self, record: ClientRecord) -> Result<(), Errno> {
        {
            let fences = &mut self.engine.state.borrow_mut().fences;
            if fences.are_too_many(record.client) {
                if self.fences_said.is_due(self.env.now()) {
                    tracing::warn!(target: "mdt", client = %record.client, "no new session: too many fences wait for OSTs that are away");
                }
                return Err(Errno::EBUSY);
            }
            fences.returned(record.client);
        }
        let set = target::remember(&record);
        self.persist(|| Ok(self.engine.apply_own(&set)?)).await?;
        self.commit().await?;
        if !record.is_server {
            self.recalls.connect(record.session);
        }
        Ok(())
    }

    async fn end_sessions(self: &Rc<Self>, sessions: &[Rc<Session>], evicted: bool) {
        for session in sessions {
            self.recalls.end(session, evicted);
        }
        for session in sessions {
            self.end_session(session).await;
        }
        let _failed = self.commit().await;
    }

    /// Ends a session; the caller commits.
    async fn end_session(self: &Rc<Self>, session: &Session) {
        let is_unsure = self.exports.is_recovering() || session.is_absent();
        self.locks.end_waits(session.id);
        let lapsed = self.lapsed(session, is_unsure).await.unwrap_or_else(|errno| {
            tracing::error!(target: "mdt", client = %session.client, %errno, "records of the objects of an ended client cannot be read");
            None
        });
        match &lapsed {
            Some(lapsed) => self.engine.state.borrow_mut().fences.begin(lapsed, is_unsure),
            None => self.let_go(session.client, session.id).await,
        }
        let forget = || {
            let view = self.engine.store.meta().running()?;
            let mut set = target::forget(&*view, session.client, session.id)?;
            drop(view);
            set.delete(Table::Meta, keys::expelled(session.id));
            lapsed.iter().for_each(|lapsed| lapsed.remember(&mut set));
            self.recalls.remember_lapsing(&mut set);
            Ok(self.engine.apply_own(&set)?)
        };
        if let Err(errno) = self.persist(forget).await {
            tracing::warn!(target: "mdt", client = %session.client, %errno, "records of an ended client stay until the next start");
        }
        lapsed.into_iter().for_each(|lapsed| self.let_go_later(lapsed));
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

impl Target for Mdt {
    fn id(&self) -> TargetId {
        TargetId::mdt(self.engine.config.index)
    }

    fn failed(&self) -> LocalFuture<'static, String> {
        self.engine.store.failure().happened()
    }

    fn exports(&self) -> Rc<Exports> {
        self.exports.clone()
    }

    fn store_number(&self) -> u64 {
        self.engine.state.borrow().number
    }

    fn class(&self, request: &Request) -> Class {
        let service = op::row(request.opcode()).map_or(&spec::MDT, |row| row.service);
        Class::of(service).answering(op::answer_bytes(request))
    }

    fn is_awaited(&self, session: &Session, request: &Request) -> bool {
        op::hurried::is_awaited(self, session.id, request)
    }

    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply> {
        Box::pin(self.run(incoming))
    }

    fn remember_client(
        self: Rc<Self>,
        record: ClientRecord,
    ) -> LocalFuture<'static, Result<(), Errno>> {
        Box::pin(async move {
            let remembered = self.remember(record).await;
            self.engine.store.failure().unless_over(remembered).await
        })
    }

    fn note_clients(
        self: Rc<Self>,
        records: Vec<ClientRecord>,
        commits: bool,
    ) -> LocalFuture<'static, bool> {
        Box::pin(async move {
            let note = || {
                let set = target::note(&*self.engine.store.meta().running()?, &records)?;
                Ok(self.engine.apply_own(&set)?)
            };
            let noted = self.persist(note).await;
            let noted = if commits && noted.is_ok() { self.commit().await } else { noted };
            let is_noted = noted.is_ok();
            if let Err(errno) = noted {
                tracing::warn!(target: "mdt", %errno, "records of clients do not say who is silent");
            }
            is_noted
        })
    }

    fn sessions_ended(
        self: Rc<Self>,
        sessions: Vec<Rc<Session>>,
        evicted: bool,
    ) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            for session in sessions.iter().filter(|_| evicted) {
                tracing::info!(target: "mdt", client = %session.client, name = %session.name, "client evicted");
            }
            self.end_sessions(&sessions, evicted).await;
            self.engine.store.failure().unless_over(()).await;
        })
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            let now = self.env.now();
            self.engine.state.borrow_mut().grants.called.replayed(now);
            self.roll_forward().await;
            self.sweep_orphans().await;
            let _failed = self.commit().await;
            let now = self.env.now(); // clients said nothing meanwhile, and it may wait for MDTs
            self.engine.state.borrow_mut().grants.called.recovered(now);
            self.engine.store.failure().unless_over(()).await;
        })
    }
}

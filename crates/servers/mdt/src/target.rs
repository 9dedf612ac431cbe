//! The target as the service layer sees it: sessions around the engine, and what waits.

use std::cell::Cell;
use std::rc::Rc;

use endpoint::Endpoint;
use env::{Env, LocalFuture};
use osd::{MetaStore, StoreError, Table};
use service::{Class, ClientRecord, Exports, ExportsConfig, Incoming, Session, Target, spec};
use target::{Decided, StartError};
use tokio::sync::Notify;
use types::{Errno, Fid, TargetId, Transno};
use wire::body::{FidReq, LockRep, LockReq, SyncRep, lock};
use wire::{Opcode, Reply, Request, RequestFlags, encode_body};

use crate::boot::{self, Seed};
use crate::engine::{Caller, Engine, History};
use crate::locks::{Locked, Locks, Wanted};
use crate::spaces::OstAt;
use crate::tally::Tally;
use crate::{Lod, MdtConfig, background, op};

/// Orphans that one transaction sweeps.
const SWEEP_BATCH: usize = 256;

pub struct Mdt {
    pub(crate) env: Env,
    pub(crate) engine: Rc<Engine>,
    pub(crate) osts: Option<Rc<Endpoint>>,
    pub(crate) destroys_grew: Notify,
    /// Records of the destroy log below this were searched for OSTs.
    pub(crate) destroys_seen: Cell<u64>,
    /// No record of the destroy log stands below this.
    pub(crate) destroys_low: Cell<u64>,
    pub(crate) destroys_answered: background::destroy::Answered,
    exports: Rc<Exports>,
    locks: Rc<Locks>,
    tally: Tally,
    stopped: Cell<bool>,
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
                lease: config.lease,
            },
        );
        let lock_place = config.lock_place;
        let mdt = Rc::new(Mdt {
            env: env.clone(),
            engine: Rc::new(Engine::new(config, store, booted.state, ost_list)),
            osts,
            destroys_grew: Notify::new(),
            destroys_seen: Cell::new(0),
            destroys_low: Cell::new(0),
            destroys_answered: background::destroy::Answered::default(),
            exports,
            locks: Locks::new(env, lock_place),
            tally: Tally::default(),
            stopped: Cell::new(false),
        });
        mdt.start_committing();
        if mdt.osts.is_some() {
            env.spawn("mdt_destroy", background::destroy::run(mdt.clone()));
            env.spawn("mdt_spaces", background::spaces::run(mdt.clone()));
        }
        if !mdt.exports.is_recovering() {
            mdt.sweep_orphans().await;
        }
        Ok(mdt)
    }

    /// Completes with the reason when the store failed: the instance is over.
    pub fn failed(&self) -> LocalFuture<'static, String> {
        self.engine.store.failure().happened()
    }

    /// Commits and ends the background tasks; an error when the last changes are not durable.
    pub async fn stop(self: &Rc<Self>) -> Result<(), StoreError> {
        self.stopped.set(true);
        let committed = self.engine.commit().await.map(|upto| self.exports.committed(upto));
        self.engine.wake_all();
        self.destroys_grew.notify_waiters();
        self.engine.state.borrow().spaces.wanted.notify_one();
        committed
    }

    /// Open handles, held lock ranges, waiting lock requests: for parameters and tests.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        let (held, waiting) = self.locks.counts();
        (self.engine.state.borrow().opens.len(), held, waiting)
    }

    /// Operations that succeeded since the start, as text.
    #[must_use]
    pub fn md_stats(&self) -> String {
        self.tally.render(self.env.wall())
    }

    /// Where files go for which nobody asked.
    #[must_use]
    pub fn lod(&self) -> Lod {
        self.engine.state.borrow().lod
    }

    /// Sets it, from the next file on.
    ///
    /// # Errors
    /// What is out of bounds, in words.
    pub fn set_lod(&self, lod: Lod) -> Result<(), String> {
        lod.template().check().map_err(|error| error.to_string())?;
        self.engine.state.borrow_mut().lod = lod;
        Ok(())
    }

    /// Whether clients may believe what they were told for a moment; see [`Mdt::set_short_leases`].
    #[must_use]
    pub fn short_leases(&self) -> bool {
        self.engine.state.borrow().leases.is_enabled()
    }

    /// Gives short leases, or none any more.
    pub fn set_short_leases(&self, enabled: bool) {
        self.engine.state.borrow_mut().leases.enable(enabled);
    }

    /// Leases that are held, and changes that waited for one since the start.
    #[must_use]
    pub fn lease_counts(&self) -> (usize, u64) {
        (self.engine.state.borrow().leases.len(), self.engine.store.lease_waits())
    }

    /// Forgets what was counted.
    pub fn clear_md_stats(&self) {
        self.tally.clear();
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

    fn start_committing(self: &Rc<Self>) {
        let commit = async |mdt: Rc<Mdt>| {
            if mdt.is_stopped() {
                return false;
            }
            mdt.engine.store.meta().dirty_bytes() == 0 || mdt.commit().await.is_ok()
        };
        let engine = &self.engine;
        let task = engine.pace.start(&self.env, "mdt_commit", Rc::downgrade(self), commit);
        drop(task); // it ends with the MDT
    }

    async fn run(self: Rc<Self>, incoming: Incoming) -> Reply {
        let request = &incoming.request;
        let outcome = match request.opcode() {
            Opcode::MdtLock | Opcode::MdtUnlock => self.lock(&incoming).await,
            Opcode::MdtStatfs => self.statfs(request).await,
            Opcode::MdtSync => self.sync(request).await,
            _ => self.execute(&incoming).await,
        };
        let reply = outcome.unwrap_or_else(|errno| Reply::error(&request.header, errno));
        self.tally.count(request, &reply);
        self.engine.store.failure().unless_over(reply).await
    }

    /// One operation of the namespace; waits for commits as it must.
    async fn execute(&self, incoming: &Incoming) -> Result<Reply, Errno> {
        let request = &incoming.request;
        let history = Sessions { exports: &self.exports, incoming };
        let attempt = || {
            let caller = Caller {
                request,
                client: incoming.session.client,
                session: incoming.session.id,
                creds: incoming.creds(),
                replay: incoming.is_replay(),
                recovering: self.exports.is_recovering(),
                now: self.env.wall(),
                clock: self.env.now(),
            };
            self.engine.attempt(&caller, &history)
        };
        let reply = self.persist(attempt).await?;
        if request.has(RequestFlags::SYNC) && op::modifies(request.opcode()) {
            self.commit().await?;
        }
        Ok(reply)
    }

    /// Tries until `attempt` succeeds or cannot ([`target::Store::persist`]).
    async fn persist<T>(&self, attempt: impl FnMut() -> Decided<T>) -> Result<T, Errno> {
        let engine = &self.engine;
        let done = engine.store.persist(&self.env, async || self.commit().await, attempt).await;
        if engine.store.failure().has_happened() {
            engine.wake_all();
        }
        done
    }

    async fn lock(&self, incoming: &Incoming) -> Result<Reply, Errno> {
        let request = &incoming.request;
        let body: LockReq = request.body();
        let mut wanted = Wanted::decode(&body, incoming.session.client)?;
        wanted.unlock |= request.opcode() == Opcode::MdtUnlock;
        let restate = self.exports.is_recovering();
        if !wanted.unlock && !restate {
            self.check_exists(Fid::from(body.fid)).await?;
        }
        let told = |rep| Reply::ok(&request.header, vec![encode_body(&rep)]);
        if restate && self.engine.config.bugs.lose_lock_restate && !wanted.unlock {
            return Ok(told(LockRep { state: lock::GRANTED, ..LockRep::default() }));
        }
        match self.locks.ask(&wanted, restate)? {
            Locked::Now(rep) => {
                if rep.state == lock::REFUSED {
                    let blockers = self.locks.clients_in_the_way(&wanted.request);
                    blockers.into_iter().for_each(|client| self.exports.evict_if_dead(client));
                }
                Ok(told(rep))
            }
            Locked::Later(parked) => {
                incoming.park();
                Ok(told(parked.answer(|client| self.exports.evict_if_dead(client)).await))
            }
        }
    }

    async fn check_exists(&self, fid: Fid) -> Result<(), Errno> {
        let found = || Ok(self.engine.store.meta().running()?.get(Table::Inodes, &fid.to_key())?);
        self.persist(found).await?.map(|_| ()).ok_or(Errno::ESTALE)
    }

    async fn sync(&self, request: &Request) -> Result<Reply, Errno> {
        if !self.engine.config.bugs.ack_sync_before_commit {
            self.commit().await?; // joins a commit under way; costs nothing where nothing is dirty
        }
        // A sync of everything: whoever removed files to make room finds it.
        if self.osts.is_some() && Fid::from(request.body::<FidReq>().fid) == Fid::ZERO {
            background::destroy::room_is_back(self).await;
        }
        let rep = SyncRep { last_committed: self.exports.last_committed().0, reserved: 0 };
        Ok(Reply::ok(&request.header, vec![encode_body(&rep)]))
    }

    async fn statfs(&self, request: &Request) -> Result<Reply, Errno> {
        let space = self.persist(|| Ok(self.engine.store.meta().space()?)).await?;
        Ok(Reply::ok(&request.header, vec![encode_body(&target::statfs(space, 1))]))
    }

    /// Removes the open-unlinked files that nobody has open.
    async fn sweep_orphans(&self) {
        let mut from = vec![0];
        loop {
            let Ok(batch) = self.persist(|| Ok(self.orphans(&from)?)).await else { return };
            let Some(last) = batch.last() else { return };
            self.sweep(&batch).await;
            from = last.to_key().to_vec();
            from.push(0);
        }
    }

    /// Removes the orphans among `fids` that nobody has open, in sets as large as the store takes.
    async fn sweep(&self, fids: &[Fid]) {
        let (mut rest, mut at_once) = (fids, SWEEP_BATCH);
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(at_once.min(rest.len()));
            match self.persist(|| self.engine.sweep(batch)).await {
                Ok(gone) => {
                    tracing::debug!(target: "mdt", gone, "orphans swept");
                    rest = later;
                }
                Err(Errno::ENOSPC) if batch.len() > 1 => at_once = batch.len() / 2,
                Err(errno) => {
                    tracing::warn!(target: "mdt", left = rest.len(), %errno, "orphans stay until the next start");
                    return;
                }
            }
        }
    }

    fn orphans(&self, from: &[u8]) -> Result<Vec<Fid>, StoreError> {
        let view = self.engine.store.meta().running()?;
        let mut found = Vec::new();
        view.scan(Table::Orphans, from, &mut |key, _| {
            found.extend(Fid::from_key(key));
            found.len() < SWEEP_BATCH
        })?;
        Ok(found)
    }

    async fn remember(&self, record: ClientRecord) -> Result<(), Errno> {
        let set = target::remember(&record);
        self.persist(|| Ok(self.engine.apply_own(&set)?)).await?;
        self.commit().await
    }

    async fn end_session(&self, session: &Session) {
        let closed = self.engine.close_session(session.client, session.id);
        // During recovery somebody else may still re-open them; its end sweeps.
        if !self.exports.is_recovering() {
            self.sweep(&closed).await;
        }
        self.locks.drop_client(session.client);
        let forget = || {
            let view = self.engine.store.meta().running()?;
            let set = target::forget(&*view, session.client, session.id)?;
            drop(view);
            Ok(self.engine.apply_own(&set)?)
        };
        if let Err(errno) = self.persist(forget).await {
            tracing::warn!(target: "mdt", client = %session.client, %errno, "its records stay until the next start");
        }
        let _failed = self.commit().await;
    }
}

impl Target for Mdt {
    fn id(&self) -> TargetId {
        TargetId::mdt(self.engine.config.index)
    }

    fn exports(&self) -> Rc<Exports> {
        self.exports.clone()
    }

    fn class(&self, request: &Request) -> Class {
        let service = match request.opcode() {
            Opcode::MdtReaddir | Opcode::MdtClose => &spec::MDT_READPAGE,
            Opcode::MdtUnlock => &spec::LDLM_CANCELD,
            _ => &spec::MDT,
        };
        Class::of(service)
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

    fn session_ended(
        self: Rc<Self>,
        session: Rc<Session>,
        evicted: bool,
    ) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            if evicted {
                tracing::info!(target: "mdt", client = %session.client, name = %session.name, "client evicted");
            }
            self.end_session(&session).await;
        })
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            self.sweep_orphans().await;
            let _failed = self.commit().await;
        })
    }
}

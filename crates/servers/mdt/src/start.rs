//! The start of an MDT, and its tasks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use endpoint::Endpoint;
use env::{Env, LocalFuture};
use osd::MetaStore;
use service::{Exports, ExportsConfig, Seldom};
use target::StartError;
use tokio::sync::Notify;
use types::{TargetId, Transno};

use crate::background::answered::Answered;
use crate::boot::{self, Seed};
use crate::cross::{Deliveries, Guests};
use crate::engine::Engine;
use crate::locks::Locks;
use crate::recalls::Recalls;
use crate::spaces::OstAt;
use crate::tally::Tally;
use crate::target::Mdt;
use crate::{MdtConfig, background, som};

impl Mdt {
    /// Opens what `store` holds (a fresh store gets its root directory), raises the epoch and
    /// starts the background tasks. `osts`: asking side for destroys; `ost_list`: the OSTs that
    /// there are.
    ///
    /// Boxed here: a future is compiled where it is boxed or polled. So an MDT's tasks are compiled
    /// in this crate, and not in every crate that starts one.
    pub fn start(
        env: &Env,
        config: MdtConfig,
        store: Rc<dyn MetaStore>,
        osts: Option<Rc<Endpoint>>,
        ost_list: Rc<dyn Fn() -> Vec<OstAt>>,
    ) -> LocalFuture<'_, Result<Rc<Mdt>, StartError>> {
        Box::pin(Mdt::open(env, config, store, osts, ost_list))
    }

    async fn open(
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
        exports.set_fsname(config.fsname);
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
            destroys_answered: Answered::default(),
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
        mdt.start_lock_calls();
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
            env.spawn("mdt_som_scrub", som::scrubbing::run(mdt.clone()));
            if mdt.engine.config.index != 0 {
                env.spawn("mdt_root", background::root::run(mdt.clone()));
            }
        }
        if !mdt.exports.is_recovering() || mdt.engine.config.bugs.sweep_orphans_early() {
            mdt.sweep_orphans().await;
        }
        Ok(mdt)
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

    fn start_lock_calls(self: &Rc<Self>) {
        let (locks, exports, mdt) = (self.locks.clone(), self.exports.clone(), Rc::downgrade(self));
        let is_stopped = move || mdt.upgrade().is_none_or(|mdt| mdt.is_stopped());
        self.env.spawn("mdt_lock_calls", locks.call_clients(exports, is_stopped));
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
}

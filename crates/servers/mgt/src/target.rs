//! The MGT being served: its part of the service's `Target` trait.

use std::rc::Rc;

use env::{Env, LocalFuture};
use osd::{MetaStore, StoreError, View, WriteSet};
use params::ParamTree;
use service::spec::MGS;
use service::{Class, ClientRecord, Exports, ExportsConfig, Incoming, Session, Target};
use target::{Decided, Place, StartError, Store};
use types::{Errno, FsName, MDTS_MAX, TargetId, TargetKind, Transno};
use wire::config::FsConfig;
use wire::{Opcode, Reply, Request};

use crate::op::pool::PoolChange;
use crate::{MgtConfig, op, record};

/// The MGT being served.
pub struct Mgt {
    env: Env,
    store: Store,
    pub(crate) exports: Rc<Exports>,
}

impl Mgt {
    /// Boots: raises the epoch durably.
    pub async fn start(
        env: &Env,
        config: MgtConfig,
        meta: Rc<dyn MetaStore>,
    ) -> Result<Rc<Mgt>, StartError> {
        let instance = target::begin(&*meta, TargetKind::Mgt, WriteSet::new()).await?;
        let exports = ExportsConfig {
            target: TargetId::MGT,
            instance,
            known: Vec::new(),
            replies: Vec::new(),
            last_committed: Transno::NONE,
            recovery_window: config.recovery_window,
            recovery_window_max: config.recovery_window,
            abort_recovery: true,
            has_more_to_recover: false,
            lease: config.lease,
            silence_max: config.lease,
        };
        let store = Store::new(TargetId::MGT, meta);
        Ok(Rc::new(Mgt { env: env.clone(), store, exports: Exports::new(env, exports) }))
    }

    /// Commits everything. Serve nothing afterwards.
    pub async fn stop(&self) -> Result<(), StoreError> {
        self.store.commit().await
    }

    /// Registers its parameters in `tree`.
    pub fn register_params(&self, tree: &ParamTree, place: &Place) {
        target::register_params(tree, place, &self.exports);
    }

    /// Sets a permanent parameter of a file system, or of all that are known here; without a value
    /// it is deleted. Durable when it returns. Says which file systems there are.
    ///
    /// # Errors
    /// ENOENT where none is known (of that name), EINVAL for what is no text of a bounded length,
    /// E2BIG over the bound.
    pub async fn set_param(
        &self,
        fsname: Option<FsName>,
        name: &str,
        value: Option<&str>,
    ) -> Result<Vec<FsName>, Errno> {
        let names = match fsname {
            Some(name) => vec![name],
            None => self.look(record::fs_names).await?,
        };
        if names.is_empty() {
            return Err(Errno::ENOENT);
        }
        for fsname in &names {
            op::set_param::store(self, *fsname, name, value.unwrap_or_default()).await?;
        }
        Ok(names)
    }

    /// Takes a target out of the configuration of its file system, durably; an OST is out of use
    /// from then on, and in no pool. Its storage is not touched.
    ///
    /// # Errors
    /// ENOENT where it is not known, EPERM for what a file system cannot do without, E2BIG where a
    /// pool without it would be over the bounds.
    pub async fn forget(&self, fsname: FsName, target: TargetId) -> Result<(), Errno> {
        let mdt = target.dom_of().unwrap_or(target);
        let is_spare = target.is_ost() || (mdt.kind == TargetKind::Mdt && mdt.index >= MDTS_MAX);
        if !is_spare {
            return Err(Errno::EPERM);
        }
        op::forget::forget(self, fsname, target).await
    }

    /// Changes a pool of OSTs, durably.
    ///
    /// # Errors
    /// EINVAL for a name that no pool can have, EEXIST for a pool or member that is there, ENOENT
    /// where file system, pool or member is not, ENODEV for an OST that never registered,
    /// ENOTEMPTY where a pool with members is to go, E2BIG over the bounds.
    pub async fn pool(&self, fsname: FsName, pool: &str, change: PoolChange) -> Result<(), Errno> {
        op::pool::change(self, fsname, pool, change).await
    }

    /// The configurations of all file systems that are known here.
    ///
    /// # Errors
    /// EIO where they cannot be read.
    pub async fn configs(&self) -> Result<Vec<(FsName, FsConfig)>, Errno> {
        self.look(|view| {
            let all = record::fs_names(view)?.into_iter();
            all.map(|name| Ok((name, record::fs_config(view, name)?))).collect()
        })
        .await
    }

    /// Reads, decides and changes in one go, and makes it durable. What `decide` refuses changes
    /// nothing.
    pub(crate) async fn change<T>(
        &self,
        decide: impl Fn(&dyn View) -> Decided<(WriteSet, T)>,
    ) -> Result<T, Errno> {
        let attempt = || {
            let (set, value) = decide(&*self.store.meta().running()?)?;
            if !set.changes.is_empty() {
                self.store.meta().apply(&set)?;
            }
            Ok(value)
        };
        let value = self.store.persist(&self.env, async || self.commit().await, attempt).await?;
        // Also without a change: an earlier one of the same content may not be durable yet.
        self.commit().await?;
        Ok(value)
    }

    /// Reads; waits while a commit is under way.
    pub(crate) async fn look<T>(
        &self,
        read: impl Fn(&dyn View) -> Result<T, StoreError>,
    ) -> Result<T, Errno> {
        self.store.look(read).await
    }

    async fn commit(&self) -> Result<(), Errno> {
        self.store.commit().await.map_err(|error| error.errno())
    }

    async fn execute(self: Rc<Self>, incoming: Incoming) -> Reply {
        let done = match (incoming.check_role(), incoming.request.opcode()) {
            (Err(errno), _) => Err(errno),
            (_, Opcode::MgsRegister) => op::register::execute(&self, &incoming).await,
            (_, Opcode::MgsConfig) => op::config::execute(&self, &incoming).await,
            (_, Opcode::MgsSetParam) => op::set_param::execute(&self, &incoming).await,
            _ => Err(Errno::EOPNOTSUPP),
        };
        let reply = done.unwrap_or_else(|errno| Reply::error(&incoming.request.header, errno));
        self.store.failure().unless_over(reply).await
    }
}

impl Target for Mgt {
    fn id(&self) -> TargetId {
        TargetId::MGT
    }

    fn failed(&self) -> LocalFuture<'static, String> {
        self.store.failure().happened()
    }

    fn exports(&self) -> Rc<Exports> {
        self.exports.clone()
    }

    fn class(&self, _request: &Request) -> Class {
        Class::of(&MGS).answering(wire::config::CONFIG_BYTES_MAX as u64)
    }

    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply> {
        Box::pin(self.execute(incoming))
    }

    fn remember_client(
        self: Rc<Self>,
        _record: ClientRecord,
    ) -> LocalFuture<'static, Result<(), Errno>> {
        // A session here holds nothing that would have to outlive this instance.
        Box::pin(async { Ok(()) })
    }

    fn sessions_ended(
        self: Rc<Self>,
        _sessions: Vec<Rc<Session>>,
        _evicted: bool,
    ) -> LocalFuture<'static, ()> {
        Box::pin(async {})
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async {})
    }
}

//! The MGT being served, and what the service asks of it.

use std::cell::RefCell;
use std::rc::Rc;

use env::{Env, LocalFuture};
use osd::{MetaStore, StoreError, View, WriteSet};
use service::spec::MGS;
use service::{Class, ClientRecord, Exports, ExportsConfig, Incoming, Session, Target};
use tokio::sync::Notify;
use types::{Errno, FsName, TargetId, Transno};
use wire::{Opcode, Reply, Request};

use crate::{MgtConfig, StartError, op, record};

#[derive(Default)]
struct Failure {
    reason: RefCell<Option<String>>,
    told: Notify,
}

/// The MGT being served.
pub struct Mgt {
    meta: Rc<dyn MetaStore>,
    exports: Rc<Exports>,
    failure: Rc<Failure>,
}

impl Mgt {
    /// Boots: raises the epoch durably.
    pub async fn start(
        env: &Env,
        config: MgtConfig,
        meta: Rc<dyn MetaStore>,
    ) -> Result<Rc<Mgt>, StartError> {
        let instance = crate::boot::boot(&*meta).await?;
        let exports = ExportsConfig {
            target: TargetId::MGT,
            instance,
            known: Vec::new(),
            replies: Vec::new(),
            last_committed: Transno::NONE,
            recovery_window: config.recovery_window,
            recovery_window_max: config.recovery_window,
            abort_recovery: true,
            lease: config.lease,
        };
        Ok(Rc::new(Mgt { meta, exports: Exports::new(env, exports), failure: Rc::default() }))
    }

    /// Commits everything. Serve nothing afterwards.
    pub async fn stop(&self) -> Result<(), StartError> {
        Ok(self.meta.commit().await?)
    }

    /// Completes with the reason when the storage failed: the instance must end and boot anew.
    pub fn failed(&self) -> LocalFuture<'static, String> {
        let failure = self.failure.clone();
        Box::pin(async move {
            loop {
                let told = failure.told.notified();
                if let Some(reason) = failure.reason.borrow().clone() {
                    return reason;
                }
                told.await;
            }
        })
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

    /// Reads, decides and changes in one go, and makes it durable. What `decide` refuses changes
    /// nothing.
    pub(crate) async fn change<T>(
        &self,
        decide: impl Fn(&dyn View) -> Result<(WriteSet, T), Refusal>,
    ) -> Result<T, Errno> {
        loop {
            self.meta.ready().await;
            let decided =
                self.meta.running().map_err(Refusal::from).and_then(|view| decide(&*view));
            let applied = decided.and_then(|(set, value)| {
                if !set.changes.is_empty() {
                    self.meta.apply(&set)?;
                }
                Ok(value)
            });
            match applied {
                Ok(value) => {
                    // Also without a change: an earlier one of the same content may not be durable
                    // yet.
                    self.meta.commit().await.map_err(|error| self.store_failed(&error))?;
                    return Ok(value);
                }
                Err(Refusal::Store(StoreError::Busy)) => {}
                Err(Refusal::Store(error)) => return Err(self.store_failed(&error)),
                Err(Refusal::Caller(errno)) => return Err(errno),
            }
        }
    }

    /// Reads; waits while a commit is under way.
    pub(crate) async fn look<T>(
        &self,
        read: impl Fn(&dyn View) -> Result<T, StoreError>,
    ) -> Result<T, Errno> {
        loop {
            self.meta.ready().await;
            match self.meta.running().and_then(|view| read(&*view)) {
                Err(StoreError::Busy) => {}
                Err(error) => return Err(self.store_failed(&error)),
                Ok(value) => return Ok(value),
            }
        }
    }

    fn store_failed(&self, error: &StoreError) -> Errno {
        if let StoreError::Failed(reason) = error {
            tracing::warn!(%reason, "the storage of the MGT failed: this instance ends");
            self.failure.reason.borrow_mut().get_or_insert_with(|| reason.clone());
            self.failure.told.notify_waiters();
        }
        error.errno()
    }

    async fn execute(self: Rc<Self>, incoming: Incoming) -> Reply {
        let done = match incoming.request.opcode() {
            Opcode::MgsRegister => op::register::execute(&self, &incoming).await,
            Opcode::MgsConfig => op::config::execute(&self, &incoming).await,
            Opcode::MgsSetParam => op::set_param::execute(&self, &incoming).await,
            _ => Err(Errno::EOPNOTSUPP),
        };
        if self.failure.reason.borrow().is_some() {
            // Nobody is told anything by a failed instance: the next one is asked again.
            std::future::pending::<()>().await;
        }
        done.unwrap_or_else(|errno| Reply::error(&incoming.request.header, errno))
    }
}

/// Why a change was not made.
pub(crate) enum Refusal {
    Caller(Errno),
    Store(StoreError),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Refusal {
        Refusal::Store(error)
    }
}

impl Target for Mgt {
    fn id(&self) -> TargetId {
        TargetId::MGT
    }

    fn exports(&self) -> Rc<Exports> {
        self.exports.clone()
    }

    fn class(&self, _request: &Request) -> Class {
        Class::of(&MGS)
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

    fn session_ended(
        self: Rc<Self>,
        _session: Rc<Session>,
        _evicted: bool,
    ) -> LocalFuture<'static, ()> {
        Box::pin(async {})
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async {})
    }
}

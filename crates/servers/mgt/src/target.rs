//! The MGT being served: its parts, its start and its end.

use std::rc::Rc;

use env::Env;
use osd::{MetaStore, StoreError, View, WriteSet};
use params::ParamTree;
use service::{Exports, ExportsConfig};
use target::{Decided, Place, StartError, Store};
use types::{Errno, FsName, TargetId, TargetKind, Transno};
use wire::config::FsConfig;

use crate::{MgtConfig, record};

/// The MGT being served.
pub struct Mgt {
    env: Env,
    pub(crate) store: Store,
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
        let store = Store::new(TargetId::MGT.to_string(), meta);
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
}

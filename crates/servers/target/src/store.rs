//! A target's record store, and the steps when it cannot take a change at once.

use std::cell::Cell;
use std::rc::Rc;

use env::Env;
use osd::{MetaStore, StoreError, View, WriteSet};
use types::Errno;

use crate::limits::FULL_COMMITS_MAX;
use crate::{Decided, Device, Failure, OpError};

/// See the head of the file.
pub struct Store {
    meta: Rc<dyn MetaStore>,
    failure: Rc<Failure>,
    lease_waits: Cell<u64>,
    device: Rc<Device>,
}

impl Store {
    /// The records of the target that the log calls `name`.
    #[must_use]
    pub fn new(name: String, meta: Rc<dyn MetaStore>) -> Store {
        let failure = Failure::new(name);
        Store { meta, failure, lease_waits: Cell::new(0), device: Rc::default() }
    }

    /// The records themselves.
    #[must_use]
    pub fn meta(&self) -> &dyn MetaStore {
        &*self.meta
    }

    /// How the instance ends.
    #[must_use]
    pub fn failure(&self) -> &Rc<Failure> {
        &self.failure
    }

    /// Changes that waited for another client's lease since the start.
    #[must_use]
    pub fn lease_waits(&self) -> u64 {
        self.lease_waits.get()
    }

    /// The device that the target pretends to be on, if there is one.
    #[must_use]
    pub fn device(&self) -> &Rc<Device> {
        &self.device
    }

    /// Makes everything durable that was applied before this call. An error ends the instance.
    pub async fn commit(&self) -> Result<(), StoreError> {
        self.failure.check()?;
        let bytes = self.meta.dirty_bytes();
        let committed = self.meta.commit().await;
        self.device.commit(bytes).await;
        if let Err(error) = &committed {
            self.failure.fail(&error.to_string());
        }
        self.failure.check()
    }

    /// Reads records.
    pub async fn look<T>(
        &self,
        mut read: impl FnMut(&dyn View) -> Result<T, StoreError>,
    ) -> Result<T, Errno> {
        loop {
            match self.meta.running().and_then(|view| read(&*view)) {
                Err(StoreError::Busy) => self.meta.ready().await,
                other => return other.map_err(|error| self.failure.note(&error)),
            }
        }
    }

    /// Tries until `attempt` succeeds or cannot. `attempt` changes nothing where it fails.
    ///
    /// Where `attempt` fails, the loop waits for what stands in its way and asks again:
    /// - the store is busy: until it takes changes;
    /// - a commit comes first: `commit`;
    /// - the store is full: `commit`, at most twice, because removed records give their room back
    ///   then; afterwards ENOSPC;
    /// - another client's lease: until it is over.
    ///
    /// A store that failed ends the instance; the caller is told EIO and must not answer with it.
    pub async fn persist<T>(
        &self,
        env: &Env,
        commit: impl AsyncFn() -> Result<(), Errno>,
        mut attempt: impl FnMut() -> Decided<T>,
    ) -> Result<T, Errno> {
        let mut full = 0;
        loop {
            let error = match attempt() {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            match error {
                OpError::Store(StoreError::Full) if full < FULL_COMMITS_MAX => {
                    full += 1;
                    commit().await?;
                }
                OpError::CommitFirst => commit().await?,
                OpError::LeasedUntil(end) => {
                    self.lease_waits.set(self.lease_waits.get() + 1);
                    env.sleep_until(end).await;
                }
                OpError::Store(StoreError::Busy) => self.meta.ready().await,
                OpError::Store(error) => return Err(self.failure.note(&error)),
                OpError::Refused(errno) => return Err(errno),
                OpError::Elsewhere => return Err(Errno::ESTALE),
                OpError::Broken(what) => {
                    tracing::error!(what, "a record cannot be read");
                    return Err(Errno::EIO);
                }
            }
        }
    }

    /// Applies a set that has no place in any client's history.
    pub async fn apply(
        &self,
        env: &Env,
        commit: impl AsyncFn() -> Result<(), Errno>,
        set: &WriteSet,
    ) -> Result<(), Errno> {
        self.persist(env, commit, || Ok(self.meta.apply(set)?)).await
    }
}

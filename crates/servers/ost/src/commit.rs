//! Commits: the data of the dirtied objects first, then the record transaction.
//!
//! The mark `committed` is the last transno that was given out when the sync of the objects began.
//! It goes into the record transaction after that sync. Changes that are made while the sync runs
//! are in the same record transaction, and their data may not be durable. The mark separates them
//! after a crash.

use std::rc::Rc;

use osd::{StoreError, Table};
use types::{Errno, Transno};

use crate::record::META_COMMITTED;
use crate::target::Ost;

impl Ost {
    /// Makes everything durable that was answered before this call.
    pub(crate) async fn commit_all(&self) -> Result<(), Errno> {
        let wanted = self.exports.last_assigned();
        let _one_at_a_time = self.committing.lock().await;
        self.store.failure().check().map_err(|error| error.errno())?;
        let durable = self.exports.last_committed() >= wanted;
        if durable && self.store.meta().dirty_bytes() == 0 && self.dirty_data.get() == 0 {
            return self.end_of_commit().await;
        }
        self.commit_one().await
    }

    /// The same, although nothing is dirty. The room that one transaction frees can be taken by the
    /// second one after it.
    pub(crate) async fn commit_once_more(&self) -> Result<(), Errno> {
        let _one_at_a_time = self.committing.lock().await;
        self.store.failure().check().map_err(|error| error.errno())?;
        self.commit_one().await
    }

    /// Records of clients are committed without this target's lock. Where nothing is dirty, such a
    /// commit may be under way with what the caller has applied.
    async fn end_of_commit(&self) -> Result<(), Errno> {
        let ended = self.store.meta().commit().await;
        ended.map_err(|error| self.store.failure().note(&error))
    }

    /// Makes everything up to `transno` durable.
    pub(crate) async fn commit_upto(&self, transno: Transno) -> Result<(), Errno> {
        let _one_at_a_time = self.committing.lock().await;
        self.store.failure().check().map_err(|error| error.errno())?;
        if self.exports.last_committed() >= transno { Ok(()) } else { self.commit_one().await }
    }

    async fn commit_one(&self) -> Result<(), Errno> {
        let mark = self.exports.last_assigned();
        assert!(mark >= self.exports.last_committed(), "only what was given out becomes durable");
        let data = self.dirty_data.replace(0);
        if !self.config.bugs.commit_records_before_data() {
            self.sync_objects().await?;
        }
        // A full store must still be able to say what is durable.
        let mut set = target::from_reserve();
        set.put(Table::Meta, META_COMMITTED, mark.0.to_le_bytes());
        if let Err(error) = self.try_apply(&set).await {
            if error != StoreError::Full {
                return Err(self.store.failure().note(&error));
            }
            self.dirty_data.set(self.dirty_data.get() + data);
            self.commit_records().await?;
            self.try_apply(&set).await.map_err(|error| self.store.failure().note(&error))?;
        }
        self.commit_records().await?;
        self.exports.committed(mark);
        assert!(self.exports.last_committed() >= mark, "what is durable does not go back");
        if self.config.bugs.commit_records_before_data() {
            self.sync_objects().await?;
        }
        Ok(())
    }

    /// Only the records: what they say of data may not be durable yet.
    async fn commit_records(&self) -> Result<(), Errno> {
        self.store.commit().await.map_err(|error| error.errno())
    }

    async fn sync_objects(&self) -> Result<(), Errno> {
        let synced = self.objects.sync().await;
        synced.inspect_err(|errno| {
            self.store.failure().fail(&format!("sync of the objects: {errno}"));
        })
    }

    pub(crate) fn start_committing(self: &Rc<Self>) {
        let commit = async |ost: Rc<Ost>| {
            if ost.commit_all().await.is_err() {
                ost.pace.dirtied(false); // what a full store refused is tried again
                return !ost.store.failure().has_happened();
            }
            if let Err(error) = ost.sweep_tombstones().await {
                tracing::warn!(%error, "old tombstones stay");
            }
            true
        };
        let task = self.pace.start(&self.env, "ost-commit", Rc::downgrade(self), commit);
        *self.commit_task.borrow_mut() = Some(task);
    }
}

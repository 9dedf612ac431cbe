//! Commits: the data of the dirtied objects first, the record transaction then.
//!
//! The mark `committed` is put into the record transaction *before* the data is synced away from
//! under it: it is the last transno given out when the sync began. Changes that are made while the
//! sync runs are in the same record transaction, and their data may not be durable; the mark tells
//! them apart after a crash.

use std::rc::{Rc, Weak};

use osd::{Table, WriteSet};
use types::{Errno, Transno};

use crate::record::META_COMMITTED;
use crate::target::{Kicks, Ost};

impl Ost {
    /// Makes everything durable that was answered before this call.
    pub(crate) async fn commit_all(&self) -> Result<(), Errno> {
        let wanted = self.exports.last_assigned();
        let _one_at_a_time = self.committing.lock().await;
        if self.has_failed() {
            return Err(Errno::EIO);
        }
        let durable = self.exports.last_committed() >= wanted;
        if durable && self.meta.dirty_bytes() == 0 && self.dirty_data.get() == 0 {
            return Ok(());
        }
        self.commit_one().await
    }

    /// Makes everything up to `transno` durable.
    pub(crate) async fn commit_upto(&self, transno: Transno) -> Result<(), Errno> {
        let _one_at_a_time = self.committing.lock().await;
        if self.has_failed() {
            return Err(Errno::EIO);
        }
        if self.exports.last_committed() >= transno { Ok(()) } else { self.commit_one().await }
    }

    async fn commit_one(&self) -> Result<(), Errno> {
        let mark = self.exports.last_assigned();
        let data = self.dirty_data.replace(0);
        if !self.config.bugs.commit_records_before_data {
            self.sync_objects().await?;
        }
        let mut set = WriteSet::new();
        set.put(Table::Meta, META_COMMITTED, mark.0.to_le_bytes());
        // A full store must still be able to say what is durable: with the old mark removed first
        // it counts as a set that frees space, and is taken from the reserve.
        set.changes.insert(0, (Table::Meta, META_COMMITTED.to_vec(), None));
        if let Err(error) = self.apply(&set).await {
            if error.errno() != Errno::ENOSPC {
                return Err(self.store_failed(&error));
            }
            self.dirty_data.set(self.dirty_data.get() + data);
            self.meta.commit().await.map_err(|error| self.store_failed(&error))?;
            self.apply(&set).await.map_err(|error| self.store_failed(&error))?;
        }
        self.meta.commit().await.map_err(|error| self.store_failed(&error))?;
        self.exports.committed(mark);
        if self.config.bugs.commit_records_before_data {
            self.sync_objects().await?;
        }
        Ok(())
    }

    async fn sync_objects(&self) -> Result<(), Errno> {
        self.objects
            .sync()
            .await
            .inspect_err(|errno| self.fail(format!("sync of the objects: {errno}")))
    }

    pub(crate) fn start_committing(self: &Rc<Self>) {
        let (kicks, ost) = (self.kicks.clone(), Rc::downgrade(self));
        let task = self.env.spawn("ost-commit", commit_loop(kicks, ost));
        *self.commit_task.borrow_mut() = Some(task);
    }
}

/// Holds the OST only while it commits, so that dropping the last handle ends everything.
async fn commit_loop(kicks: Rc<Kicks>, ost: Weak<Ost>) {
    loop {
        kicks.dirty.notified().await;
        let Some((env, interval)) =
            ost.upgrade().map(|ost| (ost.env.clone(), ost.commit_interval.get()))
        else {
            return;
        };
        let _at_once_or_in_time = env.timeout(interval, kicks.now.notified()).await;
        let Some(ost) = ost.upgrade() else { return };
        if ost.commit_all().await.is_err() {
            return; // told by `failed`
        }
        if let Err(error) = ost.sweep_tombstones().await {
            tracing::warn!(%error, "old tombstones stay");
        }
    }
}

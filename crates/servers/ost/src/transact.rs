//! A change's place in history: transno, reply and records in one set, applied without an await in
//! between.

use std::rc::Rc;

use osd::{StoreError, Table, View, WriteSet};
use service::{Incoming, Session};
use target::Decided;
use types::{Errno, TargetKind, Transno};
use wire::Reply;

use crate::limits::{DIRTY_DATA_BYTES_MAX, DIRTY_RECORD_BYTES_MAX};
use crate::target::Ost;

impl Ost {
    /// Gives the change of `incoming` its place: `decide` reads and says what else is written with
    /// it. The reply gets its transno.
    ///
    /// The transno of an attempt that a full store refused is left out of history.
    pub(crate) async fn transact(
        &self,
        incoming: &Incoming,
        reply: &mut Reply,
        decide: impl Fn(&dyn View, Transno) -> Result<WriteSet, StoreError>,
    ) -> Result<(), Errno> {
        let commit = async || match incoming.is_replay() {
            true => self.commit_once_more().await, // its transno does not call for a commit
            false => self.commit_all().await,
        };
        let applied = self.store.persist(&self.env, commit, || {
            let view = self.store.meta().running()?;
            let transno = self.exports.next_transno(incoming);
            let mut set = decide(&*view, transno)?;
            drop(view);
            let (key, value) = self.exports.record(incoming, transno, reply);
            assert_eq!(reply.transno(), transno, "a reply carries the transno of its change");
            // The records of a session that is over are forgotten, and its tags may be those of the
            // client's next session.
            if !incoming.session.is_ended() {
                let value = target::reply_record(TargetKind::Ost, transno, value);
                set.put(Table::Replies, key, value);
            }
            self.store.meta().apply(&set)?;
            self.exports.applied(transno); // not before: a commit may come while the store is busy
            Ok(())
        });
        applied.await?;
        self.changed(0);
        Ok(())
    }

    /// Tries until `attempt` succeeds or cannot ([`target::Store::persist`]).
    pub(crate) async fn persist<T>(&self, attempt: impl FnMut() -> Decided<T>) -> Result<T, Errno> {
        self.store.persist(&self.env, async || self.commit_all().await, attempt).await
    }

    /// Applies records that have no place in history; a full store is committed first.
    pub(crate) async fn apply(&self, set: &WriteSet) -> Result<(), Errno> {
        self.persist(|| Ok(self.store.meta().apply(set)?)).await
    }

    /// The same for the commit itself, which cannot wait for one.
    pub(crate) async fn try_apply(&self, set: &WriteSet) -> Result<(), StoreError> {
        osd::apply(self.store.meta(), set).await
    }

    /// Notes that there is something to commit, `data` bytes of it in objects.
    pub(crate) fn changed(&self, data: u64) {
        self.dirty_data.set(self.dirty_data.get() + data);
        let is_pressed = self.dirty_data.get() >= DIRTY_DATA_BYTES_MAX
            || self.store.meta().dirty_bytes() >= DIRTY_RECORD_BYTES_MAX;
        self.pace.dirtied(is_pressed);
    }

    /// Forgets clients, their replies, and the tombstones that were kept for them; their fences too
    /// where they went in good order. One commit.
    pub(crate) async fn forget_clients(
        &self,
        sessions: &[Rc<Session>],
        evicted: bool,
    ) -> Result<(), Errno> {
        for session in sessions {
            let forget = || {
                let view = self.store.meta().running()?;
                let mut set = target::forget(&*view, session.client, session.id)?;
                drop(view);
                if !evicted {
                    self.fences.borrow_mut().client_left(session.client, &mut set);
                }
                Ok(self.store.meta().apply(&set)?)
            };
            self.persist(forget).await?;
            self.tombstones.borrow_mut().session_ended(session.id);
        }
        self.sweep_tombstones().await?;
        self.store.commit().await.map_err(|error| error.errno())
    }

    /// Removes tombstones that no session needs.
    pub(crate) async fn sweep_tombstones(&self) -> Result<(), Errno> {
        loop {
            let expired = self.tombstones.borrow().expired();
            if expired.is_empty() {
                return Ok(());
            }
            let mut set = WriteSet::new();
            for object in &expired {
                set.delete(Table::Tombstones, object.to_key());
            }
            self.apply(&set).await?;
            let mut stones = self.tombstones.borrow_mut();
            expired.iter().for_each(|object| stones.remove(*object));
        }
    }
}

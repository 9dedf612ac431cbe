//! A change's place in history: transno, reply and records in one set, applied without a wait in
//! between.

use std::rc::Rc;

use osd::{StoreError, Table, View, WriteSet};
use service::{Incoming, Session};
use types::Errno;
use wire::Reply;

use crate::limits::{DIRTY_DATA_BYTES_MAX, DIRTY_RECORD_BYTES_MAX};
use crate::record;
use crate::target::Ost;

impl Ost {
    /// Gives the change of `incoming` its place: `decide` reads and says what else is written with
    /// it. The reply gets its transno.
    ///
    /// A store that is full is committed once, which brings freed pages back, and then asked again.
    /// The transno of a refused attempt is left out of history.
    pub(crate) async fn transact(
        &self,
        incoming: &Incoming,
        reply: &mut Reply,
        decide: impl Fn(&dyn View) -> Result<WriteSet, StoreError>,
    ) -> Result<(), Errno> {
        let mut commits_left = 1;
        loop {
            self.meta.ready().await;
            let applied =
                self.meta.running().and_then(|view| decide(&*view)).and_then(|mut set| {
                    let transno = self.exports.next_transno(incoming);
                    let (key, value) = self.exports.record(incoming, transno, reply);
                    set.put(Table::Replies, key, record::encode_reply(transno, &value));
                    self.meta.apply(&set)
                });
            match applied {
                Ok(()) => {
                    self.changed(0);
                    return Ok(());
                }
                Err(StoreError::Busy) => {}
                Err(StoreError::Full) if commits_left > 0 => {
                    commits_left -= 1;
                    self.commit_all().await?;
                }
                Err(StoreError::Full) => return Err(Errno::ENOSPC),
                Err(error) => return Err(self.store_failed(&error)),
            }
        }
    }

    /// Notes that there is something to commit, `data` bytes of it in objects.
    pub(crate) fn changed(&self, data: u64) {
        self.dirty_data.set(self.dirty_data.get() + data);
        self.kicks.dirty.notify_one();
        if self.dirty_data.get() >= DIRTY_DATA_BYTES_MAX
            || self.meta.dirty_bytes() >= DIRTY_RECORD_BYTES_MAX
        {
            self.kicks.now.notify_one();
        }
    }

    /// What a caller is told of `error`; a failed store ends the instance.
    pub(crate) fn store_failed(&self, error: &StoreError) -> Errno {
        if let StoreError::Failed(reason) = error {
            self.fail(reason.clone());
        }
        error.errno()
    }

    /// Forgets a client, its replies, and the tombstones that were kept for it.
    pub(crate) async fn forget_client(&self, session: &Rc<Session>) -> Result<(), StoreError> {
        let client = session.client.0.to_be_bytes();
        let known = self
            .exports
            .sessions()
            .iter()
            .any(|other| other.client == session.client && other.id != session.id);
        let mut set = WriteSet::new();
        if !known {
            set.delete(Table::Clients, client);
        }
        loop {
            self.meta.ready().await;
            let scanned = self.meta.running().and_then(|view| {
                view.scan(Table::Replies, &client, &mut |key, _| {
                    let its = key.starts_with(&client);
                    if its {
                        set.delete(Table::Replies, key);
                    }
                    its
                })
            });
            match scanned {
                Err(StoreError::Busy) => {}
                other => break other?,
            }
        }
        if self.apply(&set).await == Err(StoreError::Full) {
            self.meta.commit().await?;
            self.apply(&set).await?;
        }
        self.tombstones.borrow_mut().session_ended(session.id);
        self.sweep_tombstones().await?;
        self.meta.commit().await
    }

    /// Removes tombstones that nobody needs.
    pub(crate) async fn sweep_tombstones(&self) -> Result<(), StoreError> {
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

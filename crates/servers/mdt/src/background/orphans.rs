//! Files without a name that no client has open any more. They are removed at a start without
//! recovery, at the end of a recovery, and with the session that had them open. One that an
//! operation of several MDTs has reserved waits for the end of that: it may get a name.

use std::collections::BTreeSet;
use std::rc::Rc;

use osd::{StoreError, Table};
use types::{Errno, Fid, Span};

use crate::share::ShareKey;
use crate::target::Mdt;

/// Orphans that one transaction sweeps.
const SWEEP_BATCH: usize = 256;

/// Before a look at whether reserved orphans are free.
const RESERVED_PAUSE: Span = Span::secs(1);

impl Mdt {
    /// Removes the open-unlinked files that nobody has open.
    pub(crate) async fn sweep_orphans(self: &Rc<Self>) {
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
    pub(crate) async fn sweep(self: &Rc<Self>, fids: &[Fid]) {
        let (mut rest, mut at_once) = (fids, SWEEP_BATCH);
        let mut reserved = BTreeSet::new();
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(at_once.min(rest.len()));
            let sweep = || {
                let (held, free): (Vec<Fid>, Vec<Fid>) =
                    batch.iter().partition(|fid| self.is_reserved(**fid));
                reserved.extend(held);
                self.engine.sweep(&free)
            };
            match self.persist(sweep).await {
                Ok(gone) => {
                    tracing::debug!(target: "mdt", gone, "orphans swept");
                    if gone > 0 {
                        planted::reached("mdt: an orphan was swept");
                    }
                    rest = later;
                }
                Err(Errno::ENOSPC) if batch.len() > 1 => at_once = batch.len() / 2,
                Err(errno) => {
                    tracing::warn!(target: "mdt", left = rest.len(), %errno, "orphans stay until the next start");
                    break;
                }
            }
        }
        if !reserved.is_empty() {
            self.sweep_later(reserved.into_iter().collect());
        }
    }

    /// Whether an operation of several MDTs stands against the removal of a file.
    fn is_reserved(&self, fid: Fid) -> bool {
        let reserved = &self.engine.state.borrow().crossed.reserved;
        reserved.hinders(None, &[], &[ShareKey::Inode(fid)])
    }

    fn sweep_later(self: &Rc<Self>, fids: Vec<Fid>) {
        let mdt = self.clone();
        self.env.spawn("mdt_orphans", async move {
            while fids.iter().any(|fid| mdt.is_reserved(*fid)) {
                mdt.env.sleep(RESERVED_PAUSE).await;
                if mdt.is_stopped() {
                    return;
                }
            }
            mdt.sweep(&fids).await;
        });
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
}

//! Files without a name that no client has open any more. They are removed at a start without
//! recovery, at the end of a recovery, and with the session that had them open.

use osd::{StoreError, Table};
use types::{Errno, Fid};

use crate::target::Mdt;

/// Orphans that one transaction sweeps.
const SWEEP_BATCH: usize = 256;

impl Mdt {
    /// Removes the open-unlinked files that nobody has open.
    pub(crate) async fn sweep_orphans(&self) {
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
    pub(crate) async fn sweep(&self, fids: &[Fid]) {
        let (mut rest, mut at_once) = (fids, SWEEP_BATCH);
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(at_once.min(rest.len()));
            match self.persist(|| self.engine.sweep(batch)).await {
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
                    return;
                }
            }
        }
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

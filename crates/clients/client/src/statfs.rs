//! Space: bytes are the sum of the OSTs, inodes are the MDTs'. The client does not wait for a
//! target that is away, so that `df` never hangs. It uses the target's last answer or leaves the
//! target out.

use std::pin::pin;
use std::rc::Rc;

use env::{LocalFuture, join_bounded};
use types::{TargetId, TargetKind};
use wire::Opcode;
use wire::body::{FidReq, StatfsRep};

use crate::client::{Client, Inner};
use crate::{Ctx, Result, Statfs, TargetSpace, limits};

/// Block size of the sum: small enough for exact counts, as large as a page.
const BLOCK_BYTES: u64 = 4_096;

impl Client {
    /// Space of the whole file system. A target that is known to be away is waited for
    /// `statfs_wait` only.
    ///
    /// # Errors
    /// None: the form of a call of the file system.
    pub async fn statfs(&self) -> Result<Statfs> {
        let mdts = self.0.directory.targets(TargetKind::Mdt);
        let osts = self.0.directory.targets(TargetKind::Ost);
        let asks = osts.iter().map(|ost| -> LocalFuture<'_, Option<StatfsRep>> {
            Box::pin(self.0.space_or_last(*ost))
        });
        let osts = join_bounded(asks.collect(), limits::BATCH_RPCS_MAX).await;
        let asks = mdts.iter().map(|mdt| -> LocalFuture<'_, Option<StatfsRep>> {
            Box::pin(self.0.space_or_last(*mdt))
        });
        let mdts = join_bounded(asks.collect(), limits::BATCH_RPCS_MAX).await;
        let [osts, mdts] = [osts, mdts].map(|all| all.into_iter().flatten().collect::<Vec<_>>());
        Ok(total(&osts, &mdts))
    }

    /// Space of each target, MDTs first; nothing for one that does not answer in time.
    pub async fn df(&self) -> Vec<TargetSpace> {
        let ids = self.0.all_targets();
        let asks = ids
            .iter()
            .map(|id| -> LocalFuture<'_, Option<StatfsRep>> { Box::pin(self.0.space_soon(*id)) });
        let spaces = join_bounded(asks.collect(), limits::BATCH_RPCS_MAX).await;
        let told = |(id, space): (TargetId, Option<StatfsRep>)| TargetSpace {
            target: self.0.state_of(id),
            space: space.map(one),
            marks: space.map_or_else(Default::default, |space| space.state),
        };
        ids.into_iter().zip(spaces).map(told).collect()
    }
}

impl Inner {
    /// Space of a target, if it answers soon. A target of which it is not known whether it is away
    /// is given as long as a connected one: on a busy machine a healthy server accepts late.
    async fn space_soon(self: &Rc<Self>, id: TargetId) -> Option<StatfsRep> {
        let remote = self.remote(id);
        let mut space = pin!(self.space(id));
        if !remote.is_connected() {
            if let Some(space) = self.env.timeout(self.config.statfs_wait, space.as_mut()).await {
                return space;
            }
            let is_away = !remote.is_connected() && !remote.is_untried();
            if is_away {
                return None;
            }
        }
        space.await
    }

    async fn space(self: &Rc<Self>, id: TargetId) -> Option<StatfsRep> {
        let call = self.call(&Ctx::root(), opcode(id), &FidReq::default());
        let call = call.patience(limits::STATFS_CONNECTED_WAIT);
        let space: StatfsRep = self.ask(id, call).await.ok()?.reply.body();
        self.spaces.borrow_mut().insert(id, space);
        Some(space)
    }

    async fn space_or_last(self: &Rc<Self>, id: TargetId) -> Option<StatfsRep> {
        match self.space_soon(id).await {
            Some(space) => Some(space),
            None => self.spaces.borrow().get(&id).copied(),
        }
    }
}

fn opcode(id: TargetId) -> Opcode {
    if id.kind == TargetKind::Ost { Opcode::OstStatfs } else { Opcode::MdtStatfs }
}

/// One target in its own blocks.
fn one(space: StatfsRep) -> Statfs {
    Statfs {
        block_bytes: space.block_bytes,
        blocks: space.blocks,
        blocks_free: space.blocks_free,
        blocks_avail: space.blocks_avail,
        files: space.files,
        files_free: space.files_free,
    }
}

/// All of them: blocks of the OSTs in [`BLOCK_BYTES`], inodes of the MDTs, limited by the objects
/// that are free.
fn total(osts: &[StatfsRep], mdts: &[StatfsRep]) -> Statfs {
    let mut sum = Statfs { block_bytes: BLOCK_BYTES, ..Statfs::default() };
    let scaled =
        |blocks: u64, space: &StatfsRep| blocks.saturating_mul(space.block_bytes) / BLOCK_BYTES;
    for ost in osts {
        sum.blocks = sum.blocks.saturating_add(scaled(ost.blocks, ost));
        sum.blocks_free = sum.blocks_free.saturating_add(scaled(ost.blocks_free, ost));
        sum.blocks_avail = sum.blocks_avail.saturating_add(scaled(ost.blocks_avail, ost));
    }
    for mdt in mdts {
        sum.files = sum.files.saturating_add(mdt.files);
        sum.files_free = sum.files_free.saturating_add(mdt.files_free);
    }
    // A file needs an object too, so no more can be made than there are free ones.
    let objects = osts.iter().fold(0_u64, |sum, ost| sum.saturating_add(ost.files_free));
    let used = sum.files.saturating_sub(sum.files_free);
    sum.files_free = sum.files_free.min(objects);
    sum.files = used.saturating_add(sum.files_free);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_osts_and_inodes_the_mdts() {
        let ost = StatfsRep {
            block_bytes: 1 << 20,
            blocks: 10,
            blocks_free: 5,
            blocks_avail: 4,
            files: 5_000,
            files_free: 450,
            ..StatfsRep::default()
        };
        let mdt = StatfsRep {
            block_bytes: 4_096,
            blocks: 7,
            files: 1_000,
            files_free: 900,
            ..StatfsRep::default()
        };
        let sum = total(&[ost, ost], &[mdt]);
        assert_eq!((sum.blocks * sum.block_bytes, sum.blocks_avail), (20 << 20, 8 * 256));
        assert_eq!((sum.files, sum.files_free), (1_000, 900), "objects enough");
        let sum = total(&[ost], &[mdt]);
        assert_eq!(
            (sum.files, sum.files_free),
            (550, 450),
            "a file needs an object, as in `lfs df`"
        );
        let broken = StatfsRep { block_bytes: u64::MAX, blocks: u64::MAX, ..StatfsRep::default() };
        assert!(total(&[broken, broken], &[]).blocks > 0);
    }
}

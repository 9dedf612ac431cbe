//! Moves an inode to another MDT. Its objects stay where they are. Before the move they are lent to
//! files of the new MDT. So the file that takes its place may use them, under its new FID.
//!
//! ```text
//! lock EX - the file and its layout are durable - the objects are lent, under this layout
//!         - MDT: the file moves, if it has that layout - unlock
//! ```
//! All that any client has written is on the objects before. If the client dies in between, the
//! objects stay lent, which changes nothing for the file. The next try lends them again, perhaps to
//! another MDT.
//!
//! No sweep of ids destroys a lent object, because the MDT that sweeps may not know its file. So
//! only objects of a file that no crash takes away are lent. They are destroyed with the file.

use std::rc::Rc;

use bytes::Bytes;
use layout::dir::{Asked, BY_SPACE};
use types::{Errno, Fid, TargetId, TargetKind};
use wire::Opcode;
use wire::body::{Claim, FidReq, OstRaiseReq, SetxattrReq};

use super::keep::Pause;
use crate::client::{Inner, mdt_of};
use crate::limits::LAYOUTS_TRIED_MAX;
use crate::xattr::INODE_MIGRATE;
use crate::{Ctx, Error, Result};

/// The MDT to which objects are lent, and the number of its store.
type Borrower = (TargetId, u64);

impl Inner {
    /// Moves an inode to the MDT that `value` names. Runs to its end once begun.
    pub(crate) async fn move_inode(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        value: Bytes,
    ) -> Result<()> {
        let refused = |errno| Error::local(errno, "inode-migrate").about(fid);
        let asked = Asked::decode(&value).map_err(|error| refused(error.errno()))?;
        let to = goal(&asked).ok_or_else(|| refused(Errno::EINVAL))?;
        let stat = self.stat(ctx, fid, 0).await?;
        let done = if !stat.attr.is_file() || fid.mdt_index() == to.index {
            self.ask_to_move(ctx, fid, (value, 0)).await // it has nothing to lend
        } else {
            let _nothing_is_kept = self.inodes.get(fid).map(|inode| Pause::begin(&inode));
            self.flush_file(fid).await;
            match self.ask_to_move(ctx, fid, (value.clone(), 0)).await {
                Err(error) if is_of_objects(error.errno()) => {
                    let to = (to, self.store_of(ctx, to).await?); // nothing is locked meanwhile
                    let lock = self.lock_file(ctx, fid).await?;
                    let done = self.move_locked(ctx, (fid, to), &value, lock.claim).await;
                    lock.unlock().await.and(done)
                }
                done => done, // nothing is locked or lent for a caller who may not move it
            }
        };
        self.striped.forget(fid);
        done
    }

    async fn ask_to_move(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        (value, lent): (Bytes, u32),
    ) -> Result<()> {
        let body = SetxattrReq { fid: fid.into(), refused: lent, ..SetxattrReq::default() };
        self.set_attribute(ctx, body, INODE_MIGRATE, value).await.map(drop)
    }

    /// Under the file's lock no other client lends its objects to another MDT. The MDT refuses a
    /// layout that has changed since the objects were lent (EAGAIN).
    async fn move_locked(
        self: &Rc<Self>,
        ctx: &Ctx,
        (fid, to): (Fid, Borrower),
        value: &Bytes,
        claim: Claim,
    ) -> Result<()> {
        for _ in 0..LAYOUTS_TRIED_MAX {
            let lent = self.lend(ctx, fid, (to, claim)).await?;
            self.under_lease(fid, claim).await?;
            match self.ask_to_move(ctx, fid, (value.clone(), lent)).await {
                Err(error) if error.errno() == Errno::EAGAIN => {}
                done => return done,
            }
        }
        Err(Error::local(Errno::EBUSY, "inode-migrate").about(fid))
    }

    /// Lends the objects of a file to files of an MDT; returns one more than the generation of
    /// its layout. Zero: there is nothing to lend, or the MDT refuses the move anyway.
    async fn lend(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        ((to, store), claim): (Borrower, Claim),
    ) -> Result<u32> {
        let stat = self.stat_exact(ctx, fid, 0).await?;
        let layout = stat.layout.filter(|layout| layout.mdt_object().is_none());
        let Some(layout) = layout else { return Ok(0) };
        self.sync_mdt(ctx, mdt_of(fid), fid).await?;
        let body = OstRaiseReq {
            parent: fid.into(),
            claim,
            layout_version: 0, // OSTs that cannot lend refuse it
            lent: to.index.saturating_add(1),
        };
        let store = Bytes::copy_from_slice(&store.to_le_bytes());
        self.raise_as(ctx, &layout, 0, (&body, store)).await?;
        layout
            .generation()
            .checked_add(1)
            .ok_or_else(|| Error::local(Errno::EOVERFLOW, "inode-migrate").about(fid))
    }

    /// The number of an MDT's store.
    async fn store_of(self: &Rc<Self>, ctx: &Ctx, mdt: TargetId) -> Result<u64> {
        let known = self.directory.targets(TargetKind::Mdt);
        if !known.contains(&mdt) {
            return Err(Error::local(Errno::ENODEV, "inode-migrate"));
        }
        let store = self.remote(mdt).claim().store;
        if store != 0 {
            return Ok(store);
        }
        let call = self.call(ctx, Opcode::MdtStatfs, &FidReq::default()); // connects
        self.ask(mdt, call).await?;
        match self.remote(mdt).claim().store {
            0 => Err(Error::local(Errno::ENODEV, "inode-migrate")),
            store => Ok(store),
        }
    }
}

/// Whether the MDT would move the file but for its objects, or but for what others do with it now.
fn is_of_objects(errno: Errno) -> bool {
    [Errno::EXDEV, Errno::EAGAIN, Errno::EBUSY].contains(&errno)
}

/// The MDT that is named, if it is one.
fn goal(asked: &Asked) -> Option<TargetId> {
    let index = match asked.mdts[..] {
        [only] => Some(only),
        [] if asked.index != BY_SPACE => Some(asked.index.cast_unsigned()),
        _ => None,
    };
    index.map(TargetId::mdt)
}

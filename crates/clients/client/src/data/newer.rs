//! Layouts that an object refuses as old. The client asks the MDT for the newest layout and repeats
//! the call under it. Applications do not see the refusal.
//!
//! Objects refuse a layout because a client removes bytes from them under the file's lock. The
//! objects change first, the MDT's layout follows. Therefore, if the MDT returns the layout that
//! was refused, this client waits for the lock. By then the previous holder has changed the layout
//! or is gone. In the second case the same objects get the next generation.

use std::rc::Rc;

use layout::FileLayout;
use types::{Errno, Fid};

use super::glimpse::Objects;
use crate::client::Inner;
use crate::handle::Open;
use crate::limits::LAYOUTS_TRIED_MAX;
use crate::stat::Stat;
use crate::{Ctx, Error, Result};

/// A call that is made again under newer layouts, a few times at most.
pub(super) struct Tries {
    left: u32,
    /// The caller holds the file's lock.
    is_locked: bool,
}

impl Tries {
    pub(super) fn new() -> Tries {
        Tries { left: LAYOUTS_TRIED_MAX, is_locked: false }
    }

    /// Under the file's lock.
    pub(super) fn locked() -> Tries {
        Tries { is_locked: true, ..Tries::new() }
    }

    /// After `error` under `layout`: the caller tries again, with what the inode knows then.
    pub(super) async fn again(
        &mut self,
        open: &Rc<Open>,
        layout: &FileLayout,
        error: Error,
    ) -> Result<()> {
        let stat = self.newer(&open.inner, &open.ctx, open.inode.fid, open.handle, layout, error);
        stat.await.map(drop)
    }

    /// The same of a file that need not be open.
    pub(super) async fn newer(
        &mut self,
        inner: &Rc<Inner>,
        ctx: &Ctx,
        fid: Fid,
        handle: u64,
        layout: &FileLayout,
        error: Error,
    ) -> Result<Stat> {
        if !error.is_old_layout() || self.left == 0 {
            return Err(error);
        }
        self.left -= 1;
        planted::reached("client: an old layout was refused");
        let stat = inner.newer_layout(ctx, fid, handle, layout, self.is_locked).await?;
        if let Some(inode) = inner.inodes.get(fid) {
            inode.learn(&stat);
        }
        Ok(stat)
    }
}

impl Inner {
    async fn newer_layout(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        handle: u64,
        refused: &FileLayout,
        is_locked: bool,
    ) -> Result<Stat> {
        let generation = refused.generation();
        let stat = self.renew_layout(ctx, fid, handle, generation, true).await?;
        if stat.layout.as_ref().is_some_and(|layout| layout.generation() != generation) {
            return Ok(stat);
        }
        if is_locked {
            return self.renew_layout(ctx, fid, handle, generation, false).await;
        }
        let lock = self.lock_file(ctx, fid).await?;
        let renewed = self.renew_layout(ctx, fid, handle, generation, false).await;
        lock.unlock().await.and(renewed)
    }
}

/// Refuses what objects say of themselves to a layout that is older than they were told.
pub(super) fn check_told(layout: &FileLayout, objects: &Objects) -> Result<()> {
    if objects.values().any(|object| object.layout_version > layout.generation()) {
        return Err(Error::local(Errno::ESTALE, "ost_glimpse"));
    }
    Ok(())
}

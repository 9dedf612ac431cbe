//! Objects that must exist. The MDT records which stripes of a file have an object, as closing
//! clients stated. If the OST of such a stripe has no object, the object is lost. A call that needs
//! its bytes or its size fails with EIO and never returns zeros.
//!
//! This client's record may be stale, so it asks the MDT before a call fails. A file that was
//! removed or truncated to zero in the meantime misses no object. A lost object comes back with the
//! next write to its stripe.

use std::rc::Rc;

use layout::{FileLayout, StripeSet};
use types::{Errno, Fid};

use super::place;
use crate::client::Inner;
use crate::{Ctx, Error, Result};

impl Inner {
    /// What of these lost stripes must still exist by what the MDT says now.
    pub(super) async fn still_lost(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        lost: &StripeSet,
    ) -> Result<StripeSet> {
        let stat = self.stat(ctx, fid, 0).await?;
        if let Some(inode) = self.inodes.get(fid) {
            inode.see(&stat);
        }
        Ok(lost.common(&stat.stripes))
    }

    /// EIO, and a line in the log, if one of these stripes is really lost.
    pub(super) async fn check_lost(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        layout: &FileLayout,
        lost: StripeSet,
    ) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let lost = self.still_lost(ctx, fid, &lost).await?;
        let Some(stripe) = lost.lowest() else { return Ok(()) };
        let (object, ost) = place(layout, stripe);
        let target_id = ost.name(self.config.fsname);
        tracing::warn!(%target_id, %fid, %object, "an object of the file that must be there is missing");
        Err(Error::local(Errno::EIO, "ost_glimpse")
            .about(fid)
            .saying(format!("object {object} is lost at {ost}")))
    }
}

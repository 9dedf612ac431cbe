//! Privileges that a program loses when its content changes: a capability, set-user-id and
//! set-group-id.
//!
//! Another client may have set them since this client last saw the mode. Therefore an unprivileged
//! writer asks the MDT if its copy of the mode is old. A write does not wait long for an MDT that
//! does not answer, because such an MDT cannot have set anything in the meantime.

use std::rc::Rc;

use wire::body::SetattrFlags;

use crate::client::mdt_of;
use crate::handle::Open;
use crate::namespace::AttrChange;
use crate::{Result, limits};

/// A write drops the program's capability first, and by somebody without privilege set-user-id and
/// set-group-id too.
pub(super) async fn drop_set_id(open: &Rc<Open>) -> Result<()> {
    let creds = &open.ctx.creds;
    if creds.uid != 0 {
        look_at_mode(open).await;
    }
    let valid = SetattrFlags::KILL_SUID.when(creds.uid != 0 && open.inode.is_set_id(creds))
        | SetattrFlags::KILL_CAPABILITY.when(open.inode.is_capable());
    if valid.is_empty() {
        return Ok(());
    }
    let change = AttrChange { valid, handle: open.handle, ..AttrChange::default() };
    let stat = open.inner.setattr(&open.ctx, open.inode.fid, change).await?;
    open.inode.learn(&stat);
    Ok(())
}

/// Asks for the mode, unless it was asked for within [`limits::MODE_AGE`].
pub(crate) async fn look_at_mode(open: &Rc<Open>) {
    let (inner, inode) = (&open.inner, &open.inode);
    let now = inner.env.now();
    let mdt = mdt_of(inode.fid);
    if now < inode.mode_until.get() || !inner.remote(mdt).is_connected() {
        return;
    }
    inode.mode_until.set(now + limits::MODE_AGE);
    let asked = inner.stat(&open.ctx, inode.fid, open.handle);
    match inner.env.timeout(limits::MODE_PATIENCE, asked).await {
        Some(Ok(stat)) => inode.see(&stat),
        Some(Err(error)) => tracing::debug!(%error, "the mode is not known"),
        None => inode.mode_until.set(inner.env.now() + limits::MODE_PATIENCE),
    }
}

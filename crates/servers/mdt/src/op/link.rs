//! link: another name for a file. Transaction: entry, back-link, link count, parent. Replay: the same again.

use types::{Errno, Fid};
use wire::body::LinkReq;

use crate::limits::NLINK_MAX;
use crate::op::{Answer, Op, checked_name};
use crate::perm::{W, X};
use crate::tx::Decided;

/// Makes a hard link.
pub(crate) fn link(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: LinkReq = op.request.body();
    let name = op.request.buf(1);
    let name = checked_name(&name)?;
    let parent = op.tx.dir(Fid::from(body.parent))?;
    let mut inode = op.tx.inode(Fid::from(body.fid))?;
    op.decides_on(parent.fid());
    op.access(&parent, X)?;
    if op.tx.entry(parent.fid(), name)?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    if inode.attr.is_dir() {
        return Err(Errno::EPERM.into());
    }
    if inode.attr.nlink == 0 || parent.attr.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    if inode.attr.nlink >= NLINK_MAX {
        return Err(Errno::EMLINK.into());
    }
    op.access(&parent, W | X)?;
    inode.attr.nlink += 1;
    inode.attr.set_ctime(op.tx.now);
    op.tx.insert_entry(parent.fid(), name, &inode)?;
    op.tx.touch_dir(parent.fid(), name.len() as i64, 0)?;
    op.change(inode.clone());
    op.full_answer(&inode, 0, 0)
}

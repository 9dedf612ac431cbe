//! link: another name for a file, or the first for one that was made without (O_TMPFILE).
//! Transaction: entry, back-link, link count, parent; the orphan record of a file that had no name
//! goes. Replay: the same again.

use osd::Table;
use target::Decided;
use types::{Errno, Fid};
use wire::Request;
use wire::body::{Disposition, LinkReq};

use crate::limits::NLINK_MAX;
use crate::op::{Answer, Op, checked_name};
use crate::perm::{W, X};
use crate::record::{INODE_LINKABLE, INODE_ORPHAN};

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
    let nameless = inode.attr.nlink == 0;
    if (nameless && !inode.has(INODE_LINKABLE)) || parent.attr.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    if inode.attr.nlink >= NLINK_MAX {
        return Err(Errno::EMLINK.into());
    }
    op.access(&parent, W | X)?;
    if nameless {
        inode.flags &= !(INODE_ORPHAN | INODE_LINKABLE);
        op.tx.set.delete(Table::Orphans, inode.fid().to_key());
        inode.parent = parent.fid();
    }
    inode.attr.nlink += 1;
    inode.attr.set_ctime(op.tx.now);
    op.tx.insert_entry(parent.fid(), name, &inode)?;
    op.tx.touch_dir(parent.fid(), name.len() as i64, 0)?;
    op.change(inode.clone());
    op.full_answer(&inode, 0, Disposition::empty())
}

/// The directory that gets the name.
pub(crate) fn parent(request: &Request) -> Fid {
    request.body::<LinkReq>().parent.into()
}

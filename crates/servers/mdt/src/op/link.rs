//! link: another name for a file, or the first for one that was made without (O_TMPFILE).
//! Transaction: entry, back-link, link count, parent; the orphan record of a file that had no name
//! goes. Replay: the same again.

use target::Decided;
use types::{Errno, Fid};
use wire::Request;
use wire::body::{Disposition, LinkReq};
use wire::updates::{Key, Named, Place};

use crate::limits::NLINK_MAX;
use crate::op::names::At;
use crate::op::{Answer, Op, checked_name};
use crate::perm::{W, X};
use crate::record::INODE_LINKABLE;

/// Makes a hard link.
pub(crate) fn link(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: LinkReq = op.request.body();
    let name = op.request.buf(1);
    let name = checked_name(&name)?;
    op.tx.foresee(Key::Inode(body.fid.into()), true);
    let parent = op.tx.dir(Fid::from(body.parent))?;
    let inode = op.tx.inode(Fid::from(body.fid))?;
    op.decides_on(parent.fid());
    op.access(&parent, X)?;
    if op.entry(&parent, name)?.is_some() {
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
    let at = At { dir: parent.fid(), name };
    op.enter(at, &inode)?;
    op.touch(parent.fid(), at.bytes(), 0)?;
    let inode = op.rename_file(Named {
        fid: inode.fid(),
        gets: Some(Place { dir: parent.fid(), name: name.to_vec() }),
        loses: None,
        links: 1,
        moves: false,
    })?;
    if !op.tx.is_here(inode.fid()) {
        return Ok(op.told(&inode));
    }
    op.full_answer(&inode, 0, Disposition::empty())
}

/// The directory that gets the name.
pub(crate) fn parent(request: &Request) -> Fid {
    request.body::<LinkReq>().parent.into()
}

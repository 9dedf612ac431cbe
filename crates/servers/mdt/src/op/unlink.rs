//! unlink and rmdir: removes a name, and with its last name the file, unless a client has it open.
//!
//! Transaction: entry, back-link, link count, parent; the inode with all that belongs to it and the
//! log of its objects, or its orphan record. Replay: the same again. During recovery the file stays
//! as an orphan until all clients had the chance to re-open it.

use target::Decided;
use types::{Errno, Fid};
use wire::Request;
use wire::body::UnlinkReq;
use wire::updates::{Named, Place};

use crate::op::names::At;
use crate::op::{Answer, Op, checked_name, dirs};
use crate::perm::{W, X};

pub(crate) fn unlink(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: UnlinkReq = op.request.body();
    let name = op.request.buf(1);
    let name = checked_name(&name)?;
    let parent = op.tx.dir(Fid::from(body.parent))?;
    op.decides_on(parent.fid());
    op.access(&parent, X)?;
    let entry = op.entry(&parent, name)?.ok_or(Errno::ENOENT)?;
    let inode = op.tx.inode(entry.record.fid)?;
    op.access(&parent, W | X)?;
    op.check_sticky(&parent, &inode)?;
    match (body.wants_dir(), inode.attr.is_dir()) {
        (true, false) => return Err(Errno::ENOTDIR.into()),
        (false, true) => return Err(Errno::EISDIR.into()),
        (true, true) if !dirs::is_empty(op, &inode)? => return Err(Errno::ENOTEMPTY.into()),
        _ => {}
    }
    let is_dir = inode.attr.is_dir();
    let at = At { dir: parent.fid(), name };
    op.leave(at, &entry);
    op.touch(parent.fid(), -at.bytes(), -i32::from(is_dir))?;
    dirs::drop_shards(op, &inode)?;
    let inode = op.rename_file(Named {
        fid: inode.fid(),
        gets: None,
        loses: Some(Place { dir: parent.fid(), name: name.to_vec() }),
        links: if is_dir { -2 } else { -1 },
        moves: false,
    })?;
    Ok(op.told(&inode))
}

/// The directory that loses the name.
pub(crate) fn parent(request: &Request) -> Fid {
    request.body::<UnlinkReq>().parent.into()
}

/// What it is counted as.
pub(crate) fn stat(request: &Request) -> &'static str {
    if request.body::<UnlinkReq>().wants_dir() { "rmdir" } else { "unlink" }
}

//! getattr, lookup, readlink: read only, no locks, no transaction.

use target::Decided;
use types::{Errno, Fid};
use wire::Request;
use wire::attr::S_IFLNK;
use wire::body::{Disposition, FidReq, GetattrFlags, LookupReq};

use crate::op::{Answer, Op, checked_name};
use crate::perm::X;

/// Attributes and layout by FID; an unlinked file that is still open has them too.
pub(crate) fn getattr(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: FidReq = op.request.body();
    let inode = op.tx.inode(Fid::from(body.fid))?;
    op.full_answer(&inode, 0, Disposition::empty())
}

/// Attributes and layout by directory and name.
pub(crate) fn lookup(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: LookupReq = op.request.body();
    let name = op.request.buf(1);
    let dir = op.tx.dir(Fid::from(body.parent))?;
    op.access(&dir, X)?;
    let entry = op.entry(&dir, checked_name(&name)?)?.ok_or(Errno::ENOENT)?;
    if !op.tx.is_here(entry.record.fid) {
        return Ok(Answer::elsewhere(entry.record.fid, entry.record.file_type));
    }
    let inode = op.tx.inode(entry.record.fid)?;
    op.full_answer(&inode, 0, Disposition::empty())
}

/// Target of a symbolic link.
pub(crate) fn readlink(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: FidReq = op.request.body();
    let inode = op.tx.inode(Fid::from(body.fid))?;
    if inode.attr.file_type() != S_IFLNK {
        return Err(Errno::EINVAL.into());
    }
    Ok(Answer::data(inode.symlink))
}

/// The file of a getattr.
pub(crate) fn file(request: &Request) -> Fid {
    request.body::<FidReq>().fid.into()
}

/// How a getattr asks for the size.
pub(crate) fn flags(request: &Request) -> GetattrFlags {
    request.body::<FidReq>().flags
}

/// The directory of a lookup.
pub(crate) fn parent(request: &Request) -> Fid {
    request.body::<LookupReq>().parent.into()
}

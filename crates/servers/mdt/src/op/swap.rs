//! Two files swap their objects: `lustre.lov.swap`, the end of a migration.
//!
//! The other file has no name, and the caller has it open for writing. The caller has copied the
//! file's bytes there, has made the file's objects refuse the current layout, and holds the file's
//! lock. The file's former objects go with the other file's last close, through the destroy log.
//!
//! Transaction: both layouts and both inodes. It applies to the generations that the caller names;
//! otherwise nothing changes (EAGAIN). A component that got objects meanwhile has bytes that were
//! not copied. Replay: the same again.

use target::Decided;
use types::{Errno, Fid};
use wire::attr::S_IFREG;
use wire::body::{Disposition, SwapReq};
use zerocopy::FromBytes;

use crate::effect::Effect;
use crate::op::{Answer, Op};
use crate::record::Inode;

pub(super) fn swap(op: &mut Op<'_, '_>, mut inode: Inode, value: &[u8]) -> Decided<Answer> {
    let body = SwapReq::read_from_bytes(value).map_err(|_| Errno::EINVAL)?;
    let mut other = op.tx.inode(Fid::from(body.other))?;
    op.decides_on(other.fid());
    check(op, &inode, &other, body.handle)?;
    let (fid, other_fid) = (inode.fid(), other.fid());
    let mine = op.tx.layout(&inode)?.ok_or(Errno::ENODATA)?;
    let theirs = op.tx.layout(&other)?.ok_or(Errno::ENODATA)?;
    let found = (mine.generation(), theirs.generation());
    if found != (body.generation, body.other_generation) && !op.config.bugs.swap_without_check() {
        planted::reached("mdt: a layout changed before it was swapped");
        return Err(if op.replay.is_some() { Errno::EPROTO } else { Errno::EAGAIN }.into());
    }
    if body.next <= body.generation || body.next <= body.other_generation {
        return Err(Errno::EINVAL.into());
    }
    let of = |layout: &layout::FileLayout, file| {
        layout.of_file(file).at_generation(body.next).ok_or(Errno::EOVERFLOW)
    };
    let (taken, given) = (of(&theirs, fid)?, of(&mine, other_fid)?);
    for layout in [&taken, &given] {
        layout.check().map_err(|error| error.errno())?;
    }
    op.tx.swap_layouts((&mut inode, &taken), (&mut other, &given));
    op.tx.effects.push(Effect::Swapped { bases: bases(&taken), other: other_fid });
    for swapped in [&mut inode, &mut other] {
        op.dirty_size(swapped);
        swapped.attr.set_ctime(op.tx.now);
        op.change(swapped.clone());
    }
    planted::reached("mdt: a file took over other objects");
    if taken.mdt_object().or(given.mdt_object()).is_some() {
        planted::reached("mdt: a file took over an object of an MDT, or gave one");
    }
    op.full_answer(&inode, 0, Disposition::empty())
}

/// Only regular files, of which one has no name and is the caller's own to write.
fn check(op: &Op<'_, '_>, inode: &Inode, other: &Inode, handle: u64) -> Decided<()> {
    let is_file = |inode: &Inode| inode.attr.file_type() == S_IFREG;
    if !is_file(inode) || !is_file(other) || inode.fid() == other.fid() {
        return Err(Errno::EINVAL.into());
    }
    if op.replay.is_none() && (other.attr.nlink != 0 || !op.may_write_by(handle, other)) {
        return Err(Errno::EPERM.into());
    }
    Ok(())
}

/// Ids of all objects.
fn bases(layout: &layout::FileLayout) -> Vec<Fid> {
    layout.stripings().map(|one| one.base).chain(layout.mdt_object()).collect()
}

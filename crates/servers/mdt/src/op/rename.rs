//! rename: over an existing name, across directories, NOREPLACE, EXCHANGE.
//!
//! One transaction moves the entry, its back-link and both parents. A replaced file goes as by
//! unlink. A name that is overwritten keeps its place in readdir order. No directory comes to lie
//! below itself, because the new parent's ancestors are checked up to the root.

use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::Request;
use wire::attr::AttrFlags;
use wire::body::RenameReq;
use wire::updates::{Key, Named, Place};

use crate::limits::DEPTH_MAX;
use crate::op::names::At;
use crate::op::{Answer, Op, checked_name, dirs};
use crate::perm::{W, X};
use crate::record::Inode;
use crate::tx::Entry;

const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

/// What becomes of a file that has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// There must be none.
    Move,
    /// It loses the name, if there is one.
    Replace,
    /// It gets the old name.
    Exchange,
}

impl How {
    /// From the flags of renameat2(2).
    fn parse(flags: u32) -> Option<How> {
        match flags {
            0 => Some(How::Replace),
            NOREPLACE => Some(How::Move),
            EXCHANGE => Some(How::Exchange),
            _ => None,
        }
    }
}

/// Renames; the answer tells of the file that moved.
pub(crate) fn rename(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: RenameReq = op.request.body();
    let (old_name, new_name) = (op.request.buf(1), op.request.buf(2));
    let from = At { dir: body.parent.into(), name: checked_name(&old_name)? };
    let to = At { dir: body.new_parent.into(), name: checked_name(&new_name)? };
    let how = How::parse(body.flags).ok_or(Errno::EINVAL)?;
    op.tx.foresee(Key::Inode(to.dir), false);
    op.tx.foresee(Key::Name(place(&to)), true);
    let (old_dir, new_dir) = (op.tx.dir(from.dir)?, op.tx.dir(to.dir)?);
    op.decides_on(from.dir);
    op.decides_on(to.dir);
    op.access(&old_dir, X)?;
    op.access(&new_dir, X)?;
    let source = op.entry(&old_dir, from.name)?.ok_or(Errno::ENOENT)?;
    let target = op.entry(&new_dir, to.name)?;
    let moved = op.tx.inode(source.record.fid)?;
    let replaced = match &target {
        Some(entry) => Some(op.tx.inode(entry.record.fid)?),
        None => None,
    };
    match (how, &replaced) {
        (How::Move, Some(_)) => return Err(Errno::EEXIST.into()),
        (How::Exchange, None) => return Err(Errno::ENOENT.into()),
        _ => {}
    }
    check_tree(op, &from, &to, &moved, replaced.as_ref(), how)?;
    check_permission(op, &old_dir, &new_dir, &moved, replaced.as_ref(), how)?;
    if new_dir.attr.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    match (target, replaced) {
        (Some(_), Some(replaced)) if replaced.fid() == moved.fid() => Ok(op.told(&moved)),
        (Some(target), Some(replaced)) if how == How::Exchange => {
            exchange(op, &from, &to, (&source, moved), (&target, replaced))
        }
        (Some(target), Some(replaced)) => {
            replace(op, &from, &to, (&source, moved), (&target, replaced))
        }
        _ => shift(op, &from, &to, &source, moved),
    }
}

/// Kinds fit, nothing is lost, and the tree stays a tree.
fn check_tree(
    op: &mut Op<'_, '_>,
    from: &At<'_>,
    to: &At<'_>,
    moved: &Inode,
    replaced: Option<&Inode>,
    how: How,
) -> Decided<()> {
    if moved.attr.is_dir() && from.dir != to.dir {
        no_cycle(op, moved.fid(), to.dir)?;
    }
    let Some(replaced) = replaced.filter(|replaced| replaced.fid() != moved.fid()) else {
        return Ok(());
    };
    if how == How::Exchange {
        if replaced.attr.is_dir() && from.dir != to.dir {
            no_cycle(op, replaced.fid(), from.dir)?;
        }
        return Ok(());
    }
    match (moved.attr.is_dir(), replaced.attr.is_dir()) {
        (true, false) => Err(Errno::ENOTDIR.into()),
        (false, true) => Err(Errno::EISDIR.into()),
        (true, true) if !dirs::is_empty(op, replaced)? => Err(Errno::ENOTEMPTY.into()),
        _ => Ok(()),
    }
}

/// `dir` must not be `inner` or an ancestor of it. The walk decides on every directory it passes: a
/// move of one of them by somebody else must be durable first.
fn no_cycle(op: &mut Op<'_, '_>, dir: Fid, inner: Fid) -> Decided<()> {
    let mut at = inner;
    for _ in 0..DEPTH_MAX {
        if at == dir {
            return Err(Errno::EINVAL.into());
        }
        if at == Fid::ROOT {
            return Ok(());
        }
        op.decides_on(at);
        at = op.tx.glance(at)?.parent;
    }
    Err(OpError::Broken("a directory does not lead to the root"))
}

fn check_permission(
    op: &mut Op<'_, '_>,
    old_dir: &Inode,
    new_dir: &Inode,
    moved: &Inode,
    replaced: Option<&Inode>,
    how: How,
) -> Decided<()> {
    op.access(old_dir, W | X)?;
    op.access(new_dir, W | X)?;
    op.check_sticky(old_dir, moved)?;
    if let Some(replaced) = replaced {
        op.check_sticky(new_dir, replaced)?;
    }
    if shown(old_dir) != shown(new_dir) {
        // ".." of a directory that moves is written.
        if moved.attr.is_dir() {
            op.access(moved, W)?;
        }
        if let Some(replaced) =
            replaced.filter(|replaced| how == How::Exchange && replaced.attr.is_dir())
        {
            op.access(replaced, W)?;
        }
    }
    Ok(())
}

/// The directory that callers see: shards of one are no directories of their own.
pub(super) fn shown(dir: &Inode) -> Fid {
    if !dir.attr.flags.contains(AttrFlags::SHARD) { dir.fid() } else { dir.parent }
}

fn place(at: &At<'_>) -> Place {
    Place { dir: at.dir, name: at.name.to_vec() }
}

/// A file has the name `to` instead of `from`.
fn moves(op: &mut Op<'_, '_>, fid: Fid, from: &At<'_>, to: &At<'_>) -> Decided<Inode> {
    let (gets, loses) = (Some(place(to)), Some(place(from)));
    op.rename_file(Named { fid, gets, loses, links: 0, moves: true })
}

fn exchange(
    op: &mut Op<'_, '_>,
    from: &At<'_>,
    to: &At<'_>,
    source: (&Entry, Inode),
    target: (&Entry, Inode),
) -> Decided<Answer> {
    assert_ne!(source.1.fid(), target.1.fid(), "a file is not exchanged with itself");
    let ((source, moved), (target, other)) = (source, target);
    op.repoint(*from, source, &other);
    op.repoint(*to, target, &moved);
    let (out, back) = (i32::from(moved.attr.is_dir()), i32::from(other.attr.is_dir()));
    op.touch(from.dir, 0, back - out)?;
    op.touch(to.dir, 0, out - back)?;
    let moved = moves(op, moved.fid(), from, to)?;
    moves(op, other.fid(), to, from)?;
    Ok(op.told(&moved))
}

fn replace(
    op: &mut Op<'_, '_>,
    from: &At<'_>,
    to: &At<'_>,
    source: (&Entry, Inode),
    target: (&Entry, Inode),
) -> Decided<Answer> {
    let ((source, moved), (target, replaced)) = (source, target);
    let subdirs = i32::from(moved.attr.is_dir());
    op.leave(*from, source);
    op.repoint(*to, target, &moved);
    op.touch(from.dir, -from.bytes(), -subdirs)?;
    // A directory came and one went: the count of the new parent stays.
    op.touch(to.dir, 0, 0)?;
    let moved = moves(op, moved.fid(), from, to)?;
    dirs::drop_shards(op, &replaced)?;
    let links = if replaced.attr.is_dir() { -2 } else { -1 };
    let loses = Some(place(to));
    op.rename_file(Named { fid: replaced.fid(), gets: None, loses, links, moves: false })?;
    Ok(op.told(&moved))
}

fn shift(
    op: &mut Op<'_, '_>,
    from: &At<'_>,
    to: &At<'_>,
    source: &Entry,
    moved: Inode,
) -> Decided<Answer> {
    let subdirs = i32::from(moved.attr.is_dir());
    op.leave(*from, source);
    op.enter(*to, &moved)?;
    op.touch(from.dir, -from.bytes(), -subdirs)?;
    op.touch(to.dir, to.bytes(), subdirs)?;
    let moved = moves(op, moved.fid(), from, to)?;
    Ok(op.told(&moved))
}

/// The old and the new directory.
pub(crate) fn parents(request: &Request) -> (Fid, Fid) {
    let body: RenameReq = request.body();
    (body.parent.into(), body.new_parent.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_renameat2_and_exclude_each_other() {
        assert_eq!(How::parse(0), Some(How::Replace));
        assert_eq!(How::parse(NOREPLACE), Some(How::Move));
        assert_eq!(How::parse(EXCHANGE), Some(How::Exchange));
        for flags in [NOREPLACE | EXCHANGE, 4, u32::MAX] {
            assert_eq!(How::parse(flags), None, "{flags}");
        }
    }
}

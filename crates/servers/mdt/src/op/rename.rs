//! rename: over an existing name, across directories, NOREPLACE, EXCHANGE.
//!
//! One transaction moves the entry, its back-link and both parents. A replaced file goes as by
//! unlink. A name that is overwritten keeps its place in readdir order. No directory comes to lie
//! below itself, because the new parent's ancestors are checked up to the root.

use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::Request;
use wire::body::RenameReq;

use crate::limits::DEPTH_MAX;
use crate::op::{Answer, Op, checked_name};
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

/// One end of the move.
struct End<'n> {
    dir: Fid,
    name: &'n [u8],
}

/// Renames; the answer tells of the file that moved.
pub(crate) fn rename(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: RenameReq = op.request.body();
    let (old_name, new_name) = (op.request.buf(1), op.request.buf(2));
    let from = End { dir: body.parent.into(), name: checked_name(&old_name)? };
    let to = End { dir: body.new_parent.into(), name: checked_name(&new_name)? };
    let how = How::parse(body.flags).ok_or(Errno::EINVAL)?;
    let (old_dir, new_dir) = (op.tx.dir(from.dir)?, op.tx.dir(to.dir)?);
    op.decides_on(from.dir);
    op.decides_on(to.dir);
    op.access(&old_dir, X)?;
    op.access(&new_dir, X)?;
    let source = op.tx.entry(from.dir, from.name)?.ok_or(Errno::ENOENT)?;
    let target = op.tx.entry(to.dir, to.name)?;
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
        (Some(_), Some(replaced)) if replaced.fid() == moved.fid() => Ok(Answer::attr(&moved)),
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
    from: &End<'_>,
    to: &End<'_>,
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
        (true, true) if !op.tx.is_empty(replaced.fid())? => Err(Errno::ENOTEMPTY.into()),
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
        at = op.tx.inode(at)?.parent;
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
    if old_dir.fid() != new_dir.fid() {
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

/// `inode` has a name in `dir` now.
fn adopt(op: &mut Op<'_, '_>, inode: &mut Inode, dir: Fid) {
    inode.parent = dir;
    inode.attr.set_ctime(op.tx.now);
    op.change(inode.clone());
}

fn exchange(
    op: &mut Op<'_, '_>,
    from: &End<'_>,
    to: &End<'_>,
    source: (&Entry, Inode),
    target: (&Entry, Inode),
) -> Decided<Answer> {
    assert_ne!(source.1.fid(), target.1.fid(), "a file is not exchanged with itself");
    let ((source, mut moved), (target, mut other)) = (source, target);
    op.tx.unlink_back(from.dir, source);
    op.tx.unlink_back(to.dir, target);
    op.tx.set_entry(to.dir, target.cookie, to.name, &moved);
    op.tx.set_entry(from.dir, source.cookie, from.name, &other);
    let (out, back) = (i32::from(moved.attr.is_dir()), i32::from(other.attr.is_dir()));
    op.tx.touch_dir(from.dir, 0, back - out)?;
    op.tx.touch_dir(to.dir, 0, out - back)?;
    adopt_after_touch(op, &mut moved, to.dir)?;
    adopt_after_touch(op, &mut other, from.dir)?;
    Ok(Answer::attr(&moved))
}

fn replace(
    op: &mut Op<'_, '_>,
    from: &End<'_>,
    to: &End<'_>,
    source: (&Entry, Inode),
    target: (&Entry, Inode),
) -> Decided<Answer> {
    let ((source, mut moved), (target, mut replaced)) = (source, target);
    let subdirs = i32::from(moved.attr.is_dir());
    op.tx.remove_entry(from.dir, source);
    op.tx.unlink_back(to.dir, target);
    op.tx.set_entry(to.dir, target.cookie, to.name, &moved);
    op.tx.touch_dir(from.dir, -(from.name.len() as i64), -subdirs)?;
    // A directory came and one went: the count of the new parent stays.
    op.tx.touch_dir(to.dir, 0, 0)?;
    adopt_after_touch(op, &mut moved, to.dir)?;
    op.drop_name(&mut replaced)?;
    Ok(Answer::attr(&moved))
}

fn shift(
    op: &mut Op<'_, '_>,
    from: &End<'_>,
    to: &End<'_>,
    source: &Entry,
    mut moved: Inode,
) -> Decided<Answer> {
    let subdirs = i32::from(moved.attr.is_dir());
    op.tx.remove_entry(from.dir, source);
    op.tx.insert_entry(to.dir, to.name, &moved)?;
    op.tx.touch_dir(from.dir, -(from.name.len() as i64), -subdirs)?;
    op.tx.touch_dir(to.dir, to.name.len() as i64, subdirs)?;
    adopt_after_touch(op, &mut moved, to.dir)?;
    Ok(Answer::attr(&moved))
}

/// The file that moved may be one of the two parents (an exchange of a directory with something
/// inside is refused, but a plain move of a sibling is not): read it again, so that no count is
/// lost.
fn adopt_after_touch(op: &mut Op<'_, '_>, inode: &mut Inode, dir: Fid) -> Decided<()> {
    *inode = op.tx.inode(inode.fid())?;
    adopt(op, inode, dir);
    Ok(())
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

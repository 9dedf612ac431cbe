//! close: the handle goes, and the last writer of an undisturbed period hands the size over.
//!
//! Buffer 1: the second part of the stripes that have an object, if there are any from 64 on; or
//! all bytes of the file ([`crate::puts`]).
//!
//! Transaction: size and times of the inode, and which stripes have an object from now on; the
//! whole file, if this was the last handle of an orphan. A replay repeats the size that the first
//! reply showed. The reply names the handle. So after a restart, a stored reply of a close keeps a
//! repeated open from restoring a closed handle. This also holds if the client never received that
//! reply. A handle that is unknown on a replay is closed already, or was open for reading: such a
//! handle comes back after all replays of its client ([`super::stated`]). Of the close, the access
//! time is left to do then.

use bytes::Bytes;
use layout::StripeSet;
use target::Decided;
use types::{Errno, Fid, Timespec};
use wire::SizeState;
use wire::body::{CloseFlags, CloseReq};

use crate::effect::Effect;
use crate::limits::FILE_BYTES_MAX;
use crate::op::{Answer, Op, put, setattr};
use crate::opens::{OpenFile, Verdict};
use crate::perm::R;
use crate::record::Inode;

pub(crate) fn close(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: CloseReq = op.request.body();
    let has_data = body.flags.contains(CloseFlags::DATA); // the buffer has the bytes of the file
    let more = if has_data { Bytes::new() } else { op.request.buf(1) };
    let stripes = StripeSet::from_parts(body.stripes, &more);
    Ok(match close_one(op, &body, &stripes)? {
        Some((inode, handle)) => Answer::closed(&inode, handle),
        None => Answer::Bufs(Vec::new()),
    })
}

/// Closes one handle; with a size, `stripes` have an object. Returns what is told of its file, if
/// that is there, and the handle, unless it was closed before. No other close of the same file may
/// have been decided in this operation.
pub(crate) fn close_one(
    op: &mut Op<'_, '_>,
    body: &CloseReq,
    stripes: &StripeSet,
) -> Decided<Option<(Inode, u64)>> {
    let Some(open) = op.state.opens.get(body.handle).filter(|open| open.client == op.client) else {
        return match op.replay {
            Some(_) => repeat_without_handle(op, body),
            None => Err(Errno::EBADF.into()),
        };
    };
    let mut inode = op.tx.inode(open.fid)?;
    let before = inode.clone();
    let has_bytes = put::is_closed_with_bytes(op, body, &open, &inode)?;
    if has_bytes && body.flags.contains(CloseFlags::ATTRS) {
        let change = put::attrs(op.request);
        setattr::with_close(op, &change, &mut inode)?;
    }
    let cleaned = hand_over(op, (body, stripes), open, &mut inode);
    if has_bytes {
        put::fill_closed(op, &mut inode, cleaned)?;
    }
    note_atime(body, &mut inode);
    let wrote = body.flags.contains(CloseFlags::WROTE);
    let last = op.state.opens.is_last(body.handle);
    op.tx.effects.push(Effect::Closed { handle: body.handle, wrote, cleaned });
    let told = inode.clone();
    if inode.attr.nlink == 0 && last && !op.recovering {
        op.decides_on(inode.fid());
        op.destroy(&inode)?;
    } else if inode != before {
        op.change(inode);
    }
    Ok(Some((told, body.handle)))
}

/// A replay of a close whose handle is not there. Of a file that its client may read, it says when
/// that was.
fn repeat_without_handle(op: &mut Op<'_, '_>, body: &CloseReq) -> Decided<Option<(Inode, u64)>> {
    let fid = Fid::from(body.fid);
    let Some(mut inode) = op.tx.find(fid)? else { return Ok(None) };
    let before = inode.clone();
    if !op.committed && op.tx.is_here(fid) && op.may(&inode, R)? {
        note_atime(body, &mut inode);
    }
    if inode != before {
        op.change(inode.clone());
    }
    Ok(Some((inode, 0)))
}

fn note_atime(body: &CloseReq, inode: &mut Inode) {
    if body.flags.contains(CloseFlags::ATIME) {
        let atime = Timespec::new(body.atime, body.atime_nsec);
        inode.attr.set_atime(atime.max(inode.attr.atime()));
    }
}

/// Size and times from the closer; says whether the size is known now.
fn hand_over(
    op: &Op<'_, '_>,
    (body, stripes): (&CloseReq, &StripeSet),
    open: OpenFile,
    inode: &mut Inode,
) -> bool {
    if !open.write {
        return false;
    }
    let wrote = body.flags.contains(CloseFlags::WROTE);
    let tells_size = body.flags.intersects(CloseFlags::SIZE | CloseFlags::DATA);
    let has_size = tells_size && body.size <= FILE_BYTES_MAX;
    let told = has_size.then_some(body.write_epoch);
    if wrote {
        let mtime = Timespec::new(body.mtime, body.mtime_nsec);
        if told.is_some() && mtime >= inode.mtime_set {
            inode.attr.set_mtime(mtime);
            inode.attr.set_ctime(mtime.max(inode.attr.ctime()));
        }
    }
    if let Some(first) = &op.replay {
        if first.attr.size > FILE_BYTES_MAX {
            return false; // no earlier run has shown it: the file stays dirty
        }
        let clean = first.attr.size_state() != SizeState::Dirty;
        inode.attr.size_state = first.attr.size_state() as u32;
        (inode.attr.size, inode.attr.blocks) = (first.attr.size, first.attr.blocks);
        if clean && told.is_some() {
            inode.stripes.add_all(stripes);
        }
        return clean;
    }
    let told = told.filter(|_| !op.may_change_unseen(open.fid));
    match op.state.opens.judge(body.handle, wrote, told) {
        Verdict::Restore(SizeState::Dirty) => false,
        Verdict::Restore(prior) => {
            inode.attr.size_state = prior as u32;
            true
        }
        Verdict::Clean => {
            known_size(inode, body, stripes);
            true
        }
        Verdict::StayDirty if op.config.bugs.clean_size_despite_writers() && told.is_some() => {
            known_size(inode, body, stripes);
            true
        }
        Verdict::StayDirty => false,
    }
}

fn known_size(inode: &mut Inode, body: &CloseReq, stripes: &StripeSet) {
    inode.attr.size_state = SizeState::Clean as u32;
    (inode.attr.size, inode.attr.blocks) = (body.size, body.blocks);
    inode.stripes.add_all(stripes);
}

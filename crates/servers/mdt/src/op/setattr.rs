//! setattr: mode, owner, times and size; and the size that a client has determined.
//!
//! Transaction: the inode (and its access list after a chmod). A truncate only marks the file dirty
//! at the new size. The client holds the file's lock, punches the objects, then sends the size with
//! SIZE_KNOWN. Replay: the same with the times of the first reply.

use layout::StripeSet;
use osd::Table;
use target::Decided;
use types::{Errno, Fid, Timespec};
use wire::attr::{S_IFREG, S_ISGID};
use wire::body::{Disposition, SetattrFlags, SetattrReq};
use wire::{Attr, Request, SizeState};

use crate::effect::Effect;
use crate::keys;
use crate::limits::{CLOCK_AHEAD_SECS, FILE_BYTES_MAX};
use crate::op::{Answer, Op, dirs};
use crate::perm::{ACL_ACCESS, R, W, is_root};
use crate::record::{INODE_HAS_ACL, INODE_HAS_LAYOUT, Inode};

/// Bits that change something by the caller's will.
const WILL: SetattrFlags = SetattrFlags::SIZE_KNOWN.union(SetattrFlags::READ_AT).complement();

/// What [`owner_and_mode`] changes.
const OWNER_AND_MODE: SetattrFlags = SetattrFlags::MODE
    .union(SetattrFlags::UID)
    .union(SetattrFlags::GID)
    .union(SetattrFlags::KILL_SUID)
    .union(SetattrFlags::KILL_CAPABILITY)
    .union(SetattrFlags::PROJID);

/// Times that a caller sets.
const TIMES: SetattrFlags = SetattrFlags::ATIME
    .union(SetattrFlags::MTIME)
    .union(SetattrFlags::ATIME_NOW)
    .union(SetattrFlags::MTIME_NOW);

/// What a caller that may write the file may change.
const BY_WRITING: SetattrFlags = SetattrFlags::ATIME_NOW
    .union(SetattrFlags::MTIME_NOW)
    .union(SetattrFlags::CTIME)
    .union(SetattrFlags::KILL_SUID)
    .union(SetattrFlags::KILL_CAPABILITY);

/// What a close may change beside the bytes that it brings.
const BY_CLOSE: SetattrFlags = SetattrFlags::MODE
    .union(SetattrFlags::UID)
    .union(SetattrFlags::GID)
    .union(SetattrFlags::ATIME)
    .union(SetattrFlags::MTIME)
    .union(SetattrFlags::KILL_SUID);

pub(crate) fn setattr(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: SetattrReq = op.request.body();
    if body.valid == SetattrFlags::READ_AT {
        return read_at(op, &body);
    }
    op.check_settable(&body)?;
    let mut inode = op.tx.find_here(body.attr.fid())?.ok_or(Errno::ESTALE)?;
    op.decides_on(inode.fid());
    check(op, &body, &inode)?;
    let before = inode.clone();
    let mut cut = Disposition::empty();
    if body.valid.contains(SetattrFlags::SIZE) {
        cut = truncate(op, &body.attr, &mut inode)?;
        inode.mtime_set = set_at(op, &body);
    }
    if body.valid.intersects(OWNER_AND_MODE) {
        owner_and_mode(op, &body, &mut inode)?;
    }
    times(op, &body, &mut inode);
    if body.valid.contains(SetattrFlags::SIZE_KNOWN) {
        known_size(op, &body, &mut inode)?;
    }
    if inode != before {
        op.change(inode.clone());
        dirs::spread(op, &inode, body.valid.intersects(TIMES))?;
    }
    op.full_answer(&inode, 0, cut)
}

/// The change that a close brings with all bytes of its file, as if it had come before. An access
/// list changes with the mode, and its holders are not called back here.
pub(super) fn with_close(op: &mut Op<'_, '_>, body: &SetattrReq, inode: &mut Inode) -> Decided<()> {
    if !BY_CLOSE.contains(body.valid) || body.attr.fid() != inode.fid() {
        return Err(Errno::EINVAL.into());
    }
    op.check_settable(body)?;
    check(op, body, inode)?;
    if inode.has(INODE_HAS_ACL) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    owner_and_mode(op, body, inode)?;
    times(op, body, inode);
    Ok(())
}

/// The time at which a client has read commutes with every other change: it waits for no commit,
/// and makes others wait for none. So its inode may be lost with the client that made it; then a
/// replay has nothing to do.
fn read_at(op: &mut Op<'_, '_>, body: &SetattrReq) -> Decided<Answer> {
    let fid = body.attr.fid();
    let Some(mut inode) = op.tx.find(fid)? else {
        let is_replay = op.replay.is_some();
        return if is_replay { Ok(Answer::Bufs(Vec::new())) } else { Err(Errno::ESTALE.into()) };
    };
    match check(op, body, &inode) {
        // what let it read may be lost with the client that changed it
        Err(_) if op.replay.is_some() => return Ok(Answer::Bufs(Vec::new())),
        checked => checked?,
    }
    let before = inode.clone();
    times(op, body, &mut inode);
    if inode != before {
        op.tx.put(inode.clone());
    }
    op.full_answer(&inode, 0, Disposition::empty())
}

fn check(op: &Op<'_, '_>, body: &SetattrReq, inode: &Inode) -> Decided<()> {
    let has = |flags| body.valid.intersects(flags);
    let owner = op.is_owner(inode);
    let root = is_root(&op.creds);
    if has(SetattrFlags::MODE | SetattrFlags::PROJID | SetattrFlags::ATIME | SetattrFlags::MTIME)
        && !owner
    {
        return Err(Errno::EPERM.into());
    }
    if has(SetattrFlags::UID) && !root && !(owner && body.attr.uid == inode.attr.uid) {
        return Err(Errno::EPERM.into());
    }
    if has(SetattrFlags::GID)
        && !root
        && !(owner && (body.attr.gid == inode.attr.gid || op.creds.in_group(body.attr.gid)))
    {
        return Err(Errno::EPERM.into());
    }
    if has(BY_WRITING) && !owner && !op.may(inode, W)? && !op.may_write_by(body.handle, inode) {
        return Err(Errno::EACCES.into());
    }
    if has(SetattrFlags::READ_AT) {
        op.access(inode, R)?;
    }
    if has(SetattrFlags::SIZE) {
        check_size(op, body, inode)?;
    }
    Ok(())
}

fn check_size(op: &Op<'_, '_>, body: &SetattrReq, inode: &Inode) -> Decided<()> {
    if inode.attr.is_dir() {
        return Err(Errno::EISDIR.into());
    }
    if inode.attr.file_type() != S_IFREG {
        return Err(Errno::EINVAL.into());
    }
    if body.attr.size > FILE_BYTES_MAX {
        return Err(Errno::EFBIG.into());
    }
    if op.may_write_by(body.handle, inode) {
        return Ok(());
    }
    op.access(inode, W)?;
    op.check_not_running(inode)
}

/// The new size; says whether the client must cut objects.
fn truncate(op: &mut Op<'_, '_>, wanted: &Attr, inode: &mut Inode) -> Decided<Disposition> {
    if !is_root(&op.creds) {
        op.drop_set_id(inode);
    }
    op.drop_capability(inode);
    inode.attr.set_mtime(op.tx.now);
    if inode.attr.size_state() == SizeState::NeverWritten && wanted.size == 0 {
        return Ok(Disposition::empty());
    }
    if !inode.has(INODE_HAS_LAYOUT) {
        op.place_late(inode)?;
    }
    if !op.config.bugs.truncate_without_objects() {
        op.extend_layout(inode, wanted.size)?;
    }
    inode.attr.size = wanted.size;
    if wanted.size == 0 {
        inode.stripes = StripeSet::default(); // a file without a byte misses no object
    }
    op.dirty_by_cut(inode);
    Ok(Disposition::TRUNCATE)
}

fn owner_and_mode(op: &mut Op<'_, '_>, body: &SetattrReq, inode: &mut Inode) -> Decided<()> {
    let has = |flags| body.valid.intersects(flags);
    if has(SetattrFlags::UID | SetattrFlags::GID | SetattrFlags::KILL_SUID) && !inode.attr.is_dir()
    {
        op.drop_set_id(inode); // by the group that it has before
        op.drop_capability(inode);
    }
    if has(SetattrFlags::UID) {
        inode.attr.uid = body.attr.uid;
    }
    if has(SetattrFlags::GID) {
        inode.attr.gid = body.attr.gid;
    }
    if has(SetattrFlags::KILL_SUID | SetattrFlags::KILL_CAPABILITY) {
        op.drop_capability(inode);
    }
    if has(SetattrFlags::PROJID) {
        inode.attr.projid = body.attr.projid;
    }
    if !has(SetattrFlags::MODE) {
        return Ok(());
    }
    inode.attr.mode = inode.attr.file_type() | body.attr.mode & 0o7777;
    if !op.may_setgid(inode.attr.gid) {
        inode.attr.mode &= !S_ISGID;
    }
    if inode.has(INODE_HAS_ACL)
        && let Some(mut acl) = op.acl(inode, ACL_ACCESS)?
    {
        acl.chmod(inode.attr.mode);
        op.tx.set.put(Table::Xattrs, keys::xattr(inode.fid(), ACL_ACCESS), acl.encode());
    }
    Ok(())
}

/// When a time is set: now, by whichever of the server's and the caller's clock is ahead, so that
/// what the caller wrote before is older. A clock that is far ahead is not believed, since later
/// writes would not count before it.
fn set_at(op: &Op<'_, '_>, body: &SetattrReq) -> Timespec {
    let now = op.tx.now;
    now.max(body.attr.btime().min(Timespec::new(now.sec.saturating_add(CLOCK_AHEAD_SECS), 0)))
}

fn times(op: &Op<'_, '_>, body: &SetattrReq, inode: &mut Inode) {
    let has = |flags| body.valid.intersects(flags);
    let now = op.tx.now;
    if has(SetattrFlags::ATIME) {
        inode.attr.set_atime(body.attr.atime());
    } else if has(SetattrFlags::ATIME_NOW) {
        inode.attr.set_atime(now);
    }
    if has(SetattrFlags::READ_AT) {
        inode.attr.set_atime(body.attr.atime().max(inode.attr.atime()));
    }
    if has(SetattrFlags::MTIME) {
        inode.attr.set_mtime(body.attr.mtime());
    } else if has(SetattrFlags::MTIME_NOW) {
        inode.attr.set_mtime(now);
    }
    if has(SetattrFlags::MTIME | SetattrFlags::MTIME_NOW) {
        inode.mtime_set = set_at(op, body);
    }
    if has(WILL) {
        inode.attr.set_ctime(if has(SetattrFlags::CTIME) { body.attr.ctime() } else { now });
    }
}

/// A size that a client found out by asking every OST. It is believed if nothing happened to the
/// file since, and nobody may write or cut it now; and only from whom the contents could be, since
/// nobody else has a say in what the file is: anybody else's is passed over, and the file stays
/// dirty.
fn known_size(op: &mut Op<'_, '_>, body: &SetattrReq, inode: &mut Inode) -> Decided<()> {
    let fid: Fid = inode.fid();
    let believed = match &op.replay {
        Some(first) => first.attr.size_state() == SizeState::Clean,
        None => {
            let quiet = op.state.opens.writers(fid) == 0
                && op.state.opens.write_epoch(fid) == body.write_epoch
                && !op.state.opens.is_cut_by_another(fid, op.cutter())
                && !op.may_change_unseen(fid);
            let believed = quiet || op.config.bugs.clean_size_despite_writers();
            believed && (op.state.opens.last_writer(fid) == Some(op.client) || op.may(inode, W)?)
        }
    };
    let dirtied_here = body.valid.contains(SetattrFlags::SIZE);
    if !dirtied_here {
        op.tx.effects.push(Effect::CutEnded { fid, by: op.cutter() }); // believed or not
    }
    let is_size = body.attr.size <= FILE_BYTES_MAX;
    if inode.attr.size_state() != SizeState::Dirty || !believed || dirtied_here || !is_size {
        return Ok(());
    }
    inode.attr.size_state = SizeState::Clean as u32;
    (inode.attr.size, inode.attr.blocks) = (body.attr.size, body.attr.blocks);
    inode.stripes.add_all(&StripeSet::from_parts(body.stripes, &op.request.buf(1)));
    let written = body.attr.mtime();
    // What lies behind both clocks is no write's: a time set by hand, as it was when the client
    // asked.
    let last = op.replay.as_ref().map_or(set_at(op, body), |first| first.attr.mtime());
    if !body.valid.intersects(SetattrFlags::MTIME | SetattrFlags::MTIME_NOW)
        && (inode.mtime_set..=last).contains(&written)
    {
        inode.attr.set_mtime(written);
        inode.attr.set_ctime(written.max(inode.attr.ctime())); // as it was shown while it was dirty
    }
    op.tx.effects.push(Effect::Cleaned(fid));
    Ok(())
}

/// The file that changes.
pub(crate) fn file(request: &Request) -> Fid {
    request.body::<SetattrReq>().attr.fid()
}

/// The file, if its size changes.
pub(crate) fn cut(request: &Request) -> Option<Fid> {
    let body: SetattrReq = request.body();
    body.valid.contains(SetattrFlags::SIZE).then(|| body.attr.fid())
}

/// Whether no client can see the change: access times are told late in any case, and a size that is
/// found out was not covered by a lease.
pub(crate) fn is_unseen(request: &Request) -> bool {
    !request.body::<SetattrReq>().valid.intersects(WILL)
}

/// Whether it sets a size, or states one that its client has found out.
pub(crate) fn states_size(request: &Request) -> bool {
    let sizes = SetattrFlags::SIZE | SetattrFlags::SIZE_KNOWN;
    request.body::<SetattrReq>().valid.intersects(sizes)
}

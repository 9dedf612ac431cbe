//! open by FID: a handle in memory, and the mark that the size may change.
//!
//! Transaction: for writing, the inode becomes DIRTY before any client can write, and gets a layout
//! if it has none. After a restart the replay rebuilds the handle. If the file is gone, the replay
//! is stale. If the handle was closed durably, the replay changes nothing: the close may have left
//! the size known.
//!
//! An open for reading changes no record. So it has no place in history and no stored reply, where
//! its client states the handle after a restart ([`super::stated`]). For an older client the
//! transaction is only the place in history, so that it keeps the open for replay.
//!
//! A handle of a directory lets its client list it, whatever the mode is later. So it has a seal
//! ([`crate::handle_seal`]), which the answer has in the place of a file's stripes. The replay of a
//! durable open asks for no permission. With another seal it is refused. Without one, as an older
//! MDT answered, the handle lists nothing that the mode does not allow.

use layout::StripeSet;
use target::Decided;
use types::{ClientId, Errno, Fid};
use wire::attr::{S_IFLNK, S_IFREG};
use wire::body::{Disposition, OpenReq};
use wire::{Opcode, Request, SizeState};

use crate::effect::Effect;
use crate::handle_seal::seal;
use crate::op::rows::Opened;
use crate::op::{Answer, AttrAnswer, Caller, Op};
use crate::opens::OpenFile;
use crate::perm::{R, W, X, is_root};
use crate::record::{INODE_HAS_LAYOUT, Inode};
use crate::tx::Tx;

const O_ACCMODE: u32 = 3;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
/// Must make the file.
pub(crate) const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_DIRECT: u32 = 0o40_000;
const O_DIRECTORY: u32 = 0o200_000;
/// The kernel's mark of an open for execution, as FUSE passes it on.
const FMODE_EXEC: u32 = 0o40;

/// Bytes of a file in one reply: as many as the reply to a read has without a bulk phase.
const BYTES_MAX: u32 = wire::INLINE_BYTES_DEFAULT;

const _: () = assert!(BYTES_MAX < wire::BULK_BYTES_MAX);

/// Whether these flags open for writing.
pub(crate) fn wants_write(flags: u32) -> bool {
    flags & O_ACCMODE == O_WRONLY || flags & O_ACCMODE == O_RDWR
}

/// Whether these flags take all bytes away.
pub(crate) fn cuts(flags: u32) -> bool {
    flags & O_TRUNC != 0
}

/// Whether these flags open for reading alone, and not around the caches.
pub(crate) fn only_reads(flags: u32) -> bool {
    !wants_write(flags) && flags & (O_TRUNC | O_DIRECT) == 0
}

/// Whether a decided operation is an open for reading without a place in history.
pub(crate) fn is_unplaced(caller: &Caller<'_>, tx: &Tx<'_>) -> bool {
    if caller.replay || caller.request.opcode() != Opcode::MdtOpen {
        return false;
    }
    let OpenReq { open_flags, restates, .. } = caller.request.body();
    let may_change = wants_write(open_flags) || cuts(open_flags);
    restates != 0 && !may_change && tx.changes.is_empty() && tx.set.changes.is_empty()
}

/// A handle of `inode` that was opened with these flags.
pub(super) fn open_file(
    inode: &Inode,
    flags: u32,
    write: bool,
    (client, session): (ClientId, u64),
) -> OpenFile {
    OpenFile {
        fid: inode.fid(),
        client,
        session,
        read: wants_read(flags),
        write,
        runs: flags & FMODE_EXEC != 0 && inode.attr.file_type() == S_IFREG,
        lists: lists(flags),
    }
}

fn wants_read(flags: u32) -> bool {
    flags & O_ACCMODE == 0 || flags & O_ACCMODE == O_RDWR
}

/// Whether an open of a directory with these flags is asked for leave to read it.
fn lists(flags: u32) -> bool {
    wants_read(flags) && flags & FMODE_EXEC == 0
}

pub(crate) struct Opening {
    pub(crate) flags: u32,
    /// This operation made the file: its mode does not bind the one who made it.
    pub(crate) fresh: bool,
    /// It gets its layout later: from `lustre.lov`, or with the first write.
    pub(crate) no_layout: bool,
}

/// Opens by FID.
pub(crate) fn open(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: OpenReq = op.request.body();
    let inode = op.tx.inode(Fid::from(body.fid))?;
    if op.replay.is_some_and(|first| first.attr.fid() != inode.fid()) {
        return Err(Errno::EPROTO.into()); // the answer to another open
    }
    op.open_inode(inode, &Opening { flags: body.open_flags, fresh: false, no_layout: false })
}

/// How it opens the file.
pub(crate) fn opened(request: &Request) -> Option<Opened> {
    let body: OpenReq = request.body();
    let keeps = body.caches != 0;
    Some(Opened {
        flags: body.open_flags,
        keeps_reads: keeps,
        keeps_writes: keeps,
        room: body.room,
    })
}

/// Bytes of the file that the reply to such an open may carry.
pub(super) fn room(opened: Option<Opened>) -> u32 {
    let opened = opened.filter(|opened| only_reads(opened.flags));
    opened.map_or(0, |opened| opened.room.min(BYTES_MAX))
}

/// Most that the answer to an open may hold.
pub(super) fn answer_bytes(request: &Request) -> usize {
    room(opened(request)) as usize
}

impl Op<'_, '_> {
    /// Opens `inode`, which this operation may have made.
    pub(crate) fn open_inode(&mut self, mut inode: Inode, how: &Opening) -> Decided<Answer> {
        let write = wants_write(how.flags);
        if !how.fresh {
            self.check_open(&inode, how.flags)?;
        }
        self.decides_on(inode.fid());
        let prior = (!self.committed).then(|| inode.attr.size_state());
        let before = inode.clone();
        let truncated =
            if how.fresh { Truncated::No } else { self.truncate(&mut inode, how.flags) };
        let regular = inode.attr.file_type() == S_IFREG;
        let changes_data = write || truncated == Truncated::Objects;
        if regular && changes_data && !self.is_closed_since() {
            if !inode.has(INODE_HAS_LAYOUT) && !how.no_layout {
                self.place_late(&mut inode)?;
            }
            if write {
                inode.attr.size_state = SizeState::Dirty as u32;
            }
        }
        if inode != before {
            self.change(inode.clone());
        }
        let handle = self.open_handle(
            &inode,
            how.flags,
            write && regular,
            if truncated == Truncated::Objects { None } else { prior },
        )?;
        let made = Disposition::CREATED.when(how.fresh)
            | Disposition::BYTES.when(how.fresh && write && self.config.has_data);
        let cached = Disposition::CACHE.when(self.may_be_cached(&inode));
        let cut = Disposition::TRUNCATE.when(truncated == Truncated::Objects);
        let kept = Disposition::WRITES.when(self.may_keep_writes(&inode));
        let answer = self.full_answer(&inode, handle, made | cut | cached | kept)?;
        self.sealed(answer, &inode, (handle, how.flags))
    }

    /// The answer to an open, with the seal of its handle if it is of a directory.
    fn sealed(
        &self,
        answer: Answer,
        inode: &Inode,
        (handle, flags): (u64, u32),
    ) -> Decided<Answer> {
        let may_list = inode.attr.is_dir() && self.may_list(inode, (handle, flags))?;
        match answer {
            Answer::Attr(answer) if may_list => {
                let seal = seal(self.state.hash_key, handle, (inode.fid(), self.client));
                let stripes = StripeSet::from_parts(seal.into(), &[]);
                Ok(Answer::Attr(AttrAnswer { stripes, ..answer }))
            }
            answer => Ok(answer),
        }
    }

    /// Whether a handle is one by which its client may list a directory. A replay that was asked
    /// for no permission has a seal that says so, or none.
    fn may_list(&self, inode: &Inode, (handle, flags): (u64, u32)) -> Decided<bool> {
        let unasked = self.replay.filter(|_| self.committed && inode.attr.is_dir());
        let Some(first) = unasked.filter(|_| lists(flags)) else { return Ok(lists(flags)) };
        let seal = seal(self.state.hash_key, handle, (inode.fid(), self.client));
        match first.stripes {
            0 => Ok(false),
            stated if stated == u64::from(seal) => Ok(true),
            _ => Err(Errno::EPROTO.into()),
        }
    }

    fn check_open(&mut self, inode: &Inode, flags: u32) -> Decided<()> {
        let write = wants_write(flags) || flags & O_TRUNC != 0;
        if inode.attr.file_type() == S_IFLNK {
            return Err(Errno::ELOOP.into());
        }
        if inode.attr.is_dir() && write {
            return Err(Errno::EISDIR.into());
        }
        if !inode.attr.is_dir() && flags & O_DIRECTORY != 0 {
            return Err(Errno::ENOTDIR.into());
        }
        if write && inode.attr.is_file() {
            self.check_writable()?;
        }
        let read = if flags & FMODE_EXEC != 0 { X } else { R };
        let mask = if wants_read(flags) { read } else { 0 } | if write { W } else { 0 };
        self.access(inode, mask)?;
        let runs = flags & FMODE_EXEC != 0 && inode.attr.file_type() == S_IFREG;
        let written = || self.state.opens.another_writes(inode.fid(), self.client);
        if self.replay.is_none() && runs && written() {
            return Err(Errno::ETXTBSY.into());
        }
        if write { self.check_not_running(inode) } else { Ok(()) }
    }

    /// A program that runs at another client keeps its text. (What was allowed once is repeated
    /// after a restart in any order.)
    pub(crate) fn check_not_running(&self, inode: &Inode) -> Decided<()> {
        let runs = || self.state.opens.another_runs(inode.fid(), self.client);
        if self.replay.is_none() && runs() { Err(Errno::ETXTBSY.into()) } else { Ok(()) }
    }

    /// O_TRUNC. A replay of a durable open has truncated already.
    fn truncate(&mut self, inode: &mut Inode, flags: u32) -> Truncated {
        if flags & O_TRUNC == 0 || inode.attr.file_type() != S_IFREG || self.committed {
            return Truncated::No;
        }
        self.drop_capability(inode);
        (inode.attr.size, inode.attr.blocks, inode.stripes) = (0, 0, StripeSet::default());
        inode.attr.set_mtime(self.tx.now);
        inode.mtime_set = self.tx.now;
        inode.attr.set_ctime(self.tx.now);
        if !is_root(&self.creds) {
            self.drop_set_id(inode);
        }
        if inode.attr.size_state() == SizeState::NeverWritten {
            return Truncated::Empty;
        }
        self.dirty_by_cut(inode);
        Truncated::Objects
    }

    /// Whether this repeats a durable open whose close is durable too: nobody writes by it, and
    /// the size is what that close has left.
    fn is_closed_since(&self) -> bool {
        let handle = self.replay.map_or(0, |first| first.handle);
        self.committed && self.state.closed.contains(&handle)
    }

    fn open_handle(
        &mut self,
        inode: &Inode,
        flags: u32,
        write: bool,
        prior: Option<SizeState>,
    ) -> Decided<u64> {
        let handle = match self.replay {
            Some(first) => first.handle,
            None if self.state.opens.are_too_many(self.session) => {
                return Err(Errno::ENFILE.into());
            }
            None => self.state.opens.draw_handle(),
        };
        // an earlier run gave no more than this one would
        let is_one_more = || {
            self.state.opens.get(handle).is_none() && self.state.opens.are_too_many(self.session)
        };
        let is_forged =
            || !self.state.opens.may_have_been(handle, inode.fid(), self.client) || is_one_more();
        if self.replay.is_some() && handle != 0 && is_forged() {
            return Err(Errno::EPROTO.into());
        }
        let forgotten = self.replay.is_some() && self.config.bugs.forget_open_replay();
        if handle == 0 || forgotten || self.is_closed_since() {
            return Ok(handle);
        }
        let lists = self.may_list(inode, (handle, flags))?;
        let file =
            OpenFile { lists, ..open_file(inode, flags, write, (self.client, self.session)) };
        let epoch = write.then(|| self.state.opens.draw_epoch());
        self.tx.effects.push(Effect::Opened { handle, file, epoch, prior });
        if self.replay.is_some() && write && self.keeps_writes() {
            self.tx.effects.push(Effect::Keeps { session: self.session, fid: inode.fid() });
        }
        Ok(handle)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Truncated {
    No,
    /// Nothing was ever written: there are no objects to cut.
    Empty,
    /// The client must punch the objects.
    Objects,
}

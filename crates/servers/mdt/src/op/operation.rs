//! One operation while it is decided, and the request that asks for it.

use std::collections::BTreeSet;

use bytes::Bytes;
use ldlm::grants::{ChangeId, HolderId};
use target::Decided;
use types::{ClientId, Creds, Errno, Fid, Instant, NAME_BYTES_MAX, Timespec};
use wire::body::{AttrRep, Disposition, SetattrFlags, SetattrReq};
use wire::updates::OpId;
use wire::{Opcode, Request, SizeState};

use super::answer::{Answer, AttrAnswer};
use crate::MdtConfig;
use crate::cross::Crossing;
use crate::effect::Effect;
use crate::opens::Cutter;
use crate::puts::Written;
use crate::record::{INODE_ORPHAN, Inode};
use crate::share::ShareKey;
use crate::spaces::OstAt;
use crate::state::State;
use crate::tx::Tx;

/// Who asks for what.
pub(crate) struct Caller<'a> {
    pub(crate) request: &'a Request,
    pub(crate) client: ClientId,
    pub(crate) session: u64,
    pub(crate) creds: Creds,
    pub(crate) replay: bool,
    /// Others may still replay.
    pub(crate) recovering: bool,
    /// Server's time.
    pub(crate) now: Timespec,
    /// Its monotonic clock.
    pub(crate) clock: Instant,
    /// Names a change until it is executed or given up.
    pub(crate) change: ChangeId,
    /// What is known of other MDTs.
    pub(crate) crossing: &'a Crossing,
    /// Operations of other MDTs that a read need not wait for.
    pub(crate) passed: &'a BTreeSet<OpId>,
    /// When a session was heard of last.
    pub(crate) heard: &'a dyn Fn(HolderId) -> Option<Instant>,
    /// Whether another session holds the file's own lock.
    pub(crate) locked: &'a dyn Fn(Fid) -> bool,
    /// Whether it has taken as long as one answer of many parts may.
    pub(crate) is_long: &'a dyn Fn() -> bool,
    /// The object of the file that it makes with all of its bytes, once it is written.
    pub(crate) put: Option<&'a Written>,
}

/// One operation while it is decided.
pub(crate) struct Op<'a, 'v> {
    pub(crate) request: &'a Request,
    pub(crate) client: ClientId,
    pub(crate) session: u64,
    pub(crate) creds: Creds,
    /// What the first reply said, on a replay.
    pub(crate) replay: Option<AttrRep>,
    /// A replay of something durable: it only rebuilds what is in memory.
    pub(crate) committed: bool,
    /// Others may still re-open what looks closed.
    pub(crate) recovering: bool,
    pub(crate) tx: Tx<'v>,
    pub(crate) state: &'a mut State,
    pub(crate) config: &'a MdtConfig,
    /// Asks for the active OSTs.
    pub(crate) osts: &'a dyn Fn() -> Vec<OstAt>,
    /// Asks for the MDTs of the file system.
    pub(crate) mdts: &'a dyn Fn() -> Vec<u32>,
    /// What earlier attempts to decide it found out.
    pub(crate) crossing: &'a Crossing,
    /// Whether another session holds the file's own lock.
    pub(crate) locked: &'a dyn Fn(Fid) -> bool,
    /// Whether it has taken as long as one answer of many parts may: it tells what it has then.
    pub(crate) is_long: &'a dyn Fn() -> bool,
    /// As [`Caller::put`].
    pub(crate) put: Option<&'a Written>,
}

/// The time that a replay repeats: every operation stamps all it touches with one time, which the
/// reply shows.
pub(crate) fn replayed_time(request: &Request, first: &AttrRep) -> Timespec {
    if request.opcode() == Opcode::MdtSetattr {
        let valid = request.body::<SetattrReq>().valid;
        if valid.contains(SetattrFlags::ATIME_NOW) {
            return first.attr.atime();
        }
        if valid.contains(SetattrFlags::MTIME_NOW) {
            return first.attr.mtime();
        }
    }
    first.attr.ctime()
}

/// A name as a request carries it.
pub(crate) fn checked_name(name: &Bytes) -> Decided<&[u8]> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    match &name[..] {
        b"" => Err(Errno::ENOENT.into()),
        b"." | b".." => Err(Errno::EINVAL.into()),
        name if name.contains(&b'/') || name.contains(&0) => Err(Errno::EINVAL.into()),
        name => Ok(name),
    }
}

impl Op<'_, '_> {
    /// The answer with the attributes of `inode`, or of a file on another MDT with its FID and
    /// type.
    pub(crate) fn told(&self, inode: &Inode) -> Answer {
        match self.tx.is_here(inode.fid()) {
            true => Answer::attr(inode),
            false => Answer::elsewhere(inode.fid(), inode.attr.file_type()),
        }
    }

    /// The answer with attributes and layout of `inode` as the operation leaves it.
    pub(crate) fn full_answer(
        &self,
        inode: &Inode,
        handle: u64,
        disposition: Disposition,
    ) -> Decided<Answer> {
        let layout = self.tx.layout_record(inode)?;
        Ok(Answer::Attr(AttrAnswer::new(inode, handle, disposition, layout)))
    }

    /// The decision depends on this inode as it is.
    pub(crate) fn decides_on(&mut self, fid: Fid) {
        self.tx.decides.push(ShareKey::Inode(fid));
    }

    /// Sets an inode in a way that others' decisions may depend on.
    pub(crate) fn change(&mut self, inode: Inode) {
        self.tx.decides.push(ShareKey::Inode(inode.fid()));
        self.tx.changes.push(ShareKey::Inode(inode.fid()));
        self.tx.put(inode);
    }

    /// `inode` lost links. Without any it goes, or stays as an orphan while somebody has it open,
    /// or may have.
    pub(crate) fn drop_links(&mut self, inode: &mut Inode, links: u32) -> Decided<()> {
        inode.attr.nlink = inode.attr.nlink.saturating_sub(links);
        inode.attr.set_ctime(self.tx.now);
        if inode.attr.nlink > 0 {
            self.change(inode.clone());
            return Ok(());
        }
        if self.state.opens.is_open(inode.fid()) || self.recovering {
            if !self.config.bugs.skip_orphan_record() {
                inode.flags |= INODE_ORPHAN;
                self.tx.set.put(osd::Table::Orphans, inode.fid().to_key(), []);
            }
            self.change(inode.clone());
            return Ok(());
        }
        self.decides_on(inode.fid());
        self.destroy(inode)
    }

    /// Everything of a file goes; its objects through the log.
    pub(crate) fn destroy(&mut self, inode: &Inode) -> Decided<()> {
        let log = self.config.destroys_of_file();
        let is_logged = |effect: &&Effect| matches!(effect, Effect::DestroyLogged);
        let before = self.tx.effects.iter().filter(is_logged).count() as u64;
        let logged = self.tx.destroy(inode, self.state.destroy_next + before, log)?;
        self.tx.effects.extend((0..logged).map(|_| Effect::DestroyLogged));
        Ok(())
    }

    /// The caller as one that may cut the objects of files.
    pub(crate) fn cutter(&self) -> Cutter {
        Cutter { client: self.client, session: self.session }
    }

    /// Whether the objects of a file may be changing unknown to this run of the MDT, so that no
    /// size that the caller has found out counts. Which sessions cut objects is not stored. But one
    /// that does so holds the file's own lock, and states it again after a restart.
    pub(crate) fn may_change_unseen(&self, fid: Fid) -> bool {
        self.state.fences.is_unsure() || (self.locked)(fid)
    }

    /// The size of `inode` is to be asked from the OSTs from now on.
    pub(crate) fn dirty_size(&mut self, inode: &mut Inode) {
        inode.attr.size_state = SizeState::Dirty as u32;
        let epoch = self.state.opens.draw_epoch();
        self.tx.effects.push(Effect::Dirtied { fid: inode.fid(), epoch });
    }

    /// The same, because the client is to cut the objects of `inode` now.
    pub(crate) fn dirty_by_cut(&mut self, inode: &mut Inode) {
        self.dirty_size(inode);
        self.tx.effects.push(Effect::Cut { fid: inode.fid(), by: self.cutter() });
    }
}

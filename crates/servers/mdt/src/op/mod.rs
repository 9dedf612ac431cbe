//! Operations: one file each. An operation is a pure decision over the running image: it reads and
//! checks through its transaction, gathers its whole write set there, and says what to answer. The
//! target applies and answers.
//!
//! Every operation is one transaction: a failure leaves nothing behind. A replay repeats what the
//! first reply decided (FIDs, handles, layouts, times) and asks for no permission again.

mod close;
mod create;
mod fid2path;
mod getattr;
pub(crate) mod lease;
mod link;
mod open;
mod readdir;
mod rename;
mod setattr;
mod tmpfile;
mod unlink;
mod xattr;

use bytes::Bytes;
use target::Decided;
use types::{ClientId, Creds, Errno, Fid, NAME_BYTES_MAX, Span, Timespec};
use wire::body::{AttrRep, SetattrReq, setattr as bits};
use wire::{Attr, Opcode, Request, SizeState, encode_body};

use crate::MdtConfig;
use crate::record::{INODE_HAS_ACL, INODE_ORPHAN, Inode};
use crate::share::ShareKey;
use crate::spaces::OstAt;
use crate::state::{Effect, State};
use crate::tx::Tx;

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
}

pub(crate) enum Answer {
    /// Attributes of a file.
    Attr(AttrAnswer),
    Bufs(Vec<Bytes>),
}

/// Attributes, with what an open or create adds.
pub(crate) struct AttrAnswer {
    pub(crate) attr: Attr,
    pub(crate) handle: u64,
    pub(crate) disposition: u32,
    /// When its modification time was set by hand.
    pub(crate) mtime_set: Timespec,
    /// Stripes that must have an object.
    pub(crate) stripes: u64,
    /// Directory that it was made in, or moved to.
    pub(crate) parent: Fid,
    pub(crate) has_acl: bool,
    pub(crate) layout: Vec<u8>,
}

/// What goes with an answer into its reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras {
    /// Of the file, where the operation changed it.
    pub(crate) version: Option<u64>,
    /// Guards a size that comes later.
    pub(crate) epoch: u64,
    /// Leases on the attributes and on the name.
    pub(crate) lease: Span,
    pub(crate) name_lease: Span,
}

impl AttrAnswer {
    fn new(inode: &Inode, handle: u64, disposition: u32, layout: Vec<u8>) -> AttrAnswer {
        let Inode { attr, mtime_set, stripes, parent, .. } = *inode;
        let has_acl = inode.has(INODE_HAS_ACL);
        AttrAnswer { attr, handle, disposition, mtime_set, stripes, parent, has_acl, layout }
    }
}

impl Answer {
    /// Attributes only.
    pub(crate) fn attr(inode: &Inode) -> Answer {
        Answer::Attr(AttrAnswer::new(inode, 0, 0, Vec::new()))
    }

    /// Attributes after the close of `handle`.
    pub(crate) fn closed(inode: &Inode, handle: u64) -> Answer {
        Answer::Attr(AttrAnswer::new(inode, handle, 0, Vec::new()))
    }

    /// No body, `data` in buffer 1.
    pub(crate) fn data(data: impl Into<Bytes>) -> Answer {
        Answer::Bufs(vec![Bytes::new(), data.into()])
    }

    /// The buffers of the reply.
    pub(crate) fn into_bufs(self, extras: Extras) -> Vec<Bytes> {
        match self {
            Answer::Bufs(bufs) => bufs,
            Answer::Attr(mut answer) => {
                answer.attr.version = extras.version.unwrap_or(answer.attr.version);
                let body = AttrRep {
                    attr: answer.attr,
                    handle: answer.handle,
                    disposition: answer.disposition,
                    lease_ms: extras.lease.as_millis() as u32,
                    write_epoch: extras.epoch,
                    mtime_set: answer.mtime_set.sec,
                    mtime_set_nsec: answer.mtime_set.nsec,
                    name_lease_ms: extras.name_lease.as_millis() as u32,
                    stripes: answer.stripes,
                };
                vec![encode_body(&body), Bytes::from(answer.layout)]
            }
        }
    }

    /// The file that it tells of.
    pub(crate) fn fid(&self) -> Option<Fid> {
        match self {
            Answer::Attr(answer) => Some(answer.attr.fid()),
            Answer::Bufs(_) => None,
        }
    }
}

/// Whether the operation has a place in history.
pub(crate) fn modifies(opcode: Opcode) -> bool {
    use Opcode::{
        MdtClose, MdtCreate, MdtLink, MdtOpen, MdtRemovexattr, MdtRename, MdtSetattr, MdtSetxattr,
        MdtUnlink,
    };
    matches!(
        opcode,
        MdtCreate
            | MdtOpen
            | MdtClose
            | MdtLink
            | MdtUnlink
            | MdtRename
            | MdtSetattr
            | MdtSetxattr
            | MdtRemovexattr
    )
}

pub(crate) fn decide(op: &mut Op<'_, '_>) -> Decided<Answer> {
    match op.request.opcode() {
        Opcode::MdtGetattr => getattr::getattr(op),
        Opcode::MdtLookup => getattr::lookup(op),
        Opcode::MdtReadlink => getattr::readlink(op),
        Opcode::MdtCreate => create::create(op),
        Opcode::MdtOpen => open::open(op),
        Opcode::MdtClose => close::close(op),
        Opcode::MdtLink => link::link(op),
        Opcode::MdtUnlink => unlink::unlink(op),
        Opcode::MdtRename => rename::rename(op),
        Opcode::MdtSetattr => setattr::setattr(op),
        Opcode::MdtReaddir => readdir::readdir(op),
        Opcode::MdtGetxattr => xattr::get(op),
        Opcode::MdtSetxattr => xattr::set(op),
        Opcode::MdtListxattr => xattr::list(op),
        Opcode::MdtRemovexattr => xattr::remove(op),
        Opcode::MdtFid2path => fid2path::fid2path(op),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// The time that a replay repeats: every operation stamps all it touches with one time, which the
/// reply shows.
pub(crate) fn replayed_time(request: &Request, first: &AttrRep) -> Timespec {
    if request.opcode() == Opcode::MdtSetattr {
        let valid = request.body::<SetattrReq>().valid;
        if valid & bits::ATIME_NOW != 0 {
            return first.attr.atime();
        }
        if valid & bits::MTIME_NOW != 0 {
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
    /// The answer with attributes and layout of `inode` as the operation leaves it.
    pub(crate) fn full_answer(
        &self,
        inode: &Inode,
        handle: u64,
        disposition: u32,
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

    /// `inode` lost a name. Its last one: it goes, or stays as an orphan while somebody has it
    /// open, or may have.
    pub(crate) fn drop_name(&mut self, inode: &mut Inode) -> Decided<()> {
        let names = if inode.attr.is_dir() { 2 } else { 1 };
        inode.attr.nlink = inode.attr.nlink.saturating_sub(names);
        inode.attr.set_ctime(self.tx.now);
        if inode.attr.nlink > 0 {
            self.change(inode.clone());
            return Ok(());
        }
        if self.state.opens.is_open(inode.fid()) || self.recovering {
            if !self.config.bugs.skip_orphan_record {
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
        let log = !self.config.bugs.forget_destroy_log;
        if self.tx.destroy(inode, self.state.destroy_next, log)? {
            self.tx.effects.push(Effect::DestroyLogged);
        }
        Ok(())
    }

    /// The size of `inode` is to be asked from the OSTs from now on.
    pub(crate) fn dirty_size(&mut self, inode: &mut Inode) {
        inode.attr.size_state = SizeState::Dirty as u32;
        let epoch = self.state.opens.draw_epoch();
        self.tx.effects.push(Effect::Dirtied { fid: inode.fid(), epoch });
    }
}

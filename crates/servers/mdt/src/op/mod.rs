//! Operations: one file and one row each. Most are a pure decision over the running image. An
//! operation reads and checks through its transaction, gathers its whole write set there, and
//! decides the answer. The target applies the set and answers.
//!
//! Every operation is one transaction: a failure leaves nothing behind. A replay repeats what the
//! first reply decided (FIDs, handles, layouts, times) and checks no permission again.

pub(crate) mod caching;
mod close;
pub(crate) mod closes;
mod components;
mod create;
pub(crate) mod dirs;
mod fid2path;
mod getattr;
mod getattrs;
pub(crate) mod grants;
pub(crate) mod hurried;
pub(crate) mod lease;
mod link;
mod lock;
pub(crate) mod moves;
pub(crate) mod names;
mod open;
pub(crate) mod permits;
mod place;
pub(crate) mod put;
mod readdir;
mod readonly;
mod rename;
mod setattr;
pub(crate) mod stated;
mod statfs;
mod swap;
mod sync;
mod tmpfile;
mod unlink;
mod why;
mod xattr;

use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use env::LocalFuture;
use layout::StripeSet;
use ldlm::grants::{ChangeId, HolderId};
#[cfg(doc)]
use service::limits::ANSWER_BYTES_SMALL;
use service::spec::{LDLM_CANCELD, MDT, MDT_OUT, MDT_READPAGE};
use service::{Incoming, ServiceSpec};
use target::Decided;
use types::{ClientId, Creds, Errno, Fid, Instant, NAME_BYTES_MAX, TargetKind, Timespec};
use wire::body::{
    AttrRep, Disposition, GetattrsRep, ReaddirRep, ReaddirState, SetattrFlags, SetattrReq,
};
use wire::dirent::{self, Dirent};
use wire::stats::{self, StatRecord};
use wire::updates::OpId;
use wire::{Attr, Opcode, Reply, Request, SizeState, encode_body};

use self::caching::Data;
use self::closes::ClosedAnswer;
use self::hurried::Holds;
use self::lease::Scope;
pub(crate) use self::open::{is_unplaced, only_reads};
use self::readonly::ReadOnly;
use crate::cross::{Crossing, half, own, peer};
use crate::grants::Gift;
use crate::limits::{FID2PATH_BYTES_MAX, XATTR_LIST_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use crate::opens::Cutter;
use crate::puts::{UsesBytes, Written};
use crate::record::{INODE_HAS_ACL, INODE_ORPHAN, Inode};
use crate::share::ShareKey;
use crate::spaces::OstAt;
use crate::state::{Effect, State};
use crate::target::Mdt;
use crate::tx::Tx;
use crate::{MdtConfig, on_open};

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

pub(crate) enum Answer {
    /// Attributes of a file.
    Attr(AttrAnswer),
    /// Entries of a directory.
    Page(PageAnswer),
    /// Attributes of many files.
    Many(ManyAnswer),
    /// What closes of several files come to.
    Closed(ClosedAnswer),
    Bufs(Vec<Bytes>),
}

/// Attributes, with what an open or create adds.
pub(crate) struct AttrAnswer {
    pub(crate) attr: Attr,
    pub(crate) handle: u64,
    pub(crate) disposition: Disposition,
    /// When its modification time was set by hand.
    pub(crate) mtime_set: Timespec,
    /// Stripes that must have an object.
    pub(crate) stripes: StripeSet,
    /// Directory that it was made in, or moved to.
    pub(crate) parent: Fid,
    pub(crate) has_acl: bool,
    pub(crate) layout: Vec<u8>,
}

/// A page of a directory.
pub(crate) struct PageAnswer {
    pub(crate) entries: Vec<Listed>,
    pub(crate) state: ReaddirState,
    pub(crate) parent: Fid,
}

/// Attributes of many files, and why there are none of some.
pub(crate) struct ManyAnswer {
    pub(crate) files: Vec<Told>,
}

/// One of them.
pub(crate) struct Told {
    pub(crate) record: StatRecord,
    /// The attributes are the whole truth.
    pub(crate) is_offered: bool,
    /// Directory that it was made in, or moved to.
    pub(crate) parent: Fid,
}

/// An entry of a page.
pub(crate) struct Listed {
    pub(crate) entry: Dirent,
    /// The attributes are the whole truth, and the caller wants a lease on them.
    pub(crate) is_offered: bool,
}

/// What goes with an answer into its reply.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extras {
    /// Of the file, where the operation changed it.
    pub(crate) version: Option<u64>,
    /// Guards a size that comes later.
    pub(crate) epoch: u64,
    /// Grants of the attributes and of the name.
    pub(crate) lease: Gift,
    pub(crate) name_lease: Gift,
    /// Names them.
    pub(crate) number: u64,
}

impl Extras {
    pub(crate) fn new(plan: &lease::Plan, version: Option<u64>, epoch: u64) -> Extras {
        Extras {
            version,
            epoch,
            lease: plan.lease,
            name_lease: plan.name_lease,
            number: plan.number,
        }
    }
}

impl AttrAnswer {
    fn new(inode: &Inode, handle: u64, disposition: Disposition, layout: Vec<u8>) -> AttrAnswer {
        let Inode { attr, mtime_set, parent, .. } = *inode;
        let (stripes, has_acl) = (inode.stripes.clone(), inode.has(INODE_HAS_ACL));
        AttrAnswer { attr, handle, disposition, mtime_set, stripes, parent, has_acl, layout }
    }
}

impl Answer {
    /// Attributes only.
    pub(crate) fn attr(inode: &Inode) -> Answer {
        Answer::Attr(AttrAnswer::new(inode, 0, Disposition::empty(), Vec::new()))
    }

    /// A file on another MDT.
    pub(crate) fn elsewhere(fid: Fid, file_type: u32) -> Answer {
        Answer::Attr(AttrAnswer {
            attr: Attr { mode: file_type, ..Attr::default() }.with_fid(fid),
            handle: 0,
            disposition: Disposition::REMOTE,
            mtime_set: Timespec::default(),
            stripes: StripeSet::default(),
            parent: Fid::ZERO,
            has_acl: false,
            layout: Vec::new(),
        })
    }

    /// Attributes after the close of `handle`.
    pub(crate) fn closed(inode: &Inode, handle: u64) -> Answer {
        Answer::Attr(AttrAnswer::new(inode, handle, Disposition::empty(), Vec::new()))
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
                    lease_ms: extras.lease.to_ms(),
                    write_epoch: extras.epoch,
                    mtime_set: answer.mtime_set.sec,
                    mtime_set_nsec: answer.mtime_set.nsec,
                    name_lease_ms: extras.name_lease.to_ms(),
                    stripes: answer.stripes.first_part(),
                    grant: extras.number,
                };
                let layout = layout::with_stripes(answer.layout, &answer.stripes);
                vec![encode_body(&body), Bytes::from(layout)]
            }
            Answer::Page(answer) => answer.into_bufs(extras),
            Answer::Many(answer) => answer.into_bufs(extras),
            Answer::Closed(answer) => answer.into_bufs(),
        }
    }

    /// The file that it tells of.
    pub(crate) fn fid(&self) -> Option<Fid> {
        match self {
            Answer::Attr(answer) => Some(answer.attr.fid()),
            Answer::Bufs(_) | Answer::Page(_) | Answer::Many(_) | Answer::Closed(_) => None,
        }
    }
}

impl PageAnswer {
    fn into_bufs(self, extras: Extras) -> Vec<Bytes> {
        let mut page = Vec::new();
        self.entries.iter().for_each(|listed| dirent::push(&mut page, &listed.entry));
        let head = ReaddirRep {
            count: self.entries.len() as u32,
            at_end: self.state,
            parent: self.parent.into(),
            lease_ms: extras.lease.to_ms(),
            name_lease_ms: extras.name_lease.to_ms(),
            grant: extras.number,
        };
        vec![encode_body(&head), page.into()]
    }
}

impl ManyAnswer {
    fn into_bufs(mut self, extras: Extras) -> Vec<Bytes> {
        let mut records = Vec::new();
        for told in &mut self.files {
            told.record.rep.grant = extras.number;
            stats::push(&mut records, &told.record);
        }
        let head = GetattrsRep {
            count: self.files.len() as u32,
            grant: extras.number,
            ..GetattrsRep::default()
        };
        vec![encode_body(&head), records.into()]
    }
}

/// One operation. Whether it has a place in history is said by [`Opcode::modifies`].
pub(crate) struct Row {
    pub(crate) run: Run,
    /// Where its requests queue.
    pub(crate) service: &'static ServiceSpec,
    /// Its name in `md_stats`.
    pub(crate) stat: Stat,
    /// What it means for short leases.
    pub(crate) leases: Scope,
    /// Where it may change something.
    pub(crate) reach: Reach,
    /// Most that its answer may hold.
    pub(crate) answer: Length,
    /// What other clients may wait for until it is answered.
    pub(crate) holds: Holds,
    /// What it means for data that clients keep.
    pub(crate) data: Data,
    /// Whether it needs the bytes of the files that it decides on.
    pub(crate) bytes: UsesBytes,
    /// The handles that its stored reply says are closed.
    pub(crate) closed: Option<fn(&Reply) -> Vec<u64>>,
    /// What it does while the MDT is read-only.
    pub(crate) read_only: ReadOnly,
}

/// An operation around the store.
pub(crate) type Serving =
    for<'a> fn(&'a Rc<Mdt>, &'a Incoming) -> LocalFuture<'a, Result<Reply, Errno>>;

/// How an operation is executed.
pub(crate) enum Run {
    /// In one transaction over the running image.
    Decide(fn(&mut Op<'_, '_>) -> Decided<Answer>),
    /// Around the store: it may wait.
    Serve(Serving),
}

/// How an operation is counted.
pub(crate) enum Stat {
    /// Not at all.
    None,
    /// Under this name.
    Name(&'static str),
    /// Under a name that depends on the request.
    Of(fn(&Request) -> &'static str),
}

/// Where an operation may change something.
pub(crate) enum Reach {
    /// On this MDT alone, or nowhere.
    Here,
    /// On several MDTs.
    Several,
    /// On several MDTs, and it may need room for good on another one.
    Grows,
}

/// Most that an answer may hold.
pub(crate) enum Length {
    /// Attributes, or less than [`ANSWER_BYTES_SMALL`].
    Small,
    /// So many bytes.
    Max(usize),
    /// As many as the request says.
    Of(fn(&Request) -> usize),
}

macro_rules! operations {
    ($(
        $opcode:ident => $run:expr, $service:ident, $stat:expr, $leases:expr,
            $reach:expr, $answer:expr, $holds:expr, $data:expr, $bytes:expr, $closed:expr,
            $read_only:expr;
    )*) => {
        /// The row of an operation; none for what is not an MDT's.
        pub(crate) const fn row(opcode: Opcode) -> Option<&'static Row> {
            match opcode {
                $(Opcode::$opcode => {
                    const ROW: &Row = &Row {
                        run: $run,
                        service: &$service,
                        stat: $stat,
                        leases: $leases,
                        reach: $reach,
                        answer: $answer,
                        holds: $holds,
                        data: $data,
                        bytes: $bytes,
                        closed: $closed,
                        read_only: $read_only,
                    };
                    Some(ROW)
                })*
                _ => None,
            }
        }
    };
}

use Length::{Max, Small};
use Reach::{Grows, Here, Several};
use ReadOnly::{Judges, Refuses, Serves};
use Run::{Decide, Serve};
use Stat::{Name, Of};

operations! {
    MdtGetattr => Decide(getattr::getattr), MDT, Name("getattr"), Scope::Attributes,
        Here, Small, Holds::File(getattr::file),
        Data::Size(getattr::flags), UsesBytes::No, None, Serves;
    MdtLookup => Decide(getattr::lookup), MDT, Name("getattr"), Scope::Name(getattr::parent),
        Here, Small, Holds::Dir(getattr::parent), Data::None, UsesBytes::No, None, Serves;
    MdtCreate => Decide(create::create), MDT, Of(create::stat), Scope::Makes(create::parent),
        Grows, Small, Holds::Dir(create::parent),
        Data::Opens(create::opened), UsesBytes::Yes, None, Judges;
    MdtOpen => Decide(open::open), MDT, Name("open"), Scope::Opens,
        Here, Length::Of(on_open::answer_bytes), Holds::Nothing,
        Data::Opens(open::opened), UsesBytes::Yes, None, Judges;
    MdtClose => Decide(close::close), MDT_READPAGE, Name("close"), Scope::Closes(closes::file),
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, Some(closes::handle), Serves;
    MdtCloses => Decide(closes::closes), MDT_READPAGE, Name("close"),
        Scope::Closes(closes::files),
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, Some(closes::handles), Serves;
    MdtLink => Decide(link::link), MDT, Name("link"), Scope::Plain,
        Grows, Small, Holds::Dir(link::parent), Data::None, UsesBytes::No, None, Refuses;
    MdtUnlink => Decide(unlink::unlink), MDT, Of(unlink::stat), Scope::Removes(unlink::parent),
        Several, Small, Holds::Dir(unlink::parent), Data::None, UsesBytes::No, None, Refuses;
    MdtRename => Decide(rename::rename), MDT, Name("rename"), Scope::Moves(rename::parents),
        Grows, Small, Holds::Dirs(rename::parents), Data::None, UsesBytes::No, None, Refuses;
    MdtSetattr => Decide(setattr::setattr), MDT, Name("setattr"), Scope::Sets(setattr::is_unseen),
        Several, Small, Holds::File(setattr::file),
        Data::Cuts(setattr::cut), UsesBytes::If(setattr::states_size), None, Judges;
    MdtReaddir => Decide(readdir::readdir), MDT_READPAGE, Name("readdir"),
        Scope::Lists(readdir::leased),
        Here, Length::Of(readdir::answer_bytes), Holds::Nothing,
        Data::None, UsesBytes::No, None, Serves;
    MdtReadlink => Decide(getattr::readlink), MDT, Name("getattr"), Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtGetattrs => Decide(getattrs::getattrs), MDT_READPAGE, Name("getattr"),
        Scope::Each(getattrs::parent),
        Here, Length::Of(getattrs::answer_bytes), Holds::Nothing,
        Data::Sizes(getattrs::asks), UsesBytes::No, None, Serves;
    MdtGetxattr => Decide(xattr::get), MDT, Name("getxattr"), Scope::Plain,
        Here, Max(XATTR_VALUE_BYTES_MAX), Holds::File(xattr::file_read),
        Data::None, UsesBytes::No, None, Serves;
    MdtSetxattr => Decide(xattr::set), MDT, Name("setxattr"), Scope::Kept,
        Several, Small, Holds::File(xattr::file_changed),
        Data::Moves(xattr::moves_data), UsesBytes::Yes, None, Refuses;
    MdtListxattr => Decide(xattr::list), MDT, Name("getxattr"), Scope::Plain,
        Here, Max(XATTR_LIST_BYTES_MAX), Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtRemovexattr => Decide(xattr::remove), MDT, Name("setxattr"), Scope::Kept,
        Several, Small, Holds::Nothing, Data::Attributes, UsesBytes::No, None, Refuses;
    MdtStatfs => Serve(statfs::serve), MDT, Name("statfs"), Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtSync => Serve(sync::serve), MDT, Name("sync"), Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtFid2path => Decide(fid2path::fid2path), MDT, Stat::None, Scope::Plain,
        Here, Max(FID2PATH_BYTES_MAX), Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtLock => Serve(lock::ask), MDT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtLayout => Decide(place::layout_intent), MDT, Name("setattr"), Scope::Unseen(|_| true),
        Here, Small, Holds::File(place::file), Data::None, UsesBytes::Yes, None, Judges;
    MdtPrepare => Serve(peer::prepare), MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Judges;
    MdtUpdate => Serve(peer::update), MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtUpdates => Serve(peer::list), MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtUpdatesDone => Serve(peer::done), MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtUpdateOf => Serve(half::find), MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtMove => Serve(own::serve), MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtUnlock => Serve(lock::give_back), LDLM_CANCELD, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtAck => Serve(grants::ack), LDLM_CANCELD, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtShed => Serve(grants::shed), LDLM_CANCELD, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtRestate => Serve(grants::restate), MDT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
}

// An opcode of MDTs without a row does not compile, nor does a row of another target's.
const _: () = {
    let mut at = 0;
    while at < Opcode::ALL.len() {
        let opcode = Opcode::ALL[at];
        let is_ours = matches!(opcode.target(), Some(TargetKind::Mdt));
        assert!(row(opcode).is_some() == is_ours, "every operation of MDTs has its row");
        at += 1;
    }
};

/// Most that the answer to a request may hold; zero where it is small.
pub(crate) fn answer_bytes(request: &Request) -> u64 {
    let bytes = match row(request.opcode()).map(|row| &row.answer) {
        None | Some(Length::Small) => 0,
        Some(Length::Max(bytes)) => *bytes,
        Some(Length::Of(bytes)) => bytes(request),
    };
    bytes as u64
}

/// Decides one operation.
pub(crate) fn decide(row: &Row, op: &mut Op<'_, '_>) -> Decided<Answer> {
    match row.run {
        Run::Decide(decide) => decide(op),
        Run::Serve(_) => Err(Errno::EOPNOTSUPP.into()),
    }
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

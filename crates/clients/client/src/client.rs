//! The client: the state that all parts share, and how a request is sent.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Answer, Bulk, Call, CallError, Directory, Endpoint, Hold, Keep, Remote};
use env::{Env, Task};
use tokio::sync::{Semaphore, oneshot};
use types::{Errno, Fid, FsName, Instant, NidAddr, Span, TargetId, TargetKind};
use wire::body::{Claim, Disposition, StatfsRep};
use wire::config::FsConfig;
use wire::{Opcode, Reply, encode_body};
use zerocopy::{Immutable, IntoBytes};

use crate::config::MountConfig;
use crate::data::{Closes, Cuts, DataChange, Keeper};
use crate::grants::{AllGrants, Changing, Gift, Lease, Scope};
use crate::inode::Inodes;
use crate::limits;
use crate::locks::{Held, Turns};
use crate::lost::Losses;
use crate::namespace::elsewhere::Elsewhere;
use crate::namespace::order::Order;
use crate::namespace::refused::Refused;
use crate::namespace::striped::Striped;
use crate::resting::AtRest;
use crate::stat::Stat;
use crate::statahead::Statahead;
use crate::{AccessTimes, Ctx, Error, Result, TargetState};

/// A mounted file system. Cheap to clone; belongs to one executor thread.
///
/// All calls wait through restarts of servers, for ever unless the mount is `soft`. Dropping a
/// call's future gives the wait up and takes a change back, unless its server has begun it.
#[derive(Clone)]
pub struct Client(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) config: MountConfig,
    pub(crate) access_times: Cell<AccessTimes>,
    pub(crate) unmount_wait: Cell<Span>,
    /// Handles for writing whose close is under way.
    pub(crate) closing: Cell<u32>,
    /// Opens bring the bytes of small files.
    pub(crate) read_on_open: Cell<bool>,
    /// The kernel keeps data of files that are read.
    pub(crate) page_cache: Cell<bool>,
    /// Small writes are acknowledged before they are sent.
    pub(crate) writeback: Cell<bool>,
    pub(crate) keeper: Keeper,
    pub(crate) endpoint: Rc<Endpoint>,
    pub(crate) directory: Rc<Directory>,
    /// Files that this client has open.
    pub(crate) inodes: Inodes,
    /// Handles that nobody uses.
    pub(crate) at_rest: AtRest,
    /// Closes that wait to be sent.
    pub(crate) closes: Closes,
    /// Files that this client is cutting.
    pub(crate) cuts: Cuts,
    /// Locks that this client holds.
    pub(crate) held: RefCell<Held>,
    /// Waits of locks under way at the MDT.
    pub(crate) lock_waits: Semaphore,
    /// Waits for locks that the MDT calls.
    pub(crate) turns: Rc<Turns>,
    /// Numbers for lock waits and for owners of the file's own lock.
    pub(crate) numbers: Cell<u64>,
    /// OSTs that this client changed something on.
    pub(crate) written: RefCell<BTreeSet<TargetId>>,
    /// Last word of each target about its space.
    pub(crate) spaces: RefCell<BTreeMap<TargetId, StatfsRep>>,
    /// Remotes whose hooks are set.
    pub(crate) hooked: RefCell<BTreeSet<TargetId>>,
    /// Targets that an administrator took out of use.
    pub(crate) inactive: RefCell<BTreeSet<TargetId>>,
    /// Dirty files whose size was offered to the MDT, by which user, and the epoch then.
    pub(crate) offered: RefCell<BTreeMap<(Fid, u32), u64>>,
    /// What is cached under grants.
    pub(crate) grants: AllGrants,
    /// There are several MDTs.
    pub(crate) has_mdts: Cell<bool>,
    /// Directories that are spread over MDTs.
    pub(crate) striped: Rc<Striped>,
    /// Names of files at other MDTs.
    pub(crate) elsewhere: Elsewhere,
    /// Changes that others of this client wait for.
    pub(crate) order: Order,
    /// Acknowledged work that is lost.
    pub(crate) losses: Losses,
    /// Requests on behalf of callers since the mount.
    pub(crate) asked: RefCell<BTreeMap<Opcode, u64>>,
    /// Names that are asked for ahead of their use.
    pub(crate) statahead: Statahead,
    /// Objects of one glimpse at most.
    pub(crate) glimpse_batch: Cell<usize>,
    /// Glimpses of one call in flight at most.
    pub(crate) glimpse_in_flight: Cell<usize>,
    /// Sizes that the MDT knows are used (Lustre: strict size on MDT).
    pub(crate) som: Cell<bool>,
    /// Where new files are not offered to the MDT with their bytes.
    pub(crate) put_refused: Refused,
    pub(crate) background: RefCell<Vec<Task>>,
}

impl Client {
    /// The environment that it runs in.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// Name of the file system.
    #[must_use]
    pub fn fsname(&self) -> FsName {
        self.0.config.fsname
    }

    /// How access times are kept, as far as this client has a say.
    #[must_use]
    pub fn access_times(&self) -> AccessTimes {
        self.0.access_times.get()
    }

    /// Keeps access times in another way from now on.
    pub fn set_access_times(&self, access_times: AccessTimes) {
        self.0.access_times.set(access_times);
    }

    /// Requests that calls have sent since the mount, by operation.
    #[must_use]
    pub fn requests(&self) -> BTreeMap<Opcode, u64> {
        self.0.asked.borrow().clone()
    }

    /// Objects that one glimpse asks for at most.
    #[must_use]
    pub fn glimpse_batch(&self) -> usize {
        self.0.glimpse_batch.get()
    }

    /// Sets that, within 1 and [`limits::GLIMPSE_BATCH_MAX`]. With 1, each object is a request.
    pub fn set_glimpse_batch(&self, objects: usize) {
        self.0.glimpse_batch.set(objects.clamp(1, limits::GLIMPSE_BATCH_MAX));
    }

    /// Glimpses that one call has in flight at most.
    #[must_use]
    pub fn glimpse_in_flight(&self) -> usize {
        self.0.glimpse_in_flight.get()
    }

    /// Sets that, within 1 and [`limits::BATCH_RPCS_MAX`]. With 1, they go one after another.
    pub fn set_glimpse_in_flight(&self, glimpses: usize) {
        self.0.glimpse_in_flight.set(glimpses.clamp(1, limits::BATCH_RPCS_MAX));
    }

    /// Whether sizes that the MDT knows are used.
    #[must_use]
    pub fn som(&self) -> bool {
        self.0.som.get()
    }

    /// Whether they are from now on. Without them each getattr of a file asks all its objects.
    pub fn set_som(&self, is_on: bool) {
        self.0.som.set(is_on);
    }

    /// Identity of the file system: of the storage that its root is on; zero where an older MGS
    /// does not say it.
    #[must_use]
    pub fn identity(&self) -> u128 {
        let root = mdt_of(Fid::ROOT).to_u32();
        self.0.directory.config().uuid_of(root)
    }

    /// For whom calls wait now: "testfs-OST0002 (reconnecting for 3 s)". Empty: for nobody.
    #[must_use]
    pub fn waiting_on(&self) -> Vec<String> {
        let all = self.0.all_holders();
        all.iter().filter_map(|id| self.0.remote(*id).waiting_on()).collect()
    }

    /// Other clients for which calls wait now, and where: "MDT0000 (waits for c7)". They do not
    /// give up what they cache.
    #[must_use]
    pub fn held_up_by(&self) -> Vec<String> {
        let all = self.0.all_targets();
        all.iter().filter_map(|id| self.0.remote(*id).held_up_by()).collect()
    }

    /// The OSTs, by index, as the MGS lists them.
    #[must_use]
    pub fn osts(&self) -> Vec<TargetState> {
        self.0.states(TargetKind::Ost)
    }

    /// The data targets of MDTs that this client has used, by index.
    #[must_use]
    pub fn data_targets(&self) -> Vec<TargetState> {
        self.0.data_targets().into_iter().map(|id| self.0.state_of(id)).collect()
    }

    /// The MGS, asked for the configuration: active if it answered within a few seconds.
    pub async fn mgs(&self) -> TargetState {
        let answered = self.0.fetch_config(Some(limits::REFRESH_PATIENCE)).await.is_ok();
        let at: Vec<String> = self.0.config.mgs.iter().map(ToString::to_string).collect();
        let name = format!("MGC{}", at.first().cloned().unwrap_or_default());
        TargetState { active: answered, name, nid: at.join(","), ..self.0.state_of(TargetId::MGT) }
    }

    /// The configuration, asked for anew where the MGS answers within a few seconds.
    pub async fn fresh_config(&self) -> FsConfig {
        let _what_is_known_does = self.0.fetch_config(Some(limits::REFRESH_PATIENCE)).await;
        self.0.directory.config().clone()
    }

    /// Permanent parameters of the file system, as the MGS said last: pattern and value.
    #[must_use]
    pub fn permanent_params(&self) -> Vec<(String, String)> {
        self.0.directory.config().params.clone()
    }

    /// The MDTs, by index.
    #[must_use]
    pub fn mdts(&self) -> Vec<TargetState> {
        self.0.states(TargetKind::Mdt)
    }
}

/// The MDT that has a file, and the names in a directory.
pub(crate) fn mdt_of(fid: Fid) -> TargetId {
    TargetId::mdt(fid.mdt_index())
}

impl Inner {
    /// What OSTs are told where an object of `fid` is used.
    pub(crate) fn claim(self: &Rc<Self>, fid: Fid) -> Claim {
        self.remote(mdt_of(fid)).claim()
    }

    /// Asks an OST for something on the word of the MDT of a file. Where the OST knows that the
    /// session is over, it is given up: whatever it held belongs to others.
    pub(crate) async fn ask_claiming(
        self: &Rc<Self>,
        ost: TargetId,
        (fid, claim): (Fid, Claim),
        call: impl Into<Call>,
    ) -> Result<Answer> {
        let answer = self.ask(ost, call).await;
        match answer {
            Err(error) if error.errno() == Errno::EKEYREVOKED => {
                planted::reached("client: it was fenced");
                let (mdt, fsname) = (mdt_of(fid), self.config.fsname);
                let (at, target_id) = (mdt.name(fsname), ost.name(fsname));
                tracing::warn!(%target_id, "refused there: the session with {at} is over");
                self.remote(mdt).renounce(claim.session);
                Err(Error::call(&CallError::Evicted, ost, error.stage()))
            }
            answer => answer,
        }
    }

    pub(crate) fn all_targets(&self) -> Vec<TargetId> {
        [self.directory.targets(TargetKind::Mdt), self.directory.targets(TargetKind::Ost)].concat()
    }

    /// The data targets that were used: nobody connects to another one.
    fn data_targets(&self) -> Vec<TargetId> {
        self.hooked.borrow().iter().copied().filter(|id| id.is_dom()).collect()
    }

    /// All that may have changes of this client: data targets too.
    pub(crate) fn all_holders(&self) -> Vec<TargetId> {
        [self.all_targets(), self.data_targets()].concat()
    }

    /// A target's remote, with its hooks.
    pub(crate) fn remote(self: &Rc<Self>, target: TargetId) -> Rc<Remote> {
        let remote = self.endpoint.remote(target);
        if self.hooked.borrow_mut().insert(target) {
            self.set_hooks(&remote);
        }
        remote
    }

    fn states(self: &Rc<Self>, kind: TargetKind) -> Vec<TargetState> {
        self.directory.targets(kind).into_iter().map(|id| self.state_of(id)).collect()
    }

    pub(crate) fn state_of(self: &Rc<Self>, id: TargetId) -> TargetState {
        let remote = self.remote(id);
        TargetState {
            id,
            name: id.name(self.config.fsname),
            state: remote.state(),
            connected: remote.is_connected(),
            active: !self.inactive.borrow().contains(&id),
            nid: self
                .directory
                .registered_at(id)
                .first()
                .map_or_else(String::new, NidAddr::to_string),
        }
    }

    /// A request on behalf of `ctx`.
    pub(crate) fn call<T: IntoBytes + Immutable>(
        &self,
        ctx: &Ctx,
        opcode: Opcode,
        body: &T,
    ) -> CallBuilder {
        let mut call = Call::new(opcode, vec![encode_body(body)]);
        call.creds = ctx.creds.clone();
        call.jobid = ctx.jobid;
        call.patience = self.patience();
        CallBuilder(call)
    }

    pub(crate) fn patience(&self) -> Option<Span> {
        self.config.soft.then_some(self.config.soft_wait)
    }

    /// When a soft mount gives up what begins now.
    pub(crate) fn give_up_at(&self) -> Option<Instant> {
        self.patience().map(|patience| self.env.now() + patience)
    }

    /// Asks `target`, again while it says EINPROGRESS; an error names it and the operation.
    pub(crate) async fn ask(
        self: &Rc<Self>,
        target: TargetId,
        call: impl Into<Call>,
    ) -> Result<Answer> {
        let call: Call = call.into();
        {
            let unsettled = self.unsettled_for(target, &call);
            if !unsettled.is_empty() {
                Box::pin(self.settle_files(unsettled)).await;
            }
        }
        let call = self.order.enter(call, &|fid| self.striped.master(fid)).await;
        let stage = call.opcode.name();
        self.check_mdt(target, stage).await?;
        if call.modifies && target.kind == TargetKind::Ost {
            self.written.borrow_mut().insert(target);
        }
        let give_up = call.patience.map(|patience| self.env.now() + patience);
        let text_busy_until = self.env.now() + limits::TEXT_BUSY_WAIT;
        loop {
            *self.asked.borrow_mut().entry(call.opcode).or_default() += 1;
            match self.remote(target).call(call.clone()).await {
                Err(CallError::Errno(Errno::EINPROGRESS))
                    if give_up.is_none_or(|until| self.env.now() < until) =>
                {
                    self.env.sleep(limits::IN_PROGRESS_PAUSE).await;
                }
                Err(CallError::Errno(Errno::ETXTBSY)) if self.env.now() < text_busy_until => {
                    self.env.sleep(limits::TEXT_BUSY_PAUSE).await;
                }
                outcome => return outcome.map_err(|error| Error::call(&error, target, stage)),
            }
        }
    }

    /// A change of what [`Scope`] says, by `call`; its answer, and how long that holds.
    pub(crate) async fn change(
        self: &Rc<Self>,
        scope: Scope,
        target: TargetId,
        call: impl Into<Call>,
    ) -> Result<(Stat, Lease)> {
        self.change_beside(scope, target, call, None).await
    }

    /// The same of a change that is counted at another MDT, too.
    pub(crate) async fn change_beside(
        self: &Rc<Self>,
        scope: Scope,
        target: TargetId,
        call: impl Into<Call>,
        beside: Option<(Fid, Changing)>,
    ) -> Result<(Stat, Lease)> {
        let (beside_dir, beside) = beside.unzip();
        let dirs: Vec<Fid> = scope.named_in().collect();
        let changing = self.grants.at(target.index).changing(scope);
        let hold = match &beside {
            None => changing.hold(),
            Some(beside) => Hold(Some(Rc::new((changing.hold(), beside.hold())) as _)),
        };
        let call = Call { hold, ..call.into() };
        let stage = call.opcode.name();
        let answer = match beside_dir {
            None => self.ask(target, call).await,
            // boxed: most changes are of one MDT, and their futures shall be small
            Some(dir) => Box::pin(self.forgotten_if_slow(dir, self.ask(target, call))).await,
        };
        match answer {
            Ok(answer) => {
                let stat = self.stat_of(target, &answer.reply, stage)?;
                self.note_names(&dirs, &stat);
                let lease = changing.done(&stat);
                beside.into_iter().for_each(Changing::done_elsewhere);
                self.shed_grants(target.index);
                Ok((stat, lease))
            }
            Err(error) => {
                changing.failed(&error);
                beside.into_iter().for_each(|beside| beside.failed(&error));
                Err(error)
            }
        }
    }

    /// The answer to a change of a directory that another MDT has as well. If the MDT that answers
    /// is away, the other may have made the change long before the answer: the kernel asks then.
    async fn forgotten_if_slow<T>(&self, dir: Fid, answer: impl Future<Output = T>) -> T {
        let mut answer = std::pin::pin!(answer);
        if let Some(answer) = self.env.timeout(limits::BESIDE_WAIT, answer.as_mut()).await {
            return answer;
        }
        self.grants.forget_attrs(dir);
        answer.await
    }

    /// A change that makes names in these directories was executed.
    pub(crate) fn note_names(&self, dirs: &[Fid], stat: &Stat) {
        let told = std::iter::once(stat.attr.fid());
        for fid in told.chain(stat.touched.iter().flatten().copied()) {
            dirs.iter().for_each(|dir| self.elsewhere.note(*dir, fid));
        }
    }

    /// The word of an MDT about a file. It grants attributes of its own files only.
    pub(crate) fn stat_of(
        &self,
        mdt: TargetId,
        reply: &Reply,
        stage: &'static str,
    ) -> Result<Stat> {
        Ok(self.checked(mdt, Stat::of(reply, stage)?))
    }

    /// What an MDT tells of a file, as far as it may.
    pub(crate) fn checked(&self, mdt: TargetId, mut stat: Stat) -> Stat {
        if mdt_of(stat.attr.fid()) != mdt {
            stat.lease = Gift::None;
        }
        stat.dir = stat.dir.filter(|(dir, _)| mdt_of(dir.fid()) == mdt);
        if !stat.disposition.contains(Disposition::REMOTE) {
            self.note(&stat.attr);
        }
        stat
    }

    /// The MDTs that a session was begun with, and the first one.
    pub(crate) fn used_mdts(self: &Rc<Self>) -> Vec<TargetId> {
        let mdts = self.directory.targets(TargetKind::Mdt).into_iter();
        mdts.filter(|mdt| mdt.index == 0 || self.remote(*mdt).claim().session != 0).collect()
    }

    /// Refuses a file whose MDT does not exist: its FID is made up, or from a reply that is broken.
    async fn check_mdt(self: &Rc<Self>, target: TargetId, stage: &'static str) -> Result<()> {
        let is_known = |inner: &Inner| {
            target.kind != TargetKind::Mdt
                || target.index == 0
                || inner.directory.targets(TargetKind::Mdt).contains(&target)
        };
        if is_known(self) {
            return Ok(());
        }
        // it may be new
        let _what_is_known_does = Box::pin(self.fetch_config(Some(limits::REFRESH_PATIENCE))).await;
        match is_known(self) {
            true => Ok(()),
            false => Err(Error::local(Errno::ESTALE, stage)),
        }
    }

    /// A number that this client has not used before.
    pub(crate) fn next_number(&self) -> u64 {
        let number = self.numbers.get().wrapping_add(1).max(1);
        self.numbers.set(number);
        number
    }

    /// Runs `work` to its end even if nobody waits for it any more: an operation of several steps
    /// is never left half done because its caller was interrupted.
    pub(crate) async fn run<T: 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T>> + 'static,
    ) -> Result<T> {
        let (done, wait) = oneshot::channel();
        self.env.spawn(name, async move {
            let _ = done.send(work.await); // nobody waiting is what this is for
        });
        wait.await.unwrap_or_else(|_| Err(Error::local(Errno::ESHUTDOWN, name)))
    }
}

/// A [`Call`] being put together.
pub(crate) struct CallBuilder(Call);

impl CallBuilder {
    pub(crate) fn buf(mut self, bytes: impl Into<Bytes>) -> CallBuilder {
        self.0.bufs.push(bytes.into());
        self
    }

    /// Another buffer, from borrowed bytes.
    pub(crate) fn name(self, bytes: &[u8]) -> CallBuilder {
        self.buf(Bytes::copy_from_slice(bytes))
    }

    /// About a file of this project.
    pub(crate) fn projid(mut self, projid: u32) -> CallBuilder {
        self.0.projid = projid;
        self
    }

    /// Safe to execute twice.
    pub(crate) fn repeatable(self) -> CallBuilder {
        CallBuilder(self.0.repeatable())
    }

    pub(crate) fn sync(mut self, sync: bool) -> CallBuilder {
        self.0.sync = sync;
        self
    }

    pub(crate) fn bulk(mut self, bulk: Bulk) -> CallBuilder {
        self.0.bulk = bulk;
        self
    }

    /// Under way until its target has executed it or never will.
    pub(crate) fn hold(mut self, change: &Rc<DataChange>) -> CallBuilder {
        self.0.hold = Hold(Some(Rc::clone(change) as _));
        self
    }

    /// How long it is kept for replay.
    pub(crate) fn keep(mut self, keep: Keep) -> CallBuilder {
        self.0.keep = keep;
        self
    }

    /// Somebody else may wait for it.
    pub(crate) fn urgent(mut self, urgent: bool) -> CallBuilder {
        self.0.urgent = urgent;
        self
    }

    /// At most this long, where it is shorter than what the mount allows.
    pub(crate) fn patience(mut self, patience: Span) -> CallBuilder {
        self.0.patience = Some(self.0.patience.map_or(patience, |allowed| allowed.min(patience)));
        self
    }
}

impl From<CallBuilder> for Call {
    fn from(builder: CallBuilder) -> Call {
        builder.0
    }
}

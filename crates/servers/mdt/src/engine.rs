//! The running transaction and every decision over it, without sessions and network.
//!
//! [`Engine::attempt`] is one operation: read, decide, apply, answer. It does not yield the thread
//! in between, so operations are serial. The answered change is in history but not durable;
//! [`Engine::commit`] makes it so.
//!
//! Invariants
//! - Memory follows the store: effects happen only after the set was applied, leases included. Only
//!   a change that is refused because of a lease leaves a mark: the leases that it waits for become
//!   contended. The plan of an answer draws the number that the reply carries ([`lease`]).
//! - Ids that were drawn for a change which is not applied are free again, except those of a file
//!   whose bytes come first. Only such a file and a change that is applied reserve more of them.
//! - `last_transno` is the highest applied one. A commit reports exactly the changes that were
//!   applied before it began.
//! - A failure of the store ends the instance ([`target::Failure`]).

mod own;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;

use bytes::Bytes;
use osd::{MetaStore, StoreError, Table, View, WriteSet};
use target::{Decided, Marks, OpError, Pace, Store};
use tokio::sync::Notify;
use types::{Errno, Fid, TargetId, Timespec, Transno};
use wire::body::{AttrRep, DirRep};
use wire::updates::{self, OpId, Part, Record, Update};
use wire::{Reply, Request, decode_body, encode_body};

use crate::MdtConfig;
use crate::attempt::Attempted;
use crate::cross::{Claim, Needs, seal};
use crate::effect::Effect;
use crate::grants::Gift;
use crate::hash::HashKey;
use crate::keys;
use crate::limits::SHARED_KEYS_MAX;
use crate::op::caching::{self, Taken};
use crate::op::lease::{self, Plan};
use crate::op::unfenced::is_unfenced;
use crate::op::{self, Answer, Caller, Extras, Op, Reach, Row, Scope, permits};
use crate::puts;
use crate::record::Inode;
use crate::share::ShareKey;
use crate::spaces::OstAt;
use crate::state::State;
use crate::tx::{Finished, Tx};

/// One operation in 64 is the one that `Bugs::ack_before_apply` loses.
const LOSE_EVERY: u64 = 64;

/// The target's history, as sessions keep it.
pub(crate) trait History {
    /// Transno of the operation.
    fn next(&self) -> Transno;
    /// Marks the reply and tells what to store for a resend after a crash.
    fn record(&self, transno: Transno, reply: &mut Reply) -> (Vec<u8>, Vec<u8>);
}

pub(crate) struct Engine {
    pub(crate) config: MdtConfig,
    pub(crate) store: Store,
    pub(crate) state: RefCell<State>,
    pub(crate) ost_list: Rc<dyn Fn() -> Vec<OstAt>>,
    /// Indexes of the MDTs of the file system, as far as they are known.
    pub(crate) mdt_list: Rc<dyn Fn() -> Vec<u32>>,
    pub(crate) pace: Rc<Pace>,
    /// What its administrator said of this MDT.
    pub(crate) marks: Rc<Marks>,
    /// Records of the destroy log below this are durable.
    pub(crate) destroys_durable: Cell<u64>,
    /// There may be something to destroy.
    pub(crate) destroys_wanted: Notify,
    /// The data target, if it is served in this process.
    pub(crate) data: OnceCell<Rc<dyn target::Data>>,
    /// Bytes of new files and commits.
    pub(crate) puts: puts::Order,
    applied: Cell<u64>,
}

impl Engine {
    pub(crate) fn new(
        config: MdtConfig,
        store: Rc<dyn MetaStore>,
        state: State,
        ost_list: Rc<dyn Fn() -> Vec<OstAt>>,
        mdt_list: Rc<dyn Fn() -> Vec<u32>>,
    ) -> Engine {
        let destroys_durable = Cell::new(state.destroy_next);
        Engine {
            store: Store::new(TargetId::mdt(config.index).name(config.fsname), store),
            pace: Pace::new(config.commit_interval),
            marks: state.marks.clone(),
            config,
            state: RefCell::new(state),
            ost_list,
            mdt_list,
            destroys_durable,
            destroys_wanted: Notify::new(),
            data: OnceCell::new(),
            puts: puts::Order::default(),
            applied: Cell::new(0),
        }
    }

    /// Indexes of all that may have objects of its files: the OSTs, and its data target.
    pub(crate) fn holders(&self) -> BTreeSet<u32> {
        let osts = (self.ost_list)().into_iter().map(|ost| ost.index);
        let data = self.config.has_data.then(|| TargetId::dom(self.config.index).index);
        osts.chain(data).collect()
    }

    /// Executes one operation, or says why not now.
    pub(crate) fn attempt(&self, caller: &Caller<'_>, history: &dyn History) -> Decided<Attempted> {
        let row = op::row(caller.request.opcode()).ok_or(Errno::EOPNOTSUPP)?;
        if !caller.replay && row.is_refused(&self.marks) {
            return Err(Errno::EROFS.into());
        }
        let goes_together = caller.request.opcode() == wire::Opcode::MdtCloses && !caller.replay;
        if goes_together && self.store.meta().is_full()? {
            return Err(Errno::EAGAIN.into()); // its stored reply would take much of the reserve
        }
        let view = self.store.meta().running()?;
        let mut guard = self.state.borrow_mut();
        guard.spaces.take_back_promises();
        let drawn_before = (guard.files.clone(), guard.objects.clone());
        let Tried { decided, mut tx, repeated, committed, now } =
            self.decide(row, caller, &*view, &mut guard);
        let decided = (decided, repeated.is_some());
        let answer = match self.judge(row, caller, &mut tx, decided, &mut guard) {
            Ok(ControlFlow::Continue(answer)) => answer,
            Ok(ControlFlow::Break(not_now)) => {
                (guard.files, guard.objects) = drawn_before; // it draws again
                return Ok(not_now);
            }
            Err(error) => {
                (guard.files, guard.objects) = drawn_before;
                return Err(error);
            }
        };
        if !caller.request.opcode().modifies() {
            return self.read(row, caller, &tx, answer, &mut guard);
        }
        let mut answer = answer;
        let is_shared = repeated.is_some() || tx.crosses();
        let stands_against = match caller.replay {
            true => Ok(None),
            false => self.check_others(&mut guard, row, caller, &tx, answer.fid()),
        };
        if !matches!(stands_against, Ok(None)) {
            (guard.files, guard.objects) = drawn_before; // it draws again
            return stands_against.map(|attempted| attempted.expect("something stands against it"));
        }
        if (tx.unwritten.is_some() || caller.put.is_some()) && tx.crosses() {
            (guard.files, guard.objects) = drawn_before;
            return Err(Errno::EOPNOTSUPP.into()); // a replay from the record would lack the bytes
        }
        if let Some(fid) = tx.unwritten {
            drop(tx);
            drop(view);
            if !op::put::makes_file(caller.request) {
                return Ok(Attempted::Writes(fid)); // its records are there
            }
            if let Err(error) = self.reserve_ids(&mut guard) {
                (guard.files, guard.objects) = drawn_before;
                return Err(error);
            }
            guard.making_begins(fid, caller.replay);
            return Ok(Attempted::Writes(fid)); // its id is kept
        }
        if !is_shared && op::is_unplaced(caller, &tx) {
            return self.open_unplaced(row, caller, tx, answer, &mut guard);
        }
        let transno =
            if committed { Transno(caller.request.header.transno) } else { history.next() };
        caching::tell_kept_after(caller, &tx, &mut answer, &guard)?;
        lease::hear(&row.leases, caller, &mut guard.grants);
        let plan = lease::plan(&row.leases, caller, &mut answer, &tx, &guard.grants);
        let touched = lease::touched(&row.leases, &tx);
        let (mut drawn, mut record) = (None, repeated);
        if record.is_none() && is_shared {
            let id = caller.crossing.id.unwrap_or_else(|| *drawn.insert(guard.crossed.draw()));
            record = Some(record_of(&mut tx, id, now));
        }
        assert!(committed || !transno.is_none(), "a change has its place in history");
        let done = tx.finish(transno);
        drop(view);
        let renames = done.gives_room || matches!(row.leases, Scope::Moves(_));
        let decision =
            Decision { done, plan, touched, answer, transno, committed, renames, record };
        match self.finish(caller, history, decision, &mut guard) {
            Ok((reply, record)) => {
                Ok(Attempted::Done(reply, record.map(|record| (Rc::new(record), transno))))
            }
            Err(error) => {
                guard.crossed.not_applied(drawn);
                (guard.files, guard.objects) = drawn_before;
                Err(error)
            }
        }
    }

    /// Decides an operation over the running image, or repeats what its sealed record says.
    fn decide<'v>(
        &self,
        row: &Row,
        caller: &'v Caller<'_>,
        view: &'v dyn View,
        state: &mut State,
    ) -> Tried<'v> {
        let first: Option<AttrRep> =
            caller.replay.then(|| decode_body(&caller.request.replay_buf(0).unwrap_or_default()));
        let now = match &first {
            Some(first) if first.attr.ctime != 0 && !self.config.bugs.replay_draws_new_time() => {
                op::replayed_time(caller.request, first)
            }
            _ => caller.now,
        };
        let committed = caller.replay && caller.request.header.transno <= state.boot_committed.0;
        let tx = Tx::new(view, &state.here(), now).without(&caller.crossing.absent);
        let crosses = !matches!(row.reach, Reach::Here) && !caller.replay;
        let tx = if crosses { tx.crossing(&caller.crossing.facts) } else { tx };
        let is_repeated = caller.replay && !self.config.bugs.ignore_sealed_record();
        let repeated = is_repeated.then(|| sealed_record(caller.request, state.hash_key)).flatten();
        let mut op = Op {
            request: caller.request,
            client: caller.client,
            session: caller.session,
            creds: caller.creds.clone(),
            replay: first,
            committed,
            recovering: caller.recovering,
            tx,
            state,
            config: &self.config,
            osts: &*self.ost_list,
            mdts: &*self.mdt_list,
            crossing: caller.crossing,
            locked: caller.locked,
            is_long: caller.is_long,
            put: caller.put,
        };
        let decided = match &repeated {
            Some(record) => repeat(&mut op, record),
            None => op::decide(row, &mut op),
        };
        Tried { decided, tx: op.tx, repeated, committed, now }
    }

    /// Whether a decision counts: it knows all that it depends on, and sees no half of an operation
    /// of several MDTs.
    fn judge(
        &self,
        row: &Row,
        caller: &Caller<'_>,
        tx: &mut Tx<'_>,
        (decided, is_repeated): (Decided<Answer>, bool),
        state: &mut State,
    ) -> Decided<ControlFlow<Attempted, Answer>> {
        if matches!(decided, Err(OpError::Elsewhere)) {
            return Ok(ControlFlow::Break(Attempted::Needs(needs(tx))));
        }
        let unfinished = self.unfinished(state, row, caller, tx);
        if !unfinished.is_empty() {
            return Ok(ControlFlow::Break(Attempted::Half(unfinished)));
        }
        if matches!(decided, Err(OpError::Refused(_))) && self.sees_half(state, caller, tx) {
            return Ok(ControlFlow::Break(Attempted::Held(Vec::new())));
        }
        let answer = match decided {
            Ok(answer) => answer,
            Err(error) => {
                let is_old = !self.config.bugs.ignore_recalls()
                    && permits::may_be_old(&error, caller, tx, &mut state.grants);
                return if is_old { Ok(ControlFlow::Break(Attempted::Parked)) } else { Err(error) };
            }
        };
        let knows_all =
            is_repeated || (tx.missing.is_empty() && is_prepared(tx, &caller.crossing.prepared));
        Ok(match knows_all {
            true => ControlFlow::Continue(answer),
            false => ControlFlow::Break(Attempted::Needs(needs(tx))),
        })
    }

    /// Answers an operation that changes nothing.
    fn read(
        &self,
        row: &Row,
        caller: &Caller<'_>,
        tx: &Tx<'_>,
        mut answer: Answer,
        state: &mut State,
    ) -> Decided<Attempted> {
        assert!(tx.set.changes.is_empty(), "an operation that only reads writes nothing");
        let ignores = self.config.bugs.ignore_recalls();
        if let Some(wait) = caching::look(caller, tx, &mut answer, state, ignores)? {
            return Ok(wait);
        }
        lease::hear(&row.leases, caller, &mut state.grants);
        let plan = lease::plan(&row.leases, caller, &mut answer, tx, &state.grants);
        let epoch = answer.fid().map_or(0, |fid| state.opens.write_epoch(fid));
        let extras = Extras::new(&plan, None, epoch);
        state.perform(plan.effects);
        let reply = Reply::ok(&caller.request.header, answer.into_bufs(extras));
        Ok(Attempted::Done(reply, None))
    }

    /// Answers an open for reading: its handle is in memory, and no record changes.
    fn open_unplaced(
        &self,
        row: &Row,
        caller: &Caller<'_>,
        tx: Tx<'_>,
        mut answer: Answer,
        state: &mut State,
    ) -> Decided<Attempted> {
        caching::tell_kept_after(caller, &tx, &mut answer, state)?;
        lease::hear(&row.leases, caller, &mut state.grants);
        let plan = lease::plan(&row.leases, caller, &mut answer, &tx, &state.grants);
        let told = answer.fid();
        let epoch = told.map_or(0, |fid| state.opens.write_epoch(fid));
        let extras = Extras::new(&plan, None, epoch);
        let reply = Reply::ok(&caller.request.header, answer.into_bufs(extras));
        let Finished { set, effects, changes, .. } = tx.finish(Transno::NONE);
        assert!(set.changes.is_empty() && changes.is_empty(), "an open for reading writes nothing");
        state.perform(effects);
        state.perform(plan.effects);
        state.is_stretched = told.is_some_and(|fid| state.share.is_stretched(fid));
        Ok(Attempted::Done(reply, None))
    }

    /// Reserves further ids, where the ranges run low: a file whose id is drawn may be refused when
    /// its bytes are there, and then no change does so.
    fn reserve_ids(&self, state: &mut State) -> Decided<()> {
        let mut set = WriteSet::new();
        let (files, objects) = grow_ids(state, &mut set);
        if !set.changes.is_empty() {
            target::reserve(&mut set);
            self.apply_own(&set)?;
            (state.files, state.objects) = (files, objects);
        }
        Ok(())
    }

    /// Operations of several MDTs that a read may see one half of.
    fn unfinished(&self, state: &State, row: &Row, caller: &Caller<'_>, tx: &Tx<'_>) -> Vec<OpId> {
        if caller.request.opcode().modifies() || self.config.bugs.show_halves() {
            return Vec::new();
        }
        let all_names = row.leases.tells_directories();
        let inodes = || tx.looked_at().filter(|inode| all_names && inode.attr.is_dir());
        let dirs = inodes().map(Inode::fid);
        let keys = tx.looked_for().map(ShareKey::Inode); // a new file may be about to come
        let found = state.crossed.reserved.unfinished(tx.decides.iter().copied().chain(keys), dirs);
        found.difference(caller.passed).copied().collect()
    }

    /// Whether a change may be refused only because it sees one part of an operation of several
    /// MDTs and not the others: a name whose file is gone already, or is not here yet.
    fn sees_half(&self, state: &State, caller: &Caller<'_>, tx: &Tx<'_>) -> bool {
        let opcode = caller.request.opcode();
        let may_wait = !caller.replay && opcode.modifies() && opcode != wire::Opcode::MdtCloses;
        if !may_wait || state.crossed.reserved.is_empty() {
            return false;
        }
        let absent = tx.looked_for().filter(|fid| tx.seen(*fid).is_none()).map(ShareKey::Inode);
        let decides: Vec<ShareKey> = tx.decides.iter().copied().chain(absent).collect();
        let held = state.crossed.reserved.hinders(caller.crossing.id, &decides, &[]);
        if held {
            planted::reached("mdt: a refusal waited for an operation of several MDTs");
        }
        held
    }

    /// What stands against a change for now, if anything does: what other clients changed, what
    /// they believe, or what other operations have reserved. A change that another MDT has no room
    /// for is refused (ENOSPC).
    fn check_others(
        &self,
        state: &mut State,
        row: &Row,
        caller: &Caller<'_>,
        tx: &Tx<'_>,
        told: Option<Fid>,
    ) -> Decided<Option<Attempted>> {
        if caller.crossing.lacks_room(&tx.updates) {
            return Err(Errno::ENOSPC.into());
        }
        if state.crossed.reserved.hinders(caller.crossing.id, &tx.decides, &tx.changes) {
            planted::reached("mdt: a change waited for an operation of several MDTs");
            return Ok(Some(Attempted::Held(changed(tx).collect())));
        }
        // it may outlive all earlier changes of its client
        let is_shared = tx.crosses();
        let is_foreign = |key: &ShareKey| {
            (is_shared && state.share.is_uncommitted(key))
                || state.share.is_foreign(caller.client, key)
        };
        let uses_bytes = op::uses_bytes(caller.request);
        if uses_bytes && tx.decides.iter().any(|key| state.bringing.has(key)) {
            return Ok(Some(Attempted::Brought));
        }
        let is_put = |key: &ShareKey| state.share.is_put(key);
        let is_put = uses_bytes && tx.decides.iter().any(is_put);
        let foreign = is_put || tx.decides.iter().any(is_foreign);
        if foreign && !self.config.bugs.drop_commit_on_share()
            || state.share.len() > SHARED_KEYS_MAX
        {
            state.share.contest(&tx.decides);
            planted::reached("mdt: a change waited for another client's commit");
            return Err(OpError::CommitFirst);
        }
        let is_link = || caller.request.header.opcode == wire::Opcode::MdtLink as u16;
        if self.config.bugs.ignore_leases() || (self.config.bugs.link_passes_leases() && is_link())
        {
            return Ok(None);
        }
        if let Some(fid) = caching::opened_or_cut(caller.request, told)
            && tx.is_here(fid)
            && is_unfenced(&state.fences, tx, fid)?
        {
            return Ok(Some(Attempted::Unfenced));
        }
        let bugs = self.config.bugs;
        let taken = Taken { data: !bugs.forget_cached_data(), writes: !bugs.keep_writes_at_open() };
        let told = (told.filter(|fid| tx.is_here(*fid)), taken);
        let is_free = lease::check(&row.leases, caller, tx, told, &mut state.grants)?;
        if !is_free && !self.config.bugs.ignore_recalls() {
            return Ok(Some(Attempted::Parked));
        }
        // handles at rest are closed by now, because grants were called back
        match tx.departs.is_some_and(|fid| state.opens.is_open(fid)) {
            true => Err(Errno::EBUSY.into()),
            false => Ok(None),
        }
    }

    /// Records the change with its answer, applies it, and only then lets memory follow.
    fn finish(
        &self,
        caller: &Caller<'_>,
        history: &dyn History,
        decision: Decision,
        state: &mut State,
    ) -> Decided<(Reply, Option<Record>)> {
        let Decision { done, plan, touched, mut answer, transno, committed, renames, mut record } =
            decision;
        let header = &caller.request.header;
        let epoch =
            |fid| epoch_after(&done.effects, fid).unwrap_or_else(|| state.opens.write_epoch(fid));
        let epoch = answer.fid().map_or(0, epoch);
        let (told, closed) = (answer.fid(), answer.closed_after(&done));
        let version = told.and_then(|fid| done.version(fid));
        // of this answer alone: the stored one is for a resend, when the lease is over
        let dir = plan.dir.and_then(|(dir, lease)| directory(&done, dir, lease));
        let mut reply = Reply::ok(header, answer.into_bufs(Extras::new(&plan, version, epoch)));
        let Finished { mut set, mut effects, changes, .. } = done;
        effects.extend(plan.effects);
        if committed {
            reply.header.transno = transno.0;
        } else {
            let (key, value) = history.record(transno, &mut reply);
            if let Some(record) = record.as_mut().filter(|_| !caller.replay) {
                record.reply = (key.clone(), value.clone());
            }
            if !self.config.bugs.skip_reply_record() {
                set.put(Table::Replies, key, value);
            }
        }
        if let Some(record) = &record {
            set.put(Table::Updates, record.id.to_key(), stored(record)?);
        }
        let sealed = record.as_ref().map(|record| seal::sealed(state.hash_key, record));
        reply.bufs.extend(sealed.iter().filter(|_| !caller.replay).cloned());
        // a replay had its place before the crash; after a rename there are as many names as before
        let has_place = caller.replay || renames;
        if (has_place || !grows(&set)) && !self.config.bugs.keep_no_reserve() {
            target::reserve(&mut set);
        }
        if transno > state.last_transno {
            set.put(Table::Meta, keys::META_LAST_TRANSNO, transno.0.to_le_bytes());
        }
        let (files, objects) = grow_ids(state, &mut set);
        let count = self.applied.get() + 1;
        self.applied.set(count);
        let lost = self.config.bugs.ack_before_apply() && count.is_multiple_of(LOSE_EVERY);
        if !lost {
            self.store.meta().apply(&set)?;
        }
        (state.files, state.objects) = (files, objects);
        state.last_transno = state.last_transno.max(transno);
        if let Some(record) = &record {
            state.crossed.record(record.id);
        }
        state.perform(effects);
        state.spaces.keep_promises();
        state.share.changed(caller.client, &changes);
        let mut told = told.into_iter().chain(closed);
        state.is_stretched = told.any(|fid| state.share.is_stretched(fid));
        self.noted_dirty();
        if sealed.is_none() {
            reply.bufs.extend(dir);
            reply.bufs.extend(touched);
        } else if let Some(touched) = touched.filter(|_| !caller.replay) {
            reply.bufs.insert(2, touched); // the record comes last
        }
        Ok((reply, record))
    }

    /// Applies a change of the target's own, outside of any client's history.
    pub(crate) fn apply_own(&self, set: &WriteSet) -> Result<(), StoreError> {
        self.store.meta().apply(set)?;
        self.noted_dirty();
        Ok(())
    }

    /// The same, as soon as the store takes changes.
    pub(crate) async fn apply_when_ready(&self, set: &WriteSet) -> Result<(), StoreError> {
        osd::apply(self.store.meta(), set).await?;
        self.noted_dirty();
        Ok(())
    }

    fn noted_dirty(&self) {
        self.pace.dirtied(self.store.meta().dirty_bytes() >= self.config.commit_dirty_bytes);
    }

    /// Lets the background tasks see that the instance is over.
    pub(crate) fn wake_all(&self) {
        self.pace.wake();
        self.destroys_wanted.notify_one();
    }

    /// Removes the orphans among `fids` that nobody has open, in one set: at most a batch. Changes
    /// nothing where it fails.
    pub(crate) fn sweep(&self, fids: &[Fid]) -> Decided<usize> {
        let view = self.store.meta().running()?;
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let mut tx = Tx::new(&*view, &state.here(), Timespec::default());
        let mut gone = 0;
        let mut number = state.destroy_next;
        for fid in fids.iter().filter(|fid| !state.opens.is_open(**fid)) {
            if view.get(Table::Orphans, &fid.to_key())?.is_none() {
                continue;
            }
            gone += 1;
            tx.set.delete(Table::Orphans, fid.to_key());
            if let Some(inode) = tx.find(*fid)?.filter(|inode| inode.attr.nlink == 0) {
                number += tx.destroy(&inode, number, self.config.destroys_of_file())?;
            }
        }
        if gone == 0 {
            return Ok(0);
        }
        let Finished { set, effects, .. } = tx.finish(Transno::NONE);
        drop(view);
        self.apply_own(&set)?;
        state.perform(effects);
        assert!(number >= state.destroy_next, "numbers of the destroy log grow");
        state.destroy_next = number;
        Ok(gone)
    }
}

/// An operation as one attempt decided it.
struct Tried<'v> {
    decided: Decided<Answer>,
    tx: Tx<'v>,
    /// The sealed record that a replay repeats.
    repeated: Option<Record>,
    /// A replay of something durable.
    committed: bool,
    /// The time that it stamps.
    now: Timespec,
}

/// A change that is decided and not applied.
struct Decision {
    done: Finished,
    plan: Plan,
    /// All that it touched, as it travels.
    touched: Option<Bytes>,
    answer: Answer,
    transno: Transno,
    committed: bool,
    /// It moves names, and makes none.
    renames: bool,
    record: Option<Record>,
}

/// A record as it is stored and sent. One that no MDT could read is refused before anything is
/// applied.
fn stored(record: &Record) -> Decided<Vec<u8>> {
    let encoded = updates::encode(record);
    match encoded.len() <= updates::RECORD_BYTES_MAX {
        true => Ok(encoded),
        false => Err(Errno::E2BIG.into()),
    }
}

/// The sealed record that a replay brings back.
fn sealed_record(request: &Request, key: HashKey) -> Option<Record> {
    let bufs = (0..wire::BUFS_MAX).map_while(|at| request.replay_buf(at));
    bufs.filter_map(|buf| seal::opened(key, &buf)).next()
}

/// Repeats the own part of an operation of several MDTs.
fn repeat(op: &mut Op<'_, '_>, record: &Record) -> Decided<Answer> {
    if !op.state.crossed.has(record.id) {
        op.repeat_part(record)?;
    }
    let bufs = (0..wire::BUFS_MAX).map_while(|at| op.request.replay_buf(at));
    Ok(Answer::Bufs(bufs.collect()))
}

/// Whether all MDTs that an operation changes have promised to take part.
fn is_prepared(tx: &Tx<'_>, prepared: &BTreeSet<u32>) -> bool {
    let mut elsewhere = tx.updates.iter().filter(|update| !tx.is_here(update.fid()));
    elsewhere.all(|update| prepared.contains(&update.fid().mdt_index()))
}

/// What an operation must ask of other MDTs, and what it depends on here.
fn needs(tx: &mut Tx<'_>) -> Needs {
    let mut needs = Needs { pulls: std::mem::take(&mut tx.pulls), ..Needs::default() };
    let elsewhere = tx.updates.iter().map(Update::fid).filter(|fid| !tx.is_here(*fid));
    for fid in elsewhere {
        needs.wants.entry(fid.mdt_index()).or_default();
    }
    for want in std::mem::take(&mut tx.missing) {
        needs.wants.entry(want.key.mdt()).or_default().insert(want);
    }
    let decides = tx.decides.iter().map(|key| (*key, false));
    needs.claims = decides.chain(changed(tx)).collect();
    needs
}

/// Keys of this MDT that an operation changes. Names of one directory come and go side by side.
fn changed(tx: &Tx<'_>) -> impl Iterator<Item = Claim> {
    let keys = tx.changes.iter().filter(|key| !matches!(key, ShareKey::Contents(_)));
    keys.map(|key| (*key, true))
}

/// The record of an operation of several MDTs that is about to be applied.
fn record_of(tx: &mut Tx<'_>, id: OpId, now: Timespec) -> Record {
    let mut parts: BTreeMap<u32, Vec<Update>> = BTreeMap::from([(tx.mdt(), Vec::new())]);
    for update in std::mem::take(&mut tx.updates) {
        parts.entry(update.fid().mdt_index()).or_default().push(update);
    }
    let parts = parts.into_iter().map(|(mdt, updates)| Part { mdt, updates }).collect();
    Record { id, time: (now.sec, now.nsec), parts, reply: Default::default() }
}

/// A directory that comes along with a reply, with its lease.
fn directory(done: &Finished, dir: Fid, lease: Gift) -> Option<Bytes> {
    let told = DirRep { attr: *done.attr(dir)?, lease_ms: lease.to_ms(), ..DirRep::default() };
    Some(encode_body(&told))
}

/// Whether a set makes a name, an attribute or a layout. What only changes what is there (a close,
/// an open, a truncate) must work on a full store.
fn grows(set: &WriteSet) -> bool {
    let makes = |table| matches!(table, Table::Dirents | Table::Xattrs | Table::Layouts);
    set.changes.iter().any(|(table, _, value)| value.is_some() && makes(*table))
}

/// The epoch that a file will have once the effects happened.
fn epoch_after(effects: &[Effect], fid: Fid) -> Option<u64> {
    effects.iter().rev().find_map(|effect| match effect {
        Effect::Opened { file, epoch: Some(epoch), .. } if file.fid == fid => Some(*epoch),
        Effect::Dirtied { fid: dirtied, epoch } if *dirtied == fid => Some(*epoch),
        _ => None,
    })
}

/// Reserves further ids in the same transaction, where the ranges run low.
fn grow_ids(state: &State, set: &mut WriteSet) -> (crate::ids::Ids, crate::ids::Ids) {
    let (mut files, mut objects) = (state.files.clone(), state.objects.clone());
    if state.making.allows_growth(&files) && files.extend() {
        set.put(Table::Meta, keys::META_FILE_IDS, files.encode());
    }
    if objects.extend() {
        set.put(Table::Meta, keys::META_OBJECT_IDS, objects.encode());
    }
    (files, objects)
}

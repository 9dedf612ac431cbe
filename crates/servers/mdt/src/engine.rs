//! The running transaction and every decision over it, without sessions and network.
//!
//! [`Engine::attempt`] is one operation: read, decide, apply, answer. It does not yield the thread
//! in between, so operations are serial. The answered change is in history but not durable;
//! [`Engine::commit`] makes it so.
//!
//! Invariants
//! - Memory follows the store: effects happen only after the set was applied, leases included. Only
//!   a change that is refused because of a lease leaves a mark: the leases that it waits for become
//!   contended.
//! - `last_transno` is the highest applied one. A commit reports exactly the changes that were
//!   applied before it began.
//! - A failure of the store ends the instance ([`target::Failure`]).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use osd::{MetaStore, StoreError, Table, WriteSet};
use target::{Decided, OpError, Pace, Store};
use tokio::sync::Notify;
use types::{ClientId, Errno, Fid, TargetId, Timespec, Transno};
use wire::body::{AttrRep, DirRep};
use wire::{Reply, decode_body, encode_body};

use crate::MdtConfig;
use crate::grants::Gift;
use crate::keys;
use crate::limits::SHARED_KEYS_MAX;
use crate::op::lease::{self, Plan};
use crate::op::{self, Answer, Caller, Extras, Op, Row};
use crate::spaces::OstAt;
use crate::state::{Effect, State};
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
    pub(crate) pace: Rc<Pace>,
    /// Records of the destroy log below this are durable.
    pub(crate) destroys_durable: Cell<u64>,
    /// There may be something to destroy.
    pub(crate) destroys_wanted: Notify,
    applied: Cell<u64>,
}

impl Engine {
    pub(crate) fn new(
        config: MdtConfig,
        store: Rc<dyn MetaStore>,
        state: State,
        ost_list: Rc<dyn Fn() -> Vec<OstAt>>,
    ) -> Engine {
        let destroys_durable = Cell::new(state.destroy_next);
        Engine {
            store: Store::new(TargetId::mdt(config.index), store),
            pace: Pace::new(config.commit_interval),
            config,
            state: RefCell::new(state),
            ost_list,
            destroys_durable,
            destroys_wanted: Notify::new(),
            applied: Cell::new(0),
        }
    }

    /// Indexes of all that may have objects of its files: the OSTs, and its data target.
    pub(crate) fn holders(&self) -> BTreeSet<u32> {
        let osts = (self.ost_list)().into_iter().map(|ost| ost.index);
        let data = self.config.has_data.then(|| TargetId::dom(self.config.index).index);
        osts.chain(data).collect()
    }

    /// Executes one operation, or says why not now. Nothing: it is parked, until `caller.change` is
    /// ready.
    pub(crate) fn attempt(
        &self,
        caller: &Caller<'_>,
        history: &dyn History,
    ) -> Decided<Option<Reply>> {
        let row = op::row(caller.request.opcode()).ok_or(Errno::EOPNOTSUPP)?;
        let view = self.store.meta().running()?;
        let mut guard = self.state.borrow_mut();
        guard.spaces.take_back_promises();
        let first: Option<AttrRep> =
            caller.replay.then(|| decode_body(&caller.request.replay_buf(0).unwrap_or_default()));
        let now = match &first {
            Some(first) if first.attr.ctime != 0 && !self.config.bugs.replay_draws_new_time() => {
                op::replayed_time(caller.request, first)
            }
            _ => caller.now,
        };
        let committed = caller.replay && caller.request.header.transno <= guard.boot_committed.0;
        let tx = Tx::new(&*view, guard.hash_key, guard.first_file, now);
        let drawn_before = (guard.files.clone(), guard.objects.clone());
        let mut op = Op {
            request: caller.request,
            client: caller.client,
            session: caller.session,
            creds: caller.creds.clone(),
            replay: first,
            committed,
            recovering: caller.recovering,
            tx,
            state: &mut guard,
            config: &self.config,
            osts: &*self.ost_list,
        };
        let mut answer = op::decide(row, &mut op)?;
        let Op { tx, .. } = op;
        if !caller.request.opcode().modifies() {
            assert!(tx.set.changes.is_empty(), "an operation that only reads writes nothing");
            let plan = lease::plan(&row.leases, caller, &mut answer, &tx, &mut guard.grants);
            let epoch = answer.fid().map_or(0, |fid| guard.opens.write_epoch(fid));
            let extras = Extras::new(&plan, None, epoch);
            guard.perform(plan.effects);
            return Ok(Some(Reply::ok(&caller.request.header, answer.into_bufs(extras))));
        }
        let is_free = caller.replay || {
            let checked = self.check_others(&mut guard, row, caller, &tx, answer.fid());
            if !matches!(checked, Ok(true)) {
                (guard.files, guard.objects) = drawn_before; // it draws again
            }
            checked?
        };
        if !is_free {
            return Ok(None);
        }
        let transno =
            if committed { Transno(caller.request.header.transno) } else { history.next() };
        let plan = lease::plan(&row.leases, caller, &mut answer, &tx, &mut guard.grants);
        let touched = lease::touched(&row.leases, &tx);
        assert!(committed || !transno.is_none(), "a change has its place in history");
        let done = tx.finish(transno);
        drop(view);
        let change = Change { done, plan, touched, answer, transno, committed };
        self.finish(caller, history, change, &mut guard).map(Some)
    }

    /// Whether other clients stand against a change for now: with what they changed, or with what
    /// they believe. False: it waits until they have given that up.
    fn check_others(
        &self,
        state: &mut State,
        row: &Row,
        caller: &Caller<'_>,
        tx: &Tx<'_>,
        told: Option<Fid>,
    ) -> Decided<bool> {
        let foreign = tx.decides.iter().any(|key| state.share.is_foreign(caller.client, key));
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
            return Ok(true);
        }
        let told = (told, !self.config.bugs.forget_cached_data());
        let is_free = lease::check(&row.leases, caller, tx, told, &mut state.grants)?;
        Ok(is_free || self.config.bugs.ignore_recalls())
    }

    /// Records the change with its answer, applies it, and only then lets memory follow.
    fn finish(
        &self,
        caller: &Caller<'_>,
        history: &dyn History,
        change: Change,
        state: &mut State,
    ) -> Decided<Reply> {
        let Change { done, plan, touched, answer, transno, committed } = change;
        let header = &caller.request.header;
        let epoch =
            |fid| epoch_after(&done.effects, fid).unwrap_or_else(|| state.opens.write_epoch(fid));
        let epoch = answer.fid().map_or(0, epoch);
        let told = answer.fid();
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
            if !self.config.bugs.skip_reply_record() {
                set.put(Table::Replies, key, value);
            }
        }
        if !grows(&set) && !self.config.bugs.keep_no_reserve() {
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
        state.perform(effects);
        state.spaces.keep_promises();
        state.share.changed(caller.client, &changes);
        state.is_stretched = told.is_some_and(|fid| state.share.is_stretched(fid));
        self.noted_dirty();
        reply.bufs.extend(dir);
        reply.bufs.extend(touched);
        Ok(reply)
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

    /// Makes everything applied so far durable and returns up to where history is now.
    pub(crate) async fn commit(&self) -> Result<Transno, StoreError> {
        let (upto, share, files, objects, destroys) = {
            let state = self.state.borrow();
            (
                state.last_transno,
                state.share.mark(),
                state.files.mark(),
                state.objects.mark(),
                state.destroy_next,
            )
        };
        if let Err(error) = self.store.commit().await {
            self.wake_all();
            return Err(error);
        }
        let mut state = self.state.borrow_mut();
        assert!(upto <= state.last_transno, "history grows while a commit is under way");
        assert!(destroys <= state.destroy_next, "so does the destroy log");
        state.share.committed(share);
        state.files.durable(files);
        state.objects.durable(objects);
        self.destroys_durable.set(self.destroys_durable.get().max(destroys));
        self.destroys_wanted.notify_one();
        Ok(upto)
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
        let mut tx = Tx::new(&*view, state.hash_key, state.first_file, Timespec::default());
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

    /// Closes what a session has open, a writer that is gone may have written anything; says which
    /// files those were.
    pub(crate) fn close_session(&self, client: ClientId, session: u64) -> Vec<Fid> {
        let mut state = self.state.borrow_mut();
        let mut fids: Vec<Fid> = Vec::new();
        for handle in state.opens.of_session(client, session) {
            fids.extend(state.opens.get(handle).map(|open| open.fid));
            state.opens.close(handle, true, false);
        }
        fids.sort_unstable();
        fids.dedup();
        fids
    }
}

struct Change {
    done: Finished,
    plan: Plan,
    /// All that it touched, as it travels.
    touched: Option<Bytes>,
    answer: Answer,
    transno: Transno,
    committed: bool,
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
    if files.extend() {
        set.put(Table::Meta, keys::META_FILE_IDS, files.encode());
    }
    if objects.extend() {
        set.put(Table::Meta, keys::META_OBJECT_IDS, objects.encode());
    }
    (files, objects)
}

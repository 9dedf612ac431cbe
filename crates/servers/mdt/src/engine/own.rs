//! Operations of the MDT's own, and its parts in those that other MDTs coordinate. They are in no
//! client's history.

use std::rc::Rc;

use osd::Table;
use target::{Decided, OpError};
use types::{ClientId, Creds, Errno, Transno};
use wire::Request;
use wire::updates::Record;

use super::{Engine, grow_ids, is_prepared, needs, record_of, stored};
use crate::attempt::{OwnAttempt, OwnCaller};
use crate::cross::Crossing;
use crate::keys;
use crate::op::{Op, lease};
use crate::state::State;
use crate::tx::{Finished, Tx};

/// The client of a change that came through another MDT: a stranger to every client.
const STRANGER: ClientId = ClientId(u128::MAX);

impl Engine {
    /// One operation of the MDT's own, or why not now: it is in no client's history.
    pub(crate) fn attempt_own<T>(
        &self,
        caller: &OwnCaller<'_>,
        decide: &dyn Fn(&mut Op<'_, '_>) -> Decided<T>,
        next: &dyn Fn() -> Transno,
    ) -> Decided<OwnAttempt<T>> {
        let view = self.store.meta().running()?;
        let mut guard = self.state.borrow_mut();
        let drawn_before = (guard.files.clone(), guard.objects.clone());
        let tx = Tx::new(&*view, &guard.here(), caller.now).crossing(&caller.crossing.facts);
        let tx = tx.without(&caller.crossing.absent);
        let request = Request::new(wire::Opcode::MdtMove, Vec::new());
        let (decided, mut tx) = self.by_itself(&request, &mut guard, (tx, false), decide);
        let outcome = match decided {
            Err(OpError::Elsewhere) => Ok(Some(OwnAttempt::Needs(needs(&mut tx)))),
            Err(error) => Err(error),
            Ok(value) => self.check_own(&mut guard, caller, &mut tx, value),
        };
        let value = match outcome {
            Ok(Some(OwnAttempt::Done(value, _))) => value,
            not_now => {
                (guard.files, guard.objects) = drawn_before; // it draws again
                return not_now.map(|not_now| not_now.expect("an attempt comes to something"));
            }
        };
        if tx.updates.is_empty() {
            return Ok(OwnAttempt::Done(value, None));
        }
        let (transno, mut drawn) = (next(), None);
        assert!(!transno.is_none(), "a change has its place in history");
        let mut id = || caller.crossing.id.unwrap_or_else(|| *drawn.insert(guard.crossed.draw()));
        let id = tx.crosses().then(&mut id);
        let record = id.map(|id| record_of(&mut tx, id, caller.now));
        let done = tx.finish(transno);
        drop(view);
        let applied = self.apply_by_itself(&mut guard, done, transno, record.as_ref());
        if let Err(error) = applied {
            guard.crossed.not_applied(drawn);
            (guard.files, guard.objects) = drawn_before;
            return Err(error);
        }
        Ok(OwnAttempt::Done(value, record.map(|record| (Rc::new(record), transno))))
    }

    /// Decides for no client.
    fn by_itself<'v, T>(
        &self,
        request: &Request,
        state: &mut State,
        (tx, recovering): (Tx<'v>, bool),
        decide: &dyn Fn(&mut Op<'_, 'v>) -> Decided<T>,
    ) -> (Decided<T>, Tx<'v>) {
        let crossing = Crossing::default();
        let mut op = Op {
            request,
            client: STRANGER,
            session: 0,
            creds: Creds::root(),
            replay: None,
            committed: false,
            recovering,
            tx,
            state,
            config: &self.config,
            osts: &*self.ost_list,
            mdts: &*self.mdt_list,
            crossing: &crossing,
            locked: &|_| false,
            is_long: &|| false,
            put: None,
        };
        let decided = decide(&mut op);
        (decided, op.tx)
    }

    /// What stands against an operation of the MDT's own, or that nothing does.
    fn check_own<T>(
        &self,
        state: &mut State,
        caller: &OwnCaller<'_>,
        tx: &mut Tx<'_>,
        value: T,
    ) -> Decided<Option<OwnAttempt<T>>> {
        let prepared = &caller.crossing.prepared;
        if !tx.missing.is_empty() || !is_prepared(tx, prepared) {
            return Ok(Some(OwnAttempt::Needs(needs(tx))));
        }
        if state.crossed.reserved.hinders(caller.crossing.id, &tx.decides, &tx.changes) {
            return Ok(Some(OwnAttempt::Held));
        }
        if tx.decides.iter().any(|key| state.share.is_uncommitted(key)) {
            state.share.contest(&tx.decides);
            return Err(OpError::CommitFirst);
        }
        if tx.updates.is_empty() {
            return Ok(Some(OwnAttempt::Done(value, None)));
        }
        let is_free = lease::check_own(tx, caller, &mut state.grants)?;
        Ok(Some(if is_free { OwnAttempt::Done(value, None) } else { OwnAttempt::Parked }))
    }

    /// Applies what the MDT has decided for no client.
    pub(crate) fn apply_by_itself(
        &self,
        state: &mut State,
        done: Finished,
        transno: Transno,
        record: Option<&Record>,
    ) -> Decided<()> {
        let Finished { mut set, effects, changes, .. } = done;
        if let Some(record) = record {
            if !self.config.bugs.part_without_record() {
                set.put(Table::Updates, record.id.to_key(), stored(record)?);
            }
            if record.id.mdt == state.crossed.here && !record.reply.0.is_empty() {
                set.put(Table::Replies, record.reply.0.clone(), record.reply.1.clone());
            }
        }
        set.put(Table::Meta, keys::META_LAST_TRANSNO, transno.0.to_le_bytes());
        target::reserve(&mut set);
        let (files, objects) = grow_ids(state, &mut set); // preparations draw from the range too
        self.store.meta().apply(&set)?;
        (state.files, state.objects) = (files, objects);
        state.last_transno = state.last_transno.max(transno);
        if let Some(record) = record {
            state.crossed.record(record.id);
        }
        state.perform(effects);
        state.share.changed(STRANGER, &changes);
        self.noted_dirty();
        Ok(())
    }

    /// Executes the part of this MDT in an operation that another one coordinates, unless it has
    /// done so: `next` draws its place in history.
    pub(crate) fn take_part(
        &self,
        record: &Record,
        recovering: bool,
        next: &dyn Fn() -> Transno,
    ) -> Decided<()> {
        if !record.has_good_names() {
            return Err(Errno::EPROTO.into()); // another MDT would say anything
        }
        let view = self.store.meta().running()?;
        let mut guard = self.state.borrow_mut();
        if guard.crossed.has(record.id) && !self.config.bugs.execute_part_twice() {
            return Ok(());
        }
        let tx = Tx::new(&*view, &guard.here(), record.timespec());
        let request = Request::new(wire::Opcode::MdtUpdate, Vec::new());
        let repeat = |op: &mut Op<'_, '_>| op.repeat_part(record);
        let (repeated, tx) = self.by_itself(&request, &mut guard, (tx, recovering), &repeat);
        repeated?;
        let transno = next();
        let done = tx.finish(transno);
        drop(view);
        self.apply_by_itself(&mut guard, done, transno, Some(record))
    }
}

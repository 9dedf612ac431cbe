//! Operations that this MDT coordinates, from the moment its own part is applied until all parts
//! are durable.

use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, CallError, Endpoint};
use service::Incoming;
use types::{Fid, Instance, TargetId, Transno};
use wire::Opcode;
use wire::body::SyncRep;
use wire::updates::{self, Done, Record, Update};

use super::Delivery;
use crate::limits::{DELIVER_PATIENCE, DELIVER_PAUSE, DONE_LOOK};
use crate::target::Mdt;

impl Mdt {
    /// Brings an operation to the other MDTs until they have executed it.
    pub(crate) fn deliver(self: &Rc<Self>, record: Rc<Record>, local: Transno) -> Rc<Delivery> {
        let here = self.engine.config.index;
        if let Some(known) = self.deliveries.under_way.borrow().get(&record.id) {
            return known.clone();
        }
        let delivery = Delivery::new(record, local, here);
        // a forgotten MDT has no part any more
        delivery.parts.borrow_mut().retain(|mdt, _| !self.is_forgotten(*mdt));
        self.engine.state.borrow_mut().crossed.resumed(delivery.record.id);
        self.deliveries.begin(&delivery);
        self.look_if_early();
        let others: Vec<u32> = delivery.parts.borrow().keys().copied().collect();
        assert!(!others.contains(&here), "the own part is applied before");
        for mdt in others {
            self.deliver_to(mdt, &delivery);
        }
        self.commit_restriped(&delivery.record);
        delivery
    }

    /// A part is executed here of an operation that begins or ends a move of names. Requests about
    /// these names wait for its commit on each MDT, one after the other. So all begin it at once.
    pub(super) fn commit_restriped(&self, record: &Record) {
        if restripes(record) {
            self.engine.pace.wake();
        }
    }

    fn deliver_to(self: &Rc<Self>, other: u32, delivery: &Rc<Delivery>) {
        let Some(endpoint) = self.osts.clone() else { return };
        let (mdt, delivery) = (self.clone(), delivery.clone());
        self.env.spawn("mdt_update", async move {
            // a file that has moved must not come back beside its new inode: both have its objects
            if departs(&delivery.record) && mdt.commit().await.is_err() {
                return; // the next run delivers it
            }
            let (instance, transno) = loop {
                if !delivery.parts.borrow().contains_key(&other) {
                    return; // that MDT was forgotten
                }
                match bring(&endpoint, other, &delivery.record, false).await {
                    Ok(executed) => break executed,
                    Err(error) if mdt.is_stopped() => {
                        tracing::debug!(target: "mdt", %error, "an update ends with its MDT");
                        return;
                    }
                    Err(_) if mdt.is_forgotten(other) => {
                        delivery.parts.borrow_mut().remove(&other);
                        delivery.moved.notify_waiters();
                    }
                    Err(error) => {
                        let target_id = TargetId::mdt(other).name(mdt.engine.config.fsname);
                        if mdt.deliveries.is_refusal_due(&error, mdt.env.now()) {
                            tracing::warn!(target: "mdt", %target_id, %error, "an MDT refuses its part of an operation, which is sent again");
                        }
                        tracing::debug!(target: "mdt", %target_id, %error, "an update is sent again");
                        mdt.env.sleep(DELIVER_PAUSE).await;
                    }
                }
            };
            if let Some(part) = delivery.parts.borrow_mut().get_mut(&other) {
                *part = Some((instance, transno)); // otherwise it was forgotten meanwhile
            }
            delivery.moved.notify_waiters();
            mdt.look_if_early();
        });
    }

    /// The planted bug ends operations as soon as the background task looks.
    fn look_if_early(&self) {
        if self.engine.config.bugs.forget_records_early() {
            self.deliveries.wake();
        }
    }

    /// Waits until every operation that this MDT coordinates is executed.
    pub(crate) async fn all_executed(&self) {
        for delivery in self.deliveries.all() {
            delivery.executed().await;
        }
    }

    /// Waits until the operation is executed everywhere that another MDT has brought back, and of
    /// which a request is the resend.
    pub(crate) async fn executed_for(&self, resend: &Incoming) {
        let key = resend.reply_key();
        for delivery in self.deliveries.all() {
            if delivery.record.reply.0 == key {
                delivery.executed().await;
            }
        }
    }

    /// Waits until an MDT has executed its part in every operation that this one coordinates.
    pub(super) async fn executed_at(&self, other: u32) {
        for delivery in self.deliveries.all() {
            delivery.until(|| delivery.is_executed_at(other)).await;
        }
    }

    /// Ends operations that are durable everywhere, and tells the other MDTs.
    pub(crate) async fn end_deliveries(self: Rc<Self>) {
        loop {
            let woken = self.deliveries.woken.notified();
            if self.is_stopped() {
                return;
            }
            if self.engine.state.borrow().crossed.is_used_up() {
                self.fail("no numbers for operations are left: restart it");
                return;
            }
            if !self.exports.is_recovering() {
                self.look_at_deliveries();
                self.move_mark().await;
                self.look_for_forgotten();
            }
            if self.has_peers() {
                self.env.timeout(DONE_LOOK, woken).await;
            } else {
                woken.await; // an MDT alone sleeps
            }
        }
    }

    fn has_peers(&self) -> bool {
        let has_peers = !self.engine.state.borrow().crossed.peers.is_empty();
        has_peers || !self.deliveries.under_way.borrow().is_empty()
    }

    fn look_at_deliveries(self: &Rc<Self>) {
        self.deliveries.looks.set(self.deliveries.looks.get() + 1);
        let committed = self.exports.last_committed();
        for delivery in self.deliveries.all() {
            let is_durable = self.look_at(&delivery) && delivery.local <= committed;
            if is_durable || self.engine.config.bugs.forget_records_early() {
                let id = delivery.record.id;
                let ended = self.deliveries.under_way.borrow_mut().remove(&id);
                assert!(ended.is_some(), "an operation ends once");
                self.engine.state.borrow_mut().crossed.ended(id);
            }
        }
    }

    /// Whether all parts are durable. A part that went with its MDT's run is sent again.
    fn look_at(self: &Rc<Self>, delivery: &Rc<Delivery>) -> bool {
        let Some(endpoint) = &self.osts else { return false };
        let (mut durable, mut gone) = (true, Vec::new());
        for (other, part) in &*delivery.parts.borrow() {
            let Some((instance, transno)) = part else {
                durable = false;
                continue;
            };
            let remote = endpoint.remote(TargetId::mdt(*other));
            if remote.instance() == *instance {
                durable &= remote.last_committed() >= *transno;
            } else {
                gone.push(*other);
            }
        }
        for other in &gone {
            planted::reached("mdt: an update was sent again to a restarted MDT");
            delivery.parts.borrow_mut().insert(*other, None);
            self.deliver_to(*other, delivery);
        }
        durable && gone.is_empty()
    }

    /// Forgets what is done, here and at the other MDTs.
    async fn move_mark(&self) {
        if !self.deliveries.owed.borrow().is_empty() {
            return;
        }
        let here = self.engine.config.index;
        let (mark, mut peers) = {
            let crossed = &self.engine.state.borrow().crossed;
            (crossed.own_mark(), crossed.peers.clone())
        };
        let Some(endpoint) = self.osts.as_ref().filter(|_| !peers.is_empty()) else { return };
        peers.retain(|peer| !endpoint.is_off(TargetId::mdt(*peer))); // it never answers
        let is_behind = |mdt: &u32| {
            let instance = endpoint.remote(TargetId::mdt(*mdt)).instance();
            self.deliveries.told.borrow().get(mdt).is_none_or(|told| *told < (instance, mark))
        };
        let behind: Vec<u32> = peers.into_iter().filter(is_behind).collect();
        if let Err(errno) = self.forget_done(here, mark).await {
            tracing::warn!(target: "mdt", %errno, "records of operations that are done stay");
            return;
        }
        for mdt in behind {
            let done = Done { mdt: here, below: mark, ..Done::default() };
            if let Some(instance) = say(endpoint, mdt, &done).await {
                self.deliveries.told.borrow_mut().insert(mdt, (instance, mark));
            }
        }
    }
}

/// Whether a file with objects leaves its MDT: its inode loses its layout, and all names.
fn departs(record: &Record) -> bool {
    let updates = record.part(record.id.mdt).map_or(&[][..], |part| &part.updates);
    let is_named = |file: Fid| {
        updates.iter().any(|update| matches!(update, Update::Named(named) if named.fid == file))
    };
    updates.iter().any(|update| matches!(update, Update::Own(own) if is_named(own.fid)))
}

/// Whether names of a directory begin to move, or have moved.
fn restripes(record: &Record) -> bool {
    let mut updates = record.parts.iter().flat_map(|part| &part.updates);
    updates.any(|update| matches!(update, Update::Stripe { .. }))
}

/// Has an MDT execute its part; returns its run, and the place in its history below which it is.
/// `is_passed_on`: the coordinator was forgotten, and this MDT has its operation.
pub(super) async fn bring(
    endpoint: &Rc<Endpoint>,
    mdt: u32,
    record: &Record,
    is_passed_on: bool,
) -> Result<(Instance, Transno), CallError> {
    let body: Bytes = updates::encode(record).into();
    let mut bufs = vec![Bytes::new(), body];
    if is_passed_on {
        bufs.push(updates::encode(&true).into());
    }
    let mut call = Call::new(Opcode::MdtUpdate, bufs);
    call.patience = Some(DELIVER_PATIENCE);
    let answer = endpoint.remote(TargetId::mdt(mdt)).call(call).await?;
    let below: SyncRep = answer.reply.body();
    Ok((Instance(answer.reply.header.instance), Transno(below.last_committed)))
}

/// Tells an MDT what is over; returns the run that heard it.
pub(super) async fn say(endpoint: &Rc<Endpoint>, mdt: u32, done: &Done) -> Option<Instance> {
    let body: Bytes = updates::encode(done).into();
    let mut call = Call::new(Opcode::MdtUpdatesDone, vec![Bytes::new(), body]);
    call.patience = Some(DELIVER_PATIENCE);
    let answer = endpoint.remote(TargetId::mdt(mdt)).call(call).await.ok()?;
    Some(Instance(answer.reply.header.instance))
}

#[cfg(test)]
mod tests {
    use wire::updates::{OpId, Part};

    use super::*;

    #[test]
    fn what_begins_a_move_of_names_is_committed_at_once_and_a_move_is_not() {
        let of = |updates: Vec<Update>| Record {
            id: OpId { mdt: 1, number: 1 },
            time: (0, 0),
            parts: vec![Part { mdt: 1, updates: Vec::new() }, Part { mdt: 2, updates }],
            reply: Default::default(),
        };
        assert!(restripes(&of(vec![Update::Stripe { fid: Fid::ROOT, value: Vec::new() }])));
        assert!(!restripes(&of(vec![Update::Size { dir: Fid::ROOT, name_bytes: 3, subdirs: 0 }])));
    }
}

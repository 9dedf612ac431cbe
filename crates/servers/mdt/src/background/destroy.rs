//! Destroys the objects of removed files: sends the destroy log, in batches, to every OST that it
//! names.
//!
//! A record is written in the transaction that removes the file. It is sent only once that
//! transaction is durable. It is removed once every OST of the file has *committed* the destroy.
//! Sending twice is harmless, so nothing else is stored. Each OST has a cursor in memory, and a
//! restart begins at the first record that is left. An OST that is away holds up only its own
//! records.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, CallError, Remote};
use osd::{Table, WriteSet};
use target::{Decided, OpError};
use types::{Span, TargetId, Transno};
use wire::body::{BatchFlags, ObjectRange, OstBatchReq};
use wire::{Opcode, encode_body};
use zerocopy::IntoBytes;

use crate::limits::{DESTROY_BATCH_MAX, DESTROY_BATCH_OBJECTS, DESTROYS_COUNTED_MAX, ROOM_WAIT};
use crate::record::DestroyRecord;
use crate::target::Mdt;

/// Between looks at an OST's `last_committed`, and before an OST that refused is asked again.
const PAUSE: Span = Span::millis(250);

/// How far each OST is: it has committed the destroys of all records below.
#[derive(Default)]
pub(crate) struct Cursors(RefCell<BTreeMap<u32, u64>>);

/// Waits until the room of files whose removal is durable can be used again; not for ever, since an
/// OST may be away.
pub(crate) async fn room_is_back(mdt: &Mdt) {
    let end = mdt.engine.destroys_durable.get();
    let answered = &mdt.destroys_answered;
    let all = async {
        loop {
            let changed = answered.changed.notified();
            if mdt.destroys_seen.get() >= end
                && answered.upto.borrow().values().all(|upto| *upto >= end)
            {
                return;
            }
            changed.await;
        }
    };
    let _ = mdt.env.timeout(ROOM_WAIT, all).await;
}

/// A piece of the log.
struct Batch {
    /// Behind the last record that was looked at.
    end: u64,
    /// Objects of the OST in it.
    ranges: Vec<ObjectRange>,
}

/// Looks after the log: one task per OST that it names.
pub(crate) async fn run(mdt: Rc<Mdt>) {
    mdt.env.spawn("mdt_ranges", super::ranges::run(mdt.clone()));
    let cursors = Rc::new(Cursors::default());
    loop {
        if mdt.is_stopped() {
            return;
        }
        match osts_named(&mdt, &cursors).await {
            Ok(osts) => {
                for ost in osts {
                    cursors.0.borrow_mut().insert(ost, 0);
                    mdt.destroys_answered.upto.borrow_mut().insert(ost, 0);
                    let (mdt, cursors) = (mdt.clone(), cursors.clone());
                    mdt.env
                        .clone()
                        .spawn("mdt_destroy_ost", async move { serve(mdt, cursors, ost).await });
                }
            }
            Err(error) => tracing::error!(target: "mdt", %error, "the destroy log cannot be read"),
        }
        mdt.destroys_answered.changed.notify_waiters(); // of OSTs that are named
        mdt.engine.destroys_wanted.notified().await;
        mdt.destroys_grew.notify_waiters();
    }
}

/// OSTs of the log that have no task yet.
async fn osts_named(mdt: &Mdt, cursors: &Cursors) -> Decided<Vec<u32>> {
    let from = mdt.destroys_seen.get();
    let end = mdt.engine.destroys_durable.get();
    assert!(from <= end, "only durable records were searched");
    let mut found = Vec::new();
    let mut at = from;
    while at < end {
        let records = records(mdt, at, end).await?;
        let Some((last, _)) = records.last() else { break };
        at = last + 1;
        let known = cursors.0.borrow();
        for ost in records.iter().flat_map(|(_, record)| &record.osts) {
            if !known.contains_key(ost) && !found.contains(ost) {
                found.push(*ost);
            }
        }
    }
    mdt.destroys_seen.set(end);
    Ok(found)
}

/// Records of the log, at most [`DESTROYS_COUNTED_MAX`]; none if the store cannot be read now.
pub(crate) fn left(mdt: &Mdt) -> Option<u64> {
    let view = mdt.engine.store.meta().running().ok()?;
    let mut count = 0;
    let counted = view.scan(Table::Destroys, &0_u64.to_be_bytes(), &mut |_, _| {
        count += 1;
        count < DESTROYS_COUNTED_MAX
    });
    counted.is_ok().then_some(count)
}

/// At most a batch of durable records from `from` on.
async fn records(mdt: &Mdt, from: u64, end: u64) -> Decided<Vec<(u64, DestroyRecord)>> {
    mdt.engine.store.meta().ready().await;
    let view = mdt.engine.store.meta().running()?;
    let mut found = Vec::new();
    let (mut objects, mut broken) = (0, false);
    view.scan(Table::Destroys, &from.to_be_bytes(), &mut |key, value| {
        let number = key.try_into().ok().map(u64::from_be_bytes);
        match number.zip(DestroyRecord::decode(value)) {
            Some((number, _)) if number >= end => return false,
            Some((number, record)) => {
                objects += record.osts.len();
                found.push((number, record));
            }
            None => broken = true,
        }
        !broken && !is_whole(found.len(), objects)
    })?;
    assert!(found.len() <= DESTROY_BATCH_MAX, "a batch is bounded");
    if broken { Err(OpError::Broken("destroy log")) } else { Ok(found) }
}

/// Whether so many records with so many objects are a batch.
fn is_whole(records: usize, objects: usize) -> bool {
    records >= DESTROY_BATCH_MAX || objects >= DESTROY_BATCH_OBJECTS
}

/// Brings the log to one OST, for ever.
async fn serve(mdt: Rc<Mdt>, cursors: Rc<Cursors>, ost: u32) {
    let Some(endpoint) = mdt.osts.clone() else { return };
    let remote = endpoint.remote(TargetId::ost(ost));
    let (mut at, mut removed) = (0, 0);
    while !mdt.is_stopped() {
        let grew = mdt.destroys_grew.notified();
        let batch = match batch_for(&mdt, ost, at).await {
            Ok(batch) => batch,
            Err(error) => {
                tracing::error!(target: "mdt", %error, "the destroy log cannot be read");
                return;
            }
        };
        assert!(batch.end >= at, "the log is read forwards");
        if batch.end == at {
            grew.await;
            continue;
        }
        if !destroy(&mdt, &remote, &batch, ost).await {
            mdt.env.sleep(PAUSE).await;
            continue;
        }
        at = batch.end;
        let before = cursors.0.borrow_mut().insert(ost, at);
        assert!(before < Some(at), "an OST gets on in the log");
        match remove_done(&mdt, &cursors, removed, at).await {
            Ok(()) => removed = at,
            Err(error) => {
                tracing::warn!(target: "mdt", %error, "records of destroyed objects stay in the log");
            }
        }
    }
}

async fn batch_for(mdt: &Mdt, ost: u32, from: u64) -> Decided<Batch> {
    let end = mdt.engine.destroys_durable.get();
    let records = records(mdt, from, end).await?;
    let objects = records.iter().map(|(_, record)| record.osts.len()).sum();
    let end = if is_whole(records.len(), objects) {
        records.last().map_or(from, |(number, _)| number + 1)
    } else {
        end.max(from)
    };
    let mut ranges = Vec::new();
    for (_, record) in &records {
        for (stripe, _) in record.osts.iter().enumerate().filter(|(_, index)| **index == ost) {
            ranges.push(ObjectRange { base: record.base.into(), first: stripe as u32, count: 1 });
        }
    }
    Ok(Batch { end, ranges })
}

/// One batch of the log: whoever waits for the room hears when all of it was answered, the log when
/// all is committed.
async fn destroy(mdt: &Mdt, remote: &Rc<Remote>, batch: &Batch, ost: u32) -> bool {
    let mut sent = Vec::new();
    for piece in batch.ranges.chunks(DESTROY_BATCH_MAX) {
        match ask(mdt, remote, piece, BatchFlags::empty()).await {
            Some(done) => sent.push(done),
            None => return false,
        }
    }
    mdt.destroys_answered.note(ost, batch.end);
    for done in sent {
        if !is_committed(mdt, remote, done).await {
            return false;
        }
    }
    true
}

/// Destroys and waits until the OST has committed it; says whether it has. An instance that ends in
/// between may take the change along: then it is sent again.
pub(crate) async fn send(
    mdt: &Mdt,
    remote: &Rc<Remote>,
    ranges: &[ObjectRange],
    flags: BatchFlags,
) -> bool {
    for piece in ranges.chunks(DESTROY_BATCH_MAX) {
        let Some(done) = ask(mdt, remote, piece, flags).await else { return false };
        if !is_committed(mdt, remote, done).await {
            return false;
        }
    }
    true
}

/// A destroy that an instance of an OST has answered.
#[derive(Clone, Copy)]
struct Done {
    transno: Transno,
    instance: u64,
}

async fn ask(
    mdt: &Mdt,
    remote: &Rc<Remote>,
    piece: &[ObjectRange],
    flags: BatchFlags,
) -> Option<Done> {
    let store = mdt.engine.state.borrow().number;
    let body = OstBatchReq { count: piece.len() as u32, flags, store };
    let call = Call::new(
        Opcode::OstDestroy,
        vec![encode_body(&body), Bytes::copy_from_slice(piece.as_bytes())],
    );
    match remote.call(call).await {
        Ok(answer) => {
            Some(Done { transno: answer.reply.transno(), instance: answer.reply.header.instance })
        }
        Err(CallError::Shutdown) => std::future::pending().await,
        Err(_) => None,
    }
}

/// Waits for the commit. Another instance's word says nothing of this change: nobody's recovery
/// waits for a server's replay.
async fn is_committed(mdt: &Mdt, remote: &Rc<Remote>, done: Done) -> bool {
    while remote.instance().0 == done.instance && remote.last_committed() < done.transno {
        mdt.env.sleep(PAUSE).await;
        if mdt.is_stopped() {
            return false;
        }
    }
    remote.instance().0 == done.instance
}

/// Removes those of the records from `from` to `to` that all their OSTs are done with. An OST that
/// gets past records asks for these: a record is done once the last of its OSTs is, so nothing else
/// is to be looked at, however many records an OST that is away keeps in the log.
async fn remove_done(mdt: &Mdt, cursors: &Cursors, from: u64, to: u64) -> Decided<()> {
    let mut at = from;
    while at < to {
        let found = records(mdt, at, to).await?;
        let Some((last, _)) = found.last() else { return Ok(()) };
        assert!(*last < to, "records that are not destroyed stay");
        let is_done = |number: u64, record: &DestroyRecord| {
            let upto = cursors.0.borrow();
            record.osts.iter().all(|ost| upto.get(ost).is_some_and(|at| *at > number))
        };
        let mut set = WriteSet::new();
        // records side by side go as one range
        for some in
            found.chunk_by(|one, other| is_done(one.0, &one.1) == is_done(other.0, &other.1))
        {
            let ((first, record), (end, _)) = (&some[0], &some[some.len() - 1]);
            if is_done(*first, record) {
                set.delete_range(Table::Destroys, first.to_be_bytes(), (end + 1).to_be_bytes());
            }
        }
        if !set.is_empty() {
            mdt.engine.apply_when_ready(&set).await?;
        }
        at = last + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_bounds_for_records_and_for_objects() {
        let of = |stripes: usize| (1..).find(|records| is_whole(*records, records * stripes));
        assert_eq!([of(1), of(32)], [Some(DESTROY_BATCH_MAX); 2]);
        assert_eq!(of(2_000), Some(132), "not 8 million objects");
    }
}

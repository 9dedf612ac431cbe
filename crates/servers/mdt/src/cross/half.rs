//! Reads that meet an operation of several MDTs between its first part and the part of this MDT.
//!
//! From the moment the coordinator has applied its part, no client may see the state before it. A
//! read of a key that is reserved here waits for a moment: parts arrive at once as a rule. Then
//! this MDT asks the coordinator. If the operation is not applied, the read shows the present
//! state. If it is, the answer has the record, and this MDT executes its part. An operation that
//! changes nothing here has no part here, and is over.

use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::Call;
use env::LocalFuture;
use service::Incoming;
use target::Decided;
use types::{Errno, Instance, Instant, TargetId};
use wire::updates::{self, OpId, Record};
use wire::{Opcode, Reply};

use super::peer::asked;
use crate::limits::{DELIVER_PATIENCE, DELIVER_PAUSE, HALF_LOOK, HALF_WAIT_MAX};
use crate::target::Mdt;

/// One read while it waits.
#[derive(Debug, Default)]
pub(crate) struct Halves {
    since: Option<Instant>,
    /// Operations that were not applied when their coordinators were asked.
    pub(crate) passed: BTreeSet<OpId>,
}

impl Mdt {
    /// Waits until operations are executed here, or are known not to be applied.
    pub(crate) async fn other_halves(&self, incoming: &Incoming, ops: &[OpId], read: &mut Halves) {
        incoming.step_aside();
        let since = *read.since.get_or_insert(self.env.now());
        if self.env.timeout_at(since + HALF_LOOK, self.guests.freed.notified()).await.is_some() {
            return;
        }
        planted::reached("mdt: a read asked whether an operation of several MDTs is applied");
        for op in ops {
            match self.ask_coordinator(*op).await {
                // it only depended on what it reserved here, and its release is late
                Some((_, Some(record))) if record.part(self.engine.config.index).is_none() => {
                    self.release_here(*op);
                }
                Some((run, Some(record))) => {
                    let is_void = || self.deliveries.has_asked(op.mdt, run);
                    if let Err(errno) = self.take_part(&record, &is_void).await {
                        tracing::debug!(target: "mdt", %errno, "the part of this MDT waits");
                        self.env.sleep(DELIVER_PAUSE).await;
                    }
                }
                Some((_, None)) => {
                    read.passed.insert(*op);
                }
                None if self.env.now() >= since + HALF_WAIT_MAX => {
                    let target_id = TargetId::mdt(op.mdt).name(self.engine.config.fsname);
                    tracing::warn!(target: "mdt", %target_id, "a read does not wait for this MDT any longer: it may show one half of an operation");
                    read.passed.insert(*op);
                }
                None => self.env.sleep(DELIVER_PAUSE).await,
            }
        }
    }

    /// The run of an operation's coordinator, and the record if it is applied. `None`: no answer.
    async fn ask_coordinator(&self, op: OpId) -> Option<(Instance, Option<Record>)> {
        let endpoint = Rc::clone(self.osts.as_ref().filter(|_| !self.is_forgotten(op.mdt))?);
        let mut call =
            Call::new(Opcode::MdtUpdateOf, vec![Bytes::new(), updates::encode(&op).into()]);
        call.patience = Some(DELIVER_PATIENCE);
        let answer = endpoint.remote(TargetId::mdt(op.mdt)).call(call).await.ok()?;
        let record: Option<Record> = updates::decode(&answer.reply.buf(1))?;
        let run = Instance(answer.reply.header.instance);
        Some((run, record.filter(|record| record.id == op)))
    }
}

/// Serves [`wire::Opcode::MdtUpdateOf`].
pub(crate) fn find<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(async move {
        let op: OpId = asked(incoming)?;
        if op.mdt != mdt.engine.config.index {
            return Err(Errno::EPROTO);
        }
        mdt.all_gathered(incoming).await?; // another MDT may still have it
        let read = || -> Decided<Option<Record>> {
            let view = mdt.engine.store.meta().running()?;
            let stored = view.get(osd::Table::Updates, &op.to_key())?;
            Ok(stored.and_then(|stored| updates::decode(&stored)))
        };
        let found = mdt.persist(read).await?;
        let body: Bytes = updates::encode(&found).into();
        Ok(Reply::ok(&incoming.request.header, vec![Bytes::new(), body]))
    })
}

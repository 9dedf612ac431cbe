//! Operations with an MDT that the MGS has forgotten. Such an MDT may have ended in the middle of
//! them (`nacre forget --force`), and it never answers again.
//!
//! - An operation of the forgotten MDT happens if another MDT has executed its part. Then all
//!   others with a part execute theirs. Otherwise it never happened. No client can bring it back,
//!   because only its coordinator takes a client's record.
//! - An operation of this MDT goes on without the part of the forgotten one.
//!
//! Such an MDT may run on, and deliver operations late. From the moment at which another MDT reads
//! that it is forgotten, that one takes its operations from third ones only.
//!
//! So each MDT asks all others for records of the forgotten MDT's operations. After that, it knows
//! all operations that it has a part in, and frees everything that others have reserved. It removes
//! its own records when all other parts are durable. As long as the store says that this MDT and
//! the forgotten one changed something together (`peer/`), the next run goes on with it.

use std::collections::BTreeMap;
use std::rc::Rc;

use endpoint::Endpoint;
use osd::{Table, WriteSet};
use types::{Errno, Instance, TargetId, Transno};
use wire::updates::{OpId, Round};

use super::deliver::bring;
use super::peer::records;
use crate::keys;
use crate::limits::{DELIVER_PAUSE, FORGOTTEN_PAUSE, ROLL_PAUSE};
use crate::target::Mdt;

impl Mdt {
    /// Whether the MGS has forgotten an MDT. One that is registered is only out of use.
    pub(super) fn is_forgotten(&self, mdt: u32) -> bool {
        let Some(endpoint) = &self.osts else { return false };
        endpoint.is_off(TargetId::mdt(mdt)) && !endpoint.mdts().contains(&mdt)
    }

    /// Begins to end operations with MDTs that were forgotten.
    pub(super) fn look_for_forgotten(self: &Rc<Self>) {
        let peers = self.engine.state.borrow().crossed.peers.clone();
        for other in peers.into_iter().filter(|peer| self.is_forgotten(*peer)) {
            if !self.deliveries.parting.borrow_mut().insert(other) {
                continue; // it is under way
            }
            let mdt = self.clone();
            self.env.spawn("mdt_forgotten", async move {
                mdt.part_from_forgotten(other).await;
                mdt.deliveries.parting.borrow_mut().remove(&other);
            });
        }
    }

    async fn part_from_forgotten(self: &Rc<Self>, other: u32) {
        let Some(endpoint) = self.osts.clone() else { return };
        let target_id = TargetId::mdt(other).name(self.engine.config.fsname);
        tracing::warn!(target: "mdt", %target_id, "this MDT was forgotten: changes with it end without it");
        self.env.sleep(FORGOTTEN_PAUSE).await;
        while !self.is_stopped() && self.is_forgotten(other) {
            if self.end_operations(&endpoint, other).await.is_some() {
                tracing::info!(target: "mdt", %target_id, "no changes with this MDT are left");
                return;
            }
            self.env.sleep(ROLL_PAUSE).await;
        }
    }

    /// Ends everything with a forgotten MDT. `None`: another MDT is away or began anew, so there
    /// may be more.
    async fn end_operations(self: &Rc<Self>, endpoint: &Rc<Endpoint>, other: u32) -> Option<()> {
        self.deliveries.leave_out(other);
        self.take_from_all(endpoint, other).await?;
        let above = self.engine.state.borrow().crossed.above(other);
        if above > 0 {
            let run = OpId { mdt: other, number: above }.instance();
            let over = self.engine.state.borrow_mut().crossed.instance_over(other, run);
            over.into_iter().for_each(|id| self.free_here(id));
            let ops = self.engine.state.borrow().crossed.reserved.ops();
            let is_free = |id: &OpId| id.mdt != other || id.number >= above;
            assert!(ops.iter().all(is_free), "a forgotten MDT holds nothing");
            self.pass_on(endpoint, other).await?;
            self.forget_done(other, above).await.ok()?;
        }
        if self.engine.state.borrow().crossed.above(other) > 0 {
            return None; // another MDT has sent one meanwhile
        }
        self.forget_peer(other).await.ok()
    }

    /// Executes the own parts of all operations of the forgotten MDT `of` that any MDT has kept,
    /// also one that is out of use and registered. What an MDT has before the first question, it
    /// has when it is asked, unless it began anew in between. Another one that was asked before may
    /// have taken an operation from it by then. `None`: this may be so, or one is away.
    async fn take_from_all(self: &Rc<Self>, endpoint: &Rc<Endpoint>, of: u32) -> Option<()> {
        let mut mdts = endpoint.mdts();
        mdts.retain(|mdt| *mdt != self.engine.config.index);
        let run = |mdt: &u32| endpoint.remote(TargetId::mdt(*mdt)).instance();
        let before: Vec<Instance> = mdts.iter().map(run).collect();
        for mdt in &mdts {
            self.take_from(endpoint, *mdt, of).await?;
        }
        mdts.iter().map(run).eq(before).then_some(())
    }

    /// Executes the own parts of operations of the forgotten MDT `of` that another MDT has kept.
    /// `None`: it is away.
    async fn take_from(self: &Rc<Self>, endpoint: &Rc<Endpoint>, mdt: u32, of: u32) -> Option<()> {
        let mut from = OpId { mdt: of, number: 0 };
        loop {
            let kept = self.ask(endpoint, mdt, Some(from), Round::First).await.ok()?;
            let Some(last) = kept.last().map(|record| record.id) else { return Some(()) };
            for record in kept.iter().filter(|record| record.id.mdt == of) {
                planted::reached("mdt: another MDT had an operation of a forgotten MDT");
                if let Err(errno) = self.take_part(record, &|| false).await {
                    tracing::warn!(target: "mdt", %errno, "an operation of a forgotten MDT cannot be repeated");
                    return None;
                }
            }
            if last.mdt != of {
                return Some(()); // they are in the order of their coordinators
            }
            from = last;
        }
    }

    /// Brings the operations of the forgotten MDT `of` that this one has to the others with a part,
    /// and waits until these parts are durable. `None`: one of them is away, or began anew.
    async fn pass_on(self: &Rc<Self>, endpoint: &Rc<Endpoint>, of: u32) -> Option<()> {
        let here = self.engine.config.index;
        let mut from = OpId { mdt: of, number: 0 };
        let mut executed: BTreeMap<u32, (Instance, Transno)> = BTreeMap::new();
        loop {
            let read = || records(&*self.engine.store.meta().running()?, here, Some(from));
            let mut known = self.persist(read).await.ok()?;
            known.retain(|record| record.id.mdt == of);
            let Some(last) = known.last() else { break };
            from = last.id;
            for record in &known {
                for mdt in record.others(here).filter(|mdt| !self.is_forgotten(*mdt)) {
                    let (run, transno) = bring(endpoint, mdt, record, true).await.ok()?;
                    let before = executed.insert(mdt, (run, transno));
                    if before.is_some_and(|(before, _)| before != run) {
                        return None;
                    }
                }
            }
        }
        for (mdt, (run, transno)) in executed {
            let remote = endpoint.remote(TargetId::mdt(mdt));
            while remote.instance() == run && remote.last_committed() < transno {
                if self.is_stopped() || self.is_forgotten(mdt) {
                    return None;
                }
                self.env.sleep(DELIVER_PAUSE).await;
            }
            if remote.instance() != run {
                return None;
            }
        }
        Some(())
    }

    /// Nothing is under way with an MDT: the next run need not think of it.
    async fn forget_peer(&self, mdt: u32) -> Result<(), Errno> {
        let mut set = WriteSet::new();
        set.delete(Table::Meta, keys::of_mdt(keys::META_PEER, mdt));
        self.persist(|| Ok(self.engine.apply_own(&set)?)).await?;
        self.engine.state.borrow_mut().crossed.peers.remove(&mdt);
        Ok(())
    }
}

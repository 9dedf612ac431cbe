//! The last step of a recovery: other MDTs report the operations that this one takes part in.
//! Clients have replayed by then, and nothing new is served yet.
//!
//! All are asked twice. The first time, each answers as soon as its own clients have replayed. Then
//! each knows all that any MDT knows of the operations that it takes part in. The second time, it
//! reports that too. An operation may be known to one MDT only, and have its coordinator and this
//! MDT as other parts.
//!
//! This MDT waits for an absent MDT for as long as a recovery may take at most. Then it serves
//! without that MDT, and asks until that MDT is back. An MDT that answers with errors alone counts
//! as absent. Updates that do not fit any more then are left out and logged. An MDT that was
//! forgotten is not asked. It may have coordinated operations of this MDT and another one, which
//! need not know each other. So all others are asked then.

use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, CallError, Endpoint};
use tokio::sync::oneshot;
use types::{Errno, TargetId};
use wire::Opcode;
use wire::updates::{self, Done, OpId, Question, Record, Round};

use super::deliver::say;
use crate::limits::{DELIVER_PATIENCE, DELIVER_PAUSE, ROLL_PAUSE};
use crate::target::Mdt;

impl Mdt {
    /// Brings operations of several MDTs to their end, here and elsewhere.
    pub(crate) async fn roll_forward(self: &Rc<Self>) {
        let mut peers = self.engine.state.borrow().crossed.peers.clone();
        let Some(endpoint) = self.osts.clone() else { return };
        if peers.iter().any(|peer| self.is_forgotten(*peer)) {
            let here = self.engine.config.index;
            peers.extend(endpoint.mdts().into_iter().filter(|mdt| *mdt != here));
        }
        peers.retain(|peer| !endpoint.is_off(TargetId::mdt(*peer))); // it never answers
        if peers.is_empty() {
            return;
        }
        let config = &self.engine.config;
        if config.abort_recovery {
            return self.say_instance(&endpoint); // others free what an earlier run has reserved
        }
        if config.bugs.open_before_peers() {
            return;
        }
        let answered = self.roll_with_all(&endpoint, peers.clone(), Round::First).await;
        self.deliveries.gathered();
        let answered = self.roll_with_all(&endpoint, answered, Round::Last).await;
        peers.difference(&answered).for_each(|peer| self.roll_later(&endpoint, *peer));
        let executed = self.env.timeout(config.recovery_window_max, self.all_executed()).await;
        if executed.is_none() {
            tracing::error!(target: "mdt", "recovery goes on although other MDTs have not executed their parts");
        }
        self.say_instance(&endpoint);
    }

    /// Takes over what these MDTs know; returns those that have answered.
    async fn roll_with_all(
        self: &Rc<Self>,
        endpoint: &Rc<Endpoint>,
        peers: BTreeSet<u32>,
        round: Round,
    ) -> BTreeSet<u32> {
        let mut asking = Vec::new();
        for peer in peers {
            let (tell, told) = oneshot::channel();
            let (mdt, endpoint) = (self.clone(), endpoint.clone());
            self.env.spawn("mdt_roll", async move {
                let name = TargetId::mdt(peer).name(mdt.engine.config.fsname);
                mdt.exports.awaits_target(&name, true);
                let is_answered = mdt.roll_with(&endpoint, peer, round).await;
                mdt.exports.awaits_target(&name, false);
                let _gone = tell.send(is_answered);
            });
            asking.push((peer, told));
        }
        let mut answered = BTreeSet::new();
        for (peer, told) in asking {
            if told.await.unwrap_or(false) {
                answered.insert(peer);
                continue;
            }
            let target_id = TargetId::mdt(peer).name(self.engine.config.fsname);
            tracing::error!(target: "mdt", %target_id, "recovery goes on without this MDT: changes of both MDTs may stay half done until it returns");
        }
        answered
    }

    /// Takes over what an MDT knows that recovery goes on without, when it is back.
    fn roll_later(self: &Rc<Self>, endpoint: &Rc<Endpoint>, peer: u32) {
        self.deliveries.owed.borrow_mut().insert(peer);
        let (mdt, endpoint) = (self.clone(), endpoint.clone());
        self.env.spawn("mdt_roll", async move {
            while !mdt.roll_with(&endpoint, peer, Round::Last).await {
                if mdt.is_stopped() {
                    return;
                }
                mdt.env.sleep(ROLL_PAUSE).await;
            }
            mdt.deliveries.owed.borrow_mut().remove(&peer);
            if mdt.is_forgotten(peer) {
                return; // operations with it end in another way
            }
            let target_id = TargetId::mdt(peer).name(mdt.engine.config.fsname);
            tracing::info!(target: "mdt", %target_id, "this MDT is back: changes of both MDTs are complete");
        });
    }

    /// Takes over what one MDT knows; says whether that is all. An MDT that is there is waited for:
    /// its own recovery has a bound. One that answers with errors alone is waited for no longer
    /// than one that is away.
    async fn roll_with(self: &Rc<Self>, endpoint: &Rc<Endpoint>, peer: u32, round: Round) -> bool {
        let remote = endpoint.remote(TargetId::mdt(peer));
        let target_id = TargetId::mdt(peer).name(self.engine.config.fsname);
        let mut from: Option<OpId> = None;
        let (started, mut seen) = (self.env.now(), self.env.now());
        let mut is_announced = false;
        while !self.is_stopped() {
            if self.is_forgotten(peer) {
                return true; // it has nothing more to say
            }
            let mut refused = None;
            match self.ask(endpoint, peer, from, round).await {
                Ok(records) if records.is_empty() => return true,
                Ok(records) => {
                    from = records.last().map(|record| record.id);
                    seen = self.env.now();
                    for record in records {
                        if let Err(errno) = self.take_over(record).await {
                            tracing::error!(target: "mdt", %errno, "an operation of another MDT cannot be repeated");
                            return false;
                        }
                    }
                    continue;
                }
                Err(CallError::Errno(errno)) => refused = Some(errno), // as if it were away
                Err(_) if remote.is_connected() => seen = self.env.now(),
                Err(_) => {}
            }
            let now = self.env.now();
            if now >= seen + self.engine.config.recovery_window_max {
                if let Some(errno) = refused {
                    tracing::error!(target: "mdt", %target_id, %errno, "this MDT does not say what it knows of changes of both MDTs");
                }
                return false;
            }
            if !is_announced && self.exports.is_recovering() && now > started + DELIVER_PATIENCE {
                is_announced = true;
                tracing::info!(target: "mdt", %target_id, "recovery waits for this MDT");
            }
            self.env.sleep(if refused.is_some() { ROLL_PAUSE } else { DELIVER_PAUSE }).await;
        }
        false
    }

    /// Executes the own part of an operation that another MDT knows. An own operation goes on to
    /// its other MDTs.
    async fn take_over(self: &Rc<Self>, record: Record) -> Result<(), Errno> {
        self.take_part(&record, &|| false).await?;
        if record.id.mdt == self.engine.config.index {
            planted::reached("mdt: an own operation came back from another MDT");
            self.deliver(Rc::new(record), self.exports.last_assigned());
        }
        Ok(())
    }

    /// Records that another MDT has with a part of this one, behind an operation.
    pub(super) async fn ask(
        &self,
        endpoint: &Rc<Endpoint>,
        peer: u32,
        from: Option<OpId>,
        round: Round,
    ) -> Result<Vec<Record>, CallError> {
        let question: Question = (self.engine.config.index, from, self.exports.instance().0);
        let body = match round {
            Round::First => updates::encode(&question),
            Round::Last => updates::encode(&(question, round)),
        };
        let body: Bytes = body.into();
        let mut call = Call::new(Opcode::MdtUpdates, vec![Bytes::new(), body]);
        call.patience = Some(DELIVER_PATIENCE);
        match endpoint.remote(TargetId::mdt(peer)).call(call).await {
            Ok(answer) => {
                let records = updates::decode(&answer.reply.buf(1));
                records.ok_or(CallError::Errno(Errno::EPROTO))
            }
            // of a version that knows the first question only
            Err(CallError::Errno(Errno::EPROTO)) if round == Round::Last => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// An MDT frees what earlier runs have reserved there, as soon as it has executed its parts of
    /// their operations.
    fn say_instance(self: &Rc<Self>, endpoint: &Rc<Endpoint>) {
        let done = Done {
            mdt: self.engine.config.index,
            instance: self.exports.instance().0,
            ..Done::default()
        };
        let mut peers = self.engine.state.borrow().crossed.peers.clone();
        peers.retain(|peer| !endpoint.is_off(TargetId::mdt(*peer)));
        for peer in peers {
            let (mdt, endpoint, done) = (self.clone(), endpoint.clone(), done.clone());
            // one that is away has nothing reserved when it returns
            self.env.spawn("mdt_instance", async move {
                mdt.executed_at(peer).await;
                let is_needed = || !mdt.is_stopped() && !mdt.is_forgotten(peer);
                while is_needed() && say(&endpoint, peer, &done).await.is_none() {
                    mdt.env.sleep(DELIVER_PAUSE).await;
                }
            });
        }
    }
}

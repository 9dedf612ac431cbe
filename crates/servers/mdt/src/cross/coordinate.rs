//! The coordinator's side until an operation is decided: keys of other MDTs are reserved, in the
//! order of the MDTs, and freed if the operation comes to nothing.
//!
//! An operation may find a further key on an MDT below one that it has asked, or here while it has
//! asked an MDT above. Then it frees everything and begins again with all keys that it knows of. It
//! waits for keys in the way elsewhere for a while only. So operations that wait for each other in
//! a circle, because an order could not be kept, come apart.
//!
//! An operation that waits for an MDT which is away has nothing reserved meanwhile. So others that
//! do not need that MDT go on.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, CallError};
use service::Incoming;
use types::{ClientId, Errno, Instance, Instant, Span, TargetId};
use wire::body::RenameReq;
use wire::updates::{self, Done, Fact, Key, OpId, Place, Prepare, Record, Want};
use wire::{Opcode, Reply, RequestFlags};

use super::peer::KEEPER_BUF;
use super::{Claim, Crossing, Needs};
use crate::limits::{
    DELIVER_PAUSE, HELD_ROUNDS_MAX, HELD_WAIT, MEND_ROUNDS_MAX, PREPARE_PATIENCE, PREPARE_WAIT,
};
use crate::op::{self, Reach};
use crate::target::Mdt;

/// One operation while it is decided.
pub(crate) struct Coordinator {
    mdt: Rc<Mdt>,
    pub(crate) crossing: Crossing,
    wants: BTreeMap<u32, BTreeSet<Want>>,
    claims: BTreeSet<Claim>,
    /// Runs of the MDTs that were asked: what they reserved is gone with them.
    instances: BTreeMap<u32, Instance>,
    /// Keys of this MDT are reserved.
    is_held: bool,
    rounds: u32,
    /// The MDT that refused its part last.
    refuser: Option<u32>,
    /// The MDT that did not answer, and is away.
    away: Option<u32>,
    /// When it was asked first.
    asked_at: Option<Instant>,
    /// It takes nothing for lost that an MDT may bring back.
    is_check: bool,
    /// It is a step of something that has begun.
    goes_on: bool,
}

impl Coordinator {
    pub(crate) fn new(mdt: &Rc<Mdt>) -> Coordinator {
        Coordinator {
            mdt: mdt.clone(),
            crossing: Crossing::default(),
            wants: BTreeMap::new(),
            claims: BTreeSet::new(),
            instances: BTreeMap::new(),
            is_held: false,
            rounds: 0,
            refuser: None,
            away: None,
            asked_at: None,
            is_check: false,
            goes_on: false,
        }
    }

    /// The coordinator of a check ([`updates::Prepare`]).
    pub(crate) fn of_check(mdt: &Rc<Mdt>) -> Coordinator {
        let mut coordinator = Coordinator::new(mdt);
        coordinator.is_check = true;
        coordinator
    }

    /// The coordinator of a step of something that has begun ([`updates::Prepare`]).
    pub(crate) fn of_step(mdt: &Rc<Mdt>) -> Coordinator {
        let mut coordinator = Coordinator::new(mdt);
        coordinator.goes_on = true;
        coordinator
    }

    /// A new directory cannot be on the MDT that refused last, which is closed, away or full:
    /// another one may be chosen. Says whether the operation is worth another attempt. It is
    /// refused then if the caller has named that MDT.
    pub(crate) fn goes_elsewhere(&mut self, errno: Errno, opcode: Opcode) -> bool {
        let is_closed = matches!(errno, Errno::EREMOTEIO | Errno::ENODEV | Errno::ENOSPC);
        let Some(mdt) = self.refuser.take().filter(|_| is_closed && opcode == Opcode::MdtCreate)
        else {
            return false;
        };
        self.mdt.engine.state.borrow_mut().mdts.refused(mdt);
        self.wants.remove(&mdt);
        self.asked_at = None;
        self.crossing.chosen.set(None);
        self.crossing.refused.insert(mdt, errno).is_none()
    }

    /// Whether the runs of all MDTs that were asked go on, as far as is known. What they said holds
    /// only then.
    pub(crate) fn is_current(&self) -> bool {
        let Some(endpoint) = &self.mdt.osts else { return true };
        self.instances.iter().all(|(mdt, instance)| {
            let remote = endpoint.remote(TargetId::mdt(*mdt));
            let has_asked = self.mdt.deliveries.has_asked(*mdt, *instance);
            remote.instance() == *instance && remote.is_leased() && !has_asked
        })
    }

    /// What was reserved elsewhere may be gone: everything is asked for anew.
    pub(crate) fn begin_again(&mut self) {
        planted::reached("mdt: an operation of several MDTs began again");
        self.free();
    }

    /// Keys of this MDT that the operation changes are reserved by it alone from now on, before
    /// those of other MDTs. Otherwise operations on one name, each of which has only looked at it,
    /// stand in each other's way for ever.
    pub(crate) fn will_change(&mut self, claims: Vec<Claim>) {
        self.claims.extend(claims);
    }

    /// Asks for what an operation needs.
    ///
    /// # Errors
    /// ENODEV: there is no such MDT, or it does not answer in time. EREMOTEIO, ENOSPC: it takes no
    /// new file. EROFS: it takes no change. EAGAIN: other operations stood in the way again and
    /// again. E2BIG: it depends on more than one reply may have.
    pub(crate) async fn acquire(
        &mut self,
        needs: Needs,
        incoming: Option<&Incoming>,
    ) -> Result<(), Errno> {
        let here = self.mdt.engine.config.index;
        if !needs.pulls.is_empty() {
            return self.pull(needs.pulls, incoming).await;
        }
        let lowest = needs.wants.keys().next().copied();
        let highest = self.instances.keys().next_back().copied();
        self.claims.extend(needs.claims);
        for (mdt, wants) in needs.wants {
            self.wants.entry(mdt).or_default().extend(wants);
        }
        if highest.is_some_and(|highest| lowest.is_some_and(|lowest| lowest <= highest)) {
            self.free();
        }
        loop {
            match self.reserve_all(here, incoming).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(errno) => {
                    self.free();
                    return Err(errno);
                }
            }
            self.free();
            if let Some(mdt) = self.away.take() {
                self.until_back(mdt, incoming).await?;
                continue; // nothing stood in the way
            }
            self.rounds += 1;
            planted::reached("mdt: an operation of several MDTs gave way to another");
            let most = if self.is_check { MEND_ROUNDS_MAX } else { HELD_ROUNDS_MAX };
            if self.rounds > most {
                return Err(Errno::EAGAIN);
            }
            let pause = Span::millis(1 + self.mdt.env.random() % (1 << self.rounds.min(7)));
            self.mdt.env.sleep(pause).await;
        }
    }

    /// Keys of all MDTs that are known of, in order; says whether all are reserved.
    async fn reserve_all(&mut self, here: u32, incoming: Option<&Incoming>) -> Result<bool, Errno> {
        step_aside(incoming);
        let wanted: Vec<u32> = self.wants.keys().copied().collect();
        for mdt in wanted {
            if mdt > here && !self.hold_here().await {
                return Ok(false);
            }
            if self.instances.contains_key(&mdt) {
                continue;
            }
            let prepared = self.prepare(mdt, incoming).await;
            self.refuser = prepared.is_err().then_some(mdt);
            if !prepared? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until an MDT is there again, and has said what it knows of this request.
    async fn until_back(&mut self, mdt: u32, incoming: Option<&Incoming>) -> Result<(), Errno> {
        let endpoint = self.mdt.osts.clone().ok_or(Errno::ENODEV)?;
        let remote = endpoint.remote(TargetId::mdt(mdt));
        while !remote.answers() || self.may_bring_back(mdt, incoming) {
            self.mdt.env.sleep(DELIVER_PAUSE).await;
            let waits = match self.mdt.is_forgotten(mdt) {
                true => Err(Errno::ENODEV),
                false => self.may_wait(incoming).await,
            };
            if let Err(errno) = waits {
                self.refuser = Some(mdt);
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Whether an MDT may still say that this request was executed in an earlier run. Recovery has
    /// gone on without that MDT.
    fn may_bring_back(&self, mdt: u32, incoming: Option<&Incoming>) -> bool {
        let run = self.mdt.exports.instance().0;
        let is_old = |incoming: &Incoming| {
            incoming.request.has(RequestFlags::RESENT) && incoming.session.id >> 32 < run
        };
        incoming.is_some_and(is_old) && self.mdt.deliveries.owed.borrow().contains(&mdt)
    }

    /// Whether an operation waits any longer for an MDT that does not answer.
    async fn may_wait(&self, incoming: Option<&Incoming>) -> Result<(), Errno> {
        if self.mdt.is_stopped() {
            std::future::pending::<()>().await; // the next run answers
        }
        if incoming.is_some_and(|incoming| incoming.session.is_ended()) {
            return Err(Errno::ESTALE);
        }
        let is_late = self.asked_at.is_some_and(|at| self.mdt.env.now() >= at + PREPARE_WAIT);
        match incoming.map(|incoming| incoming.request.opcode()) {
            Some(opcode) if is_late && self.makes(opcode) => Err(Errno::ENODEV),
            None if is_late => Err(Errno::EAGAIN), // others of its own go on
            _ => Ok(()),
        }
    }

    /// Whether the operation makes a directory, or shards of one. Other ones wait for their MDTs.
    fn makes(&self, opcode: Opcode) -> bool {
        let is_new = |want: &Want| matches!(want.key, Key::New(..));
        opcode == Opcode::MdtCreate || self.wants.values().flatten().any(is_new)
    }

    /// Names leave the shards that they are to leave, before the operation is decided. It holds
    /// nothing meanwhile, because their moves need keys of their own.
    async fn pull(
        &mut self,
        pulls: BTreeSet<Place>,
        incoming: Option<&Incoming>,
    ) -> Result<(), Errno> {
        self.free();
        step_aside(incoming);
        for place in pulls {
            let moved = self.mdt.move_away(&place, incoming).await?;
            if moved.was_there {
                continue;
            }
            if moved.lasts() {
                self.crossing.lasting.insert(place.clone());
            }
            self.crossing.absent.insert(place);
        }
        Ok(())
    }

    fn id(&mut self) -> OpId {
        let draw = || self.mdt.engine.state.borrow_mut().crossed.draw();
        *self.crossing.id.get_or_insert_with(draw)
    }

    /// Reserves the keys of this MDT.
    async fn hold_here(&mut self) -> bool {
        if self.is_held {
            return true;
        }
        let id = self.id();
        let claims: Vec<Claim> = self.claims.iter().copied().collect();
        let until = self.mdt.env.now() + HELD_WAIT;
        loop {
            let freed = self.mdt.guests.freed.notified();
            if self.mdt.engine.state.borrow_mut().crossed.reserved.reserve(id, &claims) {
                self.is_held = true;
                return true;
            }
            if self.mdt.env.timeout_at(until, freed).await.is_none() {
                return false;
            }
        }
    }

    /// Has one MDT reserve its keys; says whether it did.
    async fn prepare(&mut self, mdt: u32, incoming: Option<&Incoming>) -> Result<bool, Errno> {
        let id = self.id();
        let endpoint = self.mdt.osts.clone().ok_or(Errno::ENODEV)?;
        if !endpoint.mdts().contains(&mdt) {
            return Err(Errno::ENODEV);
        }
        self.mdt.note_peer(mdt).await?;
        let wants = self.wants.get(&mdt).cloned().unwrap_or_default();
        let body = Prepare { id, wants: wants.iter().cloned().collect() };
        let adds: Bytes = updates::encode(&may_add(incoming)).into();
        let mut bufs = vec![Bytes::new(), updates::encode(&body).into(), adds];
        let keeper = incoming.and_then(keeper);
        if self.is_check || self.goes_on || keeper.is_some() {
            let flags = [self.is_check, self.goes_on];
            bufs.extend(flags.map(|flag| Bytes::from(updates::encode(&flag))));
        }
        if let Some(client) = keeper {
            assert_eq!(bufs.len(), KEEPER_BUF, "behind both flags");
            bufs.push(updates::encode(&client.0).into());
        }
        let mut call = Call::new(Opcode::MdtPrepare, bufs);
        call.patience = Some(PREPARE_PATIENCE);
        let remote = endpoint.remote(TargetId::mdt(mdt));
        self.asked_at.get_or_insert(self.mdt.env.now());
        if self.may_bring_back(mdt, incoming) {
            planted::reached("mdt: a resend waited for what an MDT knows of its first time");
            self.may_wait(incoming).await?;
            self.away = Some(mdt);
            return Ok(false);
        }
        loop {
            let answer = remote.call(call.clone()).await;
            if !matches!(answer, Err(CallError::TimedOut | CallError::Evicted)) {
                self.asked_at = None;
            }
            match answer {
                Ok(answer) => {
                    // whatever it says, it has reserved the keys
                    self.instances.insert(mdt, Instance(answer.reply.header.instance));
                    self.learn(mdt, &wants, &answer.reply)?;
                    return Ok(true);
                }
                Err(CallError::Errno(Errno::EAGAIN)) => return Ok(false),
                Err(CallError::Errno(errno)) => return Err(errno),
                Err(CallError::TimedOut | CallError::Evicted) => {
                    // it may have reserved the keys all the same, or be back from a restart
                    self.instances.insert(mdt, Instance(0));
                    self.may_wait(incoming).await?;
                    if !remote.answers() {
                        self.away = Some(mdt);
                        return Ok(false);
                    }
                }
                Err(error) => {
                    self.instances.insert(mdt, Instance(0)); // it may have reserved them, too
                    return Err(error.errno());
                }
            }
        }
    }

    /// One MDT has reserved its keys, and says so.
    fn learn(&mut self, mdt: u32, wants: &BTreeSet<Want>, reply: &Reply) -> Result<(), Errno> {
        assert!(self.crossing.id.is_some(), "an operation that asks an MDT has a name");
        let facts: Option<Vec<Fact>> = updates::decode(&reply.buf(1));
        let facts = facts.filter(|facts| facts.len() == wants.len());
        self.crossing.facts.learn(wants, facts.ok_or(Errno::EPROTO)?);
        self.crossing.prepared.insert(mdt);
        if updates::decode::<bool>(&reply.buf(2)).unwrap_or_default() {
            self.crossing.full.insert(mdt);
        }
        Ok(())
    }

    /// Frees everything that is reserved, here at once and elsewhere soon.
    fn free(&mut self) {
        let Some(id) = self.crossing.id.take() else {
            assert!(self.instances.is_empty(), "an operation that asked an MDT has a name");
            return;
        };
        self.is_held = false;
        self.crossing.prepared.clear();
        self.crossing.full.clear();
        let asked: Vec<u32> = std::mem::take(&mut self.instances).into_keys().collect();
        asked.iter().for_each(|mdt| self.crossing.facts.forget(*mdt));
        self.mdt.free_here(id);
        if asked.is_empty() {
            self.mdt.engine.state.borrow_mut().crossed.ended(id);
            return;
        }
        let mdt = self.mdt.clone();
        self.mdt.env.spawn("mdt_release", async move {
            release(&mdt, id, &asked).await;
            mdt.engine.state.borrow_mut().crossed.ended(id);
        });
    }

    /// The operation is applied: what it reserved ends with its parts. MDTs without a part are
    /// told.
    pub(crate) fn applied(&mut self, record: &Record) {
        let Some(id) = self.crossing.id.take() else { return };
        self.mdt.free_here(id);
        let asked = std::mem::take(&mut self.instances).into_keys();
        let idle: Vec<u32> = asked.filter(|mdt| record.part(*mdt).is_none()).collect();
        if !idle.is_empty() {
            let mdt = self.mdt.clone();
            self.mdt.env.spawn("mdt_release", async move { release(&mdt, id, &idle).await });
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.free();
    }
}

/// Whether an operation may need room for good on another MDT. What the MDT does by itself moves
/// names, which requests may wait for, and new shards name themselves.
fn may_add(incoming: Option<&Incoming>) -> bool {
    let row = incoming.and_then(|incoming| op::row(incoming.request.opcode()));
    row.is_some_and(|row| matches!(row.reach, Reach::Grows))
}

/// The client of a rename, if it counts the change of directories itself, at whatever MDT.
fn keeper(incoming: &Incoming) -> Option<ClientId> {
    let request = &incoming.request;
    let keeps =
        request.opcode() == Opcode::MdtRename && request.body::<RenameReq>().keeps_dirs != 0;
    keeps.then_some(incoming.session.client)
}

fn step_aside(incoming: Option<&Incoming>) {
    if let Some(incoming) = incoming {
        incoming.step_aside();
    }
}

/// Tells MDTs that an operation needs nothing of them any more. Each is told until it has heard it,
/// because its keys stay reserved before. One that is away keeps the others waiting for a moment.
async fn release(mdt: &Mdt, id: OpId, asked: &[u32]) {
    let Some(endpoint) = &mdt.osts else { return };
    let done = Done { mdt: id.mdt, released: vec![id.number], ..Done::default() };
    let body: Bytes = updates::encode(&done).into();
    let mut call = Call::new(Opcode::MdtUpdatesDone, vec![Bytes::new(), body]);
    call.patience = Some(PREPARE_PATIENCE);
    let (mut left, mut silent) = (asked.to_vec(), Vec::new());
    while !left.is_empty() && !mdt.is_stopped() {
        for other in left.drain(..) {
            match endpoint.remote(TargetId::mdt(other)).call(call.clone()).await {
                Ok(_) | Err(CallError::Shutdown) => {}
                Err(_) if mdt.is_forgotten(other) => {}
                Err(_) => silent.push(other),
            }
        }
        std::mem::swap(&mut left, &mut silent);
        if !left.is_empty() {
            mdt.env.sleep(DELIVER_PAUSE).await;
        }
    }
}

//! Operations of the MDT's own, in no client's history: names that move to other shards.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, CallError};
use env::LocalFuture;
use service::Incoming;
use target::Decided;
use types::{Errno, Fid, Span, TargetId};
use wire::updates::{self, Move, Moved, Place};
use wire::{Opcode, Reply};

use super::{Coordinator, Delivery};
use crate::attempt::{OwnAttempt, OwnCaller};
use crate::limits::{DELIVER_PAUSE, HELD_DOUBLINGS, HELD_WAIT, PREPARE_PATIENCE, PREPARE_WAIT};
use crate::op::{Op, moves};
use crate::recalls::Changing;
use crate::target::Mdt;

impl Mdt {
    /// Decides and executes an operation of this MDT's own, everywhere.
    ///
    /// # Errors
    /// What the decision refuses. EAGAIN: other operations stood in the way for too long, or an
    /// MDT that it needs is away.
    pub(crate) async fn run_own<T>(
        self: &Rc<Self>,
        decide: impl Fn(&mut Op<'_, '_>) -> Decided<T>,
    ) -> Result<T, Errno> {
        self.run_by(Coordinator::new(self), &decide).await.map(|(value, _)| value)
    }

    /// The same, of a step of something that has begun: read-only MDTs take it.
    pub(crate) async fn run_step<T>(
        self: &Rc<Self>,
        decide: impl Fn(&mut Op<'_, '_>) -> Decided<T>,
    ) -> Result<T, Errno> {
        self.run_by(Coordinator::of_step(self), &decide).await.map(|(value, _)| value)
    }

    /// The same, of a check that takes nothing for lost which an MDT may bring back: MDTs refuse
    /// it if they serve without one that may know more.
    pub(crate) async fn run_check<T>(
        self: &Rc<Self>,
        decide: impl Fn(&mut Op<'_, '_>) -> Decided<T>,
    ) -> Result<T, Errno> {
        self.run_by(Coordinator::of_check(self), &decide).await.map(|(value, _)| value)
    }

    /// Returns as well how long an attempt kept the thread at most.
    async fn run_by<T>(
        self: &Rc<Self>,
        mut coordinator: Coordinator,
        decide: &dyn Fn(&mut Op<'_, '_>) -> Decided<T>,
    ) -> Result<(T, Span), Errno> {
        let changing = self.recalls.change();
        let longest = Cell::new(Span::ZERO);
        let done = self.decide_own(decide, &changing, (&mut coordinator, &longest)).await;
        drop(changing);
        self.recalls.drive();
        let (value, delivery) = done?;
        if let Some(delivery) = delivery {
            delivery.executed().await;
        }
        Ok((value, longest.get()))
    }

    async fn decide_own<T>(
        self: &Rc<Self>,
        decide: &dyn Fn(&mut Op<'_, '_>) -> Decided<T>,
        changing: &Changing,
        (coordinator, longest): (&mut Coordinator, &Cell<Span>),
    ) -> Result<(T, Option<Rc<Delivery>>), Errno> {
        let (mut rounds, until) = (0_u32, self.env.now() + PREPARE_WAIT);
        loop {
            if self.is_stopped() {
                return Err(Errno::ESHUTDOWN);
            }
            if !coordinator.is_current() {
                coordinator.begin_again();
            }
            let heard = |session| self.recalls.heard(session);
            let attempt = || {
                let clock = self.env.now();
                let caller = OwnCaller {
                    now: self.env.wall(),
                    clock,
                    change: changing.id,
                    crossing: &coordinator.crossing,
                    heard: &heard,
                };
                if !coordinator.is_current() {
                    return Ok(OwnAttempt::Needs(super::Needs::default()));
                }
                let attempted =
                    self.engine.attempt_own(&caller, decide, &|| self.exports.next_own());
                longest.set(longest.get().max(self.env.now() - clock));
                attempted
            };
            match self.persist(attempt).await? {
                OwnAttempt::Done(value, None) => return Ok((value, None)),
                OwnAttempt::Done(value, Some((record, transno))) => {
                    coordinator.applied(&record);
                    return Ok((value, Some(self.deliver(record, transno))));
                }
                OwnAttempt::Parked => {
                    self.recalls.waits.set(self.recalls.waits.get() + 1);
                    changing.ready(|_names| {}).await;
                }
                OwnAttempt::Held if self.env.now() >= until => return Err(Errno::EAGAIN),
                OwnAttempt::Held => {
                    coordinator.begin_again();
                    let freed = self.guests.freed.notified();
                    let _looks_again = self.env.timeout(HELD_WAIT, freed).await;
                    rounds += 1;
                    let most = 1_u64 << rounds.min(HELD_DOUBLINGS);
                    self.env.sleep(Span::micros(self.env.random() % (100 * most))).await;
                }
                OwnAttempt::Needs(needs) => coordinator.acquire(needs, None).await?,
            }
        }
    }

    /// Has a name leave the shard that it is to leave, on whichever MDT; returns whether it was
    /// there. If not, it is absent there for ever ([`Moved::lasts`]).
    ///
    /// # Errors
    /// ENODEV: there is no such MDT. ESTALE: the caller is gone. What the other MDT refuses.
    pub(crate) async fn move_away(
        self: &Rc<Self>,
        place: &Place,
        incoming: Option<&Incoming>,
    ) -> Result<Moved, Errno> {
        let of = place.dir.mdt_index();
        let endpoint = self.osts.clone().ok_or(Errno::ENODEV)?;
        let is_here = of == self.engine.config.index;
        if !is_here && !endpoint.mdts().contains(&of) {
            return Err(Errno::ENODEV);
        }
        let body = Move { dir: place.dir, name: place.name.clone() };
        loop {
            let moved = match is_here {
                true => Box::pin(self.push_name(place)).await.map_err(CallError::Errno),
                false => ask(&endpoint, &body).await,
            };
            match moved {
                Ok(moved) => return Ok(moved),
                Err(_) if self.is_stopped() => std::future::pending::<()>().await, // the next run answers
                Err(_) if self.is_forgotten(of) => return Err(Errno::ENODEV),
                Err(CallError::TimedOut | CallError::Evicted | CallError::Errno(Errno::EAGAIN)) => {
                    if incoming.is_some_and(|incoming| incoming.session.is_ended()) {
                        return Err(Errno::ESTALE);
                    }
                    self.env.sleep(DELIVER_PAUSE).await;
                }
                Err(error) => return Err(error.errno()),
            }
        }
    }

    async fn push_name(self: &Rc<Self>, place: &Place) -> Result<Moved, Errno> {
        let names = [place.name.clone()];
        let names = if place.name.is_empty() { &names[..0] } else { &names[..] };
        let pushed = self.push(place.dir, names).await?;
        let progress = self.engine.state.borrow().moves.of(place.dir).unwrap_or_default();
        // an MDT that is away may bring an operation that makes the name there
        let is_sure = !self.deliveries.is_owed() && self.deliveries.parting.borrow().is_empty();
        let left = progress.left.filter(|_| is_sure || place.name.is_empty()).unwrap_or(u64::MAX);
        Ok(Moved { was_there: pushed > 0, left, moved: progress.moved })
    }

    /// Moves names out of a shard of this MDT; returns how many were there.
    pub(crate) async fn push(self: &Rc<Self>, from: Fid, names: &[Vec<u8>]) -> Result<u64, Errno> {
        self.push_timed(from, names).await.map(|(moved, _)| moved)
    }

    /// The same, with how long that kept the thread at most without a break.
    pub(crate) async fn push_timed(
        self: &Rc<Self>,
        from: Fid,
        names: &[Vec<u8>],
    ) -> Result<(u64, Span), Errno> {
        if names.is_empty() {
            return Ok((0, Span::ZERO));
        }
        let decide = |op: &mut Op<'_, '_>| moves::push(op, from, names);
        let (pushed, held) = self.run_by(Coordinator::of_step(self), &decide).await?;
        self.engine.state.borrow_mut().moves.moved(from, pushed.names);
        Ok((pushed.names, held))
    }
}

/// Asks the MDT of a shard that names leave.
pub(crate) async fn ask(
    endpoint: &Rc<endpoint::Endpoint>,
    body: &Move,
) -> Result<Moved, CallError> {
    let bufs = vec![Bytes::new(), updates::encode(body).into()];
    let mut call = Call::new(Opcode::MdtMove, bufs);
    call.patience = Some(PREPARE_PATIENCE);
    let answer = endpoint.remote(TargetId::mdt(body.dir.mdt_index())).call(call).await?;
    updates::decode(&answer.reply.buf(1)).ok_or(CallError::Errno(Errno::EPROTO))
}

/// Serves [`Opcode::MdtMove`].
pub(crate) fn serve<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(async move {
        let Move { dir, name } = super::peer::asked(incoming)?;
        if dir.mdt_index() != mdt.engine.config.index {
            return Err(Errno::EPROTO);
        }
        incoming.step_aside();
        let moved = mdt.push_name(&Place { dir, name }).await?;
        let body: Bytes = updates::encode(&moved).into();
        Ok(Reply::ok(&incoming.request.header, vec![Bytes::new(), body]))
    })
}

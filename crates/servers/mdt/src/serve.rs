//! The target from the service layer's side: sessions around the engine, and requests that wait.

use std::cell::Cell;
use std::rc::Rc;

use env::LocalFuture;
use ldlm::grants::ChangeId;
use osd::Table;
use service::{Class, ClientRecord, Exports, Incoming, Session, Target, spec};
use target::Decided;
use types::{Errno, TargetId, Transno};
use wire::{Reply, Request, RequestFlags};

use crate::attempt::Attempted;
use crate::cross::{Coordinator, Delivery, Halves, Needs};
use crate::engine::History;
use crate::limits::{HELD_WAIT, LONG_ANSWER_MAX};
use crate::op::Caller;
use crate::op::serving::serving;
use crate::putting::Putting;
use crate::recalls::Changing;
use crate::tally::Times;
use crate::target::Mdt;
use crate::{keys, op};

/// The history of the session that a request belongs to.
struct Sessions<'a> {
    exports: &'a Exports,
    incoming: &'a Incoming,
}

impl History for Sessions<'_> {
    fn next(&self) -> Transno {
        self.exports.next_transno(self.incoming)
    }

    fn record(&self, transno: Transno, reply: &mut Reply) -> (Vec<u8>, Vec<u8>) {
        self.exports.record(self.incoming, transno, reply)
    }
}

impl Mdt {
    async fn run(self: Rc<Self>, incoming: Incoming) -> Reply {
        let request = &incoming.request;
        let began = self.env.now();
        let as_of = Cell::new(Transno::NONE);
        let row = op::row(request.opcode());
        let outcome = match serving(request.opcode()) {
            Some(serve) => serve(&self, &incoming).await,
            None if row.is_some() => self.execute(&incoming, &as_of).await,
            None => Err(Errno::EOPNOTSUPP),
        };
        let mut reply = outcome.unwrap_or_else(|errno| Reply::error(&request.header, errno));
        reply.header.as_of = as_of.get().0;
        self.read_on_open(&incoming, &mut reply).await;
        self.ask_writers(&incoming, &mut reply).await;
        let now = self.env.now();
        let times = Times { waited: incoming.waited(), took: now - began };
        self.tally.count(now, times, incoming.peer(), request, &reply);
        self.engine.store.failure().unless_over(reply).await
    }

    /// One operation of the namespace; waits for commits as it must. `as_of` becomes the last
    /// change when it was decided: what it answers, a refusal too, is so from then on.
    async fn execute(
        self: &Rc<Self>,
        incoming: &Incoming,
        as_of: &Cell<Transno>,
    ) -> Result<Reply, Errno> {
        let request = &incoming.request;
        let may_wait = request.opcode().modifies()
            || op::caching::is_exact(request)
            || op::permits::reads_by_mode(request);
        let changing = may_wait.then(|| self.recalls.change());
        let mut coordinator = Coordinator::new(self);
        let outcome = self.decide(incoming, as_of, changing.as_ref(), &mut coordinator).await;
        // of this operation: nothing was awaited since it was applied
        let is_stretched = std::mem::take(&mut self.engine.state.borrow_mut().is_stretched);
        if changing.is_some() {
            drop(changing);
            self.recalls.drive(); // a lease may have ended in its way, also if it was refused
        }
        let (reply, delivery) = outcome?;
        if let Some(delivery) = delivery {
            incoming.step_aside();
            delivery.executed().await;
        } else if incoming.restored().is_some() {
            incoming.step_aside();
            self.executed_for(incoming).await;
        }
        if is_stretched || (request.has(RequestFlags::SYNC) && request.opcode().modifies()) {
            self.commit().await?;
        }
        Ok(reply)
    }

    /// Tries until the operation is applied or refused. Where other MDTs have parts in it, these
    /// are on their way then; a replay does not wait for them.
    async fn decide(
        self: &Rc<Self>,
        incoming: &Incoming,
        as_of: &Cell<Transno>,
        changing: Option<&Changing>,
        coordinator: &mut Coordinator,
    ) -> Result<(Reply, Option<Rc<Delivery>>), Errno> {
        let request = &incoming.request;
        let mut read = Halves::default();
        let mut putting = Putting::default();
        loop {
            if !coordinator.is_current() {
                coordinator.begin_again();
            }
            let attempted = self
                .persist(|| self.attempt(incoming, as_of, changing, coordinator, (&read, &putting)))
                .await?;
            let attempted = match self.put_step(incoming, attempted, &mut putting).await? {
                Some(attempted) => attempted,
                None => continue,
            };
            match attempted {
                Attempted::Done(reply, None) => return Ok((reply, None)),
                Attempted::Done(reply, Some((record, transno))) => {
                    coordinator.applied(&record);
                    let delivery = self.deliver(record, transno);
                    return Ok((reply, Some(delivery).filter(|_| !incoming.is_replay())));
                }
                Attempted::Parked => {
                    planted::reached("mdt: a change waited for what was called back");
                    self.recalls.waits.set(self.recalls.waits.get() + 1);
                    incoming.park();
                    let changing = changing.expect("what only reads waits for nobody");
                    changing.ready(|names| incoming.say_awaited(names)).await;
                }
                Attempted::Unfenced => {
                    planted::reached("mdt: a file waited for the fence of a lost client");
                    incoming.step_aside();
                    let _looks_again =
                        self.env.timeout(HELD_WAIT, self.fences_fell.notified()).await;
                }
                Attempted::Held(changes) => {
                    coordinator.begin_again(); // who waits has nothing that others wait for
                    coordinator.will_change(changes);
                    incoming.step_aside();
                    let _looks_again =
                        self.env.timeout(HELD_WAIT, self.guests.freed.notified()).await;
                }
                Attempted::Half(ops) => {
                    planted::reached("mdt: a read waited for an operation of several MDTs");
                    self.other_halves(incoming, &ops, &mut read).await;
                }
                Attempted::Writes(_) | Attempted::Unordered | Attempted::Brought => {
                    unreachable!("the step before has gone on with it")
                }
                Attempted::Needs(needs) => {
                    let acquired = coordinator.acquire(needs, Some(incoming)).await;
                    match acquired {
                        Err(_) if incoming.restored().is_some() => {} // it was executed
                        Err(errno) if coordinator.goes_elsewhere(errno, request.opcode()) => {}
                        acquired => acquired?,
                    }
                }
            }
        }
    }

    fn attempt(
        &self,
        incoming: &Incoming,
        as_of: &Cell<Transno>,
        changing: Option<&Changing>,
        coordinator: &Coordinator,
        (read, putting): (&Halves, &Putting),
    ) -> Decided<Attempted> {
        if incoming.session.is_ended() {
            return Err(Errno::ESTALE.into()); // what it holds was let go during a wait
        }
        if let Some(reply) = incoming.restored() {
            as_of.set(self.exports.last_assigned());
            return Ok(Attempted::Done(reply, None)); // an MDT that was away had it
        }
        if !coordinator.is_current() {
            return Ok(Attempted::Needs(Needs::default())); // it begins again
        }
        if putting.written().is_some_and(|written| !self.engine.may_apply(written)) {
            return Ok(Attempted::Unordered);
        }
        let heard = |session| self.recalls.heard(session);
        let id = incoming.session.id;
        let locked = |fid| self.locks.is_file_held_by_another(id, fid);
        let begun = self.env.now();
        let is_long = || self.env.now() - begun >= LONG_ANSWER_MAX;
        let caller = Caller {
            request: &incoming.request,
            client: incoming.session.client,
            session: id,
            creds: incoming.creds(),
            replay: incoming.is_replay(),
            recovering: self.exports.is_recovering(),
            now: self.env.wall(),
            clock: begun,
            change: changing.map_or(ChangeId(0), |changing| changing.id),
            crossing: &coordinator.crossing,
            passed: &read.passed,
            heard: &heard,
            locked: &locked,
            is_long: &is_long,
            put: putting.written(),
        };
        let history = Sessions { exports: &self.exports, incoming };
        let decided = self.engine.attempt(&caller, &history);
        if let Ok(Attempted::Done(reply, _)) = &decided {
            self.exports.applied(reply.transno());
        }
        as_of.set(self.exports.last_assigned());
        decided
    }

    async fn remember(&self, record: ClientRecord) -> Result<(), Errno> {
        {
            let fences = &mut self.engine.state.borrow_mut().fences;
            if fences.are_too_many(record.client) {
                if self.fences_said.is_due(self.env.now()) {
                    tracing::warn!(target: "mdt", client = %record.client, "no new session: too many fences wait for OSTs that are away");
                }
                return Err(Errno::EBUSY);
            }
            fences.returned(record.client);
        }
        let set = target::remember(&record);
        self.persist(|| Ok(self.engine.apply_own(&set)?)).await?;
        self.commit().await?;
        if !record.is_server {
            self.recalls.connect(record.session);
        }
        Ok(())
    }

    async fn end_sessions(self: &Rc<Self>, sessions: &[Rc<Session>], evicted: bool) {
        for session in sessions {
            self.recalls.end(session, evicted);
        }
        for session in sessions {
            self.end_session(session).await;
        }
        let _failed = self.commit().await;
    }

    /// Ends a session; the caller commits.
    async fn end_session(self: &Rc<Self>, session: &Session) {
        let is_unsure = self.exports.is_recovering() || session.is_absent();
        self.locks.end_waits(session.id);
        let lapsed = self.lapsed(session, is_unsure).await.unwrap_or_else(|errno| {
            tracing::error!(target: "mdt", client = %session.client, %errno, "records of the objects of an ended client cannot be read");
            None
        });
        match &lapsed {
            Some(lapsed) => self.engine.state.borrow_mut().fences.begin(lapsed, is_unsure),
            None => self.let_go(session.client, session.id).await,
        }
        let forget = || {
            let view = self.engine.store.meta().running()?;
            let mut set = target::forget(&*view, session.client, session.id)?;
            drop(view);
            set.delete(Table::Meta, keys::expelled(session.id));
            set.delete(Table::Meta, keys::listed(session.id));
            lapsed.iter().for_each(|lapsed| lapsed.remember(&mut set));
            self.recalls.remember_lapsing(&mut set);
            Ok(self.engine.apply_own(&set)?)
        };
        if let Err(errno) = self.persist(forget).await {
            tracing::warn!(target: "mdt", client = %session.client, %errno, "records of an ended client stay until the next start");
        }
        lapsed.into_iter().for_each(|lapsed| self.let_go_later(lapsed));
    }
}

impl Target for Mdt {
    fn id(&self) -> TargetId {
        TargetId::mdt(self.engine.config.index)
    }

    fn failed(&self) -> LocalFuture<'static, String> {
        self.engine.store.failure().happened()
    }

    fn exports(&self) -> Rc<Exports> {
        self.exports.clone()
    }

    fn store_number(&self) -> u64 {
        self.engine.state.borrow().number
    }

    fn class(&self, request: &Request) -> Class {
        let service = op::row(request.opcode()).map_or(&spec::MDT, |row| row.service);
        Class::of(service).answering(op::answer_bytes(request))
    }

    fn is_awaited(&self, session: &Session, request: &Request) -> bool {
        op::hurried::is_awaited(self, session.id, request)
    }

    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply> {
        Box::pin(self.run(incoming))
    }

    fn remember_client(
        self: Rc<Self>,
        record: ClientRecord,
    ) -> LocalFuture<'static, Result<(), Errno>> {
        Box::pin(async move {
            let remembered = self.remember(record).await;
            self.engine.store.failure().unless_over(remembered).await
        })
    }

    fn note_clients(
        self: Rc<Self>,
        records: Vec<ClientRecord>,
        commits: bool,
    ) -> LocalFuture<'static, bool> {
        Box::pin(async move {
            let note = || {
                let mut set = target::note(&*self.engine.store.meta().running()?, &records)?;
                let back = records.iter().filter(|record| !record.silent);
                back.for_each(|record| set.delete(Table::Meta, keys::listed(record.session)));
                Ok(self.engine.apply_own(&set)?)
            };
            let noted = self.persist(note).await;
            if noted.is_ok() {
                self.recalls.list(&records);
            }
            let noted = if commits && noted.is_ok() { self.commit().await } else { noted };
            let is_noted = noted.is_ok();
            if commits && is_noted {
                self.recalls.lists_end(&records);
            }
            if let Err(errno) = noted {
                tracing::warn!(target: "mdt", %errno, "records of clients do not name silent ones");
            }
            is_noted
        })
    }

    fn sessions_ended(
        self: Rc<Self>,
        sessions: Vec<Rc<Session>>,
        evicted: bool,
    ) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            for session in sessions.iter().filter(|_| evicted) {
                tracing::info!(target: "mdt", client = %session.client, name = %session.name, "client evicted");
            }
            self.end_sessions(&sessions, evicted).await;
            self.engine.store.failure().unless_over(()).await;
        })
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            let now = self.env.now();
            self.engine.state.borrow_mut().grants.called.replayed(now);
            self.roll_forward().await;
            self.sweep_orphans().await;
            let _failed = self.commit().await;
            let now = self.env.now(); // clients said nothing meanwhile, and it may wait for MDTs
            self.engine.state.borrow_mut().grants.called.recovered(now);
            self.engine.store.failure().unless_over(()).await;
        })
    }
}

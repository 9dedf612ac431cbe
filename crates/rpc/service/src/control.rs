//! An administrator's commands to the scheduler of a running node, and a lock's effect on a request
//! that waits.
//!
//! A command applies to all partitions or changes nothing. Only a start that waits for its own
//! policy to drain takes time. It continues even if the caller no longer waits.

use std::rc::Rc;

use nrs::{Moment, NrsStats, Refusal, Selected};
use tokio::sync::oneshot;
use types::{ClientId, Errno, TargetId};
use wire::Request;

use crate::exports::Queues;
use crate::housekeeping::waiting;
use crate::in_flight::Queued;
use crate::node::Node;
use crate::partition::{Heads, Partition};
use crate::scheduled::Work;
use crate::services::{HeadScope, Service, over};
use crate::{Exports, ServiceSpec, Session};

impl Node {
    fn moment(&self) -> Moment {
        self.clock.set(self.env.now());
        Moment { now: self.clock.get(), seed: self.env.random() }
    }

    /// Carries out a value of `nrs_policies`.
    ///
    /// # Errors
    /// Those of [`nrs::ServiceHeads::select`], and EBUSY if the policy, which runs with another
    /// argument, has not drained after [`nrs::DRAIN_WAIT`].
    pub async fn nrs_select(
        self: &Rc<Self>,
        spec: &'static ServiceSpec,
        value: &str,
    ) -> Result<(), Refusal> {
        let service = self.service(spec);
        let moment = self.moment();
        let selected = service.with_heads(|heads| heads.select(value, moment));
        self.commanded(&service);
        let Selected::Draining(restart) = selected? else { return Ok(()) };
        let (tell, told) = oneshot::channel();
        let node = Rc::clone(self);
        self.env.spawn("service.restart_policy", async move {
            let _asker_may_be_gone = tell.send(node.see_drained(&service, restart).await);
        });
        told.await.unwrap_or_else(|_| Err(Refusal::new(Errno::ESHUTDOWN, "the node stops")))
    }

    async fn see_drained(
        self: &Rc<Self>,
        service: &Rc<Service>,
        mut restart: nrs::Restart,
    ) -> Result<(), Refusal> {
        let until = self.env.now() + nrs::DRAIN_WAIT;
        loop {
            let moment = self.moment();
            let selected = service.with_heads(|heads| {
                if moment.now >= until {
                    Err(heads.give_up(restart))
                } else {
                    heads.resume(restart, moment)
                }
            });
            match selected {
                Ok(Selected::Draining(again)) => restart = again,
                Ok(Selected::Done) => {
                    self.commanded(service);
                    return Ok(());
                }
                Err(refusal) => {
                    self.commanded(service);
                    return Err(refusal);
                }
            }
            // nothing runs between the look and this wait, so no last request is missed
            self.env.timeout_at(until, service.drained.notified()).await;
        }
    }

    /// After a command: what waits may go on, and a waiting restart may be over.
    fn commanded(self: &Rc<Self>, service: &Rc<Service>) {
        service.note_places();
        service.drained.notify_waiters();
        self.run_all(service);
    }

    /// What `nrs_policies` shows.
    pub fn nrs_policies(&self, spec: &'static ServiceSpec) -> String {
        let (reg, hp) = self.service(spec).with_heads(|heads| heads.list());
        nrs::print_policies(&reg, hp.as_deref())
    }

    /// What `nrs_stats` shows.
    pub fn nrs_stats(&self, spec: &'static ServiceSpec) -> NrsStats {
        self.service(spec).with_heads(|heads| heads.stats())
    }

    /// The value of a policy's tunable.
    ///
    /// # Errors
    /// ENODEV while the policy is stopped, EAGAIN while it starts or stops.
    pub fn nrs_get(&self, spec: &'static ServiceSpec, parameter: &str) -> Result<String, Refusal> {
        let now = self.env.now();
        self.service(spec).with_heads(|heads| heads.get(parameter, now))
    }

    /// Sets a policy's tunable.
    ///
    /// # Errors
    /// As [`Node::nrs_get`], and EINVAL for a value that is wrong or out of range. Nothing has
    /// changed then.
    pub fn nrs_set(
        self: &Rc<Self>,
        spec: &'static ServiceSpec,
        parameter: &str,
        value: &str,
    ) -> Result<(), Refusal> {
        let service = self.service(spec);
        let moment = self.moment();
        let done = service.with_heads(|heads| heads.set(parameter, value, moment));
        self.commanded(&service);
        done
    }

    /// Whether each request that leaves a head has a line in the log.
    pub fn nrs_log(&self, spec: &'static ServiceSpec, on: bool) {
        self.service(spec).set_log(on);
    }

    /// Whose heads the requests of a service wait in.
    pub fn head_scope(&self, spec: &'static ServiceSpec) -> HeadScope {
        self.service(spec).scope.get()
    }

    /// Changes [`Node::head_scope`]: what waits moves to the new heads in the order in which the
    /// old ones would have given it, partition by partition; their policy starts there with its
    /// argument and its tunables and rules. Its buckets are full.
    ///
    /// # Errors
    /// EAGAIN while a policy starts or drains; what its start answers. Nothing has changed then.
    pub fn set_head_scope(
        self: &Rc<Self>,
        spec: &'static ServiceSpec,
        scope: HeadScope,
    ) -> Result<(), Refusal> {
        let service = self.service(spec);
        if service.scope.get() == scope {
            return Ok(());
        }
        let mut targets = Vec::new();
        if scope == HeadScope::Target {
            let all = self.targets.borrow();
            let ids = all.values().map(|served| served.target.id());
            targets.extend(ids.filter(|target| spec.is_for(*target)));
        }
        self.move_to_new_heads(&service, scope, &targets)
    }

    /// Where each target has heads of its own, `target` has them from its first request on. While
    /// a policy drains it cannot have them: its requests wait with those of others.
    pub(crate) fn see_heads(self: &Rc<Self>, service: &Rc<Service>, target: TargetId) {
        if service.has_heads_of(target) {
            return;
        }
        let mut targets = service.targets();
        targets.push(target);
        targets.sort_by_key(|target| target.to_u32());
        if let Err(refusal) = self.move_to_new_heads(service, HeadScope::Target, &targets) {
            tracing::debug!(service = service.spec.name, target_id = %self.name_of(target), %refusal, "has no heads yet");
        }
    }

    fn move_to_new_heads(
        self: &Rc<Self>,
        service: &Rc<Service>,
        scope: HeadScope,
        targets: &[TargetId],
    ) -> Result<(), Refusal> {
        let commands = running_policies(service)?;
        let now = self.env.now();
        let settings = service.with_heads(|heads| heads.settings(now));
        let new = service.new_heads(scope, targets);
        for command in commands {
            let moment = self.moment();
            over(&new, |heads| heads.select(&command, moment))?;
        }
        self.set_again(service, &new, settings);
        let old = service.heads();
        service.give_heads(scope, targets, &new, self.clock.get());
        service.set_log(service.log.get());
        for heads in &old {
            self.move_waiting(service, heads);
        }
        self.commanded(service);
        Ok(())
    }

    /// Sets what policies that have just started were set to before. Some values are refused until
    /// another one is set (a least above the most), so what is refused has another turn.
    fn set_again(
        &self,
        service: &Service,
        new: &[Rc<Heads>],
        mut settings: Vec<(&'static str, String)>,
    ) {
        loop {
            let before = settings.len();
            settings.retain(|(parameter, value)| {
                let moment = self.moment();
                over(new, |heads| heads.set(parameter, value, moment)).is_err()
            });
            if settings.len() == before {
                break;
            }
        }
        for (parameter, value) in settings {
            tracing::error!(service = service.spec.name, parameter, value, "is not kept");
        }
    }

    fn move_waiting(&self, service: &Service, from: &Heads) {
        let now = self.clock.get();
        for (hp, head) in [false, true].into_iter().zip(from.both()) {
            for work in drain(head, now) {
                service.place(work.cpt, work.served.target.id()).enqueue(work, hp, now);
            }
        }
    }

    /// The node stops: what waits is answered by nobody.
    pub(crate) fn empty_queues(&self) {
        for service in self.services.borrow().iter() {
            for partition in service.in_use() {
                if let Some((_, timer)) = partition.timer.borrow_mut().take() {
                    timer.abort();
                }
            }
            for heads in service.heads() {
                for head in heads.both() {
                    drop(drain(head, self.clock.get()));
                }
                heads.drained.notify_waiters();
            }
        }
    }

    fn raise(&self, partition: &Partition, place: &Queued) -> bool {
        let heads = Rc::clone(&partition.heads.borrow());
        let Some(hp) = &heads.hp else { return false };
        let (mut reg, mut hp) = (heads.reg.borrow_mut(), hp.borrow_mut());
        let Some(handle) = nrs::promote(&mut reg, &mut hp, place.handle, self.clock.get()) else {
            return false;
        };
        if reg.is_restarting() {
            heads.drained.notify_waiters();
        }
        let flight = hp
            .get(handle)
            .map(|work| Rc::clone(&work.flight))
            .expect("it has just been queued there");
        flight.promote(Queued { hp: true, handle, ..*place });
        true
    }
}

/// A lock is being called back whose holder has to finish these requests first.
impl Queues for Node {
    fn promote(
        self: Rc<Self>,
        exports: &Exports,
        client: ClientId,
        wanted: &dyn Fn(&Request) -> bool,
    ) -> usize {
        self.clock.set(self.env.now());
        let Some(session) = exports.session_of(client) else { return 0 };
        let mut promoted = Vec::new();
        for place in waiting(&session) {
            let service = self.service(place.service);
            let partition = service.place(place.cpt, place.target);
            let regular = !place.hp
                && place.service.has_hp
                && partition.holds(&place, |work: &Work| wanted(&work.request));
            if regular && self.raise(&partition, &place) {
                promoted.push(partition);
            }
        }
        let count = promoted.len();
        for partition in promoted {
            // not now: the target may be in the midst of a request of its own
            self.run_later(&self.service(partition.spec), &partition);
        }
        count
    }

    fn promote_awaited(self: Rc<Self>, exports: &Exports, session: &Session) -> usize {
        let served = self.targets.borrow().get(&exports.target.to_u32()).cloned();
        let Some(served) = served else { return 0 };
        let awaited = |request: &Request| served.target.is_awaited(session, request);
        self.promote(exports, session.client, &awaited)
    }
}

/// Everything that waits in a head, in the order in which it would leave if nothing held it back.
fn drain(head: &std::cell::RefCell<nrs::Head<Work>>, now: types::Instant) -> Vec<Work> {
    let mut head = head.borrow_mut();
    head.end();
    let mut all = Vec::with_capacity(head.len());
    while let Some(taken) = head.dequeue(now).taken() {
        head.finished(taken.policy, now);
        taken.request.flight.unqueue();
        all.push(taken.request);
    }
    all
}

/// The commands that would start what runs beside FIFO.
///
/// # Errors
/// EAGAIN while a policy drains in any head, or waits for that to start again.
fn running_policies(service: &Service) -> Result<Vec<String>, Refusal> {
    for heads in service.heads() {
        for head in heads.both() {
            let head = head.borrow();
            let draining = head.draining();
            if draining.is_some() || head.is_restarting() {
                let name = draining.unwrap_or("a policy that is to be restarted");
                return Err(Refusal::new(Errno::EAGAIN, format!("{name} still drains")));
            }
        }
    }
    let (reg, hp) = service.with_heads(|heads| heads.list());
    let is_started =
        |policy: &nrs::Listed| !policy.fallback && policy.state == nrs::PolicyState::Started;
    let mut commands = Vec::new();
    for (word, list) in [("reg", Some(reg)), ("hp", hp)] {
        for policy in list.into_iter().flatten().filter(is_started) {
            commands.push(format!("{} {word} {}", policy.name, policy.arg));
        }
    }
    Ok(commands)
}

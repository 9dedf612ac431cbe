//! A head: one primary policy or none, FIFO as the fallback for requests that the primary does not
//! take, and policies that were replaced and still drain.
//!
//! Invariants
//! - FIFO takes everything, so no request is lost; a request is held by one policy at a time.
//! - If several policies hold requests, they are asked in turn: old and new drain 1:1.
//! - Whether a request may leave depends on the request and its policy only. A request that one
//!   policy holds back holds up no other policy.
//! - A policy that was replaced goes on at its own pace. Its limits are overridden only by the end
//!   of the service, by a request's latest time, or by an administrator (`fifo now`).
//! - A policy that breaks its contract is disabled. Its requests leave through FIFO in the order in
//!   which they arrived.
//!
//! `enqueue` and `dequeue` never fail, whether a request's id is high or low and whether a policy
//! is slow or broken.

use std::collections::BTreeSet;

use types::{Instant, Span};

use crate::guard::guarded;
use crate::limits::{POLICIES_MAX, WAIT_MIN};
use crate::listed::{Counters, Disabled, Listed};
use crate::{
    Broken, Descriptor, Handle, HeadKind, Id, Next, Part, Policy, PolicyState, Queue, Refused,
    Removal, Request, fifo,
};

/// Name of the fallback.
pub(crate) const FALLBACK: &str = "fifo";

/// Entries of an instance's `early` that may be out of date before they are looked through.
const EARLY_STALE_MAX: usize = 64;

/// A policy of a head, for [`Head::finished`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyIndex(pub(crate) u8);

impl PolicyIndex {
    /// FIFO, which every head has.
    pub const FIFO: PolicyIndex = PolicyIndex(0);
}

/// A request that leaves to be handled.
#[derive(Debug)]
pub struct Taken<R> {
    pub request: R,
    /// Who held it; goes back to [`Head::finished`] when it has been handled.
    pub policy: PolicyIndex,
    /// Its policy would have held it longer, but its sender could not wait any longer.
    pub forced: bool,
    /// Its line for the request log, where that is on.
    pub log: Option<Box<str>>,
}

/// A head's answer to "which next".
#[derive(Debug)]
pub enum Dequeued<R> {
    Taken(Taken<R>),
    /// All that is queued is held back; ask again then, or after the next enqueue.
    NotBefore(Instant),
    Empty,
}

impl<R> Dequeued<R> {
    /// The request, if there is one.
    pub fn taken(self) -> Option<Taken<R>> {
        match self {
            Dequeued::Taken(taken) => Some(taken),
            Dequeued::NotBefore(_) | Dequeued::Empty => None,
        }
    }
}

pub(crate) struct Instance<R> {
    pub(crate) descriptor: Option<Descriptor<R>>, // none: the fallback
    pub(crate) state: PolicyState,
    pub(crate) arg: String,
    pub(crate) policy: Option<Box<dyn Policy<R>>>,
    released: bool, // it is drained by force
    lane: u16,
    counters: Counters, // `queued` is the lane's length, `active` is `started` less `finished`
    finished: u64,
    overdue_at: Instant, // none that it holds must leave earlier
    latest: Instant,     // by which the last of its lane must leave, and all before it
    // those that must leave before some who came before them: promoted ones
    early: BTreeSet<(Instant, Handle)>,
}

/// One head of a service partition.
pub struct Head<R> {
    kind: HeadKind,
    pub(crate) partition: Part,
    pub(crate) queue: Queue<R>,
    pub(crate) instances: Vec<Instance<R>>,
    pub(crate) primary: Option<usize>,
    /// A start that waits for its policy to drain, by its number.
    pub(crate) starting: Option<u64>,
    /// The highest number of a start that waited.
    pub(crate) last_restart: u64,
    turns: Vec<usize>, // all policies; who gave a request while others had some moves to the end
    salvaged: Vec<u16>, // lanes of broken policies
    elsewhere: usize,  // requests that are not in FIFO's own lane
    disabled: Vec<Disabled>,
    ending: bool,
    log: bool,
}

impl<R: Request> Head<R> {
    /// A head of `service` with FIFO and those of `policies` that this service may run, all
    /// stopped.
    ///
    /// # Panics
    /// If there are more than [`POLICIES_MAX`] policies, or two of one name.
    #[must_use]
    pub fn new(
        service: &str,
        kind: HeadKind,
        partition: impl Into<Part>,
        policies: &[Descriptor<R>],
    ) -> Head<R> {
        let mut head = Head {
            kind,
            partition: partition.into(),
            queue: Queue::default(),
            instances: Vec::new(),
            primary: None,
            starting: None,
            last_restart: 0,
            turns: Vec::new(),
            salvaged: Vec::new(),
            elsewhere: 0,
            disabled: Vec::new(),
            ending: false,
            log: false,
        };
        head.register(None);
        head.instances[0].state = PolicyState::Started;
        for descriptor in
            policies.iter().filter(|policy| policy.service.is_none_or(|only| only == service))
        {
            head.register(Some(descriptor.clone()));
        }
        head
    }

    fn register(&mut self, descriptor: Option<Descriptor<R>>) {
        let name = descriptor.as_ref().map_or(FALLBACK, |descriptor| descriptor.name);
        assert!(self.index_of(name).is_none(), "policy names are unique");
        assert!(self.instances.len() < POLICIES_MAX, "at most {POLICIES_MAX} policies");
        let lane = self.queue.add_lane(self.instances.len());
        self.turns.push(self.instances.len());
        self.instances.push(Instance {
            descriptor,
            state: PolicyState::Stopped,
            arg: String::new(),
            policy: None,
            released: false,
            lane,
            counters: Counters::default(),
            finished: 0,
            overdue_at: Instant::default(),
            latest: Instant::default(),
            early: BTreeSet::new(),
        });
    }

    /// Whether a request that came now would leave at once, whatever it is: the fallback is all
    /// there is, and nothing waits.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.primary.is_none() && self.queue.len() == 0 && !self.log
    }

    /// What [`Head::enqueue`] and [`Head::dequeue`] come to while [`Head::is_open`], for a request
    /// that has waited `waited` since its arrival: it is counted, and need not be queued.
    #[inline]
    pub fn pass(&mut self, waited: Span) -> PolicyIndex {
        debug_assert!(self.is_open(), "others wait, or a policy decides");
        self.instances[0].counters.start(waited);
        PolicyIndex::FIFO
    }

    /// Queues a request; cannot fail.
    #[inline]
    pub fn enqueue(&mut self, request: R, now: Instant) -> Handle {
        let Some(at) = self.primary else {
            let handle = self.queue.insert(request);
            self.queue.join(handle.id, fifo::LANE);
            return handle;
        };
        let leave_by = request.leave_by();
        let handle = self.queue.insert(request);
        self.place(at, handle, leave_by, now);
        handle
    }

    /// Gives a request to policy `at`, or to FIFO if that does not take it.
    fn place(&mut self, at: usize, handle: Handle, leave_by: Instant, now: Instant) {
        if self.offer(at, handle.id, now) {
            self.elsewhere += 1;
            self.queue.join(handle.id, self.instances[at].lane);
            self.note_leave_by(at, handle, leave_by);
        } else {
            self.queue.join(handle.id, fifo::LANE);
        }
    }

    /// Whether policy `at` takes the request.
    #[inline]
    fn offer(&mut self, at: usize, id: Id, now: Instant) -> bool {
        let (instance, queue) = (&mut self.instances[at], &mut self.queue);
        let policy = instance.policy.as_mut().expect("a primary runs");
        let why = match guarded(|| policy.enqueue(queue, id, now)) {
            Ok(Ok(())) => return true,
            Ok(Err(Refused::NotMine)) => {
                instance.counters.declined += 1;
                return false;
            }
            Ok(Err(Refused::Broken(why))) | Err(why) => why,
        };
        self.disable(at, "enqueue", why);
        false
    }

    #[inline]
    pub fn dequeue(&mut self, now: Instant) -> Dequeued<R> {
        if self.elsewhere == 0 {
            return match self.queue.lane_front(fifo::LANE) {
                Some(id) => Dequeued::Taken(self.start(0, id, now, false)),
                None => Dequeued::Empty,
            };
        }
        if let Some(at) = self.primary
            && self.queue.lane_len(self.instances[at].lane) == self.queue.len()
        {
            match self.ask(at, now) {
                Answer::Request(id, forced) => {
                    return Dequeued::Taken(self.start(at, id, now, forced));
                }
                Answer::NotBefore(until) => return Dequeued::NotBefore(until),
                Answer::Nothing => {} // it broke
            }
        }
        self.dequeue_in_turn(now)
    }

    fn dequeue_in_turn(&mut self, now: Instant) -> Dequeued<R> {
        let mut until: Option<Instant> = None;
        let mut holders = 0;
        let mut turn = 0;
        while turn < self.turns.len() {
            let at = self.turns[turn];
            turn += 1;
            if self.queued_by(at) == 0 {
                continue;
            }
            holders += 1;
            match self.ask(at, now) {
                Answer::Request(id, forced) => {
                    // a policy that broke meanwhile has left its requests to FIFO, whose turn may
                    // be over
                    if holders > 1
                        || self.turns[turn..].iter().any(|other| self.queued_by(*other) > 0)
                    {
                        self.turns[turn - 1..].rotate_left(1);
                    }
                    return Dequeued::Taken(self.start(at, id, now, forced));
                }
                Answer::NotBefore(at) => until = Some(until.map_or(at, |until| until.min(at))),
                Answer::Nothing => {}
            }
        }
        // FIFO may have come by requests after it was asked
        match fifo::next(&self.queue, &self.salvaged) {
            Some(id) => Dequeued::Taken(self.start(0, id, now, false)),
            None => until.map_or(Dequeued::Empty, Dequeued::NotBefore),
        }
    }

    #[inline]
    fn ask(&mut self, at: usize, now: Instant) -> Answer {
        if at == 0 {
            let next = fifo::next(&self.queue, &self.salvaged);
            return next.map_or(Answer::Nothing, |id| Answer::Request(id, false));
        }
        if let Some(id) = self.overdue(at, now) {
            return self.force(at, id, now);
        }
        let force = self.ending || self.instances[at].released;
        let (instance, queue) = (&mut self.instances[at], &mut self.queue);
        let policy = instance.policy.as_mut().expect("a policy that holds requests runs");
        let lane = instance.lane;
        let answer = guarded(|| match policy.dequeue(queue, now, force) {
            // a word of its own: not read back in another width than it was written
            Next::Take(id) => Ok(u64::from(id.0)),
            other => Err(other),
        });
        match answer {
            Ok(Ok(id)) if self.queue.is_in(Id(id as u32), lane) => {
                Answer::Request(Id(id as u32), false)
            }
            Ok(Ok(_)) => self.broken(at, Broken::new("it names a request that it does not hold")),
            Ok(Err(Next::NotBefore(until))) if !force => {
                Answer::NotBefore(self.wake_at(at, until, now))
            }
            Ok(Err(Next::NotBefore(_))) => {
                self.broken(at, Broken::new("it holds requests back under force"))
            }
            Ok(Err(Next::Broken(why))) | Err(why) => self.broken(at, why),
            Ok(Err(Next::Empty | Next::Take(_))) => {
                self.broken(at, Broken::new("it says it is empty and holds requests"))
            }
        }
    }

    #[cold]
    fn broken(&mut self, at: usize, why: Broken) -> Answer {
        self.disable(at, "dequeue", why);
        Answer::Nothing
    }

    #[inline]
    fn note_leave_by(&mut self, at: usize, handle: Handle, leave_by: Instant) {
        let instance = &mut self.instances[at];
        if leave_by >= instance.latest {
            instance.latest = leave_by;
        } else {
            self.note_early(at, handle, leave_by);
        }
    }

    #[cold]
    fn note_early(&mut self, at: usize, handle: Handle, leave_by: Instant) {
        let instance = &mut self.instances[at];
        instance.overdue_at = instance.overdue_at.min(leave_by);
        instance.early.insert((leave_by, handle));
        let (queue, lane) = (&self.queue, instance.lane);
        // twice as many as are there: looking through them costs a step for each arrival since then
        if instance.early.len() > EARLY_STALE_MAX + 2 * queue.lane_len(lane) {
            instance.early.retain(|(_, handle)| queue.has(*handle) && queue.is_in(handle.id, lane));
        }
    }

    /// The request of policy `at` that must leave first, and by when.
    fn most_urgent(&mut self, at: usize) -> Option<(Instant, Id)> {
        let (instance, queue) = (&mut self.instances[at], &self.queue);
        let oldest = queue.lane_front(instance.lane).map(|id| (queue.request(id).leave_by(), id));
        while let Some((leave_by, handle)) = instance.early.first().copied() {
            if queue.has(handle) && queue.is_in(handle.id, instance.lane) {
                return oldest
                    .filter(|oldest| oldest.0 <= leave_by)
                    .or(Some((leave_by, handle.id)));
            }
            instance.early.pop_first();
        }
        oldest
    }

    /// A request of policy `at` that may not wait any longer. Looks only when there might be one:
    /// what is left never has to leave earlier than what was there.
    #[inline]
    fn overdue(&mut self, at: usize, now: Instant) -> Option<Id> {
        if now < self.instances[at].overdue_at { None } else { self.look_for_overdue(at, now) }
    }

    fn look_for_overdue(&mut self, at: usize, now: Instant) -> Option<Id> {
        let (leave_by, id) = self.most_urgent(at)?;
        self.instances[at].overdue_at = leave_by;
        (leave_by <= now).then_some(id)
    }

    fn force(&mut self, at: usize, id: Id, now: Instant) -> Answer {
        let (instance, queue) = (&mut self.instances[at], &mut self.queue);
        let policy = instance.policy.as_mut().expect("a policy that holds requests runs");
        match guarded(|| policy.remove(queue, id, now, Removal::Forced)) {
            Ok(Ok(())) => {
                instance.counters.forced += 1;
                Answer::Request(id, true)
            }
            Ok(Err(why)) | Err(why) => {
                self.disable(at, "remove", why);
                Answer::Nothing
            }
        }
    }

    /// When to ask policy `at` again, which says `until`.
    fn wake_at(&mut self, at: usize, until: Instant, now: Instant) -> Instant {
        let urgent = self.most_urgent(at);
        let instance = &mut self.instances[at];
        instance.overdue_at = urgent.map_or(instance.overdue_at, |(leave_by, _)| leave_by);
        until.min(instance.overdue_at).max(now + WAIT_MIN)
    }

    #[inline]
    fn start(&mut self, at: usize, id: Id, now: Instant, forced: bool) -> Taken<R> {
        let line = if self.log { self.line(at, id).map(Some) } else { Ok(None) };
        let request = self.take(at, id);
        self.instances[at].counters.start(now - request.arrival());
        let log = line.unwrap_or_else(|why| {
            self.disable(at, "log", why);
            None
        });
        Taken { request, policy: PolicyIndex(at as u8), forced, log }
    }

    /// Takes `id`, which its policy `at` has forgotten, out of the queue.
    #[inline]
    fn take(&mut self, at: usize, id: Id) -> R {
        let request = self.queue.take(id);
        if self.elsewhere > 0 {
            self.recount(at);
        }
        request
    }

    #[inline]
    fn recount(&mut self, at: usize) {
        if at == 0 && !self.salvaged.is_empty() {
            let queue = &mut self.queue;
            self.salvaged.retain(|lane| {
                let keep = queue.lane_len(*lane) > 0;
                if !keep {
                    queue.drop_lane(*lane);
                }
                keep
            });
        }
        self.elsewhere = self.queue.len() - self.queue.lane_len(fifo::LANE);
    }

    fn line(&self, at: usize, id: Id) -> Result<Box<str>, Broken> {
        let queue = &self.queue;
        let line = match &self.instances[at].policy {
            Some(policy) => guarded(|| policy.log(queue, id))?,
            None => format!(
                "NRS start fifo request from 12345-{}, seq: {}",
                queue.request(id).nid(),
                queue.seq(id)
            ),
        };
        Ok(line.into())
    }

    /// A request that `policy` gave out has been handled, or dropped.
    #[inline]
    pub fn finished(&mut self, policy: PolicyIndex, now: Instant) {
        let at = usize::from(policy.0);
        let instance = &mut self.instances[at];
        assert!(instance.finished < instance.counters.started, "a request finishes once");
        instance.finished += 1;
        if at == 0 {
            return; // the fallback wants to know nothing and never stops
        }
        if let Some(policy) = &mut instance.policy
            && let Err(why) = guarded(|| policy.finished(now))
        {
            self.disable(at, "finished", why);
        }
        self.settle(at);
    }

    /// Whether a start waits for its policy to drain: each request that finishes or is taken out
    /// may be the last one.
    #[inline]
    #[must_use]
    pub fn is_restarting(&self) -> bool {
        self.starting.is_some()
    }

    /// Whether a policy that runs here orders requests by their places on the device.
    pub(crate) fn wants_places(&self) -> bool {
        let mut running =
            self.instances.iter().filter(|instance| instance.state == PolicyState::Started);
        running.any(|instance| {
            let policy = instance.policy.as_ref();
            policy.is_some_and(|policy| guarded(|| policy.wants_places()).unwrap_or(false))
        })
    }

    /// Takes a queued request out; none if it has left already.
    pub fn remove(&mut self, handle: Handle, now: Instant, why: Removal) -> Option<R> {
        if !self.queue.has(handle) {
            return None;
        }
        let mut at = self.queue.owner(handle.id).expect("a queued request has a holder");
        let (instance, queue) = (&mut self.instances[at], &mut self.queue);
        if let Some(policy) = &mut instance.policy
            && let Ok(Err(broken)) | Err(broken) =
                guarded(|| policy.remove(queue, handle.id, now, why))
        {
            self.disable(at, "remove", broken);
            at = 0;
        }
        let counters = &mut self.instances[at].counters;
        match why {
            Removal::Gone => counters.removed += 1,
            Removal::Promoted => counters.promoted += 1,
            Removal::Forced => counters.forced += 1,
        }
        let request = self.take(at, handle.id);
        self.settle(at);
        Some(request)
    }

    /// The queued request, if it has not left.
    #[must_use]
    pub fn get(&self, handle: Handle) -> Option<&R> {
        self.queue.has(handle).then(|| self.queue.request(handle.id))
    }

    /// The queued requests for which `wanted` holds; looks at all of them.
    pub fn find(&self, mut wanted: impl FnMut(&R) -> bool) -> Vec<Handle> {
        let lanes = self
            .instances
            .iter()
            .map(|instance| instance.lane)
            .chain(self.salvaged.iter().copied());
        lanes
            .flat_map(|lane| self.queue.lane(lane))
            .filter(|handle| wanted(self.queue.request(handle.id)))
            .collect()
    }

    /// From now on limits do not hold: the service ends and everything queued must leave.
    pub fn end(&mut self) {
        self.ending = true;
    }

    /// Whether [`Taken::log`] is filled.
    pub fn set_log(&mut self, on: bool) {
        self.log = on;
    }

    /// Policies disabled since the last call.
    pub fn take_disabled(&mut self) -> Vec<Disabled> {
        std::mem::take(&mut self.disabled)
    }

    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queue.len() == 0
    }

    /// Bytes of memory that the queue takes, requests included as far as they are stored inline,
    /// the policies' own structures not.
    #[must_use]
    pub fn queue_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Its policies in the order of registration, FIFO first.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        let listed = |(at, instance): (usize, &Instance<R>)| Listed {
            name: self.name(at),
            arg: instance.arg.clone(),
            state: instance.state,
            fallback: at == 0,
            counters: Counters {
                queued: self.queued_by(at) as u64,
                active: instance.counters.started - instance.finished,
                ..instance.counters
            },
        };
        self.instances.iter().enumerate().map(listed).collect()
    }

    /// What a running policy tells of itself. One that panics over it is disabled.
    #[must_use]
    pub fn policy_stats(&mut self, name: &str) -> Option<String> {
        let at = self.index_of(name)?;
        let policy = self.instances[at].policy.as_ref()?;
        let mut out = String::new();
        match guarded(|| policy.stats(&mut out)) {
            Ok(()) => Some(out),
            Err(why) => {
                self.disable(at, "stats", why);
                None
            }
        }
    }

    pub(crate) fn index_of(&self, name: &str) -> Option<usize> {
        (0..self.instances.len()).find(|at| self.name(*at) == name)
    }

    pub(crate) fn name(&self, at: usize) -> &'static str {
        self.instances[at].descriptor.as_ref().map_or(FALLBACK, |descriptor| descriptor.name)
    }

    pub(crate) fn state(&self, at: usize) -> PolicyState {
        self.instances[at].state
    }

    pub(crate) fn arg(&self, at: usize) -> &str {
        &self.instances[at].arg
    }

    fn queued_by(&self, at: usize) -> usize {
        let salvaged = if at == 0 {
            self.salvaged.iter().map(|lane| self.queue.lane_len(*lane)).sum()
        } else {
            0
        };
        self.queue.lane_len(self.instances[at].lane) + salvaged
    }

    /// Makes `policy` run as the primary; the one before stops.
    pub(crate) fn install(&mut self, at: usize, arg: &str, policy: Box<dyn Policy<R>>) {
        assert!(
            at != 0 && self.instances[at].policy.is_none(),
            "a policy that does not run is started"
        );
        let old = self.primary.replace(at);
        let instance = &mut self.instances[at];
        instance.policy = Some(policy);
        instance.arg = arg.to_owned();
        instance.state = PolicyState::Started;
        instance.overdue_at = Instant::default();
        if let Some(old) = old {
            self.stop(old);
        }
    }

    /// Back to FIFO alone.
    pub(crate) fn stop_primary(&mut self) {
        if let Some(at) = self.primary.take() {
            self.stop(at);
        }
    }

    /// What policies that were replaced still hold leaves without regard to their limits.
    pub(crate) fn release(&mut self) {
        let stopping = |instance: &&mut Instance<R>| instance.state == PolicyState::Stopping;
        self.instances.iter_mut().filter(stopping).for_each(|instance| instance.released = true);
    }

    fn stop(&mut self, at: usize) {
        self.instances[at].state = PolicyState::Stopping;
        self.settle(at);
    }

    /// A stopping policy whose last request is done has stopped.
    #[inline]
    fn settle(&mut self, at: usize) {
        if self.instances[at].state == PolicyState::Stopping {
            self.settle_stopping(at);
        }
    }

    fn settle_stopping(&mut self, at: usize) {
        let instance = &self.instances[at];
        if instance.finished == instance.counters.started && self.queued_by(at) == 0 {
            let instance = &mut self.instances[at];
            instance.state = PolicyState::Stopped;
            instance.released = false;
            instance.arg.clear();
            let policy = instance.policy.take();
            let _ = guarded(move || drop(policy)); // it is gone whatever its own end does
        }
    }

    /// Ends a policy that broke at `call`; its requests are FIFO's from here.
    pub(crate) fn disable(&mut self, at: usize, call: &'static str, why: Broken) {
        let requests = self.queued_by(at);
        let instance = &mut self.instances[at];
        let dropped = instance.policy.take();
        let left = instance.lane;
        instance.early.clear();
        if requests > 0 {
            instance.lane = self.queue.add_lane(at);
            self.queue.give_lane(left, 0);
            self.salvaged.push(left);
        }
        let instance = &mut self.instances[at];
        instance.state = PolicyState::Stopping;
        let arg = self.instances[at].arg.clone();
        let (head, partition, policy) = (self.kind, self.partition, self.name(at));
        self.disabled.push(Disabled {
            head,
            partition,
            policy,
            arg,
            call,
            why: why.into_text(),
            requests,
        });
        if self.primary == Some(at) {
            self.primary = None;
        }
        let _ = guarded(move || drop(dropped));
        self.settle(at);
    }
}

/// What one policy says when it is asked.
enum Answer {
    Request(Id, bool),
    NotBefore(Instant),
    Nothing,
}

/// Moves a queued request from the regular to the high-priority head; none if it has left already.
pub fn promote<R: Request>(
    reg: &mut Head<R>,
    hp: &mut Head<R>,
    handle: Handle,
    now: Instant,
) -> Option<Handle> {
    let request = reg.remove(handle, now, Removal::Promoted)?;
    Some(hp.enqueue(request, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Req, Server, ms};

    #[test]
    fn what_is_out_of_date_in_early_is_looked_for_seldom() {
        const WAITING: usize = 1_000;
        let mut server = Server::new(1, &[crate::delay()]);
        server.select("delay").expect("it starts");
        let head = &mut server.heads[0];
        let request = |secs: u64| Req { at: ms(secs * 1_000), ..Req::default() };
        head.enqueue(request(1_000), ms(0)); // the others leave before it
        let mut handles: Vec<Handle> =
            (0..WAITING).map(|_| head.enqueue(request(0), ms(0))).collect();
        let mut looks = 0;
        for turn in 0..10 * WAITING {
            let before = head.instances[1].early.len();
            let handle = &mut handles[turn % WAITING];
            assert!(head.remove(*handle, ms(0), Removal::Gone).is_some());
            *handle = head.enqueue(request(0), ms(0));
            looks += usize::from(head.instances[1].early.len() < before);
        }
        assert!((1..=10).contains(&looks), "{looks} times");
    }
}

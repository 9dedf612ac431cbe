//! TBF, the token bucket filter: each class of requests leaves at the rate of its rule
//! (`docs/design/tbf.md`; Lustre: LU-3558).
//!
//! ```text
//! request -> key (the fields of the policy's argument) -> class -> rule, by rank -> bucket
//! heap of the classes that have requests, by when the first of each may leave
//! ```
//! A class is a queue in one partition. A bucket belongs to one of these:
//! - a class over all partitions (`scope=service`), in one head (`scope=cpt`) or on the node
//!   (`scope=node`),
//! - a coarser group (`class=`),
//! - the whole rule (`total=1`).
//!
//! Classes that share a bucket take turns in it.
//!
//! Invariants
//! - A class is in the heap exactly when it has requests and is attached to the current rules. Its
//!   entry has the time of the ticket for its first request. The other classes with requests are in
//!   `stale`. Nothing of them leaves before they are attached, except requests that are removed.
//! - Requests of one class leave in the order in which they came.
//! - No class leaves faster than its rate and depth allow, however many partitions serve it. Only a
//!   request that may not wait any longer leaves before its time. It pays within
//!   [`bucket::DEBT_MAX`].
//! - A rule command looks at [`ATTACH_STEP`] classes at most, and so does each later call until no
//!   class is stale. Idle classes are attached with their next request.
//!
//! Lustre: `nrs_tbf.c`. The differences are in `docs/design/tbf.md`.

mod bucket;
mod buckets;
mod classes;
mod fields;
mod grammar;
mod rules;
mod selection;
mod speed;
mod stale;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::fmt::Write;
use std::rc::Rc;

use queues::IndexedHeap;
use types::{Instant, Span};

use bucket::Pace;
use buckets::{BucketRef, Buckets, Owner, Shared};
use classes::{Class, Classes};
use fields::{FieldSet, Key};
use grammar::{Rate, Scope};
use rules::Rules;
use selection::Selection;
use stale::Stale;

pub use speed::{TbfSpeed, parse_tbf_rule, tbf_mixes_clients};

use crate::limits::ATTACH_STEP;
use crate::{
    Broken, Descriptor, Form, Id, Mode, Next, Policy, Queue, Refusal, Refused, Removal, Request,
    Start, Tunable, number_in,
};

/// Requests a second of a rule that names no rate (Lustre: `tbf_rate`).
const RATE_DEFAULT: u32 = 10_000;
/// Requests of a burst (Lustre: `tbf_depth`).
const DEPTH_DEFAULT: u32 = 3;
/// Classes without requests that are kept (Lustre: `tbf_jobid_cache_size`).
const IDLE_CLASSES_DEFAULT: u32 = 8_192;
/// `nrs_tbf_rt_lag`.
const RT_LAG_DEFAULT: Span = Span::secs(1);
/// `nrs_tbf_rt_lag` at most, seconds.
const RT_LAG_SECS_MAX: u64 = 600;

const RULE: &str = "rule";
const STATS: &str = "stats";
const RT_LAG: &str = "rt_lag";

const TUNABLES: &[Tunable] = &[
    Tunable { parameter: "nrs_tbf_rule", label: RULE, form: Form::PerPartition, writable: true },
    Tunable { parameter: "nrs_tbf_stats", label: STATS, form: Form::PerPartition, writable: true },
    Tunable::labelled("nrs_tbf_rt_lag", RT_LAG),
    Tunable::reset("nrs_tbf_reset"),
];

/// What all services of a node share: the node-wide parameters, which count for policies started
/// after they were set, and the buckets of `scope=node`.
pub struct TbfNode {
    rate: Cell<u32>,
    depth: Cell<u32>,
    idle_classes_max: Cell<u32>,
    attach_step: usize,
    buckets: Shared,
}

impl Default for TbfNode {
    fn default() -> TbfNode {
        TbfNode {
            rate: Cell::new(RATE_DEFAULT),
            depth: Cell::new(DEPTH_DEFAULT),
            idle_classes_max: Cell::new(IDLE_CLASSES_DEFAULT),
            attach_step: ATTACH_STEP,
            buckets: Shared::default(),
        }
    }
}

/// A node-wide parameter of TBF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TbfParam {
    /// `tbf_rate`: requests a second.
    Rate,
    /// `tbf_depth`: requests of a burst.
    Depth,
    /// `tbf_jobid_cache_size`: idle classes kept.
    IdleClasses,
}

impl TbfParam {
    pub const ALL: [TbfParam; 3] = [TbfParam::Rate, TbfParam::Depth, TbfParam::IdleClasses];

    /// As the parameter tree names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TbfParam::Rate => "tbf_rate",
            TbfParam::Depth => "tbf_depth",
            TbfParam::IdleClasses => "tbf_jobid_cache_size",
        }
    }
}

impl TbfNode {
    /// A node whose policies attach so few classes at once after a command: what a test with few
    /// classes wants.
    ///
    /// # Panics
    /// If `classes` is zero.
    #[must_use]
    pub fn with_attach_step(classes: usize) -> TbfNode {
        assert!(classes > 0, "each step gets on");
        TbfNode { attach_step: classes, ..TbfNode::default() }
    }

    fn cell(&self, param: TbfParam) -> (&Cell<u32>, u64) {
        match param {
            TbfParam::Rate => (&self.rate, grammar::RATE_RPC_END - 1),
            TbfParam::Depth => (&self.depth, u64::from(grammar::DEPTH_MAX)),
            TbfParam::IdleClasses => (&self.idle_classes_max, 1 << 24),
        }
    }

    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, param: TbfParam) -> u32 {
        self.cell(param).0.get()
    }

    /// Sets a parameter, for policies started from now on.
    ///
    /// # Errors
    /// EINVAL out of range.
    pub fn set(&self, param: TbfParam, value: &str) -> Result<(), Refusal> {
        let (cell, max) = self.cell(param);
        let value = number_in(param.name(), value.trim(), 1..=max)?;
        cell.set(u32::try_from(value).expect("each range ends below 2^32"));
        Ok(())
    }

    /// The policy, for registration with the heads of this node.
    #[must_use]
    pub fn descriptor<R: Request + 'static>(self: &Rc<TbfNode>) -> Descriptor<R> {
        let node = self.clone();
        let make = move |start: &Start<'_>| {
            let fields = FieldSet::parse(start.arg).map_err(|word| {
                let known = format!("{}, joined by +, or nothing for all", fields::Field::WORDS);
                Refusal::invalid(format!(
                    "tbf '{}': '{word}' is not a field: expected {known}",
                    start.arg
                ))
            })?;
            let service = Rc::new(RefCell::new(Buckets::default()));
            let one = |part: &crate::Part| {
                Box::new(Tbf::new(&node, &service, fields, part.number(), start))
                    as Box<dyn Policy<R>>
            };
            Ok(start.partitions.iter().map(one).collect())
        };
        Descriptor { name: "tbf", service: None, tunables: TUNABLES, make: Rc::new(make) }
    }
}

/// A class's place in the order of all: by when its first request may leave, then by that request's
/// number.
#[derive(Clone, Copy, Debug)]
struct Turn {
    ready: Instant,
    seq: u64,
    class: u32,
}

impl Turn {
    /// One number, so that a comparison is no branch. Numbers of requests are unique in a head: no
    /// two turns are equal.
    #[inline]
    fn rank(&self) -> u128 {
        u128::from(self.ready.0) << 64 | u128::from(self.seq)
    }
}

impl Ord for Turn {
    #[inline]
    fn cmp(&self, other: &Turn) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Turn {
    #[inline]
    fn partial_cmp(&self, other: &Turn) -> Option<Ordering> {
        Some(self.cmp(other))
    }
    #[inline]
    fn lt(&self, other: &Turn) -> bool {
        self.rank() < other.rank()
    }
    #[inline]
    fn le(&self, other: &Turn) -> bool {
        self.rank() <= other.rank()
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Turn) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Turn {}

/// What a request pays that leaves its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pays {
    /// Its ticket: it is its turn.
    Ticket,
    /// Its ticket, unless the bucket owes too much: it cannot wait any longer.
    Debt,
    /// Nothing: it is not handled here, or limits do not hold any more.
    Nothing,
}

/// See the head of the file.
pub(crate) struct Tbf {
    fields: FieldSet,
    partition: u32,
    rules: Rules,
    classes: Classes,
    idle_max: usize,
    heap: IndexedHeap<Turn>,
    stale: Stale,
    attach_step: usize,
    attached: u64, // how many times a class was
    service: Shared,
    node: Shared,
    rt_lag: Span,
    selection: Selection,
}

impl Tbf {
    fn new(
        node: &TbfNode,
        service: &Shared,
        fields: FieldSet,
        partition: u32,
        start: &Start<'_>,
    ) -> Tbf {
        Tbf {
            fields,
            partition,
            rules: Rules::new(fields, Rate::rpc(node.rate.get()), node.depth.get()),
            classes: Classes::new(start.seed),
            idle_max: node.idle_classes_max.get() as usize,
            heap: IndexedHeap::default(),
            stale: Stale::default(),
            attach_step: node.attach_step,
            attached: 0,
            service: service.clone(),
            node: node.buckets.clone(),
            rt_lag: RT_LAG_DEFAULT,
            selection: Selection::default(),
        }
    }

    fn buckets(&self, at: BucketRef) -> &Shared {
        if at.on_node { &self.node } else { &self.service }
    }

    /// The class of a key, attached to the rule of this moment.
    fn class_of<R: Request>(&mut self, queue: &Queue<R>, key: &Key, now: Instant) -> u32 {
        let at = match self.classes.find(key) {
            Some(at) => at,
            None => self.classes.insert(*key),
        };
        self.attach_if_old(queue, at, now);
        at
    }

    /// Attaches a class that is not attached to the rules of this moment.
    #[inline]
    fn attach_if_old<R: Request>(&mut self, queue: &Queue<R>, at: u32, now: Instant) {
        let class = self.classes.get(at);
        if class.generation == self.rules.generation() {
            return;
        }
        if class.turn.is_none() {
            self.attach(at, now);
        } else {
            self.attach_stale(queue, at, now);
        }
    }

    /// Attaches a stale class and places it in the heap.
    #[cold]
    fn attach_stale<R: Request>(&mut self, queue: &Queue<R>, at: u32, now: Instant) {
        let is_kept = self.attach(at, now);
        let class = self.classes.get_mut(at);
        // the handle was of a heap that has been shelved
        let (ticket, _) = class.turn.take().expect("a class with requests has a ticket");
        if is_kept {
            let first = class.queue.front().expect("a stale class has requests");
            let turn = Turn { ready: ticket.ready, seq: queue.seq(first), class: at };
            class.turn = Some((ticket, self.heap.insert(turn)));
        } else {
            self.reserve(queue, at, false, now);
        }
    }

    /// How many classes with requests are not attached to the rules of this moment.
    fn stale_classes(&self) -> usize {
        self.classes.len() - self.classes.idle() - self.heap.len()
    }

    /// Before a command: all classes with requests become stale.
    fn shelve(&mut self) {
        self.stale.shelve(self.rules.generation(), &mut self.heap);
    }

    /// Gets on with the stale classes, if there are any.
    #[inline]
    fn attach_some<R: Request>(&mut self, queue: &Queue<R>, now: Instant) {
        if !self.stale.is_empty() {
            self.attach_step(queue, now);
        }
    }

    #[cold]
    fn attach_step<R: Request>(&mut self, queue: &Queue<R>, now: Instant) {
        for _ in 0..self.attach_step {
            let Some((at, generation)) = self.stale.pop() else { break };
            if self.classes.generation(at) == Some(generation) {
                self.attach_stale(queue, at, now);
            }
        }
    }

    /// Finds the class's rule anew and moves the class to its bucket. Whether a ticket that it
    /// holds is still good; if not, it has been given back.
    fn attach(&mut self, at: u32, now: Instant) -> bool {
        self.attached += 1;
        let class = self.classes.get(at);
        let (old, old_rule, old_uid) = (class.bucket, class.rule, class.rule_uid);
        let slot = self.rules.find(&class.key);
        let rule = self.rules.get(slot).expect("a rule that was found is there");
        let (uid, pace) = (rule.uid, Pace::new(rule.rate, rule.depth, rule.realtime, self.rt_lag));
        let key = match rule.class {
            _ if rule.total => Key::default(),
            Some(fields) => class.key.project(fields),
            None => class.key,
        };
        let owner = match rule.scope {
            Scope::Cpt => Owner::Cpt(self.partition, uid),
            Scope::Service => Owner::Service(uid),
            Scope::Node => Owner::Node(Rc::new((rule.name, pace))),
        };
        let on_node = matches!(owner, Owner::Node(_));
        // attached before the old one is detached: a bucket that stays the same must not be lost in
        // between
        let bucket = if on_node { &self.node } else { &self.service }
            .borrow_mut()
            .attach(owner, key, pace, now);
        let ticket = self.classes.get(at).turn.map(|(ticket, _)| ticket);
        let mut kept = false;
        if let Some(ticket) = ticket {
            let mut buckets = self.buckets(old).borrow_mut();
            let before = buckets.get_mut(old);
            kept = old == bucket && before.is_current(&ticket);
            if !kept {
                before.cancel(&ticket);
            }
        }
        self.buckets(old).borrow_mut().detach(old);
        if let Some(rule) = self.rules.get_mut(old_rule).filter(|rule| rule.uid == old_uid) {
            rule.refs -= 1;
        }
        self.rules.get_mut(slot).expect("as before").refs += 1;
        let generation = self.rules.generation();
        let class = self.classes.get_mut(at);
        (class.bucket, class.rule, class.rule_uid, class.generation) =
            (bucket, slot, uid, generation);
        kept
    }

    /// Takes a ticket for the first request of a class and places the class in the heap.
    #[inline]
    fn reserve<R: Request>(&mut self, queue: &Queue<R>, at: u32, busy: bool, now: Instant) {
        let class = self.classes.get_mut(at);
        let first = class.queue.front().expect("a class that is placed has requests");
        let shared = if class.bucket.on_node { &self.node } else { &self.service };
        let mut buckets = shared.borrow_mut();
        let bucket = buckets.get_mut(class.bucket);
        let ticket = bucket.reserve(bucket.pace().cost(queue.request(first).bytes()), busy, now);
        let turn = Turn { ready: ticket.ready, seq: queue.seq(first), class: at };
        let handle = match class.turn {
            Some((_, handle)) => {
                self.heap.update(handle, turn);
                handle
            }
            None => self.heap.insert(turn),
        };
        class.turn = Some((ticket, handle));
    }

    /// The first request of a class has left with its ticket, and the next request gets one.
    #[inline]
    fn advance<R: Request>(&mut self, queue: &Queue<R>, at: u32, pays: Pays, now: Instant) {
        let class = self.classes.get_mut(at);
        let (ticket, handle) = class.turn.expect("a class with requests has a ticket");
        let shared = if class.bucket.on_node { &self.node } else { &self.service };
        {
            let mut buckets = shared.borrow_mut();
            let bucket = buckets.get_mut(class.bucket);
            match pays {
                Pays::Ticket => bucket.spend(&ticket, now),
                Pays::Debt => bucket.spend_early(&ticket, now),
                Pays::Nothing => bucket.cancel(&ticket),
            }
        }
        if class.queue.is_empty() {
            class.turn = None;
            self.heap.remove(handle);
            self.rest(at);
        } else {
            self.reserve(queue, at, true, now);
        }
    }

    /// A class has run empty; beyond the bound the oldest idle ones go.
    fn rest(&mut self, at: u32) {
        self.classes.push_idle(at);
        if self.classes.idle() <= self.idle_max {
            return;
        }
        while self.classes.idle() > self.idle_max / 4 * 3 {
            let Some(class) = self.classes.pop_oldest() else { break };
            self.forget(&class);
        }
    }

    fn forget(&mut self, class: &Class) {
        self.buckets(class.bucket).borrow_mut().detach(class.bucket);
        if let Some(rule) = self.rules.get_mut(class.rule).filter(|rule| rule.uid == class.rule_uid)
        {
            rule.refs -= 1;
        }
    }

    fn set_rule<R: Request>(
        &mut self,
        queue: &Queue<R>,
        text: &str,
        mode: Mode,
        now: Instant,
    ) -> Result<(), Refusal> {
        let command = grammar::parse(text)?;
        self.rules.check(&command)?;
        if mode == Mode::Apply {
            self.shelve();
            self.rules.apply(command);
            self.attach_some(queue, now);
        }
        Ok(())
    }

    fn print_stats(&self, now: Instant) -> String {
        let mut all: Vec<(u32, &Class)> = self.classes.iter().collect();
        all.sort_by_key(|(at, class)| (std::cmp::Reverse(self.selection.by.value(class)), *at));
        let mut out = String::new();
        for (_, class) in all.into_iter().take(self.selection.count) {
            let rule = self.rules.get(class.rule).filter(|rule| rule.uid == class.rule_uid);
            let rule = rule.map_or_else(|| "-".to_owned(), |rule| rule.name.to_string());
            let counters = &class.counters;
            let idle_ms = (now - counters.last_seen).as_millis();
            let _ = writeln!(
                out,
                "- {{ class: \"{}\", rule: {rule}, queued: {}, dispatched: {}, throttled: {}, removed: {}, wait_us: {}, last_seen_ms: {idle_ms} }}",
                class.key.print(self.fields).escape_default(),
                class.queue.len(),
                counters.dispatched,
                counters.throttled,
                counters.removed,
                counters.wait_ns / 1_000,
            );
        }
        out
    }
}

impl Drop for Tbf {
    /// Buckets of the node outlive the policy unless its classes let go of them.
    fn drop(&mut self) {
        let held: Vec<_> = self
            .classes
            .iter()
            .map(|(_, class)| (class.bucket, class.turn.map(|(ticket, _)| ticket)))
            .collect();
        for (bucket, ticket) in held {
            // a policy that is dropped because it panicked may have been interrupted anywhere
            let Ok(mut buckets) = self.buckets(bucket).try_borrow_mut() else { continue };
            if let Some(ticket) = ticket {
                buckets.get_mut(bucket).cancel(&ticket);
            }
            buckets.detach(bucket);
        }
    }
}

impl<R: Request> Policy<R> for Tbf {
    fn enqueue(&mut self, queue: &mut Queue<R>, id: Id, now: Instant) -> Result<(), Refused> {
        let key = Key::of(self.fields, queue.request(id));
        let at = self.class_of(queue, &key, now);
        self.attach_some(queue, now);
        queue.set_tag(id, u64::from(at));
        let class = self.classes.get_mut(at);
        class.counters.last_seen = now;
        class.queue.push_back(queue, id);
        if class.turn.is_none() {
            self.classes.unlink_idle(at);
            self.reserve(queue, at, false, now);
        }
        Ok(())
    }

    fn dequeue(&mut self, queue: &mut Queue<R>, now: Instant, force: bool) -> Next {
        self.attach_some(queue, now);
        while force && self.heap.is_empty() && self.stale_classes() > 0 {
            self.attach_step(queue, now);
        }
        let at = match self.heap.peek() {
            Some((Turn { ready, class, .. }, _)) if ready <= now || force => class,
            _ if self.stale_classes() > 0 => return Next::NotBefore(now),
            Some((Turn { ready, .. }, _)) => return Next::NotBefore(ready),
            None => return Next::Empty,
        };
        let class = self.classes.get_mut(at);
        let id = class.queue.pop_front(queue).expect("a class in the heap has requests");
        let arrival = queue.request(id).arrival();
        let (ticket, _) = class.turn.expect("a class with requests has a ticket");
        class.counters.dispatched += 1;
        class.counters.throttled += u64::from(ticket.waits);
        class.counters.wait_ns = class.counters.wait_ns.saturating_add((now - arrival).0);
        // a bucket of the node outlives the policy: what is released is no debt of other services,
        // and what is only moved to other heads pays there
        let pays = if force { Pays::Nothing } else { Pays::Ticket };
        self.advance(queue, at, pays, now);
        Next::Take(id)
    }

    fn remove(
        &mut self,
        queue: &mut Queue<R>,
        id: Id,
        now: Instant,
        why: Removal,
    ) -> Result<(), Broken> {
        let at =
            u32::try_from(queue.tag(id)).map_err(|_| Broken::new("a request without a class"))?;
        self.attach_if_old(queue, at, now);
        self.attach_some(queue, now);
        let class = self.classes.get_mut(at);
        let first = class.queue.front() == Some(id);
        class.queue.remove(queue, id);
        class.counters.removed += 1;
        let forced = why == Removal::Forced;
        if first {
            let pays = if forced { Pays::Debt } else { Pays::Nothing };
            self.advance(queue, at, pays, now);
        } else if forced {
            // one that was promoted: older than those before it, and without a ticket to pay with
            let bucket = class.bucket;
            let mut buckets = self.buckets(bucket).borrow_mut();
            let bucket = buckets.get_mut(bucket);
            let ticket = bucket.reserve(bucket.pace().cost(queue.request(id).bytes()), true, now);
            bucket.spend_early(&ticket, now);
        }
        Ok(())
    }

    fn get(&self, label: &str, now: Instant) -> Result<String, Refusal> {
        match label {
            RULE => Ok(self.rules.print()),
            STATS => Ok(self.print_stats(now)),
            RT_LAG => Ok(crate::delay::print_time(self.rt_lag)),
            _ => Err(Refusal::invalid(format!("'{label}' is not a tunable"))),
        }
    }

    fn commands(&self) -> Vec<(&'static str, String)> {
        self.rules.commands().into_iter().map(|command| (RULE, command)).collect()
    }

    fn set(
        &mut self,
        queue: &mut Queue<R>,
        label: &str,
        value: &str,
        mode: Mode,
        now: Instant,
    ) -> Result<(), Refusal> {
        match label {
            RULE => self.set_rule(queue, value, mode, now),
            STATS => {
                let selection = Selection::parse(value)?;
                if mode == Mode::Apply {
                    self.selection = selection;
                }
                Ok(())
            }
            RT_LAG => {
                let lag = crate::delay::parse_time(RT_LAG, value, RT_LAG_SECS_MAX)?;
                if mode == Mode::Apply {
                    self.shelve();
                    self.rt_lag = lag;
                    self.rules.touch();
                    self.attach_some(queue, now);
                }
                Ok(())
            }
            _ => Err(Refusal::invalid(format!("'{label}' is not a tunable"))),
        }
    }

    /// `default` alone is left, as it was.
    fn reset(&mut self, queue: &mut Queue<R>, now: Instant) {
        self.shelve();
        (self.rt_lag, self.selection) = (RT_LAG_DEFAULT, Selection::default());
        self.rules.reset();
        self.attach_some(queue, now);
    }

    fn stats(&self, out: &mut String) {
        let _ = writeln!(out, "  classes: {}", self.classes.len());
        let _ = writeln!(out, "  classes_idle: {}", self.classes.idle());
        let _ = writeln!(out, "  classes_stale: {}", self.stale_classes());
        let _ = writeln!(out, "  attached: {}", self.attached);
        let _ = writeln!(out, "  rules: {}", self.rules.iter().count());
    }

    fn log(&self, queue: &Queue<R>, id: Id) -> String {
        format!(
            "NRS start tbf request from 12345-{}, seq: {}",
            queue.request(id).nid(),
            queue.seq(id)
        )
    }
}

/// Reads a rule command and prints what it understood: what a fuzzer can hold on to.
///
/// # Errors
/// EINVAL and the word that is wrong.
pub fn check_tbf_rule(text: &str) -> Result<String, Refusal> {
    let command = grammar::parse(text)?;
    let mut rules = Rules::new(FieldSet::ALL, Rate::rpc(RATE_DEFAULT), DEPTH_DEFAULT);
    rules.check(&command)?;
    rules.apply(command);
    Ok(rules.print())
}

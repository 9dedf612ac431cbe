//! TBF as `docs/design/tbf.md` describes it, in maps that are searched from end to end: no index,
//! no heap.

use std::collections::{BTreeMap, VecDeque};

use nrs::WAIT_MIN;
use types::Errno;
use wire::Opcode;

/// How far a bucket with waiting requests may lag, nanoseconds.
const LATE_SLACK: u64 = 10_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;
/// How much an empty bucket may owe, nanoseconds.
const DEBT_MAX: u64 = 60 * SECOND;

/// Client and opcode, 0 for what the policy's argument lacks.
pub(crate) type Key = (u64, u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rate {
    Milli(u64),
    Bytes(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Cpt,
    Service,
    Node,
}

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Clients(u64, u64),
    Opcodes(Vec<Opcode>),
}

impl Expr {
    fn holds(&self, key: Key) -> bool {
        match self {
            Expr::Clients(first, last) => (*first..=*last).contains(&key.0),
            Expr::Opcodes(all) => all.iter().any(|opcode| *opcode as u32 == key.1),
        }
    }
}

/// What a command says behind the conditions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs {
    pub(crate) rate: Option<Rate>,
    pub(crate) depth: Option<u64>,
    pub(crate) realtime: Option<bool>,
    pub(crate) scope: Option<Scope>,
    /// By client, by opcode.
    pub(crate) class: Option<(bool, bool)>,
    pub(crate) total: Option<bool>,
    pub(crate) rank: Option<String>,
}

pub(crate) enum Command {
    Start(String, Vec<Vec<Expr>>, Pairs),
    Change(String, Pairs),
    Stop(String),
}

struct Rule {
    name: String,
    uid: u64,
    conds: Vec<Vec<Expr>>,
    rate: Rate,
    depth: u64,
    realtime: bool,
    scope: Scope,
    class: Option<(bool, bool)>,
    total: bool,
}

impl Rule {
    fn new(name: &str, uid: u64, conds: Vec<Vec<Expr>>) -> Rule {
        let (rate, depth, realtime) = (Rate::Milli(10_000_000), 3, false);
        Rule {
            name: name.to_owned(),
            uid,
            conds,
            rate,
            depth,
            realtime,
            scope: Scope::Service,
            class: None,
            total: false,
        }
    }

    /// Whether its requests are grouped in another way than before.
    fn take(&mut self, pairs: &Pairs) -> bool {
        let before = (self.scope, self.class, self.total);
        self.rate = pairs.rate.unwrap_or(self.rate);
        self.depth = pairs.depth.unwrap_or(self.depth);
        self.realtime = pairs.realtime.unwrap_or(self.realtime);
        self.scope = pairs.scope.unwrap_or(self.scope);
        self.class = pairs.class.or(self.class);
        self.total = pairs.total.unwrap_or(self.total);
        before != (self.scope, self.class, self.total)
    }

    fn matches(&self, key: Key) -> bool {
        self.name == "default"
            || self.conds.iter().any(|conj| conj.iter().all(|expr| expr.holds(key)))
    }

    fn pace(&self, rt_lag: u64) -> Pace {
        let (nanos, burst, bytes) = match self.rate {
            Rate::Milli(milli) => {
                (((u128::from(SECOND) * 1_000) << 32) / u128::from(milli), self.depth, false)
            }
            Rate::Bytes(per_second) => {
                ((u128::from(SECOND) << 32) / u128::from(per_second), self.depth << 20, true)
            }
        };
        Pace {
            nanos,
            burst,
            bytes,
            realtime: self.realtime,
            lag: if self.realtime { rt_lag } else { LATE_SLACK },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pace {
    nanos: u128, // of one unit, in 2^-32
    burst: u64,
    bytes: bool,
    realtime: bool,
    lag: u64,
}

struct Bucket {
    pace: Pace,
    tat: u128,
    waiting: u32,
    epoch: u32,
}

/// What a request pays that leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pays {
    Ticket,
    Debt,
    Nothing,
}

#[derive(Clone, Copy)]
struct Ticket {
    ready: u64,
    epoch: u32,
    cost: u64,
}

impl Bucket {
    fn cost(&self, bytes: u64) -> u64 {
        match (self.pace.bytes, bytes) {
            (false, _) => 1,
            (true, 0) => 4_096,
            (true, bytes) => bytes.min(u64::from(wire::BULK_BYTES_MAX)),
        }
    }

    fn reserve(&mut self, bytes: u64, busy: bool, now: u64) -> Ticket {
        let cost = self.cost(bytes);
        let slack = if self.pace.realtime || busy || self.waiting > 0 { self.pace.lag } else { 0 };
        let base = self.tat.max(u128::from(now.saturating_sub(slack)) << 32);
        let saved = u128::from(self.pace.burst.saturating_sub(cost)) * self.pace.nanos;
        self.tat = base + u128::from(cost) * self.pace.nanos;
        self.waiting += 1;
        let ready = base.saturating_sub(saved).div_ceil(1 << 32);
        Ticket { ready: u64::try_from(ready).unwrap_or(u64::MAX), epoch: self.epoch, cost }
    }

    fn spend(&mut self, ticket: Ticket, now: u64) {
        self.waiting -= 1;
        if ticket.epoch == self.epoch {
            let late = u128::from(now.saturating_sub(self.pace.lag)) << 32;
            self.tat = self.tat.max(late + u128::from(ticket.cost) * self.pace.nanos);
        }
    }

    /// A request leaves that cannot wait for its turn.
    fn spend_early(&mut self, ticket: Ticket, now: u64) {
        let empty = (u128::from(now) << 32) + u128::from(self.pace.burst) * self.pace.nanos;
        let own = u128::from(ticket.cost) * self.pace.nanos;
        if self.tat <= empty + own.max(u128::from(DEBT_MAX) << 32) {
            self.spend(ticket, now);
        } else {
            self.cancel(ticket);
        }
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.waiting -= 1;
        if ticket.epoch == self.epoch {
            self.tat = self.tat.saturating_sub(u128::from(ticket.cost) * self.pace.nanos);
        }
    }
}

/// Head and partition; a rule's number, or for the node its name and pace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Cpt(usize, usize, u64),
    Service(usize, u64),
    Node(String, Pace),
}

#[derive(Clone, Copy)]
struct Waiting {
    number: u64,
    seq: u64,
    bytes: u64,
    leave_by: u64,
}

#[derive(Default)]
struct Class {
    queue: VecDeque<Waiting>,
    ticket: Option<Ticket>,
    bucket: Option<(Owner, Key)>,
    rule: u64,
    /// How many commands had come when it was attached.
    attached: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Number, and whether it was overdue.
    Request(u64, bool),
    NotBefore(u64),
    Empty,
}

struct Instance {
    rules: Vec<Rule>, // by rank, `default` last
    rt_lag: u64,
    classes: Vec<BTreeMap<Key, Class>>, // of each partition
    idle: Vec<Vec<Key>>,                // the oldest first
    commands: u64,
    // what a command finds waiting, in the order of turns, with the number of commands before it
    shelved: Vec<VecDeque<(u64, Key)>>,
}

/// The policy on both heads of all partitions of a service.
pub(crate) struct Slow {
    fields: (bool, bool),
    idle_max: usize,
    attach_step: usize,
    buckets: BTreeMap<(Owner, Key), Bucket>,
    heads: Vec<Instance>,
    uids: u64,
    seqs: u64,
}

impl Slow {
    pub(crate) fn new(
        fields: (bool, bool),
        partitions: usize,
        idle_max: usize,
        attach_step: usize,
    ) -> Slow {
        let head = |head: u64| Instance {
            rules: vec![Rule::new("default", head, Vec::new())],
            rt_lag: SECOND,
            classes: (0..partitions).map(|_| BTreeMap::new()).collect(),
            idle: vec![Vec::new(); partitions],
            commands: 0,
            shelved: vec![VecDeque::new(); partitions],
        };
        Slow {
            fields,
            idle_max,
            attach_step,
            buckets: BTreeMap::new(),
            heads: vec![head(1), head(2)],
            uids: 2,
            seqs: 0,
        }
    }

    fn uid(&mut self) -> u64 {
        self.uids += 1;
        self.uids
    }

    pub(crate) fn len(&self, head: usize, partition: usize) -> usize {
        self.heads[head].classes[partition].values().map(|class| class.queue.len()).sum()
    }

    /// Name and number of classes of each rule.
    pub(crate) fn refs(&self, head: usize, partition: usize) -> Vec<(String, usize)> {
        let Instance { rules, classes, .. } = &self.heads[head];
        let count = |rule: &Rule| {
            classes[partition].values().filter(|class| class.rule == rule.uid).count()
        };
        rules.iter().map(|rule| (rule.name.clone(), count(rule))).collect()
    }

    fn class(&mut self, head: usize, partition: usize, key: Key) -> &mut Class {
        self.heads[head].classes[partition].get_mut(&key).expect("a class that is there")
    }

    fn bucket(&mut self, at: &(Owner, Key)) -> &mut Bucket {
        self.buckets.get_mut(at).expect("a bucket lives as long as a class has it")
    }

    fn drop_unused_buckets(&mut self) {
        let heads = &self.heads;
        let mut classes =
            heads.iter().flat_map(|head| head.classes.iter().flat_map(BTreeMap::values));
        let used: Vec<_> = classes.by_ref().filter_map(|class| class.bucket.clone()).collect();
        self.buckets.retain(|at, _| used.contains(at));
    }

    /// Gives a class the rule and the bucket of this moment; true if its ticket is as good as
    /// before.
    fn attach(&mut self, head: usize, partition: usize, key: Key, now: u64) -> bool {
        let Instance { rules, rt_lag, commands, .. } = &self.heads[head];
        let commands = *commands;
        let rule = rules.iter().find(|rule| rule.matches(key)).expect("default matches");
        let (uid, pace) = (rule.uid, rule.pace(*rt_lag));
        let owner = match rule.scope {
            Scope::Cpt => Owner::Cpt(head, partition, uid),
            Scope::Service => Owner::Service(head, uid),
            Scope::Node => Owner::Node(rule.name.clone(), pace),
        };
        let group = match rule.class {
            _ if rule.total => (0, 0),
            Some((client, opcode)) => {
                (if client { key.0 } else { 0 }, if opcode { key.1 } else { 0 })
            }
            None => key,
        };
        let new = (owner, group);
        let full = |epoch, waiting| Bucket { pace, tat: u128::from(now) << 32, waiting, epoch };
        match self.buckets.get_mut(&new) {
            Some(bucket) if bucket.pace != pace => *bucket = full(bucket.epoch + 1, bucket.waiting),
            Some(_) => {}
            None => assert!(self.buckets.insert(new.clone(), full(0, 0)).is_none()),
        }
        let class = self.class(head, partition, key);
        (class.rule, class.attached) = (uid, commands);
        let (old, ticket) = (class.bucket.replace(new.clone()), class.ticket);
        let mut kept = false;
        if let (Some(old), Some(ticket)) = (old, ticket) {
            let bucket = self.bucket(&old);
            kept = old == new && bucket.epoch == ticket.epoch;
            if !kept {
                bucket.cancel(ticket);
            }
        }
        self.drop_unused_buckets();
        kept
    }

    /// Attaches a class that a command came after.
    fn refresh(&mut self, head: usize, partition: usize, key: Key, now: u64) {
        let commands = self.heads[head].commands;
        let class = self.class(head, partition, key);
        if class.bucket.is_some() && class.attached == commands {
            return;
        }
        let waits = class.ticket.is_some();
        if !self.attach(head, partition, key, now) && waits {
            self.reserve(head, partition, key, false, now);
        }
    }

    /// What each call does for the classes that waited when a command came.
    fn step(&mut self, head: usize, partition: usize, now: u64) {
        for _ in 0..self.attach_step {
            let Instance { classes, shelved, .. } = &mut self.heads[head];
            let Some((before, key)) = shelved[partition].pop_front() else { break };
            if classes[partition].get(&key).is_some_and(|class| class.attached == before) {
                self.refresh(head, partition, key, now);
            }
        }
    }

    /// A ticket for the first request of a class.
    fn reserve(&mut self, head: usize, partition: usize, key: Key, busy: bool, now: u64) {
        let class = self.class(head, partition, key);
        let (at, bytes) = (class.bucket.clone().expect("attached"), class.queue[0].bytes);
        let ticket = self.bucket(&at).reserve(bytes, busy, now);
        self.class(head, partition, key).ticket = Some(ticket);
    }

    pub(crate) fn enqueue(
        &mut self,
        head: usize,
        partition: usize,
        request: (u64, Key, u64, u64),
        now: u64,
    ) {
        let (number, (client, opcode), bytes, leave_by) = request;
        let key = (if self.fields.0 { client } else { 0 }, if self.fields.1 { opcode } else { 0 });
        self.seqs += 1;
        let seq = self.seqs;
        self.heads[head].classes[partition].entry(key).or_default();
        self.refresh(head, partition, key, now);
        self.step(head, partition, now);
        self.heads[head].idle[partition].retain(|idle| *idle != key);
        let class = self.class(head, partition, key);
        class.queue.push_back(Waiting { number, seq, bytes, leave_by });
        if class.ticket.is_none() {
            self.reserve(head, partition, key, false, now);
        }
    }

    /// The first request of a class has left.
    fn advance(&mut self, head: usize, partition: usize, key: Key, pays: Pays, now: u64) {
        let class = self.class(head, partition, key);
        let (at, ticket) = (
            class.bucket.clone().expect("attached"),
            class.ticket.take().expect("it had requests"),
        );
        let empty = class.queue.is_empty();
        match pays {
            Pays::Ticket => self.bucket(&at).spend(ticket, now),
            Pays::Debt => self.bucket(&at).spend_early(ticket, now),
            Pays::Nothing => self.bucket(&at).cancel(ticket),
        }
        if !empty {
            return self.reserve(head, partition, key, true, now);
        }
        let max = self.idle_max;
        let Instance { classes, idle, .. } = &mut self.heads[head];
        idle[partition].push(key);
        if idle[partition].len() > max {
            while idle[partition].len() > max / 4 * 3 {
                classes[partition].remove(&idle[partition].remove(0));
            }
            self.drop_unused_buckets();
        }
    }

    /// The class of a request that is there, and its place in it.
    fn place(&self, head: usize, partition: usize, number: u64) -> Option<(Key, usize)> {
        let mut places = self.heads[head].classes[partition].iter().map(|(key, class)| {
            (*key, class.queue.iter().position(|waiting| waiting.number == number))
        });
        places.find_map(|(key, at)| at.map(|at| (key, at)))
    }

    /// Takes out a request that the policy has not chosen.
    fn pull(&mut self, head: usize, partition: usize, number: u64, pays: Pays, now: u64) {
        let (key, _) = self.place(head, partition, number).expect("it waits");
        self.refresh(head, partition, key, now);
        self.step(head, partition, now);
        self.take(head, partition, number, pays, now);
    }

    /// Takes out a request that is there.
    fn take(&mut self, head: usize, partition: usize, number: u64, pays: Pays, now: u64) {
        let (key, at) = self.place(head, partition, number).expect("it waits");
        let class = self.class(head, partition, key);
        let left = class.queue.remove(at).expect("it is there");
        if at == 0 {
            self.advance(head, partition, key, pays, now);
        } else if pays == Pays::Debt {
            let bucket = class.bucket.clone().expect("attached");
            let bucket = self.bucket(&bucket);
            let ticket = bucket.reserve(left.bytes, true, now);
            bucket.spend_early(ticket, now);
        }
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, head: usize, partition: usize, number: u64, now: u64) -> bool {
        let is_there = self.place(head, partition, number).is_some();
        if is_there {
            self.pull(head, partition, number, Pays::Nothing, now);
        }
        is_there
    }

    pub(crate) fn dequeue(&mut self, head: usize, partition: usize, now: u64) -> Answer {
        let classes = &self.heads[head].classes[partition];
        let all = classes.values().flat_map(|class| class.queue.iter());
        let Some(urgent) = all.min_by_key(|waiting| (waiting.leave_by, waiting.seq)).copied()
        else {
            return Answer::Empty;
        };
        if urgent.leave_by <= now {
            self.pull(head, partition, urgent.number, Pays::Debt, now);
            return Answer::Request(urgent.number, true);
        }
        self.step(head, partition, now);
        let Instance { classes, commands, .. } = &self.heads[head];
        let with_requests =
            classes[partition].values().filter_map(|class| Some((class, class.ticket?)));
        let (attached, stale): (Vec<_>, Vec<_>) =
            with_requests.partition(|(class, _)| class.attached == *commands);
        let firsts = attached
            .into_iter()
            .map(|(class, ticket)| (ticket.ready, class.queue[0].seq, class.queue[0].number));
        match firsts.min() {
            Some((ready, _, number)) if ready <= now => {
                self.take(head, partition, number, Pays::Ticket, now);
                Answer::Request(number, false)
            }
            Some((ready, ..)) if stale.is_empty() => {
                Answer::NotBefore(ready.min(urgent.leave_by).max(now + WAIT_MIN.0))
            }
            _ => Answer::NotBefore(now + WAIT_MIN.0),
        }
    }

    /// A command has come: classes with requests are attached in the order of their turns, some now
    /// and the others by later calls.
    fn attach_all(&mut self, head: usize, now: u64) {
        let Instance { commands, classes, shelved, .. } = &mut self.heads[head];
        for (classes, shelved) in classes.iter().zip(shelved) {
            let attached = classes.iter().filter(|(_, class)| class.attached == *commands);
            let mut turns: Vec<_> = attached
                .filter_map(|(key, class)| Some((class.ticket?.ready, class.queue[0].seq, *key)))
                .collect();
            turns.sort_unstable();
            shelved.extend(turns.into_iter().map(|(.., key)| (*commands, key)));
        }
        *commands += 1;
        (0..self.heads[head].classes.len()).for_each(|partition| self.step(head, partition, now));
    }

    pub(crate) fn set_rt_lag(&mut self, head: usize, lag: u64, now: u64) {
        self.heads[head].rt_lag = lag;
        self.attach_all(head, now);
    }

    pub(crate) fn reset(&mut self, head: usize, now: u64) {
        let uid = self.uid();
        self.heads[head].rules = vec![Rule::new("default", uid, Vec::new())];
        self.set_rt_lag(head, SECOND, now);
    }

    fn find(&self, head: usize, name: &str) -> Option<usize> {
        self.heads[head].rules.iter().position(|rule| rule.name == name)
    }

    /// What a command would be refused with.
    pub(crate) fn check(&self, head: usize, command: &Command) -> Result<(), Errno> {
        let known = |name: &str| self.find(head, name).is_some();
        let class_is_mine = |pairs: &Pairs| {
            !pairs.class.is_some_and(|(client, opcode)| {
                client && !self.fields.0 || opcode && !self.fields.1
            })
        };
        let rank = |pairs: &Pairs| {
            if pairs.rank.as_ref().is_none_or(|next| known(next)) {
                Ok(())
            } else {
                Err(Errno::ENOENT)
            }
        };
        let allowed =
            |expr: &Expr| if let Expr::Clients(..) = expr { self.fields.0 } else { self.fields.1 };
        match command {
            Command::Start(_, conds, said)
                if !conds.iter().flatten().all(allowed) || !class_is_mine(said) =>
            {
                Err(Errno::EINVAL)
            }
            Command::Start(name, ..) if known(name) => Err(Errno::EEXIST),
            Command::Start(_, _, said) => rank(said),
            Command::Change(name, _) if !known(name) => Err(Errno::ENOENT),
            Command::Change(name, said) if name == "default" && said.rank.is_some() => {
                Err(Errno::EPERM)
            }
            Command::Change(_, said) if !class_is_mine(said) => Err(Errno::EINVAL),
            Command::Change(_, said) => rank(said),
            Command::Stop(name) if name == "default" => Err(Errno::EPERM),
            Command::Stop(_) => Ok(()),
        }
    }

    /// Carries out what `check` let pass.
    pub(crate) fn apply(&mut self, head: usize, command: &Command, now: u64) {
        let uid = self.uid();
        match command {
            Command::Start(name, conds, pairs) => {
                let mut rule = Rule::new(name, uid, conds.clone());
                rule.take(pairs);
                let at =
                    pairs.rank.as_ref().map_or(0, |next| self.find(head, next).expect("checked"));
                self.heads[head].rules.insert(at, rule);
            }
            Command::Change(name, pairs) => {
                let at = self.find(head, name).expect("checked");
                let rule = &mut self.heads[head].rules[at];
                if rule.take(pairs) {
                    rule.uid = uid;
                }
                if let Some(next) = pairs.rank.as_ref().filter(|next| *next != name) {
                    let rule = self.heads[head].rules.remove(at);
                    let at = self.find(head, next).expect("checked");
                    self.heads[head].rules.insert(at, rule);
                }
            }
            Command::Stop(name) => self.heads[head].rules.retain(|rule| rule.name != *name),
        }
        self.attach_all(head, now);
    }
}

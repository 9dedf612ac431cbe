//! A request, and policies that behave well or badly on command.
#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use nrs::{
    Broken, Descriptor, Form, Head, HeadKind, Id, Mode, Next, Policy, Queue, Refusal, Refused,
    Removal, Request, ServiceHeads, Start, Tunable, number_in,
};
use types::{CptIndex, Extent, Fid, Instant, Nid, OstIndex, Span, SplitMix64};
use wire::Opcode;

/// How long a test request may be held.
pub(crate) const HELD_MAX: Span = Span::secs(595);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Req {
    pub(crate) number: u64,
    pub(crate) client: u64,
    pub(crate) opcode: Opcode,
    pub(crate) object: u64,
    pub(crate) range: (u64, u64),
    pub(crate) at: Instant,
}

impl Req {
    pub(crate) fn new(number: u64, client: u64) -> Req {
        Req {
            number,
            client,
            opcode: Opcode::OstRead,
            object: client,
            range: (number * 4096, number * 4096 + 4096),
            at: Instant(0),
        }
    }
    pub(crate) fn at(self, at: Instant) -> Req {
        Req { at, ..self }
    }
}

impl Request for Req {
    fn nid(&self) -> Nid {
        Nid((2 << 48) | self.client)
    }
    fn export(&self) -> Option<u64> {
        (self.client != 0).then_some(self.client)
    }
    fn opcode(&self) -> Opcode {
        self.opcode
    }
    fn ost_index(&self) -> Option<OstIndex> {
        Some(OstIndex((self.object % 8) as u32))
    }
    fn object(&self) -> Option<Fid> {
        Some(Fid { seq: 0x2_0000_0400, oid: self.object as u32, ver: 0 })
    }
    fn range(&self) -> Option<Extent> {
        Extent::new(self.range.0, self.range.1)
    }
    fn bytes(&self) -> u64 {
        self.range.1 - self.range.0
    }
    fn arrival(&self) -> Instant {
        self.at
    }
    fn leave_by(&self) -> Instant {
        self.at + HELD_MAX
    }
}

/// What a [`Puppet`] does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Gives the newest first, at once.
    #[default]
    Fair,
    /// Gives nothing before this instant.
    Holds(Instant),
    RefusesAll,
    BreaksAtEnqueue,
    PanicsAtEnqueue,
    BreaksAtDequeue,
    PanicsAtDequeue,
    /// Names the last request again.
    Repeats,
    /// Says that it is empty.
    Hides,
    /// Holds back under force.
    Stubborn,
    BreaksAtRemove,
    PanicsAtRemove,
    PanicsAtFinished,
    PanicsAtLog,
    PanicsAtGet,
    PanicsAtStats,
}

pub(crate) type Strings = Rc<RefCell<Mood>>;

/// Newest first, so that it cannot be mistaken for FIFO.
pub(crate) struct Puppet {
    mood: Strings,
    held: BTreeSet<(u64, Id)>,
    last: Option<Id>,
    size: u64,
}

impl<R: Request> Policy<R> for Puppet {
    fn enqueue(&mut self, queue: &mut Queue<R>, id: Id, _now: Instant) -> Result<(), Refused> {
        match *self.mood.borrow() {
            Mood::RefusesAll => return Err(Refused::NotMine),
            Mood::BreaksAtEnqueue => return Err(Refused::Broken(Broken::new("no memory"))),
            Mood::PanicsAtEnqueue => panic!("enqueue went wrong"),
            _ => {}
        }
        if queue.request(id).export().is_none() {
            return Err(Refused::NotMine);
        }
        assert!(self.held.insert((queue.seq(id), id)), "a request is given to it once");
        Ok(())
    }

    fn dequeue(&mut self, _queue: &mut Queue<R>, now: Instant, force: bool) -> Next {
        match *self.mood.borrow() {
            Mood::Holds(until) if now < until && !force => return Next::NotBefore(until),
            Mood::Stubborn => return Next::NotBefore(now + Span::secs(1)),
            Mood::BreaksAtDequeue => return Next::Broken(Broken::new("lost count")),
            Mood::PanicsAtDequeue => panic!("dequeue went wrong"),
            Mood::Repeats if self.last.is_some() => {
                return self.last.map_or(Next::Empty, Next::Take);
            }
            Mood::Hides => return Next::Empty,
            _ => {}
        }
        self.last = self.held.pop_last().map(|(_, id)| id);
        self.last.map_or(Next::Empty, Next::Take)
    }

    fn remove(
        &mut self,
        queue: &mut Queue<R>,
        id: Id,
        _now: Instant,
        _why: Removal,
    ) -> Result<(), Broken> {
        match *self.mood.borrow() {
            Mood::BreaksAtRemove => return Err(Broken::new("cannot find it")),
            Mood::PanicsAtRemove => panic!("remove went wrong"),
            _ => {}
        }
        assert!(self.held.remove(&(queue.seq(id), id)), "it holds what is removed");
        Ok(())
    }

    fn finished(&mut self, _now: Instant) {
        assert!(*self.mood.borrow() != Mood::PanicsAtFinished, "finished went wrong");
    }

    fn get(&self, label: &str, _now: Instant) -> Result<String, Refusal> {
        assert!(*self.mood.borrow() != Mood::PanicsAtGet, "get went wrong");
        match label {
            "size" => Ok(self.size.to_string()),
            _ => Ok(format!("rule {}\n", self.size)),
        }
    }

    fn set(
        &mut self,
        _queue: &mut Queue<R>,
        label: &str,
        value: &str,
        mode: Mode,
        _now: Instant,
    ) -> Result<(), Refusal> {
        let size = number_in(label, value, 1..=9)?;
        if mode == Mode::Apply {
            self.size = size;
        }
        Ok(())
    }

    fn stats(&self, _out: &mut String) {
        assert!(*self.mood.borrow() != Mood::PanicsAtStats, "stats went wrong");
    }

    fn log(&self, queue: &Queue<R>, id: Id) -> String {
        assert!(*self.mood.borrow() != Mood::PanicsAtLog, "log went wrong");
        format!("NRS start puppet request from 12345-{}", queue.request(id).nid())
    }
}

const PUPPET_TUNABLES: &[Tunable] = &[
    Tunable::labelled("nrs_puppet_size", "size"),
    Tunable {
        parameter: "nrs_puppet_rule",
        label: "rule",
        form: Form::PerPartition,
        writable: true,
    },
];

/// A policy `name` for all heads, with the strings that move every instance of it. `no` is an
/// argument it rejects, over `panic` it does.
pub(crate) fn puppet<R: Request + 'static>(name: &'static str) -> (Descriptor<R>, Strings) {
    let mood = Strings::default();
    let strings = mood.clone();
    let make = move |start: &Start<'_>| {
        assert!(start.arg != "panic", "start went wrong");
        if start.arg == "no" {
            return Err(Refusal::invalid("'no'"));
        }
        let one = || Puppet { mood: strings.clone(), held: BTreeSet::new(), last: None, size: 1 };
        Ok(start.partitions.iter().map(|_| Box::new(one()) as Box<dyn Policy<R>>).collect())
    };
    let tunables = if name == "puppet" { PUPPET_TUNABLES } else { &[] };
    (Descriptor { name, service: None, tunables, make: Rc::new(make) }, mood)
}

/// Heads of a service with as many partitions.
pub(crate) struct Service<R> {
    pub(crate) reg: Vec<Head<R>>,
    pub(crate) hp: Vec<Head<R>>,
}

impl<R: Request> Service<R> {
    pub(crate) fn new(partitions: u32, policies: &[Descriptor<R>]) -> Service<R> {
        let heads = |kind| {
            (0..partitions).map(|cpt| Head::new("ost_io", kind, CptIndex(cpt), policies)).collect()
        };
        Service { reg: heads(HeadKind::Reg), hp: heads(HeadKind::Hp) }
    }
    pub(crate) fn all(&mut self) -> ServiceHeads<'_, R> {
        ServiceHeads { reg: self.reg.iter_mut().collect(), hp: self.hp.iter_mut().collect() }
    }
}

/// Chance from a seed.
pub(crate) struct Chance(SplitMix64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(SplitMix64::new(seed))
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits()
    }
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

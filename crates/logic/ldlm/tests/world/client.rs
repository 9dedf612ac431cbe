//! A client with its kernel: asks, changes, answers from its cache, and obeys recalls.

use std::collections::BTreeMap;

use ldlm::grants::{
    Belief, Bits, Bugs, Cache, CacheConfig, HolderId, LEASE, Number, Question, Recall, Told, Want,
};
use types::{Fid, Instant, Span, SplitMix64, Transno};

use super::{Event, Message, PARTS, Request, Values, World, change_id, file};

/// A tenth of a second: longer than any client waits for its kernel.
const KERNEL_TRIES: u32 = 50;

/// How a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// Does nothing; what its kernel was told holds on.
    Frozen,
    /// For good.
    Dead,
    /// Does all but give up what it is asked for.
    Silent,
}

struct Pending {
    question: Question,
    request: Request,
}

pub(crate) struct Client {
    pub(crate) session: HolderId,
    pub(crate) cache: Cache,
    pub(crate) mood: Mood,
    pub(crate) writes: bool,
    pub(crate) is_evicted: bool,
    pub(crate) epoch: u32,
    pub(crate) is_recovering: bool,
    /// Changes from here on were lost, which this client does not know yet.
    pub(crate) lost_from: Transno,
    /// Its clock, in thousandths of the true one.
    rate: u64,
    values: BTreeMap<(Fid, Bits), Transno>,
    kernel: BTreeMap<(Fid, Bits), (Transno, Instant)>,
    pending: BTreeMap<u64, Pending>,
    next_xid: u64,
    inbox: Vec<Message>,
    /// When it looks at its cache again.
    alarm: Instant,
}

impl Client {
    pub(crate) fn new(at: usize, chance: &mut SplitMix64, bugs: Bugs) -> Client {
        let config = CacheConfig {
            lru_size: 3,
            lru_max_age: Span::secs(20),
            bugs,
            ..CacheConfig::default()
        };
        Client {
            session: HolderId(at as u64 + 1),
            cache: Cache::new(config, Number::first_of_epoch(1)),
            mood: Mood::Well,
            writes: chance.below(2) == 0,
            is_evicted: false,
            epoch: 1,
            is_recovering: false,
            lost_from: Transno::NONE,
            rate: 910 + chance.below(190),
            values: BTreeMap::new(),
            kernel: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_xid: 0,
            inbox: Vec::new(),
            alarm: Instant::default(),
        }
    }

    /// Its clock.
    pub(crate) fn local(&self, now: Instant) -> Instant {
        Instant(now.0 / 1_000 * self.rate)
    }

    fn truly(&self, span: Span) -> Span {
        Span(span.0 * 1_000 / self.rate)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.mood == Mood::Dead
    }

    pub(crate) fn lose(&mut self, from: Transno) {
        let before = Some(self.lost_from).filter(|before| !before.is_none());
        self.lost_from = before.map_or(from, |before| before.min(from));
    }

    fn is_lost(&self, value: Transno) -> bool {
        !self.lost_from.is_none() && value >= self.lost_from
    }

    /// Changes of this client's under way.
    fn changes(&self) -> impl Iterator<Item = &Want> {
        self.pending.values().flat_map(|pending| match &pending.request {
            Request::Change(wants) => wants.as_slice(),
            _ => &[],
        })
    }

    /// What the kernel answers by itself. What it is changing itself it does not know for sure, and
    /// it cannot know that an MDT that is down has lost something.
    pub(crate) fn kernel_value(&self, fid: Fid, part: Bits, now: Instant) -> Option<Transno> {
        let (value, until) = self.kernel.get(&(fid, part)).copied()?;
        let own = self.changes().any(|want| want.fid == fid && want.bits.contains(part));
        (now < until && !own && !self.is_lost(value)).then_some(value)
    }

    /// What the cache answers.
    pub(crate) fn cached(&mut self, fid: Fid, part: Bits, now: Instant) -> Option<Transno> {
        let runs = matches!(self.mood, Mood::Well | Mood::Silent);
        if !runs || self.cache.belief(fid, part, now) == Belief::No {
            return None;
        }
        let value = self.values.get(&(fid, part)).copied().expect("what is known has a value");
        (!self.is_lost(value)).then_some(value)
    }

    /// What it holds, by file.
    pub(crate) fn had(&self) -> Vec<(Fid, Bits)> {
        (0..u64::from(super::FILES)).map(|at| (file(at), self.cache.bits_of(file(at)))).collect()
    }

    /// The kernel is told what the cache answers.
    fn tell_kernel(&mut self, fid: Fid, part: Bits, now: Instant) {
        if let Belief::Until(until) = self.cache.belief(fid, part, now) {
            let value = self.values[&(fid, part)];
            self.kernel.insert((fid, part), (value, until));
            self.cache.told(fid, until);
        }
    }

    fn forget(&mut self, fid: Fid, bits: Bits) {
        self.kernel.retain(|(other, part), _| *other != fid || !bits.contains(*part));
    }
}

impl World {
    fn ask(&mut self, at: usize, request: Request) {
        let now = self.clients[at].local(self.now);
        let client = &mut self.clients[at];
        client.next_xid += 1;
        let xid = client.next_xid;
        if let Request::Change(wants) = &request {
            client.cache.begin(change_id(at, xid), wants);
        }
        let question = client.cache.ask(now);
        client.pending.insert(xid, Pending { question, request });
        self.resend(at, xid);
    }

    pub(crate) fn resend(&mut self, at: usize, xid: u64) {
        let client = &self.clients[at];
        let Some(pending) = client.pending.get(&xid) else { return };
        let is_stale = matches!(pending.request, Request::Restate(_)) && !client.is_recovering;
        if client.is_dead() || is_stale {
            return;
        }
        if client.mood != Mood::Frozen {
            let message = Message::Request { xid, request: pending.request.clone() };
            self.post(at, message);
        }
        self.after(Span::secs(1), Event::Resend(at, xid));
    }

    fn post(&mut self, from: usize, message: Message) {
        let epoch = self.clients[from].epoch;
        self.send(&Event::ToServer { from, epoch, message });
    }

    pub(crate) fn beat(&mut self, at: usize) {
        if matches!(self.clients[at].mood, Mood::Well | Mood::Silent) {
            self.ask(at, Request::Beat);
        }
        let span = self.clients[at].truly(Span(LEASE.0 / 4));
        self.after(span, Event::Beat(at));
    }

    pub(crate) fn work(&mut self, at: usize) {
        let span = self.between(1_000, 400_000);
        self.after(span, Event::Work(at));
        if !matches!(self.clients[at].mood, Mood::Well | Mood::Silent) {
            return;
        }
        match self.chance.below(10) {
            0..6 => self.read(at),
            6..9 if self.clients[at].pending.len() < 6 => self.write(at),
            _ => self.shed(at),
        }
        self.pump(at);
    }

    fn read(&mut self, at: usize) {
        let fid = self.any_file();
        let part = PARTS[self.chance.below(3) as usize];
        let now = self.clients[at].local(self.now);
        if self.clients[at].cached(fid, part, now).is_some() {
            self.count("hits");
            self.clients[at].tell_kernel(fid, part, now);
            return;
        }
        let more = PARTS[self.chance.below(3) as usize];
        self.ask(at, Request::Read(Want { fid, bits: part | more }));
    }

    fn write(&mut self, at: usize) {
        let fid = self.any_file();
        let bits = PARTS[self.chance.below(3) as usize] | PARTS[self.chance.below(3) as usize];
        let mut wants = vec![Want { fid, bits }];
        let other = self.any_file();
        if other != fid && self.chance.below(3) == 0 {
            wants.push(Want { fid: other, bits: Bits::UPDATE });
        }
        if self.chance.below(4) == 0 {
            self.give_up_early(at, &wants);
        }
        self.ask(at, Request::Change(wants));
    }

    /// What a change names and what is dying is given up with the request.
    fn give_up_early(&mut self, at: usize, wants: &[Want]) {
        let mut acks = Vec::new();
        for want in wants {
            let client = &mut self.clients[at];
            if let Some(ack) = client.cache.give_up_early(want.fid, want.bits) {
                client.forget(want.fid, want.bits);
                acks.push(ack);
            }
        }
        if !acks.is_empty() {
            self.count("early");
            self.post(at, Message::Ack(acks));
        }
    }

    fn shed(&mut self, at: usize) {
        let now = self.clients[at].local(self.now);
        let shed = if self.chance.below(4) == 0 {
            self.clients[at].cache.shed_all(now)
        } else {
            self.clients[at].cache.shed(now)
        };
        if !shed.is_empty() {
            self.count("shed");
            self.post(at, Message::Shed(shed));
        }
    }

    pub(crate) fn at_client(&mut self, to: usize, message: Message) {
        match self.clients[to].mood {
            Mood::Dead => return,
            Mood::Frozen => {
                self.clients[to].inbox.push(message);
                return;
            }
            Mood::Well | Mood::Silent => {}
        }
        let now = self.clients[to].local(self.now);
        match message {
            Message::Reply { xid, head, told, done } => {
                let Some(pending) = self.clients[to].pending.remove(&xid) else { return };
                self.clients[to].cache.heard(pending.question, head, now);
                for (told, values) in told {
                    self.take(to, pending.question, told, &values);
                }
                let client = &mut self.clients[to];
                if let Request::Change(wants) = &pending.request {
                    client.cache.end(change_id(to, xid), wants, done, now);
                    wants.iter().for_each(|want| client.forget(want.fid, want.bits));
                }
                client.cache.finish(pending.question);
            }
            Message::Recall(recalls) => recalls.iter().for_each(|recall| self.recall(to, *recall)),
            Message::Restarted { epoch, after } => self.restarted(to, epoch, after),
            Message::Recovered { xid, epoch, head, lost_from } => {
                if epoch != self.clients[to].epoch {
                    return;
                }
                let client = &mut self.clients[to];
                let Some(pending) = client.pending.remove(&xid) else { return };
                client.cache.heard(pending.question, head, now);
                for fid in client.cache.recovered(lost_from) {
                    client.forget(fid, Bits::all());
                }
                client.cache.finish(pending.question);
                client.kernel.retain(|_, (value, _)| lost_from.is_none() || *value < lost_from);
                (client.is_recovering, client.lost_from) = (false, Transno::NONE);
            }
            other => panic!("not for a client: {other:?}"),
        }
        self.pump(to);
    }

    fn take(&mut self, at: usize, question: Question, told: Told, values: &Values) {
        let now = self.clients[at].local(self.now);
        let client = &mut self.clients[at];
        let taken = client.cache.take(question, told, now);
        for (part, value) in values.iter().filter(|(part, _)| taken.contains(*part)) {
            client.values.insert((told.fid, *part), *value);
        }
        if self.chance.below(2) == 0 {
            for (part, _) in values {
                self.clients[at].tell_kernel(told.fid, *part, now);
            }
        }
    }

    fn recall(&mut self, at: usize, recall: Recall) {
        let now = self.clients[at].local(self.now);
        self.clients[at].cache.recall(recall, now);
    }

    fn restarted(&mut self, at: usize, epoch: u32, after: Number) {
        let now = self.clients[at].local(self.now);
        let client = &mut self.clients[at];
        if epoch <= client.epoch {
            return;
        }
        (client.epoch, client.is_recovering) = (epoch, true);
        client.pending.retain(|_, pending| !matches!(pending.request, Request::Restate(_)));
        client.cache.restarted(after, now);
        let vectors = client.cache.restate();
        self.ask(at, Request::Restate(vectors));
    }

    /// Notifications and acknowledgements that are due.
    pub(crate) fn pump(&mut self, at: usize) {
        let now = self.clients[at].local(self.now);
        if self.clients[at].mood != Mood::Well {
            return;
        }
        while let Some(notify) = self.clients[at].cache.poll_notify(now) {
            let (fid, number) = (notify.fid, notify.number);
            if notify.force {
                self.count("forced");
                let client = &mut self.clients[at];
                client.kernel.clear();
                client.cache.distrust(file(0), now);
                client.cache.notified(fid, number);
            } else {
                let span = self.between(10, 3_000);
                self.after(span, Event::Kernel { client: at, fid, number, tries: 0 });
            }
        }
        let acks = self.clients[at].cache.poll_acks();
        if !acks.is_empty() {
            self.post(at, Message::Ack(acks));
        }
        if let Some(due) = self.clients[at].cache.poll_timeout() {
            let span = Span(self.clients[at].truly(due - now).0 + 1_000);
            let alarm = self.now + span;
            if self.clients[at].alarm <= self.now || self.clients[at].alarm > alarm {
                self.clients[at].alarm = alarm;
                self.after(span, Event::Cache(at));
            }
        }
    }

    /// The kernel has its directory locked while a change is under way, and takes nothing then.
    pub(crate) fn kernel(&mut self, at: usize, fid: Fid, number: Number, tries: u32) {
        if self.clients[at].changes().next().is_some() {
            if tries < KERNEL_TRIES {
                let event = Event::Kernel { client: at, fid, number, tries: tries + 1 };
                self.after(Span::millis(2), event);
            }
            return;
        }
        self.clients[at].forget(fid, Bits::all());
        let span = self.between(10, 1_000);
        self.after(span, Event::Notified { client: at, fid, number });
        if self.clients[at].mood == Mood::Well {
            let now = self.clients[at].local(self.now); // a call that was under way is answered
            for part in PARTS {
                self.clients[at].tell_kernel(fid, part, now);
            }
        }
    }

    /// The client hears that its kernel has taken an invalidation.
    pub(crate) fn notified(&mut self, at: usize, fid: Fid, number: Number) {
        if self.clients[at].mood == Mood::Well {
            self.clients[at].cache.notified(fid, number);
        }
        self.pump(at);
    }

    pub(crate) fn fate(&mut self, at: usize) {
        if self.clients[at].mood == Mood::Well {
            self.clients[at].mood = match self.chance.below(20) {
                0 => Mood::Dead,
                1..10 => Mood::Silent,
                _ => Mood::Frozen,
            };
            let span = self.between(1_000_000, 30_000_000);
            match self.clients[at].mood {
                Mood::Dead if self.chance.below(2) == 0 => self.evict(at),
                Mood::Dead => {}
                _ => self.after(span, Event::Thaw(at)),
            }
        }
        self.fate_later(at);
    }

    pub(crate) fn thaw(&mut self, at: usize) {
        if self.clients[at].is_dead() {
            return;
        }
        self.clients[at].mood = Mood::Well;
        for message in std::mem::take(&mut self.clients[at].inbox) {
            self.at_client(at, message);
        }
        self.pump(at);
    }
}

//! The MDT's engine: executes one thing at a time and keeps the answers to changes.

use std::collections::{BTreeMap, BTreeSet};

use ldlm::grants::{
    Begun, Bits, Bugs, ChangeId, HolderId, Mdt, MdtConfig, Mode, Number, Output, Recall, Told, Want,
};
use types::{Fid, Instant, Span, Transno};

use super::{Event, Message, Request, Scenario, Values, Waiting, World, change_id, file};

pub(crate) struct Server {
    pub(crate) mdt: Option<Mdt>,
    pub(crate) epoch: u32,
    bugs: Bugs,
    holders_max: u32,
    transno: Transno,
    history: Vec<(Transno, Want)>,
    truth: BTreeMap<(Fid, Bits), Transno>,
    waiting: BTreeMap<ChangeId, Waiting>,
    /// What was asked for them is asked for until it is acknowledged.
    given_up: Vec<Waiting>,
    kept: BTreeMap<ChangeId, (Vec<(Told, Values)>, Transno)>,
    /// What expelled sessions had that are not refused yet.
    unfenced: BTreeMap<usize, Vec<(Fid, Bits)>>,
    /// Files of which some clients held something at the end of an instance.
    listed: BTreeMap<usize, BTreeSet<Fid>>,
}

impl Server {
    fn config(mode: Mode, holders_max: u32, bugs: Bugs) -> MdtConfig {
        MdtConfig { mode, holders_max, bugs, ..MdtConfig::default() }
    }

    pub(crate) fn new(mode: Mode, holders_max: u32, bugs: Bugs, now: Instant) -> Server {
        let config = Server::config(mode, holders_max, bugs);
        Server {
            mdt: Some(Mdt::new(config, 1, now)),
            epoch: 1,
            bugs,
            holders_max,
            transno: Transno::first_of_epoch(1),
            history: Vec::new(),
            truth: BTreeMap::new(),
            waiting: BTreeMap::new(),
            given_up: Vec::new(),
            kept: BTreeMap::new(),
            unfenced: BTreeMap::new(),
            listed: BTreeMap::new(),
        }
    }

    pub(crate) fn truth(&self, fid: Fid, part: Bits) -> Transno {
        self.truth.get(&(fid, part)).copied().unwrap_or_default()
    }

    pub(crate) fn check_waits(&self, now: Instant, scenario: Scenario) {
        for waiting in self.waiting.values() {
            let (waits, on) = (now - waiting.since, change_id(waiting.client, waiting.xid));
            let on = self.mdt.as_ref().map(|mdt| mdt.waiting_on(on, now));
            let client = waiting.client;
            assert!(waits <= scenario.wait_max, "{client} waits {waits:?} on {on:?} at {now:?}");
        }
    }

    fn mdt(&mut self) -> &mut Mdt {
        self.mdt.as_mut().expect("it is up")
    }

    fn values(&self, want: Want) -> Values {
        want.bits.iter().map(|part| (part, self.truth(want.fid, part))).collect()
    }

    fn tell(&mut self, session: HolderId, want: Want, now: Instant) -> (Told, Values) {
        let given = self.mdt().give(session, want.fid, want.bits, now);
        (Told { fid: want.fid, given, as_of: self.transno }, self.values(want))
    }

    fn set(&mut self, transno: Transno, want: Want) {
        want.bits.iter().for_each(|part| {
            self.truth.insert((want.fid, part), transno);
        });
    }

    /// An instance has ended. Of every other client the next one is told what it held.
    fn list(&mut self, ended: &Mdt, at: usize, session: HolderId) {
        match ended.files_of(session, super::FILES as usize) {
            Some(files) if (self.epoch as usize + at).is_multiple_of(2) => {
                self.listed.insert(at, files.into_iter().collect());
            }
            None if ended.knows(session) => {} // it has not restated: what was listed before
            _ => drop(self.listed.remove(&at)),
        }
    }

    /// Every recall is for another client's change.
    fn check_recall(&self, session: HolderId, recall: Recall) {
        let is_for = |waiting: &Waiting| {
            waiting.client as u64 != session.0 - 1
                && waiting
                    .wants
                    .iter()
                    .any(|want| want.fid == recall.fid && want.bits.intersects(recall.bits))
        };
        assert!(
            self.waiting.values().chain(&self.given_up).any(is_for),
            "{session:?} is asked for nobody: {recall:?}"
        );
    }
}

impl World {
    pub(crate) fn connect(&mut self, at: usize) {
        let (session, writes) = (self.clients[at].session, self.clients[at].writes);
        let now = self.now;
        let mdt = self.server.mdt();
        assert_eq!(mdt.connect(session, now), Number::first_of_epoch(1));
        mdt.set_callbacks(session, true);
        mdt.set_writes(session, writes);
    }

    pub(crate) fn at_server(&mut self, from: usize, epoch: u32, message: Message) {
        let (session, now) = (self.clients[from].session, self.now);
        if self.server.mdt.is_none() || epoch != self.server.epoch {
            return;
        }
        match message {
            Message::Ack(acks) => self.server.mdt().ack(session, &acks, now),
            Message::Shed(shed) => self.server.mdt().shed(session, &shed, now),
            Message::Request { xid, request } => self.request(from, xid, request),
            other => panic!("not for a server: {other:?}"),
        }
        self.perform();
    }

    fn request(&mut self, from: usize, xid: u64, request: Request) {
        let (session, now) = (self.clients[from].session, self.now);
        match request {
            Request::Beat => self.reply(from, xid, Vec::new(), Transno::NONE),
            Request::Read(want) => {
                let head = self.server.mdt().answered(session, now);
                let told = vec![self.server.tell(session, want, now)];
                let message = Message::Reply { xid, head, told, done: Transno::NONE };
                self.send(&Event::ToClient { to: from, message });
            }
            Request::Change(wants) => self.change(from, xid, wants),
            Request::Restate(vectors) => self.restate(from, xid, &vectors),
        }
    }

    fn reply(&mut self, to: usize, xid: u64, told: Vec<(Told, Values)>, done: Transno) {
        let (session, now) = (self.clients[to].session, self.now);
        let head = self.server.mdt().answered(session, now);
        self.send(&Event::ToClient { to, message: Message::Reply { xid, head, told, done } });
    }

    fn change(&mut self, from: usize, xid: u64, wants: Vec<Want>) {
        let id = change_id(from, xid);
        if let Some((told, done)) = self.server.kept.get(&id).cloned() {
            self.reply(from, xid, told, done);
        } else if !self.server.waiting.contains_key(&id) {
            let waiting = Waiting { client: from, xid, wants, since: self.now };
            self.server.waiting.insert(id, waiting);
            self.try_change(id);
        }
    }

    fn try_change(&mut self, id: ChangeId) {
        let (session, now) = (self.session_of(id), self.now);
        let wants = self.server.waiting[&id].wants.clone();
        if self.server.mdt().begin(id, Some(session), &wants, now) == Begun::Parked {
            if self.chance.below(8) == 0 {
                let (epoch, span) = (self.server.epoch, self.between(10, 30_000));
                self.after(span, Event::GiveUp { epoch, change: id });
            }
            return;
        }
        let waiting = self.server.waiting.remove(&id).expect("it is there");
        let (waits, max) = (now - waiting.since, self.scenario.wait_max);
        assert!(waits <= max, "a change waited {waits:?}, which ended at {now:?}");
        for (expelled, had) in &self.server.unfenced {
            let passes = |want: &Want| {
                had.iter().any(|(fid, bits)| *fid == want.fid && bits.intersects(want.bits))
            };
            let is_own = *expelled == waiting.client;
            assert!(is_own || !wants.iter().any(passes), "{expelled} may still write");
        }
        self.server.transno = self.server.transno.next();
        let done = self.server.transno;
        for want in &wants {
            self.server.history.push((done, *want));
            self.server.set(done, *want);
        }
        self.server.mdt().end(id);
        let told: Vec<_> = wants.iter().map(|want| self.server.tell(session, *want, now)).collect();
        self.server.kept.insert(id, (told.clone(), done));
        self.count("changes");
        self.reply(waiting.client, waiting.xid, told, done);
    }

    /// The engine gives a parked change up: it will not be executed.
    pub(crate) fn give_up(&mut self, epoch: u32, change: ChangeId) {
        if epoch != self.server.epoch || self.server.mdt.is_none() {
            return;
        }
        let Some(waiting) = self.server.waiting.remove(&change) else { return };
        self.count("given up");
        self.server.mdt().end(change);
        self.server.kept.insert(change, (Vec::new(), Transno::NONE));
        self.reply(waiting.client, waiting.xid, Vec::new(), Transno::NONE);
        self.server.given_up.push(waiting);
    }

    fn session_of(&self, id: ChangeId) -> HolderId {
        self.clients[self.server.waiting[&id].client].session
    }

    /// What the table wants done.
    fn perform(&mut self) {
        while let Some(output) = self.server.mdt().poll_output() {
            match output {
                Output::Ready(change) if self.server.waiting.contains_key(&change) => {
                    self.try_change(change);
                }
                Output::Ready(_) => {} // given up meanwhile
                Output::Record(_) => panic!("this table does not wait for that"),
                Output::Recall { session, recalls } => {
                    self.count("recalls");
                    recalls.iter().for_each(|recall| self.server.check_recall(session, *recall));
                    let to = session.0 as usize - 1;
                    self.send(&Event::ToClient { to, message: Message::Recall(recalls) });
                }
                Output::Expelled { session, fence } => {
                    self.count("expelled");
                    let client = session.0 as usize - 1;
                    if fence {
                        self.server.unfenced.insert(client, self.clients[client].had());
                        self.after(Span::millis(20), Event::Fence(client));
                    }
                }
            }
        }
    }

    pub(crate) fn fence(&mut self, client: usize) {
        if self.server.mdt.is_none() || self.server.unfenced.remove(&client).is_none() {
            return;
        }
        self.clients[client].writes = false;
        let (session, now) = (self.clients[client].session, self.now);
        self.server.mdt().fenced(session, now);
        self.perform();
    }

    pub(crate) fn timeout(&mut self) {
        let now = self.now;
        self.server.mdt().handle_timeout(now);
        self.perform();
        let scenario = self.scenario;
        self.server.check_waits(now, scenario);
    }

    /// The MDT dies. Changes from some point on are lost, or none.
    pub(crate) fn crash(&mut self) {
        if let Some(ended) = self.server.mdt.take() {
            for (at, client) in self.clients.iter().enumerate() {
                self.server.list(&ended, at, client.session);
            }
        }
        self.server.waiting.clear();
        self.server.given_up.clear();
        self.server.unfenced.clear();
        let recent = self.server.history.len().min(5) as u64;
        let lost = self.chance.below(2 * recent + 1) as usize;
        let at = self.server.history.len().wrapping_sub(lost);
        if lost > 0 && lost <= recent as usize {
            let from = self.server.history[at].0;
            self.server.history.retain(|(transno, _)| *transno < from);
            self.server.kept.retain(|_, (_, done)| *done < from);
            self.clients.iter_mut().for_each(|client| client.lose(from));
            self.count("lost");
        }
        self.server.truth.clear();
        for (transno, want) in self.server.history.clone() {
            self.server.set(transno, want);
        }
        let most = if self.chance.below(4) == 0 { 13_000_000 } else { 2_000_000 };
        let span = self.between(100_000, most);
        self.after(span, Event::Start);
    }

    pub(crate) fn start(&mut self) {
        self.server.epoch += 1;
        let epoch = self.server.epoch;
        let config = Server::config(self.scenario.mode, self.server.holders_max, self.server.bugs);
        let mut mdt = Mdt::new(config, epoch, self.now);
        for (at, client) in self.clients.iter().enumerate() {
            // one that was evicted may still believe: its record goes when its lease is over
            mdt.expect(client.session, Span::ZERO, self.now);
            if let Some(files) = self.server.listed.get(&at) {
                mdt.claims(client.session, files.clone());
            }
            if client.is_evicted {
                mdt.evict(client.session, self.now);
            }
            mdt.set_callbacks(client.session, true);
            mdt.set_writes(client.session, client.writes);
        }
        self.server.transno = Transno::first_of_epoch(epoch);
        let after = mdt.number();
        self.server.mdt = Some(mdt);
        for to in 0..self.clients.len() {
            let span = self.between(1_000, 500_000);
            let message = Message::Restarted { epoch, after };
            self.after(span, Event::ToClient { to, message });
        }
        self.crash_later();
    }

    fn restate(&mut self, from: usize, xid: u64, vectors: &[Vec<ldlm::grants::Stated>]) {
        let (session, now, epoch) = (self.clients[from].session, self.now, self.server.epoch);
        self.count("restated");
        let mdt = self.server.mdt();
        for vector in vectors {
            mdt.restate(session, vector, now).expect("clients are correct");
        }
        mdt.restated(session, now);
        let head = mdt.answered(session, now);
        let lost_from = self.clients[from].lost_from;
        let message = Message::Recovered { xid, epoch, head, lost_from };
        self.send(&Event::ToClient { to: from, message });
    }

    pub(crate) fn evict(&mut self, client: usize) {
        let (session, now) = (self.clients[client].session, self.now);
        self.clients[client].is_evicted = true;
        if self.server.mdt.is_some() {
            self.server.mdt().evict(session, now);
            self.perform();
        }
    }

    pub(crate) fn any_file(&mut self) -> Fid {
        file(self.chance.below(u64::from(super::FILES)))
    }
}

//! Sets of names against a directory whose requests, replies and recalls overtake each other: a
//! name that a client takes for absent does not exist.

use std::collections::BTreeSet;

use ldlm::grants::{
    Begun, Bits, Cache, CacheConfig, ChangeId, HolderId, Listing, Mdt, MdtConfig, Name, Output,
    Question, Recall, Told, Want,
};
use types::{Fid, Instant, SplitMix64, Transno};

const NOW: Instant = Instant(1_000_000_000);
const DIR: Fid = Fid::ROOT;
const WANT: Want = Want { fid: DIR, bits: Bits::UPDATE };
const OWN: HolderId = HolderId(1);
const OTHER: HolderId = HolderId(2);
const NAMES: u64 = 8;
const PAGE: usize = 3;
const STEPS: u32 = 400;
const SEEDS: u64 = 150;

/// Two names have each hash.
fn hash(name: u64) -> u64 {
    name / 2
}

#[derive(Clone, Copy)]
enum Asked {
    Look,
    Page { listing: Listing, from: u64 },
    Change { name: u64, makes: bool },
}

#[derive(Clone)]
enum Message {
    Request(u64, Question, Asked),
    Reply { id: u64, question: Question, asked: Asked, told: Told, page: Vec<u64>, done: bool },
    Recall(Recall),
    Ack(ldlm::grants::Ack),
}

struct World {
    chance: SplitMix64,
    mdt: Mdt,
    cache: Cache,
    truth: BTreeSet<u64>,
    transno: Transno,
    /// In the air; any of them comes next.
    air: Vec<Message>,
    ids: u64,
    /// The other client's change.
    other: Option<(ChangeId, u64)>,
    absent: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut mdt = Mdt::new(MdtConfig::default(), 1, NOW);
        let after = mdt.connect(OWN, NOW);
        mdt.connect(OTHER, NOW);
        mdt.set_callbacks(OWN, true);
        World {
            chance: SplitMix64::new(seed),
            mdt,
            cache: Cache::new(CacheConfig::default(), after),
            truth: BTreeSet::new(),
            transno: Transno::first_of_epoch(1),
            air: Vec::new(),
            ids: 0,
            other: None,
            absent: 0,
        }
    }

    fn ask(&mut self, asked: Asked) {
        self.ids += 1;
        if let Asked::Change { name, .. } = asked {
            self.cache.begin(ChangeId(self.ids), &[WANT]);
            self.cache.begin_name(DIR, hash(name));
        }
        let question = self.cache.ask(NOW);
        self.air.push(Message::Request(self.ids, question, asked));
    }

    fn step(&mut self) {
        let name = self.chance.below(NAMES);
        match self.chance.below(12) {
            0 => self.ask(Asked::Look),
            1 => {
                if let Some(listing) = self.cache.begin_names(DIR, false) {
                    self.ask(Asked::Page { listing, from: 0 });
                }
            }
            2 | 3 => {
                let makes = self.chance.below(2) == 0;
                self.ask(Asked::Change { name, makes });
            }
            4 if self.other.is_none() => {
                self.ids += 1;
                self.other = Some((ChangeId(self.ids), name));
                self.change_other();
            }
            _ if !self.air.is_empty() => {
                let at = self.chance.below(self.air.len() as u64) as usize;
                let message = self.air.swap_remove(at);
                self.deliver(message);
            }
            _ => {}
        }
        self.check();
    }

    fn change_other(&mut self) {
        let Some((id, name)) = self.other else { return };
        if self.mdt.begin(id, Some(OTHER), &[WANT], NOW) == Begun::Go {
            self.toggle(name);
            self.mdt.end(id);
            self.other = None;
        }
        while let Some(output) = self.mdt.poll_output() {
            match output {
                Output::Recall { recalls, .. } => {
                    self.air.extend(recalls.into_iter().map(Message::Recall));
                }
                Output::Ready(_) => self.change_other(),
                Output::Expelled { .. } | Output::Record(_) => panic!("no time passes"),
            }
        }
    }

    fn toggle(&mut self, name: u64) {
        self.transno = self.transno.next();
        if !self.truth.remove(&name) {
            self.truth.insert(name);
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Request(id, question, asked) => self.answer(id, question, asked),
            Message::Reply { id, question, asked, told, page, done } => {
                self.cache.heard(question, self.mdt.answered(OWN, NOW), NOW);
                self.cache.take(question, told, NOW);
                self.hear(id, asked, told, &page, done);
                self.cache.finish(question);
            }
            Message::Recall(recall) => self.cache.recall(recall, NOW),
            Message::Ack(ack) => {
                self.mdt.ack(OWN, &[ack], NOW);
                self.change_other();
            }
        }
        self.air.extend(self.cache.poll_acks().into_iter().map(Message::Ack));
    }

    fn answer(&mut self, id: u64, question: Question, asked: Asked) {
        let (mut page, mut done) = (Vec::new(), false);
        match asked {
            Asked::Look => {}
            Asked::Page { from, .. } => {
                page = self.truth.range(from..).copied().take(PAGE).collect()
            }
            Asked::Change { name, makes } => {
                if self.mdt.begin(ChangeId(id), Some(OWN), &[WANT], NOW) == Begun::Parked {
                    panic!("only this client holds something");
                }
                done = self.truth.contains(&name) != makes;
                if done {
                    self.toggle(name);
                }
                self.mdt.end(ChangeId(id));
            }
        }
        let given = self.mdt.give(OWN, DIR, Bits::UPDATE, NOW);
        let told = Told { fid: DIR, given, as_of: self.transno };
        self.air.push(Message::Reply { id, question, asked, told, page, done });
    }

    fn hear(&mut self, id: u64, asked: Asked, told: Told, page: &[u64], done: bool) {
        match asked {
            Asked::Look => {}
            Asked::Page { listing, .. } => {
                page.iter().for_each(|name| self.cache.add_name(DIR, hash(*name)));
                match page.last() {
                    Some(last) if page.len() == PAGE => {
                        self.ask(Asked::Page { listing, from: last + 1 });
                    }
                    _ => self.cache.complete_names(DIR, listing),
                }
            }
            Asked::Change { name, makes } => {
                match (done, makes) {
                    (true, true) => self.cache.add_name(DIR, hash(name)),
                    (true, false) => self.cache.remove_name(DIR, hash(name)),
                    _ => {}
                }
                self.cache.end_name(DIR, hash(name));
                let as_of = if done { told.as_of } else { Transno::NONE };
                self.cache.end(ChangeId(id), &[WANT], as_of, NOW);
            }
        }
    }

    fn check(&mut self) {
        for name in 0..NAMES {
            if self.cache.name(DIR, hash(name), NOW) == Name::Absent {
                self.absent += 1;
                assert!(!self.truth.contains(&name), "{name} exists");
            }
        }
    }
}

#[test]
fn what_is_taken_for_absent_does_not_exist() {
    let mut absent = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
        absent += world.absent;
    }
    assert!(absent > 1_000, "the sets answer: {absent}");
}

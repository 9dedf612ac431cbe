//! A client reads and changes a directory that another client changes too, while requests and
//! answers overtake each other. A listing that the client knows is the directory.

use std::collections::BTreeSet;

use env_sim::Rng;

use super::*;
use crate::grants::listings::Reading;

/// Names that come and go, as cookies.
const COOKIES: u64 = 6;
const SEEDS: u64 = 200;
const STEPS: u32 = 120;
/// Steps of all seeds with a known listing; 1,500 are usual.
const KNOWN_MIN: usize = 200;

/// A page from its request to its answer.
struct Asked {
    reading: Option<Reading>,
    question: Question,
    after: u64,
    /// Once the MDT has read it: with the number of its grants, and its last change.
    read: Option<(DirPage, Number, Transno)>,
}

/// A change of this client's from its request to its answer.
struct Sent {
    change: Change,
    cookie: u64,
    comes: bool,
    /// Once the MDT has executed or refused it.
    answer: Option<Option<Stat>>,
}

struct World {
    rng: Rng,
    known: Known,
    names: BTreeSet<u64>,
    version: u64,
    asked: Vec<Asked>,
    sent: Vec<Sent>,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            rng: Rng::new(seed),
            known: holding(),
            names: BTreeSet::new(),
            version: 1,
            asked: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn step(&mut self) {
        match self.rng.below(16) {
            0..=1 => self.ask(),
            2..=5 => self.read_page(),
            6..=9 => self.hear_page(),
            10 => self.send(),
            11..=12 => self.execute(),
            13..=14 => self.hear_change(),
            _ => match self.rng.chance(300_000) {
                true => self.change_elsewhere(),
                false => hear_dir(&mut self.known, self.version),
            },
        }
    }

    /// One of them, if there is one.
    fn any(&mut self, of: &[usize]) -> Option<usize> {
        (!of.is_empty()).then(|| of[self.rng.index(of.len())])
    }

    fn ask(&mut self) {
        let names: Vec<u64> = self.names.iter().copied().collect();
        let is_first = names.is_empty() || self.rng.chance(500_000);
        let after = if is_first { 0 } else { names[self.rng.index(names.len())] };
        let reading = self.known.reading(D, after, at(1));
        let question = self.known.cache.ask(at(1));
        self.asked.push(Asked { reading, question, after, read: None });
    }

    fn read_page(&mut self) {
        let waits = |index: &usize| self.asked[*index].read.is_none();
        let waiting: Vec<usize> = (0..self.asked.len()).filter(waits).collect();
        let Some(index) = self.any(&waiting) else { return };
        let after = self.asked[index].after;
        let behind: Vec<u64> = self.names.range(after + 1..).copied().collect();
        let count = behind.len().min(1 + self.rng.index(8));
        let page = page(&behind[..count], count == behind.len());
        self.asked[index].read = Some((page, next_number(), Transno(self.version)));
    }

    fn hear_page(&mut self) {
        let is_read = |index: &usize| self.asked[*index].read.is_some();
        let read: Vec<usize> = (0..self.asked.len()).filter(is_read).collect();
        let Some(index) = self.any(&read) else { return };
        let Asked { reading, question, read, .. } = self.asked.swap_remove(index);
        let Some((mut page, number, as_of)) = read else { return };
        let entries = &mut page.entries;
        self.known.listed(question, entries, Gift::Called, number, as_of, at(1));
        for entry in page.entries.iter().filter(|entry| entry.leased) {
            self.known.stands_for((D, &entry.name), entry.attr.fid());
        }
        self.known.cache.finish(question);
        if let Some(reading) = reading {
            self.known.read(reading, &page, at(1));
        }
    }

    fn send(&mut self) {
        let (cookie, comes) = (1 + self.rng.below(COOKIES), self.rng.chance(500_000));
        let name = cookie.to_string();
        let scope = match comes {
            true => Scope::entry(D, name.as_bytes()),
            false => Scope::removal(D, name.as_bytes()),
        };
        let change = begin(&mut self.known, scope);
        self.sent.push(Sent { change, cookie, comes, answer: None });
    }

    fn execute(&mut self) {
        let waits = |index: &usize| self.sent[*index].answer.is_none();
        let waiting: Vec<usize> = (0..self.sent.len()).filter(waits).collect();
        let Some(index) = self.any(&waiting) else { return };
        let sent = &mut self.sent[index];
        let happens = match sent.comes {
            true => self.names.insert(sent.cookie),
            false => self.names.remove(&sent.cookie),
        };
        self.version += u64::from(happens);
        let version = self.version;
        sent.answer = Some(happens.then(|| made(dir(D, version), version)));
    }

    fn hear_change(&mut self) {
        let is_answered = |index: &usize| self.sent[*index].answer.is_some();
        let answered: Vec<usize> = (0..self.sent.len()).filter(is_answered).collect();
        let Some(index) = self.any(&answered) else { return };
        let Sent { change, answer, .. } = self.sent.swap_remove(index);
        match answer.flatten() {
            Some(stat) => end(&mut self.known, &change, &stat),
            None => {
                self.known.end_silently(change.id, &change.scope, at(1));
                self.known.cache.finish(change.question);
            }
        }
    }

    /// Another client changes a name, after this client has given its grant back.
    fn change_elsewhere(&mut self) {
        let recall = Recall { fid: D, bits: Bits::UPDATE, number: next_number() };
        self.known.cache.recall(recall, at(1));
        let cookie = 1 + self.rng.below(COOKIES);
        if !self.names.insert(cookie) {
            self.names.remove(&cookie);
        }
        self.version += 1;
    }

    /// Whether a listing is known.
    fn check(&mut self, seed: u64) -> bool {
        for cookie in 1..=COOKIES {
            let is_absent = self.known.has_no_name((D, cookie.to_string().as_bytes()), at(2));
            assert!(!is_absent || !self.names.contains(&cookie), "seed {seed}: {cookie} is there");
        }
        let known = self.known.page(D, (0, 1 << 16), &|_| false, at(2));
        let Some((page, _)) = known else { return false };
        let listed: BTreeSet<u64> = page.entries.iter().map(|entry| entry.cookie).collect();
        assert_eq!((&listed, page.at_end), (&self.names, true), "seed {seed}");
        true
    }
}

#[test]
fn a_known_listing_is_the_directory_whatever_overtakes_another() {
    let mut known = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
            known += usize::from(world.check(seed));
        }
    }
    assert!(known >= KNOWN_MIN, "listings were known after {known} steps only");
}

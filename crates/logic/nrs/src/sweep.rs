//! Groups in rounds, by offset inside a batch. ORR and TRR share this and define the groups.
//!
//! Only the batch being served is kept in order, and it is put in order when its turn comes. A
//! batch that waits costs nothing but its links, and no sort is longer than a quantum.
//!
//! Invariants
//! - Inside a batch, requests leave by (first byte, last byte, arrival), as far as they were there
//!   in time.
//! - `sorted` holds exactly the requests of the batch `serving`, which is the front one.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::marker::PhantomData;

use queues::Key;
use types::Instant;

use crate::command::number_in;
use crate::limits::{GROUPS_IDLE_LIMIT, QUANTUM_MAX};
use crate::rounds::{GROUPS_IDLE_MAX, Rounds};
use crate::{Broken, Id, Io, Mode, Next, Policy, Queue, Refusal, Refused, Removal, Request};

/// RPCs of a batch.
const QUANTUM_DEFAULT: u64 = 256;

/// Logical offsets are compared by page.
const PAGE_BYTES: u64 = 4096;

/// What a group is.
pub(crate) trait Target {
    const NAME: &'static str;
    /// What the groups are called in its statistics.
    const GROUPS: &'static str;
    /// The group of a request; none: not one for this policy.
    fn key<R: Request>(request: &R) -> Option<Key>;
    /// The line of the request log.
    fn line<R: Request>(request: &R, round: u64) -> String;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OffsetType {
    Physical,
    Logical,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Supported {
    Reads,
    Writes,
    ReadsAndWrites,
}

/// What becomes of a request that comes behind the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweeping {
    /// The sweep goes back for it, within its batch.
    Restart,
    /// It waits for the group's next batch.
    Cscan,
}

/// First byte, last byte, arrival.
type Place = (u64, u64, u64);

/// See the head of the file.
pub(crate) struct Sweep<T> {
    rounds: Rounds,
    offset_type: OffsetType,
    supported: Supported,
    sweeping: Sweeping,
    serving: Option<u32>, // the batch that `sorted` holds
    sorted: BTreeSet<(Place, Id)>,
    at: Option<Place>, // where the sweep through `serving` is
    target: PhantomData<T>,
}

impl<T: Target> Sweep<T> {
    pub(crate) fn new(seed: u64) -> Sweep<T> {
        Sweep {
            rounds: Rounds::new(QUANTUM_DEFAULT, seed),
            offset_type: OffsetType::Physical,
            supported: Supported::Reads,
            sweeping: Sweeping::Restart,
            serving: None,
            sorted: BTreeSet::new(),
            at: None,
            target: PhantomData,
        }
    }

    fn takes(&self, io: Io) -> bool {
        match io {
            Io::Read => self.supported != Supported::Writes,
            Io::Write => self.supported != Supported::Reads,
            Io::Other => false,
        }
    }

    /// Where a request lies; one without a range lies at the start.
    fn place<R: Request>(&self, queue: &Queue<R>, id: Id) -> Place {
        let (request, seq) = (queue.request(id), queue.seq(id));
        let Some(range) = request.range() else { return (0, 0, seq) };
        let start = range.start() - range.start() % PAGE_BYTES;
        let end = range.end().div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES) - 1;
        match request.physical_start() {
            Some(physical) if self.offset_type == OffsetType::Physical => {
                (physical, physical.saturating_add(end - start), seq)
            }
            _ => (start, end, seq),
        }
    }

    /// Puts the front batch in order, if it is not.
    fn serve<R: Request>(&mut self, queue: &Queue<R>, batch: u32) {
        if self.serving == Some(batch) {
            return;
        }
        self.rounds.settle(batch);
        self.sorted = self.rounds.ids(batch).map(|id| (self.place(queue, id), id)).collect();
        (self.serving, self.at) = (Some(batch), None);
    }

    fn sort_by(&mut self, offset_type: OffsetType) {
        if offset_type != self.offset_type {
            self.offset_type = offset_type;
            (self.serving, self.at) = (None, None); // put in the new order at the next turn
            self.sorted.clear();
        }
    }

    fn leave<R: Request>(&mut self, queue: &mut Queue<R>, id: Id, now: Instant, in_turn: bool) {
        let last = self.rounds.leave(queue, id, now, in_turn);
        if last && self.sorted.is_empty() {
            (self.serving, self.at) = (None, None);
        }
    }
}

impl<R: Request, T: Target> Policy<R> for Sweep<T> {
    fn wants_places(&self) -> bool {
        self.offset_type == OffsetType::Physical
    }

    fn enqueue(&mut self, queue: &mut Queue<R>, id: Id, now: Instant) -> Result<(), Refused> {
        let request = queue.request(id);
        if !self.takes(request.io()) || request.export().is_none() {
            return Err(Refused::NotMine);
        }
        let key = T::key(request).ok_or(Refused::NotMine)?;
        let place = self.place(queue, id);
        let behind = self.at.is_some_and(|at| (place.0, place.1) < (at.0, at.1));
        if behind && self.sweeping == Sweeping::Cscan && self.rounds.open_batch(key) == self.serving
        {
            self.rounds.close(key);
        }
        let batch = self.rounds.push(queue, id, key, 1, now);
        if self.serving == Some(batch) {
            self.sorted.insert((place, id));
        }
        Ok(())
    }

    fn dequeue(&mut self, queue: &mut Queue<R>, now: Instant, _force: bool) -> Next {
        let Some(batch) = self.rounds.front() else { return Next::Empty };
        self.serve(queue, batch);
        let Some((place, id)) = self.sorted.pop_first() else {
            return Next::Broken(Broken::new("a batch is in a round without a request"));
        };
        self.at = Some(place);
        self.leave(queue, id, now, true);
        Next::Take(id)
    }

    fn remove(
        &mut self,
        queue: &mut Queue<R>,
        id: Id,
        now: Instant,
        _why: Removal,
    ) -> Result<(), Broken> {
        let served = self.serving == Some(self.rounds.batch_of(queue, id));
        if served && !self.sorted.remove(&(self.place(queue, id), id)) {
            return Err(Broken::new("a request of the batch being served has no place in it"));
        }
        self.leave(queue, id, now, false);
        Ok(())
    }

    fn get(&self, label: &str, _now: Instant) -> Result<String, Refusal> {
        Ok(match label {
            "quantum" => self.rounds.quantum().to_string(),
            "objects_max" => self.rounds.groups_idle_max().to_string(),
            "offset_type" => word(&OFFSET_TYPES, self.offset_type),
            "supported" => word(&SUPPORTED, self.supported),
            "sweep" => word(&SWEEPS, self.sweeping),
            _ => {
                return Err(Refusal::invalid(format!("'{label}' is not a tunable of {}", T::NAME)));
            }
        })
    }

    fn set(
        &mut self,
        _queue: &mut Queue<R>,
        label: &str,
        value: &str,
        mode: Mode,
        _now: Instant,
    ) -> Result<(), Refusal> {
        let apply = mode == Mode::Apply;
        match label {
            "quantum" => {
                let quantum = number_in(label, value, 1..=QUANTUM_MAX)?;
                apply.then(|| self.rounds.set_quantum(quantum));
            }
            "objects_max" => {
                let count = number_in(label, value, 0..=GROUPS_IDLE_LIMIT)?;
                apply.then(|| self.rounds.set_groups_idle_max(count));
            }
            "offset_type" => {
                let offset_type = meaning(label, &OFFSET_TYPES, value)?;
                apply.then(|| self.sort_by(offset_type));
            }
            "supported" => {
                let supported = meaning(label, &SUPPORTED, value)?;
                apply.then(|| self.supported = supported);
            }
            "sweep" => {
                let sweeping = meaning(label, &SWEEPS, value)?;
                apply.then(|| self.sweeping = sweeping);
            }
            _ => {
                return Err(Refusal::invalid(format!("'{label}' is not a tunable of {}", T::NAME)));
            }
        }
        Ok(())
    }

    fn reset(&mut self, _queue: &mut Queue<R>, _now: Instant) {
        self.rounds.set_quantum(QUANTUM_DEFAULT);
        self.rounds.set_groups_idle_max(GROUPS_IDLE_MAX);
        self.sort_by(OffsetType::Physical);
        (self.supported, self.sweeping) = (Supported::Reads, Sweeping::Restart);
    }

    fn stats(&self, out: &mut String) {
        let (groups, round) = (self.rounds.groups(), self.rounds.round());
        let _ = writeln!(
            out,
            "  {}: {groups}\n  round: {round}\n  bytes: {}",
            T::GROUPS,
            self.rounds.bytes()
        );
    }

    fn log(&self, queue: &Queue<R>, id: Id) -> String {
        T::line(queue.request(id), self.rounds.last().round)
    }
}

const OFFSET_TYPES: [(&str, OffsetType); 2] =
    [("physical", OffsetType::Physical), ("logical", OffsetType::Logical)];
const SUPPORTED: [(&str, Supported); 3] = [
    ("reads", Supported::Reads),
    ("writes", Supported::Writes),
    ("reads_and_writes", Supported::ReadsAndWrites),
];
const SWEEPS: [(&str, Sweeping); 2] = [("restart", Sweeping::Restart), ("cscan", Sweeping::Cscan)];

fn word<V: PartialEq>(words: &[(&str, V)], value: V) -> String {
    words.iter().find(|(_, of)| *of == value).map_or(String::new(), |(word, _)| (*word).to_owned())
}

fn meaning<V: Copy>(label: &str, words: &[(&str, V)], value: &str) -> Result<V, Refusal> {
    words.iter().find(|(word, _)| *word == value).map(|(_, of)| *of).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Refusal::invalid(format!("{label} '{value}': expected {}", known.join(", ")))
    })
}

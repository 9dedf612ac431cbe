//! Groups in rounds, FIFO inside a batch. CRR-N and CRR-E share this and define the groups.

use std::fmt::Write as _;
use std::marker::PhantomData;

use queues::Key;
use types::Instant;

use crate::command::number_in;
use crate::limits::QUANTUM_MAX;
use crate::rounds::{Place, Rounds, Stood};
use crate::{Broken, Id, Mode, Next, Policy, Queue, Refusal, Refused, Removal, Request};

/// RPCs of a batch: a client's RPCs in flight by default.
const QUANTUM_DEFAULT: u64 = 8;

/// What a group is.
pub(crate) trait By {
    const NAME: &'static str;
    /// The group of a request; none: not one for this policy.
    fn key<R: Request>(request: &R) -> Option<Key>;
}

/// In what a quantum is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Rpc,
    Kib,
}

/// See the head of the file.
pub(crate) struct Turns<B> {
    rounds: Rounds,
    unit: Unit,
    by: PhantomData<B>,
}

impl<B> Turns<B> {
    pub(crate) fn new(seed: u64) -> Turns<B> {
        let mut rounds = Rounds::new(QUANTUM_DEFAULT, seed);
        rounds.set_place(Place::Keep);
        Turns { rounds, unit: Unit::Rpc, by: PhantomData }
    }
}

impl<R: Request, B: By> Policy<R> for Turns<B> {
    fn enqueue(&mut self, queue: &mut Queue<R>, id: Id, now: Instant) -> Result<(), Refused> {
        let request = queue.request(id);
        let key = B::key(request).ok_or(Refused::NotMine)?;
        let cost = match self.unit {
            Unit::Rpc => 1,
            Unit::Kib => request.bytes().div_ceil(1024),
        };
        self.rounds.push(queue, id, key, cost, now);
        Ok(())
    }

    fn dequeue(&mut self, queue: &mut Queue<R>, now: Instant, _force: bool) -> Next {
        let Some(batch) = self.rounds.front() else { return Next::Empty };
        match self.rounds.pop(queue, batch, now) {
            Some(id) => Next::Take(id),
            None => Next::Broken(Broken::new("a batch is in a round without a request")),
        }
    }

    fn remove(
        &mut self,
        queue: &mut Queue<R>,
        id: Id,
        now: Instant,
        _why: Removal,
    ) -> Result<(), Broken> {
        self.rounds.leave(queue, id, now, false);
        Ok(())
    }

    fn get(&self, label: &str, _now: Instant) -> Result<String, Refusal> {
        match label {
            "quantum" => Ok(self.rounds.quantum().to_string()),
            "unit" => Ok(if self.unit == Unit::Rpc { "rpc" } else { "kib" }.to_owned()),
            "place" => Ok(match self.rounds.place() {
                Place::Keep => "keep",
                Place::Lustre => "lustre",
            }
            .to_owned()),
            _ => Err(Refusal::invalid(format!("'{label}' is not a tunable of {}", B::NAME))),
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
        match label {
            "quantum" => {
                let quantum = number_in(label, value, 1..=QUANTUM_MAX)?;
                if mode == Mode::Apply {
                    self.rounds.set_quantum(quantum);
                }
            }
            "unit" => {
                let unit = match value {
                    "rpc" => Unit::Rpc,
                    "kib" => Unit::Kib,
                    _ => {
                        return Err(Refusal::invalid(format!(
                            "unit '{value}': expected rpc or kib"
                        )));
                    }
                };
                if mode == Mode::Apply && unit != self.unit {
                    self.unit = unit;
                    self.rounds.change_unit();
                }
            }
            "place" => {
                let place = match value {
                    "keep" => Place::Keep,
                    "lustre" => Place::Lustre,
                    _ => {
                        return Err(Refusal::invalid(format!(
                            "place '{value}': expected keep or lustre"
                        )));
                    }
                };
                if mode == Mode::Apply {
                    self.rounds.set_place(place);
                }
            }
            _ => {
                return Err(Refusal::invalid(format!("'{label}' is not a tunable of {}", B::NAME)));
            }
        }
        Ok(())
    }

    fn reset(&mut self, _queue: &mut Queue<R>, _now: Instant) {
        self.rounds.set_quantum(QUANTUM_DEFAULT);
        self.rounds.set_place(Place::Keep);
        if self.unit != Unit::Rpc {
            self.unit = Unit::Rpc;
            self.rounds.change_unit();
        }
    }

    fn stats(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "  clients: {}\n  round: {}\n  bytes: {}",
            self.rounds.groups(),
            self.rounds.round(),
            self.rounds.bytes()
        );
    }

    fn log(&self, queue: &Queue<R>, id: Id) -> String {
        let (nid, Stood { round, seq }) = (queue.request(id).nid(), self.rounds.last());
        format!("NRS start {} request from 12345-{nid}, round {round}, seq: {seq}", B::NAME)
    }
}

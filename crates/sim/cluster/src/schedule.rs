//! The schedule of a run: everything that its seed draws, or a part of it.
//!
//! A whole run is recorded: each operation of a user and each act of the nemesis has a number and
//! the time at which it began. A part of them is repeated at those times, or as soon after as
//! possible. Races, the ghost and the blackout belong to the scenario and always run.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use env_sim::Rng;
use oracle::Op;
use types::Instant;

/// Numbers of operations or acts, written as `1-4,9`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(pub BTreeSet<u32>);

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

/// A schedule is written as `1-4,9` for numbers and `0:1-4;2:7` for the operations of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseScheduleError;

impl fmt::Display for ParseScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "numbers are 1-4,9; operations of users 0 and 2 are 0:1-4,9;2:7")
    }
}

impl std::error::Error for ParseScheduleError {}

impl FromStr for Numbers {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Numbers, ParseScheduleError> {
        let mut numbers = BTreeSet::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.parse::<u32>().map_err(|_| ParseScheduleError);
            numbers.extend(number(first)?..=number(last)?);
        }
        Ok(Numbers(numbers))
    }
}

/// Operations by user, written as `0:1-4;2:7`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ops(pub BTreeMap<u32, Numbers>);

impl fmt::Display for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users: Vec<_> =
            self.0.iter().map(|(user, numbers)| format!("{user}:{numbers}")).collect();
        write!(f, "{}", users.join(";"))
    }
}

impl FromStr for Ops {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Ops, ParseScheduleError> {
        let mut ops = BTreeMap::new();
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let (user, numbers) = part.split_once(':').ok_or(ParseScheduleError)?;
            ops.insert(user.parse().map_err(|_| ParseScheduleError)?, numbers.parse()?);
        }
        Ok(Ops(ops))
    }
}

/// Operations and acts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Operations of the users.
    pub ops: Ops,
    /// Acts of the nemesis that begin something.
    pub faults: Numbers,
}

impl Schedule {
    /// How many operations and how many faults.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.ops.0.values().map(|numbers| numbers.0.len()).sum(), self.faults.0.len())
    }

    pub(crate) fn op_list(&self) -> Vec<(u32, u32)> {
        let users = self.ops.0.iter();
        users.flat_map(|(user, numbers)| numbers.0.iter().map(|number| (*user, *number))).collect()
    }

    pub(crate) fn with_ops(&self, ops: &[(u32, u32)]) -> Schedule {
        let mut left = Schedule { faults: self.faults.clone(), ..Schedule::default() };
        ops.iter().for_each(|(user, number)| left.add_op(*user, *number));
        left
    }

    pub(crate) fn with_faults(&self, faults: &[u32]) -> Schedule {
        let faults = Numbers(faults.iter().copied().collect());
        Schedule { ops: self.ops.clone(), faults }
    }

    fn add_op(&mut self, user: u32, number: u32) {
        self.ops.0.entry(user).or_default().0.insert(number);
    }
}

impl fmt::Display for Schedule {
    /// As the arguments that replay it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--keep-ops '{}' --keep-faults '{}'", self.ops, self.faults)
    }
}

/// An operation of a user, with the time at which it began.
pub(crate) struct DoneOp {
    pub(crate) number: u32,
    pub(crate) at: Instant,
    pub(crate) op: Op,
}

/// An act of the nemesis: when it began, and from where its chances were drawn.
pub(crate) struct DoneAct {
    pub(crate) at: Instant,
    pub(crate) rng: Rng,
}

/// What a whole run did, as far as it came. It outlives a run that panics.
#[derive(Default)]
pub struct Recording {
    pub(crate) ops: RefCell<BTreeMap<u32, Vec<Rc<DoneOp>>>>,
    pub(crate) acts: RefCell<Vec<Rc<DoneAct>>>,
}

impl Recording {
    /// All of it.
    #[must_use]
    pub fn whole(&self) -> Schedule {
        let mut whole = Schedule::default();
        for (user, ops) in &*self.ops.borrow() {
            ops.iter().for_each(|done| whole.add_op(*user, done.number));
        }
        whole.faults.0 = (0..self.acts.borrow().len() as u32).collect();
        whole
    }
}

/// Whether a run draws what it does, and is recorded, or repeats a part of what was recorded.
pub(crate) enum Plan {
    Draw(Rc<Recording>),
    Repeat(Rc<Recording>, Schedule),
}

impl Plan {
    /// A user's operations to repeat, in order; nothing where they are drawn.
    pub(crate) fn ops_to_repeat(&self, user: u32) -> Option<VecDeque<Rc<DoneOp>>> {
        let Plan::Repeat(recording, kept) = self else { return None };
        let (ops, numbers) = (recording.ops.borrow(), kept.ops.0.get(&user));
        let ops = ops.get(&user).into_iter().flatten();
        let is_kept = |number: &u32| numbers.is_some_and(|numbers| numbers.0.contains(number));
        Some(ops.filter(|done| is_kept(&done.number)).cloned().collect())
    }

    /// The same for the nemesis.
    pub(crate) fn acts_to_repeat(&self) -> Option<VecDeque<Rc<DoneAct>>> {
        let Plan::Repeat(recording, kept) = self else { return None };
        let acts = recording.acts.borrow();
        let acts = (0..).zip(acts.iter()).filter(|(number, _)| kept.faults.0.contains(number));
        Some(acts.map(|(_, act)| act.clone()).collect())
    }

    pub(crate) fn began_op(&self, user: u32, at: Instant, op: &Op) {
        if let Plan::Draw(recording) = self {
            let mut ops = recording.ops.borrow_mut();
            let ops = ops.entry(user).or_default();
            let number = u32::try_from(ops.len()).expect("a run has far fewer operations");
            ops.push(Rc::new(DoneOp { number, at, op: op.clone() }));
        }
    }

    pub(crate) fn began_act(&self, at: Instant, rng: &Rng) {
        if let Plan::Draw(recording) = self {
            recording.acts.borrow_mut().push(Rc::new(DoneAct { at, rng: rng.clone() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_as_it_is_written() {
        for text in ["", "1-4,9", "0", "3-4"] {
            assert_eq!(text.parse::<Numbers>().expect("good").to_string(), text);
        }
        for text in ["", "0:1-4,9;2:7", "5:0"] {
            assert_eq!(text.parse::<Ops>().expect("good").to_string(), text);
        }
        assert!("1-".parse::<Numbers>().is_err() && "1-4".parse::<Ops>().is_err());
    }
}

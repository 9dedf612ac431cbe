//! Histories: calls of several users on the same thing, each with its begin and its end. The search
//! decides whether some order explains all answers.
//!
//! An order explains a history if every call takes effect at one moment between its begin and its
//! end. Each answer has to equal the answer of a [`Spec`] at that moment (linearizability). The
//! search is Wing and Gong's with Lowe's memory: a state that was tried with the same calls still
//! to come is not tried again.
//!
//! Things are independent: a history of all of them is explained exactly if each single history is.
//! So each key has a history of its own, which keeps the search small.
//!
//! A call without an end has an unknown outcome, because its client died or was evicted. It takes
//! effect at any moment after its begin, or never.
//!
//! Pure: times come in as numbers, the verdict goes out as a value.

mod bytes;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use bytes::{Append, Block, BlockCall, EndCall, Pages, PagesCall, check_ends};
pub use names::{Names, NamesCall, RenameHow, Seen, Told, Tree};

/// Points that a search remembers. Few calls overlap, so some hundred are usual; a history that
/// needs more is not decided, and that is an error of its own.
const SEARCHES_MAX: usize = 300_000;

/// Calls that may be under way at the same time, those of unknown outcome included.
const CALLS_MAX: usize = 64;

/// States that a breach shows.
const SHOWN_MAX: usize = 4;

/// What calls on one thing answer.
pub trait Spec {
    type State: Clone + Ord + fmt::Debug;
    /// A call together with its answer, where there is one.
    type Call: fmt::Debug;

    /// The state before the first call.
    fn start(&self) -> Self::State;

    /// The state after `call`; nothing where it cannot be answered so in `state`.
    fn step(&self, state: &Self::State, call: &Self::Call) -> Option<Self::State>;

    /// Whether the call leaves every state as it is. It is then explained as early as possible.
    fn is_read(&self, call: &Self::Call) -> bool;
}

/// A call of some user.
#[derive(Clone, Debug)]
pub struct Entry<C> {
    pub who: u32,
    /// When it began, in nanoseconds.
    pub begin: u64,
    /// When its answer came; nothing for an unknown outcome.
    pub end: Option<u64>,
    pub call: C,
}

/// Why no order explains a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach(pub String);

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Whether some order explains all of `entries`.
///
/// # Errors
/// The first call in time that no order explains, and what it might have been answered.
pub fn check<S: Spec>(spec: &S, entries: &[Entry<S::Call>]) -> Result<(), Breach> {
    let unknown = entries.iter().filter(|entry| entry.end.is_none()).count();
    let mut outcome = Ok(());
    // mostly none of the unknown ones came to pass, or few
    for limit in 0..=unknown {
        outcome = Search::new(spec, entries, limit)?.run();
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// A call begins or ends.
struct Moment {
    is_end: bool,
    index: usize,
    /// Its place among the calls under way.
    place: usize,
    /// All calls under way, with their places; the one that ends is still among them. Those of
    /// unknown outcome are the first.
    under_way: Vec<(usize, usize)>,
    /// Places of calls of unknown outcome.
    unknown: u64,
}

/// The moments of a history in time. A place is free again after its call's end.
fn moments<C>(entries: &[Entry<C>]) -> Result<Vec<Moment>, Breach> {
    let mut times: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * entries.len());
    for (index, entry) in entries.iter().enumerate() {
        times.push((entry.begin, false, index));
        times.extend(entry.end.map(|end| (end, true, index)));
    }
    // a call that begins when another one ends overlaps it
    times.sort_unstable();
    let mut places: Vec<Option<usize>> = vec![None; CALLS_MAX];
    let mut moments = Vec::with_capacity(times.len());
    for (_, is_end, index) in times {
        let wanted = is_end.then_some(index);
        let Some(place) = places.iter().position(|at| *at == wanted) else {
            return Err(Breach(format!("more than {CALLS_MAX} calls overlap: not decided")));
        };
        places[place] = Some(index);
        let calls = places.iter().enumerate();
        let mut under_way: Vec<_> = calls.filter_map(|(place, at)| Some((place, (*at)?))).collect();
        under_way.sort_by_key(|(_, index)| entries[*index].end.is_some());
        let unknown = under_way.iter().filter(|(_, index)| entries[*index].end.is_none());
        let unknown = unknown.fold(0, |bits, (place, _)| bits | 1 << place);
        moments.push(Moment { is_end, index, place, under_way, unknown });
        if is_end {
            places[place] = None;
        }
    }
    Ok(moments)
}

/// A state, and which of the calls under way have taken effect, by place.
type Point<S> = (<S as Spec>::State, u64);

struct Search<'a, S: Spec> {
    spec: &'a S,
    entries: &'a [Entry<S::Call>],
    /// So many calls of unknown outcome may take effect.
    limit: usize,
    moments: Vec<Moment>,
    /// Points still to be followed, with the moment that comes next; the last one is the next.
    todo: Vec<(usize, Point<S>)>,
    /// Points at which more than one call might take effect, without the calls of unknown outcome,
    /// and which of those had taken effect when one came there. With fewer of them more can follow.
    seen: BTreeMap<(usize, Point<S>), Vec<u64>>,
    seen_count: usize,
    /// The latest moment that was reached, and the states there.
    furthest: (usize, BTreeSet<S::State>),
}

impl<'a, S: Spec> Search<'a, S> {
    fn new(
        spec: &'a S,
        entries: &'a [Entry<S::Call>],
        limit: usize,
    ) -> Result<Search<'a, S>, Breach> {
        let (moments, todo) = (moments(entries)?, vec![(0, (spec.start(), 0))]);
        let (seen, seen_count, furthest) = (BTreeMap::new(), 0, (0, BTreeSet::new()));
        Ok(Search { spec, entries, limit, moments, todo, seen, seen_count, furthest })
    }

    fn run(mut self) -> Result<(), Breach> {
        while let Some((at, point)) = self.todo.pop() {
            let Some(moment) = self.moments.get(at) else { return Ok(()) };
            if at > self.furthest.0 {
                self.furthest = (at, BTreeSet::new());
            }
            if at == self.furthest.0 && self.furthest.1.len() < SHOWN_MAX {
                self.furthest.1.insert(point.0.clone());
            }
            let bit = 1 << moment.place;
            match moment.is_end {
                false => {
                    let point = self.settle(moment, point);
                    self.todo.push((at + 1, point));
                }
                true if point.1 & bit != 0 => self.todo.push((at + 1, (point.0, point.1 & !bit))),
                true => self.branch(at, point)?,
            }
        }
        Err(self.breach())
    }

    /// Reads that are answered so in this state have taken effect: waiting would explain no more.
    fn settle(&self, moment: &Moment, (state, mut done): Point<S>) -> Point<S> {
        for (place, index) in &moment.under_way {
            let call = &self.entries[*index].call;
            if done & 1 << place == 0
                && self.spec.is_read(call)
                && self.spec.step(&state, call).is_some()
            {
                done |= 1 << place;
            }
        }
        (state, done)
    }

    /// The call that ends must have taken effect: it does so now, or some other one did before.
    fn branch(&mut self, at: usize, point: Point<S>) -> Result<(), Breach> {
        let moment = &self.moments[at];
        let of_its_own = |(place, _): &&(usize, usize)| *place == moment.place;
        let others = moment.under_way.iter().filter(|call| !of_its_own(call));
        let calls = others.chain(moment.under_way.iter().filter(of_its_own));
        let may_spend = ((point.1 & moment.unknown).count_ones() as usize) < self.limit;
        let next: Vec<_> = calls
            .filter(|(place, _)| point.1 & 1 << place == 0)
            .filter(|(place, _)| may_spend || moment.unknown & 1 << place == 0)
            .filter_map(|(place, index)| {
                let state = self.spec.step(&point.0, &self.entries[*index].call)?;
                Some((at, self.settle(moment, (state, point.1 | 1 << place))))
            })
            .collect();
        let (spent, others) = (point.1 & moment.unknown, point.1 & !moment.unknown);
        let before = self.seen.entry((at, (point.0, others))).or_default();
        if !before.iter().any(|before| before & !spent == 0) {
            before.push(spent);
            self.seen_count += 1;
            self.todo.extend(next);
        }
        match self.seen_count > SEARCHES_MAX {
            true => Err(Breach(format!(
                "not decided within {SEARCHES_MAX} searches; so far {}",
                self.breach()
            ))),
            false => Ok(()),
        }
    }

    fn describe(&self, index: usize) -> String {
        let entry = &self.entries[index];
        let seconds = |ns: u64| ns as f64 / 1e9;
        let end = entry.end.map_or("never".to_owned(), |end| format!("{:.6}", seconds(end)));
        format!("user {}: {:?} from {:.6} to {end} s", entry.who, entry.call, seconds(entry.begin))
    }

    fn breach(&self) -> Breach {
        let (moment, states) = (&self.moments[self.furthest.0], &self.furthest.1);
        let shown: Vec<_> = states.iter().map(|state| format!("{state:?}")).collect();
        let others = moment.under_way.iter().filter(|(_, other)| *other != moment.index);
        let others: Vec<_> = others.map(|(_, other)| self.describe(*other)).collect();
        Breach(format!(
            "no order explains {}; before it was {}; under way: [{}]",
            self.describe(moment.index),
            shown.join(" or "),
            others.join("; ")
        ))
    }
}

#[cfg(test)]
mod tests;

//! **matrix**: an MDT dies at every point of an operation of several MDTs.
//!
//! A seed names an operation, with a rival call on the same names, and whether the caller dies with
//! the MDT. The operation is repeated in directories of its own, again and again. Each time one MDT
//! dies right after its k-th applied set, commit or message. k rises from 1 until the operation is
//! over before that point; so every point is reached. All of this is done twice: the operation
//! begins first, and then its rival does. Later seeds draw the points and which call begins first,
//! and the same or another MDT dies once more during the recovery. The scenario `pairs` tries all
//! pairs of points.
//!
//! After each time:
//! - some order of the two calls explains all answers and the tree. The call of a caller that died
//!   has happened, or not;
//! - the records of all MDTs fit together, and no operation is left undone.

mod calls;
mod cases;
mod pairs;

pub use pairs::pair_rows;

use std::cell::RefCell;
use std::rc::Rc;

use client::Client;
use env_sim::NodeHandle;
use oracle::{Answer, Model, Op, Placing, Runner, explains, mkdir_at, read_summary, test_ctx};
use osd::mem::Deed;
use types::{Errno, Fid, Span};

use super::Stage;
use crate::fsck;
use crate::run::{PEACE_MAX, remove_below};
use crate::server::CrashPoint;
use calls::Call;
use cases::{CASES, Case, FIRST_CASES};

/// Seeds from 1 on that try every point in both orders: each case with a caller that lives and one
/// that dies.
const SINGLE: u64 = 2 * CASES.len() as u64;

/// No operation has so many points.
const POINTS_MAX: u64 = 200;
/// Cells with two deaths in one run.
const DOUBLES: u32 = 40;
/// The first point is at most this one then, and the second one.
const DRAWN_MAX: (u64, u64) = (16, 16);
/// The second call begins so much later at most.
const LATER: Span = Span::millis(2);
/// How often it is looked whether all is over.
const LOOK: Span = Span::millis(20);
/// A second point is a message within this: later ones show that a server lives. It is a set or a
/// commit at any time of the recovery.
const AGAIN_MAX: Span = Span::secs(3);

/// A kind of point, by its count.
type Kind = fn(u64) -> CrashPoint;

const KINDS: [Kind; 3] = [
    |count| CrashPoint::Deed(Deed::Apply, count),
    |count| CrashPoint::Deed(Deed::Commit, count),
    CrashPoint::Send,
];

/// An MDT died, and one died again while that was repaired.
pub const DIED_AGAIN: &str = "sim: an MDT died during the recovery from a death in the matrix";

/// A caller, and what was answered.
type Who = (NodeHandle, Client);
type Slot = Rc<RefCell<Option<Result<Answer, client::Error>>>>;

/// Where MDTs die.
#[derive(Clone, Copy, Debug)]
struct Death {
    mdt: u32,
    point: CrashPoint,
    /// During the recovery.
    again: Option<(u32, CrashPoint)>,
    /// The rival calls first.
    is_rival_first: bool,
}

/// Those who call, over all cells.
struct Cast {
    subject: Who,
    rival: Who,
    /// Prepares each cell, and looks at what came of it.
    looker: Who,
}

/// One repetition, under way.
struct Cell {
    base: Fid,
    before: Model,
    calls: [(Call, Slot); 2],
    /// The caller of the first one is dead.
    is_dead: bool,
}

/// The case of a seed, and whether its caller dies with the MDT.
fn case_of(seed: u64) -> (&'static Case, bool) {
    let index = seed.saturating_sub(1);
    let (first, all) = (FIRST_CASES as u64, CASES.len() as u64);
    let (from, count, index) = match index {
        index if index < 2 * first => (0, first, index),
        index if index < SINGLE => (first, all - first, index - 2 * first),
        index => (0, all, index - SINGLE),
    };
    (&CASES[(from + index % count) as usize], (index / count) % 2 == 1)
}

/// Cells of a seed in which an MDT dies during the recovery too.
#[cfg(test)]
pub(crate) fn cells_of_two_deaths(seed: u64) -> u32 {
    if seed.saturating_sub(1) < SINGLE { 0 } else { DOUBLES }
}

impl Stage<'_> {
    pub(super) fn matrix(&mut self, seed: u64) -> Result<(), String> {
        let (case, dies) = case_of(seed);
        let mut cast = self.cast();
        if seed.saturating_sub(1) < SINGLE {
            return self.every_point(&mut cast, case, dies);
        }
        for _ in 0..DOUBLES {
            let death = self.draw_death(case);
            self.cell(&mut cast, (case, dies), death)?;
        }
        Ok(())
    }

    fn cast(&mut self) -> Cast {
        Cast {
            subject: self.enter("subject"),
            rival: self.enter("rival"),
            looker: self.enter("looker"),
        }
    }

    /// In both orders of the calls. MDTs that are only asked come last: draws before them stay.
    fn every_point(&mut self, cast: &mut Cast, case: &Case, dies: bool) -> Result<(), String> {
        for mdts in [case.mdts, case.asked()] {
            let mut deaths = 0;
            for is_rival_first in [false, true] {
                for mdt in mdts {
                    for point in KINDS {
                        let death = |count| {
                            let (mdt, point) = (*mdt, point(count));
                            Death { mdt, point, again: None, is_rival_first }
                        };
                        deaths += self.points_in_a_row(cast, (case, dies), death)?;
                    }
                }
            }
            if deaths == 0 && !mdts.is_empty() {
                return Err(format!("{}: none of the MDTs {mdts:?} ever died", case.name));
            }
        }
        Ok(())
    }

    /// Until the operation is over before the point. Returns how many points were reached.
    fn points_in_a_row(
        &mut self,
        cast: &mut Cast,
        (case, dies): (&Case, bool),
        death: impl Fn(u64) -> Death,
    ) -> Result<u64, String> {
        for count in 1..=POINTS_MAX {
            if self.cell(cast, (case, dies), death(count))? == 0 {
                return Ok(count - 1);
            }
        }
        Err(format!("{}: {:?} and no end", case.name, death(POINTS_MAX)))
    }

    fn draw_death(&mut self, case: &Case) -> Death {
        let mut draw = |most| {
            let count = self.rng.range(1, most);
            let mdt = *self.rng.pick(case.mdts);
            (mdt, self.rng.pick(&KINDS)(count))
        };
        let (mdt, point) = draw(DRAWN_MAX.0);
        let again = Some(draw(DRAWN_MAX.1));
        Death { mdt, point, again, is_rival_first: self.rng.chance(500_000) }
    }

    /// Returns how many deaths there were: the point of one may not be reached.
    fn cell(
        &mut self,
        cast: &mut Cast,
        (case, dies): (&Case, bool),
        death: Death,
    ) -> Result<u32, String> {
        let told = |what: String| format!("{}, {death:?}, caller dies: {dies}: {what}", case.name);
        self.cluster.sim.narrate(&format!("{} with {death:?}", case.name));
        let (mut cell, done) = self.prepare(cast, case).map_err(&told)?;
        let victim = &self.cluster.servers[self.cluster.mdt_index(death.mdt)];
        victim.die_at(death.point);
        self.begin(cast, &cell, death.is_rival_first);
        let deaths = match self.wait(&cell, death.mdt) {
            true => 1 + u32::from(self.kill(cast, &mut cell, (dies, death))),
            false => {
                victim.spare();
                0
            }
        };
        self.judge(cast, cell, done).map_err(&told)?;
        if dies && deaths > 0 {
            cast.subject.1 = self.cluster.mount(&cast.subject.0);
        }
        Ok(deaths)
    }

    /// A directory with what the case needs; also its name.
    fn prepare(&mut self, cast: &Cast, case: &Case) -> Result<(Cell, String), String> {
        let name = format!("cell{}", self.ops);
        let own = name.clone();
        let base = self.ask(&cast.looker, "a directory", async move |client| {
            let at = (Fid::ROOT, own.as_bytes());
            Ok(mkdir_at(client, &test_ctx(), at, 0o755, 0).await?.fid())
        })?;
        let steps = case.setup();
        let node = cast.looker.0.clone();
        let mut runner = Runner::new(cast.looker.1.clone(), base).placing(Placing::Named);
        let mirror = runner.mirror();
        let set_up = async move {
            for step in &steps {
                runner.step(step).await.map_err(|mismatch| mismatch.to_string())?;
            }
            runner.close_all().await.map_err(|mismatch| mismatch.to_string())
        };
        let set_up = self.cluster.sim.block_on_for(&node, PEACE_MAX, set_up);
        set_up.unwrap_or_else(|| Err("the set-up never ends".to_owned()))?;
        if self.rng.chance(500_000) {
            self.cluster.sim.run_for(Span::secs(3)); // all is durable
        }
        let before = mirror.borrow().model.clone();
        let calls = case.calls().map(|call| (call, Slot::default()));
        Ok((Cell { base, before, calls, is_dead: false }, name))
    }

    /// Both calls begin, one a little later.
    fn begin(&mut self, cast: &Cast, cell: &Cell, is_rival_first: bool) {
        let later = self.rng.span(Span::ZERO, LATER);
        let (call, rival) = if is_rival_first { (later, Span::ZERO) } else { (Span::ZERO, later) };
        let callers = [(&cast.subject, call), (&cast.rival, rival)];
        for ((who, later), (call, slot)) in callers.into_iter().zip(&cell.calls) {
            let (env, call, slot) = (who.0.env(), call.clone(), slot.clone());
            let (client, base) = (who.1.clone(), cell.base);
            self.ops += 1;
            who.0.env().spawn("call", async move {
                env.sleep(later).await;
                let answer = call.run(&env, &client, base).await;
                *slot.borrow_mut() = Some(answer);
            });
        }
    }

    /// Until the MDT has come to its point, or all is over; says which.
    fn wait(&self, cell: &Cell, mdt: u32) -> bool {
        let node = &self.cluster.servers[self.cluster.mdt_index(mdt)].node;
        let until = self.cluster.sim.now() + PEACE_MAX;
        while self.cluster.sim.now() < until {
            if self.cluster.sim.run_until(LOOK, || node.is_frozen()) {
                return true;
            }
            let is_answered = cell.calls.iter().all(|(_, slot)| slot.borrow().is_some());
            if is_answered && self.is_done() {
                return false;
            }
        }
        false
    }

    /// Whether an MDT died again.
    fn kill(&mut self, cast: &Cast, cell: &mut Cell, (dies, death): (bool, Death)) -> bool {
        if dies {
            cast.subject.0.kill();
            cell.is_dead = true;
        }
        self.restart(death.mdt);
        let Some((mdt, point)) = death.again else { return false };
        let again = &self.cluster.servers[self.cluster.mdt_index(mdt)];
        again.die_at(point);
        let is_reached = self.wait_again(cell, &again.node, point);
        match is_reached {
            true => {
                planted::reached(DIED_AGAIN);
                self.restart(mdt);
            }
            false => again.spare(),
        }
        is_reached
    }

    /// Until the MDT has come to its second point, or the recovery is over; says which.
    fn wait_again(&self, cell: &Cell, node: &NodeHandle, point: CrashPoint) -> bool {
        let most = if matches!(point, CrashPoint::Send(_)) { AGAIN_MAX } else { PEACE_MAX };
        let until = self.cluster.sim.now() + most;
        while self.cluster.sim.now() < until {
            if self.cluster.sim.run_until(LOOK, || node.is_frozen()) {
                return true;
            }
            if self.is_over(cell) && self.is_done() {
                return false;
            }
        }
        false
    }

    /// All living callers are answered, and all MDTs serve.
    fn is_over(&self, cell: &Cell) -> bool {
        let [(_, first), (_, second)] = &cell.calls;
        let is_answered = cell.is_dead || first.borrow().is_some();
        let all_up = self.cluster.mdts().all(crate::server::Server::has_recovered);
        is_answered && second.borrow().is_some() && all_up
    }

    /// No operation of several MDTs is left undone, and no name is left to move.
    fn is_done(&self) -> bool {
        fsck::is_done(self.cluster)
    }

    fn restart(&mut self, mdt: u32) {
        let server = &self.cluster.servers[self.cluster.mdt_index(mdt)];
        let machine = self.rng.chance(500_000);
        self.cluster.sim.narrate(&format!("kills {}", server.target));
        server.kill(machine);
        if machine {
            server.power_cut(self.rng.bits());
        }
        self.restarts += 1;
        self.points += 1;
        self.pause(Span::secs(1));
        server.boot();
    }

    /// Waits until no name is left to move to another shard.
    fn names_have_moved(&self) -> Result<(), String> {
        let until = self.cluster.sim.now() + PEACE_MAX;
        while fsck::are_names_moving(self.cluster) {
            if self.cluster.sim.now() >= until {
                return Err("names never end to move".to_owned());
            }
            self.cluster.sim.run_for(LOOK);
        }
        Ok(())
    }

    /// Waits for the call of a dead caller: an MDT may have it in its hands until another MDT is
    /// back, and may execute it after somebody looked.
    fn nothing_is_executed(&self) -> Result<(), String> {
        let is_idle = || self.cluster.mdts().all(crate::server::Server::is_idle);
        match self.cluster.sim.run_until(PEACE_MAX, is_idle) {
            true => Ok(()),
            false => Err("a request never ends".to_owned()),
        }
    }

    /// Everything ends; what came of it is explained, and is removed.
    fn judge(&mut self, cast: &Cast, cell: Cell, name: String) -> Result<(), String> {
        let [(call, first), (rival, second)] = &cell.calls;
        if !self.cluster.sim.run_until(PEACE_MAX, || self.is_over(&cell)) {
            let waits = [&cast.subject, &cast.rival].map(|who| who.1.waiting_on());
            return Err(format!("never ends; callers wait for {waits:?}"));
        }
        if cell.is_dead {
            self.nothing_is_executed()?;
        }
        self.names_have_moved()?;
        fsck::at_peace(self.cluster)?;
        let base = cell.base;
        let found = self
            .ask(&cast.looker, "looking", async move |client| read_summary(client, base).await)?;
        let found = found.into_iter().map(|(path, (line, _))| (path, line)).collect();
        let (first, second) = (first.borrow(), second.borrow());
        let ops = (call.op(), rival.op());
        let (one, other) = ((&ops.0, first.as_ref()), (&ops.1, second.as_ref()));
        let mut why = Vec::new();
        let is_explained = orders(one, other, cell.is_dead).iter().any(|(order, is_lost)| {
            let mut model = cell.before.clone();
            let told = order.iter().try_for_each(|(op, answer)| explains(&mut model, op, *answer));
            let left = if *is_lost { &cell.before } else { &model };
            let explained = told.is_ok() && left.summary() == found;
            why.push(told.err().unwrap_or_else(|| format!("{:?}", left.summary())));
            explained
        });
        if !is_explained {
            let text = |answer: Option<&Result<Answer, client::Error>>| match answer {
                None => "nothing".to_owned(),
                Some(Ok(_)) => "success".to_owned(),
                Some(Err(error)) => error.to_string(),
            };
            let (one, other) = (text(one.1), text(other.1));
            return Err(format!(
                "{call:?} answered {one} and {rival:?} {other}, and left {found:?}; orders: {why:?}"
            ));
        }
        self.ask(&cast.looker, "removing", async move |client| {
            remove_below(client, base).await?;
            client.rmdir(&test_ctx(), Fid::ROOT, name.as_bytes()).await
        })
    }
}

/// A call with its answer, if it has one.
type Called<'a> = (&'a Op, Option<&'a Result<Answer, client::Error>>);

/// Orders of the two calls, and whether all of it is lost at the end:
/// - a call whose caller died may not have happened. It may also be lost with an MDT after it was
///   executed, and after the other call was refused because of it;
/// - a call is refused with ESTALE, and changes nothing, if its directory goes after the walk.
fn orders<'a>(one: Called<'a>, other: Called<'a>, is_dead: bool) -> Vec<(Vec<Called<'a>>, bool)> {
    let is_stale = |(_, answer): &Called<'_>| {
        answer.is_some_and(|answer| {
            answer.as_ref().is_err_and(|error| error.errno() == Errno::ESTALE)
        })
    };
    let mut orders = vec![(vec![one, other], false), (vec![other, one], false)];
    if is_dead {
        orders.push((vec![other], false));
        if other.1.is_some_and(Result::is_err) {
            orders.push((vec![one, other], true));
        }
    }
    if is_stale(&one) {
        orders.push((vec![other], false));
    }
    if is_stale(&other) {
        orders.push((vec![one], false));
    }
    orders
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn seeds_that_kill_once_try_each_case_with_both_callers() {
        let tried: BTreeSet<_> =
            (1..=SINGLE).map(case_of).map(|(case, dies)| (case.name, dies)).collect();
        assert_eq!(tried.len() as u64, SINGLE);
        for seed in 1..=2 * FIRST_CASES as u64 {
            let index = seed as usize - 1;
            let (case, dies) = case_of(seed);
            assert_eq!(case.name, CASES[index % FIRST_CASES].name, "seed {seed} is as it was");
            assert_eq!(dies, index >= FIRST_CASES);
        }
    }
}

//! The faults and their times, drawn from a seed before the run begins.

use std::time::Duration;

use super::chance::Chance;
use super::times::{MDS, MOUNTS, OSTS, mount, name, ost};

/// A fault of some length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    Kill(Vec<usize>),
    Power(Vec<usize>),
    Freeze(usize),
    Cut {
        from: usize,
        to: usize,
        both: bool,
    },
    /// Seconds by which the wall clock is ahead from then on.
    Clock(usize, i64),
}

#[derive(Clone, Debug)]
pub(super) struct Strike {
    pub(super) at: Duration,
    pub(super) lasts: Duration,
    pub(super) blow: Blow,
}

impl Blow {
    pub(super) fn nodes(&self) -> Vec<usize> {
        match self {
            Blow::Kill(nodes) | Blow::Power(nodes) => nodes.clone(),
            Blow::Freeze(node) | Blow::Clock(node, _) => vec![*node],
            Blow::Cut { from, to, .. } => vec![*from, *to],
        }
    }

    /// Whether it can be carried out on a machine that can move the clocks of nodes, or cannot. The
    /// plan of a seed is the same on both.
    pub(super) fn is_possible(&self, has_clocks: bool) -> bool {
        has_clocks || !matches!(self, Blow::Clock(..))
    }

    /// In the table of counts.
    pub(super) fn sort(&self) -> &'static str {
        match self {
            Blow::Kill(nodes) if nodes.iter().all(|node| *node > OSTS) => "kill -9 of a mount",
            Blow::Kill(_) => "kill -9 of servers",
            Blow::Power(nodes) if nodes.iter().any(|node| *node > OSTS) => {
                "power cut of servers and a mount"
            }
            Blow::Power(_) => "power cut of servers",
            Blow::Freeze(node) if *node > OSTS => "freeze of a mount",
            Blow::Freeze(_) => "freeze of a server",
            Blow::Cut { from, .. } if *from > OSTS => "cut between a mount and a server",
            Blow::Cut { .. } => "cut between servers",
            Blow::Clock(..) => "jump of a clock",
        }
    }

    pub(super) fn told(&self) -> String {
        let names: Vec<_> = self.nodes().into_iter().map(name).collect();
        format!("{} {}", self.sort(), names.join(" "))
    }
}

/// Between the begins of two faults.
const GAP_MS: (u64, u64) = (1_000, 6_000);
/// The first one comes when the workers work.
const FIRST: Duration = Duration::from_secs(2);
/// A day and more, an hour, a minute, a second.
const JUMPS: [i64; 4] = [100_000, 3_600, 60, 1];

/// The faults of a run of this length.
pub(super) fn draw(seed: u64, time: Duration) -> Vec<Strike> {
    let mut chance = Chance::new(seed);
    let (mut at, mut plan) = (FIRST, Vec::new());
    while at < time {
        let (blow, lasts) = one(&mut chance);
        plan.push(Strike { at, lasts, blow });
        at += Duration::from_millis(chance.between(GAP_MS.0, GAP_MS.1));
    }
    plan
}

fn one(chance: &mut Chance) -> (Blow, Duration) {
    let server = chance.below(1 + OSTS as u64) as usize;
    let client = mount(chance.below(MOUNTS as u64) as usize);
    let millis = Duration::from_millis;
    let servers = || (0..=OSTS).collect::<Vec<_>>();
    let away = millis(chance.between(200, 2_000));
    let silent = match chance.below(3) {
        0 => millis(chance.between(13_000, 20_000)), // longer than any lease that is wanted
        _ => millis(chance.between(500, 5_000)),
    };
    match chance.below(24) {
        0..=5 => (Blow::Kill(vec![server]), away),
        6 => (Blow::Kill(vec![MDS, ost(chance.below(OSTS as u64) as usize)]), away),
        7..=9 => (Blow::Freeze(server), millis(chance.between(1_000, 20_000))),
        10..=12 => (Blow::Freeze(client), silent),
        13..=14 => (Blow::Kill(vec![client]), away),
        15..=17 => {
            let both = !chance.one_in(3);
            (Blow::Cut { from: client, to: server, both }, silent)
        }
        18 => {
            let to = ost(chance.below(OSTS as u64) as usize);
            (Blow::Cut { from: MDS, to, both: true }, silent)
        }
        19..=20 => {
            let node = if chance.one_in(2) { client } else { server };
            let jump = JUMPS[chance.below(4) as usize];
            let ahead = if chance.one_in(2) { jump } else { -jump };
            (Blow::Clock(node, ahead), millis(0))
        }
        21 => (Blow::Power(vec![server]), away),
        22 => (Blow::Power(servers()), away),
        _ => (Blow::Power([servers(), vec![client]].concat()), away),
    }
}

#[cfg(test)]
mod tests {
    use super::draw;
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn a_plan_is_its_seeds_and_an_hour_has_every_sort() {
        let told = |seed, minutes: u64| -> Vec<String> {
            let plan = draw(seed, Duration::from_secs(minutes * 60));
            plan.iter().map(|strike| format!("{strike:?}")).collect()
        };
        assert_eq!(told(7, 5), told(7, 5));
        assert_ne!(told(7, 5), told(8, 5));
        let plan = draw(1, Duration::from_secs(3_600));
        let sorts: BTreeSet<_> = plan.iter().map(|strike| strike.blow.sort()).collect();
        assert_eq!(sorts.len(), 9, "{sorts:?}");
    }

    #[test]
    fn a_clock_that_cannot_be_moved_does_not_jump() {
        let plan = draw(1, Duration::from_secs(3_600));
        let done = |has_clocks: bool| -> BTreeSet<_> {
            let possible = plan.iter().filter(|strike| strike.blow.is_possible(has_clocks));
            possible.map(|strike| strike.blow.sort()).collect()
        };
        let left_out: Vec<_> = done(true).difference(&done(false)).copied().collect();
        assert_eq!(left_out, ["jump of a clock"]);
    }
}

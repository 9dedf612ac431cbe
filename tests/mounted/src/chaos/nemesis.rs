//! Carries out the plan in one thread: a node is in at most one fault at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::life::Run;
use super::machines::Machines;
use super::plan::{Blow, Strike, draw};
use super::times::{Begun, Fault, Nodes, is_mount};

/// A fault that lasts.
struct Lasting {
    blow: Blow,
    until: Duration,
    begun: Vec<Begun>,
}

pub(super) struct Nemesis {
    plan: std::vec::IntoIter<Strike>,
    next: Option<Strike>,
    lasting: Vec<Lasting>,
    counts: BTreeMap<&'static str, u64>,
}

impl Nemesis {
    pub(super) fn new(seed: u64, time: Duration) -> Nemesis {
        let mut plan = draw(seed, time).into_iter();
        Nemesis { next: plan.next(), plan, lasting: Vec::new(), counts: BTreeMap::new() }
    }

    /// How often each sort of fault came.
    pub(super) fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// Begins and ends what is due.
    pub(super) fn step(&mut self, machines: &mut Machines, run: &Run) {
        let now = run.times.now();
        self.end_those(machines, run, |lasting| lasting.until <= now);
        machines.tend(run);
        let Some(strike) = self.next.take_if(|strike| strike.at <= now) else { return };
        self.next = self.plan.next();
        let nodes = strike.blow.nodes();
        let is_busy = |node: &usize| self.lasting.iter().any(|it| it.blow.nodes().contains(node));
        let is_away = |node: &usize| is_mount(*node) && !run.is_alive(*node - super::mount(0));
        let is_possible = strike.blow.is_possible(machines.has_clocks());
        if !is_possible || nodes.iter().any(|node| is_busy(node) || is_away(node)) {
            return;
        }
        eprintln!(
            "{:8.2} s {} for {:.1} s",
            now.as_secs_f64(),
            strike.blow.told(),
            strike.lasts.as_secs_f64()
        );
        *self.counts.entry(strike.blow.sort()).or_default() += 1;
        let begun = begin(&strike.blow, machines, run);
        let until = run.times.now() + strike.lasts;
        self.lasting.push(Lasting { blow: strike.blow, until, begun });
    }

    /// Ends every fault.
    pub(super) fn heal(&mut self, machines: &mut Machines, run: &Run) {
        self.end_those(machines, run, |_| true);
    }

    fn end_those(
        &mut self,
        machines: &mut Machines,
        run: &Run,
        is_over: impl Fn(&Lasting) -> bool,
    ) {
        for over in self.lasting.extract_if(.., |lasting| is_over(lasting)) {
            end(&over.blow, machines);
            over.begun.into_iter().for_each(|begun| run.times.end(begun));
        }
    }
}

fn begin(blow: &Blow, machines: &mut Machines, run: &Run) -> Vec<Begun> {
    let each = |fault, nodes: &[usize]| -> Vec<Begun> {
        nodes.iter().map(|node| run.times.begin(fault, Nodes::of(&[*node]))).collect()
    };
    match blow {
        Blow::Kill(nodes) => {
            let begun = each(Fault::Killed, nodes);
            nodes.iter().for_each(|node| machines.kill(*node, run));
            begun
        }
        Blow::Power(nodes) => {
            let begun = each(Fault::Power, nodes);
            let (mounts, servers): (Vec<usize>, Vec<usize>) =
                nodes.iter().partition(|node| is_mount(**node));
            mounts.into_iter().for_each(|node| machines.kill(node, run));
            machines.power_cut(&servers, run);
            begun
        }
        Blow::Freeze(node) => {
            let begun = each(Fault::Frozen, &[*node]);
            machines.freeze(*node);
            begun
        }
        Blow::Cut { from, to, both } => {
            let begun = run.times.begin(Fault::Cut, Nodes::of(&[*from, *to]));
            machines.cut(*from, *to, *both);
            vec![begun]
        }
        Blow::Clock(node, ahead) => {
            machines.set_clock(*node, *ahead);
            Vec::new()
        }
    }
}

fn end(blow: &Blow, machines: &mut Machines) {
    match blow {
        Blow::Kill(nodes) => nodes.iter().for_each(|node| machines.start_again(*node)),
        Blow::Power(nodes) => nodes.iter().for_each(|node| machines.power_again(*node)),
        Blow::Freeze(node) => machines.thaw(*node),
        Blow::Cut { from, to, both } => machines.heal(*from, *to, *both),
        Blow::Clock(..) => {}
    }
}

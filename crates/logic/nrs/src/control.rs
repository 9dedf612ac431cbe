//! Commands over all partitions of a service: selecting a policy, reading and writing tunables.
//!
//! Each command first asks every partition and changes nothing, then changes every partition. An
//! error therefore leaves all of them as they were.
//!
//! ```text
//! select --> Done
//!        --> Draining(restart)   the policy runs with another argument and must drain first
//!                 |-- resume, whenever a request has finished --> Done | Draining
//!                 '-- give_up after DRAIN_WAIT --> EBUSY; the policy goes on draining and is not started again
//! ```

use types::{Errno, Instant};

use crate::command::{Command, WhichHeads, head_title, split_labelled, split_words};
use crate::limits::VALUE_BYTES_MAX;
use crate::policy::RESET;
use crate::state::{NOW, Plan};
use crate::{
    Form, Head, HeadKind, HeadStats, Listed, Mode, NrsStats, Part, Policy, PolicyState,
    PolicyStats, Refusal, Request, Start, Tunable,
};

/// Both heads of every partition of a service, partitions in order.
pub struct ServiceHeads<'a, R> {
    pub reg: Vec<&'a mut Head<R>>,
    /// High-priority heads; empty where the service has none.
    pub hp: Vec<&'a mut Head<R>>,
}

/// A start that waits for its policy to drain.
#[derive(Debug)]
#[must_use = "a restart ends with resume or give_up"]
pub struct Restart {
    command: Command,
    number: u64,
}

/// What a selection has come to.
#[derive(Debug)]
pub enum Selected {
    /// It is as commanded.
    Done,
    /// The policy runs with another argument and drains.
    Draining(Restart),
}

/// What stays the same over a command.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub now: Instant,
    /// Chance for the policies that need some.
    pub seed: u64,
}

type Made<R> = Vec<(usize, Box<dyn Policy<R>>)>;

impl<'a, R: Request> ServiceHeads<'a, R> {
    fn heads(&mut self, kind: HeadKind) -> &mut [&'a mut Head<R>] {
        match kind {
            HeadKind::Reg => &mut self.reg,
            HeadKind::Hp => &mut self.hp,
        }
    }

    fn kinds(&self, which: WhichHeads) -> Result<Vec<HeadKind>, Refusal> {
        let has_hp = !self.hp.is_empty();
        match which {
            WhichHeads::Both if has_hp => Ok(vec![HeadKind::Reg, HeadKind::Hp]),
            WhichHeads::Both | WhichHeads::Only(HeadKind::Reg) => Ok(vec![HeadKind::Reg]),
            WhichHeads::Only(HeadKind::Hp) if has_hp => Ok(vec![HeadKind::Hp]),
            WhichHeads::Only(HeadKind::Hp) => {
                Err(Refusal::new(Errno::ENODEV, "the service has no high-priority head"))
            }
        }
    }

    /// Carries out a value written to `nrs_policies`.
    ///
    /// # Errors
    /// ENOENT unknown name, EINVAL argument, EAGAIN another start is under way or the policy still
    /// drains, ENODEV no HP head. Nothing has changed then.
    pub fn select(&mut self, value: &str, moment: Moment) -> Result<Selected, Refusal> {
        let command: Command = value.parse()?;
        let kinds = self.kinds(command.heads)?;
        let mut restart = false;
        for kind in &kinds {
            for head in self.heads(*kind) {
                restart |= head.plan(&command.name, &command.arg)?.1 == Plan::Restart;
            }
        }
        // made even where it must wait: an argument that is not understood is refused before
        // anything stops
        let made = self.make(&kinds, &command, moment)?;
        if !restart {
            self.install(&kinds, &command, made);
            return Ok(Selected::Done);
        }
        drop(made);
        let number = self.next_restart();
        for kind in &kinds {
            for head in self.heads(*kind) {
                head.stop_for_restart(&command.name, &command.arg, number);
            }
        }
        self.resume(Restart { command, number }, moment)
    }

    /// A number that no restart of the service had before.
    fn next_restart(&self) -> u64 {
        let heads = self.reg.iter().chain(&self.hp);
        1 + heads.map(|head| head.last_restart).max().unwrap_or(0)
    }

    /// Whether a policy that runs here orders requests by their places on the device.
    #[must_use]
    pub fn wants_places(&self) -> bool {
        self.reg.iter().chain(&self.hp).any(|head| head.wants_places())
    }

    /// Goes on with a restart if its policy has drained.
    ///
    /// # Errors
    /// EAGAIN if FIFO was selected meanwhile; what [`crate::Make`] answers. The restart is over
    /// then.
    pub fn resume(&mut self, restart: Restart, moment: Moment) -> Result<Selected, Refusal> {
        let Restart { command, number } = &restart;
        let kinds = self.kinds(command.heads)?;
        let mut drained = true;
        for kind in &kinds {
            for head in self.heads(*kind) {
                if head.starting != Some(*number) {
                    self.forget(&kinds, *number);
                    return Err(Refusal::new(
                        Errno::EAGAIN,
                        "another policy was selected meanwhile",
                    ));
                }
                drained &= head
                    .index_of(&command.name)
                    .is_some_and(|at| head.state(at) != PolicyState::Stopping);
            }
        }
        if !drained {
            return Ok(Selected::Draining(restart));
        }
        self.forget(&kinds, *number);
        let made = self.make(&kinds, command, moment)?;
        self.install(&kinds, command, made);
        Ok(Selected::Done)
    }

    /// Ends a restart whose policy did not drain in time; the answer to the command is the value
    /// returned: EBUSY.
    pub fn give_up(&mut self, restart: Restart) -> Refusal {
        self.forget(&[HeadKind::Reg, HeadKind::Hp], restart.number);
        Refusal::new(Errno::EBUSY, format!("{} still drains", restart.command.name))
    }

    fn forget(&mut self, kinds: &[HeadKind], number: u64) {
        for kind in kinds {
            for head in self.heads(*kind) {
                head.starting.take_if(|starting| *starting == number);
            }
        }
    }

    /// Instances for the heads where the policy does not run as commanded: first step, which
    /// changes nothing.
    fn make(
        &mut self,
        kinds: &[HeadKind],
        command: &Command,
        moment: Moment,
    ) -> Result<Vec<Made<R>>, Refusal> {
        let mut made = Vec::new();
        for kind in kinds {
            made.push(make_for(self.heads(*kind), *kind, command, moment)?);
        }
        Ok(made)
    }

    /// Second step, which cannot fail.
    fn install(&mut self, kinds: &[HeadKind], command: &Command, made: Vec<Made<R>>) {
        for (kind, made) in kinds.iter().zip(made) {
            let heads = self.heads(*kind);
            if command.name == crate::head::FALLBACK {
                for head in heads.iter_mut() {
                    head.starting = None;
                    head.stop_primary();
                    if command.arg == NOW {
                        head.release();
                    }
                }
            }
            for (partition, policy) in made {
                let head = &mut heads[partition];
                let at = head.index_of(&command.name).expect("planned before");
                head.install(at, &command.arg, policy);
            }
        }
    }

    fn tunable(&self, parameter: &str) -> Result<(usize, Tunable), Refusal> {
        let unknown = || Refusal::new(Errno::ENOENT, format!("no parameter '{parameter}'"));
        let head = self.reg.first().ok_or_else(unknown)?;
        head.find_tunable(parameter).ok_or_else(unknown)
    }

    /// The value of a tunable over both heads, each line ended.
    ///
    /// # Errors
    /// ENOENT unknown parameter, ENODEV the policy runs on no head, EAGAIN it is starting or
    /// stopping, EIO it broke over the question and is disabled.
    pub fn get(&mut self, parameter: &str, now: Instant) -> Result<String, Refusal> {
        let (at, tunable) = self.tunable(parameter)?;
        let mut out = String::new();
        let mut stopped = None;
        for (kind, heads) in [(HeadKind::Reg, &mut self.reg), (HeadKind::Hp, &mut self.hp)] {
            let Some(first) = heads.first() else { continue };
            match first.tunable_here(at) {
                Ok(()) => print_tunable(&mut out, kind, heads, (at, tunable), now)?,
                Err(refusal) if refusal.errno == Errno::ENODEV => stopped = Some(refusal),
                Err(refusal) => return Err(refusal),
            }
        }
        match stopped {
            Some(refusal) if out.is_empty() => Err(refusal),
            _ => Ok(out),
        }
    }

    /// Writes a tunable.
    ///
    /// # Errors
    /// As [`ServiceHeads::get`], and EINVAL for a value that is not understood or out of range,
    /// ENODEV for the HP head of a service without one. Nothing has changed then.
    pub fn set(&mut self, parameter: &str, value: &str, moment: Moment) -> Result<(), Refusal> {
        let (at, tunable) = self.tunable(parameter)?;
        if !tunable.writable {
            return Err(Refusal::new(Errno::EPERM, format!("{parameter} is read-only")));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Refusal::invalid(format!("a value of more than {VALUE_BYTES_MAX} bytes")));
        }
        let parts = match tunable.form {
            Form::Labelled => split_labelled(value, tunable.label)?,
            Form::PerPartition => vec![split_words(value)],
        };
        let mut work = Vec::new();
        for (which, value) in parts {
            let (before, mut stopped) = (work.len(), None);
            for kind in self.kinds(which)? {
                match self.heads(kind).iter().try_for_each(|head| head.tunable_here(at)) {
                    Ok(()) => work.push((kind, value)),
                    Err(refusal) if refusal.errno == Errno::ENODEV => stopped = Some(refusal),
                    Err(refusal) => return Err(refusal),
                }
            }
            // written for both heads: it is enough if it runs on one
            if let Some(refusal) = stopped.filter(|_| work.len() == before) {
                return Err(refusal);
            }
        }
        for mode in [Mode::Check, Mode::Apply] {
            for (kind, value) in &work {
                for head in self.heads(*kind) {
                    head.set_tunable(at, tunable.label, value, mode, moment.now)?;
                }
            }
        }
        Ok(())
    }

    /// What the policies that run are set to: parameters with values that set them so where they
    /// have just been started. Read from the first partition, since all are set alike.
    pub fn settings(&mut self, now: Instant) -> Vec<(&'static str, String)> {
        let heads = [(HeadKind::Reg, &mut self.reg), (HeadKind::Hp, &mut self.hp)];
        let first = heads.into_iter().filter_map(|(kind, heads)| Some((kind, heads.first_mut()?)));
        first.flat_map(|(kind, head)| head.settings(kind, now)).collect()
    }

    /// What `nrs_policies` shows: counts are sums over the partitions, state and argument those of
    /// the first.
    #[must_use]
    pub fn list(&self) -> (Vec<Listed>, Option<Vec<Listed>>) {
        (sum(&self.reg), (!self.hp.is_empty()).then(|| sum(&self.hp)))
    }

    /// What `nrs_stats` shows: the counters of each policy over all partitions, and what it tells
    /// of itself in each of them.
    #[must_use]
    pub fn stats(&mut self) -> NrsStats {
        let kinds = [HeadKind::Reg, HeadKind::Hp].into_iter();
        let heads = kinds.filter_map(|kind| {
            let heads = self.heads(kind);
            (!heads.is_empty()).then(|| HeadStats { kind, policies: policies(heads) })
        });
        NrsStats(heads.collect())
    }
}

fn policies<R: Request>(heads: &mut [&mut Head<R>]) -> Vec<PolicyStats> {
    let all = sum(heads).into_iter();
    all.map(|Listed { name, counters, .. }| {
        let parts = heads.iter_mut().filter_map(|head| {
            let lines = head.policy_stats(name)?;
            let pairs: Vec<String> = lines.lines().map(|line| line.trim().to_owned()).collect();
            (!pairs.is_empty()).then_some((head.partition, pairs))
        });
        PolicyStats { name, counters, parts: parts.collect() }
    })
    .collect()
}

fn make_for<R: Request>(
    heads: &[&mut Head<R>],
    kind: HeadKind,
    command: &Command,
    moment: Moment,
) -> Result<Made<R>, Refusal> {
    let mut wanted = Vec::new();
    for (partition, head) in heads.iter().enumerate() {
        let (at, plan) = head.plan(&command.name, &command.arg)?;
        if matches!(plan, Plan::Fresh | Plan::Restart) {
            wanted.push((partition, at));
        }
    }
    let Some((first, at)) = wanted.first().copied() else { return Ok(Vec::new()) };
    let make =
        heads[first].instances[at].descriptor.as_ref().map(|descriptor| descriptor.make.clone());
    let make = make.expect("only the fallback has no descriptor, and it is not made");
    let partitions: Vec<Part> =
        wanted.iter().map(|(partition, _)| heads[*partition].partition).collect();
    let start = Start {
        arg: &command.arg,
        head: kind,
        partitions: &partitions,
        seed: moment.seed,
        now: moment.now,
    };
    let made = crate::guard::guarded(|| make(&start))
        .unwrap_or_else(|why| Err(Refusal::new(Errno::EIO, why.into_text())))?;
    if made.len() != wanted.len() {
        return Err(Refusal::invalid(format!(
            "{} made {} instances for {} partitions",
            command.name,
            made.len(),
            wanted.len()
        )));
    }
    Ok(wanted.into_iter().map(|(partition, _)| partition).zip(made).collect())
}

fn print_tunable<R: Request>(
    out: &mut String,
    kind: HeadKind,
    heads: &mut [&mut Head<R>],
    (at, tunable): (usize, Tunable),
    now: Instant,
) -> Result<(), Refusal> {
    match tunable.form {
        Form::Labelled => {
            let value = heads[0].get_tunable(at, tunable.label, now)?;
            out.push_str(&format!("{}_{}:{value}\n", kind.word(), tunable.label));
        }
        Form::PerPartition => {
            out.push_str(head_title(kind));
            for head in heads {
                out.push_str(&format!("{}:\n", head.partition));
                let value = head.get_tunable(at, tunable.label, now)?;
                out.push_str(&value);
                if !value.is_empty() && !value.ends_with('\n') {
                    out.push('\n');
                }
            }
        }
    }
    Ok(())
}

fn sum<R: Request>(heads: &[&mut Head<R>]) -> Vec<Listed> {
    let mut lists = heads.iter().map(|head| head.list());
    let mut total = lists.next().unwrap_or_default();
    for list in lists {
        for (into, one) in total.iter_mut().zip(list) {
            into.counters.add(&one.counters);
        }
    }
    total
}

impl<R: Request> Head<R> {
    fn stop_for_restart(&mut self, name: &str, arg: &str, number: u64) {
        assert!(number > self.last_restart, "each restart has a number of its own");
        (self.starting, self.last_restart) = (Some(number), number);
        let at = self.index_of(name).expect("planned before");
        if self.state(at) == PolicyState::Started && self.arg(at) != arg {
            self.stop_primary();
        }
    }

    /// A parameter of one of its policies.
    pub(crate) fn find_tunable(&self, parameter: &str) -> Option<(usize, Tunable)> {
        self.instances.iter().enumerate().find_map(|(at, instance)| {
            let tunables = instance.descriptor.as_ref()?.tunables;
            tunables
                .iter()
                .find(|tunable| tunable.parameter == parameter)
                .map(|tunable| (at, *tunable))
        })
    }

    fn get_tunable(&mut self, at: usize, label: &str, now: Instant) -> Result<String, Refusal> {
        self.tunable_here(at)?;
        if label == RESET {
            return Ok("0".to_owned());
        }
        let policy = self.instances[at].policy.as_ref().expect("a started policy runs");
        match crate::guard::guarded(|| policy.get(label, now)) {
            Ok(answer) => answer,
            Err(broken) => {
                let text = broken.to_string();
                self.disable(at, "get", broken);
                Err(Refusal::new(Errno::EIO, text))
            }
        }
    }

    fn settings(&mut self, kind: HeadKind, now: Instant) -> Vec<(&'static str, String)> {
        let started = |at: &usize| self.state(*at) == PolicyState::Started;
        let running: Vec<usize> = (1..self.instances.len()).filter(started).collect();
        let mut all = Vec::new();
        for at in running {
            let descriptor = self.instances[at].descriptor.as_ref();
            let tunables = descriptor.expect("only the fallback has none").tunables;
            let labelled = |tunable: &&Tunable| {
                tunable.writable && tunable.form == Form::Labelled && tunable.label != RESET
            };
            for tunable in tunables.iter().filter(labelled) {
                if let Ok(value) = self.get_tunable(at, tunable.label, now) {
                    let value = format!("{}_{}:{value}", kind.word(), tunable.label);
                    all.push((tunable.parameter, value));
                }
            }
            let Some(policy) = &self.instances[at].policy else { continue }; // it broke
            let commands = crate::guard::guarded(|| policy.commands()).unwrap_or_default();
            let parameter = |label| tunables.iter().find(|tunable| tunable.label == label);
            all.extend(commands.into_iter().filter_map(|(label, command)| {
                Some((parameter(label)?.parameter, format!("{} {command}", kind.word())))
            }));
        }
        all
    }

    fn set_tunable(
        &mut self,
        at: usize,
        label: &str,
        value: &str,
        mode: Mode,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.tunable_here(at)?;
        let (instance, queue) = (&mut self.instances[at], &mut self.queue);
        let policy = instance.policy.as_mut().expect("a started policy runs");
        let mut set = |policy: &mut Box<dyn crate::Policy<R>>| match (label, mode) {
            (RESET, Mode::Check) => crate::number_in(label, value, 1..=1).map(|_| ()),
            (RESET, Mode::Apply) => {
                policy.reset(queue, now);
                Ok(())
            }
            _ => policy.set(queue, label, value, mode, now),
        };
        let broken = match crate::guard::guarded(|| set(policy)) {
            Ok(Err(refusal)) if mode == Mode::Apply => {
                crate::Broken::new(format!("it refused what it had accepted: {refusal}"))
            }
            Ok(answer) => return answer,
            Err(broken) => broken,
        };
        let text = broken.to_string();
        self.disable(at, "set", broken);
        Err(Refusal::new(Errno::EIO, text))
    }
}

//! The rules of one instance: by rank, by name, and indexed so that a new class does not walk them
//! all.
//!
//! ```text
//! order   rank -> rule          the smallest rank is the highest; `default` stands in no order, it is what is left
//! exact   field, value -> conjunctions that hold for no other value of that field, by rank
//! walked  conjunctions of wildcards and ranges, by rank
//! ```
//! Invariants
//! - Every conjunction of a rule is indexed once per value of its first exact expression, or
//!   walked.
//! - `find` is the first rule by rank with a true conjunction, or `default`.
//! - The same commands in the same order give the same rules with the same `uid`s, so that
//!   instances of several partitions agree without exchanging anything.

use std::collections::BTreeMap;

use types::Errno;

use super::fields::{Field, FieldSet, Key};
use super::grammar::{Command, Conds, Name, Rate, Scope, Settings};
use crate::Refusal;

/// Rules of an instance at most.
pub(crate) const RULES_MAX: usize = 16_384;

/// Between the ranks of neighbours at first: room for 32 insertions at one place before ranks are
/// dealt anew.
const RANK_STEP: i64 = 1 << 32;

/// Slot of `default`.
const DEFAULT: u32 = 0;

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) name: Name,
    /// Never used again in this instance; another one after a change of how requests are grouped.
    pub(crate) uid: u64,
    /// None: every request.
    pub(crate) conds: Option<Conds>,
    pub(crate) rate: Rate,
    pub(crate) realtime: bool,
    pub(crate) depth: u32,
    depth_is_own: bool, // said by a command
    pub(crate) scope: Scope,
    pub(crate) class: Option<FieldSet>,
    pub(crate) total: bool,
    /// Classes attached.
    pub(crate) refs: usize,
    rank: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Posting {
    rank: i64,
    slot: u32,
    conj: u32,
}

/// See the head of the file.
pub(crate) struct Rules {
    fields: FieldSet,
    rate: Rate,
    depth: u32,
    slots: Vec<Option<Rule>>,
    free: Vec<u32>, // of `slots`
    by_name: BTreeMap<Name, u32>,
    order: BTreeMap<i64, u32>,
    exact: [BTreeMap<[u64; 4], Vec<Posting>>; Field::ALL.len()],
    walked: Vec<Posting>,
    uid_next: u64,
    generation: u64,
}

impl Rules {
    /// `default` alone. `rate` and `depth` are for rules that say nothing of them.
    pub(crate) fn new(fields: FieldSet, rate: Rate, depth: u32) -> Rules {
        let mut rules = Rules {
            fields,
            rate,
            depth,
            slots: Vec::new(),
            free: Vec::new(),
            by_name: BTreeMap::new(),
            order: BTreeMap::new(),
            exact: Default::default(),
            walked: Vec::new(),
            uid_next: 1,
            generation: 1,
        };
        let default = rules.rule(Name::DEFAULT, None, &Settings::default());
        rules.uid_next += 1;
        rules.slots.push(Some(default));
        rules.by_name.insert(Name::DEFAULT, DEFAULT);
        rules
    }

    fn rule(&self, name: Name, conds: Option<Conds>, settings: &Settings) -> Rule {
        Rule {
            name,
            uid: self.uid_next,
            conds,
            rate: settings.rate.unwrap_or(self.rate),
            realtime: settings.realtime.unwrap_or(false),
            depth: settings.depth.unwrap_or(self.depth),
            depth_is_own: settings.depth.is_some(),
            scope: settings.scope.unwrap_or(Scope::Service),
            class: settings.class,
            total: settings.total.unwrap_or(false),
            refs: 0,
            rank: i64::MAX,
        }
    }

    /// Raised by every command that may give a class another rule or rate.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Has every class attached anew.
    pub(crate) fn touch(&mut self) {
        self.generation += 1;
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Rule> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Rule> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Rules, the highest rank first, `default` last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.order.values().chain([&DEFAULT]).filter_map(|slot| self.get(*slot))
    }

    /// The rule of a class.
    pub(crate) fn find(&self, key: &Key) -> u32 {
        let mut best: Option<Posting> = None;
        for field in Field::ALL {
            let exact = &self.exact[field as usize];
            if exact.is_empty() {
                continue;
            }
            if let Some(postings) = exact.get(&key.value(field)) {
                best = self.first_true(postings, best, key);
            }
        }
        self.first_true(&self.walked, best, key).map_or(DEFAULT, |posting| posting.slot)
    }

    fn first_true(
        &self,
        postings: &[Posting],
        best: Option<Posting>,
        key: &Key,
    ) -> Option<Posting> {
        let better =
            postings.iter().take_while(|posting| best.is_none_or(|best| posting.rank < best.rank));
        let mut hits =
            better.filter(|posting| self.conj(posting).iter().all(|expr| expr.matches(key)));
        hits.next().copied().or(best)
    }

    fn conj(&self, posting: &Posting) -> &[super::grammar::Expr] {
        let conds = self
            .get(posting.slot)
            .and_then(|rule| rule.conds.as_ref())
            .expect("an indexed rule has conditions");
        &conds.0[posting.conj as usize]
    }

    /// Whether `apply` would succeed.
    ///
    /// # Errors
    /// EINVAL a field that the policy's argument lacks, EEXIST, ENOENT, EPERM for what `default`
    /// does not allow, ENOSPC with [`RULES_MAX`] rules.
    pub(crate) fn check(&self, command: &Command) -> Result<(), Refusal> {
        match command {
            Command::Start { name, conds, settings } => {
                self.check_fields(conds, settings)?;
                if self.by_name.contains_key(name) {
                    return Err(Refusal::new(Errno::EEXIST, format!("rule '{name}' exists")));
                }
                if self.by_name.len() >= RULES_MAX {
                    return Err(Refusal::new(
                        Errno::ENOSPC,
                        format!("there are {RULES_MAX} rules already"),
                    ));
                }
                self.check_rank(settings)
            }
            Command::Change { name, settings } => {
                if !self.by_name.contains_key(name) {
                    let text = format!("there is no rule '{name}': nrs_tbf_rule lists them");
                    return Err(Refusal::new(Errno::ENOENT, text));
                }
                if *name == Name::DEFAULT && settings.rank.is_some() {
                    return Err(Refusal::new(Errno::EPERM, "rule 'default' is always the last"));
                }
                self.check_class(settings)?;
                self.check_rank(settings)
            }
            Command::Stop { name } if *name == Name::DEFAULT => {
                Err(Refusal::new(Errno::EPERM, "rule 'default' cannot be stopped"))
            }
            Command::Stop { .. } => Ok(()),
        }
    }

    fn check_fields(&self, conds: &Conds, settings: &Settings) -> Result<(), Refusal> {
        let mut exprs = conds.0.iter().flatten();
        match exprs.find(|expr| !self.fields.contains(expr.field)) {
            Some(expr) => {
                let text = format!(
                    "'{}' is not a field of this policy, which was started for {}",
                    expr.field.name(),
                    self.fields
                );
                Err(Refusal::invalid(text))
            }
            None => self.check_class(settings),
        }
    }

    fn check_class(&self, settings: &Settings) -> Result<(), Refusal> {
        match settings.class {
            Some(class) if !self.fields.includes(class) => Err(Refusal::invalid(format!(
                "'class={class}' goes beyond {}, for which this policy was started",
                self.fields
            ))),
            _ => Ok(()),
        }
    }

    fn check_rank(&self, settings: &Settings) -> Result<(), Refusal> {
        match settings.rank {
            Some(next) if !self.by_name.contains_key(&next) => Err(Refusal::new(
                Errno::ENOENT,
                format!("there is no rule '{next}' to put it before: nrs_tbf_rule lists them"),
            )),
            _ => Ok(()),
        }
    }

    /// Carries out a command that `check` let pass.
    pub(crate) fn apply(&mut self, command: Command) {
        match command {
            Command::Start { name, conds, settings } => self.start(name, conds, &settings),
            Command::Change { name, settings } => self.change(self.by_name[&name], &settings),
            Command::Stop { name } => {
                if let Some(slot) = self.by_name.remove(&name) {
                    self.unindex(slot);
                    let rule = self.slots[slot as usize].take().expect("a named rule is there");
                    self.order.remove(&rule.rank);
                    self.free.push(slot);
                }
            }
        }
        self.generation += 1;
    }

    /// Back to `default` alone, as in a new instance. Its classes are attached anew.
    pub(crate) fn reset(&mut self) {
        let names: Vec<Name> =
            self.by_name.keys().copied().filter(|name| *name != Name::DEFAULT).collect();
        names.into_iter().for_each(|name| self.apply(Command::Stop { name }));
        self.slots[DEFAULT as usize] = Some(self.rule(Name::DEFAULT, None, &Settings::default()));
        self.uid_next += 1;
        self.touch();
    }

    fn start(&mut self, name: Name, conds: Conds, settings: &Settings) {
        let mut rule = self.rule(name, Some(conds), settings);
        self.uid_next += 1;
        let end = u32::try_from(self.slots.len()).expect("at most RULES_MAX rules");
        let slot = self.free.pop().unwrap_or(end);
        rule.rank = self.free_rank(settings.rank);
        self.order.insert(rule.rank, slot);
        self.by_name.insert(name, slot);
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot as usize] = Some(rule);
        self.index(slot);
    }

    fn change(&mut self, slot: u32, settings: &Settings) {
        let uid_next = self.uid_next;
        let rule = self.get_mut(slot).expect("a named rule is there");
        let name = rule.name;
        let grouping = (rule.scope, rule.class, rule.total);
        rule.rate = settings.rate.unwrap_or(rule.rate);
        rule.realtime = settings.realtime.unwrap_or(rule.realtime);
        rule.depth = settings.depth.unwrap_or(rule.depth);
        rule.depth_is_own |= settings.depth.is_some();
        rule.scope = settings.scope.unwrap_or(rule.scope);
        rule.class = settings.class.or(rule.class);
        rule.total = settings.total.unwrap_or(rule.total);
        if grouping != (rule.scope, rule.class, rule.total) {
            (rule.uid, rule.refs) = (uid_next, 0); // its classes are attached anew
            self.uid_next += 1;
        }
        if let Some(next) = settings.rank.filter(|next| *next != name) {
            self.unindex(slot);
            let old = self.get(slot).expect("it is there").rank;
            self.order.remove(&old);
            let rank = self.free_rank(Some(next));
            self.order.insert(rank, slot);
            self.get_mut(slot).expect("it is there").rank = rank;
            self.index(slot);
        }
    }

    /// A rank just before `next`, or on top.
    fn free_rank(&mut self, next: Option<Name>) -> i64 {
        let next = next.map(|name| self.by_name[&name]);
        loop {
            let after = match next {
                None => self.order.keys().next().copied(),
                Some(DEFAULT) => None,
                Some(slot) => self.get(slot).map(|rule| rule.rank),
            };
            match (next, after) {
                (None, None) => return 0,
                (None, Some(first)) => return first - RANK_STEP,
                (Some(_), None) => {
                    return self.order.keys().next_back().map_or(0, |last| last + RANK_STEP);
                }
                (Some(_), Some(after)) => match self.order.range(..after).next_back() {
                    None => return after - RANK_STEP,
                    Some((before, _)) if after - before > 1 => {
                        return before + (after - before) / 2;
                    }
                    Some(_) => self.deal_ranks(),
                },
            }
        }
    }

    /// Gives all rules ranks with room between them, in the same order.
    fn deal_ranks(&mut self) {
        let slots: Vec<u32> = self.order.values().copied().collect();
        self.order.clear();
        self.exact.iter_mut().for_each(BTreeMap::clear);
        self.walked.clear();
        let mut rank = 0;
        for slot in slots {
            self.get_mut(slot).expect("an ordered rule is there").rank = rank;
            self.order.insert(rank, slot);
            self.index(slot);
            rank += RANK_STEP;
        }
    }

    fn index(&mut self, slot: u32) {
        for (field, value, posting) in self.postings(slot) {
            let list = match field {
                Some(field) => self.exact[field as usize].entry(value).or_default(),
                None => &mut self.walked,
            };
            let at = list.partition_point(|other| *other < posting);
            // a value that is written twice is indexed once
            if list.get(at) != Some(&posting) {
                list.insert(at, posting);
            }
        }
    }

    fn unindex(&mut self, slot: u32) {
        for (field, value, posting) in self.postings(slot) {
            match field {
                None => self.walked.retain(|other| *other != posting),
                Some(field) => {
                    let exact = &mut self.exact[field as usize];
                    if let Some(list) = exact.get_mut(&value) {
                        list.retain(|other| *other != posting);
                        if list.is_empty() {
                            exact.remove(&value);
                        }
                    }
                }
            }
        }
    }

    /// Where each conjunction of a rule belongs.
    fn postings(&self, slot: u32) -> Vec<(Option<Field>, [u64; 4], Posting)> {
        let mut out = Vec::new();
        let rule = self.get(slot).expect("an indexed rule is there");
        for (conj, exprs) in rule.conds.iter().flat_map(|conds| conds.0.iter().enumerate()) {
            let posting = Posting {
                rank: rule.rank,
                slot,
                conj: u32::try_from(conj).expect("a rule is a short text"),
            };
            let of_field =
                |field| exprs.iter().find(|expr| expr.field == field && expr.exact().is_some());
            match Field::ALL.into_iter().find_map(of_field) {
                None => out.push((None, [0; 4], posting)),
                Some(expr) => {
                    let values = expr.exact().expect("just seen");
                    out.extend(values.into_iter().map(|value| (Some(expr.field), value, posting)));
                }
            }
        }
        out
    }

    /// Lines of `nrs_tbf_rule`: `NAME CONDITIONS RATE, ref CLASSES`.
    pub(crate) fn print(&self) -> String {
        self.iter().map(|rule| format!("{rule}, ref {}\n", rule.refs)).collect()
    }

    /// Commands that make these rules where there is `default` alone: the last by rank first, since
    /// each stands on top of those before it.
    pub(crate) fn commands(&self) -> Vec<String> {
        let mut all: Vec<String> = self.iter().map(Rule::command).collect();
        all.reverse();
        all
    }

    /// The rank of a rule, for tests: a class may not be found through the index what the walk
    /// would not find.
    #[cfg(test)]
    pub(crate) fn find_by_walking(&self, key: &Key) -> Name {
        let matches =
            |conds: &Conds| conds.0.iter().any(|conj| conj.iter().all(|expr| expr.matches(key)));
        let first = self.iter().find(|rule| rule.conds.as_ref().is_none_or(matches));
        first.expect("default matches").name
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.conds {
            Some(conds) => write!(f, "{} {conds} {}", self.name, self.rate)?,
            None => write!(f, "{} * {}", self.name, self.rate)?,
        }
        f.write_str(&self.pairs())
    }
}

impl Rule {
    /// Its pairs but for the rate, where they are not the usual ones.
    fn pairs(&self) -> String {
        let mut out = String::new();
        if self.realtime {
            out.push_str(" realtime=1");
        }
        if self.scope != Scope::Service {
            out.push_str(&format!(" scope={}", self.scope.name()));
        }
        if let Some(class) = self.class {
            out.push_str(&format!(" class={class}"));
        }
        if self.total {
            out.push_str(" total=1");
        }
        if self.depth_is_own {
            out.push_str(&format!(" depth={}", self.depth));
        }
        out
    }

    /// The command that makes it.
    fn command(&self) -> String {
        let rate = match self.rate {
            Rate::Rpc { .. } => "rate",
            Rate::Bytes { .. } => "bps",
        };
        let pairs = format!("{rate}={}{}", self.rate, self.pairs());
        match &self.conds {
            Some(conds) => format!("start {} {conds} {pairs}", self.name),
            None => format!("change {} {pairs}", self.name),
        }
    }
}

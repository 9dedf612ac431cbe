//! Permanent parameters (`lctl set_param -P`). The MGS stores them. Every node that has a parameter
//! of that name applies it when the node starts and within seconds of a change. A deleted parameter
//! keeps its value until its node restarts; a deleted TBF rule ends.
//!
//! Invariants
//! - Policies are started before parameters that can be set only while a policy runs.
//! - A refused value does not count as applied. It is tried again at the next poll, and reported
//!   once. The other rules of a policy hold meanwhile.
//! - A restarted policy has lost its tunables, so they are set again.
//! - A value that would prevent the mount of a file system is never applied ([`fit::hinders`]).

mod fit;
pub(crate) mod keep;
mod rules;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use params::{ParamError, ParamTree};
use types::Errno;

/// Lines of the log that are not repeated.
const TOLD_MAX: usize = 1_024;

/// What a node has taken over.
#[derive(Default)]
pub(crate) struct Permanent {
    /// By pattern and parameter.
    taken: RefCell<BTreeMap<(String, String), Taken>>,
    /// What the log has said.
    told: RefCell<BTreeSet<String>>,
}

/// What of one parameter.
#[derive(Clone, Default)]
struct Taken {
    /// The value, or the commands of rules in their order.
    values: Vec<String>,
    /// Those of the commands that were refused.
    refused: Vec<String>,
}

/// A parameter's pattern with the values that it shall have: one, or the commands of its rules.
type Wanted = (String, Vec<String>);

impl Permanent {
    /// Sets what is new among `wanted`, the whole list of patterns and values. A parameter that is
    /// not here may come later, with its target or policy: it is tried again with the next call.
    pub(crate) async fn apply(&self, params: &ParamTree, wanted: &[(String, String)]) {
        let wanted = ordered(wanted);
        self.end_rules(params, &wanted).await;
        let is_wanted = |name: &String| wanted.iter().any(|(known, _)| known == name);
        self.taken.borrow_mut().retain(|(name, _), _| is_wanted(name));
        for (name, values) in &wanted {
            let Ok(leaves) = params.list(name, false) else { continue };
            for leaf in leaves.into_iter().filter(|leaf| !leaf.is_dir) {
                self.take(params, name, &leaf.name, values).await;
            }
        }
    }

    async fn take(&self, params: &ParamTree, name: &str, leaf: &str, values: &[String]) {
        let key = (name.to_owned(), leaf.to_owned());
        let taken = self.taken.borrow().get(&key).cloned().unwrap_or_default();
        if taken.values == values {
            return self.try_again(params, &key, &taken).await;
        }
        let is_rule = rules::is_rule(leaf);
        let steps = if is_rule { rules::steps(&taken.values, values) } else { values.to_vec() };
        let is_left = |command: &String| values.contains(command) && !steps.contains(command);
        let mut refused: Vec<String> = taken.refused.into_iter().filter(is_left).collect();
        for step in steps {
            let Err(errno) = self.set(params, leaf, &step, values).await else { continue };
            if !is_rule || [Errno::ENODEV, Errno::EAGAIN].contains(&errno) {
                // its policy does not run: all of it is done when it does
                self.taken.borrow_mut().remove(&key);
                return;
            }
            if values.contains(&step) {
                refused.push(step);
            }
        }
        self.taken.borrow_mut().insert(key, Taken { values: values.to_vec(), refused });
        if let Some(service) = leaf.strip_suffix(".nrs_policies") {
            self.forget_tunables(service);
        }
    }

    /// Refused commands are tried without the others, which hold. If one of them is taken now, all
    /// are done anew at the next poll: their order is that of the ranks.
    async fn try_again(&self, params: &ParamTree, key: &(String, String), taken: &Taken) {
        for command in &taken.refused {
            if self.set(params, &key.1, command, &taken.values).await.is_ok() {
                self.taken.borrow_mut().remove(key);
            }
        }
    }

    /// Sets one value of those that are kept; why it is refused is told.
    async fn set(
        &self,
        params: &ParamTree,
        leaf: &str,
        value: &str,
        kept: &[String],
    ) -> Result<(), Errno> {
        if let Some(why) = fit::hinders(leaf, value, kept) {
            self.tell(format!("{leaf}={value}: {why}"));
            return Err(Errno::EINVAL);
        }
        set(params, leaf, value).await.map_err(|error| {
            self.tell(error.to_string());
            error.errno()
        })
    }

    /// The policies of a service were started: what was set of them before may be gone.
    fn forget_tunables(&self, service: &str) {
        let tunable = |leaf: &str| {
            leaf.strip_prefix(service)
                .and_then(|rest| rest.strip_prefix(".nrs_"))
                .is_some_and(|rest| rest != "policies")
        };
        self.taken.borrow_mut().retain(|(_, leaf), _| !tunable(leaf));
    }

    /// Rules of which no command is kept any more end; another value of theirs is of nobody.
    async fn end_rules(&self, params: &ParamTree, wanted: &[Wanted]) {
        let gone: Vec<_> = {
            let taken = self.taken.borrow();
            let is_gone = |name: &String| wanted.iter().all(|(known, _)| known != name);
            let of = taken.iter().filter(|((name, _), _)| rules::is_rule(name) && is_gone(name));
            of.map(|((_, leaf), taken)| (leaf.clone(), taken.values.clone())).collect()
        };
        for (leaf, values) in gone {
            for step in rules::steps(&values, &[]) {
                let _its_policy_may_be_stopped = set(params, &leaf, &step).await;
            }
        }
    }

    fn tell(&self, what: String) {
        if self.told.borrow().contains(&what) {
            return;
        }
        tracing::warn!("permanent parameter: {what}");
        let mut told = self.told.borrow_mut();
        if told.len() == TOLD_MAX {
            told.clear();
        }
        told.insert(what);
    }
}

async fn set(params: &ParamTree, leaf: &str, value: &str) -> Result<(), ParamError> {
    params.set(leaf, value).await?.into_iter().try_for_each(|answer| answer.map(drop))
}

/// In the order in which they are set: whose heads, which policies, then the rest; the commands of
/// one parameter's rules together.
fn ordered(wanted: &[(String, String)]) -> Vec<Wanted> {
    let mut by_number: Vec<&(String, String)> = wanted.iter().collect();
    by_number.sort_by_key(|(name, _)| rules::base(name).and_then(|_| rules::number(name)));
    let mut all: Vec<Wanted> = Vec::new();
    for (name, value) in by_number {
        match rules::base(name) {
            Some(base) => match all.iter_mut().find(|(known, _)| known == base) {
                Some((_, commands)) => commands.push(value.clone()),
                None => all.push((base.to_owned(), vec![value.clone()])),
            },
            None => all.push((name.clone(), vec![value.clone()])),
        }
    }
    all.sort_by_key(|(name, _)| match name.rsplit('.').next() {
        Some("nrs_head_scope") => 0,
        Some("nrs_policies") => 1,
        _ => 2,
    });
    all
}

/// As `lctl get_param permanent` shows them: a line each.
pub(crate) fn render(wanted: &[(String, String)]) -> String {
    wanted.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::Future;
    use std::rc::Rc;
    use std::task::{Context, Waker};

    use params::ParamRefusal;

    use super::*;

    fn apply(permanent: &Permanent, params: &ParamTree, wanted: &[(&str, &str)]) {
        let wanted: Vec<_> =
            wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut done = std::pin::pin!(permanent.apply(params, &wanted));
        assert!(done.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    fn with(params: &ParamTree, name: &str) -> (Rc<RefCell<String>>, Rc<Cell<u32>>) {
        let (value, sets) = (Rc::new(RefCell::new("0".to_owned())), Rc::new(Cell::new(0)));
        let (read, write, count) = (value.clone(), value.clone(), sets.clone());
        let set = move |value: &str| {
            count.set(count.get() + 1);
            *write.borrow_mut() = value.to_owned();
            if value == "bad" { Err("no".to_owned()) } else { Ok(()) }
        };
        params.register_rw(name, move || read.borrow().clone(), set);
        (value, sets)
    }

    #[test]
    fn each_permanent_value_is_taken_once() {
        let (params, permanent) = (ParamTree::new(), Permanent::default());
        let (early, sets) = with(&params, "lod.a.stripecount");
        let wanted = [("lod.*.stripecount", "2"), ("osc.*.active", "0")];
        apply(&permanent, &params, &wanted);
        *early.borrow_mut() = "7".to_owned(); // by hand, afterwards: stays
        apply(&permanent, &params, &wanted);
        assert_eq!((early.borrow().as_str(), sets.get()), ("7", 1));
        let (late, _) = with(&params, "osc.b.active");
        apply(&permanent, &params, &wanted);
        assert_eq!(late.borrow().as_str(), "0");
        apply(&permanent, &params, &[("lod.*.stripecount", "bad")]);
        apply(&permanent, &params, &[("lod.*.stripecount", "bad")]);
        assert_eq!(sets.get(), 3, "what is refused is not taken");
        apply(&permanent, &params, &[]);
        apply(&permanent, &params, &[("lod.*.stripecount", "3")]);
        assert_eq!((early.borrow().as_str(), sets.get()), ("3", 4));
        let (third, _) = with(&params, "lod.b.stripecount");
        apply(&permanent, &params, &[("lod.*.stripecount", "3")]);
        assert_eq!(third.borrow().as_str(), "3", "a target that comes later takes it too");
    }

    /// What was set, in order; tunables are refused until a policy was selected, and then forgotten
    /// with each selection. Rules named `picky` are refused while it `refuses`.
    fn service(params: &ParamTree, refuses: &Rc<Cell<bool>>) -> Rc<RefCell<Vec<String>>> {
        let (log, runs) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(false)));
        for name in ["nrs_crrn_quantum", "nrs_policies", "nrs_tbf_rule"] {
            let (log, runs, refuses) = (log.clone(), runs.clone(), refuses.clone());
            let write = move |value: &str| {
                if name == "nrs_policies" {
                    runs.set(true);
                } else if !runs.get() {
                    return Err(ParamRefusal::new(Errno::ENODEV, "it is stopped"));
                } else if refuses.get() && value.contains("picky") {
                    return Err(ParamRefusal::new(Errno::EINVAL, "no"));
                }
                log.borrow_mut().push(format!("{name}={value}"));
                Ok(())
            };
            params.register_fallible_rw(
                format!("ost.OSS.ost_io.{name}"),
                || Ok(String::new()),
                write,
            );
        }
        log
    }

    #[test]
    fn policies_come_before_their_tunables_and_every_rule_is_kept() {
        let (params, permanent) = (ParamTree::new(), Permanent::default());
        let log = service(&params, &Rc::default());
        let did = |all: &[&str]| assert_eq!(std::mem::take(&mut *log.borrow_mut()), all);
        let quantum = ("ost.OSS.*.nrs_crrn_quantum", "33");
        apply(&permanent, &params, &[quantum]);
        did(&[]); // refused: its policy is stopped
        let one = ("ost.OSS.*.nrs_tbf_rule[0001:one]", "start one rate=5");
        let two = ("ost.OSS.*.nrs_tbf_rule[0002:two]", "start two rate=6");
        let tbf = ("ost.OSS.ost_io.nrs_policies", "tbf nid");
        apply(&permanent, &params, &[quantum, tbf, one, two]);
        did(&[
            "nrs_policies=tbf nid",
            "nrs_crrn_quantum=33",
            "nrs_tbf_rule=stop one",
            "nrs_tbf_rule=start one rate=5",
            "nrs_tbf_rule=stop two",
            "nrs_tbf_rule=start two rate=6",
        ]);
        apply(&permanent, &params, &[quantum, tbf, one, two]);
        did(&[]);
        let crrn = (tbf.0, "crrn");
        apply(&permanent, &params, &[quantum, crrn]);
        did(&[
            "nrs_tbf_rule=stop one",
            "nrs_tbf_rule=stop two",
            "nrs_policies=crrn",
            "nrs_crrn_quantum=33",
        ]);
        apply(&permanent, &params, &[quantum, (tbf.0, "delay")]);
        did(&[]); // mounts would wait for it
    }

    #[test]
    fn a_refused_rule_leaves_the_others_alone() {
        let (params, permanent) = (ParamTree::new(), Permanent::default());
        let refuses = Rc::new(Cell::new(true));
        let log = service(&params, &refuses);
        let wanted = [
            ("ost.OSS.*.nrs_policies", "tbf nid"),
            ("ost.OSS.*.nrs_tbf_rule[0001:one]", "start one rate=5"),
            ("ost.OSS.*.nrs_tbf_rule[0002:picky]", "start picky rate=7"),
            ("ost.OSS.*.nrs_tbf_rule[0003:two]", "start two rate=6"),
        ];
        let apply = || {
            apply(&permanent, &params, &wanted);
            std::mem::take(&mut *log.borrow_mut())
        };
        let rules = |names: &[&str]| -> Vec<String> {
            let of = |name: &str| {
                let start = wanted.iter().find(|(_, rule)| rule.contains(name)).expect("wanted").1;
                [format!("nrs_tbf_rule=stop {name}"), format!("nrs_tbf_rule={start}")]
            };
            names.iter().flat_map(|name| of(name)).collect()
        };
        assert_eq!(apply()[1..], rules(&["one", "two"]));
        assert_eq!(apply(), [""; 0]);
        refuses.set(false);
        assert_eq!(apply(), ["nrs_tbf_rule=start picky rate=7"]);
        assert_eq!(apply(), rules(&["one", "picky", "two"]), "once more, in their order");
        assert_eq!(apply(), [""; 0]);
    }

    #[test]
    fn rules_are_in_the_order_of_their_numbers() {
        let kept =
            ["[10000:b]", "[9999:a]"].map(|key| (format!("x.nrs_tbf_rule{key}"), key.into()));
        assert_eq!(ordered(&kept)[0].1, ["[9999:a]", "[10000:b]"]);
    }
}

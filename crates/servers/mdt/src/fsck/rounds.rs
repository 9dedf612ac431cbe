//! The order of mends: a round looks at everything and plans mends of one stage, until nothing is
//! left that can be mended.

use std::collections::BTreeSet;

use types::Timespec;

use super::finding::{Finding, Rule};
use super::mend::{Changes, Plan, Planned};
use super::system::System;

/// Rounds at most. Each round but the last mends something that was not mended before, so more
/// mean that mends undo each other.
const ROUNDS_MAX: u32 = 1_000;

/// What a repair has done so far.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Bytes of lost objects are given up.
    gives_up_bytes: bool,
    count: u32,
    tried: BTreeSet<(Rule, String)>,
    /// What was mended, in order.
    pub done: Vec<Finding>,
    /// What could not be mended, and why.
    pub failed: Vec<(Finding, String)>,
}

impl Rounds {
    /// `gives_up_bytes`: the bytes of lost objects read as zeros afterwards, and not as errors.
    #[must_use]
    pub fn new(gives_up_bytes: bool) -> Rounds {
        Rounds { gives_up_bytes, ..Rounds::default() }
    }

    /// Changes for the next stage of `found`, which is all that is wrong with `system` now. None
    /// if nothing more can be mended. `now`: the time of files that are made.
    #[must_use]
    pub fn next(
        &mut self,
        system: &System<'_>,
        found: &[Finding],
        now: Timespec,
    ) -> Option<Changes> {
        loop {
            self.count += 1;
            let open: Vec<&Finding> =
                found.iter().filter(|finding| self.is_open(finding)).collect();
            let stage = open.iter().map(|finding| finding.rule.stage()).min()?;
            if self.count > ROUNDS_MAX {
                return None;
            }
            let of_stage = open.into_iter().filter(|finding| finding.rule.stage() == stage);
            let changes = self.plan(system, of_stage.collect(), now);
            if !changes.is_empty() {
                return Some(changes);
            }
        }
    }

    fn plan(&mut self, system: &System<'_>, open: Vec<&Finding>, now: Timespec) -> Changes {
        let mut plan = Plan::new(system, now);
        let busy = system.busy();
        for finding in open {
            let Some(mend) = &finding.mend else { continue };
            if finding.of.iter().any(|fid| busy.contains(fid)) {
                self.give_up(finding, "an operation of several MDTs changes it: start them first");
                continue;
            }
            match plan.mend(mend) {
                Ok(Planned::Done) => {
                    self.tried.insert(key(finding));
                    self.done.push(finding.clone());
                }
                Ok(Planned::Later) => {}
                Err(why) => self.give_up(finding, &why),
            }
        }
        plan.changes
    }

    fn give_up(&mut self, finding: &Finding, why: &str) {
        self.tried.insert(key(finding));
        self.failed.push((finding.clone(), why.to_owned()));
    }

    fn is_open(&self, finding: &Finding) -> bool {
        let is_allowed = |mend: &super::Mend| self.gives_up_bytes || !mend.gives_up_bytes();
        finding.mend.as_ref().is_some_and(is_allowed) && !self.tried.contains(&key(finding))
    }
}

fn key(finding: &Finding) -> (Rule, String) {
    (finding.rule, finding.text.clone())
}

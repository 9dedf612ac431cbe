//! Breaches that an MDT mends while it serves.
//!
//! Only rules for the records of one MDT are among them. Each transaction keeps these, so an MDT
//! sees at any moment what breaks them: it looks again, and changes what is wrong then. Nothing is
//! taken over from the copies but where to look.

use std::collections::BTreeSet;

use types::Fid;

use super::finding::{Finding, Mend, Rule};
use super::system::System;

/// Rounds at most: names come before counts, and a mend may uncover another breach.
const ROUNDS_MAX: u32 = 16;

/// What an MDT is to look at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Suspect {
    /// A name that leads to a file of the same MDT.
    Name { dir: Fid, name: Vec<u8> },
    /// Link count of a file or directory, and size of a directory.
    Counts(Fid),
}

impl Suspect {
    /// Index of its MDT.
    #[must_use]
    pub fn mdt(&self) -> u32 {
        match self {
            Suspect::Name { dir, .. } => dir.mdt_index(),
            Suspect::Counts(fid) => fid.mdt_index(),
        }
    }

    /// Where the MDT is to look because of a breach; none if it cannot mend it alone.
    fn of(finding: &Finding) -> Option<Suspect> {
        let fid = finding.fid;
        match (finding.rule, finding.mend.as_ref()?) {
            (Rule::LinkCount | Rule::DirectorySize, Mend::Count { .. }) => {
                Some(Suspect::Counts(fid))
            }
            (Rule::DanglingName, Mend::RemoveName { .. })
            | (Rule::WrongType, Mend::SetType { .. })
            | (Rule::UnknownName, Mend::AddLink { .. }) => {
                let (dir, name) = finding.name.clone()?;
                (dir.mdt_index() == fid.mdt_index()).then_some(Suspect::Name { dir, name })
            }
            _ => None,
        }
    }
}

fn is_count(finding: &Finding) -> bool {
    matches!(finding.rule, Rule::LinkCount | Rule::DirectorySize)
}

/// What a repair of a file system that is served has done so far.
#[derive(Debug, Default)]
pub struct LiveRounds {
    count: u32,
    tried: BTreeSet<(Rule, String)>,
    /// What MDTs have mended, in order.
    pub done: Vec<Finding>,
    /// What could not be mended, and why.
    pub failed: Vec<(Finding, String)>,
}

impl LiveRounds {
    /// What MDTs are to look at now because of `found`, which is all that is wrong; nothing if no
    /// more can be mended. Counts come after names, and only where the names are right.
    #[must_use]
    pub fn next(&mut self, system: &System<'_>, found: &[Finding]) -> Vec<(Finding, Suspect)> {
        self.count += 1;
        if self.count > ROUNDS_MAX {
            return Vec::new();
        }
        let busy = system.busy();
        let is_open = |finding: &&Finding| {
            let is_busy = finding.of.iter().any(|fid| busy.contains(fid));
            !is_busy && !self.tried.contains(&(finding.rule, finding.text.clone()))
        };
        let open = found.iter().filter(is_open);
        let suspects = open.filter_map(|it| Some((it.clone(), Suspect::of(it)?)));
        let (mut counts, names): (Vec<_>, Vec<_>) = suspects.partition(|(it, _)| is_count(it));
        if !names.is_empty() {
            return names;
        }
        let others = found.iter().filter(|finding| !is_count(finding));
        let doubted: BTreeSet<Fid> = others.flat_map(|it| it.of.iter().copied()).collect();
        counts.retain(|(finding, _)| !doubted.contains(&finding.fid));
        counts
    }

    /// What an MDT said: whether it mended something, or why not.
    pub fn told(&mut self, finding: Finding, outcome: Result<bool, String>) {
        self.tried.insert((finding.rule, finding.text.clone()));
        match outcome {
            Ok(true) => self.done.push(finding),
            Ok(false) => self.failed.push((finding, "the MDT can mend nothing there".to_owned())),
            Err(why) => self.failed.push((finding, why)),
        }
    }
}

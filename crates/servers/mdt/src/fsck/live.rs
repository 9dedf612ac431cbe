//! Breaches that MDTs mend while they serve.
//!
//! Rules for the records of one MDT hold after each transaction, so the MDT sees their breaches at
//! any moment. Rules for a file and a name on another MDT hold while both are reserved. So the MDT
//! of the file looks again at the moment of the change, and mends the breaches of that moment. The
//! copies only say where to look.

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
    /// A name of any MDT, and the file that it leads to, or that knows it. The MDT of the file
    /// looks.
    Pair { fid: Fid, dir: Fid, name: Vec<u8> },
    /// Link count of a file or directory, and size of a directory.
    Counts(Fid),
}

impl Suspect {
    /// Index of its MDT.
    #[must_use]
    pub fn mdt(&self) -> u32 {
        match self {
            Suspect::Name { dir, .. } => dir.mdt_index(),
            Suspect::Pair { fid, .. } | Suspect::Counts(fid) => fid.mdt_index(),
        }
    }

    /// Where MDTs are to look because of a breach; nowhere if they cannot mend it.
    fn of(system: &System<'_>, finding: &Finding) -> Vec<Suspect> {
        let fid = finding.fid;
        let name = finding.name.clone();
        let pair = |(dir, name)| Suspect::Pair { fid, dir, name };
        match (finding.rule, finding.mend.as_ref()) {
            (Rule::LinkCount | Rule::DirectorySize, Some(Mend::Count { .. })) => {
                vec![Suspect::Counts(fid)]
            }
            (Rule::DanglingName, Some(Mend::RemoveName { .. }))
            | (Rule::WrongType, Some(Mend::SetType { .. }))
            | (Rule::UnknownName, Some(Mend::AddLink { .. })) => {
                let of = |(dir, name): (Fid, Vec<u8>)| match dir.mdt_index() == fid.mdt_index() {
                    true => Suspect::Name { dir, name },
                    false => pair((dir, name)),
                };
                name.map(of).into_iter().collect()
            }
            (Rule::LostName, Some(Mend::RestoreName { .. }))
            | (Rule::WrongParent, Some(Mend::SetParent { .. })) => {
                name.map(pair).into_iter().collect()
            }
            (Rule::SeveralNames, Some(Mend::KeepOneName(_))) => {
                let entries = system.images.iter().flat_map(|image| &image.entries);
                let names = entries.filter(|entry| entry.record.fid == fid);
                names.map(|entry| pair((entry.dir, entry.record.name.clone()))).collect()
            }
            _ => Vec::new(),
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
    /// more can be mended. Causes come before consequences, and counts come last, only where the
    /// names are right.
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
        let suspects = open.flat_map(|it| {
            Suspect::of(system, it).into_iter().map(|suspect| (it.clone(), suspect))
        });
        let (mut counts, mut names): (Vec<_>, Vec<_>) = suspects.partition(|(it, _)| is_count(it));
        if let Some(first) = names.iter().map(|(it, _)| it.rule.stage()).min() {
            names.retain(|(it, _)| it.rule.stage() == first);
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

//! Which executor of a process serves which target. Pure.
//!
//! A process has one executor thread for each address at which it listens
//! (`docs/design/executors.md`).
//!
//! Invariants
//! - Each target is on one executor, and each executor has a target.
//! - A target that is assigned to an address is there. The MGT is at the first address unless it is
//!   assigned to another one.
//! - Of the others, each goes where the fewest MDTs and OSTs are, MDTs first. Without assignments
//!   that is round robin.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use anyhow::{Result, ensure};
use ctl::names::nid_addr;
use types::{NidAddr, TargetId};

/// An address to listen at: `NID`, or `NID[0,1]` with the CPU partitions of its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    pub at: NidAddr,
    /// As the text has them; empty: all.
    pub cpts: String,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let (at, cpts) = text.split_at(text.find('[').unwrap_or(text.len()));
        if !cpts.is_empty() {
            env::parse_list(cpts, env::CPTS_MAX).map_err(|error| error.to_string())?;
        }
        Ok(Listen { at: nid_addr(at)?, cpts: cpts.to_owned() })
    }
}

/// `TARGET@NID`: an executor for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assign {
    pub target: TargetId,
    /// Where its executor listens.
    pub at: NidAddr,
}

impl FromStr for Assign {
    type Err = String;

    fn from_str(text: &str) -> Result<Assign, String> {
        let (target, at) =
            text.split_once('@').ok_or("expected TARGET@NID, as OST0000@10.0.0.5@tcp")?;
        let target: TargetId =
            target.parse().map_err(|error: types::ParseTargetError| error.to_string())?;
        let at = nid_addr(at)?;
        Ok(Assign { target, at })
    }
}

impl fmt::Display for Assign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.target, self.at)
    }
}

/// The targets of each address, in the order of the addresses.
pub(crate) fn assigned(
    targets: &[TargetId],
    at: &[NidAddr],
    wishes: &[Assign],
) -> Result<Vec<Vec<TargetId>>> {
    let different: BTreeSet<&NidAddr> = at.iter().collect();
    ensure!(different.len() == at.len(), "an address to listen at is named twice");
    let mut shares: Vec<Vec<TargetId>> = vec![Vec::new(); at.len()];
    let mut placed = BTreeSet::new();
    for wish in wishes {
        let place = at.iter().position(|at| *at == wish.at);
        let Some(place) = place else {
            anyhow::bail!("--assign {wish}: {} is not one of the --listen addresses", wish.at);
        };
        ensure!(targets.contains(&wish.target), "--assign {wish}: no such target is here");
        ensure!(placed.insert(wish.target), "--assign {wish}: this target is assigned twice");
        shares[place].push(wish.target);
    }
    let others = targets.iter().copied().filter(|target| !placed.contains(target));
    fill(&mut shares, others.collect());
    if let Some(idle) = shares.iter().position(Vec::is_empty) {
        anyhow::bail!(
            "nothing is served at {}: each --listen address takes one target at least",
            at[idle]
        );
    }
    assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), targets.len(), "each target once");
    Ok(shares)
}

/// The targets of each of `count` executors.
pub(crate) fn in_turn(targets: &[TargetId], count: usize) -> Vec<Vec<TargetId>> {
    let mut shares = vec![Vec::new(); count];
    fill(&mut shares, targets.to_vec());
    shares
}

/// Adds each target where the fewest are.
fn fill(shares: &mut [Vec<TargetId>], mut targets: Vec<TargetId>) {
    targets.sort_unstable();
    for target in targets {
        let load = |share: &[TargetId]| share.iter().filter(|id| **id != TargetId::MGT).count();
        let least = (0..shares.len()).min_by_key(|index| load(&shares[*index]));
        let place = if target == TargetId::MGT { Some(0) } else { least };
        shares[place.expect("a process has an executor")].push(target);
    }
}

/// How many executors these targets can use, where so many are wanted: one for each MDT and OST.
pub(crate) fn fitting(targets: &[TargetId], wanted: u32) -> usize {
    let busy = targets.iter().filter(|target| **target != TargetId::MGT).count();
    usize::try_from(wanted).unwrap_or(usize::MAX).min(busy).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<TargetId> {
        text.split_whitespace().map(|name| name.parse().expect("a target")).collect()
    }

    fn addresses(count: usize) -> Vec<NidAddr> {
        (1..=count).map(|host| format!("127.0.0.{host}@tcp").parse().expect("a NID")).collect()
    }

    fn check(all: &str, count: usize, wishes: &str, expected: &[&str]) {
        let wishes: Vec<Assign> =
            wishes.split_whitespace().map(|wish| wish.parse().expect("TARGET@NID")).collect();
        let shares = assigned(&targets(all), &addresses(count), &wishes).expect("they fit");
        assert_eq!(shares, expected.iter().map(|share| targets(share)).collect::<Vec<_>>());
    }

    fn refused(all: &str, at: &[NidAddr], wishes: &[&str]) -> String {
        let wishes: Vec<Assign> = wishes.iter().map(|wish| wish.parse().expect("one")).collect();
        assigned(&targets(all), at, &wishes).expect_err("they do not fit").to_string()
    }

    #[test]
    fn targets_go_round_robin_and_the_mgt_is_no_load() {
        let all = "MGS MDT0000 MDT0001 OST0000 OST0001";
        check(all, 1, "", &[all]);
        check(all, 2, "", &["MGS MDT0000 OST0000", "MDT0001 OST0001"]);
        check("OST0003 OST0001 OST0002", 2, "", &["OST0001 OST0003", "OST0002"]);
        check("MGS MDT0000 OST0000", 2, "", &["MGS MDT0000", "OST0000"]);
        check(
            "MDT0000 OST0000 OST0001 OST0002",
            4,
            "",
            &["MDT0000", "OST0000", "OST0001", "OST0002"],
        );
    }

    #[test]
    fn an_assigned_target_is_where_it_was_assigned_and_the_others_fill_up() {
        let all = "MGS MDT0000 OST0000 OST0001 OST0002";
        let wishes = "OST0000@127.0.0.1@tcp testfs-OST0001@127.0.0.1@tcp";
        check(all, 2, wishes, &["OST0000 OST0001 MGS", "MDT0000 OST0002"]);
        check("MGS MDT0000", 2, "MGS@127.0.0.2@tcp", &["MDT0000", "MGS"]);
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        let two = addresses(2);
        let idle = refused("MGS MDT0000", &two, &[]);
        assert!(idle.contains("nothing is served at 127.0.0.2"), "{idle}");
        let away = refused("MDT0000 OST0000", &two, &["OST0000@127.0.0.9@tcp"]);
        assert!(away.contains("127.0.0.9") && away.contains("--listen"), "{away}");
        let unknown = refused("MDT0000 OST0000", &two, &["OST0007@127.0.0.1@tcp"]);
        assert!(unknown.contains("no such target"), "{unknown}");
        let wishes = ["OST0000@127.0.0.1@tcp", "OST0000@127.0.0.2@tcp"];
        assert!(refused("MDT0000 OST0000", &two, &wishes).contains("twice"));
        assert!(refused("MDT0000 OST0000", &[two[0], two[0]], &[]).contains("twice"));
        assert!(
            "OST0000".parse::<Assign>().is_err() && "X@127.0.0.1@tcp".parse::<Assign>().is_err()
        );
    }

    #[test]
    fn each_mdt_and_ost_can_use_an_executor() {
        let all = targets("MGS MDT0000 OST0000 OST0001");
        assert_eq!([0, 1, 2, 3, 9].map(|wanted| fitting(&all, wanted)), [1, 1, 2, 3, 3]);
        assert_eq!(fitting(&targets("MGS"), 4), 1);
        assert_eq!(in_turn(&all, 2), [targets("MGS MDT0000 OST0001"), targets("OST0000")]);
    }
}

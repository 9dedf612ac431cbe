//! `lfs check`: checks whether servers answer.

use std::path::PathBuf;

use clap::ValueEnum;
use ctl::{Ask, Reply, Target};
use serde::Serialize;
use types::Errno;

use crate::failure::First;
use crate::form::Form;
use crate::{Failed, mountpoint, out};

const COMMAND: &str = "lfs check";

/// Arguments of `lfs check`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each target is asked for its space, and the MGS for its configuration, and given a few seconds.\n\nExamples:\n  lfs check osts /mnt/nacre\n  lfs check all"
)]
pub(super) struct Args {
    /// Which servers.
    which: Which,
    #[command(flatten)]
    form: Form,
    /// Any path in the file system; the first mount without it.
    path: Option<PathBuf>,
}

/// Which servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Object storage targets.
    Osts,
    /// Metadata targets (also: mds).
    #[value(alias = "mds")]
    Mdts,
    /// The management server.
    Mgts,
    /// All of them (also: servers).
    #[value(alias = "servers")]
    All,
}

impl Which {
    fn wants(self, kind: &str) -> bool {
        match self {
            Which::Osts => kind == "OST",
            Which::Mdts => kind == "MDT",
            Which::Mgts => kind == "MGT",
            Which::All => true,
        }
    }
}

/// What was found out of one server.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Checked {
    name: String,
    kind: String,
    nid: String,
    status: &'static str,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    let mount = mountpoint::near(args.path.as_deref(), COMMAND)?;
    let mut all = Vec::new();
    if args.which != Which::Mgts
        && let Reply::Spaces(spaces) = mountpoint::ask(&mount, &Ask::Df, COMMAND)?
    {
        all.extend(spaces.into_iter().map(|space| checked(&space.target, space.space.is_some())));
    }
    if args.which.wants("MGT")
        && let Reply::Targets(targets) = mountpoint::ask(&mount, &Ask::Mgs, COMMAND)?
    {
        all.extend(targets.iter().map(|target| checked(target, target.is_active)));
    }
    all.retain(|one| args.which.wants(&one.kind));
    out::print(&args.form.render(&all, || text(&all)));
    let mut first = First::default();
    for silent in all.iter().filter(|one| one.status == "silent") {
        let text = format!("error: check '{}': {}", silent.name, Errno::ETIMEDOUT);
        first.note(&Failed::new(Errno::ETIMEDOUT.raw(), text));
    }
    first.end()
}

fn checked(target: &Target, answered: bool) -> Checked {
    let status = match (target.is_active || target.kind == "MGT", answered) {
        (false, _) => "inactive",
        (true, true) => "active",
        (true, false) => "silent",
    };
    Checked {
        name: target.name.clone(),
        kind: target.kind.clone(),
        nid: target.nid.clone(),
        status,
    }
}

/// What scripts parse; the silent ones are reported on stderr.
fn text(all: &[Checked]) -> String {
    all.iter()
        .filter(|one| one.status != "silent")
        .map(|one| format!("{} {}.\n", one.name, one.status))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answers_is_active_and_who_does_not_is_no_line() {
        let target = |kind: &str, is_active| Target {
            kind: kind.into(),
            index: 0,
            name: format!("testfs-{kind}0000"),
            state: "FULL".into(),
            is_active,
            nid: String::new(),
        };
        let all = [
            checked(&target("OST", true), true),
            checked(&target("OST", false), false),
            checked(&target("MDT", true), false),
            checked(&target("MGT", false), false),
        ];
        assert_eq!(
            all.each_ref().map(|one| one.status),
            ["active", "inactive", "silent", "silent"]
        );
        assert_eq!(text(&all), "testfs-OST0000 active.\ntestfs-OST0000 inactive.\n");
        assert_eq!(Which::from_str("mds", false), Ok(Which::Mdts), "its older name");
        assert!(Which::All.wants("MGT") && Which::Osts.wants("OST") && !Which::Mdts.wants("OST"));
    }
}

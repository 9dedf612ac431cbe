//! `lfs check`: checks whether servers answer.

use std::path::PathBuf;

use clap::ValueEnum;
use ctl::{Ask, Reply, Target};
use serde::Serialize;
use types::Errno;

use crate::failure::First;
use crate::form::Form;
use crate::mountpoint::{self, Mount};
use crate::{Failed, out};

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
    /// Any path in the file system; all mounts without it.
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

    /// Questions to the daemon of a mount, which asks these servers.
    fn questions(self) -> impl Iterator<Item = Ask> {
        let of_space = (self != Which::Mgts).then_some(Ask::Df);
        of_space.into_iter().chain(self.wants("MGT").then_some(Ask::Mgs))
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
    let mut mounts = mountpoint::near_or_every(args.path.as_deref(), COMMAND)?;
    let mut first = First::default();
    let mut all = Vec::new();
    for question in args.which.questions() {
        let patience = mountpoint::patience_for(&mounts, mountpoint::servers_patience());
        let answers = mountpoint::ask_each(&mounts, &question, patience, COMMAND);
        let answers = mounts.into_iter().zip(answers);
        mounts = heard(answers, &mut all, &mut first);
    }
    all.retain(|one| args.which.wants(&one.kind));
    out::print(&args.form.render(&all, || text(&all)));
    for silent in all.iter().filter(|one| one.status == "silent") {
        let text = format!("error: check '{}': {}", silent.name, Errno::ETIMEDOUT);
        first.note(&Failed::new(Errno::ETIMEDOUT.raw(), text));
    }
    first.end()
}

/// Adds what each daemon has found out. Returns the mounts whose daemons have answered: another
/// one is not asked again, so that it costs one wait.
fn heard(
    answers: impl Iterator<Item = (Mount, Result<Reply, Failed>)>,
    all: &mut Vec<Checked>,
    first: &mut First,
) -> Vec<Mount> {
    let mut living = Vec::new();
    for (mount, answer) in answers {
        match answer {
            Ok(reply) => {
                all.extend(all_checked(reply));
                living.push(mount);
            }
            Err(failed) => first.note(&failed),
        }
    }
    living
}

fn all_checked(reply: Reply) -> Vec<Checked> {
    match reply {
        Reply::Spaces(spaces) => {
            spaces.iter().map(|space| checked(&space.target, space.space.is_some())).collect()
        }
        Reply::Targets(targets) => {
            targets.iter().map(|target| checked(target, target.is_active)).collect()
        }
        _ => Vec::new(),
    }
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

    fn target(kind: &str, is_active: bool) -> Target {
        Target {
            kind: kind.into(),
            index: 0,
            name: format!("testfs-{kind}0000"),
            state: "FULL".into(),
            is_active,
            nid: String::new(),
        }
    }

    #[test]
    fn a_mount_whose_daemon_does_not_answer_hides_no_other_and_is_asked_once() {
        let mount = |dir: &str| Mount {
            dir: dir.into(),
            device: (0, 1),
            source: "127.0.0.2@tcp:/testfs".into(),
            options: Vec::new(),
        };
        let answers = [
            (mount("/a"), Ok(Reply::Targets(vec![target("MGT", true)]))),
            (mount("/stopped"), Err(Failed::new(Errno::ETIMEDOUT.raw(), ""))),
            (mount("/b"), Ok(Reply::Targets(vec![target("MGT", false)]))),
        ];
        let (mut all, mut first) = (Vec::new(), First::default());
        let living = heard(answers.into_iter(), &mut all, &mut first);
        assert_eq!(living, [mount("/a"), mount("/b")]);
        let found: Vec<&str> = all.iter().map(|one| one.status).collect();
        assert_eq!(found, ["active", "silent"]);
        let status = first.end().map_err(|failed| i32::from(failed.status));
        assert_eq!(status, Err(Errno::ETIMEDOUT.raw()));
    }

    #[test]
    fn who_answers_is_active_and_who_does_not_is_no_line() {
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

//! `lfs osts` and `lfs mdts`.

use std::fmt::Write as _;
use std::path::PathBuf;

use ctl::{Ask, Reply, Target, everywhere};

use crate::failure::First;
use crate::form::Form;
use crate::{Failed, mountpoint};

/// Which targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mdts,
    Osts,
}

/// Arguments of both.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    form: Form,
    /// Any path in the file system; all mounts without it.
    path: Option<PathBuf>,
}

pub(super) fn run(kind: Kind, args: &Args) -> Result<(), Failed> {
    let (command, question) = match kind {
        Kind::Mdts => ("lfs mdts", Ask::Mdts),
        Kind::Osts => ("lfs osts", Ask::Osts),
    };
    let mounts = mountpoint::near_or_every(args.path.as_deref(), command)?;
    let patience = mountpoint::patience_for(&mounts, everywhere::patience());
    let answers = mountpoint::ask_each(&mounts, &question, patience, command);
    let mut first = First::default();
    let known = known(answers, &mut first);
    let text: String = known.iter().map(|targets| render(kind, targets)).collect();
    args.form.print(&known.concat(), || text);
    first.end()
}

/// What each mount knows. One whose daemon does not answer hides no other.
fn known(answers: Vec<Result<Reply, Failed>>, first: &mut First) -> Vec<Vec<Target>> {
    let mut known = Vec::new();
    for answer in answers {
        match answer {
            Ok(Reply::Targets(targets)) => known.push(targets),
            Ok(_) => {}
            Err(failed) => first.note(&failed),
        }
    }
    known
}

fn render(kind: Kind, targets: &[Target]) -> String {
    let mut out = String::from(if kind == Kind::Mdts { "MDTS:\n" } else { "OBDS:\n" });
    for target in targets {
        let state = if target.is_active { "ACTIVE" } else { "INACTIVE" };
        let _ = writeln!(out, "{}: {}_UUID {state}", target.index, target.name);
    }
    out
}

#[cfg(test)]
mod tests {
    use types::Errno;

    use super::*;

    fn target(index: u32, is_active: bool) -> Target {
        Target {
            kind: "OST".into(),
            index,
            name: format!("testfs-OST{index:04x}"),
            state: "FULL".into(),
            is_active,
            nid: String::new(),
        }
    }

    #[test]
    fn a_mount_whose_daemon_is_dead_or_stopped_hides_no_other() {
        let (one, other) = (vec![target(0, true)], vec![target(1, true), target(2, false)]);
        let answers = vec![
            Err(Failed::new(Errno::ENOTCONN.raw(), "")),
            Ok(Reply::Targets(one.clone())),
            Err(Failed::new(Errno::ETIMEDOUT.raw(), "")),
            Ok(Reply::Targets(other.clone())),
        ];
        let mut first = First::default();
        assert_eq!(known(answers, &mut first), [one, other]);
        let status = first.end().map_err(|failed| i32::from(failed.status));
        assert_eq!(status, Err(Errno::ENOTCONN.raw()), "the first failure's");
    }

    #[test]
    fn a_line_for_each_target() {
        let shown = render(Kind::Osts, &[target(0, true), target(10, false)]);
        assert_eq!(
            shown,
            "OBDS:\n0: testfs-OST0000_UUID ACTIVE\n10: testfs-OST000a_UUID INACTIVE\n"
        );
        assert_eq!(render(Kind::Mdts, &[]), "MDTS:\n");
    }
}

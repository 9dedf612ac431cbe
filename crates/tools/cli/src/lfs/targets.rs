//! `lfs osts` and `lfs mdts`.

use std::fmt::Write as _;
use std::path::PathBuf;

use ctl::{Ask, Reply, Target};

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
    /// Any path in the file system; the first mount without it.
    path: Option<PathBuf>,
}

pub(super) fn run(kind: Kind, args: &Args) -> Result<(), Failed> {
    let (command, question) = match kind {
        Kind::Mdts => ("lfs mdts", Ask::Mdts),
        Kind::Osts => ("lfs osts", Ask::Osts),
    };
    let mount = mountpoint::near(args.path.as_deref(), command)?;
    if let Reply::Targets(targets) = mountpoint::ask(&mount, &question, command)? {
        args.form.print(&targets, || render(kind, &targets));
    }
    Ok(())
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
    use super::*;

    #[test]
    fn a_line_for_each_target() {
        let target = |index: u32, is_active| Target {
            kind: "OST".into(),
            index,
            name: format!("testfs-OST{index:04x}"),
            state: "FULL".into(),
            is_active,
            nid: String::new(),
        };
        let shown = render(Kind::Osts, &[target(0, true), target(10, false)]);
        assert_eq!(
            shown,
            "OBDS:\n0: testfs-OST0000_UUID ACTIVE\n10: testfs-OST000a_UUID INACTIVE\n"
        );
        assert_eq!(render(Kind::Mdts, &[]), "MDTS:\n");
    }
}

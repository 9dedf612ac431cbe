//! `lfs getname`: the client and the file system of a mount.

use std::path::PathBuf;

use ctl::{Ask, Reply, Who, everywhere};
use serde::Serialize;

use crate::failure::First;
use crate::form::Form;
use crate::mountpoint::{self, Mount};
use crate::{Failed, out};

const COMMAND: &str = "lfs getname";

/// Arguments of `lfs getname`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only the number of the client in names of its parameters.
    #[arg(short = 'i', long, conflicts_with_all = ["fsname", "uuid"])]
    instance: bool,
    /// Only the name of the file system.
    #[arg(short = 'n', long, conflicts_with = "uuid")]
    fsname: bool,
    /// Only the id of the client as servers show it.
    #[arg(short = 'u', long)]
    uuid: bool,
    #[command(flatten)]
    form: Form,
    /// Paths in the file systems; all mounts without them.
    paths: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Named {
    fsname: String,
    instance: String,
    uuid: String,
    mount: String,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    let mut first = First::default();
    let mut all = Vec::new();
    let mounts = mounts(args, &mut first)?;
    let answers = mountpoint::ask_each(&mounts, &Ask::Who, everywhere::patience(), COMMAND);
    for (mount, answer) in mounts.iter().zip(answers) {
        match answer {
            Ok(reply) => all.push(named(mount, reply)),
            Err(failed) => first.note(&failed),
        }
    }
    out::print(&args.form.render(&all, || all.iter().map(|named| line(args, named)).collect()));
    first.end()
}

fn mounts(args: &Args, first: &mut First) -> Result<Vec<Mount>, Failed> {
    if args.paths.is_empty() {
        return mountpoint::every(COMMAND);
    }
    let mut found = Vec::new();
    for path in &args.paths {
        match mountpoint::of(path, COMMAND) {
            Ok(mount) => found.push(mount),
            Err(failed) => first.note(&failed),
        }
    }
    Ok(found)
}

fn named(mount: &Mount, reply: Reply) -> Named {
    let who = match reply {
        Reply::Who(who) => who,
        _ => Who::default(),
    };
    Named {
        fsname: who.fsname,
        instance: who.instance,
        uuid: who.uuid,
        mount: mountpoint::show(&mount.dir),
    }
}

fn line(args: &Args, named: &Named) -> String {
    let Named { fsname, instance, uuid, mount } = named;
    match (args.instance, args.fsname, args.uuid) {
        (true, ..) => format!("{instance}\n"),
        (_, true, _) => format!("{fsname}\n"),
        (.., true) => format!("{uuid}\n"),
        _ => format!("{fsname}-{instance} {mount}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    #[test]
    fn a_name_or_one_part_of_it() {
        let named = Named {
            fsname: "testfs".into(),
            instance: "9a80".into(),
            uuid: "9a80ff".into(),
            mount: "/mnt".into(),
        };
        let check = |options: &str| {
            let parsed = parse::<Args>(format!("x {options}").split_whitespace());
            parsed.map(|args| line(&args, &named)).map_err(|error| error.to_string())
        };
        assert_eq!(check(""), Ok("testfs-9a80 /mnt\n".into()));
        assert_eq!(
            [check("-i"), check("-n"), check("-u")],
            [Ok("9a80\n".into()), Ok("testfs\n".into()), Ok("9a80ff\n".into())]
        );
        assert!(check("-i -n").is_err());
    }
}

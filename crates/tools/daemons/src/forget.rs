//! `nacre forget`: removes a target from its file system's configuration at the MGS, which is
//! served here.

use anyhow::{Context, Result, bail};
use ctl::ask::{self, AskError};
use ctl::{Ask, Reply, everywhere};
use types::{Errno, TargetId, TargetKind};

use crate::export_meta::server_of;
use crate::objects;

/// Has the MGS forget `target`, and says what that means.
///
/// # Errors
/// The target has objects or files, or cannot be asked for them, and `force` is not set. No MGS is
/// here, or it refuses.
pub fn run(target: &str, force: bool) -> Result<()> {
    const NOT_HERE: &str =
        "forget runs on the machine that serves the MGS, and no MGS is served here";
    if everywhere::daemons().is_empty() {
        bail!(NOT_HERE);
    }
    let is_mdt = is_spare_mdt(target);
    if !force && objects::is_ost(target) {
        refuse_used(target)?;
    }
    if !force && is_mdt {
        refuse_held(target)?;
    }
    let question = Ask::Forget { target: target.to_owned() };
    for daemon in everywhere::daemons() {
        match ask::ask_within(&daemon.socket, &question, everywhere::patience()) {
            Ok(Reply::Lines(_)) if is_mdt => {
                ctl::say!(
                    "{target} is forgotten: nothing waits for it, and no storage can take its index; its storage is as it \
                     was, and its server can be stopped"
                );
                return Ok(());
            }
            Ok(Reply::Lines(_)) => {
                ctl::say!(
                    "{target} is forgotten: nothing waits for it, and what files have there answers EIO; its storage is as \
                     it was"
                );
                return Ok(());
            }
            Err(AskError::Refused(failure))
                if [Errno::ENODEV.raw(), Errno::ENOTTY.raw()].contains(&failure.errno) => {}
            Err(AskError::Refused(failure)) => bail!(failure.text),
            Err(error) => ctl::say!("nacre forget: {daemon}: {error}"),
            Ok(_) => {}
        }
    }
    bail!(NOT_HERE)
}

/// Whether it is the name of an MDT that a file system can do without.
fn is_spare_mdt(target: &str) -> bool {
    let id = target.parse::<TargetId>();
    id.is_ok_and(|id| id.kind == TargetKind::Mdt && id.index > 0)
}

/// An MDT is needed while it has files, or may get some.
fn refuse_held(target: &str) -> Result<()> {
    let socket = server_of(target).with_context(|| {
        format!(
            "{target} is not served on this machine, so it cannot be asked whether it is empty: read \
             mdt.{target}.held where it is served. If all counts are zero, or if it is gone for good, --force forgets it"
        )
    })?;
    let value = |name: &str| -> Result<String> {
        let question = Ask::Get { pattern: format!("mdt.{target}.{name}"), recursive: false };
        let answer = ask::ask_within(&socket, &question, everywhere::patience())?;
        let Reply::Values(values) = answer else {
            bail!("the daemon answered another question: is it of another version?");
        };
        let first = values.into_iter().next();
        first.map(|value| value.value).with_context(|| format!("{target} does not show its {name}"))
    };
    if value("no_create")?.trim() != "1" {
        bail!(
            "{target} takes new directories: close it first, with nacre lctl set_param -P mdt.{target}.no_create=1, \
             and empty it"
        );
    }
    let held = value("held")?;
    if !is_empty(&held) {
        let held = held.lines().collect::<Vec<_>>().join(", ");
        bail!(
            "{target} is not empty: {held}. Move its files and directories with `lfs migrate -m MDT --inodes`; the rest \
             goes within seconds"
        );
    }
    Ok(())
}

/// Whether all counts of an MDT are zero.
fn is_empty(held: &str) -> bool {
    !held.trim().is_empty() && held.lines().all(|line| line.ends_with(" 0"))
}

/// A slow OST is not an empty one: the administrator says which of them are gone.
fn refuse_used(target: &str) -> Result<()> {
    match objects::count_some(target) {
        Ok(0) => Ok(()),
        Ok(count) => bail!(
            "{target} is not empty: it has {count} or more objects. Move files away with `lfs migrate`; \
             objects of removed files go within seconds. --force forgets it, and its files return EIO"
        ),
        Err(error) => bail!(
            "{target} cannot be asked whether it has objects: {error}. Start it; if it is gone for good, --force \
             forgets it, and its files return EIO"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mdt_without_files_is_empty() {
        assert!(is_empty("inodes 0\noperations 0\nremovals 0\n"));
        for held in
            ["inodes 10\noperations 0\n", "inodes 0\nremovals 1000 or more\n", "unknown\n", ""]
        {
            assert!(!is_empty(held), "{held}");
        }
        let spare = ["testfs-MDT0001", "testfs-MDT0000", "testfs-OST0001", "MGS"].map(is_spare_mdt);
        assert_eq!(spare, [true, false, false, false]);
    }
}

//! `lfs pool_list`, and pools in other commands.

use std::path::{Path, PathBuf};

use ctl::{Ask, Pools, Reply, rundir};
use types::Errno;

use super::ids;
use crate::mountpoint::{self, Mount};
use crate::{Failed, pools};

/// Arguments of `lfs pool_list`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  lfs pool_list testfs          its pools\n  lfs pool_list testfs.flash    the OSTs of one\n  lfs pool_list /mnt/testfs"
)]
pub(super) struct Args {
    /// FSNAME, FSNAME.POOL or any path in the file system.
    #[arg(value_name = "FSNAME[.POOL]|PATH")]
    what: String,
}

pub(super) fn list(args: &Args) -> Result<(), Failed> {
    const COMMAND: &str = "lfs pool_list";
    let path = PathBuf::from(&args.what);
    let (mount, pool) = if path.is_absolute() || path.exists() {
        (mountpoint::near(&path, COMMAND)?, "")
    } else {
        let (fsname, pool) = args.what.split_once('.').unwrap_or((&args.what, ""));
        (of_fs(fsname, COMMAND)?, pool)
    };
    let known = of(&mount, COMMAND)?;
    match pools::render(&known, pool) {
        Some(shown) => crate::out::print(&shown),
        None => return Err(unknown(&known, pool, COMMAND)),
    }
    Ok(())
}

fn of_fs(fsname: &str, command: &str) -> Result<Mount, Failed> {
    let mounts = mountpoint::all().map_err(|error| Failed::io(&error, command, fsname))?;
    let is_alive = |mount: &Mount| rundir::of_device(mount.device).is_some();
    ids::of_name(mounts, fsname, is_alive, command)?.ok_or_else(|| {
        let text = format!(
            "{command}: no file system '{fsname}' is mounted here; nacre status lists the mounts"
        );
        Failed::new(Errno::ENODEV.raw(), text)
    })
}

/// The pools of a mount's file system, as the MGS has them now.
pub(super) fn of(mount: &Mount, command: &str) -> Result<Pools, Failed> {
    match mountpoint::ask(mount, &Ask::Pools { fsname: String::new() }, command)? {
        Reply::Pools(pools) => Ok(pools),
        _ => Ok(Pools::default()),
    }
}

/// Members of the pool that a command names, with the file system's name before it or without.
pub(super) fn members(mount: &Mount, named: &str, command: &str) -> Result<Vec<u32>, Failed> {
    let known = of(mount, command)?;
    let (fsname, pool) = pools::parse(named);
    match known.pools.get(pool) {
        Some(osts) if fsname.is_empty() || fsname == known.fsname => Ok(osts.clone()),
        _ => Err(unknown(&known, named, command)),
    }
}

fn unknown(known: &Pools, pool: &str, command: &str) -> Failed {
    let text = format!(
        "error: {command}: there is no pool '{pool}' in {}: see lfs pool_list {}",
        known.fsname, known.fsname
    );
    Failed::new(Errno::EINVAL.raw(), text)
}

/// A layout with a pool, which was called `named`: that is there, with OSTs, and those that are
/// asked for by number are in it.
pub(super) fn check(path: &Path, template: &layout::Template, named: &str) -> Result<(), Failed> {
    const COMMAND: &str = "lfs setstripe";
    if template.pool_name().is_empty() || template.ignores_pool() {
        return Ok(());
    }
    let mount = mountpoint::of(path, COMMAND)?;
    let members = members(&mount, named, COMMAND)?;
    let wrong =
        |text: String| Err(Failed::new(Errno::EINVAL.raw(), format!("error: {COMMAND}: {text}")));
    if members.is_empty() {
        return wrong(format!("pool '{named}' has no OSTs yet: see lctl pool_add"));
    }
    let start = u32::try_from(template.start).ok();
    match template.osts.iter().chain(&start).find(|ost| !members.contains(ost)) {
        Some(ost) => wrong(format!("OST index {ost} is not in pool '{named}'")),
        None => Ok(()),
    }
}

//! `lctl pool_new`, `pool_add`, `pool_remove`, `pool_destroy`, `pool_list`: run on the node of the
//! MGS. A change returns when the daemons of this machine know it.

use std::time::{Duration, Instant};

use ctl::ask::{self, AskError};
use ctl::{Ask, PoolChange, Pools, Reply, everywhere};
use types::Errno;

use crate::failure::First;
use crate::{Failed, pools};

/// How long a change waits for the daemons of this machine. Other machines take as long.
const KNOWN_WAIT: Duration = Duration::from_secs(12);
const LOOK: Duration = Duration::from_millis(50);

/// A pool.
#[derive(Debug, clap::Args)]
pub(super) struct Named {
    /// FSNAME.POOL; POOL alone where the MGS knows one file system.
    #[arg(value_name = "FSNAME.POOL")]
    pool: String,
}

/// A pool and OSTs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  lctl pool_new testfs.flash\n  lctl pool_add testfs.flash OST0000 OST0001\n  lctl pool_add testfs.disk OST[2-7]\n  lfs setstripe -p flash /mnt/testfs/small"
)]
pub(super) struct Members {
    #[command(flatten)]
    pool: Named,
    /// OST0002, testfs-OST0002_UUID, 2, or patterns with hexadecimal numbers: OST[0-7/2],
    /// OST[8,a-c]. Of a pattern those count that are there.
    #[arg(required = true, value_name = "OST")]
    osts: Vec<String>,
}

/// What to list.
#[derive(Debug, clap::Args)]
pub(super) struct Listed {
    /// FSNAME for its pools, FSNAME.POOL for the OSTs of one.
    #[arg(value_name = "FSNAME[.POOL]")]
    what: String,
}

pub(super) fn make(args: &Named) -> Result<(), Failed> {
    let (changed, pool) = change("pool_new", &args.pool, PoolChange::New)?;
    ctl::say!("Pool {}.{pool} created", changed.fsname);
    wait_until_known(&changed);
    Ok(())
}

pub(super) fn destroy(args: &Named) -> Result<(), Failed> {
    let (changed, pool) = change("pool_destroy", &args.pool, PoolChange::Destroy)?;
    ctl::say!("Pool {}.{pool} destroyed", changed.fsname);
    wait_until_known(&changed);
    Ok(())
}

pub(super) fn add(args: &Members) -> Result<(), Failed> {
    members("pool_add", args, PoolChange::Add, "added to")
}

pub(super) fn remove(args: &Members) -> Result<(), Failed> {
    members("pool_remove", args, PoolChange::Remove, "removed from")
}

pub(super) fn list(args: &Listed) -> Result<(), Failed> {
    let command = "pool_list";
    let (fsname, pool) = args.what.split_once('.').unwrap_or((&args.what, ""));
    let known = ask_mgs(command, &Ask::Pools { fsname: fsname.to_owned() })?;
    match pools::render(&known, pool) {
        Some(shown) => crate::out::print(&shown),
        None => {
            let fsname = &known.fsname;
            let why = format!("there is no pool {fsname}.{pool}: see lctl pool_list {fsname}");
            return Err(Failed::new(Errno::ENOENT.raw(), format!("error: {command}: {why}")));
        }
    }
    Ok(())
}

fn members(
    command: &str,
    args: &Members,
    of: fn(u32) -> PoolChange,
    done: &str,
) -> Result<(), Failed> {
    let (fsname, pool) = pools::parse(&args.pool.pool);
    let mut known = ask_mgs(command, &Ask::Pools { fsname: fsname.to_owned() })?;
    if matches!(of(0), PoolChange::Remove(_)) {
        known = pools::with_members(known, pool);
    }
    let mut first = First::default();
    let mut last = None;
    for word in &args.osts {
        let osts = match pools::expand(word, &known) {
            Ok(osts) => osts,
            Err(why) => {
                first.note(&Failed::new(Errno::ENODEV.raw(), format!("error: {command}: {why}")));
                continue;
            }
        };
        for index in osts {
            match change(command, &args.pool.pool, of(index)) {
                Ok((changed, pool)) => {
                    let fsname = &changed.fsname;
                    ctl::say!("OST {fsname}-OST{index:04x}_UUID {done} pool {fsname}.{pool}");
                    last = Some(changed);
                }
                Err(failed) => first.note(&failed),
            }
        }
    }
    if let Some(changed) = last {
        wait_until_known(&changed);
    }
    first.end()
}

/// The pools afterwards, and the pool's own name.
fn change(command: &str, named: &str, change: PoolChange) -> Result<(Pools, String), Failed> {
    let (fsname, pool) = pools::parse(named);
    let (fsname, pool) = (fsname.to_owned(), pool.to_owned());
    let question = Ask::Pool { fsname, pool: pool.clone(), change };
    ask_mgs(command, &question).map(|changed| (changed, pool))
}

/// Asks the first daemon of this machine that is an MGS, or at least knows the pools.
fn ask_mgs(command: &str, question: &Ask) -> Result<Pools, Failed> {
    let mut silent = None;
    for daemon in everywhere::daemons() {
        match ask::ask_within(&daemon.socket, question, everywhere::patience()) {
            Ok(Reply::Pools(pools)) => return Ok(pools),
            Ok(_) => {}
            Err(AskError::Refused(failure)) if is_no_mgs(failure.errno) => {}
            Err(AskError::Refused(failure)) => {
                return Err(Failed::new(
                    failure.errno,
                    format!("error: {command}: {}", failure.text),
                ));
            }
            Err(error) => {
                let text = format!("error: {command}: {daemon}: {error}");
                silent.get_or_insert(Failed::new(error.errno(), text));
            }
        }
    }
    let none = || {
        let why = "this runs on the machine that serves the MGS, and no MGS is served here";
        Failed::new(Errno::ENODEV.raw(), format!("error: {command}: {why}"))
    };
    Err(silent.unwrap_or_else(none))
}

fn is_no_mgs(errno: i32) -> bool {
    [Errno::ENODEV.raw(), Errno::ENOTTY.raw()].contains(&errno)
}

/// New files are placed by MDTs, and names of pools are checked by mounts: both learn of a change
/// within seconds.
fn wait_until_known(changed: &Pools) {
    let question = Ask::Pools { fsname: changed.fsname.clone() };
    let begin = Instant::now();
    let is_known = |answer: &Result<Reply, AskError>| match answer {
        Ok(Reply::Pools(pools)) => pools.fsname != changed.fsname || pools.pools == changed.pools,
        _ => true, // it has nothing to do with pools, or does not answer
    };
    while begin.elapsed() < KNOWN_WAIT {
        if everywhere::ask_all(&question).iter().all(|(_, answer)| is_known(answer)) {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

//! `nacre up`: a whole file system on this machine, mounted.
//!
//! ```text
//!  up            one process: servers on one thread, client and FUSE on another, `lo` between; TCP for further clients
//!  up --executors N   the same with N threads of servers
//!  up --separate one process per server, each with a loopback address of its own; client and FUSE here
//! ```
//!
//! Once mounted it stays. If a target is given up or not there, only that target is missing. Calls
//! that need it wait.
//!
//! `up` never touches its own mount with a blocking call, because the calling thread would have to
//! answer itself.

mod address;
mod children;
mod command;
mod embedded;
mod known;
mod lingering;
mod options;
mod place;
mod plan;
mod shares;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use client::{Client, Ctx};
use ctl::mounts;
use env::Env;
use layout::dir;
use tracing::level_filters::LevelFilter;
use types::{ClientId, Errno, Fid, Nid, NidAddr};

use self::address::Block;
use self::children::Children;
use self::embedded::Embedded;
use self::lingering::Linger;
pub use self::options::Options;
use self::place::Place;
use self::shares::shares;
use crate::machine::Machine;
use crate::mount::kept::Kept;
use crate::mount::{self, MountOptions};
use crate::signals::Signals;
use crate::{alias, format, log, server};

/// How often a mount is tried where an MDT is missing. The others wait two minutes for it before
/// they serve, because it may know changes that they have a part in.
const MOUNT_ATTEMPTS: u32 = 4;

/// Levels below the root at which new directories go to the MDTs in turn, as Lustre has it.
const SPREAD_LEVELS: u8 = 3;

/// The servers, however they run.
enum Servers {
    Embedded(Embedded),
    Children(Children),
}

/// Where the targets of a data directory are, as far as the last `up` on it says.
pub(crate) fn known_dirs(data: &Path) -> Result<Vec<PathBuf>> {
    Ok(place::State::read(&data.join("up.json"))?.dirs())
}

/// Runs until a signal, the end of the mount or of the command; the exit status.
pub fn run(options: Options) -> Result<u8> {
    MountOptions::parse(&options.mount_options)?;
    check_parent(&options.mount)?;
    for (what, dir) in
        [("--data", Some(&options.data)), ("--device-dir", options.device_dir.as_ref())]
    {
        let dir = dir.map(PathBuf::as_path).unwrap_or(Path::new("/"));
        check_apart(&options.mount, what, dir)?;
    }
    let mut place = Place::prepare(&options)?;
    log::init_file(LevelFilter::INFO, options.machine.log_format, &place.log("up"), false)?;
    let dir = mount_point(&options.mount)?;
    let targets = place.targets.iter().map(|target| target.superblock.target);
    let linger = Linger::from_now();
    let block = Block::claim(&options, targets, place.state.net, linger)?;
    let dirs: Vec<PathBuf> = place.targets.iter().map(|target| target.dir.clone()).collect();
    linger.for_targets(&dirs);
    let dead = place.new_client(ClientId(format::random_uuid()?), &block)?;
    let machine = options.machine.on_this_machine()?;
    let config = machine.os_config();
    env_os::run(config, |env| async move {
        let mut signals = Signals::new()?;
        env.spawn("impatience", impatience(Signals::again()?));
        let servers = start(&env, &options, &place, &block, &dead)?;
        let outcome = tokio::select! {
            biased;
            signal = signals.next() => Err(anyhow::anyhow!("{signal} while starting")),
            reason = servers.hopeless() => Err(anyhow::anyhow!(reason)),
            ready = servers.ready() => ready,
        };
        let status = match outcome {
            Ok(()) => {
                let here = Here { options: &options, machine: &machine, block: &block, dir: &dir };
                serve(&env, &here, &mut place, &servers, &mut signals).await
            }
            Err(error) => Err(error),
        };
        servers.stop().await;
        status
    })
}

/// The first signal ends things in order, the second may have been meant for the command; the third
/// means it. Servers end, and the mount is dead as after any death of ours.
async fn impatience(mut signals: Signals) {
    for _ in 0..3 {
        signals.next().await;
    }
    ctl::say!("nacre up: third signal: leaving at once");
    std::process::exit(1);
}

/// The mount point, there and free, or with the dead mount of an `up` that was killed.
fn mount_point(dir: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    if mounts::at(&absolute)?.is_none() {
        match std::fs::create_dir(&absolute) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| absolute.display().to_string());
            }
            _ => {}
        }
    }
    let dir = mount::usable_dir(&absolute)?;
    mount::tell_hidden(&dir);
    Ok(dir)
}

/// Where the mount point may be made. A path of several new directories is a typing error, or
/// something is not mounted.
fn check_parent(mount: &Path) -> Result<()> {
    let absolute = std::path::absolute(mount)?;
    let parent = absolute.parent().unwrap_or(&absolute);
    ensure!(
        parent.is_dir(),
        "--mount {}: {} is not a directory: make it first",
        mount.display(),
        parent.display()
    );
    Ok(())
}

/// What lies below the mount point would be hidden by the mount, and the servers would wait for
/// themselves.
fn check_apart(mount: &Path, what: &str, dir: &Path) -> Result<()> {
    let (mount, dir) = (really(mount)?, really(dir)?);
    ensure!(
        !dir.starts_with(&mount),
        "--mount {}: {what} {} lies below it, and the mount would hide it; mount elsewhere, an empty directory beside it",
        mount.display(),
        dir.display()
    );
    Ok(())
}

/// Where a path leads, as far as it is there. Dead mounts are not asked.
fn really(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let mut rest = Vec::new();
    for there in absolute.ancestors() {
        if let Ok(real) = there.canonicalize() {
            return Ok(rest.iter().rev().fold(real, |path: PathBuf, name| path.join(name)));
        }
        rest.extend(there.file_name());
    }
    Ok(absolute)
}

/// A target is served no longer.
fn tell_given_up(why: &str) {
    tracing::error!("{why}");
    ctl::say!(
        "nacre up: {why}\nnacre up: the other targets and the mount go on; calls that need it wait until `up` starts again"
    );
}

fn start(
    env: &Env,
    options: &Options,
    place: &Place,
    block: &Block,
    dead: &[ClientId],
) -> Result<Servers> {
    if options.separate {
        return Ok(Servers::Children(Children::start(env, options, place, block, dead)));
    }
    Ok(Servers::Embedded(Embedded::start(options, place, block, dead)?))
}

/// What an `up` consists of besides its processes.
struct Here<'a> {
    options: &'a Options,
    machine: &'a Machine,
    block: &'a Block,
    dir: &'a Path,
}

async fn serve(
    env: &Env,
    here: &Here<'_>,
    place: &mut Place,
    servers: &Servers,
    signals: &mut Signals,
) -> Result<u8> {
    let Here { options, machine, block, dir } = *here;
    let kept = tokio::select! {
        biased;
        signal = signals.next() => bail!("{signal} before the mount was there"),
        reason = servers.hopeless() => bail!(reason),
        kept = mount_here(env, options, machine, place, block, dir) => kept?,
    };
    if place.state.is_unmounted && place.mdts() > 1 {
        spread_directories(kept.client()).await;
    }
    place.mounted()?;
    announce(options, place, block, dir);
    let status = work(env, options, dir, signals, &kept).await;
    let given_up = kept.stop(signals.next(), |line| ctl::say!("nacre up: {line}")).await;
    given_up.iter().for_each(|line| ctl::say!("nacre up: given up: {line}"));
    status
}

/// Sets the default of a new file system's root: new directories go to MDTs by space, those near
/// the root in turn (Lustre's default). A failure leaves directories with their parents.
async fn spread_directories(client: &Client) {
    let asked = dir::Asked { max_inherit_rr: SPREAD_LEVELS, ..dir::Asked::default() };
    if let Err(error) = client.set_dir_default(&Ctx::root(), Fid::ROOT, Some(&asked)).await {
        tracing::warn!("the root has no default for new directories: {error}");
    }
}

/// Until a signal, the end of the mount, or of the command.
async fn work(
    env: &Env,
    options: &Options,
    dir: &Path,
    signals: &mut Signals,
    kept: &Kept,
) -> Result<u8> {
    if let Some(command) = &options.run {
        return command::run(env, command, dir, signals).await;
    }
    tokio::select! {
        biased;
        signal = signals.next() => ctl::say!("nacre up: {signal}: unmounting and stopping"),
        () = kept.ended() => ctl::say!("nacre up: {} was unmounted: stopping", dir.display()),
    }
    Ok(0)
}

async fn mount_here(
    env: &Env,
    options: &Options,
    machine: &Machine,
    place: &Place,
    block: &Block,
    dir: &Path,
) -> Result<Kept> {
    let mut mount_options = MountOptions::parse(&options.mount_options)?;
    let env = if options.separate {
        mount_options.nid.get_or_insert(Nid::tcp(block.ip(address::CLIENT)));
        env.clone()
    } else {
        let shares = shares(&place.targets, options.executors, block);
        let inside = shares.iter().map(|share| (share.at, server::lo_of(share.at)));
        alias::with_aliases(env, inside.collect())
    };
    let mount = mount::Options {
        mgs: vec![block.mgs()],
        fsname: options.fsname,
        dir: dir.to_owned(),
        mount: mount_options,
        text: String::new(),
        foreground: true,
        daemon: false,
        log: None,
        machine: options.machine.clone(),
        metrics: options.metrics_port.map(|port| (block.ip(address::CLIENT), port).into()),
    };
    let mut attempts = if place.misses_mdt { MOUNT_ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        match Kept::start(&env, &mount, machine, place.client()).await {
            Err(error) if attempts > 0 && is_timeout(&error) => {
                tracing::warn!("{error:#}; trying again");
            }
            other => return other,
        }
    }
}

fn is_timeout(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<client::Error>();
    error.is_some_and(|error| error.errno() == Errno::ETIMEDOUT)
}

/// What was started and what to try; the address, which scripts want, alone to stdout.
fn announce(options: &Options, place: &Place, block: &Block, dir: &Path) {
    let source = format!("{}:/{}", block.mgs(), options.fsname);
    let shown = dir.display();
    ctl::say!("nacre up: {} is mounted at {shown}", options.fsname);
    let shares = shares(&place.targets, options.executors, block);
    for target in &place.targets {
        let id = target.superblock.target;
        let executor = shares.iter().find(|share| share.has(id) && !options.separate);
        let at = executor.map_or_else(|| block.of(id), |share| share.at);
        ctl::say!("  {:<18} {:<22} {}", target.name(), at.to_string(), target.dir.display());
    }
    for why in &place.missing {
        tracing::error!("{why}");
        ctl::say!("  missing: {why} The others serve; calls that need it wait");
    }
    ctl::say!("  logs in {}", place.log_dir().display());
    if let Some(port) = options.metrics_port {
        ctl::say!(
            "  metrics at http://{}:{port}/metrics, and at each server's address",
            block.ip(address::CLIENT)
        );
    }
    if options.run.is_some() {
        return;
    }
    let nid =
        NidAddr { nid: Nid::tcp(block.ip(address::OTHER_CLIENTS)), port: types::PORT_DEFAULT };
    ctl::say!("try:");
    ctl::say!("  nacre lfs df -h {shown}");
    ctl::say!("  nacre lfs setstripe -c 4 {shown}/wide && nacre lfs getstripe {shown}/wide");
    ctl::say!("  nacre lctl get_param 'obdfilter.*.kbytesfree'");
    ctl::say!("  nacre mount {source} DIR -o nid={nid}     # a further client");
    if options.metrics_port.is_none() {
        ctl::say!(
            "  nacre up --metrics 9169                    # next time: metrics for Prometheus"
        );
    }
    ctl::say!("Ctrl-C unmounts and stops.");
    let _nobody_reads = writeln!(std::io::stdout(), "{source}");
}

impl Servers {
    /// All targets are served and registered.
    async fn ready(&self) -> Result<()> {
        match self {
            Servers::Embedded(embedded) => embedded.ready().await,
            Servers::Children(children) => {
                children.ready().await;
                Ok(())
            }
        }
    }

    /// Completes with a text for the user when nothing can be mounted.
    async fn hopeless(&self) -> String {
        match self {
            Servers::Embedded(embedded) => embedded.hopeless().await,
            Servers::Children(children) => children.hopeless().await,
        }
    }

    async fn stop(self) {
        match self {
            Servers::Embedded(embedded) => embedded.stop().await,
            Servers::Children(children) => children.stop().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_below_the_mount_point_is_refused() {
        let top = std::env::temp_dir().join(format!("nacre-apart-{}", std::process::id()));
        std::fs::create_dir_all(top.join("data")).expect("directories");
        std::os::unix::fs::symlink(top.join("data"), top.join("link")).expect("a link");
        let is_refused = |mount: &str, data: &str| {
            check_apart(&top.join(mount), "--data", &top.join(data)).is_err()
        };
        assert!(is_refused("", "data") && is_refused("", "new/data") && is_refused(".", "."));
        assert!(is_refused("data", "link") && is_refused("link", "data/new"));
        assert!(!is_refused("mnt", "data") && !is_refused("data/mnt", "data"));
        assert!(!is_refused("dat", "data"));
        std::fs::remove_dir_all(&top).expect("cleaned up");
    }
}

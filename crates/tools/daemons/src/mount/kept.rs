//! A running mount: client, FUSE session, control socket. Used by `nacre mount` and by `nacre up`.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::rc::Rc;

use ::params::ParamTree;
use anyhow::{Context, Result};
use client::{Client, Ctx};
use ctl::rundir::Registered;
use ctl::{Ask, Device, Failure, RawPath, Reply, Room, Space, Target, Who, mounts};
use env::{Env, LocalFuture, Task};
use fuse::{Jobids, Mounted};
use fusedev::Channel;
use metrics::Shown;
use selftest::SelfTest;
use service::Node;
use types::{ClientId, Creds, Errno, Fid, Nid, NidAddr};

use super::leaving::Leaving;
use super::migrations::Migrations;
use super::{Options, params};
use crate::lst;
use crate::machine::Machine;
use crate::permanent::Permanent;

/// A mount and its client.
pub(crate) struct Kept {
    client: Client,
    mounted: Mounted,
    control: Option<(Registered, Task)>,
    leaving: Rc<Leaving>,
    /// Its part in self-tests, where it can listen for them.
    tester: Option<Rc<Node>>,
    _metrics: Option<metrics::Endpoint>,
}

impl Kept {
    /// Mounts the file system; usable when this returns.
    pub(crate) async fn start(
        env: &Env,
        options: &Options,
        machine: &Machine,
        id: ClientId,
    ) -> Result<Kept> {
        let params = ParamTree::new();
        machine.register(&params);
        let shown = Shown { params: params.clone(), lnet: machine.lnet.clone(), executor: None };
        let metrics = metrics::start(env, options.metrics, shown, Vec::new()).await;
        let client = Client::mount(env, options.client(id)).await.with_context(|| {
            format!(
                "{} cannot be mounted (does its MGS run, and does it know this file system?)",
                options.source()
            )
        })?;
        let jobids = Rc::<Jobids>::default();
        let kernel = options.kernel();
        super::replace_dead(&options.dir)?;
        let manner = options.mount.manner;
        let mounted = fuse::mount(env, client.clone(), &kernel, jobids.clone(), manner).await;
        let mounted = match mounted {
            Ok(mounted) => mounted,
            Err(error) => {
                client.unmount().await; // nothing was changed: there is nothing to wait for
                return Err(error.into());
            }
        };
        let tester = match self_test_addr(options) {
            Some(at) => lst::listen_beside(env, at).await,
            None => None,
        };
        let transport =
            if mounted.info().transport() == Channel::Uring { "uring" } else { "classic" };
        let llite = format!("llite.{}-{id}", client.fsname());
        params.register(format!("{llite}.transport"), move || transport.to_owned());
        params::register_stats(&params, &llite, env, &mounted);
        params::register_jobids(&params, &jobids);
        let permanent = Rc::new(Permanent::default());
        let tester_params = tester.as_ref().map(|(_, tester)| tester);
        let leaving = Leaving::new(env, &client);
        let control = control(&client, options, &params, &permanent, id, tester_params, &leaving);
        permanent.apply(&params, &client.permanent_params()).await;
        if let Err(error) = &control {
            tracing::warn!("no control socket, lfs and lctl will not find this mount: {error:#}");
        }
        let tester = tester.map(|(node, _)| node);
        Ok(Kept { client, mounted, control: control.ok(), leaving, tester, _metrics: metrics })
    }

    /// The client behind the mount.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Completes when somebody took the mount away, or wants it to end.
    pub(crate) async fn ended(&self) {
        tokio::select! {
            biased;
            ended = self.mounted.run_until_unmounted() => {
                if let Err(error) = ended {
                    tracing::error!("the FUSE session failed: {error}");
                }
            }
            () = self.leaving.hurried() => {}
        }
    }

    /// Takes the mount away, waits until its servers have made everything durable, hangs up. Waits
    /// no longer when `signal` comes; `say` hears what it waits for. Tells what was given up.
    pub(crate) async fn stop(
        mut self,
        signal: impl Future<Output = &'static str>,
        say: fn(&str),
    ) -> Vec<String> {
        if let Some(tester) = &self.tester {
            tester.stop().await;
        }
        if let Err(error) = self.mounted.unmount().await {
            tracing::warn!("unmounting {}: {error}", self.mounted.mountpoint().display());
        }
        if let Some((registered, _)) = &mut self.control {
            registered.drop_device();
        }
        let given_up = self.leaving.wait(self.mounted.finish(), signal, say).await;
        self.client.leave().await;
        if let Some((_, refresh)) = &self.control {
            refresh.abort();
        }
        given_up
    }
}

/// Where a mount listens for self-tests, on the port of its MGS: at its own NID; without one where
/// its MGS would see it, if that is this machine; else on every address, where plaintext is
/// allowed.
fn self_test_addr(options: &Options) -> Option<NidAddr> {
    let local = options.mgs.iter().all(|mgs| mgs.nid.addr().is_loopback());
    let nid = match options.mount.nid {
        Some(nid) => nid,
        None if local => Nid::tcp(Ipv4Addr::LOCALHOST),
        None if options.mount.insecure => Nid::tcp(Ipv4Addr::UNSPECIFIED),
        None => return None,
    };
    Some(NidAddr { nid, port: options.mgs.first()?.port })
}

fn control(
    client: &Client,
    options: &Options,
    params: &ParamTree,
    permanent: &Rc<Permanent>,
    id: ClientId,
    tester: Option<&Rc<SelfTest>>,
    leaving: &Rc<Leaving>,
) -> Result<(Registered, Task)> {
    let instance = id.to_string();
    params::register(params, client, &instance, &options.text);
    if let Some(tester) = tester {
        selftest::register(params, std::slice::from_ref(tester));
    }
    let refreshed = params::refresh(
        client.env().clone(),
        params.clone(),
        client.clone(),
        instance.clone(),
        permanent.clone(),
    );
    let refresh = client.env().spawn("mount parameters", refreshed);
    let answers = Control {
        client: client.clone(),
        dir: options.dir.clone(),
        instance: instance.clone(),
        id,
        nid: options.mount.nid,
        leaving: leaving.clone(),
        migrations: Migrations::new(client.clone()),
    };
    let mut control = ctl::server::serve(
        client.env(),
        &format!("client-{}-{instance}", options.fsname),
        params,
        Rc::new(answers),
    )?;
    let mount = mounts::at(&options.dir)?.context("the mount is not in the kernel's table")?;
    control.add_device(mount.device)?;
    Ok((control, refresh))
}

/// The control socket's view of a mount.
struct Control {
    client: Client,
    dir: PathBuf,
    instance: String,
    id: ClientId,
    nid: Option<types::Nid>,
    leaving: Rc<Leaving>,
    migrations: Rc<Migrations>,
}

impl ctl::server::Answers for Control {
    fn who(&self) -> Who {
        Who {
            kind: "client".into(),
            pid: std::process::id(),
            fsname: self.client.fsname().to_string(),
            targets: Vec::new(),
            osts: Vec::new(),
            mdts: Vec::new(),
            mount: Some(self.dir.display().to_string()),
            instance: self.instance.clone(),
            uuid: self.id.to_string(),
        }
    }

    fn devices(&self) -> Vec<Device> {
        let connectors = self.client.mdts().into_iter().map(|target| ("mdc", target));
        let connectors =
            connectors.chain(self.client.osts().into_iter().map(|target| ("osc", target)));
        let data = self.client.data_targets().into_iter().map(|target| ("mdc_data", target));
        let connectors = connectors.chain(data);
        connectors.map(|(kind, target)| self.device(kind, &target)).collect()
    }

    fn nids(&self) -> Vec<String> {
        self.nid.map(|nid| nid.to_string()).into_iter().collect()
    }

    fn special(&self, ask: Ask, creds: Creds) -> LocalFuture<'static, Result<Reply, Failure>> {
        let leaving = self.leaving.clone();
        match ask {
            Ask::Leaving => Box::pin(async move { Ok(Reply::Leaving(leaving.report().await)) }),
            Ask::Migrate { path, striping, gives_way } => {
                let (migrations, ctx) = (self.migrations.clone(), Ctx { creds, ..Ctx::root() });
                Box::pin(async move { migrations.begin(ctx, path, &striping, gives_way) })
            }
            Ask::MigrationState { number } => {
                let state = self.migrations.state(number, &creds);
                Box::pin(async move { state })
            }
            Ask::GiveUp => Box::pin(async move { Ok(Reply::Leaving(leaving.give_up().await)) }),
            ask => Box::pin(special(self.client.clone(), ask, creds)),
        }
    }
}

impl Control {
    fn device(&self, kind: &str, target: &client::TargetState) -> Device {
        let status = if !target.active {
            "IN"
        } else if target.connected {
            "UP"
        } else {
            "ST"
        };
        Device {
            status: status.into(),
            kind: kind.into(),
            name: format!("{}-{kind}-{}", target.name, self.instance),
            uuid: format!("{}_UUID", target.name),
            refs: 1,
            nid: target.nid.clone(),
        }
    }
}

async fn special(client: Client, ask: Ask, creds: Creds) -> Result<Reply, Failure> {
    let ctx = Ctx { creds, ..Ctx::root() };
    let failed =
        |error: client::Error| Failure { errno: error.errno().raw(), text: error.to_string() };
    match ask {
        Ask::Mdts => Ok(Reply::Targets(client.mdts().iter().map(target).collect())),
        Ask::Osts => Ok(Reply::Targets(client.osts().iter().map(target).collect())),
        Ask::Pools { fsname } if !fsname.is_empty() && fsname != client.fsname().as_str() => {
            let text = "this mount is of another file system".to_owned();
            Err(Failure { errno: Errno::ENODEV.raw(), text })
        }
        Ask::Pools { .. } => {
            let config = client.fresh_config().await;
            Ok(Reply::Pools(crate::server::pools::of_config(&config)))
        }
        Ask::Mgs => Ok(Reply::Targets(vec![target(&client.mgs().await)])),
        Ask::Df => Ok(Reply::Spaces(client.df().await.iter().map(space).collect())),
        Ask::Path2fid { path } => {
            let attr = client.lookup_path(&ctx, &path.0).await.map_err(failed)?;
            Ok(Reply::Lines(vec![attr.fid().to_string()]))
        }
        Ask::Create { dir, name, umask, striping } => {
            let template =
                layout::lov::decode_any(&striping).map_err(|_| Failure::of(Errno::EINVAL))?;
            let ctx = Ctx { umask, ..ctx };
            let parent = client.lookup_path(&ctx, &dir.0).await.map_err(failed)?.fid();
            let flags = (libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY).cast_unsigned();
            let made = client
                .create(&ctx, parent, &name.0, libc::S_IFREG | 0o644, flags, Some(&template))
                .await;
            let (attr, file) = made.map_err(failed)?;
            file.close().await.map_err(failed)?;
            Ok(Reply::Lines(vec![attr.fid().to_string()]))
        }
        Ask::Mkdir { dir, name, mode, umask, striping } => {
            let spread = layout::dir::Asked::decode(&striping);
            let spread = spread.map_err(|error| Failure::of(error.errno()))?;
            let ctx = Ctx { umask, ..ctx };
            let parent = client.lookup_path(&ctx, &dir.0).await.map_err(failed)?.fid();
            let made = client.mkdir_spread(&ctx, parent, &name.0, mode, Some(&spread));
            Ok(Reply::Lines(vec![made.await.map_err(failed)?.fid().to_string()]))
        }
        Ask::Fid2path { .. } if ctx.creds.uid != 0 => Err(Failure::of(Errno::EPERM)),
        Ask::Fid2path { fid } => {
            let fid: Fid = fid.parse().map_err(|_| Failure::of(Errno::EINVAL))?;
            Ok(paths(client.fid2path(&ctx, fid).await.map_err(failed)?))
        }
        _ => Err(Failure::of(Errno::ENOTTY)),
    }
}

/// As lines, which tools of earlier versions know, where they are text.
fn paths(paths: Vec<Vec<u8>>) -> Reply {
    let lines = paths.iter().map(|path| std::str::from_utf8(path).map(str::to_owned));
    let lines: Result<Vec<String>, std::str::Utf8Error> = lines.collect();
    match lines {
        Ok(lines) => Reply::Lines(lines),
        Err(_) => Reply::Paths(paths.into_iter().map(RawPath).collect()),
    }
}

/// A target as the control socket tells it; that the MGS is active means that it answered.
fn target(state: &client::TargetState) -> Target {
    Target {
        kind: state.id.kind.as_str().into(),
        index: state.id.index,
        name: state.name.clone(),
        state: state.state.clone(),
        is_active: state.active,
        nid: state.nid.clone(),
    }
}

fn space(space: &client::TargetSpace) -> Space {
    let room = |statfs: client::Statfs| Room {
        bytes: statfs.blocks * statfs.block_bytes,
        bytes_free: statfs.blocks_free * statfs.block_bytes,
        bytes_avail: statfs.blocks_avail * statfs.block_bytes,
        files: statfs.files,
        files_free: statfs.files_free,
    };
    let letters = STATES.iter().filter(|(state, _)| space.marks.contains(*state));
    Space {
        target: target(&space.target),
        space: space.space.map(room),
        letters: letters.map(|(_, letter)| *letter).collect(),
    }
}

/// States of a target, by the letters of `lfs df`.
const STATES: [(client::StatfsState, char); 5] = [
    (client::StatfsState::DEGRADED, 'D'),
    (client::StatfsState::READ_ONLY, 'R'),
    (client::StatfsState::NO_CREATE, 'N'),
    (client::StatfsState::FULL, 'S'),
    (client::StatfsState::NO_INODES, 'I'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_lines_where_they_are_text() {
        let text = vec![b"/a".to_vec(), b"/b".to_vec()];
        assert_eq!(paths(text), Reply::Lines(vec!["/a".into(), "/b".into()]));
        let odd = vec![b"/a".to_vec(), b"/\xe9".to_vec()];
        assert_eq!(paths(odd.clone()), Reply::Paths(odd.into_iter().map(RawPath).collect()));
    }
}

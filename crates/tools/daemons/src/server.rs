//! A server node: opens, serves and announces targets of one file system, on one executor. A
//! process may have several nodes, each on an executor of its own.
//!
//! Order of a start: superblocks and locks; listeners; the MGT, if it is here; OSTs; MDTs. Then
//! each target registers with the MGS in the background, for as long as that takes. So servers may
//! start in any order. Used by `nacre serve` (a process) and by `nacre up` (a thread).

mod among;
mod announce;
mod data;
mod export;
mod forget;
mod mend;
mod objects;
mod params;
pub(crate) mod patience;
mod peers;
pub(crate) mod pools;
mod scrub;
mod sizes;
mod store;
#[cfg(test)]
mod tests;
mod waits;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ::params::ParamTree;
use anyhow::{Context, Result, bail};
use ctl::rundir::Registered;
use ctl::{Ask, Device, Failure, Reply, Who};
use endpoint::{Endpoint, EndpointConfig, ImportConfig};
use env::{Env, LocalFuture};
use mdt::{Mdt, MdtConfig};
use mgt::{Mgt, MgtConfig};
use osd::StoreError;
use osd_disk::{TargetLock, superblock};
use ost::{Ost, OstConfig};
use selftest::{SelfTest, SelfTestConfig};
use service::{Exports, Node, NodeConfig, Target, spec};
use tokio::sync::watch;
use types::{ClientId, Creds, Errno, FsName, Net, Nid, NidAddr, Span, TargetId, TargetKind};

pub use self::among::Among;
pub(crate) use self::among::check_reset;
use self::export::Exporter;
pub use self::peers::Awaited;
pub(crate) use self::peers::kept_in;
use self::peers::{Peers, Told};
pub use self::store::Trust;
pub(crate) use self::store::{begin_anew, forget_clients};
use crate::machine::Machine;
use crate::permanent::{Permanent, keep};
use crate::pretend::Pretend;
use crate::targets::{self, TargetDir};

/// What to serve and how.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Targets, or directories of targets.
    pub dirs: Vec<PathBuf>,
    /// Where to listen; told to the MGS.
    pub listen: NidAddr,
    /// Where the MGS is, if not where the superblocks say.
    pub mgs: Vec<NidAddr>,
    /// Wait for no client of an earlier run.
    pub abort_recovery: bool,
    /// What to take storage for that is not what it was.
    pub trust: Trust,
    /// Clients of an earlier run that are known to be dead.
    pub dead_clients: Vec<ClientId>,
    /// Take over no permanent parameter.
    pub no_permanent: bool,
    /// CPU partitions, their use, credits.
    pub machine: Machine,
    /// Where to answer Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Acknowledged changes are durable after this long at the latest.
    pub commit_interval: Span,
    /// Devices that targets pretend to be on.
    pub devices: Vec<Pretend>,
    /// An MDT counts as registered only when it knows so many targets: it places files and
    /// directories on those that it knows.
    pub awaited: Awaited,
    pub among: Among,
}

/// A target being served.
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) body: Body,
    /// Held for as long as the target is served.
    _lock: TargetLock,
    pub(crate) store: store::Opened,
}

/// What kind of target it is.
#[derive(Clone)]
pub(crate) enum Body {
    Mgt(Rc<Mgt>),
    Mdt(Rc<Mdt>),
    Ost(Rc<Ost>),
}

impl Body {
    fn target(&self) -> Rc<dyn service::Target> {
        match self {
            Body::Mgt(target) => target.clone(),
            Body::Mdt(target) => target.clone(),
            Body::Ost(target) => target.clone(),
        }
    }

    fn id(&self) -> TargetId {
        self.target().id()
    }

    /// Ends as a target without which another one is of no use.
    fn fail(&self, reason: &str) {
        match self {
            Body::Mgt(_) => {}
            Body::Mdt(target) => target.fail(reason),
            Body::Ost(target) => target.fail(reason),
        }
    }

    pub(crate) fn exports(&self) -> Rc<Exports> {
        self.target().exports()
    }

    /// The first part of its parameters' names.
    fn kind(&self) -> &'static str {
        match self {
            Body::Mgt(_) => "mgs",
            Body::Mdt(_) => "mdt",
            Body::Ost(ost) if ost.id().is_dom() => "mdt_data",
            Body::Ost(_) => "obdfilter",
        }
    }

    async fn stop(&self) -> Result<(), StoreError> {
        match self {
            Body::Mgt(target) => target.stop().await,
            Body::Mdt(target) => target.stop().await,
            Body::Ost(target) => target.stop().await,
        }
    }
}

/// Why a node must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The storage of its last target failed: another start may find it well.
    Storage(TargetId, String),
    /// The MGS refused a target: another start changes nothing.
    Refused(TargetId, String),
}

impl Ended {
    /// Whose fault it is: an MDT's where it is that of its data target.
    #[must_use]
    pub fn culprit(&self) -> TargetId {
        let (Ended::Storage(target, _) | Ended::Refused(target, _)) = self;
        target.dom_of().unwrap_or(*target)
    }
}

/// The target that keeps a node from starting: the context of such an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Culprit {
    pub target: TargetId,
    fsname: FsName,
}

impl Culprit {
    fn of(target: &TargetDir) -> Culprit {
        let id = target.superblock.target;
        Culprit { target: id.dom_of().unwrap_or(id), fsname: target.superblock.fsname }
    }
}

impl std::fmt::Display for Culprit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.target.name(self.fsname))
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Ended::Storage(_, reason) | Ended::Refused(_, reason)) = self;
        f.write_str(reason)
    }
}

/// A node being served.
pub struct Server {
    env: Env,
    node: Rc<Node>,
    endpoint: Rc<Endpoint>,
    tester: Rc<SelfTest>,
    peers: Rc<Peers>,
    targets: Vec<Running>,
    addr: NidAddr,
    machine: Machine,
    among: Among,
    metrics_at: Option<SocketAddr>,
    metrics: RefCell<Option<metrics::Endpoint>>,
    ended: watch::Sender<Option<Ended>>,
    /// Targets whose storage failed, with a line each.
    down: watch::Sender<Vec<(TargetId, String)>>,
    ctl: RefCell<Option<Registered>>,
    params: ParamTree,
    permanent: Permanent,
    no_permanent: bool,
    exporter: Exporter,
}

impl Server {
    /// Starts everything; returns when all targets are served (registration goes on in the
    /// background).
    pub async fn start(env: &Env, options: &ServerOptions) -> Result<Rc<Server>> {
        let mut found = targets::find(&options.dirs)?;
        data::refuse_alone(&found)?;
        let lock = |target: &TargetDir| {
            let lock = superblock::lock(&target.dir).context(Culprit::of(target))?;
            Ok::<_, anyhow::Error>((target.clone(), lock))
        };
        let mut locked = found.iter().map(lock).collect::<Result<Vec<_>, _>>()?;
        let all = [&found[..], &data::there(&found)?].concat();
        let any = store::check_parts(&all, options.trust)?;
        if options.among.others.is_empty() {
            store::refuse_idle_reset(options.trust, any)?; // else it may be another node's
        }
        let data = data::beside(&locked)?;
        found.extend(data.iter().map(|(target, _)| target.clone()));
        locked.extend(data);
        let tcp = env.listen(options.listen).await?; // the error names the address
        let addr = tcp.addr();
        let lo = env.listen(lo_of(addr)).await.context("lo")?;
        let env = &crate::alias::with_aliases(env, options.among.inside(addr));
        let node = Node::new(env, node_config(&options.machine));
        let told = Told { mgs: &options.mgs, addr, awaited: options.awaited };
        let peers = Rc::new(Peers::new(&found, &told));
        let name = format!("{} at {addr}", told_of(&found).collect::<Vec<_>>().join(" "));
        let config = endpoint_config(env, name.clone(), addr);
        let endpoint = Endpoint::new(env, config, peers.directory());
        let tester = SelfTest::new(env, SelfTestConfig { nid: Some(addr.nid), is_open: false });
        node.add_target(tester.clone());
        node.serve(tcp);
        node.serve(lo);
        let starting = Starting {
            env,
            options,
            found: &found,
            name: &name,
            node: &node,
            peers: &peers,
            endpoint: &endpoint,
        };
        let mut targets = Vec::new();
        locked.sort_by_key(|(target, _)| start_order(target.superblock.target.kind));
        for (target, lock) in locked {
            let started = starting.start(&target, lock, &targets).await;
            targets.push(started.context(Culprit::of(&target))?);
        }
        join_devices(&targets);
        let server = Rc::new(Server {
            env: env.clone(),
            node,
            endpoint,
            tester,
            peers,
            targets,
            addr,
            machine: options.machine.clone(),
            among: options.among.clone(),
            metrics_at: options.metrics,
            metrics: RefCell::new(None),
            ended: watch::channel(None).0,
            down: watch::channel(Vec::new()).0,
            ctl: RefCell::new(None),
            params: ParamTree::new(),
            permanent: Permanent::default(),
            no_permanent: options.no_permanent,
            exporter: Exporter::default(),
        });
        self::params::register(&server.params, &server);
        server.watch_failures();
        announce::start(&server, &found);
        Ok(server)
    }

    #[must_use]
    pub fn addr(&self) -> NidAddr {
        self.addr
    }

    /// Names of the targets that people know of: a data target is a part of its MDT.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let known = self.targets.iter().filter(|target| !target.body.id().is_dom());
        known.map(|target| target.name.clone()).collect()
    }

    /// Names of all that is served.
    fn all_names(&self) -> Vec<String> {
        self.targets.iter().map(|target| target.name.clone()).collect()
    }

    /// Completes when every target is in the MGS's configuration with this node's address, and an
    /// MDT knows the OSTs that it shall wait for.
    pub async fn registered(&self) {
        self.peers.registered().await;
    }

    /// Completes with the reason when the storage of a target failed. The other targets go on.
    pub async fn degraded(&self) -> Ended {
        let mut down = self.down.subscribe();
        let first = down.wait_for(|down| !down.is_empty()).await.map(|down| down.first().cloned());
        match first {
            Ok(Some((target, line))) => Ended::Storage(target, line),
            _ => std::future::pending().await,
        }
    }

    /// Completes with the reason when the storage of every target failed, or the MGS refused one:
    /// the node must end.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(Some(reason)) => reason,
            _ => std::future::pending().await,
        }
    }

    /// Whether an MDT is here.
    fn serves_mdt(&self) -> bool {
        self.targets.iter().any(|target| matches!(target.body, Body::Mdt(_)))
    }

    /// Tells the MDTs here which pools there are.
    fn tell_pools(&self) {
        let pools = self.peers.config().pools();
        for target in &self.targets {
            if let Body::Mdt(mdt) = &target.body {
                mdt.set_pools(&self.params, &target.name, &pools);
            }
        }
    }

    /// Tells the OSTs here, and the data targets, which MDTs the MGS has forgotten.
    fn tell_forgotten(&self) {
        let Some(fsname) = self.peers.fsname() else { return };
        let forgotten = self.peers.config().forgotten_mdts(fsname);
        for target in &self.targets {
            if let Body::Ost(ost) = &target.body {
                ost.set_forgotten_mdts(forgotten.clone());
            }
        }
    }

    /// Takes over what is permanent and new. Not before the MGS was asked: what was kept may have
    /// been deleted since.
    async fn take_permanent(&self) {
        self.tell_pools();
        if self.no_permanent {
            return;
        }
        let wanted = match (self.peers.fsname(), self.mgt()) {
            (None, Some(mgt)) => keep::of_all(&mgt).await,
            _ => Ok(self.peers.permanent()),
        };
        match wanted {
            Ok(wanted) => self.permanent.apply(&self.params, &wanted).await,
            Err(errno) => tracing::warn!("permanent parameters cannot be read: {errno}"),
        }
    }

    /// The MGT, if it is here.
    fn mgt(&self) -> Option<Rc<Mgt>> {
        self.targets.iter().find_map(|target| match &target.body {
            Body::Mgt(mgt) => Some(mgt.clone()),
            _ => None,
        })
    }

    /// Opens the control socket `PID-server-LABEL.sock`.
    pub fn control(self: &Rc<Self>, label: &str) -> Result<()> {
        let answers = Rc::new(Control(Rc::downgrade(self)));
        let socket =
            ctl::server::serve(&self.env, &format!("server-{label}"), &self.params, answers)?;
        *self.ctl.borrow_mut() = Some(socket);
        Ok(())
    }

    /// Hangs up, commits everything, ends.
    pub async fn stop(&self) {
        self.ctl.borrow_mut().take();
        self.metrics.borrow_mut().take();
        self.node.stop().await;
        for target in self.targets.iter().rev() {
            tell(&target.name, target.body.stop().await);
            tracing::info!("{}: stopped", target.name);
        }
        self.endpoint.shutdown().await;
    }

    /// Hangs up because a target's storage failed and the node starts again in this process. The
    /// others end too, durably: no two instances may ever have one store open.
    pub async fn abandon(&self) {
        self.ctl.borrow_mut().take();
        self.metrics.borrow_mut().take();
        self.node.stop().await;
        for target in self.targets.iter().rev() {
            if let Err(error) = target.body.stop().await {
                tracing::warn!("{}: ended without a last commit: {error}", target.name);
            }
        }
        self.endpoint.shutdown().await;
    }

    fn end(&self, reason: Ended) {
        tracing::error!("{reason}");
        self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            if is_first {
                *ended = Some(reason);
            }
            is_first
        });
    }

    /// An MDT and its data target end together: where one has failed, so does the other.
    fn fail_partner(&self, id: TargetId, line: &str) {
        let is_partner = |other: &&Running| {
            let other = other.body.id();
            other.dom_of() == Some(id) || id.dom_of() == Some(other)
        };
        if let Some(partner) = self.targets.iter().find(is_partner) {
            partner.body.fail(line);
        }
    }

    /// A failed target is served no longer. The node ends with its last one.
    fn watch_failures(self: &Rc<Self>) {
        for target in &self.targets {
            let (server, name) = (Rc::downgrade(self), target.name.clone());
            let (id, failed) = (target.body.id(), target.body.target().failed());
            self.env.spawn("target-failed", async move {
                let reason = failed.await;
                let Some(server) = server.upgrade() else { return };
                let line = format!("{name}: storage failed: {reason}");
                server.down.send_modify(|down| down.push((id, line.clone())));
                server.fail_partner(id, &line);
                if server.down.borrow().len() == server.targets.len() {
                    server.end(Ended::Storage(id, line));
                } else {
                    tracing::error!("{line}; the other targets here go on");
                }
            });
        }
    }
}

/// Those that people know of, by name.
fn told_of(found: &[TargetDir]) -> impl Iterator<Item = String> {
    found.iter().filter(|target| !target.superblock.target.is_dom()).map(TargetDir::name)
}

/// An MDT and its data target pretend to be on one device.
fn join_devices(targets: &[Running]) {
    for target in targets {
        let Body::Mdt(mdt) = &target.body else { continue };
        if let Some(data) = data_of(mdt, targets) {
            mdt.device().join(data.device());
        }
    }
}

/// The data target of an MDT.
fn data_of(mdt: &Mdt, targets: &[Running]) -> Option<Rc<Ost>> {
    let mine = |other: &Running| match &other.body {
        Body::Ost(ost) if ost.id().dom_of() == Some(mdt.id()) => Some(ost.clone()),
        _ => None,
    };
    targets.iter().find_map(mine)
}

/// MGT first, MDTs last: they ask the OSTs.
fn start_order(kind: TargetKind) -> u8 {
    match kind {
        TargetKind::Mgt | TargetKind::Lst => 0,
        TargetKind::Ost => 1,
        TargetKind::Mdt => 2,
    }
}

/// Where a node that listens at `addr` listens for its own process: the same place on the `lo`
/// network.
#[must_use]
pub fn lo_of(addr: NidAddr) -> NidAddr {
    NidAddr { nid: Nid::new(Net::LO, addr.nid.addr()), port: addr.port }
}

fn tell(name: &str, done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::error!(
            "{name}: stopped with an error: {error}; clients replay changes that were not durable"
        );
    }
}

fn node_config(machine: &Machine) -> NodeConfig {
    NodeConfig {
        link_cpts: machine.link_cpts.clone(),
        service_cpts: machine.service_cpts.clone(),
        portal_rotor: machine.options.portal_rotor,
        ..NodeConfig::new(machine.cpts.clone())
    }
}

fn endpoint_config(env: &Env, name: String, addr: NidAddr) -> EndpointConfig {
    let client = ClientId((u128::from(env.random()) << 64) | u128::from(env.random()));
    let import = ImportConfig { client, name, is_server: true, ..ImportConfig::default() };
    EndpointConfig { nid: Some(addr.nid), import, ..EndpointConfig::default() }
}

/// What every start of a target needs.
struct Starting<'a> {
    env: &'a Env,
    options: &'a ServerOptions,
    /// Targets as they were before this start.
    found: &'a [TargetDir],
    /// What this node calls itself where it asks others.
    name: &'a str,
    node: &'a Rc<Node>,
    peers: &'a Rc<Peers>,
    endpoint: &'a Rc<Endpoint>,
}

impl Starting<'_> {
    async fn start(
        &self,
        target: &TargetDir,
        lock: TargetLock,
        others: &[Running],
    ) -> Result<Running> {
        let follows = data::follows(self.found, target);
        let store = store::Opened::open(target, self.options.trust, follows).await?;
        store::strike_out(&*store.meta, &self.options.dead_clients).await?;
        let id = target.superblock.target;
        if id.is_dom() || id.kind == TargetKind::Mdt {
            // its lock is ours, so the run before this one is dead, and the MDTs in it
            let before = store::servers_called(&*store.meta, self.name).await?;
            store::strike_out(&*store.meta, &before).await?;
        }
        let (fsname, index) = (target.superblock.fsname, target.superblock.target.index);
        let body = match target.superblock.target.kind {
            TargetKind::Lst => bail!("a self-test has no storage"),
            TargetKind::Mgt => {
                Body::Mgt(Mgt::start(self.env, MgtConfig::default(), store.meta.clone()).await?)
            }
            TargetKind::Ost => Body::Ost(self.start_ost(fsname, index, &store).await?),
            TargetKind::Mdt => Body::Mdt(self.start_mdt(fsname, index, &store, &target.dir).await?),
        };
        if let Body::Mdt(mdt) = &body
            && let Some(data) = data_of(mdt, others)
        {
            mdt.set_data(data); // before a client can ask for it
        }
        superblock::mark_served(&target.dir)?;
        body.target().exports().set_uuid(target.superblock.uuid);
        if target.superblock.target.kind != TargetKind::Mgt {
            // the MGT is where servers become known: it looks at what each of them says
            let peers = self.peers.clone();
            let believe = move |nid| peers.has_server_at(nid);
            body.target().exports().believe_servers(believe);
        }
        let known = body.target().exports().sessions();
        self.options.machine.lnet.expect(known.iter().map(|session| session.recorded_at()));
        self.node.add_target(body.target());
        if let Some(files) = &store.files {
            let node = Rc::downgrade(self.node);
            let is_data = target.superblock.target.is_dom();
            let io = if is_data { &spec::MDT_IO } else { &spec::OST_IO };
            files.follow(move || node.upgrade().map_or(0, |node| node.slots(io)));
        }
        tracing::info!("{}: served from {}", target.name(), target.dir.display());
        Ok(Running { name: target.name(), dir: target.dir.clone(), body, _lock: lock, store })
    }

    /// What it pretends to be on. The one of an MDT is its data target's.
    fn device(&self, target: TargetId, fsname: FsName) -> Option<device::Model> {
        let target = target.dom_of().unwrap_or(target);
        let model = Pretend::find(&self.options.devices, &target.name(fsname))?;
        tracing::warn!("{}: as slow as a device of {model}", target.name(fsname));
        Some(model)
    }

    async fn start_ost(
        &self,
        fsname: FsName,
        index: u32,
        store: &store::Opened,
    ) -> Result<Rc<Ost>> {
        let mut config = OstConfig::new(fsname, index);
        config.device = self.device(TargetId::ost(index), fsname);
        config.abort_recovery = self.options.abort_recovery;
        config.commit_interval = self.options.commit_interval;
        let objects = store.objects.clone().context("an OST has an object store")?;
        Ok(Ost::start(self.env, config, store.meta.clone(), objects).await?)
    }

    async fn start_mdt(
        &self,
        fsname: FsName,
        index: u32,
        store: &store::Opened,
        dir: &Path,
    ) -> Result<Rc<Mdt>> {
        let mut config = MdtConfig::new(fsname, index);
        config.has_data = true;
        // an ordinary user's file system is his
        let made_by = std::fs::metadata(dir).with_context(|| dir.display().to_string())?;
        config.root_owner = (made_by.uid(), made_by.gid());
        config.abort_recovery = self.options.abort_recovery;
        config.commit_interval = self.options.commit_interval;
        let peers = self.peers.clone();
        let osts = Rc::new(move || peers.osts());
        Ok(Mdt::start(self.env, config, store.meta.clone(), Some(self.endpoint.clone()), osts)
            .await?)
    }
}

/// The control socket's view of a server.
struct Control(std::rc::Weak<Server>);

impl ctl::server::Answers for Control {
    fn who(&self) -> Who {
        let server = self.0.upgrade();
        Who {
            kind: "server".into(),
            pid: std::process::id(),
            fsname: server
                .as_ref()
                .and_then(|server| server.peers.fsname())
                .map_or_else(String::new, |name| name.to_string()),
            osts: server.as_ref().map_or_else(Vec::new, |server| server.osts()),
            mdts: server.as_ref().map_or_else(Vec::new, |server| server.peers.mdts()),
            targets: server.map_or_else(Vec::new, |server| server.all_names()),
            ..Who::default()
        }
    }

    fn devices(&self) -> Vec<Device> {
        let Some(server) = self.0.upgrade() else { return Vec::new() };
        server.targets.iter().map(device).collect()
    }

    fn special(&self, ask: Ask, _creds: Creds) -> LocalFuture<'static, Result<Reply, Failure>> {
        let server = self.0.upgrade();
        let mgt = server.as_ref().and_then(|server| server.mgt());
        Box::pin(async move {
            match (ask, mgt) {
                (Ask::ExportMeta { target, path }, _) => {
                    export::begin(server.as_ref(), &target, path.into())
                }
                (Ask::ListObjects { target, from }, _) => {
                    objects::list(server, &target, &from).await
                }
                (Ask::Unnamed { target, ost, from, remove }, _) => {
                    objects::unnamed(server, &target, (&ost, &from), remove).await
                }
                (Ask::Mend { target, fid, name, dir }, _) => {
                    mend::mend(server, &target, &fid, (dir, name)).await
                }
                (Ask::ExportState { number }, _) => export::state(server.as_ref(), number),
                (Ask::SetPermanent { fsname, name, value }, Some(mgt)) => {
                    set_permanent(&mgt, fsname, &name, value).await
                }
                (Ask::Forget { target }, Some(mgt)) => forget::forget(&mgt, &target).await,
                (Ask::Pools { fsname }, _) => pools::list(server, &fsname).await,
                (Ask::Pool { fsname, pool, change }, Some(mgt)) => {
                    pools::change(&mgt, &fsname, &pool, change).await
                }
                (Ask::SetPermanent { .. } | Ask::Forget { .. } | Ask::Pool { .. }, None) => {
                    Err(Failure { errno: Errno::ENODEV.raw(), text: "no MGS is here".into() })
                }
                _ => Err(Failure {
                    errno: Errno::ENOTTY.raw(),
                    text: "this daemon is not a client".into(),
                }),
            }
        })
    }

    fn nids(&self) -> Vec<String> {
        self.0.upgrade().map_or_else(Vec::new, |server| vec![server.addr.to_string()])
    }
}

async fn set_permanent(
    mgt: &Mgt,
    fsname: Option<String>,
    name: &str,
    value: Option<String>,
) -> Result<Reply, Failure> {
    let failed = |errno: Errno, why: &str| Failure {
        errno: errno.raw(),
        text: format!("setting {name}: {why}"),
    };
    let fsname = fsname.map(|name| name.parse()).transpose();
    let fsname = fsname.map_err(|_| failed(Errno::EINVAL, Errno::EINVAL.text()))?;
    let names = keep::keep(mgt, fsname, name, value.as_deref()).await;
    let names = names.map_err(|refused| failed(refused.errno, &refused.why))?;
    Ok(Reply::Lines(names.iter().map(ToString::to_string).collect()))
}

fn device(target: &Running) -> Device {
    let exports = target.body.exports();
    Device {
        status: if exports.is_recovering() { "ST" } else { "UP" }.into(),
        kind: target.body.kind().into(),
        name: target.name.clone(),
        uuid: format!("{}_UUID", target.name),
        refs: u32::try_from(exports.sessions().len()).unwrap_or(u32::MAX),
        nid: String::new(),
    }
}

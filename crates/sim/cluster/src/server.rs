//! One server of the simulated cluster: a node, a disk that outlives it, and a target that runs on
//! them.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use device::Model;
use endpoint::{Call, CallError, Endpoint, EndpointConfig, ImportConfig, Resolve};
use env::{CptTable, Env, LocalFuture};
use env_sim::NodeHandle;
use mdt::fsck::{self, Image};
use mdt::{GrantMode, Mdt, MdtConfig};
use mgt::{Mgt, MgtConfig};
use osd::mem::{Deed, MemDisk, MemMeta};
use osd::{MetaStore, ObjStore, StoreError};
use ost::{Ost, OstConfig};
use params::ParamTree;
use service::{HeadScope, Node, NodeConfig, ServiceSpec, Target};
use types::{ClientId, FsName, NidAddr, Span, TargetId, TargetKind};
use wire::Opcode;
use wire::config::{self, Register, TargetInfo};

use crate::one_core::{Meter, OneCore};
use crate::planted::Bugs;
use crate::store::Store;

/// CPU partitions of a server, at most.
pub(crate) const CPTS_MAX: u32 = 4;

/// Longer than in use: a storm may lose several attempts to connect without a sign, 10 s each, and
/// who lives must come back.
pub(crate) const RECOVERY_WINDOW: Span = Span::secs(30);

/// Pools and their OSTs, where there are some. The first one spills into the second one.
pub(crate) const POOLS: [(&str, [u32; 2]); 2] = [("flash", [0, 1]), ("disk", [2, 3])];

/// What all servers of a cluster are told.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) fsname: FsName,
    pub(crate) addrs: Rc<Vec<(TargetId, NidAddr)>>,
    pub(crate) bugs: Bugs,
    /// CPU partitions of each server.
    pub(crate) cpts: u32,
    /// That MDTs tell their clients.
    pub(crate) lease: Span,
    /// How MDTs keep what clients cache coherent.
    pub(crate) grants: GrantMode,
    /// Whether directories are split by themselves.
    pub(crate) split: mdt::Split,
    /// Whether there are [`POOLS`].
    pub(crate) has_pools: bool,
    /// What MDTs and OSTs pretend to be on.
    pub(crate) devices: [Option<Model>; 2],
    /// Counts the CPU time of MDTs, where their requests take any.
    pub(crate) meter: Option<Rc<Meter>>,
    /// Stores fail: a boot may fail too and is tried again.
    pub(crate) is_sick: bool,
    /// How long a recovery waits without progress, if it begins from now on.
    pub(crate) window: Rc<Cell<Span>>,
    /// An MDT of which servers have not heard.
    pub(crate) unheard_of: Rc<Cell<Option<u32>>>,
}

fn pretended(device: &Option<Model>) -> Option<Model> {
    if device.as_ref().is_some_and(Model::has_arm) {
        planted::reached("sim: a target was as slow as a disk");
    }
    device.clone()
}

impl Plan {
    pub(crate) fn addr(&self, target: TargetId) -> NidAddr {
        let target = target.dom_of().unwrap_or(target);
        let found = self.addrs.iter().find(|(id, _)| *id == target);
        found.expect("every target has its node").1
    }

    fn osts(&self) -> Vec<u32> {
        self.addrs
            .iter()
            .filter(|(id, _)| id.kind == TargetKind::Ost)
            .map(|(id, _)| id.index)
            .collect()
    }
}

impl Resolve for Plan {
    fn addrs(&self, target: TargetId) -> Vec<NidAddr> {
        let target = target.dom_of().unwrap_or(target);
        self.addrs.iter().filter(|(id, _)| *id == target).map(|(_, addr)| *addr).collect()
    }

    fn mdts(&self) -> Vec<u32> {
        let mdts = self.addrs.iter().filter(|(id, _)| id.kind == TargetKind::Mdt);
        let known = |index: &u32| self.unheard_of.get() != Some(*index);
        mdts.map(|(id, _)| id.index).filter(known).collect()
    }
}

/// A server, running or not.
pub(crate) struct Server {
    pub(crate) target: TargetId,
    pub(crate) node: NodeHandle,
    /// What fails of its storage, and what there is.
    pub(crate) disk: MemDisk,
    store: Store,
    plan: Plan,
    state: Rc<State>,
}

/// When a server stops for good: right after it has done this so many more times.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CrashPoint {
    /// Its store has.
    Deed(Deed, u64),
    /// It has sent messages.
    Send(u64),
}

/// A policy that a scheduler shall run.
#[derive(Clone, Copy)]
pub(crate) struct Swap {
    pub(crate) policy: &'static str,
    /// Set before any request comes to it.
    pub(crate) tunables: &'static [(&'static str, &'static str)],
}

/// Stops a running server in good order.
type Stop = Rc<dyn Fn() -> LocalFuture<'static, ()>>;

#[derive(Default)]
struct State {
    /// Told by the target: its storage failed.
    failed: RefCell<Option<String>>,
    registered: Cell<bool>,
    /// Of the present run, of each target that it serves: the MGS refuses one that goes back.
    instances: RefCell<Vec<(TargetId, u64)>>,
    /// Its targets, in the order in which they began.
    stop: RefCell<Vec<Stop>>,
    running: RefCell<Weak<Node>>,
    /// Of an MDT that runs.
    records: RefCell<Option<Rc<MemMeta>>>,
    /// Its recovery is over.
    recovered: Cell<bool>,
    /// That has not been asked for since.
    is_fresh: Cell<bool>,
    swaps: Cell<u32>,
}

impl Server {
    pub(crate) fn new(target: TargetId, node: NodeHandle, store: Store, plan: Plan) -> Server {
        Server { target, node, disk: store.mem.clone(), store, plan, state: Rc::default() }
    }

    /// The power of its machine goes: its storage loses a part of what it need not keep, chosen by
    /// `seed`. It has been killed.
    pub(crate) fn power_cut(&self, seed: u64) {
        self.store.power_cut(seed);
    }

    /// Objects that it has, also those of a data target.
    pub(crate) fn objects(&self) -> usize {
        self.disks().map(MemDisk::object_count).sum()
    }

    /// That of an MDT's data target.
    pub(crate) fn data_disk(&self) -> Option<&MemDisk> {
        self.store.data().map(|data| &data.mem)
    }

    /// All that it has.
    fn disks(&self) -> impl Iterator<Item = &MemDisk> {
        std::iter::once(&self.disk).chain(self.data_disk())
    }

    /// Nothing of its storage fails any more.
    pub(crate) fn cure(&self) {
        self.disks().for_each(MemDisk::cure);
    }

    /// Why it must be restarted, where it must.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.state.failed.borrow_mut().take()
    }

    /// Why it has ended, if it has.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state.failed.borrow().clone()
    }

    /// Whether the MGS knows its present run.
    pub(crate) fn is_registered(&self) -> bool {
        self.state.registered.get()
    }

    /// Asks the MGS, as servers may, to set a permanent parameter of the file system.
    pub(crate) fn set_param(
        &self,
        name: &'static str,
        value: &'static str,
    ) -> LocalFuture<'static, Result<(), CallError>> {
        let (env, plan) = (self.node.env(), Rc::new(self.plan.clone()));
        let mut config = endpoint_config(&env, self.target);
        config.import.name = "parameters".to_owned();
        let endpoint = Endpoint::new(&env, config, plan);
        let text = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let bufs = vec![text(self.plan.fsname.as_str()), text(name), text(value)];
        Box::pin(async move {
            let mgs = endpoint.remote(TargetId::MGT);
            mgs.call(Call::new(Opcode::MgsSetParam, bufs)).await.map(drop)
        })
    }

    /// Whether it is an MDT that serves.
    pub(crate) fn has_recovered(&self) -> bool {
        self.state.recovered.get()
    }

    /// Whether it has no request in its hands; one that does not run has none.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.running.borrow().upgrade().is_none_or(|node| node.is_idle())
    }

    /// Whether it is an MDT that has recovered since this was asked before.
    pub(crate) fn take_fresh(&self) -> bool {
        self.state.is_fresh.take()
    }

    /// The records of an MDT: as its process has them if it runs, otherwise what is durable. None
    /// where they cannot be read at the moment.
    pub(crate) fn image(&self) -> Option<Image> {
        let index = self.target.index;
        match &*self.state.records.borrow() {
            Some(meta) => image_of(index, meta),
            // what `osd-disk` has is known when it is opened
            None if self.store.is_on_disk() => None,
            None => {
                let durable = |table| Ok::<_, StoreError>(self.disk.records(table));
                Image::read(index, durable).ok()
            }
        }
    }

    /// It stops for good at `point` and waits there to be killed.
    pub(crate) fn die_at(&self, point: CrashPoint) {
        let node = self.node.clone();
        match point {
            CrashPoint::Deed(deed, count) => {
                // of what is kept beside an MDT as often
                let disk = self.data_disk().filter(|_| count % 2 == 0).unwrap_or(&self.disk);
                disk.spring_after(deed, count, move || node.freeze());
            }
            CrashPoint::Send(count) => node.freeze_after_sends(Some(count)),
        }
    }

    /// It does not, if it has not come there.
    pub(crate) fn spare(&self) {
        self.disks().for_each(MemDisk::disarm);
        self.node.freeze_after_sends(None);
    }

    /// The process dies, or with `machine` the machine does.
    pub(crate) fn kill(&self, machine: bool) {
        self.state.registered.set(false);
        self.state.recovered.set(false);
        self.state.stop.borrow_mut().clear();
        self.state.instances.borrow_mut().clear();
        self.state.records.borrow_mut().take();
        *self.state.running.borrow_mut() = Weak::new();
        self.state.failed.borrow_mut().take();
        self.disks().for_each(MemDisk::disarm);
        self.node.kill_as(machine);
        self.store.close();
    }

    /// Policies that its schedulers have started so far.
    pub(crate) fn swaps(&self) -> u32 {
        self.state.swaps.get()
    }

    /// Starts a policy, if the server runs.
    pub(crate) fn swap(&self, service: &'static ServiceSpec, swap: Swap) {
        let Some(node) = self.state.running.borrow().upgrade() else { return };
        let state = self.state.clone();
        self.node.env().spawn("swap", async move {
            if node.nrs_select(service, swap.policy).await.is_ok() {
                state.swaps.set(state.swaps.get() + 1);
                for (name, value) in swap.tunables {
                    // another swap may have come while this one waited for its policy to drain
                    let _stopped_meanwhile = node.nrs_set(service, name, value);
                }
            }
        });
    }

    /// Changes whose heads the requests of a service wait in, if the server runs.
    pub(crate) fn set_head_scope(&self, service: &'static ServiceSpec, scope: HeadScope) {
        let Some(node) = self.state.running.borrow().upgrade() else { return };
        let is_new = node.head_scope(service) != scope;
        // refused while a policy starts or drains
        if is_new && node.set_head_scope(service, scope).is_ok() {
            planted::reached("sim: requests moved to heads of another scope");
        }
    }

    /// How to stop it in good order, if it runs.
    pub(crate) fn stop(&self) -> Option<LocalFuture<'static, ()>> {
        let node = self.state.running.borrow().upgrade();
        let stops = std::mem::take(&mut *self.state.stop.borrow_mut());
        let node = node.filter(|_| !stops.is_empty())?;
        Some(Box::pin(async move {
            node.stop().await;
            for stop in stops.into_iter().rev() {
                stop().await;
            }
        }))
    }

    /// Boots it on what its disk holds.
    pub(crate) fn boot(&self) {
        let (env, store, plan) = (self.node.env(), self.store.clone(), self.plan.clone());
        let (target, state) = (self.target, self.state.clone());
        self.node.env().spawn("server", async move {
            let running = run(&env, target, &store, &plan, &state).await;
            match &running {
                Ok(_) => {}
                Err(reason) if plan.is_sick => *state.failed.borrow_mut() = Some(reason.clone()),
                Err(reason) => panic!("{target} does not boot from what a crash left: {reason}"),
            }
            std::future::pending::<()>().await;
        });
    }
}

/// What a running server holds.
struct Running {
    _node: Rc<Node>,
    _endpoint: Rc<Endpoint>,
}

async fn run(
    env: &Env,
    id: TargetId,
    store: &Store,
    plan: &Plan,
    state: &Rc<State>,
) -> Result<Running, String> {
    let endpoint = Endpoint::new(env, endpoint_config(env, id), Rc::new(plan.clone()));
    let (cpus, nodes) = (NonZeroU32::new(CPTS_MAX).expect("some"), NonZeroU32::MIN);
    let cpts = CptTable::new(cpus, nodes, plan.cpts, true).expect("a CPU for each partition");
    let node = Node::new(env, NodeConfig::new(cpts));
    let (meta, witness) = store.records(env)?;
    match id.kind {
        TargetKind::Lst => return Err("a self-test is not a server of its own".to_owned()),
        TargetKind::Mgt => {
            let mgt = Mgt::start(env, MgtConfig::default(), meta).await.map_err(text)?;
            watch(env, state, mgt.failed());
            let stopping = mgt.clone();
            begin((plan, state), (&node, id), mgt, move || {
                let mgt = stopping.clone();
                Box::pin(async move { drop(mgt.stop().await) })
            });
        }
        TargetKind::Ost => {
            let objects = store.objects(env).await?;
            start_ost(env, id, (meta, objects), (plan, state), &node).await?;
        }
        TargetKind::Mdt => {
            let mut beside = None;
            if let Some(data) = store.data() {
                let (meta, _) = data.records(env)?;
                let stores = (meta, data.objects(env).await?);
                let data = TargetId::dom(id.index);
                beside = Some(start_ost(env, data, stores, (plan, state), &node).await?);
            }
            let mut config = MdtConfig::new(plan.fsname, id.index);
            (config.bugs, config.grant_bugs) = (plan.bugs.mdt, plan.bugs.grants);
            config.lease = plan.lease;
            config.grants = plan.grants;
            config.split = plan.split;
            config.device = pretended(&plan.devices[0]);
            config.has_data = store.data().is_some();
            config.recovery_window = plan.window.get();
            let osts = plan.osts();
            let list: Rc<dyn Fn() -> Vec<mdt::OstAt>> =
                Rc::new(move || osts.iter().copied().map(mdt::OstAt::from).collect());
            check_records(id, &witness, "before a start");
            let asking = Some(endpoint.clone());
            let mdt = Mdt::start(env, config, meta, asking, list).await.map_err(text)?;
            beside.into_iter().for_each(|data| mdt.set_data(data));
            if plan.has_pools {
                set_pools(&mdt, id);
            }
            watch(env, state, mdt.failed());
            *state.records.borrow_mut() = Some(witness.clone());
            check_after_recovery(env, &mdt, (id, witness), state);
            let stopping = mdt.clone();
            begin((plan, state), (&node, id), on_a_core(env, plan, mdt), move || {
                let mdt = stopping.clone();
                Box::pin(async move { drop(mdt.stop().await) })
            });
        }
    }
    let listener = env.listen(plan.addr(id)).await.expect("a killed node holds no address");
    node.serve(listener);
    *state.running.borrow_mut() = Rc::downgrade(&node);
    register(env, id, plan, &endpoint, state);
    Ok(Running { _node: node, _endpoint: endpoint })
}

/// An MDT hears of [`POOLS`], as a daemon does from its configuration.
fn set_pools(mdt: &Rc<Mdt>, id: TargetId) {
    let (tree, name) = (ParamTree::new(), id.to_string());
    let pools = POOLS.map(|(pool, osts)| (pool.to_owned(), osts.to_vec()));
    mdt.set_pools(&tree, &name, &pools.into());
    let [(from, _), (into, _)] = POOLS;
    let set = tree.set_now(&format!("lod.{name}-mdtlov.pool.{from}.spill_target"), into);
    assert!(set.is_ok_and(|set| set.iter().all(Result::is_ok)), "a pool may spill into another");
}

/// An MDT as its node serves it.
fn on_a_core(env: &Env, plan: &Plan, mdt: Rc<Mdt>) -> Rc<dyn Target> {
    match &plan.meter {
        Some(meter) => Rc::new(OneCore::new(env, mdt, meter)),
        None => mdt,
    }
}

/// Starts an OST, or the data target of an MDT.
async fn start_ost(
    env: &Env,
    id: TargetId,
    (meta, objects): (Rc<dyn MetaStore>, Rc<dyn ObjStore>),
    (plan, state): (&Plan, &Rc<State>),
    node: &Rc<Node>,
) -> Result<Rc<Ost>, String> {
    let mut config = OstConfig::new(plan.fsname, id.index);
    (config.bugs, config.recovery_window) = (plan.bugs.ost, plan.window.get());
    config.device = pretended(&plan.devices[usize::from(id.is_ost())]);
    let ost = Ost::start(env, config, meta, objects).await.map_err(text)?;
    watch(env, state, ost.failed());
    let stopping = ost.clone();
    begin((plan, state), (node, id), ost.clone(), move || {
        let ost = stopping.clone();
        Box::pin(async move { drop(ost.stop().await) })
    });
    Ok(ost)
}

/// Between looks at recovery.
const LOOK: Span = Span::millis(100);

fn check_after_recovery(
    env: &Env,
    mdt: &Rc<Mdt>,
    (id, meta): (TargetId, Rc<MemMeta>),
    state: &Rc<State>,
) {
    let (env, mdt, state) = (env.clone(), mdt.clone(), state.clone());
    env.clone().spawn("fsck", async move {
        while mdt.exports().is_recovering() {
            env.sleep(LOOK).await;
        }
        check_records(id, &meta, "after recovery");
        state.recovered.set(true);
        state.is_fresh.set(true);
    });
}

/// # Panics
/// If the records of an MDT do not fit together.
fn check_records(id: TargetId, meta: &MemMeta, when: &str) {
    let Some(image) = image_of(id.index, meta) else { return };
    let bad = fsck::one(&image);
    assert!(bad.is_empty(), "the records of {id} are broken {when}: {}", bad.join("; "));
}

/// None where the store cannot be read.
fn image_of(index: u32, meta: &MemMeta) -> Option<Image> {
    // a store that has failed is not read any more; its next opening is checked
    let view = meta.running().ok()?;
    match Image::of(index, &*view) {
        Ok(image) => Some(image),
        // it is whole again before peace
        Err(StoreError::Damaged { .. }) => None,
        Err(error) => panic!("a store in memory can be read while it is open: {error}"),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn endpoint_config(env: &Env, id: TargetId) -> EndpointConfig {
    let client = ClientId((u128::from(env.random()) << 64) | u128::from(env.random()));
    let name = id.to_string();
    let import = ImportConfig { client, name, is_server: true, ..ImportConfig::default() };
    EndpointConfig { import, ..EndpointConfig::default() }
}

fn begin(
    (plan, state): (&Plan, &State),
    (node, id): (&Rc<Node>, TargetId),
    target: Rc<dyn Target>,
    stop: impl Fn() -> LocalFuture<'static, ()> + 'static,
) {
    target.exports().set_uuid(uuid_of(id));
    let servers: Vec<_> = plan.addrs.iter().map(|(_, addr)| addr.nid).collect();
    target.exports().believe_servers(move |nid| servers.contains(&nid));
    state.instances.borrow_mut().push((id, target.exports().instance().0));
    node.add_target(target);
    state.stop.borrow_mut().push(Rc::new(stop));
}

fn watch(env: &Env, state: &Rc<State>, failed: LocalFuture<'static, String>) {
    let told = Rc::downgrade(state);
    env.spawn("watch store", async move {
        let reason = failed.await;
        if let Some(state) = told.upgrade() {
            *state.failed.borrow_mut() = Some(reason);
        }
    });
}

/// Identity of a target's storage.
fn uuid_of(id: TargetId) -> u128 {
    u128::from(id.to_u32()) + 1
}

/// Tells the MGS where the target is, for as long as it takes.
fn register(env: &Env, id: TargetId, plan: &Plan, endpoint: &Rc<Endpoint>, state: &Rc<State>) {
    if id == TargetId::MGT {
        state.registered.set(true);
        return;
    }
    let addr = plan.addr(id);
    let register = |(id, instance): (TargetId, u64)| {
        let info = TargetInfo { id: id.to_u32(), nid: addr.nid.0, port: addr.port, instance };
        Register { fsname: plan.fsname.to_string(), target: info, uuid: uuid_of(id) }
    };
    let instances = state.instances.borrow().clone();
    let registers: Vec<Register> = instances.into_iter().map(register).collect();
    let (remote, state, env) = (endpoint.remote(TargetId::MGT), state.clone(), env.clone());
    env.clone().spawn("register", async move {
        for register in registers {
            loop {
                let mut call = Call::new(Opcode::MgsRegister, vec![config::encode(&register)]);
                call.patience = Some(Span::secs(30));
                if remote.call(call).await.is_ok() {
                    break;
                }
                env.sleep(Span::secs(1)).await;
            }
        }
        state.registered.set(true);
    });
}

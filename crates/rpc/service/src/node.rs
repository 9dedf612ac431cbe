//! A server node: its targets, its links, its services' partitions. The path of a request through them: `reader`,
//! `admission`, `scheduler`, `handling`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use env::{CptTable, Env, Listener, Portal, PortalRotor, Task};
use tokio::sync::{Notify, Semaphore};
use types::{CptIndex, Instant, TargetId};
use wire::Request;

use crate::incoming::{Peer, Semaphores, Transport};
use crate::partition::{Partition, Policies};
use crate::{Exports, ServiceSpec, ServiceStats, Session, Target, limits};

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// CPU partitions.
    pub cpts: CptTable,
    /// Data up to this size rides in a reply.
    pub inline_bytes: u32,
    /// Pulled bytes held at once, per CPT.
    pub bulk_bytes_max: u64,
    /// CPTs that links are bound to; empty: all.
    pub link_cpts: Vec<CptIndex>,
    /// CPTs of a service, by its name, sorted; a service that is not named has all.
    pub service_cpts: BTreeMap<&'static str, Vec<CptIndex>>,
    /// How a request finds its CPT, at the start.
    pub portal_rotor: PortalRotor,
}

impl NodeConfig {
    /// Over these partitions, everything else as usual.
    #[must_use]
    pub fn new(cpts: CptTable) -> NodeConfig {
        NodeConfig {
            cpts,
            inline_bytes: wire::INLINE_BYTES_DEFAULT,
            bulk_bytes_max: 64 << 20,
            link_cpts: Vec::new(),
            service_cpts: BTreeMap::new(),
            portal_rotor: PortalRotor::default(),
        }
    }
}

/// A server node.
pub struct Node {
    pub(crate) env: Env,
    pub(crate) config: NodeConfig,
    pub(crate) targets: RefCell<BTreeMap<u32, Rc<Entry>>>,
    /// By CPT; services appear with their first request.
    pub(crate) partitions: Vec<RefCell<Vec<Rc<Partition>>>>,
    pub(crate) budget: Rc<Semaphores>,
    /// By service; each appears with its first request.
    pub(crate) portals: RefCell<BTreeMap<&'static str, Portal>>,
    pub(crate) portal_rotor: Cell<PortalRotor>,
    pub(crate) queued: Vec<Cell<usize>>,
    pub(crate) drained: Notify,
    pub(crate) peers: RefCell<Vec<Rc<Peer>>>,
    /// Accepted so far.
    links: Cell<u64>,
    tasks: RefCell<Vec<Task>>,
    pub(crate) stopped: Cell<bool>,
    /// Time at the beginning of this turn: requests of one batch share it.
    pub(crate) clock: Cell<Instant>,
}

/// A target as a node holds it.
pub(crate) struct Entry {
    pub(crate) target: Rc<dyn Target>,
    pub(crate) exports: Rc<Exports>,
    pub(crate) gone: Cell<bool>,
}

/// A request on its way.
pub(crate) struct Work {
    pub(crate) entry: Rc<Entry>,
    pub(crate) request: Box<Request>,
    pub(crate) session: Rc<Session>,
    pub(crate) transport: Rc<Transport>,
}

/// What a peer sent that no correct peer sends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Nonsense {
    #[error(transparent)]
    Message(#[from] wire::MessageError),
    #[error("tag {0} is out of range")]
    Tag(u32),
    #[error("a session has {0} requests under way")]
    TooMany(usize),
}

impl Node {
    /// Without targets.
    pub fn new(env: &Env, config: NodeConfig) -> Rc<Node> {
        let cpts = config.cpts.count().get() as usize;
        let units = u32::try_from(config.bulk_bytes_max / limits::BULK_UNIT as u64).unwrap_or(u32::MAX).max(1);
        let per_cpt = (0..cpts).map(|_| Arc::new(Semaphore::new(units as usize))).collect();
        Rc::new(Node {
            env: env.clone(),
            portals: RefCell::default(),
            portal_rotor: Cell::new(config.portal_rotor),
            config,
            targets: RefCell::default(),
            partitions: (0..cpts).map(|_| RefCell::default()).collect(),
            budget: Rc::new(Semaphores { per_cpt, units }),
            queued: (0..cpts).map(|_| Cell::new(0)).collect(),
            drained: Notify::new(),
            peers: RefCell::default(),
            links: Cell::new(0),
            tasks: RefCell::default(),
            stopped: Cell::new(false),
            clock: Cell::new(env.now()),
        })
    }

    /// Serves `target` too; a former one of the same id is replaced.
    pub fn add_target(self: &Rc<Self>, target: Rc<dyn Target>) {
        let entry = Rc::new(Entry { exports: target.exports(), target, gone: Cell::new(false) });
        let id = entry.target.id().to_u32();
        let task = self.env.spawn("service.housekeeping", Rc::clone(self).keep_house(Rc::clone(&entry)));
        self.tasks.borrow_mut().push(task);
        if let Some(old) = self.targets.borrow_mut().insert(id, entry) {
            old.gone.set(true);
        }
    }

    /// No longer serves the target.
    pub fn remove_target(&self, id: TargetId) {
        if let Some(old) = self.targets.borrow_mut().remove(&id.to_u32()) {
            old.gone.set(true);
            old.exports.wake.notify_one();
        }
    }

    /// `portal_rotor`.
    pub fn portal_rotor(&self) -> PortalRotor {
        self.portal_rotor.get()
    }

    /// From the next request on.
    pub fn set_portal_rotor(&self, mode: PortalRotor) {
        self.portal_rotor.set(mode);
    }

    /// CPTs of a service.
    pub fn service_cpts(&self, service: &ServiceSpec) -> Vec<CptIndex> {
        match self.config.service_cpts.get(service.name) {
            _ if !service.has_affinity() => vec![CptIndex(0)],
            Some(cpts) => cpts.clone(),
            None => self.config.cpts.all().collect(),
        }
    }

    /// Requests that each CPT has answered or dropped, by service.
    pub fn served_by_cpt(&self, service: &ServiceSpec) -> Vec<u64> {
        let of = |partitions: &RefCell<Vec<Rc<Partition>>>| {
            let partitions = partitions.borrow();
            let found = partitions.iter().find(|partition| partition.spec.name == service.name);
            found.map_or(0, |partition| partition.served.get() + partition.dropped.get())
        };
        self.partitions.iter().map(of).collect()
    }

    /// Accepts links from `listener` until the node stops.
    pub fn serve(self: &Rc<Self>, mut listener: Listener) -> Task {
        let node = Rc::clone(self);
        let task = self.env.spawn("service.accept", async move {
            while let Ok(link) = listener.accept().await {
                node.links.set(node.links.get() + 1);
                let reader = Rc::clone(&node).read(link, node.links.get());
                node.env.spawn("service.reader", reader);
            }
        });
        self.tasks.borrow_mut().push(task.clone());
        task
    }

    /// Stops serving: listeners and links are closed, what executes has no listener any more.
    pub async fn stop(&self) {
        self.stopped.set(true);
        for task in self.tasks.borrow_mut().drain(..) {
            task.abort();
        }
        for peer in self.peers.borrow_mut().drain(..) {
            peer.tx.close();
        }
        for (_, entry) in std::mem::take(&mut *self.targets.borrow_mut()) {
            entry.gone.set(true);
        }
        self.drained.notify_waiters();
    }

    /// Counters of each service, summed over the CPTs.
    pub fn stats(&self) -> BTreeMap<&'static str, ServiceStats> {
        let mut all: BTreeMap<&'static str, ServiceStats> = BTreeMap::new();
        for partition in self.partitions.iter().flat_map(|cpt| cpt.borrow().clone()) {
            let (sum, one) = (all.entry(partition.spec.name).or_default(), partition.stats());
            sum.queued += one.queued;
            sum.active += one.active;
            sum.served += one.served;
            sum.dropped += one.dropped;
        }
        all
    }

    /// `nrs_policies` of a service, per CPT: name, state and queued requests of each instance.
    pub fn nrs_policies(&self, service: &str) -> Vec<(CptIndex, Policies)> {
        let mut all = Vec::new();
        for (cpt, partitions) in self.partitions.iter().enumerate() {
            for partition in partitions.borrow().iter().filter(|partition| partition.spec.name == service) {
                all.push((CptIndex(cpt as u32), partition.policies()));
            }
        }
        all
    }
}

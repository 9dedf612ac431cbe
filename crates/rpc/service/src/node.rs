//! A server node: its targets, its links, and the partitions of its services. A request passes
//! through the modules `reader`, `admission`, `scheduler` and `handling`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use env::{CptTable, Env, Listener, PortalRotor, Task};
use types::{CptIndex, Instant, TargetId};

use crate::answers::Answers;
use crate::exports::Queues;
use crate::memory::Memory;
use crate::peer::Peer;
use crate::served::Served;
use crate::services::Service;
use crate::shares::Shares;
use crate::terms::Terms;
use crate::{ServiceSpec, ServiceStats, Target, limits};

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub cpts: CptTable,
    /// Data up to this size rides in a reply.
    pub inline_bytes: u32,
    /// Pulled bytes held at once, per CPT.
    pub bulk_bytes_max: u64,
    /// Bytes of answers that peers have not taken.
    pub answer_bytes_max: u64,
    /// Bytes of requests that need no room.
    pub passing_bytes_max: u64,
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
            answer_bytes_max: limits::ANSWER_BYTES_ALL_MAX,
            passing_bytes_max: limits::PASSING_BYTES_ALL_MAX,
            link_cpts: Vec::new(),
            service_cpts: BTreeMap::new(),
            portal_rotor: PortalRotor::default(),
        }
    }
}

pub struct Node {
    pub(crate) env: Env,
    pub(crate) config: NodeConfig,
    pub(crate) targets: RefCell<BTreeMap<u32, Rc<Served>>>,
    /// They appear with their first request or parameter.
    pub(crate) services: RefCell<Vec<Rc<Service>>>,
    pub(crate) terms: Rc<Terms>,
    /// Node-wide parameters and buckets of TBF.
    pub(crate) tbf: Rc<nrs::TbfNode>,
    pub(crate) portal_rotor: Cell<PortalRotor>,
    /// What requests under way occupy.
    pub(crate) memory: Rc<Memory>,
    /// `req_bytes_max`: what they may occupy.
    pub(crate) req_bytes_max: Cell<u64>,
    /// Of these, what needs no room.
    pub(crate) passing: Rc<RefCell<Shares>>,
    /// What peers have not taken.
    pub(crate) answers: Rc<Answers>,
    pub(crate) peers: RefCell<Vec<Rc<Peer>>>,
    /// Accepted so far.
    links: Cell<u64>,
    tasks: RefCell<Vec<Task>>,
    pub(crate) stopped: Cell<bool>,
    /// Time at the beginning of this turn: requests of one batch share it.
    pub(crate) clock: Cell<Instant>,
}

/// What a peer sent that no correct peer sends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Nonsense {
    #[error(transparent)]
    Message(#[from] wire::MessageError),
    #[error(transparent)]
    Past(#[from] ptlrpc::PeerMisbehaved),
    #[error("tag {0} is out of range")]
    Tag(u32),
    #[error("a session has {0} requests under way")]
    TooMany(usize),
    #[error("a session has {0} bytes of requests under way")]
    TooLarge(u64),
    #[error("no room for a replay now: its session holds {0} bytes of them")]
    Crowded(u64),
    #[error("an answer to a callback of {0} bytes")]
    LongAnswer(usize),
}

impl Node {
    /// Without targets.
    pub fn new(env: &Env, config: NodeConfig) -> Rc<Node> {
        let cpts = config.cpts.count().get() as usize;
        let terms = Terms::new(env, cpts, config.inline_bytes, config.bulk_bytes_max);
        Rc::new(Node {
            env: env.clone(),
            portal_rotor: Cell::new(config.portal_rotor),
            passing: Rc::new(RefCell::new(Shares::new(config.passing_bytes_max))),
            answers: Answers::new(config.answer_bytes_max),
            config,
            targets: RefCell::default(),
            services: RefCell::default(),
            terms,
            tbf: Rc::default(),
            memory: Memory::new(),
            req_bytes_max: Cell::new(limits::REQ_BYTES_DEFAULT),
            peers: RefCell::default(),
            links: Cell::new(0),
            tasks: RefCell::default(),
            stopped: Cell::new(false),
            clock: Cell::new(env.now()),
        })
    }

    /// Requests of a service that are handled at once, at most, or of one target, where each has
    /// slots of its own; none before the service's first one.
    #[must_use]
    pub fn slots(&self, spec: &ServiceSpec) -> usize {
        let services = self.services.borrow();
        let service = services.iter().find(|service| service.spec.name == spec.name);
        service.map_or(0, |service| service.threads.get().max as usize * service.partitions.len())
    }

    /// Serves `target` too; a former one of the same id is replaced.
    pub fn add_target(self: &Rc<Self>, target: Rc<dyn Target>) {
        let served = Served::new(target);
        let queues = Rc::downgrade(self) as Weak<dyn Queues>;
        *served.exports.queues.borrow_mut() = Some(queues);
        let id = served.target.id().to_u32();
        let task =
            self.env.spawn("service.housekeeping", Rc::clone(self).keep_house(Rc::clone(&served)));
        let watch =
            self.env.spawn("service.sessions", Rc::clone(self).watch_sessions(Rc::clone(&served)));
        let failing = Rc::clone(&served);
        let failed = self.env.spawn("service.failed", async move {
            let failed = async { Some(failing.target.failed().await) };
            let removed = async {
                failing.ended().await;
                None
            };
            let Some(reason) = futures_lite::future::or(failed, removed).await else { return };
            let target_id = failing.exports.name();
            tracing::warn!(%target_id, reason, "served no longer; clients wait for its next start");
            failing.end();
        });
        self.tasks.borrow_mut().extend([task, watch, failed]);
        if let Some(old) = self.targets.borrow_mut().insert(id, served) {
            old.end();
        }
    }

    /// Name of a target in the log.
    pub(crate) fn name_of(&self, target: TargetId) -> String {
        let served = self.targets.borrow().get(&target.to_u32()).cloned();
        served.map_or_else(|| target.to_string(), |served| served.exports.name())
    }

    /// No longer serves the target.
    pub fn remove_target(&self, id: TargetId) {
        if let Some(old) = self.targets.borrow_mut().remove(&id.to_u32()) {
            old.end();
        }
    }

    pub fn portal_rotor(&self) -> PortalRotor {
        self.portal_rotor.get()
    }

    /// From the next request on.
    pub fn set_portal_rotor(&self, mode: PortalRotor) {
        self.portal_rotor.set(mode);
    }

    /// CPTs whose workers serve a service: all, where the settings name none.
    pub fn service_cpts(&self, service: &ServiceSpec) -> Vec<CptIndex> {
        match self.config.service_cpts.get(service.name) {
            _ if !service.has_affinity() => vec![CptIndex(0)],
            Some(cpts) => cpts.clone(),
            None => self.config.cpts.all().collect(),
        }
    }

    /// Requests that each CPT has answered or dropped, by service.
    pub fn served_by_cpt(&self, service: &ServiceSpec) -> Vec<u64> {
        let services = self.services.borrow();
        let found = services.iter().find(|found| found.spec.name == service.name);
        let of = |cpt| {
            found.and_then(|found| found.find(cpt)).map_or(0, |partition| partition.done.get())
        };
        self.config.cpts.all().map(of).collect()
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
        for (_, served) in std::mem::take(&mut *self.targets.borrow_mut()) {
            served.gone.set(true);
        }
        self.empty_queues();
    }

    /// Whether no request is under way, from its arrival to its end. One that waits for another
    /// has no worker slot, but it is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.memory.total() == 0
    }

    /// Counters of each service, summed over the CPTs.
    pub fn stats(&self) -> BTreeMap<&'static str, ServiceStats> {
        self.services
            .borrow()
            .iter()
            .map(|service| (service.spec.name, service.summary()))
            .collect()
    }
}

//! Threads of the LND, apart from the executor: `lnd_threads` per CPT. They are bound to its CPUs,
//! and each is an executor of its own.
//!
//! Lustre's socklnd has such scheduler threads per CPT, and a link belongs to the CPT of its peer's
//! NID. Here they are optional, because on few CPUs the hand-over costs more than it gains.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use env::Traffic;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use types::{CptIndex, Nid};

use crate::OsConfig;
use crate::bind;
use crate::limits::LND_LINGER;

/// Something to do on a thread of the LND.
type Job = Box<dyn FnOnce(&Rc<Lnd>) + Send>;

/// Settings of an executor and the threads that do its socket work.
pub(crate) struct Lnd {
    config: OsConfig,
    pool: RefCell<Option<Pool>>,
    /// What links carry, on whichever thread; in place of the configured one.
    pub(crate) traffic: Arc<Traffic>,
    /// Links that this thread carries for another.
    pub(crate) carried: Cell<usize>,
}

impl Deref for Lnd {
    type Target = OsConfig;

    fn deref(&self) -> &OsConfig {
        &self.config
    }
}

struct Pool {
    cpts: Vec<Vec<UnboundedSender<Job>>>,
    next: usize,
    threads: Vec<JoinHandle<()>>,
}

impl Lnd {
    fn alone(config: OsConfig, traffic: Arc<Traffic>) -> Lnd {
        Lnd { config, pool: RefCell::new(None), traffic, carried: Cell::new(0) }
    }

    /// With its threads, if there are to be any. One that cannot be started leaves the work to the
    /// executor.
    pub(crate) fn start(config: OsConfig) -> Lnd {
        let traffic = Arc::new(config.traffic.clone());
        let pool = (config.lnd_threads > 0).then(|| Pool::start(&config, &traffic));
        let pool = pool.and_then(|pool| {
            pool.inspect_err(|error| tracing::warn!(%error, "the LND has no threads: the executor does its work")).ok()
        });
        Lnd { pool: RefCell::new(pool), ..Lnd::alone(config, traffic) }
    }

    /// Whether sockets belong to other threads.
    pub(crate) fn has_threads(&self) -> bool {
        self.pool.borrow().is_some()
    }

    /// Runs `job` on a thread of the partition to which `peer` belongs, in turn.
    pub(crate) fn carry(&self, peer: Nid, job: Job) -> std::io::Result<()> {
        let mut pool = self.pool.borrow_mut();
        let pool = pool.as_mut().ok_or_else(|| std::io::Error::other("the executor is ending"))?;
        let threads = &pool.cpts[self.config.link_cpt(peer).0 as usize];
        pool.next = pool.next.wrapping_add(1);
        threads[pool.next % threads.len()]
            .send(job)
            .map_err(|_| std::io::Error::other("a thread of the LND has ended"))
    }

    /// Ends the threads when their links have written what they were given, at most [`LND_LINGER`]
    /// later.
    pub(crate) fn stop(&self) {
        let Some(Pool { cpts, threads, .. }) = self.pool.borrow_mut().take() else { return };
        drop(cpts);
        for thread in threads {
            let _ = thread.join(); // a panic has ended the process already
        }
    }
}

impl Pool {
    fn start(config: &OsConfig, traffic: &Arc<Traffic>) -> std::io::Result<Pool> {
        let count = config.cpts.as_ref().map_or(1, |table| table.count().get());
        let mut pool = Pool { cpts: Vec::new(), next: 0, threads: Vec::new() };
        for cpt in 0..count {
            let mut senders = Vec::new();
            for index in 0..config.lnd_threads {
                let (tx, jobs) = mpsc::unbounded_channel();
                let lnd = (OsConfig { lnd_threads: 0, ..config.clone() }, Arc::clone(traffic));
                let name = format!("lnd_{cpt:02}_{index:02}");
                let thread = std::thread::Builder::new()
                    .name(name)
                    .spawn(move || work(lnd, CptIndex(cpt), jobs))?;
                senders.push(tx);
                pool.threads.push(thread);
            }
            pool.cpts.push(senders);
        }
        Ok(pool)
    }
}

fn work(
    (config, traffic): (OsConfig, Arc<Traffic>),
    cpt: CptIndex,
    mut jobs: UnboundedReceiver<Job>,
) {
    if let Some(table) = &config.cpts {
        bind::to_cpus(table.cpus(cpt));
        let nodes: std::collections::BTreeSet<u32> =
            table.all().flat_map(|cpt| table.nodes(cpt).to_vec()).collect();
        if let Some(node) = table.nodes(cpt).first() {
            bind::to_node(*node, u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(Default::default());
    let runtime = runtime.expect("the kernel gives an epoll descriptor to a starting node");
    runtime.block_on(async move {
        let lnd = Rc::new(Lnd::alone(config, traffic));
        while let Some(job) = jobs.recv().await {
            job(&lnd);
        }
        let drained = async {
            while lnd.carried.get() > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(LND_LINGER, drained).await;
    });
}

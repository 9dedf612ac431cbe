//! A model of Linux's side of FUSE: which names and attributes the kernel caches, for how long, and
//! under which locks it sends requests. It drives a real `fuse` handler in virtual time.
//!
//! ```text
//!  system calls --- Kernel (calls) --- Cache (names, nodes, versions, ticks)
//!                     | asks: LOOKUP, GETATTR ...
//!                   fusedev::Direct --- the handler under test
//! ```
//!
//! The model follows Linux 6.1 to 6.18 (`fs/fuse/dir.c`, `inode.c`, `readdir.c`, `fs/namei.c`):
//! - A name is valid until its tick is over. Then it is looked up again, without the directory's
//!   lock. A name that is to be created or replaced is always looked up.
//! - If an inode is known, an answer whose request began before a newer answer was applied changes
//!   no attributes. An inode's first answer is always applied.
//! - Lookups and listings hold the directory's lock shared, changes hold it alone. Lookups of one
//!   name wait for each other.
//! - Validity begins when the caller runs again, which may be late, and ends with a tick.
//! - Listings with attributes (READDIRPLUS) link the entries that they return. An entry without a
//!   node id changes nothing.
//! - An inode's access list is kept until an entry reports the inode, its attributes are asked for
//!   or set, or it is invalidated.
//! - A call that meets ESTALE is tried once more, with a new request for every step.
//! - Unused entries may be forgotten at any time.
//! - A notification about an inode makes every answer under way too old for it. One about a name
//!   waits for the directory's lock; from Linux 6.19 on it looks for the name first. A new epoch
//!   makes all names old, also those whose answers are under way. One that only ends a name's
//!   time is undone by an answer about the name that is under way.
//!
//! - Files that are opened through the page cache have one page (`pages.rs`).
//! - Names of a directory are kept, if it is opened so, and read again without a request
//!   (`kept.rs`).
//! - Each wait for a lock, an answer or a notification is in a graph (`waits.rs`). A circle fails
//!   the run at once.
//!
//! Not modelled: mappings, permissions by ACLs, symbolic links, negative names (the handler returns
//! none).

mod cache;
mod calls;
mod kept;
mod listing;
mod pages;
mod told;
mod waits;
mod walk;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use env::Env;
use env_sim::Rng;
use fusedev::{Body, Direct, Handler, Header, Notifier, Op, Reply, abi};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, oneshot};
use types::{Errno, Span};

use cache::{Cache, Node};
use told::Ear;
use waits::{Lock, Locked, Waits};

pub use calls::{Found, Stat};
pub use listing::{Listed, OpenDir};
pub use pages::Open;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    pub uid: u32,
    pub gid: u32,
    /// The calling thread, which does one thing after the other.
    pub thread: u32,
}

impl Who {
    #[must_use]
    pub fn root(thread: u32) -> Who {
        Who { uid: 0, gid: 0, thread }
    }
}

/// No process of the machine has such a number, so nothing is found out about the caller.
const THREADS_FROM: u32 = 1 << 30;

/// How this kernel was built and how loaded its machine is.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// One over HZ: 1, 4 or 10 ms.
    pub tick: Span,
    /// A caller runs again so late after its answer, at most.
    pub late_max: Span,
    /// Listings ask for attributes.
    pub plus: bool,
    pub version: Version,
}

/// Which Linux it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 6.1 to 6.13: no epochs; the first answer about an inode is always believed.
    Old,
    /// 6.16 to 6.18.
    Epochs,
    /// 6.19 and later: a notification looks for a name before it has the directory's lock.
    LooksFirst,
}

impl Version {
    /// The minor version of its protocol.
    #[must_use]
    pub fn minor(self) -> u32 {
        match self {
            Version::Old => abi::EVICTIONS_MINOR - 1,
            Version::Epochs | Version::LooksFirst => abi::EPOCH_MINOR,
        }
    }
}

impl Traits {
    /// Any that a mount must bear: ticks, which are rounded up twice, and lateness together are at
    /// most `slack`.
    #[must_use]
    pub fn draw(slack: Span, rng: &mut Rng) -> Traits {
        let tick = Span::millis(*rng.pick(&[1, 4, 10]));
        let left = Span(slack.0.saturating_sub(2 * tick.0 + tick.0 / 2));
        let late_max = *rng.pick(&[Span::ZERO, Span(left.0 / 8), left, left]);
        let plus = rng.chance(500_000);
        let version = *rng.pick(&[Version::Old, Version::Epochs, Version::LooksFirst]);
        Traits { tick, late_max, plus, version }
    }
}

/// One mount as its kernel sees it. Clones are the same.
#[derive(Clone)]
pub struct Kernel(Rc<Inner>);

/// A directory's node id, and a name in it.
type NameKey = (u64, Vec<u8>);

struct Inner {
    env: Env,
    /// Where the handler works.
    daemon: Env,
    device: Direct,
    traits: Traits,
    rng: RefCell<Rng>,
    /// Sent so far.
    requests: Cell<u64>,
    cache: Rc<RefCell<Cache>>,
    /// Names that are being looked up.
    lookups: RefCell<BTreeMap<NameKey, Arc<Mutex<()>>>>,
    waits: Waits,
}

impl Kernel {
    /// A fresh mount that is served by what `handler` makes, which notifies this kernel.
    #[must_use]
    pub fn new(
        env: &Env,
        handler: impl FnOnce(Notifier) -> Rc<dyn Handler>,
        traits: Traits,
        rng: Rng,
    ) -> Kernel {
        Kernel::apart([env, env], handler, traits, rng)
    }

    /// The same of a daemon that may stop or die without its kernel: the environments of the kernel
    /// and of the daemon, whose clocks must be the same.
    #[must_use]
    pub fn apart(
        [env, daemon]: [&Env; 2],
        handler: impl FnOnce(Notifier) -> Rc<dyn Handler>,
        traits: Traits,
        rng: Rng,
    ) -> Kernel {
        let cache = Rc::new(RefCell::new(Cache::new(traits.tick)));
        cache.borrow_mut().counts_evictions = traits.version != Version::Old;
        let waits = Waits::default();
        let ear = Ear {
            env: env.clone(),
            cache: cache.clone(),
            version: traits.version,
            waits: waits.clone(),
        };
        let notifier = Notifier::direct(Rc::new(ear));
        Kernel(Rc::new(Inner {
            env: env.clone(),
            daemon: daemon.clone(),
            device: Direct::new(handler(notifier)),
            traits,
            rng: RefCell::new(rng),
            requests: Cell::new(0),
            cache,
            lookups: RefCell::default(),
            waits,
        }))
    }

    /// Requests that were sent, FORGET excepted.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.requests.get()
    }

    /// All that callers and notifications wait for now, each in a line.
    #[must_use]
    pub fn waits(&self) -> Vec<String> {
        self.0.waits.described()
    }

    /// Locks an inode alone.
    async fn alone(&self, who: Who, node: &Node) -> Locked<OwnedRwLockWriteGuard<()>> {
        self.0.waits.alone(who, Lock::Inode(node.id), &node.lock).await
    }

    /// Locks an inode shared.
    async fn shared(&self, who: Who, node: &Node) -> Locked<OwnedRwLockReadGuard<()>> {
        self.0.waits.shared(who, Lock::Inode(node.id), &node.lock).await
    }

    /// Locks the page of a file.
    async fn page(&self, who: Who, node: &Node) -> Locked<OwnedMutexGuard<Option<Bytes>>> {
        self.0.waits.mutex(who, Lock::Page(node.id), &node.page).await
    }

    /// Sends a request; the answer is there when its caller runs again.
    async fn ask(&self, who: Who, nodeid: u64, op: Op) -> Reply {
        let pid = THREADS_FROM + who.thread;
        let header = Header { opcode: 0, unique: 0, nodeid, uid: who.uid, gid: who.gid, pid };
        let (answer, answered) = oneshot::channel();
        let answer = Cell::new(Some(answer));
        tracing::debug!(nodeid, ?op, "the kernel asks");
        let request = self.0.requests.get() + 1;
        self.0.requests.set(request);
        let waits = self.0.waits.clone();
        let work = self.0.device.ask(header, op, move |reply| {
            waits.answered(request);
            let answer = answer.take().expect("a request is answered once");
            drop(answer.send(reply.clone()));
        });
        self.0.daemon.spawn("fuse", self.0.waits.working(request, work));
        let wait = self.0.waits.for_answer(who, request);
        let reply = answered.await.unwrap_or(Err(Errno::ENOTCONN));
        drop(wait);
        let late = self.lateness();
        if late > Span::ZERO {
            self.0.env.sleep(late).await;
        }
        tracing::debug!(nodeid, ?reply, "the kernel reads the answer");
        reply
    }

    /// Mostly none.
    fn lateness(&self) -> Span {
        let mut rng = self.0.rng.borrow_mut();
        match rng.chance(300_000) {
            true => rng.span(Span::ZERO, self.0.traits.late_max),
            false => Span::ZERO,
        }
    }

    async fn ask_nothing(&self, who: Who, nodeid: u64, op: Op) -> Result<(), Errno> {
        match self.ask(who, nodeid, op).await? {
            Body::Empty => Ok(()),
            other => panic!("an answer without a body was due: {other:?}"),
        }
    }

    /// Memory is short: names and inodes that no call uses go.
    pub fn shrink(&self) {
        let chance = |of: &mut Rng| of.chance(300_000);
        self.0.cache.borrow_mut().drop_names(|| chance(&mut self.0.rng.borrow_mut()));
        self.0.cache.borrow().drop_pages(|| chance(&mut self.0.rng.borrow_mut()));
        let evicted = self.0.cache.borrow_mut().evict();
        for (nodeid, looks) in evicted {
            self.0.device.forget(nodeid, looks);
        }
    }
}

#[cfg(test)]
mod tests {
    use env_sim::{Sim, SimConfig};
    use fusedev::{LocalFuture, Request};
    use types::Nid;

    use super::*;

    /// A daemon that makes no directory before the kernel has heard of a name beside it.
    struct Circular(Notifier);

    impl Handler for Circular {
        fn handle(self: Rc<Self>, request: Request) -> LocalFuture {
            Box::pin(async move {
                let answer = match &request.op {
                    Op::Getattr { .. } => Ok(Body::Attr(abi::AttrOut::default())),
                    Op::Mkdir { .. } => {
                        let name: Rc<[u8]> = Rc::from(&b"name"[..]);
                        self.0.inval_entries(&[(abi::ROOT_ID, name)]).await;
                        Ok(Body::Empty)
                    }
                    _ => Err(Errno::ENOENT),
                };
                request.replier.reply(&answer);
            })
        }

        fn forget(&self, _: u64, _: u64) {}
    }

    #[test]
    #[should_panic(expected = "a circle of waits: notification 1 waits for")]
    fn an_answer_that_waits_for_a_notification_about_a_locked_directory_fails_at_once() {
        let sim = Sim::new(1, SimConfig::default());
        let node = sim.node("mount", Nid::tcp([10, 0, 0, 1].into()));
        let (tick, version) = (Span::millis(4), Version::Epochs);
        let traits = Traits { tick, late_max: Span::ZERO, plus: false, version };
        let handler = |notifier| -> Rc<dyn Handler> { Rc::new(Circular(notifier)) };
        let kernel = Kernel::new(&node.env(), handler, traits, Rng::new(1));
        let made = async move { kernel.mkdir(Who::root(1), "dir", 0o755).await };
        let made = sim.block_on_for(&node, Span::secs(1), made);
        panic!("the daemon waits for ever: {made:?}");
    }
}

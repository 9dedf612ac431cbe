//! State that the remotes of an endpoint share: links, one per node, and numbers of bulk data.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use env::{Env, LinkRx, LinkTx, LocalFuture};
use queues::Ascending;
use tokio::sync::Notify;
use types::{Instant, NidAddr, Xid};

use crate::{EndpointConfig, Resolve};

/// Reads a new link until it ends.
pub(crate) type ReadLink =
    Box<dyn Fn(Rc<Core>, NidAddr, Rc<SharedLink>, LinkRx) -> LocalFuture<'static, ()>>;

/// What remotes and readers share.
pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) config: EndpointConfig,
    pub(crate) resolve: Rc<dyn Resolve>,
    bulk_ids: Cell<u64>,
    links: RefCell<BTreeMap<NidAddr, LinkState>>,
    serials: Cell<u64>,
    /// Bulk ids that servers may pull, and the request whose data they name.
    pulls: RefCell<Ascending<u64, Xid>>,
    pub(crate) stopped: Cell<bool>,
    read: ReadLink,
}

enum LinkState {
    Connecting(Rc<Notify>),
    Open(Rc<SharedLink>),
}

/// A link in use.
pub(crate) struct SharedLink {
    pub(crate) serial: u64,
    pub(crate) tx: LinkTx,
    /// When anything last arrived: a quiet link is suspected, a busy one is not.
    pub(crate) heard: Cell<Instant>,
}

impl Core {
    pub(crate) fn new(
        env: &Env,
        config: EndpointConfig,
        resolve: Rc<dyn Resolve>,
        read: ReadLink,
    ) -> Rc<Core> {
        Rc::new(Core {
            env: env.clone(),
            config,
            resolve,
            bulk_ids: Cell::new(1),
            links: RefCell::default(),
            serials: Cell::new(0),
            pulls: RefCell::default(),
            stopped: Cell::new(false),
            read,
        })
    }

    pub(crate) fn close_links(&self) {
        for state in std::mem::take(&mut *self.links.borrow_mut()).into_values() {
            if let LinkState::Open(link) = state {
                link.tx.close();
            }
        }
    }

    /// The link to `addr`, made if need be.
    pub(crate) async fn link(self: &Rc<Self>, addr: NidAddr) -> std::io::Result<Rc<SharedLink>> {
        loop {
            let wait = match self.links.borrow().get(&addr) {
                Some(LinkState::Open(link)) if link.tx.is_open() => return Ok(Rc::clone(link)),
                Some(LinkState::Connecting(wait)) => Some(Rc::clone(wait)),
                _ => None,
            };
            match wait {
                Some(wait) => wait.notified().await,
                None => return self.open_link(addr).await,
            }
        }
    }

    async fn open_link(self: &Rc<Self>, addr: NidAddr) -> std::io::Result<Rc<SharedLink>> {
        let wait = Rc::new(Notify::new());
        self.links.borrow_mut().insert(addr, LinkState::Connecting(Rc::clone(&wait)));
        // a caller that gives up must not leave the others waiting
        let guard = Connecting { core: self, addr, wait: &wait };
        let made = self.env.connect(self.config.nid, addr).await;
        drop(guard);
        let made = made?;
        if self.stopped.get() {
            made.tx.close();
            return Err(std::io::ErrorKind::NotConnected.into());
        }
        let serial = self.serials.get() + 1;
        self.serials.set(serial);
        let link = Rc::new(SharedLink { serial, tx: made.tx, heard: Cell::new(self.env.now()) });
        self.links.borrow_mut().insert(addr, LinkState::Open(Rc::clone(&link)));
        let reader = (self.read)(Rc::clone(self), addr, Rc::clone(&link), made.rx);
        self.env.spawn("endpoint.reader", reader);
        Ok(link)
    }

    /// Its reader is done with a link.
    pub(crate) fn link_ended(&self, addr: NidAddr, serial: u64) {
        let mut links = self.links.borrow_mut();
        if matches!(links.get(&addr), Some(LinkState::Open(link)) if link.serial == serial) {
            links.remove(&addr);
        }
    }

    /// A fresh bulk id under which `xid`'s data may be pulled.
    pub(crate) fn offer(&self, xid: Xid) -> u64 {
        let id = self.draw_bulk_id();
        let before = self.pulls.borrow_mut().insert(id, xid);
        assert!(before.is_none(), "a bulk id names one attempt");
        id
    }

    /// The request whose data a server asks for; once. An id of an earlier send names nothing: that
    /// attempt is over.
    pub(crate) fn pulled(&self, id: u64) -> Option<Xid> {
        self.pulls.borrow_mut().remove(id)
    }

    pub(crate) fn withdraw(&self, id: u64) {
        self.pulls.borrow_mut().remove(id);
    }

    pub(crate) fn draw_bulk_id(&self) -> u64 {
        let id = self.bulk_ids.get();
        assert!(id != 0, "zero names no bulk");
        self.bulk_ids.set(id + 1);
        id
    }
}

struct Connecting<'a> {
    core: &'a Core,
    addr: NidAddr,
    wait: &'a Rc<Notify>,
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.core.links.borrow_mut().remove(&self.addr);
        self.wait.notify_waiters();
    }
}

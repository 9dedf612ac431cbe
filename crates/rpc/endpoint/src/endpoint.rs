//! The endpoint: its remotes, its links (one per node, shared by the targets there) and their
//! readers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use env::{Env, LinkRx, LinkTx};
use ptlrpc::XidSource;
use queues::Ascending;
use tokio::sync::Notify;
use types::{Errno, Instant, NidAddr, TargetId, Xid};
use wire::{Frame, FrameKind, MessageError, Reply, ReplyFlags, Request, RequestHeader};

use crate::{EndpointConfig, Remote, Resolve, callbacks, limits};

/// One client: a mount, or a server that uses other servers.
pub struct Endpoint {
    core: Rc<Core>,
    remotes: RefCell<BTreeMap<TargetId, Rc<Remote>>>,
}

/// What remotes and readers share.
pub(crate) struct Core {
    pub(crate) env: Env,
    pub(crate) config: EndpointConfig,
    pub(crate) resolve: Rc<dyn Resolve>,
    xids: XidSource,
    bulk_ids: Cell<u64>,
    /// By lane.
    lanes: RefCell<Vec<Weak<Remote>>>,
    links: RefCell<BTreeMap<NidAddr, LinkState>>,
    serials: Cell<u64>,
    /// Bulk ids that servers may pull, and the request whose data they name.
    pulls: RefCell<Ascending<u64, Xid>>,
    pub(crate) stopped: Cell<bool>,
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

impl Endpoint {
    /// A client that knows its targets through `resolve`. Nothing is sent before the first call.
    pub fn new(env: &Env, config: EndpointConfig, resolve: Rc<dyn Resolve>) -> Rc<Endpoint> {
        let core = Rc::new(Core {
            env: env.clone(),
            config,
            resolve,
            xids: XidSource::new(u64::try_from(env.wall().sec).unwrap_or(0)),
            bulk_ids: Cell::new(1),
            lanes: RefCell::default(),
            links: RefCell::default(),
            serials: Cell::new(0),
            pulls: RefCell::default(),
            stopped: Cell::new(false),
        });
        Rc::new(Endpoint { core, remotes: RefCell::default() })
    }

    /// The way to `target`, one for all callers; it connects with the first call.
    pub fn remote(self: &Rc<Self>, target: TargetId) -> Rc<Remote> {
        if let Some(remote) = self.remotes.borrow().get(&target) {
            return Rc::clone(remote);
        }
        let mut lanes = self.core.lanes.borrow_mut();
        assert!(
            lanes.len() < limits::REMOTES_MAX,
            "a file system has fewer targets than an endpoint has lanes"
        );
        let lane = lanes.len() as u32;
        let remote = Remote::new(Rc::clone(&self.core), target, self.core.xids.lane(lane));
        lanes.push(Rc::downgrade(&remote));
        self.remotes.borrow_mut().insert(target, Rc::clone(&remote));
        remote
    }

    /// Indexes of the MDTs of the file system, as far as is known here.
    pub fn mdts(&self) -> Vec<u32> {
        self.core.resolve.mdts()
    }

    /// All remotes that were used.
    pub fn remotes(&self) -> Vec<Rc<Remote>> {
        self.remotes.borrow().values().cloned().collect()
    }

    /// Ends every session in good order, within [`limits::SHUTDOWN_WAIT`]; calls end with
    /// `Shutdown`.
    pub async fn shutdown(&self) {
        self.core.stopped.set(true);
        let waits: Vec<_> =
            self.remotes().iter().filter_map(|remote| remote.begin_shutdown()).collect();
        let all = async {
            for wait in waits {
                let _: Option<Box<Reply>> = wait.await; // a link that ends is an end, too
            }
        };
        self.core.env.timeout(limits::SHUTDOWN_WAIT, all).await;
        self.core.close_links();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.core.stopped.set(true);
        for remote in self.remotes.borrow().values() {
            drop(remote.begin_shutdown());
        }
        self.core.close_links();
    }
}

impl Core {
    fn close_links(&self) {
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
        let reader = Rc::clone(self).read(addr, Rc::clone(&link), made.rx);
        self.env.spawn("endpoint.reader", reader);
        Ok(link)
    }

    async fn read(self: Rc<Self>, addr: NidAddr, link: Rc<SharedLink>, mut rx: LinkRx) {
        let mut touched: Vec<Rc<Remote>> = Vec::new();
        'link: while let Some(frame) = rx.recv().await {
            let now = self.env.now();
            link.heard.set(now);
            let mut next = Some(frame);
            let mut batch = 0;
            while let Some(frame) = next {
                if let Err(error) = self.handle_frame(&link, frame, now, &mut touched) {
                    tracing::warn!(%addr, %error, "protocol error from a server: its link is closed");
                    break 'link;
                }
                batch += 1;
                next = if batch < limits::BATCH_FRAMES_MAX { rx.try_recv() } else { None };
            }
            for remote in touched.drain(..) {
                remote.pump_at(now);
            }
            if batch == limits::BATCH_FRAMES_MAX {
                // those who were answered ask again before the rest is looked at
                env::yield_now().await;
            }
        }
        link.tx.close();
        self.link_ended(addr, link.serial);
    }

    fn handle_frame(
        &self,
        link: &SharedLink,
        frame: Frame,
        now: Instant,
        touched: &mut Vec<Rc<Remote>>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        match frame.kind {
            FrameKind::Reply => {
                let reply = Reply::take(frame.into_payload())?;
                let lane = XidSource::lane_of(Xid(reply.header.xid)) as usize;
                let remote = self.lanes.borrow().get(lane).and_then(Weak::upgrade);
                if let Some(remote) = remote {
                    remote.handle_reply(link.serial, reply, now)?;
                    if !touched.iter().any(|other| Rc::ptr_eq(other, &remote)) {
                        touched.push(remote);
                    }
                }
            }
            FrameKind::BulkPull => self.answer_pull(link, frame.id),
            FrameKind::Request => self.called(link, frame)?,
            FrameKind::Hello | FrameKind::BulkData | FrameKind::Heartbeat => {}
        }
        Ok(())
    }

    /// A callback: for the target whose session it names, on the link of that session.
    fn called(&self, link: &SharedLink, frame: Frame) -> Result<(), MessageError> {
        let request = match Request::take(frame.into_payload()) {
            Err(MessageError::Opcode(header)) => {
                if self.called_remote(link, &header).is_some() {
                    let flags = ReplyFlags::empty();
                    callbacks::refuse(&link.tx, &header, Errno::EOPNOTSUPP, flags);
                }
                return Ok(());
            }
            request => request?,
        };
        match self.called_remote(link, &request.header) {
            Some(remote) => remote.handle_callback(&link.tx, request),
            None => Ok(()),
        }
    }

    /// The target whose session a callback names. If there is none, its sender has the answer.
    fn called_remote(&self, link: &SharedLink, header: &RequestHeader) -> Option<Rc<Remote>> {
        let remotes: Vec<_> = self.lanes.borrow().iter().filter_map(Weak::upgrade).collect();
        let called = remotes.into_iter().find(|remote| remote.is_called_by(link.serial, header));
        if called.is_none() {
            callbacks::refuse(&link.tx, header, Errno::ENOTCONN, ReplyFlags::NO_SESSION);
        }
        called
    }

    /// Sends what a server asks for. An id of an earlier send names nothing: that attempt is over.
    fn answer_pull(&self, link: &SharedLink, id: u64) {
        let Some(xid) = self.pulls.borrow_mut().remove(id) else {
            planted::reached("endpoint: data was asked for that no request has");
            return;
        };
        let remote =
            self.lanes.borrow().get(XidSource::lane_of(xid) as usize).and_then(Weak::upgrade);
        if let Some(parts) = remote.and_then(|remote| remote.source(xid)) {
            // a link that is down is noticed by its reader
            let _ = link.tx.send(Frame { kind: FrameKind::BulkData, id, parts: parts.into() });
        }
    }

    fn link_ended(self: &Rc<Self>, addr: NidAddr, serial: u64) {
        {
            let mut links = self.links.borrow_mut();
            if matches!(links.get(&addr), Some(LinkState::Open(link)) if link.serial == serial) {
                links.remove(&addr);
            }
        }
        let remotes: Vec<_> = self.lanes.borrow().iter().filter_map(Weak::upgrade).collect();
        for remote in remotes {
            remote.link_ended(serial);
        }
    }

    /// A fresh bulk id under which `xid`'s data may be pulled.
    pub(crate) fn offer(&self, xid: Xid) -> u64 {
        let id = self.draw_bulk_id();
        let before = self.pulls.borrow_mut().insert(id, xid);
        assert!(before.is_none(), "a bulk id names one attempt");
        id
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

/// One buffer from parts.
pub(crate) fn concat(parts: &[Bytes]) -> Bytes {
    match parts {
        [] => Bytes::new(),
        [one] => one.clone(),
        many => many.concat().into(),
    }
}

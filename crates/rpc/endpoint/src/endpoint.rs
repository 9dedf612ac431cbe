//! The endpoint: its remotes, and the readers that give them the frames from the links.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use env::{Env, LinkRx};
use ptlrpc::XidSource;
use types::{Errno, Instant, NidAddr, TargetId, Xid};
use wire::{Frame, FrameKind, MessageError, Reply, ReplyFlags, Request, RequestHeader};

use crate::shared::{Core, ReadLink, SharedLink};
use crate::{EndpointConfig, Remote, Resolve, callbacks, limits};

/// One client: a mount, or a server that uses other servers.
pub struct Endpoint {
    core: Rc<Core>,
    xids: XidSource,
    lanes: Rc<Lanes>,
    remotes: RefCell<BTreeMap<TargetId, Rc<Remote>>>,
}

impl Endpoint {
    /// A client that knows its targets through `resolve`. Nothing is sent before the first call.
    pub fn new(env: &Env, config: EndpointConfig, resolve: Rc<dyn Resolve>) -> Rc<Endpoint> {
        let lanes = Rc::<Lanes>::default();
        let by_lane = Rc::clone(&lanes);
        let read: ReadLink = Box::new(move |core, addr, link, rx| {
            Box::pin(Reader { core, lanes: Rc::clone(&by_lane), addr, link }.run(rx))
        });
        Rc::new(Endpoint {
            core: Core::new(env, config, resolve, read),
            xids: XidSource::new(u64::try_from(env.wall().sec).unwrap_or(0)),
            lanes,
            remotes: RefCell::default(),
        })
    }

    /// The way to `target`, one for all callers; it connects with the first call.
    pub fn remote(self: &Rc<Self>, target: TargetId) -> Rc<Remote> {
        if let Some(remote) = self.remotes.borrow().get(&target) {
            return Rc::clone(remote);
        }
        let mut lanes = self.lanes.0.borrow_mut();
        assert!(
            lanes.len() < limits::REMOTES_MAX,
            "a file system has fewer targets than an endpoint has lanes"
        );
        let lane = lanes.len() as u32;
        let remote = Remote::new(Rc::clone(&self.core), target, self.xids.lane(lane));
        lanes.push(Rc::downgrade(&remote));
        self.remotes.borrow_mut().insert(target, Rc::clone(&remote));
        remote
    }

    /// Indexes of the MDTs of the file system, as far as is known here.
    pub fn mdts(&self) -> Vec<u32> {
        self.core.resolve.mdts()
    }

    /// Whether a target was taken out of use for good, as far as is known here.
    pub fn is_off(&self, target: TargetId) -> bool {
        self.core.resolve.is_off(target)
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

/// Remotes by lane, which their xids name.
#[derive(Default)]
struct Lanes(RefCell<Vec<Weak<Remote>>>);

impl Lanes {
    /// The remote whose request has this xid.
    fn of(&self, xid: Xid) -> Option<Rc<Remote>> {
        self.0.borrow().get(XidSource::lane_of(xid) as usize).and_then(Weak::upgrade)
    }

    fn all(&self) -> Vec<Rc<Remote>> {
        self.0.borrow().iter().filter_map(Weak::upgrade).collect()
    }
}

/// Reads one link.
struct Reader {
    core: Rc<Core>,
    lanes: Rc<Lanes>,
    addr: NidAddr,
    link: Rc<SharedLink>,
}

impl Reader {
    async fn run(self, mut rx: LinkRx) {
        let mut touched: Vec<Rc<Remote>> = Vec::new();
        'link: while let Some(frame) = rx.recv().await {
            let now = self.core.env.now();
            self.link.heard.set(now);
            let mut next = Some(frame);
            let mut batch = 0;
            while let Some(frame) = next {
                if let Err(error) = self.handle_frame(frame, now, &mut touched) {
                    let addr = self.addr;
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
        self.link.tx.close();
        self.core.link_ended(self.addr, self.link.serial);
        for remote in self.lanes.all() {
            remote.link_ended(self.link.serial);
        }
    }

    fn handle_frame(
        &self,
        frame: Frame,
        now: Instant,
        touched: &mut Vec<Rc<Remote>>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        match frame.kind {
            FrameKind::Reply => {
                let reply = Reply::take(frame.into_payload())?;
                if let Some(remote) = self.lanes.of(Xid(reply.header.xid)) {
                    remote.handle_reply(self.link.serial, reply, now)?;
                    if !touched.iter().any(|other| Rc::ptr_eq(other, &remote)) {
                        touched.push(remote);
                    }
                }
            }
            FrameKind::BulkPull => self.answer_pull(frame.id),
            FrameKind::Request => self.called(frame)?,
            FrameKind::Hello | FrameKind::BulkData | FrameKind::Heartbeat => {}
        }
        Ok(())
    }

    /// A callback: for the target whose session it names, on the link of that session.
    fn called(&self, frame: Frame) -> Result<(), MessageError> {
        let request = match Request::take(frame.into_payload()) {
            Err(MessageError::Opcode(header)) => {
                if self.called_remote(&header).is_some() {
                    let flags = ReplyFlags::empty();
                    callbacks::refuse(&self.link.tx, &header, Errno::EOPNOTSUPP, flags);
                }
                return Ok(());
            }
            request => request?,
        };
        match self.called_remote(&request.header) {
            Some(remote) => remote.handle_callback(&self.link.tx, request),
            None => Ok(()),
        }
    }

    /// The target whose session a callback names. If there is none, its sender has the answer.
    fn called_remote(&self, header: &RequestHeader) -> Option<Rc<Remote>> {
        let mut remotes = self.lanes.all().into_iter();
        let called = remotes.find(|remote| remote.is_called_by(self.link.serial, header));
        if called.is_none() {
            callbacks::refuse(&self.link.tx, header, Errno::ENOTCONN, ReplyFlags::NO_SESSION);
        }
        called
    }

    /// Sends what a server asks for.
    fn answer_pull(&self, id: u64) {
        let Some(xid) = self.core.pulled(id) else {
            planted::reached("endpoint: data was asked for that no request has");
            return;
        };
        if let Some(parts) = self.lanes.of(xid).and_then(|remote| remote.source(xid)) {
            // a link that is down is noticed by its reader
            let _ = self.link.tx.send(Frame { kind: FrameKind::BulkData, id, parts: parts.into() });
        }
    }
}

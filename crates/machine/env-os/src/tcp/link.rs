//! An established pair: what its halves and its tasks share, and how it ends.
//!
//! Tasks of a link: a writer per outgoing queue, the reader of bulk, and the watch (heartbeats,
//! silence, loss of the outgoing bulk connection). Any fault ends in [`Shared::close`], which runs
//! once: it drops the writing halves and the tasks, with them the sockets, fails the tickets and
//! wakes whoever reads.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use env::{BulkTable, BulkTicket, Link, LinkDown, LinkRx, LinkSend, LinkTx, LocalFuture};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::task::AbortHandle;
use types::Nid;
use wire::{Frame, FrameError, FrameKind, Message, Parts};

use super::bridge::Crossing;
use super::bulk;
use super::handshake::Pair;
use super::inbox::TcpRecv;
use super::outbox::{Outbox, write_all};
use crate::body::spawn;
use crate::lnd::Lnd;

/// Why a link ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The peer closed it, or the network did.
    #[error("connection lost: {0}")]
    Lost(#[from] std::io::Error),
    /// The peer sent what is no frame.
    #[error("the peer misbehaved: {0}")]
    Frame(#[from] FrameError),
    /// The peer sent a frame where it does not belong.
    #[error("the peer misbehaved: {0:?} frame on the {1} connection")]
    Channel(FrameKind, &'static str),
    /// Nothing was heard, or nothing was taken, for `peer_timeout`.
    #[error("no news from the peer for {0:?}")]
    Silent(Duration),
    /// Somebody sends without asking for room.
    #[error("{0} bytes are queued")]
    Overrun(usize),
}

impl Fault {
    /// An end that happens to every link is no news.
    fn is_news(&self) -> bool {
        !matches!(self, Fault::Lost(_))
    }
}

/// Shared by both halves and all tasks of a link.
pub(super) struct Shared {
    pub(super) config: Rc<Lnd>,
    peer: Nid,
    pub(super) control: Outbox,
    bulk_out: Outbox,
    pub(super) bulk: BulkTable,
    crossing: Option<Arc<Crossing>>,
    open: Cell<bool>,
    tasks: RefCell<Vec<AbortHandle>>,
    /// The task that reads control, while it waits.
    pub(super) reader: RefCell<Option<Waker>>,
    /// Something came since the watch last looked.
    pub(super) heard: Cell<bool>,
    /// The reader has taken everything that is there: silence is the peer's.
    pub(super) starved: Cell<bool>,
}

/// Makes a link of three connections.
///
/// `crossing` is the way to the executor where this is another thread; `bulk` is what is expected
/// there.
pub(super) fn start(
    config: Rc<Lnd>,
    pair: Pair,
    bulk: BulkTable,
    crossing: Option<Arc<Crossing>>,
) -> Link {
    let (control_read, control_write) = pair.control.into_split();
    let (bulk_out_read, bulk_out_write) = pair.bulk_out.into_split();
    let (bulk_in_read, bulk_in_write) = pair.bulk_in.into_split();
    config.lnet.open(pair.peer, config.link_cpt(pair.peer), pair.peer_credits);
    let outbox = |half, gauge| Outbox::new(half, Rc::clone(&config), pair.peer, gauge);
    let gauges = crossing
        .as_ref()
        .map(|crossing| (Arc::clone(&crossing.control), Arc::clone(&crossing.bulk)))
        .unzip();
    let shared = Rc::new(Shared {
        control: outbox(control_write, gauges.0),
        bulk_out: outbox(bulk_out_write, gauges.1),
        config,
        peer: pair.peer,
        bulk,
        crossing,
        open: Cell::new(true),
        tasks: RefCell::default(),
        reader: RefCell::default(),
        heard: Cell::new(true),
        starved: Cell::new(false),
    });
    shared.task(write_all(Rc::clone(&shared), |shared| &shared.control));
    shared.task(write_all(Rc::clone(&shared), |shared| &shared.bulk_out));
    shared.task(bulk::read_all(Rc::clone(&shared), bulk_in_read, bulk_in_write));
    shared.task(watch(Rc::clone(&shared)));
    shared.task(lose(bulk_out_read));
    let rx = LinkRx::new(Box::new(TcpRecv::new(Rc::clone(&shared), control_read)));
    Link { peer: pair.peer, tx: LinkTx::new(Rc::new(TcpSend(shared))), rx }
}

impl Shared {
    /// Runs a task of this link; its fault is the link's.
    fn task(self: &Rc<Self>, task: impl Future<Output = Result<(), Fault>> + 'static) {
        let shared = Rc::clone(self);
        let handle = spawn(async move {
            if let Err(fault) = task.await {
                shared.fail(&fault);
            }
        });
        self.tasks.borrow_mut().push(handle);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Ends the link because of `fault`.
    pub(super) fn fail(&self, fault: &Fault) {
        if self.open.get() && fault.is_news() {
            tracing::warn!(peer = %self.peer, %fault, "link closed");
        }
        self.close();
    }

    /// Ends the link; what fits into the sockets still leaves.
    pub(super) fn close(&self) {
        if !self.open.replace(false) {
            return;
        }
        if let Some(crossing) = &self.crossing {
            crossing.hang_up();
        }
        self.control.close();
        self.bulk_out.close();
        self.config.lnet.hang_up(self.peer);
        self.bulk.fail_all();
        for task in self.tasks.borrow_mut().drain(..) {
            task.abort();
        }
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
    }
}

/// The sending half that callers hold.
struct TcpSend(Rc<Shared>);

impl LinkSend for TcpSend {
    fn send(&self, frame: Frame) -> Result<(), LinkDown> {
        if !self.0.is_open() {
            return Err(LinkDown);
        }
        let outbox =
            if frame.kind == FrameKind::BulkData { &self.0.bulk_out } else { &self.0.control };
        if let Err(fault) = outbox.push(frame) {
            self.0.fail(&fault);
            return Err(LinkDown);
        }
        Ok(())
    }

    fn send_message(&self, message: &dyn Message) -> Result<(), LinkDown> {
        if !self.0.is_open() {
            return Err(LinkDown);
        }
        if let Err(fault) = self.0.control.push_message(message, message.frame_bytes()) {
            self.0.fail(&fault);
            return Err(LinkDown);
        }
        Ok(())
    }

    fn room(&self) -> LocalFuture<'static, ()> {
        if self.0.control.has_room() && self.0.bulk_out.has_room() {
            return Box::pin(std::future::ready(()));
        }
        let shared = Rc::clone(&self.0);
        Box::pin(async move {
            shared.control.room().await;
            shared.bulk_out.room().await;
        })
    }

    fn expect_bulk(&self, id: u64, len_max: usize) -> BulkTicket {
        let ticket = self.0.bulk.expect(id, len_max);
        if !self.0.is_open() {
            self.0.bulk.fail_all();
        }
        ticket
    }

    fn close(&self) {
        self.0.close();
    }

    fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

/// Sends heartbeats when control is idle, and ends the link when the peer is silent or takes
/// nothing.
async fn watch(shared: Rc<Shared>) -> Result<(), Fault> {
    let period = Duration::from_nanos(shared.config.heartbeat.0).max(Duration::from_millis(1));
    let limit = Duration::from_nanos(shared.config.peer_timeout.0);
    let (mut silent, mut stuck) = (Duration::ZERO, Duration::ZERO);
    loop {
        tokio::time::sleep(period).await;
        let heard = shared.heard.take();
        if heard {
            shared.config.lnet.heard(shared.peer);
        }
        let quiet = !heard && shared.starved.get();
        silent = if quiet { silent + period } else { Duration::ZERO };
        let idle = !shared.control.take_pushed();
        let blocked = shared.control.is_blocked() | shared.bulk_out.is_blocked();
        stuck = if blocked { stuck + period } else { Duration::ZERO };
        if !limit.is_zero() && silent.max(stuck) >= limit {
            return Err(Fault::Silent(silent.max(stuck)));
        }
        if idle && !blocked {
            shared.control.push(Frame {
                kind: FrameKind::Heartbeat,
                id: 0,
                parts: Parts::Many(Vec::new()),
            })?;
            shared.control.take_pushed();
        }
    }
}

/// Nothing comes back on the outgoing bulk connection but its end.
async fn lose(mut half: OwnedReadHalf) -> Result<(), Fault> {
    match half.read(&mut [0; 1]).await? {
        0 => Err(ended()),
        _ => Err(Fault::Channel(FrameKind::BulkData, "outgoing bulk")),
    }
}

/// The peer closed a connection between two frames.
pub(super) fn ended() -> Fault {
    Fault::Lost(std::io::ErrorKind::UnexpectedEof.into())
}

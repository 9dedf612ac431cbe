//! An established pair as a link: its halves and its tasks.
//!
//! Tasks of a link: a writer per outgoing queue, the reader of bulk, and the watch (heartbeats,
//! silence, loss of the outgoing bulk connection). Any fault of theirs ends the link
//! ([`Shared::fail`]).

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use env::{BulkTable, BulkTicket, Link, LinkDown, LinkRx, LinkSend, LinkTx, LocalFuture};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use wire::{Frame, FrameKind, Message, Parts};

use super::bulk;
use super::crossing::Crossing;
use super::fault::{Fault, ended};
use super::handshake::Pair;
use super::inbox::TcpRecv;
use super::outbox::Outbox;
use super::shared::Shared;
use crate::lnd::Lnd;

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
    let control = outbox(control_write, gauges.0);
    let bulk_out = outbox(bulk_out_write, gauges.1);
    let shared = Rc::new(Shared::new(config, pair.peer, [control, bulk_out], bulk, crossing));
    shared.task(write_all(Rc::clone(&shared), |shared| &shared.control));
    shared.task(write_all(Rc::clone(&shared), |shared| &shared.bulk_out));
    shared.task(bulk::read_all(Rc::clone(&shared), bulk_in_read, bulk_in_write));
    shared.task(watch(Rc::clone(&shared)));
    shared.task(lose(bulk_out_read));
    let rx = LinkRx::new(Box::new(TcpRecv::new(Rc::clone(&shared), control_read)));
    Link { peer: pair.peer, tx: LinkTx::new(Rc::new(TcpSend(shared))), rx }
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
        if self.has_room() {
            return Box::pin(std::future::ready(()));
        }
        let shared = Rc::clone(&self.0);
        Box::pin(async move {
            shared.control.room().await;
            shared.bulk_out.room().await;
        })
    }

    fn has_room(&self) -> bool {
        self.0.control.has_room() && self.0.bulk_out.has_room()
    }

    fn queued_bytes(&self) -> u64 {
        let bytes = || self.0.control.queued_bytes() + self.0.bulk_out.queued_bytes();
        if self.0.is_open() { bytes() as u64 } else { 0 }
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
/// nothing: soon where others wait for the credits that it holds.
async fn watch(shared: Rc<Shared>) -> Result<(), Fault> {
    let period = Duration::from_nanos(shared.config.heartbeat.0).max(Duration::from_millis(1));
    let limit = Duration::from_nanos(shared.config.peer_timeout.0);
    let way = Duration::from_nanos(shared.config.stuck_timeout.0).max(period);
    let cpt = shared.config.link_cpt(shared.peer);
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
        let is_in_the_way = stuck >= way && shared.config.lnet.is_short(cpt);
        if is_in_the_way {
            return Err(Fault::InTheWay(stuck));
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

/// The writer of one outbox of a link.
async fn write_all(shared: Rc<Shared>, outbox: fn(&Shared) -> &Outbox) -> Result<(), Fault> {
    poll_fn(|cx| outbox(&shared).poll_drain(cx)).await
}

//! A link whose sockets belong to another thread: its halves are on the executor, its tasks on that
//! thread.
//!
//! ```text
//!  executor                          LND thread of the link's CPT
//!   send --> out lane ==wake once a turn==> outbox, encode, CRC, write
//!   recv <-- in lane  <=====batches======== read, CRC, parse
//!   ticket <------------ bulk table <------ read into a pooled buffer
//! ```
//! Frames cross as they are, and their payloads are shared. The out lane is woken behind the tasks
//! that are ready, so that the replies to a batch of requests cross together. The in lane has a
//! bound: if an executor does not read a link, the link's socket is not read either. `room()`
//! counts the frames that are not yet written to the socket.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use env::{BulkTable, BulkTicket, Link, LinkDown, LinkRecv, LinkRx, LinkSend, LinkTx, LocalFuture};
use tokio::net::TcpStream;
use wire::{FRAME_HEADER_BYTES, Frame, FrameKind};

use super::crossing::{Crossing, lock};
use super::handshake::Pair;
use super::link;
use crate::executor::spawn;
use crate::limits::{HANDOVER_FRAMES_MAX, QUEUE_BYTES_HARD};
use crate::lnd::Lnd;

/// Makes a link of a pair, here or on a thread of the LND.
pub(super) fn start(lnd: &Rc<Lnd>, pair: Pair) -> io::Result<Link> {
    if !lnd.has_threads() {
        return Ok(link::start(Rc::clone(lnd), pair, BulkTable::new(), None));
    }
    let peer = pair.peer;
    let crossing = Arc::new(Crossing::default());
    let bulk = BulkTable::new();
    let sockets = [pair.control.into_std()?, pair.bulk_out.into_std()?, pair.bulk_in.into_std()?];
    let credits = pair.peer_credits;
    let (theirs, table) = (Arc::clone(&crossing), bulk.clone());
    let carry = move |lnd: &Rc<Lnd>| {
        let opened = sockets.map(TcpStream::from_std);
        let [Ok(control), Ok(bulk_out), Ok(bulk_in)] = opened else {
            tracing::warn!(%peer, "link dropped: its sockets cannot be watched");
            table.fail_all();
            return theirs.end();
        };
        let pair = Pair { control, bulk_out, bulk_in, peer, peer_credits: credits };
        carry(lnd, pair, table, &theirs);
    };
    lnd.carry(peer, Box::new(carry))?;
    let near = Rc::new(Near {
        lnd: Rc::clone(lnd),
        crossing,
        bulk,
        is_closed: Cell::new(false),
        is_dirty: Cell::new(false),
        flusher: RefCell::new(None),
    });
    spawn(flush(Rc::clone(&near)));
    let rx = LinkRx::new(Box::new(BridgeRecv { near: Rc::clone(&near), batch: VecDeque::new() }));
    Ok(Link { peer, tx: LinkTx::new(Rc::new(BridgeSend(near))), rx })
}

/// The tasks of a link on its thread.
fn carry(lnd: &Rc<Lnd>, pair: Pair, bulk: BulkTable, crossing: &Arc<Crossing>) {
    let Link { tx, mut rx, .. } =
        link::start(Rc::clone(lnd), pair, bulk, Some(Arc::clone(crossing)));
    let (theirs, frames_max) = (Arc::clone(crossing), lnd.queue_frames_max);
    spawn(async move {
        while let Some(frame) = rx.recv().await {
            let mut batch = VecDeque::from([frame]);
            while batch.len() < HANDOVER_FRAMES_MAX
                && let Some(frame) = rx.try_recv()
            {
                batch.push_back(frame);
            }
            theirs.hand_over(batch, frames_max).await;
        }
        theirs.end();
    });
    let (theirs, lnd) = (Arc::clone(crossing), Rc::clone(lnd));
    lnd.carried.set(lnd.carried.get() + 1);
    spawn(async move {
        while let Some(frames) = poll_fn(|cx| theirs.poll_out(cx)).await {
            for frame in frames {
                let _ = tx.send(frame); // a link that is down has told the executor
            }
        }
        tokio::task::yield_now().await; // the writer has its turn before the sockets close
        tx.close();
        lnd.carried.set(lnd.carried.get() - 1);
    });
}

/// The executor's side, shared by its halves.
struct Near {
    lnd: Rc<Lnd>,
    crossing: Arc<Crossing>,
    bulk: BulkTable,
    is_closed: Cell<bool>,
    /// Frames stand in the out lane of which its thread does not know.
    is_dirty: Cell<bool>,
    flusher: RefCell<Option<Waker>>,
}

impl Near {
    fn is_open(&self) -> bool {
        !self.is_closed.get() && !self.crossing.is_over()
    }

    fn close(&self) {
        if self.is_closed.replace(true) {
            return;
        }
        lock(&self.crossing.out).is_closed = true;
        self.crossing.wake_out();
        self.bulk.fail_all();
        self.crossing.control.taken.notify_waiters();
        self.crossing.bulk.taken.notify_waiters();
        let reader = {
            let mut lane = lock(&self.crossing.inn);
            lane.is_over = true; // the feeder need not wait for room
            lane.feeder.take().into_iter().chain(lane.reader.take()).collect::<Vec<_>>()
        };
        reader.into_iter().for_each(Waker::wake);
        if let Some(flusher) = self.flusher.borrow_mut().take() {
            flusher.wake();
        }
    }
}

/// Tells the sending thread of new frames, once for all tasks of a turn.
async fn flush(near: Rc<Near>) {
    poll_fn(|cx| {
        if near.is_dirty.replace(false) {
            near.crossing.wake_out();
        }
        if !near.is_open() {
            return Poll::Ready(());
        }
        *near.flusher.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

struct BridgeSend(Rc<Near>);

impl LinkSend for BridgeSend {
    fn send(&self, frame: Frame) -> Result<(), LinkDown> {
        let Near { crossing, is_dirty, flusher, .. } = &*self.0;
        if !self.0.is_open() {
            return Err(LinkDown);
        }
        let gauge =
            if frame.kind == FrameKind::BulkData { &crossing.bulk } else { &crossing.control };
        let bytes = gauge.put(FRAME_HEADER_BYTES + frame.payload_len());
        lock(&crossing.out).frames.push_back(frame);
        is_dirty.set(true);
        if let Some(flusher) = flusher.borrow_mut().take() {
            flusher.wake();
        }
        if bytes > QUEUE_BYTES_HARD {
            tracing::warn!(bytes, "link closed: the peer sends without asking for room");
            self.0.close();
            return Err(LinkDown);
        }
        Ok(())
    }

    fn room(&self) -> LocalFuture<'static, ()> {
        if self.has_room() {
            return Box::pin(std::future::ready(()));
        }
        let near = Rc::clone(&self.0);
        Box::pin(async move {
            for gauge in [&near.crossing.control, &near.crossing.bulk] {
                loop {
                    let mut taken = std::pin::pin!(gauge.taken.notified());
                    taken.as_mut().enable();
                    if gauge.fits(&near.lnd) || !near.is_open() {
                        break;
                    }
                    taken.await;
                }
            }
        })
    }

    fn has_room(&self) -> bool {
        let Near { crossing, lnd, .. } = &*self.0;
        (crossing.control.fits(lnd) && crossing.bulk.fits(lnd)) || !self.0.is_open()
    }

    fn queued_bytes(&self) -> u64 {
        let Near { crossing, .. } = &*self.0;
        if self.0.is_open() { (crossing.control.bytes() + crossing.bulk.bytes()) as u64 } else { 0 }
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

struct BridgeRecv {
    near: Rc<Near>,
    batch: VecDeque<Frame>,
}

impl LinkRecv for BridgeRecv {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        if self.near.is_closed.get() {
            return Poll::Ready(None);
        }
        if let Some(frame) = self.batch.pop_front() {
            return Poll::Ready(Some(frame));
        }
        if self.near.crossing.poll_in(cx, &mut self.batch).is_pending() {
            return Poll::Pending;
        }
        let first = self.batch.pop_front();
        if first.is_none() {
            self.near.close();
        }
        Poll::Ready(first)
    }
}

impl Drop for BridgeRecv {
    fn drop(&mut self) {
        self.near.close();
    }
}

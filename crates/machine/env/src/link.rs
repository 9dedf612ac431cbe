//! Links: an established pair of nodes, as an LND gives it. Frames cross it as encoded bytes in
//! every body.
//!
//! A link is up to three connections (control, bulk each way) tied by a nonce; losing one closes
//! the link. Control frames arrive in the order sent; bulk frames are not ordered against them.

use std::rc::Rc;
use std::task::{Context, Poll};

use types::{Nid, NidAddr};
use wire::{Frame, Message};

use crate::{BulkTicket, LocalFuture};

/// The link is closed: reset by either side or by the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the link is down")]
pub struct LinkDown;

/// Sending half as an LND implements it.
pub trait LinkSend {
    /// Queues a frame. Never blocks; order is kept within control and within bulk.
    fn send(&self, frame: Frame) -> Result<(), LinkDown>;
    /// Queues the frame of a request or reply; an LND that copies small frames anyway encodes it
    /// where it goes.
    fn send_message(&self, message: &dyn Message) -> Result<(), LinkDown> {
        self.send(message.to_frame())
    }
    /// Completes when the peer's credits and the queue's bound leave room for another frame, or the
    /// link is down.
    fn room(&self) -> LocalFuture<'static, ()>;
    /// Whether [`LinkSend::room`] would complete at once: a look costs less than a future.
    fn has_room(&self) -> bool;
    /// Bytes that were queued and have not left, of control and bulk; zero of a closed link.
    fn queued_bytes(&self) -> u64;
    /// Announces that data of bulk `id`, at most `len_max` bytes, is welcome. Data of unknown ids
    /// is read and dropped.
    fn expect_bulk(&self, id: u64, len_max: usize) -> BulkTicket;
    /// Closes the link: the peer and the own receiver see its end.
    fn close(&self);
    /// Whether it is still open.
    fn is_open(&self) -> bool;
}

/// Receiving half as an LND implements it.
pub trait LinkRecv {
    /// The next request, reply or bulk pull; `None` at the end. Bulk data goes to its ticket
    /// instead.
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>>;
}

/// Sending half, shared.
#[derive(Clone)]
pub struct LinkTx(Rc<dyn LinkSend>);

impl LinkTx {
    /// Over an LND's half.
    #[must_use]
    pub fn new(send: Rc<dyn LinkSend>) -> LinkTx {
        LinkTx(send)
    }
}

impl std::ops::Deref for LinkTx {
    type Target = dyn LinkSend;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// Receiving half.
pub struct LinkRx(Box<dyn LinkRecv>);

impl LinkRx {
    /// Over an LND's half.
    #[must_use]
    pub fn new(recv: Box<dyn LinkRecv>) -> LinkRx {
        LinkRx(recv)
    }

    /// The next frame; `None` at the end of the link.
    pub async fn recv(&mut self) -> Option<Frame> {
        std::future::poll_fn(|cx| self.0.poll_recv(cx)).await
    }

    /// A frame that is there already: lets a reader take a batch without going to sleep.
    pub fn try_recv(&mut self) -> Option<Frame> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match self.0.poll_recv(&mut cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => None,
        }
    }
}

/// A connection to a peer, in both directions.
pub struct Link {
    /// Who is at the other end, as its HELLO and its source address agree.
    pub peer: Nid,
    /// Half on which messages and bulk data are sent.
    pub tx: LinkTx,
    /// Half on which messages arrive, in order.
    pub rx: LinkRx,
}

/// Accepting half as an LND implements it.
pub trait Listen {
    /// The next link; an error ends the listener.
    fn accept(&mut self) -> LocalFuture<'_, std::io::Result<Link>>;
    /// Where it listens, with the port that was drawn.
    fn addr(&self) -> NidAddr;
}

/// Accepts the links that peers open to one address.
pub struct Listener(Box<dyn Listen>);

impl Listener {
    /// Over the listener of a network driver.
    #[must_use]
    pub fn new(listen: Box<dyn Listen>) -> Listener {
        Listener(listen)
    }

    /// Waits for the next link that a peer opens.
    pub async fn accept(&mut self) -> std::io::Result<Link> {
        self.0.accept().await
    }

    /// Address with the port that was bound.
    #[must_use]
    pub fn addr(&self) -> NidAddr {
        self.0.addr()
    }
}

//! The acceptor's side: connections come one by one, from any peer, and leave as whole pairs.
//!
//! A connection has `handshake` time to say HELLO, and a pair has the same time again to become
//! whole. While seats are plenty, a connection that has said nothing by then is left alone for some
//! more turns of that time. A stranger whose connection is closed would connect again.
//!
//! Connections that are not part of a link yet have seats ([`Seats`]). A new connection without a
//! seat is closed, so that strangers that say nothing can neither take all descriptors nor keep
//! known peers out. The owner of a loopback connection is known before it says anything: if it may
//! not connect, it gets a refusal and no seat.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use env::{Link, Listen, Listener, LocalFuture};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use types::{Nid, NidAddr};
use wire::{FRAME_HEADER_BYTES, FrameError, Hello};

use super::bridge;
use super::complaints::Complaints;
use super::handshake::{BULK_TO_ACCEPTOR, CONTROL, Pair, agrees, greeting, hear, refused, say};
use super::owner::{Owners, Refused};
use super::seats::Seats;
use super::sockets::ipv4;
use crate::executor::{now, spawn};
use crate::limits::{ACCEPT_QUEUE_MAX, FAREWELL, FAREWELLS_MAX, SILENT_TURNS_MAX};
use crate::lnd::Lnd;

pub(super) fn listener(config: Rc<Lnd>, socket: TcpListener, addr: NidAddr) -> Listener {
    let (tx, links) = mpsc::channel(ACCEPT_QUEUE_MAX);
    let descriptors = getrlimit(Resource::Nofile).current;
    let links_max = config.lnet.links_max(descriptors);
    let state = Rc::new(Acceptor {
        config,
        addr,
        owners: Owners::default(),
        halves: RefCell::default(),
        seats: Rc::default(),
        farewells: Rc::default(),
        complaints: RefCell::default(),
        links_max,
        is_full: Cell::new(false),
        links: tx,
    });
    let socket = Rc::new(RefCell::new(Some(socket)));
    let task = spawn(accept_all(state, Rc::clone(&socket)));
    Listener::new(Box::new(TcpListen { addr, links, socket, task }))
}

struct TcpListen {
    addr: NidAddr,
    links: mpsc::Receiver<Link>,
    socket: Rc<RefCell<Option<TcpListener>>>,
    task: AbortHandle,
}

impl Listen for TcpListen {
    fn accept(&mut self) -> LocalFuture<'_, io::Result<Link>> {
        Box::pin(async move {
            self.links.recv().await.ok_or_else(|| io::Error::other("the listening socket failed"))
        })
    }

    fn addr(&self) -> NidAddr {
        self.addr
    }
}

impl Drop for TcpListen {
    fn drop(&mut self) {
        // at once: whoever restarts a target wants the address back
        self.socket.borrow_mut().take();
        self.task.abort();
    }
}

struct Acceptor {
    config: Rc<Lnd>,
    addr: NidAddr,
    owners: Owners,
    halves: RefCell<BTreeMap<HalfKey, Half>>,
    seats: Rc<RefCell<Seats>>,
    /// One of each for a connection that is being refused in words.
    farewells: Rc<()>,
    complaints: RefCell<Complaints>,
    links_max: usize,
    /// Somebody has been refused for that, since somebody was not.
    is_full: Cell<bool>,
    links: mpsc::Sender<Link>,
}

/// A pair is known by its nonce and the address of its connector.
type HalfKey = (u64, Ipv4Addr);

/// A pair that waits for its bulk connections.
struct Half {
    control: Pending,
    credits: u32,
    bulk_in: Option<Pending>,
    bulk_out: Option<Pending>,
}

/// A connection that counts as half open as long as this lives.
struct Pending {
    stream: TcpStream,
    seat: Seat,
}

struct Seat {
    seats: Rc<RefCell<Seats>>,
    source: Ipv4Addr,
}

impl Pending {
    fn new(
        stream: TcpStream,
        source: Ipv4Addr,
        seats: &Rc<RefCell<Seats>>,
        came_before: impl FnOnce() -> bool,
    ) -> Option<Pending> {
        let is_free = seats.borrow_mut().take(source, came_before);
        is_free.then(|| Pending { stream, seat: Seat { seats: Rc::clone(seats), source } })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.borrow_mut().leave(self.source);
    }
}

async fn accept_all(acceptor: Rc<Acceptor>, socket: Rc<RefCell<Option<TcpListener>>>) {
    let mut complained = false;
    loop {
        let next = poll_fn(|cx| match &*socket.borrow() {
            Some(socket) => socket.poll_accept(cx),
            None => Poll::Pending,
        });
        match next.await {
            Ok((stream, peer)) => newcomer(&acceptor, stream, peer),
            Err(error) => {
                // Out of descriptors, or the peer is gone again: neither ends a listener.
                if !std::mem::replace(&mut complained, true) {
                    tracing::warn!(at = %acceptor.addr, %error, "cannot accept a connection; this is not repeated");
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Strangers come here at any rate: a connection that says nothing costs no call of the kernel that
/// is not needed.
fn newcomer(acceptor: &Rc<Acceptor>, stream: TcpStream, peer: SocketAddr) {
    match acceptor.owners.refusal(&acceptor.config, peer, &stream) {
        Ok(None) => {}
        Ok(Some(stranger)) => return turn_away(acceptor, stream, peer, &stranger),
        Err(error) => return tracing::debug!(at = %acceptor.addr, %error, "no server is there"),
    }
    let Ok(source) = ipv4(peer) else { return };
    if !acceptor.has_place(source) {
        return;
    }
    let Some(pending) = acceptor.seat(stream, source) else { return };
    spawn(welcome(Rc::clone(acceptor), pending, peer));
}

/// Sees a connection through until it has its place or is over.
async fn welcome(acceptor: Rc<Acceptor>, pending: Pending, peer: SocketAddr) {
    let limit = Duration::from_nanos(acceptor.config.handshake.0);
    match greet_in_time(&acceptor, pending, limit).await {
        Ok(Some(key)) => {
            tokio::time::sleep(limit).await;
            acceptor.halves.borrow_mut().remove(&key);
        }
        Ok(None) => {}
        Err(error) => acceptor.complain(peer, &error),
    }
}

/// Takes a connection's HELLO, for which it has `limit`, and longer while seats are plenty.
async fn greet_in_time(
    acceptor: &Rc<Acceptor>,
    pending: Pending,
    limit: Duration,
) -> io::Result<Option<HalfKey>> {
    let source = pending.seat.source;
    let mut greeted = pin!(acceptor.greet(pending));
    for _ in 0..SILENT_TURNS_MAX {
        if let Ok(greeted) = tokio::time::timeout(limit, greeted.as_mut()).await {
            return greeted;
        }
        if !acceptor.seats.borrow().are_plenty(source) {
            break;
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "no HELLO in time"))
}

/// Says why a connection is refused, or nothing where many are. The stranger has a moment to take
/// that: what it sends meanwhile is dropped, because unread bytes would cut the words short.
fn turn_away(acceptor: &Rc<Acceptor>, mut stream: TcpStream, peer: SocketAddr, stranger: &Refused) {
    let seat = Rc::clone(&acceptor.farewells);
    if Rc::strong_count(&seat) > FAREWELLS_MAX + 1 {
        return;
    }
    acceptor.complain(peer, &stranger.to_error());
    let own = acceptor.addr.nid;
    let refusal = Hello { refusal: Refused::WHY.0, ..greeting(0, CONTROL, own, 0) };
    spawn(async move {
        let farewell = async {
            say(&mut stream, refusal).await?;
            stream.shutdown().await?;
            let mut dropped = [0; FRAME_HEADER_BYTES];
            while stream.read(&mut dropped).await? > 0 {}
            io::Result::Ok(())
        };
        let _gone_or_slow = tokio::time::timeout(FAREWELL, farewell).await;
        drop(seat);
    });
}

impl Acceptor {
    /// Tells the log that a connection is refused, unless it was told that too often.
    fn complain(&self, source: SocketAddr, error: &io::Error) {
        let Some(left_out) = self.complaints.borrow_mut().admit(now()) else { return };
        let left_out = (left_out > 0).then_some(left_out);
        tracing::warn!(at = %self.addr, %source, %error, left_out, "connection refused");
    }

    /// Counts a connection as half open, if there is a place for one more.
    fn seat(&self, stream: TcpStream, source: Ipv4Addr) -> Option<Pending> {
        let peer = Nid::new(self.addr.nid.net(), source);
        Pending::new(stream, source, &self.seats, || self.config.lnet.is_expected(peer))
    }

    /// Whether a peer at `source` may have one more link.
    fn has_place(&self, source: Ipv4Addr) -> bool {
        let peer = Nid::new(self.addr.nid.net(), source);
        let has_place = self.config.lnet.has_place(peer, self.links_max);
        if !self.is_full.replace(!has_place) && !has_place {
            let (at, max) = (self.addr, self.links_max);
            tracing::warn!(%at, %peer, max, "connection refused: too many links are open");
        }
        has_place
    }

    /// Takes a connection's HELLO, answers it and puts the connection in its place. Tells the key
    /// of a new pair.
    async fn greet(self: &Rc<Self>, mut pending: Pending) -> io::Result<Option<HalfKey>> {
        let source = pending.seat.source;
        let stream = &mut pending.stream;
        let frame = hear(stream).await?;
        stream.set_nodelay(true)?;
        let own = Nid::new(self.addr.nid.net(), ipv4(stream.local_addr()?)?);
        let credits = self.config.lnet.peer_credits();
        let own_hello = |nonce, channel| greeting(nonce, channel, own, credits);
        let hello = match Hello::from_frame(&frame) {
            Ok(hello) => hello,
            Err(error) => {
                // lets the peer see which version is spoken here
                say(stream, own_hello(frame.id, CONTROL)).await?;
                return Err(refused(error));
            }
        };
        agrees(&hello, self.addr.nid.net(), source)?;
        let key = (hello.nonce, source);
        if self.halves.borrow().contains_key(&key) == (hello.channel == CONTROL) {
            return Err(refused(FrameError::Hello(
                "its nonce belongs to no pair that waits for this channel",
            )));
        }
        say(stream, own_hello(hello.nonce, hello.channel)).await?;
        self.place(key, &hello, pending)
    }

    fn place(
        self: &Rc<Self>,
        key: HalfKey,
        hello: &Hello,
        pending: Pending,
    ) -> io::Result<Option<HalfKey>> {
        let mut halves = self.halves.borrow_mut();
        if hello.channel == CONTROL {
            let half =
                Half { control: pending, credits: hello.credits, bulk_in: None, bulk_out: None };
            halves.insert(key, half);
            return Ok(Some(key));
        }
        let half =
            halves.get_mut(&key).ok_or_else(|| refused(FrameError::Hello("its pair is gone")))?;
        let slot =
            if hello.channel == BULK_TO_ACCEPTOR { &mut half.bulk_in } else { &mut half.bulk_out };
        if slot.replace(pending).is_some() {
            halves.remove(&key);
            return Err(refused(FrameError::Hello("its pair has this channel already")));
        }
        if half.bulk_in.is_some() && half.bulk_out.is_some() {
            let half = halves.remove(&key).expect("found above");
            drop(halves);
            self.complete(half, key.1);
        }
        Ok(None)
    }

    fn complete(&self, half: Half, source: Ipv4Addr) {
        let (Some(bulk_in), Some(bulk_out)) = (half.bulk_in, half.bulk_out) else { return };
        self.seats.borrow_mut().know(source);
        let pair = Pair {
            control: half.control.stream,
            bulk_out: bulk_out.stream,
            bulk_in: bulk_in.stream,
            peer: Nid::new(self.addr.nid.net(), source),
            peer_credits: half.credits,
        };
        match bridge::start(&self.config, pair) {
            Ok(link) => {
                if let Err(error) = self.links.try_send(link) {
                    tracing::warn!(at = %self.addr, %error, "link dropped: no service accepts it");
                }
            }
            Err(error) => tracing::warn!(at = %self.addr, %error, "link dropped"),
        }
    }
}

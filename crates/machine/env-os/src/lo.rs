//! The `lo` LND: links inside this process, also between its threads.
//!
//! A listener is an entry in a table of the process. A connect hands it one end of a pair of
//! queues. Frames cross as the bytes of their header and the shared bytes of their payload. The
//! other end checks them as everywhere, but bulk data has no checksum, because it never leaves
//! memory.
//!
//! Bulk has queues of its own, because data that a server waits for must arrive while it takes no
//! further requests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use env::{
    BulkTable, BulkTicket, Link, LinkDown, LinkRecv, LinkRx, LinkSend, LinkTx, Listen, Listener,
    LocalFuture,
};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;
use types::{Nid, NidAddr};
use wire::{CrcMode, FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, FrameKind, Parts};

use crate::executor::spawn;
use crate::gauge::Gauge;
use crate::lnd::Lnd;

type Listeners = BTreeMap<NidAddr, UnboundedSender<Dial>>;

static LISTENERS: Mutex<Listeners> = Mutex::new(BTreeMap::new());

fn listeners() -> MutexGuard<'static, Listeners> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The acceptor's end of a pair on its way to the acceptor.
struct Dial {
    from: Nid,
    ends: Ends,
}

/// One end of a pair.
struct Ends {
    control_tx: UnboundedSender<Encoded>,
    control_rx: UnboundedReceiver<Encoded>,
    bulk_tx: UnboundedSender<Encoded>,
    bulk_rx: UnboundedReceiver<Encoded>,
    sent: Arc<Gauge>,
    received: Arc<Gauge>,
}

/// A frame as it crosses.
struct Encoded {
    head: [u8; FRAME_HEADER_BYTES],
    parts: Parts,
}

impl Encoded {
    fn new(frame: Frame) -> Encoded {
        Encoded { head: frame.encode_header(CrcMode::NoBulk), parts: frame.parts }
    }

    fn len(&self) -> usize {
        FRAME_HEADER_BYTES + self.parts.bytes()
    }

    fn decode(self) -> Result<Frame, FrameError> {
        let header = FrameHeader::decode(&self.head)?;
        let payload = self.parts.join();
        header.check(&payload)?;
        Ok(Frame::new(header.kind, header.id, payload))
    }
}

fn pair() -> (Ends, Ends) {
    let (control_out, control_in) = mpsc::unbounded_channel();
    let (control_back, control_from) = mpsc::unbounded_channel();
    let (bulk_out, bulk_in) = mpsc::unbounded_channel();
    let (bulk_back, bulk_from) = mpsc::unbounded_channel();
    let (there, back) = (Arc::new(Gauge::default()), Arc::new(Gauge::default()));
    let near = Ends {
        control_tx: control_out,
        control_rx: control_from,
        bulk_tx: bulk_out,
        bulk_rx: bulk_from,
        sent: Arc::clone(&there),
        received: Arc::clone(&back),
    };
    let far = Ends {
        control_tx: control_back,
        control_rx: control_in,
        bulk_tx: bulk_back,
        bulk_rx: bulk_in,
        sent: back,
        received: there,
    };
    (near, far)
}

/// Connects to a listener of this process.
pub(crate) fn connect(config: &Rc<Lnd>, from: Option<Nid>, to: NidAddr) -> io::Result<Link> {
    let (near, far) = pair();
    let dial = Dial { from: from.unwrap_or(Nid::LO), ends: far };
    let sent = listeners().get(&to).is_some_and(|listener| listener.send(dial).is_ok());
    if !sent {
        return Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            format!("no service listens on {to} in this process"),
        ));
    }
    Ok(link(config, to.nid, near))
}

/// Listens at `at`; port 0 draws one.
pub(crate) fn listen(config: &Rc<Lnd>, at: NidAddr) -> io::Result<Listener> {
    let (tx, dials) = mpsc::unbounded_channel();
    let mut listeners = listeners();
    let addr = if at.port == 0 { free_port(&listeners, at.nid)? } else { at };
    match listeners.entry(addr) {
        Entry::Occupied(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("{addr} is taken in this process"),
        )),
        Entry::Vacant(entry) => {
            entry.insert(tx);
            Ok(Listener::new(Box::new(LoListener { config: Rc::clone(config), addr, dials })))
        }
    }
}

fn free_port(listeners: &Listeners, nid: Nid) -> io::Result<NidAddr> {
    let mut all = (1_024..=u16::MAX).map(|port| NidAddr { nid, port });
    all.find(|addr| !listeners.contains_key(addr))
        .ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}

struct LoListener {
    config: Rc<Lnd>,
    addr: NidAddr,
    dials: UnboundedReceiver<Dial>,
}

impl Listen for LoListener {
    fn accept(&mut self) -> LocalFuture<'_, io::Result<Link>> {
        Box::pin(async move {
            let dial = self
                .dials
                .recv()
                .await
                .expect("the table holds a sender as long as the listener lives");
            Ok(link(&self.config, dial.from, dial.ends))
        })
    }

    fn addr(&self) -> NidAddr {
        self.addr
    }
}

impl Drop for LoListener {
    fn drop(&mut self) {
        listeners().remove(&self.addr);
    }
}

fn link(config: &Rc<Lnd>, peer: Nid, ends: Ends) -> Link {
    let Ends { control_tx, control_rx, bulk_tx, bulk_rx, sent, received } = ends;
    let shared = Rc::new(LoShared {
        config: Rc::clone(config),
        out: RefCell::new(Some((control_tx, bulk_tx))),
        sent,
        bulk: BulkTable::new(),
        reader: RefCell::new(None),
        task: RefCell::new(None),
        open: Cell::new(true),
    });
    let task = spawn(read_bulk(Rc::clone(&shared), bulk_rx, Arc::clone(&received)));
    *shared.task.borrow_mut() = Some(task);
    let rx = LinkRx::new(Box::new(LoRecv {
        shared: Rc::clone(&shared),
        control: control_rx,
        received,
        peer,
    }));
    Link { peer, tx: LinkTx::new(shared), rx }
}

async fn read_bulk(
    shared: Rc<LoShared>,
    mut bulk: UnboundedReceiver<Encoded>,
    received: Arc<Gauge>,
) {
    while let Some(encoded) = bulk.recv().await {
        received.take(1, encoded.len());
        let Ok(frame) = encoded.decode() else { break };
        shared.config.traffic.received(frame.payload_len());
        let id = frame.id;
        shared.bulk.deliver(id, frame.into_payload());
    }
    shared.close();
}

struct LoShared {
    config: Rc<Lnd>,
    // control, bulk; none once closed
    out: RefCell<Option<(UnboundedSender<Encoded>, UnboundedSender<Encoded>)>>,
    sent: Arc<Gauge>,
    bulk: BulkTable,
    reader: RefCell<Option<Waker>>,
    task: RefCell<Option<AbortHandle>>,
    open: Cell<bool>,
}

impl LinkSend for LoShared {
    fn send(&self, frame: Frame) -> Result<(), LinkDown> {
        let bulk = frame.kind == FrameKind::BulkData;
        self.config.traffic.sent(frame.payload_len());
        let encoded = Encoded::new(frame);
        self.sent.put(encoded.len());
        let sent = match &*self.out.borrow() {
            Some((_, out)) if bulk => out.send(encoded).is_ok(),
            Some((out, _)) => out.send(encoded).is_ok(),
            None => false,
        };
        if !sent {
            self.close();
            return Err(LinkDown);
        }
        Ok(())
    }

    fn room(&self) -> LocalFuture<'static, ()> {
        if self.has_room() {
            return Box::pin(std::future::ready(()));
        }
        let (sent, config) = (Arc::clone(&self.sent), Rc::clone(&self.config));
        let out = self.out.borrow().as_ref().map(|(control, _)| control.clone());
        Box::pin(async move {
            loop {
                let taken = sent.taken.notified();
                if sent.fits(&config) || out.as_ref().is_none_or(UnboundedSender::is_closed) {
                    return;
                }
                taken.await;
            }
        })
    }

    fn has_room(&self) -> bool {
        !self.open.get() || self.sent.fits(&self.config)
    }

    fn queued_bytes(&self) -> u64 {
        if self.open.get() { self.sent.bytes() as u64 } else { 0 }
    }

    fn expect_bulk(&self, id: u64, len_max: usize) -> BulkTicket {
        let ticket = self.bulk.expect(id, len_max);
        if !self.open.get() {
            self.bulk.fail_all();
        }
        ticket
    }

    fn close(&self) {
        if !self.open.replace(false) {
            return;
        }
        self.out.borrow_mut().take();
        self.bulk.fail_all();
        self.sent.taken.notify_waiters();
        if let Some(task) = self.task.borrow_mut().take() {
            task.abort();
        }
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
    }

    fn is_open(&self) -> bool {
        self.open.get()
    }
}

struct LoRecv {
    shared: Rc<LoShared>,
    control: UnboundedReceiver<Encoded>,
    received: Arc<Gauge>,
    peer: Nid,
}

impl LinkRecv for LoRecv {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        if !self.shared.open.get() {
            return Poll::Ready(None);
        }
        match self.control.poll_recv(cx) {
            Poll::Ready(Some(encoded)) => {
                self.received.take(1, encoded.len());
                match encoded.decode() {
                    Ok(frame) => {
                        self.shared.config.traffic.received(frame.payload_len());
                        return Poll::Ready(Some(frame));
                    }
                    Err(error) => tracing::warn!(peer = %self.peer, %error, "link closed"),
                }
            }
            Poll::Ready(None) => {}
            Poll::Pending => {
                self.shared
                    .reader
                    .borrow_mut()
                    .get_or_insert_with(|| cx.waker().clone())
                    .clone_from(cx.waker());
                return Poll::Pending;
            }
        }
        self.shared.close();
        Poll::Ready(None)
    }
}

impl Drop for LoRecv {
    fn drop(&mut self) {
        self.control.close();
        self.received.taken.notify_waiters();
        self.shared.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OsConfig, run, spawn_thread};
    use bytes::Bytes;
    use std::process::Stdio;
    use types::Span;

    fn request(id: u64, len: usize) -> Frame {
        Frame::new(FrameKind::Request, id, Bytes::from(vec![id as u8; len]))
    }

    #[test]
    fn frames_and_bulk_cross_between_threads_in_order() {
        let at: NidAddr = "7@lo".parse().expect("a NID");
        let (ready, listening) = std::sync::mpsc::channel();
        let server = spawn_thread("server", OsConfig::default(), move |env| async move {
            let mut listener = env.listen(at).await.expect("free");
            ready.send(()).expect("the test waits");
            let mut link = listener.accept().await.expect("a client");
            assert_eq!(link.peer, "127.0.0.11@tcp".parse().expect("a NID"));
            while let Some(frame) = link.rx.recv().await {
                let bulk = Frame::new(FrameKind::BulkData, frame.id, frame.clone().into_payload());
                link.tx.send(bulk).expect("the client is there");
                link.tx
                    .send(Frame { kind: FrameKind::Reply, ..frame })
                    .expect("the client is there");
            }
        });
        listening.recv().expect("the server listens");
        run(OsConfig::default(), |env| async move {
            let mut link =
                env.connect("127.0.0.11@tcp".parse().ok(), at).await.expect("it listens");
            assert_eq!(link.peer, at.nid);
            for id in 1..2_000 {
                let ticket = link.tx.expect_bulk(id, 64);
                link.tx.room().await;
                link.tx.send(request(id, 64)).expect("up");
                assert_eq!(ticket.await.map(|data| data.len()), Some(64));
                assert_eq!(link.rx.recv().await.map(|frame| frame.id), Some(id));
            }
        });
        server.expect("a thread").join().expect("the server ends with its client");
    }

    #[test]
    fn the_end_is_seen_on_both_sides_and_by_tickets() {
        run(OsConfig::default(), |env| async move {
            let mut listener = env.listen("8@lo".parse().expect("a NID")).await.expect("free");
            let near = env.connect(None, listener.addr()).await.expect("it listens");
            let mut far = listener.accept().await.expect("a client");
            assert_eq!(far.peer, Nid::LO);
            let ticket = far.tx.expect_bulk(1, 9);
            near.tx.send(request(3, 1)).expect("up");
            near.tx.close();
            assert_eq!(far.rx.recv().await.map(|frame| frame.id), Some(3));
            assert_eq!(far.rx.recv().await, None);
            assert_eq!(ticket.await, None);
            assert!(far.tx.send(request(1, 1)).is_err() && !far.tx.is_open());
        });
    }

    #[test]
    fn room_waits_for_the_receiver_and_ends_with_the_link() {
        let config = OsConfig { queue_frames_max: 2, ..OsConfig::default() };
        run(config, |env| async move {
            let mut listener = env.listen(NidAddr { nid: Nid::LO, port: 0 }).await.expect("free");
            let near = env.connect(None, listener.addr()).await.expect("it listens");
            let mut far = listener.accept().await.expect("a client");
            near.tx.send(request(1, 1)).expect("up");
            near.tx.room().await;
            let one = near.tx.queued_bytes();
            near.tx.send(request(2, 1)).expect("up");
            assert!(!near.tx.has_room());
            assert_eq!((one > 0, near.tx.queued_bytes()), (true, 2 * one));
            assert_eq!(env.timeout(Span::millis(10), near.tx.room()).await, None);
            far.rx.recv().await.expect("the first");
            near.tx.room().await;
            assert!(near.tx.has_room());
            near.tx.send(request(3, 1)).expect("up");
            let room = near.tx.room();
            drop(far);
            room.await;
        });
    }

    /// Set in a process that the next test starts: where it is to connect.
    const OUTSIDER: &str = "NACRE_TEST_LO_OUTSIDER";

    /// A peer over `lo` is this process itself.
    #[test]
    fn another_process_finds_nobody_at_an_address_of_lo() {
        if let Ok(at) = std::env::var(OUTSIDER) {
            let at: NidAddr = at.parse().expect("the parent wrote it");
            let refused = run(OsConfig::default(), |env| async move {
                env.connect(None, at).await.err().map(|error| error.kind())
            });
            assert_eq!(refused, Some(io::ErrorKind::ConnectionRefused), "{at} answers");
            return;
        }
        run(OsConfig::default(), |env| async move {
            let at = NidAddr { nid: Nid::LO, port: 0 };
            let mut listener = env.listen(at).await.expect("free");
            let at = listener.addr();
            let this = std::env::current_exe().expect("this test");
            let mut child = std::process::Command::new(this);
            child.args(["--exact", "lo::tests::another_process_finds_nobody_at_an_address_of_lo"]);
            child.env(OUTSIDER, at.to_string()).stdin(Stdio::null());
            child.stdout(Stdio::piped()).stderr(Stdio::piped());
            let started = {
                let _alone = forks::one();
                child.spawn().expect("it starts")
            };
            let ended = started.wait_with_output().expect("it ends");
            let told = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && told.contains("1 passed"), "{told}");
            let nobody = env.timeout(Span::millis(10), listener.accept()).await;
            assert!(nobody.is_none(), "nobody has reached it");
            env.connect(None, at).await.expect("this process does");
        });
    }

    #[test]
    fn an_address_is_free_again_when_its_listener_is_gone() {
        run(
            OsConfig {
                lo_alias: vec!["10.0.0.1@tcp".parse().expect("a NID")],
                ..OsConfig::default()
            },
            |env| async move {
                let at = "10.0.0.1@tcp".parse().expect("a NID");
                let kind = |result: io::Result<Link>| result.err().map(|error| error.kind());
                assert_eq!(
                    kind(env.connect(None, at).await),
                    Some(io::ErrorKind::ConnectionRefused)
                );
                let listener = env.listen(at).await.expect("free");
                assert!(env.listen(at).await.is_err());
                assert_eq!(kind(env.connect(None, at).await), None);
                drop(listener);
                assert_eq!(
                    kind(env.connect(None, at).await),
                    Some(io::ErrorKind::ConnectionRefused)
                );
            },
        );
    }
}

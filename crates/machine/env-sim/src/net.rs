//! The simulated LND: pairs of ends that exchange encoded frames through the timer heap.
//!
//! Control and bulk of one direction each arrive in order, unless a fault says otherwise. A
//! separate message reports a link's end to the peer. Partitions hold it up and machine deaths
//! swallow it, as with TCP.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use env::{
    BulkTable, BulkTicket, Link, LinkDown, LinkRecv, LinkRx, LinkSend, LinkTx, LocalFuture, Traffic,
};
use types::{Instant, Nid, NidAddr, Span};
use wire::{CrcMode, FRAME_HEADER_BYTES, Frame, FrameKind};

use crate::executor::{Event, Executor, Sleep};
use crate::listen::ListenQueue;
use crate::{Cut, FaultCounts, Faults, Rng, SimConfig};

/// Frames on their way or unread, per direction of a link, before [`LinkSend::room`] makes the
/// sender wait.
pub(crate) const LINK_FRAMES_MAX: usize = 512;
/// The same in bytes, as of a link of `env-os`.
pub(crate) const LINK_BYTES_MAX: usize = 8 << 20;
/// A connect that nobody answers.
pub(crate) const CONNECT_TIMEOUT: Span = Span::secs(3);
/// How often an end of a link that a partition held up is told again.
const END_RETRY: Span = Span::millis(500);
/// Keep-alive: a machine that died without a word is noticed within this.
const SILENT_END_MAX: Span = Span::secs(12);

/// A node of the network.
pub(crate) struct NodeState {
    pub(crate) nid: Nid,
    /// Counts its starts; an `Env` of an earlier one is dead.
    pub(crate) incarnation: u64,
    pub(crate) up: bool,
    pub(crate) clock_skew_ns: i64,
    /// How much faster its clocks run, in millionths.
    pub(crate) drift_ppm: i32,
    /// For so long its clocks have stood still.
    pub(crate) stood: Span,
    /// Counts its pauses: the end of an earlier one does not end a later one.
    pub(crate) pauses: u64,
    /// What it sends and is sent takes so much longer.
    pub(crate) lag: Span,
    /// It is as good as dead: what it still sends goes nowhere.
    pub(crate) frozen: bool,
    /// It is frozen after so many more messages.
    pub(crate) sends_left: Option<u64>,
    /// The same for messages that come.
    pub(crate) arrivals_left: Option<u64>,
    pub(crate) traffic: Rc<Traffic>,
}

/// One less is left; whether that was the last one.
fn takes_last(left: &mut Option<u64>) -> bool {
    *left = left.map(|left| left.saturating_sub(1));
    *left == Some(0)
}

pub(crate) struct Net {
    pub(crate) executor: Rc<Executor>,
    pub(crate) config: SimConfig,
    pub(crate) rng: RefCell<Rng>,
    pub(crate) faults: Cell<Faults>,
    pub(crate) counts: Cell<FaultCounts>,
    pub(crate) nodes: RefCell<Vec<NodeState>>,
    pub(crate) nids: RefCell<BTreeMap<Nid, usize>>,
    cuts: RefCell<BTreeSet<(usize, usize)>>,
    pub(crate) listeners: RefCell<BTreeMap<NidAddr, Rc<ListenQueue>>>,
    pub(crate) next_port: Cell<u16>,
    pairs: RefCell<BTreeMap<u64, Rc<Pair>>>,
    next_pair: Cell<u64>,
}

/// One side of a pair.
struct End {
    node: usize,
    open: Cell<bool>,
    inbox: RefCell<VecDeque<Frame>>,
    reader: RefCell<Option<Waker>>,
    bulk: BulkTable,
    /// Frames of this side that the peer has not read, and their bytes.
    outstanding: Cell<(usize, usize)>,
    waiting_for_room: RefCell<Vec<Waker>>,
    /// Arrival of the last control frame and of the last bulk frame sent by this side.
    last_arrival: [Cell<Instant>; 2],
}

impl End {
    fn new(node: usize) -> End {
        End {
            node,
            open: Cell::new(true),
            inbox: RefCell::default(),
            reader: RefCell::default(),
            bulk: BulkTable::new(),
            outstanding: Cell::default(),
            waiting_for_room: RefCell::default(),
            last_arrival: [Cell::new(Instant(0)), Cell::new(Instant(0))],
        }
    }

    fn shut(&self) -> bool {
        if !self.open.replace(false) {
            return false;
        }
        self.bulk.fail_all();
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
        self.wake_room();
        true
    }

    fn wake_room(&self) {
        for waker in self.waiting_for_room.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    fn owe(&self, bytes: usize) {
        let (frames, all) = self.outstanding.get();
        self.outstanding.set((frames + 1, all + bytes));
    }

    fn settle(&self, bytes: usize) {
        let (frames, all) = self.outstanding.get();
        self.outstanding.set((frames - 1, all - bytes));
        self.wake_room();
    }

    fn has_room(&self) -> bool {
        let (frames, bytes) = self.outstanding.get();
        !self.open.get() || (frames < LINK_FRAMES_MAX && bytes < LINK_BYTES_MAX)
    }
}

/// An established pair of nodes.
struct Pair {
    id: u64,
    ends: [End; 2],
}

impl Net {
    pub(crate) fn new(executor: Rc<Executor>, config: SimConfig, rng: Rng) -> Net {
        Net {
            executor,
            config,
            rng: RefCell::new(rng),
            faults: Cell::default(),
            counts: Cell::default(),
            nodes: RefCell::default(),
            nids: RefCell::default(),
            cuts: RefCell::default(),
            listeners: RefCell::default(),
            next_port: Cell::new(40_000),
            pairs: RefCell::default(),
            next_pair: Cell::new(1),
        }
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut FaultCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    pub(crate) fn cut(&self, from: usize, to: usize, cut: Cut) {
        let mut cuts = self.cuts.borrow_mut();
        cuts.insert((from, to));
        if cut == Cut::BothWays {
            cuts.insert((to, from));
        }
    }

    pub(crate) fn heal(&self, one: usize, other: usize) {
        let mut cuts = self.cuts.borrow_mut();
        cuts.remove(&(one, other));
        cuts.remove(&(other, one));
    }

    pub(crate) fn heal_all(&self) {
        self.cuts.borrow_mut().clear();
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.borrow().contains(&(from, to))
    }

    fn is_up(&self, node: usize) -> bool {
        self.nodes.borrow()[node].up
    }

    fn delay(&self, local: bool) -> Span {
        if local {
            return Span::micros(5);
        }
        self.rng.borrow_mut().span(self.config.delay_min, self.config.delay_max)
    }

    // ---- connecting ----

    pub(crate) fn connect(
        self: &Rc<Self>,
        node: usize,
        from: Option<Nid>,
        to: NidAddr,
    ) -> LocalFuture<'static, io::Result<Link>> {
        let net = self.clone();
        Box::pin(async move {
            let to = NidAddr {
                nid: if to.nid == Nid::LO { net.nodes.borrow()[node].nid } else { to.nid },
                ..to
            };
            let from = from.unwrap_or(net.nodes.borrow()[node].nid);
            let target = net.nids.borrow().get(&to.nid).copied();
            let local = target == Some(node);
            net.pause(net.delay(local)).await;
            let reached =
                target.filter(|target| local || (net.is_up(*target) && !net.is_cut(node, *target)));
            let Some(target) = reached else { return net.connect_timeout().await };
            let refused = { net.rng.borrow_mut().chance(net.faults.get().refuse_ppm) } && !local;
            let queue = net.listeners.borrow().get(&to).cloned();
            let queue = queue.filter(|_| !refused);
            net.pause(net.delay(local)).await;
            if !local && net.is_cut(target, node) {
                return net.connect_timeout().await;
            }
            let Some(queue) = queue.filter(|queue| queue.is_open()) else {
                net.count(|counts| counts.refused += 1);
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            let pair = net.pair(node, target);
            queue.push(net.link(&pair, 1, from));
            Ok(net.link(&pair, 0, to.nid))
        })
    }

    async fn pause(&self, span: Span) {
        Sleep::new(self.executor.clone(), self.executor.now() + span).await;
    }

    async fn connect_timeout(&self) -> io::Result<Link> {
        self.pause(CONNECT_TIMEOUT).await;
        self.count(|counts| counts.connect_timeouts += 1);
        Err(io::ErrorKind::TimedOut.into())
    }

    fn pair(&self, connector: usize, acceptor: usize) -> Rc<Pair> {
        let id = self.next_pair.get();
        self.next_pair.set(id + 1);
        let pair = Rc::new(Pair { id, ends: [End::new(connector), End::new(acceptor)] });
        self.pairs.borrow_mut().insert(id, pair.clone());
        pair
    }

    fn link(self: &Rc<Self>, pair: &Rc<Pair>, side: usize, peer: Nid) -> Link {
        let half = Half { net: self.clone(), pair: pair.clone(), side };
        Link {
            peer,
            tx: LinkTx::new(Rc::new(half.clone())),
            rx: LinkRx::new(Box::new(Receiver(half))),
        }
    }

    // ---- carrying ----

    fn send(self: &Rc<Self>, pair: &Rc<Pair>, side: usize, frame: &Frame) -> Result<(), LinkDown> {
        let (own, peer) = (&pair.ends[side], &pair.ends[1 - side]);
        if !own.open.get() {
            return Err(LinkDown);
        }
        if self.nodes.borrow()[own.node].frozen {
            return Ok(());
        }
        self.nodes.borrow()[own.node].traffic.sent(frame.payload_len());
        self.count_send(own.node);
        let bytes = frame.encode(CrcMode::All);
        let local = own.node == peer.node;
        let faults = if local { Faults::default() } else { self.faults.get() };
        // every draw is made for every message, so that one switched-off fault does not shift the
        // others
        let (lost, twice, reorder, late, reset) = {
            let mut rng = self.rng.borrow_mut();
            (
                rng.chance(faults.loss_ppm),
                rng.chance(faults.duplicate_ppm),
                rng.chance(faults.reorder_ppm),
                rng.chance(faults.delay_ppm),
                rng.chance(faults.reset_ppm),
            )
        };
        if reset {
            self.count(|counts| counts.resets += 1);
            self.reset(pair);
            return Err(LinkDown);
        }
        own.owe(bytes.len());
        if self.is_cut(own.node, peer.node) || lost {
            self.count(|counts| if lost { counts.lost += 1 } else { counts.partitioned += 1 });
            own.settle(bytes.len());
            return Ok(());
        }
        if twice {
            self.count(|counts| counts.duplicated += 1);
            own.owe(bytes.len());
            self.carry(pair, side, bytes.clone(), frame.kind, true, false);
        }
        self.carry(pair, side, bytes, frame.kind, reorder, late);
        Ok(())
    }

    /// The message that is sent is one of those that the node has left.
    fn count_send(&self, node: usize) {
        let is_last = takes_last(&mut self.nodes.borrow_mut()[node].sends_left);
        if is_last {
            self.freeze(node);
        }
    }

    /// The same for one that comes.
    fn count_arrival(&self, node: usize) {
        let is_last = takes_last(&mut self.nodes.borrow_mut()[node].arrivals_left);
        if is_last {
            self.freeze(node);
        }
    }

    /// Nothing runs on the node any more, and what the poll under way sends is lost.
    pub(crate) fn freeze(&self, node: usize) {
        {
            let state = &mut self.nodes.borrow_mut()[node];
            (state.frozen, state.sends_left, state.arrivals_left) = (true, None, None);
            state.pauses += 1; // the end of an earlier pause does not wake it
        }
        self.executor.pause(node);
    }

    fn carry(
        self: &Rc<Self>,
        pair: &Rc<Pair>,
        side: usize,
        bytes: Bytes,
        kind: FrameKind,
        reorder: bool,
        late: bool,
    ) {
        let own = &pair.ends[side];
        let local = own.node == pair.ends[1 - side].node;
        let transfer =
            (bytes.len() as u64).saturating_mul(1_000_000_000) / self.config.bytes_per_sec;
        let lag = {
            let nodes = self.nodes.borrow();
            let peer = pair.ends[1 - side].node;
            if local { Span::ZERO } else { Span(nodes[own.node].lag.0 + nodes[peer].lag.0) }
        };
        let mut at = self.executor.now() + self.delay(local) + Span(transfer) + lag;
        if late {
            self.count(|counts| counts.delayed += 1);
            at = at + self.rng.borrow_mut().span(Span::ZERO, self.faults.get().delay_max);
        }
        let last = &own.last_arrival[usize::from(kind == FrameKind::BulkData)];
        if reorder {
            self.count(|counts| counts.reordered += 1);
            at = at + self.rng.borrow_mut().span(Span::ZERO, Span(self.config.delay_max.0 * 8));
        } else {
            at = at.max(last.get() + Span(1));
            last.set(at);
        }
        let (net, pair) = (self.clone(), pair.clone());
        self.executor.add_timer(at, Event::Call(Box::new(move || net.arrive(&pair, side, &bytes))));
    }

    fn arrive(self: &Rc<Self>, pair: &Rc<Pair>, side: usize, bytes: &Bytes) {
        let (own, peer) = (&pair.ends[side], &pair.ends[1 - side]);
        let frame = Frame::decode(bytes).expect("the network alters nothing");
        if !peer.open.get() {
            own.settle(bytes.len());
            // the machine that is up again, or another process of it, answers with a reset
            if own.open.get() && self.is_up(peer.node) {
                self.tell_end(pair, side, self.delay(false));
            }
            return;
        }
        self.executor.trace(u64::from(crc_of(bytes)) ^ (pair.id << 33) ^ (side as u64));
        self.count(|counts| counts.delivered += 1);
        self.count_arrival(peer.node);
        self.nodes.borrow()[peer.node].traffic.received(frame.payload_len());
        if self.executor.watch.prints(tracing::Level::TRACE) {
            let name = |node| self.executor.node_name(node);
            tracing::trace!("{} -> {}: {}", name(own.node), name(peer.node), describe(&frame));
        }
        match frame.kind {
            FrameKind::BulkData => {
                own.settle(bytes.len());
                peer.bulk.deliver(frame.id, frame.into_payload());
            }
            FrameKind::Hello | FrameKind::Heartbeat => own.settle(bytes.len()),
            FrameKind::Request | FrameKind::Reply | FrameKind::BulkPull => {
                peer.inbox.borrow_mut().push_back(frame);
                if let Some(reader) = peer.reader.borrow_mut().take() {
                    reader.wake();
                }
            }
        }
    }

    // ---- ends of links ----

    /// Both sides see the end now.
    fn reset(&self, pair: &Rc<Pair>) {
        for end in &pair.ends {
            end.shut();
        }
        self.pairs.borrow_mut().remove(&pair.id);
    }

    /// One side closes; the other is told behind everything that is on its way to it.
    fn close(self: &Rc<Self>, pair: &Rc<Pair>, side: usize) {
        if !pair.ends[side].shut() {
            return;
        }
        let last = pair.ends[side].last_arrival.iter().map(Cell::get).max().unwrap_or_default();
        let after = (last - self.executor.now()).max(self.delay(false));
        self.tell_end(pair, 1 - side, Span(after.0 + 1));
    }

    /// Tells `side` that its peer is gone, once the network lets the message through.
    fn tell_end(self: &Rc<Self>, pair: &Rc<Pair>, side: usize, after: Span) {
        let (net, pair) = (self.clone(), pair.clone());
        let at = self.executor.now() + after;
        let tell = move || {
            let (to, from) = (pair.ends[side].node, pair.ends[1 - side].node);
            if to != from && net.is_cut(from, to) {
                net.tell_end(&pair, side, END_RETRY);
            } else {
                net.pairs.borrow_mut().remove(&pair.id);
                pair.ends[side].shut();
            }
        };
        self.executor.add_timer(at, Event::Call(Box::new(tell)));
    }

    /// Ends all links of `node`: the process died (peers are told soon) or the machine did (they
    /// find out late).
    pub(crate) fn kill_links(self: &Rc<Self>, node: usize, machine: bool) {
        let pairs: Vec<_> = self.pairs.borrow().values().cloned().collect();
        for pair in pairs {
            for side in 0..2 {
                if pair.ends[side].node != node || !pair.ends[side].shut() {
                    continue;
                }
                let after = if machine {
                    self.count(|counts| counts.silent_ends += 1);
                    self.rng.borrow_mut().span(Span::millis(100), SILENT_END_MAX)
                } else {
                    self.delay(false)
                };
                self.tell_end(&pair, 1 - side, after);
            }
        }
    }

    /// Resets all links between two nodes.
    pub(crate) fn reset_between(&self, one: usize, other: usize) {
        let pairs: Vec<_> = self.pairs.borrow().values().cloned().collect();
        for pair in pairs {
            let nodes = [pair.ends[0].node, pair.ends[1].node];
            if nodes == [one, other] || nodes == [other, one] {
                self.count(|counts| counts.resets += 1);
                self.reset(&pair);
            }
        }
    }
}

/// A message in one line, for whoever reads how a seed went.
fn describe(frame: &Frame) -> String {
    let payload = frame.clone().into_payload();
    match frame.kind {
        FrameKind::Request => wire::Request::decode(&payload).map_or_else(
            |error| format!("request that is none: {error}"),
            |request| {
                let header = &request.header;
                let opcode = wire::Opcode::from_u16(header.opcode).map_or("?", wire::Opcode::name);
                let target = types::TargetId::from_u32(header.target).map_or_else(String::new, |target| target.to_string());
                format!(
                    "{opcode} {target} xid {:#x} tag {} flags {} transno {:#x} instance {} session {:#x}",
                    header.xid, header.tag, header.flags.bits(), header.transno, header.instance, header.session
                )
            },
        ),
        FrameKind::Reply => wire::Reply::decode(&payload).map_or_else(
            |error| format!("reply that is none: {error}"),
            |reply| {
                let header = &reply.header;
                format!(
                    "reply xid {:#x} status {} flags {} transno {:#x} committed {:#x} instance {}",
                    header.xid, header.status, header.flags.bits(), header.transno, header.last_committed, header.instance
                )
            },
        ),
        _ => format!("{:?} {:#x}, {} bytes", frame.kind, frame.id, payload.len()),
    }
}

/// The checksum that the frame's own header carries.
fn crc_of(bytes: &[u8]) -> u32 {
    bytes.get(12..16).and_then(|crc| crc.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// One side of a pair, as its node holds it.
#[derive(Clone)]
struct Half {
    net: Rc<Net>,
    pair: Rc<Pair>,
    side: usize,
}

impl Half {
    fn end(&self) -> &End {
        &self.pair.ends[self.side]
    }
}

impl LinkSend for Half {
    fn send(&self, frame: Frame) -> Result<(), LinkDown> {
        self.net.send(&self.pair, self.side, &frame)
    }

    fn room(&self) -> LocalFuture<'static, ()> {
        let half = self.clone();
        Box::pin(std::future::poll_fn(move |cx| {
            let end = half.end();
            if end.has_room() {
                return Poll::Ready(());
            }
            end.waiting_for_room.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        }))
    }

    fn has_room(&self) -> bool {
        self.end().has_room()
    }

    fn queued_bytes(&self) -> u64 {
        if self.is_open() { self.end().outstanding.get().1 as u64 } else { 0 }
    }

    fn expect_bulk(&self, id: u64, len_max: usize) -> BulkTicket {
        let ticket = self.end().bulk.expect(id, len_max);
        if !self.is_open() {
            self.end().bulk.fail_all();
        }
        ticket
    }

    fn close(&self) {
        self.net.close(&self.pair, self.side);
    }

    fn is_open(&self) -> bool {
        self.end().open.get()
    }
}

/// The receiving half; dropping it closes the link, for nobody would read any more.
struct Receiver(Half);

impl LinkRecv for Receiver {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        let end = self.0.end();
        // what was delivered before the end is read before the end
        let frame = end.inbox.borrow_mut().pop_front();
        if let Some(frame) = frame {
            self.0.pair.ends[1 - self.0.side].settle(FRAME_HEADER_BYTES + frame.payload_len());
            return Poll::Ready(Some(frame));
        }
        if !end.open.get() {
            return Poll::Ready(None);
        }
        *end.reader.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let unread = std::mem::take(&mut *self.0.end().inbox.borrow_mut());
        for frame in unread {
            self.0.pair.ends[1 - self.0.side].settle(FRAME_HEADER_BYTES + frame.payload_len());
        }
        self.0.close();
    }
}

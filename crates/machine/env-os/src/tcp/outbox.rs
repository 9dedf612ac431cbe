//! The queue of one outgoing connection and its writer.
//!
//! Small frames are copied together into runs, and large payloads are queued as they are. One
//! vectored write takes everything that is there. The writer sleeps while the queue is empty or the
//! socket is full. The first frame of a turn wakes it, behind every task that is ready by then.
//!
//! A frame for which the peer or the interface has no credit is held back, in order, until the gate
//! lets it go ([`crate::lnet`]). Its credit comes back when its last byte is written. Heartbeats
//! need no credit.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use types::Nid;
use wire::{CrcMode, FRAME_HEADER_BYTES, Frame, FrameKind, Message, Parts};

use super::fault::Fault;
use crate::gauge::Gauge;
use crate::limits::{
    COPY_BYTES_MAX, IOVECS_MAX, QUEUE_BYTES_HARD, RUN_BYTES_MAX, WRITE_TURN_BYTES,
};
use crate::lnd::Lnd;
use crate::lnet::Gate;

pub(super) struct Outbox {
    config: Rc<Lnd>,
    peer: Nid,
    gate: Arc<Gate>,
    /// What the executor's thread has handed over, where that is another.
    gauge: Option<Arc<Gauge>>,
    queue: RefCell<Queue>,
    room: Notify,
    pushed: Cell<bool>,
}

#[derive(Default)]
struct Queue {
    half: Option<OwnedWriteHalf>, // none once closed
    held: VecDeque<Frame>,        // without credits
    held_bytes: usize,
    segments: VecDeque<Segment>,
    first_done: usize,         // bytes of the first segment that are written
    bytes: usize,              // to write
    frames: VecDeque<Pending>, // to write
    done: Vec<usize>,          // bytes of frames whose last byte is written
    charged: (usize, usize),   // frames and bytes that have taken a credit, or wait for one
    spare: Vec<u8>,            // an empty run, to use again
    writer: Option<Waker>,     // while it waits for frames
    progress: bool,            // something was written since `is_blocked` looked
}

/// A frame with bytes to write.
struct Pending {
    left: usize,
    charge: Option<usize>, // all its bytes; none of a heartbeat
}

enum Segment {
    Run(Vec<u8>),
    Shared(Bytes),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match self {
            Segment::Run(run) => run,
            Segment::Shared(part) => part,
        }
    }
}

impl Outbox {
    pub(super) fn new(
        half: OwnedWriteHalf,
        config: Rc<Lnd>,
        peer: Nid,
        gauge: Option<Arc<Gauge>>,
    ) -> Outbox {
        let queue = RefCell::new(Queue { half: Some(half), ..Queue::default() });
        Outbox {
            config,
            peer,
            gate: Arc::default(),
            gauge,
            queue,
            room: Notify::new(),
            pushed: Cell::new(false),
        }
    }

    pub(super) fn push(&self, frame: Frame) -> Result<(), Fault> {
        let mut queue = self.queue.borrow_mut();
        self.pushed.set(true);
        if frame.kind == FrameKind::Heartbeat {
            queue.append(frame, self.config.crc, false);
        } else {
            let len = FRAME_HEADER_BYTES + frame.payload_len();
            let goes = self.charge(&mut queue, len);
            if goes && queue.held.is_empty() {
                queue.append(frame, self.config.crc, true);
            } else {
                self.hold(&mut queue, frame, len, goes);
            }
        }
        self.call_writer(queue)
    }

    /// Queues the frame of `message`, of `len` bytes: a small one that may go is encoded where it
    /// goes from.
    pub(super) fn push_message(&self, message: &dyn Message, len: usize) -> Result<(), Fault> {
        let mut queue = self.queue.borrow_mut();
        self.pushed.set(true);
        let goes = self.charge(&mut queue, len);
        if !goes || !queue.held.is_empty() {
            self.hold(&mut queue, message.to_frame(), len, goes);
        } else if len <= COPY_BYTES_MAX {
            queue.count(len, true);
            message.encode_into(queue.run_for(len));
        } else {
            queue.append(message.to_frame(), self.config.crc, true);
        }
        self.call_writer(queue)
    }

    /// Whether a message of `len` bytes has its credits; if not, its gate is opened later.
    fn charge(&self, queue: &mut Queue, len: usize) -> bool {
        queue.charged.0 += 1;
        queue.charged.1 += len;
        self.config.lnet.send(self.peer, &self.gate, len)
    }

    fn hold(&self, queue: &mut Queue, frame: Frame, len: usize, goes: bool) {
        queue.held.push_back(frame);
        queue.held_bytes += len;
        if goes {
            self.gate.release(); // it goes behind those that were released before it
        }
    }

    fn call_writer(&self, mut queue: RefMut<'_, Queue>) -> Result<(), Fault> {
        if queue.bytes + queue.held_bytes > QUEUE_BYTES_HARD {
            return Err(Fault::Overrun(queue.bytes + queue.held_bytes));
        }
        if let Some(writer) = queue.writer.take() {
            writer.wake();
        }
        Ok(())
    }

    pub(super) fn has_room(&self) -> bool {
        self.fits(&self.queue.borrow())
    }

    /// Bytes that are not written yet.
    pub(super) fn queued_bytes(&self) -> usize {
        let queue = self.queue.borrow();
        queue.bytes + queue.held_bytes
    }

    fn fits(&self, queue: &Queue) -> bool {
        queue.half.is_none()
            || (queue.bytes + queue.held_bytes < self.config.queue_bytes_max
                && queue.frames.len() + queue.held.len() < self.config.queue_frames_max)
    }

    /// Completes when there is room, or the link is down.
    pub(super) async fn room(&self) {
        while !self.has_room() {
            self.room.notified().await;
        }
    }

    /// Whether a frame was pushed since this was last asked.
    pub(super) fn take_pushed(&self) -> bool {
        self.pushed.take()
    }

    /// Whether frames wait and none has moved since this was last asked.
    pub(super) fn is_blocked(&self) -> bool {
        let mut queue = self.queue.borrow_mut();
        !std::mem::take(&mut queue.progress) && queue.bytes > 0
    }

    /// Writes what the socket takes at once, then closes it.
    pub(super) fn close(&self) {
        let mut queue = self.queue.borrow_mut();
        let held = queue.held.len();
        // nothing comes behind them, so their credits do not matter
        queue.admit(held, self.config.crc);
        let mut cx = Context::from_waker(Waker::noop());
        while queue.bytes > 0 && matches!(queue.poll_write(&mut cx), Poll::Ready(Ok(_))) {}
        self.count_sent(&queue.done);
        let (frames, bytes) = queue.charged;
        *queue = Queue::default();
        drop(queue);
        self.config.lnet.close(self.peer, &self.gate, frames, bytes);
        self.room.notify_waiters();
    }

    pub(super) fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let mut queue = self.queue.borrow_mut();
        let mut turn = 0;
        loop {
            queue.admit(self.gate.take_released(), self.config.crc);
            if queue.bytes == 0 {
                queue.writer = Some(cx.waker().clone());
                if queue.held.is_empty() || self.gate.park(cx.waker()) {
                    return Poll::Pending;
                }
                continue;
            }
            turn += ready!(queue.poll_write(cx))?;
            self.give_back(&mut queue);
            if self.fits(&queue) {
                self.room.notify_waiters();
            }
            if turn >= WRITE_TURN_BYTES {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    fn count_sent(&self, frames: &[usize]) {
        let bytes = frames.iter().sum::<usize>() - FRAME_HEADER_BYTES * frames.len();
        self.config.traffic.sent_all(frames.len(), bytes);
    }

    /// Credits of the frames that are written.
    fn give_back(&self, queue: &mut Queue) {
        if queue.done.is_empty() {
            return;
        }
        let (frames, bytes) = (queue.done.len(), queue.done.iter().sum::<usize>());
        queue.charged.0 -= frames;
        queue.charged.1 -= bytes;
        self.config.lnet.complete(self.peer, &queue.done);
        self.count_sent(&queue.done);
        queue.done.clear();
        if let Some(gauge) = &self.gauge {
            gauge.take(frames, bytes);
        }
    }
}

impl Queue {
    /// Moves so many held frames to those to write.
    fn admit(&mut self, count: usize, crc: CrcMode) {
        for _ in 0..count {
            let Some(frame) = self.held.pop_front() else { return };
            self.held_bytes -= FRAME_HEADER_BYTES + frame.payload_len();
            self.append(frame, crc, true);
        }
    }

    fn append(&mut self, frame: Frame, crc: CrcMode, is_charged: bool) {
        let len = FRAME_HEADER_BYTES + frame.payload_len();
        self.count(len, is_charged);
        if len <= COPY_BYTES_MAX {
            frame.encode_into(self.run_for(len), crc);
            return;
        }
        let head = frame.encode_header(crc);
        self.copy(&head);
        match frame.parts {
            Parts::One(part) => self.append_part(part),
            Parts::Many(parts) => parts.into_iter().for_each(|part| self.append_part(part)),
        }
    }

    fn append_part(&mut self, part: Bytes) {
        if part.len() <= COPY_BYTES_MAX {
            self.copy(&part);
        } else {
            self.segments.push_back(Segment::Shared(part));
        }
    }

    /// A frame of `len` bytes more to write.
    fn count(&mut self, len: usize, is_charged: bool) {
        self.bytes += len;
        self.frames.push_back(Pending { left: len, charge: is_charged.then_some(len) });
    }

    fn copy(&mut self, bytes: &[u8]) {
        self.run_for(bytes.len()).extend_from_slice(bytes);
    }

    /// The run to which `len` more bytes are to be appended.
    fn run_for(&mut self, len: usize) -> &mut Vec<u8> {
        let run = match self.segments.back() {
            Some(Segment::Run(run)) if run.len() + len <= RUN_BYTES_MAX => None,
            // behind a full one: not by doubling
            Some(Segment::Run(_)) => Some(Vec::with_capacity(RUN_BYTES_MAX)),
            _ => Some(std::mem::take(&mut self.spare)),
        };
        if let Some(run) = run {
            self.segments.push_back(Segment::Run(run));
        }
        match self.segments.back_mut() {
            Some(Segment::Run(run)) => run,
            _ => unreachable!("a run is at the back, or was put there above"),
        }
    }

    /// One write of what is there.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Fault>> {
        let Some(half) = &mut self.half else { return Poll::Pending };
        let mut slices = [IoSlice::new(&[]); IOVECS_MAX];
        let mut count = 0;
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            let skip = if count == 0 { self.first_done } else { 0 };
            *slice = IoSlice::new(&segment.bytes()[skip..]);
            count += 1;
        }
        let written = ready!(Pin::new(half).poll_write_vectored(cx, &slices[..count]))?;
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn advance(&mut self, written: usize) {
        assert!(written <= self.bytes, "the kernel takes no more than it was given");
        self.bytes -= written;
        self.progress = true;
        self.finish_frames(written);
        let mut left = written + self.first_done;
        while let Some(len) =
            self.segments.front().map(|segment| segment.bytes().len()).filter(|len| *len <= left)
        {
            left -= len;
            if let Some(Segment::Run(mut run)) = self.segments.pop_front() {
                run.clear();
                self.spare = run;
            }
        }
        self.first_done = left;
    }

    /// Takes `count` written bytes off the frames at the front.
    fn finish_frames(&mut self, mut count: usize) {
        while count > 0 {
            let Some(first) = self.frames.front_mut() else { return };
            if first.left > count {
                first.left -= count;
                return;
            }
            count -= first.left;
            self.done.extend(first.charge);
            self.frames.pop_front();
        }
    }
}

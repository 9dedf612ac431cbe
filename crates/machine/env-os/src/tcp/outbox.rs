//! The queue of one outgoing connection and its writer.
//!
//! Small frames are copied together into runs, large payloads are queued as they are; one vectored write takes what
//! is there. The writer sleeps while the queue is empty or the socket is full, and is woken by the first frame of a
//! turn, behind every task that is ready by then.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use wire::{CrcMode, FRAME_HEADER_BYTES, Frame};

use super::link::{Fault, Shared};
use crate::limits::{COPY_BYTES_MAX, IOVECS_MAX, QUEUE_BYTES_HARD, RUN_BYTES_MAX, WRITE_TURN_BYTES};

pub(super) struct Outbox {
    queue: RefCell<Queue>,
    bytes_max: usize,
    frames_max: usize,
    room: Notify,
    pushed: Cell<bool>,
}

#[derive(Default)]
struct Queue {
    half: Option<OwnedWriteHalf>, // none once closed
    segments: VecDeque<Segment>,
    first_done: usize,       // bytes of the first segment that are written
    bytes: usize,            // to write
    frames: VecDeque<usize>, // bytes to write of each frame
    spare: Vec<u8>,          // an empty run, to use again
    writer: Option<Waker>,   // while it waits for frames
    progress: bool,          // something was written since `is_blocked` looked
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
    pub(super) fn new(half: OwnedWriteHalf, bytes_max: usize, frames_max: usize) -> Outbox {
        let queue = RefCell::new(Queue { half: Some(half), ..Queue::default() });
        Outbox { queue, bytes_max, frames_max, room: Notify::new(), pushed: Cell::new(false) }
    }

    /// Queues a frame.
    pub(super) fn push(&self, frame: Frame, crc: CrcMode) -> Result<(), Fault> {
        let mut queue = self.queue.borrow_mut();
        queue.append(frame, crc);
        self.pushed.set(true);
        if queue.bytes > QUEUE_BYTES_HARD {
            return Err(Fault::Overrun(queue.bytes));
        }
        if let Some(writer) = queue.writer.take() {
            writer.wake();
        }
        Ok(())
    }

    pub(super) fn has_room(&self) -> bool {
        let queue = self.queue.borrow();
        queue.half.is_none() || (queue.bytes < self.bytes_max && queue.frames.len() < self.frames_max)
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
        let mut cx = Context::from_waker(Waker::noop());
        while queue.bytes > 0 && matches!(queue.poll_write(&mut cx), Poll::Ready(Ok(_))) {}
        *queue = Queue::default();
        drop(queue);
        self.room.notify_waiters();
    }

    fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        let mut queue = self.queue.borrow_mut();
        let mut turn = 0;
        while queue.bytes > 0 {
            turn += ready!(queue.poll_write(cx))?;
            if queue.bytes < self.bytes_max && queue.frames.len() < self.frames_max {
                self.room.notify_waiters();
            }
            if turn >= WRITE_TURN_BYTES {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        queue.writer = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The writer of one outbox of a link.
pub(super) async fn write_all(shared: Rc<Shared>, outbox: fn(&Shared) -> &Outbox) -> Result<(), Fault> {
    poll_fn(|cx| outbox(&shared).poll_drain(cx)).await
}

impl Queue {
    fn append(&mut self, frame: Frame, crc: CrcMode) {
        let mut len = FRAME_HEADER_BYTES + frame.payload_len();
        if len <= COPY_BYTES_MAX {
            frame.encode_into(self.run_for(len), crc);
            self.bytes += len;
            self.frames.push_back(len);
            return;
        }
        let head = frame.encode_header(crc);
        len = FRAME_HEADER_BYTES;
        self.copy(&head);
        for part in frame.parts {
            len += part.len();
            if part.len() <= COPY_BYTES_MAX {
                self.copy(&part);
            } else {
                self.segments.push_back(Segment::Shared(part));
            }
        }
        self.bytes += len;
        self.frames.push_back(len);
    }

    fn copy(&mut self, bytes: &[u8]) {
        self.run_for(bytes.len()).extend_from_slice(bytes);
    }

    /// The run to which `len` more bytes are to be appended.
    fn run_for(&mut self, len: usize) -> &mut Vec<u8> {
        let fits = matches!(self.segments.back(), Some(Segment::Run(run)) if run.len() + len <= RUN_BYTES_MAX);
        if !fits {
            let run = std::mem::take(&mut self.spare);
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
        drop_front(&mut self.frames, written);
        let mut left = written + self.first_done;
        while let Some(len) = self.segments.front().map(|segment| segment.bytes().len()).filter(|len| *len <= left) {
            left -= len;
            if let Some(Segment::Run(mut run)) = self.segments.pop_front() {
                run.clear();
                self.spare = run;
            }
        }
        self.first_done = left;
    }
}

/// Takes `count` off the numbers at the front.
fn drop_front(frames: &mut VecDeque<usize>, mut count: usize) {
    while count > 0 {
        let Some(first) = frames.front_mut() else { return };
        if *first > count {
            *first -= count;
            return;
        }
        count -= *first;
        frames.pop_front();
    }
}

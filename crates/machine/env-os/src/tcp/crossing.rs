//! The state that the executor shares with the LND thread that has a link's sockets.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use wire::Frame;

use super::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};
use crate::gauge::Gauge;

/// Shared by the two threads of a link.
#[derive(Default)]
pub(super) struct Crossing {
    is_over: AtomicBool,
    pub(super) out: Mutex<OutLane>,
    pub(super) inn: Mutex<InLane>,
    /// Control frames that are not written to the socket.
    pub(super) control: Arc<Gauge>,
    /// The same of bulk.
    pub(super) bulk: Arc<Gauge>,
}

/// From the executor.
#[derive(Default)]
pub(super) struct OutLane {
    pub(super) frames: VecDeque<Frame>,
    writer: Option<Waker>,
    pub(super) is_closed: bool,
}

/// To the executor.
#[derive(Default)]
pub(super) struct InLane {
    pub(super) frames: VecDeque<Frame>,
    pub(super) reader: Option<Waker>,
    pub(super) feeder: Option<Waker>,
    pub(super) is_over: bool,
}

pub(super) fn lock<T>(lane: &Mutex<T>) -> MutexGuard<'_, T> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Crossing {
    /// The link is gone and all that came through it has been handed over.
    pub(super) fn end(&self) {
        self.hang_up();
        let (reader, feeder) = {
            let mut lane = lock(&self.inn);
            lane.is_over = true;
            (lane.reader.take(), lane.feeder.take())
        };
        reader.into_iter().chain(feeder).for_each(Waker::wake);
    }

    /// The link is gone: nothing more is sent. What stands in the control socket is still read.
    pub(super) fn hang_up(&self) {
        self.is_over.store(true, Ordering::Release);
        let writer = {
            let mut lane = lock(&self.out);
            lane.is_closed = true;
            lane.writer.take()
        };
        writer.into_iter().for_each(Waker::wake);
        self.control.taken.notify_waiters();
        self.bulk.taken.notify_waiters();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Frames to send, all that are there; nothing once the executor has hung up.
    pub(super) fn poll_out(&self, cx: &mut Context<'_>) -> Poll<Option<VecDeque<Frame>>> {
        let mut lane = lock(&self.out);
        if !lane.frames.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut lane.frames)));
        }
        if lane.is_closed {
            return Poll::Ready(None);
        }
        lane.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Wakes the thread that sends.
    pub(super) fn wake_out(&self) {
        let writer = lock(&self.out).writer.take();
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// Hands frames over; completes when there is room for more.
    pub(super) async fn hand_over(&self, mut frames: VecDeque<Frame>, frames_max: usize) {
        poll_fn(|cx| {
            let mut lane = lock(&self.inn);
            lane.frames.append(&mut frames);
            let reader = lane.reader.take();
            let is_full = lane.frames.len() >= frames_max && !lane.is_over;
            lane.feeder = is_full.then(|| cx.waker().clone());
            drop(lane);
            if let Some(reader) = reader {
                reader.wake();
            }
            if is_full { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Takes frames that were handed over, all that are there, into `batch`, which is empty. It
    /// stays empty once the link is over.
    pub(super) fn poll_in(&self, cx: &mut Context<'_>, batch: &mut VecDeque<Frame>) -> Poll<()> {
        let mut lane = lock(&self.inn);
        std::mem::swap(&mut lane.frames, batch);
        if batch.is_empty() {
            if lane.is_over {
                return Poll::Ready(());
            }
            lane.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let feeder = lane.feeder.take();
        drop(lane);
        if let Some(feeder) = feeder {
            feeder.wake();
        }
        Poll::Ready(())
    }
}

//! A longer way to the peer: each frame that this node sends arrives a fixed time later.
//!
//! ```text
//!  send --> queue, in order --[ after OsConfig::delay ]--> the link as it is
//! ```
//! It is for measurements that depend on the distance of nodes. Each end delays its own frames, so
//! a round trip takes two delays where both ends have the setting. Order, credits and bounds stay.
//! Frames that wait here are bounded as those of the link's queue are.
//!
//! The executor's timers count milliseconds, so a timer of the kernel fires when a frame is due.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use env::{BulkTicket, Link, LinkDown, LinkSend, LinkTx, Listen, Listener, LocalFuture};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use types::{Instant, NidAddr, Span};
use wire::Frame;

use crate::executor::{now, spawn};
use crate::lnd::Lnd;

/// The link as its user sees it.
pub(crate) fn delayed(config: &Rc<Lnd>, link: Link) -> io::Result<Link> {
    if config.delay == Span::ZERO {
        return Ok(link);
    }
    let way = Rc::new(Way {
        frames_max: config.queue_frames_max,
        span: config.delay,
        frames: RefCell::default(),
        bytes: Cell::new(0),
        pushed: Notify::new(),
        left: Notify::new(),
        is_over: Cell::new(false),
    });
    let timer = Timer::new()?;
    spawn(deliver(Rc::clone(&way), link.tx.clone(), timer));
    Ok(Link { tx: LinkTx::new(Rc::new(Delayed { to: link.tx, way })), ..link })
}

/// A listener whose links are delayed.
pub(crate) fn listener(config: &Rc<Lnd>, listener: Listener) -> Listener {
    if config.delay == Span::ZERO {
        return listener;
    }
    Listener::new(Box::new(DelayedListen { config: Rc::clone(config), listener }))
}

struct DelayedListen {
    config: Rc<Lnd>,
    listener: Listener,
}

impl Listen for DelayedListen {
    fn accept(&mut self) -> LocalFuture<'_, io::Result<Link>> {
        Box::pin(async move { delayed(&self.config, self.listener.accept().await?) })
    }

    fn addr(&self) -> NidAddr {
        self.listener.addr()
    }
}

/// Frames under way.
struct Way {
    span: Span,
    frames_max: usize,
    /// Each with the time when it is due; in order.
    frames: RefCell<VecDeque<(Instant, Frame)>>,
    /// Of their payloads.
    bytes: Cell<usize>,
    pushed: Notify,
    left: Notify,
    /// No frame comes any more.
    is_over: Cell<bool>,
}

impl Way {
    fn has_room(&self) -> bool {
        self.frames.borrow().len() < self.frames_max
    }

    /// The next frame that is due, or when one is; nothing while the way is empty.
    fn next(&self) -> Option<Result<Frame, Span>> {
        let mut frames = self.frames.borrow_mut();
        let left = frames.front()?.0 - now();
        if left > Span::ZERO {
            return Some(Err(left));
        }
        let (_, frame) = frames.pop_front()?;
        self.bytes.set(self.bytes.get() - frame.payload_len());
        Some(Ok(frame))
    }
}

/// Hands frames over when they are due, until the link is down or no user has it any more.
async fn deliver(way: Rc<Way>, to: LinkTx, timer: Timer) {
    while to.is_open() {
        match way.next() {
            Some(Ok(frame)) => {
                if to.send(frame).is_err() {
                    break;
                }
                way.left.notify_waiters();
            }
            Some(Err(left)) => {
                if timer.wait(left).await.is_err() {
                    to.close();
                }
            }
            None if way.is_over.get() => return,
            None => way.pushed.notified().await,
        }
    }
    way.frames.borrow_mut().clear();
    way.bytes.set(0);
    way.left.notify_waiters();
}

/// The sending half that callers hold.
struct Delayed {
    to: LinkTx,
    way: Rc<Way>,
}

impl LinkSend for Delayed {
    fn send(&self, frame: Frame) -> Result<(), LinkDown> {
        if !self.to.is_open() {
            return Err(LinkDown);
        }
        self.way.bytes.set(self.way.bytes.get() + frame.payload_len());
        self.way.frames.borrow_mut().push_back((now() + self.way.span, frame));
        self.way.pushed.notify_one();
        Ok(())
    }

    fn room(&self) -> LocalFuture<'static, ()> {
        let (way, to) = (Rc::clone(&self.way), self.to.clone());
        Box::pin(async move {
            while to.is_open() && !way.has_room() {
                way.left.notified().await;
            }
            to.room().await;
        })
    }

    fn has_room(&self) -> bool {
        self.way.has_room() && self.to.has_room()
    }

    fn queued_bytes(&self) -> u64 {
        let waiting = if self.is_open() { self.way.bytes.get() } else { 0 };
        waiting as u64 + self.to.queued_bytes()
    }

    fn expect_bulk(&self, id: u64, len_max: usize) -> BulkTicket {
        self.to.expect_bulk(id, len_max)
    }

    /// What is under way arrives before the link's end.
    fn close(&self) {
        self.way.bytes.set(0);
        for (_, frame) in self.way.frames.borrow_mut().drain(..) {
            if self.to.send(frame).is_err() {
                break;
            }
        }
        self.to.close();
        self.way.pushed.notify_one();
    }

    fn is_open(&self) -> bool {
        self.to.is_open()
    }
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.way.is_over.set(true);
        self.way.pushed.notify_one();
    }
}

/// A timer that counts nanoseconds.
struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: the poller owns the descriptor, nobody else can close it, and it stays open until
        // the poller goes.
        Ok(Timer(unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?))
    }

    /// Completes after `span`, which is not zero.
    async fn wait(&self, span: Span) -> io::Result<()> {
        let secs = i64::try_from(span.0 / 1_000_000_000).unwrap_or(i64::MAX);
        let value = Timespec { tv_sec: secs, tv_nsec: (span.0 % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut guard = self.0.readable().await?;
            let mut count = [0; 8];
            match guard.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut count)?)) {
                Ok(read) => return read.map(drop),
                Err(_not_yet) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::FrameKind;

    use crate::{OsConfig, run};
    use types::{NidAddr, Span};

    /// How long a frame takes there and back, and whether frames keep their order.
    fn round_trip(at: &'static str, delay: Span) -> (Span, bool) {
        run(OsConfig { delay, ..OsConfig::default() }, move |env| async move {
            let at: NidAddr = at.parse().expect("an address");
            let mut listener = env.listen(at).await.expect("it is free");
            let to = listener.addr();
            env.spawn("echo", async move {
                let mut link = listener.accept().await.expect("a peer");
                while let Some(frame) = link.rx.recv().await {
                    link.tx.send(frame).expect("the peer is there");
                }
            });
            let mut link = env.connect(None, to).await.expect("it listens");
            let before = env.now();
            for id in 0..100 {
                let frame = wire::Frame::new(FrameKind::Request, id, Bytes::from_static(b"x"));
                link.tx.send(frame).expect("it is open");
            }
            let mut ids = Vec::new();
            while ids.len() < 100 {
                ids.push(link.rx.recv().await.expect("an answer").id);
            }
            let took = env.now() - before;
            link.tx.close();
            (took, ids.is_sorted())
        })
    }

    #[test]
    fn frames_arrive_later_and_in_order() {
        for at in ["127.0.0.1:0@tcp", "9@lo"] {
            let (took, is_sorted) = round_trip(at, Span::millis(3));
            assert!(took >= Span::millis(6), "{at}: {took:?} for both ways");
            assert!(is_sorted, "{at}");
        }
    }
}

//! Small transfers that wait for the device, by io_uring from the executor's own thread: direct
//! reads and writes, and reads that miss the page cache.
//!
//! ```text
//!  caller -> slot, queue -> (end of the executor's turn) driver: one io_uring_enter for all that is queued
//!  device -> eventfd -> the executor wakes -> driver -> callers
//! ```
//! Through the pool, such a transfer costs two more wakes: the device wakes a waiting thread, and
//! that thread wakes the executor.
//!
//! Invariants
//! - Memory and file of an operation stay in its slot until the kernel has given it back, whether
//!   or not its caller still waits. Dropping the ring waits for all of them.
//! - A write is noted as a change when it comes back, whether or not its caller still waits.
//! - The ring answers only transfers that came back whole, or that end with the object. The pool
//!   repeats all others and reports the outcome. The caller's locks keep other operations away
//!   meanwhile.

mod slots;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use env::{BUFFER_ALIGN, Buffer};
use io_uring::{IoUring, opcode, types as uring};
use rustix::event::EventfdFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::AbortHandle;

use super::files::{Files, Object};
use super::pace::Pace;
use slots::Slots;

/// Larger transfers go to the pool: pinning their pages would keep the executor from others.
pub(super) const RING_BYTES_MAX: usize = 64 << 10;

struct Op {
    object: Arc<Object>,
    memory: Buffer,
    is_write: bool,
}

/// The ring of one store. Made, used and dropped on its executor's thread.
pub(super) struct Ring {
    shared: Rc<Shared>,
    driver: AbortHandle,
}

struct Shared {
    io: RefCell<IoUring>,
    slots: RefCell<Slots<Op>>,
    /// Operations stand in the submission queue.
    queued: Cell<bool>,
    driver: RefCell<Option<Waker>>,
    files: Arc<Files>,
    pace: Rc<Pace>,
}

impl Ring {
    /// A ring for `ops_max` operations at once, at most 4,096. None where this is no executor's
    /// thread or the kernel offers none: too old (before 6.1), or forbidden here.
    pub(super) fn start(files: &Arc<Files>, pace: &Rc<Pace>, ops_max: u32) -> Option<Ring> {
        if ops_max == 0 || tokio::runtime::Handle::try_current().is_err() {
            return None;
        }
        match Ring::build(files, pace, ops_max) {
            Ok(ring) => Some(ring),
            Err(error) => {
                tracing::info!(%error, "no io_uring: threads do the disk's transfers");
                None
            }
        }
    }

    fn build(files: &Arc<Files>, pace: &Rc<Pace>, ops_max: u32) -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        builder
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all();
        let io = builder.build(ops_max)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        io.submitter().register_eventfd(wake.as_raw_fd())?;
        // SAFETY: the poller owns the descriptor, nobody else can close it, and it stays open until
        // the poller goes.
        let poller = unsafe { AsyncFd::register_with_interest(wake, Interest::READABLE) }?;
        let shared = Rc::new(Shared {
            io: RefCell::new(io),
            slots: RefCell::new(Slots::new(ops_max as usize)),
            queued: Cell::new(false),
            driver: RefCell::default(),
            files: files.clone(),
            pace: pace.clone(),
        });
        let driver = tokio::task::spawn_local(drive(shared.clone(), poller)).abort_handle();
        Ok(Ring { shared, driver })
    }

    /// At most `len` bytes, which [`RING_BYTES_MAX`] bounds, from `offset`; both aligned. Around
    /// the page cache. `None`: ask the pool.
    pub(super) async fn read_direct(
        &self,
        object: &Arc<Object>,
        offset: u64,
        len: usize,
    ) -> Option<Bytes> {
        let (memory, count) = self.fill(object, object.direct_now()?, offset, len).await?;
        // A multiple may be fewer than there are.
        (count == len || count == 0 || !count.is_multiple_of(BUFFER_ALIGN))
            .then(|| Bytes::from_owner(memory))
    }

    /// All of `len` bytes, which [`RING_BYTES_MAX`] bounds, from `offset`. Through the page cache.
    /// `None`: ask the pool.
    pub(super) async fn read_cached(
        &self,
        object: &Arc<Object>,
        offset: u64,
        len: usize,
    ) -> Option<Bytes> {
        let (memory, count) = self.fill(object, object.fd(), offset, len).await?;
        (count == len).then(|| Bytes::from_owner(memory))
    }

    /// Writes all of `data`, as [`Ring::read_direct`] reads. `None`: ask the pool.
    pub(super) async fn write_direct(
        &self,
        object: &Arc<Object>,
        offset: u64,
        data: &Bytes,
    ) -> Option<()> {
        let mut memory = self.shared.files.buffers.take(data.len());
        memory.extend(data);
        let (_, result) =
            self.begin(object, object.direct_now()?, offset, data.len(), memory, true)?.await;
        (usize::try_from(result) == Ok(data.len())).then_some(())
    }

    async fn fill(
        &self,
        object: &Arc<Object>,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Option<(Buffer, usize)> {
        let memory = self.shared.files.buffers.take(len);
        let (mut memory, result) = self.begin(object, fd, offset, len, memory, false)?.await;
        let count = usize::try_from(result).ok()?;
        memory.filled(count); // by the kernel, from the first spare byte on
        Some((memory, count))
    }

    /// Queues an operation on `fd`, which is of `object`. None where there are too many.
    fn begin(
        &self,
        object: &Arc<Object>,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        mut memory: Buffer,
        is_write: bool,
    ) -> Option<Wait<'_>> {
        assert!(len <= RING_BYTES_MAX, "the caller sends larger transfers to the pool");
        let Shared { io, slots, queued, driver, .. } = &*self.shared;
        let fd = uring::Fd(fd.as_raw_fd());
        // What a write takes was filled, what a read fills is spare.
        let at = if is_write { memory.as_ptr().cast_mut() } else { memory.spare().as_mut_ptr() };
        let slot = slots.borrow_mut().take(Op { object: object.clone(), memory, is_write })?;
        let len = u32::try_from(len).expect("a small transfer");
        let entry = if is_write {
            opcode::Write::new(fd, at, len).offset(offset).build()
        } else {
            opcode::Read::new(fd, at, len).offset(offset).build()
        };
        // SAFETY: the slot keeps memory and file until the operation has come back.
        let pushed = unsafe { io.borrow_mut().submission().push(&entry.user_data(slot as u64)) };
        pushed.expect("the queue has room for as many as there are slots");
        queued.set(true);
        if let Some(driver) = &*driver.borrow() {
            driver.wake_by_ref();
        }
        Some(Wait { shared: &self.shared, slot })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.driver.abort();
        while self.shared.slots.borrow().under_way() > 0 {
            if let Err(error) = self.shared.enter(1) {
                tracing::error!(%error, "transfers under way cannot be waited for");
                std::mem::forget(self.shared.clone()); // their memory is still the kernel's
                return;
            }
            self.shared.reap();
        }
    }
}

/// Somebody waits for an operation.
struct Wait<'a> {
    shared: &'a Shared,
    slot: usize,
}

impl Future for Wait<'_> {
    type Output = (Buffer, i32);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(Buffer, i32)> {
        self.shared.slots.borrow_mut().poll(self.slot, cx).map(|(op, result)| (op.memory, result))
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.shared.slots.borrow_mut().leave(self.slot);
    }
}

/// Hands over what is queued and takes what has come back, until the ring is dropped.
async fn drive(shared: Rc<Shared>, poller: AsyncFd<OwnedFd>) {
    loop {
        let due = poll_fn(|cx| {
            let mut driver = shared.driver.borrow_mut();
            if !driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
                *driver = Some(cx.waker().clone());
            }
            // Edge by edge: the descriptor is never read.
            match poller.poll_read_ready(cx) {
                Poll::Ready(ready) => Poll::Ready(ready.map(|mut ready| ready.clear_ready())),
                Poll::Pending if shared.queued.get() => Poll::Ready(Ok(())),
                Poll::Pending => Poll::Pending,
            }
        });
        if let Err(error) = due.await.and_then(|()| shared.pace.watch(|| shared.turn())) {
            tracing::debug!(%error, "io_uring is asked again");
        }
        if shared.queued.get() {
            tokio::task::yield_now().await;
        }
    }
}

impl Shared {
    /// The eventfd is silent during a turn: what the kernel finishes here is taken here.
    fn turn(&self) -> io::Result<()> {
        self.io.borrow_mut().completion().disable_eventfd();
        let entered = self.enter(0);
        self.reap();
        self.io.borrow_mut().completion().enable_eventfd();
        // The kernel marks its work before it looks at the switch; this is the other order.
        fence(Ordering::SeqCst);
        let has_more = self.io.borrow_mut().submission().taskrun();
        if has_more {
            self.enter(0)?;
            self.reap();
        }
        entered
    }

    /// Hands over what is queued, and takes what has come back: `wait_for` at least.
    fn enter(&self, wait_for: u32) -> io::Result<()> {
        const GETEVENTS: u32 = 1;
        let mut io = self.io.borrow_mut();
        loop {
            let count = u32::try_from(io.submission().len()).map_err(io::Error::other)?;
            // SAFETY: no argument is passed; the slots keep what the operations use.
            match unsafe {
                io.submitter().enter::<libc::sigset_t>(count, wait_for, GETEVENTS, None)
            } {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.queued.set(!io.submission().is_empty());
        Ok(())
    }

    fn reap(&self) {
        let mut io = self.io.borrow_mut();
        let mut slots = self.slots.borrow_mut();
        for completion in io.completion() {
            let slot = usize::try_from(completion.user_data()).expect("the number of a slot");
            let op = slots.op(slot);
            if op.is_write {
                self.files.note(&op.object, false); // a failed write may have changed something too
            }
            slots.finish(slot, completion.result());
        }
    }
}

//! Requests over io_uring. In one call an entry brings a request, carries its answer back and asks
//! for the next.
//!
//! ```text
//!  caller on CPU q -> queue q of the kernel -> an entry of q -> Ring::turn -> handler -> Ring::reply -> next turn commits
//! ```
//!
//! - One ring serves the queues of all processors, on the thread that serves the connection. The
//!   kernel copies a request while that thread is inside [`Ring::turn`], so it does nothing
//!   concurrently with the thread.
//! - An eventfd wakes the thread. It is silent during turns. Answers given between turns are
//!   committed together.
//! - An entry is taken until its request is answered, and some requests wait for minutes (locks).
//!   So each queue keeps spare entries: more are registered when few are left.
//! - Most FORGETs, INTERRUPT and notifications still use the device. If the kernel cannot use an
//!   entry of a READDIRPLUS, its FORGET comes as a request without an answer. The entry of such a
//!   request must be given back. After an unmount every entry comes back with ENOTCONN.

mod entry;
mod follow;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use bytes::Bytes;
use io_uring::{IoUring, cqueue, opcode, squeue, types as uring};
use rustix::event::EventfdFlags;
use tokio::sync::Notify;
use types::Errno;
use zerocopy::IntoBytes;

use self::entry::{Buffers, Slab};
pub(crate) use self::follow::{Affinity, Follow};
use crate::abi;
use crate::device::Device;
use crate::pool::Pool;
use crate::reply::Reply;

/// Entries of a queue that are registered together.
const QUEUE_STEP: usize = 64;
/// Entries of a queue at most: so many callers of one processor can wait at once.
const QUEUE_ENTRIES_MAX: usize = 4_096;
/// Where fewer entries than this are left in a queue, more are registered: a burst between two
/// turns must fit, since a request that finds none waits until another of its queue is answered.
const QUEUE_SPARE: usize = 32;
/// Commands handed over in one call; more take several calls.
const SUBMIT_MAX: u32 = 256;
/// Offset of `len` in a submission, which the kernel wants as the number of buffers.
const SQE_LEN_OFFSET: usize = 24;
/// Buffers of an entry: header and payload.
const ENTRY_IOVECS: u32 = 2;

type Io = IoUring<squeue::Entry128, cqueue::Entry>;

/// Number of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryId(u32);

struct Entry {
    buffers: Buffers,
    queue: u16,
    commit_id: u64,
    unique: u64,
}

#[derive(Clone, Copy, Default)]
struct Queue {
    entries: usize,
    /// Of them, with a request that is not answered.
    taken: usize,
}

/// The ring of a connection. Its thread makes all calls.
pub(crate) struct Ring {
    io: RefCell<Io>,
    wake: OwnedFd,
    /// Something is to be committed although no turn is under way.
    pub(crate) dirty: Notify,
    in_turn: Cell<bool>,
    device: Rc<Device>,
    payload_size: usize,
    queues: RefCell<Vec<Queue>>,
    entries: RefCell<Vec<Entry>>,
    /// Dropped after `io`, which closes the ring.
    slabs: RefCell<Vec<Slab>>,
}

/// A request that a turn brought.
pub(crate) struct Brought {
    pub(crate) entry: EntryId,
    pub(crate) queue: u16,
}

/// What a turn brought.
#[derive(Default)]
pub(crate) struct Turn {
    pub(crate) requests: Vec<Brought>,
    /// The mount is gone.
    pub(crate) gone: bool,
}

/// Whether this process may use rings as this module does.
pub(crate) fn probe() -> io::Result<()> {
    build(8).map(|_| ())
}

fn build(entries: u32) -> io::Result<Io> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all();
    builder.build(entries)
}

/// Processors that there can ever be: the kernel has a queue for each.
fn processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_of(text.trim())
        .ok_or_else(|| io::Error::other(format!("'{}' is not a list of processors", text.trim())))
}

/// How many numbers a list such as `0-3,8` names.
fn count_of(list: &str) -> Option<usize> {
    list.split(',').try_fold(0_usize, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)? + 1)
    })
}

impl Ring {
    /// A ring for a negotiated connection, with entries for every queue on their way to the kernel.
    /// To be called on the thread that serves.
    pub(crate) fn start(device: &Rc<Device>, payload_size: usize) -> io::Result<Ring> {
        let queues = processors()?;
        let io = build(SUBMIT_MAX)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        io.submitter().register_eventfd(std::os::fd::AsRawFd::as_raw_fd(&wake))?;
        let ring = Ring {
            io: RefCell::new(io),
            wake,
            dirty: Notify::new(),
            in_turn: Cell::new(false),
            device: device.clone(),
            payload_size,
            queues: RefCell::new(vec![Queue::default(); queues]),
            entries: RefCell::default(),
            slabs: RefCell::default(),
        };
        for queue in 0..queues {
            ring.grow(u16::try_from(queue).map_err(io::Error::other)?)?;
        }
        Ok(ring)
    }

    /// Readable when a turn is worth while; edge by edge, it is never read.
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Registers more entries for a queue.
    fn grow(&self, queue: u16) -> io::Result<()> {
        let slab = Slab::new(QUEUE_STEP, self.payload_size)?;
        for index in 0..QUEUE_STEP {
            let buffers = slab.entry(index);
            let id = {
                let mut entries = self.entries.borrow_mut();
                entries.push(Entry { buffers, queue, commit_id: 0, unique: 0 });
                EntryId(u32::try_from(entries.len() - 1).map_err(io::Error::other)?)
            };
            let iovecs = buffers.iovecs();
            let command = self.command(abi::URING_CMD_REGISTER, 0, queue, id, Some(&iovecs));
            self.push(&command)?;
            // The kernel reads the iovecs while it takes the command.
            self.enter()?;
        }
        self.slabs.borrow_mut().push(slab);
        self.queues.borrow_mut()[usize::from(queue)].entries += QUEUE_STEP;
        Ok(())
    }

    fn command(
        &self,
        code: u32,
        commit_id: u64,
        queue: u16,
        id: EntryId,
        iovecs: Option<&[libc::iovec; 2]>,
    ) -> squeue::Entry128 {
        let request = abi::UringCmdReq { flags: 0, commit_id, qid: queue, padding: [0; 6] };
        let mut area = [0; 80];
        area[..request.as_bytes().len()].copy_from_slice(request.as_bytes());
        let fd = uring::Fd(std::os::fd::AsRawFd::as_raw_fd(&*self.device));
        let addr = iovecs.map(|iovecs| iovecs.as_ptr() as u64);
        let mut entry = opcode::UringCmd80::new(fd, code).cmd(area).addr(addr).build();
        if iovecs.is_some() {
            const { assert!(size_of::<squeue::Entry128>() == 128) };
            // SAFETY: the entry is the kernel's submission, 128 bytes, and `len` is a u32 at this
            // offset of it; the crate has no setter for it.
            unsafe {
                (&raw mut entry).cast::<u8>().add(SQE_LEN_OFFSET).cast::<u32>().write(ENTRY_IOVECS)
            };
        }
        entry.user_data(u64::from(id.0))
    }

    fn push(&self, command: &squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: a command names an open descriptor and an entry whose memory lives as long as
            // the ring.
            if unsafe { self.io.borrow_mut().submission().push(command) }.is_ok() {
                return Ok(());
            }
            self.enter()?;
        }
    }

    /// Hands commands over and lets the kernel finish what it has for us.
    fn enter(&self) -> io::Result<()> {
        const GETEVENTS: u32 = 1;
        let mut ring = self.io.borrow_mut();
        let count = u32::try_from(ring.submission().len()).map_err(io::Error::other)?;
        loop {
            // SAFETY: no argument is passed; the commands' memory lives as long as the ring.
            match unsafe { ring.submitter().enter::<libc::sigset_t>(count, 0, GETEVENTS, None) } {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Completions must be taken first; the caller does that and comes again.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// No wakeups until [`Ring::rest`]: turns will be taken.
    pub(crate) fn attend(&self) {
        self.io.borrow_mut().completion().disable_eventfd();
        self.in_turn.set(true);
    }

    /// Wakeups again. `false`: something has come meanwhile, and a turn is due.
    pub(crate) fn rest(&self) -> io::Result<bool> {
        self.io.borrow_mut().completion().enable_eventfd();
        // The kernel marks its work before it looks at the switch; this is the other order.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        // The mark alone says nothing: the kernel queues work, then marks it, and a call between
        // the two has done the work and leaves a mark that no later call takes away. So the work is
        // done now, and what comes after it wakes us.
        if self.io.borrow_mut().submission().taskrun() {
            self.enter()?;
        }
        let mut ring = self.io.borrow_mut();
        let idle = ring.submission().is_empty() && ring.completion().is_empty();
        self.in_turn.set(!idle);
        if !idle {
            ring.completion().disable_eventfd();
        }
        Ok(idle)
    }

    /// Commits what was answered and takes what has come. Does nothing where there is nothing to
    /// do.
    pub(crate) fn turn(&self, turn: &mut Turn) -> io::Result<()> {
        turn.requests.clear();
        let due = {
            let mut ring = self.io.borrow_mut();
            let submission = ring.submission();
            submission.taskrun() || !submission.is_empty() || submission.cq_overflow()
        };
        if due {
            self.enter()?;
        }
        self.collect(turn)?;
        self.keep_spare(turn)
    }

    fn collect(&self, turn: &mut Turn) -> io::Result<()> {
        let mut ring = self.io.borrow_mut();
        let (mut entries, mut queues) = (self.entries.borrow_mut(), self.queues.borrow_mut());
        for completion in ring.completion() {
            let id = EntryId(u32::try_from(completion.user_data()).map_err(io::Error::other)?);
            let entry =
                entries.get_mut(id.0 as usize).expect("the kernel gives back what it was given");
            let queue = &mut queues[usize::from(entry.queue)];
            match -completion.result() {
                0 => {
                    queue.taken += 1;
                    turn.requests.push(Brought { entry: id, queue: entry.queue });
                }
                libc::ENOTCONN | libc::ECONNABORTED | libc::ENODEV | libc::ECANCELED => {
                    turn.gone = true
                }
                errno => {
                    // The entry is lost; the kernel answers its request itself, and uses the device
                    // where it was registering.
                    let error = io::Error::from_raw_os_error(errno);
                    tracing::error!(%error, queue = entry.queue, "the kernel refused a ring entry");
                    queue.entries -= 1;
                }
            }
        }
        Ok(())
    }

    fn keep_spare(&self, turn: &Turn) -> io::Result<()> {
        if turn.gone {
            return Ok(());
        }
        for brought in &turn.requests {
            let Queue { entries, taken } = self.queues.borrow()[usize::from(brought.queue)];
            if entries - taken < QUEUE_SPARE && entries + QUEUE_STEP <= QUEUE_ENTRIES_MAX {
                self.grow(brought.queue)?;
            }
        }
        Ok(())
    }

    /// The message of a request that a turn brought. `None`: malformed; it is to be refused.
    pub(crate) fn message(&self, id: EntryId, pool: &Pool) -> Option<Bytes> {
        let mut entries = self.entries.borrow_mut();
        let entry = &mut entries[id.0 as usize];
        let Some(arrived) = entry.buffers.join() else {
            (entry.commit_id, entry.unique) = entry.buffers.ids();
            return None;
        };
        (entry.commit_id, entry.unique) = (arrived.commit_id, arrived.unique);
        Some(pool.copied(entry.buffers.message(&arrived)))
    }

    /// Answers the request of an entry. It is committed in the turn under way, or in the next.
    pub(crate) fn reply(&self, id: EntryId, reply: &Reply) {
        let (commit_id, queue) = {
            let entries = self.entries.borrow();
            let entry = &entries[id.0 as usize];
            let (error, payload) = match reply.as_ref().map(|body| entry.buffers.put(body)) {
                Ok(Some(payload)) => (0, payload),
                Ok(None) => {
                    tracing::error!(
                        unique = entry.unique,
                        "an answer is longer than the kernel allows"
                    );
                    (-Errno::EIO.raw(), 0)
                }
                Err(errno) => (-errno.raw(), 0),
            };
            entry.buffers.seal(entry.unique, error, payload);
            (entry.commit_id, entry.queue)
        };
        self.queues.borrow_mut()[usize::from(queue)].taken -= 1;
        let command = self.command(abi::URING_CMD_COMMIT_AND_FETCH, commit_id, queue, id, None);
        if let Err(error) = self.push(&command) {
            tracing::error!(%error, "an answer could not be committed");
        }
        if !self.in_turn.get() {
            self.dirty.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(count_of("0"), Some(1));
        assert_eq!(count_of("0-1"), Some(2));
        assert_eq!(count_of("0-3,8,10-11"), Some(7));
        for text in ["", "x", "3-1", "0-"] {
            assert_eq!(count_of(text), None, "{text}");
        }
    }
}

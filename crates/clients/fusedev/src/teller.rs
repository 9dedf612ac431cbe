//! Threads that notify the kernel about names and pages. Such a notification may wait for a
//! directory's lock, or for READs of the pages.
//!
//! ```text
//!  executor --jobs--> a teller (its own descriptors: only a clone of the device)
//!     ^                  | may wait, and cannot be killed meanwhile
//!     +----- relay <-----+ outcomes
//! ```
//! - A thread that waits in the kernel keeps the descriptors of its process open. The kernel ends
//!   the requests that hold the lock only when the descriptor that they were read from is closed.
//!   So the process could not end. Therefore a teller shares no descriptors with the process.
//! - Its own descriptor keeps a request waiting that was not read. If the caller of such a request
//!   holds the lock, the guard ([`crate::guard`]) ends the connection.
//! - Waking the executor needs one of those descriptors, so another thread does it.

use std::cell::Cell;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tokio::sync::oneshot;
use zerocopy::IntoBytes;

use crate::abi;
use crate::device::Device;

/// Tellers of one mount: so many directories may be locked at a time before other names wait.
const TELLERS_MAX: usize = 16;

/// What became of each name of a job.
pub(crate) type Outcomes = Vec<io::Result<()>>;

/// What the kernel is to forget.
pub(crate) enum Told {
    /// A name in the directory with this node id.
    Name(u64, Vec<u8>),
    /// For how long such a name holds.
    Time(u64, Vec<u8>),
    /// All pages of a node.
    Pages(u64),
}

struct Job {
    names: Vec<Told>,
    done: oneshot::Sender<Outcomes>,
}

type Queue = Arc<Mutex<mpsc::Receiver<Job>>>;
type Relay = mpsc::Sender<(oneshot::Sender<Outcomes>, Outcomes)>;

/// Ends with its threads, once they wait no more.
pub(crate) struct Tellers {
    /// Nothing is read from it. Open for as long as a teller may begin.
    device: Device,
    jobs: mpsc::Sender<Job>,
    queue: Queue,
    relay: Relay,
    /// Jobs that are not done.
    pending: Arc<AtomicUsize>,
    tellers: Cell<usize>,
}

impl Tellers {
    /// `device`: a clone that is not used for anything else.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn new(device: Device) -> io::Result<Tellers> {
        let (jobs, queue) = mpsc::channel();
        let (relay, relayed) = mpsc::channel::<(oneshot::Sender<Outcomes>, Outcomes)>();
        std::thread::Builder::new().name("fuse relay".to_owned()).spawn(move || {
            for (done, outcomes) in relayed {
                let _ = done.send(outcomes); // whoever asked may have gone
            }
        })?;
        let queue = Arc::new(Mutex::new(queue));
        let (pending, tellers) = (Arc::default(), Cell::new(0));
        Ok(Tellers { device, jobs, queue, relay, pending, tellers })
    }

    /// Tells the kernel to forget these, in this order; also where nobody awaits the outcome.
    pub(crate) fn tell(&self, names: Vec<Told>) -> oneshot::Receiver<Outcomes> {
        let (done, outcomes) = oneshot::channel();
        let pending = self.pending.fetch_add(1, Ordering::Relaxed) + 1;
        let tellers = self.tellers.get();
        if pending > tellers && tellers < TELLERS_MAX {
            match self.start() {
                Ok(()) => self.tellers.set(tellers + 1),
                Err(error) => tracing::warn!(%error, "no thread to notify the kernel of names"),
            }
        }
        let _ = self.jobs.send(Job { names, done }); // the queue is ours
        outcomes
    }

    fn start(&self) -> io::Result<()> {
        let (queue, relay, pending) =
            (self.queue.clone(), self.relay.clone(), self.pending.clone());
        let (fd, (begun, has_begun)) = (self.device.as_raw_fd(), mpsc::channel());
        std::thread::Builder::new().name("fuse teller".to_owned()).spawn(move || {
            let alone = leave_descriptors(fd);
            let is_alone = alone.is_ok();
            let _ = begun.send(alone);
            if is_alone {
                work(fd, &queue, &relay, &pending);
            }
        })?;
        has_begun.recv().map_err(io::Error::other)?
    }
}

/// This thread has no descriptor any more but one.
fn leave_descriptors(but: RawFd) -> io::Result<()> {
    let but = u32::try_from(but).map_err(io::Error::other)?;
    let close = |first: u32, last: u32, flags: u32| {
        // SAFETY: the call has no pointers. It closes descriptors of a table that it makes for this
        // thread alone, and nothing that runs on this thread has any but `but`.
        match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    close(but + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    if but > 0 { close(0, but - 1, libc::CLOSE_RANGE_UNSHARE) } else { Ok(()) }
}

fn work(fd: RawFd, queue: &Queue, relay: &Relay, pending: &AtomicUsize) {
    // SAFETY: the descriptor stays open in this thread's own table until the thread ends, and is
    // not closed by this.
    let device = ManuallyDrop::new(Device { fd: unsafe { OwnedFd::from_raw_fd(fd) } });
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { names, done }) = job else { return };
        let outcomes = names.iter().map(|told| forget(&device, told)).collect();
        pending.fetch_sub(1, Ordering::Relaxed);
        let _ = relay.send((done, outcomes)); // the mount may be gone
    }
}

fn forget(device: &Device, told: &Told) -> io::Result<()> {
    let (parent, name, flags) = match told {
        Told::Name(parent, name) => (*parent, name, 0),
        Told::Time(parent, name) => (*parent, name, abi::EXPIRE_ONLY),
        Told::Pages(ino) => {
            let out = abi::NotifyInvalInodeOut { ino: *ino, off: 0, len: 0 };
            return device.notify(abi::NOTIFY_INVAL_INODE, &[out.as_bytes()]);
        }
    };
    let namelen = u32::try_from(name.len()).map_err(io::Error::other)?;
    let out = abi::NotifyInvalEntryOut { parent, namelen, flags };
    device.notify(abi::NOTIFY_INVAL_ENTRY, &[out.as_bytes(), name, b"\0"])
}

//! A mounted connection: negotiation, one reading loop per descriptor, notifications, the end.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_lite::future::or;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::sync::oneshot::{self, error::TryRecvError};
use types::Errno;
use zerocopy::IntoBytes;

use crate::abi::{self, cap};
use crate::device::{Device, Got};
use crate::guard::Guard;
use crate::init::{InitInfo, PAGES_DEFAULT};
use crate::mount::{self, Channel, MountOptions, Place};
use crate::notifier::Notifier;
use crate::op::{DecodeError, Op, decode};
use crate::origin::Origin;
use crate::pool::Pool;
use crate::readahead;
use crate::reply::Body;
use crate::request::{Interruptible, Replier, Request};
use crate::uring::{self, Affinity, Follow, Ring, Turn};

/// A boxed future of one thread.
pub type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Requests taken from one descriptor before other tasks get their turn.
const BATCH_MAX: usize = 32;
/// Room in a request buffer besides the data of a write.
const HEADER_ROOM: usize = 4_096;
/// How long the kernel may take for its first message.
const INIT_WAIT_S: i64 = 10;

/// What serves the requests.
pub trait Handler: 'static {
    /// Answers `request` through its replier, now or after awaits. Polled at once, on the thread
    /// that read it.
    fn handle(self: Rc<Self>, request: Request) -> LocalFuture;

    /// The kernel has dropped `nlookup` references to a node. Nothing to answer.
    fn forget(&self, nodeid: u64, nlookup: u64);
}

/// A mount, from [`Connection::mount`] until it is unmounted.
pub struct Connection {
    devices: Vec<Rc<Device>>,
    place: Place,
    info: InitInfo,
    flights: Rc<Interruptible>,
    mounted: Cell<bool>,
    stop: Rc<Stop>,
    _guard: Option<Guard>,
}

/// Tells the readers to leave although the mount lives.
#[derive(Default)]
struct Stop {
    told: Cell<bool>,
    notify: Notify,
}

impl Stop {
    async fn wait(&self) {
        while !self.told.get() {
            self.notify.notified().await;
        }
    }
}

impl Connection {
    /// Mounts and negotiates. Requests wait in the kernel until [`Connection::serve`] runs.
    ///
    /// # Errors
    /// The mount was refused, or the kernel's protocol is not one we speak.
    pub fn mount(options: &MountOptions) -> io::Result<Connection> {
        // Made absolute first: a daemon may change its directory.
        let mountpoint = std::path::absolute(&options.mountpoint)?;
        let mut options = MountOptions { mountpoint: mountpoint.clone(), ..options.clone() };
        options.want &= !cap::OVER_IO_URING;
        if options.transport != Channel::Classic {
            match uring::probe() {
                Ok(()) => options.want |= cap::OVER_IO_URING,
                Err(error) if options.transport == Channel::Uring => return Err(error),
                Err(error) => {
                    tracing::info!(%error, "no io_uring: requests come through /dev/fuse")
                }
            }
        }
        let device = mount::mount(&options)?;
        match Connection::start(device, &options) {
            Ok(connection) => Ok(connection),
            Err(error) => {
                let _ = mount::unmount_detached(&mountpoint);
                Err(error)
            }
        }
    }

    fn start(device: Device, options: &MountOptions) -> io::Result<Connection> {
        let info = negotiate(&device, options)?;
        if options.transport == Channel::Uring && info.transport() != Channel::Uring {
            let text = "the kernel offers no FUSE over io_uring (/sys/module/fuse/parameters/enable_uring)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let mut devices = vec![Rc::new(device)];
        while devices.len() < options.clones {
            devices.push(Rc::new(devices[0].clone_of()?));
        }
        readahead::set(options);
        Ok(Connection {
            devices,
            place: Place::of(&options.mountpoint),
            info,
            flights: Rc::default(),
            mounted: Cell::new(true),
            stop: Rc::default(),
            _guard: Guard::of(options, info),
        })
    }

    #[must_use]
    pub fn info(&self) -> InitInfo {
        self.info
    }

    /// Where it is mounted.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        self.place.dir()
    }

    /// Sends notifications to the kernel.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier::of_device(&self.devices[0], self.info)
    }

    /// Serves until the mount is gone. Needs a tokio runtime with I/O and a `LocalSet`.
    ///
    /// # Errors
    /// The device failed in a way that is no unmount.
    pub async fn serve(&self, handler: Rc<dyn Handler>) -> io::Result<()> {
        let buffer_size = (self.info.max_write as usize + HEADER_ROOM).max(abi::MIN_READ_BUFFER);
        let pool = Pool::new(buffer_size);
        let taker = |device: &Rc<Device>| Taker {
            device: device.clone(),
            handler: handler.clone(),
            flights: self.flights.clone(),
            pool: pool.clone(),
            stop: self.stop.clone(),
        };
        let mut takers: Vec<_> = self
            .devices
            .iter()
            .map(|device| tokio::task::spawn_local(taker(device).read()))
            .collect();
        if self.info.transport() == Channel::Uring {
            let ring = Rc::new(Ring::start(&self.devices[0], self.info.payload_size())?);
            takers.push(tokio::task::spawn_local(taker(&self.devices[0]).turns(ring)));
        }
        let mut outcome = Ok(());
        for taker in takers {
            outcome = outcome.and(taker.await.map_err(io::Error::other).flatten());
        }
        self.ended();
        outcome
    }

    /// Completes when no request is being worked on.
    pub async fn drained(&self) {
        loop {
            let notified = self.flights.drained.notified();
            if self.flights.count() == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Takes the mount out of the tree; [`Connection::serve`] ends when its last user has gone.
    /// Needs [`Connection::serve`] to go on meanwhile: the kernel may wait for requests.
    ///
    /// # Errors
    /// It could not be unmounted, or another mount is at its place.
    pub async fn unmount(&self) -> io::Result<()> {
        match self.begin_unmount() {
            Some(done) => done.await.unwrap_or_else(|_| Err(io::Error::other("no answer"))),
            None => Ok(()),
        }
    }

    /// The same at the end of a process, without serving: waits a moment at most.
    pub fn unmount_now(&self) {
        let Some(mut done) = self.begin_unmount() else { return };
        let start = std::time::Instant::now();
        while start.elapsed() < UNMOUNT_NOW_WAIT
            && matches!(done.try_recv(), Err(TryRecvError::Empty))
        {
            std::thread::sleep(UNMOUNT_NOW_LOOK);
        }
    }

    fn begin_unmount(&self) -> Option<oneshot::Receiver<Result<(), io::Error>>> {
        self.mounted.replace(false).then(|| self.place.unmount_aside())
    }

    /// Ends [`Connection::serve`] although the mount is still in use. Calls on the mount fail with
    /// ENOTCONN once the connection is dropped.
    pub fn abort(&self) {
        self.stop.told.set(true);
        self.stop.notify.notify_waiters();
    }

    fn ended(&self) {
        self.mounted.set(false);
    }
}

/// What an unmount at the end of a process has: a kernel that waits longer waits for requests that
/// nothing serves any more, and ends them when the device is closed.
const UNMOUNT_NOW_WAIT: std::time::Duration = std::time::Duration::from_secs(1);
const UNMOUNT_NOW_LOOK: std::time::Duration = std::time::Duration::from_millis(1);

impl Drop for Connection {
    fn drop(&mut self) {
        self.unmount_now();
        self.ended();
    }
}

/// Takes requests from one descriptor, or from the ring.
struct Taker {
    device: Rc<Device>,
    handler: Rc<dyn Handler>,
    flights: Rc<Interruptible>,
    pool: Pool,
    stop: Rc<Stop>,
}

impl Taker {
    /// Whether something is ready, `None` where the connection stops.
    async fn ready<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let stopped = async {
            self.stop.wait().await;
            None
        };
        or(stopped, async { Some(wait.await) }).await
    }

    /// The loop of a descriptor.
    async fn read(self) -> io::Result<()> {
        // A mount that ends shows itself as an error condition, not as something to read.
        let interest = Interest::READABLE | Interest::ERROR;
        let poller = watch(&self.device.fd, interest)?;
        let origin = Origin::Device(self.device.clone());
        let mut buffer = self.pool.take();
        loop {
            let Some(ready) = self.ready(poller.ready(interest)).await else { return Ok(()) };
            let mut ready = ready?;
            let mut batch = 0;
            loop {
                match self.device.read(&mut buffer)? {
                    Got::Message(len) => {
                        self.dispatch(&origin, self.pool.message(&mut buffer, len))
                    }
                    Got::Empty => {
                        ready.clear_ready();
                        break;
                    }
                    Got::Gone => return Ok(()),
                }
                batch += 1;
                if batch == BATCH_MAX {
                    // Still readable; what the handlers started gets its turn first.
                    break;
                }
            }
            drop(ready);
            if batch == BATCH_MAX {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The loop of the ring.
    async fn turns(self, ring: Rc<Ring>) -> io::Result<()> {
        let poller = watch(&ring.wake_fd(), Interest::READABLE)?;
        let (affinity, mut follow) = (Affinity::current(), Follow::default());
        let mut turn = Turn::default();
        loop {
            ring.attend();
            loop {
                ring.turn(&mut turn)?;
                if turn.gone {
                    return Ok(());
                }
                if turn.requests.is_empty() {
                    break;
                }
                let to = follow.turn(
                    turn.requests.iter().map(|brought| brought.queue),
                    self.flights.count() != 0,
                );
                if let Some(affinity) = &affinity {
                    affinity.apply(&to);
                }
                for brought in &turn.requests {
                    let origin = Origin::Ring(ring.clone(), brought.entry);
                    match ring.message(brought.entry, &self.pool) {
                        Some(message) => self.dispatch(&origin, message),
                        None => origin.refuse(),
                    }
                }
                if turn.requests.len() >= BATCH_MAX {
                    tokio::task::yield_now().await;
                }
            }
            if !ring.rest()? {
                tokio::task::yield_now().await; // what the others do may be what this waits for
                continue;
            }
            let readable = async { poller.readable().await.map(|mut guard| guard.clear_ready()) };
            let dirty = async {
                ring.dirty.notified().await;
                Ok(())
            };
            let woken = or(readable, dirty);
            let Some(woken) = self.ready(woken).await else { return Ok(()) };
            woken?;
        }
    }

    /// Decodes a message and sees to it that it is answered.
    fn dispatch(&self, origin: &Origin, message: Bytes) {
        let decoded = decode(&message);
        drop(message); // so that the data of a write has one owner, which may keep it as it is
        let (header, op) = match decoded {
            Ok(decoded) => decoded,
            Err(error) => {
                tracing::error!(%error, "the kernel sent something that is not a request");
                match error {
                    DecodeError::Arguments { header, .. } => {
                        origin.reply(header.unique, &Err(Errno::EIO))
                    }
                    DecodeError::Length { .. } => origin.refuse(),
                }
                return;
            }
        };
        match op {
            Op::Forget { forgets } => {
                forgets.iter().for_each(|one| self.handler.forget(one.nodeid, one.nlookup));
                origin.give_back();
            }
            Op::Interrupt { unique } => {
                self.flights.interrupt(unique);
                origin.give_back();
            }
            Op::Destroy => origin.reply(header.unique, &Ok(Body::Empty)),
            Op::Init { .. } => origin.reply(header.unique, &Err(Errno::EIO)),
            op => {
                let replier = Replier::new(origin.clone(), self.flights.clone(), header.unique);
                let slot = replier.slot.clone();
                let mut task = self.handler.clone().handle(Request { header, op, replier });
                // Most requests either finish here or have sent what they ask others; those go on
                // as a task.
                if task.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending {
                    self.flights.waits(header.unique, slot);
                    tokio::task::spawn_local(task);
                }
            }
        }
    }
}

/// Readiness of a descriptor that stays open.
fn watch(fd: &impl AsFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    let watched = rustix::io::fcntl_dupfd_cloexec(fd, 3)?;
    // SAFETY: the poller owns this descriptor, nobody else can close it, and it stays open until
    // the poller goes.
    Ok(unsafe { AsyncFd::register_with_interest(watched, interest) }?)
}

/// Waits for INIT and answers it.
fn negotiate(device: &Device, options: &MountOptions) -> io::Result<InitInfo> {
    let mut buffer = vec![0; options.max_write as usize + HEADER_ROOM + abi::MIN_READ_BUFFER];
    loop {
        let limit = Timespec { tv_sec: INIT_WAIT_S, tv_nsec: 0 };
        if poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&limit))? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel sent no INIT"));
        }
        let len = match device.read(&mut buffer)? {
            Got::Message(len) => len,
            Got::Empty => continue,
            Got::Gone => return Err(io::Error::other("unmounted before INIT")),
        };
        let (header, op) =
            decode(&Bytes::copy_from_slice(&buffer[..len])).map_err(io::Error::other)?;
        let Op::Init { args, flags2 } = op else {
            return Err(io::Error::other(format!("operation {} came before INIT", header.opcode)));
        };
        if args.major > abi::KERNEL_VERSION {
            // It will ask again with our major version.
            let out = abi::InitOut { major: abi::KERNEL_VERSION, ..Default::default() };
            device.reply(header.unique, &Ok(Body::Data(Bytes::copy_from_slice(out.as_bytes()))));
            continue;
        }
        if args.major < abi::KERNEL_VERSION || args.minor < abi::KERNEL_MINOR_MIN {
            device.reply(header.unique, &Err(Errno::EPROTO));
            let text = format!(
                "kernel speaks FUSE {}.{}, 7.{} is needed",
                args.major,
                args.minor,
                abi::KERNEL_MINOR_MIN
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let (out, info) = answer_init(args, flags2, options);
        device.reply(header.unique, &Ok(Body::Data(Bytes::copy_from_slice(out.as_bytes()))));
        tracing::debug!(?info, "FUSE connection");
        return Ok(info);
    }
}

/// The decision of INIT: what the kernel has, less what is masked, of what is wanted.
fn answer_init(args: abi::InitIn, flags2: u32, options: &MountOptions) -> (abi::InitOut, InitInfo) {
    let mut offered = u64::from(args.flags);
    if offered & cap::INIT_EXT != 0 {
        offered |= u64::from(flags2) << 32;
    }
    offered &= !options.mask;
    if offered & cap::INIT_EXT == 0 {
        offered &= u64::from(u32::MAX);
    }
    let mut granted = offered & options.want;
    if granted >> 32 != 0 {
        granted |= cap::INIT_EXT;
    }
    let page = u32::try_from(rustix::param::page_size()).expect("a page is small");
    let pages = if granted & cap::MAX_PAGES != 0 {
        (options.max_write / page).clamp(1, 65_535)
    } else {
        PAGES_DEFAULT
    };
    let max_write = options.max_write.max(page).min(pages * page);
    let minor = args.minor.min(abi::KERNEL_MINOR_MAX);
    let max_readahead = args.max_readahead.min(options.max_readahead);
    let out = abi::InitOut {
        major: abi::KERNEL_VERSION,
        minor,
        max_readahead,
        flags: granted as u32,
        max_background: options.max_background,
        congestion_threshold: options.max_background / 4 * 3,
        max_write,
        time_gran: 1,
        max_pages: if granted & cap::MAX_PAGES != 0 { pages as u16 } else { 0 },
        flags2: (granted >> 32) as u32,
        ..Default::default()
    };
    (out, InitInfo { minor, capabilities: granted, max_write, max_readahead })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(flags: u64) -> (abi::InitIn, u32) {
        (
            abi::InitIn { major: 7, minor: 40, max_readahead: 1 << 17, flags: flags as u32 },
            (flags >> 32) as u32,
        )
    }

    fn negotiated(offered: u64, want: u64, mask: u64) -> InitInfo {
        let (args, flags2) = kernel(offered);
        let options = MountOptions { want, mask, ..MountOptions::new("/mnt") };
        answer_init(args, flags2, &options).1
    }

    #[test]
    fn only_what_both_want_and_nobody_masks_is_in_force() {
        let info =
            negotiated(cap::POSIX_LOCKS | cap::BIG_WRITES, cap::POSIX_LOCKS | cap::FLOCK_LOCKS, 0);
        assert_eq!(info.capabilities, cap::POSIX_LOCKS);
        assert_eq!(negotiated(u64::MAX, cap::POSIX_LOCKS, cap::POSIX_LOCKS).capabilities, 0);
    }

    #[test]
    fn upper_capabilities_need_the_extension() {
        let mmap = cap::DIRECT_IO_ALLOW_MMAP;
        assert!(negotiated(mmap | cap::INIT_EXT, mmap, 0).has(mmap | cap::INIT_EXT));
        assert_eq!(negotiated(mmap, mmap, 0).capabilities, 0);
        assert_eq!(negotiated(mmap | cap::INIT_EXT, mmap, cap::INIT_EXT).capabilities, 0);
    }

    #[test]
    fn without_max_pages_writes_are_at_most_32_pages() {
        assert_eq!(negotiated(cap::MAX_PAGES, cap::MAX_PAGES, 0).max_write, 1 << 20);
        assert_eq!(negotiated(cap::MAX_PAGES, cap::MAX_PAGES, cap::MAX_PAGES).max_write, 32 * 4096);
    }
}

//! Notifications to the kernel about cached state that is no longer valid.
//!
//! A notification about a name waits for the directory's lock. A request that waits for this
//! process may hold that lock. Therefore separate threads send these notifications
//! ([`crate::teller`]). If the process is killed, its descriptors are closed and its guard
//! ([`crate::guard`]) ends the connection, which ends the requests. So the thread gets the lock and
//! ends too. With the ring, requests do not end while any descriptor is open. Therefore no
//! notification about a name is sent with the ring.

use std::io;
use std::rc::Rc;

use env::LocalFuture;
use zerocopy::IntoBytes;

use crate::abi;
use crate::device::Device;
use crate::init::InitInfo;
use crate::teller::{Tellers, Told};

/// Whoever plays the kernel.
pub trait Hears {
    /// Attributes of `nodeid`, and its pages in `[offset, offset + len)` where `offset` is not
    /// negative.
    ///
    /// # Errors
    /// NotFound: it does not know the inode.
    fn inval_inode(&self, nodeid: u64, offset: i64, len: i64) -> io::Result<()>;

    /// All pages of `nodeid`, and its attributes.
    ///
    /// # Errors
    /// NotFound: it does not know the inode.
    fn drop_pages(&self, nodeid: u64) -> LocalFuture<'static, io::Result<()>> {
        Box::pin(std::future::ready(self.inval_inode(nodeid, 0, 0)))
    }

    /// All names that it keeps of a directory, and the directory's attributes.
    ///
    /// # Errors
    /// NotFound: it does not know the inode.
    fn drop_names(&self, nodeid: u64) -> LocalFuture<'static, io::Result<()>> {
        self.drop_pages(nodeid)
    }

    /// A name in `parent`.
    ///
    /// # Errors
    /// NotFound: it does not know the name.
    fn inval_entry(&self, parent: u64, name: &[u8]) -> LocalFuture<'static, io::Result<()>>;

    /// The time of a name in `parent`. The name stays, and is looked up when it is used next.
    ///
    /// # Errors
    /// NotFound: it does not know the name.
    fn expire_entry(&self, parent: u64, name: &[u8]) -> LocalFuture<'static, io::Result<()>> {
        self.inval_entry(parent, name)
    }

    /// All names.
    ///
    /// # Errors
    /// It does not know the notification.
    fn inc_epoch(&self) -> io::Result<()>;

    /// Whether it knows that.
    fn has_epochs(&self) -> bool;
}

/// A name in a directory, which is a node id.
pub type Name = (u64, Rc<[u8]>);

/// Tells the kernel what it must not believe any more.
#[derive(Clone)]
pub struct Notifier {
    to: Kernel,
}

#[derive(Clone)]
enum Kernel {
    Device(Rc<Aside>),
    Direct(Rc<dyn Hears>),
}

struct Aside {
    device: Rc<Device>,
    /// `None`: names cannot be told.
    tellers: Option<Tellers>,
    /// Of pages, which do not wait behind names.
    droppers: Option<Tellers>,
    /// Of kept names, which do not wait behind pages: those of a file wait for an OST.
    listers: Option<Tellers>,
    /// Names may be told all at once.
    epoch: bool,
}

impl Notifier {
    /// Tells `kernel`, which is no device.
    #[must_use]
    pub fn direct(kernel: Rc<dyn Hears>) -> Notifier {
        Notifier { to: Kernel::Direct(kernel) }
    }

    pub(crate) fn of_device(device: &Rc<Device>, info: InitInfo) -> Notifier {
        let threads = || match info.tells_names() {
            true => device.clone_of().and_then(Tellers::new),
            false => Err(io::Error::other("requests come over io_uring")),
        };
        let all = threads().and_then(|tellers| Ok((tellers, (threads()?, threads()?))));
        let all = all
            .inspect_err(
                |error| tracing::info!(%error, "the kernel keeps names until their time is over"),
            )
            .ok();
        let (tellers, rest) = all.unzip();
        let (droppers, listers) = rest.unzip();
        let epoch = info.minor >= abi::EPOCH_MINOR;
        let aside = Aside { device: device.clone(), tellers, droppers, listers, epoch };
        Notifier { to: Kernel::Device(Rc::new(aside)) }
    }

    /// Whether [`Notifier::inval_entries`] and [`Notifier::drop_pages`] do anything.
    #[must_use]
    pub fn tells_names(&self) -> bool {
        match &self.to {
            Kernel::Direct(_) => true,
            Kernel::Device(aside) => aside.tellers.is_some(),
        }
    }

    /// Whether [`Notifier::inc_epoch`] does anything.
    #[must_use]
    pub fn has_epochs(&self) -> bool {
        match &self.to {
            Kernel::Direct(kernel) => kernel.has_epochs(),
            Kernel::Device(aside) => aside.epoch,
        }
    }

    /// Attributes of a node, and its pages in `[offset, offset + len)` where `offset` is not
    /// negative. Without a range it waits for nothing.
    ///
    /// # Errors
    /// ENOENT: the kernel does not know it, which is as good.
    pub fn inval_inode(&self, nodeid: u64, offset: i64, len: i64) -> io::Result<()> {
        match &self.to {
            Kernel::Direct(kernel) => kernel.inval_inode(nodeid, offset, len),
            Kernel::Device(aside) => {
                let out = abi::NotifyInvalInodeOut { ino: nodeid, off: offset, len };
                aside.device.notify(abi::NOTIFY_INVAL_INODE, &[out.as_bytes()])
            }
        }
    }

    /// Names, one after the other. Waits for whoever has one of their directories locked; dropped,
    /// the notifications go on. Returns the outcome of each, ENOENT where the kernel does not know
    /// the name.
    pub fn inval_entries(&self, names: &[Name]) -> LocalFuture<'static, Vec<io::Result<()>>> {
        self.tell(names, false)
    }

    /// Ends the time of names, as [`Notifier::inval_entries`] removes them. What is mounted on one
    /// stays. An answer about a name that is on its way gives it time again.
    pub fn expire_entries(&self, names: &[Name]) -> LocalFuture<'static, Vec<io::Result<()>>> {
        self.tell(names, true)
    }

    fn tell(
        &self,
        names: &[Name],
        expires_only: bool,
    ) -> LocalFuture<'static, Vec<io::Result<()>>> {
        if names.is_empty() {
            return Box::pin(std::future::ready(Vec::new())); // without a thread
        }
        match &self.to {
            Kernel::Direct(kernel) => {
                let (kernel, names) = (kernel.clone(), names.to_vec());
                Box::pin(async move {
                    let mut outcomes = Vec::new();
                    for (parent, name) in names {
                        let heard = match expires_only {
                            true => kernel.expire_entry(parent, &name),
                            false => kernel.inval_entry(parent, &name),
                        };
                        outcomes.push(heard.await);
                    }
                    outcomes
                })
            }
            Kernel::Device(aside) => {
                let count = names.len();
                let told: fn(u64, Vec<u8>) -> Told =
                    if expires_only { Told::Time } else { Told::Name };
                let name = |(parent, name): &Name| told(*parent, name.to_vec());
                let names = names.iter().map(name).collect();
                let told = aside.tellers.as_ref().map(|tellers| tellers.tell(names));
                Box::pin(async move {
                    let kind = io::ErrorKind::Unsupported;
                    let failed = || (0..count).map(|_| Err(kind.into())).collect();
                    let Some(told) = told else { return failed() };
                    told.await.unwrap_or_else(|_ended| failed())
                })
            }
        }
    }

    /// Drops all pages of a node, with its attributes. Waits for READs of the pages that are under
    /// way; dropped, the notification goes on.
    pub fn drop_pages(&self, nodeid: u64) -> LocalFuture<'static, io::Result<()>> {
        match &self.to {
            Kernel::Direct(kernel) => kernel.drop_pages(nodeid),
            Kernel::Device(aside) => drop_all(aside.droppers.as_ref(), nodeid),
        }
    }

    /// Drops all names that are kept of a directory, with its attributes. Waits for callers that
    /// are reading them; dropped, the notification goes on.
    pub fn drop_names(&self, nodeid: u64) -> LocalFuture<'static, io::Result<()>> {
        match &self.to {
            Kernel::Direct(kernel) => kernel.drop_names(nodeid),
            Kernel::Device(aside) => drop_all(aside.listers.as_ref(), nodeid),
        }
    }

    /// All names at once: each is looked up again when it is used next. What is mounted on one of
    /// them is taken away then, so this is a last resort.
    ///
    /// # Errors
    /// The kernel does not know the notification (before Linux 6.16).
    pub fn inc_epoch(&self) -> io::Result<()> {
        match &self.to {
            Kernel::Direct(kernel) => kernel.inc_epoch(),
            Kernel::Device(aside) if aside.epoch => aside.device.notify(abi::NOTIFY_INC_EPOCH, &[]),
            Kernel::Device(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Drops what the page cache has of a node, through threads of these.
fn drop_all(through: Option<&Tellers>, nodeid: u64) -> LocalFuture<'static, io::Result<()>> {
    let told = through.map(|tellers| tellers.tell(vec![Told::Pages(nodeid)]));
    Box::pin(async move {
        let failed = || io::Error::from(io::ErrorKind::Unsupported);
        let mut outcomes = told.ok_or_else(failed)?.await.map_err(|_ended| failed())?;
        outcomes.pop().unwrap_or_else(|| Err(failed()))
    })
}

/// A kernel that hears everything and does nothing, for tests.
pub struct Deaf;

impl Hears for Deaf {
    fn inval_inode(&self, _: u64, _: i64, _: i64) -> io::Result<()> {
        Ok(())
    }

    fn inval_entry(&self, _: u64, _: &[u8]) -> LocalFuture<'static, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn inc_epoch(&self) -> io::Result<()> {
        Ok(())
    }

    fn has_epochs(&self) -> bool {
        true
    }
}

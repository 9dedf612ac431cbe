//! A mount, from its options to its end.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use client::Client;
use env::{Env, Task};
use fusedev::abi::cap;
use fusedev::{Connection, Handler, InitInfo, MountOptions, Notifier};
use tokio::sync::Notify;

use crate::Bugs;
use crate::fs::{Fs, Manner, Setup};
use crate::jobid::Jobids;
use crate::limits::{REQUESTS_WAIT, USERS_WAIT};
use crate::recall::Told;
use crate::tally::Tally;

/// The usual mount: the options of the kernel that this client needs.
#[must_use]
pub fn options(mountpoint: impl Into<PathBuf>) -> MountOptions {
    let want = cap::ASYNC_READ
        | cap::BIG_WRITES
        | cap::MAX_PAGES
        | cap::PARALLEL_DIROPS
        | cap::ASYNC_DIO
        | cap::ATOMIC_O_TRUNC
        | cap::POSIX_LOCKS
        | cap::FLOCK_LOCKS
        | cap::DONT_MASK
        | cap::POSIX_ACL
        | cap::EXPORT_SUPPORT
        | cap::HANDLE_KILLPRIV_V2
        | cap::DIRECT_IO_ALLOW_MMAP
        // Attributes go along with each name, under the leases of the listing.
        | cap::DO_READDIRPLUS
        // What a symbolic link points to never changes.
        | cap::CACHE_SYMLINKS
        // For the mounts whose files go through the page cache: pages of a file that changed
        // are dropped.
        | cap::AUTO_INVAL_DATA;
    MountOptions { allow_other: true, suid_dev: true, want, ..MountOptions::new(mountpoint) }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot mount at {}", mountpoint.display())]
pub struct MountError {
    mountpoint: PathBuf,
    source: io::Error,
}

/// A mount that is being served. Dropped, it is taken away.
pub struct Mounted {
    env: Env,
    connection: Rc<Connection>,
    fs: Rc<Fs>,
    ended: Rc<Ended>,
    _serving: Task,
}

/// How serving ended, once it has.
#[derive(Default)]
struct Ended {
    outcome: RefCell<Option<Result<(), io::ErrorKind>>>,
    notify: Notify,
}

impl Ended {
    async fn wait(&self) -> io::Result<()> {
        loop {
            let notified = self.notify.notified();
            if let Some(outcome) = *self.outcome.borrow() {
                return outcome.map_err(io::Error::from);
            }
            notified.await;
        }
    }
}

/// What serves a mount, for whoever plays the kernel and hears `notifier`.
#[must_use]
pub fn handler(
    env: &Env,
    client: Client,
    info: InitInfo,
    notifier: Notifier,
    bugs: Bugs,
) -> Rc<dyn Handler> {
    let setup = Setup { jobids: Rc::default(), manner: Manner::default(), notifier, bugs };
    served(env, client, info, setup)
}

/// The handler, which hears what is called back.
fn served(env: &Env, client: Client, info: InitInfo, setup: Setup) -> Rc<Fs> {
    let fs = Rc::new(Fs::new(env, client, info, setup));
    fs.client.serve_kernel(Rc::new(Told(Rc::downgrade(&fs))));
    fs
}

/// Mounts, and serves from now on. The caller keeps the client and unmounts it after
/// [`Mounted::unmount`]. `jobids` labels callers; it may be changed while mounted.
///
/// # Errors
/// The kernel refused, or `fusermount3` did.
pub async fn mount(
    env: &Env,
    client: Client,
    options: &MountOptions,
    jobids: Rc<Jobids>,
    manner: Manner,
) -> Result<Mounted, MountError> {
    let failed = |source| MountError { mountpoint: options.mountpoint.clone(), source };
    let connection = Rc::new(Connection::mount(options).map_err(failed)?);
    let (notifier, bugs) = (connection.notifier(), Bugs::default());
    let setup = Setup { jobids, manner, notifier, bugs };
    let fs = served(env, client, connection.info(), setup);
    let ended = Rc::<Ended>::default();
    let serving = {
        let (connection, fs, ended) = (connection.clone(), fs.clone(), ended.clone());
        env.spawn("fuse", async move {
            let outcome = connection.serve(fs).await;
            if let Err(error) = &outcome {
                tracing::error!(%error, "the FUSE device failed");
            }
            ended.outcome.replace(Some(outcome.map_err(|error| error.kind())));
            ended.notify.notify_waiters();
        })
    };
    Ok(Mounted { env: env.clone(), connection, fs, ended, _serving: serving })
}

impl Mounted {
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        self.connection.mountpoint()
    }

    /// What was negotiated with the kernel.
    #[must_use]
    pub fn info(&self) -> InitInfo {
        self.connection.info()
    }

    /// The kernel's requests so far.
    #[must_use]
    pub fn tally(&self) -> Rc<Tally> {
        self.fs.tally.clone()
    }

    /// Completes when the mount has been taken away, by whomever. [`Mounted::finish`] follows.
    ///
    /// # Errors
    /// The device failed.
    pub async fn run_until_unmounted(&self) -> io::Result<()> {
        self.ended.wait().await
    }

    /// Takes the mount away. Those who still use it have a moment to finish; then they get
    /// ENOTCONN.
    ///
    /// # Errors
    /// It could not be unmounted, or the device failed.
    pub async fn unmount(&self) -> io::Result<()> {
        self.connection.unmount().await?;
        if self.env.timeout(USERS_WAIT, self.ended.wait()).await.is_none() {
            self.connection.abort();
        }
        self.run_until_unmounted().await
    }

    /// After the mount has ended: waits for requests under way, within a bound, and closes what
    /// nobody will close any more. None of that was acknowledged, so nothing is lost where a server
    /// is away for longer.
    pub async fn finish(&self) {
        let _ = self.env.timeout(REQUESTS_WAIT, self.connection.drained()).await;
        let files = self.fs.files.borrow_mut().drain();
        self.fs.dirs.borrow_mut().drain();
        let closing = async {
            for file in files {
                if let Err(error) = file.close().await {
                    tracing::warn!(%error, "close at unmount");
                }
            }
        };
        let _ = self.env.timeout(REQUESTS_WAIT, closing).await;
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.connection.unmount_now();
        self.connection.abort();
    }
}

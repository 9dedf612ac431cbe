//! O_APPEND: takes the file's EX lock, asks for the size, writes, unlocks. Therefore appends of
//! several clients never overlap. Data that arrives in pieces is appended piece by piece under one
//! lock.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use bytes::Bytes;
use futures_lite::future::or;
use tokio::sync::{Notify, oneshot};
use types::Errno;

use super::keep::{Pause, flush, keep_append, learn_end};
use super::newer::Tries;
use super::write::write_tried;
use crate::handle::Open;
use crate::locks::FileLock;
use crate::{Error, Result};

/// The end of a file, held against appends and truncates by anybody else until
/// [`Appending::finish`], or until this is dropped.
pub struct Appending {
    open: Rc<Open>,
    lock: RefCell<Option<FileLock>>,
    end: u64,
    /// Of the file when this began.
    shape: Cell<u64>,
    /// Where the last of its pieces ends.
    reached: Cell<u64>,
    /// Nothing is kept meanwhile: under the lock there is nothing to send.
    pause: RefCell<Option<Pause>>,
    given_up: Rc<GivenUp>,
}

/// Whether the caller is gone.
#[derive(Default)]
struct GivenUp {
    is: Cell<bool>,
    told: Notify,
}

impl GivenUp {
    async fn wait(&self) {
        let told = self.told.notified();
        if !self.is.get() {
            told.await;
        }
    }
}

impl Appending {
    pub(crate) async fn begin(open: &Rc<Open>) -> Result<Appending> {
        let pause = Pause::begin(&open.inode);
        flush(&open.inner, &open.inode).await; // which may need the lock
        let lock = match open.inner.config.bugs.skip_append_lock() {
            true => None,
            false => Some(open.inner.lock_file(&open.ctx, open.inode.fid).await?),
        };
        let mut appending = Appending {
            open: open.clone(),
            lock: RefCell::new(lock),
            end: 0,
            shape: Cell::new(0),
            reached: Cell::new(0),
            pause: RefCell::new(Some(pause)),
            given_up: Rc::default(),
        };
        match appending.find_end().await {
            Ok(end) => appending.end = end,
            Err(error) => return appending.finish().await.and(Err(error)),
        }
        Ok(appending)
    }

    /// Where the file ended when the lock was granted.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Where the file ends now: a write that appends nothing may have made it longer.
    ///
    /// # Errors
    /// EIO where nobody knows.
    pub async fn find_end(&self) -> Result<u64> {
        let open = &self.open;
        open.inode.keeping.has_moved();
        self.shape.set(open.inode.keeping.shape());
        let attr = open.attr.borrow().to_owned();
        let mut tries = Tries::locked();
        loop {
            let Some(layout) = open.newest_layout().await? else { return Ok(0) };
            match open.inner.current_size(&open.ctx, &attr, &open.inode, &layout).await {
                Err(error) => tries.again(open, &layout, error).await?,
                done => return done,
            }
        }
    }

    /// The file has bytes up to there.
    fn reaches(&self, at: u64) {
        self.reached.set(self.reached.get().max(at));
    }

    /// The caller was killed: pieces under way are taken back unless their OST has begun them. They
    /// return when that is known.
    pub fn give_up(&self) {
        self.given_up.is.set(true);
        self.given_up.told.notify_waiters();
    }

    /// Writes a piece at `offset`, which is the caller's to choose. Runs to its end once begun.
    ///
    /// # Errors
    /// Those of [`crate::File::write`].
    pub async fn write(&self, flags: u32, offset: u64, data: Bytes) -> Result<usize> {
        let open = self.open.clone();
        let (inner, given_up) = (open.inner.clone(), self.given_up.clone());
        let piece = async move {
            write_unless(given_up.wait(), &open, write_locked(&open, flags, offset, data)).await
        };
        let written = inner.run("append", piece).await;
        if let Ok(written) = &written {
            self.reaches(offset + *written as u64);
        }
        written
    }

    /// Lets others append. No piece may be under way.
    ///
    /// # Errors
    /// The lock could not be given back; it goes with the session.
    pub async fn finish(&self) -> Result<()> {
        drop(self.pause.borrow_mut().take());
        if self.reached.get() > 0 {
            // the file ends there now, if nothing else has changed it
            learn_end(&self.open, self.shape.get(), self.reached.get());
        }
        let lock = self.lock.borrow_mut().take();
        match lock {
            Some(lock) => lock.unlock().await,
            None => Ok(()),
        }
    }
}

/// Writes `data` behind the last byte of the file. Runs to its end once begun; when the other end
/// of `here` is gone, the write is taken back.
pub(crate) async fn append(
    open: &Rc<Open>,
    flags: u32,
    data: Bytes,
    here: oneshot::Receiver<()>,
) -> Result<usize> {
    if keep_append(open, flags, &data).await? {
        return Ok(data.len());
    }
    let appending = Appending::begin(open).await?;
    let gone = async { drop(here.await) };
    let written = write_unless(gone, open, write_locked(open, flags, appending.end, data)).await;
    if let Ok(written) = &written {
        appending.reaches(appending.end + *written as u64);
    }
    appending.finish().await.and(written)
}

/// The lock may have been lost since it was granted.
async fn write_locked(open: &Rc<Open>, flags: u32, offset: u64, data: Bytes) -> Result<usize> {
    open.inner.under_lease(open.inode.fid, open.claim).await?;
    open.check_lost("append")?;
    write_tried(open, flags, offset, data, Tries::locked()).await
}

/// Takes the write back when its caller is gone, and returns only when its fate is known: until
/// then nobody else may have the lock.
async fn write_unless(
    gone: impl Future<Output = ()>,
    open: &Open,
    write: impl Future<Output = Result<usize>>,
) -> Result<usize> {
    let written = async { Some(write.await) };
    let gone = async {
        gone.await;
        None
    };
    let written = or(written, gone).await; // the write is dropped before its fate is awaited
    match written {
        Some(done) => done,
        None => {
            open.inode.under_way.settled_under_lock().await;
            Err(Error::local(Errno::EINTR, "append").about(open.inode.fid))
        }
    }
}

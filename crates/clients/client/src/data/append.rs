//! O_APPEND: the file's EX lock, the size, the write, unlock. So appends of several clients never
//! overlap. What comes in pieces is put behind the end piece by piece, under one lock.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use layout::Layout;

use super::{layout_for_write, write};
use crate::Result;
use crate::file::Open;
use crate::locks::FileLock;

/// The end of a file, held against appends and truncates by anybody else until
/// [`Appending::finish`], or until this is dropped.
pub struct Appending {
    open: Rc<Open>,
    layout: Rc<Layout>,
    lock: RefCell<Option<FileLock>>,
    end: u64,
}

impl Appending {
    pub(crate) async fn begin(open: &Rc<Open>) -> Result<Appending> {
        let layout = layout_for_write(open).await?;
        let lock = match open.inner.config.bugs.skip_append_lock() {
            true => None,
            false => Some(open.inner.lock_file(&open.ctx, open.inode.fid).await?),
        };
        let mut appending =
            Appending { open: open.clone(), layout, lock: RefCell::new(lock), end: 0 };
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
        let attr = open.attr.borrow().to_owned();
        open.inner.current_size(&open.ctx, &attr, &open.inode, &self.layout).await
    }

    /// Writes a piece at `offset`, which is the caller's to choose. Runs to its end once begun.
    ///
    /// # Errors
    /// Those of [`crate::File::write`].
    pub async fn write(&self, flags: u32, offset: u64, data: Bytes) -> Result<usize> {
        let open = self.open.clone();
        let inner = open.inner.clone();
        inner.run("append", async move { write_locked(&open, flags, offset, data).await }).await
    }

    /// Lets others append. No piece may be under way.
    ///
    /// # Errors
    /// The lock could not be given back; it goes with the session.
    pub async fn finish(&self) -> Result<()> {
        let lock = self.lock.borrow_mut().take();
        match lock {
            Some(lock) => lock.unlock().await,
            None => Ok(()),
        }
    }
}

/// Writes `data` behind the last byte of the file. Runs to its end once begun.
pub(crate) async fn append(open: &Rc<Open>, flags: u32, data: Bytes) -> Result<usize> {
    let appending = Appending::begin(open).await?;
    let written = write_locked(open, flags, appending.end, data).await;
    appending.finish().await.and(written)
}

/// The lock may have been lost since it was granted.
async fn write_locked(open: &Rc<Open>, flags: u32, offset: u64, data: Bytes) -> Result<usize> {
    open.check_lost("append")?;
    write(open, flags, offset, data).await
}

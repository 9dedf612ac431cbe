//! An open file.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use tokio::sync::oneshot;
use types::{Errno, Fid};
use wire::Attr;

use crate::client::Inner;
use crate::data::Leaves;
use crate::handle::Open;
use crate::lost::{self};
use crate::{Appending, Error, Result, SeekFor, data, flags};

/// An open file. Cheap to clone; all clones are one handle. Close it once and await that: only then
/// is the size known to everybody without asking the OSTs. A handle dropped unclosed is closed in
/// the background.
#[derive(Clone)]
pub struct File(pub(crate) Rc<Open>);

impl File {
    /// FID of the open file.
    #[must_use]
    pub fn fid(&self) -> Fid {
        self.0.inode.fid
    }

    /// Whether the open made the file.
    #[must_use]
    pub fn was_made(&self) -> bool {
        self.0.made
    }

    /// Attributes as the open gave them, the size resolved if the open had to know it.
    #[must_use]
    pub fn attr(&self) -> Attr {
        *self.0.attr.borrow()
    }

    /// Mode of the file as it was at most [`crate::limits::MODE_AGE`] ago, or as it was seen last
    /// where its MDT does not answer.
    pub async fn fresh_mode(&self) -> u32 {
        data::look_at_mode(&self.0).await;
        self.0.inode.mode()
    }

    /// O_* flags of the open.
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.0.flags
    }

    /// Up to `len` bytes from `offset`; fewer only at the end of the file. Holes read as zeros.
    ///
    /// # Errors
    /// EBADF if it is not open for reading; EIO from a target, which the error names.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.read_pieces(offset, len).await.map(data::joined)
    }

    /// The same bytes in the pieces in which they came, none of them empty: nothing is copied.
    ///
    /// # Errors
    /// Those of [`File::read`].
    pub async fn read_pieces(&self, offset: u64, len: usize) -> Result<Vec<Bytes>> {
        self.0.check(flags::can_read(self.0.flags), "read")?;
        data::read(&self.0, offset, len).await
    }

    /// Writes `data` at `offset`, with O_APPEND at the end of the file, wherever that is by then;
    /// says how many bytes were written: all, unless an OST was full after the first of them. When
    /// it returns, every reader at any client sees them; they are durable after [`File::fsync`], or
    /// at once with O_SYNC and O_DSYNC.
    ///
    /// # Errors
    /// EBADF if it is not open for writing; ENOSPC, EFBIG; EIO from a target, which the error
    /// names.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<usize> {
        self.write_as(self.0.flags, offset, data).await
    }

    /// The same with O_APPEND, O_DSYNC and O_DIRECT as this one write has them: `F_SETFL` and
    /// `RWF_DSYNC` change what `open` said.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub async fn write_as(&self, flags: u32, offset: u64, data: Bytes) -> Result<usize> {
        self.0.check(flags::can_write(self.0.flags), "write")?;
        if data.is_empty() {
            return Ok(0);
        }
        self.0.settle_attrs().await;
        let (open, inner) = (self.0.clone(), &self.0.inner);
        if flags & flags::O_APPEND != 0 {
            // An append whose caller is interrupted runs to its end under the lock: released too
            // early, another client's append would land on the same bytes.
            let (_here, gone) = oneshot::channel();
            return inner
                .run("append", async move { data::append(&open, flags, data, gone).await })
                .await;
        }
        if inner.config.bugs.resend_abandoned() {
            let write = async move { data::write(&open, flags, offset, data).await };
            return inner.run("write", write).await;
        }
        data::write(&open, flags, offset, data).await
    }

    /// Appends `data`, if that can be acknowledged at once. Nothing: the caller begins an append.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub async fn append_now(&self, flags: u32, data: &Bytes) -> Result<Option<usize>> {
        self.0.check(flags::can_write(self.0.flags), "append")?;
        self.0.settle_attrs().await;
        let is_kept = !data.is_empty() && data::keep_append(&self.0, flags, data).await?;
        Ok(is_kept.then_some(data.len()))
    }

    /// Begins an append that comes in pieces. Given up, it holds nothing.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub async fn begin_append(&self) -> Result<Appending> {
        self.0.check(flags::can_write(self.0.flags), "write")?;
        self.0.settle_attrs().await;
        let open = self.0.clone();
        self.0.inner.run("append", async move { Appending::begin(&open).await }).await
    }

    /// Allocates, punches or zeroes `length` bytes from `offset`; `mode` as of `fallocate(2)`: 0,
    /// KEEP_SIZE 1, PUNCH_HOLE 2 (with KEEP_SIZE), ZERO_RANGE 16.
    ///
    /// # Errors
    /// EBADF if it is not open for writing; EOPNOTSUPP for other modes; ENOSPC, EFBIG; EINVAL for
    /// no bytes.
    pub async fn fallocate(&self, mode: u32, offset: u64, length: u64) -> Result<()> {
        self.0.check(flags::can_write(self.0.flags), "fallocate")?;
        self.0.settle_attrs().await;
        let open = self.0.clone();
        self.0
            .inner
            .run("fallocate", async move { data::allocate(&open, mode, offset, length).await })
            .await
    }

    /// First data or hole at or behind `offset`.
    ///
    /// # Errors
    /// ENXIO if `offset` is at or behind the end of the file, or no data follows.
    pub async fn seek(&self, what: SeekFor, offset: u64) -> Result<u64> {
        self.0.check(true, "seek")?;
        data::seek(&self.0, what, offset).await
    }

    /// Copies up to `len` bytes from `offset` to `to_offset` of `to`; says how many, fewer at the
    /// end of this file and at the bound of one call.
    ///
    /// # Errors
    /// Those of read and write; EBADF also where `to` appends.
    pub async fn copy_range(
        &self,
        offset: u64,
        to: &File,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.0.check(flags::can_read(self.0.flags), "copy")?;
        to.0.check(flags::can_write(to.0.flags) && to.0.flags & flags::O_APPEND == 0, "copy")?;
        to.0.settle_attrs().await;
        data::copy(&self.0, offset, &to.0, to_offset, len).await
    }

    /// Data and the name's record are durable when it returns, whatever fails afterwards.
    /// `datasync` is the same: the size of a file written now depends on the MDT's record that it
    /// is open.
    ///
    /// # Errors
    /// EIO from a target, which the error names; EIO once where work of the file that was
    /// acknowledged is lost, which the log names.
    pub async fn fsync(&self, _datasync: bool) -> Result<()> {
        self.0.check(true, "fsync")?;
        data::fsync(&self.0).await
    }

    /// What a close of one of several descriptors of this handle returns. What is kept of the file
    /// begins to be sent, except bytes that may go with [`File::close`].
    ///
    /// # Errors
    /// EIO while [`File::fsync`] has to tell of lost work, or if the MDT evicted this client or
    /// refused to repeat the create of the file.
    pub fn flush(&self) -> Result<()> {
        self.0.check(true, "flush")?;
        data::begin_flush(&self.0);
        self.0.check_heard("flush")
    }

    /// Closes the handle; the last writer's close tells the MDT size, blocks and times. Closing
    /// twice does nothing.
    ///
    /// # Errors
    /// EIO if this client was evicted by the MDT meanwhile, if the MDT refused to repeat the create
    /// of the file, or while [`File::fsync`] has to tell of lost work.
    pub async fn close(&self) -> Result<()> {
        if self.0.closed.replace(true) {
            return Ok(());
        }
        if self.0.inner.rest(&self.0) {
            return self.0.check_heard("close");
        }
        let open = self.0.clone();
        let closing = flags::can_write(open.flags).then(|| Closing::begin(&open.inner));
        let close = async move {
            let _closing = closing;
            data::close(&open, Leaves::InTurn).await
        };
        self.0.inner.run("close", close).await
    }

    /// Whether the servers have all that was changed through this and other handles here.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        !self.0.inode.keeping.has_unsent() // of a void handle, the file may have another inode
    }
}

/// A close under way, for which an unmount waits.
struct Closing(Rc<Inner>);

impl Closing {
    fn begin(inner: &Rc<Inner>) -> Closing {
        inner.closing.set(inner.closing.get() + 1);
        Closing(inner.clone())
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.closing.set(self.0.closing.get() - 1);
    }
}

impl Open {
    /// Returns when the MDT knows the attributes that callers were told: what is written next is
    /// newer than a time that was set before.
    async fn settle_attrs(&self) {
        data::flush_attrs(&self.inner, &self.inode).await;
    }

    /// Refuses a handle that the MDT knows no more.
    pub(crate) fn check_lost(&self, stage: &'static str) -> Result<()> {
        if self.inode.is_lost() {
            return Err(Error::local(Errno::EIO, stage).about(self.inode.fid));
        }
        Ok(())
    }

    fn check(&self, allowed: bool, stage: &'static str) -> Result<()> {
        self.check_lost(stage)?;
        if allowed && !self.closed.get() {
            Ok(())
        } else {
            Err(Error::local(Errno::EBADF, stage).about(self.inode.fid))
        }
    }

    /// EIO while there is lost work that fsync has not told.
    pub(crate) fn check_heard(&self, stage: &'static str) -> Result<()> {
        let fid = self.inode.fid;
        lost::check(self.inner.losses.is_news(fid, &self.heard), fid, stage)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.closed.get() {
            return;
        }
        let open = Rc::new(Open {
            inner: self.inner.clone(),
            inode: self.inode.clone(),
            ctx: self.ctx.clone(),
            flags: self.flags,
            handle: self.handle,
            claim: self.claim,
            made: self.made,
            xid: self.xid,
            attr: self.attr.clone(),
            wrote: self.wrote.clone(),
            closed: Cell::new(true),
            heard: self.heard.clone(),
        });
        self.inner.env.spawn("close", async move {
            if let Err(error) = data::close(&open, Leaves::InTurn).await {
                tracing::warn!("closing a handle that was dropped: {error}");
            }
        });
    }
}

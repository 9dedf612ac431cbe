//! Open files and their page cache, as in `fs/fuse/file.c`. A file has one page.
//!
//! - A `read` through a cached handle asks for attributes that are no longer valid
//!   (AUTO_INVAL_DATA). Then it takes the page, or locks it and sends a READ.
//! - A notification about pages distrusts the attributes, then waits for the page's lock.
//! - An open without KEEP_CACHE drops the page. A direct write drops it before it is sent.
//! - The kernel also drops pages when it hears another size or time of a change. This model does
//!   not, because nothing may depend on it.

use std::rc::Rc;

use bytes::Bytes;
use fusedev::{Body, Op, abi};
use types::Errno;

use crate::cache::{Cache, Node};
use crate::walk::Trust;
use crate::{Kernel, Who};

/// An open file.
pub struct Open {
    node: Rc<Node>,
    fh: u64,
    flags: u32,
    is_direct: bool,
}

impl Open {
    /// Whether reads use the page cache.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        !self.is_direct
    }
}

impl Kernel {
    /// `open` of a file that is there.
    ///
    /// # Errors
    /// ENOENT, and what the handler answers.
    pub async fn open(&self, who: Who, path: &str, flags: u32) -> Result<Open, Errno> {
        let node = self.walk(who, path, Trust::Believed).await?;
        let args = abi::OpenIn { flags, ..Default::default() };
        let open = match self.ask(who, node.id, Op::Open(args)).await? {
            Body::Open(open) => open,
            other => panic!("a handle was due: {other:?}"),
        };
        let is_direct = open.open_flags & abi::FOPEN_DIRECT_IO != 0;
        if !is_direct && open.open_flags & abi::FOPEN_KEEP_CACHE == 0 {
            *self.page(who, &node).await.guard = None;
        }
        Ok(Open { node, fh: open.fh, flags, is_direct })
    }

    /// `read` of the whole file, which has at most `size` bytes.
    ///
    /// # Errors
    /// What the handler answers.
    pub async fn read(&self, who: Who, open: &Open, size: u32) -> Result<Bytes, Errno> {
        if open.is_direct {
            return self.fetch_page(who, open, size).await;
        }
        self.attr(who, &open.node).await?;
        let late = self.lateness();
        if late > types::Span::ZERO {
            self.0.env.sleep(late).await;
        }
        let mut page = self.page(who, &open.node).await;
        if let Some(bytes) = &*page.guard {
            return Ok(bytes.clone());
        }
        let bytes = self.fetch_page(who, open, size).await?;
        *page.guard = Some(bytes.clone());
        Ok(bytes)
    }

    async fn fetch_page(&self, who: Who, open: &Open, size: u32) -> Result<Bytes, Errno> {
        let args = abi::ReadIn { fh: open.fh, size, flags: open.flags, ..Default::default() };
        let bytes = match self.ask(who, open.node.id, Op::Read(args)).await? {
            Body::Pieces(pieces) => pieces.concat().into(),
            other => panic!("bytes were due: {other:?}"),
        };
        Ok(bytes)
    }

    /// `write` from the start of the file, through a handle that is direct.
    ///
    /// # Errors
    /// What the handler answers.
    pub async fn write(&self, who: Who, open: &Open, data: Bytes) -> Result<(), Errno> {
        assert!(open.is_direct, "the handler takes writes only directly");
        let _alone = self.alone(who, &open.node).await;
        *self.page(who, &open.node).await.guard = None;
        let size = u32::try_from(data.len()).expect("one request");
        let args = abi::WriteIn { fh: open.fh, size, flags: open.flags, ..Default::default() };
        match self.ask(who, open.node.id, Op::Write { args, data }).await? {
            Body::Write(out) if out.size == size => {}
            other => panic!("all bytes were to be written: {other:?}"),
        }
        Cache::distrust(&open.node);
        Ok(())
    }

    /// `close`.
    ///
    /// # Errors
    /// What the handler answers.
    pub async fn close(&self, who: Who, open: Open) -> Result<(), Errno> {
        let (fh, lock_owner) = (open.fh, 0);
        self.ask_nothing(who, open.node.id, Op::Flush { fh, lock_owner }).await?;
        let args = abi::ReleaseIn { fh, flags: open.flags, ..Default::default() };
        self.ask_nothing(who, open.node.id, Op::Release(args)).await
    }
}

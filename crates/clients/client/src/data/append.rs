//! O_APPEND: the file's EX lock, the size, the write, unlock. So appends of several clients never
//! overlap.

use std::rc::Rc;

use bytes::Bytes;

use super::{layout_for_write, write};
use crate::Result;
use crate::file::Open;

/// Writes `data` behind the last byte of the file. Runs to its end once begun.
pub(crate) async fn append(open: &Rc<Open>, flags: u32, data: Bytes) -> Result<usize> {
    let layout = layout_for_write(open).await?;
    let lock = match open.inner.config.bugs.skip_append_lock() {
        true => None,
        false => Some(open.inner.lock_file(&open.ctx, open.inode.fid).await?),
    };
    let attr = open.attr.borrow().to_owned();
    let written = match open.inner.current_size(&open.ctx, &attr, &open.inode, &layout).await {
        Ok(size) => write(open, flags, size, data).await,
        Err(error) => Err(error),
    };
    match lock {
        Some(lock) => lock.unlock().await.and(written),
        None => written,
    }
}

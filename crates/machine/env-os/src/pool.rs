//! Page-aligned buffers for bulk data, kept for the next transfer.
//!
//! A fresh megabyte costs 256 page faults, more than its way through a loopback socket. Alignment
//! lets an OST write what it received with `O_DIRECT` as it stands. Buffers may be dropped on any
//! thread; all share one pool, whose lock is taken twice per transfer.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::limits::POOL_BYTES_MAX;

/// Alignment of a pooled buffer: what `O_DIRECT` asks for on any disk.
pub const BUFFER_ALIGN: usize = 4_096;

/// Sizes are rounded up to a power of two of at least this, so that buffers fit again.
const SIZE_MIN: usize = 64 << 10;

struct Pool {
    free: Vec<Block>,
    bytes: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), bytes: 0 });

/// An owned allocation of `size` bytes, every one of them initialised.
struct Block {
    at: NonNull<u8>,
    size: usize,
}

// SAFETY: a block is the only owner of its memory, and bytes have no thread.
unsafe impl Send for Block {}
// SAFETY: shared access to a block only reads it.
unsafe impl Sync for Block {}

impl Block {
    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, BUFFER_ALIGN)
            .expect("sizes are bounded by a frame's, the alignment is a power of two")
    }

    fn new(size: usize) -> Block {
        assert!(size >= SIZE_MIN, "a block is never empty");
        let layout = Block::layout(size);
        // SAFETY: the layout's size is not zero (asserted above).
        let at = unsafe { alloc_zeroed(layout) };
        let at = NonNull::new(at).unwrap_or_else(|| handle_alloc_error(layout));
        Block { at, size }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `at` is valid for `size` bytes, initialised by `new`, and borrowed as long as
        // `self` is.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.size) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `self` is borrowed exclusively and is the only owner.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.size) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `at` came from `alloc_zeroed` with the layout of the same size and is not used
        // after this.
        unsafe { dealloc(self.at.as_ptr(), Block::layout(self.size)) }
    }
}

/// A buffer of `len` bytes that returns to the pool when it is dropped. Its content is whatever it
/// last held.
pub struct PooledBuf {
    block: Option<Block>, // taken by drop only
    len: usize,
}

/// A buffer of `len` bytes, from the pool where it has one.
#[must_use]
pub fn take_buffer(len: usize) -> PooledBuf {
    let size = len.next_power_of_two().max(SIZE_MIN);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let found = pool.free.iter().rposition(|block| block.size == size);
    let block = found.map(|index| {
        pool.bytes -= size;
        pool.free.swap_remove(index)
    });
    drop(pool);
    PooledBuf { block: Some(block.unwrap_or_else(|| Block::new(size))), len }
}

impl PooledBuf {
    /// Shared from now on; the last owner returns it to the pool.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Keeps the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Deref for PooledBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.block.as_ref().expect("only drop takes the block").bytes()[..self.len]
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut self.block.as_mut().expect("only drop takes the block").bytes_mut()[..len]
    }
}

impl AsRef<[u8]> for PooledBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        let block = self.block.take().expect("dropped once");
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.bytes + block.size <= POOL_BYTES_MAX {
            pool.bytes += block.size;
            pool.free.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_as_long_as_asked_for_and_come_back() {
        for len in [0, 1, 4_097, 1 << 20, (4 << 20) + 1] {
            let mut buffer = take_buffer(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % BUFFER_ALIGN, 0);
            buffer.fill(7);
            let shared = buffer.freeze();
            let part = shared.slice(..len.min(9));
            drop(shared);
            assert!(part.iter().all(|byte| *byte == 7));
        }
        assert!(POOL.lock().unwrap().bytes <= POOL_BYTES_MAX);
    }
}

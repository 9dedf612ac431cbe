//! Request buffers. A large buffer is lent out with the data of a write inside. It returns when the
//! last slice of it is dropped, on whichever thread that happens.

use bytes::Bytes;
use env::{Buffer, BufferPool};

/// Buffers kept for reuse: a write of 64 MiB in flight keeps its buffers, more than that is given
/// back to the allocator.
const FREE_MAX: usize = 64;
/// Messages of less than this part of a buffer are copied. Writes are kept until they are durable:
/// those of 32 KiB would each hold a mebibyte for a second, and new buffers have new pages, which
/// cost more to clear than the copy.
const LEND_FROM: usize = 8;

#[derive(Clone)]
pub(crate) struct Pool {
    buffers: BufferPool,
    size: usize,
}

impl Pool {
    pub(crate) fn new(size: usize) -> Pool {
        let kept_bytes = FREE_MAX * BufferPool::capacity_for(size);
        Pool { buffers: BufferPool::new(kept_bytes), size }
    }

    /// A buffer of the pool's size; its contents are what was there.
    pub(crate) fn take(&self) -> Buffer {
        let mut buffer = self.buffers.take(self.size);
        buffer.filled(self.size);
        buffer
    }

    /// The first `len` bytes as a message. Takes the buffer away where copying would cost more.
    pub(crate) fn message(&self, buffer: &mut Buffer, len: usize) -> Bytes {
        if self.is_small(len) {
            return Bytes::copy_from_slice(&buffer[..len]);
        }
        let mut lent = std::mem::replace(buffer, self.take());
        lent.truncate(len);
        lent.freeze()
    }

    /// A message that is copied, into a lent buffer where it is large: for bytes whose place is
    /// needed again at once.
    pub(crate) fn copied(&self, message: &[u8]) -> Bytes {
        if self.is_small(message.len()) || message.len() > self.size {
            return Bytes::copy_from_slice(message);
        }
        let mut buffer = self.buffers.take(self.size);
        buffer.extend(message);
        buffer.freeze()
    }

    fn is_small(&self, len: usize) -> bool {
        len < self.size / LEND_FROM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_message_holds_no_buffer() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take();
        let at = buffer.as_ptr();
        let messages: Vec<_> = (0..100).map(|_| pool.message(&mut buffer, 33 << 10)).collect();
        assert_eq!(buffer.as_ptr(), at, "it was not given away");
        let copies: Vec<_> = (0..100).map(|_| pool.copied(&messages[0])).collect();
        assert!(copies.iter().all(|copy| copy == &messages[0]));
        assert_eq!(pool.buffers.kept_bytes(), 0);
    }

    #[test]
    fn a_large_buffer_comes_back_when_its_last_slice_goes() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take();
        let at = buffer.as_ptr();
        let message = pool.message(&mut buffer, 1 << 19);
        let slice = message.slice(100..200);
        drop(message);
        assert_eq!(pool.buffers.kept_bytes(), 0);
        drop(slice);
        let again = pool.take();
        assert_eq!(again.as_ptr(), at);
    }
}

//! Request buffers: large ones are lent out with the data of a write inside and come back when the
//! last slice of it is dropped, on whichever thread that happens.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

/// Buffers kept for reuse: a write of 64 MiB in flight keeps its buffers, more than that is given
/// back to the allocator.
const FREE_MAX: usize = 64;
/// Messages of less than this part of a buffer are copied. Writes are kept until they are durable:
/// those of 32 KiB would each hold a mebibyte for a second, and new buffers have new pages, which
/// cost more to clear than the copy.
const LEND_FROM: usize = 8;

#[derive(Clone)]
pub(crate) struct Pool {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
    size: usize,
}

impl Pool {
    pub(crate) fn new(size: usize) -> Pool {
        Pool { free: Arc::default(), size }
    }

    /// A buffer of the pool's size; its contents are what was there.
    pub(crate) fn take(&self) -> Vec<u8> {
        let free = self.free.lock().expect("no holder of this lock panics").pop();
        free.unwrap_or_else(|| vec![0; self.size])
    }

    /// The first `len` bytes as a message. Takes the buffer away where copying would cost more.
    pub(crate) fn message(&self, buffer: &mut Vec<u8>, len: usize) -> Bytes {
        if self.is_small(len) {
            return Bytes::copy_from_slice(&buffer[..len]);
        }
        let lent = std::mem::replace(buffer, self.take());
        Bytes::from_owner(Lent { buffer: lent, len, pool: self.clone() })
    }

    /// A message that is copied, into a lent buffer where it is large: for bytes whose place is
    /// needed again at once.
    pub(crate) fn copied(&self, message: &[u8]) -> Bytes {
        if self.is_small(message.len()) || message.len() > self.size {
            return Bytes::copy_from_slice(message);
        }
        let mut buffer = self.take();
        buffer[..message.len()].copy_from_slice(message);
        Bytes::from_owner(Lent { buffer, len: message.len(), pool: self.clone() })
    }

    fn is_small(&self, len: usize) -> bool {
        len < self.size / LEND_FROM
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut free = self.free.lock().expect("no holder of this lock panics");
        if free.len() < FREE_MAX {
            free.push(buffer);
        }
    }
}

struct Lent {
    buffer: Vec<u8>,
    len: usize,
    pool: Pool,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.buffer));
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
        assert!(pool.free.lock().expect("here").is_empty());
    }

    #[test]
    fn a_large_buffer_comes_back_when_its_last_slice_goes() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take();
        let at = buffer.as_ptr();
        let message = pool.message(&mut buffer, 1 << 19);
        let slice = message.slice(100..200);
        drop(message);
        assert!(pool.free.lock().expect("here").is_empty());
        drop(slice);
        let again = pool.take();
        assert_eq!(again.as_ptr(), at);
    }
}

//! Page-aligned buffers, kept for the next transfer.
//!
//! `O_DIRECT` needs the alignment. Buffers are kept because a fresh megabyte costs 256 page faults,
//! more than its way through a loopback socket. A buffer may be dropped on any thread.
//!
//! Invariants
//! - Every byte of a buffer is initialised: memory comes zeroed, and a kept buffer has the bytes
//!   that its last user left. Neither is cleared again.
//! - A pool keeps at most the bytes that it was made for. A buffer that comes back beyond them
//!   replaces buffers of the size that takes most. So the sizes in use are the ones that are kept.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Alignment that every device takes for `O_DIRECT`: of address, offset and length.
pub const BUFFER_ALIGN: usize = 4_096;

/// Smallest capacity. Capacities are this, doubled, and steps between, so that buffers fit again.
const CAPACITY_MIN: usize = 64 << 10;

/// Capacities from one power of two to the next: a buffer has at most an eighth more than was asked
/// for. FUSE asks for a page more than a power of two.
const STEPS: usize = 8;

/// Lists of kept buffers: one for each capacity below 4 GiB.
const CLASSES: usize = 16 * STEPS;

const _: () = assert!((CAPACITY_MIN / STEPS).is_multiple_of(BUFFER_ALIGN));

#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; BUFFER_ALIGN]);

const _: () = assert!(align_of::<Page>() == BUFFER_ALIGN && size_of::<Page>() == BUFFER_ALIGN);

/// A vector, not a box: an I/O under way may have the address while its buffer moves.
type Pages = Vec<Page>;

struct Kept {
    lists: [Vec<Pages>; CLASSES],
    bytes: usize,
}

impl Kept {
    /// The list that holds most bytes.
    fn fullest(&self) -> usize {
        let bytes = |list: &Vec<Pages>| list.len() * list.last().map_or(0, Vec::len);
        let lists = self.lists.iter().enumerate();
        lists.max_by_key(|(_, list)| bytes(list)).map_or(0, |(index, _)| index)
    }
}

struct Shared {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

/// Gives buffers out and keeps those that come back; a cheap handle.
#[derive(Clone)]
pub struct BufferPool(Arc<Shared>);

/// Capacity of a buffer for `len` bytes, and its list, if there is one.
fn class(len: usize) -> (usize, Option<usize>) {
    let len = len.max(CAPACITY_MIN);
    let doubled = (len / CAPACITY_MIN).ilog2() as usize;
    let base = CAPACITY_MIN << doubled;
    let step = base / STEPS;
    let steps = (len - base).div_ceil(step);
    let list = doubled * STEPS + steps;
    (base + steps * step, (list < CLASSES).then_some(list))
}

impl BufferPool {
    /// Keeps at most `bytes_max` bytes for the next users.
    #[must_use]
    pub fn new(bytes_max: usize) -> BufferPool {
        let lists = [const { Vec::new() }; CLASSES];
        BufferPool(Arc::new(Shared { kept: Mutex::new(Kept { lists, bytes: 0 }), bytes_max }))
    }

    /// Capacity of a buffer for `len` bytes.
    #[must_use]
    pub fn capacity_for(len: usize) -> usize {
        class(len).0
    }

    /// A buffer with room for `capacity` bytes, of which none is filled.
    #[must_use]
    pub fn take(&self, capacity: usize) -> Buffer {
        let (bytes, list) = class(capacity);
        let kept = list.and_then(|list| {
            let mut kept = self.kept();
            let pages = kept.lists[list].pop()?;
            kept.bytes -= bytes;
            Some(pages)
        });
        let fresh = || {
            Page::new_vec_zeroed(bytes / BUFFER_ALIGN).expect("a size far below the address space")
        };
        Buffer { pages: kept.unwrap_or_else(fresh), len: 0, home: self.clone() }
    }

    /// Bytes of the buffers that are kept now.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept().bytes
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, pages: Pages) {
        let (bytes, list) = class(pages.len() * BUFFER_ALIGN);
        let Some(list) = list.filter(|_| bytes <= self.0.bytes_max) else { return };
        let mut freed = Vec::new(); // after the lock
        let mut kept = self.kept();
        while kept.bytes + bytes > self.0.bytes_max {
            let fullest = kept.fullest();
            if fullest == list {
                return;
            }
            freed.extend(kept.lists[fullest].pop());
            kept.bytes -= freed.last().map_or(0, |pages: &Pages| pages.len() * BUFFER_ALIGN);
        }
        kept.bytes += bytes;
        kept.lists[list].push(pages);
        drop(kept);
    }
}

/// An aligned buffer; goes back to its pool when it is dropped. Reads as the bytes that were
/// filled.
pub struct Buffer {
    pages: Pages, // empty only while it is dropped
    len: usize,   // bytes that were filled
    home: BufferPool,
}

impl Buffer {
    /// Bytes that fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pages.len() * BUFFER_ALIGN
    }

    /// Room behind the bytes that were filled. Its content is whatever it last held.
    #[must_use]
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[self.len..]
    }

    /// Counts the first `count` bytes of [`Buffer::spare`] as filled.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.capacity() - self.len, "nothing is written behind a buffer");
        self.len += count;
    }

    /// Appends `data`, which fits.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn extend(&mut self, data: &[u8]) {
        self.spare()[..data.len()].copy_from_slice(data);
        self.filled(data.len());
    }

    /// Keeps the first `len` bytes that were filled.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Shared from now on; the last owner returns it to the pool.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.pages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_holds_what_was_put_in_and_comes_back() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.take(5);
        buffer.extend(b"hello");
        let at = buffer.as_ptr() as usize;
        assert_eq!((&buffer[..], at % BUFFER_ALIGN), (&b"hello"[..], 0));
        assert_eq!(pool.kept_bytes(), 0);
        drop(buffer);
        assert_eq!(pool.kept_bytes(), 64 << 10);
        let mut again = pool.take(64 << 10);
        assert_eq!((again.spare().as_ptr() as usize, again.len(), pool.kept_bytes()), (at, 0, 0));
        assert_eq!(again.spare()[..5], *b"hello", "nothing is cleared");
    }

    #[test]
    fn a_capacity_is_at_most_an_eighth_more_than_was_asked_for() {
        let pool = BufferPool::new(0);
        let capacity = |bytes| pool.take(bytes).capacity();
        assert_eq!([0, 5, 64 << 10].map(capacity), [64 << 10; 3]);
        assert_eq!(
            [(64 << 10) + 1, 1 << 20, (1 << 20) + 4_096, 9 << 20].map(capacity),
            [72 << 10, 1 << 20, 1_152 << 10, 9 << 20]
        );
        for len in (1..40).map(|step| step * 77_777) {
            let (capacity, list) = class(len);
            assert!(capacity >= len && (len <= CAPACITY_MIN || capacity <= len + len / 8));
            assert_eq!(class(capacity), (capacity, list), "a buffer fits its list again");
        }
    }

    #[test]
    fn the_sizes_in_use_replace_those_that_were() {
        let pool = BufferPool::new(4 << 20);
        drop([1_usize; 4].map(|mib| pool.take(mib << 20)));
        assert_eq!(pool.kept_bytes(), 4 << 20);
        drop(pool.take(64 << 10));
        assert_eq!(pool.kept_bytes(), (3 << 20) + (64 << 10), "one of 1 MiB went");
        drop(pool.take(4 << 20));
        assert_eq!(pool.kept_bytes(), 4 << 20, "one large buffer is all that fits");
    }

    #[test]
    fn the_last_part_of_a_shared_buffer_brings_it_back_within_the_bound() {
        let pool = BufferPool::new(3 << 20);
        let shared: Vec<Bytes> = (0..5)
            .map(|fill| {
                let mut buffer = pool.take(1 << 20);
                buffer.extend(&[fill; 9_000]);
                buffer.freeze().slice(10..20)
            })
            .collect();
        for (fill, part) in (0_u8..).zip(&shared) {
            assert_eq!(part[..], [fill; 10]);
        }
        assert_eq!(pool.kept_bytes(), 0);
        drop(shared);
        assert_eq!(pool.kept_bytes(), 3 << 20);
    }

    #[test]
    #[should_panic(expected = "nothing is written behind a buffer")]
    fn more_than_fits_is_refused() {
        BufferPool::new(0).take(1).filled((64 << 10) + 1);
    }
}

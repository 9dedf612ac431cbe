//! Things at `u32` places, in chunks: growth copies nothing, a freed place is the next one taken.
//!
//! Invariants
//! - A vacant place is in the chain of vacant ones exactly once, or above `touched`.
//! - An empty slab keeps at most [`CHUNKS_IDLE`] chunks: it gives back one per visit, so that no visit is long.

use crate::limits::{CHUNK_BYTES, CHUNKS_IDLE, CHUNKS_LISTED};
use crate::prefetch::prefetch;

/// No place.
pub(crate) const NIL: u32 = u32::MAX;

/// What a slab can hold: a value that has a vacant form, with room for a link in it.
pub(crate) trait Vacant {
    /// The vacant form.
    fn vacant() -> Self;
    /// Where a vacant one keeps the next vacant place.
    fn link(&mut self) -> &mut u32;
}

pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    touched: u32, // places ever taken since the slab was last empty
    vacant: u32,
    len: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { chunks: Vec::new(), touched: 0, vacant: NIL, len: 0 }
    }
}

impl<T: Vacant> Slab<T> {
    /// Places of a chunk; a power of two.
    const CHUNK: usize = 1 << (CHUNK_BYTES / size_of::<T>()).ilog2();

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of memory it has taken.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.len() * Self::CHUNK * size_of::<T>() + self.chunks.capacity() * size_of::<Vec<T>>()
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let (place, slot) = self.claim();
        *slot = value;
        place
    }

    /// A place with something vacant in it, to be made what it shall be.
    #[inline]
    pub(crate) fn claim(&mut self) -> (u32, &mut T) {
        self.len += 1;
        if self.vacant == NIL {
            self.vacant = self.touch();
        }
        let place = self.vacant;
        let slot = &mut self.chunks[place as usize / Self::CHUNK][place as usize % Self::CHUNK];
        self.vacant = std::mem::replace(slot.link(), NIL);
        (place, slot)
    }

    /// One more vacant place, in no chain.
    fn touch(&mut self) -> u32 {
        let place = self.touched;
        assert!(place != NIL, "fewer than 2^32 - 1 things");
        self.touched += 1;
        let chunk = place as usize / Self::CHUNK;
        if chunk == self.chunks.len() {
            push_chunk(&mut self.chunks, Self::CHUNK);
        }
        let chunk = &mut self.chunks[chunk];
        match chunk.get_mut(place as usize % Self::CHUNK) {
            Some(slot) => *slot.link() = NIL,
            None => chunk.push(T::vacant()),
        }
        place
    }

    /// Takes out what is at `place`, which holds something.
    #[inline]
    pub(crate) fn remove(&mut self, place: u32) -> T {
        self.vacate(place, |slot| std::mem::replace(slot, T::vacant()))
    }

    /// What `take` takes from what is at `place`; it leaves the vacant form, as far as that matters to the owner of the slab.
    #[inline]
    pub(crate) fn vacate<V>(&mut self, place: u32, take: impl FnOnce(&mut T) -> V) -> V {
        let vacant = self.vacant;
        let slot = self.get_mut(place);
        let value = take(slot);
        *slot.link() = vacant;
        self.vacant = place;
        self.len -= 1;
        if self.len == 0 {
            self.rest();
        }
        value
    }

    /// Empty: every place is untouched again, and one chunk too many goes.
    fn rest(&mut self) {
        self.vacant = NIL;
        self.touched = 0;
        if self.chunks.len() > CHUNKS_IDLE {
            self.chunks.pop();
        }
    }

    #[inline]
    pub(crate) fn get(&self, place: u32) -> &T {
        &self.chunks[place as usize / Self::CHUNK][place as usize % Self::CHUNK]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> &mut T {
        &mut self.chunks[place as usize / Self::CHUNK][place as usize % Self::CHUNK]
    }

    /// All places with what is in them, vacant forms too.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0_u32..).zip(self.chunks.iter().flatten())
    }

    /// What is at `place` will be asked for soon.
    #[inline]
    pub(crate) fn prefetch(&self, place: u32) {
        if let Some(value) =
            self.chunks.get(place as usize / Self::CHUNK).and_then(|chunk| chunk.get(place as usize % Self::CHUNK))
        {
            prefetch(value);
        }
    }

    /// Whether it would give back memory if it were empty.
    pub(crate) fn is_large(&self) -> bool {
        self.chunks.len() > CHUNKS_IDLE
    }

    /// What is at `place`, if that place was ever taken.
    pub(crate) fn find(&self, place: u32) -> Option<&T> {
        self.chunks.get(place as usize / Self::CHUNK)?.get(place as usize % Self::CHUNK)
    }
}

/// Things at the places that a slab gives out, apart from what that keeps there: what is looked at more often stays together.
pub(crate) struct Beside<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Beside<T> {
    fn default() -> Beside<T> {
        Beside { chunks: Vec::new() }
    }
}

impl<T: Copy> Beside<T> {
    /// Places of a chunk; a power of two.
    const CHUNK: usize = 1 << (CHUNK_BYTES / size_of::<T>()).ilog2();

    /// Bytes of memory it has taken.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.len() * Self::CHUNK * size_of::<T>() + self.chunks.capacity() * size_of::<Vec<T>>()
    }

    /// Makes room at `place`, the lowest that there is none at, with `value` in it; leaves what is there.
    pub(crate) fn reach(&mut self, place: u32, value: T) {
        let chunk = place as usize / Self::CHUNK;
        if chunk == self.chunks.len() {
            push_chunk(&mut self.chunks, Self::CHUNK);
        }
        let chunk = &mut self.chunks[chunk];
        if place as usize % Self::CHUNK == chunk.len() {
            chunk.push(value);
        }
    }

    #[inline]
    pub(crate) fn get(&self, place: u32) -> &T {
        &self.chunks[place as usize / Self::CHUNK][place as usize % Self::CHUNK]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> &mut T {
        &mut self.chunks[place as usize / Self::CHUNK][place as usize % Self::CHUNK]
    }

    /// The slab is empty: one chunk too many goes.
    pub(crate) fn rest(&mut self) {
        if self.is_large() {
            self.chunks.pop();
        }
    }

    /// Whether it would give back memory.
    pub(crate) fn is_large(&self) -> bool {
        self.chunks.len() > CHUNKS_IDLE
    }
}

/// One more chunk of a list of them, which is copied seldom: see [`CHUNKS_LISTED`].
fn push_chunk<T>(chunks: &mut Vec<Vec<T>>, places: usize) {
    if chunks.len() == CHUNKS_LISTED.0 {
        chunks.reserve(CHUNKS_LISTED.1 - CHUNKS_LISTED.0);
    }
    chunks.push(Vec::with_capacity(places));
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cell {
        value: u64,
        next: u32,
    }

    impl Vacant for Cell {
        fn vacant() -> Cell {
            Cell { value: 0, next: NIL }
        }
        fn link(&mut self) -> &mut u32 {
            &mut self.next
        }
    }

    fn cell(value: u64) -> Cell {
        Cell { value, next: NIL }
    }

    #[test]
    fn a_freed_place_is_the_next_one_taken() {
        let mut slab = Slab::default();
        let places: Vec<u32> = (0..3).map(|value| slab.insert(cell(value))).collect();
        assert_eq!(places, [0, 1, 2]);
        assert_eq!((slab.remove(1).value, slab.remove(0).value), (1, 0));
        assert_eq!((slab.insert(cell(7)), slab.insert(cell(8)), slab.insert(cell(9))), (0, 1, 3));
        assert_eq!((slab.get(0).value, slab.get(2).value, slab.len()), (7, 2, 4));
    }

    #[test]
    fn an_empty_slab_gives_its_memory_back_chunk_by_chunk() {
        let mut slab = Slab::default();
        for value in 0..10 * Slab::<Cell>::CHUNK as u64 {
            slab.insert(cell(value));
        }
        for place in 0..10 * Slab::<Cell>::CHUNK {
            slab.remove(u32::try_from(place).expect("small"));
        }
        for _ in 0..20 {
            let place = slab.insert(cell(1));
            assert_eq!((place, slab.remove(place).value), (0, 1));
        }
        assert_eq!(slab.chunks.len(), CHUNKS_IDLE);
    }
}

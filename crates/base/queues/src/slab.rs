//! Values at `u32` places, in chunks: growth copies nothing, and a freed place is the next one
//! taken.
//!
//! Invariants
//! - A vacant place is in the chain of vacant places exactly once, or it is not below `touched`.
//! - An empty slab keeps at most [`CHUNKS_IDLE`] chunks. It releases one per visit, so that no
//!   visit is long.

use crate::limits::{BESIDE_LEAD, CHUNK_BYTES, CHUNK_LEAD, CHUNKS_IDLE, CHUNKS_LISTED, SLAB_LEAD};

/// No place.
pub const NIL: u32 = u32::MAX;

/// What a slab can hold: a value that has a vacant form, with room for a link in it.
pub trait Vacant {
    /// The vacant form.
    fn vacant() -> Self;
    /// Where a vacant one keeps the next vacant place.
    fn link(&mut self) -> &mut u32;
}

/// The values of all places, made in their order and a few ahead of need. A step that makes one
/// touches at most one page that was never touched, or allocates one chunk, seldom both, and not in
/// the step in which another part that grows with it does.
struct Chunks<T> {
    chunks: Vec<Vec<T>>,
    made: u32,
}

impl<T> Default for Chunks<T> {
    fn default() -> Chunks<T> {
        Chunks { chunks: Vec::new(), made: 0 }
    }
}

impl<T> Chunks<T> {
    /// Places of a chunk; a power of two.
    const CHUNK: usize = 1 << (CHUNK_BYTES / size_of::<T>()).ilog2();

    /// Bytes of memory they have taken.
    fn bytes(&self) -> usize {
        self.chunks.len() * Self::CHUNK * size_of::<T>()
            + self.chunks.capacity() * size_of::<Vec<T>>()
    }

    /// Makes the value at `place`, before which all are made, and then one of the `lead` behind it:
    /// two at most.
    fn reach(&mut self, place: u32, lead: u32, vacant: impl Fn() -> T) {
        for _ in 0..2 {
            if self.made <= place.saturating_add(lead) {
                self.make(vacant());
            }
        }
    }

    fn make(&mut self, vacant: T) {
        let (chunk, at) = (self.made as usize / Self::CHUNK, self.made as usize % Self::CHUNK);
        let next = if at == Self::CHUNK / 2 + CHUNK_LEAD { chunk + 1 } else { chunk };
        if next == self.chunks.len() {
            if next == CHUNKS_LISTED.0 {
                self.chunks.reserve(CHUNKS_LISTED.1 - CHUNKS_LISTED.0);
            }
            self.chunks.push(Vec::with_capacity(Self::CHUNK));
        }
        self.chunks[chunk].push(vacant);
        self.made += 1;
    }

    #[inline]
    fn get(&self, place: u32) -> &T {
        &self.chunks[place as usize / Self::CHUNK][place as usize % Self::CHUNK]
    }

    #[inline]
    fn get_mut(&mut self, place: u32) -> &mut T {
        &mut self.chunks[place as usize / Self::CHUNK][place as usize % Self::CHUNK]
    }

    #[inline]
    fn find(&self, place: u32) -> Option<&T> {
        self.chunks.get(place as usize / Self::CHUNK)?.get(place as usize % Self::CHUNK)
    }

    /// Gives back one chunk, if there are too many.
    fn rest(&mut self) {
        if self.is_large() {
            self.chunks.pop();
            self.made = self.made.min((self.chunks.len() * Self::CHUNK) as u32);
        }
    }

    fn is_large(&self) -> bool {
        self.chunks.len() > CHUNKS_IDLE
    }
}

/// See the head of the file.
pub struct Slab<T> {
    chunks: Chunks<T>,
    touched: u32, // places ever taken since the slab was last empty
    vacant: u32,
    len: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { chunks: Chunks::default(), touched: 0, vacant: NIL, len: 0 }
    }
}

impl<T: Vacant> Slab<T> {
    /// Places taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no place is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory it has taken.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.chunks.bytes()
    }

    /// Takes a place for `value`.
    ///
    /// # Panics
    /// If 2^32 - 1 places are taken.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        let (place, slot) = self.claim();
        *slot = value;
        place
    }

    /// Takes a place; its value is the vacant form, and the caller overwrites it.
    ///
    /// # Panics
    /// If 2^32 - 1 places are taken.
    #[inline]
    pub fn claim(&mut self) -> (u32, &mut T) {
        self.len += 1;
        if self.vacant == NIL {
            return self.claim_untouched();
        }
        let place = self.vacant;
        let slot = self.chunks.get_mut(place);
        self.vacant = *slot.link();
        (place, slot)
    }

    fn claim_untouched(&mut self) -> (u32, &mut T) {
        let place = self.touched;
        assert!(place != NIL, "fewer than 2^32 - 1 things");
        self.touched += 1;
        self.chunks.reach(place, SLAB_LEAD, T::vacant);
        (place, self.chunks.get_mut(place))
    }

    /// Gives back `place`, which is taken; the value that it had.
    #[inline]
    pub fn remove(&mut self, place: u32) -> T {
        self.vacate(place, |slot| std::mem::replace(slot, T::vacant()))
    }

    /// Gives back `place`, which is taken; what `take` makes of its value. `take` leaves the vacant
    /// form, as far as that matters to the owner of the slab.
    #[inline]
    pub fn vacate<V>(&mut self, place: u32, take: impl FnOnce(&mut T) -> V) -> V {
        let slot = self.chunks.get_mut(place);
        let value = take(slot);
        *slot.link() = self.vacant;
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
        self.chunks.rest();
    }

    /// The value at `place`, which was made.
    #[must_use]
    #[inline]
    pub fn get(&self, place: u32) -> &T {
        self.chunks.get(place)
    }

    /// The same, to change it.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, place: u32) -> &mut T {
        self.chunks.get_mut(place)
    }

    /// All places with their values, vacant forms too.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0_u32..).zip(self.chunks.chunks.iter().flatten())
    }

    /// Whether it would give back memory if it were empty.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.chunks.is_large()
    }

    /// The value at `place`, if that place was ever taken.
    #[must_use]
    #[inline]
    pub fn find(&self, place: u32) -> Option<&T> {
        self.chunks.find(place)
    }
}

/// A second value for each place of a slab, in memory of its own: values that are read more often
/// stay together.
pub struct Beside<T> {
    chunks: Chunks<T>,
}

impl<T> Default for Beside<T> {
    fn default() -> Beside<T> {
        Beside { chunks: Chunks::default() }
    }
}

impl<T: Copy> Beside<T> {
    /// Bytes of memory it has taken.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.chunks.bytes()
    }

    /// Makes room at `place`, before which there is room. A place that is there already keeps its
    /// value; a new one has `value`.
    pub fn reach(&mut self, place: u32, value: T) {
        self.chunks.reach(place, BESIDE_LEAD, || value);
    }

    /// The value at `place`.
    #[must_use]
    #[inline]
    pub fn get(&self, place: u32) -> &T {
        self.chunks.get(place)
    }

    /// The same, to change it.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, place: u32) -> &mut T {
        self.chunks.get_mut(place)
    }

    /// The slab is empty: one chunk too many goes.
    pub fn rest(&mut self) {
        self.chunks.rest();
    }

    /// Whether it would give back memory.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.chunks.is_large()
    }
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
    fn things_and_their_chunks_are_made_ahead_of_need() {
        let mut slab = Slab::default();
        for place in 0..3 * Chunks::<Cell>::CHUNK as u32 {
            let before = slab.chunks.made;
            assert_eq!(slab.insert(cell(1)), place);
            let made = slab.chunks.made;
            assert!((1..=2).contains(&(made - before)), "{place}: {made} after {before}");
            assert_eq!(made, (2 * (place + 1)).min(place + 1 + SLAB_LEAD), "{place}");
            let half = Chunks::<Cell>::CHUNK / 2 + CHUNK_LEAD;
            assert_eq!(
                slab.chunks.chunks.len(),
                (made as usize + Chunks::<Cell>::CHUNK - half - 1) / Chunks::<Cell>::CHUNK + 1
            );
        }
    }

    #[test]
    fn an_empty_slab_gives_its_memory_back_chunk_by_chunk() {
        let mut slab = Slab::default();
        for value in 0..10 * Chunks::<Cell>::CHUNK as u64 {
            slab.insert(cell(value));
        }
        for place in 0..10 * Chunks::<Cell>::CHUNK {
            slab.remove(u32::try_from(place).expect("small"));
        }
        for _ in 0..20 {
            let place = slab.insert(cell(1));
            assert_eq!((place, slab.remove(place).value), (0, 1));
        }
        assert_eq!(slab.chunks.chunks.len(), CHUNKS_IDLE);
    }
}

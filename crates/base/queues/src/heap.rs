//! An indexed 4-ary min-heap: keys are inline, handles name entries, and any entry can leave or
//! move.
//!
//! ```text
//! entries    [ key | handle ]   heap order: entry i is not above its children 4i+1 .. 4i+4
//! positions  handle -> index of its entry, or the next free handle
//! ```
//! Four children share one or two cache lines, so that a pop reads half as many lines as in a
//! binary heap. Both arrays grow by chunks of [`CHUNK`]: a heap of ten million entries never copies
//! them in one pause.
//!
//! Invariants
//! - No entry is smaller than its parent.
//! - `positions[entry.handle]` is the index of that entry.
//! - The memory of the entries' array is released by chunks. The array has room for at most four
//!   times the entries, and four chunks more. The memory of handles is released when the heap is
//!   empty.
//!
//! Equal keys leave in no particular order: a key that must be fair carries an arrival number.

/// Entries allocated at once, beyond the first so many.
const CHUNK: usize = 64 << 10;

/// Children of an entry.
const ARITY: usize = 4;

/// End of the chain of free handles.
const NONE: u32 = u32::MAX;

/// Names an entry from its insertion until it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeapHandle(u32);

/// An array that grows by chunks and copies at most the first of them.
struct Chunked<T> {
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T: Copy> Chunked<T> {
    const fn new() -> Chunked<T> {
        Chunked { chunks: Vec::new(), len: 0 }
    }

    #[inline]
    fn get(&self, at: usize) -> T {
        self.chunks[at / CHUNK][at % CHUNK]
    }

    #[inline]
    fn set(&mut self, at: usize, value: T) {
        self.chunks[at / CHUNK][at % CHUNK] = value;
    }

    #[inline]
    fn push(&mut self, value: T) {
        let chunk = self.len / CHUNK;
        if chunk == self.chunks.len() {
            self.chunks.push(if chunk == 0 { Vec::new() } else { Vec::with_capacity(CHUNK) });
        }
        self.chunks[chunk].push(value);
        self.len += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        let value = self.chunks[self.len / CHUNK].pop();
        if self.len.is_multiple_of(CHUNK) {
            self.shrink();
        }
        value
    }

    /// Gives back whole chunks when less than a quarter is used, down to half used.
    fn shrink(&mut self) {
        if self.len <= self.chunks.len() * CHUNK / 4 {
            self.chunks.truncate((2 * self.len).div_ceil(CHUNK).max(1));
        }
    }

    fn clear(&mut self) {
        self.chunks.truncate(1);
        self.chunks.iter_mut().for_each(Vec::clear);
        self.len = 0;
    }
}

/// See the head of the file.
pub struct IndexedHeap<K> {
    entries: Chunked<(K, u32)>,
    positions: Chunked<u32>,
    free: u32,
}

impl<K: Copy + Ord> Default for IndexedHeap<K> {
    fn default() -> IndexedHeap<K> {
        IndexedHeap { entries: Chunked::new(), positions: Chunked::new(), free: NONE }
    }
}

impl<K: Copy + Ord> IndexedHeap<K> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.len == 0
    }

    /// The smallest.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<(K, HeapHandle)> {
        if self.is_empty() {
            return None;
        }
        let (key, handle) = self.entries.get(0);
        Some((key, HeapHandle(handle)))
    }

    /// The key of an entry.
    ///
    /// # Panics
    /// If `handle` names none.
    #[must_use]
    pub fn key(&self, handle: HeapHandle) -> K {
        self.entries.get(self.position(handle)).0
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// If 2^32 - 1 handles are in use.
    pub fn insert(&mut self, key: K) -> HeapHandle {
        let handle = self.take_handle();
        let at = self.entries.len;
        self.entries.push((key, handle));
        self.positions.set(handle as usize, index(at));
        self.rise(at, (key, handle));
        HeapHandle(handle)
    }

    /// Takes the smallest out.
    pub fn pop(&mut self) -> Option<(K, HeapHandle)> {
        let (key, handle) = self.peek()?;
        self.remove(handle);
        Some((key, handle))
    }

    /// Takes an entry out.
    ///
    /// # Panics
    /// If `handle` names none.
    pub fn remove(&mut self, handle: HeapHandle) -> K {
        let at = self.position(handle);
        let key = self.entries.get(at).0;
        let last = self.entries.pop().expect("an entry has a place in the array");
        if at < self.entries.len {
            self.settle(at, last);
        }
        self.free_handle(handle.0);
        key
    }

    /// Gives an entry another key.
    ///
    /// # Panics
    /// If `handle` names none.
    pub fn update(&mut self, handle: HeapHandle, key: K) {
        let at = self.position(handle);
        self.settle(at, (key, handle.0));
    }

    /// Handles with their keys, in no order that matters, the same in every run.
    pub fn iter(&self) -> impl Iterator<Item = (K, HeapHandle)> {
        self.entries.chunks.iter().flatten().map(|(key, handle)| (*key, HeapHandle(*handle)))
    }

    fn take_handle(&mut self) -> u32 {
        if self.free == NONE {
            let handle = index(self.positions.len);
            assert!(handle != NONE, "fewer than 2^32 - 1 entries");
            self.positions.push(NONE);
            return handle;
        }
        let handle = self.free;
        self.free = self.positions.get(handle as usize);
        handle
    }

    fn free_handle(&mut self, handle: u32) {
        if self.is_empty() {
            self.positions.clear();
            self.free = NONE;
        } else {
            self.positions.set(handle as usize, self.free);
            self.free = handle;
        }
    }

    fn position(&self, handle: HeapHandle) -> usize {
        let at = self.positions.get(handle.0 as usize) as usize;
        assert!(
            at < self.entries.len && self.entries.get(at).1 == handle.0,
            "a handle names an entry of the heap"
        );
        at
    }

    #[inline]
    fn put(&mut self, at: usize, entry: (K, u32)) {
        self.entries.set(at, entry);
        self.positions.set(entry.1 as usize, index(at));
    }

    /// Places `entry` where it belongs, starting from the hole at `at`.
    fn settle(&mut self, at: usize, entry: (K, u32)) {
        if at > 0 && entry.0 < self.entries.get((at - 1) / ARITY).0 {
            self.rise(at, entry);
        } else {
            self.sink(at, entry);
        }
    }

    fn rise(&mut self, mut at: usize, entry: (K, u32)) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            let above = self.entries.get(parent);
            if above.0 <= entry.0 {
                break;
            }
            self.put(at, above);
            at = parent;
        }
        self.put(at, entry);
    }

    /// The smallest of the siblings that begin at `first`.
    #[inline]
    fn least(&self, first: usize) -> (usize, (K, u32)) {
        let rest = &self.entries.chunks[first / CHUNK][first % CHUNK..];
        let (mut least, mut key) = (0, rest[0].0);
        for (child, below) in rest.iter().enumerate().take(ARITY).skip(1) {
            let is_less = below.0 < key;
            least = if is_less { child } else { least };
            key = if is_less { below.0 } else { key };
        }
        // siblings that a chunk's end divides
        for at in first + rest.len()..(first + ARITY).min(self.entries.len) {
            let below = self.entries.get(at).0;
            (least, key) = if below < key { (at - first, below) } else { (least, key) };
        }
        (first + least, self.entries.get(first + least))
    }

    fn sink(&mut self, mut at: usize, entry: (K, u32)) {
        loop {
            let first = at * ARITY + 1;
            if first >= self.entries.len {
                break;
            }
            let least = self.least(first);
            if entry.0 <= least.1.0 {
                break;
            }
            self.put(at, least.1);
            at = least.0;
        }
        self.put(at, entry);
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("fewer than 2^32 entries")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use types::SplitMix64;

    fn assert_ordered(heap: &IndexedHeap<(u64, u64)>) {
        for at in 0..heap.len() {
            let (key, handle) = heap.entries.get(at);
            assert!(
                at == 0 || heap.entries.get((at - 1) / ARITY).0 <= key,
                "no entry is smaller than its parent"
            );
            assert_eq!(heap.positions.get(handle as usize) as usize, at);
        }
    }

    /// A million random insertions, pops, removals and moves, against a reference ordered set.
    #[test]
    fn it_agrees_with_an_ordered_set() {
        let mut chance = SplitMix64::new(7);
        let mut heap = IndexedHeap::default();
        let mut reference = BTreeSet::new();
        let mut handles: Vec<HeapHandle> = Vec::new();
        let mut keys = BTreeMap::new(); // handle -> key
        let forget =
            |handles: &mut Vec<HeapHandle>, places: &mut BTreeMap<HeapHandle, usize>, handle| {
                let at = places.remove(&handle).expect("known");
                handles.swap_remove(at);
                if let Some(moved) = handles.get(at) {
                    places.insert(*moved, at);
                }
            };
        let mut places = BTreeMap::new(); // handle -> index in `handles`
        for step in 0..1_000_000_u64 {
            // grows and drains in turn, so that chunks come and go
            let growing = (step / 200_000) % 2 == 0;
            match chance.below(10) {
                choice if handles.is_empty() || choice < if growing { 7 } else { 2 } => {
                    let key = (chance.below(1_000), step);
                    let handle = heap.insert(key);
                    reference.insert(key);
                    keys.insert(handle, key);
                    places.insert(handle, handles.len());
                    handles.push(handle);
                }
                7 => {
                    let at = chance.below(handles.len() as u64) as usize;
                    let key = (chance.below(1_000), step);
                    heap.update(handles[at], key);
                    reference.remove(&keys.insert(handles[at], key).expect("known"));
                    reference.insert(key);
                }
                8 => {
                    let at = chance.below(handles.len() as u64) as usize;
                    let handle = handles[at];
                    forget(&mut handles, &mut places, handle);
                    let key = keys.remove(&handle).expect("known");
                    assert_eq!(heap.key(handle), key);
                    assert_eq!(heap.remove(handle), key);
                    assert!(reference.remove(&key));
                }
                _ => {
                    let (key, handle) = heap.pop().expect("not empty");
                    assert_eq!(Some(key), reference.pop_first());
                    assert_eq!(keys.remove(&handle), Some(key));
                    forget(&mut handles, &mut places, handle);
                }
            }
            assert_eq!(heap.len(), reference.len());
            assert_eq!(heap.peek().map(|(key, _)| key), reference.first().copied());
            if step % 50_000 == 0 {
                assert_ordered(&heap);
            }
        }
        while let Some((key, _)) = heap.pop() {
            assert_eq!(Some(key), reference.pop_first());
        }
        assert!(reference.is_empty());
    }

    #[test]
    fn memory_follows_the_entries() {
        let mut heap = IndexedHeap::default();
        for key in 0..10 * CHUNK as u64 {
            heap.insert((key, key));
        }
        assert_eq!(heap.entries.chunks.len(), 10);
        let mut most = 0;
        while heap.pop().is_some() {
            let capacity = heap.entries.chunks.len() * CHUNK;
            most = most.max(capacity.saturating_sub(4 * heap.len() + 4 * CHUNK));
        }
        assert_eq!(most, 0, "room beyond four times what is used and four chunks");
        assert_eq!((heap.entries.chunks.len(), heap.positions.chunks.len()), (1, 1));
    }

    #[test]
    #[should_panic(expected = "a handle names an entry of the heap")]
    fn a_handle_that_left_is_refused() {
        let mut heap = IndexedHeap::default();
        let first = heap.insert(1);
        heap.insert(2);
        heap.remove(first);
        heap.remove(first);
    }
}

//! A map for numbers that are handed out one after another, such as the xids of requests under way.
//!
//! Invariants
//! - Keys rise from front to back; the front and the back hold values.
//! - At most half of the places, plus [`HOLES_MIN`], are holes of removed entries.
//!
//! A key usually goes in behind the last one and comes out near the front. Both take a few
//! instructions where a tree takes a hundred. Any other order works too; a key inserted in the
//! middle moves those behind it.

use std::collections::VecDeque;

/// Holes that are not worth closing.
const HOLES_MIN: usize = 32;

/// Places that an empty map keeps.
const PLACES_KEPT: usize = 256;

/// See the head of the file.
#[derive(Clone, Debug)]
pub struct Ascending<K, V> {
    places: VecDeque<(K, Option<V>)>,
    len: usize,
}

impl<K, V> Default for Ascending<K, V> {
    fn default() -> Ascending<K, V> {
        Ascending { places: VecDeque::new(), len: 0 }
    }
}

impl<K: Copy + Ord, V> Ascending<K, V> {
    /// Without entries; nothing is allocated.
    #[must_use]
    pub fn new() -> Ascending<K, V> {
        Ascending::default()
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The lowest key.
    #[must_use]
    pub fn first_key(&self) -> Option<K> {
        self.places.front().map(|(key, _)| *key)
    }

    /// Puts `value` there; what stood there before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.places.back().is_none_or(|(last, _)| *last < key) {
            self.places.push_back((key, Some(value)));
            self.len += 1;
            return None;
        }
        let before = match self.search(key) {
            Ok(at) => self.places[at].1.replace(value),
            Err(at) => {
                self.places.insert(at, (key, Some(value)));
                None
            }
        };
        self.len += usize::from(before.is_none());
        before
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: K) -> Option<&V> {
        let at = self.find(key)?;
        self.places[at].1.as_ref()
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let at = self.find(key)?;
        self.places[at].1.as_mut()
    }

    /// Whether `key` has a value.
    #[must_use]
    pub fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    /// Takes the value of `key` out.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let at = self.find(key)?;
        let value = self.places[at].1.take()?;
        self.len -= 1;
        if at == 0 || self.places.len() > 2 * self.len + HOLES_MIN || at + 1 == self.places.len() {
            self.close_holes();
        }
        Some(value)
    }

    /// In the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.places.iter().filter_map(|(key, value)| Some((*key, value.as_ref()?)))
    }

    /// In the order of the keys, to change the values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.places.iter_mut().filter_map(|(key, value)| Some((*key, value.as_mut()?)))
    }

    /// The values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The values, out of the map.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.places.into_iter().filter_map(|(_, value)| value)
    }

    fn find(&self, key: K) -> Option<usize> {
        let (first, last) = (self.places.front()?.0, self.places.back()?.0);
        match key {
            _ if key == first => Some(0),
            _ if key == last => Some(self.places.len() - 1),
            _ if key < first || key > last => None,
            _ => self.search(key).ok(),
        }
    }

    fn search(&self, key: K) -> Result<usize, usize> {
        self.places.binary_search_by(|(other, _)| other.cmp(&key))
    }

    fn close_holes(&mut self) {
        while self.places.front().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_front();
        }
        while self.places.back().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_back();
        }
        if self.places.len() > 2 * self.len + HOLES_MIN {
            self.places.retain(|(_, value)| value.is_some());
        }
        if self.len == 0 && self.places.capacity() > PLACES_KEPT {
            self.places.shrink_to(PLACES_KEPT / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use types::SplitMix64;

    fn check(map: &Ascending<u32, u64>, model: &BTreeMap<u32, u64>) {
        assert!(
            map.iter()
                .map(|(key, value)| (key, *value))
                .eq(model.iter().map(|(key, value)| (*key, *value)))
        );
        assert_eq!(
            (map.len(), map.is_empty(), map.first_key()),
            (model.len(), model.is_empty(), model.keys().next().copied())
        );
        assert!(map.places.iter().map(|(key, _)| key).is_sorted());
        let ends = [map.places.front(), map.places.back()];
        assert!(
            ends.into_iter().flatten().all(|(_, value)| value.is_some()),
            "no hole stands at an end"
        );
        assert!(map.places.len() <= 2 * map.len() + HOLES_MIN);
    }

    /// Rising keys with some out of order, removed near the front or anywhere, in phases that fill
    /// and empty the map.
    #[test]
    fn it_holds_what_a_tree_holds() {
        let (mut map, mut model) = (Ascending::new(), BTreeMap::new());
        let (mut chance, mut next) = (SplitMix64::new(7), 1_000_u32);
        let mut draw = |below: u64| chance.below(below);
        for turn in 0..40_000_u64 {
            let fills = (turn / 2_000).is_multiple_of(2);
            if draw(100) < if fills { 60 } else { 40 } {
                next += 1 + draw(3) as u32;
                let key = if draw(20) == 0 { next - draw(900) as u32 } else { next };
                next = next.max(key);
                assert_eq!(map.insert(key, turn), model.insert(key, turn));
            } else if !model.is_empty() {
                let at = if draw(3) == 0 {
                    draw(model.len() as u64)
                } else {
                    draw(4).min(model.len() as u64 - 1)
                };
                let key = *model.keys().nth(at as usize).expect("below its length");
                assert_eq!(map.get(key), model.get(&key));
                assert_eq!(map.remove(key), model.remove(&key));
                assert!(map.remove(key).is_none() && !map.contains(key));
            }
            if let Some(value) = map.get_mut(next) {
                *value += 1;
                *model.get_mut(&next).expect("the same keys") += 1;
            }
            if turn % 16 == 0 {
                check(&map, &model);
            }
        }
        for key in model.keys().copied().collect::<Vec<_>>() {
            assert_eq!(map.remove(key), model.remove(&key));
        }
        check(&map, &model);
        assert!(map.places.capacity() <= PLACES_KEPT);
        assert_eq!(map.into_values().next(), None);
    }

    #[test]
    fn entries_that_leave_give_their_places_back() {
        let mut map = Ascending::new();
        map.insert(0_u32, ());
        map.insert(1, ());
        for key in 2..100_000 {
            map.insert(key, ());
            assert_eq!(map.remove(key - 1), Some(()));
        }
        assert!(map.places.len() <= 2 * map.len() + HOLES_MIN);
        assert_eq!((map.first_key(), map.len()), (Some(0), 2));
    }
}

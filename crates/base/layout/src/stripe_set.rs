//! A set of stripes of one file, by the numbers that they have through all components.
//!
//! On the wire and on disk a set has two parts, because readers of before there were larger sets
//! know the first part alone:
//!
//! ```text
//! u64, bit i: stripe i of the first 64 | u64 each: the stripes from 64 on, 64 in each word
//! ```
//! Numbers are little-endian. The second part is as long as its last word that is not zero.

/// Stripes of a file have numbers below this. It is more than a layout has room for.
pub const STRIPES_MAX: u32 = 4_096;

const WORD_BITS: u32 = u64::BITS;
const WORD_BYTES: usize = size_of::<u64>();
/// Words of the second part at most.
const WORDS_MAX: usize = (STRIPES_MAX / WORD_BITS - 1) as usize;

// a layout takes 24 bytes for each object in Lustre's form, and the data of an MDT are one stripe
const _: () = assert!(crate::composite::COMPOSITE_BYTES_MAX / 24 < STRIPES_MAX as usize);

/// Stripes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StripeSet {
    /// Bit i: stripe i.
    first: u64,
    /// Those from 64 on. The last word is not zero.
    more: Vec<u64>,
}

impl StripeSet {
    /// From both parts. Bytes that are no whole word, and words behind the last one that there can
    /// be, are ignored.
    #[must_use]
    pub fn from_parts(first: u64, more: &[u8]) -> StripeSet {
        let (words, _) = more.as_chunks::<WORD_BYTES>();
        let more = words.iter().take(WORDS_MAX).map(|word| u64::from_le_bytes(*word)).collect();
        StripeSet { first, more }.trimmed()
    }

    /// The first part.
    #[must_use]
    pub fn first_part(&self) -> u64 {
        self.first
    }

    /// The second part; empty where there is no stripe from 64 on.
    #[must_use]
    pub fn second_part(&self) -> Vec<u8> {
        self.more.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.more.is_empty()
    }

    /// Whether `stripe` is one of them.
    #[must_use]
    pub fn contains(&self, stripe: u32) -> bool {
        self.word(stripe / WORD_BITS) & bit(stripe) != 0
    }

    /// The lowest one.
    #[must_use]
    pub fn lowest(&self) -> Option<u32> {
        let words = std::iter::once(&self.first).chain(&self.more);
        let (index, word) = (0u32..).zip(words).find(|(_, word)| **word != 0)?;
        Some(index * WORD_BITS + word.trailing_zeros())
    }

    /// Adds a stripe. One that no file can have is ignored.
    pub fn insert(&mut self, stripe: u32) {
        if stripe >= STRIPES_MAX {
            return;
        }
        let Some(index) = (stripe / WORD_BITS).checked_sub(1) else {
            self.first |= bit(stripe);
            return;
        };
        let index = index as usize;
        if self.more.len() <= index {
            self.more.resize(index + 1, 0);
        }
        self.more[index] |= bit(stripe);
    }

    /// Adds those of `other`.
    pub fn add_all(&mut self, other: &StripeSet) {
        self.first |= other.first;
        if self.more.len() < other.more.len() {
            self.more.resize(other.more.len(), 0);
        }
        self.more.iter_mut().zip(&other.more).for_each(|(word, other)| *word |= other);
    }

    /// Those that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &StripeSet) -> StripeSet {
        self.each_with(other, |word, other| word & !other)
    }

    /// Those that are in `other` too.
    #[must_use]
    pub fn common(&self, other: &StripeSet) -> StripeSet {
        self.each_with(other, |word, other| word & other)
    }

    /// Those below `count`.
    #[must_use]
    pub fn below(&self, count: u32) -> StripeSet {
        let mask = |index: u32| match count.saturating_sub(index * WORD_BITS) {
            left if left >= WORD_BITS => u64::MAX,
            left => bit(left) - 1,
        };
        let more = (1u32..).zip(&self.more).map(|(index, word)| word & mask(index)).collect();
        StripeSet { first: self.first & mask(0), more }.trimmed()
    }

    /// `change` of each word and the word of `other` in its place.
    fn each_with(&self, other: &StripeSet, change: impl Fn(u64, u64) -> u64) -> StripeSet {
        let others = other.more.iter().copied().chain(std::iter::repeat(0));
        let more = self.more.iter().zip(others).map(|(word, other)| change(*word, other)).collect();
        StripeSet { first: change(self.first, other.first), more }.trimmed()
    }

    fn word(&self, index: u32) -> u64 {
        match index.checked_sub(1) {
            None => self.first,
            Some(index) => self.more.get(index as usize).copied().unwrap_or(0),
        }
    }

    fn trimmed(mut self) -> StripeSet {
        let last = self.more.iter().rposition(|word| *word != 0);
        self.more.truncate(last.map_or(0, |last| last + 1));
        self
    }
}

/// Bit of a stripe in its word.
fn bit(stripe: u32) -> u64 {
    1 << (stripe % WORD_BITS)
}

/// Stripes of the first 64, as bits.
impl From<u64> for StripeSet {
    fn from(first: u64) -> StripeSet {
        StripeSet { first, more: Vec::new() }
    }
}

impl FromIterator<u32> for StripeSet {
    fn from_iter<I: IntoIterator<Item = u32>>(stripes: I) -> StripeSet {
        let mut set = StripeSet::default();
        stripes.into_iter().for_each(|stripe| set.insert(stripe));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn members(set: &StripeSet) -> BTreeSet<u32> {
        (0..STRIPES_MAX + 100).filter(|stripe| set.contains(*stripe)).collect()
    }

    fn of(stripes: &BTreeSet<u32>) -> StripeSet {
        stripes.iter().copied().collect()
    }

    #[test]
    fn stripes_behind_the_64th_are_kept() {
        let set: StripeSet = [0, 63, 64, 1_999].into_iter().collect();
        assert_eq!(members(&set), BTreeSet::from([0, 63, 64, 1_999]));
        assert_eq!((set.first_part(), set.second_part().len()), (1 << 63 | 1, 31 * 8));
        assert_eq!(set.second_part()[..9], [1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(StripeSet::from(1u64 << 63 | 1), set.below(64), "what older readers know");
        assert_eq!(set.without(&StripeSet::from(u64::MAX)).lowest(), Some(64));
        assert_eq!((set.lowest(), StripeSet::default().lowest()), (Some(0), None));
    }

    #[test]
    fn no_file_has_stripes_behind_the_bound() {
        let set: StripeSet = [STRIPES_MAX, u32::MAX].into_iter().collect();
        assert!(set.is_empty());
        let long = StripeSet::from_parts(0, &[0xff; 1 << 16]);
        assert_eq!(members(&long), (64..STRIPES_MAX).collect::<BTreeSet<u32>>());
        assert!(StripeSet::from_parts(0, &[0; 1 << 16]).is_empty());
        assert!(StripeSet::from_parts(0, &[1; 7]).is_empty(), "not a whole word");
    }

    proptest! {
        #[test]
        fn a_set_is_what_a_slow_one_is(
            one in proptest::collection::btree_set(0u32..300, 0..40),
            other in proptest::collection::btree_set(0u32..300, 0..40),
            count in 0u32..400,
        ) {
            let (set, with) = (of(&one), of(&other));
            prop_assert_eq!(members(&set), one.clone());
            prop_assert_eq!(set.is_empty(), one.is_empty());
            prop_assert_eq!(set.lowest(), one.first().copied());
            prop_assert_eq!(set.without(&with), of(&one.difference(&other).copied().collect()));
            prop_assert_eq!(set.common(&with), of(&one.intersection(&other).copied().collect()));
            prop_assert_eq!(set.below(count), of(&one.range(..count).copied().collect()));
            let back = StripeSet::from_parts(set.first_part(), &set.second_part());
            prop_assert_eq!(&back, &set);
            let mut both = set;
            both.add_all(&with);
            prop_assert_eq!(both, of(&one.union(&other).copied().collect()));
        }
    }
}

//! The ranges that one owner holds on one resource. They are disjoint, and touching ranges of one
//! mode are joined.

use std::collections::BTreeMap;

use types::Extent;

use crate::Mode;

/// Ranges by first byte: `start -> (end, mode, pid)`; and how many of them are exclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, (u64, Mode, u32)>, usize);

impl Ranges {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Every range with its mode and process, by first byte.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Extent, Mode, u32)> + '_ {
        self.0.iter().map(|(start, (end, mode, pid))| {
            (Extent::new(*start, *end).expect("a held range is not empty"), *mode, *pid)
        })
    }

    /// Those that overlap `extent`, by first byte. It costs what it finds, not what is held.
    fn touched(&self, extent: Extent) -> impl Iterator<Item = (&u64, &(u64, Mode, u32))> + '_ {
        let before = self.0.range(..extent.start()).next_back();
        let before = before.filter(|(_, held)| held.0 > extent.start());
        before.into_iter().chain(self.0.range(extent.start()..extent.end()))
    }

    /// The first range that a lock of `mode` on `extent` would conflict with.
    pub(crate) fn conflict(&self, extent: Extent, mode: Mode) -> Option<(Extent, Mode, u32)> {
        let (start, held) = self.touched(extent).find(|(_, held)| !mode.admits(held.1))?;
        let extent = Extent::new(*start, held.0).expect("a held range is not empty");
        Some((extent, held.1, held.2))
    }

    /// Whether one is held exclusively.
    pub(crate) fn has_exclusive(&self) -> bool {
        self.1 > 0
    }

    fn insert(&mut self, start: u64, held: (u64, Mode, u32)) {
        self.1 += usize::from(held.1 == Mode::Exclusive);
        let before = self.0.insert(start, held);
        assert!(before.is_none(), "held ranges are disjoint");
    }

    fn remove(&mut self, start: u64) {
        let held = self.0.remove(&start).expect("found just now");
        self.1 -= usize::from(held.1 == Mode::Exclusive);
    }

    /// Whether one range reaches over both ends of `extent`.
    pub(crate) fn is_split_by(&self, extent: Extent) -> bool {
        let before = self.0.range(..extent.start()).next_back();
        before.is_some_and(|(_, (end, _, _))| *end > extent.end())
    }

    /// Takes `extent` out: a range that reaches over an end of it is cut, one around it is split.
    pub(crate) fn clear(&mut self, extent: Extent) {
        let touched: Vec<_> = self.touched(extent).map(|(s, h)| (*s, *h)).collect();
        for (start, (end, mode, pid)) in touched {
            self.remove(start);
            if start < extent.start() {
                self.insert(start, (extent.start(), mode, pid));
            }
            if extent.end() < end {
                self.insert(extent.end(), (end, mode, pid));
            }
        }
    }

    /// Holds `extent` in `mode`, whatever was held there, and joins it with its neighbours of the
    /// same mode.
    pub(crate) fn set(&mut self, extent: Extent, mode: Mode, pid: u32) {
        self.clear(extent);
        let (mut start, mut end) = (extent.start(), extent.end());
        if let Some((before, (held_end, held_mode, _))) =
            self.0.range(..start).next_back().map(|(s, h)| (*s, *h))
            && held_end == start
            && held_mode == mode
        {
            self.remove(before);
            start = before;
        }
        if let Some((behind_end, held_mode, _)) = self.0.get(&end).copied()
            && held_mode == mode
        {
            self.remove(end);
            end = behind_end;
        }
        self.insert(start, (end, mode, pid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::SplitMix64;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end).expect("not empty")
    }

    fn show(ranges: &Ranges) -> String {
        let one = |(extent, mode, _): (Extent, Mode, u32)| {
            format!(
                "{}{}-{}",
                if mode == Mode::Shared { 'r' } else { 'w' },
                extent.start(),
                extent.end()
            )
        };
        ranges.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ranges_split_and_join() {
        let mut ranges = Ranges::default();
        ranges.set(extent(0, 100), Mode::Exclusive, 1);
        ranges.clear(extent(40, 60));
        assert_eq!(show(&ranges), "w0-40 w60-100");
        ranges.set(extent(40, 60), Mode::Shared, 1);
        assert_eq!(show(&ranges), "w0-40 r40-60 w60-100");
        ranges.set(extent(30, 70), Mode::Exclusive, 1);
        assert_eq!(show(&ranges), "w0-100");
        ranges.set(extent(10, 20), Mode::Shared, 1);
        assert_eq!(show(&ranges), "w0-10 r10-20 w20-100");
    }

    #[test]
    fn random_changes_agree_with_a_byte_map() {
        let mut chance = SplitMix64::new(7);
        let mut random = move |bound: u64| chance.below(bound);
        let (mut ranges, mut bytes) = (Ranges::default(), [None; 40]);
        for _ in 0..20_000 {
            let start = random(39);
            let piece = extent(start, (start + 1 + random(12)).min(40));
            let mode = [None, Some(Mode::Shared), Some(Mode::Exclusive)][random(3) as usize];
            match mode {
                Some(mode) => ranges.set(piece, mode, 0),
                None => ranges.clear(piece),
            }
            bytes[piece.start() as usize..piece.end() as usize].fill(mode);
            let mut seen = [None; 40];
            let mut last: Option<(Extent, Mode)> = None;
            for (held, mode, _) in ranges.iter() {
                assert!(
                    last.is_none_or(|(before, other)| before.end() < held.start() || other != mode),
                    "neighbours are joined"
                );
                seen[held.start() as usize..held.end() as usize].fill(Some(mode));
                last = Some((held, mode));
            }
            assert_eq!(seen, bytes);
            let exclusive = bytes.contains(&Some(Mode::Exclusive));
            assert_eq!(ranges.has_exclusive(), exclusive);
        }
    }
}

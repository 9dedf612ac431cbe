//! Open handles, by number. A number is never reused.

use std::collections::{BTreeMap, BTreeSet};

use types::Fid;

pub(crate) struct Handles<T> {
    open: BTreeMap<u64, (Fid, T)>,
    by_fid: BTreeSet<(Fid, u64)>,
    last: u64,
}

impl<T: Clone> Handles<T> {
    pub(crate) fn new() -> Handles<T> {
        Handles { open: BTreeMap::new(), by_fid: BTreeSet::new(), last: 0 }
    }

    pub(crate) fn insert(&mut self, fid: Fid, value: T) -> u64 {
        self.last += 1;
        self.open.insert(self.last, (fid, value));
        self.by_fid.insert((fid, self.last));
        self.last
    }

    pub(crate) fn get(&self, fh: u64) -> Option<T> {
        self.open.get(&fh).map(|(_, value)| value.clone())
    }

    /// Any open handle of this file.
    pub(crate) fn of(&self, fid: Fid) -> Option<T> {
        let (_, fh) = self.by_fid.range((fid, 0)..=(fid, u64::MAX)).next()?;
        self.get(*fh)
    }

    pub(crate) fn remove(&mut self, fh: u64) -> Option<T> {
        let (fid, value) = self.open.remove(&fh)?;
        self.by_fid.remove(&(fid, fh));
        Some(value)
    }

    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.by_fid.clear();
        std::mem::take(&mut self.open).into_values().map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_found_by_its_file_until_it_is_closed() {
        let (mut handles, fid) = (Handles::new(), Fid::new(0x400, 1));
        let first = handles.insert(fid, 'a');
        let second = handles.insert(fid, 'b');
        assert_eq!(handles.remove(first), Some('a'));
        assert_eq!((handles.of(fid), handles.of(Fid::new(0x400, 2))), (Some('b'), None));
        assert_eq!(handles.remove(second), Some('b'));
        assert_eq!((handles.of(fid), handles.remove(second)), (None, None));
    }
}

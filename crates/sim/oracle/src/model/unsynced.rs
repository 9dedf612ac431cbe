//! The permitted contents of a file after a power cut. Each block of a disk has any of the changes
//! since the file's last sync, applied in the order in which they were made.

use super::{Body, Ino, Model};

/// A disk writes so much whole or not at all.
pub const BLOCK_BYTES: usize = 4_096;

/// A change of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    start: usize,
    end: usize,
    /// Zeros without any.
    data: Option<Vec<u8>>,
}

/// The last durable data of a file, and what was done to it since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsynced {
    durable: Vec<u8>,
    changes: Vec<Change>,
    shortest: usize,
    longest: usize,
}

impl Unsynced {
    /// `durable` is on disks; nothing was done to it since.
    #[must_use]
    pub fn new(durable: Vec<u8>) -> Unsynced {
        let (shortest, longest) = (durable.len(), durable.len());
        Unsynced { durable, changes: Vec::new(), shortest, longest }
    }

    /// `data` is written at `start`.
    pub fn write(&mut self, start: usize, data: Vec<u8>) {
        self.changes.push(Change { start, end: start + data.len(), data: Some(data) });
    }

    /// Nothing is there from `start` to `end`.
    pub fn zero(&mut self, start: usize, end: usize) {
        self.changes.push(Change { start, end, data: None });
    }

    /// At some time since the last sync it was so long.
    pub fn was_long(&mut self, bytes: usize) {
        self.shortest = self.shortest.min(bytes);
        self.longest = self.longest.max(bytes);
    }

    /// Whether anything was done to its data or its length. A file that was only made longer has a
    /// new object where it ends.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        !self.changes.is_empty() || self.shortest != self.longest
    }

    /// Whether a file of so many bytes may be found: of a length that it had, or shorter where it
    /// was cut. A cut is made object by object. The power may go when the one that held the old end
    /// is cut and the one that shall hold the new end is not made longer: then the file ends behind
    /// the last byte of another object, and only zeros are missing.
    ///
    /// # Errors
    /// Why not.
    pub fn check_len(&self, bytes: usize) -> Result<(), String> {
        let was_cut = self.changes.iter().any(|change| change.end == usize::MAX);
        if bytes > self.longest || (bytes < self.shortest && !was_cut) {
            return Err(format!(
                "it has {bytes} bytes and had {} to {} since its last sync",
                self.shortest, self.longest
            ));
        }
        let mut at = bytes;
        while at < self.shortest {
            let end = (at + 1).next_multiple_of(BLOCK_BYTES).min(self.shortest);
            self.check_block(at, &vec![0; end - at])
                .map_err(|why| format!("a cut left {bytes} bytes: {why}"))?;
            at = end;
        }
        Ok(())
    }

    /// Whether `found` may be at `at`, which is the begin of a block.
    ///
    /// # Errors
    /// The first byte that no choice of the changes explains.
    pub fn check_data(&self, at: usize, found: &[u8]) -> Result<(), String> {
        assert!(at.is_multiple_of(BLOCK_BYTES), "pieces begin with a block");
        let mut blocks = (at..).step_by(BLOCK_BYTES).zip(found.chunks(BLOCK_BYTES));
        blocks.try_for_each(|(start, block)| self.check_block(start, block))
    }

    /// From the last change to the first: one that explains what no later one does was made.
    /// Whether it was does not matter otherwise, so nothing has to be tried twice.
    fn check_block(&self, at: usize, block: &[u8]) -> Result<(), String> {
        let mut open: Vec<usize> = (at..at + block.len()).collect();
        for change in self.changes.iter().rev() {
            let is_in = |byte: &&usize| (change.start..change.end).contains(*byte);
            let matches = |byte: &usize| {
                let data = change.data.as_ref();
                block[byte - at] == data.map_or(0, |data| data[byte - change.start])
            };
            if open.iter().filter(is_in).all(matches) {
                open.retain(|byte| !is_in(&byte));
            }
            if open.is_empty() {
                return Ok(());
            }
        }
        let durable = |byte: usize| self.durable.get(byte).copied().unwrap_or(0);
        match open.into_iter().find(|byte| block[byte - at] != durable(*byte)) {
            None => Ok(()),
            Some(byte) => Err(format!(
                "none of {} changes since its last sync explains byte {byte} of {} durable ones",
                self.changes.len(),
                self.durable.len()
            )),
        }
    }
}

impl Model {
    /// All data is durable now; changes of it are kept from here on.
    pub fn keep_changes(&mut self) {
        self.keeps_changes = true;
    }

    /// What a power cut now may leave of a file's data.
    #[must_use]
    pub fn contents(&self, ino: Ino) -> Option<Unsynced> {
        let node = self.nodes.get(&ino)?;
        let Body::File { data } = &node.body else { return None };
        let mut contents = node.unsynced.clone().unwrap_or_else(|| Unsynced::new(data.clone()));
        contents.was_long(data.len());
        Some(contents)
    }

    /// The data of a file is about to change.
    pub(super) fn changes(&mut self, ino: Ino, change: impl FnOnce(&mut Unsynced)) {
        if !self.keeps_changes {
            return;
        }
        let node = self.node_mut(ino);
        if let Body::File { data } = &node.body {
            let unsynced = node.unsynced.get_or_insert_with(|| Unsynced::new(data.clone()));
            unsynced.was_long(data.len());
            change(unsynced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: usize = BLOCK_BYTES;

    /// Two durable blocks of `a`, then `b` over the second half of the first and the second, then
    /// a cut in the middle of the second and `c` at its begin.
    fn file() -> Unsynced {
        let mut file = Unsynced::new(vec![b'a'; 2 * B]);
        file.write(B / 2, vec![b'b'; 3 * B / 2]);
        file.was_long(3 * B / 2);
        file.zero(3 * B / 2, usize::MAX);
        file.write(B, b"c".to_vec());
        file
    }

    fn check(first: &str, second: &str) -> bool {
        let halves = |text: &str| -> Vec<u8> {
            text.bytes().flat_map(|byte| std::iter::repeat_n(byte, B / 2)).collect()
        };
        let mut found = [halves(first), halves(&second[1..])].concat();
        found[B] = second.as_bytes()[0];
        file().check_data(0, &found).is_ok()
    }

    #[test]
    fn each_block_has_any_of_the_changes_and_whole_ones() {
        for (first, second) in [("aa", "aaa"), ("ab", "bbb"), ("aa", "bbb"), ("ab", "cbb")] {
            assert!(check(first, second), "{first} {second}");
        }
        assert!(check("aa", "caa"), "the last change alone");
        assert!(check("ab", "cb\0"), "all of them");
        assert!(check("aa", "aa\0"), "the cut alone");
        for (first, second) in [("bb", "aaa"), ("ab", "bab"), ("ab", "aba"), ("\0b", "bbb")] {
            assert!(!check(first, second), "{first} {second}");
        }
        assert!(!check("cc", "aaa"), "of another place");
    }

    #[test]
    fn its_length_is_one_that_it_had() {
        let file = file();
        assert!(file.check_len(2 * B).is_ok() && file.check_len(3 * B / 2).is_ok());
        assert!(file.check_len(2 * B + 1).is_err() && file.check_len(3 * B / 2 - 1).is_err());
    }

    #[test]
    fn a_cut_into_a_hole_may_end_where_the_hole_begins() {
        let mut durable = vec![b'a'; B];
        durable.resize(3 * B, 0);
        durable.extend(vec![b'z'; B]);
        let mut file = Unsynced::new(durable);
        assert!(file.check_len(B).is_err(), "it was not cut");
        file.zero(2 * B, usize::MAX);
        file.was_long(2 * B);
        assert!(file.check_len(B).is_ok() && file.check_len(2 * B).is_ok());
        assert!(file.check_len(B - 1).is_err(), "a byte that was written");
    }

    #[test]
    fn a_file_that_was_only_made_longer_is_changed() {
        let mut file = Unsynced::new(Vec::new());
        file.was_long(0);
        assert!(!file.is_changed());
        file.was_long(B);
        assert!(file.is_changed());
    }
}

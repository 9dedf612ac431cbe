//! Counts the kernel's requests by operation (Lustre: `llite.*.stats`), and how often it had to
//! look up all names again.

use std::cell::Cell;

use fusedev::abi::opcode;
use fusedev::{Body, Reply};
use types::{Counter, CounterTable, Row, Timespec};

/// Above all numbers of operations.
const OPERATIONS: usize = 64;

/// Operations in the order of their rows. FORGET and INTERRUPT are no requests.
const NAMES: [(u32, &str); 38] = [
    (opcode::LOOKUP, "lookup"),
    (opcode::GETATTR, "getattr"),
    (opcode::STATX, "statx"),
    (opcode::SETATTR, "setattr"),
    (opcode::READLINK, "readlink"),
    (opcode::SYMLINK, "symlink"),
    (opcode::MKNOD, "mknod"),
    (opcode::MKDIR, "mkdir"),
    (opcode::UNLINK, "unlink"),
    (opcode::RMDIR, "rmdir"),
    (opcode::RENAME, "rename"),
    (opcode::RENAME2, "rename2"),
    (opcode::LINK, "link"),
    (opcode::CREATE, "create"),
    (opcode::TMPFILE, "tmpfile"),
    (opcode::OPEN, "open"),
    (opcode::FLUSH, "flush"),
    (opcode::RELEASE, "release"),
    (opcode::READ, "read"),
    (opcode::WRITE, "write"),
    (opcode::FSYNC, "fsync"),
    (opcode::FALLOCATE, "fallocate"),
    (opcode::LSEEK, "lseek"),
    (opcode::COPY_FILE_RANGE, "copy_file_range"),
    (opcode::OPENDIR, "opendir"),
    (opcode::READDIR, "readdir"),
    (opcode::READDIRPLUS, "readdirplus"),
    (opcode::FSYNCDIR, "fsyncdir"),
    (opcode::RELEASEDIR, "releasedir"),
    (opcode::GETXATTR, "getxattr"),
    (opcode::LISTXATTR, "listxattr"),
    (opcode::SETXATTR, "setxattr"),
    (opcode::REMOVEXATTR, "removexattr"),
    (opcode::GETLK, "getlk"),
    (opcode::SETLK, "setlk"),
    (opcode::SETLKW, "setlkw"),
    (opcode::STATFS, "statfs"),
    (opcode::SYNCFS, "syncfs"),
];

/// Requests of a mount's kernel by operation, and the bytes that its reads and writes moved. What
/// the kernel's page cache answers is not counted.
pub struct Tally {
    requests: [Cell<u64>; OPERATIONS],
    read: Cell<Counter>,
    written: Cell<Counter>,
    names_made_old: Cell<u64>,
}

impl Default for Tally {
    fn default() -> Tally {
        let requests = std::array::from_fn(|_| Cell::default());
        Tally {
            requests,
            read: Cell::default(),
            written: Cell::default(),
            names_made_old: Cell::default(),
        }
    }
}

impl Tally {
    /// A request came.
    pub(crate) fn count(&self, opcode: u32) {
        if let Some(count) = self.requests.get(opcode as usize) {
            count.set(count.get() + 1);
        }
    }

    /// A request is answered; a read and a write moved bytes.
    pub(crate) fn answered(&self, opcode: u32, reply: &Reply) {
        let (counter, bytes) = match (opcode, reply) {
            (opcode::READ, Ok(Body::Pieces(pieces))) => {
                (&self.read, pieces.iter().map(|piece| piece.len() as u64).sum::<u64>())
            }
            (opcode::WRITE, Ok(Body::Write(out))) => (&self.written, u64::from(out.size)),
            _ => return,
        };
        let mut samples = counter.get();
        samples.add(bytes);
        counter.set(samples);
    }

    /// The kernel must look up all names of the mount again.
    pub(crate) fn made_names_old(&self) {
        self.names_made_old.set(self.names_made_old.get() + 1);
    }

    /// Bytes first, as Lustre has it, then requests.
    #[must_use]
    pub fn table(&self, now: Timespec) -> CounterTable {
        let mut rows = vec![
            Row::bytes("read_bytes", self.read.get()),
            Row::bytes("write_bytes", self.written.get()),
        ];
        rows.extend(NAMES.iter().map(|(opcode, name)| {
            let count = self.requests.get(*opcode as usize).map_or(0, Cell::get);
            Row::requests(name, count)
        }));
        rows.push(Row::requests("names_made_old", self.names_made_old.get()));
        CounterTable::Lines { at: Some(now), rows }
    }

    /// Counts from zero again.
    pub fn clear(&self) {
        self.requests.iter().for_each(|count| count.set(0));
        self.read.set(Counter::default());
        self.written.set(Counter::default());
        self.names_made_old.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(tally: &Tally) -> Vec<String> {
        let table = tally.table(Timespec::default()).to_string();
        let words = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        table.lines().skip(1).map(words).collect()
    }

    #[test]
    fn each_operation_has_a_row_once_it_came() {
        let tally = Tally::default();
        for code in [opcode::GETXATTR, opcode::LOOKUP, opcode::GETXATTR, u32::MAX] {
            tally.count(code);
        }
        assert_eq!(lines(&tally), ["lookup 1", "getxattr 2"]);
        tally.clear();
        assert_eq!(lines(&tally), [""; 0]);
    }

    #[test]
    fn bytes_of_reads_and_writes_are_counted_once_they_are_answered() {
        let tally = Tally::default();
        let written = fusedev::abi::WriteOut { size: 7, padding: 0 };
        let read = || Ok(Body::Pieces(vec![bytes::Bytes::from_static(b"four"); 2]));
        tally.answered(opcode::READ, &read());
        tally.answered(opcode::READ, &Err(types::Errno::EIO));
        tally.answered(opcode::LOOKUP, &read());
        tally.answered(opcode::WRITE, &Ok(Body::Write(written)));
        let text = tally.table(Timespec::default()).to_string();
        let (_, text) = text.split_once('\n').expect("the time is first");
        let expected = format!(
            "{:<25} 1 samples [bytes] 8 8 8\n{:<25} 1 samples [bytes] 7 7 7\n",
            "read_bytes", "write_bytes"
        );
        assert_eq!(text, expected);
        tally.clear();
        assert_eq!(lines(&tally), [""; 0]);
    }

    #[test]
    fn names_that_are_made_old_are_counted() {
        let tally = Tally::default();
        tally.made_names_old();
        assert_eq!(lines(&tally), ["names_made_old 1"]);
        tally.clear();
        assert_eq!(lines(&tally), [""; 0]);
    }

    #[test]
    fn no_operation_has_two_rows() {
        let mut opcodes = NAMES.map(|(opcode, _)| opcode);
        opcodes.sort_unstable();
        assert!(opcodes.is_sorted_by(|a, b| a < b) && opcodes[37] < OPERATIONS as u32);
    }
}

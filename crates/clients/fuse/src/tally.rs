//! Counts the kernel's requests by operation (Lustre: `llite.*.stats`).

use std::cell::Cell;

use fusedev::abi::opcode;
use types::{CounterTable, Row, Timespec};

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

/// Requests of a mount's kernel, by operation.
pub struct Tally([Cell<u64>; OPERATIONS]);

impl Default for Tally {
    fn default() -> Tally {
        Tally(std::array::from_fn(|_| Cell::default()))
    }
}

impl Tally {
    /// A request came.
    pub(crate) fn count(&self, opcode: u32) {
        if let Some(count) = self.0.get(opcode as usize) {
            count.set(count.get() + 1);
        }
    }

    /// Rows of what came at all.
    #[must_use]
    pub fn table(&self, now: Timespec) -> CounterTable {
        let rows = NAMES.iter().map(|(opcode, name)| {
            let count = self.0.get(*opcode as usize).map_or(0, Cell::get);
            Row::requests(name, count)
        });
        CounterTable::Lines { at: Some(now), rows: rows.collect() }
    }

    /// Counts from zero again.
    pub fn clear(&self) {
        self.0.iter().for_each(|count| count.set(0));
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
    fn no_operation_has_two_rows() {
        let mut opcodes = NAMES.map(|(opcode, _)| opcode);
        opcodes.sort_unstable();
        assert!(opcodes.is_sorted_by(|a, b| a < b) && opcodes[37] < OPERATIONS as u32);
    }
}

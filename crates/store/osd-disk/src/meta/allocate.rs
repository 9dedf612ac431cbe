//! Room for a transaction that needs more than was allocated ahead. A thread of its own allocates
//! it while the store is `Busy`. An allocation waits for the file system, which may wait for its
//! disk.

use std::fs::File;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use super::commit::{Synced, Written};
use super::room;
use super::told::{Allocated, Told};

/// Allocates one piece at a time, as it is asked.
pub(super) struct Allocator {
    told: Arc<Told<Written, Synced>>,
    place: Place,
}

enum Place {
    Thread {
        asks: Option<mpsc::Sender<u64>>, // none only while it is dropped
        thread: Option<JoinHandle<()>>,
    },
    /// On the caller's thread: for simulations.
    Inline(File),
}

impl Allocator {
    /// For the store whose data is `file`; each answer goes to `told`.
    pub(super) fn start(
        file: File,
        told: Arc<Told<Written, Synced>>,
        is_inline: bool,
    ) -> std::io::Result<Allocator> {
        let place = match is_inline {
            true => Place::Inline(file),
            false => {
                let (asks, asked) = mpsc::channel();
                let theirs = told.clone();
                let thread =
                    std::thread::Builder::new().name("allocate".to_owned()).spawn(move || {
                        while let Ok(bytes) = asked.recv() {
                            theirs.allocated(allocate(&file, bytes));
                        }
                    })?;
                Place::Thread { asks: Some(asks), thread: Some(thread) }
            }
        };
        Ok(Allocator { told, place })
    }

    /// Asks for the first `bytes` of the file.
    pub(super) fn ask(&self, bytes: u64) {
        match &self.place {
            Place::Inline(file) => self.told.allocated(allocate(file, bytes)),
            Place::Thread { asks, .. } => {
                let is_asked = asks.as_ref().is_some_and(|asks| asks.send(bytes).is_ok());
                if !is_asked {
                    self.told.allocated(Err("the thread is gone".to_owned()));
                }
            }
        }
    }
}

impl Drop for Allocator {
    fn drop(&mut self) {
        if let Place::Thread { asks, thread } = &mut self.place {
            *asks = None;
            if let Some(thread) = thread.take() {
                let _ended = thread.join();
            }
        }
    }
}

fn allocate(file: &File, bytes: u64) -> Allocated {
    room::allocate(file, bytes).map_err(|error| format!("an allocation: {error}"))
}

#[cfg(test)]
mod tests {
    use osd::{MetaStore, StoreError, Table, WriteSet};

    use crate::testdir::{TestDir, wait};
    use crate::{DiskMeta, MetaOptions};

    fn open(dir: &TestDir) -> std::rc::Rc<DiskMeta> {
        DiskMeta::open(dir.path(), &MetaOptions::default()).expect("opens")
    }

    fn large(number: u32) -> WriteSet {
        let mut set = WriteSet::new();
        set.put(Table::Inodes, number.to_be_bytes(), vec![number as u8; 50_000]);
        set
    }

    fn count(meta: &DiskMeta) -> u32 {
        let mut count = 0;
        let view = meta.running().expect("reads go on");
        let scanned = view.scan(Table::Inodes, &[], &mut |_, _| {
            count += 1;
            true
        });
        scanned.expect("scans");
        count
    }

    #[test]
    fn room_for_a_large_transaction_is_allocated_while_changes_wait() {
        const SETS: u32 = 1_000;
        let dir = TestDir::new();
        let meta = open(&dir);
        let mut waits = 0;
        for number in 0..SETS {
            if meta.apply(&large(number)) == Err(StoreError::Busy) {
                waits += 1;
                assert_eq!(count(&meta), number);
                wait(osd::apply(&*meta, &large(number))).expect("room");
            }
        }
        assert!((1..=4).contains(&waits), "a piece of 16 MiB at a time: {waits}");
        wait(meta.commit()).expect("commits");
        drop(meta);
        assert_eq!(count(&open(&dir)), SETS);
    }

    #[test]
    fn a_commit_may_begin_while_room_is_allocated() {
        let dir = TestDir::new();
        let meta = open(&dir);
        let mut number = 0;
        while meta.apply(&large(number)) != Err(StoreError::Busy) {
            number += 1;
        }
        wait(meta.commit()).expect("commits");
        wait(osd::apply(&*meta, &large(number))).expect("room");
        wait(meta.commit()).expect("commits");
        drop(meta);
        assert_eq!(count(&open(&dir)), number + 1);
    }
}

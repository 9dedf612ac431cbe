//! Copies of a store that changes during the copy.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::sync::Arc;

use osd::WriteSet;
use types::SplitMix64;

use super::*;
use crate::export::Reader;
use crate::meta::MetaOptions;
use crate::meta::copying::beside;
use crate::testdir::{TestDir, wait};
use crate::{BeforeSync, Superblock};

type Dump = Vec<(Table, Vec<u8>, Vec<u8>)>;

fn open(dir: &TestDir) -> Rc<DiskMeta> {
    DiskMeta::open(dir.path(), &MetaOptions::default()).expect("opens")
}

fn head() -> Head {
    let fsname = "testfs".parse().expect("a name");
    let superblock =
        Superblock::new(fsname, types::TargetId::mdt(0), 5, Vec::new(), types::Timespec::new(1, 2));
    Head { superblock, instance: 3, store: 4, taken: types::Timespec::new(5, 6) }
}

fn dump(meta: &DiskMeta) -> Dump {
    let (mut all, view) = (Vec::new(), meta.running().expect("not busy"));
    for table in Table::ALL {
        let mut note = |key: &[u8], value: &[u8]| {
            all.push((table, key.to_vec(), value.to_vec()));
            true
        };
        view.scan(table, &[], &mut note).expect("scans");
    }
    all
}

/// Makes a store of a file.
fn restored(path: &Path, dir: &TestDir) -> Rc<DiskMeta> {
    let mut reader = Reader::new(File::open(path).expect("opens")).expect("a head");
    assert_eq!(reader.head(), &head());
    let meta = open(dir);
    while let Some(changes) = reader.next_block().expect("a block") {
        for change in changes {
            let mut set = WriteSet::new();
            set.changes.push((change.table, change.key, change.value));
            wait(meta.ready());
            meta.apply(&set).expect("room");
        }
    }
    wait(meta.commit()).expect("commits");
    meta
}

fn keyed(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// What one operation changes: a record in an early and in a late table are there together or not
/// at all, and say the same.
fn operation(chance: &mut SplitMix64, count: u64) -> WriteSet {
    let (mut set, number) = (WriteSet::new(), chance.below(3_000));
    if chance.below(3) == 0 {
        set.delete(Table::Layouts, keyed(number));
        set.delete(Table::Dirents, keyed(number));
    } else if chance.below(60) == 0 {
        for table in [Table::Layouts, Table::Dirents] {
            set.delete_range(table, keyed(number), keyed(number + 8));
        }
    } else {
        let value = vec![count as u8; 1 + chance.below(1_500) as usize];
        set.put(Table::Layouts, keyed(number), value.clone());
        set.put(Table::Dirents, keyed(number), value);
    }
    set.put(Table::Meta, *b"operations", keyed(count));
    set
}

fn of(all: &Dump, wanted: Table) -> Vec<(&[u8], &[u8])> {
    let records = all.iter().filter(|(table, _, _)| *table == wanted);
    records.map(|(_, key, value)| (&key[..], &value[..])).collect()
}

#[test]
fn a_copy_under_changes_and_commits_is_the_image_of_one_moment() {
    for seed in 0..6 {
        let (dir, other) = (TestDir::new(), TestDir::new());
        let meta = open(&dir);
        let state = RefCell::new((SplitMix64::new(seed), 0));
        let work = |sets: u32| {
            let (chance, count) = &mut *state.borrow_mut();
            for _ in 0..sets {
                *count += 1;
                wait(meta.ready());
                meta.apply(&operation(chance, *count)).expect("room");
            }
        };
        work(3_000);
        let path = dir.path().join("copy");
        let busy = async || {
            if meta.backlog() > BACKLOG_READ_BYTES_MAX {
                // a thread that is late with the file would have it given up
                return std::thread::sleep(std::time::Duration::from_millis(1));
            }
            work(200);
            let commit = meta.commit(); // it goes on while the copy reads
            if state.borrow_mut().0.below(2) == 0 {
                commit.await.expect("commits");
            }
        };
        let progress = Rc::new(CopyProgress::default());
        wait(meta.copy(&path, &head(), &progress, busy)).expect("a copy");
        let all = dump(&meta);
        work(200); // not in it any more
        let copied = restored(&path, &other);
        assert_eq!(dump(&copied), all, "seed {seed}");
        assert_eq!(of(&all, Table::Layouts), of(&all, Table::Dirents));
        assert!(progress.records.get() > 2_000, "{progress:?}");
        assert_eq!(progress.bytes.get(), path.metadata().expect("there").len());
        drop(copied);
        open(&other); // the walk of all pages finds nothing wrong
    }
}

#[test]
fn changes_behind_what_was_read_are_in_the_file() {
    /// A pause comes after each.
    const TABLES_BEFORE: u64 = Table::Inodes as u64;
    let (dir, other) = (TestDir::new(), TestDir::new());
    let meta = open(&dir);
    let mut set = WriteSet::new();
    (0..2_000).for_each(|number| set.put(Table::Inodes, keyed(number), *b"old"));
    meta.apply(&set).expect("room");
    let path = dir.path().join("copy");
    let pauses = Cell::new(0);
    let pause = async || {
        pauses.set(pauses.get() + 1);
        let mut set = WriteSet::new();
        set.put(Table::Inodes, keyed(0), keyed(pauses.get()));
        if pauses.get() == TABLES_BEFORE + 1 {
            set.delete(Table::Inodes, keyed(1)); // it was read a moment ago
        }
        set.put(Table::Inodes, keyed(1_999), keyed(pauses.get()));
        meta.apply(&set).expect("room");
    };
    wait(meta.copy(&path, &head(), &Rc::default(), pause)).expect("a copy");
    assert!(pauses.get() > TABLES_BEFORE + 3);
    let copied = restored(&path, &other);
    let all = dump(&copied);
    assert_eq!((all.len(), &all), (1_999, &dump(&meta)));
    assert_eq!(all[0].2, keyed(pauses.get()));
}

#[test]
fn a_copy_that_fails_leaves_the_last_one() {
    let dir = TestDir::new();
    let meta = open(&dir);
    let mut set = WriteSet::new();
    (0..2_000).for_each(|number| set.put(Table::Inodes, keyed(number), *b"value"));
    meta.apply(&set).expect("room");
    let (path, no_pause) = (dir.path().join("copy"), async || {});
    wait(meta.copy(&path, &head(), &Rc::default(), no_pause)).expect("a copy");
    let last = std::fs::read(&path).expect("there");

    let missing = dir.path().join("missing/copy");
    let why = wait(meta.copy(&missing, &head(), &Rc::default(), no_pause)).expect_err("no place");
    assert!(why.to_string().contains("missing/copy"), "{why}");

    let long = async || {
        let mut set = WriteSet::new();
        set.put(Table::Meta, *b"long", vec![7; crate::export::VALUE_BYTES_MAX + 1]);
        meta.apply(&set).expect("room");
    };
    let why = wait(meta.copy(&path, &head(), &Rc::default(), long)).expect_err("too long");
    assert!(why.to_string().contains("Meta is too long"), "{why}");

    let twice = async || {
        let second = meta.copy(&path, &head(), &Rc::default(), async || {}).await;
        assert!(matches!(second, Err(CopyError::Twice)));
    };
    set = WriteSet::new();
    set.delete(Table::Meta, *b"long");
    meta.apply(&set).expect("applies");
    wait(meta.copy(&path, &head(), &Rc::default(), twice)).expect("a copy");
    assert_eq!(std::fs::read(&path).expect("there"), last);
    assert!(!beside(&path).exists());
}

#[test]
fn a_file_has_one_writer_and_is_no_link() {
    let (dir, other) = (TestDir::new(), TestDir::new());
    let (meta, another) = (open(&dir), open(&other));
    let path = dir.path().join("copy");
    let meanwhile = async || {
        let second = another.copy(&path, &head(), &Rc::default(), async || {}).await;
        let why = second.expect_err("it is being written").to_string();
        assert!(why.contains("another copy writes it"), "{why}");
    };
    wait(meta.copy(&path, &head(), &Rc::default(), meanwhile)).expect("a copy");
    restored(&path, &TestDir::new());

    let precious = dir.path().join("precious");
    std::fs::write(&precious, "kept").expect("written");
    std::os::unix::fs::symlink(&precious, beside(&path)).expect("a link");
    wait(meta.copy(&path, &head(), &Rc::default(), async || {})).expect_err("a link");
    assert_eq!(std::fs::read(&precious).expect("there"), b"kept");
}

#[test]
fn a_copy_of_what_never_became_durable_gets_no_name() {
    let dir = TestDir::new();
    let is_broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let broken = is_broken.clone();
    let before_sync = BeforeSync::new(move || match broken.load(Ordering::Acquire) {
        true => Err(std::io::Error::other("the disk is gone")),
        false => Ok(()),
    });
    let options = MetaOptions { before_sync, ..MetaOptions::default() };
    let meta = DiskMeta::open(dir.path(), &options).expect("opens");
    let mut set = WriteSet::new();
    set.put(Table::Meta, *b"key", *b"value");
    meta.apply(&set).expect("room");
    is_broken.store(true, Ordering::Release);
    let path = dir.path().join("copy");
    let copied = wait(meta.copy(&path, &head(), &Rc::default(), async || {}));
    assert!(matches!(copied, Err(CopyError::Store(_))), "{copied:?}");
    assert!(!path.exists());
}

#[test]
fn a_copy_that_is_dropped_ends_in_the_store() {
    let dir = TestDir::new();
    let meta = open(&dir);
    let path = dir.path().join("copy");
    let progress = Rc::default();
    let head = head();
    let mut copy = Box::pin(meta.copy(&path, &head, &progress, std::future::pending));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(copy.as_mut().poll(&mut cx).is_pending());
    assert!(meta.copying.borrow().is_some());
    drop(copy);
    assert!(meta.copying.borrow().is_none());
    let again = loop {
        match wait(meta.copy(&path, &head, &progress, async || {})) {
            Err(CopyError::Twice) => std::thread::yield_now(), // its thread has not ended yet
            other => break other,
        }
    };
    again.expect("another one");
}

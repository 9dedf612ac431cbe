//! The record store on a real directory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::testdir::{TestDir, wait};

fn open(dir: &TestDir) -> Rc<DiskMeta> {
    DiskMeta::open(dir.path(), &MetaOptions::default()).expect("opens")
}

fn small(dir: &TestDir) -> Rc<DiskMeta> {
    let options = MetaOptions { map_bytes: Some(MAP_BYTES_MIN), ..MetaOptions::default() };
    DiskMeta::open(dir.path(), &options).expect("opens")
}

fn put(number: u32, bytes: usize) -> WriteSet {
    let mut set = WriteSet::new();
    set.put(Table::Inodes, number.to_be_bytes(), vec![number as u8; bytes]);
    set.put(Table::Meta, *b"last", number.to_be_bytes());
    set
}

fn delete(number: u32) -> WriteSet {
    let mut set = WriteSet::new();
    set.delete(Table::Inodes, number.to_be_bytes());
    set
}

/// Waits for room where some has to be allocated.
fn apply(meta: &DiskMeta, set: &WriteSet) -> Result<(), StoreError> {
    wait(osd::apply(meta, set))
}

fn numbers(meta: &DiskMeta) -> Vec<u32> {
    let mut numbers = Vec::new();
    meta.running()
        .expect("not busy")
        .scan(Table::Inodes, &[], &mut |key, _| {
            numbers.push(u32::from_be_bytes(key.try_into().expect("four bytes")));
            true
        })
        .expect("scans");
    numbers
}

#[test]
fn an_opening_finds_exactly_the_committed_prefix() {
    let dir = TestDir::new();
    let meta = open(&dir);
    for number in 0..1_000 {
        meta.apply(&put(number, 100)).expect("room");
    }
    wait(meta.commit()).expect("commits");
    for number in 1_000..2_000 {
        meta.apply(&put(number, 100)).expect("room");
    }
    assert_eq!(numbers(&meta).len(), 2_000);
    drop(meta);
    let meta = open(&dir);
    assert_eq!(numbers(&meta), (0..1_000).collect::<Vec<_>>());
    let last = meta.running().expect("not busy").get(Table::Meta, b"last").expect("reads");
    assert_eq!(last, Some(999_u32.to_be_bytes().to_vec()));
}

#[test]
fn a_commit_is_busy_once_and_shared() {
    let dir = TestDir::new();
    let meta = open(&dir);
    assert_eq!(meta.dirty_bytes(), 0);
    meta.apply(&put(1, 10)).expect("room");
    assert!(meta.dirty_bytes() > 0);
    let view = meta.running().expect("not busy");
    let (first, second) = (meta.commit(), meta.commit());
    // The thread may have finished already: then nothing is busy any more, which is as good.
    match meta.apply(&put(2, 10)) {
        Err(StoreError::Busy) => assert_eq!(wait(second), Ok(())),
        other => assert_eq!(other, Ok(())),
    }
    wait(meta.ready());
    assert!(view.get(Table::Meta, b"last").expect("reads of the new image").is_some());
    assert_eq!(wait(first), Ok(()));
}

/// The disk works on each commit until it is let go.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn options(&self) -> MetaOptions {
        let gate = self.clone();
        let before_sync = BeforeSync::new(move || {
            let closed = gate.0.0.lock().expect("no panic");
            drop(gate.0.1.wait_while(closed, |closed| *closed).expect("no panic"));
            Ok(())
        });
        MetaOptions { before_sync, ..MetaOptions::default() }
    }

    fn set(&self, closed: bool) {
        *self.0.0.lock().expect("no panic") = closed;
        self.0.1.notify_all();
    }
}

#[test]
fn reads_and_changes_go_on_while_the_disk_works() {
    let (dir, gate) = (TestDir::new(), Gate::default());
    let meta = DiskMeta::open(dir.path(), &gate.options()).expect("opens");
    meta.apply(&put(0, 100)).expect("room");
    gate.set(true);
    let first = meta.commit();
    for number in 1..2_000 {
        wait(meta.ready());
        meta.apply(&put(number, 100)).expect("room");
        let last = meta.running().expect("ready").get(Table::Meta, b"last").expect("reads");
        assert_eq!(last, Some(number.to_be_bytes().to_vec()));
    }
    let second = meta.commit();
    gate.set(false);
    wait(first).expect("commits");
    wait(second).expect("commits");
    drop(meta);
    assert_eq!(numbers(&open(&dir)), (0..2_000).collect::<Vec<_>>());
}

#[test]
fn what_may_come_behind_a_commit_is_bounded() {
    let (dir, gate) = (TestDir::new(), Gate::default());
    let meta = DiskMeta::open(dir.path(), &gate.options()).expect("opens");
    meta.apply(&put(0, 100)).expect("room");
    gate.set(true);
    let first = meta.commit();
    wait(meta.ready());
    let mut number = 1;
    loop {
        match meta.apply(&put(number, 100_000)) {
            Err(StoreError::Busy) if meta.allocating.get() => wait(meta.ready()),
            Err(StoreError::Busy) => break,
            _ => number += 1,
        }
    }
    let behind = u64::from(number) * 100_000;
    let bound = BEHIND_COMMIT_BYTES_MAX;
    assert!((bound * 9 / 10..bound * 11 / 10).contains(&behind), "{behind}");
    assert!(meta.running().expect("reads go on").get(Table::Meta, b"last").is_ok());
    gate.set(false);
    wait(meta.ready());
    meta.apply(&put(number, 100)).expect("taken");
    wait(first).expect("commits");
}

#[test]
fn a_sync_that_fails_ends_the_store_with_all_that_came_behind() {
    let dir = TestDir::new();
    let failing = Arc::new(AtomicBool::new(false));
    let fails = failing.clone();
    let before_sync = BeforeSync::new(move || match fails.load(Ordering::Relaxed) {
        true => Err(std::io::Error::other("planted")),
        false => Ok(()),
    });
    let options = MetaOptions { before_sync, ..MetaOptions::default() };
    let meta = DiskMeta::open(dir.path(), &options).expect("opens");
    meta.apply(&put(1, 100)).expect("room");
    wait(meta.commit()).expect("commits");
    failing.store(true, Ordering::Relaxed);
    meta.apply(&put(2, 100)).expect("room");
    let (first, second) = (meta.commit(), meta.commit());
    wait(meta.ready());
    let _late = meta.apply(&put(3, 100));
    assert!(matches!(wait(first), Err(StoreError::Failed(_))));
    assert!(matches!(wait(second), Err(StoreError::Failed(_))));
    assert!(matches!(meta.apply(&put(4, 100)), Err(StoreError::Failed(_))));
    assert!(meta.running().is_err());
    drop(meta);
    assert_eq!(numbers(&open(&dir)), [1], "what was written out and not synced is not believed");
}

/// Power goes while the disk works: of the pages that it was given, it has some, root pages
/// included.
#[test]
fn a_power_cut_leaves_exactly_the_durable_root() {
    let read = |dir: &TestDir| std::fs::read(dir.path().join("records/data.mdb")).expect("reads");
    for seed in 0..20 {
        let (dir, gate) = (TestDir::new(), Gate::default());
        let meta = DiskMeta::open(dir.path(), &gate.options()).expect("opens");
        for number in 0..500 {
            meta.apply(&put(number, 100)).expect("room");
            if number % 100 == 0 {
                wait(meta.commit()).expect("commits");
            }
        }
        wait(meta.commit()).expect("commits");
        let before = read(&dir);
        gate.set(true);
        for number in 300..900 {
            let change = if number < 500 { delete(number) } else { put(number, 100) };
            meta.apply(&change).expect("room");
        }
        let commit = meta.commit();
        wait(meta.ready());
        let after = read(&dir);
        let cut = TestDir::new();
        std::fs::create_dir(cut.path().join("records")).expect("a directory");
        let (mut chance, mut image) = (types::SplitMix64::new(seed), after.clone());
        for (page, old) in image.chunks_mut(4_096).zip(before.chunks(4_096)) {
            if chance.below(2) == 0 {
                page.copy_from_slice(old);
            }
        }
        if seed == 0 {
            image = after; // the disk has everything, and was not asked to keep it
        }
        std::fs::write(cut.path().join("records/data.mdb"), image).expect("writes");
        std::fs::copy(dir.path().join("records/root"), cut.path().join("records/root"))
            .expect("copies");
        assert_eq!(numbers(&open(&cut)), (0..500).collect::<Vec<_>>(), "seed {seed}");
        gate.set(false);
        wait(commit).expect("commits");
        drop(meta);
        let all: Vec<_> = (0..300).chain(500..900).collect();
        assert_eq!(numbers(&open(&dir)), all);
    }
}

/// What is torn for simulations is nothing that the durable root needs, and the tree of a commit
/// that was not synced.
#[test]
fn a_torn_store_is_its_durable_root() {
    for seed in 0..10 {
        let (dir, gate) = (TestDir::new(), Gate::default());
        let meta = DiskMeta::open(dir.path(), &gate.options()).expect("opens");
        for number in 0..500 {
            meta.apply(&put(number, 100)).expect("room");
            if number % 100 == 0 {
                wait(meta.commit()).expect("commits");
            }
        }
        wait(meta.commit()).expect("commits");
        gate.set(true);
        (300..900).for_each(|number| {
            let change = if number < 500 { delete(number) } else { put(number, 100) };
            meta.apply(&change).expect("room");
        });
        let commit = meta.commit();
        wait(meta.ready());
        let cut = TestDir::new();
        std::fs::create_dir(cut.path().join("records")).expect("a directory");
        for name in ["records/data.mdb", "records/root"] {
            std::fs::copy(dir.path().join(name), cut.path().join(name)).expect("copies");
        }
        let read = || std::fs::read(cut.path().join("records/data.mdb")).expect("reads");
        let before = read();
        crate::tear_records(cut.path(), seed).expect("tears");
        assert!(read() != before, "something was written out");
        assert_eq!(numbers(&open(&cut)), (0..500).collect::<Vec<_>>(), "seed {seed}");
        gate.set(false);
        wait(commit).expect("commits");
    }
}

#[test]
fn a_store_without_a_durable_root_is_taken_over_and_one_without_data_is_refused() {
    let dir = TestDir::new();
    let meta = open(&dir);
    meta.apply(&put(1, 100)).expect("room");
    wait(meta.commit()).expect("commits");
    drop(meta);
    let records = dir.path().join("records");
    std::fs::remove_file(records.join("root")).expect("it is there");
    assert_eq!(numbers(&open(&dir)), [1], "as older versions left it");
    assert_eq!(numbers(&open(&dir)), [1]);
    std::fs::write(records.join("data.mdb"), b"").expect("writes");
    let refused = DiskMeta::open(dir.path(), &MetaOptions::default()).map(drop);
    assert!(matches!(refused, Err(DiskError::Records { .. })), "{refused:?}");
}

#[test]
fn a_store_is_opened_once() {
    let dir = TestDir::new();
    let meta = open(&dir);
    assert!(matches!(
        DiskMeta::open(dir.path(), &MetaOptions::default()),
        Err(DiskError::InUse(_))
    ));
    drop(meta);
    open(&dir);
}

#[test]
fn a_full_store_refuses_whole_sets_and_takes_removals_for_ever() {
    let dir = TestDir::new();
    let meta = small(&dir);
    assert_eq!(meta.is_full(), Ok(false));
    let mut stored = 0;
    let full = loop {
        match apply(&meta, &put(stored, 3_000)) {
            Ok(()) => stored += 1,
            Err(why) => {
                let free = meta.space().expect("tells").bytes_free;
                wait(meta.commit()).expect("a commit never runs out of space");
                if apply(&meta, &put(stored, 3_000)).is_err() {
                    assert!(free < 1 << 20, "{free}");
                    break why;
                }
                stored += 1;
            }
        }
        if stored % 200 == 0 {
            wait(meta.commit()).expect("a commit never runs out of space");
        }
    };
    assert_eq!(full, StoreError::Full);
    assert_eq!(meta.is_full(), Ok(true));
    assert!(stored > 1_000, "{stored}");
    assert_eq!(numbers(&meta).len(), stored as usize, "a refused set has changed nothing");

    for number in 0..stored {
        if apply(&meta, &delete(number)) == Err(StoreError::Full) {
            wait(meta.commit()).expect("commits");
            apply(&meta, &delete(number)).expect("removals go on after a commit");
        }
    }
    wait(meta.commit()).expect("commits");
    assert_eq!(numbers(&meta), []);
    for number in 0..3 {
        let _free_pages_come_back_two_commits_later = apply(&meta, &put(number, 100));
        wait(meta.commit()).expect("commits");
    }
    let again =
        (0..stored / 2).take_while(|number| apply(&meta, &put(*number, 3_000)).is_ok()).count();
    assert_eq!(again, (stored / 2) as usize);
}

#[test]
fn large_values_and_missing_keys() {
    let dir = TestDir::new();
    let meta = open(&dir);
    let mut set = WriteSet::new();
    set.put(Table::Xattrs, vec![7; osd::KEY_BYTES_MAX], vec![9; 100_000]);
    set.delete(Table::Xattrs, *b"absent");
    meta.apply(&set).expect("room");
    wait(meta.commit()).expect("commits");
    let view = meta.running().expect("not busy");
    assert_eq!(view.get(Table::Xattrs, &[7; osd::KEY_BYTES_MAX]), Ok(Some(vec![9; 100_000])));
    assert_eq!(view.get(Table::Layouts, b"absent"), Ok(None));
    let mut seen = 0;
    view.scan(Table::Xattrs, &[8], &mut |_, _| {
        seen += 1;
        true
    })
    .expect("scans");
    assert_eq!(seen, 0);
}

#[test]
fn it_passes_the_suite_of_every_body() {
    let fresh = |room: u64| {
        let dir = TestDir::new();
        let open = move || -> Rc<dyn MetaStore> {
            let map_bytes = Some(room);
            let options = MetaOptions { map_bytes, ..MetaOptions::default() };
            DiskMeta::open(dir.path(), &options).expect("opens")
        };
        osd::conformance::MetaBed { open: Box::new(open), crash: Box::new(|| {}) }
    };
    osd::conformance::meta_suite(&|case| wait(case), &fresh);
}

/// A store as version 1 wrote it: no durable root, no checksums.
fn old_store(dir: &TestDir, records: &[(Table, Vec<u8>, Vec<u8>)]) {
    let path = dir.path().join("records");
    std::fs::create_dir(&path).expect("a directory");
    let env = lmdb::Env::open(&path, 8 << 20, TABLES_MAX).expect("opens");
    let mut txn = env.begin().expect("begins");
    for table in Table::ALL {
        let dbi = txn.table(&format!("t{}", table as u8)).expect("a table");
        for (_, key, value) in records.iter().filter(|(of, _, _)| *of == table) {
            txn.put(dbi, key, value).expect("room");
        }
    }
    drop(txn.commit().expect("commits"));
}

/// Swaps the only two places of a text in `data.mdb`; they may lie in an old page as well.
fn damage(dir: &TestDir, from: &[u8], to: &[u8]) {
    let path = dir.path().join("records/data.mdb");
    let mut data = std::fs::read(&path).expect("reads");
    let mut found = 0;
    for at in 0..data.len() - from.len() {
        if data[at..].starts_with(from) {
            data[at..at + to.len()].copy_from_slice(to);
            found += 1;
        }
    }
    assert!(found > 0, "the text is there");
    std::fs::write(&path, data).expect("writes");
}

#[test]
fn a_damaged_value_is_refused_and_its_neighbours_are_not() {
    let dir = TestDir::new();
    let meta = open(&dir);
    let mut set = WriteSet::new();
    for (table, key) in [(Table::Inodes, "a"), (Table::Inodes, "b"), (Table::Xattrs, "a")] {
        set.put(table, key, format!("value of {key} in {table:?}"));
    }
    set.put(Table::Dirents, *b"one", *b"first entry");
    set.put(Table::Dirents, *b"two", *b"second entry");
    meta.apply(&set).expect("room");
    wait(meta.commit()).expect("commits");
    drop(meta);
    damage(&dir, b"value of b in Inodes", b"value of b in Inodez");
    damage(&dir, b"twosecond", b"twpsecond");
    let meta = open(&dir);
    let view = meta.running().expect("ready");
    let damaged = StoreError::Damaged { table: Table::Inodes, key: b"b".to_vec() };
    assert_eq!(view.get(Table::Inodes, b"b"), Err(damaged.clone()));
    assert_eq!(damaged.to_string(), "a record of Inodes is damaged, its key is 62");
    assert!(view.get(Table::Inodes, b"a").expect("whole").is_some());
    assert!(view.get(Table::Xattrs, b"a").expect("whole").is_some());
    let mut seen = Vec::new();
    let scanned = view.scan(Table::Dirents, &[], &mut |key, _| {
        seen.push(key.to_vec());
        true
    });
    let key = b"twp".to_vec();
    assert_eq!(scanned, Err(StoreError::Damaged { table: Table::Dirents, key }));
    assert_eq!(seen, [b"one"]);
    drop(view);
    let mut set = WriteSet::new();
    set.put(Table::Inodes, *b"b", *b"another");
    meta.apply(&set).expect("a damaged record is replaced");
    wait(meta.commit()).expect("commits");
    let again = meta.running().expect("ready").get(Table::Inodes, b"b");
    assert_eq!(again, Ok(Some(b"another".to_vec())));
}

#[test]
fn records_of_an_older_version_get_checksums_at_the_first_opening() {
    let dir = TestDir::new();
    let mut records = Vec::new();
    for number in 0..2_500_u32 {
        let value = format!("value {number}").into_bytes();
        records.push((Table::Inodes, number.to_be_bytes().to_vec(), value));
    }
    records.push((Table::Xattrs, b"large".to_vec(), vec![7; 50_000]));
    records.push((Table::Config, b"last".to_vec(), b"of all".to_vec()));
    old_store(&dir, &records);
    for opening in 0..2 {
        let meta = open(&dir);
        let view = meta.running().expect("ready");
        for (table, key, value) in &records {
            let found = view.get(*table, key).expect("reads");
            assert_eq!(found.as_ref(), Some(value), "opening {opening}");
        }
        drop(view);
        meta.with(|running| {
            assert!(running.sums.is_all());
            let stored = running.txn.get(meta.dbi(Table::Config), b"last")?;
            assert_eq!(stored.map(<[u8]>::len), Some(b"of all".len() + sums::SUM_BYTES));
            Ok(())
        })
        .expect("reads");
    }
    damage(&dir, b"value 1234", b"value 1235");
    let found = open(&dir).running().expect("ready").get(Table::Inodes, &1_234_u32.to_be_bytes());
    assert!(matches!(found, Err(StoreError::Damaged { .. })), "{found:?}");
}

#[test]
fn a_full_store_of_an_older_version_is_read_as_far_as_it_has_checksums() {
    let dir = TestDir::new();
    let records: Vec<_> = (0..1_500_u32)
        .map(|number| (Table::Inodes, number.to_be_bytes().to_vec(), vec![1; 3_900]))
        .collect();
    old_store(&dir, &records);
    let meta = small(&dir);
    assert!(meta.with(|running| Ok(!running.sums.is_all())).expect("reads"));
    assert_eq!(numbers(&meta), (0..1_500).collect::<Vec<_>>());
    for number in 0..1_500 {
        meta.apply(&delete(number))
            .or_else(|_| {
                wait(meta.commit()).expect("commits");
                meta.apply(&delete(number))
            })
            .expect("removals are taken");
    }
    wait(meta.commit()).expect("commits");
    drop(meta);
    let meta = small(&dir);
    assert!(meta.with(|running| Ok(running.sums.is_all())).expect("reads"));
}

/// A store with all that a tree can have: several levels, large values, free pages.
fn rich_store(dir: &TestDir) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
    let meta = small(dir);
    let mut records = Vec::new();
    for number in 0..3_000_u32 {
        let mut set = put(number, 120);
        let entry = [&number.wrapping_mul(0x9e37_79b1).to_be_bytes()[..], &[7; 8]].concat();
        set.put(Table::Dirents, entry.clone(), vec![number as u8; 40]);
        if number % 100 == 0 {
            set.put(Table::Xattrs, number.to_be_bytes(), vec![number as u8; 9_000]);
        }
        apply(&meta, &set).expect("room");
        records.extend(set.changes);
        if number % 500 == 0 {
            wait(meta.commit()).expect("commits");
        }
    }
    for number in 1_000..1_500_u32 {
        apply(&meta, &delete(number)).expect("removals are taken");
    }
    records.retain(|(table, key, _)| {
        let gone = (1_000..1_500_u32).any(|number| key[..] == number.to_be_bytes());
        *table != Table::Meta && !(gone && *table == Table::Inodes)
    });
    wait(meta.commit()).expect("commits");
    records.into_iter().map(|(table, key, value)| (table, key, value.expect("put"))).collect()
}

/// Damages one place of the first `used` bytes.
fn damage_somewhere(data: &mut Vec<u8>, used: usize, chance: &mut types::SplitMix64) {
    let below = |chance: &mut types::SplitMix64, bound: usize| chance.below(bound as u64) as usize;
    let (at, page) = (below(chance, used - 4_096), 4_096);
    match chance.below(8) {
        0..=3 => data[at] ^= 1 << chance.below(8),
        4 => data[at..at + 300].fill_with(|| chance.bits() as u8),
        5 => data[at / page * page..][..page].fill(0),
        6 => {
            let (from, to) = (at / page * page, below(chance, used / page) * page);
            data.copy_within(from..from + page, to);
        }
        _ => data.truncate(at),
    }
}

/// What is read of a damaged store: the right value, or an error.
fn read_all(meta: &DiskMeta, records: &[(Table, Vec<u8>, Vec<u8>)]) -> usize {
    let view = meta.running().expect("ready");
    let mut missing = 0;
    for (table, key, value) in records {
        match view.get(*table, key) {
            Ok(Some(found)) => assert!(found == *value, "a wrong value is never given out"),
            Ok(None) | Err(StoreError::Damaged { .. }) => missing += 1,
            Err(error) => panic!("{error}"),
        }
    }
    for table in Table::ALL {
        let _told = view.scan(table, &[], &mut |_, _| true);
    }
    missing
}

#[test]
fn two_hundred_damages_are_found_or_told_and_none_ends_the_process() {
    let dir = TestDir::new();
    let records = rich_store(&dir);
    let whole = std::fs::read(dir.path().join("records/data.mdb")).expect("reads");
    let used = whole.iter().rposition(|byte| *byte != 0).expect("it is not empty") + 1;
    let (mut refused, mut told, mut harmless) = (0, 0, 0);
    for seed in 0..200 {
        let hurt = TestDir::new();
        let path = hurt.path().join("records");
        std::fs::create_dir(&path).expect("a directory");
        let (mut data, mut chance) = (whole.clone(), types::SplitMix64::new(seed));
        damage_somewhere(&mut data, used, &mut chance);
        std::fs::write(path.join("data.mdb"), data).expect("writes");
        std::fs::copy(dir.path().join("records/root"), path.join("root")).expect("copies");
        let options = MetaOptions { map_bytes: Some(MAP_BYTES_MIN), ..MetaOptions::default() };
        let meta = match DiskMeta::open(hurt.path(), &options) {
            Ok(meta) => meta,
            Err(error) => {
                assert!(error.to_string().contains("data.mdb"), "{error}");
                refused += 1;
                continue;
            }
        };
        match read_all(&meta, &records) {
            0 => harmless += 1,
            _ => told += 1,
        }
        for number in 0..200 {
            meta.apply(&put(number * 15, 200)).expect("others go on");
        }
        wait(meta.commit()).expect("commits");
    }
    println!("{refused} refused at the start, {told} told as EIO, {harmless} in unused bytes");
    assert!(refused > 50 && told > 20, "{refused} {told} {harmless}");
}

#[test]
fn a_damaged_page_is_named_with_the_way_out() {
    let dir = TestDir::new();
    rich_store(&dir);
    let path = dir.path().join("records/data.mdb");
    let mut data = std::fs::read(&path).expect("reads");
    let at = data.chunks(4_096).rposition(|page| page[10..12] == [1, 0]).expect("a branch");
    data[at * 4_096 + 12] ^= 1;
    std::fs::write(&path, data).expect("writes");
    let refused = DiskMeta::open(dir.path(), &MetaOptions::default()).map(drop);
    let why = refused.expect_err("it is damaged").to_string();
    assert!(
        why.contains(&format!("page {at} of data.mdb is damaged")) && why.contains("backup"),
        "{why}"
    );
}

#[test]
fn parts_of_a_walk_see_all_that_one_walk_sees() {
    let dir = TestDir::new();
    rich_store(&dir);
    let root = RootFile::open(&dir.path().join("records")).expect("opens");
    let (page_bytes, meta) = root.tree().expect("it is not empty");
    let mut all = std::collections::BTreeSet::new();
    let mut note = |name: &[u8], key: &[u8], _: &[u8]| {
        all.insert((name.to_vec(), key.to_vec()));
    };
    walk::walk(root.data(), page_bytes, &meta, &mut note).expect("whole");
    let (mut seen, mut from, mut parts) = (std::collections::BTreeSet::new(), None, 0);
    loop {
        let place = from.unwrap_or_default();
        let mut note = |name: &[u8], key: &[u8], _: &[u8]| {
            seen.insert((name.to_vec(), key.to_vec()));
        };
        let (pages, next) =
            walk::slice(root.data(), page_bytes, &meta, &place, 20, &mut note).expect("whole");
        parts += 1;
        assert!(pages < 200, "a leaf of large values is not divided: {pages}");
        let Some(next) = next else { break };
        assert!(next > place);
        from = Some(next);
    }
    assert!(seen == all && parts > 5, "{} of {}, {parts} parts", seen.len(), all.len());
}

fn scrubbed(dir: &TestDir) -> Rc<DiskMeta> {
    let scrub =
        Scrub { interval: Duration::from_millis(1), mibps: 10_000, patience: Duration::ZERO };
    DiskMeta::open(dir.path(), &MetaOptions { scrub, ..MetaOptions::default() }).expect("opens")
}

#[test]
fn a_scrub_finds_nothing_in_a_store_that_changes() {
    let dir = TestDir::new();
    let (meta, mut chance) = (scrubbed(&dir), types::SplitMix64::new(1));
    for round in 0..300 {
        for _ in 0..50 {
            let number = chance.below(5_000) as u32;
            let change = if round % 3 == 2 { delete(number) } else { put(number, 300) };
            wait(meta.ready());
            meta.apply(&change).expect("the store is whole");
        }
        wait(meta.commit()).expect("the store is whole");
    }
}

#[test]
fn a_scrub_ends_the_store_that_has_a_damaged_page() {
    use std::os::unix::fs::FileExt;
    let dir = TestDir::new();
    rich_store(&dir);
    let meta = scrubbed(&dir);
    let path = dir.path().join("records/data.mdb");
    let data = std::fs::read(&path).expect("reads");
    let file = OpenOptions::new().write(true).open(&path).expect("opens");
    for (at, page) in data.chunks(4_096).enumerate().filter(|(_, page)| page[10..12] == [2, 0]) {
        let number = u64::from_le_bytes(page[..8].try_into().expect("eight bytes"));
        if number == at as u64 {
            file.write_all_at(&[page[12] ^ 1], at as u64 * 4_096 + 12).expect("writes");
        }
    }
    let start = Instant::now();
    let why = loop {
        match meta.running().map(drop) {
            Err(StoreError::Failed(why)) => break why,
            _ => assert!(start.elapsed() < Duration::from_secs(60), "nobody looked"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(why.contains("of data.mdb is damaged") && why.contains("backup"), "{why}");
    assert!(matches!(wait(meta.commit()), Err(StoreError::Failed(_))));
}

#[test]
fn damage_that_was_found_before_the_wait_is_not_waited_for() {
    let told = told::Told::<(), ()>::default();
    let cx = Context::from_waker(std::task::Waker::noop());
    assert!(told.wakes(&cx), "nothing is finished");
    told.damaged("page 7".to_owned());
    assert!(!told.wakes(&cx));
    assert_eq!(told.damage().as_deref(), Some("page 7"));
    assert!(told.wakes(&cx));
}

#[test]
fn a_scrub_waits_for_an_idle_store_and_does_what_is_set_meanwhile() {
    let dir = TestDir::new();
    rich_store(&dir);
    let (hour, now) = (Duration::from_secs(3_600), Duration::from_millis(1));
    let scrub = Scrub { interval: hour, mibps: 0, patience: hour };
    let meta = DiskMeta::open(dir.path(), &MetaOptions { scrub, ..MetaOptions::default() })
        .expect("opens");
    let until = |phase: ScrubPhase, is_used: bool| {
        let start = Instant::now();
        loop {
            let state = meta.scrub_state();
            if state.phase == phase {
                return state;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{state:?}");
            if is_used {
                // enough for many seconds, should this thread stall
                let view = meta.running().expect("ready");
                (0..10_000).for_each(|_| drop(view.get(Table::Meta, b"k")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until(ScrubPhase::Waiting, false);
    meta.set_scrub(Scrub { interval: now, ..scrub });
    until(ScrubPhase::Off, false);
    meta.set_scrub(Scrub { interval: now, mibps: 10_000, patience: hour });
    assert_eq!(until(ScrubPhase::WaitingForIdle, true).passes, 0);
    meta.set_scrub(Scrub { interval: hour, mibps: 10_000, patience: hour });
    let start = Instant::now();
    while meta.scrub_state().passes == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", meta.scrub_state());
        std::thread::sleep(Duration::from_millis(5));
    }
    let state = meta.scrub_state();
    assert!(state.last_ended.is_some() && state.last_pages > 0, "{state:?}");
    assert!(state.last_waited > Duration::ZERO, "{state:?}");
}

#[test]
fn a_scan_within_a_prefix_merges_what_is_written_and_what_gathers() {
    let dir = TestDir::new();
    let meta = open(&dir);
    let (mut written, mut gathered) = (WriteSet::new(), WriteSet::new());
    for key in [b"a1", b"b2", b"b4", b"b6", b"c1"] {
        written.put(Table::Links, *key, [1_u8]);
    }
    apply(&meta, &written).expect("room");
    wait(meta.commit()).expect("commits");
    for key in [b"a2", b"b1", b"b3", b"b4", b"b7", b"c0"] {
        gathered.put(Table::Links, *key, [2_u8]);
    }
    gathered.delete(Table::Links, *b"b6");
    apply(&meta, &gathered).expect("room");
    let scanned = |prefix: &[u8], from: &[u8], most: usize| {
        let (view, mut found) = (meta.running().expect("not busy"), Vec::new());
        let scan = view.scan_within((Table::Links, prefix), from, &mut |key, value| {
            found.push((String::from_utf8_lossy(key).into_owned(), value[0]));
            found.len() < most
        });
        scan.expect("scans");
        found
    };
    let pairs = |all: &[(&str, u8)]| -> Vec<(String, u8)> {
        all.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
    };
    let of_b = [("b2", 1), ("b3", 2), ("b4", 2), ("b7", 2)];
    assert_eq!(scanned(b"b", b"b2", 9), pairs(&of_b));
    assert_eq!(scanned(b"b", b"b2", 3), pairs(&of_b[..3]));
    assert_eq!(scanned(b"b7", b"b7", 9), pairs(&of_b[3..]));
    assert!(scanned(b"d", b"d", 9).is_empty());
    assert_eq!(scanned(b"", b"a2", 2), pairs(&[("a2", 2), ("b1", 2)]));
}

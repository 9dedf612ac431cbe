//! The record store on a real directory.

use super::*;
use crate::testdir::{TestDir, wait};

fn open(dir: &TestDir) -> Rc<DiskMeta> {
    DiskMeta::open(dir.path(), &MetaOptions::default()).expect("opens")
}

fn small(dir: &TestDir) -> Rc<DiskMeta> {
    DiskMeta::open(dir.path(), &MetaOptions { map_bytes: Some(MAP_BYTES_MIN) }).expect("opens")
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
    let mut stored = 0;
    let full = loop {
        match meta.apply(&put(stored, 3_000)) {
            Ok(()) => stored += 1,
            Err(why) => {
                let free = meta.space().expect("tells").bytes_free;
                wait(meta.commit()).expect("a commit never runs out of space");
                if meta.apply(&put(stored, 3_000)).is_err() {
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
    assert!(stored > 1_000, "{stored}");
    assert_eq!(numbers(&meta).len(), stored as usize, "a refused set has changed nothing");

    for number in 0..stored {
        if meta.apply(&delete(number)) == Err(StoreError::Full) {
            wait(meta.commit()).expect("commits");
            meta.apply(&delete(number)).expect("removals go on after a commit");
        }
    }
    wait(meta.commit()).expect("commits");
    assert_eq!(numbers(&meta), []);
    for number in 0..3 {
        let _free_pages_come_back_two_commits_later = meta.apply(&put(number, 100));
        wait(meta.commit()).expect("commits");
    }
    let again =
        (0..stored / 2).take_while(|number| meta.apply(&put(*number, 3_000)).is_ok()).count();
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
            DiskMeta::open(dir.path(), &MetaOptions { map_bytes: Some(room) }).expect("opens")
        };
        osd::conformance::MetaBed { open: Box::new(open), crash: Box::new(|| {}) }
    };
    osd::conformance::meta_suite(&|case| wait(case), &fresh);
}

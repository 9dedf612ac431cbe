//! Cases on records.

use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;

use env::LocalFuture;
use types::SplitMix64;

use super::{MetaBed, MetaCase, ROOM_BYTES, ROOM_BYTES_SMALL};
use crate::{KEY_BYTES_MAX, MetaStore, StoreError, Table, WriteSet};

/// Each with the room that it needs.
pub const CASES: &[(u64, MetaCase)] = &[
    (ROOM_BYTES, |bed| Box::pin(what_is_applied_is_read_at_once(bed))),
    (ROOM_BYTES, |bed| Box::pin(the_last_change_of_a_key_in_a_set_counts(bed))),
    (ROOM_BYTES, |bed| Box::pin(a_scan_is_in_key_order_and_keeps_to_its_table(bed))),
    (ROOM_BYTES, |bed| Box::pin(long_keys_and_large_and_empty_values_are_kept(bed))),
    (ROOM_BYTES, |bed| Box::pin(a_crash_goes_back_to_the_last_commit_exactly(bed))),
    (ROOM_BYTES, |bed| Box::pin(concurrent_commits_all_succeed(bed))),
    (ROOM_BYTES, |bed| Box::pin(a_store_that_commits_takes_changes_and_loses_nothing(bed))),
    (ROOM_BYTES, |bed| Box::pin(what_comes_behind_a_commit_is_read_and_waits_for_the_next(bed))),
    (ROOM_BYTES, |bed| Box::pin(a_crash_during_commits_leaves_a_prefix(bed))),
    (ROOM_BYTES, |bed| Box::pin(dirty_bytes_rise_with_changes_and_fall_with_a_commit(bed))),
    (ROOM_BYTES, |bed| Box::pin(many_keys_in_any_order_come_back_sorted(bed))),
    (ROOM_BYTES_SMALL, |bed| Box::pin(a_full_store_refuses_whole_sets_and_takes_deletions(bed))),
    (ROOM_BYTES, |bed| Box::pin(it_equals_a_model_under_random_sets_commits_and_crashes(bed))),
    (ROOM_BYTES, |bed| Box::pin(a_range_goes_before_the_changes_of_its_set(bed))),
    (ROOM_BYTES, |bed| Box::pin(long_ranges_go_in_any_order_and_stay_gone(bed))),
    (ROOM_BYTES_SMALL, |bed| Box::pin(a_range_goes_from_a_full_store(bed))),
];

type Model = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

async fn get(store: &Rc<dyn MetaStore>, table: Table, key: &[u8]) -> Option<Vec<u8>> {
    store.ready().await;
    store.running().expect("ready").get(table, key).expect("reads work")
}

async fn apply(store: &Rc<dyn MetaStore>, set: &WriteSet) -> Result<(), StoreError> {
    crate::apply(&**store, set).await
}

async fn put(store: &Rc<dyn MetaStore>, table: Table, key: &[u8], value: &[u8]) {
    let mut set = WriteSet::new();
    set.put(table, key, value);
    apply(store, &set).await.expect("there is room");
}

async fn dump(store: &Rc<dyn MetaStore>) -> Model {
    store.ready().await;
    let view = store.running().expect("ready");
    let mut out = Model::new();
    for table in Table::ALL {
        view.scan(table, &[], &mut |key, value| {
            let before = out.insert((table, key.to_vec()), value.to_vec());
            assert!(before.is_none(), "a key comes once");
            true
        })
        .expect("scans work");
    }
    out
}

fn reopen(bed: &MetaBed, store: Rc<dyn MetaStore>) -> Rc<dyn MetaStore> {
    drop(store);
    (bed.crash)();
    (bed.open)()
}

async fn what_is_applied_is_read_at_once(bed: MetaBed) {
    let store = (bed.open)();
    assert_eq!(get(&store, Table::Inodes, b"a").await, None);
    put(&store, Table::Inodes, b"a", b"1").await;
    assert_eq!(get(&store, Table::Inodes, b"a").await.as_deref(), Some(&b"1"[..]));
    assert_eq!(get(&store, Table::Dirents, b"a").await, None, "tables are apart");
    put(&store, Table::Inodes, b"a", b"2").await;
    assert_eq!(get(&store, Table::Inodes, b"a").await.as_deref(), Some(&b"2"[..]));
    let mut set = WriteSet::new();
    set.delete(Table::Inodes, *b"a");
    set.delete(Table::Inodes, *b"absent");
    apply(&store, &set).await.expect("deletions work");
    assert_eq!(get(&store, Table::Inodes, b"a").await, None);
}

async fn the_last_change_of_a_key_in_a_set_counts(bed: MetaBed) {
    let store = (bed.open)();
    let mut set = WriteSet::new();
    set.put(Table::Meta, *b"gone", *b"1");
    set.delete(Table::Meta, *b"gone");
    set.delete(Table::Meta, *b"kept");
    set.put(Table::Meta, *b"kept", *b"1");
    set.put(Table::Meta, *b"kept", *b"2");
    apply(&store, &set).await.expect("there is room");
    assert_eq!(get(&store, Table::Meta, b"gone").await, None);
    assert_eq!(get(&store, Table::Meta, b"kept").await.as_deref(), Some(&b"2"[..]));
}

async fn a_scan_is_in_key_order_and_keeps_to_its_table(bed: MetaBed) {
    let store = (bed.open)();
    let mut set = WriteSet::new();
    for key in [&b"b"[..], b"a", b"ab", b"\xff\xff", b"c", b"\x00"] {
        set.put(Table::Dirents, key, key);
    }
    set.put(Table::Inodes, *b"before", *b"");
    set.put(Table::Links, *b"after", *b"");
    apply(&store, &set).await.expect("there is room");
    let view = store.running().expect("ready");
    let keys = |from: &[u8], count: usize| {
        let mut seen = Vec::new();
        view.scan(Table::Dirents, from, &mut |key, value| {
            assert_eq!(key, value);
            seen.push(key.to_vec());
            seen.len() < count
        })
        .expect("scans work");
        seen
    };
    assert_eq!(keys(b"", 99), [&b"\x00"[..], b"a", b"ab", b"b", b"c", b"\xff\xff"]);
    assert_eq!(keys(b"a\x00", 99), [&b"ab"[..], b"b", b"c", b"\xff\xff"]);
    assert_eq!(keys(b"ab", 2), [&b"ab"[..], b"b"]);
    assert!(keys(b"\xff\xff\xff", 99).is_empty());
}

async fn long_keys_and_large_and_empty_values_are_kept(bed: MetaBed) {
    let store = (bed.open)();
    let key = [7; KEY_BYTES_MAX];
    let large: Vec<u8> = (0..1u32 << 20).map(|index| (index % 251) as u8).collect();
    put(&store, Table::Xattrs, &key, &large).await;
    put(&store, Table::Xattrs, b"empty", b"").await;
    store.commit().await.expect("commits work");
    let store = reopen(&bed, store);
    assert!(get(&store, Table::Xattrs, &key).await == Some(large));
    assert_eq!(get(&store, Table::Xattrs, b"empty").await, Some(Vec::new()));
}

async fn a_crash_goes_back_to_the_last_commit_exactly(bed: MetaBed) {
    let store = (bed.open)();
    for index in 0..100u32 {
        put(&store, Table::Inodes, &index.to_be_bytes(), b"committed").await;
    }
    store.commit().await.expect("commits work");
    let committed = dump(&store).await;
    put(&store, Table::Inodes, &5u32.to_be_bytes(), b"changed").await;
    put(&store, Table::Replies, b"late", b"x").await;
    let mut set = WriteSet::new();
    set.delete(Table::Inodes, 6u32.to_be_bytes());
    apply(&store, &set).await.expect("deletions work");
    let store = reopen(&bed, store);
    assert!(dump(&store).await == committed);
    let store = reopen(&bed, store);
    assert!(dump(&store).await == committed, "opening changes nothing");
}

async fn concurrent_commits_all_succeed(bed: MetaBed) {
    let store = (bed.open)();
    put(&store, Table::Meta, b"k", b"v").await;
    let (mut one, mut two) = (Box::pin(store.commit()), Box::pin(store.commit()));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|cx| {
        for (future, out) in [(&mut one, &mut first), (&mut two, &mut second)] {
            if out.is_none()
                && let Poll::Ready(result) = future.as_mut().poll(cx)
            {
                *out = Some(result);
            }
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    assert_eq!((first, second), (Some(Ok(())), Some(Ok(()))));
    store.commit().await.expect("a commit of nothing works");
    drop((one, two));
    let store = reopen(&bed, store);
    assert_eq!(get(&store, Table::Meta, b"k").await.as_deref(), Some(&b"v"[..]));
}

/// Begins a commit and says whether it has ended already.
async fn begin(commit: &mut LocalFuture<'_, Result<(), StoreError>>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(commit.as_mut().poll(cx).is_ready())).await
}

async fn what_comes_behind_a_commit_is_read_and_waits_for_the_next(bed: MetaBed) {
    let mut store = (bed.open)();
    for round in 0..20u8 {
        let frozen = [b'f', round];
        put(&store, Table::Inodes, &frozen, b"before").await;
        put(&store, Table::Dirents, &frozen, b"before").await;
        let mut first = store.commit();
        let ended = begin(&mut first).await;
        put(&store, Table::Inodes, &frozen, b"behind").await;
        put(&store, Table::Dirents, &[b'l', round], b"behind").await;
        let mut set = WriteSet::new();
        set.delete(Table::Dirents, frozen);
        apply(&store, &set).await.expect("deletions work");
        assert_eq!(get(&store, Table::Inodes, &frozen).await.as_deref(), Some(&b"behind"[..]));
        assert_eq!(get(&store, Table::Dirents, &frozen).await, None);
        assert!(store.dirty_bytes() > 0, "the next commit has something to do");
        if !ended {
            first.await.expect("commits work");
        } else {
            drop(first);
        }
        if round % 2 == 0 {
            store.commit().await.expect("commits work");
        }
        let expected = if round % 2 == 0 {
            dump(&store).await
        } else {
            let mut before = dump(&store).await;
            before.insert((Table::Inodes, frozen.to_vec()), b"before".to_vec());
            before.insert((Table::Dirents, frozen.to_vec()), b"before".to_vec());
            before.remove(&(Table::Dirents, vec![b'l', round]));
            before
        };
        store = reopen(&bed, store);
        assert!(dump(&store).await == expected, "round {round}");
    }
}

async fn a_crash_during_commits_leaves_a_prefix(bed: MetaBed) {
    let mut chance = SplitMix64::new(5);
    let mut store = (bed.open)();
    for round in 0..60 {
        let mut prefixes = vec![dump(&store).await];
        let mut commits = Vec::new();
        for _ in 0..1 + chance.below(3) {
            for _ in 0..1 + chance.below(20) {
                apply(&store, &random_set(&mut chance)).await.expect("there is room");
            }
            prefixes.push(dump(&store).await);
            let mut commit = store.commit();
            if !begin(&mut commit).await {
                commits.push((prefixes.len() - 1, commit));
            }
        }
        let mut at_least = 0;
        if chance.below(2) == 0 && !commits.is_empty() {
            let (covered, commit) = commits.swap_remove(0);
            commit.await.expect("commits work");
            at_least = covered;
        }
        drop(commits);
        store = reopen(&bed, store);
        let found = dump(&store).await;
        assert!(
            prefixes[at_least..].contains(&found),
            "round {round}: a prefix, and what is durable"
        );
    }
}

async fn a_store_that_commits_takes_changes_and_loses_nothing(bed: MetaBed) {
    let store = (bed.open)();
    let mut expected = Model::new();
    for round in 0..50u32 {
        put(&store, Table::Meta, &round.to_be_bytes(), b"before").await;
        expected.insert((Table::Meta, round.to_be_bytes().to_vec()), b"before".to_vec());
        let mut commit = store.commit();
        let ended = begin(&mut commit).await;
        let mut set = WriteSet::new();
        set.put(Table::Links, round.to_be_bytes(), *b"during");
        match store.apply(&set) {
            Ok(()) => {}
            Err(StoreError::Busy) => apply(&store, &set).await.expect("there is room"),
            Err(error) => panic!("{error}"),
        }
        expected.insert((Table::Links, round.to_be_bytes().to_vec()), b"during".to_vec());
        if !ended {
            commit.await.expect("commits work");
        }
    }
    assert!(dump(&store).await == expected);
    store.commit().await.expect("commits work");
    let store = reopen(&bed, store);
    assert!(dump(&store).await == expected);
}

async fn dirty_bytes_rise_with_changes_and_fall_with_a_commit(bed: MetaBed) {
    let store = (bed.open)();
    store.commit().await.expect("commits work");
    let clean = store.dirty_bytes();
    put(&store, Table::Meta, b"key", &[1; 10_000]).await;
    let dirty = store.dirty_bytes();
    assert!(dirty >= clean + 10_000, "{clean} -> {dirty}");
    store.commit().await.expect("commits work");
    assert!(store.dirty_bytes() <= clean);
    let space = store.space().expect("space is known");
    assert!(space.bytes > 0 && space.bytes_free <= space.bytes && space.files_free <= space.files);
}

async fn many_keys_in_any_order_come_back_sorted(bed: MetaBed) {
    let store = (bed.open)();
    let mut chance = SplitMix64::new(3);
    let mut expected = Model::new();
    for _ in 0..100 {
        let mut set = WriteSet::new();
        for _ in 0..100 {
            let (key, value) =
                (chance.bits().to_be_bytes().to_vec(), chance.bits().to_le_bytes().to_vec());
            set.put(Table::Dirents, key.clone(), value.clone());
            expected.insert((Table::Dirents, key), value);
        }
        apply(&store, &set).await.expect("there is room");
    }
    store.commit().await.expect("commits work");
    assert!(dump(&store).await == expected);
    let store = reopen(&bed, store);
    assert!(dump(&store).await == expected);
}

async fn a_full_store_refuses_whole_sets_and_takes_deletions(bed: MetaBed) {
    let store = (bed.open)();
    let mut filled = 0u32;
    let refused = loop {
        let mut set = WriteSet::new();
        set.put(Table::Meta, *b"count", filled.to_be_bytes());
        set.put(Table::Xattrs, filled.to_be_bytes(), vec![1; 16 << 10]);
        if let Err(error) = apply(&store, &set).await {
            break error;
        }
        filled += 1;
        assert!(u64::from(filled) * (16 << 10) < 16 * ROOM_BYTES_SMALL, "a small store fills up");
        if filled.is_multiple_of(32) {
            store.commit().await.expect("commits work");
        }
    };
    assert_eq!(refused, StoreError::Full);
    assert!(filled > 10, "something fits: {filled}");
    let last = get(&store, Table::Meta, b"count").await;
    assert_eq!(last, Some((filled - 1).to_be_bytes().to_vec()), "no part of the refused set");
    assert_eq!(get(&store, Table::Xattrs, &filled.to_be_bytes()).await, None);
    store.commit().await.expect("a full store commits");
    let mut set = WriteSet::new();
    set.put(Table::Meta, *b"count", *b"emptied");
    for index in 0..filled / 2 {
        set.delete(Table::Xattrs, index.to_be_bytes());
    }
    apply(&store, &set).await.expect("deletions are taken on a full store");
    // a copy-on-write store gives pages back after the commit that follows the one that freed them
    for round in 0..3u8 {
        put_small(&store, round).await;
        store.commit().await.expect("commits work");
    }
    put(&store, Table::Xattrs, b"fits again", &[2; 16 << 10]).await;
    let store = {
        store.commit().await.expect("commits work");
        reopen(&bed, store)
    };
    assert_eq!(get(&store, Table::Meta, b"count").await.as_deref(), Some(&b"emptied"[..]));
    assert_eq!(
        get(&store, Table::Xattrs, &(filled - 1).to_be_bytes()).await,
        Some(vec![1; 16 << 10])
    );
}

/// A set that frees space, whatever else it does: it is taken at any time.
async fn put_small(store: &Rc<dyn MetaStore>, round: u8) {
    let mut set = WriteSet::new();
    set.put(Table::Meta, *b"round", [round]);
    set.delete(Table::Meta, *b"absent");
    apply(store, &set).await.expect("it frees space");
}

async fn it_equals_a_model_under_random_sets_commits_and_crashes(bed: MetaBed) {
    let mut chance = SplitMix64::new(11);
    let mut store = (bed.open)();
    let (mut running, mut committed) = (Model::new(), Model::new());
    for step in 0..1_500 {
        match chance.below(20) {
            0..=15 => {
                let set = random_set(&mut chance);
                running.retain(|(table, key), _| {
                    !set.ranges.iter().any(|range| range.holds(*table, key))
                });
                for (table, key, value) in &set.changes {
                    match value {
                        Some(value) => running.insert((*table, key.clone()), value.clone()),
                        None => running.remove(&(*table, key.clone())),
                    };
                }
                apply(&store, &set).await.expect("there is room");
            }
            16 | 17 => {
                store.commit().await.expect("commits work");
                committed = running.clone();
            }
            18 => assert!(dump(&store).await == running, "step {step}"),
            _ => {
                store = reopen(&bed, store);
                running = committed.clone();
                assert!(dump(&store).await == running, "after the crash at step {step}");
            }
        }
    }
}

fn random_set(chance: &mut SplitMix64) -> WriteSet {
    let mut set = WriteSet::new();
    for _ in 0..chance.below(8) {
        let table = Table::ALL[chance.below(Table::ALL.len() as u64) as usize];
        let key = vec![b'a' + chance.below(8) as u8; 1 + chance.below(4) as usize];
        if chance.below(3) == 0 {
            set.delete(table, key);
        } else {
            let len_bound = if chance.below(20) == 0 { 20_000 } else { 60 };
            let len = chance.below(len_bound);
            set.put(table, key, vec![chance.below(256) as u8; len as usize]);
        }
    }
    while chance.below(4) == 0 {
        let table = Table::ALL[chance.below(Table::ALL.len() as u64) as usize];
        let mut ends =
            [0; 2].map(|_: u8| vec![b'a' + chance.below(9) as u8; 1 + chance.below(4) as usize]);
        ends.sort();
        let [from, to] = ends;
        if from < to {
            set.delete_range(table, from, to);
        }
    }
    set
}

async fn a_range_goes_before_the_changes_of_its_set(bed: MetaBed) {
    let store = (bed.open)();
    for table in [Table::Meta, Table::Updates] {
        for key in [b"a", b"b", b"c", b"d", b"e"] {
            put(&store, table, key, b"old").await;
        }
    }
    let mut set = WriteSet::new();
    for table in [Table::Meta, Table::Updates] {
        set.put(table, *b"c", *b"new");
        set.delete_range(table, *b"b", *b"d");
        set.delete_range(table, *b"x", *b"z"); // nothing is there
    }
    set.delete_range(Table::Updates, *b"b\x00", *b"bb"); // nor there any more
    assert!(set.frees_space() && !set.is_empty());
    apply(&store, &set).await.expect("there is room");
    let expected: Model = [Table::Meta, Table::Updates]
        .into_iter()
        .flat_map(|table| {
            [(b"a", "old"), (b"c", "new"), (b"d", "old"), (b"e", "old")]
                .map(|(key, value)| ((table, key.to_vec()), value.as_bytes().to_vec()))
        })
        .collect();
    assert!(dump(&store).await == expected);
    store.commit().await.expect("commits work");
    let store = reopen(&bed, store);
    assert!(dump(&store).await == expected);
    let mut set = WriteSet::new();
    set.delete_range(Table::Updates, *b"a", *b"z");
    apply(&store, &set).await.expect("there is room");
    assert!(dump(&store).await.keys().all(|(table, _)| *table == Table::Meta));
    let store = reopen(&bed, store);
    assert!(dump(&store).await == expected, "nothing of it was durable");
}

async fn long_ranges_go_in_any_order_and_stay_gone(bed: MetaBed) {
    let (mut store, mut chance) = ((bed.open)(), SplitMix64::new(17));
    let mut expected = Model::new();
    let key = |number: u64| [&[7; 20][..], &number.to_be_bytes()].concat();
    for round in 0..6 {
        for some in (0..4_000_u64).collect::<Vec<_>>().chunks(100) {
            let mut set = WriteSet::new();
            for number in some.iter().filter(|number| (**number + round) % 3 > 0) {
                // some values fill pages of their own
                let bytes = if number % 97 == 0 { 9_000 } else { 40 + number % 60 };
                let value = vec![round as u8; bytes as usize];
                set.put(Table::Updates, key(*number), value.clone());
                expected.insert((Table::Updates, key(*number)), value);
            }
            apply(&store, &set).await.expect("there is room");
        }
        for _ in 0..4 {
            let (one, other) = (chance.below(4_000), chance.below(4_000));
            let (from, to) = (key(one.min(other)), key(one.max(other) + 1));
            let mut set = WriteSet::new();
            set.delete_range(Table::Updates, from.clone(), to.clone());
            apply(&store, &set).await.expect("there is room");
            let range = set.ranges.remove(0);
            expected.retain(|(table, key), _| !range.holds(*table, key));
            assert!(dump(&store).await == expected, "round {round}");
        }
        store.commit().await.expect("commits work");
        store = reopen(&bed, store);
        assert!(dump(&store).await == expected, "after round {round}");
    }
    let all = crate::remove_range(&*store, Table::Updates, (&key(0), &key(u64::MAX))).await;
    assert_eq!(all, Ok(expected.len() as u64));
    assert!(dump(&store).await.is_empty());
}

async fn a_range_goes_from_a_full_store(bed: MetaBed) {
    let store = (bed.open)();
    let mut filled = 0_u32;
    loop {
        let mut set = WriteSet::new();
        set.put(Table::Updates, filled.to_be_bytes(), vec![1; 2 << 10]);
        match apply(&store, &set).await {
            Ok(()) => filled += 1,
            Err(error) => break assert_eq!(error, StoreError::Full),
        }
        assert!(u64::from(filled) * (2 << 10) < 16 * ROOM_BYTES_SMALL, "a small store fills up");
        if filled.is_multiple_of(32) {
            store.commit().await.expect("commits work");
        }
    }
    store.commit().await.expect("a full store commits");
    let (from, to) = (0_u32.to_be_bytes(), (filled - 1).to_be_bytes());
    let removed = crate::remove_range(&*store, Table::Updates, (&from, &to)).await;
    assert_eq!(removed, Ok(u64::from(filled - 1)));
    store.commit().await.expect("commits work");
    let store = reopen(&bed, store);
    let left = dump(&store).await;
    assert!(left.into_keys().eq([(Table::Updates, to.to_vec())]));
}

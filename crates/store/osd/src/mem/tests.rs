//! The implementation in memory passes the suite, on virtual time, and fails where a test asks it
//! to.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use env_sim::{NodeHandle, Sim, SimConfig};
use types::{Fid, Nid, Span};

use super::{Deed, MemDisk, MemDiskConfig, MemMeta, MemObjects};
use crate::conformance::{self, MetaBed, ObjBed};
use crate::{IoMode, MetaStore, ObjStore, StoreError, Table, WriteSet};

const FID: Fid = Fid { seq: 0x2_0000_0401, oid: 1, ver: 0 };

fn world(seed: u64) -> (Sim, NodeHandle) {
    let sim = Sim::new(seed, SimConfig::default());
    let node = sim.node("node", Nid::tcp([10, 0, 0, 1].into()));
    (sim, node)
}

fn one(key: &[u8]) -> WriteSet {
    let mut set = WriteSet::new();
    set.put(Table::Meta, key, *b"value");
    set
}

#[test]
fn records_pass_the_suite() {
    for seed in 0..4 {
        let (sim, node) = world(seed);
        let fresh = |bytes: u64| {
            let config = MemDiskConfig {
                record_bytes: bytes,
                record_reserve_bytes: bytes / 16,
                ..MemDiskConfig::default()
            };
            let (disk, env) = (MemDisk::new(config), node.env());
            MetaBed {
                open: Box::new(move || Rc::new(MemMeta::open(&env, &disk))),
                crash: Box::new(|| {}),
            }
        };
        conformance::meta_suite(&|case| sim.block_on(&node, case), &fresh);
    }
}

#[test]
fn objects_pass_the_suite() {
    for seed in 0..4 {
        let (sim, node) = world(seed);
        let fresh = |bytes: u64| {
            let disk =
                MemDisk::new(MemDiskConfig { object_bytes: bytes, ..MemDiskConfig::default() });
            let (env, cut, cuts) = (node.env(), disk.clone(), Cell::new(seed));
            let crash = move || {
                cuts.set(cuts.get() + 1);
                cut.power_cut(cuts.get());
            };
            let open = move || Rc::new(MemObjects::open(&env, &disk)) as Rc<dyn ObjStore>;
            ObjBed { open: Box::new(open), crash: Box::new(crash), is_bounded: true }
        };
        conformance::obj_suite(&|case| sim.block_on(&node, case), &fresh);
    }
}

#[test]
fn a_kill_during_a_commit_leaves_all_of_it_or_nothing() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..40 {
        let (sim, node) = world(seed);
        let disk = MemDisk::default();
        let env = node.env();
        let opened = disk.clone();
        env.clone().spawn("writer", async move {
            let meta = MemMeta::open(&env, &opened);
            meta.apply(&one(b"a")).expect("there is room");
            meta.apply(&one(b"b")).expect("there is room");
            meta.commit().await.expect("commits work");
            std::future::pending::<()>().await;
        });
        sim.run_for(Span::micros(150));
        node.kill();
        let after = MemMeta::open(&node.env(), &disk);
        let view = after.running().expect("ready");
        let there =
            [b"a", b"b"].map(|key| view.get(Table::Meta, key).expect("reads work").is_some());
        assert_eq!(there[0], there[1]);
        if there[0] { kept += 1 } else { lost += 1 }
    }
    assert!(kept > 5 && lost > 5, "{kept} kept, {lost} lost");
}

#[test]
fn a_failed_commit_ends_the_opening_and_a_new_one_works() {
    let (sim, node) = world(1);
    let (env, disk) = (node.env(), MemDisk::default());
    sim.block_on(&node, async move {
        let meta = MemMeta::open(&env, &disk);
        disk.fail_next_commit();
        meta.apply(&one(b"a")).expect("there is room");
        assert!(matches!(meta.commit().await, Err(StoreError::Failed(_))));
        meta.ready().await;
        assert!(matches!(meta.apply(&one(b"b")), Err(StoreError::Failed(_))));
        assert!(meta.running().is_err());
        let meta = MemMeta::open(&env, &disk);
        meta.apply(&one(b"b")).expect("there is room");
        meta.commit().await.expect("commits work");
    });
}

#[test]
fn a_stale_twin_can_change_nothing() {
    let (sim, node) = world(2);
    let (env, disk) = (node.env(), MemDisk::default());
    sim.block_on(&node, async move {
        let stale = MemMeta::open(&env, &disk);
        stale.apply(&one(b"stale")).expect("there is room");
        let fresh = MemMeta::open(&env, &disk);
        assert!(matches!(stale.commit().await, Err(StoreError::Failed(_))));
        assert!(matches!(stale.apply(&one(b"x")), Err(StoreError::Failed(_))));
        assert_eq!(fresh.running().expect("ready").get(Table::Meta, b"stale"), Ok(None));
    });
}

#[test]
fn a_power_cut_loses_the_page_cache_a_kill_does_not() {
    let (sim, node) = world(3);
    let disk = MemDisk::default();
    let write = |byte: u8| {
        let objects = MemObjects::open(&node.env(), &disk);
        let data = Bytes::from(vec![byte; 1 << 20]);
        sim.block_on(&node, async move {
            objects.write(FID, 0, data, IoMode::Auto).await.expect("there is room")
        });
        node.kill();
    };
    let read = || {
        let objects = MemObjects::open(&node.env(), &disk);
        sim.block_on(&node, async move {
            objects.read(FID, 0, 1 << 20, IoMode::Auto).await.expect("reads work")
        })
    };
    write(1);
    assert!(read().is_some_and(|data| data.len() == 1 << 20 && data.iter().all(|byte| *byte == 1)));
    assert_eq!(disk.unsynced_objects(), 1);
    disk.power_cut(4);
    let left = read().map_or(0, |data| data.iter().filter(|byte| **byte == 1).count());
    assert!(left < 1 << 20 && left % 4_096 == 0, "{left} bytes are left");
    assert_eq!(disk.unsynced_objects(), 0);
}

#[test]
fn a_failed_sync_says_so() {
    let (sim, node) = world(5);
    let (env, disk) = (node.env(), MemDisk::default());
    sim.block_on(&node, async move {
        let objects = MemObjects::open(&env, &disk);
        objects.truncate(FID, 5, true).await.expect("works");
        disk.fail_next_sync();
        assert!(objects.sync().await.is_err());
        assert_eq!(disk.unsynced_objects(), 1);
        objects.sync().await.expect("syncs work again");
        assert_eq!(disk.unsynced_objects(), 0);
    });
}

#[test]
fn a_trap_springs_after_the_deed_that_it_waits_for_and_once() {
    let (sim, node) = world(1);
    let (disk, sprung) = (MemDisk::default(), Rc::new(Cell::new(0)));
    let meta = MemMeta::open(&node.env(), &disk);
    let apply = || meta.apply(&one(b"key")).expect("there is room");
    for (deed, count) in [(Deed::Apply, 2), (Deed::Commit, 1)] {
        let seen = sprung.clone();
        disk.spring_after(deed, count, move || seen.set(seen.get() + 1));
        apply();
        assert_eq!(sprung.replace(0), 0, "{deed:?}");
        apply();
        assert_eq!(sprung.get(), u32::from(deed == Deed::Apply));
        let committed = meta.clone();
        sim.block_on(&node, async move { committed.commit().await.expect("it commits") });
        assert_eq!(sprung.replace(0), 1, "{deed:?}");
    }
    disk.spring_after(Deed::Apply, 1, || unreachable!("it was disarmed"));
    disk.disarm();
    apply();
}

#[test]
fn what_is_counted_is_what_is_listed() {
    let (sim, node) = world(1);
    let disk = MemDisk::default();
    let (meta, objects) = (MemMeta::open(&node.env(), &disk), MemObjects::open(&node.env(), &disk));
    let own = disk.clone();
    sim.block_on(&node, async move {
        for oid in 1..=3 {
            let fid = Fid { oid, ..FID };
            let data = Bytes::from_static(b"bytes");
            objects.write(fid, 0, data, IoMode::Auto).await.expect("there is room");
        }
        objects.destroy(FID).await.expect("it is there");
        assert_eq!((own.object_count(), own.objects().len()), (2, 2));
        for key in [b"a", b"b"] {
            meta.apply(&one(key)).expect("there is room");
        }
        assert_eq!(own.count_records(Table::Meta, |_| true), 0, "nothing is durable");
        meta.commit().await.expect("commits work");
        assert_eq!(own.records(Table::Meta).len(), 2);
        assert_eq!(own.count_records(Table::Meta, |_| true), 2);
        assert_eq!(own.count_records(Table::Meta, |key| key == b"b"), 1);
    });
    node.kill_as(true);
    disk.power_cut(1);
    assert_eq!(disk.object_count(), disk.objects().len());
}

#[test]
fn a_full_disk_takes_what_frees_space_and_more_when_it_has_room_again() {
    let (_sim, node) = world(1);
    let disk = MemDisk::default();
    let meta = MemMeta::open(&node.env(), &disk);
    meta.apply(&one(b"there")).expect("there is room");
    assert_eq!(meta.is_full(), Ok(false));
    disk.set_records_full(true);
    assert_eq!(meta.is_full(), Ok(true));
    assert_eq!(meta.apply(&one(b"more")), Err(StoreError::Full));
    meta.apply(&one(b"there")).expect("it takes no more than before");
    let mut set = one(b"another");
    set.delete(Table::Meta, *b"there");
    meta.apply(&set).expect("it frees space");
    meta.apply(&one(b"there")).expect_err("that place is taken");
    disk.set_records_full(false);
    assert_eq!(meta.is_full(), Ok(false));
    meta.apply(&one(b"more")).expect("there is room again");
}

#[test]
fn a_damaged_record_is_refused_until_it_is_replaced_and_its_neighbours_are_not() {
    let sim = Sim::new(1, SimConfig { fail_on_error: false, ..SimConfig::default() });
    let node = sim.node("node", Nid::tcp([10, 0, 0, 1].into()));
    let disk = MemDisk::default();
    let meta = MemMeta::open(&node.env(), &disk);
    for key in [b"a", b"b", b"c"] {
        meta.apply(&one(key)).expect("there is room");
    }
    let committed = meta.clone();
    sim.block_on(&node, async move { committed.commit().await.expect("it commits") });
    disk.damage_record(Table::Meta, b"b");
    let damaged = StoreError::Damaged { table: Table::Meta, key: b"b".to_vec() };
    for is_anew in [false, true] {
        let meta = if is_anew { MemMeta::open(&node.env(), &disk) } else { meta.clone() };
        let view = meta.running().expect("ready");
        let mut seen = Vec::new();
        let scanned = view.scan(Table::Meta, b"a", &mut |key, _| {
            seen.push(key.to_vec());
            true
        });
        assert_eq!((scanned, seen), (Err(damaged.clone()), vec![b"a".to_vec()]));
        assert_eq!(view.get(Table::Meta, b"b"), Err(damaged.clone()));
        assert_eq!(view.get(Table::Meta, b"c"), Ok(Some(b"value".to_vec())));
        let mut seen = 0;
        let mut count = |_: &[u8], _: &[u8]| {
            seen += 1;
            true
        };
        assert_eq!(view.scan_within((Table::Meta, b"a"), b"a", &mut count), Ok(()));
        assert_eq!(seen, 1, "the damaged record is behind those that were asked for");
    }
    let meta = MemMeta::open(&node.env(), &disk);
    meta.apply(&one(b"b")).expect("it is replaced");
    let view = meta.running().expect("ready");
    assert_eq!(view.get(Table::Meta, b"b"), Ok(Some(b"value".to_vec())));
}

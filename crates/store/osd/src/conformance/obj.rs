//! Cases on objects.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use types::{Errno, Fid, SplitMix64};

use super::{ObjBed, ObjCase, ROOM_BYTES, ROOM_BYTES_SMALL};
use crate::{Allocate, Found, IoMode, ObjStore, Seek};

/// Each with the room that it needs.
pub const CASES: &[(u64, ObjCase)] = &[
    (ROOM_BYTES, |bed| Box::pin(what_is_written_is_read(bed))),
    (ROOM_BYTES, |bed| Box::pin(holes_read_as_zeros(bed))),
    (ROOM_BYTES, |bed| Box::pin(large_and_direct_writes_are_whole_at_any_alignment(bed))),
    (ROOM_BYTES, |bed| Box::pin(truncation_cuts_and_extends_with_zeros(bed))),
    (ROOM_BYTES, |bed| Box::pin(room_is_reserved_and_given_back_and_zeros_are_zeros(bed))),
    (ROOM_BYTES, |bed| Box::pin(data_and_holes_are_found(bed))),
    (ROOM_BYTES, |bed| Box::pin(a_missing_object_is_told_apart_from_an_empty_one(bed))),
    (ROOM_BYTES, |bed| Box::pin(stripes_are_objects_of_their_own_and_are_listed(bed))),
    (ROOM_BYTES, |bed| Box::pin(offsets_beyond_the_largest_file_are_refused(bed))),
    (ROOM_BYTES, |bed| Box::pin(synced_data_survives_a_crash(bed))),
    (ROOM_BYTES, |bed| Box::pin(unsynced_blocks_are_old_or_new_after_a_crash(bed))),
    (ROOM_BYTES, |bed| Box::pin(places_on_the_device_are_told_or_not_known(bed))),
    (ROOM_BYTES, |bed| Box::pin(it_equals_a_model_under_random_calls(bed))),
    (ROOM_BYTES_SMALL, |bed| Box::pin(a_full_store_keeps_what_it_has(bed))),
];

const ONE: Fid = Fid { seq: 0x2_0000_0401, oid: 1, ver: 0 };

async fn write(store: &Rc<dyn ObjStore>, fid: Fid, offset: u64, data: &[u8]) {
    let attr = store
        .write(fid, offset, Bytes::copy_from_slice(data), IoMode::Auto)
        .await
        .expect("there is room");
    assert!(attr.size >= offset + data.len() as u64);
}

async fn read(store: &Rc<dyn ObjStore>, fid: Fid, offset: u64, len: usize) -> Option<Bytes> {
    store.read(fid, offset, len, IoMode::Auto).await.expect("reads work")
}

async fn size(store: &Rc<dyn ObjStore>, fid: Fid) -> Option<u64> {
    store.attr(fid).await.expect("attributes are known").map(|attr| attr.size)
}

fn reopen(bed: &ObjBed, store: Rc<dyn ObjStore>) -> Rc<dyn ObjStore> {
    drop(store);
    (bed.crash)();
    (bed.open)()
}

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|index| (index % 253) as u8 ^ (index >> 12) as u8 ^ salt).collect()
}

async fn what_is_written_is_read(bed: ObjBed) {
    let store = (bed.open)();
    write(&store, ONE, 0, b"hello world").await;
    assert_eq!(read(&store, ONE, 0, 100).await.as_deref(), Some(&b"hello world"[..]));
    assert_eq!(read(&store, ONE, 6, 3).await.as_deref(), Some(&b"wor"[..]));
    assert_eq!(read(&store, ONE, 11, 5).await.as_deref(), Some(&b""[..]));
    assert_eq!(read(&store, ONE, 1 << 40, 5).await.as_deref(), Some(&b""[..]));
    write(&store, ONE, 6, b"there").await;
    assert_eq!(read(&store, ONE, 0, 100).await.as_deref(), Some(&b"hello there"[..]));
    let before = store.attr(ONE).await.expect("known").expect("there");
    assert_eq!(before.size, 11);
    write(&store, ONE, 0, b"j").await;
    let after = store.attr(ONE).await.expect("known").expect("there");
    assert!(after.mtime >= before.mtime && after.ctime >= before.ctime);
}

async fn holes_read_as_zeros(bed: ObjBed) {
    let store = (bed.open)();
    write(&store, ONE, 10_000_000_000, b"far").await;
    assert_eq!(size(&store, ONE).await, Some(10_000_000_003));
    assert_eq!(read(&store, ONE, 5_000_000_000, 9_000).await, Some(Bytes::from(vec![0; 9_000])));
    assert_eq!(read(&store, ONE, 9_999_999_998, 99).await.as_deref(), Some(&b"\0\0far"[..]));
    let attr = store.attr(ONE).await.expect("known").expect("there");
    assert!(attr.blocks < 1_000, "a hole takes no room: {} blocks", attr.blocks);
}

async fn large_and_direct_writes_are_whole_at_any_alignment(bed: ObjBed) {
    let store = (bed.open)();
    let mut expected = vec![0; 12 << 20];
    let writes = [
        (0, 4 << 20),
        (4 << 20, 1 << 20),
        ((5 << 20) + 123, (2 << 20) + 77),
        ((8 << 20) - 4_096, 1 << 20),
        (1, 1),
    ];
    for (index, (offset, len)) in writes.into_iter().enumerate() {
        for mode in [IoMode::Auto, IoMode::Direct] {
            let data = pattern(len, index as u8 ^ u8::from(mode == IoMode::Direct) << 7);
            store
                .write(ONE, offset as u64, Bytes::from(data.clone()), mode)
                .await
                .expect("there is room");
            expected[offset..offset + len].copy_from_slice(&data);
        }
    }
    let end = usize::try_from(size(&store, ONE).await.expect("there")).expect("small");
    let stream = IoMode::Stream { above: 1 << 20 };
    for mode in [IoMode::Auto, IoMode::Direct, stream, stream] {
        for (offset, len) in [(0, end), (4_096, 1 << 20), (777, 99_999), (end - 5, 100)] {
            let got = store
                .read(ONE, offset as u64, len, mode)
                .await
                .expect("reads work")
                .expect("there");
            assert!(got == expected[offset..end.min(offset + len)], "{mode:?} {offset} {len}");
        }
    }
}

async fn truncation_cuts_and_extends_with_zeros(bed: ObjBed) {
    let store = (bed.open)();
    write(&store, ONE, 0, &pattern(10_000, 1)).await;
    let attr = store.truncate(ONE, 5_000, false).await.expect("works").expect("there");
    assert_eq!(attr.size, 5_000);
    let attr = store.truncate(ONE, 20_000, false).await.expect("works").expect("there");
    assert_eq!(attr.size, 20_000);
    let mut expected = pattern(5_000, 1);
    expected.resize(20_000, 0);
    assert_eq!(read(&store, ONE, 0, 30_000).await, Some(Bytes::from(expected)));
    store.truncate(ONE, 0, false).await.expect("works");
    assert_eq!(read(&store, ONE, 0, 10).await.as_deref(), Some(&b""[..]));
}

async fn room_is_reserved_and_given_back_and_zeros_are_zeros(bed: ObjBed) {
    const KIB: u64 = 1 << 10;
    let store = (bed.open)();
    assert_eq!(store.allocate(ONE, Allocate::Punch, 0, 10).await, Ok(None));
    let reserve = |grow| Allocate::Reserve { grow };
    let attr = store
        .allocate(ONE, reserve(false), 0, 256 * KIB)
        .await
        .expect("there is room")
        .expect("made");
    assert_eq!(attr.size, 0);
    assert!(attr.blocks >= 512, "{} blocks", attr.blocks);
    let attr = store
        .allocate(ONE, reserve(true), 64 * KIB, 64 * KIB)
        .await
        .expect("there is room")
        .expect("there");
    assert_eq!(attr.size, 128 * KIB);
    assert_eq!(read(&store, ONE, 0, 200 << 10).await, Some(Bytes::from(vec![0; 128 << 10])));
    let mut expected = pattern(128 << 10, 9);
    write(&store, ONE, 0, &expected).await;
    let before = store.attr(ONE).await.expect("known").expect("there");
    let attr =
        store.allocate(ONE, Allocate::Punch, 5_000, 70_000).await.expect("works").expect("there");
    expected[5_000..75_000].fill(0);
    assert_eq!(
        (attr.size, attr.blocks < before.blocks),
        (128 * KIB, true),
        "{} then {}",
        before.blocks,
        attr.blocks
    );
    let attr = store
        .allocate(ONE, Allocate::Zero { grow: false }, 100_000, 1 << 20)
        .await
        .expect("room")
        .expect("there");
    expected[100_000..].fill(0);
    assert_eq!(attr.size, 128 * KIB);
    assert_eq!(read(&store, ONE, 0, 1 << 20).await, Some(Bytes::from(expected.clone())));
    let attr = store
        .allocate(ONE, Allocate::Zero { grow: true }, 130_000, 10_000)
        .await
        .expect("room")
        .expect("there");
    assert_eq!(attr.size, 140_000);
    expected.resize(140_000, 0);
    assert_eq!(store.sync().await, Ok(()));
    let store = reopen(&bed, store);
    assert_eq!(read(&store, ONE, 0, 1 << 20).await, Some(Bytes::from(expected)));
}

async fn data_and_holes_are_found(bed: ObjBed) {
    const MIB: u64 = 1 << 20;
    let store = (bed.open)();
    assert_eq!(store.seek(ONE, Seek::Data, 0).await, Ok(None));
    write(&store, ONE, 2 * MIB, &pattern(MIB as usize, 3)).await;
    write(&store, ONE, 8 * MIB, b"end").await;
    let size = 8 * MIB + 3;
    for (what, offset, found) in [
        (Seek::Data, 0, Some(2 * MIB)),
        (Seek::Data, 2 * MIB + 7, Some(2 * MIB + 7)),
        (Seek::Data, 4 * MIB, Some(8 * MIB)),
        (Seek::Data, size, None),
        (Seek::Hole, 0, Some(0)),
        (Seek::Hole, 2 * MIB, Some(3 * MIB)),
        (Seek::Hole, 8 * MIB + 1, Some(size)),
        (Seek::Hole, size + 5, None),
    ] {
        assert_eq!(
            store.seek(ONE, what, offset).await,
            Ok(Some(Found { offset: found, size })),
            "{what:?} {offset}"
        );
    }
    store.allocate(ONE, Allocate::Punch, 2 * MIB, MIB).await.expect("works");
    assert_eq!(
        store.seek(ONE, Seek::Data, 0).await,
        Ok(Some(Found { offset: Some(8 * MIB), size }))
    );
}

async fn a_missing_object_is_told_apart_from_an_empty_one(bed: ObjBed) {
    let store = (bed.open)();
    assert_eq!(read(&store, ONE, 0, 10).await, None);
    assert_eq!(size(&store, ONE).await, None);
    assert_eq!(store.truncate(ONE, 5, false).await, Ok(None));
    assert_eq!(store.destroy(ONE).await, Ok(false));
    assert!(store.truncate(ONE, 0, true).await.expect("works").is_some());
    assert_eq!(read(&store, ONE, 0, 10).await.as_deref(), Some(&b""[..]));
    assert_eq!(store.destroy(ONE).await, Ok(true));
    assert_eq!(store.destroy(ONE).await, Ok(false));
    assert_eq!(size(&store, ONE).await, None);
    write(&store, ONE, 3, b"again").await;
    assert_eq!(read(&store, ONE, 0, 10).await.as_deref(), Some(&b"\0\0\0again"[..]));
}

async fn stripes_are_objects_of_their_own_and_are_listed(bed: ObjBed) {
    let store = (bed.open)();
    let fids =
        [ONE, ONE.stripe(1), ONE.stripe(300), Fid::new(ONE.seq, 2), Fid::new(u64::MAX, u32::MAX)];
    for (index, fid) in fids.iter().enumerate() {
        write(&store, *fid, 0, &[index as u8; 5]).await;
    }
    store.destroy(fids[1]).await.expect("works");
    for (index, fid) in fids.iter().enumerate() {
        let expected = (index != 1).then(|| Bytes::from(vec![index as u8; 5]));
        assert_eq!(read(&store, *fid, 0, 9).await, expected);
    }
    for (from, max, expected) in [
        (Fid::ZERO, 9, vec![fids[0], fids[2], fids[3], fids[4]]),
        (Fid::ZERO, 2, vec![fids[0], fids[2]]),
        (fids[1], 2, vec![fids[2], fids[3]]),
        (fids[4], 2, vec![fids[4]]),
    ] {
        assert_eq!(store.list(from, max).await, Ok(expected));
    }
    let space = store.space().await.expect("known");
    assert!(space.bytes_free <= space.bytes && space.files_free <= space.files && space.bytes > 0);
}

async fn offsets_beyond_the_largest_file_are_refused(bed: ObjBed) {
    let store = (bed.open)();
    for offset in [u64::MAX, u64::MAX - 1, i64::MAX as u64] {
        let result = store.write(ONE, offset, Bytes::from_static(b"xy"), IoMode::Auto).await;
        assert!(matches!(result, Err(Errno::EFBIG | Errno::EINVAL)), "{result:?}");
    }
    assert!(store.truncate(ONE, u64::MAX, true).await.is_err());
}

async fn synced_data_survives_a_crash(bed: ObjBed) {
    let mut store = (bed.open)();
    let mut model: BTreeMap<Fid, Vec<u8>> = BTreeMap::new();
    for round in 0..4u8 {
        for oid in 1..20 {
            let data = pattern(oid as usize * 3_000, round);
            let fid = Fid::new(ONE.seq, oid + u32::from(round) * 5);
            write(&store, fid, 0, &data).await;
            let object = model.entry(fid).or_default();
            object.resize(object.len().max(data.len()), 0);
            object[..data.len()].copy_from_slice(&data);
        }
        let gone = Fid::new(ONE.seq, u32::from(round) + 1);
        assert_eq!(store.destroy(gone).await, Ok(model.remove(&gone).is_some()));
        store.sync().await.expect("syncs work");
        store = reopen(&bed, store);
        let listed = store.list(Fid::ZERO, 1_000).await.expect("works");
        assert_eq!(listed, model.keys().copied().collect::<Vec<_>>());
        for (fid, data) in &model {
            assert!(
                read(&store, *fid, 0, 1 << 20).await.expect("there") == *data,
                "{fid} in round {round}"
            );
        }
    }
}

async fn unsynced_blocks_are_old_or_new_after_a_crash(bed: ObjBed) {
    let mut store = (bed.open)();
    for round in 0..20u8 {
        let (old, new) = (2 * round + 1, 2 * round + 2);
        write(&store, ONE, 0, &[old; 64 << 10]).await;
        store.sync().await.expect("syncs work");
        write(&store, ONE, 0, &[new; 64 << 10]).await;
        store = reopen(&bed, store);
        let after = read(&store, ONE, 0, 64 << 10).await.expect("it was synced");
        assert_eq!(after.len(), 64 << 10);
        for block in after.chunks(4_096) {
            assert!(block.iter().all(|byte| *byte == old) || block.iter().all(|byte| *byte == new));
        }
    }
}

async fn places_on_the_device_are_told_or_not_known(bed: ObjBed) {
    let store = (bed.open)();
    let range = |start, end| types::Extent::new(start, end).expect("not empty");
    assert_eq!(store.locate(ONE, range(0, 4_096)).await, Ok(None), "there is no object");
    write(&store, ONE, 0, &pattern(8_192, 3)).await;
    store.sync().await.expect("synced");
    let first = store.locate(ONE, range(0, 4_096)).await.expect("it can be asked");
    if let Some(first) = first {
        assert_eq!(
            store.locate(ONE, range(512, 4_096)).await,
            Ok(Some(first + 512)),
            "within one block"
        );
    }
    assert_eq!(
        store.locate(ONE, range(1 << 30, 1 << 31)).await,
        Ok(None),
        "nothing is stored there"
    );
    store.destroy(ONE).await.expect("destroyed");
    assert_eq!(store.locate(ONE, range(0, 4_096)).await, Ok(None), "it is gone");
}

async fn it_equals_a_model_under_random_calls(bed: ObjBed) {
    let mut chance = SplitMix64::new(23);
    let store = (bed.open)();
    let mut model: BTreeMap<Fid, Vec<u8>> = BTreeMap::new();
    for step in 0..800 {
        let fid = ONE.stripe(chance.below(4) as u32);
        let offset = chance.below(100_000) as usize;
        match chance.below(10) {
            0..=4 => {
                let data = pattern(1 + chance.below(30_000) as usize, step as u8);
                write(&store, fid, offset as u64, &data).await;
                let object = model.entry(fid).or_default();
                object.resize(object.len().max(offset + data.len()), 0);
                object[offset..offset + data.len()].copy_from_slice(&data);
            }
            5 | 6 => {
                let done = store
                    .truncate(fid, offset as u64, step % 2 == 0)
                    .await
                    .expect("works")
                    .is_some();
                assert_eq!(done, step % 2 == 0 || model.contains_key(&fid));
                if done {
                    model.entry(fid).or_default().resize(offset, 0);
                }
            }
            7 => assert_eq!(store.destroy(fid).await, Ok(model.remove(&fid).is_some())),
            _ => {
                let expected =
                    model.get(&fid).map(|object| object[offset.min(object.len())..].to_vec());
                assert!(
                    read(&store, fid, offset as u64, 1 << 20).await == expected.map(Bytes::from),
                    "step {step}"
                );
                assert_eq!(
                    size(&store, fid).await,
                    model.get(&fid).map(|object| object.len() as u64)
                );
            }
        }
    }
}

async fn a_full_store_keeps_what_it_has(bed: ObjBed) {
    if !bed.is_bounded {
        return;
    }
    let store = (bed.open)();
    let mut filled = 0u64;
    let error = loop {
        match store.write(ONE, filled, Bytes::from(vec![5; 64 << 10]), IoMode::Auto).await {
            Ok(_) => filled += 64 << 10,
            Err(error) => break error,
        }
        assert!(filled < 4 * ROOM_BYTES_SMALL, "a small store fills up");
    };
    assert_eq!(error, Errno::ENOSPC);
    assert!(filled > 0);
    let kept = read(&store, ONE, 0, filled as usize).await.expect("there");
    assert!(kept.len() as u64 == filled && kept.iter().all(|byte| *byte == 5));
    assert_eq!(store.destroy(ONE).await, Ok(true));
    store.sync().await.expect("syncs work");
    write(&store, ONE, 0, b"fits again").await;
}

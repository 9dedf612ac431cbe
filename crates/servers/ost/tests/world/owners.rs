//! Objects belong to a store of an MDT: which clients and servers may use, list and destroy them.

use osd::MetaStore;
use target::{Data, NewFile};
use types::{FID_FIRST_NORMAL_SEQ, FID_SEQUENCES_PER_MDT_BITS, Timespec};
use zerocopy::FromBytes;

use super::*;

/// The call with another claim in its body.
fn claiming(mut call: Call, claim: Claim) -> Call {
    let mut body = call.bufs[0].to_vec();
    let end = body.len();
    body[end - size_of::<Claim>()..].copy_from_slice(claim.as_bytes());
    call.bufs[0] = body.into();
    call
}

#[test]
fn an_object_of_another_store_is_neither_shown_nor_changed() {
    let world = told_off();
    let remote = world.mdt();
    world.attr(&remote, write(0, b"data", PLAIN)).expect("writes");
    let refused = |call| world.call(&remote, call).map(drop).map_err(|error| error.errno());
    let glimpse = |store| {
        let mut call = batch(Opcode::OstGlimpse, &[range(OBJECT, OBJECT.ver, 1)]);
        call.bufs[0] = encode_body(&OstBatchReq { count: 1, store, ..OstBatchReq::default() });
        let attrs = world.call(&remote, call).expect("answered").reply.buf(1);
        decode_body::<OstAttr>(&attrs).exists
    };
    let other = Claim { store: 78, ..CLAIM };
    for restarts in [false, true] {
        if restarts {
            world.sim.run_for(Span::secs(3));
            world.kill();
            world.start();
        }
        let read = OstIoReq { object: OBJECT.into(), length: 4, ..OstIoReq::default() };
        let read = Call::new(Opcode::OstRead, vec![encode_body(&read)]);
        let calls =
            [write(0, b"late", PLAIN), punch(0, false), fallocate_call(0, 0, 9), seek(0, 0), read];
        for call in calls {
            let opcode = call.opcode;
            assert_eq!(refused(claiming(call, other)), Err(Errno::EIO), "{opcode:?}");
        }
        assert_eq!((glimpse(CLAIM.store), glimpse(other.store)), (1, 0));
        let mut destroy = batch(Opcode::OstDestroy, &[range(OBJECT, OBJECT.ver, 1)]);
        let body = OstBatchReq { count: 1, store: other.store, ..OstBatchReq::default() };
        destroy.bufs[0] = encode_body(&body);
        refused(destroy).expect("passed over");
        assert_eq!(&world.read(&remote, 0, 10, PLAIN).expect("its own").1[..], b"data");
    }
}

#[test]
fn a_new_file_leaves_the_object_of_another_one_alone() {
    let world = told_off();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"data", PLAIN)).expect("writes");
    let ost = world.ost.borrow().clone().expect("it runs");
    let file = NewFile {
        fid: OBJECT,
        store: CLAIM.store,
        bytes: Bytes::from_static(b"new"),
        mtime: Timespec::new(1, 0),
        replay: false,
        from: world.client.nid(),
        job: [0; 32],
    };
    let done = world.sim.block_on(&world.server, async move {
        let written = ost.clone().write_new(file).await;
        (written, ost.remove_new(OBJECT, CLAIM.store).await)
    });
    assert_eq!(done, (Err(Errno::EIO), Ok(())));
    assert_eq!(&world.read(&remote, 0, 10, PLAIN).expect("its own").1[..], b"data");
}

/// Its file moves to MDT 1, under another FID.
#[test]
fn an_object_that_is_lent_serves_its_file_and_the_one_that_takes_its_place() {
    let world = told_off();
    let (remote, mdt) = (world.remote(1), world.mdt());
    world.attr(&remote, write(0, b"data", PLAIN)).expect("writes");
    let file = Fid::new(FID_FIRST_NORMAL_SEQ + (1 << FID_SEQUENCES_PER_MDT_BITS), 7);
    let theirs = |data: &[u8]| {
        let mut call = write(0, data, PLAIN);
        let body: OstIoReq = decode_body(&call.bufs[0]);
        let claim = Claim { store: 78, ..CLAIM };
        call.bufs[0] = encode_body(&OstIoReq { parent: file.into(), claim, ..body });
        world.attr(&remote, call).map(drop).map_err(|error| error.errno())
    };
    assert_eq!(theirs(b"late"), Err(Errno::EIO));
    let object = range(OBJECT, OBJECT.ver, 1);
    let body = OstRaiseReq { parent: PARENT.into(), lent: 2, claim: CLAIM, ..Default::default() };
    let store = Bytes::copy_from_slice(&78_u64.to_le_bytes());
    let bufs = vec![encode_body(&body), Bytes::copy_from_slice(object.as_bytes()), store];
    world.call(&remote, Call::new(Opcode::OstRaise, bufs)).expect("lent");
    world.power_cut(3);
    world.start();
    assert_eq!(theirs(b"next"), Ok(()));
    world.attr(&remote, write(4, b"more", PLAIN)).expect("its file may use it still");
    world.call(&mdt, sweep(&[range(Fid { oid: 1, ..OBJECT }, 0, 100)])).expect("swept");
    assert_eq!(&world.read(&remote, 0, 10, PLAIN).expect("it is there").1[..], b"nextmore");
    let mut destroy = batch(Opcode::OstDestroy, &[object]);
    let body = OstBatchReq { count: 1, store: 78, ..OstBatchReq::default() };
    destroy.bufs[0] = encode_body(&body);
    world.call(&mdt, destroy).expect("its new MDT destroys it");
    assert_eq!(world.disk.objects(), vec![]);
}

#[test]
fn a_client_that_names_no_mdt_is_refused() {
    let world = World::plain();
    let remote = world.remote(1);
    for claim in [Claim { store: 0, ..CLAIM }, Claim { session: 0, ..CLAIM }] {
        let answer = world.call(&remote, claiming(write(0, b"data", PLAIN), claim));
        assert_eq!(answer.map(drop).map_err(|error| error.errno()), Err(Errno::EPROTO));
    }
}

#[test]
fn an_object_of_version_1_belongs_to_the_first_that_changes_it() {
    let world = told_off();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"data", PLAIN)).expect("writes");
    world.sim.run_for(Span::secs(3));
    world.kill();
    let (env, disk) = (world.server.env(), world.disk.clone());
    world.sim.block_on(&world.server, async move {
        let meta = MemMeta::open(&env, &disk);
        let (_, record) = disk.records(Table::Objects).remove(0);
        let mut old = record[..32].to_vec();
        (old[1], old[2]) = (1, 32);
        let mut set = osd::WriteSet::new();
        set.put(Table::Objects, OBJECT.to_key(), old);
        meta.apply(&set).expect("room");
        meta.commit().await.expect("a good disk");
    });
    world.start();
    let other = Claim { store: 78, ..CLAIM };
    world.call(&remote, claiming(write(1, b"new", PLAIN), other)).expect("nobody's so far");
    let errno = world.attr(&remote, write(0, b"late", PLAIN)).map_err(|error| error.errno());
    assert_eq!(errno.err(), Some(Errno::EIO));
}

fn list(from: Fid, count: u32) -> Call {
    let body = OstListReq { from: from.into(), count, reserved: 0 };
    Call::new(Opcode::OstList, vec![encode_body(&body)])
}

#[test]
fn servers_hear_of_all_objects_and_whose_they_are() {
    let world = World::plain();
    let remote = world.remote(1);
    world.attr(&remote, write(5, b"data", PLAIN)).expect("writes");
    let server = world.mdt();
    let ask = |from| {
        let answer = world.call(&server, list(from, 9)).expect("lists").reply;
        let listed: Vec<OstListed> = answer
            .buf(1)
            .chunks_exact(size_of::<OstListed>())
            .map(|piece| OstListed::read_from_bytes(piece).expect("its size"))
            .collect();
        assert_eq!(answer.body::<OstListRep>().count as usize, listed.len());
        listed
    };
    let all = ask(Fid::ZERO);
    let (object, parent) = (OBJECT.into(), PARENT.into());
    assert_eq!(all, [OstListed { object, parent, store: CLAIM.store, size: 9 }]);
    assert_eq!(ask(OBJECT.stripe(OBJECT.ver + 1)), []);
    let none = world.call(&server, list(Fid::ZERO, 0)).map(drop).map_err(|error| error.errno());
    assert_eq!(none, Err(Errno::EINVAL));
}

#[test]
fn only_servers_destroy_objects_and_fence_clients() {
    let world = World::plain();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"data", PLAIN)).expect("writes");
    let fence = OstFenceReq { store: CLAIM.store, client_low: 1, session: 9, ..Default::default() };
    let calls = [
        batch(Opcode::OstDestroy, &[range(OBJECT, 1, 1)]),
        sweep(&[range(Fid { oid: 1, ..OBJECT }, 0, 100)]),
        Call::new(Opcode::OstFence, vec![encode_body(&fence)]),
        list(Fid::ZERO, 9),
    ];
    for call in calls {
        let answer = world.call(&remote, call).map(drop).map_err(|error| error.errno());
        assert_eq!(answer, Err(Errno::EPERM));
    }
    assert_eq!(&world.read(&remote, 0, 10, PLAIN).expect("there").1[..], b"data");
}

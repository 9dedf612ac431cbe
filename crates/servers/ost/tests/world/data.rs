//! Data of objects: the results of a read, a glimpse and a seek, and the requests that are refused.

use zerocopy::FromBytes;

use super::*;

#[test]
fn what_is_written_is_read_glimpsed_and_counted() {
    let world = World::plain();
    let remote = world.remote(1);
    let large = pattern(300_000, 3);
    assert_eq!(world.attr(&remote, write(100, b"small", PLAIN)).expect("writes").size, 105);
    let attr = world.attr(&remote, write(1 << 20, &large, PLAIN)).expect("writes");
    assert_eq!((attr.exists, attr.size, attr.mtime), (1, (1 << 20) + 300_000, 1_000 + (1 << 20)));
    let (attr, data) = world.read(&remote, 1 << 20, 1 << 20, IoFlags::MUST_EXIST).expect("reads");
    assert!(attr.length == 300_000 && data[..] == large[..]);
    let (_, hole) = world.read(&remote, 98, 8, PLAIN).expect("reads");
    assert_eq!(&hole[..], b"\0\0small\0");

    let attr = world.attr(&remote, punch(103, false)).expect("cuts");
    assert_eq!((attr.exists, attr.size), (1, 103));
    let answer = world
        .call(&remote, batch(Opcode::OstGlimpse, &[range(OBJECT, 0, 1), range(OBJECT, 1, 1)]))
        .expect("glimpses");
    let attrs: Vec<OstAttr> = answer
        .reply
        .buf(1)
        .chunks_exact(size_of::<OstAttr>())
        .map(|piece| OstAttr::read_from_bytes(piece).expect("its size"))
        .collect();
    assert_eq!(
        attrs.iter().map(|attr| (attr.exists, attr.size)).collect::<Vec<_>>(),
        [(0, 0), (1, 103)]
    );

    let answer = world
        .call(&remote, Call::new(Opcode::OstStatfs, vec![encode_body(&[0u8; 8])]))
        .expect("statfs");
    let statfs: StatfsRep = decode_body(&answer.reply.buf(0));
    assert!(
        statfs.blocks_free > 0 && statfs.blocks_free <= statfs.blocks && statfs.state.is_empty()
    );
}

#[test]
fn a_missing_object_is_empty_unless_it_must_be_there() {
    let world = World::plain();
    let remote = world.remote(1);
    let (attr, data) = world.read(&remote, 0, 4_096, PLAIN).expect("reads");
    assert_eq!((attr.exists, attr.length, data.len()), (0, 0, 0));
    assert_eq!(world.attr(&remote, punch(0, true)).expect("nothing to cut").exists, 0);
    assert_eq!(world.attr(&remote, punch(10, false)).expect("nothing to cut").exists, 0);
    assert_eq!(world.disk.objects(), []);
    assert_eq!(world.attr(&remote, punch(10, true)).expect("makes").size, 10);
}

#[test]
fn senseless_requests_are_refused() {
    let world = World::plain();
    let remote = world.mdt();
    let errno = |call| world.call(&remote, call).map(|_| ()).map_err(|error| error.errno());
    assert_eq!(errno(write(u64::MAX - 2, b"xyz", PLAIN)), Err(Errno::EFBIG));
    assert_eq!(errno(write(0, b"", PLAIN)), Err(Errno::EINVAL));
    assert_eq!(errno(batch(Opcode::OstDestroy, &[])), Err(Errno::EINVAL));
    assert_eq!(errno(batch(Opcode::OstDestroy, &[range(OBJECT, 1, u32::MAX)])), Err(Errno::EINVAL));
    assert_eq!(errno(batch(Opcode::OstDestroy, &[range(OBJECT, 0, u32::MAX)])), Err(Errno::E2BIG));
    let mut odd = batch(Opcode::OstGlimpse, &[]);
    odd.bufs[1] = Bytes::from_static(b"seven b");
    assert_eq!(errno(odd), Err(Errno::EPROTO));
    let mut cut = write(0, b"xyz", PLAIN);
    cut.bufs[1] = Bytes::from_static(b"xy");
    assert_eq!(errno(cut), Err(Errno::EPROTO));
}

#[test]
fn a_glimpse_has_as_many_objects_as_clients_ask_for() {
    let world = World::plain();
    let remote = world.remote(1);
    assert!(world.attr(&remote, write(100, b"small", PLAIN)).is_ok());
    let ask = |objects: u32| {
        let ranges: Vec<_> = (0..objects).map(|stripe| range(OBJECT, stripe, 1)).collect();
        let answer = world.call(&remote, batch(Opcode::OstGlimpse, &ranges));
        answer.map(|answer| answer.reply.buf(1)).map_err(|error| error.errno())
    };
    let most = u32::try_from(wire::grants::VECTOR_MAX).expect("a few thousand");
    let told = ask(most).expect("as many as clients ask for");
    let attrs = told.chunks_exact(size_of::<OstAttr>()).map(decode_body::<OstAttr>);
    let sizes: Vec<_> = attrs.map(|attr| attr.size).collect();
    assert_eq!((sizes.len(), sizes[0], sizes[1]), (most as usize, 0, 105));
    assert_eq!(ask(most + 1).map(drop), Err(Errno::E2BIG));
}

#[test]
fn room_holes_and_zeros_survive_what_dies() {
    const BLOCK: u64 = 4_096;
    const PUNCH: u32 = fallocate::PUNCH_HOLE | fallocate::KEEP_SIZE;
    for seed in 0..10 {
        let world = World::new(seed, MemDiskConfig::default(), Bugs::default());
        let remote = world.remote(1);
        let gone = world.attr(&remote, fallocate_call(PUNCH, 0, BLOCK)).expect("nothing to punch");
        assert_eq!(gone.exists, 0);
        let grown = world
            .attr(&remote, fallocate_call(fallocate::ALLOCATE, 0, 3 * BLOCK))
            .expect("allocates");
        assert_eq!((grown.exists, grown.size, grown.blocks), (1, 3 * BLOCK, 24));
        let mut expected = pattern(3 * BLOCK as usize, 5);
        world.attr(&remote, write(0, &expected, PLAIN)).expect("writes");
        let punched = world.attr(&remote, fallocate_call(PUNCH, BLOCK, BLOCK)).expect("punches");
        assert_eq!((punched.size, punched.blocks), (3 * BLOCK, 16));
        world
            .attr(&remote, fallocate_call(fallocate::ZERO_RANGE, 3 * BLOCK - 10, 20))
            .expect("zeroes");
        expected.resize(3 * BLOCK as usize + 10, 0);
        expected[BLOCK as usize..2 * BLOCK as usize].fill(0);
        expected[3 * BLOCK as usize - 10..].fill(0);
        if seed % 2 == 0 {
            world.power_cut(seed)
        } else {
            world.kill()
        }
        world.start();
        let (_, data) = world.read(&remote, 0, 1 << 16, PLAIN).expect("recovered");
        assert!(data[..] == expected, "seed {seed}");
        let found = |offset, what| {
            let rep: OstSeekRep =
                decode_body(&world.call(&remote, seek(offset, what)).expect("seeks").reply.buf(0));
            rep.offset
        };
        let places = [found(0, 1), found(BLOCK, 0), found(2 * BLOCK, 1), found(4 * BLOCK, 0)];
        assert_eq!(places, [BLOCK, 2 * BLOCK, 3 * BLOCK + 10, u64::MAX], "seed {seed}");
    }
}

#[test]
fn ranges_that_make_no_sense_are_refused() {
    let world = World::plain();
    let remote = world.remote(1);
    let refused = |call| world.attr(&remote, call).expect_err("refused");
    assert_eq!(
        refused(fallocate_call(fallocate::PUNCH_HOLE, 0, 1)),
        CallError::Errno(Errno::EOPNOTSUPP)
    );
    assert_eq!(refused(fallocate_call(0, 0, 0)), CallError::Errno(Errno::EINVAL));
    assert_eq!(refused(fallocate_call(0, u64::MAX, 2)), CallError::Errno(Errno::EFBIG));
    assert_eq!(
        world.call(&remote, seek(0, 2)).expect_err("refused"),
        CallError::Errno(Errno::EINVAL)
    );
    assert_eq!(world.disk.objects(), []);
}

/// Sets a parameter of the OST that runs.
fn set_param(world: &World, name: &str, value: &str) {
    let tree = ParamTree::new();
    let place = target::Place {
        kind: "obdfilter",
        name: "testfs-OST0002".into(),
        dir: String::new(),
        space: Rc::new(|| None),
    };
    world.ost.borrow().as_ref().expect("it runs").register_params(&tree, &place);
    let done = tree.set_now(&format!("obdfilter.testfs-OST0002.{name}"), value).expect("known");
    assert!(done.into_iter().all(|one| one.is_ok()), "{name}={value}");
}

fn state(world: &World, remote: &Rc<Remote>) -> StatfsState {
    let statfs = Call::new(Opcode::OstStatfs, vec![encode_body(&[0u8; 8])]);
    let answer = world.call(remote, statfs).expect("statfs");
    decode_body::<StatfsRep>(&answer.reply.buf(0)).state
}

#[test]
fn a_read_only_ost_refuses_changes_but_not_replays() {
    let world = World::plain();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"before", PLAIN)).expect("writes");
    world.kill();
    world.start(); // the write was not durable
    set_param(&world, "readonly", "1");
    let (attr, data) = world.read(&remote, 0, 6, PLAIN).expect("reads");
    assert_eq!((attr.length, &data[..]), (6, &b"before"[..]));
    for call in [write(0, b"x", PLAIN), punch(1, false), fallocate_call(0, 0, 9)] {
        assert_eq!(world.attr(&remote, call).map_err(|error| error.errno()), Err(Errno::EROFS));
    }
    assert_eq!(state(&world, &remote), StatfsState::READ_ONLY);
    set_param(&world, "readonly", "0");
    world.attr(&remote, write(6, b"after", PLAIN)).expect("writes");
}

fn reserve(total: u64, number: u32) -> Call {
    let body = OstReserveReq { total, number, ..OstReserveReq::default() };
    Call::new(Opcode::OstReserve, vec![encode_body(&body)])
}

#[test]
fn a_read_only_ost_takes_what_was_acknowledged_before() {
    let world = World::plain();
    let remote = world.remote(1);
    let promised = |number| -> OstReserveRep {
        let answer = world.call(&remote, reserve(16 << 20, number)).expect("answered");
        decode_body(&answer.reply.buf(0))
    };
    assert_eq!(promised(1).total, 16 << 20);
    set_param(&world, "readonly", "1");
    let write = || world.attr(&remote, write(0, b"kept", IoFlags::RESERVED));
    assert_eq!(write().map(|attr| attr.size), Ok(4));
    assert_eq!(promised(2).total, 16 << 20, "and nothing more");
    assert_eq!(write().map(|attr| attr.size), Ok(4), "a question takes nothing of it");
    world.sim.run_for(Span::secs(4));
    assert_eq!(write().map_err(|error| error.errno()), Err(Errno::EROFS));
    assert_eq!(promised(3).total, 0, "nothing is promised any more");
    set_param(&world, "readonly", "0");
    assert_eq!(promised(4).total, 16 << 20);
    assert_eq!(write().map(|attr| attr.size), Ok(4));
}

#[test]
fn a_write_that_comes_late_does_not_set_the_time_back() {
    let world = World::plain();
    let remote = world.remote(1);
    let mtime = |offset| {
        world.attr(&remote, write(offset, b"kept", IoFlags::RESERVED)).expect("written");
        let glimpse = batch(Opcode::OstGlimpse, &[range(OBJECT, 1, 1)]);
        let answer = world.call(&remote, glimpse).expect("glimpses");
        decode_body::<OstAttr>(&answer.reply.buf(1)).mtime
    };
    let late = mtime(5_000); // stamped by its offset
    assert_eq!(mtime(100), late);
    assert!(mtime(9_000) > late);
}

#[test]
fn a_degraded_and_a_draining_ost_serve_all_and_say_so_until_a_restart() {
    let world = World::plain();
    let remote = world.remote(1);
    set_param(&world, "degraded", "1");
    set_param(&world, "no_create", "1");
    world.attr(&remote, write(0, b"here", PLAIN)).expect("writes");
    assert_eq!(state(&world, &remote), StatfsState::DEGRADED | StatfsState::NO_CREATE);
    world.kill();
    world.start();
    assert!(state(&world, &remote).is_empty());
}

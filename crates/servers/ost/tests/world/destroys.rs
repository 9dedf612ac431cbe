//! Destroyed objects stay destroyed, one by one and in sweeps of ids.

use super::*;

#[test]
fn a_destroyed_object_stays_destroyed() {
    let world = World::plain();
    let (old, mdt) = (world.remote(1), world.mdt());
    world.attr(&old, write(0, b"data", PLAIN)).expect("writes");
    world.call(&mdt, batch(Opcode::OstDestroy, &[range(OBJECT, 0, 4)])).expect("destroys");
    world.call(&mdt, batch(Opcode::OstDestroy, &[range(OBJECT, 0, 4)])).expect("again");
    for _ in 0..2 {
        let late = world.attr(&old, write(0, b"late", PLAIN)).map_err(|error| error.errno());
        assert_eq!(late.map(|attr| attr.size), Err(Errno::ESTALE));
        assert_eq!(
            world.attr(&old, punch(5, true)).map_err(|error| error.errno()).map(|attr| attr.size),
            Err(Errno::ESTALE)
        );
        assert_eq!(world.disk.objects(), []);
        world.sim.run_for(Span::secs(2));
        world.power_cut(3);
        world.start();
    }
    let other = world.remote(3);
    let read = world.read(&other, 0, 10, PLAIN).map(drop).map_err(|error| error.errno());
    assert_eq!(read, Err(Errno::ESTALE), "no layout names it");
}

#[test]
fn without_tombstones_a_late_write_brings_an_object_back() {
    let world = World::new(7, MemDiskConfig::default(), Bugs::plant("ost.skip_tombstones"));
    let remote = world.remote(1);
    world.call(&world.mdt(), batch(Opcode::OstDestroy, &[range(OBJECT, 1, 1)])).expect("destroys");
    world.attr(&remote, write(0, b"late", PLAIN)).expect("the bug");
    assert_eq!(world.disk.objects(), [OBJECT]);
}

#[test]
fn a_write_and_its_destroy_are_replayed_in_order() {
    for seed in 0..10 {
        let world = World::new(seed, MemDiskConfig::default(), Bugs::default());
        let (writer, mdt) = (world.remote(1), world.mdt());
        world.attr(&writer, write(0, b"data", PLAIN)).expect("writes");
        world.call(&mdt, batch(Opcode::OstDestroy, &[range(OBJECT, 1, 1)])).expect("destroys");
        world.power_cut(seed);
        world.start();
        let call = Call::new(Opcode::OstStatfs, vec![Bytes::new()]);
        world.call(&writer, call.clone()).expect("recovered");
        world.call(&mdt, call).expect("recovered");
        assert_eq!(world.disk.objects(), [], "seed {seed}");
    }
}

#[test]
fn a_destroy_by_ids_takes_every_stripe_and_no_more() {
    let world = World::plain();
    let (remote, mdt) = (world.remote(1), world.mdt());
    let id = |oid, ver| Fid { seq: OBJECT.seq, oid, ver };
    for object in [id(3, 0), id(4, 0), id(4, 7), id(5, 1), id(6, 0), OBJECT] {
        let mut call = write(0, b"data", PLAIN);
        let body = OstIoReq {
            object: object.into(),
            parent: PARENT.into(),
            length: 4,
            claim: CLAIM,
            ..OstIoReq::default()
        };
        call.bufs[0] = encode_body(&body);
        world.call(&remote, call).expect("writes");
    }
    let ranges = [range(id(4, 0), 0, 2), range(id(8, 0), 0, 1_000)];
    for expected in [4, 0] {
        let answer = world.call(&mdt, sweep(&ranges)).expect("destroys");
        assert!(!answer.reply.transno().is_none(), "its commit can be waited for");
        assert_eq!(answer.reply.body::<OstBatchReq>().count, expected);
    }
    world.sim.run_for(Span::secs(3));
    let mut left = world.disk.objects();
    left.sort_unstable();
    assert_eq!(left, [id(3, 0), id(6, 0)]);
    assert_eq!(world.disk.records(Table::Objects).len(), 2);
    let late =
        world.call(&remote, write(0, b"late", PLAIN)).map(drop).map_err(|error| error.errno());
    assert_eq!(late, Err(Errno::ESTALE), "what was destroyed stays so");
}

#[test]
fn senseless_ranges_of_ids_are_refused() {
    let world = World::plain();
    let remote = world.mdt();
    let errno = |ranges: &[ObjectRange]| {
        world.call(&remote, sweep(ranges)).map(drop).map_err(|error| error.errno())
    };
    let id = |oid| Fid { seq: OBJECT.seq, oid, ver: 0 };
    assert_eq!(errno(&[]), Err(Errno::EINVAL));
    assert_eq!(errno(&[range(id(1), 0, 0)]), Err(Errno::EINVAL), "of nothing");
    assert_eq!(errno(&[range(id(1), 1, 1)]), Err(Errno::EINVAL), "of stripes");
    assert_eq!(errno(&[range(id(2), 0, u32::MAX)]), Err(Errno::EINVAL), "beyond the sequence");
    assert_eq!(
        errno(&[range(id(1), 0, 5), range(id(5), 0, 1)]),
        Err(Errno::EINVAL),
        "one in another"
    );
    assert_eq!(errno(&vec![range(id(1), 0, 1); 5_000]), Err(Errno::E2BIG));
}

#[test]
fn the_requests_of_a_sweep_need_one_listing() {
    let world = World::plain();
    let (remote, other) = (world.mdt(), world.remote_as(98, true));
    let id = |oid, ver| Fid { seq: OBJECT.seq, oid, ver };
    let make = |object: Fid| {
        let mut call = write(0, b"data", PLAIN);
        let object = object.into();
        let (parent, length, claim) = (PARENT.into(), 4, CLAIM);
        let body = OstIoReq { object, parent, length, claim, ..OstIoReq::default() };
        call.bufs[0] = encode_body(&body);
        world.call(&remote, call).expect("writes");
    };
    (1..=100).for_each(|oid| make(id(oid, 0)));
    let listings = || world.ost.borrow().as_ref().expect("it was started").listings();
    let destroyed = |remote: &Rc<Remote>, first: u32| {
        let gaps = [range(id(first, 0), 0, 1), range(id(first + 2, 0), 0, 1)];
        let answer = world.call(remote, sweep(&gaps)).expect("destroys");
        answer.reply.body::<OstBatchReq>().count
    };
    let all: u32 = (0..25).map(|at| destroyed(&remote, 1 + 4 * at)).sum();
    assert_eq!((all, listings()), (50, 1));
    make(id(101, 0));
    assert_eq!((destroyed(&other, 101), listings()), (1, 2), "another session has another sweep");
    assert_eq!((destroyed(&other, 1), listings()), (0, 3), "this one began before the listing");
}

//! Full stores, and waiting requests that keep no slot from others.

use super::*;

#[test]
fn a_full_ost_says_so_and_destroys_work() {
    let disk = MemDiskConfig { object_bytes: 4 << 20, ..MemDiskConfig::default() };
    let world = World::new(7, disk, Bugs::default());
    let remote = world.remote(1);
    let mut filled = 0;
    let errno = loop {
        match world.attr(&remote, write(filled, &pattern(256 << 10, 1), PLAIN)) {
            Ok(attr) => filled = attr.size,
            Err(error) => break error.errno(),
        }
    };
    assert_eq!(errno, Errno::ENOSPC);
    assert!(filled >= 2 << 20, "{filled}");
    world.call(&world.mdt(), batch(Opcode::OstDestroy, &[range(OBJECT, 1, 1)])).expect("destroys");
    let body = OstIoReq {
        object: OBJECT.stripe(2).into(),
        length: 4,
        claim: CLAIM,
        ..OstIoReq::default()
    };
    let mut again =
        Call::new(Opcode::OstWrite, vec![encode_body(&body), Bytes::from_static(b"room")]);
    again.modifies = true;
    world.attr(&remote, again).expect("there is room again");
}

#[test]
fn full_records_refuse_writes_and_take_destroys() {
    let disk = MemDiskConfig {
        record_bytes: 64 << 10,
        record_reserve_bytes: 16 << 10,
        ..MemDiskConfig::default()
    };
    let world = World::new(7, disk, Bugs::default());
    let remote = world.remote(1);
    let one = |oid| {
        let body = OstIoReq {
            object: Fid { oid, ..OBJECT }.into(),
            length: 4,
            claim: CLAIM,
            ..OstIoReq::default()
        };
        let mut call =
            Call::new(Opcode::OstWrite, vec![encode_body(&body), Bytes::from_static(b"data")]);
        call.modifies = true;
        call
    };
    let mut oid = 1;
    while world.attr(&remote, one(oid)).is_ok() {
        oid += 1;
        assert!(oid < 10_000, "records are bounded");
    }
    assert_eq!(
        world.attr(&remote, one(oid)).map_err(|error| error.errno()).err(),
        Some(Errno::ENOSPC)
    );
    let mdt = world.mdt();
    for gone in 1..oid / 2 {
        world
            .call(&mdt, batch(Opcode::OstDestroy, &[range(Fid { oid: gone, ..OBJECT }, 1, 1)]))
            .expect("destroys");
    }
}

#[test]
fn who_waits_for_an_object_keeps_no_slot_from_others() {
    let disk = MemDiskConfig { io_max: Span::secs(100), ..MemDiskConfig::default() };
    let world = World::new(7, disk, Bugs::default());
    let node = world.node.borrow().clone().expect("it was started");
    let params = ParamTree::new();
    node.register_params(&params, &[&spec::OST_IO]);
    params.set_now("ost.OSS.ost_io.threads_max", "4").expect("it is there");
    let remote = world.remote(1);
    let answered = Rc::new(Cell::new(0));
    for number in 0..21 {
        let (remote, answered) = (remote.clone(), answered.clone());
        let call = if number == 0 { punch(1 << 30, true) } else { write(0, b"waits", PLAIN) };
        world.client.env().spawn("call", async move {
            let _lasts = remote.call(call).await;
            answered.set(answered.get() + 1);
        });
    }
    world.sim.run_for(Span::millis(500));
    let stats = node.stats()["ost_io"];
    assert_eq!((answered.get(), stats.active, stats.queued), (0, 1, 0), "the punch alone has one");
}

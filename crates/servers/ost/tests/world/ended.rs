//! Requests that are still executed when their session ends.

use super::*;

/// A client sends `calls` one after the other, and the first one waits for the disk. Its session
/// ends meanwhile: the client comes back as a new one, and leaves in good order. The first call is
/// executed behind that.
fn ended_under(calls: impl IntoIterator<Item = Call>) -> World {
    // calls on objects take long, commits do not
    let disk = MemDiskConfig { io_max: Span::secs(100), ..MemDiskConfig::default() };
    let world = World::new(7, disk, Bugs::default());
    let remote = world.remote(1);
    for call in calls {
        let remote = Rc::clone(&remote);
        world.client.env().spawn("call", async move { drop(remote.call(call).await) });
        world.sim.run_for(Span::millis(500));
    }
    assert_eq!(world.disk.objects(), [], "the disk has done nothing yet");
    world.client.kill_as(false);
    let back = world.remote(1);
    world.call(&back, batch(Opcode::OstSync, &[])).expect("a new session");
    let leaves = world.endpoints.borrow()[1].clone();
    world.sim.block_on(&world.client, async move { leaves.shutdown().await });
    world.sim.run_for(Span::secs(103));
    world
}

#[test]
fn a_session_that_is_over_gets_no_room() {
    let body = OstReserveReq { total: 16 << 20, number: 1, ..OstReserveReq::default() };
    let world = ended_under([Call::new(Opcode::OstReserve, vec![encode_body(&body)])]);
    let statfs = Call::new(Opcode::OstStatfs, vec![encode_body(&[0u8; 8])]);
    let answer = world.call(&world.remote(2), statfs).expect("statfs");
    let statfs: StatfsRep = decode_body(&answer.reply.buf(0));
    assert_eq!(statfs.blocks_free, statfs.blocks, "nothing is written and nothing is promised");
}

#[test]
fn a_change_that_outlives_its_session_leaves_no_reply() {
    let world = ended_under([write(0, b"late", PLAIN)]);
    assert_eq!(world.disk.objects(), [OBJECT], "it was executed");
    let records = [Table::Objects, Table::Clients, Table::Replies];
    assert_eq!(records.map(|table| world.disk.records(table).len()), [1, 0, 0]);
}

#[test]
fn a_change_that_has_not_begun_when_its_session_ends_is_not_made() {
    let world = ended_under([write(0, b"begun", PLAIN), write(0, b"waits here", PLAIN)]);
    assert_eq!(world.disk.objects(), [OBJECT], "the first one was executed");
    world.sim.run_for(Span::secs(100)); // the second one would take no longer
    let (attr, data) = world.read(&world.remote(2), 0, 100, PLAIN).expect("reads");
    assert_eq!((attr.size, &data[..]), (5, &b"begun"[..]));
}

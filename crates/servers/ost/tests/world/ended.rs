//! Requests that are still executed when their session ends.

use super::*;

/// A client sends `call`, which waits for the disk. Its session ends meanwhile: the client comes
/// back as a new one, and leaves in good order. The call is executed behind that.
fn ended_under(call: Call) -> World {
    // calls on objects take long, commits do not
    let disk = MemDiskConfig { io_max: Span::secs(100), ..MemDiskConfig::default() };
    let world = World::new(7, disk, Bugs::default());
    let remote = world.remote(1);
    world.client.env().spawn("call", async move { drop(remote.call(call).await) });
    world.sim.run_for(Span::millis(500));
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
    let world = ended_under(Call::new(Opcode::OstReserve, vec![encode_body(&body)]));
    let statfs = Call::new(Opcode::OstStatfs, vec![encode_body(&[0u8; 8])]);
    let answer = world.call(&world.remote(2), statfs).expect("statfs");
    let statfs: StatfsRep = decode_body(&answer.reply.buf(0));
    assert_eq!(statfs.blocks_free, statfs.blocks, "nothing is written and nothing is promised");
}

#[test]
fn a_change_that_outlives_its_session_leaves_no_reply() {
    let world = ended_under(write(0, b"late", PLAIN));
    assert_eq!(world.disk.objects(), [OBJECT], "it was executed");
    let records = [Table::Objects, Table::Clients, Table::Replies];
    assert_eq!(records.map(|table| world.disk.records(table).len()), [1, 0, 0]);
}

//! Room on OSTs as an MDT knows it.

use wire::body::FidReq;

use super::*;

#[test]
fn an_mdt_learns_at_once_of_an_ost_that_a_client_found_full() {
    let world = World::on(Sim::new(20, SimConfig::default()), Bugs::default(), 1);
    world.sim.run_for(Span::secs(10));
    world.create(0, "warm"); // the MDT asks now, and not again within five seconds
    world.sim.run_for(Span::secs(2));
    world.servers[1].disk.set_object_bytes(1 << 20);
    let sync = Call::new(Opcode::MdtSync, vec![encode_body(&FidReq::default())]);
    world.call(0, TargetId::mdt(0), sync);
    world.sim.run_for(Span::millis(500));
    let osts = ["a", "b", "c", "d"].map(|name| world.create(0, name).1.object(0).1.0);
    assert_eq!(osts, [1; 4], "the other one is full");
}

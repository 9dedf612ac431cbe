//! Stripes that must have an object, of a file with more than 64.

use layout::{StripeSet, stripes_behind};
use wire::body::{CloseFlags, CloseReq};

use super::*;

/// What an answer says of the file's stripes.
fn told(world: &mut World) -> StripeSet {
    let (rep, record) = world.rig.getattr(world.file).expect("there");
    StripeSet::from_parts(rep.stripes, stripes_behind(&record))
}

fn epoch(world: &mut World) -> u64 {
    world.rig.getattr(world.file).expect("there").0.write_epoch
}

#[test]
fn stripes_of_any_number_that_are_stated_must_exist() {
    let mut world =
        world_of(&CompositeTemplate::striped(0, [(MIB, 1), (8 * MIB, 60), (END_OF_FILE, 9)]));
    *world.rig.osts.borrow_mut() = (0..70).collect();
    world.intend(100 * MIB).expect("room");
    assert_eq!(world.objects(), [1, 60, 9]);

    let there: StripeSet = [0, 5, 64, 69].into_iter().collect();
    let body = CloseReq {
        fid: world.file.into(),
        handle: world.handle,
        flags: CloseFlags::WROTE | CloseFlags::SIZE,
        size: 100 * MIB,
        write_epoch: epoch(&mut world),
        stripes: there.first_part(),
        ..CloseReq::default()
    };
    world.rig.call(Opcode::MdtClose, &body, &[&there.second_part()]).expect("closed");
    assert_eq!(told(&mut world), there);
    world.rig.commit();
    world.rig.crash();
    world.rig.recovered();
    assert_eq!(told(&mut world), there, "after a crash too");

    world.truncate(5 * MIB).expect("cut");
    assert_eq!(told(&mut world), there, "objects stay");
    world.truncate(0).expect("cut");
    assert!(told(&mut world).is_empty(), "a file without a byte misses no object");

    let more: StripeSet = [1, 66].into_iter().collect();
    let body = SetattrReq {
        attr: Attr::default().with_fid(world.file),
        valid: SetattrFlags::SIZE_KNOWN,
        write_epoch: epoch(&mut world),
        stripes: more.first_part(),
        ..SetattrReq::default()
    };
    world.rig.call(Opcode::MdtSetattr, &body, &[&more.second_part()]).expect("known");
    assert_eq!(told(&mut world), more);
}

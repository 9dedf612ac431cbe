//! A read-only MDT: it takes part in no operation that begins, and in those that have begun.

use super::moves::{files, wanted_as};
use super::placed::{asked, set_param};
use super::*;

impl World {
    /// An MDT is read-only from now on, or takes changes again.
    fn set_read_only(&self, mdt: u32, is_read_only: bool) {
        set_param(self, mdt, "readonly", if is_read_only { "1" } else { "0" });
    }

    fn link_to(&self, fid: Fid, to: (Fid, &str)) -> Result<(), Errno> {
        self.send(0, to.0.mdt_index(), link(fid, to.0, to.1)).map(drop)
    }
}

#[test]
fn changes_with_a_part_on_a_read_only_mdt_are_refused_and_leave_nothing_reserved() {
    let world = World::new(51);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    world.mkdir(Fid::ROOT, "e", &[1]).expect("made");
    let (far, near) = (world.create(dir, "far"), world.create(Fid::ROOT, "near"));
    world.link_to(far, (Fid::ROOT, "l")).expect("linked");
    world.settle();
    world.set_read_only(1, true);

    let rename = |from, to| world.rename(from, to).err();
    assert_eq!(rename((Fid::ROOT, "near"), (dir, "n")), Some(Errno::EROFS), "a name there");
    assert_eq!(rename((Fid::ROOT, "l"), (Fid::ROOT, "m")), Some(Errno::EROFS), "a file there");
    assert_eq!(rename((dir, "far"), (Fid::ROOT, "m")), Some(Errno::EROFS), "it is asked itself");
    assert_eq!(world.link_to(far, (Fid::ROOT, "k")), Err(Errno::EROFS));
    assert_eq!(world.unlink(Fid::ROOT, "l", false).err(), Some(Errno::EROFS));
    assert_eq!(world.unlink(Fid::ROOT, "e", true).err(), Some(Errno::EROFS));
    assert_eq!(world.mkdir(Fid::ROOT, "s", &[1]).err(), Some(Errno::EREMOTEIO));
    assert_eq!(world.mkdir(Fid::ROOT, "s", &[0, 1]).err(), Some(Errno::EREMOTEIO), "a shard");
    for number in 0..6 {
        let call = asked(Fid::ROOT, &format!("d{number}"), &dir::Asked::default());
        let made = world.send(0, 0, call).expect("another one takes it").body::<AttrRep>();
        assert_ne!(made.attr.fid().mdt_index(), 1);
    }
    // it is read, and all keys are free
    assert_eq!(world.lookup(1, dir, "far").expect("there").attr.fid(), far);
    assert_eq!(world.attr(far).expect("there").nlink, 2);
    world.rename((Fid::ROOT, "near"), (Fid::ROOT, "m")).expect("moved");
    world.check();

    world.set_read_only(1, false);
    world.rename((Fid::ROOT, "m"), (dir, "n")).expect("moved");
    assert_eq!(world.lookup(1, dir, "n").expect("there").attr.fid(), near);
    world.unlink(Fid::ROOT, "l", false).expect("removed");
    world.check();
}

#[test]
fn names_that_have_begun_to_move_go_on_over_a_read_only_mdt() {
    let world = World::new(52);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let all = files(&world, dir, 150);
    world.settle();
    let wanted = dir::Asked { count: 3, mdts: vec![0, 1, 2], ..dir::Asked::default() };
    world.send(0, 1, wanted_as("lustre.lmv", dir, &wanted)).expect("begun");
    (1..MDTS).for_each(|mdt| world.set_read_only(mdt, true));
    assert_eq!(world.find(dir, "file.149"), Ok(all["file.149"]), "a lookup moves its name");
    world.moved(dir);
    assert_eq!(world.all_names(dir), all);
    let plain = dir::Asked::default();
    let again = world.send(0, 1, wanted_as("lustre.lmv", dir, &plain));
    assert_eq!(again.err(), Some(Errno::EROFS), "others do not begin");
    world.check();
}

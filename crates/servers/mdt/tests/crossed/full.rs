//! An MDT whose store is full: an operation that adds something to it is refused before anything is
//! done.

use super::placed::asked;
use super::*;

impl World {
    /// Records of an MDT take no more room from now on, or may again.
    fn set_full(&self, mdt: u32, is_full: bool) {
        self.servers[mdt as usize].disk.set_records_full(is_full);
    }

    fn link(&self, fid: Fid, to: (Fid, &str)) -> Result<(), Errno> {
        self.send(0, to.0.mdt_index(), link(fid, to.0, to.1)).map(drop)
    }
}

#[test]
fn what_adds_to_a_full_mdt_is_refused_and_leaves_nothing_reserved() {
    let world = World::new(41);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let (far, near) = (world.create(dir, "far"), world.create(Fid::ROOT, "near"));
    world.sim.run_for(Span::secs(10)); // no record is left
    world.set_full(1, true);
    let before = world.clients[0].0.env().now();
    assert_eq!(world.mkdir(Fid::ROOT, "e", &[1]).err(), Some(Errno::ENOSPC));
    assert_eq!(world.mkdir(Fid::ROOT, "s", &[0, 1]).err(), Some(Errno::ENOSPC), "a shard");
    assert_eq!(world.link(far, (Fid::ROOT, "l")), Err(Errno::ENOSPC), "a back-link");
    assert_eq!(world.rename((Fid::ROOT, "near"), (dir, "n")).err(), Some(Errno::ENOSPC));
    assert_eq!(world.create(Fid::ROOT, "other").mdt_index(), 0, "the others have room");
    // all keys are free
    world.rename((Fid::ROOT, "near"), (Fid::ROOT, "m")).expect("moved");
    let attr = Attr { mode: 0o600, ..Attr::default() }.with_fid(far);
    let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
    world.send(1, 1, Call::new(Opcode::MdtSetattr, vec![encode_body(&body)])).expect("set");
    assert!(world.clients[0].0.env().now() - before < Span::secs(5), "nothing waits for room");
    world.check();
    for name in ["e", "s", "l", "near"] {
        assert_eq!(world.lookup(1, Fid::ROOT, name).err(), Some(Errno::ENOENT), "{name}");
    }
    world.set_full(1, false);
    world.mkdir(Fid::ROOT, "e", &[1]).expect("it has room again");
    world.rename((Fid::ROOT, "m"), (dir, "n")).expect("moved");
    assert_eq!(world.lookup(1, dir, "n").expect("there").attr.fid(), near);
    world.check();
}

#[test]
fn what_removes_or_replaces_something_on_a_full_mdt_is_done() {
    let world = World::new(42);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    world.mkdir(Fid::ROOT, "gone", &[1]).expect("made");
    let far = world.create(dir, "far");
    world.link(far, (Fid::ROOT, "l")).expect("linked");
    let (one, other) = (world.create(Fid::ROOT, "a"), world.create(dir, "b"));
    world.sim.run_for(Span::secs(10)); // no record is left
    world.set_full(1, true);
    world.rename((Fid::ROOT, "a"), (dir, "b")).expect("it replaces a file");
    assert_eq!(world.lookup(1, dir, "b").expect("there").attr.fid(), one);
    assert_eq!(world.attr(other).err(), Some(Errno::ESTALE));
    world.unlink(Fid::ROOT, "l", false).expect("removed");
    assert_eq!(world.attr(far).expect("there").nlink, 1);
    world.unlink(Fid::ROOT, "gone", true).expect("removed");
    world.rename((dir, "far"), (Fid::ROOT, "back")).expect("it leaves the full MDT");
    assert_eq!(world.lookup(1, Fid::ROOT, "back").expect("there").attr.fid(), far);
    world.check();
}

#[test]
fn a_full_mdt_gets_no_directory_by_choice() {
    let world = World::new(43);
    world.set_full(2, true);
    for number in 0..6 {
        let call = asked(Fid::ROOT, &format!("d{number}"), &dir::Asked::default());
        let reply = world.send(0, 0, call).expect("another one has room");
        assert_ne!(reply.body::<AttrRep>().attr.fid().mdt_index(), 2);
    }
    for (number, count) in (0..).zip([dir::COUNT_ALL, 2, 2, 2, 2]) {
        let wide = dir::Asked { count, ..dir::Asked::default() };
        let made = world.send(0, 0, asked(Fid::ROOT, &format!("w{number}"), &wide)).expect("made");
        let stripes = world.stripes(made.body::<AttrRep>().attr.fid()).expect("a striping");
        let on: BTreeSet<u32> = stripes.shards.iter().map(|shard| shard.mdt_index()).collect();
        assert_eq!(on, BTreeSet::from([0, 1]), "different ones with room");
    }
    world.check();
}

/// MDT 1 is full, and an MDT dies at a drawn moment while operations are under way; returns what
/// does not fit then. A call that is refused has done nothing, and one that is answered has
/// happened.
fn crash_beside_a_full_mdt(seed: u64) -> Vec<String> {
    let world = World::new(seed);
    let dirs: Vec<Fid> = (0..MDTS)
        .map(|mdt| world.mkdir(Fid::ROOT, &format!("d{mdt}"), &[mdt]).expect("made").fid())
        .collect();
    let files: Vec<Fid> =
        dirs.iter().zip(["a", "b", "c"]).map(|(dir, name)| world.create(*dir, name)).collect();
    world.settle();
    world.set_full(1, true);
    let calls = [
        (0, mkdir(dirs[0], "e", &[1]), (dirs[0], "e")),
        (0, rename((dirs[0], "a"), (dirs[1], "x")), (dirs[1], "x")),
        (2, link(files[1], dirs[2], "y"), (dirs[2], "y")),
        (1, rename((dirs[1], "b"), (dirs[2], "z")), (dirs[2], "z")),
    ];
    let ask = |(mdt, call, to): (u32, Call, (Fid, &'static str))| (world.ask(1, mdt, call), to);
    let asked: Vec<_> = calls.into_iter().map(ask).collect();
    let mut chance = SplitMix64::new(seed);
    let victim = chance.below(u64::from(MDTS)) as u32;
    world.sim.run_for(Span::micros(chance.below(4_000)));
    world.kill(victim);
    world.sim.run_for(Span::millis(chance.below(500)));
    world.boot(victim);
    world.sim.run_for(Span::secs(120));
    let images = world.images();
    let mut breaches = [fsck::all(&images), fsck::left(&images)].concat();
    for (answer, (dir, name)) in asked {
        let is_there = world.lookup(0, dir, name).is_ok();
        let answer = answer.borrow_mut().take();
        let fits = match answer {
            Some(Ok(())) => is_there,
            // no room, or the MDT that was named is away for too long
            Some(Err(Errno::ENOSPC | Errno::ENODEV)) => !is_there,
            _ => false,
        };
        if !fits {
            breaches.push(format!("{name} is there: {is_there}, the answer: {answer:?}"));
        }
    }
    breaches
}

#[test]
fn a_crash_beside_a_full_mdt_leaves_no_half_operation() {
    for seed in 0..100 {
        assert_eq!(crash_beside_a_full_mdt(seed), Vec::<String>::new(), "{seed}");
    }
}

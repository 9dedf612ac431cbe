//! Inodes that move to another MDT, under another FID, while MDTs and answers are lost.

use wire::attr::S_IFIFO;
use wire::body::{CloseReq, OpenReq};

use super::moves::{files, wanted_as};
use super::*;

/// Moments at which an MDT dies, for each MDT.
const DEATHS: u64 = 40;

fn to(mdt: u32) -> dir::Asked {
    dir::Asked { index: mdt.cast_signed(), ..dir::Asked::default() }
}

fn migrate(fid: Fid, mdt: u32) -> Call {
    wanted_as("lustre.inode.migrate", fid, &to(mdt))
}

fn set_trusted(fid: Fid, value: &str) -> Call {
    let body = SetxattrReq { fid: fid.into(), ..SetxattrReq::default() };
    let bufs = vec![encode_body(&body), bytes("trusted.a"), bytes(value)];
    Call::new(Opcode::MdtSetxattr, bufs)
}

impl World {
    /// Moves an inode; returns its FID then.
    fn move_inode(&self, fid: Fid, mdt: u32) -> Result<Fid, Errno> {
        let reply = self.send(0, fid.mdt_index(), migrate(fid, mdt))?;
        Ok(reply.body::<AttrRep>().attr.fid())
    }

    /// All names of a directory move to one MDT.
    fn move_names(&self, dir: Fid, mdt: u32) {
        let asked = dir::Asked { mdts: vec![mdt], ..dir::Asked::default() };
        let call = wanted_as("lustre.lmv.migrate", dir, &asked);
        self.send(0, dir.mdt_index(), call).expect("begun");
        self.moved(dir);
    }

    /// A file without objects.
    fn fifo(&self, dir: Fid, name: &str) -> Fid {
        let reply = self.send(0, dir.mdt_index(), make(dir, name, S_IFIFO | 0o640, &[]));
        reply.expect("made").body::<AttrRep>().attr.fid()
    }

    fn named(&self, dir: Fid, name: &str) -> Result<Fid, Errno> {
        self.lookup(1, dir, name).map(|found| found.attr.fid())
    }

    fn trusted(&self, fid: Fid) -> Result<Bytes, Errno> {
        let body = FidReq { fid: fid.into(), ..FidReq::default() };
        let call = Call::new(Opcode::MdtGetxattr, vec![encode_body(&body), bytes("trusted.a")]);
        self.send(0, fid.mdt_index(), call).map(|reply| reply.buf(1))
    }
}

#[test]
fn a_file_moves_with_its_attributes_and_all_names() {
    let world = World::new(81);
    let home = world.mkdir(Fid::ROOT, "home", &[1]).expect("made").fid();
    let away = world.mkdir(Fid::ROOT, "away", &[2]).expect("made").fid();
    let file = world.fifo(home, "f");
    world.send(0, 0, link(file, Fid::ROOT, "g")).expect("linked");
    world.send(0, 2, link(file, away, "h")).expect("linked");
    world.send(0, 1, set_trusted(file, "value")).expect("set");
    let before = world.attr(file).expect("there");
    let dir_before = world.attr(home).expect("there");
    let moved = world.move_inode(file, 2).expect("moved");
    assert_eq!(moved.mdt_index(), 2);
    for (dir, name) in [(home, "f"), (Fid::ROOT, "g"), (away, "h")] {
        assert_eq!(world.named(dir, name), Ok(moved), "{name}");
    }
    assert_eq!(world.attr(file).err(), Some(Errno::ESTALE), "the old FID is gone");
    let after = world.attr(moved).expect("there");
    let shown = |attr: &Attr| (attr.mode, attr.nlink, attr.uid, attr.mtime(), attr.ctime());
    assert_eq!(shown(&after), shown(&before));
    assert_eq!(world.trusted(moved), Ok(bytes("value")));
    assert_eq!(world.attr(home).expect("there").mtime(), dir_before.mtime(), "no user changed it");
    world.check();
    assert_eq!(world.move_inode(moved, 2), Ok(moved), "it is there");
    world.unlink(home, "f", false).expect("removed");
    world.unlink(away, "h", false).expect("removed");
    assert_eq!(world.attr(moved).expect("there").nlink, 1);
    world.check();
    let back = world.move_inode(moved, 1).expect("moved");
    assert_eq!((back.mdt_index(), world.named(Fid::ROOT, "g")), (1, Ok(back)));
    world.unlink(Fid::ROOT, "g", false).expect("removed");
    assert_eq!(world.attr(back).err(), Some(Errno::ESTALE));
    world.check();
}

#[test]
fn a_directory_follows_its_names() {
    let world = World::new(82);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let mut all = files(&world, dir, 20);
    all.insert("sub".into(), world.mkdir(dir, "sub", &[]).expect("made").fid());
    world.settle();
    assert_eq!(world.move_inode(dir, 2), Err(Errno::ENOTEMPTY), "its names move first");
    world.move_names(dir, 2);
    assert_eq!(world.move_inode(dir, 0), Err(Errno::ENOTEMPTY), "its names are elsewhere");
    let moved = world.move_inode(dir, 2).expect("moved");
    assert_eq!((moved.mdt_index(), world.named(Fid::ROOT, "d")), (2, Ok(moved)));
    assert_eq!(world.attr(dir).err(), Some(Errno::ESTALE));
    assert_eq!(world.all_names(moved), all);
    world.check();
    world.move_names(moved, 2);
    assert_eq!(world.stripes(moved), None, "on the MDT of its names it is plain");
    assert_eq!(world.all_names(moved), all);
    world.check();
    let sub = world.move_inode(all["sub"], 0).expect("it has no names");
    assert_eq!((sub.mdt_index(), world.named(moved, "sub")), (0, Ok(sub)));
    let file = world.create(sub, "new");
    assert_eq!(file.mdt_index(), 0, "new files are with it");
    world.unlink(sub, "new", false).expect("removed");
    world.unlink(moved, "sub", true).expect("removed");
    world.check();
}

#[test]
fn an_inode_that_cannot_move_stays_as_it_is() {
    let world = World::new(83);
    let dir = world.mkdir(Fid::ROOT, "d", &[0]).expect("made").fid();
    let file = world.fifo(dir, "f");
    let send = |call| world.send(0, 0, call).err();
    let by_user = placed::by_user(migrate(file, 1));
    assert_eq!(send(by_user), Some(Errno::EPERM), "only an administrator may");
    assert_eq!(send(migrate(Fid::ROOT, 1)), Some(Errno::EINVAL), "the root stays");
    let nowhere = wanted_as("lustre.inode.migrate", file, &dir::Asked::default());
    assert_eq!(send(nowhere), Some(Errno::EINVAL), "where to?");
    assert_eq!(send(migrate(file, 9)), Some(Errno::ENODEV));
    placed::set_param(&world, 1, "no_create", "1");
    assert_eq!(send(migrate(file, 1)), Some(Errno::EREMOTEIO), "it is drained");
    placed::set_param(&world, 1, "no_create", "0");
    world.servers[1].disk.set_records_full(true);
    assert_eq!(send(migrate(file, 1)), Some(Errno::ENOSPC));
    world.servers[1].disk.set_records_full(false);
    let striped = world.mkdir(Fid::ROOT, "s", &[0, 1]).expect("made").fid();
    let shard = world.stripes(striped).expect("a striping").shards[0];
    assert_eq!(send(migrate(shard, 1)), Some(Errno::EINVAL), "a shard goes with its directory");
    assert_eq!(send(migrate(striped, 1)), Some(Errno::ENOTEMPTY), "a shard is elsewhere");
    world.send(0, 0, link(file, dir, "g")).expect("linked");
    assert_eq!(send(migrate(file, 1)), Some(Errno::EMLINK));
    world.unlink(dir, "g", false).expect("removed");
    world.kill(2);
    assert_eq!(send(migrate(file, 2)), Some(Errno::ENODEV), "it is away");
    world.boot(2);
    world.settle();
    assert_eq!(world.named(dir, "f"), Ok(file));
    world.move_inode(file, 2).expect("it is back");
    world.check();
}

#[test]
fn an_open_file_moves_when_it_is_closed() {
    let world = World::new(84);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let file = world.create(dir, "f");
    let open = OpenReq { fid: file.into(), ..OpenReq::default() };
    let opened = world.send(1, 1, Call::new(Opcode::MdtOpen, vec![encode_body(&open)]));
    let handle = opened.expect("open").body::<AttrRep>().handle;
    assert_eq!(world.move_inode(file, 2), Err(Errno::EBUSY));
    assert_eq!(world.named(dir, "f"), Ok(file));
    world.check();
    let close = CloseReq { fid: file.into(), handle, ..CloseReq::default() };
    world.send(1, 1, Call::new(Opcode::MdtClose, vec![encode_body(&close)])).expect("closed");
    let moved = world.move_inode(file, 2).expect("it is closed");
    assert_eq!(world.named(dir, "f"), Ok(moved));
    world.check();
}

#[test]
fn a_file_moves_when_its_objects_are_lent() {
    let world = World::with_an_ost(86);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let file = world.create(dir, "f"); // with a layout, because there is an OST
    assert_eq!(world.move_inode(file, 2), Err(Errno::EXDEV), "nothing is lent");
    let lent_as = |refused| {
        let body = SetxattrReq { fid: file.into(), refused, ..SetxattrReq::default() };
        let bufs = vec![encode_body(&body), bytes("lustre.inode.migrate"), to(2).encode().into()];
        world.send(0, 1, Call::new(Opcode::MdtSetxattr, bufs)).err()
    };
    assert_eq!(lent_as(u32::MAX), Some(Errno::EAGAIN), "it has another layout");
    assert_eq!(world.named(dir, "f"), Ok(file));
    assert_eq!(lent_as(1), None, "its layout has generation 0");
    let moved = world.named(dir, "f").expect("there");
    assert_eq!(moved.mdt_index(), 2);
    world.check();
}

/// The answer is lost, and the request is sent again: the inode moves once.
#[test]
fn a_move_whose_answer_is_lost_happens_once() {
    for cut_us in (100..4_000).step_by(300) {
        let world = World::new(85 + cut_us);
        let dir = world.mkdir(Fid::ROOT, "d", &[0]).expect("made").fid();
        let file = world.fifo(dir, "f");
        world.settle();
        let begun = world.ask(0, 0, migrate(file, 1));
        world.sim.run_for(Span::micros(cut_us));
        let (server, client) = (&world.servers[0].node, &world.clients[0].0);
        world.sim.partition(server, client, Cut::BothWays);
        world.sim.reset_links(server, client);
        world.sim.run_for(Span::secs(3));
        world.sim.heal_all();
        world.sim.run_for(Span::secs(60));
        assert_eq!(*begun.borrow(), Some(Ok(())), "{cut_us}");
        let moved = world.named(dir, "f").expect("there");
        assert_eq!(moved.mdt_index(), 1, "{cut_us}");
        assert_eq!(world.attr(moved).expect("there").nlink, 1);
        world.check();
    }
}

/// A file of MDT 1 with names on all MDTs, or an empty directory with its name on MDT 0, moves to
/// MDT 2. Another client removes a name, or makes one in the directory. MDT `victim` dies at a
/// drawn moment. Returns what does not fit then.
fn death_amid_a_move(seed: u64, victim: u32) -> Vec<String> {
    let world = World::new(seed);
    let mut chance = SplitMix64::new(seed ^ u64::from(victim) << 32);
    let home = world.mkdir(Fid::ROOT, "home", &[1]).expect("made").fid();
    let away = world.mkdir(Fid::ROOT, "away", &[2]).expect("made").fid();
    let is_dir = seed.is_multiple_of(3);
    let (subject, beside) = if is_dir {
        let dir = world.mkdir(Fid::ROOT, "x", &[1]).expect("made").fid();
        (dir, make(dir, "new", S_IFIFO | 0o644, &[]))
    } else {
        let file = world.fifo(home, "f");
        world.send(0, 0, link(file, Fid::ROOT, "x")).expect("linked");
        world.send(0, 2, link(file, away, "h")).expect("linked");
        (file, unlink(away, "h", false))
    };
    world.settle();
    let moved = world.ask(0, 1, migrate(subject, 2));
    let beside_mdt = if is_dir { 1 } else { 2 };
    world.sim.run_for(Span::micros(chance.below(2_000)));
    let called = world.ask(1, beside_mdt, beside);
    world.sim.run_for(Span::micros(chance.below(4_000)));
    world.kill(victim);
    world.sim.run_for(Span::millis(chance.below(1_000)));
    world.boot(victim);
    world.sim.run_for(Span::secs(60));
    let mut bad = Vec::new();
    let (moved, called) = (moved.borrow_mut().take(), called.borrow_mut().take());
    // an MDT that is away for longer gets nothing; a name that came first keeps the directory
    let refusals = [Errno::ENODEV, Errno::ENOTEMPTY, Errno::EBUSY];
    let is_known = moved.is_some_and(|it| it.map_or_else(|why| refusals.contains(&why), |()| true));
    bad.extend((!is_known).then(|| format!("the move: {moved:?}")));
    let is_known = matches!(called, Some(Ok(()) | Err(Errno::ESTALE | Errno::ENOENT)));
    bad.extend((!is_known).then(|| format!("the call beside it: {called:?}")));
    let found = world.named(Fid::ROOT, "x");
    let mdt = if moved == Some(Ok(())) { 2 } else { 1 };
    if found.map(|fid| fid.mdt_index()) != Ok(mdt) {
        bad.push(format!("`x` leads to {found:?} after {moved:?}"));
    }
    if let (Ok(fid), true, Some(Ok(()))) = (found, is_dir, called) {
        let made = world.named(fid, "new");
        bad.extend(made.is_err().then(|| format!("a name that was made is gone: {made:?}")));
    }
    world.sim.run_for(Span::secs(20));
    let images = world.images();
    bad.extend([fsck::all(&images), fsck::left(&images)].concat());
    bad
}

#[test]
fn each_mdt_may_die_amid_a_move_of_an_inode() {
    for victim in 0..MDTS {
        for seed in 0..DEATHS {
            let bad = death_amid_a_move(seed, victim);
            assert_eq!(bad, Vec::<String>::new(), "MDT {victim}, seed {seed}");
        }
    }
}

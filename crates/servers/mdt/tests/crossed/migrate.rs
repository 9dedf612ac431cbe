//! Names of directories that move to the MDTs that an administrator names, while the directories
//! are used, and while MDTs and answers are lost.

use super::moves::{files, wanted_as};
use super::*;

/// Moments at which an MDT dies, for each MDT.
const DEATHS: u64 = 40;

fn to(mdts: &[u32]) -> dir::Asked {
    dir::Asked { count: mdts.len() as u32, mdts: mdts.to_vec(), ..dir::Asked::default() }
}

fn migrate(dir: Fid, asked: &dir::Asked) -> Call {
    wanted_as("lustre.lmv.migrate", dir, asked)
}

impl World {
    fn migrate(&self, dir: Fid, mdts: &[u32]) -> Result<(), Errno> {
        self.send(0, dir.mdt_index(), migrate(dir, &to(mdts))).map(drop)
    }

    /// MDTs of the shards of a directory, and how often its striping has changed.
    fn place(&self, dir: Fid) -> (Vec<u32>, u32) {
        self.stripes(dir).map_or((Vec::new(), 0), |stripes| {
            (stripes.shards.iter().map(|shard| shard.mdt_index()).collect(), stripes.version)
        })
    }
}

#[test]
fn names_move_to_the_mdt_that_is_named_and_new_files_are_made_there() {
    let world = World::new(61);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let mut all = files(&world, dir, 100);
    all.insert("sub".into(), world.mkdir(dir, "sub", &[]).expect("made").fid());
    world.settle();
    world.migrate(dir, &[2]).expect("begun");
    assert_eq!(world.migrate(dir, &[0]).err(), Some(Errno::EBUSY), "one after the other");
    all.insert("new".into(), world.make_file(dir, "new"));
    world.moved(dir);
    assert_eq!(world.place(dir).0, [2]);
    assert!(world.names(dir).is_empty());
    assert_eq!(world.all_names(dir), all, "inodes stay");
    all.insert("newer".into(), world.make_file(dir, "newer"));
    let below = world.at_home(dir, "below", |home| mkdir(home, "below", &[])).expect("made");
    all.insert("below".into(), below.attr.fid());
    let on = ["new", "newer", "below", "file.0"].map(|name| all[name].mdt_index());
    assert_eq!(on, [2, 2, 2, 1]);
    world.check();

    let before = world.place(dir);
    let fnv = dir::Asked { hash: dir::HASH_FNV_1A_64, ..to(&[2]) };
    for asked in [to(&[2]), fnv, dir::Asked { index: 2, ..dir::Asked::default() }] {
        world.send(0, 1, migrate(dir, &asked)).expect("nothing is to be done");
        assert_eq!(world.place(dir), before, "{asked:?}");
    }
    for mdts in [&[0, 2][..], &[0], &[1]] {
        world.migrate(dir, mdts).expect("begun");
        world.moved(dir);
        assert_eq!(world.all_names(dir), all, "{mdts:?}");
        let is_own = mdts == [1];
        assert_eq!(world.place(dir).0, if is_own { &[] } else { mdts }, "plain on its own MDT");
    }
    world.migrate(dir, &[1]).expect("it is there");
    assert_eq!(world.stripes(dir), None);
    world.check();
}

#[test]
fn a_migration_that_cannot_be_is_refused_and_changes_nothing() {
    let world = World::new(62);
    let dir = world.mkdir(Fid::ROOT, "d", &[0]).expect("made").fid();
    let file = world.create(dir, "f");
    let send = |call| world.send(0, 0, call).err();
    let by_group = placed::by_user(migrate(dir, &to(&[1])));
    placed::set_param(&world, 0, "enable_remote_dir_gid", "-1");
    assert_eq!(send(by_group), Some(Errno::EPERM), "only an administrator may");
    assert_eq!(send(migrate(Fid::ROOT, &to(&[1]))), Some(Errno::EINVAL), "the root stays");
    assert_eq!(send(migrate(dir, &dir::Asked::default())), Some(Errno::EINVAL), "where to?");
    assert_eq!(send(migrate(file, &to(&[1]))), Some(Errno::ENOTDIR));
    assert_eq!(send(migrate(dir, &to(&[9]))), Some(Errno::ENODEV));
    placed::set_param(&world, 1, "no_create", "1");
    assert_eq!(send(migrate(dir, &to(&[1]))), Some(Errno::EREMOTEIO), "it is drained");
    placed::set_param(&world, 1, "no_create", "0");
    placed::set_param(&world, 0, "enable_remote_dir", "0");
    assert_eq!(send(migrate(dir, &to(&[1]))), Some(Errno::EPERM));
    placed::set_param(&world, 0, "enable_remote_dir", "1");
    world.servers[1].disk.set_records_full(true);
    assert_eq!(send(migrate(dir, &to(&[1]))), Some(Errno::ENOSPC));
    world.servers[1].disk.set_records_full(false);
    world.kill(2);
    let before = world.clients[0].0.env().now();
    assert_eq!(send(migrate(dir, &to(&[2]))), Some(Errno::ENODEV), "it is away");
    assert!(world.clients[0].0.env().now() - before < Span::secs(10));
    world.boot(2);
    world.settle();
    assert_eq!(world.stripes(dir), None);
    world.migrate(dir, &[2]).expect("it is back");
    world.moved(dir);
    assert_eq!(world.all_names(dir), BTreeMap::from([("f".to_owned(), file)]));
    world.check();
}

#[test]
fn names_leave_a_full_mdt() {
    let world = World::new(63);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let all = files(&world, dir, 80);
    world.sim.run_for(Span::secs(10)); // no record is left
    world.servers[1].disk.set_records_full(true);
    let refused = world.send(0, 1, make(dir, "x", S_IFREG | 0o644, &[]));
    assert_eq!(refused.err(), Some(Errno::ENOSPC));
    assert_eq!(world.migrate(dir, &[1, 2]).err(), Some(Errno::ENOSPC), "one shard stays there");
    world.migrate(dir, &[2]).expect("begun");
    world.moved(dir);
    assert_eq!(world.make_file(dir, "new").mdt_index(), 2, "there is room for new files");
    world.unlink(world.home(dir, "new"), "new", false).expect("removed");
    assert_eq!(world.all_names(dir), all);
    world.servers[1].disk.set_records_full(false);
    world.check();
}

/// The answer is lost, and the request is sent again: the names move once.
#[test]
fn a_migration_whose_answer_is_lost_begins_once() {
    for cut_us in (100..4_000).step_by(300) {
        let world = World::new(64 + cut_us);
        let dir = world.mkdir(Fid::ROOT, "d", &[0]).expect("made").fid();
        let all = files(&world, dir, 10);
        world.settle();
        let begun = world.ask(0, 0, migrate(dir, &to(&[1])));
        world.sim.run_for(Span::micros(cut_us));
        let (server, client) = (&world.servers[0].node, &world.clients[0].0);
        world.sim.partition(server, client, Cut::BothWays);
        world.sim.reset_links(server, client);
        world.sim.run_for(Span::secs(3)); // the names may have moved by now
        world.sim.heal_all();
        world.sim.run_for(Span::secs(60));
        assert_eq!(*begun.borrow(), Some(Ok(())), "{cut_us}");
        world.moved(dir);
        assert_eq!(world.place(dir), (vec![1], 2), "{cut_us}: begun and ended once");
        assert_eq!(world.all_names(dir), all);
        world.check();
    }
}

/// A plain directory, or one with two shards, moves to one MDT while another client makes, renames
/// and removes names in it. MDT `victim` dies at a drawn moment. Returns what does not fit then.
fn death_amid_a_migration(seed: u64, victim: u32) -> Vec<String> {
    let world = World::new(seed);
    let mut chance = SplitMix64::new(seed ^ u64::from(victim) << 32);
    let on: &[u32] = if seed.is_multiple_of(3) { &[0, 1] } else { &[(seed % 2) as u32] };
    let goal = ((on[0] + 1 + chance.below(2) as u32) % MDTS).max(1);
    let dir = world.mkdir(Fid::ROOT, "d", on).expect("made").fid();
    let mut all = files(&world, dir, 30);
    world.settle();
    let begun = world.ask(0, dir.mdt_index(), migrate(dir, &to(&[goal])));
    world.sim.run_for(Span::micros(chance.below(40_000)));
    let stripes = world.stripes(dir);
    let home = |name: &str| stripes.as_ref().map_or(dir, |found| found.home(name.as_bytes()));
    let beside = [
        (home("made"), make(home("made"), "made", S_IFREG | 0o644, &[])),
        (home("file.3"), unlink(home("file.3"), "file.3", false)),
        (home("file.4"), rename((home("file.4"), "file.4"), (home("renamed"), "renamed"))),
    ];
    let asked = beside.map(|(place, call)| world.ask(1, place.mdt_index(), call));
    world.sim.run_for(Span::micros(chance.below(20_000)));
    world.kill(victim);
    world.sim.run_for(Span::millis(chance.below(1_000)));
    world.boot(victim);
    world.sim.run_for(Span::secs(60));
    let mut bad = Vec::new();
    // an MDT that is away for longer gets no names: the directory stays where it is
    let is_refused = *begun.borrow() == Some(Err(Errno::ENODEV));
    if !is_refused && *begun.borrow() != Some(Ok(())) {
        bad.push(format!("the migration: {:?}", begun.borrow()));
    }
    world.moved(dir);
    let expected = if is_refused { on } else { &[goal] };
    let plain = *expected == [dir.mdt_index()] && world.stripes(dir).is_none();
    if !plain && world.place(dir).0 != expected {
        bad.push(format!("the directory is on {:?}, not {expected:?}", world.place(dir)));
    }
    // a request that comes to a shard whose names have left is refused, and has done nothing
    let [made, removed, renamed] = asked.map(|answer| {
        let answer = answer.borrow_mut().take();
        let is_known = matches!(answer, Some(Ok(()) | Err(Errno::ESTALE | Errno::ENOENT)));
        bad.extend((!is_known).then(|| format!("a call beside it: {answer:?}")));
        answer == Some(Ok(()))
    });
    let mut left = world.all_names(dir);
    if made {
        bad.extend(left.remove("made").is_none().then(|| "a file that was made is gone".into()));
    }
    if removed {
        all.remove("file.3");
    }
    if renamed && let Some(file) = all.remove("file.4") {
        all.insert("renamed".into(), file);
    }
    if left != all {
        bad.push(format!("names are other ones: {left:?}"));
    }
    world.sim.run_for(Span::secs(20));
    let images = world.images();
    bad.extend([fsck::all(&images), fsck::left(&images)].concat());
    bad
}

#[test]
fn each_mdt_may_die_amid_a_migration_that_is_used() {
    for victim in 0..MDTS {
        for seed in 0..DEATHS {
            let bad = death_amid_a_migration(seed, victim);
            assert_eq!(bad, Vec::<String>::new(), "MDT {victim}, seed {seed}");
        }
    }
}

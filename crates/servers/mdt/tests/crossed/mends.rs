//! Damage of a file and its name on another MDT, made by hand. MDTs mend it while clients work, and
//! leave sound records alone.

use mdt::fsck::{LiveRounds, Suspect, System};
use osd::{Table, WriteSet};

use super::*;

/// Seeds of the runs under load.
const SEEDS: u64 = 50;
/// Moments at which an MDT dies, for each MDT.
const DEATHS: u64 = 40;

/// Repairs in a row that find nothing.
const QUIET_ENOUGH: u32 = 8;
/// Between two looks of one of them: longer than an operation takes here.
const PAUSE: Span = Span::millis(200);

/// What became of a suspect.
type Outcome = Result<Option<&'static str>, Errno>;

impl World {
    /// Changes records of an MDT that serves; `change` says what becomes of a value.
    fn damage(
        &self,
        (mdt, table): (u32, Table),
        change: impl Fn(&[u8], &[u8]) -> Option<Option<Vec<u8>>>,
    ) {
        let running = self.servers[mdt as usize].running.borrow();
        let (_, meta) = running.as_ref().expect("it runs");
        let mut set = WriteSet::new();
        let view = meta.running().expect("ready");
        view.scan(table, &[0], &mut |key, value| {
            match change(key, value) {
                Some(Some(changed)) => set.put(table, key, changed),
                Some(None) => set.delete(table, key),
                None => {}
            }
            true
        })
        .expect("scans work");
        drop(view);
        assert!(!set.is_empty(), "there is something to damage");
        meta.apply(&set).expect("room");
    }

    /// Removes the entry of a name.
    fn drop_entry(&self, dir: Fid, name: &str) {
        self.damage((dir.mdt_index(), Table::Dirents), |key, value| {
            let is_it = key.starts_with(&dir.to_key()) && value.ends_with(name.as_bytes());
            is_it.then_some(None)
        });
    }

    /// Removes the back-link of a name.
    fn drop_link(&self, fid: Fid, name: &str) {
        self.damage((fid.mdt_index(), Table::Links), |key, value| {
            (key.starts_with(&fid.to_key()) && value == name.as_bytes()).then_some(None)
        });
    }

    /// Removes an inode, and what else there is of it.
    fn drop_inode(&self, fid: Fid) {
        let tables = [Table::Inodes, Table::Links, Table::Layouts, Table::Xattrs];
        let of = |key: &[u8], _: &[u8]| key.starts_with(&fid.to_key()).then_some(None);
        for table in tables {
            let has_some = self.count(fid, table) > 0;
            if has_some {
                self.damage((fid.mdt_index(), table), of);
            }
        }
    }

    fn count(&self, fid: Fid, table: Table) -> usize {
        let running = self.servers[fid.mdt_index() as usize].running.borrow();
        let (_, meta) = running.as_ref().expect("it runs");
        let (mut count, key) = (0, fid.to_key());
        let view = meta.running().expect("ready");
        view.scan_within((table, &key), &key, &mut |_, _| {
            count += 1;
            true
        })
        .expect("scans work");
        count
    }

    /// Gives a directory a second entry, without a back-link.
    fn copy_entry(&self, (dir, name): (Fid, &str), to: Fid) {
        let found = RefCell::new(None);
        let mdt = dir.mdt_index();
        let running = self.servers[mdt as usize].running.borrow();
        let (_, meta) = running.as_ref().expect("it runs");
        let view = meta.running().expect("ready");
        view.scan(Table::Dirents, &dir.to_key(), &mut |key, value| {
            if key.starts_with(&dir.to_key()) && value.ends_with(name.as_bytes()) {
                *found.borrow_mut() = Some((key[16..].to_vec(), value.to_vec()));
            }
            true
        })
        .expect("scans work");
        drop(view);
        let (cookie, value) = found.take().expect("an entry");
        assert_eq!(to.mdt_index(), mdt, "the hash of a name is that of one MDT");
        let mut set = WriteSet::new();
        set.put(Table::Dirents, [&to.to_key()[..], &cookie].concat(), value);
        meta.apply(&set).expect("room");
    }

    /// An MDT looks at a suspect; the outcome is there when it is done.
    fn begin_mend(&self, suspect: &Suspect) -> Rc<RefCell<Option<Outcome>>> {
        let server = &self.servers[suspect.mdt() as usize];
        let target = server.running.borrow().as_ref().expect("it runs").0.clone();
        let (suspect, found) = (suspect.clone(), Rc::new(RefCell::new(None)));
        let seen = found.clone();
        server.node.env().spawn("mend", async move {
            let outcome = target.mend(&suspect).await;
            *seen.borrow_mut() = Some(outcome);
        });
        found
    }

    fn mend(&self, suspect: &Suspect) -> Outcome {
        let found = self.begin_mend(suspect);
        self.until(|| found.borrow().is_some());
        found.take().expect("an outcome")
    }

    fn until(&self, is_done: impl Fn() -> bool) {
        for _ in 0..6_000 {
            if is_done() {
                return;
            }
            self.sim.run_for(Span::millis(10));
        }
        panic!("it takes longer than a minute");
    }

    /// Repairs until some commands in a row find nothing: a check leaves files alone that an
    /// operation is changing. Returns what was done, by the names of the rules.
    fn repair(&self) -> BTreeMap<&'static str, u32> {
        let (mut all, mut quiet) = (BTreeMap::new(), 0);
        while quiet < QUIET_ENOUGH {
            let done = self.repair_once();
            quiet = if done.is_empty() { quiet + 1 } else { 0 };
            done.into_iter().for_each(|(rule, count)| *all.entry(rule).or_default() += count);
        }
        all
    }

    /// As `nacre fsck --repair --live` does.
    fn repair_once(&self) -> BTreeMap<&'static str, u32> {
        let (mut rounds, mut done) = (LiveRounds::default(), BTreeMap::new());
        loop {
            let look = || {
                let images = self.images();
                let system = System::new(&images, &[]);
                fsck::check(&system)
            };
            let once = look();
            self.sim.run_for(PAUSE);
            let images = self.images();
            let system = System::new(&images, &[]);
            let mut now = fsck::check(&system);
            now.retain(|it| once.iter().any(|one| (one.rule, &one.text) == (it.rule, &it.text)));
            let suspects = rounds.next(&system, &now);
            if suspects.is_empty() {
                return done;
            }
            for (finding, suspect) in suspects {
                let outcome = self.mend(&suspect);
                if let Ok(Some(_)) = outcome {
                    *done.entry(finding.rule.name()).or_default() += 1;
                }
                let outcome = outcome.map(|done| done.is_some());
                rounds.told(finding, outcome.map_err(|errno| format!("{errno:?}")));
            }
        }
    }

    /// A directory on each MDT.
    fn dirs(&self) -> Vec<Fid> {
        let dir = |mdt| self.mkdir(Fid::ROOT, &format!("d{mdt}"), &[mdt]).expect("made").fid();
        (0..MDTS).map(dir).collect()
    }
}

fn pair(fid: Fid, dir: Fid, name: &str) -> Suspect {
    Suspect::Pair { fid, dir, name: name.as_bytes().to_vec() }
}

fn repaired<const N: usize>(
    damage: impl FnOnce(&World, &[Fid]),
    rules: [(&'static str, u32); N],
) -> World {
    let world = World::damaged(51);
    let dirs = world.dirs();
    damage(&world, &dirs);
    assert_ne!(fsck::all(&world.images()), Vec::<String>::new());
    let done = world.repair();
    for (rule, count) in rules {
        assert_eq!(done.get(rule), Some(&count), "{rule} of {done:?}");
    }
    world.check();
    world
}

#[test]
fn a_name_that_leads_to_no_inode_of_another_mdt_goes() {
    let damage = |world: &World, dirs: &[Fid]| {
        let gone = world.mkdir(dirs[0], "gone", &[1]).expect("made").fid();
        world.mkdir(dirs[0], "kept", &[1]).expect("made");
        world.settle();
        world.drop_inode(gone);
    };
    let world = repaired(damage, [("dangling-name", 1)]);
    let dir = world.lookup(1, Fid::ROOT, "d0").expect("there").attr.fid();
    assert_eq!(world.lookup(1, dir, "gone").err(), Some(Errno::ENOENT));
    world.lookup(1, dir, "kept").expect("there");
}

#[test]
fn a_name_that_only_the_file_knows_is_entered_again_or_forgotten() {
    let damage = |world: &World, dirs: &[Fid]| {
        let sub = world.mkdir(dirs[0], "sub", &[2]).expect("made").fid();
        world.create(sub, "below");
        let file = world.create(dirs[1], "f");
        world.send(0, 2, link(file, dirs[2], "l")).expect("linked");
        let other = world.create(dirs[1], "g");
        world.send(0, 2, link(other, dirs[2], "m")).expect("linked");
        world.settle();
        world.drop_entry(dirs[0], "sub");
        world.drop_entry(dirs[2], "l");
        world.drop_entry(dirs[2], "m");
        world.damage((1, Table::Inodes), |key, value| {
            let mut inode = value.to_vec();
            inode[28] = 1; // the link count: its other name was removed
            key.starts_with(&other.to_key()).then_some(Some(inode))
        });
    };
    let world = repaired(damage, [("lost-name", 3)]);
    let dir = |name| world.lookup(1, Fid::ROOT, name).expect("there").attr.fid();
    let sub = world.lookup(1, dir("d0"), "sub").expect("entered again").attr.fid();
    world.lookup(1, sub, "below").expect("there");
    world.lookup(1, dir("d2"), "l").expect("the count says that there are two names");
    assert_eq!(world.lookup(1, dir("d2"), "m").err(), Some(Errno::ENOENT));
    world.unlink(dir("d1"), "f", false).expect("removed");
    world.unlink(dir("d2"), "l", false).expect("removed");
    world.check();
}

#[test]
fn a_file_learns_of_a_name_on_another_mdt() {
    let damage = |world: &World, dirs: &[Fid]| {
        let file = world.create(dirs[1], "f");
        world.send(0, 2, link(file, dirs[2], "l")).expect("linked");
        let sub = world.mkdir(dirs[0], "sub", &[1]).expect("made").fid();
        world.settle();
        world.drop_link(file, "l");
        world.drop_link(sub, "sub");
    };
    repaired(damage, [("unknown-name", 2)]);
}

#[test]
fn a_directory_with_two_parents_keeps_the_one_that_it_knows() {
    let damage = |world: &World, dirs: &[Fid]| {
        let other = world.mkdir(dirs[0], "other", &[]).expect("made").fid();
        world.mkdir(dirs[0], "sub", &[2]).expect("made");
        world.settle();
        world.copy_entry((dirs[0], "sub"), other);
    };
    let world = repaired(damage, [("several-names", 1)]);
    let dir = world.lookup(1, Fid::ROOT, "d0").expect("there").attr.fid();
    world.lookup(1, dir, "sub").expect("there");
    let other = world.lookup(1, dir, "other").expect("there").attr.fid();
    assert_eq!(world.lookup(1, other, "sub").err(), Some(Errno::ENOENT));
}

#[test]
fn a_name_in_a_lost_directory_is_no_better_one() {
    let world = World::damaged(53);
    let dirs = world.dirs();
    let lost = world.mkdir(dirs[0], "lost", &[]).expect("made").fid();
    let sub = world.mkdir(lost, "sub", &[2]).expect("made").fid();
    world.settle();
    world.copy_entry((lost, "sub"), dirs[0]);
    world.drop_inode(lost);
    let done = Ok(Some("added the name to the file"));
    assert_eq!(world.mend(&pair(sub, dirs[0], "sub")), done);
    world.lookup(1, dirs[0], "sub").expect("it leads to the root");
}

#[test]
fn a_count_of_links_over_mdts_is_mended_once_the_names_are_right() {
    let damage = |world: &World, dirs: &[Fid]| {
        let file = world.create(dirs[1], "f");
        world.send(0, 2, link(file, dirs[2], "l")).expect("linked");
        world.settle();
        world.drop_link(file, "l");
        world.damage((1, Table::Inodes), |key, value| {
            let mut inode = value.to_vec();
            inode[28] = 7;
            key.starts_with(&file.to_key()).then_some(Some(inode))
        });
    };
    repaired(damage, [("link-count", 1), ("unknown-name", 1)]);
}

/// An MDT that may know more is away. What it may bring back is not taken for lost.
#[test]
fn nothing_is_mended_while_an_mdt_is_away() {
    let world = World::damaged(52);
    let dirs = world.dirs();
    let sub = world.mkdir(dirs[0], "sub", &[1]).expect("made").fid();
    world.mkdir(dirs[1], "both", &[2]).expect("these MDTs know each other");
    world.sim.run_for(Span::secs(10));
    world.drop_entry(dirs[0], "sub");
    world.kill(0);
    assert_eq!(world.mend(&pair(sub, dirs[0], "sub")), Err(Errno::EAGAIN), "the name's MDT");
    world.boot(0); // it has lost the damage
    world.settle();
    world.lookup(1, dirs[0], "sub").expect("there");
    world.kill(2);
    world.kill(1);
    world.boot(1);
    world.sim.run_for(Span::secs(300)); // it serves without MDT 2
    world.drop_link(sub, "sub");
    assert_eq!(world.mend(&pair(sub, dirs[0], "sub")), Err(Errno::EAGAIN), "its own debt");
    let far = world.create(dirs[0], "far");
    world.send(0, 1, link(far, dirs[1], "l")).expect("linked");
    assert_eq!(world.mend(&pair(far, dirs[1], "l")), Err(Errno::EAGAIN), "that of the name's MDT");
    world.boot(2);
    world.sim.run_for(Span::secs(200));
    assert_eq!(world.mend(&pair(far, dirs[1], "l")), Ok(None));
    let done = Ok(Some("added the name to the file"));
    assert_eq!(world.mend(&pair(sub, dirs[0], "sub")), done);
    world.check();
}

/// A file or directory and its name, on MDTs 1 and 2, do not fit together. MDT `victim` dies amid
/// the mend. Returns whether the mend was made, as a whole, or else not at all.
fn death_amid_a_mend(seed: u64, victim: u32) -> bool {
    let world = World::damaged(seed);
    let mut chance = SplitMix64::new(seed ^ u64::from(victim) << 32);
    let dirs = world.dirs();
    let file = world.create(dirs[1], "f");
    world.send(0, 2, link(file, dirs[2], "l")).expect("linked");
    let sub = world.mkdir(dirs[1], "sub", &[2]).expect("made").fid();
    world.settle();
    let suspect = if seed % 4 < 2 { pair(file, dirs[2], "l") } else { pair(sub, dirs[1], "sub") };
    match seed % 4 {
        0 => world.drop_entry(dirs[2], "l"),
        1 => world.drop_link(file, "l"),
        2 => world.drop_entry(dirs[1], "sub"),
        _ => world.drop_inode(sub),
    }
    for mdt in [1, 2] {
        world.create(dirs[mdt as usize], "beside");
        world.sync(mdt); // the damage is durable with it
    }
    let damage = fsck::all(&world.images());
    assert_ne!(damage, Vec::<String>::new());

    world.begin_mend(&suspect);
    world.sim.run_for(Span::micros(chance.below(4_000)));
    world.kill(victim);
    world.sim.run_for(Span::millis(chance.below(1_000)));
    world.boot(victim);
    world.sim.run_for(Span::secs(60));
    let left = fsck::all(&world.images());
    let is_made = left.is_empty();
    assert!(is_made || left == damage, "seed {seed}, MDT {victim}: {left:?} of {damage:?}");

    world.repair();
    world.check();
    let found = |dir, name| world.lookup(1, dir, name).map(|found| found.attr.fid());
    assert_eq!(found(dirs[2], "l"), Ok(file), "seed {seed}, MDT {victim}");
    let there = if seed % 4 == 3 { Err(Errno::ENOENT) } else { Ok(sub) };
    assert_eq!(found(dirs[1], "sub"), there, "seed {seed}, MDT {victim}");
    is_made
}

#[test]
fn each_mdt_may_die_amid_a_mend() {
    for victim in [1, 2] {
        let made = (0..DEATHS).filter(|seed| death_amid_a_mend(*seed, victim)).count() as u64;
        assert!((1..DEATHS).contains(&made), "MDT {victim} died amid {made} mends of {DEATHS}");
    }
}

/// Two users who rename, link and unlink files and directories between MDTs, one after another.
struct Users {
    /// Where a file or directory of each user is, as far as it was told.
    at: Vec<Rc<RefCell<BTreeMap<String, Fid>>>>,
    is_over: Rc<RefCell<bool>>,
    ended: Rc<RefCell<usize>>,
}

impl Users {
    fn start(world: &World, dirs: &[Fid], seed: u64) -> Users {
        let (is_over, ended) = (Rc::<RefCell<bool>>::default(), Rc::<RefCell<usize>>::default());
        let at = (0..world.clients.len()).map(|user| {
            let (node, endpoint) = &world.clients[user];
            let (endpoint, dirs) = (endpoint.clone(), dirs.to_vec());
            let at = Rc::new(RefCell::new(BTreeMap::new()));
            let (env, known) = (node.env(), at.clone());
            let (is_over, ended) = (Rc::clone(&is_over), Rc::clone(&ended));
            let mut chance = SplitMix64::new(2 * seed + user as u64);
            node.env().spawn("user", async move {
                for turn in 0.. {
                    if *is_over.borrow() {
                        break;
                    }
                    work(&endpoint, &dirs, &known, (user, turn), &mut chance).await;
                    env.sleep(Span::micros(chance.below(3_000))).await;
                }
                *ended.borrow_mut() += 1;
            });
            at
        });
        let at = at.collect();
        Users { at, is_over, ended }
    }

    /// They stop, and each name is where its user left it.
    fn stop(self, world: &World) {
        *self.is_over.borrow_mut() = true;
        world.until(|| *self.ended.borrow() == self.at.len());
        let mut count = 0;
        for at in &self.at {
            for (name, dir) in &*at.borrow() {
                let found = world.lookup(1, *dir, name);
                assert!(found.is_ok(), "{name} of {dir}: {found:?}");
                count += 1;
            }
        }
        assert!(count > 0, "they have made something");
    }
}

/// One turn of a user.
async fn work(
    endpoint: &Rc<Endpoint>,
    dirs: &[Fid],
    at: &RefCell<BTreeMap<String, Fid>>,
    (user, turn): (usize, u32),
    chance: &mut SplitMix64,
) {
    let to = dirs[chance.below(dirs.len() as u64) as usize];
    let name = format!("u{user}-{turn}");
    let ask = async |dir: Fid, call: Call| {
        let answer = endpoint.remote(TargetId::mdt(dir.mdt_index())).call(call).await;
        answer.map(|answer| *answer.reply).expect("it is the user's own name")
    };
    let old =
        at.borrow().iter().nth(chance.below(8) as usize).map(|(old, dir)| (old.clone(), *dir));
    let Some((old, from)) = old else {
        let on = [chance.below(u64::from(MDTS)) as u32];
        let call = match chance.below(2) {
            0 => mkdir(to, &name, &on),
            _ => make(to, &name, S_IFREG | 0o644, &[]),
        };
        ask(to, call).await;
        at.borrow_mut().insert(name, to);
        return;
    };
    let attr = ask(from, lookup(from, &old)).await.body::<AttrRep>().attr;
    let is_dir = attr.mode & S_IFMT == S_IFDIR;
    match chance.below(4) {
        0 => {
            ask(from, unlink(from, &old, is_dir)).await;
            at.borrow_mut().remove(&old);
        }
        1 if !is_dir => {
            ask(to, link(attr.fid(), to, &name)).await;
            at.borrow_mut().insert(name, to);
        }
        _ => {
            ask(from, rename((from, &old), (to, &name))).await;
            at.borrow_mut().remove(&old);
            at.borrow_mut().insert(name, to);
        }
    }
}

/// Every name and file of the images, as if a check had found something there.
fn everything(images: &[Image]) -> Vec<Suspect> {
    fsck::names(images).map(|(fid, dir, name)| Suspect::Pair { fid, dir, name }).collect()
}

#[test]
fn nothing_that_is_sound_is_touched_under_load() {
    let mut looked_at = 0;
    for seed in 0..SEEDS {
        let world = World::new(seed);
        let dirs = world.dirs();
        let users = Users::start(&world, &dirs, seed);
        for _ in 0..4 {
            world.sim.run_for(Span::millis(60));
            // old by the time that they are looked at
            let suspects = everything(&world.images());
            let outcomes: Vec<_> = suspects.iter().map(|it| (it, world.begin_mend(it))).collect();
            world.until(|| outcomes.iter().all(|(_, outcome)| outcome.borrow().is_some()));
            for (suspect, outcome) in outcomes {
                let outcome = outcome.take().expect("an outcome");
                assert!(
                    matches!(outcome, Ok(None) | Err(Errno::EAGAIN)),
                    "{suspect:?} {outcome:?}"
                );
                looked_at += u32::from(outcome.is_ok());
            }
        }
        users.stop(&world);
        world.check();
    }
    assert!(looked_at > 20 * SEEDS as u32, "{looked_at}");
}

#[test]
fn damage_under_load_is_found_and_repaired() {
    for seed in 0..SEEDS {
        let world = World::damaged(seed);
        let dirs = world.dirs();
        let (one, other) = (dirs[(seed % 3) as usize], dirs[((seed + 1) % 3) as usize]);
        let file = world.create(one, "f");
        world.send(0, other.mdt_index(), link(file, other, "l")).expect("linked");
        let sub = world.mkdir(one, "sub", &[other.mdt_index()]).expect("made").fid();
        let gone = world.mkdir(one, "gone", &[other.mdt_index()]).expect("made").fid();
        world.settle();
        let users = Users::start(&world, &dirs, seed);
        world.sim.run_for(Span::millis(50));
        match seed % 4 {
            0 => world.drop_link(file, "l"),
            1 => world.drop_entry(other, "l"),
            2 => world.drop_entry(one, "sub"),
            _ => world.drop_link(sub, "sub"),
        }
        world.drop_inode(gone);
        let done = world.repair();
        users.stop(&world);
        world.check();
        assert!(done.values().sum::<u32>() >= 2, "seed {seed}: {done:?}");
        world.lookup(1, one, "f").expect("there");
        world.lookup(1, other, "l").expect("there");
        assert_eq!(world.lookup(1, one, "sub").expect("there").attr.fid(), sub);
        assert_eq!(world.lookup(1, one, "gone").err(), Some(Errno::ENOENT));
    }
}

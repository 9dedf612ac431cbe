//! Names that move between the shards of a directory, while it is used and while MDTs die.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use endpoint::Call;
use layout::composite::{CompositeTemplate, END_OF_FILE};
use layout::dir::{self, Stripes};
use layout::lov;
use mdt::Bugs;
use mdt::fsck;
use osd::mem::MemMeta;
use osd::{MetaStore, Table, WriteSet};
use types::{Errno, Fid, Span, SplitMix64};
use wire::attr::{AttrFlags, S_IFREG};
use wire::body::{AttrRep, FidReq, ReaddirReq, SetattrFlags, SetattrReq, SetxattrReq};
use wire::{Attr, Opcode, dirent, encode_body};

use super::{CRASHES, MDTS, World, bytes, link, make, mkdir, placed, rename, shows, unlink};

/// Attempts to reach a name whose shard changes.
const TRIES: u32 = 400;

fn restripe(dir: Fid, on: &[u32]) -> Call {
    let (count, mdts) = (on.len() as u32, on.to_vec());
    let asked = match on {
        [] => dir::Asked::default(),
        _ => dir::Asked { count, mdts, ..dir::Asked::default() },
    };
    wanted(dir, &asked)
}

fn wanted(dir: Fid, asked: &dir::Asked) -> Call {
    wanted_as("lustre.lmv", dir, asked)
}

/// Sets the attribute by which names begin to move.
pub(super) fn wanted_as(attribute: &str, dir: Fid, asked: &dir::Asked) -> Call {
    let body = SetxattrReq { fid: dir.into(), ..SetxattrReq::default() };
    let bufs = vec![encode_body(&body), bytes(attribute), asked.encode().into()];
    Call::new(Opcode::MdtSetxattr, bufs)
}

impl World {
    /// Has the names of a directory move to shards on these MDTs.
    fn restripe(&self, dir: Fid, on: &[u32]) -> Result<(), Errno> {
        self.send(0, dir.mdt_index(), restripe(dir, on)).map(drop)
    }

    /// The shards of a directory, if it is striped.
    pub(super) fn stripes(&self, dir: Fid) -> Option<Stripes> {
        let body = FidReq { fid: dir.into(), ..FidReq::default() };
        let call = Call::new(Opcode::MdtGetxattr, vec![encode_body(&body), bytes("lustre.lmv")]);
        match self.send(0, dir.mdt_index(), call) {
            Ok(reply) => Some(Stripes::decode(&reply.buf(1)).expect("well formed")),
            Err(errno) => {
                assert_eq!(errno, Errno::ENODATA);
                None
            }
        }
    }

    /// Where a name of a directory belongs.
    pub(super) fn home(&self, dir: Fid, name: &str) -> Fid {
        self.stripes(dir).map_or(dir, |stripes| stripes.home(name.as_bytes()))
    }

    /// A request about a name, sent again where the shard is not its home any more.
    pub(super) fn at_home(
        &self,
        dir: Fid,
        name: &str,
        call: impl Fn(Fid) -> Call,
    ) -> Result<AttrRep, Errno> {
        for _ in 0..TRIES {
            let home = self.home(dir, name);
            match self.send(0, home.mdt_index(), call(home)) {
                Err(Errno::ESTALE) => self.sim.run_for(Span::millis(10)),
                done => return done.map(|reply| reply.body()),
            }
        }
        panic!("`{name}` has no home");
    }

    pub(super) fn make_file(&self, dir: Fid, name: &str) -> Fid {
        let made = self.at_home(dir, name, |home| make(home, name, S_IFREG | 0o644, &[]));
        made.expect("made").attr.fid()
    }

    pub(super) fn find(&self, dir: Fid, name: &str) -> Result<Fid, Errno> {
        for _ in 0..TRIES {
            match self.lookup(0, self.home(dir, name), name) {
                Err(Errno::ESTALE) => self.sim.run_for(Span::millis(10)),
                found => return found.map(|found| found.attr.fid()),
            }
        }
        panic!("`{name}` has no home");
    }

    /// Names in one shard.
    pub(super) fn names(&self, place: Fid) -> BTreeMap<String, Fid> {
        let body = ReaddirReq { fid: place.into(), entries_max: u32::MAX, ..ReaddirReq::default() };
        let call = Call::new(Opcode::MdtReaddir, vec![encode_body(&body)]);
        let reply = self.send(0, place.mdt_index(), call).expect("listed");
        let entries = dirent::decode(&reply.buf(1)).expect("entries");
        let pair = |entry: &wire::dirent::Dirent| {
            (String::from_utf8_lossy(&entry.name).into_owned(), entry.attr.fid())
        };
        entries.iter().map(pair).collect()
    }

    /// Names in all places of a directory.
    pub(super) fn all_names(&self, dir: Fid) -> BTreeMap<String, Fid> {
        let places = self.stripes(dir).map_or(vec![dir], |stripes| stripes.places().collect());
        places.into_iter().flat_map(|place| self.names(place)).collect()
    }

    /// Waits until all names have moved.
    pub(super) fn moved(&self, dir: Fid) {
        for _ in 0..600 {
            if self.stripes(dir).is_none_or(|stripes| stripes.leaving.is_none()) {
                return;
            }
            self.sim.run_for(Span::millis(100));
        }
        panic!("names move for ever");
    }
}

pub(super) fn files(world: &World, dir: Fid, count: u32) -> BTreeMap<String, Fid> {
    files_from(world, dir, 0, count)
}

fn files_from(world: &World, dir: Fid, first: u32, end: u32) -> BTreeMap<String, Fid> {
    let name = |number| format!("file.{number}");
    (first..end).map(|number| (name(number), world.make_file(dir, &name(number)))).collect()
}

#[test]
fn only_those_who_may_choose_mdts_move_names_and_to_open_ones() {
    let world = World::new(23);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let everywhere = dir::Asked { count: dir::COUNT_ALL, ..dir::Asked::default() };
    let attr = Attr { uid: 7, ..world.attr(dir).expect("there") }.with_fid(dir);
    let body = SetattrReq { attr, valid: SetattrFlags::UID, ..SetattrReq::default() };
    world.send(0, 1, Call::new(Opcode::MdtSetattr, vec![encode_body(&body)])).expect("given");
    let by_owner = world.send(0, 1, placed::by_user(wanted(dir, &everywhere)));
    assert_eq!(by_owner.err(), Some(Errno::EPERM), "it is not only the directory that counts");
    let many = dir::Asked {
        count: dir::SHARDS_MAX as u32,
        mdts: vec![1; dir::SHARDS_MAX],
        hash: dir::HASH_CRUSH2 | dir::HASH_OVERSTRIPED,
        ..dir::Asked::default()
    };
    assert_eq!(world.send(0, 1, wanted(dir, &many)).err(), Some(Errno::E2BIG));
    placed::set_param(&world, 1, "enable_striped_dir", "0");
    assert_eq!(world.restripe(dir, &[0, 1]).err(), Some(Errno::EPERM));
    placed::set_param(&world, 1, "enable_striped_dir", "1");
    placed::set_param(&world, 1, "enable_dir_restripe", "0");
    assert_eq!(world.restripe(dir, &[0, 1]).err(), Some(Errno::EPERM));
    placed::set_param(&world, 1, "enable_dir_restripe", "1");
    placed::set_param(&world, 1, "no_create", "1");
    assert_eq!(world.restripe(dir, &[0, 1]).err(), Some(Errno::EREMOTEIO));
    world.send(0, 1, wanted(dir, &everywhere)).expect("begun");
    let shards = world.stripes(dir).expect("striped").shards;
    let on: Vec<u32> = shards.iter().map(|shard| shard.mdt_index()).collect();
    assert_eq!(on, [0, 2], "the one that is closed is left out");
    world.check();
}

#[test]
fn several_shards_of_a_directory_share_an_mdt() {
    let world = World::new(26);
    let hash = dir::HASH_CRUSH2 | dir::HASH_OVERSTRIPED;
    let twice = dir::Asked { count: 2_u32.wrapping_neg(), hash, ..dir::Asked::default() };
    let made = world.send(0, 0, placed::asked(Fid::ROOT, "d", &twice)).expect("made");
    let dir = made.body::<AttrRep>().attr.fid();
    let stripes = world.stripes(dir).expect("striped");
    let mut on: Vec<u32> = stripes.shards.iter().map(|shard| shard.mdt_index()).collect();
    on.sort_unstable();
    assert_eq!((on, stripes.hash), (vec![0, 0, 1, 1, 2, 2], hash));
    let all = files(&world, dir, 60);
    assert!(stripes.shards.iter().all(|shard| !world.names(*shard).is_empty()));
    assert_eq!(world.all_names(dir), all);
    world.check();
    world.restripe(dir, &[0, 1]).expect("begun");
    world.moved(dir);
    assert_eq!(world.all_names(dir), all);
    for name in all.keys() {
        world.at_home(dir, name, |home| unlink(home, name, false)).expect("there");
    }
    world.send(0, 0, unlink(Fid::ROOT, "d", true)).expect("empty");
    world.check();
}

#[test]
fn a_plain_directory_is_split_and_merged_and_its_inodes_stay() {
    let world = World::new(20);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let mut all = files(&world, dir, 150);
    all.insert("sub".into(), world.mkdir(dir, "sub", &[]).expect("made").fid());
    all.insert("away".into(), world.mkdir(dir, "away", &[2]).expect("made").fid());
    let before = world.attr(dir).expect("there");
    world.settle();
    world.restripe(dir, &[0, 1, 2]).expect("begun");
    assert_eq!(world.restripe(dir, &[0, 1]).err(), Some(Errno::EBUSY), "one after the other");
    let stripes = world.stripes(dir).expect("striped");
    assert_eq!(stripes.leaving.expect("names move").shards, [dir]);
    assert!(world.attr(dir).expect("there").flags.contains(AttrFlags::STRIPED));
    world.moved(dir);
    let stripes = world.stripes(dir).expect("striped");
    assert!(world.names(dir).is_empty());
    assert_eq!(world.all_names(dir), all);
    let sizes = stripes.shards.iter().map(|shard| world.attr(*shard).expect("there"));
    let (sizes, links): (Vec<u64>, Vec<u32>) = sizes.map(|attr| (attr.size, attr.nlink)).unzip();
    assert_eq!(sizes.iter().sum::<u64>(), before.size, "sizes move with the names");
    assert_eq!(links.iter().map(|links| links - 2).sum::<u32>(), 2);
    assert_eq!(world.attr(dir).expect("there").mtime(), before.mtime(), "no user changed it");
    world.check();
    world.restripe(dir, &[2, 0]).expect("begun");
    world.moved(dir);
    assert_eq!(world.all_names(dir), all);
    world.check();
    world.restripe(dir, &[]).expect("begun");
    world.moved(dir);
    assert_eq!(world.stripes(dir), None);
    let after = world.attr(dir).expect("there");
    assert_eq!((after.size, after.nlink), (before.size, before.nlink));
    assert_eq!((after.flags.contains(AttrFlags::STRIPED), world.names(dir)), (false, all));
    for shard in stripes.shards {
        assert_eq!(world.attr(shard).err(), Some(Errno::ESTALE), "{shard}");
    }
    world.check();
}

/// Each look passes all operations that are under way, and a move of names makes many of them.
#[test]
fn a_move_of_many_names_is_looked_at_now_and_then() {
    let world = World::new(27);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let all = files(&world, dir, 400);
    world.settle();
    let looks = || {
        let running = world.servers[1].running.borrow();
        running.as_ref().expect("runs").0.looks_at_deliveries()
    };
    let (before, began) = (looks(), world.clients[0].0.env().now());
    world.restripe(dir, &[0, 1, 2]).expect("begun");
    while !world.names(dir).is_empty() {
        world.sim.run_for(Span::millis(1));
    }
    let took = world.clients[0].0.env().now() - began;
    let most = took.as_millis() / 20 + 2;
    assert!(looks() - before <= most, "{} looks in {took:?}", looks() - before);
    world.moved(dir);
    assert_eq!(world.all_names(dir), all);
    world.check();
}

#[test]
fn a_damaged_name_holds_up_no_other_one() {
    let world = World::damaged(24);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let all = files(&world, dir, 150);
    world.settle();
    let lost = all["file.7"];
    let with_store = |change: &dyn Fn(&MemMeta)| {
        world.images(); // every store is ready
        let running = world.servers[1].running.borrow();
        change(&running.as_ref().expect("runs").1);
    };
    let key = lost.to_key();
    let record = RefCell::new(None);
    with_store(&|meta| {
        let found = meta.running().expect("ready").get(Table::Inodes, &key).expect("readable");
        *record.borrow_mut() = found;
        let mut set = WriteSet::new();
        set.delete(Table::Inodes, key);
        meta.apply(&set).expect("room");
    });
    world.restripe(dir, &[0, 2]).expect("begun");
    world.sim.run_for(Span::secs(10));
    assert_eq!(world.names(dir).into_keys().collect::<Vec<_>>(), ["file.7"]);
    assert_eq!(world.sim.errors(), Vec::<String>::new(), "the file may just go");
    world.sim.run_for(Span::secs(170));
    assert!(world.stripes(dir).expect("striped").leaving.is_some(), "a name is left");
    let errors = world.sim.errors();
    assert!(matches!(&errors[..], [one] if one.contains("name=\"file.7\"")), "{errors:?}");
    with_store(&|meta| {
        let mut set = WriteSet::new();
        set.put(Table::Inodes, key, record.take().expect("there"));
        meta.apply(&set).expect("room");
    });
    world.sim.run_for(Span::secs(60)); // it is tried again once a minute
    world.moved(dir);
    assert_eq!(world.all_names(dir), all);
    world.check();
}

/// A program that makes a file looks its name up before. The lookup asks for all that the create
/// needs to know of the old shard.
#[test]
fn a_name_that_was_looked_up_is_made_without_the_old_shard() {
    let world = World::damaged(28);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let all = files(&world, dir, 20);
    world.settle();
    world.images(); // every store is ready
    let mut set = WriteSet::new();
    set.delete(Table::Inodes, all["file.7"].to_key());
    let meta = world.servers[1].running.borrow().as_ref().expect("runs").1.clone();
    meta.apply(&set).expect("room");
    drop(meta);
    world.restripe(dir, &[0, 2]).expect("begun");
    world.sim.run_for(Span::secs(2));
    assert!(world.stripes(dir).expect("striped").leaving.is_some(), "a name is left");
    let home = world.home(dir, "new");
    assert_eq!(world.lookup(0, home, "new").err(), Some(Errno::ENOENT));
    world.kill(1);
    let made = world.ask(0, home.mdt_index(), make(home, "new", S_IFREG | 0o644, &[]));
    world.sim.run_for(Span::secs(1));
    assert_eq!(*made.borrow(), Some(Ok(())), "it waits for no other MDT");
    world.boot(1);
    world.settle();
    assert!(world.find(dir, "new").is_ok());
}

/// Access lists of the longest kind: 17 of them are more than one reply may have.
#[test]
fn names_of_files_with_long_access_lists_move_one_by_one() {
    let world = World::new(26);
    let from = world.mkdir(Fid::ROOT, "from", &[1]).expect("made").fid();
    let dir = world.mkdir(Fid::ROOT, "d", &[0]).expect("made").fid();
    let list = long_access_list();
    let mut all = BTreeMap::new();
    for number in 0..60 {
        let name = format!("file.{number}");
        let file = world.create(from, &name);
        let body = SetxattrReq { fid: file.into(), ..SetxattrReq::default() };
        let bufs = vec![encode_body(&body), bytes("system.posix_acl_access"), list.clone()];
        world.send(0, 1, Call::new(Opcode::MdtSetxattr, bufs)).expect("set");
        world.rename((from, &name), (dir, &name)).expect("moved");
        all.insert(name, file);
    }
    world.settle();
    world.restripe(dir, &[1, 2]).expect("begun");
    world.moved(dir);
    assert_eq!(world.all_names(dir), all);
    for file in all.values() {
        let attr = Attr { mode: 0o600, ..world.attr(*file).expect("there") }.with_fid(*file);
        let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
        world.send(0, 1, Call::new(Opcode::MdtSetattr, vec![encode_body(&body)])).expect("free");
    }
    world.check();
}

/// As `setfacl` sends it: version, then tag, permissions and id of each entry.
fn long_access_list() -> Bytes {
    let mut list = 2_u32.to_le_bytes().to_vec();
    let users = (0..8_187).map(|user| (0x02_u16, user));
    let beside = |tag: u16| (tag, u32::MAX);
    let entries = [beside(0x01)].into_iter().chain(users);
    for (tag, id) in entries.chain([beside(0x04), beside(0x10), beside(0x20)]) {
        list.extend([tag.to_le_bytes(), 6_u16.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list.into()
}

#[test]
fn names_are_used_while_they_move() {
    let world = World::new(21);
    let dir = world.mkdir(Fid::ROOT, "d", &[]).expect("made").fid();
    let mut all = files(&world, dir, 120);
    world.settle();
    world.restripe(dir, &[0, 1, 2]).expect("begun");
    let astray = world.send(0, 0, make(dir, "x", S_IFREG | 0o644, &[]));
    assert_eq!(astray.err(), Some(Errno::ESTALE), "its shards hold the names");
    let home = world.home(dir, "file.7");
    let twice = world.send(0, home.mdt_index(), make(home, "file.7", S_IFREG | 0o644, &[]));
    assert_eq!(twice.err(), Some(Errno::EEXIST), "it moves first");
    assert_eq!(world.find(dir, "file.9"), Ok(all["file.9"]));
    assert_eq!(world.find(dir, "nothing"), Err(Errno::ENOENT));
    world.at_home(dir, "file.1", |home| unlink(home, "file.1", false)).expect("removed");
    all.remove("file.1");
    all.insert("new".into(), world.make_file(dir, "new"));
    let to = world.home(dir, "renamed");
    let renamed = |home| rename((home, "file.2"), (to, "renamed"));
    world.at_home(dir, "file.2", renamed).expect("renamed");
    let file = all.remove("file.2").expect("it was there");
    all.insert("renamed".into(), file);
    let over = world.home(dir, "file.4");
    world.at_home(dir, "file.3", |home| rename((home, "file.3"), (over, "file.4"))).expect("moved");
    let file = all.remove("file.3").expect("it was there");
    all.insert("file.4".into(), file);
    let linked = all["file.5"];
    world.at_home(dir, "linked", |home| link(linked, home, "linked")).expect("linked");
    all.insert("linked".into(), linked);
    assert_eq!(world.unlink(Fid::ROOT, "d", true).err(), Some(Errno::ENOTEMPTY));
    assert_eq!(world.all_names(dir), all);
    world.moved(dir);
    assert_eq!(world.all_names(dir), all);
    assert_eq!(world.attr(linked).expect("there").nlink, 2);
    world.check();
}

/// The default layout of the root holds everywhere without being copied.
#[test]
fn directories_in_a_striped_root_copy_no_default_layout() {
    let world = World::new(23);
    let template = CompositeTemplate::striped(0, [(1 << 20, 1), (END_OF_FILE, 2)]);
    let value = lov::composite::LovComposite::of_dir(&template).expect("a layout").encode();
    let body = SetxattrReq { fid: Fid::ROOT.into(), ..SetxattrReq::default() };
    let bufs = vec![encode_body(&body), bytes("lustre.lov"), value.into()];
    world.send(0, 0, Call::new(Opcode::MdtSetxattr, bufs)).expect("set");
    world.restripe(Fid::ROOT, &[1, 0, 2]).expect("begun");
    world.moved(Fid::ROOT);
    for name in ["a", "b", "c", "d", "e", "f"] {
        let made = world.at_home(Fid::ROOT, name, |home| mkdir(home, name, &[])).expect("made");
        let body = FidReq { fid: made.attr.fid().into(), ..FidReq::default() };
        let call = Call::new(Opcode::MdtGetxattr, vec![encode_body(&body), bytes("trusted.lov")]);
        let found = world.send(0, made.attr.fid().mdt_index(), call);
        assert_eq!(found.map(|reply| reply.buf(1)).err(), Some(Errno::ENODATA), "{name}");
    }
    world.check();
}

#[test]
fn a_directory_goes_while_its_last_names_move() {
    let world = World::new(22);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    files(&world, dir, 3);
    world.settle();
    world.restripe(dir, &[2, 0]).expect("begun");
    for name in ["file.0", "file.1", "file.2"] {
        world.at_home(dir, name, |home| unlink(home, name, false)).expect("removed");
    }
    world.unlink(Fid::ROOT, "d", true).expect("removed");
    world.check();
    for mdt in 0..MDTS {
        let running = world.servers[mdt as usize].running.borrow();
        let target = &running.as_ref().expect("it runs").0;
        assert_eq!(target.names_to_move(), Vec::<Fid>::new(), "MDT {mdt}");
    }
}

/// Shards that a directory has when its names do not move.
fn shards(world: &World, dir: Fid) -> usize {
    world.sim.run_for(Span::secs(1));
    world.moved(dir);
    world.stripes(dir).map_or(0, |stripes| stripes.shards.len())
}

#[test]
fn a_directory_that_grows_is_split_by_itself_and_merged_when_it_shrinks() {
    let world = World::new(25);
    for server in &world.servers {
        let split = mdt::Split { is_on: true, count: 40, delta: 2 };
        server.running.borrow().as_ref().expect("it runs").0.set_split(split);
    }
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let fixed = world.mkdir(Fid::ROOT, "fixed", &[0, 1]).expect("made").fid();
    files(&world, dir, 39);
    assert_eq!(shards(&world, dir), 0);
    let all = files_from(&world, dir, 39, 70);
    assert_eq!(shards(&world, dir), 2);
    let more = files_from(&world, dir, 70, 200);
    assert_eq!(shards(&world, dir), 3, "there are no more MDTs");
    let shown: BTreeMap<String, Fid> = all.into_iter().chain(more).collect();
    let found = world.all_names(dir);
    assert!(found.len() == 200 && shown.iter().all(|(name, fid)| found[name] == *fid));
    world.check();
    for number in 0..195 {
        let name = format!("file.{number}");
        world.at_home(dir, &name, |home| unlink(home, &name, false)).expect("removed");
    }
    assert_eq!(shards(&world, dir), 0, "it is plain again");
    assert_eq!(world.names(dir).len(), 5);
    let stripes = world.stripes(fixed).expect("striped");
    files(&world, fixed, 200);
    assert_eq!(world.stripes(fixed), Some(stripes), "a user has striped it");
    world.check();
}

/// MDTs die at drawn moments while names move and a client uses them; returns what does not fit.
fn crash_amid_moves(seed: u64, bugs: Bugs) -> Vec<String> {
    let world = World::with_bugs(seed, bugs);
    let mut chance = SplitMix64::new(seed);
    let striped = chance.below(2) == 0;
    let dir = match striped {
        true => world.mkdir(Fid::ROOT, "d", &[0, 1]).expect("made").fid(),
        false => world.mkdir(Fid::ROOT, "d", &[(seed % 3) as u32]).expect("made").fid(),
    };
    let mut all = files(&world, dir, 30);
    let sub = world.at_home(dir, "sub", |home| mkdir(home, "sub", &[2])).expect("made");
    all.insert("sub".into(), sub.attr.fid());
    if !seed.is_multiple_of(5) {
        world.settle();
    }
    let on: &[u32] = if striped && chance.below(2) == 0 { &[] } else { &[2, 0, 1] };
    let other: BTreeSet<String> = (0..4).map(|number| format!("other.{number}")).collect();
    world.begin(0, dir.mdt_index(), restripe(dir, on));
    world.sim.run_for(Span::micros(chance.below(60_000)));
    let begun = world.stripes(dir);
    for name in &other {
        let home = begun.as_ref().map_or(dir, |stripes| stripes.home(name.as_bytes()));
        world.begin(1, home.mdt_index(), make(home, name, S_IFREG | 0o644, &[]));
    }
    world.sim.run_for(Span::micros(chance.below(20_000)));
    for _ in 0..=chance.below(2) {
        let victim = chance.below(u64::from(MDTS)) as u32;
        world.kill(victim);
        if chance.below(4) == 0 {
            world.clients[1].0.kill_as(false);
        }
        world.sim.run_for(Span::millis(chance.below(500)));
        world.boot(victim);
        world.sim.run_for(Span::millis(chance.below(4_000)));
    }
    world.sim.run_for(Span::secs(60));
    world.moved(dir);
    let mut bad: Vec<String> = Vec::new();
    let mut left = world.all_names(dir);
    left.retain(|name, _| !other.contains(name));
    if left != all {
        bad.push(format!("names of {dir} are other ones: {left:?}"));
    }
    world.sim.run_for(Span::secs(20));
    let images = world.images();
    bad.extend([fsck::all(&images), fsck::left(&images)].concat());
    bad
}

#[test]
fn a_crash_at_any_moment_loses_no_name_that_moves() {
    for seed in 0..CRASHES / 2 {
        assert_eq!(crash_amid_moves(seed, Bugs::default()), Vec::<String>::new(), "{seed}");
    }
}

/// A request that the old shard should refuse makes a name there, and the new shard has it, too.
fn made_in_both(bugs: Bugs) -> Vec<String> {
    let world = World::with_bugs(23, bugs);
    let dir = world.mkdir(Fid::ROOT, "d", &[]).expect("made").fid();
    files(&world, dir, 200);
    world.settle();
    world.restripe(dir, &[1, 2]).expect("begun");
    world.make_file(dir, "x");
    let _refused = world.send(0, 0, make(dir, "x", S_IFREG | 0o644, &[]));
    world.sim.run_for(Span::secs(30));
    fsck::all(&world.images())
}

#[test]
fn broken_rules_of_moves_show() {
    assert_eq!(made_in_both(Bugs::default()), Vec::<String>::new());
    let bugs = Bugs::plant("mdt.take_names_astray");
    assert!(shows(|| made_in_both(bugs)));
    let bugs = Bugs::plant("mdt.forget_old_shard");
    assert!((0..CRASHES).any(|seed| shows(|| crash_amid_moves(seed, bugs))));
}

#[test]
fn clients_ask_for_no_moves() {
    let world = World::damaged(24);
    let dir = Fid::ROOT;
    let body = wire::updates::encode(&wire::updates::Move { dir, name: b"a".to_vec() });
    let asked = Call::new(Opcode::MdtMove, vec![Bytes::new(), body.into()]);
    assert_eq!(world.send(0, 0, asked).err(), Some(Errno::EPERM));
}

//! Damage made by hand is mended, and a second look finds nothing.

use layout::{Layout, StripeSet};
use wire::attr::S_IFLNK;

use super::*;
use crate::record::{DestroyRecord, INODE_HAS_LAYOUT, INODE_HAS_XATTR};

const NOW: Timespec = Timespec { sec: 1_800_000_000, nsec: 5 };
const LOST_FOUND: &str = "lost+found";

/// Object `oid` of MDT `mdt`, stripe 0.
fn base(mdt: u32, oid: u32) -> Fid {
    Fid::new(first_sequences(mdt).1, oid)
}

/// A file system with OSTs.
struct World {
    stores: Stores,
    osts: Vec<OstImage>,
    /// An MDT that was forgotten.
    forgotten: Option<u32>,
}

impl World {
    fn sound() -> World {
        let osts = (0..2).map(|index| OstImage { index, ..OstImage::default() }).collect();
        let mut world = World { stores: Stores::sound(), osts, forgotten: None };
        // a file with two objects
        world.laid_out(fid(2, 5), (2, 0), base(2, 5), fid(2, 1));
        world
    }

    /// With a striped directory, a symbolic link, a file of another MDT's directory and an orphan.
    fn rich() -> World {
        let mut world = World::sound();
        let stores = &mut world.stores;
        let shards = vec![fid(1, 7), fid(2, 7)];
        let stripes = Stripes { hash: 2, version: 1, master: 0, shards, leaving: None };
        stores.0[0].put(Table::Xattrs, keys::xattr(fid(0, 1), LMV), stripes.encode());
        let flags = (S_IFDIR, AttrFlags::STRIPED, INODE_HAS_XATTR);
        stores.inode_with(fid(0, 1), flags, (2, 0), Fid::ROOT);
        let names = [&b"one"[..], b"two", b"three", b"four", b"five"];
        for (oid, name) in (20..).zip(names) {
            let child = fid(1, oid);
            stores.name(stripes.shards[stripes.shard_of(name)], name, child, S_IFLNK);
            stores.inode(child, S_IFLNK, (1, 0), fid(0, 1));
        }
        for shard in [fid(1, 7), fid(2, 7)] {
            let bytes = stores.bytes_in(shard);
            stores.inode_with(shard, (S_IFDIR, AttrFlags::SHARD, 0), (2, bytes), fid(0, 1));
        }
        stores.inode_with(
            fid(1, 9),
            (S_IFREG, AttrFlags::empty(), INODE_ORPHAN),
            (0, 0),
            Fid::ROOT,
        );
        stores.of(fid(1, 9)).put(Table::Orphans, fid(1, 9).to_key(), []);
        world
    }

    fn laid_out(&mut self, file: Fid, (nlink, size): (u32, u64), base: Fid, parent: Fid) {
        let layout = Layout::plain(base, 1 << 20, 2);
        self.stores.of(file).put(Table::Layouts, file.to_key(), layout.encode());
        let flags = (S_IFREG, AttrFlags::empty(), INODE_HAS_LAYOUT);
        self.stores.inode_with(file, flags, (nlink, size), parent);
        let mut inode = self.stores.read(file).expect("it was made");
        inode.stripes = StripeSet::from(0b11u64);
        self.stores.of(file).put(Table::Inodes, file.to_key(), inode.encode());
        let store = u64::from(100 + file.mdt_index());
        for ost in 0..2 {
            let object = Object { file, store, is_there: true, bytes: Some(9), layout_version: 0 };
            self.osts[ost].objects.insert(base.stripe(ost as u32), object);
        }
    }

    fn images(&self) -> Vec<Image> {
        let mut images = self.stores.images();
        for image in &mut images {
            if Some(image.index) == self.forgotten {
                *image = Image::forgotten(image.index);
            }
        }
        images
    }

    fn rules(&self) -> Vec<&'static str> {
        let images = self.images();
        let found = check(&System::new(&images, &self.osts));
        found.iter().map(|finding| finding.rule.name()).collect()
    }

    /// What is wrong at first; everything is mended.
    fn mended(&mut self) -> String {
        let rules = self.rules().join(" ");
        let left = self.mend(false);
        assert_eq!(left, "", "{rules}");
        rules
    }

    /// Mends what it can, and returns what is left.
    fn mend(&mut self, gives_up_bytes: bool) -> String {
        let mut rounds = Rounds::new(gives_up_bytes);
        loop {
            let images = self.images();
            let system = System::new(&images, &self.osts);
            let found = check(&system);
            let Some(changes) = rounds.next(&system, &found, NOW) else {
                let texts: Vec<String> = found.into_iter().map(|finding| finding.text).collect();
                return texts.join("; ");
            };
            for (mdt, set) in changes.sets {
                self.stores.0[mdt as usize].changes.extend(set.changes);
            }
            for Owner { ost, object, file, store } in changes.owners {
                let ost = &mut self.osts[ost as usize];
                let found = ost.objects.get_mut(&object).expect("it is there");
                (found.file, found.store) = (file, store);
            }
            for Made { owner: Owner { ost, object, file, store }, bytes } in changes.made {
                let made =
                    Object { file, store, is_there: true, bytes: Some(bytes), layout_version: 0 };
                self.osts[ost as usize].objects.insert(object, made);
            }
        }
    }

    /// Path of a file by its names.
    fn path(&self, file: Fid) -> String {
        let images = self.images();
        let path = System::new(&images, &self.osts).path(file).unwrap_or_default();
        String::from_utf8(path).expect("text")
    }
}

impl Stores {
    fn read(&self, file: Fid) -> Option<Inode> {
        let key = file.to_key();
        let changes = self.0[file.mdt_index() as usize].changes.iter().rev();
        let mut those = changes.filter(|(table, at, _)| *table == Table::Inodes && *at == key);
        Inode::decode(those.next()?.2.as_ref()?)
    }

    fn bytes_in(&self, dir: Fid) -> u64 {
        let images = self.images();
        let entries = images[dir.mdt_index() as usize].entries_of(dir).iter();
        entries.map(|entry| entry.record.name.len() as u64).sum()
    }

    /// A file and all its names vanish.
    fn unname(&mut self, dir: Fid, name: &[u8], child: Fid) {
        self.drop_entry(dir, name);
        self.drop_link(dir, name, child);
    }
}

#[test]
fn what_is_only_not_known_stands_against_a_repair() {
    let against = |world: &World, osts: &[OstImage]| {
        let images = world.stores.images();
        System::new(&images, osts).stands_against_repair().unwrap_or_default()
    };
    let mut world = World::rich();
    assert_eq!(against(&world, &world.osts), "");
    assert!(against(&world, &world.osts[..1]).contains("not named here: 0x0001"));
    let shards = vec![fid(1, 7), fid(2, 7)];
    let leaving = Some(layout::dir::Leaving { hash: 2, shards: vec![fid(0, 1)] });
    let stripes = Stripes { hash: 2, version: 2, master: 0, shards, leaving };
    world.stores.0[0].put(Table::Xattrs, keys::xattr(fid(0, 1), LMV), stripes.encode());
    assert_eq!(against(&world, &world.osts), "", "nothing is left to move");
    let names = [(&b"one"[..], fid(1, 20)), (b"nowhere", fid(1, 99))];
    for (name, child) in names {
        world.stores.name(fid(0, 1), name, child, S_IFLNK);
    }
    assert_eq!(against(&world, &world.osts), "", "these cannot move");
    world.stores.name(fid(0, 1), b"late", fid(1, 20), S_IFLNK);
    assert!(against(&world, &world.osts).contains("move to other shards"));
    world.stores.0[0].put(Table::Inodes, fid(0, 1).to_key(), b"no inode".to_vec());
    assert!(against(&world, &world.osts).starts_with("a record of MDT 0 cannot be read"));
}

#[test]
fn a_name_that_cannot_leave_its_shard_is_mended() {
    let mut world = World::rich();
    let shards = vec![fid(1, 7), fid(2, 7)];
    let leaving = Some(layout::dir::Leaving { hash: 2, shards: vec![fid(0, 1)] });
    let stripes = Stripes { hash: 2, version: 2, master: 0, shards, leaving };
    world.stores.0[0].put(Table::Xattrs, keys::xattr(fid(0, 1), LMV), stripes.encode());
    world.stores.name(fid(0, 1), b"one", fid(1, 20), S_IFLNK);
    let mended = world.mended();
    assert!(mended.contains("wrong-shard"), "{mended}");
    assert_eq!(world.stores.images()[0].entries_of(fid(0, 1)).len(), 0);
}

#[test]
fn sound_file_systems_need_no_mend() {
    assert_eq!(World::sound().mended(), "");
    assert_eq!(World::rich().mended(), "");
}

#[test]
fn a_name_that_its_file_knows_is_entered_again() {
    let mut world = World::sound();
    world.stores.drop_entry(fid(2, 1), b"two");
    world.stores.drop_entry(Fid::ROOT, b"b");
    assert_eq!(world.mended(), "link-count directory-size lost-name directory-size lost-name");
    assert_eq!((world.path(fid(1, 1)), world.path(fid(2, 5))), ("b".into(), "b/far-file".into()));
}

#[test]
fn a_name_too_many_that_a_file_knows_is_forgotten() {
    let mut world = World::sound();
    let link = keys::link(fid(2, 5), fid(1, 1), 9);
    world.stores.of(fid(2, 5)).put(Table::Links, link, *b"stale");
    world.mended();
    assert_eq!(world.stores.read(fid(2, 5)).expect("there").attr.nlink, 2);
}

#[test]
fn a_file_whose_inode_is_gone_is_made_again_under_its_name() {
    let mut world = World::sound();
    world.stores.of(fid(2, 5)).delete(Table::Inodes, fid(2, 5).to_key());
    assert_eq!(world.mended(), "dangling-name no-inode no-inode dangling-name");
    let inode = world.stores.read(fid(2, 5)).expect("there");
    let stripes = StripeSet::from(0b11u64);
    assert_eq!((inode.attr.mode, inode.attr.nlink, &inode.stripes), (0o100_600, 2, &stripes));
    assert_eq!(inode.attr.size_state(), wire::SizeState::Dirty, "its objects say the size");
}

#[test]
fn a_name_of_which_nothing_is_left_is_removed() {
    let mut world = World::sound();
    let gone = fid(2, 5);
    for table in [Table::Inodes, Table::Layouts] {
        world.stores.of(gone).delete(table, gone.to_key());
    }
    let rules = world.mended();
    assert!(rules.contains("dangling-name") && rules.contains("orphan-object"), "{rules}");
    let again = world.stores.read(gone).expect("its objects have bytes");
    assert_eq!((again.attr.nlink, again.stripes), (1, StripeSet::from(0b11u64)));
    let name = format!(".nacre/{LOST_FOUND}/{:#x}:0x5:0x0", gone.seq);
    assert_eq!(world.path(gone), name);
}

#[test]
fn a_directory_whose_inode_is_gone_is_made_again_with_its_names() {
    let mut world = World::sound();
    world.stores.of(fid(1, 1)).delete(Table::Inodes, fid(1, 1).to_key());
    let rules = world.mended();
    assert!(rules.contains("stray-entry") && rules.contains("dangling-name"), "{rules}");
    let dir = world.stores.read(fid(1, 1)).expect("there");
    assert_eq!((dir.attr.mode, dir.attr.size), (0o040_700, 8));
    assert_eq!(world.path(fid(2, 5)), "b/far-file");
}

#[test]
fn files_and_directories_without_a_name_get_one_in_lost_and_found() {
    let mut world = World::sound();
    world.stores.unname(Fid::ROOT, b"b", fid(1, 1));
    world.stores.unname(fid(2, 1), b"two", fid(2, 5));
    world.stores.unname(fid(1, 1), b"far-file", fid(2, 5));
    let rules = world.mended();
    assert!(rules.contains("nameless"), "{rules}");
    for lost in [fid(1, 1), fid(2, 5)] {
        let name = format!("{:#x}:{:#x}:0x0", lost.seq, lost.oid);
        assert_eq!(world.path(lost), format!(".nacre/{LOST_FOUND}/{name}"));
    }
    assert_eq!(world.stores.read(fid(2, 5)).expect("there").attr.nlink, 1);
    let images = world.stores.images();
    let system = System::new(&images, &world.osts);
    let root = system.inode(Fid::ROOT).expect("there").attr;
    assert_eq!((root.nlink, root.size), (2 + 3, 2 + 6), "two of three names and `.nacre`");
}

#[test]
fn counts_types_and_parents_are_set() {
    let mut world = World::sound();
    world.stores.inode(fid(1, 1), S_IFDIR, (7, 99), fid(2, 1));
    world.stores.entry(fid(2, 1), b"two", fid(2, 5), S_IFLNK);
    assert_eq!(world.mended(), "link-count directory-size wrong-type wrong-parent");
    let dir = world.stores.read(fid(1, 1)).expect("there");
    assert_eq!((dir.attr.nlink, dir.attr.size, dir.parent), (2, 8, Fid::ROOT));
}

#[test]
fn of_two_names_of_a_directory_the_one_that_it_knows_stays() {
    let mut world = World::sound();
    world.stores.entry(fid(1, 1), b"moved", fid(2, 1), S_IFDIR);
    assert!(world.mended().contains("several-names"));
    assert_eq!(world.path(fid(2, 1)), "c");
}

#[test]
fn directories_that_lie_in_each_other_come_to_lost_and_found() {
    let mut world = World::sound();
    for (at, dir) in [(1, 2), (2, 1)] {
        world.stores.unname(Fid::ROOT, &[b'a' + at as u8], fid(at, 1));
        world.stores.name(fid(dir, 1), b"loop", fid(at, 1), S_IFDIR);
        world.stores.inode(fid(at, 1), S_IFDIR, (3, 0), fid(dir, 1));
    }
    assert!(world.mended().contains("unrooted"));
    assert!(world.path(fid(2, 1)).ends_with("/loop"), "{}", world.path(fid(2, 1)));
    assert!(world.path(fid(1, 1)).starts_with(".nacre/lost+found/0x"));
}

#[test]
fn shards_and_their_names_are_put_in_order() {
    let mut world = World::rich();
    let lost = fid(1, 7);
    let there = world.stores.bytes_in(lost);
    world.stores.of(lost).delete(Table::Inodes, lost.to_key());
    let rules = world.mended();
    assert!(rules.contains("missing-shard"), "{rules}");
    let shard = world.stores.read(lost).expect("there");
    assert_eq!((shard.parent, shard.attr.size), (fid(0, 1), there));
    assert!(shard.attr.flags.contains(AttrFlags::SHARD));

    // one that no directory lists
    world.stores.inode_with(fid(2, 30), (S_IFDIR, AttrFlags::SHARD, 0), (2, 0), fid(0, 1));
    assert_eq!(world.mended(), "unlisted-shard");
    assert!(world.path(fid(2, 30)).starts_with(".nacre/lost+found/"));

    // a name in the wrong one
    let images = world.stores.images();
    let shards = [fid(1, 7), fid(2, 7)];
    let of = |shard: Fid| images[shard.mdt_index() as usize].entries_of(shard);
    let (right, wrong) = match of(shards[0]).is_empty() {
        true => (shards[1], shards[0]),
        false => (shards[0], shards[1]),
    };
    let entry = of(right).first().expect("a name of five");
    let (name, child) = (entry.record.name.clone(), entry.record.fid);
    world.stores.of(right).delete(Table::Dirents, keys::dirent(right, entry.cookie));
    let link = images[1].links_of(child).first().expect("its name");
    world.stores.of(child).delete(Table::Links, keys::link(child, right, link.cookie));
    world.stores.name(wrong, &name, child, S_IFLNK);
    assert!(world.mended().contains("wrong-shard"));
    let images = world.stores.images();
    let is_it = |entry: &image::Entry| entry.record.name == name && entry.record.fid == child;
    assert!(images[right.mdt_index() as usize].entries_of(right).iter().any(is_it));
}

#[test]
fn orphan_records_and_flags_are_set() {
    let mut world = World::rich();
    world.stores.of(fid(1, 9)).delete(Table::Orphans, fid(1, 9).to_key());
    world.stores.of(fid(1, 8)).put(Table::Orphans, fid(1, 8).to_key(), []);
    world.stores.of(fid(2, 5)).put(Table::Orphans, fid(2, 5).to_key(), []);
    assert_eq!(world.mended(), "orphan-record no-inode orphan-record");
    assert!(world.stores.images()[1].orphans.contains(&fid(1, 9)), "the next start removes it");
}

#[test]
fn a_lost_object_is_an_error_until_its_bytes_are_given_up() {
    let mut world = World::sound();
    world.laid_out(fid(2, 5), (2, 3 << 20), base(2, 5), fid(2, 1));
    world.osts[1].objects.clear();
    let text = format!("{} has lost object {}", fid(2, 5), base(2, 5).stripe(1));
    assert_eq!(world.mend(false), format!("{text}: bytes 1048576 to 2097151"));
    assert_eq!(world.mend(true), "");
    assert_eq!(world.osts[1].objects[&base(2, 5).stripe(1)].bytes, Some(1 << 20));
}

#[test]
fn a_lost_object_behind_the_64th_stripe_is_found() {
    let mut world = World::sound();
    let (file, first) = (fid(2, 5), base(2, 5));
    let layout = Layout { osts: vec![0; 70], ..Layout::plain(first, 1 << 20, 70) };
    world.stores.of(file).put(Table::Layouts, file.to_key(), layout.encode());
    let mut inode = world.stores.read(file).expect("there");
    inode.stripes = [0, 69].into_iter().collect();
    world.stores.of(file).put(Table::Inodes, file.to_key(), inode.encode());
    world.osts[1].objects.clear();
    let text = format!("{file} has lost object {}: no bytes", first.stripe(69));
    assert_eq!(world.mend(false), text);
}

#[test]
fn objects_without_a_file_get_one_or_go() {
    let mut world = World::sound();
    let object = |file, bytes| Object {
        file,
        store: 102,
        is_there: true,
        bytes: Some(bytes),
        layout_version: 3,
    };
    world.osts[1].objects.insert(base(2, 8), object(fid(2, 8), 77));
    world.osts[0].objects.insert(base(2, 8).stripe(1), object(fid(2, 8), 0));
    world.osts[0].objects.insert(base(2, 9).stripe(2), object(fid(2, 9), 0));
    // of a file that has another layout
    world.osts[0].objects.insert(base(2, 10), object(fid(2, 5), 5));
    let rules = world.mended();
    assert_eq!(rules, ["orphan-object"; 4].join(" "));
    let images = world.stores.images();
    let layout = images[2].layouts[&fid(2, 8)].as_plain().expect("plain").clone();
    assert_eq!((layout.osts, layout.generation), (vec![1, 0], 3), "objects refuse lower ones");
    assert!(world.path(fid(2, 8)).starts_with(".nacre/lost+found/"));
    let gone = DestroyRecord { base: base(2, 9), osts: vec![0; 3] };
    assert_eq!(images[2].destroys.values().collect::<Vec<_>>(), [&gone]);
    let adopted = world.osts[0].objects[&base(2, 10)];
    assert_eq!(adopted.file, fid(2, 1_000), "a new file owns it");
    assert!(world.path(adopted.file).starts_with(".nacre/lost+found/"));
}

#[test]
fn objects_that_go_or_may_still_get_their_file_are_left_alone() {
    let orphan = |world: &mut World, id: Fid| {
        let object = Object { store: 102, is_there: true, bytes: Some(7), ..Object::default() };
        world.osts[0].objects.insert(id, object);
    };
    let mut world = World::sound();
    orphan(&mut world, base(2, 8));
    let record = DestroyRecord { base: base(2, 8), osts: vec![0] };
    world.stores.0[2].put(Table::Destroys, 4_u64.to_be_bytes(), record.encode());
    assert_eq!(world.rules(), Vec::<&str>::new(), "in the destroy log");

    let mut world = World::sound();
    orphan(&mut world, base(2, 8));
    assert_eq!(world.rules(), ["orphan-object"]);
    world.stores.0[2].put(Table::Clients, [1; 16], [0; 16]);
    assert_eq!(world.rules(), Vec::<&str>::new(), "a client may bring its file back");

    let mut world = World::sound();
    orphan(&mut world, base(2, 1_000));
    assert!(world.mend(false).contains("has no file"), "its id may be given to another file");
}

#[test]
fn an_object_gets_the_file_that_names_it_and_a_file_its_layout() {
    let mut world = World::sound();
    let object = world.osts[0].objects.get_mut(&base(2, 5)).expect("there");
    (object.file, object.store) = (fid(2, 77), 55);
    assert_eq!(world.mended(), "wrong-owner");
    assert_eq!(world.osts[0].objects[&base(2, 5)].file, fid(2, 5));

    world.stores.of(fid(2, 5)).delete(Table::Layouts, fid(2, 5).to_key());
    assert_eq!(world.mended(), "layout-flag orphan-object orphan-object");
    let images = world.stores.images();
    let layout = images[2].layouts[&fid(2, 5)].as_plain().expect("plain").clone();
    assert_eq!((layout.base, layout.osts), (base(2, 5), vec![0, 1]));
    assert!(!world.path(fid(2, 5)).contains(LOST_FOUND), "it has its names still");
}

#[test]
fn what_an_operation_changes_that_is_under_way_is_not_mended() {
    let mut world = World::sound();
    world.stores.record(1, fid(2, 5));
    world.stores.inode(fid(2, 5), S_IFREG, (9, 0), fid(2, 1));
    let before = world.stores.0[2].changes.len();
    assert!(world.mend(false).contains("link count 9"));
    let after = world.stores.0[2].changes.len();
    assert_eq!(before, after);
}

#[test]
fn an_operation_that_all_mdts_have_executed_explains_nothing() {
    let mut world = World::sound();
    for mdt in [1, 2] {
        world.stores.record(mdt, fid(2, 5));
    }
    world.stores.inode(fid(2, 1), S_IFDIR, (2, 3), fid(1, 1));
    world.stores.entry(fid(1, 1), b"far-file", fid(2, 5), S_IFLNK);
    assert_eq!(world.mended(), "wrong-parent wrong-type");
}

#[test]
fn a_name_that_a_directory_has_twice_stays_once() {
    let mut world = World::sound();
    let record = DirentRecord { fid: fid(0, 1), file_type: S_IFDIR, name: b"a".to_vec() };
    let key = keys::dirent(Fid::ROOT, cookie(Fid::ROOT, b"a", Fid::ROOT) + 1);
    world.stores.0[0].put(Table::Dirents, key, record.encode());
    let rules = world.mended();
    assert!(rules.contains("name-twice"), "{rules}");
    assert_eq!(world.path(fid(0, 1)), "a");
}

#[test]
fn a_shard_loses_its_name() {
    let mut world = World::sound();
    let shards = vec![fid(2, 1)];
    let stripes = Stripes { hash: 2, version: 1, master: 0, shards, leaving: None };
    world.stores.0[0].put(Table::Xattrs, keys::xattr(fid(0, 1), LMV), stripes.encode());
    let flags = (S_IFDIR, AttrFlags::STRIPED, INODE_HAS_XATTR);
    world.stores.inode_with(fid(0, 1), flags, (2, 0), Fid::ROOT);
    world.stores.inode_with(fid(2, 1), (S_IFDIR, AttrFlags::SHARD, 0), (2, 3), fid(0, 1));
    let rules = world.mended();
    assert!(rules.contains("named-shard"), "{rules}");
    let root = world.stores.read(Fid::ROOT).expect("there");
    assert_eq!((root.attr.nlink, root.attr.size), (2 + 2, 2), "`a` and `b` are left");
}

#[test]
fn a_directory_says_that_it_is_striped_exactly_if_it_lists_shards() {
    let mut world = World::rich();
    world.stores.inode_with(fid(0, 1), (S_IFDIR, AttrFlags::empty(), 0), (2, 0), Fid::ROOT);
    let rules = world.mended();
    assert!(rules.contains("striped-flag"), "{rules}");
    let flags = |world: &World, dir| world.stores.read(dir).expect("there").attr.flags;
    assert!(flags(&world, fid(0, 1)).contains(AttrFlags::STRIPED));

    let mut world = World::sound();
    let striped = (S_IFDIR, AttrFlags::STRIPED, 0);
    world.stores.inode_with(fid(0, 1), striped, (2, 0), Fid::ROOT);
    assert_eq!(world.mended(), "striped-flag");
    assert!(!flags(&world, fid(0, 1)).contains(AttrFlags::STRIPED));
}

#[test]
fn a_record_of_an_operation_that_is_done_goes() {
    let mut world = World::sound();
    world.stores.record(1, fid(2, 5));
    let mark = keys::of_mdt(keys::META_DONE, 1);
    world.stores.0[1].put(Table::Meta, mark, 8_u64.to_le_bytes());
    assert_eq!(world.mended(), "done-operation");
    assert_eq!(left(&world.images()), Vec::<String>::new());
}

#[test]
fn an_object_of_two_files_is_found_and_left() {
    let mut world = World::sound();
    world.stores.name(fid(2, 1), b"rival", fid(2, 6), S_IFREG);
    world.stores.inode(fid(2, 1), S_IFDIR, (2, 3 + 5), Fid::ROOT);
    let layout = Layout::plain(base(2, 5), 1 << 20, 2);
    world.stores.of(fid(2, 6)).put(Table::Layouts, fid(2, 6).to_key(), layout.encode());
    let flags = (S_IFREG, AttrFlags::empty(), INODE_HAS_LAYOUT);
    world.stores.inode_with(fid(2, 6), flags, (1, 0), fid(2, 1));
    assert_eq!(world.rules(), ["shared-object"]);
    let text = format!("object {} belongs to several files", base(2, 5));
    assert!(world.mend(false).starts_with(&text));
}

#[test]
fn an_mdt_of_an_operation_that_is_not_there_is_found() {
    let mut world = World::sound();
    world.stores.record(1, fid(2, 5));
    let images = world.images();
    let found = check(&System::new(&images[..2], &[]));
    let is_it = |finding: &&Finding| finding.rule == Rule::AbsentPartner;
    let texts: Vec<&str> = found.iter().filter(is_it).map(|it| &it.text[..]).collect();
    assert_eq!(texts, ["operation 0x7 of MDT 1 has a part at MDT 2, which is not there"]);
}

/// Keys of all records that are there, but of `Meta`.
fn records(stores: &Stores) -> Vec<(usize, Table, Vec<u8>)> {
    let mut all = std::collections::BTreeSet::new();
    for (mdt, set) in stores.0.iter().enumerate() {
        for (table, key, value) in set.changes.iter().filter(|(table, ..)| *table != Table::Meta) {
            match value {
                Some(_) => drop(all.insert((mdt, *table, key.clone()))),
                None => drop(all.remove(&(mdt, *table, key.clone()))),
            }
        }
    }
    all.into_iter().collect()
}

#[test]
fn any_two_records_may_be_lost_and_other_files_keep_their_names() {
    let all = records(&World::rich().stores);
    for (first, one) in all.iter().enumerate() {
        for other in &all[first..] {
            let mut world = World::rich();
            for (mdt, table, key) in [one, other] {
                world.stores.0[*mdt].delete(*table, key.clone());
            }
            let rules = world.rules().join(" ");
            let left = world.mend(true);
            assert_eq!(left, "", "{one:?} {other:?}: {rules}");
            let touched = |file: Fid| {
                [one, other].iter().any(|(_, _, key)| {
                    let key_of = |at: usize| key.get(at..).and_then(Fid::from_key);
                    [key_of(0), key_of(16)].contains(&Some(file))
                })
            };
            for (file, path) in [(fid(1, 1), "b"), (fid(2, 1), "c")] {
                assert!(touched(file) || touched(Fid::ROOT) || world.path(file) == path);
            }
        }
    }
}

/// MDT 1 had a directory. One file had its only name there, and another one has a second name on
/// MDT 2. Nothing is made on MDT 1.
#[test]
fn what_a_forgotten_mdt_had_goes_and_files_of_other_mdts_stay() {
    let mut world = World::sound();
    world.stores.name(fid(1, 1), b"only", fid(2, 6), S_IFREG);
    world.stores.inode(fid(2, 6), S_IFREG, (1, 0), fid(1, 1));
    world.forgotten = Some(1);
    let images = world.images();
    let system = System::new(&images, &world.osts);
    assert!(system.absent().is_empty() && system.stands_against_repair().is_none());
    let before = world.stores.0[1].changes.len();
    let rules = world.mended();
    assert!(rules.contains("dangling-name") && rules.contains("lost-name"), "{rules}");
    assert_eq!(world.stores.0[1].changes.len(), before, "no change of MDT 1");
    assert_eq!(world.path(fid(2, 5)), "c/two");
    assert!(world.path(fid(2, 6)).contains(LOST_FOUND), "{}", world.path(fid(2, 6)));
}

#[test]
fn a_shard_of_a_forgotten_mdt_is_missed_and_not_made_again() {
    let mut world = World::rich();
    world.forgotten = Some(1);
    let left = world.mend(false);
    assert!(left.contains("which is not a shard of it"), "{left}");
}

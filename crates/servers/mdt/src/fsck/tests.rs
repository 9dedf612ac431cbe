//! Damage made by hand: each rule finds it.

mod live;
mod mends;

use layout::dir::Stripes;
use osd::{Table, WriteSet};
use types::{FID_FIRST_NORMAL_SEQ, FID_SEQUENCES_PER_MDT_BITS, Fid, Timespec};
use wire::Attr;
use wire::attr::{AttrFlags, S_IFDIR};
use wire::updates::{self, Named, OpId, Part, Record, Update};

use super::*;
use crate::ids::{encode_place, first_sequences};
use crate::keys::{self, LMV};
use crate::record::{DirentRecord, INODE_ORPHAN, Inode};

const S_IFREG: u32 = 0o100_000;

/// File `oid` of MDT `mdt`.
fn fid(mdt: u64, oid: u32) -> Fid {
    Fid::new(FID_FIRST_NORMAL_SEQ + (mdt << FID_SEQUENCES_PER_MDT_BITS), oid)
}

/// The stores of some MDTs. Each file is (MDT, number).
struct Stores(Vec<WriteSet>);

impl Stores {
    /// The root and a directory on each of the three MDTs, entered into the root, with files
    /// between the second and the third of them.
    fn sound() -> Stores {
        let mut stores = Stores((0..3).map(|_| WriteSet::new()).collect());
        stores.inode(Fid::ROOT, S_IFDIR, (2 + 3, 3), Fid::ROOT);
        for mdt in 0..3 {
            stores.start(mdt);
            stores.inode(fid(mdt, 1), S_IFDIR, (2, 0), Fid::ROOT);
            stores.name(Fid::ROOT, &[b'a' + mdt as u8], fid(mdt, 1), S_IFDIR);
        }
        stores.inode(fid(1, 1), S_IFDIR, (2, 8), Fid::ROOT);
        stores.inode(fid(2, 5), S_IFREG, (2, 0), fid(2, 1));
        stores.inode(fid(2, 1), S_IFDIR, (2, 3), Fid::ROOT);
        stores.name(fid(1, 1), b"far-file", fid(2, 5), S_IFREG);
        stores.name(fid(2, 1), b"two", fid(2, 5), S_IFREG);
        stores
    }

    /// What a start stores.
    fn start(&mut self, mdt: u64) {
        let (files, objects) = first_sequences(mdt as u32);
        let set = &mut self.0[mdt as usize];
        set.put(Table::Meta, keys::META_HASH_KEY, [7; 16]);
        set.put(Table::Meta, keys::META_STORE, (100 + mdt).to_le_bytes());
        set.put(Table::Meta, keys::META_FILE_IDS, encode_place((files, 1_000)));
        set.put(Table::Meta, keys::META_OBJECT_IDS, encode_place((objects, 1_000)));
    }

    fn of(&mut self, fid: Fid) -> &mut WriteSet {
        &mut self.0[fid.mdt_index() as usize]
    }

    fn inode(&mut self, fid: Fid, file_type: u32, (nlink, size): (u32, u64), parent: Fid) {
        self.inode_with(fid, (file_type, AttrFlags::empty(), 0), (nlink, size), parent);
    }

    fn inode_with(
        &mut self,
        fid: Fid,
        (file_type, attr_flags, flags): (u32, AttrFlags, u32),
        (nlink, size): (u32, u64),
        parent: Fid,
    ) {
        let mode = file_type | 0o644;
        let attr = Attr { mode, nlink, size, flags: attr_flags, ..Attr::default() };
        let inode = Inode {
            attr: attr.with_fid(fid),
            flags,
            parent,
            mtime_set: Timespec::default(),
            stripes: layout::StripeSet::default(),
            depth: 0,
            symlink: Vec::new(),
        };
        self.of(fid).put(Table::Inodes, fid.to_key(), inode.encode());
    }

    /// An entry with its back-link.
    fn name(&mut self, dir: Fid, name: &[u8], child: Fid, file_type: u32) {
        self.entry(dir, name, child, file_type);
        self.of(child).put(Table::Links, keys::link(child, dir, cookie(dir, name, child)), name);
    }

    fn entry(&mut self, dir: Fid, name: &[u8], child: Fid, file_type: u32) {
        let record = DirentRecord { fid: child, file_type, name: name.to_vec() };
        let key = keys::dirent(dir, cookie(dir, name, dir));
        self.of(dir).put(Table::Dirents, key, record.encode());
    }

    fn drop_link(&mut self, dir: Fid, name: &[u8], child: Fid) {
        let key = keys::link(child, dir, cookie(dir, name, child));
        self.of(child).delete(Table::Links, key);
    }

    fn drop_entry(&mut self, dir: Fid, name: &[u8]) {
        self.of(dir).delete(Table::Dirents, keys::dirent(dir, cookie(dir, name, dir)));
    }

    /// An operation that is about a file stays undone at one MDT.
    fn record(&mut self, at: u32, about: Fid) {
        let named = Named { fid: about, gets: None, loses: None, links: 0, moves: false };
        let part = |mdt| Part { mdt, updates: vec![Update::Named(named.clone())] };
        let id = OpId { mdt: 1, number: 7 };
        let record =
            Record { id, time: (1, 2), parts: vec![part(1), part(2)], reply: Default::default() };
        self.0[at as usize].put(Table::Updates, id.to_key(), updates::encode(&record));
    }

    fn images(&self) -> Vec<Image> {
        let image = |(index, set): (u32, &WriteSet)| {
            Image::read(index, |wanted| {
                let mut pairs = std::collections::BTreeMap::new();
                for (table, key, value) in &set.changes {
                    if *table == wanted {
                        pairs.insert(key.clone(), value.clone());
                    }
                }
                let there = pairs.into_iter().filter_map(|(key, value)| Some((key, value?)));
                Ok::<_, StoreError>(there.collect::<Vec<Pair>>())
            })
            .expect("a set can be read")
        };
        (0..).zip(&self.0).map(image).collect()
    }

    /// All breaches in one text.
    fn check(&self) -> String {
        all(&self.images()).join("; ")
    }
}

/// On the directory's MDT by the name; elsewhere each MDT has numbers of its own.
fn cookie(dir: Fid, name: &[u8], at: Fid) -> u64 {
    let own = name.iter().fold(1, |sum, byte| sum * 31 + u64::from(*byte)) << 16;
    if dir.mdt_index() == at.mdt_index() { own } else { 3 }
}

/// The text of the only breach after `damage`.
fn after(damage: impl FnOnce(&mut Stores)) -> String {
    let mut stores = Stores::sound();
    damage(&mut stores);
    stores.check()
}

#[test]
fn sound_stores_have_no_breach_and_nothing_left() {
    let stores = Stores::sound();
    assert_eq!(stores.check(), "");
    assert_eq!(left(&stores.images()), Vec::<String>::new());
}

#[test]
fn an_inode_without_a_name_and_an_orphan_without_an_inode_are_breaches() {
    let text = after(|stores| {
        stores.inode(fid(1, 9), S_IFREG, (1, 0), Fid::ROOT);
        stores.of(fid(1, 8)).put(Table::Orphans, fid(1, 8).to_key(), [0]);
    });
    assert!(text.contains("has link count 1 and 0 links"), "{text}");
    assert!(text.contains("its orphan record differs"), "{text}");
    assert!(text.contains(&format!("orphan {}, which is not there", fid(1, 8))), "{text}");
    assert_eq!(text.split("; ").count(), 3, "{text}");
}

#[test]
fn an_inode_on_the_wrong_mdt_is_a_breach() {
    let text = after(|stores| {
        let lost = fid(7, 1);
        let attr = Attr { mode: S_IFREG, ..Attr::default() }.with_fid(lost);
        let inode = Inode {
            attr,
            flags: INODE_ORPHAN,
            parent: Fid::ROOT,
            mtime_set: Timespec::default(),
            stripes: layout::StripeSet::default(),
            depth: 0,
            symlink: Vec::new(),
        };
        stores.0[1].put(Table::Inodes, lost.to_key(), inode.encode());
        stores.0[1].put(Table::Orphans, lost.to_key(), [0]);
    });
    assert_eq!(text, format!("MDT 1 has records of {}", fid(7, 1)));
}

#[test]
fn a_name_that_leads_nowhere_is_a_breach() {
    let text = after(|stores| {
        let gone = fid(2, 5);
        stores.of(gone).delete(Table::Inodes, gone.to_key());
        stores.drop_link(fid(2, 1), b"two", gone);
        stores.drop_entry(fid(2, 1), b"two");
        stores.inode(fid(2, 1), S_IFDIR, (2, 0), Fid::ROOT);
        stores.drop_link(fid(1, 1), b"far-file", gone);
    });
    let (dir, gone) = (fid(1, 1), fid(2, 5));
    assert!(text.contains(&format!("an entry of {dir} names {gone} which is on no MDT")), "{text}");
    let unknown = text.contains("does not know its name `far-file`");
    assert!(unknown && text.split("; ").count() == 2, "{text}");
}

#[test]
fn a_name_of_another_type_or_under_another_parent_is_a_breach() {
    let text = after(|stores| {
        stores.entry(fid(1, 1), b"far-file", fid(2, 5), 0o010_000);
        stores.inode(fid(2, 1), S_IFDIR, (2, 3), fid(1, 1));
    });
    assert!(text.contains(&format!("{} has another type than its entry", fid(2, 5))), "{text}");
    let says = format!("{} lies in {} and says {}", fid(2, 1), Fid::ROOT, fid(1, 1));
    assert!(text.contains(&says) && text.split("; ").count() == 2, "{text}");
}

#[test]
fn a_back_link_without_its_name_is_a_breach() {
    let text = after(|stores| {
        stores.drop_entry(fid(1, 1), b"far-file");
        stores.inode(fid(1, 1), S_IFDIR, (2, 0), Fid::ROOT);
    });
    let (file, dir) = (fid(2, 5), fid(1, 1));
    assert_eq!(text, format!("{file} has no name `far-file` in {dir} and says so"));
}

#[test]
fn a_link_count_that_the_names_of_all_mdts_contradict_is_a_breach() {
    let text = after(|stores| stores.inode(fid(2, 5), S_IFREG, (1, 0), fid(2, 1)));
    assert_eq!(text, format!("{} has link count 1 and 2 links", fid(2, 5)));
}

#[test]
fn a_rename_that_left_both_names_or_none_is_a_breach() {
    // the old name stayed on its MDT
    let both = after(|stores| {
        stores.entry(fid(1, 1), b"moved", fid(2, 1), S_IFDIR);
        stores.inode(fid(1, 1), S_IFDIR, (3, 13), Fid::ROOT);
    });
    assert!(both.contains(&format!("directory {} has 2 names", fid(2, 1))), "{both}");
    assert!(both.contains("does not know its name `moved`"), "{both}");
    // the new one never came
    let none = after(|stores| {
        stores.drop_entry(Fid::ROOT, b"c");
        stores.inode(Fid::ROOT, S_IFDIR, (4, 2), Fid::ROOT);
    });
    let text = format!("{} has no name `c` in {} and says so", fid(2, 1), Fid::ROOT);
    assert_eq!(none, text);
}

#[test]
fn directories_that_lie_in_each_other_are_a_breach() {
    let text = after(|stores| {
        // each of two directories gets its name in the other one
        for (at, dir) in [(1, 2), (2, 1)] {
            let name = [b'a' + at as u8];
            stores.drop_entry(Fid::ROOT, &name);
            stores.drop_link(Fid::ROOT, &name, fid(at, 1));
            stores.name(fid(dir, 1), b"loop", fid(at, 1), S_IFDIR);
        }
        stores.inode(Fid::ROOT, S_IFDIR, (3, 1), Fid::ROOT);
        stores.inode(fid(1, 1), S_IFDIR, (3, 12), fid(2, 1));
        stores.inode(fid(2, 1), S_IFDIR, (3, 7), fid(1, 1));
    });
    let lost = |fid: Fid| format!("directory {fid} does not lead to the root");
    assert_eq!(text, [lost(fid(1, 1)), lost(fid(2, 1))].join("; "));
}

#[test]
fn a_shard_is_listed_by_its_directory_and_has_no_name() {
    let shard = |stores: &mut Stores, at: Fid| {
        stores.inode_with(at, (S_IFDIR, AttrFlags::SHARD, 0), (2, 0), fid(0, 1));
    };
    let striped = |stores: &mut Stores, shards: &[Fid]| {
        let stripes =
            Stripes { hash: 4, version: 1, master: 0, shards: shards.to_vec(), leaving: None };
        stores.0[0].put(Table::Xattrs, keys::xattr(fid(0, 1), LMV), stripes.encode());
        stores.inode_with(fid(0, 1), (S_IFDIR, AttrFlags::STRIPED, 0), (2, 0), Fid::ROOT);
    };
    let fine = after(|stores| {
        striped(stores, &[fid(1, 7), fid(2, 7)]);
        shard(stores, fid(1, 7));
        shard(stores, fid(2, 7));
    });
    assert_eq!(fine, "");
    let unlisted = after(|stores| {
        striped(stores, &[fid(1, 7)]);
        shard(stores, fid(1, 7));
        shard(stores, fid(2, 7));
    });
    assert_eq!(
        unlisted,
        format!("{} is a shard of {}, which does not list it", fid(2, 7), fid(0, 1))
    );
    let missing = after(|stores| {
        striped(stores, &[fid(1, 7), fid(2, 7)]);
        shard(stores, fid(1, 7));
    });
    assert_eq!(missing, format!("{} lists {}, which is not a shard of it", fid(0, 1), fid(2, 7)));
    let named = after(|stores| {
        striped(stores, &[fid(2, 1)]);
        stores.inode_with(fid(2, 1), (S_IFDIR, AttrFlags::SHARD, 0), (2, 3), Fid::ROOT);
    });
    assert!(named.contains("is a shard and has a name in"), "{named}");
}

#[test]
fn an_mdt_that_has_nothing_but_an_empty_shard_is_missed() {
    let mut stores = Stores::sound();
    let shards = vec![fid(1, 7), fid(9, 7)];
    let stripes = Stripes { hash: 4, version: 1, master: 0, shards, leaving: None };
    stores.0[0].put(Table::Xattrs, keys::xattr(fid(0, 1), LMV), stripes.encode());
    let absent = System::new(&stores.images(), &[]).absent();
    assert_eq!(absent.into_iter().collect::<Vec<_>>(), [9]);
}

#[test]
fn a_record_of_an_operation_that_is_done_is_a_breach() {
    let mark = |below: u64| {
        move |stores: &mut Stores| {
            stores.record(1, fid(2, 5));
            stores.0[1].put(Table::Meta, keys::of_mdt(keys::META_DONE, 1), below.to_le_bytes());
        }
    };
    assert_eq!(after(mark(7)), "");
    assert_eq!(after(mark(8)), "operation 0x7 of MDT 1 is done and has a record");
}

#[test]
fn an_operation_that_is_not_done_explains_what_differs_and_is_left() {
    let damage = |stores: &mut Stores| {
        stores.drop_entry(fid(1, 1), b"far-file");
        stores.inode(fid(1, 1), S_IFDIR, (2, 0), Fid::ROOT);
    };
    let mut stores = Stores::sound();
    damage(&mut stores);
    stores.record(1, fid(2, 5));
    assert_eq!(stores.check(), "");
    let left = left(&stores.images());
    assert_eq!(left, ["MDT 1 keeps operation 0x7 of MDT 1 with [2]"]);
    let other = after(|stores| {
        damage(stores);
        stores.record(1, fid(2, 9));
    });
    assert!(other.contains("and says so"), "another file's operation: {other}");
}

#[test]
fn a_record_under_another_key_or_of_other_mdts_is_a_breach() {
    let text = after(|stores| stores.record(0, fid(2, 5)));
    assert!(text.contains("no operation under"), "{text}");
}

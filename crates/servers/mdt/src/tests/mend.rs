//! Damage made by hand is mended while the MDT serves, and sound records stay.

use ldlm::grants::ChangeId;
use osd::Table;
use target::OpError;
use types::{Errno, Fid, Timespec};
use wire::attr::{S_IFDIR, S_IFREG};

use super::rig::Rig;
use crate::attempt::{OwnAttempt, OwnCaller};
use crate::cross::Crossing;
use crate::fsck::Suspect;
use crate::mend::{self, Done};
use crate::op::Op;
use crate::record::{DirentRecord, Inode};

fn mend(rig: &Rig, suspect: &Suspect) -> Result<Done, Errno> {
    for _ in 0..4 {
        let caller = OwnCaller {
            now: Timespec::new(2_000, 0),
            clock: rig.instant.get(),
            change: ChangeId(1),
            crossing: &Crossing::default(),
            heard: &|_| None,
        };
        let decide = |op: &mut Op<'_, '_>| mend::decide(op, suspect);
        match rig.engine.attempt_own(&caller, &decide, &|| rig.next_own()) {
            Ok(OwnAttempt::Done(done, None)) => return Ok(done),
            Ok(_) => panic!("nothing is in its way, and no other MDT has a part"),
            Err(OpError::CommitFirst) => rig.commit(),
            Err(OpError::LeasedUntil(end)) => rig.instant.set(end),
            Err(OpError::Refused(errno)) => return Err(errno),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("one commit and one lease are all that it waits for");
}

/// A directory with a file and a directory in it: their FIDs.
fn tree(rig: &mut Rig) -> (Fid, Fid, Fid) {
    let dir = rig.create(Fid::ROOT, "dir", S_IFDIR | 0o755, None).expect("made").attr.fid();
    let file = rig.create(dir, "file", S_IFREG | 0o644, None).expect("made").attr.fid();
    let sub = rig.create(dir, "sub", S_IFDIR | 0o755, None).expect("made").attr.fid();
    rig.commit();
    assert_eq!(rig.store.fsck(), Vec::<String>::new());
    (dir, file, sub)
}

/// Records of a table that `wanted` finds change, or go.
fn damage(
    rig: &Rig,
    table: Table,
    wanted: impl Fn(&[u8], &[u8]) -> bool,
    change: impl Fn(Vec<u8>) -> Option<Vec<u8>>,
) {
    let found = rig.store.table(table).into_iter().filter(|(key, value)| wanted(key, value));
    let mut image = rig.store.running.borrow_mut();
    for (key, value) in found.collect::<Vec<_>>() {
        match change(value) {
            Some(value) => image.insert((table, key), value),
            None => image.remove(&(table, key)),
        };
    }
}

fn of(fid: Fid) -> impl Fn(&[u8], &[u8]) -> bool {
    move |key, _| key.starts_with(&fid.to_key())
}

fn named(name: &'static str) -> impl Fn(&[u8], &[u8]) -> bool {
    move |_, value| DirentRecord::decode(value).is_some_and(|it| it.name == name.as_bytes())
}

fn name(dir: Fid, name: &str) -> Suspect {
    Suspect::Name { dir, name: name.as_bytes().to_vec() }
}

#[test]
fn what_is_right_is_left_alone() {
    let mut rig = Rig::new();
    let (dir, file, sub) = tree(&mut rig);
    let before = rig.store.running.borrow().clone();
    for suspect in [Fid::ROOT, dir, file, sub].map(Suspect::Counts) {
        assert_eq!(mend(&rig, &suspect), Ok(None), "{suspect:?}");
    }
    for suspect in [name(dir, "file"), name(dir, "sub"), name(dir, "none"), name(file, "file")] {
        assert_eq!(mend(&rig, &suspect), Ok(None), "{suspect:?}");
    }
    assert!(*rig.store.running.borrow() == before, "no record has changed");
    let far = Fid::new(dir.seq + (1 << types::FID_SEQUENCES_PER_MDT_BITS), 1);
    assert_eq!(mend(&rig, &Suspect::Counts(far)), Err(Errno::EINVAL), "of another MDT");
}

#[test]
fn counts_become_those_of_the_names() {
    let mut rig = Rig::new();
    let (dir, file, _) = tree(&mut rig);
    for (fid, nlink) in [(file, 9), (dir, 7)] {
        damage(&rig, Table::Inodes, of(fid), |value| {
            let mut inode = Inode::decode(&value).expect("an inode");
            inode.attr.nlink = nlink;
            inode.attr.size = if fid == dir { u64::MAX } else { inode.attr.size };
            Some(inode.encode())
        });
        assert_ne!(rig.store.fsck(), Vec::<String>::new());
        assert_eq!(mend(&rig, &Suspect::Counts(fid)), Ok(Some("set the count")));
        assert_eq!(rig.store.fsck(), Vec::<String>::new());
    }
    let told = rig.getattr(dir).expect("there").0.attr;
    assert_eq!((told.nlink, told.size), (3, 7));
}

#[test]
fn a_name_that_leads_nowhere_goes_unless_something_says_what_it_was() {
    let mut rig = Rig::new();
    let (dir, file, sub) = tree(&mut rig);
    for fid in [file, sub] {
        damage(&rig, Table::Inodes, of(fid), |_| None);
    }
    assert_eq!(mend(&rig, &name(dir, "sub")), Ok(Some("removed the name")));
    assert_eq!(rig.lookup(dir, "sub").err(), Some(Errno::ENOENT));
    assert_eq!(mend(&rig, &name(dir, "file")), Ok(None), "its layout is there");
    damage(&rig, Table::Layouts, of(file), |_| None);
    assert_eq!(mend(&rig, &name(dir, "file")), Ok(Some("removed the name")));
    assert_eq!(rig.store.fsck(), Vec::<String>::new());
}

#[test]
fn a_file_learns_of_its_name_and_an_entry_of_its_type() {
    let mut rig = Rig::new();
    let (dir, file, _) = tree(&mut rig);
    damage(&rig, Table::Links, of(file), |_| None);
    assert_eq!(mend(&rig, &name(dir, "file")), Ok(Some("added the name to the file")));
    assert_eq!(rig.store.fsck(), Vec::<String>::new());
    damage(&rig, Table::Dirents, named("file"), |value| {
        let record = DirentRecord::decode(&value).expect("an entry");
        Some(DirentRecord { file_type: S_IFDIR, ..record }.encode())
    });
    assert_eq!(mend(&rig, &name(dir, "file")), Ok(Some("set the type")));
    assert_eq!(rig.store.fsck(), Vec::<String>::new());
}

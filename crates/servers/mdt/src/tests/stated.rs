//! Opens for reading that are no changes, and their handles after a restart.

use osd::Table;
use types::{ClientId, Creds, Errno, Fid};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{
    AttrRep, CloseFlags, CloseReq, OpenReq, OpenWord, ReaddirReq, SetattrFlags, SetattrReq,
    UnlinkReq,
};
use wire::{Attr, Opcode, Reply, Request, encode_body};

use super::rig::{Done, Rig};
use crate::op::stated;

const MAKER: u128 = 1;
const READER: u128 = 2;
const O_TRUNC: u32 = 0o1000;

/// An MDT with one file that the maker has just made.
fn with_a_file() -> (Rig, Fid) {
    let mut rig = Rig::new();
    rig.client = MAKER;
    let made = rig.create(Fid::ROOT, "f", S_IFREG | 0o644, None).expect("room");
    (rig, made.attr.fid())
}

/// Opens as a client that states its handles again. Returns the transno too.
fn open(rig: &mut Rig, fid: Fid, open_flags: u32) -> (OpenWord, u64) {
    let body = OpenReq { fid: fid.into(), open_flags, restates: 1, ..OpenReq::default() };
    let reply = rig.call(Opcode::MdtOpen, &body, &[]).expect("root may");
    let AttrRep { attr, handle, stripes, .. } = reply.body();
    let seal = if attr.is_dir() { u32::try_from(stripes).expect("a seal") } else { 0 };
    (OpenWord { fid: fid.into(), handle, open_flags, seal }, reply.header.transno)
}

fn close(rig: &mut Rig, open: &OpenWord, flags: CloseFlags, atime: i64) {
    let body = CloseReq { fid: open.fid, handle: open.handle, flags, atime, ..CloseReq::default() };
    rig.call(Opcode::MdtClose, &body, &[]).expect("it is open");
}

fn state(rig: &Rig, client: u128, words: &[OpenWord]) {
    stated::take(&rig.engine, (ClientId(client), 1), words).expect("the store works");
}

fn count(rig: &Rig) -> usize {
    rig.engine.state.borrow().opens.len()
}

#[test]
fn an_open_for_reading_changes_no_record() {
    let (mut rig, fid) = with_a_file();
    let before = rig.store.running.borrow().clone();
    let (word, transno) = open(&mut rig, fid, 0);
    assert!(transno == 0 && *rig.store.running.borrow() == before);
    assert!(rig.engine.state.borrow().opens.get(word.handle).is_some());
    for flags in [1, 2, O_TRUNC] {
        assert_ne!(open(&mut rig, fid, flags).1, 0, "{flags:o}");
    }
    let changes = rig.history.len();
    rig.open(fid, 0).expect("root may");
    assert_eq!(rig.history.len(), changes + 1, "an older client has nothing but its replay");
}

/// Else the death of both would leave the handle without its file.
#[test]
fn an_open_for_reading_waits_for_the_commit_of_another_clients_file() {
    let (mut rig, fid) = with_a_file();
    let before = rig.committed.get();
    rig.client = READER;
    open(&mut rig, fid, 0);
    assert!(rig.committed.get() > before);
}

#[test]
fn a_file_without_a_name_stays_for_a_handle_that_is_stated() {
    for is_stated in [true, false] {
        let (mut rig, fid) = with_a_file();
        rig.client = READER;
        let (word, _) = open(&mut rig, fid, 0);
        rig.client = MAKER;
        let body = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
        rig.call(Opcode::MdtUnlink, &body, &[b"f"]).expect("it is there");
        rig.commit();
        rig.crash();
        if is_stated {
            state(&rig, READER, &[word]);
            state(&rig, READER, &[word]); // its link broke before the answer
        }
        rig.recovered();
        assert_eq!(count(&rig), usize::from(is_stated));
        assert_eq!(rig.store.table(Table::Inodes).len(), 1 + usize::from(is_stated));
        if is_stated {
            rig.client = READER;
            close(&mut rig, &word, CloseFlags::empty(), 0);
            assert_eq!(rig.store.table(Table::Inodes).len(), 1);
        }
    }
}

#[test]
fn no_handle_is_taken_that_its_client_cannot_have() {
    let (mut rig, fid) = with_a_file();
    rig.client = READER;
    let (word, _) = open(&mut rig, fid, 0);
    let (closed, _) = open(&mut rig, fid, 0);
    rig.commit();
    rig.crash();
    rig.engine.state.borrow_mut().closed.insert(closed.handle); // a stored reply says so
    let wrong = [
        closed,
        OpenWord { handle: 0, ..word },
        OpenWord { handle: 7, ..word },
        OpenWord { handle: word.handle + (1 << 32), ..word }, // of this run
        OpenWord { handle: u64::MAX, ..word },
        OpenWord { open_flags: 2, ..word },
        OpenWord { fid: Fid::new(fid.seq, fid.oid + 1).into(), ..word },
    ];
    state(&rig, READER, &wrong);
    assert_eq!(count(&rig), 0);
    state(&rig, READER, &[word]);
    state(&rig, MAKER, &[word]);
    let owner = rig.engine.state.borrow().opens.get(word.handle).map(|open| open.client);
    assert_eq!((count(&rig), owner), (1, Some(ClientId(READER))));
}

#[test]
fn the_replay_of_a_close_brings_the_access_time_back_without_its_handle() {
    let (mut rig, fid) = with_a_file();
    let (word, _) = open(&mut rig, fid, 0);
    rig.commit();
    close(&mut rig, &word, CloseFlags::ATIME, 9_000);
    rig.crash();
    let replayed = rig.replay(|done| done.request.opcode() == Opcode::MdtClose);
    assert!(matches!(&replayed[..], [(_, Ok(_))]));
    rig.recovered();
    assert_eq!(count(&rig), 0);
    assert_eq!(rig.getattr(fid).expect("it has a name").0.attr.atime().sec, 9_000);
}

fn user() -> Creds {
    Creds { uid: 1_000, gid: 1_000, ..Creds::root() }
}

/// A reader has opened a directory that it may not list any more. The MDT has restarted since.
fn with_an_open_directory() -> (Rig, OpenWord) {
    let mut rig = Rig::new();
    rig.client = MAKER;
    let dir = rig.create(Fid::ROOT, "d", S_IFDIR | 0o755, None).expect("room").attr.fid();
    (rig.client, rig.creds) = (READER, user());
    let (word, _) = open(&mut rig, dir, 0);
    (rig.client, rig.creds) = (MAKER, Creds::root());
    let attr = Attr { mode: 0o700, ..Attr::default() }.with_fid(dir);
    let chmod = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
    rig.call(Opcode::MdtSetattr, &chmod, &[]).expect("root may");
    (rig.client, rig.creds) = (READER, user());
    assert_eq!(refusal(&mut rig, &word), None, "it is open");
    rig.commit();
    rig.crash();
    (rig, word)
}

/// Why the directory of this handle is not listed.
fn refusal(rig: &mut Rig, open: &OpenWord) -> Option<Errno> {
    let body = ReaddirReq { fid: open.fid, ..ReaddirReq::default() };
    rig.call(Opcode::MdtReaddir, &body, &[]).err()
}

/// What a client states beside a handle.
enum Seal {
    Right,
    None,
    Wrong,
}

#[test]
fn a_directory_is_listed_after_a_restart_by_a_handle_that_was_given_alone() {
    let none_is_of_an_older_mdt = [
        (Seal::Right, 1, None),
        (Seal::None, 1, Some(Errno::EACCES)),
        (Seal::Wrong, 0, Some(Errno::EACCES)),
    ];
    for (seal, handles, refused) in none_is_of_an_older_mdt {
        let (mut rig, word) = with_an_open_directory();
        let seal = match seal {
            Seal::Right => word.seal,
            Seal::None => 0,
            Seal::Wrong => word.seal ^ 4,
        };
        state(&rig, READER, &[OpenWord { seal, ..word }]);
        rig.recovered();
        assert_eq!((count(&rig), refusal(&mut rig, &word)), (handles, refused));
    }
}

#[test]
fn the_replay_of_an_open_that_never_was_lists_no_directory() {
    let replay = |stripes: fn(u32) -> u64| {
        let (mut rig, word) = with_an_open_directory();
        let body = OpenReq { fid: word.fid, ..OpenReq::default() };
        let request = Request::new(Opcode::MdtOpen, vec![encode_body(&body)]);
        let attr = Attr::default().with_fid(word.fid.into());
        let stripes = stripes(word.seal);
        let told = AttrRep { attr, handle: word.handle, stripes, ..AttrRep::default() };
        let mut reply = Reply::ok(&request.header, vec![encode_body(&told)]);
        reply.header.transno = rig.engine.state.borrow().boot_committed.0;
        rig.history = vec![Done { client: READER, request, reply, creds: user() }];
        let answer = rig.replay(|_| true).remove(0).1;
        rig.recovered();
        let seal = answer.map(|reply| reply.body::<AttrRep>().stripes);
        (seal, count(&rig), refusal(&mut rig, &word))
    };
    assert_eq!(replay(|_| 0), (Ok(0), 1, Some(Errno::EACCES)));
    assert_eq!(replay(|seal| u64::from(seal ^ 4)), (Err(Errno::EPROTO), 0, Some(Errno::EACCES)));
    let (seal, handles, refused) = replay(u64::from);
    assert!(seal.is_ok_and(|seal| seal != 0));
    assert_eq!((handles, refused), (1, None));
}

#[test]
fn an_open_that_asks_for_no_leave_to_read_lists_no_directory() {
    let mut rig = Rig::new();
    rig.client = MAKER;
    let dir = rig.create(Fid::ROOT, "d", S_IFDIR | 0o711, None).expect("room").attr.fid();
    (rig.client, rig.creds) = (READER, user());
    for flags in [3, 0o40] {
        let (word, _) = open(&mut rig, dir, flags);
        assert_eq!((word.seal, refusal(&mut rig, &word)), (0, Some(Errno::EACCES)), "{flags:o}");
    }
}

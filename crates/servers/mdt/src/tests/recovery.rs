//! Restarts: committed changes are there, replays bring the rest back exactly, and every planted
//! bug is noticed.

use std::collections::BTreeMap;

use osd::Table;
use types::{Creds, Errno, Fid, SplitMix64};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{CloseFlags, CloseReq, LinkReq, RenameReq, SetattrFlags, SetattrReq, UnlinkReq};
use wire::{Attr, Opcode, SizeState};

use super::rig::Rig;
use super::store::Image;
use crate::Bugs;

/// Tables that a replay must bring back byte for byte.
const EXACT: [Table; 6] =
    [Table::Inodes, Table::Dirents, Table::Links, Table::Xattrs, Table::Orphans, Table::Layouts];

fn image(rig: &Rig) -> Image {
    rig.store
        .running
        .borrow()
        .iter()
        .filter(|((table, _), _)| EXACT.contains(table))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

fn differences(before: &Image, after: &Image) -> Vec<String> {
    let keys: BTreeMap<_, ()> =
        before.keys().chain(after.keys()).map(|key| (key.clone(), ())).collect();
    keys.into_keys()
        .filter(|key| before.get(key) != after.get(key))
        .map(|(table, key)| format!("{table:?} {key:02x?}"))
        .collect()
}

struct World {
    rig: Rig,
    dirs: Vec<Fid>,
    files: Vec<Fid>,
    open: Vec<(u64, u64, Fid)>,
    trouble: Vec<String>,
    chance: SplitMix64,
}

impl World {
    fn new(bugs: Bugs, seed: u64) -> World {
        World {
            rig: Rig::with_bugs(bugs),
            dirs: vec![Fid::ROOT],
            files: Vec::new(),
            open: Vec::new(),
            trouble: Vec::new(),
            chance: SplitMix64::new(seed),
        }
    }

    fn random(&mut self, bound: usize) -> usize {
        self.chance.below(bound as u64) as usize
    }

    fn any_dir(&mut self) -> Fid {
        let place = self.random(self.dirs.len());
        self.dirs[place]
    }

    fn any_file(&mut self) -> Fid {
        let place = self.random(self.files.len());
        self.files[place]
    }

    /// One operation that may fail; what fails is not in history.
    fn step(&mut self) {
        let dir = self.any_dir();
        let name = format!("n{}", self.random(6));
        match self.random(12) {
            0 => {
                if let Ok(rep) = self.rig.create(dir, &name, S_IFDIR | 0o755, None) {
                    self.dirs.push(rep.attr.fid());
                }
            }
            1 | 2 => {
                if let Ok(rep) = self.rig.create(dir, &name, S_IFREG | 0o644, Some(2)) {
                    self.files.push(rep.attr.fid());
                    self.open.push((rep.handle, rep.write_epoch, rep.attr.fid()));
                }
            }
            3 => {
                let body =
                    UnlinkReq { parent: dir.into(), is_dir: self.random(2) as u32, reserved: 0 };
                let _ = self.rig.call(Opcode::MdtUnlink, &body, &[name.as_bytes()]);
            }
            4 => {
                let (to, new_name) = (self.any_dir(), format!("n{}", self.random(6)));
                let body =
                    RenameReq { parent: dir.into(), new_parent: to.into(), ..RenameReq::default() };
                let _ = self.rig.call(
                    Opcode::MdtRename,
                    &body,
                    &[name.as_bytes(), new_name.as_bytes()],
                );
            }
            5 if !self.files.is_empty() => {
                let fid = self.any_file();
                let attr =
                    Attr { mode: self.random(0o777) as u32, ..Attr::default() }.with_fid(fid);
                let body = SetattrReq {
                    attr,
                    valid: SetattrFlags::MODE | SetattrFlags::MTIME_NOW,
                    ..SetattrReq::default()
                };
                let _ = self.rig.call(Opcode::MdtSetattr, &body, &[]);
            }
            6 if !self.files.is_empty() => {
                let fid = self.any_file();
                if let Ok(rep) = self.rig.open(fid, 1) {
                    self.open.push((rep.handle, rep.write_epoch, fid));
                }
            }
            10 if !self.files.is_empty() => {
                let attr = Attr { size: 7 * self.random(2) as u64, ..Attr::default() }
                    .with_fid(self.any_file());
                let body = SetattrReq { attr, valid: SetattrFlags::SIZE, ..SetattrReq::default() };
                let _ = self.rig.call(Opcode::MdtSetattr, &body, &[]);
            }
            8 => {
                if let Ok(rep) = self.rig.tmpfile(dir, S_IFREG | 0o600, 2) {
                    self.files.push(rep.attr.fid());
                    self.open.push((rep.handle, rep.write_epoch, rep.attr.fid()));
                }
            }
            9 if !self.files.is_empty() => {
                let body = LinkReq {
                    fid: self.any_file().into(),
                    parent: dir.into(),
                    ..LinkReq::default()
                };
                let _ = self.rig.call(Opcode::MdtLink, &body, &[name.as_bytes()]);
            }
            7 if !self.open.is_empty() => {
                let place = self.random(self.open.len());
                let (handle, write_epoch, fid) = self.open.swap_remove(place);
                let body = CloseReq {
                    fid: fid.into(),
                    handle,
                    flags: CloseFlags::SIZE | CloseFlags::WROTE,
                    size: self.random(1_000) as u64,
                    stripes: self.random(16) as u64,
                    mtime: self.rig.clock.get(),
                    write_epoch,
                    ..CloseReq::default()
                };
                if let Err(errno) = self.rig.call(Opcode::MdtClose, &body, &[]) {
                    self.trouble.push(format!("close of an open handle fails: {errno:?}"));
                }
            }
            _ => {
                if self.random(4) == 0 {
                    self.rig.commit();
                }
            }
        }
    }

    /// Kills the MDT, lets everybody replay, and tells what is wrong afterwards.
    fn crash_and_compare(&mut self) -> Vec<String> {
        let before = image(&self.rig);
        self.rig.crash();
        let mut bad = std::mem::take(&mut self.trouble);
        for (done, reply) in self.rig.replay(|_| true) {
            if let Err(errno) = reply {
                bad.push(format!("replay of {:?} fails: {errno:?}", done.request.opcode()));
            }
        }
        self.rig.recovered();
        bad.extend(differences(&before, &image(&self.rig)));
        bad.extend(self.rig.store.fsck());
        for (handle, _, _) in &self.open {
            if self.rig.engine.state.borrow().opens.get(*handle).is_none() {
                bad.push("an open handle is gone".to_owned());
            }
        }
        bad
    }
}

fn run(bugs: Bugs, seed: u64) -> Vec<String> {
    let mut world = World::new(bugs, seed);
    let mut bad = Vec::new();
    for _ in 0..3 {
        for _ in 0..60 {
            world.step();
        }
        bad.extend(world.crash_and_compare());
        if !bad.is_empty() {
            break;
        }
    }
    bad
}

#[test]
fn replays_bring_back_exactly_what_was_answered() {
    for seed in 0..60 {
        assert_eq!(run(Bugs::default(), seed), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_replay_gives_an_outsider_no_set_group_id() {
    let mut rig = Rig::new();
    let fid = rig.create(Fid::ROOT, "f", S_IFREG | 0o644, None).expect("create").attr.fid();
    let set = |rig: &mut Rig, attr: Attr, valid| {
        let body = SetattrReq { attr: attr.with_fid(fid), valid, ..SetattrReq::default() };
        rig.call(Opcode::MdtSetattr, &body, &[]).expect("setattr");
    };
    set(
        &mut rig,
        Attr { uid: 5, gid: 50, ..Attr::default() },
        SetattrFlags::UID | SetattrFlags::GID,
    );
    rig.creds = Creds { uid: 5, gid: 5, groups: Vec::new() };
    set(&mut rig, Attr { mode: 0o2755, ..Attr::default() }, SetattrFlags::MODE);
    let before = image(&rig);
    rig.crash();
    assert_eq!(rig.replay(|_| true).into_iter().filter(|(_, reply)| reply.is_err()).count(), 0);
    assert_eq!(differences(&before, &image(&rig)), Vec::<String>::new());
}

#[test]
fn every_planted_bug_of_replay_is_noticed() {
    let plant = |bug| (0..40).any(|seed| !run(Bugs::plant(bug), seed).is_empty());
    assert!(plant("mdt.forget_open_replay"));
    assert!(plant("mdt.replay_draws_new_fid"));
    assert!(plant("mdt.replay_draws_new_time"));
    assert!(plant("mdt.skip_orphan_record"));
    assert!(plant("mdt.ack_before_apply"));
}

#[test]
fn ids_are_not_given_twice_though_nothing_was_committed() {
    let twice = |bugs| {
        let mut rig = Rig::with_bugs(bugs);
        let first = rig.create(Fid::ROOT, "a", S_IFREG | 0o644, None).expect("room").attr.fid();
        rig.crash();
        rig.recovered();
        let second = rig.create(Fid::ROOT, "b", S_IFREG | 0o644, None).expect("room").attr.fid();
        first == second
    };
    assert!(!twice(Bugs::default()));
    assert!(twice(Bugs::plant("mdt.reuse_id_range")), "the planted bug shows");
}

fn read_at(rig: &mut Rig, client: u128, fid: Fid, sec: i64) {
    let attr = Attr { atime: sec, ..Attr::default() }.with_fid(fid);
    let body = SetattrReq { attr, valid: SetattrFlags::READ_AT, ..SetattrReq::default() };
    rig.client = client;
    rig.call(Opcode::MdtSetattr, &body, &[]).expect("it may be read");
}

#[test]
fn an_access_time_makes_nobody_commit() {
    let mut rig = Rig::new();
    let dir = rig.create(Fid::ROOT, "d", S_IFDIR | 0o755, None).expect("room").attr;
    let (fid, before) = (dir.fid(), rig.committed.get());
    read_at(&mut rig, 2, fid, 2_000);
    read_at(&mut rig, 3, fid, 3_000);
    assert_eq!(rig.committed.get(), before, "of a directory that another client has just made");
    assert_eq!(rig.getattr(fid).expect("there").0.attr.atime().sec, 3_000);
}

#[test]
fn an_access_time_of_what_is_lost_is_replayed_without_a_word() {
    let mut rig = Rig::new();
    let dir = rig.create(Fid::ROOT, "d", S_IFDIR | 0o755, None).expect("room").attr;
    read_at(&mut rig, 2, dir.fid(), 2_000);
    rig.crash();
    let replayed = rig.replay(|done| done.client == 2);
    assert!(matches!(&replayed[..], [(_, Ok(_))]), "its maker did not come back");
    rig.client = 2;
    assert_eq!(rig.getattr(dir.fid()).map(drop), Err(Errno::ESTALE));
}

#[test]
fn an_orphan_that_nobody_reopens_goes_with_its_objects() {
    let leak = |bugs| {
        let mut rig = Rig::with_bugs(bugs);
        rig.create(Fid::ROOT, "a", S_IFREG | 0o644, Some(1)).expect("room");
        let body = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
        rig.call(Opcode::MdtUnlink, &body, &[b"a"]).expect("it is there");
        rig.commit();
        rig.crash();
        assert_eq!(rig.store.table(Table::Orphans).len(), 1);
        rig.recovered();
        assert_eq!(rig.store.fsck(), Vec::<String>::new());
        assert_eq!(rig.store.table(Table::Inodes).len(), 1);
        rig.store.table(Table::Destroys).is_empty()
    };
    assert!(!leak(Bugs::default()));
    assert!(leak(Bugs::plant("mdt.forget_destroy_log")), "the planted bug shows");
}

/// Its maker has not heard the answer, and asks again after the restart.
#[test]
fn an_open_that_made_a_file_which_has_gone_is_not_tried_anew() {
    let mut rig = Rig::new();
    rig.create(Fid::ROOT, "f", S_IFREG | 0o644, Some(2)).expect("room");
    rig.tmpfile(Fid::ROOT, S_IFREG | 0o600, 2).expect("room");
    rig.commit();
    rig.crash();
    rig.recovered();
    rig.client = 2;
    let body = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    rig.call(Opcode::MdtUnlink, &body, &[b"f"]).expect("it is there");
    let again = rig.replay(|done| done.client == 1);
    let answers: Vec<_> = again.into_iter().map(|(_, reply)| reply.map(drop)).collect();
    assert_eq!(answers, [Err(Errno::ENOENT), Err(Errno::ESTALE)], "the second one has no name");
}

/// Its client has not heard the answer to the close, and gets the stored one later.
#[test]
fn the_replay_of_an_open_that_is_closed_durably_leaves_the_size_known() {
    let mut rig = Rig::new();
    let fid = rig.create(Fid::ROOT, "f", S_IFREG | 0o644, None).expect("room").attr.fid();
    let opened = rig.open(fid, 1).expect("it is there");
    let close = CloseReq {
        fid: fid.into(),
        handle: opened.handle,
        flags: CloseFlags::SIZE | CloseFlags::WROTE,
        size: 5,
        mtime: rig.clock.get(),
        write_epoch: opened.write_epoch,
        ..CloseReq::default()
    };
    rig.call(Opcode::MdtClose, &close, &[]).expect("it is open");
    rig.commit();
    rig.history.pop().expect("the close, whose answer is lost");
    let attr = Attr { size: 3, ..Attr::default() }.with_fid(fid);
    let old = SetattrReq { attr, valid: SetattrFlags::SIZE_KNOWN, ..SetattrReq::default() };
    rig.call(Opcode::MdtSetattr, &old, &[]).expect("it is passed over, since the size is known");
    rig.crash();
    rig.engine.state.borrow_mut().closed.insert(opened.handle); // the stored reply says so
    let replayed = rig.replay(|_| true);
    let answers: Vec<_> = replayed.into_iter().map(|(_, reply)| reply.map(drop)).collect();
    assert_eq!(answers, [Ok(()), Ok(())], "of the open and the size");
    rig.recovered();
    let now = rig.getattr(fid).expect("it has a name").0.attr;
    assert_eq!((now.size_state(), now.size), (SizeState::Clean, 5));
}

#[test]
fn an_ended_session_leaves_the_size_of_its_files_open() {
    let mut rig = Rig::new();
    let rep = rig.create(Fid::ROOT, "a", S_IFREG | 0o644, Some(1)).expect("room");
    let gone = rig.create(Fid::ROOT, "b", S_IFREG | 0o644, Some(1)).expect("room");
    let body = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    rig.call(Opcode::MdtUnlink, &body, &[b"b"]).expect("it is there");
    let closed = rig.engine.close_session(types::ClientId(1), 1);
    rig.engine.sweep(&closed).expect("the store works");
    assert_eq!(rig.store.fsck(), Vec::<String>::new());
    assert_eq!(rig.getattr(gone.attr.fid()).map(drop), Err(Errno::ESTALE));
    let (now, _) = rig.getattr(rep.attr.fid()).expect("it has a name");
    assert_eq!(now.attr.size_state(), SizeState::Dirty);
    assert!(now.write_epoch > rep.write_epoch, "what the dead client knew is old");
}

#[test]
fn without_commit_on_share_a_missing_client_breaks_replay() {
    let broken = |bugs| {
        let mut rig = Rig::with_bugs(bugs);
        let dir = rig.create(Fid::ROOT, "d", S_IFDIR | 0o777, None).expect("room").attr.fid();
        rig.client = 2;
        rig.create(dir, "f", S_IFREG | 0o644, None).expect("room");
        rig.crash();
        rig.replay(|done| done.client == 2).iter().any(|(_, reply)| reply.is_err())
    };
    assert!(!broken(Bugs::default()));
    assert!(broken(Bugs::plant("mdt.drop_commit_on_share")), "the planted bug shows");
}

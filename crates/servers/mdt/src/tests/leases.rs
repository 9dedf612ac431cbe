//! Which answers come with a lease, and which changes wait for one.

use types::{Errno, Fid, Instant, Span};
use wire::body::{
    AttrRep, CALLED_BACK, CloseReq, DirRep, Disposition, FidReq, LinkReq, LookupReq, OpenReq,
    ReaddirFlags, ReaddirRep, ReaddirReq, RenameReq, SetattrFlags, SetattrReq, SetxattrReq,
    UnlinkReq,
};
use wire::{Attr, Opcode, decode_body, dirent};

use super::rig::Rig;
use crate::grants::SETTLING;
use ldlm::grants::{Bits, HolderId, Mode, TIMED as LEASE, with_skew};

const A: u128 = 1;
const B: u128 = 2;
const O_RDWR: u32 = 2;
/// What a change waits for a grant of the same moment: its span, and what clocks differ.
const WAIT_MS: u64 = 55;

/// Something that B does to A's file.
type Change = fn(&mut Rig, Fid) -> Result<(), Errno>;

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.osts.borrow_mut().truncate(1);
    rig.client = A;
    rig
}

/// Milliseconds that `work` by B waited.
fn waited<T>(rig: &mut Rig, work: impl FnOnce(&mut Rig) -> Result<T, Errno>) -> u64 {
    let (client, before) = (rig.client, rig.instant.get());
    rig.client = B;
    work(rig).expect("nothing but a lease stands against it");
    rig.client = client;
    (rig.instant.get() - before).as_millis()
}

/// A long time later nothing is leased or contended.
fn later(rig: &Rig) {
    rig.instant.set(rig.instant.get() + Span::secs(100));
}

fn pass(rig: &Rig, ms: u64) {
    rig.instant.set(rig.instant.get() + Span::millis(ms));
}

fn look_up(rig: &mut Rig, dir: Fid, name: &str) -> AttrRep {
    let body = LookupReq { parent: dir.into(), ..LookupReq::default() };
    rig.call(Opcode::MdtLookup, &body, &[name.as_bytes()]).expect("it is there").body()
}

fn getattr(rig: &mut Rig, fid: Fid) -> AttrRep {
    rig.call(Opcode::MdtGetattr, &FidReq { fid: fid.into(), ..FidReq::default() }, &[])
        .expect("it is there")
        .body()
}

fn unlink(rig: &mut Rig, dir: Fid, name: &str) -> Result<Option<DirRep>, Errno> {
    let body = UnlinkReq { parent: dir.into(), ..UnlinkReq::default() };
    let reply = rig.call(Opcode::MdtUnlink, &body, &[name.as_bytes()])?;
    Ok(reply.bufs.get(2).map(|buf| decode_body(buf)))
}

fn setattr(rig: &mut Rig, fid: Fid, valid: SetattrFlags) -> Result<AttrRep, Errno> {
    let attr = Attr { mode: 0o640, atime: 5, size: 9, ..Attr::default() }.with_fid(fid);
    Ok(rig
        .call(Opcode::MdtSetattr, &SetattrReq { attr, valid, ..SetattrReq::default() }, &[])?
        .body())
}

fn close(rig: &mut Rig, opened: &AttrRep) {
    let body =
        CloseReq { fid: opened.attr.fid().into(), handle: opened.handle, ..CloseReq::default() };
    rig.call(Opcode::MdtClose, &body, &[]).expect("it is open");
}

#[test]
fn a_lookup_leases_the_file_and_its_name() {
    let mut rig = rig();
    let fid = rig.create(Fid::ROOT, "f", 0o644, None).expect("room").attr.fid();
    later(&rig);
    let ms = LEASE.as_millis() as u32;
    let found = look_up(&mut rig, Fid::ROOT, "f");
    assert_eq!((found.lease_ms, found.name_lease_ms), (ms, ms));
    let found = getattr(&mut rig, fid);
    assert_eq!((found.lease_ms, found.name_lease_ms), (ms, 0));
    pass(&rig, 20);
    assert_eq!(waited(&mut rig, |rig| setattr(rig, fid, SetattrFlags::MODE)), WAIT_MS - 20);
}

/// A listing with leases: how long they are, and the names of the entries that have one.
fn list(rig: &mut Rig, dir: Fid) -> (ReaddirRep, Vec<String>) {
    let body = ReaddirReq { fid: dir.into(), flags: ReaddirFlags::LEASES, ..ReaddirReq::default() };
    let reply = rig.call(Opcode::MdtReaddir, &body, &[]).expect("it can be listed");
    let entries = dirent::decode(&reply.buf(1)).expect("our own bytes");
    let leased = entries.into_iter().filter(|entry| entry.leased);
    let mut names: Vec<String> =
        leased.map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
    names.sort();
    (reply.body(), names)
}

#[test]
fn a_listing_leases_names_and_the_files_whose_size_is_known() {
    let mut rig = rig();
    let dir = rig.create(Fid::ROOT, "d", 0o040_755, None).expect("room").attr.fid();
    let known = rig.create(dir, "known", 0o644, None).expect("room").attr.fid();
    rig.create(dir, "set-user-id", 0o4_755, None).expect("room");
    let written = rig.create(dir, "written", 0o644, Some(O_RDWR)).expect("room");
    let below = rig.create(dir, "below", 0o040_755, None).expect("room").attr.fid();
    later(&rig);
    let ms = LEASE.as_millis() as u32;
    let (page, names) = list(&mut rig, dir);
    assert_eq!((page.lease_ms, page.name_lease_ms), (ms, ms));
    assert_eq!(names, ["below", "known"]);
    pass(&rig, 20);
    assert_eq!(waited(&mut rig, |rig| setattr(rig, known, SetattrFlags::MODE)), WAIT_MS - 20);
    later(&rig);
    list(&mut rig, dir);
    assert_eq!(waited(&mut rig, |rig| unlink(rig, dir, "set-user-id")), WAIT_MS, "it has a name");
    let (page, names) = list(&mut rig, dir);
    assert_eq!((page.name_lease_ms, names.len()), (0, 0), "two clients are after the directory");
    later(&rig);
    rig.recovering = true;
    assert_eq!(list(&mut rig, dir).1.len(), 0, "others may still replay");
    rig.recovering = false;
    let plain = ReaddirReq { fid: dir.into(), ..ReaddirReq::default() };
    rig.call(Opcode::MdtReaddir, &plain, &[]).expect("it can be listed");
    assert_eq!(waited(&mut rig, |rig| setattr(rig, below, SetattrFlags::MODE)), 0, "not asked for");
    close(&mut rig, &written);
}

#[test]
fn a_change_of_attributes_leases_what_it_tells() {
    let mut rig = rig();
    let fid = rig.create(Fid::ROOT, "f", 0o644, None).expect("room").attr.fid();
    later(&rig);
    let told = setattr(&mut rig, fid, SetattrFlags::MODE).expect("it is there");
    assert_eq!(told.lease_ms, LEASE.as_millis() as u32);
    assert_eq!(waited(&mut rig, |rig| setattr(rig, fid, SetattrFlags::MODE)), WAIT_MS);
    let told = setattr(&mut rig, fid, SetattrFlags::READ_AT).expect("it is there");
    assert_eq!(told.lease_ms, 0, "what others do not wait for is not leased");
}

/// Grants to the session of the rig's clients are called back from now on.
fn call_back(rig: &Rig) {
    let (session, now) = (HolderId(1), rig.instant.get());
    let grants = &mut rig.engine.state.borrow_mut().grants;
    grants.set_mode(Mode::Recall);
    grants.recorded(true);
    grants.called.connect(session, now);
    grants.called.set_callbacks(session, true);
}

#[test]
fn a_change_that_the_store_refuses_grants_nothing() {
    let mut rig = rig();
    pass(&rig, 60);
    call_back(&rig);
    let granted = |rig: &Rig| rig.engine.state.borrow().grants.called.count();
    rig.store.full.set(true);
    assert_eq!(rig.create(Fid::ROOT, "f", 0o644, None).err(), Some(Errno::ENOSPC));
    assert_eq!(granted(&rig), 0, "the client was not told of any");
    rig.store.full.set(false);
    let made = rig.create(Fid::ROOT, "f", 0o644, None).expect("room");
    assert_eq!((made.lease_ms, made.name_lease_ms), (CALLED_BACK, CALLED_BACK));
    assert_eq!(granted(&rig), 2, "the file and its directory");
    let held = rig.engine.state.borrow().grants.called.iter().map(|held| held.3.0).max();
    assert_eq!(held, Some(made.grant), "the reply has their number");
}

#[test]
fn an_open_grants_attributes_only_where_the_bytes_of_the_file_may_come_along() {
    let mut rig = rig();
    let fid = rig.create(Fid::ROOT, "f", 0o644, None).expect("room").attr.fid();
    pass(&rig, 60);
    let open = |rig: &mut Rig, open_flags: u32, room: u32| -> u32 {
        let body = OpenReq { fid: fid.into(), open_flags, room, ..OpenReq::default() };
        let reply = rig.call(Opcode::MdtOpen, &body, &[]).expect("it is there");
        reply.body::<AttrRep>().lease_ms
    };
    assert_eq!(open(&mut rig, 0, 9), 0, "not by time");
    call_back(&rig);
    assert_eq!((open(&mut rig, 0, 0), open(&mut rig, 0, 9)), (0, CALLED_BACK));
    assert_eq!(open(&mut rig, O_RDWR, 9), 0);
    assert_eq!(open(&mut rig, 0, 9), 0, "its size is not known any more");
}

#[test]
fn the_data_of_a_file_may_be_kept_while_it_is_open_for_reading_only() {
    let mut rig = rig();
    let fid = rig.create(Fid::ROOT, "f", 0o644, None).expect("room").attr.fid();
    pass(&rig, 60);
    let open = |rig: &mut Rig, open_flags: u32, caches: u32| -> AttrRep {
        let body = OpenReq { fid: fid.into(), open_flags, caches, ..OpenReq::default() };
        rig.call(Opcode::MdtOpen, &body, &[]).expect("it is there").body()
    };
    let keeps = |rig: &mut Rig, open_flags: u32, caches: u32| {
        open(rig, open_flags, caches).disposition.contains(Disposition::CACHE)
    };
    assert!(!keeps(&mut rig, 0, 1), "nothing is called back yet");
    call_back(&rig);
    let held = |rig: &Rig| rig.engine.state.borrow().grants.called.bits_of(HolderId(1), fid);
    assert!(!keeps(&mut rig, 0, 0) && !held(&rig).contains(Bits::CACHE), "no kernel asks");
    assert!(keeps(&mut rig, 0, 1) && held(&rig).contains(Bits::CACHE));
    let (o_trunc, o_direct) = (0o1000, 0o40_000);
    assert!(!keeps(&mut rig, o_direct, 1));
    let writing = open(&mut rig, O_RDWR, 1);
    assert!(!writing.disposition.contains(Disposition::CACHE));
    assert!(!keeps(&mut rig, 0, 1), "a handle may write");
    close(&mut rig, &writing);
    assert!(keeps(&mut rig, 0, 1), "nothing was written");
    open(&mut rig, o_trunc | O_RDWR, 1);
    assert!(!keeps(&mut rig, 0, 1));
}

#[test]
fn whatever_changes_a_file_waits() {
    let changes: [(&str, Change); 6] = [
        ("mode", |rig, fid| setattr(rig, fid, SetattrFlags::MODE).map(drop)),
        ("size", |rig, fid| setattr(rig, fid, SetattrFlags::SIZE).map(drop)),
        ("open for writing", |rig, fid| {
            rig.call(
                Opcode::MdtOpen,
                &OpenReq { fid: fid.into(), open_flags: O_RDWR, ..OpenReq::default() },
                &[],
            )
            .map(drop)
        }),
        ("link", |rig, fid| {
            let body = LinkReq { fid: fid.into(), parent: Fid::ROOT.into(), ..LinkReq::default() };
            rig.call(Opcode::MdtLink, &body, &[b"g"]).map(drop)
        }),
        ("rename", |rig, _| {
            let body = RenameReq {
                parent: Fid::ROOT.into(),
                new_parent: Fid::ROOT.into(),
                ..RenameReq::default()
            };
            rig.call(Opcode::MdtRename, &body, &[b"f", b"g"]).map(drop)
        }),
        ("unlink", |rig, _| unlink(rig, Fid::ROOT, "f").map(drop)),
    ];
    for (what, change) in changes {
        let mut rig = rig();
        let fid = rig.create(Fid::ROOT, "f", 0o644, None).expect("room").attr.fid();
        later(&rig);
        getattr(&mut rig, fid);
        assert_eq!(waited(&mut rig, |rig| change(rig, fid)), WAIT_MS, "{what}");
    }
}

#[test]
fn what_nobody_believes_waits_for_nobody() {
    let mut rig = rig();
    let opened = rig.create(Fid::ROOT, "f", 0o644, Some(O_RDWR)).expect("room");
    later(&rig);
    let fid = opened.attr.fid();
    assert_eq!(getattr(&mut rig, fid).lease_ms, 0, "somebody may be writing");
    assert_eq!(waited(&mut rig, |rig| setattr(rig, fid, SetattrFlags::MODE)), 0);
    close(&mut rig, &opened);
    later(&rig);
    assert!(getattr(&mut rig, fid).lease_ms > 0, "nothing was written");
    assert_eq!(
        waited(&mut rig, |rig| setattr(rig, fid, SetattrFlags::READ_AT)),
        0,
        "access times are late in any case"
    );
    assert_eq!(waited(&mut rig, |rig| rig.open(fid, 0)), 0);
    setattr(&mut rig, fid, SetattrFlags::MODE).expect("its holder's own change");
    let suid = rig.create(Fid::ROOT, "s", 0o4755, None).expect("room").attr.fid();
    assert_eq!(getattr(&mut rig, suid).lease_ms, 0, "a write takes the bit away");
}

#[test]
fn a_new_file_is_its_makers_until_another_one_wants_to_write() {
    let mut rig = rig();
    let opened = rig.create(Fid::ROOT, "f", 0o644, Some(O_RDWR)).expect("room");
    assert!(opened.lease_ms > 0 && opened.name_lease_ms > 0);
    assert_eq!(waited(&mut rig, |rig| rig.open(opened.attr.fid(), O_RDWR)), WAIT_MS);
}

#[test]
fn a_create_and_an_unlink_tell_of_the_directory() {
    let mut rig = rig();
    let dir = rig.create(Fid::ROOT, "d", 0o040_755, None).expect("room").attr.fid();
    rig.create(dir, "f", 0o644, None).expect("room");
    let told = unlink(&mut rig, dir, "f").expect("it is there").expect("nobody else is after it");
    let attr = getattr(&mut rig, dir).attr;
    assert_eq!((told.attr, u64::from(told.lease_ms)), (attr, LEASE.as_millis()));
    assert_eq!(attr.version, rig.history.last().expect("the unlink").reply.header.transno);
}

#[test]
fn what_two_clients_are_after_is_not_leased_again() {
    let mut rig = rig();
    let dir = rig.create(Fid::ROOT, "d", 0o040_755, None).expect("room").attr.fid();
    let files: Vec<_> = (0..3)
        .map(|i| rig.create(dir, &format!("f{i}"), 0o644, None).expect("room").attr.fid())
        .collect();
    later(&rig);
    getattr(&mut rig, files[0]);
    assert_eq!(waited(&mut rig, |rig| setattr(rig, files[0], SetattrFlags::MODE)), WAIT_MS);
    for fid in &files {
        assert_eq!(
            getattr(&mut rig, *fid).lease_ms,
            0,
            "a client that takes over from another waits once, not for each file"
        );
    }
    assert_eq!(look_up(&mut rig, dir, "f1").name_lease_ms, 0);
    pass(&rig, 31_000);
    assert!(getattr(&mut rig, files[1]).lease_ms > 0);
}

#[test]
fn what_is_made_where_two_clients_are_is_not_contended_itself() {
    let mut rig = rig();
    assert!(getattr(&mut rig, Fid::ROOT).lease_ms > 0);
    let mut made = None;
    let wait = waited(&mut rig, |rig| {
        made = Some(rig.create(Fid::ROOT, "d", 0o040_755, None)?.attr.fid());
        Ok(())
    });
    assert_eq!(wait, WAIT_MS);
    assert!(getattr(&mut rig, made.expect("it was made")).lease_ms > 0);
}

#[test]
fn nothing_is_leased_while_others_may_still_replay() {
    let mut rig = rig();
    rig.create(Fid::ROOT, "f", 0o644, None).expect("room");
    rig.commit();
    rig.crash();
    rig.instant.set(Instant::default() + with_skew(LEASE));
    assert_eq!(look_up(&mut rig, Fid::ROOT, "f").lease_ms, 0);
    rig.recovered();
    assert!(look_up(&mut rig, Fid::ROOT, "f").lease_ms > 0);
}

#[test]
fn a_name_that_its_holder_moves_is_believed_where_it_came_to() {
    let mut rig = rig();
    let dirs = ["from", "to"]
        .map(|name| rig.create(Fid::ROOT, name, 0o040_755, None).expect("room").attr.fid());
    let opened = rig.create(dirs[0], "f", 0o644, Some(O_RDWR)).expect("room");
    later(&rig);
    // two clients are after the new place, and the file itself is not leased while it is written
    rig.create(dirs[1], "x", 0o644, None).expect("room");
    waited(&mut rig, |rig| unlink(rig, dirs[1], "x"));
    let found = look_up(&mut rig, dirs[0], "f");
    assert_eq!((found.lease_ms, u64::from(found.name_lease_ms)), (0, LEASE.as_millis()));
    let body =
        RenameReq { parent: dirs[0].into(), new_parent: dirs[1].into(), ..RenameReq::default() };
    rig.call(Opcode::MdtRename, &body, &[b"f", b"g"]).expect("its own");
    assert_eq!(waited(&mut rig, |rig| unlink(rig, dirs[1], "g")), WAIT_MS);
    close(&mut rig, &opened);
}

#[test]
fn files_with_lost_names_or_access_lists_are_not_leased() {
    let mut rig = rig();
    let fid = rig.create(Fid::ROOT, "f", 0o644, None).expect("room").attr.fid();
    let body = LinkReq { fid: fid.into(), parent: Fid::ROOT.into(), ..LinkReq::default() };
    rig.call(Opcode::MdtLink, &body, &[b"g"]).expect("room");
    assert!(getattr(&mut rig, fid).lease_ms > 0);
    unlink(&mut rig, Fid::ROOT, "g").expect("it is there");
    assert_eq!(getattr(&mut rig, fid).lease_ms, 0, "the kernel of who removes it counts by itself");
    pass(&rig, SETTLING.as_millis());
    assert!(getattr(&mut rig, fid).lease_ms > 0, "it has counted");
    let listed = rig.create(Fid::ROOT, "l", 0o644, None).expect("room").attr.fid();
    assert!(getattr(&mut rig, listed).lease_ms > 0);
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 4, 7),
        (4, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        acl.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    let body = SetxattrReq { fid: listed.into(), ..SetxattrReq::default() };
    rig.call(Opcode::MdtSetxattr, &body, &[b"system.posix_acl_access", &acl]).expect("a good list");
    later(&rig);
    assert_eq!(getattr(&mut rig, listed).lease_ms, 0);
}

#[test]
fn a_directory_that_got_an_attribute_is_leased_again_after_a_moment() {
    let mut rig = rig();
    let dir = rig.create(Fid::ROOT, "d", 0o040_755, None).expect("room").attr.fid();
    later(&rig);
    let body = SetxattrReq { fid: dir.into(), ..SetxattrReq::default() };
    rig.call(Opcode::MdtSetxattr, &body, &[b"user.tag", b"x"]).expect("room");
    assert_eq!(getattr(&mut rig, dir).lease_ms, 0, "its changer's kernel goes by its own copy");
    pass(&rig, SETTLING.as_millis());
    assert!(getattr(&mut rig, dir).lease_ms > 0, "`cp -a` and then `ls` are soon fast");
}

#[test]
fn a_change_that_a_full_store_refuses_leaves_no_lease_behind() {
    let mut rig = rig();
    rig.create(Fid::ROOT, "f", 0o644, None).expect("room");
    later(&rig);
    rig.store.full.set(true);
    let before = rig.engine.state.borrow().grants.len();
    assert_eq!(rig.create(Fid::ROOT, "g", 0o644, None).expect_err("no room"), Errno::ENOSPC);
    assert_eq!(rig.engine.state.borrow().grants.len(), before);
    rig.store.full.set(false);
    assert_eq!(waited(&mut rig, |rig| unlink(rig, Fid::ROOT, "f")), 0, "A was refused");
    later(&rig);
    rig.create(Fid::ROOT, "g", 0o644, None).expect("room");
    assert_eq!(waited(&mut rig, |rig| unlink(rig, Fid::ROOT, "g")), WAIT_MS, "A was answered");
}

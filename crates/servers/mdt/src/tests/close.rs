//! Closes: the values that they hand over, and their state after a crash. Names as requests carry
//! them.

use types::{Errno, Fid, Timespec};
use wire::attr::S_IFREG;
use wire::body::{AttrRep, CloseFlags, CloseReq, ReaddirReq, SetattrFlags, SetattrReq};
use wire::{Attr, Opcode, Request, SizeState, encode_body};

use super::rig::Rig;
use crate::op;

const O_RDWR: u32 = 2;

fn close(rig: &mut Rig, opened: &AttrRep, flags: CloseFlags, mtime: i64) -> Result<(), Errno> {
    let body = CloseReq {
        fid: opened.attr.fid().into(),
        handle: opened.handle,
        flags,
        size: 5,
        mtime,
        write_epoch: opened.write_epoch,
        ..CloseReq::default()
    };
    rig.call(Opcode::MdtClose, &body, &[]).map(drop)
}

#[test]
fn a_close_tells_a_time_with_a_size_and_not_before_one_that_was_set() {
    let mut rig = Rig::new();
    let made = rig.create(Fid::ROOT, "f", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    let fid = made.attr.fid();
    let both = CloseFlags::WROTE | CloseFlags::SIZE;
    let mtime = |rig: &mut Rig| rig.getattr(fid).expect("there").0.attr.mtime();
    close(&mut rig, &made, both, 50_000).expect("closed");
    assert_eq!(mtime(&mut rig), Timespec::new(50_000, 0));

    let again = rig.open(fid, O_RDWR).expect("opened");
    close(&mut rig, &again, CloseFlags::WROTE, 60_000).expect("closed");
    assert_eq!(mtime(&mut rig), Timespec::new(50_000, 0), "without a size the objects know it");

    let mut attr = Attr::default().with_fid(fid);
    attr.set_mtime(Timespec::new(1_234, 0));
    let at = rig.clock.get() + 6;
    attr.set_btime(Timespec::new(at, 0)); // the clock of who sets it, a little ahead
    let body = SetattrReq { attr, valid: SetattrFlags::MTIME, ..SetattrReq::default() };
    rig.call(Opcode::MdtSetattr, &body, &[]).expect("set");
    for (told, shown) in [(at - 1, 1_234), (at, at)] {
        let again = rig.open(fid, O_RDWR).expect("opened");
        close(&mut rig, &again, both, told).expect("closed");
        assert_eq!(mtime(&mut rig), Timespec::new(shown, 0), "{told}");
    }
}

/// Else a full file system would use up the ids: only what is applied reserves more.
#[test]
fn a_create_that_is_refused_uses_up_no_ids() {
    let mut rig = Rig::new();
    let ids = |rig: &Rig| {
        let state = rig.engine.state.borrow();
        (state.files.clone(), state.objects.clone())
    };
    let before = ids(&rig);
    let create = |rig: &mut Rig| rig.create(Fid::ROOT, "f", S_IFREG | 0o644, Some(O_RDWR));
    rig.store.full.set(true);
    assert_eq!(create(&mut rig).err(), Some(Errno::ENOSPC));
    assert_eq!(ids(&rig), before);
    rig.store.full.set(false);
    let osts = rig.osts.take();
    create(&mut rig).expect_err("there is no OST");
    assert_eq!(ids(&rig), before);
    rig.osts.replace(osts);
    create(&mut rig).expect("made");
    assert_ne!(ids(&rig), before);
}

/// Who cuts is not stored. The one that does so states its lock again.
#[test]
fn after_a_restart_no_size_counts_while_another_session_holds_the_files_lock() {
    let mut rig = Rig::new();
    let made = rig.create(Fid::ROOT, "f", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    let fid = made.attr.fid();
    close(&mut rig, &made, CloseFlags::WROTE, 0).expect("closed");
    rig.commit();
    rig.client = 2;
    let cut = SetattrReq {
        attr: Attr { size: 3, ..Attr::default() }.with_fid(fid),
        valid: SetattrFlags::SIZE,
        ..SetattrReq::default()
    };
    rig.call(Opcode::MdtSetattr, &cut, &[]).expect("cut");
    rig.commit();
    rig.crash();
    rig.recovered();

    rig.client = 1;
    let is_dirty =
        |rig: &mut Rig| rig.getattr(fid).expect("there").0.attr.size_state() == SizeState::Dirty;
    let tell = |rig: &mut Rig, size| {
        let body = SetattrReq {
            attr: Attr { size, ..Attr::default() }.with_fid(fid),
            valid: SetattrFlags::SIZE_KNOWN,
            write_epoch: rig.getattr(fid).expect("there").0.write_epoch,
            ..SetattrReq::default()
        };
        rig.call(Opcode::MdtSetattr, &body, &[]).expect("heard");
        is_dirty(rig)
    };
    rig.locked.set(true);
    assert!(tell(&mut rig, 5), "as the objects were before");
    let written = CloseFlags::WROTE | CloseFlags::SIZE;
    let opened = rig.open(fid, O_RDWR).expect("opened");
    close(&mut rig, &opened, written, 0).expect("closed");
    assert!(is_dirty(&mut rig), "nor at a close");
    rig.locked.set(false);
    assert!(!tell(&mut rig, 3));
}

#[test]
fn a_replayed_close_of_what_is_not_there_is_no_error() {
    let mut rig = Rig::new();
    let kept = rig.create(Fid::ROOT, "kept", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    rig.commit();
    let gone = rig.create(Fid::ROOT, "gone", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    for opened in [&kept, &gone] {
        close(&mut rig, opened, CloseFlags::empty(), 0).expect("closed");
        assert_eq!(close(&mut rig, opened, CloseFlags::empty(), 0), Err(Errno::EBADF));
    }
    rig.crash();
    let replayed = rig.replay(|done| done.request.opcode() == Opcode::MdtClose);
    let told: Vec<bool> = replayed
        .iter()
        .map(|(_, outcome)| !outcome.as_ref().expect("nothing is lost by it").buf(0).is_empty())
        .collect();
    assert_eq!(told, [true, false], "of the file that is there");
}

#[test]
fn a_name_has_no_slash_no_nul_and_255_bytes_at_most() {
    let mut rig = Rig::new();
    let mut make = |name: &str| rig.create(Fid::ROOT, name, S_IFREG | 0o644, None).map(drop);
    for (name, outcome) in [
        ("a/b", Err(Errno::EINVAL)),
        ("/", Err(Errno::EINVAL)),
        ("a\0b", Err(Errno::EINVAL)),
        (".", Err(Errno::EINVAL)),
        ("..", Err(Errno::EINVAL)),
        ("", Err(Errno::ENOENT)),
        ("...", Ok(())),
    ] {
        assert_eq!(make(name), outcome, "{name:?}");
    }
    assert_eq!(make(&"n".repeat(255)), Ok(()));
    assert_eq!(make(&"n".repeat(256)), Err(Errno::ENAMETOOLONG));
}

#[test]
fn room_for_an_answer_is_as_much_as_it_may_take() {
    let of = |opcode| {
        let body = ReaddirReq { bytes_max: 8_192, ..ReaddirReq::default() };
        op::answer_bytes(&Request::new(opcode, vec![encode_body(&body)]))
    };
    assert_eq!(of(Opcode::MdtGetattr), 0);
    assert_eq!(of(Opcode::MdtReaddir), 8_192);
    assert_eq!(of(Opcode::MdtGetxattr), crate::limits::XATTR_VALUE_BYTES_MAX as u64);
    assert_eq!(of(Opcode::MdtListxattr), crate::limits::XATTR_LIST_BYTES_MAX as u64);
    assert_eq!(of(Opcode::MdtFid2path), crate::limits::FID2PATH_BYTES_MAX as u64);
}

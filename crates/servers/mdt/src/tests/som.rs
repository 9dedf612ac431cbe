//! Sizes that the MDT finds out itself: which files it asks for, and the changes that come in
//! between.

use types::{ClientId, Fid, Timespec};
use wire::attr::S_IFREG;
use wire::body::{AttrRep, CloseFlags, CloseReq, OstAttr, SetattrFlags, SetattrReq};
use wire::{Attr, Opcode, SizeState};

use super::rig::Rig;
use crate::fences::Lapsed;
use crate::som::{SizeLooked as Looked, SizeVerdict as Verdict};

const O_RDWR: u32 = 2;
const O_TRUNC: u32 = 0o1000;

/// Closes what was written, with a size of 5 bytes or without one.
fn close(rig: &mut Rig, opened: &AttrRep, with_size: bool) {
    let body = CloseReq {
        fid: opened.attr.fid().into(),
        handle: opened.handle,
        flags: CloseFlags::WROTE | CloseFlags::SIZE.when(with_size),
        size: 5,
        write_epoch: opened.write_epoch,
        ..CloseReq::default()
    };
    rig.call(Opcode::MdtClose, &body, &[]).expect("closed");
}

fn make(rig: &mut Rig) -> AttrRep {
    rig.create(Fid::ROOT, "f", S_IFREG | 0o644, Some(O_RDWR)).expect("made")
}

/// A file whose only writer has closed it and not told a size.
fn left_dirty(rig: &mut Rig) -> Fid {
    let made = make(rig);
    close(rig, &made, false);
    made.attr.fid()
}

/// What the MDT does about a file.
fn look(rig: &Rig, fid: Fid) -> Looked {
    rig.engine.look_at_size(fid, false).expect("it can be read")
}

/// What becomes of the file if its object has nine bytes.
fn settle(rig: &Rig, fid: Fid, looked: &Looked) -> Verdict {
    let Looked::Ask(asked) = looked else { panic!("its object is asked: {looked:?}") };
    let object = OstAttr { exists: 1, size: 9, blocks: 8, mtime: 70_000, ..OstAttr::default() };
    let settled = rig.engine.settle_size(fid, (asked, &[object]), false, &|| rig.own_transno());
    settled.expect("it can be written")
}

fn attr(rig: &mut Rig, fid: Fid) -> Attr {
    rig.getattr(fid).expect("it is there").0.attr
}

/// How many files wait to be looked at.
fn queued(rig: &Rig) -> u64 {
    rig.engine.state.borrow().som.status().get("queued").expect("a number")
}

#[test]
fn the_size_of_a_file_that_was_left_dirty_is_recorded() {
    let mut rig = Rig::new();
    let fid = left_dirty(&mut rig);
    let before = attr(&mut rig, fid);
    assert_eq!(before.size_state(), SizeState::Dirty);
    let looked = look(&rig, fid);
    assert!(matches!(settle(&rig, fid, &looked), Verdict::Known(_)));
    let after = attr(&mut rig, fid);
    assert_eq!((after.size_state(), after.size, after.blocks), (SizeState::Clean, 9, 8));
    assert_eq!(after.mtime(), Timespec::new(70_000, 0));
    assert!(after.version > before.version, "it has a place in history");
    assert_eq!(settle(&rig, fid, &looked), Verdict::Settled, "once more");
    rig.commit();
    rig.crash();
    rig.recovered();
    assert_eq!(attr(&mut rig, fid).size_state(), SizeState::Clean);
}

#[test]
fn a_crash_before_the_commit_leaves_the_file_dirty() {
    let mut rig = Rig::new();
    let fid = left_dirty(&mut rig);
    rig.commit();
    settle(&rig, fid, &look(&rig, fid));
    rig.crash();
    rig.recovered();
    assert_eq!(attr(&mut rig, fid).size_state(), SizeState::Dirty);
    assert!(matches!(look(&rig, fid), Looked::Ask(_)), "the scrub finds it");
}

#[test]
fn a_writer_that_opens_in_between_wins() {
    let mut rig = Rig::new();
    let fid = left_dirty(&mut rig);
    let looked = look(&rig, fid);
    let opened = rig.open(fid, O_RDWR).expect("opened");
    assert_eq!(settle(&rig, fid, &looked), Verdict::Written);
    assert!(matches!(look(&rig, fid), Looked::Over(Verdict::Written)));
    assert_eq!(attr(&mut rig, fid).size_state(), SizeState::Dirty);
    close(&mut rig, &opened, false);
    assert_eq!(settle(&rig, fid, &looked), Verdict::Later, "the answer is from before");
    assert_eq!(attr(&mut rig, fid).size_state(), SizeState::Dirty);
    let again = look(&rig, fid);
    assert!(matches!(settle(&rig, fid, &again), Verdict::Known(_)));
}

#[test]
fn the_size_that_a_writer_in_between_tells_stays() {
    let mut rig = Rig::new();
    let fid = left_dirty(&mut rig);
    let looked = look(&rig, fid);
    let opened = rig.open(fid, O_RDWR).expect("opened");
    close(&mut rig, &opened, true);
    assert_eq!(settle(&rig, fid, &looked), Verdict::Settled);
    let now = attr(&mut rig, fid);
    assert_eq!((now.size_state(), now.size), (SizeState::Clean, 5));
}

#[test]
fn a_file_that_is_cut_waits_for_the_end_of_that() {
    let mut rig = Rig::new();
    let fid = left_dirty(&mut rig);
    let looked = look(&rig, fid);
    let attr = Attr { size: 3, ..Attr::default() }.with_fid(fid);
    let body = SetattrReq { attr, valid: SetattrFlags::SIZE, ..SetattrReq::default() };
    rig.call(Opcode::MdtSetattr, &body, &[]).expect("cut");
    assert_eq!(settle(&rig, fid, &looked), Verdict::Later);
    assert!(matches!(look(&rig, fid), Looked::Over(Verdict::Later)));
    rig.engine.close_session(ClientId(1), 1);
    assert!(matches!(look(&rig, fid), Looked::Ask(_)), "the client is gone");
    assert_eq!(settle(&rig, fid, &looked), Verdict::Later, "the answer is from before");
}

#[test]
fn a_file_that_is_locked_or_may_be_written_unseen_waits() {
    let mut rig = Rig::new();
    let fid = left_dirty(&mut rig);
    let locked = rig.engine.look_at_size(fid, true).expect("it can be read");
    assert!(matches!(locked, Looked::Over(Verdict::Later)));
    let lapsed = Lapsed { client: ClientId(7), session: 7, osts: None };
    rig.engine.state.borrow_mut().fences.begin(&lapsed, true);
    assert!(matches!(look(&rig, fid), Looked::Over(Verdict::Later)), "no OST refuses that client");
    rig.engine.state.borrow_mut().fences.end(7);
    assert!(matches!(look(&rig, fid), Looked::Ask(_)));
}

#[test]
fn files_are_looked_at_when_their_last_writer_leaves_them_dirty() {
    let mut rig = Rig::new();
    let made = make(&mut rig);
    close(&mut rig, &made, true);
    assert_eq!(queued(&rig), 0, "its size is known");
    let fid = made.attr.fid();
    let (one, other) = (rig.open(fid, O_RDWR), rig.open(fid, O_RDWR | O_TRUNC));
    let [one, other] = [one, other].map(|opened| opened.expect("opened"));
    close(&mut rig, &one, false);
    assert_eq!(queued(&rig), 0, "another handle writes");
    close(&mut rig, &other, false);
    assert_eq!(queued(&rig), 1);

    let mut rig = Rig::new();
    make(&mut rig);
    rig.create(Fid::ROOT, "read", S_IFREG | 0o644, Some(0)).expect("made");
    rig.engine.close_session(ClientId(1), 1);
    assert_eq!(queued(&rig), 1, "only what was open for writing");
}

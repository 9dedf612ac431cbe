//! getattr of many files: its answers and grants, and how many of them fit.

use types::{Errno, Fid, Span};
use wire::body::{
    Disposition, GetattrsFlags, GetattrsRep, GetattrsReq, ReaddirRep, ReaddirReq, ReaddirState,
    SetattrFlags, SetattrReq, WireFid,
};
use wire::grants::VECTOR_MAX;
use wire::stats::{self, StatRecord};
use wire::{Attr, Opcode, SizeState, dirent};
use zerocopy::IntoBytes;

use super::rig::Rig;
use ldlm::grants::{TIMED, with_skew};

const O_RDWR: u32 = 2;

fn rig() -> Rig {
    let rig = Rig::new();
    rig.osts.borrow_mut().truncate(1);
    rig
}

fn later(rig: &Rig) {
    rig.instant.set(rig.instant.get() + Span::secs(100));
}

fn ask(rig: &mut Rig, body: GetattrsReq, files: &[u8]) -> Result<Vec<StatRecord>, Errno> {
    let reply = rig.call(Opcode::MdtGetattrs, &body, &[files])?;
    let count = reply.body::<GetattrsRep>().count as usize;
    let records = stats::decode(&reply.buf(1), count).expect("our own bytes");
    assert_eq!(records.len(), count);
    Ok(records)
}

fn by_fids(rig: &mut Rig, fids: &[Fid], flags: GetattrsFlags) -> Vec<StatRecord> {
    let fids: Vec<WireFid> = fids.iter().copied().map(WireFid::from).collect();
    let body = GetattrsReq { count: fids.len() as u32, flags, ..GetattrsReq::default() };
    ask(rig, body, fids.as_bytes()).expect("at least one file")
}

fn by_names(rig: &mut Rig, dir: Fid, names: &[u8]) -> Result<Vec<StatRecord>, Errno> {
    let count = names.iter().filter(|byte| **byte == 0).count() as u32;
    ask(rig, GetattrsReq { parent: dir.into(), count, ..GetattrsReq::default() }, names)
}

fn made(rig: &mut Rig, name: &str, open: Option<u32>) -> Fid {
    rig.create(Fid::ROOT, name, 0o644, open).expect("room").attr.fid()
}

#[test]
fn each_file_has_its_own_answer() {
    let mut rig = rig();
    let (known, dirty) = (made(&mut rig, "known", None), made(&mut rig, "dirty", Some(O_RDWR)));
    later(&rig);
    let absent = Fid { oid: 9_999, ..known };
    let found = by_fids(&mut rig, &[known, absent, dirty], GetattrsFlags::empty());
    let errno = |record: &StatRecord| record.errno;
    let stale = Errno::ESTALE.raw().unsigned_abs();
    assert_eq!(found.iter().map(errno).collect::<Vec<_>>(), [0, stale, 0]);
    assert_eq!((found[0].rep.attr.fid(), found[2].rep.attr.fid()), (known, dirty));
    let ms = TIMED.as_millis() as u32;
    assert_eq!((found[0].rep.lease_ms, found[0].rep.name_lease_ms), (ms, 0));
    assert_eq!(found[2].rep.lease_ms, 0, "its size is not known");
    assert_eq!(found[2].rep.attr.size_state(), SizeState::Dirty);
    assert!(found.iter().all(|record| record.layout.is_empty()), "no layout was asked for");
    let found = by_fids(&mut rig, &[known, dirty], GetattrsFlags::LAYOUTS);
    assert!(found[0].layout.is_empty(), "its size is known");
    assert!(layout::Striping::decode(dirty, &found[1].layout).is_ok());
    assert_ne!(found[1].rep.write_epoch, 0);
}

/// Its records come from a slow disk.
#[test]
fn an_answer_that_takes_long_ends_and_the_next_one_goes_on() {
    let mut rig = rig();
    let files = ["a", "b", "c"].map(|name| made(&mut rig, name, None));
    rig.is_slow.set(true);
    assert_eq!(by_fids(&mut rig, &files, GetattrsFlags::empty()).len(), 1);
    assert_eq!(by_names(&mut rig, Fid::ROOT, b"a\0b\0").expect("a directory").len(), 1);
    let (mut cookie, mut names) = (0, Vec::new());
    loop {
        let body = ReaddirReq { fid: Fid::ROOT.into(), cookie, ..ReaddirReq::default() };
        let reply = rig.call(Opcode::MdtReaddir, &body, &[]).expect("a directory");
        let head: ReaddirRep = reply.body();
        let entries = dirent::decode(&reply.buf(1)).expect("our own bytes");
        assert!(entries.len() <= 1, "one record takes long enough");
        cookie = entries.last().map_or(cookie, |entry| entry.cookie);
        names.extend(entries.into_iter().map(|entry| entry.name));
        if head.at_end.contains(ReaddirState::AT_END) {
            break;
        }
        assert!(names.len() <= files.len(), "it comes to an end");
    }
    names.sort();
    assert_eq!(names, [b"a", b"b", b"c"]);
}

#[test]
fn names_are_granted_with_their_files() {
    let mut rig = rig();
    let known = made(&mut rig, "known", None);
    later(&rig);
    let found = by_names(&mut rig, Fid::ROOT, b"known\0absent\0a/b\0").expect("a directory");
    let errno = |record: &StatRecord| record.errno;
    let refused = [Errno::ENOENT, Errno::EINVAL].map(|errno| errno.raw().unsigned_abs());
    assert_eq!(found.iter().map(errno).collect::<Vec<_>>(), [0, refused[0], refused[1]]);
    let ms = TIMED.as_millis() as u32;
    assert_eq!((found[0].rep.lease_ms, found[0].rep.name_lease_ms), (ms, ms));
    assert!(!found[0].rep.disposition.contains(Disposition::REMOTE));
    assert_eq!(by_names(&mut rig, known, b"x\0").err(), Some(Errno::ENOTDIR));
    let before = rig.instant.get();
    let attr = Attr { mode: 0o600, ..Attr::default() }.with_fid(known);
    let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
    rig.client += 1;
    rig.call(Opcode::MdtSetattr, &body, &[]).expect("it is there");
    assert_eq!(rig.instant.get() - before, with_skew(TIMED), "a change by another client waits");
}

#[test]
fn an_answer_has_the_first_files_that_fit() {
    let mut rig = rig();
    let fids: Vec<Fid> = (0..5).map(|at| made(&mut rig, &format!("f{at}"), None)).collect();
    let fids: Vec<WireFid> = fids.into_iter().map(WireFid::from).collect();
    let mut answered = |count: u32, bytes_max: u32| {
        let body = GetattrsReq { count, bytes_max, ..GetattrsReq::default() };
        ask(&mut rig, body, fids.as_bytes()).map(|records| records.len())
    };
    let each = stats::encoded_len(0) as u32;
    assert_eq!(answered(5, 0), Ok(5));
    assert_eq!(answered(5, 3 * each + 1), Ok(3));
    assert_eq!(answered(5, 1), Ok(1), "one is always answered");
    assert_eq!(answered(2, 0), Ok(2));
    assert_eq!(answered(u32::MAX, 0), Ok(5));
    assert_eq!(answered(0, 0), Err(Errno::EINVAL));
}

#[test]
fn a_request_is_about_as_many_files_as_one_question_to_a_writer() {
    let mut rig = rig();
    let known = made(&mut rig, "known", None);
    let absent = |oid: u32| Fid { oid: 1_000_000 + oid, ..known };
    let fids: Vec<Fid> = (0..=VECTOR_MAX as u32).map(absent).collect();
    let found = by_fids(&mut rig, &fids, GetattrsFlags::empty());
    assert_eq!(found.len(), VECTOR_MAX, "the others are asked for again");
}

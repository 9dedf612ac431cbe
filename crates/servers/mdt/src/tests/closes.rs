//! Closes of several files in one request: the result of each, which ones cannot go together, and
//! their state after a crash.

use osd::Table;
use types::{Errno, Fid};
use wire::attr::S_IFREG;
use wire::body::{
    AttrRep, CLOSES_MAX, CloseFlags, CloseReq, ClosesRep, ClosesReq, SetxattrReq, UnlinkReq,
};
use wire::stats::{self, StatRecord};
use wire::updates::OpId;
use wire::{Opcode, Reply, SizeState};
use zerocopy::IntoBytes;

use super::rig::Rig;
use crate::limits::CLOSES_CHANGES_MAX;
use crate::share::ShareKey;

const O_RDWR: u32 = 2;

fn make(rig: &mut Rig, name: &str) -> AttrRep {
    rig.create(Fid::ROOT, name, S_IFREG | 0o644, Some(O_RDWR)).expect("made")
}

/// A close that hands this size over.
fn sized(opened: &AttrRep, size: u64) -> CloseReq {
    CloseReq {
        fid: opened.attr.fid().into(),
        handle: opened.handle,
        flags: CloseFlags::WROTE | CloseFlags::SIZE,
        size,
        write_epoch: opened.write_epoch,
        ..CloseReq::default()
    }
}

fn close(rig: &mut Rig, closes: &[CloseReq]) -> Result<Reply, Errno> {
    let body = ClosesReq { count: closes.len() as u32, ..ClosesReq::default() };
    rig.call(Opcode::MdtCloses, &body, &[closes.as_bytes()])
}

fn records(reply: &Reply) -> Vec<StatRecord> {
    let records = stats::decode(&reply.buf(1), CLOSES_MAX).expect("records");
    assert_eq!(reply.body::<ClosesRep>().count as usize, records.len());
    records
}

fn size(rig: &mut Rig, fid: Fid) -> Option<u64> {
    let attr = rig.getattr(fid).expect("there").0.attr;
    (attr.size_state() == SizeState::Clean).then_some(attr.size)
}

fn handles(rig: &Rig) -> usize {
    rig.engine.state.borrow().opens.len()
}

/// The errno of a handle that is not known, as records have it.
fn unknown() -> u32 {
    Errno::EBADF.raw().unsigned_abs()
}

#[test]
fn closes_of_several_files_are_one_change_and_each_has_its_answer() {
    let mut rig = Rig::new();
    let [a, b] = ["a", "b"].map(|name| make(&mut rig, name));
    let stranger = CloseReq { handle: 7, ..sized(&a, 1) };
    let reply = close(&mut rig, &[sized(&a, 5), stranger, sized(&b, 6)]).expect("closed");
    let told = records(&reply);
    let errnos: Vec<u32> = told.iter().map(|record| record.errno).collect();
    assert_eq!(errnos, [0, unknown(), 0]);
    assert_eq!((told[0].rep.attr.size, told[2].rep.attr.size), (5, 6));
    assert_eq!((told[0].rep.handle, told[2].rep.handle), (a.handle, b.handle));
    for record in [&told[0], &told[2]] {
        assert_eq!(record.rep.attr.version, reply.header.transno, "it names the change");
    }
    assert_eq!(size(&mut rig, a.attr.fid()), Some(5));
    assert_eq!(size(&mut rig, b.attr.fid()), Some(6));
    assert_eq!(handles(&rig), 0);
}

#[test]
fn the_answer_about_a_file_is_that_of_a_close_by_itself() {
    let mut rig = Rig::new();
    let [a, b] = ["a", "b"].map(|name| make(&mut rig, name));
    let alone: AttrRep = rig.call(Opcode::MdtClose, &sized(&a, 5), &[]).expect("closed").body();
    let reply = close(&mut rig, &[sized(&b, 5)]).expect("closed");
    let mut together = records(&reply).remove(0).rep;
    assert!(together.handle != alone.handle && together.attr.fid() != alone.attr.fid());
    together.handle = alone.handle;
    together.write_epoch = alone.write_epoch; // each open draws its own
    together.mtime_set = alone.mtime_set; // it was made later
    let kept = together.attr;
    together.attr = alone.attr;
    assert_eq!(together.as_bytes(), alone.as_bytes());
    assert_eq!(
        (kept.size, kept.size_state, kept.mode),
        (5, alone.attr.size_state, alone.attr.mode)
    );
}

#[test]
fn what_cannot_go_together_changes_nothing() {
    let mut rig = Rig::new();
    let a = make(&mut rig, "a");
    let again = rig.open(a.attr.fid(), O_RDWR).expect("opened");
    let b = make(&mut rig, "b");
    let before = rig.store.running.borrow().clone();
    let mut check = |closes: &[CloseReq], errno| {
        assert_eq!(close(&mut rig, closes).map(drop), Err(errno));
        assert!(*rig.store.running.borrow() == before && handles(&rig) == 3);
    };
    check(&[sized(&a, 5), sized(&b, 5), sized(&again, 5)], Errno::EAGAIN);
    check(&[], Errno::EINVAL);
    check(&vec![sized(&b, 5); CLOSES_MAX + 1], Errno::EINVAL);
    let body = ClosesReq { count: 2, ..ClosesReq::default() };
    let one = sized(&b, 5);
    let lies = rig.call(Opcode::MdtCloses, &body, &[one.as_bytes()]);
    assert_eq!(lies.map(drop), Err(Errno::EINVAL), "it says two");
}

#[test]
fn a_file_that_another_mdt_has_reserved_keeps_no_other_close_waiting() {
    let mut rig = Rig::new();
    let [a, b] = ["a", "b"].map(|name| make(&mut rig, name));
    let op = OpId { mdt: 1, number: 1 };
    let claim = (ShareKey::Inode(a.attr.fid()), true);
    assert!(rig.engine.state.borrow_mut().crossed.reserved.reserve(op, &[claim]));
    let both = [sized(&a, 5), sized(&b, 6)];
    assert_eq!(close(&mut rig, &both).map(drop), Err(Errno::EAGAIN));
    assert_eq!(handles(&rig), 2);
    assert!(rig.engine.state.borrow_mut().crossed.reserved.release(op));
    close(&mut rig, &both).expect("closed");
    assert_eq!(handles(&rig), 0);
}

/// The reserve of a full store has room for many short replies, and not for many long ones.
#[test]
fn on_a_full_store_each_close_goes_by_itself() {
    let mut rig = Rig::new();
    let [a, b] = ["a", "b"].map(|name| make(&mut rig, name));
    rig.store.full.set(true);
    let both = [sized(&a, 5), sized(&b, 6)];
    assert_eq!(close(&mut rig, &both).map(drop), Err(Errno::EAGAIN));
    assert_eq!(handles(&rig), 2);
    for alone in &both {
        rig.call(Opcode::MdtClose, alone, &[]).expect("closed");
    }
    rig.store.full.set(false);
    assert_eq!((size(&mut rig, a.attr.fid()), handles(&rig)), (Some(5), 0));
    assert_eq!(size(&mut rig, b.attr.fid()), Some(6));
}

#[test]
fn files_without_a_name_go_with_the_closes() {
    let mut rig = Rig::new();
    let names = ["a", "b", "c"];
    let made = names.map(|name| make(&mut rig, name));
    let unlink = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    for name in ["a", "c"] {
        rig.call(Opcode::MdtUnlink, &unlink, &[name.as_bytes()]).expect("unlinked");
    }
    assert_eq!(rig.store.table(Table::Orphans).len(), 2);
    close(&mut rig, &made.map(|opened| sized(&opened, 5))).expect("closed");
    assert_eq!(rig.store.table(Table::Orphans).len(), 0);
    assert_eq!(rig.store.table(Table::Destroys).len(), 2, "each has a number of its own");
    assert_eq!(rig.engine.state.borrow().destroy_next, 2);
    assert_eq!(rig.store.fsck(), Vec::<String>::new());
}

#[test]
fn files_without_a_name_that_have_very_many_records_go_one_by_one() {
    let mut rig = Rig::new();
    let [a, b] = ["a", "b"].map(|name| make(&mut rig, name));
    let unlink = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    for (name, opened) in [("a", &a), ("b", &b)] {
        let body = SetxattrReq { fid: opened.attr.fid().into(), ..SetxattrReq::default() };
        for number in 0..CLOSES_CHANGES_MAX / 2 {
            let xattr = format!("user.{number}");
            rig.call(Opcode::MdtSetxattr, &body, &[xattr.as_bytes(), b"1"]).expect("room");
        }
        rig.call(Opcode::MdtUnlink, &unlink, &[name.as_bytes()]).expect("unlinked");
    }
    let both = [sized(&a, 5), sized(&b, 6)];
    assert_eq!(close(&mut rig, &both).map(drop), Err(Errno::EAGAIN));
    assert_eq!((handles(&rig), rig.store.table(Table::Orphans).len()), (2, 2));
    for alone in &both {
        rig.call(Opcode::MdtClose, alone, &[]).expect("closed");
    }
    assert_eq!((handles(&rig), rig.store.table(Table::Orphans).len()), (0, 0));
}

/// All were lost with the crash, or none.
#[test]
fn a_replay_repeats_each_close_as_it_was() {
    for is_durable in [false, true] {
        let mut rig = Rig::new();
        let [a, b] = ["a", "b"].map(|name| make(&mut rig, name));
        rig.commit();
        let stranger = CloseReq { handle: 7, ..sized(&a, 1) };
        close(&mut rig, &[sized(&a, 5), stranger, sized(&b, 6)]).expect("closed");
        if is_durable {
            rig.commit();
        }
        rig.crash();
        let replayed = rig.replay(|_| true);
        assert_eq!(replayed.len(), if is_durable { 0 } else { 3 }, "the opens and the closes");
        for (done, outcome) in &replayed {
            let reply = outcome.as_ref().expect("it is repeated");
            if done.request.opcode() == Opcode::MdtCloses {
                let [first, again] = [&done.reply, reply].map(records);
                let told = |of: &StatRecord| (of.errno, of.rep.handle, of.rep.attr.size);
                assert!(first.iter().map(told).eq(again.iter().map(told)));
            }
        }
        rig.recovered();
        assert_eq!((size(&mut rig, a.attr.fid()), handles(&rig)), (Some(5), 0));
        assert_eq!(size(&mut rig, b.attr.fid()), Some(6));
    }
}

//! Files that are made, or closed, with all of their bytes: the requests that the MDT refuses, and
//! those that a restart repeats.

use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Striping};
use ldlm::grants::{Bits, HolderId};
use osd::Table;
use types::{Errno, Fid, Timespec};
use wire::attr::{S_IFDIR, S_IFLNK, S_IFREG};
use wire::body::{
    AttrRep, CloseFlags, CloseReq, CreateFlags, CreateReq, Disposition, SetattrFlags, SetattrReq,
    StatfsState, UnlinkReq,
};
use wire::{Attr, Opcode, PUT_BYTES_MAX, Reply, SizeState, encode_body};

use super::rig::Rig;
use crate::record::DestroyRecord;

const O_RDWR: u32 = 2;
const BORDER: u64 = 64 << 10;
const ALL: usize = BORDER as usize;

/// A layout whose first bytes are at the MDT.
fn at_mdt() -> Asked {
    let mut parts = CompositeTemplate::striped(0, [(BORDER, 1), (END_OF_FILE, 1)]);
    parts.components[0] = TemplateComponent { end: BORDER, wanted: Wanted::Mdt };
    Asked::Composite(parts)
}

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.recovered();
    rig
}

struct Put<'a> {
    name: &'a str,
    mode: u32,
    flags: CreateFlags,
    striping: Vec<u8>,
    bytes: usize,
}

impl Default for Put<'_> {
    fn default() -> Self {
        let flags = CreateFlags::DATA;
        Put { name: "f", mode: S_IFREG | 0o640, flags, striping: at_mdt().encode(), bytes: 9 }
    }
}

fn put(rig: &mut Rig, what: &Put<'_>) -> Result<Reply, Errno> {
    let body = CreateReq {
        parent: Fid::ROOT.into(),
        mode: what.mode,
        flags: what.flags,
        ..CreateReq::default()
    };
    let bytes = vec![7; what.bytes];
    let bufs: [&[u8]; 4] = [what.name.as_bytes(), b"", &what.striping, &bytes];
    rig.call(Opcode::MdtCreate, &body, &bufs)
}

#[test]
fn a_new_file_has_its_size_and_times_at_once() {
    let mut rig = rig();
    let reply = put(&mut rig, &Put::default()).expect("it fits");
    let told: AttrRep = reply.body();
    assert_eq!((told.handle, rig.engine.state.borrow().opens.len()), (0, 0), "nothing is open");
    assert_eq!((told.attr.size, told.attr.size_state()), (9, SizeState::Clean));
    assert_eq!((told.attr.blocks, told.stripes), (8, 1));
    assert_eq!(told.attr.mtime(), told.attr.ctime());
    let fid = told.attr.fid();
    let Ok(Striping::Layout(layout)) = Striping::decode(fid, &reply.buf(1)) else {
        panic!("a layout")
    };
    assert_eq!(layout.mdt_object(), Some(fid));
    assert_eq!(rig.getattr(fid).expect("there").0.attr.size, 9);
    assert_eq!(rig.store.fsck(), Vec::<String>::new());
}

#[test]
fn bodies_that_no_client_sends_are_refused_and_change_nothing() {
    let mut rig = rig();
    rig.create(Fid::ROOT, "there", S_IFREG | 0o644, None).expect("made");
    let before = rig.store.running.borrow().clone();
    let data = CreateFlags::DATA;
    let plain = Asked::from(layout::Template { stripe_count: 1, ..Default::default() }).encode();
    let cases = [
        (Put { bytes: 0, ..Put::default() }, Errno::EINVAL),
        (Put { bytes: PUT_BYTES_MAX + 1, ..Put::default() }, Errno::EMSGSIZE),
        (Put { bytes: 1 << 22, ..Put::default() }, Errno::EMSGSIZE),
        (Put { flags: data | CreateFlags::OPEN, ..Put::default() }, Errno::EINVAL),
        (Put { flags: data | CreateFlags::NO_LAYOUT, ..Put::default() }, Errno::EINVAL),
        (Put { mode: S_IFDIR | 0o755, ..Put::default() }, Errno::EINVAL),
        (Put { mode: S_IFLNK | 0o777, ..Put::default() }, Errno::EINVAL),
        (Put { striping: plain, ..Put::default() }, Errno::EOPNOTSUPP),
        (Put { striping: Vec::new(), ..Put::default() }, Errno::EOPNOTSUPP),
        (Put { striping: vec![0xff; 40], ..Put::default() }, Errno::EINVAL),
        (Put { name: "there", ..Put::default() }, Errno::EEXIST),
        (Put { name: "a/b", ..Put::default() }, Errno::EINVAL),
    ];
    for (number, (what, errno)) in cases.iter().enumerate() {
        assert_eq!(put(&mut rig, what).err(), Some(*errno), "case {number}");
        assert!(*rig.store.running.borrow() == before, "case {number} changed something");
    }
    rig.creds = types::Creds { uid: 7, gid: 7, groups: Vec::new() };
    assert_eq!(put(&mut rig, &Put::default()).err(), Some(Errno::EACCES));
    assert!(*rig.store.running.borrow() == before);
}

#[test]
fn bytes_behind_the_component_at_the_mdt_are_refused() {
    let mut rig = rig();
    rig.engine.state.borrow_mut().lod.dom_stripesize = 0;
    assert_eq!(put(&mut rig, &Put::default()).err(), Some(Errno::EOPNOTSUPP));
    rig.engine.state.borrow_mut().lod.dom_stripesize = BORDER;
    put(&mut rig, &Put { bytes: ALL, ..Put::default() }).expect("up to the border");
}

#[test]
fn a_replay_makes_the_same_file_and_writes_its_bytes_again() {
    let mut rig = rig();
    let made: AttrRep = put(&mut rig, &Put::default()).expect("it fits").body();
    rig.crash();
    assert!(rig.lookup(Fid::ROOT, "f").is_err(), "its commit is lost");
    let again = rig.replay(|_| true);
    let [(_, Ok(reply))] = &again[..] else { panic!("one replay is executed") };
    let told: AttrRep = reply.body();
    assert_eq!((told.attr.fid(), told.attr.size), (made.attr.fid(), 9));
    assert_eq!((told.attr.ctime(), told.attr.size_state()), (made.attr.ctime(), SizeState::Clean));
    rig.recovered();
    assert_eq!(rig.lookup(Fid::ROOT, "f").expect("there").fid(), made.attr.fid());
    rig.crash();
    assert!(rig.replay(|_| true).is_empty(), "it is durable");
}

#[test]
fn nobody_opens_a_file_whose_bytes_may_have_to_be_written_again() {
    let mut rig = rig();
    let made: AttrRep = put(&mut rig, &Put::default()).expect("it fits").body();
    let before = rig.committed.get();
    rig.getattr(made.attr.fid()).expect("there");
    assert_eq!(rig.committed.get(), before, "to look at it needs no commit");
    rig.open(made.attr.fid(), O_RDWR).expect("there");
    assert!(rig.committed.get() > before, "its own client waits too");
}

#[test]
fn its_removal_logs_its_object() {
    let mut rig = rig();
    let made: AttrRep = put(&mut rig, &Put::default()).expect("it fits").body();
    let body = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    rig.call(Opcode::MdtUnlink, &body, &[b"f"]).expect("its name is there");
    let logged: Vec<_> = rig.store.table(Table::Destroys);
    let records = logged.iter().map(|(_, value)| DestroyRecord::decode(value).expect("a record"));
    let bases: Vec<Fid> = records.map(|record| record.base).collect();
    assert!(bases.contains(&made.attr.fid()), "{bases:?}");
}

/// A new file whose first bytes are at the MDT, open for writing.
fn make_open(rig: &mut Rig, name: &str) -> AttrRep {
    let body = CreateReq {
        parent: Fid::ROOT.into(),
        mode: S_IFREG | 0o640,
        flags: CreateFlags::OPEN,
        open_flags: O_RDWR,
        ..CreateReq::default()
    };
    let striping = at_mdt().encode();
    let bufs: [&[u8]; 3] = [name.as_bytes(), b"", &striping];
    rig.call(Opcode::MdtCreate, &body, &bufs).expect("made").body()
}

/// The close that brings 9 bytes.
fn bringing(opened: &AttrRep) -> CloseReq {
    CloseReq {
        fid: opened.attr.fid().into(),
        handle: opened.handle,
        flags: CloseFlags::WROTE | CloseFlags::DATA,
        size: 9,
        mtime: 50_000,
        write_epoch: opened.write_epoch,
        stripes: 1,
        ..CloseReq::default()
    }
}

fn bring(rig: &mut Rig, body: &CloseReq) -> Result<AttrRep, Errno> {
    rig.call(Opcode::MdtClose, body, &[&[7; 9]]).map(|reply| reply.body())
}

#[test]
fn a_close_brings_all_bytes_of_a_new_file() {
    let mut rig = rig();
    let made = make_open(&mut rig, "f");
    assert!(made.disposition.contains(Disposition::BYTES), "its client may bring them");
    let told = bring(&mut rig, &bringing(&made)).expect("taken");
    assert_eq!((told.attr.size, told.attr.size_state()), (9, SizeState::Clean));
    assert_eq!((told.attr.blocks, told.stripes, told.attr.mtime().sec), (8, 1, 50_000));
    assert_eq!(rig.engine.state.borrow().opens.len(), 0);
    let before = rig.committed.get();
    rig.getattr(made.attr.fid()).expect("there");
    assert_eq!(rig.committed.get(), before, "to look at it needs no commit");
    rig.open(made.attr.fid(), 0).expect("there");
    assert!(rig.committed.get() > before, "its bytes may have to be written again");
    assert_eq!(rig.store.fsck(), Vec::<String>::new());
}

#[test]
fn a_close_whose_bytes_are_not_taken_closes_nothing() {
    let mut rig = rig();
    let made = make_open(&mut rig, "f");
    let good = bringing(&made);
    let wrong = [
        CloseReq { flags: CloseFlags::DATA, ..good },
        CloseReq { flags: good.flags | CloseFlags::SIZE, ..good },
        CloseReq { size: 8, ..good },
    ];
    for body in wrong {
        assert_eq!(bring(&mut rig, &body).err(), Some(Errno::EINVAL), "{:?}", body.flags);
    }
    assert_eq!(rig.call(Opcode::MdtClose, &good, &[]).err(), Some(Errno::EINVAL), "no bytes");
    let old = CloseReq { write_epoch: good.write_epoch + 1_000, ..good };
    assert_eq!(bring(&mut rig, &old).err(), Some(Errno::EOPNOTSUPP), "its size would not count");
    let other = rig.open(made.attr.fid(), 0).expect("opened");
    assert_eq!(bring(&mut rig, &good).err(), Some(Errno::EOPNOTSUPP), "it is open twice");
    let body =
        CloseReq { fid: made.attr.fid().into(), handle: other.handle, ..CloseReq::default() };
    rig.call(Opcode::MdtClose, &body, &[]).expect("closed");
    bring(&mut rig, &good).expect("the handle is still open");

    let removed = make_open(&mut rig, "h");
    let body = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    rig.call(Opcode::MdtUnlink, &body, &[b"h"]).expect("its name is there");
    assert_eq!(bring(&mut rig, &bringing(&removed)).err(), Some(Errno::ENOENT), "it has no name");

    let plain = rig.create(Fid::ROOT, "g", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
    let refused = bring(&mut rig, &bringing(&plain)).err();
    assert_eq!(refused, Some(Errno::EOPNOTSUPP), "its bytes are at an OST");
}

#[test]
fn a_close_with_bytes_is_repeated_after_a_restart() {
    let mut rig = rig();
    let made = make_open(&mut rig, "f");
    rig.commit();
    let told = bring(&mut rig, &bringing(&made)).expect("taken");
    rig.crash();
    let state = rig.getattr(made.attr.fid()).expect("there").0.attr.size_state();
    assert_eq!(state, SizeState::Dirty, "the close is lost");
    let again = rig.replay(|_| true);
    let [_, (_, Ok(reply))] = &again[..] else { panic!("the open and the close are executed") };
    let repeated: AttrRep = reply.body();
    assert_eq!((repeated.attr.size, repeated.attr.mtime()), (9, told.attr.mtime()));
    rig.recovered();
    let (found, _) = rig.getattr(made.attr.fid()).expect("there");
    assert_eq!((found.attr.size, found.attr.size_state()), (9, SizeState::Clean));
    rig.crash();
    let again = rig.replay(|done| done.request.opcode() == Opcode::MdtClose);
    assert!(again.is_empty(), "it is durable");
}

/// The close that brings 9 bytes and this change of attributes.
fn bring_all(
    rig: &mut Rig,
    opened: &AttrRep,
    valid: SetattrFlags,
    attr: Attr,
) -> Result<AttrRep, Errno> {
    let body = bringing(opened);
    let body = CloseReq { flags: body.flags | CloseFlags::ATTRS, mtime: 900, ..body };
    let attr = attr.with_fid(opened.attr.fid());
    let change = encode_body(&SetattrReq { attr, valid, ..SetattrReq::default() });
    let bufs: [&[u8]; 2] = [&[7; 9], &change];
    rig.call(Opcode::MdtClose, &body, &bufs).map(|reply| reply.body())
}

#[test]
fn a_close_brings_attributes_with_the_bytes() {
    let mut rig = rig();
    let made = make_open(&mut rig, "f");
    rig.commit();
    let both = SetattrFlags::MODE | SetattrFlags::MTIME;
    let mut attr = Attr { mode: 0o604, ..Attr::default() };
    attr.set_mtime(Timespec::new(77, 5));
    let refused = bring_all(&mut rig, &made, both | SetattrFlags::SIZE, attr).err();
    assert_eq!(refused, Some(Errno::EINVAL), "a size is no such change");
    let alone = CloseReq { flags: CloseFlags::ATTRS, ..bringing(&made) };
    assert_eq!(bring(&mut rig, &alone).err(), Some(Errno::EINVAL), "it has no bytes");
    let told = bring_all(&mut rig, &made, both, attr).expect("taken").attr;
    assert_eq!((told.mode & 0o7777, told.size), (0o604, 9));
    assert_eq!(told.mtime(), Timespec::new(77, 5), "it was set after the last write");
    rig.crash();
    rig.replay(|_| true);
    let found = rig.getattr(made.attr.fid()).expect("there").0.attr;
    assert_eq!((found.mode & 0o7777, found.ctime()), (0o604, told.ctime()));
    assert_eq!(found.mtime(), told.mtime());
}

#[test]
fn a_read_only_mdt_takes_only_attributes_that_its_client_may_have_kept() {
    let mut rig = rig();
    let made = make_open(&mut rig, "f");
    rig.engine.marks.set(StatfsState::READ_ONLY, true);
    let attr = Attr { mode: 0o604, ..Attr::default() };
    let refused = bring_all(&mut rig, &made, SetattrFlags::MODE, attr).err();
    assert_eq!(refused, Some(Errno::EROFS), "it does not hold WRITE");
    {
        let called = &mut rig.engine.state.borrow_mut().grants.called;
        called.connect(HolderId(1), rig.instant.get());
        called.keep(HolderId(1), made.attr.fid(), Bits::WRITE);
    }
    let told = bring_all(&mut rig, &made, SetattrFlags::MODE, attr).expect("taken").attr;
    assert_eq!(told.mode & 0o7777, 0o604);
}

//! A read-only MDT: which changes it refuses, and which it takes.

use ldlm::grants::{Bits, HolderId};
use types::{Errno, Fid};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{
    AttrRep, CloseReq, CreateFlags, CreateReq, FidReq, LayoutReq, LinkReq, RenameReq, SetattrFlags,
    SetattrReq, SetxattrReq, StatfsState, UnlinkReq,
};
use wire::{Attr, Opcode};

use super::rig::Rig;

const O_RDWR: u32 = 2;
const O_TRUNC: u32 = 0o1000;

/// A file that is closed, and one that is open for writing, on an MDT that is read-only.
struct World {
    rig: Rig,
    file: Fid,
    open: AttrRep,
}

impl World {
    fn new() -> World {
        let mut rig = Rig::new();
        let file = rig.create(Fid::ROOT, "file", S_IFREG | 0o644, None).expect("made").attr.fid();
        let open = rig.create(Fid::ROOT, "open", S_IFREG | 0o644, Some(O_RDWR)).expect("made");
        let world = World { rig, file, open };
        world.set(true);
        world
    }

    fn set(&self, read_only: bool) {
        self.rig.engine.marks.set(StatfsState::READ_ONLY, read_only);
    }

    fn setattr(&mut self, fid: Fid, valid: SetattrFlags) -> Result<(), Errno> {
        let attr = Attr { mode: 0o600, ..Attr::default() }.with_fid(fid);
        let body = SetattrReq { attr, valid, ..SetattrReq::default() };
        self.rig.call(Opcode::MdtSetattr, &body, &[]).map(drop)
    }

    fn layout(&mut self, fid: Fid, handle: u64) -> Result<(), Errno> {
        let body = LayoutReq { fid: fid.into(), handle, behind: 1, ..LayoutReq::default() };
        self.rig.call(Opcode::MdtLayout, &body, &[]).map(drop)
    }

    /// What each change of names or attributes comes to.
    fn changes(&mut self) -> Vec<(&'static str, Result<(), Errno>)> {
        let (rig, root, fid) = (&mut self.rig, Fid::ROOT.into(), self.file.into());
        let link = LinkReq { fid, parent: root, ..LinkReq::default() };
        let unlink = UnlinkReq { parent: root, ..UnlinkReq::default() };
        let rename = RenameReq { parent: root, new_parent: root, ..RenameReq::default() };
        let set = SetxattrReq { fid, ..SetxattrReq::default() };
        let remove = FidReq { fid, ..FidReq::default() };
        let mut done = vec![
            ("create", rig.create(Fid::ROOT, "new", S_IFREG | 0o644, None).map(drop)),
            ("open", rig.create(Fid::ROOT, "newer", S_IFREG | 0o644, Some(0)).map(drop)),
            ("mkdir", rig.create(Fid::ROOT, "dir", S_IFDIR | 0o755, None).map(drop)),
            ("tmpfile", rig.tmpfile(Fid::ROOT, S_IFREG | 0o600, O_RDWR).map(drop)),
            ("link", rig.call(Opcode::MdtLink, &link, &[b"link"]).map(drop)),
            ("rename", rig.call(Opcode::MdtRename, &rename, &[b"link", b"moved"]).map(drop)),
            ("setxattr", rig.call(Opcode::MdtSetxattr, &set, &[b"user.a", b"b"]).map(drop)),
            ("removexattr", rig.call(Opcode::MdtRemovexattr, &remove, &[b"user.a"]).map(drop)),
            ("unlink", rig.call(Opcode::MdtUnlink, &unlink, &[b"moved"]).map(drop)),
        ];
        let fid = self.file;
        for valid in [SetattrFlags::MODE, SetattrFlags::MTIME_NOW, SetattrFlags::SIZE] {
            done.push(("setattr", self.setattr(fid, valid)));
        }
        done.push(("layout", self.layout(fid, 0)));
        done
    }
}

#[test]
fn changes_are_refused_until_it_is_writable_again() {
    let mut world = World::new();
    let before = world.rig.store.table(osd::Table::Inodes);
    for (what, done) in world.changes() {
        assert_eq!(done, Err(Errno::EROFS), "{what}");
    }
    assert_eq!(world.rig.store.table(osd::Table::Inodes), before);
    world.set(false);
    for (what, done) in world.changes() {
        assert_eq!(done, Ok(()), "{what}");
    }
}

#[test]
fn files_are_opened_for_reading_only() {
    let mut world = World::new();
    let fid = world.file;
    for flags in [1, O_RDWR, O_TRUNC] {
        assert_eq!(world.rig.open(fid, flags).err(), Some(Errno::EROFS), "{flags}");
        let by_name = world.rig.create(Fid::ROOT, "file", S_IFREG | 0o644, Some(flags));
        assert_eq!(by_name.err(), Some(Errno::EROFS), "{flags}");
    }
    assert_ne!(world.rig.open(fid, 0).expect("it is read").handle, 0);
    let by_name = world.rig.create(Fid::ROOT, "file", S_IFREG | 0o644, Some(0));
    assert_eq!(by_name.expect("it is there").attr.fid(), fid);
    let again = world.rig.create(Fid::ROOT, "file", S_IFREG | 0o644, None);
    assert_eq!(again.err(), Some(Errno::EEXIST), "nothing would change");
}

#[test]
fn a_file_that_is_open_for_writing_is_written_and_closed() {
    let mut world = World::new();
    let (fid, handle) = (world.open.attr.fid(), world.open.handle);
    assert_eq!(world.layout(fid, handle), Ok(()));
    for valid in [SetattrFlags::KILL_SUID, SetattrFlags::SIZE_KNOWN, SetattrFlags::READ_AT] {
        assert_eq!(world.setattr(fid, valid), Ok(()), "{valid:?}");
    }
    assert_eq!(world.setattr(fid, SetattrFlags::MODE), Err(Errno::EROFS));
    {
        let called = &mut world.rig.engine.state.borrow_mut().grants.called;
        called.connect(HolderId(1), world.rig.instant.get());
        called.keep(HolderId(1), fid, Bits::WRITE);
    }
    assert_eq!(world.setattr(fid, SetattrFlags::MODE), Ok(()), "it may be acknowledged");
    assert_eq!(world.setattr(fid, SetattrFlags::SIZE), Err(Errno::EROFS), "that is not kept");
    assert_eq!(world.setattr(world.file, SetattrFlags::MODE), Err(Errno::EROFS), "another file");
    let body = CloseReq { fid: fid.into(), handle, ..CloseReq::default() };
    assert_eq!(world.rig.call(Opcode::MdtClose, &body, &[]).map(drop), Ok(()));
}

#[test]
fn replays_are_repeated() {
    let mut world = World::new();
    world.set(false);
    let body = CreateReq {
        parent: Fid::ROOT.into(),
        mode: S_IFREG | 0o644,
        flags: CreateFlags::OPEN,
        open_flags: O_RDWR,
        ..CreateReq::default()
    };
    world.rig.call(Opcode::MdtCreate, &body, &[b"late"]).expect("made");
    let body = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    world.rig.call(Opcode::MdtUnlink, &body, &[b"file"]).expect("removed");
    world.rig.crash();
    world.set(true);
    for (done, reply) in world.rig.replay(|_| true) {
        assert!(reply.is_ok(), "{:?}: {reply:?}", done.request.opcode());
    }
    world.rig.recovered();
    assert!(world.rig.lookup(Fid::ROOT, "late").is_ok());
    assert_eq!(world.rig.lookup(Fid::ROOT, "file").err(), Some(Errno::ENOENT));
}

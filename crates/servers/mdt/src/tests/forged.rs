//! Replays that no server has answered: each is refused, and changes nothing.

use types::{ClientId, Creds, Errno, Fid};
use wire::attr::{S_IFDIR, S_IFREG};
use wire::body::{
    AttrRep, CloseFlags, CloseReq, CreateReq, Disposition, LinkReq, OpenReq, SetattrFlags,
    SetattrReq, UnlinkReq,
};
use wire::{Attr, Opcode, Reply, Request, SizeState, encode_body};

use super::rig::{Done, Rig};
use crate::ids::first_sequences;
use crate::limits::{FILE_BYTES_MAX, OPENS_OF_SESSION_MAX};
use crate::opens::OpenFile;

/// Nobody.
const USER: u32 = 65_534;

/// An MDT after a crash, with a file of root's in a directory of root's.
struct World {
    rig: Rig,
    dir: Fid,
    file: Fid,
}

impl World {
    fn new() -> World {
        let mut rig = Rig::new();
        let dir = rig.create(Fid::ROOT, "dir", S_IFDIR | 0o755, None).expect("made").attr.fid();
        let file = rig.create(dir, "file", S_IFREG | 0o600, None).expect("made").attr.fid();
        rig.commit();
        rig.crash();
        World { rig, dir, file }
    }

    /// A user's request as the replay of a change that was answered like this, and is not durable.
    fn forge(&mut self, request: Request, reply: AttrRep) -> Result<Reply, Errno> {
        let boot = self.rig.engine.state.borrow().boot_committed.0;
        let mut first = Reply::ok(&request.header, vec![encode_body(&reply)]);
        first.header.transno = boot + 7;
        let creds = Creds { uid: USER, gid: USER, ..Creds::root() };
        self.rig.history = vec![Done { client: 2, request, reply: first, creds }];
        self.rig.replay(|_| true).remove(0).1
    }

    /// The last change, as one that was answered otherwise.
    fn lie(&mut self, lie: impl FnOnce(&mut Done)) -> Result<Reply, Errno> {
        let mut done = self.rig.history.last().expect("it was made").clone();
        lie(&mut done);
        self.rig.history.push(done);
        let last = self.rig.history.len() - 1;
        let history = std::mem::take(&mut self.rig.history);
        self.rig.history = history[last..].to_vec();
        let answer = self.rig.replay(|_| true).remove(0).1;
        self.rig.history = history[..last].to_vec();
        answer
    }
}

fn request<T: zerocopy::IntoBytes + zerocopy::Immutable>(
    opcode: Opcode,
    body: &T,
    name: &'static [u8],
) -> Request {
    Request::new(opcode, vec![encode_body(body), bytes::Bytes::from_static(name)])
}

/// With the answer of a first time that never was.
fn answered(fid: Fid, handle: u64) -> AttrRep {
    let attr = Attr { ctime: 5, ..Attr::default() }.with_fid(fid);
    AttrRep { attr, handle, disposition: Disposition::CREATED, ..AttrRep::default() }
}

#[test]
fn a_replay_is_asked_for_its_permission() {
    let mut world = World::new();
    let (dir, file) = (world.dir, world.file);
    let attr = Attr { uid: USER, ..Attr::default() }.with_fid(file);
    let chown = SetattrReq { attr, valid: SetattrFlags::UID, ..SetattrReq::default() };
    let unlink = UnlinkReq { parent: dir.into(), ..UnlinkReq::default() };
    let link = LinkReq { fid: file.into(), parent: dir.into(), ..LinkReq::default() };
    let open = OpenReq { fid: file.into(), open_flags: 2, ..Default::default() };
    let node = CreateReq { parent: dir.into(), mode: S_IFREG | 0o644, ..CreateReq::default() };
    // an id that the run before may have given, and did not
    let next = world.rig.engine.state.borrow().files.first();
    let unused = Fid { oid: next.oid - 1, ..next };
    let replays = [
        (request(Opcode::MdtSetattr, &chown, b""), Errno::EPERM),
        (request(Opcode::MdtUnlink, &unlink, b"file"), Errno::EACCES),
        (request(Opcode::MdtLink, &link, b"mine"), Errno::EACCES),
        (request(Opcode::MdtOpen, &open, b""), Errno::EACCES),
        (request(Opcode::MdtCreate, &node, b"made"), Errno::EACCES),
    ];
    for (request, errno) in replays {
        let opcode = request.opcode();
        let fid = if opcode == Opcode::MdtCreate { unused } else { file };
        let answer = world.forge(request, answered(fid, (1 << 32) | 5));
        assert_eq!(answer.err(), Some(errno), "{opcode:?}");
    }
    assert_eq!(world.rig.getattr(file).expect("there").0.attr.uid, 0);
    assert!(world.rig.engine.state.borrow().opens.len() == 0);
}

#[test]
fn a_replay_makes_no_file_of_an_id_that_was_never_given() {
    let mut world = World::new();
    world.rig.recovered();
    let made = world.rig.create(world.dir, "new", S_IFREG | 0o644, Some(2)).expect("made");
    world.rig.crash();
    let next = world.rig.engine.state.borrow().files.first();
    let others = [
        next,
        Fid { oid: next.oid + 1_000, ..next },
        Fid::new(first_sequences(0).1, 1),
        Fid::new(first_sequences(1).0, 1),
        Fid { ver: 1, ..made.attr.fid() },
        Fid::new(made.attr.fid().seq, 0),
    ];
    for fid in others {
        let lie = |done: &mut Done| done.reply.bufs[0] = encode_body(&answered(fid, made.handle));
        assert_eq!(world.lie(lie).err(), Some(Errno::EPROTO), "{fid}");
    }
    let truth = world.lie(|_| ()).expect("the truth is believed");
    assert_eq!(truth.body::<AttrRep>().attr.fid(), made.attr.fid());
}

#[test]
fn a_replay_takes_no_handle_that_is_not_its_own() {
    let mut world = World::new();
    world.rig.recovered();
    let made = world.rig.create(world.dir, "new", S_IFREG | 0o644, Some(2)).expect("made");
    world.rig.crash();
    let this_run = world.rig.engine.state.borrow_mut().opens.draw_handle();
    for handle in [this_run, this_run + 9, u64::MAX - 1, u64::MAX, 1] {
        let answer = answered(made.attr.fid(), handle);
        let lie = |done: &mut Done| done.reply.bufs[0] = encode_body(&answer);
        assert_eq!(world.lie(lie).err(), Some(Errno::EPROTO), "{handle:x}");
    }
    world.lie(|_| ()).expect("the truth is believed");
    // the handle is another client's, or another file's, from here on
    assert_eq!(world.lie(|done| done.client = 2).err(), Some(Errno::EPROTO));
    let open = OpenReq { fid: world.file.into(), ..Default::default() };
    let stolen = request(Opcode::MdtOpen, &open, b"");
    let other = |done: &mut Done| {
        (done.request, done.reply.bufs[0]) =
            (stolen.clone(), encode_body(&answered(world.file, made.handle)));
    };
    let mut done = world.rig.history.last().expect("it was made").clone();
    other(&mut done);
    world.rig.history = vec![done];
    assert_eq!(world.rig.replay(|_| true).remove(0).1.err(), Some(Errno::EPROTO));
}

#[test]
fn a_replayed_open_is_of_the_file_that_was_opened() {
    let mut world = World::new();
    world.rig.recovered();
    let opened = world.rig.open(world.file, 0).expect("root may");
    world.rig.crash();
    let answer = answered(world.dir, opened.handle);
    let lie = |done: &mut Done| done.reply.bufs[0] = encode_body(&answer);
    assert_eq!(world.lie(lie).err(), Some(Errno::EPROTO));
    world.lie(|_| ()).expect("the truth is believed");
}

#[test]
fn a_replay_takes_no_objects_that_were_never_given() {
    let mut world = World::new();
    world.rig.recovered();
    world.rig.create(world.dir, "new", S_IFREG | 0o644, Some(2)).expect("made");
    world.rig.crash();
    let next = world.rig.engine.state.borrow().objects.first();
    let files = Fid::new(first_sequences(0).0, 1);
    for base in
        [next, Fid { oid: u32::MAX, ..next }, files, Fid { ver: 2, ..Fid::new(next.seq, 1) }]
    {
        let lie = |done: &mut Done| {
            let mut layout = layout::Layout::decode(&done.reply.buf(1)).expect("a layout");
            layout.base = base;
            done.reply.bufs[1] = layout.encode().into();
        };
        assert_eq!(world.lie(lie).err(), Some(Errno::EPROTO), "{base}");
    }
    world.lie(|_| ()).expect("the truth is believed");
}

/// Else a client in recovery would fill the memory of the MDT.
#[test]
fn a_replay_opens_no_more_than_a_session_may() {
    let mut world = World::new();
    world.rig.recovered();
    let made = world.rig.create(world.dir, "new", S_IFREG | 0o644, Some(2)).expect("made");
    world.rig.crash();
    let file = world.file;
    let client = ClientId(1);
    let (session, read, write, runs, lists) = (1, true, false, false, true);
    let other = OpenFile { fid: file, client, session, read, write, runs, lists };
    for number in 0..OPENS_OF_SESSION_MAX as u64 {
        let handle = (1 << 32) | (1 << 20) | number;
        world.rig.engine.state.borrow_mut().opens.open(handle, other, None, None);
    }
    assert_eq!(world.lie(|_| ()).err(), Some(Errno::EPROTO));
    world.rig.engine.state.borrow_mut().opens.close((1 << 32) | (1 << 20), false, false);
    let truth = world.lie(|_| ()).expect("there is room");
    assert_eq!(truth.body::<AttrRep>().handle, made.handle);
    world.lie(|_| ()).expect("it is one that there is");
}

/// No file is as long: whoever would be shown it would calculate with it.
#[test]
fn a_size_that_no_file_has_is_not_believed() {
    let mut world = World::new();
    world.rig.recovered();
    let dirty = |world: &mut World, fid| {
        let attr = world.rig.getattr(fid).expect("there").0.attr;
        assert!(attr.size <= FILE_BYTES_MAX, "{}", attr.size);
        attr.size_state() == SizeState::Dirty
    };
    for size in [FILE_BYTES_MAX + 1, u64::MAX] {
        let name = format!("f{size}");
        let made = world.rig.create(world.dir, &name, S_IFREG | 0o644, Some(2)).expect("made");
        let fid = made.attr.fid();
        let close = CloseReq {
            fid: fid.into(),
            handle: made.handle,
            size,
            write_epoch: made.write_epoch,
            flags: CloseFlags::SIZE | CloseFlags::WROTE,
            ..CloseReq::default()
        };
        world.rig.call(Opcode::MdtClose, &close, &[]).expect("closed");
        assert!(dirty(&mut world, fid));
        let epoch = world.rig.getattr(fid).expect("there").0.write_epoch;
        let attr = Attr { size, ..Attr::default() }.with_fid(fid);
        let (valid, write_epoch) = (SetattrFlags::SIZE_KNOWN, epoch);
        let tell = SetattrReq { attr, valid, write_epoch, ..SetattrReq::default() };
        world.rig.call(Opcode::MdtSetattr, &tell, &[]).expect("passed over");
        assert!(dirty(&mut world, fid));
        let attr = Attr { size: FILE_BYTES_MAX, ..Attr::default() }.with_fid(fid);
        let tell = SetattrReq { attr, valid, write_epoch, ..SetattrReq::default() };
        world.rig.call(Opcode::MdtSetattr, &tell, &[]).expect("believed");
        assert!(!dirty(&mut world, fid));
    }
}

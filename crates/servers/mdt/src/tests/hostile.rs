//! Fuzz targets: the handlers on hostile bodies, and the start on hostile records.
//!
//! The input is a program of choices. Bodies of requests are partly valid, because random bytes
//! would only reach the first check of each handler.
//!
//! Bound of the generator: a request has the REPLAY flag only where it was answered before, with
//! the first reply's buffers as they were. A client that invents replays can invent history.

use std::collections::BTreeSet;

use bolero::ValueGenerator;
use bytes::Bytes;
use osd::Table;
use types::{ClientId, Creds, Fid, SplitMix64};
use wire::attr::{S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG};
use wire::body::{
    AttrRep, CloseFlags, CloseReq, CreateFlags, CreateReq, FidReq, LinkReq, LookupReq, OpenReq,
    ReaddirRep, ReaddirReq, RenameReq, SetattrFlags, SetattrReq, SetxattrReq, UnlinkReq,
};
use wire::{Attr, Opcode, Reply, Request, encode_body};

use super::rig::{Rig, now};
use crate::MdtConfig;
use crate::boot::{Seed, boot};

/// Bytes of a program, about 12 a request.
const PROGRAM_BYTES_MAX: usize = 600;
/// Requests of one program at most, because `fsck` reads all records after each.
const STEPS_MAX: usize = 60;
/// Random programs of an ordinary test run, within its time.
const PROGRAMS: usize = 20_000;
const TIME: std::time::Duration = std::time::Duration::from_secs(3);

const OPCODES: [Opcode; 16] = [
    Opcode::MdtCreate,
    Opcode::MdtLookup,
    Opcode::MdtOpen,
    Opcode::MdtClose,
    Opcode::MdtLink,
    Opcode::MdtUnlink,
    Opcode::MdtRename,
    Opcode::MdtSetattr,
    Opcode::MdtReaddir,
    Opcode::MdtReadlink,
    Opcode::MdtGetxattr,
    Opcode::MdtSetxattr,
    Opcode::MdtListxattr,
    Opcode::MdtRemovexattr,
    Opcode::MdtFid2path,
    Opcode::MdtGetattr,
];
const NAMES: [&[u8]; 12] =
    [b"a", b"b", b"c", b"a", b"b", b"c", b"", b".", b"..", b"x/y", b"nul\0", &[b'n'; 256]];
const XATTRS: [&[u8]; 8] = [
    b"user.a",
    b"trusted.a",
    b"security.capability",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"lustre.lov",
    b"trusted.lov",
    b"user.",
];
const MODES: [u32; 6] =
    [S_IFREG | 0o644, S_IFDIR | 0o755, S_IFLNK | 0o777, S_IFCHR | 0o600, S_IFDIR | 0o7777, 0];
const EDGES: [u64; 8] = [0, 1, 2, 0x1ff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Choices, one byte each; zero where there are no more.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn is_done(&self) -> bool {
        self.0.len() == 0
    }

    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// A small number, an edge, or one bit.
    fn word(&mut self) -> u64 {
        let choice = self.byte();
        match choice >> 6 {
            0 | 1 => u64::from(choice & 0x3f),
            2 => EDGES[usize::from(choice) % EDGES.len()],
            _ => 1 << (choice & 0x3f),
        }
    }

    fn half(&mut self) -> u32 {
        self.word() as u32
    }
}

/// The target, and what its clients have learned of it.
struct World {
    rig: Rig,
    fids: Vec<Fid>,
    handles: Vec<u64>,
    /// Operations of which one succeeded.
    done: BTreeSet<Opcode>,
}

impl World {
    fn new() -> World {
        let rig = Rig::new();
        rig.osts.borrow_mut().truncate(2);
        let fids = vec![Fid::ROOT, Fid::ROOT, Fid::ZERO, Fid { seq: u64::MAX, oid: 7, ver: 1 }];
        World { rig, fids, handles: vec![0, u64::MAX], done: BTreeSet::new() }
    }

    fn fid(&self, choices: &mut Choices<'_>) -> Fid {
        choices.of(&self.fids)
    }

    fn request(&self, choices: &mut Choices<'_>) -> Request {
        let opcode = choices.of(&OPCODES);
        let fid = self.fid(choices);
        let mut bufs = match opcode {
            Opcode::MdtCreate => self.create(fid, choices),
            Opcode::MdtUnlink => {
                let is_dir = choices.half();
                let body = UnlinkReq { parent: fid.into(), is_dir, ..Default::default() };
                vec![encode_body(&body), name(choices)]
            }
            Opcode::MdtLookup => {
                let body = LookupReq { parent: fid.into(), ..Default::default() };
                vec![encode_body(&body), name(choices)]
            }
            Opcode::MdtLink => {
                let parent = self.fid(choices).into();
                let body = LinkReq { fid: fid.into(), parent, ..Default::default() };
                vec![encode_body(&body), name(choices)]
            }
            Opcode::MdtRename => {
                let (new_parent, flags) = (self.fid(choices).into(), choices.half());
                let body =
                    RenameReq { parent: fid.into(), new_parent, flags, ..Default::default() };
                vec![encode_body(&body), name(choices), name(choices)]
            }
            Opcode::MdtOpen => {
                let open_flags = choices.half();
                vec![encode_body(&OpenReq { fid: fid.into(), open_flags, ..Default::default() })]
            }
            Opcode::MdtClose => self.close(fid, choices),
            Opcode::MdtSetattr => self.setattr(fid, choices),
            Opcode::MdtReaddir => {
                let (cookie, bytes_max) = (choices.word(), choices.half());
                let (entries_max, flags) = (choices.half(), choices.half());
                let fid = fid.into();
                let body = ReaddirReq { fid, cookie, bytes_max, entries_max, flags, reserved: 0 };
                vec![encode_body(&body)]
            }
            Opcode::MdtSetxattr => {
                let (xattr, flags) = (choices.of(&XATTRS), choices.half() & 3);
                let body = SetxattrReq { fid: fid.into(), flags, ..Default::default() };
                vec![encode_body(&body), Bytes::from_static(xattr), value(choices)]
            }
            _ => {
                let handle = choices.of(&self.handles);
                let body = FidReq { fid: fid.into(), handle, ..Default::default() };
                vec![encode_body(&body), Bytes::from_static(choices.of(&XATTRS))]
            }
        };
        damage(&mut bufs, choices);
        Request::new(opcode, bufs)
    }

    fn create(&self, parent: Fid, choices: &mut Choices<'_>) -> Vec<Bytes> {
        let body = CreateReq {
            parent: parent.into(),
            mode: choices.of(&MODES),
            umask: 0o022,
            rdev: choices.word(),
            open_flags: choices.half(),
            flags: CreateFlags::from_bits_retain(choices.half() & 7),
            handle: choices.of(&self.handles),
            ..Default::default()
        };
        vec![encode_body(&body), name(choices), name(choices), template(choices), Bytes::new()]
    }

    fn close(&self, fid: Fid, choices: &mut Choices<'_>) -> Vec<Bytes> {
        let body = CloseReq {
            fid: fid.into(),
            handle: choices.of(&self.handles),
            flags: CloseFlags::from_bits_retain(choices.half()),
            size: choices.word(),
            blocks: choices.word(),
            mtime: choices.word().cast_signed(),
            mtime_nsec: choices.half(),
            write_epoch: choices.word(),
            stripes: choices.word(),
            ..Default::default()
        };
        vec![encode_body(&body)]
    }

    fn setattr(&self, fid: Fid, choices: &mut Choices<'_>) -> Vec<Bytes> {
        let attr = Attr {
            mode: choices.half(),
            uid: choices.half(),
            gid: choices.half(),
            size: choices.word(),
            mtime: choices.word().cast_signed(),
            mtime_nsec: choices.half(),
            ..Default::default()
        };
        let body = SetattrReq {
            attr: attr.with_fid(fid),
            valid: SetattrFlags::from_bits_retain(choices.half() | choices.half()),
            handle: choices.of(&self.handles),
            write_epoch: choices.word(),
            stripes: choices.word(),
            reserved: 0,
        };
        vec![encode_body(&body)]
    }

    /// One request, or a restart with honest replays.
    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() {
            0 => {
                self.rig.crash();
                self.rig.replay(|_| true);
                self.rig.recovered();
                return;
            }
            1..8 => self.rig.commit(),
            _ => {}
        }
        let who = choices.byte();
        self.rig.client = u128::from(who & 1) + 1;
        let uid = if who & 0x0e == 0 { 1_000 } else { 0 };
        self.rig.creds = Creds { uid, gid: uid, groups: Vec::new() };
        let request = self.request(choices);
        let before = self.rig.store.running.borrow().clone();
        match self.rig.send(request.clone()) {
            Ok(reply) => self.learn(&request, &reply),
            Err(_) => assert!(
                *self.rig.store.running.borrow() == before,
                "{:?} was refused and changed something",
                request.opcode()
            ),
        }
    }

    fn learn(&mut self, request: &Request, reply: &Reply) {
        let again = Reply::decode(&reply.to_frame().into_payload()).expect("a reply decodes");
        assert_eq!(again.bufs, reply.bufs);
        self.done.insert(request.opcode());
        match request.opcode() {
            Opcode::MdtReaddir => {
                let body: ReaddirRep = reply.body();
                let entries = wire::dirent::decode(&reply.buf(1)).expect("a page of entries");
                assert_eq!(entries.len(), body.count as usize);
            }
            Opcode::MdtCreate | Opcode::MdtOpen => {
                let body: AttrRep = reply.body();
                self.fids.push(body.attr.fid());
                self.handles.push(body.handle);
                layout::Striping::decode(Fid::ZERO, &reply.buf(1)).expect("a layout record");
            }
            _ => {}
        }
    }
}

fn name(choices: &mut Choices<'_>) -> Bytes {
    Bytes::from_static(choices.of(&NAMES))
}

fn template(choices: &mut Choices<'_>) -> Bytes {
    let template = layout::Template {
        stripe_count: choices.half().cast_signed(),
        stripe_size: choices.half(),
        start: choices.half().cast_signed(),
        ..Default::default()
    };
    let wanted = choices.byte();
    if wanted >= 64 || template.check().is_err() { Bytes::new() } else { template.encode().into() }
}

/// An access list, a layout, or bytes.
fn value(choices: &mut Choices<'_>) -> Bytes {
    let mut value = match choices.byte() % 4 {
        0 => vec![
            2, 0, 0, 0, 1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, 5, 0, 0xff, 0xff, 0xff, 0xff,
            0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
        ],
        1 => layout::lov::encode_dir(&layout::Template { stripe_count: 2, ..Default::default() }),
        2 => Vec::new(),
        _ => vec![7; 40],
    };
    if choices.byte() < 64 && !value.is_empty() {
        let at = usize::from(choices.byte()) % value.len();
        value[at] = choices.byte();
    }
    value.into()
}

/// One request in four is not as a client of ours would write it.
fn damage(bufs: &mut Vec<Bytes>, choices: &mut Choices<'_>) {
    let (how, at, with) = (choices.byte(), usize::from(choices.byte()), choices.byte());
    match how {
        0..32 => {
            let mut body = bufs[0].to_vec();
            let at = at % body.len();
            body[at] ^= with;
            bufs[0] = body.into();
        }
        32..44 => bufs[0] = bufs[0].slice(..at % bufs[0].len()),
        44..52 => bufs.truncate(at % bufs.len()),
        52..64 => {
            let buf = at % bufs.len();
            bufs[buf] = Bytes::from(vec![with; at * 16]);
        }
        _ => {}
    }
}

fn programs() -> impl ValueGenerator<Output = Vec<u8>> {
    bolero::produce::<Vec<u8>>().with().len(0..=PROGRAM_BYTES_MAX)
}

/// Checks the records after each request.
fn run(program: &[u8]) -> World {
    let mut choices = Choices(program.iter());
    let mut world = World::new();
    for _ in 0..STEPS_MAX {
        if choices.is_done() {
            break;
        }
        world.step(&mut choices);
        assert_eq!(world.rig.store.fsck(), Vec::<String>::new());
    }
    world
}

/// The records are whole after each request, and a request that is refused changes nothing.
#[test]
fn handlers() {
    bolero::check!()
        .with_iterations(PROGRAMS)
        .with_test_time(TIME)
        .with_generator(programs())
        .for_each(|program: &Vec<u8>| drop(run(program)));
}

/// Programs that reached only the refusals would show little.
#[test]
fn every_operation_succeeds_in_some_program() {
    let mut chance = SplitMix64::new(1);
    let mut done = BTreeSet::new();
    for _ in 0..300 {
        let program: Vec<u8> = (0..PROGRAM_BYTES_MAX).map(|_| chance.bits() as u8).collect();
        done.append(&mut run(&program).done);
    }
    assert_eq!(done, BTreeSet::from(OPCODES));
}

/// A start on records that are damaged succeeds or is refused.
#[test]
fn start() {
    bolero::check!()
        .with_iterations(PROGRAMS)
        .with_test_time(TIME)
        .with_generator(programs())
        .for_each(|program: &Vec<u8>| {
            let mut choices = Choices(program.iter());
            let mut world = World::new();
            let rep = world.rig.create(Fid::ROOT, "a", S_IFREG | 0o644, Some(2)).expect("a file");
            world.rig.create(Fid::ROOT, "d", S_IFDIR | 0o755, None).expect("a directory");
            let unlink = UnlinkReq { parent: Fid::ROOT.into(), ..Default::default() };
            world.rig.call(Opcode::MdtUnlink, &unlink, &[b"a"]).expect("an open file is unlinked");
            remember(&world, &rep);
            world.rig.commit();
            world.rig.crash();
            let keys: Vec<_> = world.rig.store.running.borrow().keys().cloned().collect();
            while !choices.is_done() {
                let key = keys[usize::from(choices.byte()) % keys.len()].clone();
                damage_record(&world, key, &mut choices);
            }
            let store: std::rc::Rc<dyn osd::MetaStore> = world.rig.store.clone();
            let seed = Seed {
                words: [1, 2],
                round_robin: 0,
                store: 3,
                now: Default::default(),
                clock: Default::default(),
            };
            let config = MdtConfig::new("testfs".parse().expect("a name"), 0);
            let _ = now(boot(&store, &config, &seed));
        });
}

/// Records of the client and of its answered open, as sessions store them.
fn remember(world: &World, rep: &AttrRep) {
    let name = "node1:/mnt".to_owned();
    let (client, session) = (ClientId(1), 1);
    let client = service::ClientRecord { client, session, name, is_server: false, silent: false };
    let request = Request::new(Opcode::MdtCreate, Vec::new());
    let reply = Reply::ok(&request.header, vec![encode_body(rep)]);
    let key = [&client.key()[..], &1_u32.to_be_bytes()].concat();
    let mut image = world.rig.store.running.borrow_mut();
    image.insert((Table::Replies, key), reply.to_frame().into_payload().to_vec());
    image.insert((Table::Clients, client.key()), client.encode());
}

fn damage_record(world: &World, key: (Table, Vec<u8>), choices: &mut Choices<'_>) {
    let mut image = world.rig.store.running.borrow_mut();
    let Some(value) = image.get_mut(&key) else { return };
    let (how, at) = (choices.byte(), usize::from(choices.byte()));
    match how {
        0..8 => drop(image.remove(&key)),
        8..64 => value.truncate(at % (value.len() + 1)),
        64..96 => value.extend(std::iter::repeat_n(choices.byte(), at)),
        _ => {
            let bits = choices.byte();
            let len = value.len().max(1);
            if let Some(byte) = value.get_mut(at % len) {
                *byte ^= bits;
            }
        }
    }
}

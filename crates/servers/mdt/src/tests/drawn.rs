//! Requests as hostile clients and servers send them, drawn from a program of choices.
//!
//! Bodies are partly valid, because random bytes would only reach the first check of each handler.

use bolero::ValueGenerator;
use bytes::Bytes;
use types::{Fid, Timespec};
use wire::attr::{S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG};
use wire::body::{
    AttrRep, CloseFlags, CloseReq, ClosesReq, CreateFlags, CreateReq, FidReq, GetattrsFlags,
    GetattrsRep, GetattrsReq, GrantAck, GrantBits, GrantWord, GrantsFlags, LayoutReq, LinkReq,
    LockFlags, LockReq, LookupReq, OpenReq, ReaddirFlags, ReaddirRep, ReaddirReq, RenameReq,
    SetattrFlags, SetattrReq, SetxattrReq, UnlinkReq, WireFid,
};
use wire::updates::{
    self, Done, Key, Made, Move, Named, OpId, Own, Part, Place, Prepare, Record, Round, Update,
    Want,
};
use wire::{Attr, Opcode, Reply, Request, encode_body, grants};
use zerocopy::IntoBytes;

use crate::record::Inode;

/// Bytes of a program, about 12 a request.
pub(super) const PROGRAM_BYTES_MAX: usize = 600;
/// Random programs of an ordinary test run, within its time.
pub(super) const PROGRAMS: usize = 20_000;
pub(super) const TIME: std::time::Duration = std::time::Duration::from_secs(3);

const NAMES: [&[u8]; 12] =
    [b"a", b"b", b"c", b"a", b"b", b"c", b"", b".", b"..", b"x/y", b"nul\0", &[b'n'; 256]];
const XATTRS: [&[u8]; 9] = [
    b"user.a",
    b"trusted.a",
    b"security.capability",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"lustre.lov",
    b"trusted.lov",
    b"lustre.lov.swap",
    b"user.",
];
const MODES: [u32; 6] =
    [S_IFREG | 0o644, S_IFDIR | 0o755, S_IFLNK | 0o777, S_IFCHR | 0o600, S_IFDIR | 0o7777, 0];
/// What MDTs ask each other. Records have the most forms.
const BETWEEN: [Opcode; 8] = [
    Opcode::MdtPrepare,
    Opcode::MdtUpdate,
    Opcode::MdtUpdate,
    Opcode::MdtUpdate,
    Opcode::MdtUpdates,
    Opcode::MdtUpdatesDone,
    Opcode::MdtUpdateOf,
    Opcode::MdtMove,
];
/// The MDT under test is the first one.
const MDTS: [u32; 6] = [1, 1, 2, 0, 255, u32::MAX];
const EDGES: [u64; 8] = [0, 1, 2, 0x1ff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Choices, one byte each; zero where there are no more.
pub(super) struct Choices<'a>(std::slice::Iter<'a, u8>);

impl<'a> Choices<'a> {
    pub(super) fn new(program: &'a [u8]) -> Choices<'a> {
        Choices(program.iter())
    }

    pub(super) fn is_done(&self) -> bool {
        self.0.len() == 0
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// A small number, an edge, or one bit.
    pub(super) fn word(&mut self) -> u64 {
        let choice = self.byte();
        match choice >> 6 {
            0 | 1 => u64::from(choice & 0x3f),
            2 => EDGES[usize::from(choice) % EDGES.len()],
            _ => 1 << (choice & 0x3f),
        }
    }

    pub(super) fn half(&mut self) -> u32 {
        self.word() as u32
    }
}

/// What clients have learned of a target.
pub(super) struct Known {
    fids: Vec<Fid>,
    handles: Vec<u64>,
}

impl Known {
    pub(super) fn new() -> Known {
        let fids = vec![Fid::ROOT, Fid::ROOT, Fid::ZERO, Fid { seq: u64::MAX, oid: 7, ver: 1 }];
        Known { fids, handles: vec![0, u64::MAX] }
    }

    fn fid(&self, choices: &mut Choices<'_>) -> Fid {
        choices.of(&self.fids)
    }

    /// A request of one of these operations.
    pub(super) fn request(&self, opcodes: &[Opcode], choices: &mut Choices<'_>) -> Request {
        let opcode = choices.of(opcodes);
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
            Opcode::MdtClose => vec![encode_body(&self.close(fid, choices))],
            Opcode::MdtCloses => {
                let count = u32::from(choices.byte() % 4);
                let closes = (0..count).map(|_| self.close(self.fid(choices), choices));
                let closes: Vec<CloseReq> = closes.collect();
                let body = ClosesReq { count, ..Default::default() };
                vec![encode_body(&body), Bytes::copy_from_slice(closes.as_bytes())]
            }
            Opcode::MdtSetattr => self.setattr(fid, choices),
            Opcode::MdtReaddir => {
                let (cookie, bytes_max) = (choices.word(), choices.half());
                let entries_max = choices.half();
                let flags = ReaddirFlags::from_bits_retain(choices.half());
                let fid = fid.into();
                let body = ReaddirReq { fid, cookie, bytes_max, entries_max, flags, reserved: 0 };
                vec![encode_body(&body)]
            }
            Opcode::MdtGetattrs => self.getattrs(fid, choices),
            Opcode::MdtSetxattr => {
                let (xattr, flags) = (choices.of(&XATTRS), choices.half() & 3);
                let body = SetxattrReq { fid: fid.into(), flags, ..Default::default() };
                vec![encode_body(&body), Bytes::from_static(xattr), value(choices)]
            }
            Opcode::MdtLayout => {
                let (handle, behind) = (choices.of(&self.handles), choices.word());
                let (refused, look) =
                    (u32::from(choices.byte() % 4), u32::from(choices.byte() % 2));
                let fid = fid.into();
                vec![encode_body(&LayoutReq { fid, handle, behind, refused, look })]
            }
            Opcode::MdtLock | Opcode::MdtUnlock => vec![encode_body(&lock(fid, choices))],
            Opcode::MdtAck | Opcode::MdtShed | Opcode::MdtRestate => {
                self.grants(opcode, fid, choices)
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

    /// By FIDs, or by names.
    fn getattrs(&self, fid: Fid, choices: &mut Choices<'_>) -> Vec<Bytes> {
        let by_name = choices.byte() < 128;
        let parent = if by_name { fid } else { Fid::ZERO };
        let body = GetattrsReq {
            parent: parent.into(),
            count: u32::from(choices.byte() % 4),
            flags: GetattrsFlags::from_bits_retain(choices.half()),
            bytes_max: choices.half(),
            reserved: 0,
        };
        let files = match by_name {
            true => [name(choices), Bytes::from_static(b"\0"), name(choices)].concat(),
            false => [fid, self.fid(choices)].map(WireFid::from).as_bytes().to_vec(),
        };
        vec![encode_body(&body), files.into()]
    }

    fn create(&self, parent: Fid, choices: &mut Choices<'_>) -> Vec<Bytes> {
        let mut body = CreateReq {
            parent: parent.into(),
            mode: choices.of(&MODES),
            umask: 0o022,
            rdev: choices.word(),
            open_flags: choices.half(),
            handle: choices.of(&self.handles),
            ..Default::default()
        };
        let bits = choices.half();
        let has_bytes = bits & 0x38 == 0x38; // one in eight
        body.flags = CreateFlags::from_bits_retain(bits & 7);
        if has_bytes {
            body.flags = CreateFlags::DATA | CreateFlags::OPEN.when(bits & 0xc0 == 0);
        }
        let bytes = if has_bytes { name(choices) } else { Bytes::new() };
        vec![encode_body(&body), name(choices), name(choices), template(choices), bytes]
    }

    fn close(&self, fid: Fid, choices: &mut Choices<'_>) -> CloseReq {
        CloseReq {
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
        }
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

    /// Grants of two files: their numbers are small, as those of gifts and recalls are at first.
    fn grants(&self, opcode: Opcode, fid: Fid, choices: &mut Choices<'_>) -> Vec<Bytes> {
        let flags = GrantsFlags::from_bits_retain(choices.half());
        let all = [fid, self.fid(choices)];
        let fids = &all[..usize::from(choices.byte()) % 3];
        let mut bits = || GrantBits::from_bits_retain(u16::from(choices.byte()));
        if opcode == Opcode::MdtAck {
            let kept = bits();
            let ack = |fid: &Fid| GrantAck {
                fid: (*fid).into(),
                number: choices.word(),
                kept,
                readers: choices.half(),
                writers: choices.half(),
                ..GrantAck::default()
            };
            return grants::encode(&fids.iter().map(ack).collect::<Vec<_>>(), flags);
        }
        let bits = bits();
        let word = |fid: &Fid| GrantWord {
            fid: (*fid).into(),
            number: choices.word(),
            bits,
            ..GrantWord::default()
        };
        grants::encode(&fids.iter().map(word).collect::<Vec<_>>(), flags)
    }

    /// A request as one MDT sends it to another.
    pub(super) fn between(&self, choices: &mut Choices<'_>) -> Request {
        let opcode = choices.of(&BETWEEN);
        let body = match opcode {
            Opcode::MdtPrepare => {
                let id = operation(choices);
                let wants = (0..choices.byte() % 4).map(|_| self.want(choices)).collect();
                updates::encode(&Prepare { id, wants })
            }
            Opcode::MdtUpdate => updates::encode(&self.record(choices)),
            Opcode::MdtUpdates => {
                let from = Some(operation(choices)).filter(|_| choices.byte() < 128);
                let question = (choices.of(&MDTS), from, choices.word());
                updates::encode(&(question, choices.of(&[Round::First, Round::Last])))
            }
            Opcode::MdtUpdatesDone => {
                let (mdt, instance) = (choices.of(&MDTS), choices.word());
                let (below, released) = (choices.word(), vec![choices.word()]);
                updates::encode(&Done { mdt, instance, below, released })
            }
            Opcode::MdtUpdateOf => updates::encode(&operation(choices)),
            _ => updates::encode(&Move { dir: self.fid(choices), name: name(choices).to_vec() }),
        };
        let mut bufs: Vec<Bytes> = vec![body.into()];
        let flags = [64, 128].map(|most| updates::encode(&(choices.byte() < most)));
        bufs.extend(flags.map(Bytes::from));
        damage(&mut bufs, choices);
        bufs.insert(0, Bytes::new());
        Request::new(opcode, bufs)
    }

    fn place(&self, choices: &mut Choices<'_>) -> Place {
        Place { dir: self.fid(choices), name: name(choices).to_vec() }
    }

    fn want(&self, choices: &mut Choices<'_>) -> Want {
        let key = match choices.byte() % 4 {
            0 => Key::Inode(self.fid(choices)),
            1 => Key::Empty(self.fid(choices)),
            2 => Key::New(u32::from(choices.byte() % 2), choices.half()),
            _ => Key::Name(self.place(choices)),
        };
        Want { key, changes: choices.byte() < 128 }
    }

    /// Of any operation, mostly with a part of the MDT under test.
    fn record(&self, choices: &mut Choices<'_>) -> Record {
        let (id, time) = (operation(choices), (choices.word().cast_signed(), choices.half()));
        let updates = (0..choices.byte() % 5).map(|_| self.update(choices)).collect();
        let mdt = if choices.byte() < 16 { 1 } else { 0 };
        let parts = vec![Part { mdt, updates }, Part { mdt: 1, updates: Vec::new() }];
        let key = vec![7; usize::from(choices.byte()) * 4];
        let reply = if choices.byte() < 32 { (key, vec![1, 2, 3]) } else { Default::default() };
        Record { id, time, parts, reply }
    }

    fn update(&self, choices: &mut Choices<'_>) -> Update {
        let (at, child, file_type) = (self.place(choices), self.fid(choices), choices.of(&MODES));
        let (dir, name_bytes, subdirs) =
            (at.dir, choices.word().cast_signed(), choices.half().cast_signed());
        match choices.byte() % 10 {
            0 => Update::Enter { at, child, file_type },
            1 => Update::Leave { at, child },
            2 => Update::Repoint { at, old: child, child: self.fid(choices), file_type },
            3 => Update::Touch { dir, name_bytes, subdirs },
            4 => Update::Make(self.made(at, file_type, choices)),
            5 => {
                let (gets, loses) = (Some(self.place(choices)), Some(at));
                let moves = choices.byte() < 128;
                Update::Named(Named { fid: child, gets, loses, links: subdirs, moves })
            }
            6 => Update::Own(Own {
                fid: child,
                mode: file_type,
                uid: choices.half(),
                gid: choices.half(),
                projid: 0,
                atime: None,
                mtime: Some((name_bytes, choices.half())),
                layout: template(choices).to_vec(),
                xattrs: xattrs(choices),
            }),
            7 => Update::Stripe { fid: child, value: value(choices).to_vec() },
            8 => Update::Rehome { fid: child, from: at, to: self.place(choices) },
            _ => Update::Size { dir, name_bytes, subdirs },
        }
    }

    fn made(&self, at: Place, mode: u32, choices: &mut Choices<'_>) -> Made {
        let fid = Fid { oid: choices.half(), ..self.fid(choices) };
        let inode = Inode {
            attr: Attr { mode, nlink: choices.half(), ..Default::default() }.with_fid(fid),
            flags: choices.half(),
            parent: at.dir,
            mtime_set: Timespec::default(),
            stripes: layout::StripeSet::from(choices.word()),
            depth: choices.half(),
            symlink: name(choices).to_vec(),
        };
        let fid = if choices.byte() < 16 { at.dir } else { fid };
        let (layout, at) = (value(choices).to_vec(), Some(at));
        Made { fid, inode: inode.encode(), layout, xattrs: xattrs(choices), at }
    }

    /// What an answer tells of files and handles.
    pub(super) fn learn(&mut self, opcode: Opcode, reply: &Reply) {
        match opcode {
            Opcode::MdtReaddir => {
                let body: ReaddirRep = reply.body();
                let entries = wire::dirent::decode(&reply.buf(1)).expect("a page of entries");
                assert_eq!(entries.len(), body.count as usize);
            }
            Opcode::MdtGetattrs => {
                let body: GetattrsRep = reply.body();
                let count = body.count as usize;
                let records = wire::stats::decode(&reply.buf(1), count).expect("our own bytes");
                assert_eq!(records.len(), count);
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

/// Owners and ranges are few, so that locks meet.
fn lock(fid: Fid, choices: &mut Choices<'_>) -> LockReq {
    LockReq {
        fid: fid.into(),
        kind: u32::from(choices.byte() % 4),
        mode: u32::from(choices.byte() % 4),
        start: choices.word(),
        end: choices.word(),
        owner: u64::from(choices.byte() % 4),
        flags: LockFlags::from_bits_retain(u32::from(choices.byte() % 16)),
        cookie: u64::from(choices.byte() % 4),
        wait_ms: choices.half(),
        ..LockReq::default()
    }
}

fn operation(choices: &mut Choices<'_>) -> OpId {
    OpId { mdt: choices.of(&MDTS), number: choices.word() }
}

/// One, with a name that may be longer than a key.
fn xattrs(choices: &mut Choices<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let name = match choices.byte() {
        0..16 => vec![b'n'; 600],
        _ => choices.of(&XATTRS).to_vec(),
    };
    vec![(name, value(choices).to_vec())]
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
        _ => vec![7; 48],
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

pub(super) fn programs() -> impl ValueGenerator<Output = Vec<u8>> {
    bolero::produce::<Vec<u8>>().with().len(0..=PROGRAM_BYTES_MAX)
}

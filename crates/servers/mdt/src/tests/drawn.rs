//! Requests as hostile clients send them, drawn from a program of choices.
//!
//! Bodies are partly valid, because random bytes would only reach the first check of each handler.

use bolero::ValueGenerator;
use bytes::Bytes;
use types::Fid;
use wire::attr::{S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG};
use wire::body::{
    AttrRep, CloseFlags, CloseReq, ClosesReq, CreateFlags, CreateReq, FidReq, GetattrsFlags,
    GetattrsRep, GetattrsReq, GrantAck, GrantBits, GrantWord, GrantsFlags, LayoutReq, LinkReq,
    LockFlags, LockReq, LookupReq, OpenReq, ReaddirFlags, ReaddirRep, ReaddirReq, RenameReq,
    SetattrFlags, SetattrReq, SetxattrReq, UnlinkReq, WireFid,
};
use wire::{Attr, Opcode, Reply, Request, encode_body, grants};
use zerocopy::IntoBytes;

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

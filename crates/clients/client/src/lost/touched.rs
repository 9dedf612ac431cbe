//! The files that a change affects. If the change is lost, their owners must learn of it.
//!
//! A statement of a size, an access time and a lock do not count as work. If they are lost, the
//! file stays dirty, the time is old, and the lock ends with its session.
//!
//! Pure.

use std::fmt;

use types::Fid;
use wire::body::{
    AttrRep, CloseFlags, CloseReq, CreateReq, Disposition, FidReq, LinkReq, OpenReq,
    OstFallocateReq, OstIoReq, OstPunchReq, RenameReq, SetattrFlags, SetattrReq, SetxattrReq,
    UnlinkReq, closes,
};
use wire::{Request, decode_body};

use crate::flags;
use crate::operations::{self, Loss};

/// What of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Bytes of an object.
    Bytes {
        object: Fid,
        start: u64,
        end: u64,
    },
    /// A name in this directory.
    Name(Vec<u8>),
    Attributes,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Bytes { object, start, end: u64::MAX } => {
                write!(f, "the end of object {object} at {start}")
            }
            Part::Bytes { object, start, end } => write!(f, "bytes {start}..{end} of {object}"),
            Part::Name(name) => write!(f, "the name {:?}", String::from_utf8_lossy(name)),
            Part::Attributes => f.write_str("attributes"),
        }
    }
}

/// Attributes that nobody asked to be set.
const FOUND_OUT: SetattrFlags = SetattrFlags::SIZE_KNOWN.union(SetattrFlags::READ_AT);

/// Files and directories that an answered change touched.
pub(crate) fn touched(request: &Request) -> Vec<(Fid, Part)> {
    match operations::row(request.opcode()).loss {
        Loss::Nothing => Vec::new(),
        Loss::Write => {
            let body: OstIoReq = request.body();
            let end = body.offset.saturating_add(u64::from(body.length));
            vec![bytes(body.parent.into(), body.object.into(), body.offset, end)]
        }
        Loss::Punch => {
            let body: OstPunchReq = request.body();
            vec![bytes(body.parent.into(), body.object.into(), body.size, u64::MAX)]
        }
        Loss::Fallocate => {
            let body: OstFallocateReq = request.body();
            let end = body.offset.saturating_add(body.length);
            vec![bytes(body.parent.into(), body.object.into(), body.offset, end)]
        }
        loss => named(request, loss),
    }
}

fn bytes(file: Fid, object: Fid, start: u64, end: u64) -> (Fid, Part) {
    (file, Part::Bytes { object, start, end })
}

fn named(request: &Request, loss: Loss) -> Vec<(Fid, Part)> {
    let name = |index| Part::Name(request.buf(index).to_vec());
    let answered = || answered(request).map(|fid| (fid, Part::Attributes));
    match loss {
        Loss::Create => {
            let body: CreateReq = request.body();
            [(body.parent.into(), name(1))].into_iter().chain(answered()).collect()
        }
        Loss::Open => {
            let body: OpenReq = request.body();
            attributes(flags::may_change(body.open_flags), body.fid.into())
        }
        Loss::Close => {
            let body: CloseReq = request.body();
            let file = Fid::from(body.fid);
            let has_bytes = body.flags.contains(CloseFlags::DATA); // of the object at the MDT
            let brought = has_bytes.then(|| bytes(file, file, 0, body.size));
            let changed = attributes(body.flags.contains(CloseFlags::WROTE), file);
            brought.into_iter().chain(changed).collect()
        }
        Loss::Closes => {
            let closes = closes(request).unwrap_or_default().into_iter();
            let written = closes.filter(|body| body.flags.contains(CloseFlags::WROTE));
            written.map(|body| (body.fid.into(), Part::Attributes)).collect()
        }
        Loss::Link => {
            let body: LinkReq = request.body();
            vec![(body.parent.into(), name(1)), (body.fid.into(), Part::Attributes)]
        }
        Loss::Unlink => {
            let body: UnlinkReq = request.body();
            [(body.parent.into(), name(1))].into_iter().chain(answered()).collect()
        }
        Loss::Rename => {
            let body: RenameReq = request.body();
            let ends = [(body.parent.into(), name(1)), (body.new_parent.into(), name(2))];
            ends.into_iter().chain(answered()).collect()
        }
        Loss::Setattr => {
            let body: SetattrReq = request.body();
            attributes(!FOUND_OUT.contains(body.valid), body.attr.fid())
        }
        Loss::Setxattr => attributes(true, request.body::<SetxattrReq>().fid.into()),
        Loss::Removexattr => attributes(true, request.body::<FidReq>().fid.into()),
        Loss::Nothing | Loss::Write | Loss::Punch | Loss::Fallocate => Vec::new(),
    }
}

fn attributes(counts: bool, fid: Fid) -> Vec<(Fid, Part)> {
    if counts { vec![(fid, Part::Attributes)] } else { Vec::new() }
}

/// The file that the answer was about.
fn answered(request: &Request) -> Option<Fid> {
    let reply: AttrRep = decode_body(&request.replay_buf(0)?);
    Some(reply.attr.fid()).filter(|fid| !fid.is_zero())
}

/// The file that an answered create has made: it does not exist if that is undone.
pub(crate) fn made(request: &Request) -> Option<Fid> {
    let reply: AttrRep = decode_body(&request.replay_buf(0)?);
    let is_create = operations::row(request.opcode()).loss == Loss::Create;
    let is_made = is_create && reply.disposition.contains(Disposition::CREATED);
    is_made.then(|| reply.attr.fid())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::body::ClosesReq;
    use wire::{Attr, Opcode, encode_body};

    use super::*;

    const DIR: Fid = Fid { seq: 1, oid: 1, ver: 0 };
    const FILE: Fid = Fid { seq: 1, oid: 2, ver: 0 };

    /// With the answer's first buffer behind its own.
    fn request(opcode: Opcode, mut bufs: Vec<Bytes>) -> Request {
        let attr = Attr { fid_seq: FILE.seq, fid_oid: FILE.oid, ..Attr::default() };
        bufs.push(encode_body(&AttrRep { attr, ..AttrRep::default() }));
        let mut request = Request::new(opcode, bufs);
        request.header.replay_bufs = 1;
        request
    }

    fn check(request: &Request, want: &[(Fid, &str)]) {
        let touched = touched(request);
        let texts: Vec<_> = touched.iter().map(|(fid, part)| (*fid, part.to_string())).collect();
        let texts: Vec<_> = texts.iter().map(|(fid, text)| (*fid, text.as_str())).collect();
        assert_eq!(texts, want);
    }

    #[test]
    fn data_names_its_file_and_range() {
        let object = Fid::new(0x400, 9);
        let write = OstIoReq {
            object: object.into(),
            parent: FILE.into(),
            offset: 100,
            length: 50,
            ..OstIoReq::default()
        };
        let write = request(Opcode::OstWrite, vec![encode_body(&write), Bytes::from("data")]);
        check(&write, &[(FILE, "bytes 100..150 of [0x400:0x9:0x0]")]);
        let punch = OstPunchReq {
            object: object.into(),
            parent: FILE.into(),
            size: 7,
            ..OstPunchReq::default()
        };
        check(
            &request(Opcode::OstPunch, vec![encode_body(&punch)]),
            &[(FILE, "the end of object [0x400:0x9:0x0] at 7")],
        );
    }

    #[test]
    fn a_name_concerns_its_directory_and_its_file() {
        let body = encode_body(&CreateReq { parent: DIR.into(), ..CreateReq::default() });
        let create = request(Opcode::MdtCreate, vec![body, Bytes::from("a\nb")]);
        check(&create, &[(DIR, "the name \"a\\nb\""), (FILE, "attributes")]);
        let body = encode_body(&RenameReq {
            parent: DIR.into(),
            new_parent: DIR.into(),
            ..RenameReq::default()
        });
        let rename = request(Opcode::MdtRename, vec![body, Bytes::from("a"), Bytes::from("b")]);
        check(&rename, &[(DIR, "the name \"a\""), (DIR, "the name \"b\""), (FILE, "attributes")]);
    }

    #[test]
    fn a_create_says_whether_it_made_its_file() {
        let create = |disposition| {
            let mut create = request(Opcode::MdtCreate, vec![Bytes::new()]);
            let attr = Attr { fid_seq: FILE.seq, fid_oid: FILE.oid, ..Attr::default() };
            create.bufs[1] = encode_body(&AttrRep { attr, disposition, ..AttrRep::default() });
            create
        };
        assert_eq!(made(&create(Disposition::CREATED)), Some(FILE));
        assert_eq!(made(&create(Disposition::empty())), None, "the file was there");
        assert_eq!(made(&request(Opcode::MdtOpen, vec![Bytes::new()])), None);
    }

    #[test]
    fn closes_concern_the_files_that_were_written() {
        let body =
            |oid, flags| CloseReq { fid: Fid::new(1, oid).into(), flags, ..CloseReq::default() };
        let files =
            [body(2, CloseFlags::WROTE), body(3, CloseFlags::ATIME)].map(|body| encode_body(&body));
        let head = ClosesReq { count: 2, ..ClosesReq::default() };
        let closes = request(Opcode::MdtCloses, vec![encode_body(&head), files.concat().into()]);
        check(&closes, &[(FILE, "attributes")]);
    }

    #[test]
    fn a_close_that_brings_bytes_concerns_them_too() {
        let flags = CloseFlags::WROTE | CloseFlags::DATA;
        let body = CloseReq { fid: FILE.into(), flags, size: 9, ..CloseReq::default() };
        let close = request(Opcode::MdtClose, vec![encode_body(&body), Bytes::from("new bytes")]);
        check(&close, &[(FILE, "bytes 0..9 of [0x1:0x2:0x0]"), (FILE, "attributes")]);
    }

    #[test]
    fn an_open_that_cuts_its_file_is_work_though_it_only_reads() {
        let open_flags = flags::O_TRUNC;
        let cut = encode_body(&OpenReq { fid: FILE.into(), open_flags, ..OpenReq::default() });
        check(&request(Opcode::MdtOpen, vec![cut]), &[(FILE, "attributes")]);
    }

    #[test]
    fn what_was_found_out_and_locks_are_no_loss() {
        let valid = SetattrFlags::SIZE_KNOWN;
        let size = encode_body(&SetattrReq { valid, ..SetattrReq::default() });
        check(&request(Opcode::MdtSetattr, vec![size]), &[]);
        let read = encode_body(&OpenReq { fid: FILE.into(), ..OpenReq::default() });
        check(&request(Opcode::MdtOpen, vec![read]), &[]);
        check(&request(Opcode::MdtLock, vec![Bytes::new()]), &[]);
        let valid = SetattrFlags::SIZE_KNOWN | SetattrFlags::MODE;
        let attr = Attr { fid_seq: FILE.seq, fid_oid: FILE.oid, ..Attr::default() };
        let mode = encode_body(&SetattrReq { valid, attr, ..SetattrReq::default() });
        check(&request(Opcode::MdtSetattr, vec![mode]), &[(FILE, "attributes")]);
    }
}

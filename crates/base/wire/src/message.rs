//! Requests and replies: a fixed header, then typed buffers each with its own length.

use std::mem::offset_of;

use bytes::{Buf, Bytes};
use types::{Creds, Errno, GROUPS_MAX, Transno, Xid};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::flags::{ReplyFlags, RequestFlags};
use crate::frame::{begin, seal};
use crate::{FRAME_HEADER_BYTES, Frame, FrameKind, Opcode, VERSION};

/// Buffers of one message.
pub const BUFS_MAX: usize = 8;
/// Buffers of the reply to an open before the bytes of the file: body and layout record.
pub const OPEN_BUFS: usize = 2;
/// Bytes of a request's header.
pub const REQUEST_HEADER_BYTES: usize = size_of::<RequestHeader>();
/// Bytes of a reply's header.
pub const REPLY_HEADER_BYTES: usize = size_of::<ReplyHeader>();
/// Larger buffers are not copied behind the header.
const COPY_BYTES_MAX: usize = 4_096;

/// Header of a request (`docs/formats/wire.md`). Fields without a mechanism are zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RequestHeader {
    /// Version of the sender.
    pub version: u16,
    /// Number of an [`Opcode`](crate::Opcode).
    pub opcode: u16,
    /// What the sender asks of the server.
    pub flags: RequestFlags,
    /// Bytes of this header: a longer one has a tail to ignore.
    pub header_len: u16,
    /// Buffers behind the header, replayed reply included.
    pub buf_count: u8,
    /// How many of them are the first reply's (with REPLAY).
    pub replay_bufs: u8,
    /// Supplementary groups: u32 each, between header and buffers.
    pub group_count: u32,
    /// Number of the request at this client.
    pub xid: u64,
    /// All replies below this xid have arrived.
    pub acked_xid: u64,
    /// Session, as Connect's reply gave it.
    pub session: u64,
    /// Instance that the client believes to talk to.
    pub instance: u64,
    /// With REPLAY: the transno that the first reply carried.
    pub transno: u64,
    /// Slot of a modifying request (1..): a new request on it proves that the last reply arrived.
    pub tag: u32,
    /// Milliseconds until the client gives this attempt up.
    pub deadline_ms: u32,
    /// [`types::TargetId::to_u32`].
    pub target: u32,
    /// Count of this session's connections: an older link's requests are refused.
    pub epoch: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Project of the file, in a request by an open handle; else [`PROJID_NONE`].
    pub projid: u32,
    /// With REPLAY: place among the replays of this connection, from 1: what the network reordered
    /// is not a gap.
    pub replay_index: u32,
    /// Follows one application call through all servers.
    pub trace_id: u64,
    /// dmClock: requests served elsewhere since the last one here.
    pub delta: u32,
    /// dmClock: those of them served by reservation.
    pub rho: u32,
    /// Bulk that goes with the request, zero if none; a fresh one on each send.
    pub bulk_id: u64,
    /// Bytes of that bulk: data to pull (write), or room for data to push (read).
    pub bulk_len: u32,
    /// Zero.
    pub reserved2: u32,
    /// With REPLAY: versions of the objects before the first execution.
    pub pre_versions: [u64; 4],
    /// Label of the job, NUL padded.
    pub jobid: [u8; 32],
    /// Length of each buffer.
    pub buf_lens: [u32; BUFS_MAX],
}

const _: () = assert!(REQUEST_HEADER_BYTES == 216);

/// Project of a request that names none.
pub const PROJID_NONE: u32 = u32::MAX;

/// Header of a reply.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ReplyHeader {
    /// Version of the sender.
    pub version: u16,
    /// Opcode of the request that it answers.
    pub opcode: u16,
    /// How the client treats the reply.
    pub flags: ReplyFlags,
    /// Bytes of this header.
    pub header_len: u16,
    /// Buffers behind it.
    pub buf_count: u16,
    /// Zero, or a positive errno.
    pub status: u32,
    /// Xid of the request that it answers.
    pub xid: u64,
    /// Place of the change in history, zero if nothing changed.
    pub transno: u64,
    /// Everything up to here is durable.
    pub last_committed: u64,
    /// Instance of the target.
    pub instance: u64,
    /// Locks that this session may hold.
    pub lock_budget: u32,
    /// Lease granted from now; with EARLY the extension.
    pub lease_ms: u32,
    /// What the server expects a request to take.
    pub service_estimate_ms: u32,
    /// Zero.
    pub reserved: u32,
    /// Version of the configuration that the server knows.
    pub config_version: u64,
    /// Of an MDT: the last change that the answer speaks of. Of two answers about a file the one
    /// with the higher number is the later one, whichever arrives first. Zero: it does not say.
    pub as_of: u64,
    /// Of an MDT: grants of this session with lower numbers are void. Zero: it does not say.
    pub floor: u64,
    /// Versions of the objects after the change.
    pub post_versions: [u64; 2],
    /// Length of each buffer.
    pub buf_lens: [u32; BUFS_MAX],
}

const _: () = assert!(REPLY_HEADER_BYTES == 136);

/// A request in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Everything of fixed size. Counts and lengths in it are filled in by [`Request::to_frame`].
    pub header: RequestHeader,
    /// Supplementary groups of the caller.
    pub groups: Vec<u32>,
    /// Body first. With REPLAY the first reply's buffers come last.
    pub bufs: Vec<Bytes>,
}

/// A reply in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Everything of fixed size.
    pub header: ReplyHeader,
    /// Body first.
    pub bufs: Vec<Bytes>,
}

/// Bytes that are no message. The peer is dropped, unless only the opcode is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Shorter than its header or than its lengths say.
    #[error("message is cut short: {have} bytes of {need}")]
    Short {
        /// Bytes there.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// An operation that this version does not know, in a request that is well formed otherwise.
    /// It is refused, and its link stays.
    #[error("unknown opcode {}", .0.opcode)]
    Opcode(Box<RequestHeader>),
    /// A count over its bound.
    #[error("message claims {count} {what}, at most {bound} are allowed")]
    Count {
        /// What is counted.
        what: &'static str,
        /// Count in the header.
        count: usize,
        /// Highest count that is accepted.
        bound: usize,
    },
    /// Bytes behind the last buffer.
    #[error("{0} bytes follow the last buffer")]
    Trailing(usize),
    /// Something that nobody knows how to give up.
    #[error("a grant has unknown bits: {0:#x}")]
    GrantBits(u16),
    /// A request that no target sends to its client.
    #[error("{0} is not a callback")]
    NoCallback(&'static str),
}

impl Request {
    /// A request of `opcode` with `bufs`, body first.
    #[must_use]
    pub fn new(opcode: Opcode, bufs: Vec<Bytes>) -> Request {
        let header =
            RequestHeader { version: VERSION, opcode: opcode as u16, ..RequestHeader::default() };
        Request { header, groups: Vec::new(), bufs }
    }

    /// The operation; decoded messages always have a known one.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        Opcode::from_u16(self.header.opcode).expect("set by new or checked by decode")
    }

    /// Number of the request at its client.
    #[must_use]
    pub fn xid(&self) -> Xid {
        Xid(self.header.xid)
    }

    /// Whether `flag` is set.
    #[must_use]
    pub fn has(&self, flag: RequestFlags) -> bool {
        self.header.flags.contains(flag)
    }

    /// User, group and groups of the caller.
    #[must_use]
    pub fn creds(&self) -> Creds {
        Creds { uid: self.header.uid, gid: self.header.gid, groups: self.groups.clone() }
    }

    /// Body, zero-extended or cut to `T`.
    #[must_use]
    pub fn body<T: FromBytes + IntoBytes>(&self) -> T {
        decode_body(self.bufs.first().map_or(&[], |buf| buf))
    }

    /// Buffer `index` of the request itself (0 is the body); empty where there is none.
    #[must_use]
    pub fn buf(&self, index: usize) -> Bytes {
        let own = self.bufs.len().saturating_sub(usize::from(self.header.replay_bufs));
        self.bufs[..own].get(index).cloned().unwrap_or_default()
    }

    /// Buffer `index` of the first reply, on a replay.
    #[must_use]
    pub fn replay_buf(&self, index: usize) -> Option<Bytes> {
        let own = self.bufs.len().checked_sub(usize::from(self.header.replay_bufs))?;
        self.bufs[own..].get(index).cloned()
    }

    /// As a frame; buffers are shared, not copied.
    #[must_use]
    pub fn to_frame(&self) -> Frame {
        self.check();
        let mut header = self.header;
        header.header_len = REQUEST_HEADER_BYTES as u16;
        header.buf_count = self.bufs.len() as u8;
        header.group_count = self.groups.len() as u32;
        header.buf_lens = lengths(&self.bufs);
        let parts = join([header.as_bytes(), self.groups.as_bytes()], &self.bufs);
        Frame { kind: FrameKind::Request, id: header.xid, parts: parts.into() }
    }

    fn check(&self) {
        assert!(self.bufs.len() <= BUFS_MAX, "a request has at most {BUFS_MAX} buffers");
        assert!(
            self.groups.len() <= GROUPS_MAX,
            "a caller's groups are bounded where they are read"
        );
    }

    /// From a frame's payload.
    pub fn decode(payload: &Bytes) -> Result<Request, MessageError> {
        Request::take(payload.clone()).map(|request| *request)
    }

    /// From a frame's payload, which is taken apart. Boxed where it is made, so that nobody moves
    /// its header.
    pub fn take(payload: Bytes) -> Result<Box<Request>, MessageError> {
        let mut request = Box::<Request>::default();
        let Request { header, groups, bufs } = &mut *request;
        fill(header, &payload);
        let head = head_len(&payload, header.header_len, REQUEST_HEADER_BYTES)?;
        let group_count = bounded("groups", header.group_count as usize, GROUPS_MAX)?;
        let end = head + 4 * group_count;
        let words =
            payload.get(head..end).ok_or(MessageError::Short { have: payload.len(), need: end })?;
        groups.extend(
            words
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])),
        );
        bounded(
            "replayed buffers",
            usize::from(header.replay_bufs),
            usize::from(header.buf_count),
        )?;
        *bufs = split(payload, end, usize::from(header.buf_count), &header.buf_lens)?;
        if Opcode::from_u16(header.opcode).is_none() {
            return Err(MessageError::Opcode(Box::new(*header)));
        }
        Ok(request)
    }
}

/// What a link can encode into its own buffer: a request or a reply.
pub trait Message {
    /// As a frame; buffers are shared, not copied.
    fn to_frame(&self) -> Frame;
    /// Bytes of that frame, header included.
    fn frame_bytes(&self) -> usize;
    /// Appends that frame, its checksum included: the same bytes, without the frame.
    fn encode_into(&self, out: &mut Vec<u8>);
}

impl Message for Request {
    fn to_frame(&self) -> Frame {
        Request::to_frame(self)
    }

    fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + REQUEST_HEADER_BYTES + 4 * self.groups.len() + bytes_of(&self.bufs)
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        self.check();
        let (start, length) = (out.len(), self.frame_bytes() - FRAME_HEADER_BYTES);
        out.reserve(FRAME_HEADER_BYTES + length);
        begin(out, FrameKind::Request, self.header.xid, length);
        let head = out.len();
        out.extend_from_slice(self.header.as_bytes());
        let mut put =
            |at: usize, bytes: &[u8]| out[head + at..][..bytes.len()].copy_from_slice(bytes);
        put(offset_of!(RequestHeader, header_len), &(REQUEST_HEADER_BYTES as u16).to_le_bytes());
        put(offset_of!(RequestHeader, buf_count), &[self.bufs.len() as u8]);
        put(offset_of!(RequestHeader, group_count), &(self.groups.len() as u32).to_le_bytes());
        put(offset_of!(RequestHeader, buf_lens), lengths(&self.bufs).as_bytes());
        out.extend_from_slice(self.groups.as_bytes());
        self.bufs.iter().for_each(|buf| out.extend_from_slice(buf));
        seal(&mut out[start..]);
    }
}

impl Message for Reply {
    fn to_frame(&self) -> Frame {
        Reply::to_frame(self)
    }

    fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + REPLY_HEADER_BYTES + bytes_of(&self.bufs)
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        assert!(self.bufs.len() <= BUFS_MAX, "a reply has at most {BUFS_MAX} buffers");
        let (start, length) = (out.len(), self.frame_bytes() - FRAME_HEADER_BYTES);
        out.reserve(FRAME_HEADER_BYTES + length);
        begin(out, FrameKind::Reply, self.header.xid, length);
        let head = out.len();
        out.extend_from_slice(self.header.as_bytes());
        let mut put =
            |at: usize, bytes: &[u8]| out[head + at..][..bytes.len()].copy_from_slice(bytes);
        put(offset_of!(ReplyHeader, header_len), &(REPLY_HEADER_BYTES as u16).to_le_bytes());
        put(offset_of!(ReplyHeader, buf_count), &(self.bufs.len() as u16).to_le_bytes());
        put(offset_of!(ReplyHeader, buf_lens), lengths(&self.bufs).as_bytes());
        self.bufs.iter().for_each(|buf| out.extend_from_slice(buf));
        seal(&mut out[start..]);
    }
}

impl Reply {
    /// The answer to `request`: `bufs`, body first.
    #[must_use]
    pub fn ok(request: &RequestHeader, bufs: Vec<Bytes>) -> Reply {
        let header = ReplyHeader {
            version: VERSION,
            opcode: request.opcode,
            xid: request.xid,
            ..ReplyHeader::default()
        };
        Reply { header, bufs }
    }

    /// The refusal of `request`.
    #[must_use]
    pub fn error(request: &RequestHeader, errno: Errno) -> Reply {
        let mut reply = Reply::ok(request, Vec::new());
        reply.header.status = errno.raw().unsigned_abs();
        reply
    }

    /// The error it carries.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        (self.header.status != 0)
            .then(|| Errno::from_raw(i32::try_from(self.header.status).unwrap_or(i32::MAX)))
    }

    /// Place of the change in history.
    #[must_use]
    pub fn transno(&self) -> Transno {
        Transno(self.header.transno)
    }

    /// Whether `flag` is set.
    #[must_use]
    pub fn has(&self, flag: ReplyFlags) -> bool {
        self.header.flags.contains(flag)
    }

    /// Body, zero-extended or cut to `T`.
    #[must_use]
    pub fn body<T: FromBytes + IntoBytes>(&self) -> T {
        decode_body(self.bufs.first().map_or(&[], |buf| buf))
    }

    /// Buffer `index` (0 is the body); empty where there is none.
    #[must_use]
    pub fn buf(&self, index: usize) -> Bytes {
        self.bufs.get(index).cloned().unwrap_or_default()
    }

    /// The buffers that a resend and a replay repeat. The bytes of a file in the reply to an open
    /// are not among them.
    #[must_use]
    pub fn lasting(&self) -> &[Bytes] {
        let is_open = self.header.opcode == Opcode::MdtOpen as u16;
        let most = if is_open { OPEN_BUFS } else { BUFS_MAX };
        &self.bufs[..self.bufs.len().min(most)]
    }

    /// As a frame; buffers are shared, not copied.
    #[must_use]
    pub fn to_frame(&self) -> Frame {
        assert!(self.bufs.len() <= BUFS_MAX, "a reply has at most {BUFS_MAX} buffers");
        let mut header = self.header;
        header.header_len = REPLY_HEADER_BYTES as u16;
        header.buf_count = self.bufs.len() as u16;
        header.buf_lens = lengths(&self.bufs);
        Frame {
            kind: FrameKind::Reply,
            id: header.xid,
            parts: join([header.as_bytes(), &[]], &self.bufs).into(),
        }
    }

    /// From a frame's payload.
    pub fn decode(payload: &Bytes) -> Result<Reply, MessageError> {
        Reply::take(payload.clone()).map(|reply| *reply)
    }

    /// From a frame's payload, which is taken apart. Boxed where it is made, so that nobody moves
    /// its header.
    pub fn take(payload: Bytes) -> Result<Box<Reply>, MessageError> {
        let mut reply = Box::<Reply>::default();
        let Reply { header, bufs } = &mut *reply;
        fill(header, &payload);
        let head = head_len(&payload, header.header_len, REPLY_HEADER_BYTES)?;
        *bufs = split(payload, head, usize::from(header.buf_count), &header.buf_lens)?;
        Ok(reply)
    }
}

/// `T` from a buffer: a longer one's tail is ignored, a shorter one is extended with zeros.
#[must_use]
pub fn decode_body<T: FromBytes + IntoBytes>(buf: &[u8]) -> T {
    let mut value = T::new_zeroed();
    fill(&mut value, buf);
    value
}

/// [`decode_body`] in place: `value` is zero before.
fn fill<T: FromBytes + IntoBytes>(value: &mut T, buf: &[u8]) {
    let target = value.as_mut_bytes();
    match buf.get(..target.len()) {
        Some(whole) => target.copy_from_slice(whole), // of a length that is known: no call
        None => target[..buf.len()].copy_from_slice(buf),
    }
}

/// A body as a buffer.
#[must_use]
pub fn encode_body<T: IntoBytes + Immutable>(body: &T) -> Bytes {
    Bytes::copy_from_slice(body.as_bytes())
}

fn bounded(what: &'static str, count: usize, bound: usize) -> Result<usize, MessageError> {
    if count > bound { Err(MessageError::Count { what, count, bound }) } else { Ok(count) }
}

/// Where the header of a message ends: its own word for it, at least as much as version 1 has.
fn head_len(payload: &Bytes, claimed: u16, known: usize) -> Result<usize, MessageError> {
    let need = usize::from(claimed).max(known);
    if payload.len() < need {
        Err(MessageError::Short { have: payload.len(), need })
    } else {
        Ok(need)
    }
}

fn bytes_of(bufs: &[Bytes]) -> usize {
    bufs.iter().map(Bytes::len).sum()
}

fn lengths(bufs: &[Bytes]) -> [u32; BUFS_MAX] {
    let mut lens = [0; BUFS_MAX];
    for (slot, buf) in lens.iter_mut().zip(bufs) {
        *slot = u32::try_from(buf.len()).expect("a frame is bounded far below 4 GiB");
    }
    lens
}

/// Small buffers are copied behind the header, so that a small message is one part; large ones are
/// shared. Each run of copies is allocated once, in its exact size: only then does it become
/// `Bytes` without another.
fn join(head: [&[u8]; 2], bufs: &[Bytes]) -> Vec<Bytes> {
    let run_of = |bufs: &[Bytes]| -> usize {
        bufs.iter().map(Bytes::len).take_while(|len| *len <= COPY_BYTES_MAX).sum()
    };
    let mut parts = Vec::with_capacity(1);
    let mut run = Vec::with_capacity(head[0].len() + head[1].len() + run_of(bufs));
    run.extend_from_slice(head[0]);
    run.extend_from_slice(head[1]);
    for (index, buf) in bufs.iter().enumerate() {
        if buf.len() <= COPY_BYTES_MAX {
            run.extend_from_slice(buf);
        } else {
            parts.push(Bytes::from(std::mem::take(&mut run)));
            parts.push(buf.clone());
            run.reserve_exact(run_of(&bufs[index + 1..]));
        }
    }
    parts.push(Bytes::from(run));
    parts.retain(|part| !part.is_empty());
    parts
}

/// The last buffer is what is left of the payload: one that is alone costs no further reference.
fn split(
    mut payload: Bytes,
    start: usize,
    count: usize,
    lens: &[u32; BUFS_MAX],
) -> Result<Vec<Bytes>, MessageError> {
    bounded("buffers", count, BUFS_MAX)?;
    let lens = &lens[..count];
    let need = start + lens.iter().map(|len| *len as usize).sum::<usize>();
    let have = payload.len();
    if need > have {
        return Err(MessageError::Short { have, need });
    }
    if need < have {
        return Err(MessageError::Trailing(have - need));
    }
    payload.advance(start);
    let Some((_, others)) = lens.split_last() else { return Ok(Vec::new()) };
    let mut bufs = Vec::with_capacity(count);
    bufs.extend(others.iter().map(|len| payload.split_to(*len as usize)));
    // an empty one keeps nothing alive
    bufs.push(if payload.is_empty() { Bytes::new() } else { payload });
    Ok(bufs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        let mut request = Request::new(
            Opcode::MdtLookup,
            vec![Bytes::from_static(b"body"), Bytes::from(vec![7; 9_000]), Bytes::new()],
        );
        request.header.xid = 99;
        request.groups = vec![4, 24];
        request
    }

    #[test]
    fn a_request_goes_there_and_back() {
        let payload = request().to_frame().into_payload();
        let decoded = Request::decode(&payload).expect("our own bytes");
        assert_eq!((decoded.groups, decoded.bufs), (request().groups, request().bufs));
        assert_eq!(decoded.header.xid, 99);
    }

    #[test]
    fn what_a_link_encodes_itself_is_the_frame() {
        let check = |message: &dyn Message| {
            let mut out = vec![1, 2, 3];
            message.encode_into(&mut out);
            assert_eq!(out[3..], message.to_frame().encode(crate::CrcMode::All));
            assert_eq!(out.len() - 3, message.frame_bytes());
        };
        check(&request());
        check(&Request::default());
        let mut stale = request(); // lengths that were filled in for another sending
        (stale.header.header_len, stale.header.buf_count, stale.header.group_count) = (9, 7, 5);
        stale.header.buf_lens = [3; BUFS_MAX];
        check(&stale);
        check(&Reply::ok(&request().header, request().bufs));
        check(&Reply::error(&request().header, Errno::EIO));
    }

    #[test]
    fn the_bytes_of_a_file_do_not_last_behind_the_reply_to_an_open() {
        let lasting = |opcode| {
            let bufs = vec![Bytes::from_static(b"buf"); 3];
            Reply::ok(&Request::new(opcode, Vec::new()).header, bufs).lasting().len()
        };
        assert_eq!((lasting(Opcode::MdtOpen), lasting(Opcode::MdtCreate)), (2, 3));
        let short = Reply::error(&Request::new(Opcode::MdtOpen, Vec::new()).header, Errno::EIO);
        assert!(short.lasting().is_empty());
    }

    #[test]
    fn every_cut_of_a_request_is_refused() {
        let payload = request().to_frame().into_payload();
        for len in 0..payload.len() {
            assert!(Request::decode(&payload.slice(..len)).is_err(), "{len}");
        }
    }

    #[test]
    fn an_unknown_operation_can_be_refused_and_its_cuts_are_nonsense() {
        let mut newer = request();
        newer.header.opcode = u16::MAX;
        let payload = newer.to_frame().into_payload();
        let Err(MessageError::Opcode(header)) = Request::decode(&payload) else {
            panic!("it is not known");
        };
        assert_eq!((header.xid, header.opcode), (99, u16::MAX));
        for len in 0..payload.len() {
            let cut = Request::decode(&payload.slice(..len));
            assert!(matches!(cut, Err(MessageError::Short { .. })), "{len}");
        }
    }

    #[test]
    fn bodies_of_other_versions_are_zero_extended_or_cut() {
        let longer: u32 = decode_body(&[1, 0, 0, 0, 9]);
        let shorter: u32 = decode_body(&[2]);
        assert_eq!((longer, shorter), (1, 2));
    }

    #[test]
    fn replayed_buffers_are_told_apart() {
        let mut replay = request();
        replay.bufs.push(Bytes::from_static(b"reply"));
        replay.header.replay_bufs = 1;
        let decoded = Request::decode(&replay.to_frame().into_payload()).expect("our own bytes");
        assert_eq!(decoded.replay_buf(0), Some(Bytes::from_static(b"reply")));
        assert_eq!(decoded.buf(3), Bytes::new());
    }
}

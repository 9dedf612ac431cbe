//! Frames, which LNDs carry: 32 bytes of header, then the payload.
//!
//! ```text
//!  0        4      5       6          8         12        16              24              32
//!  | magic  | kind | flags | reserved | length  | crc32c  |  id           | reserved      | payload ...
//! ```
//! `length` counts the payload. `crc32c` covers the header (with this field zero) and the payload.
//! It leaves the payload out on a bulk frame with the flag `NO_DATA_CRC`.

use std::fmt;

use bytes::Bytes;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Parts;

/// "NACR" read as little-endian.
pub const FRAME_MAGIC: u32 = 0x5243_414e;
/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 32;
/// Largest frame: a bulk of 4 MiB and room for headers.
pub const FRAME_BYTES_MAX: usize = (4 << 20) + (64 << 10);

const FLAG_NO_DATA_CRC: u8 = 1;
/// Where `crc` stands in the header.
const CRC_AT: std::ops::Range<usize> = 12..16;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame of each side of a connection.
    Hello = 1,
    /// A request, either way: callbacks run backwards on the same link.
    Request = 2,
    /// A reply; `id` is the xid.
    Reply = 3,
    /// "Send me the data that you registered as `id`."
    BulkPull = 4,
    /// Data of bulk `id`.
    BulkData = 5,
    /// Keep-alive of the link itself.
    Heartbeat = 6,
}

impl FrameKind {
    fn from_u8(value: u8) -> Option<FrameKind> {
        Some(match value {
            1 => FrameKind::Hello,
            2 => FrameKind::Request,
            3 => FrameKind::Reply,
            4 => FrameKind::BulkPull,
            5 => FrameKind::BulkData,
            6 => FrameKind::Heartbeat,
            _ => return None,
        })
    }
}

/// Which payloads a sender checksums. Headers and messages always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrcMode {
    /// Bulk data too.
    #[default]
    All,
    /// Bulk data travels without.
    NoBulk,
}

/// A frame in memory. The payload may come in parts so that nothing is copied together before it is
/// sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is, and for which channel.
    pub kind: FrameKind,
    /// Bulk id, or xid of a reply; zero elsewhere.
    pub id: u64,
    /// Payload, in as many pieces as the sender had.
    pub parts: Parts,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawHeader {
    magic: u32,
    kind: u8,
    flags: u8,
    reserved: u16,
    length: u32,
    crc: u32,
    id: u64,
    reserved2: u64,
}

const _: () = assert!(size_of::<RawHeader>() == FRAME_HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(RawHeader, crc) == CRC_AT.start);

/// A frame's header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame is.
    pub kind: FrameKind,
    /// Bulk id, or xid of a reply.
    pub id: u64,
    /// Payload bytes to follow, at most [`FRAME_BYTES_MAX`].
    pub length: usize,
    crc: u32,
    flags: u8,
}

/// Bytes that are no frame. The peer is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Fewer bytes than a header, or than the header announces.
    #[error("frame is cut short: {have} bytes of {need}")]
    Short {
        /// Bytes there.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// The first word is not that of a frame.
    #[error("frame has magic {0:#x}, expected {FRAME_MAGIC:#x}")]
    Magic(u32),
    /// A kind that this version does not know.
    #[error("frame of unknown kind {0}")]
    Kind(u8),
    /// A length beyond the bound of its kind.
    #[error("frame of {length} bytes is over the bound of {bound}")]
    Length {
        /// Length that the header announces, bytes.
        length: usize,
        /// Longest payload of this kind, bytes.
        bound: usize,
    },
    /// Damaged on the way.
    #[error("frame checksum {got:#x} does not match {expected:#x}")]
    Crc {
        /// Checksum computed here.
        got: u32,
        /// Checksum in the header.
        expected: u32,
    },
    /// A HELLO that cannot be understood.
    #[error("bad HELLO: {0}")]
    Hello(&'static str),
}

impl Frame {
    /// A frame of one part.
    #[must_use]
    pub fn new(kind: FrameKind, id: u64, payload: Bytes) -> Frame {
        Frame { kind, id, parts: Parts::One(payload) }
    }

    /// Payload bytes.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.parts.bytes()
    }

    /// The header that goes out before the parts.
    #[must_use]
    pub fn encode_header(&self, crc: CrcMode) -> [u8; FRAME_HEADER_BYTES] {
        let mut raw = self.raw_header(crc);
        let mut sum = crc32c::crc32c(raw.as_bytes());
        if raw.flags & FLAG_NO_DATA_CRC == 0 {
            for part in self.parts.as_slice() {
                sum = crc32c::crc32c_append(sum, part);
            }
        }
        raw.crc = sum;
        let mut out = [0; FRAME_HEADER_BYTES];
        out.copy_from_slice(raw.as_bytes());
        out
    }

    /// Without its checksum.
    fn raw_header(&self, crc: CrcMode) -> RawHeader {
        let no_data = crc == CrcMode::NoBulk && self.kind == FrameKind::BulkData;
        RawHeader::new(
            self.kind,
            if no_data { FLAG_NO_DATA_CRC } else { 0 },
            self.id,
            self.payload_len(),
        )
    }

    /// Appends the whole frame to `out`: one pass of the checksum over what was copied anyway.
    pub fn encode_into(&self, out: &mut Vec<u8>, crc: CrcMode) {
        let start = out.len();
        let raw = self.raw_header(crc);
        out.extend_from_slice(raw.as_bytes());
        for part in self.parts.as_slice() {
            out.extend_from_slice(part);
        }
        let covered =
            if raw.flags & FLAG_NO_DATA_CRC == 0 { out.len() } else { start + FRAME_HEADER_BYTES };
        seal(&mut out[start..covered]);
    }

    /// The whole frame as one run of bytes.
    #[must_use]
    pub fn encode(&self, crc: CrcMode) -> Bytes {
        let mut out = Vec::with_capacity(FRAME_HEADER_BYTES + self.payload_len());
        self.encode_into(&mut out, crc);
        out.into()
    }

    /// One whole frame.
    pub fn decode(bytes: &Bytes) -> Result<Frame, FrameError> {
        let header = FrameHeader::decode(bytes)?;
        let need = FRAME_HEADER_BYTES + header.length;
        if bytes.len() < need {
            return Err(FrameError::Short { have: bytes.len(), need });
        }
        let payload = bytes.slice(FRAME_HEADER_BYTES..need);
        header.check(&payload)?;
        Ok(Frame::new(header.kind, header.id, payload))
    }

    /// The payload as one run of bytes; copies only where it came in parts.
    #[must_use]
    pub fn into_payload(self) -> Bytes {
        self.parts.join()
    }
}

impl RawHeader {
    /// Without its checksum.
    fn new(kind: FrameKind, flags: u8, id: u64, length: usize) -> RawHeader {
        assert!(length <= FRAME_BYTES_MAX, "a sender keeps its own frames within the bound");
        let length = u32::try_from(length).expect("bounded above");
        RawHeader {
            magic: FRAME_MAGIC,
            kind: kind as u8,
            flags,
            reserved: 0,
            length,
            crc: 0,
            id,
            reserved2: 0,
        }
    }
}

/// Appends the header of a frame whose payload of `length` bytes follows and is then [`seal`]ed
/// with it.
pub(crate) fn begin(out: &mut Vec<u8>, kind: FrameKind, id: u64, length: usize) {
    out.extend_from_slice(RawHeader::new(kind, 0, id, length).as_bytes());
}

/// Puts the checksum of `covered`, a frame from its first byte on, into its header.
pub(crate) fn seal(covered: &mut [u8]) {
    let sum = crc32c::crc32c(covered);
    covered[CRC_AT].copy_from_slice(&sum.to_le_bytes());
}

impl FrameHeader {
    /// From the first 32 bytes; says how many follow. Nothing is allocated before this has passed.
    pub fn decode(bytes: &[u8]) -> Result<FrameHeader, FrameError> {
        let Ok((raw, _)) = RawHeader::read_from_prefix(bytes) else {
            return Err(FrameError::Short { have: bytes.len(), need: FRAME_HEADER_BYTES });
        };
        if raw.magic != FRAME_MAGIC {
            return Err(FrameError::Magic(raw.magic));
        }
        let kind = FrameKind::from_u8(raw.kind).ok_or(FrameError::Kind(raw.kind))?;
        let length = raw.length as usize;
        let bound = match kind {
            FrameKind::Hello | FrameKind::BulkPull | FrameKind::Heartbeat => 4_096,
            FrameKind::Request | FrameKind::Reply | FrameKind::BulkData => FRAME_BYTES_MAX,
        };
        if length > bound {
            return Err(FrameError::Length { length, bound });
        }
        Ok(FrameHeader { kind, id: raw.id, length, crc: raw.crc, flags: raw.flags })
    }

    /// [`FrameHeader::check`] of a frame that stands in one run, header included, in one pass. The
    /// header's checksum is overwritten with zero.
    pub fn check_in_place(&self, frame: &mut [u8]) -> Result<(), FrameError> {
        let need = FRAME_HEADER_BYTES + self.length;
        if frame.len() != need {
            return Err(FrameError::Short { have: frame.len(), need });
        }
        frame[CRC_AT].fill(0);
        // reserved bytes are covered as they came: who sets them without a feature bit is not
        // understood
        let covered = if self.flags & FLAG_NO_DATA_CRC == 0 { need } else { FRAME_HEADER_BYTES };
        let got = crc32c::crc32c(&frame[..covered]);
        if got == self.crc { Ok(()) } else { Err(FrameError::Crc { got, expected: self.crc }) }
    }

    /// Whether `payload` is what the sender sent.
    pub fn check(&self, payload: &[u8]) -> Result<(), FrameError> {
        if payload.len() != self.length {
            return Err(FrameError::Short { have: payload.len(), need: self.length });
        }
        let raw = RawHeader::new(self.kind, self.flags, self.id, self.length);
        let mut got = crc32c::crc32c(raw.as_bytes());
        if self.flags & FLAG_NO_DATA_CRC == 0 {
            got = crc32c::crc32c_append(got, payload);
        }
        if got == self.crc { Ok(()) } else { Err(FrameError::Crc { got, expected: self.crc }) }
    }
}

/// First frame of each side: who speaks, which version, which of the pair's connections this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hello {
    /// [`crate::VERSION`] of the sender.
    pub version: u16,
    /// Oldest version it speaks.
    pub version_min: u16,
    /// 0 control, 1 bulk towards the acceptor, 2 bulk towards the connector.
    pub channel: u16,
    /// Bytes of authentication that follow this struct; zero for now.
    pub auth_len: u16,
    /// Features that a peer may ignore.
    pub compat: u64,
    /// Features that a peer must know to change anything.
    pub ro_compat: u64,
    /// Features that a peer must know to talk at all.
    pub incompat: u64,
    /// Ties the connections of one pair together; drawn by the connector.
    pub nonce: u64,
    /// NID of the sender.
    pub nid: u64,
    /// Messages that the sender takes before it has given credits back.
    pub credits: u32,
    /// Why the acceptor closes the connection behind this HELLO: a [`HelloRefusal`]; zero where it
    /// does not, and from the connector.
    pub refusal: u32,
}

/// Why an acceptor refuses a connection, in [`Hello::refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloRefusal(pub u32);

impl HelloRefusal {
    /// From this machine only root and the server's own user may connect.
    pub const LOCAL_USER: HelloRefusal = HelloRefusal(1);
}

impl fmt::Display for HelloRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            HelloRefusal::LOCAL_USER => f.write_str(
                "of this machine it takes connections only from root and its own user \
                 (`--trust-local-users` there lets all users in)",
            ),
            HelloRefusal(other) => write!(f, "it refuses this connection for reason {other}"),
        }
    }
}

impl Hello {
    /// Whether the acceptor closes the connection, and why.
    #[must_use]
    pub fn refused(&self) -> Option<HelloRefusal> {
        (self.refusal != 0).then_some(HelloRefusal(self.refusal))
    }

    /// As the frame that opens a connection.
    #[must_use]
    pub fn to_frame(&self) -> Frame {
        Frame::new(FrameKind::Hello, self.nonce, Bytes::copy_from_slice(self.as_bytes()))
    }

    /// From a frame; refuses versions and incompatible features that are not ours.
    pub fn from_frame(frame: &Frame) -> Result<Hello, FrameError> {
        if frame.kind != FrameKind::Hello {
            return Err(FrameError::Hello("another frame came first"));
        }
        let payload = frame.clone().into_payload();
        let Ok((hello, behind)) = Hello::read_from_prefix(&payload) else {
            return Err(FrameError::Hello("it is too short"));
        };
        if usize::from(hello.auth_len) > behind.len() {
            return Err(FrameError::Hello("its authentication is cut off"));
        }
        if hello.version < crate::VERSION_MIN || hello.version_min > crate::VERSION {
            return Err(FrameError::Hello("the peer speaks another version"));
        }
        if hello.incompat != 0 {
            return Err(FrameError::Hello("the peer needs a feature that is not known here"));
        }
        if hello.channel > 2 {
            return Err(FrameError::Hello("it names no channel"));
        }
        Ok(hello)
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn frame() -> Frame {
        Frame {
            kind: FrameKind::Request,
            id: 7,
            parts: vec![Bytes::from_static(b"abc"), Bytes::from_static(b"defg")].into(),
        }
    }

    #[test]
    fn a_frame_goes_there_and_back() {
        let decoded = Frame::decode(&frame().encode(CrcMode::All)).expect("our own bytes");
        assert_eq!(decoded.into_payload(), "abcdefg");
    }

    #[test]
    fn a_flipped_bit_is_noticed_anywhere() {
        let good = frame().encode(CrcMode::All);
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            // reserved bytes are covered by being zero in the sum
            if (48..64).contains(&bit) || (192..256).contains(&bit) {
                continue;
            }
            assert!(Frame::decode(&Bytes::from(bad)).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn one_pass_and_two_find_the_same_checksum() {
        for (kind, crc) in
            [(FrameKind::Request, CrcMode::All), (FrameKind::BulkData, CrcMode::NoBulk)]
        {
            let frame = Frame { kind, ..frame() };
            let mut whole = frame.encode(crc).to_vec();
            assert_eq!(whole[..FRAME_HEADER_BYTES], frame.encode_header(crc));
            let header = FrameHeader::decode(&whole).expect("our own bytes");
            assert_eq!(header.check_in_place(&mut whole), Ok(()));
            whole[5] ^= 1;
            assert!(header.check_in_place(&mut whole).is_err());
        }
    }

    #[test]
    fn a_length_over_the_bound_is_refused_before_it_is_believed() {
        let mut bytes = frame().encode(CrcMode::All).to_vec();
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(FrameHeader::decode(&bytes), Err(FrameError::Length { .. })));
    }

    /// A later version sends them to this one.
    #[test]
    fn bytes_of_authentication_have_their_place_behind_a_hello() {
        let mut hello = Hello::new_zeroed();
        (hello.version, hello.version_min) = (crate::VERSION, crate::VERSION);
        hello.auth_len = 7;
        let sent = |auth: &[u8]| {
            let frame = hello.to_frame();
            let parts = vec![frame.clone().into_payload(), Bytes::copy_from_slice(auth)].into();
            Hello::from_frame(&Frame { parts, ..frame })
        };
        assert_eq!(sent(b"a proof").expect("its place"), hello);
        assert_eq!(sent(b"a proof and more").expect("its place"), hello);
        assert!(sent(b"a proo").is_err(), "some are missing");
    }

    #[test]
    fn bulk_may_go_without_a_checksum_of_its_data() {
        let bulk = Frame::new(FrameKind::BulkData, 9, Bytes::from_static(&[1; 64]));
        let mut bytes = bulk.encode(CrcMode::NoBulk).to_vec();
        bytes[FRAME_HEADER_BYTES] ^= 1;
        assert!(Frame::decode(&Bytes::from(bytes)).is_ok());
    }
}

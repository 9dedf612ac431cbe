//! Vectors of grants: those that a target asks its client to give back, and a client's statements
//! about its grants. Elements are [`GrantWord`], [`GrantAck`] and [`GrantSize`].
//!
//! ```text
//! request: | GrantsReq | elements ... |        reply of a callback: | CallbackRep | elements ... |
//! ```
//! Callbacks are requests in the other direction of a session's link. In their header, `session`,
//! `instance`, `target` and `epoch` are the session's own, and `xid` counts the target's callbacks
//! in the session.

use bytes::Bytes;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::body::{CallbackRep, GrantAck, GrantBits, GrantSize, GrantWord, GrantsFlags, GrantsReq};
use crate::{MessageError, Opcode, Reply, Request, RequestHeader, encode_body};

/// Elements of one vector: as many as a call about sizes has, and 128 KiB of what is recalled.
pub const VECTOR_MAX: usize = 4_096;

/// Every bit that a grant may have.
const KNOWN: GrantBits = GrantBits::LOOKUP
    .union(GrantBits::UPDATE)
    .union(GrantBits::OPEN)
    .union(GrantBits::LAYOUT)
    .union(GrantBits::PERM)
    .union(GrantBits::XATTR)
    .union(GrantBits::CACHE)
    .union(GrantBits::WRITE);

/// An element of a vector.
pub trait Element: Copy + FromBytes + IntoBytes + Immutable {
    /// The bits in it, which all have to be known.
    fn bits(&self) -> GrantBits;
}

impl Element for GrantWord {
    fn bits(&self) -> GrantBits {
        self.bits
    }
}

impl Element for GrantAck {
    fn bits(&self) -> GrantBits {
        self.kept
    }
}

impl Element for GrantSize {
    fn bits(&self) -> GrantBits {
        GrantBits::empty()
    }
}

/// The buffers of a request with these elements.
///
/// # Panics
/// Where there are more than [`VECTOR_MAX`].
#[must_use]
pub fn encode<T: Element>(elements: &[T], flags: GrantsFlags) -> Vec<Bytes> {
    let head = GrantsReq { count: count_of(elements), flags, reserved: 0 };
    vec![encode_body(&head), Bytes::copy_from_slice(elements.as_bytes())]
}

/// The elements of a request, and what is said of the whole.
pub fn decode<T: Element>(bufs: &[Bytes]) -> Result<(Vec<T>, GrantsFlags), MessageError> {
    let head: GrantsReq = crate::decode_body(bufs.first().map_or(&[], |buf| buf));
    let elements = elements(head.count, bufs.get(1).map_or(&[], |buf| buf))?;
    Ok((elements, head.flags))
}

/// The answer to the callback `request`, errors too: `elements` are what is ready at once.
#[must_use]
pub fn answer<T: Element>(request: &RequestHeader, elements: &[T]) -> Reply {
    let head =
        CallbackRep { session: request.session, target: request.target, count: count_of(elements) };
    let bufs = vec![encode_body(&head), Bytes::copy_from_slice(elements.as_bytes())];
    let mut reply = Reply::ok(request, bufs);
    reply.header.instance = request.instance;
    reply
}

/// The elements of an answer to a callback.
pub fn answered<T: Element>(reply: &Reply) -> Result<Vec<T>, MessageError> {
    elements(reply.body::<CallbackRep>().count, &reply.buf(1))
}

fn count_of<T>(elements: &[T]) -> u32 {
    assert!(elements.len() <= VECTOR_MAX, "a sender keeps its own vectors within the bound");
    elements.len() as u32
}

/// Nothing is allocated before count and length have been found to agree.
fn elements<T: Element>(count: u32, bytes: &[u8]) -> Result<Vec<T>, MessageError> {
    let count = count as usize;
    if count > VECTOR_MAX {
        return Err(MessageError::Count { what: "grants", count, bound: VECTOR_MAX });
    }
    let (have, need) = (bytes.len(), count * size_of::<T>());
    if have < need {
        return Err(MessageError::Short { have, need });
    }
    if have > need {
        return Err(MessageError::Trailing(have - need));
    }
    let checked = |chunk: &[u8]| {
        let element: T = crate::decode_body(chunk);
        let unknown = element.bits().difference(KNOWN);
        if unknown.is_empty() { Ok(element) } else { Err(MessageError::GrantBits(unknown.bits())) }
    };
    bytes.chunks_exact(size_of::<T>()).map(checked).collect()
}

/// What a target asks or tells its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callback {
    /// Give these back.
    Recall(Vec<GrantWord>),
    /// These waits for locks have their turn: file and cookie. It grants nothing.
    Complete(Vec<GrantWord>),
    /// Say how large these files are.
    Glimpse(Vec<GrantWord>),
}

impl Callback {
    /// The operation.
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        match self {
            Callback::Recall(_) => Opcode::CallRecall,
            Callback::Complete(_) => Opcode::CallComplete,
            Callback::Glimpse(_) => Opcode::CallGlimpse,
        }
    }

    /// Its elements.
    #[must_use]
    pub fn words(&self) -> &[GrantWord] {
        match self {
            Callback::Recall(words) | Callback::Complete(words) | Callback::Glimpse(words) => words,
        }
    }

    /// Its buffers.
    #[must_use]
    pub fn to_bufs(&self) -> Vec<Bytes> {
        encode(self.words(), GrantsFlags::empty())
    }

    /// From a request.
    pub fn decode(request: &Request) -> Result<Callback, MessageError> {
        let opcode = request.opcode();
        let make = match opcode {
            Opcode::CallRecall => Callback::Recall,
            Opcode::CallComplete => Callback::Complete,
            Opcode::CallGlimpse => Callback::Glimpse,
            _ => return Err(MessageError::NoCallback(opcode.name())),
        };
        Ok(make(decode(&request.bufs)?.0))
    }
}

#[cfg(test)]
mod tests {
    use types::Fid;

    use super::*;

    fn word(oid: u32) -> GrantWord {
        let fid = Fid::new(0x2_0000_0401, oid).into();
        GrantWord { fid, number: 9, bits: GrantBits::UPDATE, ..GrantWord::default() }
    }

    #[test]
    fn callbacks_go_there_and_back() {
        let words = || vec![word(1), word(2)];
        let all = [
            Callback::Recall(words()),
            Callback::Complete(words()),
            Callback::Glimpse(words()),
            Callback::Recall((0..VECTOR_MAX as u32).map(word).collect()),
            Callback::Recall(Vec::new()),
        ];
        for callback in all {
            let request = Request::new(callback.opcode(), callback.to_bufs());
            let payload = request.to_frame().into_payload();
            let decoded = Request::decode(&payload).expect("our own bytes");
            assert!(decoded.opcode().calls_back());
            assert_eq!(Callback::decode(&decoded), Ok(callback));
        }
    }

    #[test]
    fn an_answer_names_session_and_target() {
        let mut request = Request::new(Opcode::CallRecall, Vec::new());
        (request.header.session, request.header.target, request.header.xid) = (7, 8, 9);
        let ack = GrantAck { number: 3, writers: 1, ..GrantAck::default() };
        let reply = answer(&request.header, &[ack]);
        let CallbackRep { session, target, count } = reply.body();
        assert_eq!((session, target, count, reply.header.xid), (7, 8, 1, 9));
        assert_eq!(answered(&reply), Ok(vec![ack]));
    }

    #[test]
    fn a_vector_that_is_cut_or_too_long_or_of_unknown_bits_is_refused() {
        let bufs = encode(&[word(1), word(2)], GrantsFlags::LAST);
        assert_eq!(decode(&bufs), Ok((vec![word(1), word(2)], GrantsFlags::LAST)));
        let with = |count: u32, bytes: &[u8]| {
            let head = GrantsReq { count, ..GrantsReq::default() };
            decode::<GrantWord>(&[encode_body(&head), Bytes::copy_from_slice(bytes)])
        };
        for len in 0..bufs[1].len() {
            assert!(with(2, &bufs[1][..len]).is_err(), "{len}");
        }
        assert_eq!(with(1, &bufs[1]), Err(MessageError::Trailing(32)));
        let count = VECTOR_MAX + 1;
        let too_many = MessageError::Count { what: "grants", count, bound: VECTOR_MAX };
        assert_eq!(with(count as u32, &vec![0; count * 32]), Err(too_many));
        assert!(with(u32::MAX, &bufs[1]).is_err());
        let odd = GrantWord { bits: GrantBits::from_bits_retain(0x102), ..word(1) };
        let refused = decode::<GrantWord>(&encode(&[odd], GrantsFlags::empty()));
        assert_eq!(refused, Err(MessageError::GrantBits(0x100)));
        let no_callback = Callback::decode(&Request::new(Opcode::Ping, bufs));
        assert_eq!(no_callback, Err(MessageError::NoCallback("obd_ping")));
    }
}

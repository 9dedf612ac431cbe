//! Memory of ring entries, where the kernel puts a request and takes the answer.
//!
//! ```text
//!  | UringReqHeader ............ | head of the message, joined here | payload: data, names, answers        |
//!  0                            288                              HEAD                        HEAD + payload_size
//! ```
//!
//! The kernel splits a request into header, arguments and payload. The first two, some 80 bytes,
//! are copied in front of the payload. The whole is then one message in the device's format.

use std::io;
use std::ptr::NonNull;

use zerocopy::{FromBytes, IntoBytes};

use crate::abi;
use crate::reply::Body;

/// Bytes of an entry in front of the payload: a page, so that payloads are aligned.
const HEAD: usize = 4_096;
const JOINED_MAX: usize = size_of::<abi::InHeader>() + abi::URING_OP_IN_BYTES;

const _: () = assert!(size_of::<abi::UringReqHeader>() + JOINED_MAX <= HEAD);

/// A row of entries in one mapping. Untouched payloads take no memory.
pub(crate) struct Slab {
    at: NonNull<u8>,
    len: usize,
    stride: usize,
    payload_size: usize,
}

impl Slab {
    /// Of `count` entries whose payloads hold `payload_size` bytes.
    pub(crate) fn new(count: usize, payload_size: usize) -> io::Result<Slab> {
        let stride = HEAD + payload_size.next_multiple_of(HEAD);
        let len = count * stride;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing
        // that exists.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).expect("a mapping is not at address zero");
        Ok(Slab { at, len, stride, payload_size })
    }

    /// The entry with this index. The slab must outlive it.
    pub(crate) fn entry(&self, index: usize) -> Buffers {
        let offset = index * self.stride;
        assert!(offset + self.stride <= self.len, "an entry of this slab");
        // SAFETY: the offset lies inside the mapping, as checked above.
        Buffers { base: unsafe { self.at.add(offset) }, payload_size: self.payload_size }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever owns the slab has closed the ring before.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Buffers of one entry. The kernel writes them while a command runs on this thread and reads them
/// when an answer is committed, on this thread too; so between calls they are ours alone.
#[derive(Clone, Copy)]
pub(crate) struct Buffers {
    base: NonNull<u8>,
    payload_size: usize,
}

/// What the kernel said of a request.
pub(crate) struct Arrived {
    /// Names the request in its commit.
    pub(crate) commit_id: u64,
    /// Names it in its answer.
    pub(crate) unique: u64,
    /// Bounds of the joined message within the entry.
    joined: (usize, usize),
}

impl Buffers {
    /// Header and payload, for the registration.
    pub(crate) fn iovecs(&self) -> [libc::iovec; 2] {
        let base = self.base.as_ptr();
        [
            libc::iovec { iov_base: base.cast(), iov_len: size_of::<abi::UringReqHeader>() },
            // SAFETY: the payload begins a head behind the base, inside the entry.
            libc::iovec { iov_base: unsafe { base.add(HEAD) }.cast(), iov_len: self.payload_size },
        ]
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the entry is mapped for as long as the slab lives, and nobody writes to it now.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), HEAD + self.payload_size) }
    }

    #[expect(
        clippy::mut_from_ref,
        reason = "the bytes are the kernel's and ours by turns; the ring lends them to one user"
    )]
    fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as for `bytes`; the ring calls one of these functions at a time and keeps no
        // slice.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), HEAD + self.payload_size) }
    }

    /// Joins the parts of the request that has arrived. `None`: its lengths cannot be.
    pub(crate) fn join(&self) -> Option<Arrived> {
        let bytes = self.bytes_mut();
        let (header, _) = abi::UringReqHeader::read_from_prefix(bytes).expect("an entry is longer");
        let (first, _) = abi::InHeader::read_from_prefix(&header.in_out).expect("there is room");
        let payload = header.ent.payload_sz as usize;
        let args =
            (first.len as usize).checked_sub(size_of::<abi::InHeader>())?.checked_sub(payload)?;
        if args > abi::URING_OP_IN_BYTES || payload > self.payload_size {
            return None;
        }
        let start = HEAD - args - size_of::<abi::InHeader>();
        bytes[start..HEAD - args].copy_from_slice(first.as_bytes());
        bytes[HEAD - args..HEAD].copy_from_slice(&header.op_in[..args]);
        Some(Arrived {
            commit_id: header.ent.commit_id,
            unique: first.unique,
            joined: (start, HEAD + payload),
        })
    }

    /// The ids alone, to refuse a request that cannot be joined.
    pub(crate) fn ids(&self) -> (u64, u64) {
        let (header, _) =
            abi::UringReqHeader::read_from_prefix(self.bytes()).expect("an entry is longer");
        let (first, _) = abi::InHeader::read_from_prefix(&header.in_out).expect("there is room");
        (header.ent.commit_id, first.unique)
    }

    /// The joined message, until the entry is answered.
    pub(crate) fn message(&self, arrived: &Arrived) -> &[u8] {
        &self.bytes()[arrived.joined.0..arrived.joined.1]
    }

    /// Puts a body into the payload. `None`: it does not fit, and nothing sensible is there.
    pub(crate) fn put(&self, body: &Body) -> Option<u32> {
        let payload = &mut self.bytes_mut()[HEAD..];
        let mut at = 0;
        let mut fits = true;
        body.parts(|part| match payload.get_mut(at..at + part.len()) {
            Some(room) if fits => {
                room.copy_from_slice(part);
                at += part.len();
            }
            _ => fits = false,
        });
        if fits { u32::try_from(at).ok() } else { None }
    }

    /// Writes the head of an answer.
    pub(crate) fn seal(&self, unique: u64, error: i32, payload: u32) {
        let len = size_of::<abi::OutHeader>() as u32 + payload;
        let out = abi::OutHeader { len, error, unique };
        let ent = abi::UringEntInOut { payload_sz: payload, ..Default::default() };
        let bytes = self.bytes_mut();
        bytes[..size_of::<abi::OutHeader>()].copy_from_slice(out.as_bytes());
        let at = std::mem::offset_of!(abi::UringReqHeader, ent);
        bytes[at..at + size_of::<abi::UringEntInOut>()].copy_from_slice(ent.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::op::{Op, decode};

    /// What the kernel does with a request.
    fn arrive(buffers: &Buffers, code: u32, args: &[u8], payload: &[u8], len: usize) {
        let first = abi::InHeader {
            len: u32::try_from(len).expect("small"),
            opcode: code,
            unique: 9,
            nodeid: 1,
            ..Default::default()
        };
        let ent = abi::UringEntInOut {
            commit_id: 77,
            payload_sz: payload.len() as u32,
            ..Default::default()
        };
        let mut header = abi::UringReqHeader { in_out: [0; 128], op_in: [0; 128], ent };
        header.in_out[..40].copy_from_slice(first.as_bytes());
        header.op_in[..args.len()].copy_from_slice(args);
        buffers.bytes_mut()[..288].copy_from_slice(header.as_bytes());
        buffers.bytes_mut()[HEAD..HEAD + payload.len()].copy_from_slice(payload);
    }

    #[test]
    fn entries_join_to_the_message_of_the_device() {
        let slab = Slab::new(2, 8_192).expect("memory");
        let buffers = slab.entry(1);
        let args = abi::WriteIn { size: 5, offset: 3, ..Default::default() };
        arrive(&buffers, abi::opcode::WRITE, args.as_bytes(), b"hello", 40 + 40 + 5);
        let arrived = buffers.join().expect("well formed");
        assert_eq!((arrived.commit_id, arrived.unique), (77, 9));
        let message = Bytes::copy_from_slice(buffers.message(&arrived));
        let (header, op) = decode(&message).expect("well formed");
        assert_eq!(header.unique, 9);
        assert_eq!(op, Op::Write { args, data: Bytes::from_static(b"hello") });
    }

    #[test]
    fn a_name_without_arguments_is_all_payload() {
        let slab = Slab::new(1, 8_192).expect("memory");
        let buffers = slab.entry(0);
        arrive(&buffers, abi::opcode::LOOKUP, b"", b"name\0", 45);
        let arrived = buffers.join().expect("well formed");
        let message = Bytes::copy_from_slice(buffers.message(&arrived));
        assert_eq!(
            decode(&message).map(|(_, op)| op),
            Ok(Op::Lookup { name: Bytes::from_static(b"name") })
        );
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let slab = Slab::new(1, 8_192).expect("memory");
        let buffers = slab.entry(0);
        for len in [0, 44, 45 + 129, 1 << 30] {
            arrive(&buffers, abi::opcode::LOOKUP, b"", b"name\0", len);
            assert!(buffers.join().is_none(), "{len}");
        }
    }

    #[test]
    fn an_answer_that_does_not_fit_is_not_sent() {
        let slab = Slab::new(1, 8_192).expect("memory");
        let buffers = slab.entry(0);
        assert_eq!(
            buffers.put(&Body::Pieces(vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")])),
            Some(3)
        );
        assert_eq!(buffers.put(&Body::Data(vec![1; 8_193].into())), None);
        assert_eq!(buffers.put(&Body::Data(vec![1; 8_192].into())), Some(8_192));
    }
}

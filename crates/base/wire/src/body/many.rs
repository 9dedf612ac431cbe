//! Bodies of requests about many files.

use bytes::Bytes;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{CloseReq, WireFid};
use crate::flags::GetattrsFlags;
use crate::{Request, decode_body};

bodies! {
    /// Getattr of many files. Buffer 1: their FIDs; where `parent` is not zero, their names in that
    /// directory, each with a NUL behind it.
    GetattrsReq (32) {
        /// Directory of the names; zero: files are named by their FIDs.
        parent: WireFid,
        /// Files asked for.
        count: u32,
        /// What is answered.
        flags: GetattrsFlags,
        /// Bytes of answers wanted at most.
        bytes_max: u32,
        /// Zero.
        reserved: u32,
    }
    /// Reply to getattrs. Buffer 1: [`crate::stats`] records, in the order asked for.
    GetattrsRep (16) {
        /// Files that are answered: the first ones of those asked for, at least one.
        count: u32,
        /// Zero.
        reserved: u32,
        /// Names all that this reply grants: it rises.
        grant: u64,
    }
    /// Closes of several files. Buffer 1: a [`CloseReq`](super::CloseReq) for each, no two of one
    /// file. A close that names stripes from 64 on goes alone.
    ClosesReq (8) {
        /// Closes, between 1 and [`CLOSES_MAX`].
        count: u32,
        /// Zero.
        reserved: u32,
    }
    /// Reply to closes. Buffer 1: [`crate::stats`] records without layouts, one for each close, in
    /// the order asked for.
    ClosesRep (8) {
        /// Closes that are answered: as many as were asked for.
        count: u32,
        /// Zero.
        reserved: u32,
    }
    /// Element of buffer 2 of a restate: a handle of a file that its client has opened for reading
    /// with [`OpenReq::restates`](super::OpenReq), before the restart.
    OpenWord (32) {
        /// FID of the file.
        fid: WireFid,
        /// The handle.
        handle: u64,
        /// O_* flags of the open.
        open_flags: u32,
        /// Of a directory, the seal that the reply to the open had
        /// ([`AttrRep::stripes`](super::AttrRep)); zero: it had none.
        seal: u32,
    }
}

/// Closes of one request at most: their answers are as small as those of other requests (16 KiB),
/// and one transaction with them is short.
pub const CLOSES_MAX: usize = 64;

/// Handles of one restate at most: 128 KiB, as much as a vector of grants has.
pub const STATED_OPENS_MAX: usize = 4_096;

const _: () = assert!(CLOSES_MAX * crate::stats::HEADER_BYTES + size_of::<ClosesRep>() <= 16 << 10);

/// The closes of a request; `None` where they are none, more than [`CLOSES_MAX`], or not as many as
/// it says.
#[must_use]
pub fn closes(request: &Request) -> Option<Vec<CloseReq>> {
    let bytes = request.buf(1);
    let (each, rest) = bytes.as_chunks::<{ size_of::<CloseReq>() }>();
    let count = request.body::<ClosesReq>().count as usize;
    let is_whole = rest.is_empty() && each.len() == count && (1..=CLOSES_MAX).contains(&count);
    is_whole.then(|| each.iter().map(|close| decode_body(close)).collect())
}

/// Buffer 2 of a restate with these handles.
///
/// # Panics
/// Where there are more than [`STATED_OPENS_MAX`].
#[must_use]
pub fn encode_opens(opens: &[OpenWord]) -> Bytes {
    assert!(opens.len() <= STATED_OPENS_MAX, "a sender keeps its own vectors within the bound");
    Bytes::copy_from_slice(opens.as_bytes())
}

/// The handles that a restate names. An older client names none. `None` where the last one is cut,
/// or where there are more than [`STATED_OPENS_MAX`].
#[must_use]
pub fn stated_opens(request: &Request) -> Option<Vec<OpenWord>> {
    let bytes = request.buf(2);
    let (each, rest) = bytes.as_chunks::<{ size_of::<OpenWord>() }>();
    let is_whole = rest.is_empty() && each.len() <= STATED_OPENS_MAX;
    is_whole.then(|| each.iter().map(|open| decode_body(open)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Opcode;

    fn restate(opens: Bytes) -> Request {
        Request::new(Opcode::MdtRestate, vec![Bytes::new(), Bytes::new(), opens])
    }

    #[test]
    fn stated_handles_go_there_and_back_and_none_are_cut() {
        let word = |handle| OpenWord { handle, ..OpenWord::default() };
        let words: Vec<OpenWord> = (1..=STATED_OPENS_MAX as u64).map(word).collect();
        let bytes = encode_opens(&words);
        assert_eq!(stated_opens(&restate(bytes.clone())), Some(words));
        assert_eq!(stated_opens(&restate(bytes.slice(..31))), None);
        let too_many = [&bytes[..], &bytes[..32]].concat();
        assert_eq!(stated_opens(&restate(too_many.into())), None);
        let older = Request::new(Opcode::MdtRestate, vec![Bytes::new(), Bytes::new()]);
        assert_eq!(stated_opens(&older), Some(Vec::new()));
    }
}

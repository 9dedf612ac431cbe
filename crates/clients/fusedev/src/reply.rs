//! Answers to the kernel: a body of one of the protocol's shapes, or an error number.

use bytes::Bytes;
use types::Errno;
use zerocopy::IntoBytes;

use crate::abi;

pub type Reply = Result<Body, Errno>;

/// Body of a successful answer.
#[derive(Clone, Debug)]
pub enum Body {
    Empty,
    /// A name was found or made.
    Entry(abi::EntryOut),
    Attr(abi::AttrOut),
    Open(abi::OpenOut),
    /// A name was made and opened.
    Create(abi::EntryOut, abi::OpenOut),
    /// Bytes written.
    Write(abi::WriteOut),
    Statfs(abi::StatfsOut),
    /// Length of an extended attribute.
    Xattr(abi::GetxattrOut),
    Lock(abi::LkOut),
    Lseek(abi::LseekOut),
    Statx(abi::StatxOut),
    Data(Bytes),
    /// Bytes in several pieces.
    Pieces(Vec<Bytes>),
    Dir(DirBuf),
}

/// Most pieces that one reply gathers; more are joined first.
pub(crate) const PIECES_MAX: usize = 256;

impl Body {
    /// Hands the parts, in order, to `each`.
    pub(crate) fn parts<'a>(&'a self, mut each: impl FnMut(&'a [u8])) {
        match self {
            Body::Empty => {}
            Body::Entry(out) => each(out.as_bytes()),
            Body::Attr(out) => each(out.as_bytes()),
            Body::Open(out) => each(out.as_bytes()),
            Body::Create(entry, open) => {
                each(entry.as_bytes());
                each(open.as_bytes());
            }
            Body::Write(out) => each(out.as_bytes()),
            Body::Statfs(out) => each(out.as_bytes()),
            Body::Xattr(out) => each(out.as_bytes()),
            Body::Lock(out) => each(out.as_bytes()),
            Body::Lseek(out) => each(out.as_bytes()),
            Body::Statx(out) => each(out.as_bytes()),
            Body::Data(data) => each(data),
            Body::Pieces(pieces) => pieces.iter().for_each(|piece| each(piece)),
            Body::Dir(dir) => each(&dir.bytes),
        }
    }
}

/// Directory entries up to the size that the kernel asked for.
#[derive(Clone, Debug)]
pub struct DirBuf {
    bytes: Vec<u8>,
    size: usize,
}

impl DirBuf {
    /// For at most `size` bytes.
    #[must_use]
    pub fn new(size: u32) -> DirBuf {
        let size = size as usize;
        DirBuf { bytes: Vec::with_capacity(size.min(128 << 10)), size }
    }

    /// Adds an entry; `false` where it does not fit any more. `off` resumes behind it, `kind` is
    /// `mode >> 12`.
    #[must_use]
    pub fn push(&mut self, ino: u64, off: u64, kind: u32, name: &[u8]) -> bool {
        self.push_parts(&[], ino, off, kind, name)
    }

    /// Adds an entry with attributes.
    #[must_use]
    pub fn push_plus(
        &mut self,
        entry: &abi::EntryOut,
        ino: u64,
        off: u64,
        kind: u32,
        name: &[u8],
    ) -> bool {
        self.push_parts(entry.as_bytes(), ino, off, kind, name)
    }

    /// Whether an entry with a name of this length would fit.
    #[must_use]
    pub fn fits(&self, plus: bool, name_len: usize) -> bool {
        let front = if plus { size_of::<abi::EntryOut>() } else { 0 };
        self.bytes.len() + (front + size_of::<abi::Dirent>() + name_len).next_multiple_of(8)
            <= self.size
    }

    /// Tells the end with too few bytes for an entry. The kernel finds no entry in them, and does
    /// not take the names that it keeps for all names of the directory, as it does with no bytes.
    pub fn end_aside(&mut self) {
        assert!(self.bytes.is_empty(), "it is the end");
        self.bytes.resize(8, 0);
    }

    /// The entries as the kernel reads them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn push_parts(&mut self, front: &[u8], ino: u64, off: u64, kind: u32, name: &[u8]) -> bool {
        if !self.fits(!front.is_empty(), name.len()) {
            return false;
        }
        let namelen = u32::try_from(name.len()).expect("a name that fits a reply is short");
        self.bytes.extend_from_slice(front);
        self.bytes.extend_from_slice(abi::Dirent { ino, off, namelen, kind }.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_page_never_exceeds_what_was_asked_for() {
        let mut page = DirBuf::new(64);
        assert!(page.push(2, 1, 8, b"a"));
        assert!(page.push(3, 2, 8, b"12345678"));
        assert!(!page.push(4, 3, 8, b"c"));
        assert_eq!(page.bytes.len(), 64);
    }

    #[test]
    fn an_end_that_is_told_aside_is_no_entry() {
        let mut page = DirBuf::new(4_096);
        page.end_aside();
        assert!(!page.is_empty() && page.as_bytes().len() < size_of::<abi::Dirent>());
    }
}

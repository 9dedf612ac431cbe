//! Reads that the bytes of an open answer ([`super::on_open`]), and the switch for that.

use bytes::Bytes;
use types::{Extent, Fid};

use super::on_open::{FILE_BYTES_MAX, OnOpenStats};
use crate::client::{Client, Inner};
use crate::flags;
use crate::handle::Open;

/// What `extent` has of the file's bytes, if they came with an open and are certain.
pub(super) fn read(open: &Open, extent: Extent) -> Option<Vec<Bytes>> {
    let inner = &open.inner;
    if open.flags & flags::O_DIRECT != 0 || !inner.read_on_open.get() {
        return None;
    }
    let grants = inner.grants.of(open.inode.fid);
    let bytes = grants.bytes_of(open.inode.fid);
    if bytes.is_some() || open.inode.layout().is_some_and(|layout| layout.is_at_mdt()) {
        grants.count_read(bytes.is_some());
    }
    let piece = cut(&bytes?, extent);
    planted::reached("client: a read was answered by an open");
    Some(if piece.is_empty() { Vec::new() } else { vec![piece] })
}

/// The part of a whole file that is within `extent`.
fn cut(bytes: &Bytes, extent: Extent) -> Bytes {
    let within = |at: u64| usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
    bytes.slice(within(extent.start())..within(extent.end()))
}

impl Inner {
    /// Bytes that the reply to an open may bring.
    pub(crate) fn room_on_open(&self, fid: Fid, open_flags: u32) -> u32 {
        let reads = !flags::can_write(open_flags)
            && open_flags & (flags::O_TRUNC | flags::O_DIRECT) == 0
            && self.read_on_open.get();
        let is_written = || self.inodes.get(fid).is_some_and(|inode| inode.has_writers());
        if !reads || self.grants.of(fid).is_known_otherwise(fid) || is_written() {
            return 0;
        }
        FILE_BYTES_MAX
    }
}

impl Client {
    /// Whether opens bring the bytes of small files at the MDT.
    #[must_use]
    pub fn read_on_open(&self) -> bool {
        self.0.read_on_open.get()
    }

    /// Whether they do from now on.
    pub fn set_read_on_open(&self, is_on: bool) {
        self.0.read_on_open.set(is_on);
        if !is_on {
            self.0.grants.forget_all_bytes();
        }
    }

    /// What that was good for.
    #[must_use]
    pub fn on_open_stats(&self) -> OnOpenStats {
        self.0.grants.on_open_stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_gets_what_the_file_has_of_it() {
        let file = Bytes::from_static(b"0123456789");
        let read = |start, end| cut(&file, Extent::new(start, end).expect("not empty"));
        assert_eq!((&read(0, 4)[..], &read(8, 4_096)[..]), (&b"0123"[..], &b"89"[..]));
        assert!(read(10, 11).is_empty() && read(u64::MAX - 1, u64::MAX).is_empty());
    }
}

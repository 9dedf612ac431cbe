//! Bytes of files that came with an open, under the grant of the attributes in the same reply.
//!
//! Invariant: the bytes of a file are returned only while the client holds that grant. The
//! attributes must have the version that they had when the MDT read the bytes. Another client that
//! wants to write opens the file first, and the MDT calls the grant back before that. An open for
//! writing or a truncate by this client gives the attributes another version before a byte is
//! changed.

use bytes::Bytes;
use ldlm::grants::Belief;
use types::{Fid, Instant};

use super::{Gift, Grants, Known, Lease, STAT};
use crate::data::FILE_BYTES_MAX;
use crate::stat::Stat;

impl Known {
    /// The reply to an open, which holds for `lease`, brought these bytes.
    pub(super) fn keep_bytes(&mut self, stat: &Stat, lease: Lease, bytes: &Bytes, now: Instant) {
        let is_held = stat.lease == Gift::Called && lease.attrs > now;
        if is_held && bytes.len() as u64 == stat.attr.size {
            let own = Bytes::copy_from_slice(bytes); // the reply's buffer may be much larger
            self.on_open.keep(stat.attr.fid(), stat.attr.version, own);
        }
    }

    /// All bytes of a file that no client can have changed.
    pub(super) fn bytes_of(&mut self, fid: Fid, now: Instant) -> Option<Bytes> {
        let version = self.values.attributes(fid)?.version;
        let bytes = self.on_open.get(fid, version)?;
        (self.belief(fid, STAT, now) != Belief::No).then_some(bytes)
    }
}

impl Grants {
    /// The reply to an open, which holds for `lease`, brought these bytes.
    pub(crate) fn keep_bytes(&self, stat: &Stat, lease: Lease, bytes: &Bytes) {
        self.known().keep_bytes(stat, lease, bytes, self.env.now());
    }

    /// All bytes of a file that no client can have changed.
    pub(crate) fn bytes_of(&self, fid: Fid) -> Option<Bytes> {
        let mut known = self.known();
        match self.bugs.keep_opened_bytes() {
            true => known.on_open.last(fid),
            false => known.bytes_of(fid, self.env.now()),
        }
    }

    /// Whether a file is known to be too large for a reply, or to be no file with bytes.
    pub(crate) fn is_known_otherwise(&self, fid: Fid) -> bool {
        let told = self.known.borrow().values.attributes(fid);
        told.is_some_and(|attr| !attr.is_file() || attr.size > u64::from(FILE_BYTES_MAX))
    }

    /// A file is closed, or about to be written here.
    pub(crate) fn forget_bytes(&self, fid: Fid) {
        self.known.borrow_mut().on_open.forget(fid);
    }

    /// A read was answered with such bytes, or not.
    pub(crate) fn count_read(&self, is_hit: bool) {
        self.known.borrow_mut().on_open.count(is_hit);
    }
}

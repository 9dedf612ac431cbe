//! Values of granted files. The cache of grants decides whether they may be returned.

use ldlm::grants::Bits;
use queues::FixedMap;
use types::Fid;
use wire::Attr;
use wire::attr::AttrFlags;

use super::ATTRS;

#[derive(Clone, Copy)]
struct Value {
    /// Of a directory, or of a file until it is called back. Sizes of files that are open here this
    /// client may know better.
    attr: Option<Attr>,
    /// It has no extended attributes.
    is_bare: bool,
}

/// Beyond the grants that are kept, all of them are forgotten together.
#[derive(Default)]
pub(super) struct Values(FixedMap<Fid, Value>);

impl Values {
    /// An answer gave `bits` of a file; of `newer` its values are the latest. Those of files are
    /// kept where they last (`is_called`). There are values of at most `max` files.
    pub(super) fn take(&mut self, attr: &Attr, bits: Bits, newer: Bits, is_called: bool, max: u32) {
        let (fid, newer) = (attr.fid(), newer & ATTRS);
        if newer.is_empty() {
            return; // what is known is newer
        }
        let known = self.0.remove(&fid);
        if newer != bits & ATTRS {
            return; // it would be of two times
        }
        let is_bare = if newer.contains(Bits::XATTR) {
            !attr.flags.contains(AttrFlags::HAS_XATTR)
        } else {
            known.is_some_and(|known| known.is_bare)
        };
        let attr = (is_called || attr.is_dir()).then_some(*attr);
        if attr.is_none() && !is_bare {
            return;
        }
        if self.0.len() >= max as usize {
            self.0.clear();
        }
        self.0.insert(fid, Value { attr, is_bare });
    }

    pub(super) fn attributes(&self, fid: Fid) -> Option<Attr> {
        self.0.get(&fid)?.attr
    }

    pub(super) fn is_bare(&self, fid: Fid) -> bool {
        self.0.get(&fid).is_some_and(|value| value.is_bare)
    }
}

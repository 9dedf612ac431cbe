//! Data that a kernel keeps: the CACHE bit of a file's grant.
//!
//! The kernel's pages are true as long as the client holds the bit without a break. The MDT calls
//! it back before another client opens the file for writing or truncates it. This client's own
//! changes of the data end it here, because the MDT does not call a client for its own change. The
//! next open for reading may give it again. Only the MDT of the file gives it, so a restart of
//! another MDT leaves it as it is.

use std::rc::Rc;

use env::Env;
use ldlm::grants::{Belief, Bits};
use types::{Fid, Instant};

use super::{AllGrants, Gift, Grants, Kernel, Known, Lease, STAT};
use crate::atime::Reads;
use crate::client::{Client, Inner};
use crate::flags;
use crate::stat::Stat;

impl Stat {
    /// What the reply gives of the file's data.
    pub(super) fn data_gift(&self) -> Gift {
        if self.is_cached { Gift::Called } else { Gift::None }
    }

    /// What it gives of writes to the file.
    pub(super) fn write_gift(&self) -> Gift {
        if self.is_write_kept { Gift::Called } else { Gift::None }
    }
}

impl Known {
    /// Since when the data of a file may be kept without a break, where it may.
    pub(super) fn cached_since(&mut self, fid: Fid, now: Instant) -> Option<u32> {
        match self.cache.belief(fid, Bits::CACHE, now) {
            Belief::Until(_) => Some(self.cache.cached_since(fid)),
            Belief::No | Belief::Dying => None,
        }
    }
}

impl Grants {
    /// The lease has ended, so the data of this MDT's files may be old. In a task of its own,
    /// because a call of the kernel's side may have found that.
    pub(super) fn doubt_pages(&self) {
        doubt_pages(&self.env, self.shared.kernel(), Some(self.index));
    }
}

impl Grants {
    /// How often anything was called back or in doubt.
    pub(crate) fn recalls(&self) -> u64 {
        self.known().recalls.now()
    }

    /// Whether a name still stands for the file that this lease tells of.
    pub(crate) fn still_names(&self, lease: Lease) -> bool {
        lease.name > self.env.now() && lease.recalls == self.known().recalls.now()
    }

    /// Whether no other client has the file open, so that its writes may be kept.
    pub(crate) fn may_write(&self, fid: Fid) -> bool {
        let now = self.env.now();
        matches!(self.known().cache.belief(fid, Bits::WRITE, now), Belief::Until(_))
    }
}

impl Grants {
    /// Since when the data of a file may be kept without a break, while its attributes are known
    /// too.
    pub(crate) fn held_since(&self, fid: Fid) -> Option<u32> {
        let now = self.env.now();
        let mut known = self.known();
        let has_attributes = matches!(known.belief(fid, STAT, now), Belief::Until(_));
        if has_attributes { known.cached_since(fid, now) } else { None }
    }
}

impl AllGrants {
    /// An OST was started again, so what a dead client wrote there may be lost.
    pub(crate) fn doubt_pages(&self) {
        doubt_pages(&self.env, self.kernel(), None);
    }
}

fn doubt_pages(env: &Env, kernel: Option<Rc<dyn Kernel>>, mdt: Option<u32>) {
    if let Some(kernel) = kernel {
        env.spawn("pages in doubt", async move { kernel.drop_all_pages(mdt) });
    }
}

impl Inner {
    /// Whether an open asks for the right to keep the file's data.
    pub(crate) fn may_cache(&self, open_flags: u32) -> bool {
        let reads = !flags::can_write(open_flags)
            && open_flags & (flags::O_TRUNC | flags::O_DIRECT) == 0
            && self.access_times.get().reads != Reads::Always;
        let has_pages = || self.grants.kernel().is_some_and(|kernel| kernel.keeps_pages());
        reads && self.page_cache.get() && has_pages()
    }
}

impl Client {
    /// Whether the kernel may keep what it reads through a file that is opened with these flags,
    /// where its data may be kept at all.
    #[must_use]
    pub fn may_cache(&self, open_flags: u32) -> bool {
        self.0.may_cache(open_flags)
    }

    /// The kernel may keep the data of a file, and has been allowed to without a break for as long
    /// as this number stays the same. Nothing: it may not.
    #[must_use]
    pub fn cached_since(&self, fid: Fid) -> Option<u32> {
        let grants = self.0.grants.of(fid);
        grants.known().cached_since(fid, grants.env.now())
    }

    /// The kernel keeps data of a file until it is told otherwise.
    pub fn told_kernel_data(&self, fid: Fid) {
        self.0.grants.of(fid).known.borrow_mut().cache.told(fid, Instant(u64::MAX));
    }

    /// The kernel keeps nothing of a file later than this.
    pub fn told_kernel_last(&self, fid: Fid, until: Instant) {
        self.0.grants.of(fid).known.borrow_mut().cache.told_last(fid, until);
    }

    /// Whether the kernel keeps data of files that are read.
    #[must_use]
    pub fn page_cache(&self) -> bool {
        self.0.page_cache.get()
    }

    /// Whether it does from now on; files that are open go on as they are.
    pub fn set_page_cache(&self, is_on: bool) {
        self.0.page_cache.set(is_on);
    }
}

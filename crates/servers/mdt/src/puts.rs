//! Files that are made with all of their bytes in one request.
//!
//! ```text
//!  client: create with bytes -> MDT: decide -> data target: object -> MDT: records -> reply
//!  commit:                      data target: sync ----------------> MDT: records durable
//! ```
//!
//! The MDT decides twice. The first time it checks all, draws the id and waits for everything that
//! the create conflicts with. Nothing is applied. Then the data target writes the object. The
//! second time the MDT applies the records.
//!
//! Invariants
//! - A name is shown only when the object has all bytes.
//! - A commit covers a new file only if its bytes are durable: [`Order`].
//! - The same holds for a close that brings all bytes of a file. The file is there before, so its
//!   object stays whatever comes of the close.
//! - An object without a file is removed, or its id is swept after a restart. For that, no range of
//!   ids is reserved while the id of a file that is being made is far behind ([`Making`]).
//! - A file whose create is not durable is opened by no client, and none sets its size. Its client
//!   may have to send the bytes again, which must not replace later ones
//!   ([`crate::op::uses_bytes`]).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::Notify;
use types::Fid;

use crate::ids::Ids;
use crate::share::ShareKey;

/// A new file whose object has all bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) fid: Fid,
    /// Units of 512 bytes.
    pub(crate) blocks: u64,
    /// Its place among all of them.
    pub(crate) number: u64,
}

/// Which bytes of new files are durable, and when a commit of records is under way.
#[derive(Default)]
pub(crate) struct Order {
    pub(crate) written: Cell<u64>,
    pub(crate) durable: Cell<u64>,
    commits: Cell<u32>,
    /// A commit has ended, or the bytes that it covers are durable. All new files since it began
    /// may wait for this, so nothing else wakes them.
    pub(crate) ended: Notify,
    /// The bytes of a file that a close has brought are written, or are not.
    pub(crate) brought: Notify,
}

impl Order {
    /// The next number, of an object that was just written.
    pub(crate) fn wrote(&self) -> u64 {
        self.written.set(self.written.get() + 1);
        self.written.get()
    }

    /// Whether the records of this file may be applied: a commit under way may cover them.
    pub(crate) fn may_apply(&self, number: u64) -> bool {
        self.commits.get() == 0 || number <= self.durable.get()
    }

    /// What is written is durable up to this number.
    pub(crate) fn synced(&self, number: u64) {
        assert!(number <= self.written.get(), "only what was written is durable");
        self.durable.set(self.durable.get().max(number));
        self.ended.notify_waiters();
    }
}

/// A commit of records, from before the bytes are made durable until it has ended.
pub(crate) struct Committing<'a>(&'a Order);

impl<'a> Committing<'a> {
    pub(crate) fn begin(order: &'a Order) -> Committing<'a> {
        order.commits.set(order.commits.get() + 1);
        Committing(order)
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        self.0.commits.set(self.0.commits.get() - 1);
        self.0.ended.notify_waiters();
    }
}

/// Ids of files whose objects are written and whose records are not applied.
#[derive(Default)]
pub(crate) struct Making(BTreeSet<Fid>);

impl Making {
    pub(crate) fn begin(&mut self, fid: Fid) {
        self.0.insert(fid);
    }

    pub(crate) fn end(&mut self, fid: Fid) {
        self.0.remove(&fid);
    }

    /// Whether this file is being made: it has an object, and no records yet.
    pub(crate) fn has(&self, fid: Fid) -> bool {
        self.0.contains(&fid)
    }

    /// Whether a range may be reserved: a restart sweeps the ids of all that are being made.
    pub(crate) fn allows_growth(&self, files: &Ids) -> bool {
        self.0.iter().all(|fid| files.is_recent(*fid))
    }
}

/// Files whose objects are being written, because a close brought their bytes. The session of that
/// close may end meanwhile, and no fence stops the MDT's own write. So until it ends, no client
/// uses the bytes of such a file.
#[derive(Default)]
pub(crate) struct Bringing(BTreeMap<Fid, u32>);

impl Bringing {
    pub(crate) fn begin(&mut self, fid: Fid) {
        *self.0.entry(fid).or_default() += 1;
    }

    pub(crate) fn end(&mut self, fid: Fid) {
        let left = self.0.remove(&fid).unwrap_or(0).saturating_sub(1);
        if left > 0 {
            self.0.insert(fid, left);
        }
    }

    /// Whether this is such a file.
    pub(crate) fn has(&self, key: &ShareKey) -> bool {
        matches!(key, ShareKey::Inode(fid) if self.0.contains_key(fid))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use wire::body::{SetattrFlags, SetattrReq};
    use wire::{Opcode, Request, encode_body};

    use super::*;
    use crate::op::uses_bytes;

    #[test]
    fn records_wait_for_a_commit_that_may_not_cover_their_bytes() {
        let order = Order::default();
        let early = order.wrote();
        assert!(order.may_apply(early), "the next commit makes its bytes durable first");
        let commit = Committing::begin(&order);
        let upto = order.written.get();
        let late = order.wrote();
        assert!(!order.may_apply(early) && !order.may_apply(late));
        order.synced(upto);
        assert!(order.may_apply(early) && !order.may_apply(late));
        let other = Committing::begin(&order);
        drop(commit);
        assert!(!order.may_apply(late), "another commit is under way");
        drop(other);
        assert!(order.may_apply(late));
    }

    /// They are many, and each would wake all others.
    #[test]
    fn new_files_that_wait_for_a_commit_do_not_wake_each_other() {
        let order = Order::default();
        let commit = Committing::begin(&order);
        let mut cx = Context::from_waker(Waker::noop());
        let mut waits = pin!(order.ended.notified());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        order.brought.notify_waiters();
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        drop(commit);
        assert!(waits.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn a_file_is_brought_until_its_last_write_ends() {
        let mut bringing = Bringing::default();
        let key = ShareKey::Inode(Fid::ROOT);
        bringing.begin(Fid::ROOT);
        bringing.begin(Fid::ROOT);
        bringing.end(Fid::ROOT);
        assert!(bringing.has(&key) && !bringing.has(&ShareKey::Contents(Fid::ROOT)));
        bringing.end(Fid::ROOT);
        assert!(!bringing.has(&key));
    }

    #[test]
    fn requests_that_give_access_to_bytes_are_told_apart() {
        let setattr = |valid| {
            let body = SetattrReq { valid, ..SetattrReq::default() };
            Request::new(Opcode::MdtSetattr, vec![encode_body(&body)])
        };
        assert!(uses_bytes(&setattr(SetattrFlags::SIZE | SetattrFlags::MODE)));
        assert!(!uses_bytes(&setattr(SetattrFlags::MODE | SetattrFlags::UID)));
        assert!(uses_bytes(&Request::new(Opcode::MdtOpen, Vec::new())));
        assert!(!uses_bytes(&Request::new(Opcode::MdtUnlink, Vec::new())));
    }
}

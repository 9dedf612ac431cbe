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
//!   ([`uses_bytes`]).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use osd::StoreError;
use service::Incoming;
use target::NewFile;
use tokio::sync::Notify;
use types::{Errno, Fid};
use wire::Request;

use crate::attempt::Attempted;
use crate::engine::Engine;
use crate::ids::Ids;
use crate::limits::{HELD_WAIT, PUT_REMOVE_PAUSE, PUT_WRITES_MAX};
use crate::op::{self, put};
use crate::share::ShareKey;
use crate::target::Mdt;

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
    written: Cell<u64>,
    durable: Cell<u64>,
    commits: Cell<u32>,
    ended: Notify,
}

impl Order {
    /// The next number, of an object that was just written.
    fn wrote(&self) -> u64 {
        self.written.set(self.written.get() + 1);
        self.written.get()
    }

    /// Whether the records of this file may be applied: a commit under way may cover them.
    fn may_apply(&self, number: u64) -> bool {
        self.commits.get() == 0 || number <= self.durable.get()
    }

    /// What is written is durable up to this number.
    fn synced(&self, number: u64) {
        assert!(number <= self.written.get(), "only what was written is durable");
        self.durable.set(self.durable.get().max(number));
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
    fn begin(&mut self, fid: Fid) {
        *self.0.entry(fid).or_default() += 1;
    }

    fn end(&mut self, fid: Fid) {
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

/// Such a write.
struct BringingOne {
    mdt: Rc<Mdt>,
    fid: Fid,
}

impl BringingOne {
    fn begin(mdt: &Rc<Mdt>, fid: Fid) -> BringingOne {
        mdt.engine.state.borrow_mut().bringing.begin(fid);
        BringingOne { mdt: mdt.clone(), fid }
    }
}

impl Drop for BringingOne {
    fn drop(&mut self) {
        self.mdt.engine.state.borrow_mut().bringing.end(self.fid);
        self.mdt.engine.puts.ended.notify_waiters();
    }
}

/// Whether an operation lets its client use or change bytes of the files that it decides on.
pub(crate) enum UsesBytes {
    No,
    Yes,
    /// Depends on the request.
    If(fn(&Request) -> bool),
}

/// Whether this request lets its client use or change bytes of the file that it decides on.
pub(crate) fn uses_bytes(request: &Request) -> bool {
    match op::row(request.opcode()).map(|row| &row.bytes) {
        None | Some(UsesBytes::No) => false,
        Some(UsesBytes::Yes) => true,
        Some(UsesBytes::If(uses)) => uses(request),
    }
}

/// A file that one request makes, as far as it is made.
#[derive(Default)]
pub(crate) struct Putting {
    object: Option<Object>,
    writes: u32,
}

impl Putting {
    pub(crate) fn written(&self) -> Option<&Written> {
        self.object.as_ref().and_then(|object| object.written.as_ref())
    }
}

/// The object of a file that is not made yet. It goes if the file is not made.
struct Object {
    mdt: Rc<Mdt>,
    fid: Fid,
    written: Option<Written>,
    goes: bool,
}

impl Drop for Object {
    fn drop(&mut self) {
        if !self.goes || self.mdt.is_stopped() {
            return; // a restart sweeps its id
        }
        let (mdt, fid) = (self.mdt.clone(), self.fid);
        self.mdt.env.spawn("mdt_put_refused", async move { mdt.remove_new(fid).await });
    }
}

impl Engine {
    /// Whether the bytes of this file allow its records to be applied now.
    pub(crate) fn may_apply(&self, written: &Written) -> bool {
        self.puts.may_apply(written.number)
    }

    /// Makes the bytes of new files durable, before a commit of their records begins.
    pub(crate) async fn sync_new_files(&self) -> Result<(), StoreError> {
        let upto = self.puts.written.get();
        let is_durable = upto == self.puts.durable.get();
        let Some(data) = self.data.get().filter(|_| !is_durable) else { return Ok(()) };
        if let Err(errno) = data.clone().sync().await {
            self.store.failure().fail(&format!("bytes of new files: {errno}"));
            return self.store.failure().check();
        }
        self.puts.synced(upto);
        Ok(())
    }
}

impl Mdt {
    /// Its data target, which is served in the same process.
    pub fn set_data(&self, data: Rc<dyn target::Data>) {
        let is_first = self.engine.data.set(data).is_ok();
        assert!(is_first, "an MDT has one data target");
    }

    /// Goes on with a create after an attempt. Nothing: it is to be tried again.
    pub(crate) async fn put_step(
        self: &Rc<Self>,
        incoming: &Incoming,
        attempted: Attempted,
        putting: &mut Putting,
    ) -> Result<Option<Attempted>, Errno> {
        match attempted {
            Attempted::Writes(fid) => {
                putting.object = None;
                putting.object = Some(self.write_object(incoming, fid, putting.writes).await?);
                putting.writes += 1;
                return Ok(None);
            }
            Attempted::Unordered => {
                self.engine.puts.ended.notified().await;
                return Ok(None);
            }
            Attempted::Brought => {
                incoming.step_aside();
                let ended = self.engine.puts.ended.notified();
                let _looks_again = self.env.timeout(HELD_WAIT, ended).await;
                return Ok(None);
            }
            Attempted::Done(..) => {
                if let Some(object) = &mut putting.object {
                    object.goes = false;
                }
            }
            // it waits for others, who must not wait for an id
            _ => putting.object = None,
        }
        Ok(Some(attempted))
    }

    async fn write_object(
        self: &Rc<Self>,
        incoming: &Incoming,
        fid: Fid,
        writes: u32,
    ) -> Result<Object, Errno> {
        let replay = incoming.is_replay();
        let goes = !replay && put::makes_file(&incoming.request); // else the file is there
        let mut object = Object { mdt: self.clone(), fid, written: None, goes };
        let data = self.engine.data.get().filter(|_| writes < PUT_WRITES_MAX);
        let Some(data) = data.cloned() else {
            object.goes = false;
            self.engine.state.borrow_mut().making.end(fid);
            return Err(Errno::EOPNOTSUPP);
        };
        let _had_a_slot = incoming.step_aside();
        let is_closing = !put::makes_file(&incoming.request);
        let _bringing = is_closing.then(|| BringingOne::begin(self, fid));
        let store = self.engine.state.borrow().number;
        let file = NewFile {
            fid,
            store,
            bytes: put::bytes(&incoming.request),
            mtime: put::made_at(&incoming.request, replay).unwrap_or_else(|| self.env.wall()),
            replay,
            from: incoming.peer(),
            job: incoming.request.header.jobid,
        };
        let blocks = data.write_new(file).await.map_err(|errno| match errno {
            Errno::EAGAIN | Errno::EROFS => Errno::EOPNOTSUPP, // its client takes another way
            errno => errno,
        })?;
        object.written = Some(Written { fid, blocks, number: self.engine.puts.wrote() });
        Ok(object)
    }

    /// Goes on until it is removed: no range of ids is reserved while this one is far behind.
    async fn remove_new(&self, fid: Fid) {
        let Some(data) = self.engine.data.get() else { return };
        let store = self.engine.state.borrow().number;
        while let Err(errno) = data.clone().remove_new(fid, store).await {
            tracing::warn!(target: "mdt", %fid, %errno, "the object of a file that was not made stays for now");
            self.env.sleep(PUT_REMOVE_PAUSE).await;
            if self.is_stopped() {
                return; // a restart sweeps its id
            }
        }
        self.engine.state.borrow_mut().making.end(fid);
    }
}

#[cfg(test)]
mod tests {
    use wire::body::{SetattrFlags, SetattrReq};
    use wire::{Opcode, encode_body};

    use super::*;

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

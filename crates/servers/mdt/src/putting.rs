//! The steps of a request that brings all bytes of a file ([`crate::puts`]): the data target writes
//! the object before the records are applied.

use std::rc::Rc;

use osd::StoreError;
use service::Incoming;
use target::NewFile;
use types::{Errno, Fid};

use crate::attempt::Attempted;
use crate::engine::Engine;
use crate::limits::{HELD_WAIT, PUT_REMOVE_PAUSE, PUT_WRITES_MAX};
use crate::op::put;
use crate::puts::Written;
use crate::target::Mdt;

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
        self.mdt.engine.puts.brought.notify_waiters();
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
                let brought = self.engine.puts.brought.notified();
                let _looks_again = self.env.timeout(HELD_WAIT, brought).await;
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

//! The data target of an MDT makes the object of a file that is made with all of its bytes.
//!
//! The MDT asks inside the process, for a file that no client knows yet. So there is no session, no
//! place in history and no reply to keep. If the object is lost in a crash, its file is lost too.
//! Then the client sends the bytes again with the create, or the MDT sweeps the id.
//!
//! A new file waits for the end of recovery, as new writes do. A replay does not.

use std::rc::Rc;

use env::LocalFuture;
use ldlm::Mode;
use osd::{IoMode, Table, WriteSet};
use target::{Data, NewFile};
use types::{Errno, Extent, Fid};
use wire::PUT_BYTES_MAX;
use wire::body::StatfsState;
use zerocopy::IntoBytes;

use crate::op::removal;
use crate::owners::record_after;
use crate::record::{ObjectRecord, Owner, object_record};
use crate::tally::Kind;
use crate::target::Ost;

impl Data for Ost {
    fn write_new(self: Rc<Self>, file: NewFile) -> LocalFuture<'static, Result<u64, Errno>> {
        Box::pin(async move {
            let written = self.write_file(&file).await;
            self.store.failure().unless_over(written).await
        })
    }

    fn remove_new(self: Rc<Self>, fid: Fid, store: u64) -> LocalFuture<'static, Result<(), Errno>> {
        Box::pin(async move { self.remove_file(fid, &Owner { parent: fid, store }).await })
    }

    fn sync(self: Rc<Self>) -> LocalFuture<'static, Result<(), Errno>> {
        Box::pin(async move { self.commit_all().await })
    }
}

impl Ost {
    async fn write_file(&self, file: &NewFile) -> Result<u64, Errno> {
        let NewFile { fid, ref bytes, replay, .. } = *file;
        assert!((1..=PUT_BYTES_MAX).contains(&bytes.len()), "the MDT has looked at the length");
        assert!(!fid.is_zero(), "a new file has an id");
        if !replay && self.exports.is_recovering() {
            return Err(Errno::EAGAIN);
        }
        if !replay && self.marks.has(StatfsState::READ_ONLY) {
            return Err(Errno::EROFS);
        }
        let length = bytes.len() as u64;
        let taking = if replay { None } else { self.take_free_room(length).await? };
        let extent = Extent::new(0, length).expect("it has a byte");
        self.transfer(device::Kind::Write, fid, extent).await;
        let _held = self.locks.lock_alone(fid, Extent::ALL, Mode::Exclusive).await;
        let owner = Owner { parent: fid, store: file.store };
        self.check_new(fid, &owner).await?;
        let attr = self.objects.write(fid, 0, bytes.clone(), IoMode::Auto).await?;
        drop(taking); // a look at the disk sees them from now on
        self.changed(length);
        self.persist(|| {
            let view = self.store.meta().running()?;
            let record = record_after(&*view, fid, owner, file.mtime)?;
            drop(view);
            let mut set = WriteSet::new();
            set.put(Table::Objects, fid.to_key(), record.as_bytes());
            self.mdts.borrow().remember(&owner, &mut set);
            Ok(self.store.meta().apply(&set)?)
        })
        .await?;
        self.mdts.borrow_mut().remembered(&owner);
        self.changed(0);
        let done = Some((Kind::Write, length)); // the MDT's request has waited, not this
        self.tally.count(self.env.now(), file.from, file.job, None, done);
        Ok(attr.blocks)
    }

    /// Refuses an object that was destroyed, or that another file has.
    async fn check_new(&self, fid: Fid, owner: &Owner) -> Result<(), Errno> {
        if self.tombstones.borrow().holds(fid) {
            return Err(Errno::ESTALE);
        }
        let record = self.store.look(|view| object_record(view, fid)).await?;
        if is_anothers(record.as_ref(), owner) {
            tracing::error!(object = %fid, "a new file is refused: another one has its object");
            return Err(Errno::EIO);
        }
        Ok(())
    }

    async fn remove_file(&self, fid: Fid, owner: &Owner) -> Result<(), Errno> {
        let _held = self.locks.lock_alone(fid, Extent::ALL, Mode::Exclusive).await;
        let record = self.store.look(|view| object_record(view, fid)).await?;
        if is_anothers(record.as_ref(), owner) {
            return Ok(()); // it was refused because of this one
        }
        self.objects.destroy(fid).await?;
        self.apply(&removal::forget(self, &[(fid, record)])).await?;
        self.changed(0);
        self.commit_all().await
    }
}

/// Whether an object with this record cannot be that of a new file.
fn is_anothers(record: Option<&ObjectRecord>, owner: &Owner) -> bool {
    record.is_some_and(|record| {
        record.layout_version() > 0 || record.owner().is_some_and(|other| other != *owner)
    })
}

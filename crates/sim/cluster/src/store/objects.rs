//! Objects on `osd-disk`, beside memory.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use env::LocalFuture;
use osd::mem::MemObjects;
use osd::{Allocate, Found, IoMode, ObjAttr, ObjStore, Seek, Space};
use types::{Errno, Extent, Fid};

use super::Dir;

/// Objects that are listed at once.
const LISTED_AT_ONCE: usize = 1 << 20;

/// Objects of one process.
pub(super) struct TwinObjects {
    mem: MemObjects,
    dir: Rc<Dir>,
}

/// What a call answers that waits for nothing.
fn now<T>(call: impl Future<Output = Result<T, Errno>>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(answer)) => answer,
        Poll::Ready(Err(error)) => panic!("osd-disk: {error}, where memory has an answer"),
        Poll::Pending => panic!("osd-disk waits for another thread"),
    }
}

/// Both say the same of an object's existence and size.
fn same(object: Fid, expected: Option<ObjAttr>, found: Option<ObjAttr>) {
    let size = |attr: Option<ObjAttr>| attr.map(|attr| attr.size);
    assert_eq!(size(found), size(expected), "size of {object}");
}

/// Of what a call begins, there is nothing half done: memory is asked first and takes its time,
/// and then both do it at once.
impl TwinObjects {
    pub(super) fn new(mem: MemObjects, dir: Rc<Dir>) -> TwinObjects {
        TwinObjects { mem, dir }
    }

    /// Reads memory; a failure that was ordered has come then.
    async fn witnessed(&self, object: Fid, offset: u64, len: usize) -> Bytes {
        loop {
            if let Ok(data) = self.mem.read(object, offset, len, IoMode::Auto).await {
                return data.expect("it is listed");
            }
        }
    }

    /// The pieces of an object that were written, as memory has them.
    async fn pieces(&self, object: Fid) -> Vec<(u64, Bytes)> {
        let (mut pieces, mut at) = (Vec::new(), 0);
        let seek = async |what, at| {
            let found = self.mem.seek(object, what, at).await;
            found.expect("memory can be searched").and_then(|found| found.offset)
        };
        while let Some(start) = seek(Seek::Data, at).await {
            at = seek(Seek::Hole, start).await.expect("an object ends with a hole");
            let len = usize::try_from(at - start).expect("it is in memory");
            pieces.push((start, self.witnessed(object, start, len).await));
        }
        pieces
    }

    /// Files become what memory has after a power cut.
    pub(super) async fn lose(&self) {
        for object in now(self.dir.objects().list(Fid::ZERO, LISTED_AT_ONCE)) {
            now(self.dir.objects().destroy(object));
        }
        for object in self.listed().await {
            let attr = self.mem.attr(object).await.expect("memory can be asked");
            now(self.dir.objects().truncate(object, attr.expect("it is listed").size, true));
            for (offset, data) in self.pieces(object).await {
                now(self.dir.objects().write(object, offset, data, IoMode::Auto));
            }
        }
        now(self.dir.objects().sync());
    }

    async fn listed(&self) -> Vec<Fid> {
        self.mem.list(Fid::ZERO, LISTED_AT_ONCE).await.expect("memory can be listed")
    }

    /// # Panics
    /// Where files are not what memory has.
    pub(super) async fn check(&self) {
        let listed = self.listed().await;
        assert_eq!(now(self.dir.objects().list(Fid::ZERO, LISTED_AT_ONCE)), listed);
        for object in listed {
            let attr = self.mem.attr(object).await.expect("memory can be asked");
            same(object, attr, now(self.dir.objects().attr(object)));
            for (offset, data) in self.pieces(object).await {
                let found = now(self.dir.objects().read(object, offset, data.len(), IoMode::Auto));
                assert!(found == Some(data), "data of {object} from {offset} on");
            }
        }
    }
}

impl ObjStore for TwinObjects {
    fn read(
        &self,
        object: Fid,
        offset: u64,
        len: usize,
        mode: IoMode,
    ) -> LocalFuture<'_, Result<Option<Bytes>, Errno>> {
        Box::pin(async move {
            let expected = self.mem.read(object, offset, len, mode).await?;
            let found = now(self.dir.objects().read(object, offset, len, mode));
            assert!(found == expected, "{len} bytes of {object} from {offset} on");
            Ok(found)
        })
    }

    fn write(
        &self,
        object: Fid,
        offset: u64,
        data: Bytes,
        mode: IoMode,
    ) -> LocalFuture<'_, Result<ObjAttr, Errno>> {
        Box::pin(async move {
            let attr = self.mem.write(object, offset, data.clone(), mode).await?;
            same(
                object,
                Some(attr),
                Some(now(self.dir.objects().write(object, offset, data, mode))),
            );
            Ok(attr)
        })
    }

    fn truncate(
        &self,
        object: Fid,
        size: u64,
        create: bool,
    ) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>> {
        Box::pin(async move {
            let attr = self.mem.truncate(object, size, create).await?;
            same(object, attr, now(self.dir.objects().truncate(object, size, create)));
            Ok(attr)
        })
    }

    fn allocate(
        &self,
        object: Fid,
        what: Allocate,
        offset: u64,
        length: u64,
    ) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>> {
        Box::pin(async move {
            let attr = self.mem.allocate(object, what, offset, length).await?;
            same(object, attr, now(self.dir.objects().allocate(object, what, offset, length)));
            Ok(attr)
        })
    }

    /// Memory alone is asked: a file system may take more for written.
    fn seek(
        &self,
        object: Fid,
        what: Seek,
        offset: u64,
    ) -> LocalFuture<'_, Result<Option<Found>, Errno>> {
        self.mem.seek(object, what, offset)
    }

    fn attr(&self, object: Fid) -> LocalFuture<'_, Result<Option<ObjAttr>, Errno>> {
        Box::pin(async move {
            let attr = self.mem.attr(object).await?;
            same(object, attr, now(self.dir.objects().attr(object)));
            Ok(attr)
        })
    }

    fn destroy(&self, object: Fid) -> LocalFuture<'_, Result<bool, Errno>> {
        Box::pin(async move {
            let was_there = self.mem.destroy(object).await?;
            assert_eq!(now(self.dir.objects().destroy(object)), was_there, "{object} is there");
            Ok(was_there)
        })
    }

    fn sync(&self) -> LocalFuture<'_, Result<(), Errno>> {
        Box::pin(async move {
            self.mem.sync().await?;
            now(self.dir.objects().sync());
            Ok(())
        })
    }

    fn list(&self, from: Fid, max: usize) -> LocalFuture<'_, Result<Vec<Fid>, Errno>> {
        Box::pin(async move {
            let listed = self.mem.list(from, max).await?;
            assert_eq!(now(self.dir.objects().list(from, max)), listed, "objects from {from} on");
            Ok(listed)
        })
    }

    /// Memory's, as for [`ObjStore::space`]: what the machine has differs between runs.
    fn locate(&self, object: Fid, range: Extent) -> LocalFuture<'_, Result<Option<u64>, Errno>> {
        self.mem.locate(object, range)
    }

    fn space(&self) -> LocalFuture<'_, Result<Space, Errno>> {
        self.mem.space()
    }
}

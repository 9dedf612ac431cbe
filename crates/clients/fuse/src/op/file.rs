//! Open files: create, open, close, and the locks that a close releases.

use client::{LockKind, LockMode, LockSpec};
use fusedev::abi;
use fusedev::{Body, Header, Reply};
use types::{Errno, Fid};

use crate::convert;
use crate::error::errno;
use crate::fs::Fs;
use crate::limits::CALLERS_MAX;
use crate::pages::changes_data;
use crate::tell::exact;

const O_TRUNC: u32 = libc::O_TRUNC as u32;

impl Fs {
    pub(crate) async fn open(&self, header: &Header, args: abi::OpenIn) -> Reply {
        let fid = self.fid(header.nodeid)?;
        if changes_data(args.flags) {
            self.doubt_pages(header.nodeid);
        }
        let file = self.client.open(&self.ctx(header, 0), fid, args.flags).await.map_err(errno)?;
        let fh = self.files.borrow_mut().insert(fid, file.clone());
        if args.flags & O_TRUNC != 0 {
            self.nodes.borrow_mut().was_cut(header.nodeid);
        }
        if args.flags & O_TRUNC != 0 && args.open_flags & abi::OPEN_KILL_SUIDGID != 0 {
            Box::pin(self.drop_privileges(header, header.nodeid, &file)).await;
        }
        Ok(Body::Open(self.opened(header.nodeid, fid, fh, args.flags).await))
    }

    /// The kernel keeps the directory locked meanwhile, so no OST is asked. It sends this where it
    /// knows of no file; one that another client made in between is opened, but is not cut here:
    /// ESTALE lets the kernel look again, find it, and open it with nothing locked. So it does with
    /// what is not a regular file, which the kernel opens by itself, follows or refuses.
    pub(crate) async fn create(&self, header: &Header, name: &[u8], args: abi::CreateIn) -> Reply {
        let (parent, name) = (self.fid(header.nodeid)?, convert::name(name)?);
        let ctx = self.ctx(header, args.umask);
        let flags = if self.is_second_try(header) { args.flags } else { args.flags & !O_TRUNC };
        let made =
            self.client.create_glance(&ctx, parent, name, args.mode & 0o7777, flags, None).await;
        let (glance, file) = match made.map_err(errno) {
            Err(Errno::ELOOP) => return Err(Errno::ESTALE),
            made => made?,
        };
        let is_to_be_cut = args.flags != flags && !file.was_made();
        if is_to_be_cut {
            self.sent_back.borrow_mut().insert(header.pid);
        }
        if is_to_be_cut || !glance.attr.is_file() {
            return Err(Errno::ESTALE); // the handle is closed in the background
        }
        let fid = glance.attr.fid();
        let known = self.nodes.borrow().id_of(fid).filter(|_| changes_data(flags));
        if let Some(nodeid) = known {
            self.doubt_pages(nodeid);
        }
        let fh = self.files.borrow_mut().insert(fid, file);
        let place = Some((header.nodeid, name));
        Ok(Body::Create(self.entry(&glance, place), self.open_out(fh)))
    }

    /// Whether the caller was told to look again, and found no file again: it would take a second
    /// ESTALE for its answer.
    fn is_second_try(&self, header: &Header) -> bool {
        let mut sent_back = self.sent_back.borrow_mut();
        if sent_back.len() > CALLERS_MAX {
            sent_back.clear();
        }
        sent_back.remove(&header.pid)
    }

    pub(crate) async fn tmpfile(&self, header: &Header, args: abi::CreateIn) -> Reply {
        let (parent, ctx) = (self.fid(header.nodeid)?, self.ctx(header, args.umask));
        let (attr, file) = self
            .client
            .tmpfile(&ctx, parent, args.mode & 0o7777, args.flags)
            .await
            .map_err(errno)?;
        let fh = self.files.borrow_mut().insert(attr.fid(), file);
        Ok(Body::Create(self.entry(&exact(attr), None), self.open_out(fh)))
    }

    /// A close of one descriptor gives back the POSIX locks of its process, whichever descriptor
    /// took them. What is kept of the file begins to be sent, or goes with the close of the handle.
    /// An error that is known now is told, a later one by the next `fsync`.
    pub(crate) async fn flush(&self, header: &Header, fh: u64, lock_owner: u64) -> Reply {
        let fid = self.fid(header.nodeid)?;
        if self.locked.borrow_mut().remove(&(fid, lock_owner)).is_some() {
            Box::pin(self.unlock(header, fid, LockKind::Posix, lock_owner)).await?;
        }
        self.file(fh)?.flush().map(|()| Body::Empty).map_err(errno)
    }

    pub(crate) async fn release(&self, header: &Header, args: abi::ReleaseIn) -> Reply {
        let file = self.files.borrow_mut().remove(args.fh).ok_or(Errno::EBADF)?;
        self.closed(args.fh);
        let mut unlocked = Ok(());
        if args.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0 {
            let unlock = self.unlock(header, file.fid(), LockKind::Flock, args.lock_owner);
            unlocked = Box::pin(unlock).await;
        }
        for owner in self.owners_through(file.fid(), args.fh) {
            let unlock = self.unlock(header, file.fid(), LockKind::Posix, owner);
            unlocked = Box::pin(unlock).await.and(unlocked);
        }
        self.appends.finish(file.fid()).await;
        if !file.is_sent() {
            // The kernel has few places for releases and reads ahead together: one that waits for
            // an OST is not to take a place.
            self.env.spawn("release", async move {
                if let Err(error) = file.close().await {
                    tracing::debug!(%error, "a file is closed with an error");
                }
            });
            return unlocked.map(|()| Body::Empty);
        }
        // Closed in any case: a lock that could not be given back goes with the session.
        file.close().await.map_err(errno)?;
        unlocked.map(|()| Body::Empty)
    }

    /// Who still has POSIX locks through this handle, which nobody has open any more: processes
    /// gave theirs back with their closes, so these belong to the open file itself (`F_OFD_SETLK`),
    /// of which the kernel sends no unlock.
    fn owners_through(&self, fid: Fid, fh: u64) -> Vec<u64> {
        let mut locked = self.locked.borrow_mut();
        let of_file = locked.range((fid, 0)..=(fid, u64::MAX));
        let owners: Vec<u64> =
            of_file.filter(|(_, through)| **through == fh).map(|((_, owner), _)| *owner).collect();
        for owner in &owners {
            locked.remove(&(fid, *owner));
        }
        owners
    }

    async fn unlock(
        &self,
        header: &Header,
        fid: Fid,
        kind: LockKind,
        owner: u64,
    ) -> Result<(), Errno> {
        let spec = LockSpec::whole(kind, LockMode::Unlock, owner, false);
        self.client.lock(&self.ctx(header, 0), fid, spec).await.map_err(errno)
    }
}

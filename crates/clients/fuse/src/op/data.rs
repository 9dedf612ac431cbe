//! Open files and their bytes.

use bytes::Bytes;
use client::{File, Lease, LockKind, LockMode, LockSpec, SetAttr};
use fusedev::abi;
use fusedev::{Body, Header, Reply};
use types::{Errno, Fid};

use crate::convert;
use crate::fs::{Fs, errno};

const O_TRUNC: u32 = libc::O_TRUNC as u32;

impl Fs {
    pub(crate) async fn open(&self, header: &Header, args: abi::OpenIn) -> Reply {
        let fid = self.fid(header.nodeid)?;
        let file = self.client.open(&self.ctx(header, 0), fid, args.flags).await.map_err(errno)?;
        let fh = self.files.borrow_mut().insert(fid, file.clone());
        if args.flags & O_TRUNC != 0 && args.open_flags & abi::OPEN_KILL_SUIDGID != 0 {
            self.drop_privileges(header, header.nodeid, &file).await;
        }
        Ok(Body::Open(self.open_out(fh)))
    }

    pub(crate) async fn create(&self, header: &Header, name: &[u8], args: abi::CreateIn) -> Reply {
        let (parent, name) = (self.fid(header.nodeid)?, convert::name(name)?);
        let ctx = self.ctx(header, args.umask);
        let made = self
            .client
            .create_leased(&ctx, parent, name, args.mode & 0o7777, args.flags, None)
            .await;
        let (attr, file, lease) = made.map_err(errno)?;
        let fh = self.files.borrow_mut().insert(attr.fid(), file);
        Ok(Body::Create(self.entry(&attr, lease), self.open_out(fh)))
    }

    pub(crate) async fn tmpfile(&self, header: &Header, args: abi::CreateIn) -> Reply {
        let (parent, ctx) = (self.fid(header.nodeid)?, self.ctx(header, args.umask));
        let (attr, file) = self
            .client
            .tmpfile(&ctx, parent, args.mode & 0o7777, args.flags)
            .await
            .map_err(errno)?;
        let fh = self.files.borrow_mut().insert(attr.fid(), file);
        Ok(Body::Create(self.entry(&attr, Lease::default()), self.open_out(fh)))
    }

    pub(crate) async fn read(&self, args: abi::ReadIn) -> Reply {
        let file = self.file(args.fh)?;
        // Short only at the end of the file, which is what the kernel takes it for.
        file.read_pieces(args.offset, args.size as usize).await.map(Body::Pieces).map_err(errno)
    }

    pub(crate) async fn write(&self, header: &Header, args: abi::WriteIn, data: Bytes) -> Reply {
        let file = self.file(args.fh)?;
        if args.write_flags & abi::WRITE_KILL_SUIDGID != 0 {
            self.drop_privileges(header, header.nodeid, &file).await;
        }
        // A page of a mapping has its place, whatever the handle that the kernel picked does.
        let flags = if args.write_flags & abi::WRITE_CACHE != 0 { 0 } else { args.flags };
        let written = file.write_as(flags, args.offset, data).await;
        let size = u32::try_from(written.map_err(errno)?).map_err(|_| Errno::EIO)?;
        Ok(Body::Write(abi::WriteOut { size, padding: 0 }))
    }

    /// Drops set-user-id and set-group-id before somebody unprivileged changes the contents through
    /// `file`. The kernel asks with every such write; the mode last seen tells whether there is
    /// anything to drop, and the MDT, which knows the caller's groups, whether set-group-id stays.
    pub(super) async fn drop_privileges(&self, header: &Header, nodeid: u64, file: &File) {
        let mode = self.nodes.borrow().get(nodeid).map_or(0, |node| node.mode);
        if !has_privileges(mode) {
            return;
        }
        let set = SetAttr { kill_suid: true, ..SetAttr::default() };
        match self.client.setattr(&self.ctx(header, 0), file.fid(), &set, Some(file)).await {
            Ok(attr) => self.nodes.borrow_mut().saw(file.fid(), attr.mode),
            Err(error) => tracing::warn!(%error, "set-user-id could not be dropped"),
        }
    }

    pub(crate) async fn fsync(&self, fh: u64, datasync: bool) -> Reply {
        let file = self.file(fh)?;
        file.fsync(datasync).await.map(|()| Body::Empty).map_err(errno)
    }

    /// A close of one descriptor gives back the POSIX locks of its process, whichever descriptor
    /// took them. Writes were acknowledged one by one, so there is nothing else to report; a size
    /// that is not handed over yet is asked of the OSTs by whoever wants it.
    pub(crate) async fn flush(&self, header: &Header, lock_owner: u64) -> Reply {
        let fid = self.fid(header.nodeid)?;
        if self.locked.borrow_mut().remove(&(fid, lock_owner)).is_some() {
            self.unlock(header, fid, LockKind::Posix, lock_owner).await?;
        }
        Ok(Body::Empty)
    }

    pub(crate) async fn release(&self, header: &Header, args: abi::ReleaseIn) -> Reply {
        let file = self.files.borrow_mut().remove(args.fh).ok_or(Errno::EBADF)?;
        let mut unlocked = Ok(());
        if args.release_flags & abi::RELEASE_FLOCK_UNLOCK != 0 {
            unlocked = self.unlock(header, file.fid(), LockKind::Flock, args.lock_owner).await;
        }
        for owner in self.owners_through(file.fid(), args.fh) {
            unlocked = self.unlock(header, file.fid(), LockKind::Posix, owner).await.and(unlocked);
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

/// Whether a write by the unprivileged may have to change this mode. Set-group-id that the group
/// cannot execute stays where a member of the group writes.
fn has_privileges(mode: u32) -> bool {
    mode & (libc::S_ISUID | libc::S_ISGID) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_set_id_bit_may_have_to_fall() {
        assert!(has_privileges(0o4644));
        assert!(has_privileges(0o2755));
        assert!(has_privileges(0o2744));
        assert!(!has_privileges(0o0777));
    }
}

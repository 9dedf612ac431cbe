//! Bytes of open files.

use bytes::Bytes;
use client::{File, SetAttr};
use fusedev::abi;
use fusedev::{Body, Header, Reply};
use types::Errno;

use crate::appends::Piece;
use crate::error::errno;
use crate::fs::Fs;

const O_APPEND: u32 = libc::O_APPEND as u32;

impl Fs {
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
        let written = if flags & O_APPEND != 0 {
            let piece = Piece { fh: args.fh, flags, offset: args.offset, data, pid: header.pid };
            self.appends.write(&file, piece).await?
        } else {
            if args.write_flags & abi::WRITE_CACHE == 0 {
                self.appends.finish(file.fid()).await;
            }
            file.write_as(flags, args.offset, data).await.map_err(errno)?
        };
        let size = u32::try_from(written).map_err(|_| Errno::EIO)?;
        let end = args.offset.saturating_add(size.into());
        self.nodes.borrow_mut().grew(header.nodeid, end);
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

//! Ranges of files: allocation, holes, seeking, copies.

use client::SeekFor;
use fusedev::abi;
use fusedev::{Body, Header, Reply};
use types::Errno;

use crate::error::errno;
use crate::fs::Fs;

const SEEK_DATA: u32 = libc::SEEK_DATA as u32;
const SEEK_HOLE: u32 = libc::SEEK_HOLE as u32;
const FALLOC_FL_KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;

impl Fs {
    /// The kernel leaves set-user-id to us, and knows the size after it by asking.
    pub(crate) async fn fallocate(&self, header: &Header, args: abi::FallocateIn) -> Reply {
        let file = self.file(args.fh)?;
        if header.uid != 0 {
            self.drop_privileges(header, header.nodeid, &file).await;
        }
        self.appends.finish(file.fid()).await;
        file.fallocate(args.mode, args.offset, args.length).await.map_err(errno)?;
        if args.mode & FALLOC_FL_KEEP_SIZE == 0 {
            let end = args.offset.saturating_add(args.length);
            self.nodes.borrow_mut().grew(header.nodeid, end);
        }
        Ok(Body::Empty)
    }

    pub(crate) async fn lseek(&self, args: abi::LseekIn) -> Reply {
        let what = match args.whence {
            SEEK_DATA => SeekFor::Data,
            SEEK_HOLE => SeekFor::Hole,
            _ => return Err(Errno::EINVAL),
        };
        let offset = self.file(args.fh)?.seek(what, args.offset).await.map_err(errno)?;
        Ok(Body::Lseek(abi::LseekOut { offset }))
    }

    pub(crate) async fn copy_file_range(
        &self,
        header: &Header,
        args: abi::CopyFileRangeIn,
    ) -> Reply {
        if args.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let (from, to) = (self.file(args.fh_in)?, self.file(args.fh_out)?);
        if header.uid != 0 {
            self.drop_privileges(header, args.nodeid_out, &to).await;
        }
        let copied =
            from.copy_range(args.off_in, &to, args.off_out, args.len).await.map_err(errno)?;
        let size = u32::try_from(copied).map_err(|_| Errno::EIO)?;
        self.nodes.borrow_mut().grew(args.nodeid_out, args.off_out.saturating_add(copied));
        Ok(Body::Write(abi::WriteOut { size, padding: 0 }))
    }
}

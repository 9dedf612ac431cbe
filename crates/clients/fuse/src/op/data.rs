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
            Box::pin(self.drop_privileges(header, header.nodeid, &file)).await;
        }
        // A page of a mapping has its place, whatever the handle that the kernel picked does.
        let flags = if args.write_flags & abi::WRITE_CACHE != 0 { 0 } else { args.flags };
        let written = if flags & O_APPEND != 0 {
            if let Some(written) = self.append_now(&file, flags, &data).await? {
                let end = args.offset.saturating_add(written as u64);
                self.nodes.borrow_mut().grew(header.nodeid, end);
                return Ok(Body::Write(abi::WriteOut { size: written as u32, padding: 0 }));
            }
            let piece = Piece { fh: args.fh, flags, offset: args.offset, data, pid: header.pid };
            Box::pin(self.appends.write(&file, piece)).await?
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

    /// An append that is whole by itself may be acknowledged at once.
    async fn append_now(
        &self,
        file: &File,
        flags: u32,
        data: &Bytes,
    ) -> Result<Option<usize>, Errno> {
        match self.appends.is_whole(file.fid(), data.len() as u64) {
            true => Box::pin(file.append_now(flags, data)).await.map_err(errno),
            false => Ok(None),
        }
    }

    /// Drops set-user-id and set-group-id before somebody unprivileged changes the contents through
    /// `file`. The kernel asks with every such write. The mode of a moment ago tells whether there
    /// is anything to drop, and the MDT, which knows the caller's groups, whether set-group-id
    /// stays.
    pub(super) async fn drop_privileges(&self, header: &Header, nodeid: u64, file: &File) {
        let fresh = file.fresh_mode().await;
        let seen = self.nodes.borrow().get(nodeid).map_or(0, |node| node.mode);
        if !has_privileges(fresh | seen) {
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
    use std::rc::Rc;

    use client::Ctx;
    use cluster::{Cluster, Scenario};
    use fusedev::InitInfo;
    use types::{Fid, Span, TargetKind};

    use super::*;

    /// As another client gives a file set-user-id under a handle that was opened before.
    #[test]
    fn a_handle_opened_earlier_drops_set_user_id() {
        const USER: u32 = 1_000;
        let cluster = Cluster::new(1, &Scenario::calm());
        cluster.boot();
        let (far, near) = (cluster.client_node("far", 0), cluster.client_node("near", 1));
        let (other, client, env) = (cluster.mount(&far), cluster.mount(&near), near.env());
        let info = InitInfo { minor: 0, capabilities: 0, max_write: 0, max_readahead: 0 };
        let fs = Rc::new(Fs::new(&env, client, info, crate::fs::Setup::of_test()));
        let making = other.clone();
        let fid = cluster.sim.block_on(&far, async move {
            let (root, flags) = (Fid::ROOT, libc::O_RDWR as u32);
            let made = making.create(&Ctx::root(), root, b"tool", 0o666, flags, None).await;
            let fid = made.expect("room").1.fid();
            let open_to_all = SetAttr { mode: Some(0o666), ..SetAttr::default() };
            making.setattr(&Ctx::root(), fid, &open_to_all, None).await.expect("chmod");
            fid
        });
        let user = |nodeid| Header { opcode: 0, unique: 1, nodeid, uid: USER, gid: USER, pid: 0 };
        let opening = fs.clone();
        let (nodeid, fh) = cluster.sim.block_on(&near, async move {
            let found = opening.lookup(&user(1), b"tool").await;
            let Ok(Body::Entry(found)) = found else { panic!("{found:?}") };
            let args = abi::OpenIn { flags: libc::O_WRONLY as u32, ..Default::default() };
            let opened = opening.open(&user(found.nodeid), args).await;
            let Ok(Body::Open(opened)) = opened else { panic!("{opened:?}") };
            (found.nodeid, opened.fh)
        });
        let write = || {
            let args = abi::WriteIn {
                fh,
                write_flags: abi::WRITE_KILL_SUIDGID,
                flags: libc::O_WRONLY as u32,
                ..Default::default()
            };
            let fs = fs.clone();
            let written = async move { fs.write(&user(nodeid), args, Bytes::from("new")).await };
            let written = cluster.sim.block_on_for(&near, Span::secs(5), written);
            assert!(matches!(written, Some(Ok(Body::Write(_)))), "{written:?}");
        };
        let mode = cluster.sim.block_on(&far, async move {
            let set = SetAttr { mode: Some(0o4777), ..SetAttr::default() };
            other.setattr(&Ctx::root(), fid, &set, None).await.expect("chmod");
            other
        });
        cluster.sim.run_for(client::limits::MODE_AGE);
        write();
        let attr = cluster
            .sim
            .block_on(&far, async move { mode.getattr(&Ctx::root(), fid, None).await })
            .expect("stat");
        assert_eq!(attr.mode & 0o7777, 0o777);
        cluster.cut_off(&near, TargetKind::Mdt);
        cluster.sim.run_for(client::limits::MODE_AGE);
        write(); // an MDT that is away holds up no write
    }

    #[test]
    fn either_set_id_bit_may_have_to_fall() {
        assert!(has_privileges(0o4644));
        assert!(has_privileges(0o2755));
        assert!(has_privileges(0o2744));
        assert!(!has_privileges(0o0777));
    }
}

//! The way of a request: each is mapped to a call of the library. Callers that are killed hear at
//! once.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use fusedev::abi;
use fusedev::{Body, Handler, Header, LocalFuture, Op, Replier, Reply, Request};
use futures_lite::future::or;
use types::Errno;

use crate::fs::Fs;
use crate::limits::KILL_POLL;
use crate::news;

impl Fs {
    async fn run(self: Rc<Self>, request: Request) {
        let Request { header, op, replier } = request;
        self.tally.count(header.opcode);
        // what gives a lock back waits for nobody, and never fails for a signal
        if let Op::Setlk { args, wait: true } = op
            && args.lk.kind != libc::F_UNLCK as u32
        {
            return Box::pin(self.wait_for_lock(&header, args, &replier)).await;
        }
        let (drops, writes) = (may_be_dropped(&op), matches!(op, Op::Write { .. }));
        let changes = news::changed_dirs(&header, &op);
        let names = news::changed_names(&header, &op);
        self.note_doubts(&header, &op);
        let _unlinking = self.unlinking(&header, &op);
        if matches!(op, Op::Read(_)) {
            self.pages.borrow_mut().read(header.nodeid);
        }
        let mut work = pin!(self.perform(&header, op));
        let killed = async {
            self.killed(&header, &replier).await;
            None
        };
        let done = poll_fn(|cx| work.as_mut().poll(cx).map(Some));
        match or(done, killed).await {
            Some(reply) => {
                self.tally.answered(header.opcode, &reply);
                self.outdate(&header, changes);
                self.note_belief(&header, &reply);
                replier.reply(&reply);
            }
            None => {
                if drops {
                    self.disbelieve(&header, changes, &names);
                }
                replier.reply(&Err(Errno::EINTR));
                if writes && let Ok(fid) = self.fid(header.nodeid) {
                    self.appends.was_killed(fid);
                }
                if !drops {
                    let late = work.await;
                    self.disbelieve(&header, changes, &names);
                    Box::pin(self.undo(late)).await;
                }
                self.doubt_names(names);
            }
        }
        self.drop_late();
    }

    /// Completes when the caller has been killed and waits only for us.
    async fn killed(&self, header: &Header, replier: &Replier) {
        replier.interrupted().await;
        while !fusedev::fatal_signal_pending(header.pid) {
            self.env.sleep(KILL_POLL).await;
        }
    }

    /// What the kernel will never hear of must not be held for it.
    async fn undo(&self, reply: Reply) {
        match reply {
            Ok(Body::Entry(entry)) => self.nodes.borrow_mut().forget(entry.nodeid, 1),
            Ok(Body::Create(entry, open)) => {
                self.nodes.borrow_mut().forget(entry.nodeid, 1);
                self.close(open.fh).await;
            }
            Ok(Body::Open(open)) => self.close(open.fh).await,
            _ => {}
        }
    }

    /// Closes a file's handle; handles of directories have numbers of their own.
    async fn close(&self, fh: u64) {
        let file = self.files.borrow_mut().remove(fh);
        self.closed(fh);
        if let Some(file) = file
            && let Err(error) = file.close().await
        {
            tracing::warn!(%error, "close");
        }
    }

    /// One request. What is not here has a way in the kernel to do without, or is refused there.
    /// What takes many steps has a box of its own: every request moves as many bytes as the largest
    /// of those that have none.
    async fn perform(&self, header: &Header, op: Op) -> Reply {
        match op {
            Op::Lookup { name } => self.lookup(header, &name).await,
            Op::Getattr { fh } => self.getattr(header, fh).await,
            Op::Setattr(args) => Box::pin(self.setattr(header, &args)).await,
            Op::Readlink => self.readlink(header).await,
            Op::Symlink { name, target } => self.symlink(header, &name, &target).await,
            Op::Mknod { name, mode, rdev, umask } => {
                self.mknod(header, &name, mode, rdev, umask).await
            }
            Op::Mkdir { name, mode, umask } => self.mkdir(header, &name, mode, umask).await,
            Op::Unlink { name } => self.unlink(header, &name).await,
            Op::Rmdir { name } => self.rmdir(header, &name).await,
            Op::Rename { name, newdir, newname, flags } => {
                Box::pin(self.rename(header, &name, newdir, &newname, flags)).await
            }
            Op::Link { oldnodeid, newname } => {
                Box::pin(self.link(header, oldnodeid, &newname)).await
            }
            Op::Open(args) => self.open(header, args).await,
            Op::Create { name, args } => self.create(header, &name, args).await,
            Op::Read(args) => Box::pin(self.read(args)).await,
            Op::Write { args, data } => Box::pin(self.write(header, args, data)).await,
            Op::Fsync { fh, datasync } => self.fsync(fh, datasync).await,
            Op::Flush { fh, lock_owner } => self.flush(header, fh, lock_owner).await,
            Op::Release(args) => Box::pin(self.release(header, args)).await,
            Op::Statfs => self.statfs().await,
            Op::Syncfs => self.syncfs().await,
            Op::Setxattr { name, value, flags } => {
                Box::pin(self.setxattr(header, &name, value, flags)).await
            }
            Op::Getxattr { name, size } => self.getxattr(header, &name, size).await,
            Op::Listxattr { size } => self.listxattr(header, size).await,
            Op::Removexattr { name } => self.removexattr(header, &name).await,
            Op::Opendir(_) => self.opendir(header),
            Op::Readdir { args, plus } => self.readdir(header, args, plus).await,
            Op::Releasedir(args) => self.releasedir(args.fh),
            Op::Fsyncdir { fh, .. } => self.fsyncdir(header, fh).await,
            Op::Getlk(args) => self.getlk(header, args).await,
            Op::Setlk { args, .. } => Box::pin(self.setlk(header, args)).await,
            Op::Ioctl { .. } => Err(Errno::ENOTTY),
            Op::Fallocate(args) => Box::pin(self.fallocate(header, args)).await,
            Op::Lseek(args) => Box::pin(self.lseek(args)).await,
            Op::CopyFileRange(args) => Box::pin(self.copy_file_range(header, args)).await,
            Op::Tmpfile { args } => Box::pin(self.tmpfile(header, args)).await,
            Op::Statx { fh } => self.statx(header, fh).await,
            // ENOSYS: the kernel remembers and does it itself (poll, access by
            // `default_permissions`).
            _ => Err(Errno::ENOSYS),
        }
    }
}

/// Whether the work of a killed caller is given up; a change that its server has not begun is taken
/// back then. What has several steps, or makes or ends a handle, goes on to its end; of appends
/// [`Appends::was_killed`] is told.
fn may_be_dropped(op: &Op) -> bool {
    if let Op::Write { args, .. } = op {
        return args.flags & libc::O_APPEND as u32 == 0;
    }
    // The client goes on with these by itself, so the kernel has to forget at their end.
    if let Op::Setattr(args) = op {
        return args.valid & abi::FATTR_SIZE == 0;
    }
    if let Op::Setxattr { name, .. } = op {
        return name[..] != *b"lustre.lov.del";
    }
    matches!(
        op,
        Op::Read(_)
            | Op::Readdir { .. }
            | Op::Getattr { .. }
            | Op::Statx { .. }
            | Op::Lseek(_)
            | Op::Statfs
            | Op::CopyFileRange(_)
            | Op::Symlink { .. }
            | Op::Mknod { .. }
            | Op::Mkdir { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::Link { .. }
            | Op::Removexattr { .. }
    )
}

impl Handler for Fs {
    fn handle(self: Rc<Self>, request: Request) -> LocalFuture {
        Box::pin(self.run(request))
    }

    fn forget(&self, nodeid: u64, nlookup: u64) {
        self.nodes.borrow_mut().forget(nodeid, nlookup);
        if self.nodes.borrow().get(nodeid).is_none() {
            self.pages.borrow_mut().forget(nodeid);
            self.kept_dirs.borrow_mut().forget(nodeid);
        }
    }
}

#[cfg(test)]
mod tests {
    use client::Ctx;
    use cluster::{Cluster, Scenario};
    use fusedev::InitInfo;
    use types::Fid;

    use super::*;
    use crate::fs::Setup;

    fn future_bytes<A, B, F>(_: fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_truncate_goes_on_when_its_caller_is_killed() {
        let setattr = |valid| Op::Setattr(abi::SetattrIn { valid, ..Default::default() });
        assert!(!may_be_dropped(&setattr(abi::FATTR_SIZE)));
        assert!(may_be_dropped(&setattr(abi::FATTR_MODE)));
    }

    /// Each request has a box of this size, into which its future is moved.
    #[test]
    fn the_future_of_a_request_is_small() {
        let bytes = future_bytes(Fs::run);
        assert!(bytes <= 4_096, "{bytes} bytes are moved for each request");
    }

    #[test]
    fn an_open_that_is_undone_closes_its_file_and_no_directory() {
        let cluster = Cluster::new(1, &Scenario::calm());
        cluster.boot();
        let node = cluster.client_node("c", 0);
        let (client, env) = (cluster.mount(&node), node.env());
        cluster.sim.block_on(&node, async move {
            let (mine, name) = (Ctx::root(), b"f");
            let (_, file) =
                client.create(&mine, Fid::ROOT, name, 0o644, 2, None).await.expect("room");
            let fs = Fs::new(
                &env,
                client,
                InitInfo { minor: 0, capabilities: 0, max_write: 0, max_readahead: 0 },
                Setup::of_test(),
            );
            let header = Header { opcode: 0, unique: 1, nodeid: 1, uid: 0, gid: 0, pid: 0 };
            let Ok(Body::Open(dir)) = fs.opendir(&header) else { panic!("the root opens") };
            let fh = fs.files.borrow_mut().insert(file.fid(), file);
            assert_eq!(dir.fh, fh, "files and directories are counted apart");
            fs.undo(Ok(Body::Open(abi::OpenOut { fh, ..Default::default() }))).await;
            assert!(fs.file(fh).is_err());
            assert!(fs.releasedir(dir.fh).is_ok());
        });
    }
}

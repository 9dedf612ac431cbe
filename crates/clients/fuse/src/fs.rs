//! The handler: maps each request to a call of the library, and handles callers that are killed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use client::{Client, Ctx, File};
use env::Env;
use fusedev::abi::{self, cap};
use fusedev::{
    Body, Handler, Header, InitInfo, LocalFuture, Notifier, Op, Replier, Reply, Request,
};
use futures_lite::future::or;
use types::{Errno, Fid};

use crate::appends::Appends;
use crate::callers::Callers;
use crate::convert;
use crate::dirs::Dir;
use crate::handles::Handles;
use crate::jobid::{Jobids, Proc};
use crate::limits::KILL_POLL;
use crate::nodes::{Generations, Nodes};
use crate::op::Xattrs;
use crate::pages::Pages;
use crate::tally::Tally;
use crate::{Bugs, news};

pub(crate) struct Fs {
    pub(crate) env: Env,
    pub(crate) client: Client,
    pub(crate) nodes: RefCell<Nodes>,
    pub(crate) pages: Rc<RefCell<Pages>>,
    pub(crate) files: RefCell<Handles<File>>,
    pub(crate) dirs: RefCell<Handles<Rc<Dir>>>,
    /// Files with POSIX locks that this mount took, their owners, and the handle through which each
    /// owner did it last: a close of any other need not ask the server.
    pub(crate) locked: RefCell<BTreeMap<(Fid, u64), u64>>,
    pub(crate) appends: Rc<Appends>,
    /// Callers whose CREATE was answered with ESTALE.
    pub(crate) sent_back: RefCell<BTreeSet<u32>>,
    callers: RefCell<Callers>,
    jobids: Rc<Jobids>,
    pub(crate) capabilities: Cell<u64>,
    /// Security labels are kept.
    seclabel: bool,
    pub(crate) ino: convert::Ino,
    pub(crate) generations: Generations,
    /// The kernel does not believe the first answer about an inode where one was dropped while it
    /// was on its way.
    pub(crate) counts_evictions: bool,
    pub(crate) notifier: Notifier,
    pub(crate) tally: Rc<Tally>,
    pub(crate) bugs: Bugs,
}

/// What a mount shows in one way or another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// The attribute `security.selinux` is kept like any other; else it is not supported, which `ls
    /// -l` has to be told only once.
    pub seclabel: bool,
    /// Inode numbers have 32 bits ([`Fid::ino32`]).
    pub short_ino: bool,
}

/// What a mount is given besides its client.
pub(crate) struct Setup {
    pub(crate) jobids: Rc<Jobids>,
    pub(crate) manner: Manner,
    /// Hears what the kernel must not believe any more.
    pub(crate) notifier: Notifier,
    pub(crate) bugs: Bugs,
}

#[cfg(test)]
impl Setup {
    /// For a kernel that hears nothing.
    pub(crate) fn of_test() -> Setup {
        let (notifier, bugs) = (Notifier::direct(Rc::new(fusedev::Deaf)), Bugs::default());
        Setup { jobids: Rc::default(), manner: Manner::default(), notifier, bugs }
    }
}

impl Fs {
    pub(crate) fn new(env: &Env, client: Client, info: InitInfo, setup: Setup) -> Fs {
        let generations = Generations::new(client.identity(), env.random() as u32);
        Fs {
            env: env.clone(),
            client,
            nodes: RefCell::new(Nodes::new()),
            pages: Rc::default(),
            files: RefCell::new(Handles::new()),
            dirs: RefCell::new(Handles::new()),
            locked: RefCell::default(),
            appends: Rc::new(Appends::new(env, info.max_write, fusedev::write_length)),
            sent_back: RefCell::default(),
            callers: RefCell::default(),
            jobids: setup.jobids,
            capabilities: Cell::new(info.capabilities),
            seclabel: setup.manner.seclabel,
            ino: if setup.manner.short_ino { Fid::ino32 } else { Fid::ino },
            generations,
            counts_evictions: info.minor >= abi::EVICTIONS_MINOR,
            notifier: setup.notifier,
            tally: Rc::default(),
            bugs: setup.bugs,
        }
    }

    /// Who calls, for the servers.
    pub(crate) fn ctx(&self, header: &Header, umask: u32) -> Ctx {
        let now = self.env.now();
        let creds = self.callers.borrow_mut().creds(header, now, fusedev::supplementary_groups);
        Ctx { creds, umask, pid: header.pid, jobid: self.jobids.of(header, now, &Proc) }
    }

    /// The file that a node id stands for.
    pub(crate) fn fid(&self, nodeid: u64) -> Result<Fid, Errno> {
        self.nodes.borrow().get(nodeid).map(|node| node.fid).ok_or(Errno::ESTALE)
    }

    /// The file that a node id of a file handle stands for, known to the kernel or not.
    pub(crate) fn fid_of_handle(&self, nodeid: u64) -> Result<Fid, Errno> {
        self.nodes.borrow().of_handle(nodeid).ok_or(Errno::ESTALE)
    }

    pub(crate) fn file(&self, fh: u64) -> Result<File, Errno> {
        self.files.borrow().get(fh).ok_or(Errno::EBADF)
    }

    /// Any open handle of the file: what keeps an unlinked one alive.
    pub(crate) fn file_of(&self, fid: Fid) -> Option<File> {
        self.files.borrow().of(fid)
    }

    /// A directory or symbolic link was read. The MDT hears of it where its access time changes by
    /// that, which it seldom does: once after a change and once a day, unless the mount wants each.
    pub(crate) fn was_read(&self, ctx: &Ctx, nodeid: u64) {
        let now = self.env.wall();
        let Some(mut attr) = self.nodes.borrow().seen(nodeid) else { return };
        if self.client.access_times().counts(&attr, now) {
            attr.set_atime(now);
            self.nodes.borrow_mut().saw_times(&attr); // not told again before attributes came
            self.client.was_read(ctx, attr.fid(), now);
        }
    }

    /// Which extended attributes this mount has.
    pub(crate) fn xattrs(&self) -> Xattrs {
        let acls = self.capabilities.get() & cap::POSIX_ACL != 0;
        Xattrs { acls, labels: self.seclabel }
    }

    /// How files are opened whose data may not be kept.
    pub(crate) fn open_out(&self, fh: u64) -> abi::OpenOut {
        let direct = self.capabilities.get() & cap::DIRECT_IO_ALLOW_MMAP != 0;
        let open_flags =
            if direct { abi::FOPEN_DIRECT_IO | abi::FOPEN_PARALLEL_DIRECT_WRITES } else { 0 };
        abi::OpenOut { fh, open_flags, padding: 0 }
    }

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
                self.rename(header, &name, newdir, &newname, flags).await
            }
            Op::Link { oldnodeid, newname } => self.link(header, oldnodeid, &newname).await,
            Op::Open(args) => self.open(header, args).await,
            Op::Create { name, args } => self.create(header, &name, args).await,
            Op::Read(args) => Box::pin(self.read(args)).await,
            Op::Write { args, data } => Box::pin(self.write(header, args, data)).await,
            Op::Fsync { fh, datasync } => self.fsync(fh, datasync).await,
            Op::Flush { fh, lock_owner } => self.flush(header, fh, lock_owner).await,
            Op::Release(args) => self.release(header, args).await,
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
            Op::Setlk { args, .. } => Box::pin(self.setlk(header, args, false)).await,
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
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Cluster, Scenario};

    use super::*;

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

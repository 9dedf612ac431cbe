//! The state of a mount, which all requests share.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use client::{Client, Ctx, File};
use env::Env;
use fusedev::abi::{self, cap};
use fusedev::{Header, InitInfo, Notifier};
use types::{Errno, Fid};

use crate::Bugs;
use crate::appends::Appends;
use crate::callers::Callers;
use crate::convert;
use crate::dirs::Dir;
use crate::handles::Handles;
use crate::jobid::{Jobids, Proc};
use crate::kept_dirs::KeptDirs;
use crate::nodes::{Generations, Nodes};
use crate::pages::Pages;
use crate::tally::Tally;
use crate::xattrs::Xattrs;

pub(crate) struct Fs {
    pub(crate) env: Env,
    pub(crate) client: Client,
    pub(crate) nodes: RefCell<Nodes>,
    pub(crate) pages: Rc<RefCell<Pages>>,
    pub(crate) files: RefCell<Handles<File>>,
    pub(crate) dirs: RefCell<Handles<Rc<Dir>>>,
    pub(crate) kept_dirs: RefCell<KeptDirs>,
    /// Pages of directories that are asked for before the kernel needs them.
    pub(crate) ahead: Rc<Cell<u32>>,
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
            kept_dirs: RefCell::default(),
            ahead: Rc::default(),
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
    /// Returns whether it changes.
    pub(crate) fn was_read(&self, ctx: &Ctx, nodeid: u64) -> bool {
        let now = self.env.wall();
        let Some(mut attr) = self.nodes.borrow().seen(nodeid) else { return false };
        let counts = self.client.access_times().counts(&attr, now);
        if counts {
            attr.set_atime(now);
            self.nodes.borrow_mut().saw_times(&attr); // not told again before attributes came
            self.client.was_read(ctx, attr.fid(), now);
        }
        counts
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
}

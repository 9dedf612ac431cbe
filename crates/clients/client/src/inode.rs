//! State that the handles of one file share at this client.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use layout::{FileLayout, StripeSet};
use types::{Creds, Fid, Instant, Timespec};
use wire::attr::{AttrFlags, S_ISGID, S_ISUID};
use wire::body::{Disposition, OstAttr};
use wire::{Attr, PROJID_NONE};

use crate::atime::Access;
use crate::data::{Keeping, UnderWay};
use crate::flags;
use crate::size::{WriteView, existing};
use crate::stat::Stat;

/// An open file of this client; lives from its first open handle to its last.
pub(crate) struct Inode {
    pub(crate) fid: Fid,
    layout: RefCell<Option<Rc<FileLayout>>>,
    /// Of the layout: it rises with every change.
    layout_version: Cell<u32>,
    /// The layout came with an answer that waits for no commit. Another client may have made it,
    /// and it is lost if that client and the MDT die.
    is_only_seen: Cell<bool>,
    /// As the MDT told them last.
    attr: Cell<Attr>,
    /// Mode as this client saw it last: tells whether a write must drop set-user-id.
    mode: Cell<u32>,
    /// Until when that is new enough for a write by somebody without privilege.
    pub(crate) mode_until: Cell<Instant>,
    /// Its group, likewise.
    gid: Cell<u32>,
    /// Its project, for the schedulers of servers.
    projid: Cell<u32>,
    /// Whether a write must drop a capability.
    capable: Cell<bool>,
    pub(crate) access: RefCell<Access>,
    /// Present while handles are open for writing.
    pub(crate) view: RefCell<Option<WriteView>>,
    handles: Cell<u32>,
    writers: Cell<u32>,
    /// When this client heard that a modification time was set by hand, by the MDT's clock.
    mtime_set: Cell<Timespec>,
    /// Changes of its data.
    pub(crate) under_way: UnderWay,
    /// What is acknowledged and not sent.
    pub(crate) keeping: Keeping,
    /// Stripes that must have an object, by the MDT's last word.
    stripes: RefCell<StripeSet>,
    /// The layout with which the MDT's record of the open is durable (for O_SYNC).
    mdt_synced: Cell<Option<u32>>,
    /// The close of its only handle may bring its bytes.
    takes_bytes: Cell<bool>,
    /// The MDT evicted this client, or does not have the file: handles are void.
    lost: Cell<bool>,
}

impl Inode {
    fn new(fid: Fid) -> Inode {
        Inode {
            fid,
            layout: RefCell::default(),
            layout_version: Cell::new(0),
            is_only_seen: Cell::new(false),
            attr: Cell::default(),
            mode: Cell::new(0),
            mode_until: Cell::default(),
            gid: Cell::new(0),
            projid: Cell::new(PROJID_NONE),
            capable: Cell::new(false),
            access: RefCell::default(),
            view: RefCell::default(),
            handles: Cell::new(0),
            writers: Cell::new(0),
            mtime_set: Cell::default(),
            under_way: UnderWay::default(),
            keeping: Keeping::default(),
            stripes: RefCell::default(),
            mdt_synced: Cell::new(None),
            takes_bytes: Cell::new(false),
            lost: Cell::new(false),
        }
    }

    /// One that no handle of the file shares.
    pub(crate) fn apart(fid: Fid) -> Inode {
        Inode::new(fid)
    }

    /// Where its bytes are, if it has a layout.
    pub(crate) fn layout(&self) -> Option<Rc<FileLayout>> {
        self.layout.borrow().clone()
    }

    /// The same, if it is of this version.
    pub(crate) fn layout_of(&self, version: u32) -> Option<Rc<FileLayout>> {
        self.layout().filter(|_| self.layout_version.get() == version)
    }

    /// Takes the reply to a query, which waits for no commit.
    pub(crate) fn see(&self, stat: &Stat) {
        let (before, was_seen) = (self.layout_version.get(), self.is_only_seen.get());
        self.learn(stat);
        self.is_only_seen.set(was_seen || self.layout_version.get() > before);
    }

    /// Whether the layout may be lost with the client that made it. A write asks the MDT for it
    /// first, which commits it.
    pub(crate) fn is_only_seen(&self) -> bool {
        self.is_only_seen.get()
    }

    /// Takes attributes and layout record of the reply to a change. Other clients' changes that it
    /// decided on are durable.
    pub(crate) fn learn(&self, stat: &Stat) {
        self.attr.set(stat.attr);
        self.mode.set(stat.attr.mode);
        self.gid.set(stat.attr.gid);
        self.projid.set(stat.attr.projid);
        self.access.borrow_mut().learn(&stat.attr);
        self.capable.set(stat.attr.flags.contains(AttrFlags::HAS_CAPABILITY));
        self.mtime_set.set(self.mtime_set.get().max(stat.mtime_set));
        self.stripes.borrow_mut().clone_from(&stat.stripes);
        // an answer that was overtaken knows fewer objects
        if stat.layout.is_some() && stat.attr.layout_version >= self.layout_version.get() {
            self.layout_version.set(stat.attr.layout_version);
            self.is_only_seen.set(false);
            let before = self.layout.replace(stat.layout.clone());
            if let (Some(before), Some(now)) = (&before, &stat.layout)
                && !now.keeps(before)
            {
                self.forget();
            }
        }
    }

    /// Stripes that must have an object, as far as this client heard: it may be old.
    pub(crate) fn stripes(&self) -> StripeSet {
        self.stripes.borrow().clone()
    }

    /// The same of those that `layout` has, which may be older.
    pub(crate) fn stripes_of(&self, layout: &FileLayout) -> StripeSet {
        self.stripes.borrow().below(layout.stripes())
    }

    /// The same of one stripe.
    pub(crate) fn must_exist(&self, stripe: u32) -> bool {
        self.stripes.borrow().contains(stripe)
    }

    /// When the modification time was set by hand, as far as this client heard.
    pub(crate) fn mtime_set(&self) -> Timespec {
        self.mtime_set.get()
    }

    /// The time of a change that begins at `now`: later than any time that was set by hand before,
    /// also where the MDT's clock is ahead.
    pub(crate) fn stamp(&self, now: Timespec) -> Timespec {
        let stamp = now.max(self.mtime_set.get().next_nanosecond());
        self.access.borrow_mut().changed_at(stamp);
        stamp
    }

    /// Attributes as the MDT told them last.
    pub(crate) fn attr(&self) -> Attr {
        self.attr.get()
    }

    /// As this client saw it last.
    pub(crate) fn mode(&self) -> u32 {
        self.mode.get()
    }

    /// As this client saw it last.
    pub(crate) fn projid(&self) -> u32 {
        self.projid.get()
    }

    /// Whether a write by `writer`, who has no privilege, must drop set-user-id or set-group-id.
    pub(crate) fn is_set_id(&self, writer: &Creds) -> bool {
        let mode = self.mode.get();
        mode & S_ISUID != 0
            || (mode & S_ISGID != 0 && (mode & 0o010 != 0 || !writer.in_group(self.gid.get())))
    }

    /// Whether a write by anybody must drop `security.capability`.
    pub(crate) fn is_capable(&self) -> bool {
        self.capable.get()
    }

    pub(crate) fn has_writers(&self) -> bool {
        self.writers.get() > 0
    }

    /// Whether the close of its only handle may bring all of its bytes: it was made by the open of
    /// that handle, and this client has sent nothing to its objects.
    pub(crate) fn takes_bytes(&self, layout: &FileLayout) -> bool {
        let is_untouched = |view: &mut WriteView| view.is_fresh() && view.has_no_object(layout);
        self.takes_bytes.get()
            && self.handles.get() == 1
            && self.stripes.borrow().is_empty()
            && self.under_way.is_empty()
            && self.with_view(is_untouched) == Some(true)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get()
    }

    /// Number of the layout that it knows: one with more objects has another.
    pub(crate) fn layout_version(&self) -> u32 {
        self.layout_version.get()
    }

    /// Whether a crash leaves the file with its present objects.
    pub(crate) fn is_mdt_synced(&self) -> bool {
        self.mdt_synced.get() == Some(self.layout_version.get())
    }

    /// The MDT made its record durable. It was asked when that had this layout.
    pub(crate) fn mdt_synced(&self, layout_version: u32) {
        self.mdt_synced.set(Some(layout_version));
    }

    /// What was learnt of objects is no ground for an exact size any more.
    pub(crate) fn forget(&self) {
        let stripes = self.layout().map_or(0, |layout| layout.stripes());
        if let Some(view) = &mut *self.view.borrow_mut() {
            view.forget(stripes);
        }
        self.mdt_synced.set(None);
    }

    /// A server restarted.
    fn distrust(&self) {
        self.forget();
        self.takes_bytes.set(false); // it may be of another version now
        self.layout_version.set(0); // a layout that was only seen may be gone
    }

    pub(crate) fn lose(&self) {
        self.lost.set(true);
        *self.view.borrow_mut() = None;
    }

    /// The objects of a file that this client alone has written, while no change of them is under
    /// way. `epoch` and `layout` are the MDT's last word.
    pub(crate) fn own_objects(&self, epoch: u64, layout: &FileLayout) -> Option<Vec<OstAttr>> {
        let is_quiet = self.under_way.is_empty() && self.keeping.is_clean();
        let is_its = self.layout().is_some_and(|its| its.generation() == layout.generation());
        let view = self.view.borrow();
        let objects = view.as_ref().filter(|_| is_quiet && is_its)?.told(epoch, layout)?;
        let is_whole = self.stripes_of(layout).without(&existing(&objects)).is_empty();
        is_whole.then_some(objects)
    }

    /// Changes the view, if there is one.
    pub(crate) fn with_view<T>(&self, change: impl FnOnce(&mut WriteView) -> T) -> Option<T> {
        self.view.borrow_mut().as_mut().map(change)
    }
}

/// Files that this client has open.
#[derive(Default)]
pub(crate) struct Inodes {
    open: RefCell<BTreeMap<Fid, Rc<Inode>>>,
    /// Files with kept writes under way whose handles are void. They may be open again, with
    /// another inode. Those writes count below [`crate::limits::KEPT_BYTES_MAX`], which bounds
    /// this.
    orphans: RefCell<Vec<Rc<Inode>>>,
}

impl Inodes {
    /// Shared state of an open file.
    pub(crate) fn get(&self, fid: Fid) -> Option<Rc<Inode>> {
        self.open.borrow().get(&fid).cloned()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Rc<Inode>> {
        self.open.borrow().values().cloned().collect()
    }

    /// What void handles of a file share, while kept writes by them are under way.
    pub(crate) fn orphans_of(&self, fid: Fid) -> Vec<Rc<Inode>> {
        self.orphans.borrow().iter().filter(|orphan| orphan.fid == fid).cloned().collect()
    }

    /// The same of all files.
    pub(crate) fn orphans(&self) -> Vec<Rc<Inode>> {
        self.orphans.borrow().clone()
    }

    /// A run of kept writes is executed, or is lost.
    pub(crate) fn landed(&self, inode: &Inode) {
        if inode.keeping.has_landed() {
            self.orphans.borrow_mut().retain(|orphan| !std::ptr::eq(&**orphan, inode));
        }
    }

    /// All handles of the file are void from now on.
    fn make_void(&self, inode: &Rc<Inode>) {
        inode.lose();
        if !inode.keeping.has_landed() {
            self.orphans.borrow_mut().push(inode.clone());
        }
    }

    /// A server restarted: what it said of objects and opens is no ground for an exact size.
    pub(crate) fn forget(&self) {
        for inode in self.open.borrow().values() {
            inode.distrust();
        }
    }

    /// The same of the files of an MDT.
    pub(crate) fn forget_of(&self, mdt: u32) {
        let inodes = self.open.borrow();
        let of_mdt = inodes.values().filter(|inode| inode.fid.mdt_index() == mdt);
        of_mdt.for_each(|inode| inode.distrust());
    }

    /// The MDT no longer knows this client's opens.
    pub(crate) fn lose(&self, mdt: u32) {
        self.open.borrow_mut().retain(|fid, inode| {
            let is_lost = fid.mdt_index() == mdt;
            if is_lost {
                self.make_void(inode);
            }
            !is_lost
        });
    }

    /// The MDT does not have the file.
    pub(crate) fn lose_file(&self, fid: Fid) -> Option<Rc<Inode>> {
        let inode = self.open.borrow_mut().remove(&fid)?;
        self.make_void(&inode);
        Some(inode)
    }

    /// A handle was opened, as the reply tells.
    pub(crate) fn attach(&self, stat: &Stat, open_flags: u32) -> Rc<Inode> {
        let fid = stat.attr.fid();
        let inode =
            self.open.borrow_mut().entry(fid).or_insert_with(|| Rc::new(Inode::new(fid))).clone();
        inode.learn(stat);
        inode.handles.set(inode.handles.get() + 1);
        inode.takes_bytes.set(stat.disposition.contains(Disposition::BYTES));
        if flags::can_write(open_flags) {
            inode.keeping.has_moved();
            inode.writers.set(inode.writers.get() + 1);
            inode.mdt_synced.set(None);
            let mut view = inode.view.borrow_mut();
            match &mut *view {
                Some(view) => view.opened(),
                None => {
                    *view = Some(WriteView::new(
                        stat.disposition.contains(Disposition::CREATED),
                        stat.epoch,
                    ))
                }
            }
        }
        inode
    }

    /// A handle was closed; says whether it was the last one.
    pub(crate) fn detach(&self, inode: &Rc<Inode>, open_flags: u32) -> bool {
        if flags::can_write(open_flags) {
            inode.writers.set(inode.writers.get() - 1);
            if inode.writers.get() == 0 {
                *inode.view.borrow_mut() = None;
            }
        }
        inode.handles.set(inode.handles.get() - 1);
        let mut inodes = self.open.borrow_mut();
        let current = inodes.get(&inode.fid).is_none_or(|current| Rc::ptr_eq(current, inode));
        let is_last = inode.handles.get() == 0 && current;
        if is_last {
            inodes.remove(&inode.fid);
        }
        is_last
    }
}

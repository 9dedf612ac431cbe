//! Handles at rest: a handle for reading that its caller has closed stays open at the MDT for a
//! while. The next open of the file then needs no request.
//!
//! ```text
//! open --request--> used --close--> at rest --open--> used
//!                                     | recall, age, number, own unlink, own open for writing
//!                                     v
//!                                   closed at the MDT
//! ```
//! Invariants
//! - A handle is used again only if the client holds the file's attributes. It must also have held
//!   the file's data without a break since the handle came to rest ([`Grants::held_since`]). So no
//!   other client has opened the file for writing, and the kernel has checked the caller's
//!   permission with the attributes that the MDT has. Without a kernel no handle rests.
//! - The MDT counts a handle at rest as open, even if the client has lost it. So a mistake here
//!   keeps the space of a removed file too long, and nothing else.
//!
//! A recall of the file closes the handle before it is acknowledged. So the MDT removes a file at
//! once, and gives WRITE to the one client that has it open. That wait has a bound
//! ([`CLOSE_WAIT`]), because the close travels with other requests, which may themselves wait for
//! recalls.
//!
//! Lustre: the open lock and `opencache_max_ms` of `llite`.
//!
//! [`Grants::held_since`]: crate::grants::Grants::held_since

mod at_rest;
mod table;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Waker};

use env::LocalFuture;
use types::{Fid, Span};
use wire::Attr;

use crate::client::{Client, Inner};
use crate::data::Leaves;
use crate::file::File;
use crate::handle::Open;
use crate::{Ctx, data, flags};

pub(crate) use at_rest::AtRest;
use at_rest::Resting;

/// Handles at rest of one mount. Each takes about 1 KiB here (less if its open need not be kept for
/// replay). At the MDT it takes up to 180 bytes, and 550 for its file. The MDT has room for 2^18
/// handles of a client.
const RESTING_MAX: usize = 16_384;

/// Between looks for handles that have rested long enough, and for those whose grants have ended
/// without a recall.
const RESTING_LOOK: Span = Span::secs(1);

/// How long the acknowledgement of a recall waits for the close. Far below the deadline of a
/// callback, 5 s.
const CLOSE_WAIT: Span = Span::millis(50);

/// The kernel's mark of an open for execution. The MDT has to know who runs a file.
const FMODE_EXEC: u32 = 0o40;

/// Opens that needed no request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenCacheStats {
    /// Opens by a handle at rest.
    pub opens: u64,
    /// Handles that came to rest.
    pub closes: u64,
    /// Handles at rest now.
    pub resting: usize,
}

impl Client {
    /// What handles at rest were good for.
    #[must_use]
    pub fn open_cache_stats(&self) -> OpenCacheStats {
        let AtRest { table, opens, closes, .. } = &self.0.at_rest;
        let resting = table.borrow().len();
        OpenCacheStats { opens: opens.get(), closes: closes.get(), resting }
    }

    /// How long a handle for reading stays open after its close. Zero: no handle does.
    #[must_use]
    pub fn open_cache_age(&self) -> Span {
        self.0.at_rest.age.get()
    }

    /// Of handles that are closed from now on, and of those that rest already.
    pub fn set_open_cache_age(&self, age: Span) {
        self.0.at_rest.age.set(age);
    }
}

impl Inner {
    fn may_rest(&self, open_flags: u32) -> bool {
        self.at_rest.age.get() > Span::ZERO
            && open_flags & FMODE_EXEC == 0
            && flags::can_read(open_flags)
            && self.may_cache(open_flags)
    }

    /// A caller closes a handle. True: it rests from now on, and nothing is left to be done.
    pub(crate) fn rest(self: &Rc<Self>, open: &Open) -> bool {
        let fid = open.inode.fid;
        if !self.may_rest(open.flags)
            || open.inode.is_lost()
            || open.inode.access.borrow().pending().is_some()
        {
            return false;
        }
        let Some(held_since) = self.grants.of(fid).held_since(fid) else { return false };
        let resting = Resting {
            inode: Rc::clone(&open.inode),
            ctx: open.ctx.clone(),
            flags: open.flags,
            handle: open.handle,
            claim: open.claim,
            xid: open.xid,
            held_since,
        };
        let now = self.env.now();
        let displaced = self.at_rest.table.borrow_mut().put(fid, resting, now, RESTING_MAX);
        self.at_rest.closes.set(self.at_rest.closes.get() + 1);
        self.mind_resting();
        if let Some(displaced) = displaced {
            self.close_resting(displaced);
        }
        true
    }

    /// Opens a file by a handle at rest, if there is one that nothing stands against.
    pub(crate) fn reopen(self: &Rc<Self>, ctx: &Ctx, fid: Fid, open_flags: u32) -> Option<File> {
        if !self.may_rest(open_flags) {
            return None;
        }
        let resting = self.at_rest.table.borrow_mut().take(fid)?;
        let believed = self.grants.of(fid).believed(fid).filter(|_| self.is_useful(fid, &resting));
        let Some((attr, _)) = believed else {
            self.close_resting(resting);
            return None;
        };
        planted::reached("client: a file was opened by a handle at rest");
        self.at_rest.opens.set(self.at_rest.opens.get() + 1);
        Some(File(Rc::new(self.used(resting, Some((ctx, open_flags, attr))))))
    }

    /// A handle that its caller has closed, or one that `caller` opens: with flags and attributes.
    fn used(self: &Rc<Self>, resting: Resting, caller: Option<(&Ctx, u32, Attr)>) -> Open {
        let is_closed = caller.is_none();
        let (ctx, flags, attr) = match caller {
            Some((ctx, flags, attr)) => (ctx.clone(), flags, attr),
            None => (resting.ctx, resting.flags, Attr::default()),
        };
        Open {
            inner: Rc::clone(self),
            heard: self.losses.listen(resting.inode.fid),
            inode: resting.inode,
            ctx,
            flags,
            handle: resting.handle,
            claim: resting.claim,
            made: false,
            xid: resting.xid,
            attr: RefCell::new(attr),
            wrote: Cell::new(false),
            closed: Cell::new(is_closed),
        }
    }

    fn is_useful(&self, fid: Fid, resting: &Resting) -> bool {
        let held_since = || self.grants.of(fid).held_since(fid);
        !resting.inode.is_lost()
            && self.page_cache.get()
            && held_since() == Some(resting.held_since)
    }

    /// Closes the handle of a file that rests, in the background: the request is on its way when
    /// this returns, before what the caller asks the MDT next.
    pub(crate) fn end_rest(self: &Rc<Self>, fid: Fid) {
        let resting = self.at_rest.table.borrow_mut().take(fid);
        if let Some(resting) = resting {
            self.close_resting(resting);
        }
    }

    /// The same of the file that a name stands for, if that is known.
    pub(crate) fn end_rest_of(self: &Rc<Self>, dir: Fid, name: &[u8]) {
        if self.at_rest.table.borrow().len() == 0 {
            return;
        }
        if let Some((attr, _)) = self.grants.named(dir, name) {
            self.end_rest(attr.fid());
        }
    }

    fn close_resting(self: &Rc<Self>, resting: Resting) {
        let inner = Rc::clone(self);
        let mut close = Box::pin(async move { inner.close_at_mdt(resting, Leaves::AtOnce).await });
        // the first step sends the request
        let mut context = Context::from_waker(Waker::noop());
        if close.as_mut().poll(&mut context).is_pending() {
            self.env.spawn("close", close);
        }
    }

    async fn close_at_mdt(self: &Rc<Self>, resting: Resting, leaves: Leaves) {
        if resting.inode.is_lost() {
            return; // the MDT knows no such handle any more
        }
        if let Err(error) = data::close(&Rc::new(self.used(resting, None)), leaves).await {
            tracing::debug!("closing a handle that was at rest: {error}");
        }
    }

    /// Whether a handle of the file rests.
    pub(crate) fn rests(&self, fid: Fid) -> bool {
        self.at_rest.table.borrow().has(fid)
    }

    /// The MDT calls back what is held of a file whose handle rests: it rests no more. The future
    /// completes when the MDT has closed it, or after [`CLOSE_WAIT`].
    pub(crate) fn end_called_back(self: &Rc<Self>, fid: Fid) -> LocalFuture<'static, ()> {
        let resting = self.at_rest.table.borrow_mut().take(fid);
        let inner = Rc::clone(self);
        Box::pin(async move {
            let Some(resting) = resting else { return };
            let closing = Rc::clone(&inner);
            let close = inner.run("close", async move {
                closing.close_at_mdt(resting, Leaves::InTurn).await;
                Ok(())
            });
            let _in_time = inner.env.timeout(CLOSE_WAIT, close).await;
        })
    }

    /// Looks after handles at rest for as long as there are any.
    fn mind_resting(self: &Rc<Self>) {
        if self.at_rest.is_minded.replace(true) {
            return;
        }
        let inner = Rc::downgrade(self);
        let env = self.env.clone();
        self.env.spawn("handles at rest", async move {
            loop {
                env.sleep(RESTING_LOOK).await;
                let Some(inner) = inner.upgrade() else { return };
                inner.close_over();
                if inner.at_rest.table.borrow().len() == 0 {
                    inner.at_rest.is_minded.set(false);
                    return;
                }
            }
        });
    }

    /// Closes those that have rested long enough, one after the other at each MDT, so that callers
    /// hardly notice.
    fn close_over(self: &Rc<Self>) {
        let (now, age) = (self.env.now(), self.at_rest.age.get());
        let is_useful = |fid, resting: &Resting| self.is_useful(fid, resting);
        let over = self.at_rest.table.borrow_mut().take_over(now, age, is_useful);
        let mut by_mdt: BTreeMap<u32, Vec<Resting>> = BTreeMap::new();
        for (fid, resting) in over {
            by_mdt.entry(fid.mdt_index()).or_default().push(resting);
        }
        for resting in by_mdt.into_values() {
            let inner = Rc::clone(self);
            self.env.spawn("handles at rest closed", async move {
                for resting in resting {
                    inner.close_at_mdt(resting, Leaves::InTurn).await;
                }
            });
        }
    }
}

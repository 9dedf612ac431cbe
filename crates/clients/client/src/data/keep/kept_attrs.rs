//! Kept changes of attributes, of one file and of all.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;
use types::{Creds, Fid};
use wire::Attr;

use crate::Ctx;
use crate::inode::Inode;
use crate::namespace::AttrChange;

/// A change that goes with the close of its file.
pub(super) struct Leaving {
    pub(super) ctx: Ctx,
    pub(super) change: AttrChange,
}

/// Changes of attributes of one file that are kept.
#[derive(Default)]
pub(crate) struct KeptAttrs {
    pub(super) kept: RefCell<Option<(Ctx, AttrChange)>>,
    pub(super) is_sending: Cell<bool>,
    pub(super) landed: Notify,
    /// Something was kept since the file was opened here.
    was_kept: Cell<bool>,
}

impl KeptAttrs {
    /// Whether something was acknowledged that the MDT may not have executed.
    pub(crate) fn is_clean(&self) -> bool {
        self.kept.borrow().is_none() && !self.is_sending.get()
    }

    /// Whether what the MDT has said of the attributes may be from before a change that was
    /// acknowledged then.
    pub(crate) fn was_kept(&self) -> bool {
        self.was_kept.get()
    }

    /// Whether a change of this caller's may join what is kept.
    pub(super) fn takes(&self, creds: &Creds) -> bool {
        let kept = self.kept.borrow();
        !self.is_sending.get() && kept.as_ref().is_none_or(|(ctx, _)| ctx.creds == *creds)
    }

    /// Takes what is kept, to go with the close of the file. It is under way until
    /// [`super::attrs::have_landed`] or [`super::attrs::send_again`].
    pub(super) fn leave(&self) -> Option<Leaving> {
        let (ctx, change) = self.kept.take()?;
        self.is_sending.set(true);
        Some(Leaving { ctx, change })
    }

    /// Puts what is kept into what the MDT said.
    pub(super) fn show(&self, attr: &mut Attr) {
        if let Some((_, change)) = &*self.kept.borrow() {
            change.show(attr);
        }
    }

    /// Says whether nothing was kept before.
    pub(super) fn put(&self, ctx: &Ctx, change: &AttrChange) -> bool {
        self.was_kept.set(true);
        let mut kept = self.kept.borrow_mut();
        let is_new = kept.is_none();
        let before = kept.take().map(|(_, before)| before).unwrap_or_default();
        *kept = Some((ctx.clone(), before.then(change)));
        is_new
    }
}

/// Files of which something is kept or being sent.
#[derive(Default)]
pub(crate) struct Unsettled(pub(super) RefCell<BTreeMap<Fid, Rc<Inode>>>);

impl Unsettled {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(super) fn of(&self, fid: Fid) -> Option<Rc<Inode>> {
        self.0.borrow().get(&fid).cloned()
    }

    pub(super) fn at(&self, mdt: u32) -> Vec<Rc<Inode>> {
        let files = self.0.borrow();
        files.values().filter(|inode| inode.fid.mdt_index() == mdt).cloned().collect()
    }

    pub(super) fn settled(&self, inode: &Inode) {
        if inode.keeping.attrs.is_clean() {
            self.0.borrow_mut().remove(&inode.fid);
        }
    }
}

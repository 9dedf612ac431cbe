//! An open handle: what its clones, and the requests by it, share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use types::Xid;
use wire::body::Claim;
use wire::{Attr, Opcode};
use zerocopy::{Immutable, IntoBytes};

use crate::Ctx;
use crate::client::{CallBuilder, Inner};
use crate::inode::Inode;
use crate::lost::Heard;

pub(crate) struct Open {
    pub(crate) inner: Rc<Inner>,
    pub(crate) inode: Rc<Inode>,
    pub(crate) ctx: Ctx,
    pub(crate) flags: u32,
    pub(crate) handle: u64,
    /// Of the session that the handle belongs to: what OSTs are told.
    pub(crate) claim: Claim,
    /// The open made the file.
    pub(crate) made: bool,
    /// Number of the open request: the close names it, so that both leave the replay list together.
    pub(crate) xid: Xid,
    pub(crate) attr: RefCell<Attr>,
    pub(crate) wrote: Cell<bool>,
    pub(crate) closed: Cell<bool>,
    /// Lost work of the file that its owner was told.
    pub(crate) heard: Heard,
}

impl Open {
    /// A request by this handle.
    pub(crate) fn call<T: IntoBytes + Immutable>(&self, opcode: Opcode, body: &T) -> CallBuilder {
        self.inner.call(&self.ctx, opcode, body).projid(self.inode.projid())
    }
}

//! The other end of a link.

use std::cell::RefCell;
use std::rc::Rc;

use env::LinkTx;
use queues::Ascending;
use types::{CptIndex, Nid};
use wire::Reply;

/// The other end of a link.
pub(crate) struct Peer {
    pub(crate) nid: Nid,
    /// Links are numbered from 1 as they are accepted.
    pub(crate) serial: u64,
    pub(crate) tx: LinkTx,
    pub(crate) cpt: CptIndex,
    /// Bulk ids being pulled: a peer that offers one twice at once loses its link.
    pulling: RefCell<Ascending<u64, ()>>,
}

impl Peer {
    pub(crate) fn new(nid: Nid, serial: u64, tx: LinkTx, cpt: CptIndex) -> Rc<Peer> {
        assert!(serial > 0, "links are numbered from 1: 0 is no link at all");
        Rc::new(Peer { nid, serial, tx, cpt, pulling: RefCell::default() })
    }

    /// Queues a reply; a link that is down is noticed by its reader.
    pub(crate) fn reply(&self, reply: &Reply) {
        let _ = self.tx.send_message(reply);
    }

    /// Notes that the data of bulk `id` is asked for; `None` if it was asked for already.
    pub(crate) fn begin_pull(self: &Rc<Self>, id: u64) -> Option<Pull> {
        let is_first = self.pulling.borrow_mut().insert(id, ()).is_none();
        is_first.then(|| Pull { peer: Rc::clone(self), id })
    }
}

/// Data of a bulk that is awaited: it came, will not come, or its handler was dropped, when this
/// ends.
pub(crate) struct Pull {
    peer: Rc<Peer>,
    id: u64,
}

impl Drop for Pull {
    fn drop(&mut self) {
        let asked = self.peer.pulling.borrow_mut().remove(self.id);
        assert!(asked.is_some(), "a pull ends once, after it began");
    }
}

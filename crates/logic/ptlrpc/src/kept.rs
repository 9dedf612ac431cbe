//! What a client keeps of answered changes until they are durable: the replay list.
//!
//! Invariants
//! - `changes` holds exactly the answered changes above the last known commit, by place in history.
//! - An open stays, in `changes` or in `opens`, until its close is durable.
//! - `bytes` is what the messages in `changes` hold, bulk data not counted.

use std::collections::BTreeMap;

use types::{Transno, Xid};
use wire::Request;

/// How long a modifying request stays in the replay list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Until it is committed.
    #[default]
    No,
    /// An open: until its close is committed, because the server knows open files in memory only.
    Open,
    /// A close: lets go of the open once it is committed itself.
    Close {
        /// The request that opened.
        open: Xid,
    },
}

/// One answered change: the request with the buffers of its reply behind its own.
pub(crate) struct Kept<B> {
    pub request: Box<Request>,
    pub bulk: B,
    pub keep: Keep,
}

/// Place in the replay: transno, then xid.
pub(crate) type Place = (Transno, Xid);

/// The replay list of one import.
pub(crate) struct ReplayList<B> {
    changes: BTreeMap<Place, Box<Kept<B>>>,
    bytes: u64,
    /// Durable opens that are not known to be durably closed.
    opens: BTreeMap<Place, Box<Kept<B>>>,
    /// Where each open of either map stands.
    open_places: BTreeMap<Xid, Place>,
}

impl<B> ReplayList<B> {
    pub(crate) fn new() -> ReplayList<B> {
        ReplayList {
            changes: BTreeMap::new(),
            bytes: 0,
            opens: BTreeMap::new(),
            open_places: BTreeMap::new(),
        }
    }

    pub(crate) fn insert(&mut self, kept: Box<Kept<B>>, committed: Transno) {
        let place = (Transno(kept.request.header.transno), kept.request.xid());
        if kept.keep == Keep::Open {
            self.open_places.insert(place.1, place);
        }
        self.bytes += bytes_of(&kept.request);
        if let Some(before) = self.changes.insert(place, kept) {
            self.bytes -= bytes_of(&before.request);
        }
        if place.0 <= committed {
            self.prune(committed);
        }
    }

    /// An open whose handle is gone without a durable change.
    pub(crate) fn forget_open(&mut self, open: Xid) {
        if let Some(place) = self.open_places.remove(&open) {
            self.opens.remove(&place);
            if let Some(kept) = self.changes.get_mut(&place) {
                // its creation may still have to be replayed, its handle need not outlive that
                kept.keep = Keep::No;
            }
        }
    }

    /// Everything up to `committed` is durable.
    pub(crate) fn prune(&mut self, committed: Transno) {
        while let Some(entry) = self.changes.first_entry() {
            if entry.key().0 > committed {
                break;
            }
            let (place, kept) = entry.remove_entry();
            self.bytes -= bytes_of(&kept.request);
            match kept.keep {
                Keep::No => {}
                Keep::Open => drop(self.opens.insert(place, kept)),
                Keep::Close { open } => self.forget_open(open),
            }
        }
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut Kept<B>> {
        let kept = self.changes.get_mut(&place).or_else(|| self.opens.get_mut(&place));
        kept.map(|kept| &mut **kept)
    }

    /// In replay order.
    pub(crate) fn places(&self) -> Vec<Place> {
        let mut places: Vec<_> = self.opens.keys().chain(self.changes.keys()).copied().collect();
        places.sort_unstable();
        places
    }

    /// Lowest and highest transno that a restarted server may need.
    pub(crate) fn range(&self) -> (Transno, Transno) {
        let low = self.changes.keys().next().map_or(Transno::NONE, |place| place.0);
        (low, self.changes.keys().next_back().map_or(Transno::NONE, |place| place.0))
    }

    /// Whether some change is not known to be durable.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len() + self.opens.len()
    }

    /// Bytes of the messages that a commit would let go of.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.changes.clear();
        self.bytes = 0;
        self.opens.clear();
        self.open_places.clear();
    }
}

/// Memory of a kept message: its header and its buffers.
fn bytes_of(request: &Request) -> u64 {
    (size_of::<Request>() + request.bufs.iter().map(bytes::Bytes::len).sum::<usize>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Opcode;

    fn kept(xid: u64, transno: u64, keep: Keep) -> Box<Kept<()>> {
        let mut request = Request::new(Opcode::MdtOpen, Vec::new());
        (request.header.xid, request.header.transno) = (xid, transno);
        Box::new(Kept { request: Box::new(request), bulk: (), keep })
    }

    #[test]
    fn a_committed_change_is_dropped_and_an_open_is_not() {
        let mut list = ReplayList::new();
        list.insert(kept(1, 10, Keep::Open), Transno(0));
        list.insert(kept(2, 11, Keep::No), Transno(0));
        list.prune(Transno(11));
        assert_eq!((list.len(), list.is_dirty()), (1, false));
    }

    #[test]
    fn bytes_are_counted_until_they_are_durable() {
        let mut list = ReplayList::new();
        let mut large = kept(1, 10, Keep::Open);
        large.request.bufs.push(bytes::Bytes::from(vec![0; 5_000]));
        list.insert(large, Transno(0));
        let one = list.bytes();
        assert!(one >= 5_000);
        list.insert(kept(2, 11, Keep::No), Transno(0));
        list.insert(kept(2, 11, Keep::No), Transno(0)); // answered again
        assert!(list.bytes() > one && list.bytes() < 2 * one);
        list.prune(Transno(10));
        assert!(
            list.bytes() > 0 && list.bytes() < one,
            "an open that is durable is not what a commit waits for"
        );
        list.prune(Transno(11));
        assert_eq!((list.bytes(), list.len()), (0, 1));
    }

    #[test]
    fn an_open_goes_with_its_durable_close_only() {
        let mut list = ReplayList::new();
        list.insert(kept(1, 10, Keep::Open), Transno(0));
        list.prune(Transno(10));
        list.insert(kept(2, 12, Keep::Close { open: Xid(1) }), Transno(10));
        assert_eq!(list.places(), [(Transno(10), Xid(1)), (Transno(12), Xid(2))]);
        list.prune(Transno(12));
        assert_eq!(list.len(), 0);
    }
}

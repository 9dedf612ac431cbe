//! The answered changes that a client keeps until they are durable: the replay list. Beside it, the
//! open handles that have no place in history.
//!
//! Invariants
//! - `changes` holds exactly the answered changes above the last known commit, by place in history.
//! - An open stays, in `changes` or in `opens`, until its close is durable.
//! - `bytes` is the size of the messages in `changes`, without bulk data.
//! - `stated` holds the handles of opens that were no changes, until their close is answered. The
//!   close itself need not be durable: its replay comes before handles are stated, and knows of
//!   none.
//! - `stranded` holds answered changes of sessions that have ended, if their target has not
//!   restarted since. The target still has them and may commit them, but no client may repeat them.

use std::collections::BTreeMap;
use std::rc::Rc;

use types::{Transno, Xid};
use wire::Request;
use wire::body::OpenWord;

/// How long a modifying request stays in the replay list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Closes of several handles, or one close that its caller tries in another way if it is
    /// refused: lets go of all their opens once it is committed itself. One that is refused has
    /// closed nothing, so the opens stay.
    Closes {
        /// The requests that opened.
        opens: Rc<Vec<Xid>>,
    },
}

impl Keep {
    /// Whether the request ends opens.
    pub(crate) fn closes(&self) -> bool {
        matches!(self, Keep::Close { .. } | Keep::Closes { .. })
    }
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
    /// Handles without a place in history, by the requests that opened them.
    stated: BTreeMap<Xid, OpenWord>,
    stranded: BTreeMap<Place, Box<Request>>,
}

impl<B> ReplayList<B> {
    pub(crate) fn new() -> ReplayList<B> {
        ReplayList {
            changes: BTreeMap::new(),
            bytes: 0,
            opens: BTreeMap::new(),
            open_places: BTreeMap::new(),
            stated: BTreeMap::new(),
            stranded: BTreeMap::new(),
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

    /// An open was no change: a restarted target is told of its handle.
    pub(crate) fn state(&mut self, open: Xid, handle: OpenWord) {
        self.stated.insert(open, handle);
    }

    /// Closes were carried out: a restarted target is not told of these handles.
    pub(crate) fn closed(&mut self, keep: &Keep) {
        match keep {
            Keep::Close { open } => {
                self.stated.remove(open);
            }
            Keep::Closes { opens } => {
                for open in opens.iter() {
                    self.stated.remove(open);
                }
            }
            Keep::No | Keep::Open => {}
        }
    }

    /// Handles that a restarted target is told of, in the order of their opens.
    pub(crate) fn stated(&self) -> Vec<OpenWord> {
        self.stated.values().copied().collect()
    }

    /// An open whose handle is gone without a durable change.
    pub(crate) fn forget_open(&mut self, open: Xid) {
        self.stated.remove(&open);
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
                Keep::Closes { opens } => opens.iter().for_each(|open| self.forget_open(*open)),
            }
        }
        while self.stranded.first_key_value().is_some_and(|(place, _)| place.0 <= committed) {
            self.stranded.pop_first();
        }
    }

    /// Takes out a change or an open that is not to be repeated.
    pub(crate) fn take(&mut self, place: Place) -> Option<Box<Request>> {
        if self.open_places.get(&place.1) == Some(&place) {
            self.open_places.remove(&place.1);
        }
        let change = self.changes.remove(&place);
        self.bytes -= change.as_ref().map_or(0, |kept| bytes_of(&kept.request));
        change.or_else(|| self.opens.remove(&place)).map(|kept| kept.request)
    }

    /// The session has ended: nothing of it may be repeated.
    pub(crate) fn strand(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.stranded.extend(changes.into_iter().map(|(place, kept)| (place, kept.request)));
        self.bytes = 0;
        self.opens.clear();
        self.open_places.clear();
        self.stated.clear();
    }

    /// The target restarted: what was stranded is lost. In its order.
    pub(crate) fn take_stranded(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.stranded).into_values().map(|request| *request).collect()
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

    /// Answered changes that are not known to be durable, those of ended sessions too.
    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = &Request> {
        let kept = self.changes.values().map(|kept| &*kept.request);
        kept.chain(self.stranded.values().map(|request| &**request))
    }

    /// Whether some change is not known to be durable.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.changes.is_empty() || !self.stranded.is_empty()
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
        self.stated.clear();
        self.stranded.clear();
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
    fn what_a_session_leaves_behind_is_lost_unless_it_becomes_durable() {
        let mut list = ReplayList::new();
        list.insert(kept(1, 10, Keep::Open), Transno(0));
        list.insert(kept(2, 11, Keep::No), Transno(0));
        list.insert(kept(3, 12, Keep::No), Transno(0));
        list.strand();
        assert_eq!((list.places(), list.bytes(), list.is_dirty()), (vec![], 0, true));
        assert_eq!(list.unconfirmed().count(), 3);
        list.prune(Transno(11));
        assert_eq!(list.unconfirmed().map(Request::xid).collect::<Vec<_>>(), [Xid(3)]);
        let lost: Vec<_> = list.take_stranded().iter().map(|request| request.xid()).collect();
        assert_eq!((lost, list.is_dirty()), (vec![Xid(3)], false));
    }

    #[test]
    fn a_change_that_is_taken_out_is_not_repeated() {
        let mut list = ReplayList::new();
        list.insert(kept(1, 10, Keep::Open), Transno(0));
        list.insert(kept(2, 11, Keep::No), Transno(0));
        list.prune(Transno(10));
        for place in list.places() {
            assert_eq!(list.take(place).map(|request| request.xid()), Some(place.1));
            assert!(list.take(place).is_none());
        }
        assert_eq!((list.len(), list.bytes()), (0, 0));
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

    #[test]
    fn an_answer_that_comes_after_its_commit_is_not_kept() {
        let mut list = ReplayList::new();
        list.insert(kept(1, 10, Keep::No), Transno(10));
        assert_eq!((list.len(), list.is_dirty()), (0, false));
        list.insert(kept(2, 11, Keep::No), Transno(10));
        list.insert(kept(3, 13, Keep::No), Transno(10));
        assert_eq!(list.range(), (Transno(11), Transno(13)));
        list.clear();
        assert_eq!((list.len(), list.range()), (0, (Transno::NONE, Transno::NONE)));
    }

    #[test]
    fn closes_of_several_let_go_of_all_their_opens_once_they_are_durable() {
        let mut list = ReplayList::new();
        (1..=3).for_each(|xid| list.insert(kept(xid, 9 + xid, Keep::Open), Transno(0)));
        list.prune(Transno(12));
        let opens = Rc::new(vec![Xid(1), Xid(3)]);
        list.insert(kept(4, 13, Keep::Closes { opens }), Transno(12));
        assert_eq!(list.len(), 4, "they may still have to be replayed");
        list.prune(Transno(13));
        assert_eq!(list.places(), [(Transno(11), Xid(2))]);
    }

    #[test]
    fn a_handle_without_a_place_is_stated_until_its_close_is_answered() {
        let word = |handle| OpenWord { handle, ..OpenWord::default() };
        let mut list = ReplayList::new();
        (1..=5).for_each(|xid| list.state(Xid(xid), word(xid)));
        list.insert(kept(9, 10, Keep::Open), Transno(0));
        list.closed(&Keep::Open);
        list.closed(&Keep::Close { open: Xid(2) });
        list.closed(&Keep::Closes { opens: Rc::new(vec![Xid(3), Xid(9)]) });
        list.forget_open(Xid(4));
        assert_eq!(list.stated(), [word(1), word(5)]);
        assert_eq!(list.places(), [(Transno(10), Xid(9))], "that open is kept until it is durable");
        list.strand();
        assert!(list.stated().is_empty());
    }

    #[test]
    fn a_close_lets_go_of_its_own_open_only() {
        let mut list = ReplayList::new();
        list.insert(kept(1, 10, Keep::Open), Transno(0));
        list.insert(kept(2, 11, Keep::Open), Transno(0));
        assert!(list.take((Transno(11), Xid(1))).is_none(), "no such place");
        list.prune(Transno(11));
        list.insert(kept(3, 12, Keep::Close { open: Xid(1) }), Transno(11));
        list.prune(Transno(12));
        assert_eq!(list.places(), [(Transno(11), Xid(2))]);
    }
}

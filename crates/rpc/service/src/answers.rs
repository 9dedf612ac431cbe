//! The account of the answers that peers have not taken, over all links of a node: those that are
//! assembled, and those in the queues of links.
//!
//! Invariants
//! - A large answer begins only while all answers together are at most [`ANSWER_BYTES_ALL_MAX`].
//!   The address of its peer must hold no more than it leaves free (`shares`).
//! - A link without counted bytes may begin one even if other links hold much at its address. A
//!   quarter of all must stay free for other addresses.
//! - Of each queue, [`ANSWER_BYTES_LINK`] bytes are not counted, and a change by less is not
//!   reported. So a peer that takes its answers is served even if others leave theirs in their
//!   queues.
//! - A link is in the table exactly while bytes of it are counted.
//!
//! No event reports that a queue has become shorter. So each question that finds half of the
//! account taken, or no room, looks at a few links of the table, in turn. Until its next look, a
//! link counts with the bytes that it held at the last one, never with less than it has assembled.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use env::LinkTx;
use types::Nid;

#[cfg(doc)]
use crate::limits::ANSWER_BYTES_ALL_MAX;
use crate::limits::{ANSWER_BYTES_LINK, ANSWER_BYTES_ONE_MAX, LINK_LOOKS_MAX};
use crate::shares::Shares;

/// See the head of the file.
pub(crate) struct Answers(RefCell<State>);

struct State {
    shares: Shares,
    /// By the numbers of the links.
    links: BTreeMap<u64, Held>,
    /// The link that was looked at last.
    looked: u64,
}

struct Held {
    nid: Nid,
    tx: LinkTx,
    assembled: u64,
    /// Of this link, in `shares`.
    counted: u64,
}

/// A link, for the account.
pub(crate) struct Of<'a> {
    pub(crate) serial: u64,
    pub(crate) nid: Nid,
    pub(crate) tx: &'a LinkTx,
}

impl Answers {
    /// Of at most `max` bytes.
    pub(crate) fn new(max: u64) -> Rc<Answers> {
        let (links, looked) = (BTreeMap::new(), 0);
        Rc::new(Answers(RefCell::new(State { shares: Shares::new(max), links, looked })))
    }

    /// Whether the peer of `link` may have `bytes` more.
    pub(crate) fn has_room(&self, link: &Of<'_>, bytes: u64) -> bool {
        let mut state = self.0.borrow_mut();
        let is_low = !state.shares.is_half_full();
        if is_low && state.shares.has_room(link.nid, bytes) {
            return true;
        }
        state.look_around();
        state.shares.has_room(link.nid, bytes) || state.has_room_of_its_own(link, bytes)
    }

    /// Counts `bytes` that are assembled for `link`, until [`Answers::end`].
    pub(crate) fn begin(&self, link: &Of<'_>, bytes: u64) {
        self.0.borrow_mut().look_at(link, |assembled| assembled.saturating_add(bytes));
    }

    /// They are queued, or given up.
    pub(crate) fn end(&self, link: &Of<'_>, bytes: u64) {
        let less = |held: u64| held.checked_sub(bytes).expect("an answer is counted until it ends");
        self.0.borrow_mut().look_at(link, less);
    }

    /// The queue of `link` has become longer.
    pub(crate) fn look_at(&self, link: &Of<'_>) {
        self.0.borrow_mut().look_at(link, |assembled| assembled);
    }
}

impl State {
    fn look_at(&mut self, link: &Of<'_>, change: impl FnOnce(u64) -> u64) {
        let (nid, tx) = (link.nid, link.tx);
        let fresh = || Held { nid, tx: tx.clone(), assembled: 0, counted: 0 };
        let held = self.links.entry(link.serial).or_insert_with(fresh);
        assert!(held.nid == nid, "a link has one peer");
        held.assembled = change(held.assembled);
        self.count(link.serial);
    }

    /// Whether a link that holds nothing may have its one answer.
    fn has_room_of_its_own(&mut self, link: &Of<'_>, bytes: u64) -> bool {
        self.count(link.serial);
        !self.links.contains_key(&link.serial)
            && bytes <= ANSWER_BYTES_ONE_MAX
            && self.shares.leaves_a_quarter(bytes)
    }

    fn look_around(&mut self) {
        for _ in 0..LINK_LOOKS_MAX.min(self.links.len()) {
            let behind = self.links.range(self.looked.saturating_add(1)..).next();
            let Some((serial, _)) = behind.or_else(|| self.links.first_key_value()) else { return };
            self.looked = *serial;
            self.count(self.looked);
        }
    }

    /// Counts a link anew.
    fn count(&mut self, serial: u64) {
        let Some(held) = self.links.get_mut(&serial) else { return };
        let queued = held.tx.queued_bytes().saturating_sub(ANSWER_BYTES_LINK);
        let now = held.assembled.saturating_add(queued);
        self.shares.change(held.nid, std::mem::replace(&mut held.counted, now), now);
        if now == 0 {
            self.links.remove(&serial);
        }
    }
}

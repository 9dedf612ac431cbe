//! The other end of a link.
//!
//! A peer that takes nothing costs a bounded amount of memory. Besides the link's own queue, at
//! most [`ANSWER_BYTES_MAX`] bytes of answers are assembled at once. Other answers wait until the
//! peer takes the earlier ones ([`Peer::begin_answer`]). All peers of a node share a bound too
//! (`answers`): beyond it a peer is [crowded](Peer::is_crowded).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use env::LinkTx;
use queues::Ascending;
use tokio::sync::Notify;
use types::{CptIndex, Nid};
use wire::Reply;

use crate::answers::{self, Answers};
use crate::limits::{ANSWER_BYTES_LINK, ANSWER_BYTES_MAX, ANSWER_BYTES_SMALL};

/// The other end of a link.
pub(crate) struct Peer {
    pub(crate) nid: Nid,
    /// Links are numbered from 1 as they are accepted.
    pub(crate) serial: u64,
    pub(crate) tx: LinkTx,
    pub(crate) cpt: CptIndex,
    /// Bulk ids being pulled: a peer that offers one twice at once loses its link.
    pulling: RefCell<Ascending<u64, ()>>,
    /// Bytes of answers that are put together for it, and not in its queue yet.
    answering: Cell<u64>,
    answered: Notify,
    /// Those of all links of the node.
    answers: Rc<Answers>,
    /// Bytes of the link's queue when that account was told of them last.
    told: Cell<u64>,
}

impl Peer {
    pub(crate) fn new(
        nid: Nid,
        serial: u64,
        tx: LinkTx,
        cpt: CptIndex,
        answers: &Rc<Answers>,
    ) -> Rc<Peer> {
        assert!(serial > 0, "links are numbered from 1: 0 is not a link at all");
        let (pulling, answering, answered, told) = Default::default();
        let answers = Rc::clone(answers);
        Rc::new(Peer { nid, serial, tx, cpt, pulling, answering, answered, answers, told })
    }

    /// Queues a reply; a link that is down is noticed by its reader.
    pub(crate) fn reply(&self, reply: &Reply) {
        let _ = self.tx.send_message(reply);
        self.is_behind();
    }

    /// Whether more is in its queue than every link may have there. The account of all links is
    /// told where the queue has changed by as much, because each reply comes here.
    fn is_behind(&self) -> bool {
        let queued = self.tx.queued_bytes();
        if queued.abs_diff(self.told.get()) >= ANSWER_BYTES_LINK {
            self.told.set(queued);
            self.answers.look_at(&self.counted());
        }
        queued > ANSWER_BYTES_LINK
    }

    /// Its link is closed: the account of all links forgets what was in the queue.
    pub(crate) fn takes_nothing(&self) {
        self.told.set(0);
        self.answers.look_at(&self.counted());
    }

    fn counted(&self) -> answers::Of<'_> {
        answers::Of { serial: self.serial, nid: self.nid, tx: &self.tx }
    }

    /// Notes that the data of bulk `id` is asked for; `None` if it was asked for already.
    pub(crate) fn begin_pull(self: &Rc<Self>, id: u64) -> Option<Pull> {
        let is_first = self.pulling.borrow_mut().insert(id, ()).is_none();
        is_first.then(|| Pull { peer: Rc::clone(self), id })
    }

    /// Notes that a large answer of `bytes` is put together now, if the peer takes what it has
    /// asked for before, and the link is not gone.
    pub(crate) fn begin_answer(self: &Rc<Self>, bytes: u64) -> Option<Answering> {
        assert!(counted(bytes) > 0, "a small answer is not counted");
        let takes_more = self.has_room_for(bytes) && self.tx.has_room();
        if !self.tx.is_open() || !takes_more || self.is_crowded(bytes) {
            return None;
        }
        self.answering.set(self.answering.get().saturating_add(bytes));
        self.answers.begin(&self.counted(), bytes);
        Some(Answering { peer: Rc::clone(self), bytes })
    }

    /// One that is larger than all there is goes alone.
    fn has_room_for(&self, bytes: u64) -> bool {
        let held = self.answering.get();
        bytes == 0 || held == 0 || held.saturating_add(bytes) <= ANSWER_BYTES_MAX
    }

    /// Whether it takes what it was sent, and a small answer more may be queued.
    pub(crate) fn takes_more(&self) -> bool {
        self.tx.has_room() && !self.is_crowded(0)
    }

    /// Whether the answers of all links leave it no room for one of `bytes` more. Small ones have
    /// room while little is in its queue.
    pub(crate) fn is_crowded(&self, bytes: u64) -> bool {
        let bytes = counted(bytes);
        (self.is_behind() || bytes > 0) && !self.answers.has_room(&self.counted(), bytes)
    }

    /// Completes when it is worth another try, or the link is down.
    pub(crate) async fn wait_to_answer(&self, bytes: u64) {
        let bytes = counted(bytes);
        let answered = self.answered.notified();
        if self.tx.is_open() && !self.has_room_for(bytes) {
            answered.await; // whatever is put together is given up at the latest when the link ends
        }
        self.tx.room().await;
    }
}

/// Whether an answer of `bytes` needs no more than that its peer takes what it was sent.
pub(crate) fn is_small(bytes: u64) -> bool {
    bytes <= ANSWER_BYTES_SMALL
}

/// What an answer of `bytes` counts in [`ANSWER_BYTES_MAX`].
fn counted(bytes: u64) -> u64 {
    if is_small(bytes) { 0 } else { bytes }
}

/// Bytes of an answer that is put together; they are in the link's queue, or nowhere, when this
/// ends.
pub(crate) struct Answering {
    peer: Rc<Peer>,
    bytes: u64,
}

impl Drop for Answering {
    fn drop(&mut self) {
        let held = self.peer.answering.get();
        assert!(held >= self.bytes, "an answer is counted until it is over");
        self.peer.answering.set(held - self.bytes);
        self.peer.answers.end(&self.peer.counted(), self.bytes);
        self.peer.answered.notify_waiters();
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

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use env::{BulkTicket, LinkDown, LinkSend, LocalFuture};
    use wire::Frame;

    use super::*;
    use crate::limits::ANSWER_BYTES_ALL_MAX;

    const BYTES: u64 = 4 << 20;

    /// A link whose peer takes nothing.
    #[derive(Default)]
    struct Mute {
        is_full: Cell<bool>,
        is_closed: Cell<bool>,
        queued: Cell<u64>,
    }

    impl LinkSend for Mute {
        fn send(&self, _frame: Frame) -> Result<(), LinkDown> {
            Ok(())
        }

        fn room(&self) -> LocalFuture<'static, ()> {
            let has_room = self.has_room();
            Box::pin(async move {
                if !has_room {
                    std::future::pending::<()>().await;
                }
            })
        }

        fn has_room(&self) -> bool {
            !self.is_full.get() || self.is_closed.get()
        }

        fn queued_bytes(&self) -> u64 {
            if self.is_closed.get() { 0 } else { self.queued.get() }
        }

        fn expect_bulk(&self, _id: u64, _len_max: usize) -> BulkTicket {
            unreachable!("nobody offers anything")
        }

        fn close(&self) {
            self.is_closed.set(true);
        }

        fn is_open(&self) -> bool {
            !self.is_closed.get()
        }
    }

    fn peer() -> (Rc<Mute>, Rc<Peer>) {
        peer_of(&Answers::new(ANSWER_BYTES_ALL_MAX), 1, 1)
    }

    fn peer_of(answers: &Rc<Answers>, address: u8, serial: u64) -> (Rc<Mute>, Rc<Peer>) {
        let link = Rc::new(Mute::default());
        let tx = LinkTx::new(Rc::clone(&link) as Rc<dyn LinkSend>);
        let nid = Nid::tcp(std::net::Ipv4Addr::new(10, 0, 0, address));
        (link, Peer::new(nid, serial, tx, CptIndex(0), answers))
    }

    /// Links of an address that have begun all answers that they may.
    fn greedy(answers: &Rc<Answers>, address: u8, links: u64) -> Vec<(Rc<Peer>, Vec<Answering>)> {
        let made = (1..=links).map(|number| {
            let (_, peer) = peer_of(answers, address, u64::from(address) * 1_000 + number);
            let all = std::iter::from_fn(|| peer.begin_answer(BYTES)).collect();
            (peer, all)
        });
        made.collect()
    }

    fn bytes(links: &[(Rc<Peer>, Vec<Answering>)]) -> u64 {
        links.iter().map(|(_, all)| all.len() as u64 * BYTES).sum()
    }

    fn is_ready(wait: impl Future<Output = ()>) -> bool {
        std::pin::pin!(wait).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_peer_that_takes_nothing_has_a_bounded_part_of_memory() {
        let (link, peer) = peer();
        let mut read: Vec<Answering> = std::iter::from_fn(|| peer.begin_answer(BYTES)).collect();
        assert_eq!(read.len() as u64, ANSWER_BYTES_MAX / BYTES, "all at once");
        assert!(!is_ready(peer.wait_to_answer(BYTES)));
        drop(read.pop());
        assert!(is_ready(peer.wait_to_answer(BYTES)));
        read.extend(peer.begin_answer(BYTES));
        assert_eq!(read.len() as u64, ANSWER_BYTES_MAX / BYTES, "one for one");
        read.clear();
        link.is_full.set(true);
        assert!(peer.begin_answer(BYTES).is_none(), "what it was sent is still there");
        assert!(!is_ready(peer.wait_to_answer(BYTES)));
        peer.tx.close();
        assert!(is_ready(peer.wait_to_answer(BYTES)), "nobody waits on a link that is gone");
        assert_eq!(peer.answering.get(), 0);
    }

    #[test]
    fn an_answer_larger_than_all_room_goes_alone() {
        let (_link, peer) = peer();
        let alone = peer.begin_answer(2 * ANSWER_BYTES_MAX).expect("nothing else is read");
        assert!(peer.begin_answer(BYTES).is_none());
        assert!(is_small(ANSWER_BYTES_SMALL) && peer.takes_more(), "that is queued at once");
        drop(alone);
        assert!(peer.begin_answer(BYTES).is_some());
    }

    #[test]
    fn all_links_together_have_a_bounded_part_of_memory() {
        let answers = Answers::new(ANSWER_BYTES_ALL_MAX);
        let first = greedy(&answers, 1, 100);
        let most = ANSWER_BYTES_ALL_MAX / 4 * 3;
        assert_eq!(bytes(&first), most, "an address takes half, and its links one each");
        let second = greedy(&answers, 2, 100);
        assert_eq!(bytes(&second), ANSWER_BYTES_ALL_MAX / 8);
        let (link, peer) = peer_of(&answers, 3, 1);
        assert!(peer.begin_answer(BYTES).is_some(), "others find room");
        link.queued.set(ANSWER_BYTES_LINK);
        assert!(peer.takes_more());
        drop(first);
        drop(second);
        assert_eq!(bytes(&greedy(&answers, 4, 100)), most, "all came back");
    }

    #[test]
    fn a_link_has_room_for_one_answer_whatever_others_of_its_address_hold() {
        let answers = Answers::new(ANSWER_BYTES_ALL_MAX);
        let others = greedy(&answers, 1, 20);
        assert!(bytes(&others) >= ANSWER_BYTES_ALL_MAX / 2);
        let (link, peer) = peer_of(&answers, 1, 9_999);
        let one = peer.begin_answer(BYTES).expect("nothing of its own is unread");
        assert!(peer.begin_answer(BYTES).is_none(), "one at a time");
        drop(one);
        link.queued.set(2 * ANSWER_BYTES_LINK);
        assert!(peer.begin_answer(BYTES).is_none() && !peer.takes_more(), "it is not taken");
        link.queued.set(0);
        assert!(peer.begin_answer(BYTES).is_some());
    }

    #[test]
    fn what_stays_in_queues_is_counted_until_it_leaves() {
        let answers = Answers::new(4 * BYTES);
        let small = Reply::default();
        let full: Vec<_> = (1..=20).map(|serial| peer_of(&answers, 1, serial)).collect();
        for (link, peer) in &full {
            link.queued.set(ANSWER_BYTES_LINK + BYTES);
            peer.reply(&small);
        }
        let (link, other) = peer_of(&answers, 2, 21);
        assert!(other.begin_answer(BYTES).is_none(), "a queue may take one answer too many");
        assert!(other.is_crowded(BYTES) && other.takes_more(), "small ones have room");
        link.queued.set(ANSWER_BYTES_LINK + 1);
        assert!(!other.takes_more(), "but not without end");
        assert!(full.iter().all(|(_, peer)| !peer.takes_more()));
        full.iter().for_each(|(link, _)| link.queued.set(0));
        // no event says that they left: they are looked at in turn
        assert!((0..20).any(|_| other.begin_answer(BYTES).is_some()));
        assert!(full.iter().all(|(_, peer)| peer.takes_more()), "they take their answers");
    }

    #[test]
    fn a_link_that_is_closed_holds_nothing() {
        let answers = Answers::new(4 * BYTES);
        let (link, peer) = peer_of(&answers, 1, 1);
        let begun = peer.begin_answer(2 * BYTES).expect("nothing else is counted");
        link.queued.set(ANSWER_BYTES_LINK + 2 * BYTES);
        peer.reply(&Reply::default());
        let (_, other) = peer_of(&answers, 2, 2);
        assert!(other.is_crowded(BYTES));
        peer.tx.close();
        assert!(other.is_crowded(4 * BYTES), "its answer is still assembled");
        assert!(!other.is_crowded(2 * BYTES));
        drop(begun);
        assert!(!other.is_crowded(4 * BYTES));
    }
}

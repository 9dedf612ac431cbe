//! A request between its arrival and its end: its stage, the place for its answer, and its
//! deadline.
//!
//! ```text
//!  stage       means                                        next
//!  ----------  -------------------------------------------  ---------------------------------
//!  Arrived     admitted, or taken out of a head             Held, Queued, Running, Over
//!  Held        recovery says when it is its turn            Arrived, Over
//!  Queued      waits in a head                              Queued (other head), Arrived, Running
//!  Running     its handler has a worker slot                Parked, Abandoned, Over
//!  Parked      its handler waits for another request and    Abandoned, Over
//!              has given its slot back
//!  Abandoned   its data could not be had: nothing is done   Over
//!              or answered, the client's resend does it
//!  Over        answered, dropped, or given up               none
//! ```
//! Invariants
//! - A request has a worker slot exactly while it is `Running`, or while it is `Abandoned` without
//!   having been parked. The slot is given back once.
//! - A request leaves its head before it ends, so no request in a head is `Over`.
//! - A request may be resent while it executes. The link and the bulk id of the newest attempt
//!   count.
//!
//! Every transition asserts the stage that it comes from. A resend changes no stage.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use types::{CptIndex, Instant, Span, TargetId};
use wire::{Reply, Request};

use crate::account::Share;
use crate::memory::Room;
use crate::peer::{Answering, Peer};
use crate::slots::Slot;
use crate::terms::Terms;
use crate::{Class, ServiceSpec};

/// Everything about a request under way but the request.
pub(crate) struct InFlight {
    pub(crate) terms: Rc<Terms>,
    pub(crate) class: Class,
    pub(crate) arrived: Instant,
    /// No policy holds it beyond this.
    pub(crate) leave_by: Instant,
    /// How long each attempt's client waits.
    pub(crate) patience: Span,
    /// When the newest attempt's client stops waiting.
    pub(crate) deadline: Cell<Instant>,
    /// Where the first byte of its range lies on the disk, if that was asked for.
    pub(crate) physical: Cell<Option<u64>>,
    /// The answer of an earlier instance, to be given again once the handle is back.
    pub(crate) first: Cell<Option<Box<Reply>>>,
    room: Cell<Option<Room>>,
    stage: RefCell<Stage>,
    attempt: RefCell<Attempt>,
    data: RefCell<Data>,
}

/// Where a request is: see the table above.
pub(crate) enum Stage {
    Arrived,
    Held,
    Queued(Queued),
    Running(Slot),
    Parked,
    Abandoned(Option<Slot>),
    Over,
}

/// A place in a head.
#[derive(Clone, Copy)]
pub(crate) struct Queued {
    pub(crate) service: &'static ServiceSpec,
    pub(crate) cpt: CptIndex,
    pub(crate) target: TargetId,
    pub(crate) hp: bool,
    pub(crate) handle: nrs::Handle,
}

/// The newest attempt: where its answer goes and where its data is.
pub(crate) struct Attempt {
    pub(crate) peer: Rc<Peer>,
    pub(crate) bulk_id: u64,
    /// Its request, where it is a resend.
    newer: Option<Box<Request>>,
}

/// Data that goes with the request.
#[derive(Default)]
struct Data {
    /// Share of the account of pulled bytes.
    share: Option<Share>,
    /// Part of what may be put together for its peer at once.
    answering: Option<Answering>,
    /// To be pushed before the reply.
    pushed: Option<Bytes>,
    /// Bytes that go back, inline or pushed.
    given: u64,
}

impl InFlight {
    /// A request that `peer` sent and that arrived just now.
    pub(crate) fn new(
        terms: &Rc<Terms>,
        now: Instant,
        peer: &Rc<Peer>,
        request: &Request,
        class: Class,
    ) -> Rc<InFlight> {
        let patience = Span::millis(u64::from(request.header.deadline_ms.max(1)));
        let attempt =
            Attempt { peer: Rc::clone(peer), bulk_id: request.header.bulk_id, newer: None };
        Rc::new(InFlight {
            terms: Rc::clone(terms),
            class,
            arrived: now,
            leave_by: now + terms.at.get().hold_max(patience),
            patience,
            deadline: Cell::new(now + patience),
            physical: Cell::new(None),
            first: Cell::new(None),
            room: Cell::new(None),
            stage: RefCell::new(Stage::Arrived),
            attempt: RefCell::new(attempt),
            data: RefCell::default(),
        })
    }

    /// The link that the newest attempt came through.
    pub(crate) fn peer(&self) -> Ref<'_, Rc<Peer>> {
        Ref::map(self.attempt.borrow(), |attempt| &attempt.peer)
    }

    /// The newest attempt's name for its data; zero: it has none, or carries it.
    pub(crate) fn bulk_id(&self) -> u64 {
        self.attempt.borrow().bulk_id
    }

    /// A resend came while this is under way: it is answered there.
    pub(crate) fn renew(&self, peer: &Rc<Peer>, request: Box<Request>) {
        // a client that asks again counts anew, though it was told to wait longer before
        self.deadline.set(self.terms.env.now() + self.patience);
        *self.attempt.borrow_mut() = Attempt {
            peer: Rc::clone(peer),
            bulk_id: request.header.bulk_id,
            newer: Some(request),
        };
    }

    /// The resend that came meanwhile, if one did.
    pub(crate) fn take_newer(&self) -> Option<Box<Request>> {
        self.attempt.borrow_mut().newer.take()
    }

    /// Keeps what it occupies counted until it ends.
    pub(crate) fn keep_room(&self, room: Room) {
        self.room.set(Some(room));
    }

    /// When housekeeping has to look at it: `margin` before its client stops waiting, and no later
    /// than after half of the time that the attempt has.
    pub(crate) fn due(&self, margin: Span) -> Instant {
        let ahead = Span(self.patience.0 / 2).min(margin);
        Instant(self.deadline.get().0.saturating_sub(ahead.0))
    }

    /// Keeps `share` for as long as the pulled data may live.
    pub(crate) fn keep_share(&self, share: Share) {
        self.data.borrow_mut().share = Some(share);
    }

    /// Keeps `answering` until the answer is queued.
    pub(crate) fn keep_answering(&self, answering: Answering) {
        self.data.borrow_mut().answering = Some(answering);
    }

    /// `bytes` go back with the reply, as `pushed` where they do not ride in it.
    pub(crate) fn give(&self, bytes: usize, pushed: Option<Bytes>) {
        let mut data = self.data.borrow_mut();
        (data.given, data.pushed) = (bytes as u64, pushed);
    }

    /// Bytes that go back with the reply.
    pub(crate) fn given(&self) -> u64 {
        self.data.borrow().given
    }

    /// Data that is to be pushed before the reply.
    pub(crate) fn take_pushed(&self) -> Option<Bytes> {
        self.data.borrow_mut().pushed.take()
    }
}

/// Transitions.
impl InFlight {
    /// Recovery keeps it.
    pub(crate) fn hold(&self) {
        let before = self.stage.replace(Stage::Held);
        assert!(matches!(before, Stage::Arrived), "recovery holds what has just arrived");
    }

    /// Its turn in recovery has come.
    pub(crate) fn let_go(&self) {
        let before = self.stage.replace(Stage::Arrived);
        assert!(matches!(before, Stage::Held), "recovery lets go of what it holds");
    }

    /// It waits in a head.
    pub(crate) fn queue(&self, place: Queued) {
        let before = self.stage.replace(Stage::Queued(place));
        assert!(matches!(before, Stage::Arrived), "a request waits in one head at a time");
    }

    /// It waits in the high-priority head instead.
    pub(crate) fn promote(&self, place: Queued) {
        assert!(place.hp, "a promotion leads to the high-priority head");
        let before = self.stage.replace(Stage::Queued(place));
        assert!(matches!(before, Stage::Queued(from) if !from.hp), "it waited among the regular");
    }

    /// It was taken out of its head, not to be handled.
    pub(crate) fn unqueue(&self) {
        let before = self.stage.replace(Stage::Arrived);
        assert!(matches!(before, Stage::Queued(_)), "only what waits in a head is taken out");
    }

    /// It is handled now, from its head or past it.
    pub(crate) fn run(&self, slot: Slot) {
        let before = self.stage.replace(Stage::Running(slot));
        assert!(matches!(before, Stage::Arrived | Stage::Queued(_)), "a request is handled once");
    }

    /// It waits for another request: its slot, the first time.
    pub(crate) fn park(&self) -> Option<Slot> {
        let mut stage = self.stage.borrow_mut();
        let runs = matches!(*stage, Stage::Running(_));
        if runs { std::mem::replace(&mut *stage, Stage::Parked).into_slot() } else { None }
    }

    /// Its data could not be had. The slot stays taken until its handler has ended.
    pub(crate) fn abandon(&self) {
        let before = self.stage.replace(Stage::Over);
        assert!(before.has_handler(), "only a handler asks for data");
        *self.stage.borrow_mut() = Stage::Abandoned(before.into_slot());
    }

    /// It ends, answered or not: the slot that it still has.
    pub(crate) fn end(&self) -> Option<Slot> {
        let before = self.stage.replace(Stage::Over);
        assert!(!matches!(before, Stage::Queued(_)), "a request leaves its head before it ends");
        assert!(!matches!(before, Stage::Over), "a request ends once");
        self.room.take();
        self.data.borrow_mut().answering.take();
        before.into_slot()
    }
}

impl Stage {
    fn has_handler(&self) -> bool {
        matches!(self, Stage::Running(_) | Stage::Parked | Stage::Abandoned(_))
    }

    fn into_slot(self) -> Option<Slot> {
        match self {
            Stage::Running(slot) => Some(slot),
            Stage::Abandoned(slot) => slot,
            Stage::Arrived | Stage::Held | Stage::Queued(_) | Stage::Parked | Stage::Over => None,
        }
    }
}

/// Questions.
impl InFlight {
    /// Where it waits, if it waits in a head.
    pub(crate) fn place(&self) -> Option<Queued> {
        match &*self.stage.borrow() {
            Stage::Queued(place) => Some(*place),
            _ => None,
        }
    }

    /// Whether its handler waits for another request.
    pub(crate) fn is_parked(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Parked)
    }

    /// Whether other requests decide when it goes on.
    pub(crate) fn waits_for_others(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Parked | Stage::Held)
    }

    /// Whether its data could not be had.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Abandoned(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::Answers;
    use crate::slots::{Slots, Source};
    use crate::spec;
    use env_sim::{Sim, SimConfig};
    use nrs::PolicyIndex;
    use types::{Nid, NidAddr};
    use wire::Opcode;

    #[derive(Default)]
    struct Told(Cell<u32>);

    impl Source for Told {
        fn finished(&self, _hp: bool, _policy: PolicyIndex, _now: Instant) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// Runs `test` with a request that has arrived, the slots of its partition and its head.
    fn check(test: impl FnOnce(&InFlight, &Rc<Slots>, &Rc<Told>) + 'static) {
        let sim = Sim::new(1, SimConfig::default());
        let node = sim.node("server", Nid::tcp(std::net::Ipv4Addr::LOCALHOST));
        let (env, addr) = (node.env(), NidAddr { nid: node.nid(), port: 988 });
        sim.block_on(&node, async move {
            let _listener = env.listen(addr).await.expect("the address is free");
            let link = env.connect(None, addr).await.expect("it listens");
            let answers = Answers::new(1 << 20);
            let peer = Peer::new(link.peer, 1, link.tx.clone(), CptIndex(0), &answers);
            let terms = Terms::new(&env, 1, 1_024, 1 << 20);
            let request = Request::new(Opcode::MdtGetattr, Vec::new());
            let class = Class::of(&spec::MDT);
            let flight = InFlight::new(&terms, env.now(), &peer, &request, class);
            test(&flight, &Slots::new(true, 3, 3), &Rc::default());
        });
    }

    fn slot(slots: &Rc<Slots>, told: &Rc<Told>) -> Slot {
        slots.take(Rc::clone(told) as Rc<dyn Source>, false, PolicyIndex::FIFO)
    }

    fn release(slot: Option<Slot>) {
        slot.expect("it has a slot").release(Instant::default());
    }

    #[test]
    fn a_request_gives_its_slot_back_when_it_ends() {
        check(|flight, slots, told| {
            flight.run(slot(slots, told));
            release(flight.end());
            assert_eq!((slots.active(), told.0.get()), (0, 1));
        });
    }

    #[test]
    fn a_parked_request_has_given_its_slot_back_once() {
        check(|flight, slots, told| {
            flight.run(slot(slots, told));
            release(flight.park());
            assert!(flight.is_parked() && flight.waits_for_others());
            assert!(flight.park().is_none(), "it waits already");
            assert!(flight.end().is_none());
            assert_eq!((slots.active(), told.0.get()), (0, 1));
        });
    }

    #[test]
    fn an_abandoned_request_keeps_its_slot_until_it_ends() {
        check(|flight, slots, told| {
            flight.run(slot(slots, told));
            flight.abandon();
            flight.abandon();
            assert!(flight.is_abandoned() && flight.park().is_none());
            assert_eq!(slots.active(), 1);
            release(flight.end());
        });
        check(|flight, slots, told| {
            flight.run(slot(slots, told));
            release(flight.park());
            flight.abandon();
            assert!(flight.end().is_none(), "it gave its slot back when it was parked");
        });
    }

    #[test]
    fn a_held_request_waits_for_others_until_its_turn() {
        check(|flight, slots, told| {
            flight.hold();
            assert!(flight.waits_for_others());
            flight.let_go();
            assert!(!flight.waits_for_others());
            flight.run(slot(slots, told));
            release(flight.end());
        });
    }

    #[test]
    #[should_panic(expected = "a request ends once")]
    fn a_request_does_not_end_twice() {
        check(|flight, _, _| {
            assert!(flight.end().is_none(), "it had no slot");
            let _again = flight.end();
        });
    }

    #[test]
    #[should_panic(expected = "a request is handled once")]
    fn a_request_is_not_handled_twice() {
        check(|flight, slots, told| {
            flight.run(slot(slots, told));
            flight.run(slot(slots, told));
        });
    }

    #[test]
    #[should_panic(expected = "only a handler asks for data")]
    fn what_is_not_handled_asks_for_no_data() {
        check(|flight, _, _| flight.abandon());
    }
}

//! The account of the bytes that requests occupy from arrival to end. It decides which session may
//! have another request here, and which is asked to try again.
//!
//! Invariants
//! - The bytes held are the cost of the requests under way. Each request gives back its cost, once.
//! - Requests that can be refused for lack of room never bring a node above its maximum. They never
//!   bring a service above [`SERVICE_PARTS`] eighths of it. Requests that need no room (module
//!   `busy`) are counted too.
//! - A session holds at most a small part of the room that it leaves free ([`SESSION_PART`]). So a
//!   thousand sessions that take all they can get leave a fiftieth, and another session has its
//!   part of that. No session has a part that would have to be taken back.
//!
//! Lustre bounds the request buffers of a service, but not the part of one client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use types::{Nid, Span};

use crate::ServiceSpec;
use crate::limits::{
    BUSY_BYTES_PER_MS, BUSY_PAUSE_MAX, BUSY_PAUSE_MIN, FIRST_PART, LARGE_BYTES, REQUEST_BYTES,
    SERVICE_PARTS, SESSION_PART,
};
use crate::shares::Shares;
use crate::spec;

/// The account of a node, or of one session: bytes by service.
pub(crate) struct Memory {
    total: Cell<u64>,
    /// Of these, requests that need no room.
    passing: Cell<u64>,
    by_service: [Cell<u64>; spec::COUNT],
}

/// The part of both accounts that one request has; dropping it gives it back.
pub(crate) struct Room {
    node: Rc<Memory>,
    session: Rc<Memory>,
    service: &'static ServiceSpec,
    bytes: u64,
    /// Where it is counted too, as one that needs no room.
    passing: Option<(Rc<RefCell<Shares>>, Nid)>,
}

impl Memory {
    pub(crate) fn new() -> Rc<Memory> {
        let (total, passing, by_service) = Default::default();
        Rc::new(Memory { total, passing, by_service })
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.get()
    }

    /// What is held by requests that need no room.
    pub(crate) fn passing(&self) -> u64 {
        self.passing.get()
    }

    /// What is held in a service.
    pub(crate) fn of(&self, service: &'static ServiceSpec) -> u64 {
        self.by_service[service.index].get()
    }

    fn change(&self, service: &'static ServiceSpec, change: impl Fn(u64) -> u64) {
        self.total.set(change(self.total.get()));
        let held = &self.by_service[service.index];
        held.set(change(held.get()));
    }
}

/// What is held already where a request wants room.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    total: u64,
    /// In the request's service.
    of_service: u64,
    /// In the request's service, by its session.
    of_session: u64,
}

impl Held {
    pub(crate) fn of(node: &Memory, session: &Memory, service: &'static ServiceSpec) -> Held {
        let (of_service, of_session) = (node.of(service), session.of(service));
        Held { total: node.total.get(), of_service, of_session }
    }

    /// Whether there is room for `bytes` more in a node that may hold `max`.
    pub(crate) fn has_room(&self, max: u64, bytes: u64) -> bool {
        let of_service = (max / 8 * SERVICE_PARTS).saturating_sub(self.of_service);
        let free = max.saturating_sub(self.total).min(of_service);
        match self.of_session {
            // however large it is: it would never come to be executed
            0 if bytes > LARGE_BYTES => bytes <= free / FIRST_PART,
            held => held + bytes <= free / SESSION_PART,
        }
    }
}

/// After what time a session that holds `session` bytes in a service shall ask again: who holds
/// more has more that leaves first.
pub(crate) fn pause(session: u64) -> Span {
    let more = Span::millis(session / BUSY_BYTES_PER_MS);
    Span(BUSY_PAUSE_MIN.0 + more.0).min(BUSY_PAUSE_MAX)
}

/// What a request with `length` bytes of buffers costs.
pub(crate) fn cost(length: usize) -> u64 {
    REQUEST_BYTES + length as u64
}

impl Room {
    pub(crate) fn take(
        node: &Rc<Memory>,
        session: &Rc<Memory>,
        service: &'static ServiceSpec,
        bytes: u64,
    ) -> Room {
        node.change(service, |held| held + bytes);
        session.change(service, |held| held + bytes);
        let (node, session) = (Rc::clone(node), Rc::clone(session));
        Room { node, session, service, bytes, passing: None }
    }

    /// Counts it in `shares` too, as a request that came from `nid` and needs no room.
    pub(crate) fn passing(mut self, shares: &Rc<RefCell<Shares>>, nid: Nid) -> Room {
        for memory in [&self.node, &self.session] {
            memory.passing.set(memory.passing.get() + self.bytes);
        }
        shares.borrow_mut().change(nid, 0, self.bytes);
        self.passing = Some((Rc::clone(shares), nid));
        self
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let bytes = self.bytes;
        let less = |held: u64| held.checked_sub(bytes).expect("what is given back was taken");
        self.node.change(self.service, less);
        self.session.change(self.service, less);
        if let Some((shares, nid)) = self.passing.take() {
            for memory in [&self.node, &self.session] {
                memory.passing.set(less(memory.passing.get()));
            }
            shares.borrow_mut().change(nid, bytes, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Takes requests of `bytes` for a new session until there is no room, at most `most`.
    fn fill(node: &Rc<Memory>, max: u64, bytes: u64, most: usize) -> (Vec<Room>, u64) {
        let session = Memory::new();
        let spec = &spec::OST_IO;
        let mut all = Vec::new();
        while all.len() < most && Held::of(node, &session, spec).has_room(max, bytes) {
            all.push(Room::take(node, &session, spec, bytes));
        }
        (all, session.total())
    }

    #[test]
    fn who_takes_all_leaves_most_and_a_thousand_leave_something() {
        let (node, max) = (Memory::new(), 2_048 * MIB);
        let mut kept = Vec::new();
        let mut greedy = |bytes| {
            let (rooms, held) = fill(&node, max, bytes, usize::MAX);
            kept.push(rooms);
            held
        };
        assert_eq!(greedy(65_536) / MIB, 6);
        for _ in 1..1_000 {
            assert!(greedy(65_536) > 0);
        }
        assert!(greedy(1_024) > 64 * 1_024, "a client without data has all it is told to ask for");
        let other = Held::of(&node, &Memory::new(), &spec::OST);
        assert!(other.has_room(max, 4 * MIB), "a service is not another's");
        drop(kept);
        assert_eq!(node.total(), 0);
        assert!(spec::SERVICES.iter().all(|service| node.of(service) == 0));
    }

    #[test]
    fn twenty_thousand_sessions_have_fifty_requests_each() {
        let (node, max) = (Memory::new(), crate::limits::REQ_BYTES_DEFAULT);
        let mut kept = Vec::new();
        for _ in 0..20_000 {
            kept.push(fill(&node, max, cost(32), 50).0);
        }
        assert_eq!(kept.iter().map(Vec::len).sum::<usize>(), 1_000_000);
    }

    #[test]
    fn a_service_and_a_node_stay_below_their_maximum() {
        let (node, max) = (Memory::new(), 64 * MIB);
        let kept: Vec<_> = (0..10_000).map(|_| fill(&node, max, 1_024, 1_000).0).collect();
        assert!(node.total() <= max / 8 * 7 && node.total() > max / 8 * 6);
        let room_in = |spec, bytes| Held::of(&node, &Memory::new(), spec).has_room(max, bytes);
        assert!(!room_in(&spec::OST_IO, 64 << 10));
        assert!(room_in(&spec::OST, 20 << 10), "an eighth is left to the others");
        drop(kept);
    }

    #[test]
    fn the_largest_request_has_room_in_an_idle_node() {
        let largest = cost(wire::BULK_BYTES_MAX as usize + (64 << 10));
        let held = Held::of(&Memory::new(), &Memory::new(), &spec::OST_IO);
        assert!(held.has_room(crate::limits::REQ_BYTES_MIN, largest));
    }

    #[test]
    fn what_needs_no_room_is_counted_apart_and_given_back() {
        let (node, session, nid) = (Memory::new(), Memory::new(), Nid::default());
        let shares = Rc::new(RefCell::new(Shares::new(8 * MIB)));
        let spec = &spec::LDLM_CANCELD;
        let other = Room::take(&node, &session, spec, MIB);
        let room = Room::take(&node, &session, spec, MIB).passing(&shares, nid);
        assert_eq!((node.total(), node.passing(), session.passing()), (2 * MIB, MIB, MIB));
        assert_eq!(shares.borrow().total(), MIB);
        drop(room);
        assert_eq!((node.total(), node.passing(), session.passing()), (MIB, 0, 0));
        assert_eq!(shares.borrow().total(), 0);
        drop(other);
    }

    #[test]
    fn who_holds_more_asks_later() {
        assert_eq!(pause(0), BUSY_PAUSE_MIN);
        assert!(pause(MIB) > BUSY_PAUSE_MIN);
        assert_eq!(pause(1 << 40), BUSY_PAUSE_MAX);
    }
}

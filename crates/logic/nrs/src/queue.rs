//! The requests of one head: where they are kept, which policy holds which, and links for the
//! policies.
//!
//! ```text
//! slots   [ request | arrival number | lane, place in it | links and tag of the policy ]  in chunks
//! lanes   one per holder: its requests in the order they arrived, as ids in blocks
//! ```
//! The lane is the head's own list of the requests that a policy holds. It makes a broken policy
//! harmless, whatever has become of the policy's own structures. It also gives the oldest request
//! of each policy.
//!
//! Invariants
//! - A queued request is in exactly one lane, and there once.
//! - A lane is ordered by arrival number.

use std::hint::black_box;

use queues::{Blocks, NIL, Ring, Slab, Vacant};

/// A request of a queue, as policies name it. Names a request only while that is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(crate) u32);

/// A request of a head, as its owner names it: never means another request, even when this one has
/// left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    pub(crate) id: Id,
    pub(crate) seq: u64,
}

/// Links of a queued request for the policy that holds it, to use as it likes.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    pub prev: Option<Id>,
    pub next: Option<Id>,
}

/// Begins a cache line: one that leaves is looked at once, and so few lines of it are.
#[repr(align(64))]
pub(crate) struct Slot<R> {
    request: Option<R>,
    seq: u64,
    tag: u64,
    prev: u32, // the policy's
    next: u32,
    lane_at: u32, // of a vacant slot: the next vacant one
    lane: u16,
}

impl<R> Vacant for Slot<R> {
    fn vacant() -> Slot<R> {
        Slot { request: None, seq: 0, tag: 0, prev: NIL, next: NIL, lane_at: NIL, lane: LANE_NONE }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.lane_at
    }
}

/// Not yet, or no longer, in a lane.
pub(crate) const LANE_NONE: u16 = u16::MAX;

pub(crate) struct Lane {
    ids: Ring,
    len: usize,
    /// Whose requests these are: index of a policy in its head.
    pub(crate) owner: usize,
}

/// See the head of the file.
pub struct Queue<R> {
    slots: Slab<Slot<R>>,
    blocks: Blocks, // of the lanes
    lanes: Vec<Lane>,
    seq: u64,
}

impl<R> Default for Queue<R> {
    fn default() -> Queue<R> {
        Queue { slots: Slab::default(), blocks: Blocks::default(), lanes: Vec::new(), seq: 0 }
    }
}

/// What a policy may do.
impl<R> Queue<R> {
    /// A queued request.
    ///
    /// # Panics
    /// If `id` is not queued.
    #[must_use]
    #[inline]
    pub fn request(&self, id: Id) -> &R {
        self.slots.get(id.0).request.as_ref().expect("an id names a queued request")
    }

    /// Its place in the order of arrival at this head: unique, rising.
    #[must_use]
    #[inline]
    pub fn seq(&self, id: Id) -> u64 {
        self.slots.get(id.0).seq
    }

    /// A word that the policy keeps with the request: the group it belongs to, a time.
    #[must_use]
    #[inline]
    pub fn tag(&self, id: Id) -> u64 {
        self.slots.get(id.0).tag
    }

    #[inline]
    pub fn set_tag(&mut self, id: Id, tag: u64) {
        self.slots.get_mut(id.0).tag = tag;
    }

    /// The policy's links of a request. Undefined before the policy has set them.
    #[must_use]
    pub fn links(&self, id: Id) -> Links {
        let slot = self.slots.get(id.0);
        Links { prev: some(slot.prev), next: some(slot.next) }
    }

    pub fn set_links(&mut self, id: Id, links: Links) {
        let slot = self.slots.get_mut(id.0);
        slot.prev = links.prev.map_or(NIL, |id| id.0);
        slot.next = links.next.map_or(NIL, |id| id.0);
    }
}

fn some(place: u32) -> Option<Id> {
    (place != NIL).then_some(Id(place))
}

/// A list through the policy's links: FIFO with removal from the middle, 12 bytes, no allocation.
#[derive(Clone, Copy, Debug)]
pub struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> List {
        List { head: NIL, tail: NIL, len: 0 }
    }
}

impl List {
    #[must_use]
    #[inline]
    pub fn front(&self) -> Option<Id> {
        some(self.head)
    }

    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it has none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its requests, first to last.
    pub fn iter<R>(&self, queue: &Queue<R>) -> impl Iterator<Item = Id> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let id = some(at)?;
            at = queue.slots.get(at).next;
            Some(id)
        })
    }

    /// Appends; `id` is in no list.
    #[inline]
    pub fn push_back<R>(&mut self, queue: &mut Queue<R>, id: Id) {
        let slot = queue.slots.get_mut(id.0);
        (slot.prev, slot.next) = (self.tail, NIL);
        if self.tail == NIL {
            self.head = id.0;
        } else {
            queue.slots.get_mut(self.tail).next = id.0;
        }
        self.tail = id.0;
        self.len += 1;
    }

    /// Takes out the first.
    #[inline]
    pub fn pop_front<R>(&mut self, queue: &mut Queue<R>) -> Option<Id> {
        let id = self.front()?;
        self.remove(queue, id);
        Some(id)
    }

    /// Takes out `id`, which is in this list.
    #[inline]
    pub fn remove<R>(&mut self, queue: &mut Queue<R>, id: Id) {
        let slot = queue.slots.get(id.0);
        let (prev, next) = (slot.prev, slot.next);
        if prev == NIL {
            self.head = next;
        } else {
            queue.slots.get_mut(prev).next = next;
        }
        if next == NIL {
            self.tail = prev;
        } else {
            queue.slots.get_mut(next).prev = prev;
        }
        self.len -= 1;
    }
}

/// What the head does.
impl<R> Queue<R> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of memory, the requests in it included as far as they are stored inline.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes() + self.blocks.bytes()
    }

    pub(crate) fn add_lane(&mut self, owner: usize) -> u16 {
        let lane = Lane { ids: Ring::EMPTY, len: 0, owner };
        let unused = self.lanes.iter().position(|lane| lane.owner == usize::MAX);
        let at = unused.unwrap_or_else(|| {
            self.lanes.push(Lane { owner: usize::MAX, ..lane });
            self.lanes.len() - 1
        });
        self.lanes[at] = lane;
        u16::try_from(at)
            .expect("lanes: one per policy and one per broken policy that still has requests")
    }

    pub(crate) fn drop_lane(&mut self, lane: u16) {
        let lane = &mut self.lanes[usize::from(lane)];
        assert!(lane.len == 0, "a lane is dropped when it is empty");
        lane.ids.free(&mut self.blocks);
        lane.owner = usize::MAX;
    }

    pub(crate) fn give_lane(&mut self, lane: u16, owner: usize) {
        self.lanes[usize::from(lane)].owner = owner;
    }

    #[inline]
    pub(crate) fn lane_len(&self, lane: u16) -> usize {
        self.lanes[usize::from(lane)].len
    }

    #[inline]
    pub(crate) fn lane_front(&self, lane: u16) -> Option<Id> {
        self.lanes[usize::from(lane)].ids.first(&self.blocks).map(Id)
    }

    /// Index of the policy that holds `id`.
    pub(crate) fn owner(&self, id: Id) -> Option<usize> {
        let slot = self.slots.find(id.0)?;
        slot.request.as_ref()?;
        self.lanes.get(usize::from(slot.lane)).map(|lane| lane.owner)
    }

    /// `id` will leave soon: reads a word of its slot. The processor fetches the line and goes on,
    /// because no step waits for the word.
    #[inline]
    pub(crate) fn look_ahead(&self, id: Id) {
        if let Some(slot) = self.slots.find(id.0) {
            black_box(slot.lane);
        }
    }

    /// Whether `handle` is queued.
    pub(crate) fn has(&self, handle: Handle) -> bool {
        self.slots
            .find(handle.id.0)
            .is_some_and(|slot| slot.request.is_some() && slot.seq == handle.seq)
    }

    /// Whether `id` stands in `lane`.
    #[inline]
    pub(crate) fn is_in(&self, id: Id, lane: u16) -> bool {
        self.slots.find(id.0).is_some_and(|slot| slot.lane == lane && slot.request.is_some())
    }

    /// Takes a request in; it stands in no lane yet.
    #[inline]
    pub(crate) fn insert(&mut self, request: R) -> Handle {
        self.seq += 1;
        let (place, slot) = self.slots.claim();
        slot.request = Some(request);
        slot.seq = self.seq;
        Handle { id: Id(place), seq: self.seq }
    }

    /// Appends to a lane.
    #[inline]
    pub(crate) fn join(&mut self, id: Id, lane: u16) {
        let list = &mut self.lanes[usize::from(lane)];
        list.len += 1;
        let lane_at = list.ids.push(&mut self.blocks, id.0);
        let slot = self.slots.get_mut(id.0);
        (slot.lane, slot.lane_at) = (lane, lane_at);
    }

    /// Takes a request out of its lane and of the queue.
    #[inline]
    pub(crate) fn take(&mut self, id: Id) -> R {
        let (request, lane, lane_at) = self.slots.vacate(id.0, |slot| {
            let lane = std::mem::replace(&mut slot.lane, LANE_NONE);
            (slot.request.take(), lane, slot.lane_at)
        });
        let list = &mut self.lanes[usize::from(lane)];
        list.len -= 1;
        list.ids.remove(&mut self.blocks, lane_at);
        if self.slots.is_empty() && self.blocks.is_large() {
            self.lanes.iter_mut().for_each(|lane| lane.ids.free(&mut self.blocks));
        }
        request.expect("a request that is taken is queued")
    }

    /// Requests of a lane in the order they arrived.
    pub(crate) fn lane(&self, lane: u16) -> impl Iterator<Item = Handle> {
        let ids = self.lanes[usize::from(lane)].ids.iter(&self.blocks);
        ids.map(|id| Handle { id: Id(id), seq: self.slots.get(id).seq })
    }
}

//! The grants of one MDT.
//!
//! Order of calls:
//! - A reply: [`Mdt::answered`] once, and [`Mdt::give`] for each file in the reply, in the step in
//!   which the answer is made. A gift is true as of that step. If that step may still fail, call
//!   [`Mdt::offer`] for each file and [`Mdt::draw`] for the number of the answer, which give
//!   nothing. Call [`Mdt::give_all`] when the step cannot fail any more, and nothing in between.
//! - A change: [`Mdt::begin`]. After [`Begun::Go`], execute it in the same step. After
//!   [`Begun::Parked`], wait for [`Output::Ready`], decide again which grants the change affects,
//!   and call `begin` again with the same id. In both cases call [`Mdt::end`] when the change is
//!   executed or given up, before its reply is made.
//! - [`Mdt::ack`] and [`Mdt::shed`] when they come, any number of times and in any order.
//! - [`Mdt::handle_timeout`] at the time that [`Mdt::poll_timeout`] returns. After every call,
//!   [`Mdt::poll_output`] until it is empty.
//! - [`Mdt::is_hurried`] at any time.
//! - After a restart, for each session of a known client: [`Mdt::restate`] and [`Mdt::restated`].
//!   Before any change, [`Mdt::claims`] if the instance before has said what the client held
//!   ([`Mdt::files_of`], [`Mdt::set_listed`]).
//!
//! Invariants
//! - No change is let go while another session has a grant that it affects. Such a grant is
//!   acknowledged or shed first, or its lease is over.
//! - The bits that a parked change wants are given to no session until the change ends.
//! - A session that does not acknowledge delays a change by at most
//!   [`CALLBACK_DEADLINE`](super::CALLBACK_DEADLINE). After that its lease is not renewed, and the
//!   change waits for the rest of that lease.
//! - A message that is late, repeated or out of order changes nothing that was given after it.

mod change;
mod give;
mod holder;
mod lease;
mod parked;
mod restate;
mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use queues::{FixedMap, Wheel};
use types::{Fid, Instant, Span};

use super::contention::Contention;
use super::timed::Timed;
use super::{
    Bits, Bugs, ChangeId, GRANTS_MAX, HOLDERS_MAX, HolderId, LEASE, Number, Numbers, Recall, TIMED,
};
use holder::Holder;
use parked::{Parked, Taking};
use store::Store;

pub use change::Begun;
pub use give::Gifts;
pub use restate::PeerMisbehaved;

/// Which kinds are given (`mdt.*.grants`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is cached.
    None,
    /// For 50 ms, and nobody is called.
    Timed,
    /// Until it is called back.
    Recall,
}

/// Settings of a table.
#[derive(Clone, Copy, Debug)]
pub struct MdtConfig {
    /// Which kinds are given.
    pub mode: Mode,
    /// Of a session, as its client was told.
    pub lease: Span,
    /// Grants of all sessions; beyond, timed ones are given.
    pub grants_max: u32,
    /// Holders of one file; beyond, timed ones are given.
    pub holders_max: u32,
    /// What an expelled session had passes on only after [`Mdt::recorded`].
    pub records_expulsions: bool,
    /// Planted bugs.
    pub bugs: Bugs,
}

impl Default for MdtConfig {
    fn default() -> MdtConfig {
        MdtConfig {
            mode: Mode::Recall,
            lease: LEASE,
            grants_max: GRANTS_MAX,
            holders_max: HOLDERS_MAX,
            records_expulsions: false,
            bugs: Bugs::default(),
        }
    }
}

/// What the engine is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this to the client, over its callback lane. It is sent again until acknowledged.
    Recall {
        /// To this one.
        session: HolderId,
        /// At most [`VECTOR_MAX`](super::VECTOR_MAX).
        recalls: Vec<Recall>,
    },
    /// Nothing is in the way of this change any more.
    Ready(ChangeId),
    /// The session's lease is over and its grants are void. With `fence`, they pass on after
    /// [`Mdt::fenced`], which says that the OSTs refuse its writes.
    Expelled {
        /// This one.
        session: HolderId,
        fence: bool,
    },
    /// Make it durable that this session was expelled. Its grants pass on after [`Mdt::recorded`].
    Record(HolderId),
}

#[derive(Clone, Copy)]
enum Timer {
    Holder(u32),
    Change(ChangeId),
}

/// See the head of the file.
pub struct Mdt {
    config: MdtConfig,
    numbers: Numbers,
    store: Store,
    holders: Vec<Option<Holder>>,
    vacant: Vec<u32>,
    sessions: FixedMap<HolderId, u32>,
    unstated: BTreeSet<u32>,
    timed: Timed<HolderId>,
    contention: Contention,
    takings: FixedMap<Fid, Taking>,
    changes: BTreeMap<ChangeId, Parked>,
    timers: Wheel<Timer>,
    out: VecDeque<Output>,
    sending: VecDeque<u32>,
    is_recovering: bool,
    /// Clients wait for the end of a recovery.
    are_waiting: bool,
}

impl Mdt {
    /// Of the instance with this boot epoch.
    #[must_use]
    pub fn new(config: MdtConfig, epoch: u32, now: Instant) -> Mdt {
        Mdt {
            config,
            numbers: Numbers::of_epoch(epoch),
            store: Store::default(),
            holders: Vec::new(),
            vacant: Vec::new(),
            sessions: FixedMap::default(),
            unstated: BTreeSet::new(),
            timed: Timed::new(TIMED, Instant::default()),
            contention: Contention::default(),
            takings: FixedMap::default(),
            changes: BTreeMap::new(),
            timers: Wheel::new(now),
            out: VecDeque::new(),
            sending: VecDeque::new(),
            is_recovering: false,
            are_waiting: false,
        }
    }

    /// Gives only this kind from now on; what was given stays.
    pub fn set_mode(&mut self, mode: Mode) {
        self.config.mode = mode;
    }

    /// Grants that are called back (Lustre: `lock_count`).
    #[must_use]
    pub fn count(&self) -> usize {
        self.store.len()
    }

    /// Files with timed grants, those that ended lately included.
    #[must_use]
    pub fn timed_count(&self) -> usize {
        self.timed.len()
    }

    /// Grants of one session.
    #[must_use]
    pub fn count_of(&self, session: HolderId) -> usize {
        self.holder(session).map_or(0, |holder| holder.listed.count as usize)
    }

    /// What a session may cache of a file until that is called back.
    #[must_use]
    pub fn bits_of(&self, session: HolderId, fid: Fid) -> Bits {
        let place = self.sessions.get(&session).and_then(|at| self.store.find(fid, *at));
        place.map_or(Bits::empty(), |place| self.store.get(place).bits)
    }

    /// All grants, in no order that matters.
    pub fn iter(&self) -> impl Iterator<Item = (HolderId, Fid, Bits, Number)> {
        self.store.iter().map(|grant| {
            let holder = self.holders[grant.holder as usize].as_ref();
            let session = holder.expect("a grant has a holder").session;
            (session, grant.fid, grant.bits, grant.number)
        })
    }

    /// Memory of the grants, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.store.bytes()
    }

    /// The number of an answer that gives something, with this table or without.
    #[must_use]
    pub fn draw(&self) -> Number {
        self.numbers.draw()
    }

    /// Whether the session has begun and is not over.
    #[must_use]
    pub fn knows(&self, session: HolderId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        if let Some(output) = self.out.pop_front() {
            return Some(output);
        }
        while let Some(at) = self.sending.front().copied() {
            if let Some(output) = self.recalls_for(at) {
                return Some(output);
            }
            self.sending.pop_front();
        }
        None
    }

    /// When to call [`Mdt::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Holder(at) => self.handle_holder_timeout(at, now),
                Timer::Change(change) => self.recheck(change, now),
            }
        }
    }

    fn holder(&self, session: HolderId) -> Option<&Holder> {
        self.holder_at(*self.sessions.get(&session)?)
    }

    fn holder_mut(&mut self, session: HolderId) -> Option<(u32, &mut Holder)> {
        let at = *self.sessions.get(&session)?;
        Some((at, self.holders[at as usize].as_mut().expect("a session has a holder")))
    }

    fn holder_at(&self, at: u32) -> Option<&Holder> {
        self.holders[at as usize].as_ref()
    }

    fn known_at(&mut self, at: u32) -> &mut Holder {
        self.holders[at as usize].as_mut().expect("a place in use has a holder")
    }
}

#[cfg(test)]
mod tests;

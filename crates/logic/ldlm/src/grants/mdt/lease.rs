//! Sessions: their leases, and what happens to a session that does not answer.
//!
//! ```text
//! renewed by replies --recall overdue--> stopped --lease over--> expelled (fenced) --> renewed
//!        ^                                  | all acknowledged
//!        +----------------------------------+
//! ```

use types::{Fid, Instant, Span};

use super::holder::Holder;
use super::{Mdt, Output, Timer};
use crate::grants::limits::SLOW;
use crate::grants::{Bits, Head, HolderId, Number, with_skew};

/// How often it is looked whether a recovery is over, for which sessions have all the time.
const RECOVERING: Span = Span::millis(250);

impl Mdt {
    /// Whether clients of the instance before may still come back: their leases do not end
    /// meanwhile, because no client's change is executed. Those that are back say nothing until
    /// [`Mdt::recovered`]: their leases do not end before something is called back from them.
    pub fn set_recovering(&mut self, is_recovering: bool) {
        (self.is_recovering, self.are_waiting) = (is_recovering, is_recovering);
    }

    /// Nobody comes back any more. The clients that are back go on waiting.
    pub fn replayed(&mut self, now: Instant) {
        self.is_recovering = false;
        let until = now + with_skew(self.config.lease);
        for holder in self.holders.iter_mut().flatten().filter(|holder| holder.renews()) {
            holder.until = holder.until.max(until);
        }
    }

    /// The recovery is over. Clients that waited for its end sent nothing meanwhile: their leases
    /// count from now.
    pub fn recovered(&mut self, now: Instant) {
        self.replayed(now);
        self.are_waiting = false;
    }

    /// A new session, which holds nothing. The client takes no grant with a number up to the one
    /// that is returned: it was for a session before.
    ///
    /// # Panics
    /// If the session is known.
    pub fn connect(&mut self, session: HolderId, now: Instant) -> Number {
        assert!(!self.sessions.contains_key(&session), "a session begins once");
        self.admit(Holder::new(session, now + with_skew(self.config.lease)));
        self.numbers.last()
    }

    pub(super) fn admit(&mut self, holder: Holder) -> u32 {
        let session = holder.session;
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.holders.push(None);
            u32::try_from(self.holders.len() - 1).expect("fewer than 2^32 sessions")
        });
        self.holders[at as usize] = Some(holder);
        self.sessions.insert(session, at);
        at
    }

    /// The session has a callback lane by now, or lost it.
    pub fn set_callbacks(&mut self, session: HolderId, has_callbacks: bool) {
        if let Some((_, holder)) = self.holder_mut(session) {
            holder.has_callbacks = has_callbacks;
        }
    }

    /// The session may have write rights at the OSTs: it is fenced there before its grants pass on.
    pub fn set_writes(&mut self, session: HolderId, writes: bool) {
        if let Some((_, holder)) = self.holder_mut(session) {
            holder.writes = writes;
        }
    }

    /// A reply to this session is made. Its lease counts anew, unless recalls are overdue.
    pub fn answered(&mut self, session: HolderId, now: Instant) -> Head {
        let stuck_renews = self.config.bugs.stuck_client_renews();
        let no_floor = self.config.bugs.no_floor();
        let lease = with_skew(self.config.lease);
        let Some((_, holder)) = self.holder_mut(session) else {
            return Head { floor: Number(0), renews: false };
        };
        let renews = holder.renews() || (stuck_renews && holder.is_stopped);
        if renews {
            holder.until = holder.until.max(now + lease);
        }
        Head { floor: if no_floor { Number(0) } else { holder.floor }, renews }
    }

    /// Whether replies renew the session's lease: not while its client leaves recalls without an
    /// answer. One that is not known renews nothing.
    #[must_use]
    pub fn renews(&self, session: HolderId) -> bool {
        self.holder(session).is_some_and(Holder::renews)
    }

    /// Grants of the session with lower numbers are void: each reply to it says so.
    #[must_use]
    pub fn floor(&self, session: HolderId) -> Number {
        self.holder(session).map_or(Number(0), |holder| holder.floor)
    }

    /// Sessions that have to be heard of before time is told to pass: recalls are under way, or
    /// their end is.
    #[must_use]
    pub fn awaited(&self) -> Vec<HolderId> {
        let awaited = |holder: &&Holder| holder.due().is_some();
        self.holders.iter().flatten().filter(awaited).map(|holder| holder.session).collect()
    }

    /// The client says that the session is over and that it caches nothing any more.
    pub fn leave(&mut self, session: HolderId, now: Instant) {
        if let Some(at) = self.sessions.get(&session).copied() {
            self.free_all(at, now);
            self.dismiss(at, now);
        }
    }

    /// The engine evicts a session: nothing of it is renewed, and what it holds is free when its
    /// lease is over.
    pub fn evict(&mut self, session: HolderId, now: Instant) {
        let Some((at, holder)) = self.holder_mut(session) else { return };
        holder.is_evicted = true;
        if self.has_lapsed(at, now) {
            self.expel(at, now);
        } else {
            self.set_timer(at);
        }
    }

    /// The OSTs refuse what this expelled session still sends.
    pub fn fenced(&mut self, session: HolderId, now: Instant) {
        let Some((at, holder)) = self.holder_mut(session) else { return };
        holder.is_fenced = true;
        if !holder.is_fencing || holder.is_recording {
            return;
        }
        (holder.is_fencing, holder.is_fenced, holder.writes) = (false, false, false);
        self.is_stated(at, now);
        self.free_all(at, now);
        if self.known_at(at).is_evicted {
            self.dismiss(at, now);
        }
    }

    /// The OSTs of one file refuse what this session still sends, which is over for the engine:
    /// what it holds of the file passes on when its lease is over.
    pub fn fenced_of(&mut self, session: HolderId, fid: Fid, now: Instant) {
        let Some((at, holder)) = self.holder_mut(session) else { return };
        if holder.is_fencing && !holder.is_recording {
            self.free_one(at, fid, now);
        } else if holder.is_evicted || holder.is_recording {
            holder.fenced_files.insert(fid);
        }
    }

    /// It is durable that this session was expelled ([`Output::Record`]): an instance that follows
    /// honours nothing of before.
    pub fn recorded(&mut self, session: HolderId, now: Instant) {
        let Some((at, holder)) = self.holder_mut(session) else { return };
        if !std::mem::take(&mut holder.is_recording) {
            return;
        }
        assert!(holder.is_fencing, "what is recorded has not passed on");
        let fence = holder.fences && !holder.is_fenced;
        if !fence {
            (holder.is_fencing, holder.is_fenced) = (false, false);
            holder.writes &= !holder.fences;
        }
        self.pass_on(at, fence, now);
    }

    /// Whether a session that was evicted may still use what it had, by its lease: an instance that
    /// follows knows nothing of it.
    #[must_use]
    pub fn is_lapsing(&self) -> bool {
        let may_use = |holder: &Holder| holder.is_unstated || holder.listed.count > 0;
        self.holders.iter().flatten().any(|holder| holder.is_evicted && may_use(holder))
    }

    pub(super) fn has_lapsed(&self, at: u32, now: Instant) -> bool {
        let may_come =
            |holder: &Holder| self.is_recovering && holder.is_unstated && !holder.is_evicted;
        let waits = |holder: &Holder| self.waits(holder) && holder.recalled.is_empty();
        let lapsed = |holder: &Holder| {
            holder.left(now).0 == 0 && !holder.is_fencing && !may_come(holder) && !waits(holder)
        };
        self.holder_at(at).is_some_and(lapsed)
    }

    /// Whether its client is back and waits for the end of the recovery: it says nothing.
    fn waits(&self, holder: &Holder) -> bool {
        self.are_waiting && !holder.is_unstated && !holder.is_evicted
    }

    /// Something is about to be called back. A client that says nothing has its lease for the
    /// answer.
    pub(super) fn ask_who_waits(&mut self, at: u32, now: Instant) {
        let until = now + with_skew(self.config.lease);
        let is_silent = |holder: &Holder| self.waits(holder) && holder.recalled.is_empty();
        if self.holder_at(at).is_some_and(is_silent) {
            let holder = self.known_at(at);
            holder.until = holder.until.max(until);
        }
    }

    /// Acknowledged, perhaps late: its lease is renewed again unless more is overdue.
    pub(super) fn resume(&mut self, at: u32, now: Instant) {
        let holder = self.known_at(at);
        let overdue = holder.deadline().is_some_and(|deadline| deadline <= now);
        holder.is_stopped &= overdue;
    }

    pub(super) fn handle_holder_timeout(&mut self, at: u32, now: Instant) {
        let Some(holder) = self.holders[at as usize].as_mut() else { return };
        if holder.timer_at.is_none_or(|timer| timer > now) {
            return;
        }
        holder.timer_at = None;
        if holder.due().is_none_or(|due| due > now) {
            self.set_timer(at);
            return;
        }
        if self.has_lapsed(at, now) {
            self.expel(at, now);
            return;
        }
        let is_recovering = self.is_recovering;
        let holder = self.known_at(at);
        if is_recovering && holder.is_unstated && holder.left(now).0 == 0 {
            holder.until = now + RECOVERING;
        }
        let holder = self.known_at(at);
        if holder.deadline().is_some_and(|deadline| deadline <= now) && !holder.is_stopped {
            (holder.is_stopped, holder.slow_until) = (true, now + SLOW);
        }
        self.resend(at, now);
        self.set_timer(at);
    }

    fn resend(&mut self, at: u32, now: Instant) {
        let holder = self.known_at(at);
        if holder.recalled.is_empty() || holder.sent + super::super::RECALL_RESEND > now {
            return;
        }
        let mut places: Vec<u32> = holder.recalled.keys().copied().collect();
        places.sort_unstable();
        (holder.outbox, holder.sent) = (places, now);
        self.sending.push_back(at);
    }

    pub(super) fn set_timer(&mut self, at: u32) {
        let holder = self.known_at(at);
        let is_early = |due: &Instant| holder.timer_at.is_none_or(|timer| *due < timer);
        let Some(due) = holder.due().filter(is_early) else { return };
        holder.timer_at = Some(due);
        self.timers.insert(due, Timer::Holder(at));
    }

    /// The lease is over: what the session has is void, and free at once unless it is fenced.
    pub(super) fn expel(&mut self, at: u32, now: Instant) {
        let floor = self.numbers.draw();
        let records = self.config.records_expulsions;
        let is_writer = self.holds_writes(at);
        let holder = self.known_at(at);
        let fence = (holder.writes || is_writer) && !holder.is_fenced;
        (holder.floor, holder.slow_until) = (floor, now + SLOW);
        holder.is_stopped = false;
        holder.is_recording = records && (holder.is_unstated || holder.listed.count > 0);
        (holder.fences, holder.is_fencing) = (fence, fence || holder.is_recording);
        holder.forget_recalls();
        let (session, is_recording) = (holder.session, holder.is_recording);
        self.out.push_back(Output::Expelled { session, fence });
        if is_recording {
            self.out.push_back(Output::Record(session));
        } else {
            self.pass_on(at, fence, now);
        }
    }

    /// What an expelled session had is free, but for what waits until it is fenced.
    fn pass_on(&mut self, at: u32, fence: bool, now: Instant) {
        if fence && !self.config.bugs.no_fence() {
            if !self.known_at(at).writes {
                self.is_stated(at, now);
                self.free_all_but(at, Bits::WRITE, now);
            }
            let fenced = std::mem::take(&mut self.known_at(at).fenced_files);
            fenced.into_iter().for_each(|fid| self.free_one(at, fid, now));
            return;
        }
        self.is_stated(at, now);
        self.free_all(at, now);
        if self.known_at(at).is_evicted && !fence {
            self.dismiss(at, now);
        }
    }

    pub(super) fn is_stated(&mut self, at: u32, now: Instant) {
        let holder = self.known_at(at);
        (holder.is_unstated, holder.claims) = (false, None);
        if self.unstated.remove(&at) {
            self.recheck_all(now);
        }
    }

    /// Whether a holder may keep what it has written.
    fn holds_writes(&self, at: u32) -> bool {
        let listed = self.holder_at(at).map(|holder| holder.listed).unwrap_or_default();
        self.store.places(&listed).any(|place| self.store.get(place).bits.contains(Bits::WRITE))
    }

    /// Of the grants of a holder these bits stay.
    fn free_all_but(&mut self, at: u32, bits: Bits, now: Instant) {
        let listed = self.known_at(at).listed;
        let places: Vec<u32> = self.store.places(&listed).collect();
        for place in places {
            let grant = self.store.get_mut(place);
            let (fid, left) = (grant.fid, grant.bits & bits);
            (grant.bits, grant.dying) = (left, grant.dying & bits);
            if left.is_empty() {
                self.remove(place);
            }
            self.recheck_file(fid, now);
        }
    }

    /// The grant that a holder has of one file goes. It is not being recalled.
    fn free_one(&mut self, at: u32, fid: Fid, now: Instant) {
        let Some(place) = self.store.find(fid, at) else { return };
        assert!(!self.known_at(at).recalled.contains_key(&place), "its recalls are forgotten");
        self.remove(place);
        self.recheck_file(fid, now);
    }

    /// All grants of a holder go.
    fn free_all(&mut self, at: u32, now: Instant) {
        self.known_at(at).forget_recalls();
        loop {
            let listed = self.known_at(at).listed;
            let Some(place) = self.store.first(&listed) else { break };
            let fid = self.store.get(place).fid;
            self.remove(place);
            self.recheck_file(fid, now);
        }
    }

    fn dismiss(&mut self, at: u32, now: Instant) {
        self.is_stated(at, now);
        let holder = self.holders[at as usize].take().expect("it was here");
        assert!(holder.listed.count == 0, "who goes holds nothing");
        self.sessions.remove(&holder.session);
        self.sending.retain(|waiting| *waiting != at);
        self.vacant.push(at);
    }
}

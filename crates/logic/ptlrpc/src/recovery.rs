//! A target's return after a restart: which clients must come back, whose change is executed next,
//! and when normal service begins.
//!
//! Invariants
//! - Replays execute one at a time in global transno order; a repeated one is not executed again.
//!   It is refused again if it was refused: its client may not have heard of that.
//! - A gap in the history is passed only when no client can fill it any more. Then every known
//!   client is done, present or not, or is present and has offered a later change.
//! - No timer runs until the first attempt to connect. Then the window is `soft`, and every sign of
//!   progress prolongs it, up to `hard`. At its end, missing clients are evicted. Recovery is over
//!   at once when every client is done.
//! - After `hard`, a window in which nothing was executed costs each client in the way its session.
//!   After [`limits::HARD_ENDS`] times `hard`, every client that is not done loses its session,
//!   whatever it does, so recovery ends.
//! - A server among the known clients has `limits::SERVER_RETURN` to come back, because it does so
//!   at once or is down itself. It has that time again if it goes away later. A client that was
//!   silent before the target ended has `limits::SILENT_RETURN`. A client that is done is not
//!   waited for, and keeps its session.

mod client;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{ClientId, Errno, Instant, Span, Transno, Xid};

use self::client::Client;
use crate::limits;

pub use self::client::Known;
pub use self::status::{Awaited, Progress, RecoveryPhase, RecoveryStatus};

/// Settings of a [`Recovery`].
#[derive(Clone, Copy, Debug)]
pub struct RecoveryConfig {
    /// Window without progress.
    pub soft: Span,
    /// Longest window.
    pub hard: Span,
    /// Durable when the target started.
    pub committed: Transno,
}

/// A replay to be queued.
pub struct Replay<R> {
    pub client: ClientId,
    /// Place among the replays of its connection, from 1.
    pub index: u32,
    /// Place in history, as its reply told.
    pub transno: Transno,
    pub xid: Xid,
    /// The change is durable, only the open is to be repeated.
    pub open: bool,
    pub item: R,
}

/// A replay that came again.
#[derive(Debug, PartialEq, Eq)]
pub struct Repeated<R> {
    pub item: R,
    /// Why it was refused, if it was. Otherwise it was executed.
    pub refusal: Option<Errno>,
}

/// The recovery of one target; `R` is a held request.
///
/// After every `handle_*` poll `poll_execute`, `poll_evict` and `poll_finished` until they are
/// empty. An item that `poll_execute` gives is executed and then reported with
/// [`Recovery::handle_executed`].
pub struct Recovery<R> {
    config: RecoveryConfig,
    clients: BTreeMap<ClientId, Client>,
    queue: BTreeMap<(Transno, ClientId, Xid), (bool, R)>,
    /// Whose change is under way.
    executing: Option<ClientId>,
    executed: Transno,
    /// What `executed` was before the one under way.
    before: Transno,
    done: Vec<R>,
    evict: VecDeque<ClientId>,
    started: Option<Instant>,
    window: Instant,
    /// When a change began or ended last.
    moved: Instant,
    active: bool,
    replayed: u64,
}

impl<R> Recovery<R> {
    /// Waits for `known` clients. Without any it is over.
    pub fn new(
        config: RecoveryConfig,
        known: impl IntoIterator<Item = (ClientId, Known)>,
    ) -> Recovery<R> {
        let clients: BTreeMap<_, _> = known
            .into_iter()
            .map(|(id, known)| (id, Client { known, ..Client::default() }))
            .collect();
        Recovery {
            active: !clients.is_empty(),
            config,
            clients,
            queue: BTreeMap::new(),
            executing: None,
            executed: config.committed,
            before: config.committed,
            done: Vec::new(),
            evict: VecDeque::new(),
            started: None,
            window: Instant(u64::MAX),
            moved: Instant(0),
            replayed: 0,
        }
    }

    /// Goes on until [`Recovery::poll_finished`] even if no client is known: the target has more to
    /// recover than replays.
    #[must_use]
    pub fn with_more(mut self, more: bool) -> Recovery<R> {
        self.active |= more;
        self
    }

    /// Whether normal requests have to wait.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Somebody tried to connect, known or not.
    pub fn handle_attempt(&mut self, now: Instant) {
        if self.active && self.started.is_none() {
            self.started = Some(now);
            self.window = now + self.config.soft;
        }
    }

    /// A client connected; says whether it is one of the known.
    pub fn handle_connected(&mut self, client: ClientId, now: Instant) -> bool {
        self.handle_attempt(now);
        let Some(client) = self.clients.get_mut(&client) else { return false };
        if client.arrived > 0 {
            planted::reached("recovery: a client reconnected amid its replays");
        }
        client.present = true;
        if client.known == Known::Silent {
            client.known = Known::Present;
        }
        client.done = false;
        client.offered = Transno::NONE;
        client.arrived = 0;
        client.ahead.clear();
        self.prolong(now);
        true
    }

    /// Its link went down. Its queued replays stay: it will offer them again and take their place.
    pub fn handle_disconnected(&mut self, client: ClientId, now: Instant) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.present = false;
            client.left = Some(now);
            self.prolong(now); // it was there until now, and has its time to come back
        }
    }

    /// A client ended its session or starts anew: nobody waits for it.
    pub fn handle_gone(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.queue.retain(|key, _| key.1 != client);
    }

    /// A replay arrived. It is given back where it was executed before: answer it with its own
    /// transno, or refuse it as before. One of a client that nobody waits for is refused.
    pub fn handle_replay(&mut self, replay: Replay<R>, now: Instant) -> Option<Repeated<R>> {
        self.prolong(now);
        let Some(client) = self.clients.get_mut(&replay.client) else {
            // nobody waits for it: it is about to be evicted
            return Some(Repeated { item: replay.item, refusal: Some(Errno::ENOTCONN) });
        };
        client.offer(replay.index, replay.transno);
        let reopens = replay.open && replay.transno <= self.config.committed;
        let executed = if reopens {
            client.reopened.contains(&replay.xid)
        } else {
            replay.transno <= self.executed
        };
        if executed {
            planted::reached("recovery: a replay came again after it was executed");
            let refusal = client.refused.get(&replay.xid).copied();
            return Some(Repeated { item: replay.item, refusal });
        }
        self.queue.insert((replay.transno, replay.client, replay.xid), (reopens, replay.item));
        None
    }

    /// A replay that is queued or under way came again, after a reconnect.
    pub fn handle_offered_again(&mut self, client: ClientId, index: u32, transno: Transno) {
        planted::reached("recovery: a replay came again while it was queued");
        if let Some(client) = self.clients.get_mut(&client) {
            client.offer(index, transno);
        }
    }

    /// A replay was refused before it came here: those behind it do not wait for it.
    pub fn handle_refused(&mut self, client: ClientId, index: u32, transno: Transno) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.offer(index, transno);
        }
    }

    /// The replay that is under way is refused. Says whether that is remembered: of a client with
    /// too many, it is not.
    #[must_use]
    pub fn handle_refusal(&mut self, client: ClientId, xid: Xid, errno: Errno) -> bool {
        let Some(client) = self.clients.get_mut(&client) else { return true };
        if client.refused.len() >= limits::REFUSALS_MAX {
            return false;
        }
        client.refused.insert(xid, errno);
        true
    }

    /// A client has replayed everything; its request is held until all have.
    pub fn handle_done(&mut self, client: ClientId, item: R, now: Instant) {
        self.prolong(now);
        if let Some(client) = self.clients.get_mut(&client) {
            client.done = true;
        }
        self.done.push(item);
    }

    /// The item that `poll_execute` gave is executed.
    pub fn handle_executed(&mut self, now: Instant) {
        assert!(self.executing.take().is_some(), "one replay was under way");
        self.moved = now;
        self.replayed += 1;
        self.prolong(now);
    }

    /// The item that `poll_execute` gave was not executed: its client offers it again, or is
    /// evicted.
    pub fn handle_abandoned(&mut self, now: Instant) {
        assert!(self.executing.take().is_some(), "one replay was under way");
        self.prolong(now);
        self.executed = self.before;
    }

    fn prolong(&mut self, now: Instant) {
        if let Some(started) = self.started {
            self.window = self.window.max((now + self.config.soft).min(started + self.config.hard));
        }
    }

    /// Time has passed: at the end of the window who is missing or stuck is evicted.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(started) = self.started else { return };
        if !self.active {
            return;
        }
        self.evict_where(|_, client| client.returns_by(started).is_some_and(|until| now >= until));
        if now < self.window {
            return;
        }
        let ended = now >= self.last_end(started);
        let stopped = now >= started + self.config.hard && now >= self.moved + self.config.soft;
        planted::reached("recovery: a window expired");
        // a present client is slow, not gone, until the hard end; then whoever lets everybody wait
        // has stopped, and who merely waits behind it has not
        let head = self.queue.first_key_value().map(|(key, _)| key.0);
        let executing = self.executing;
        self.evict_where(|id, client| {
            let waits = match executing {
                Some(executing) => executing != *id,
                None => head.is_some_and(|head| client.is_beyond(head)),
            };
            !client.done && (!client.present || ended || (stopped && !waits))
        });
        self.window = now + self.config.soft; // who is left goes on
    }

    /// When everybody who is not done loses its session.
    fn last_end(&self, started: Instant) -> Instant {
        started + Span(self.config.hard.0.saturating_mul(limits::HARD_ENDS))
    }

    fn evict_where(&mut self, gone: impl Fn(&ClientId, &Client) -> bool) {
        let gone: Vec<ClientId> = self
            .clients
            .iter()
            .filter(|(id, client)| gone(id, client))
            .map(|(id, _)| *id)
            .collect();
        for client in gone {
            self.handle_gone(client);
            planted::reached("recovery: a missing client was given up");
            self.evict.push_back(client);
        }
    }

    /// When [`Recovery::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let started = self.started.filter(|_| self.active)?;
        let returns = self.clients.values().filter_map(|client| client.returns_by(started));
        Some(returns.fold(self.window, Instant::min))
    }

    /// When somebody tried to connect first.
    #[must_use]
    pub fn started(&self) -> Option<Instant> {
        self.started
    }

    /// Whether it has lasted for so long, from the first sign of anybody.
    #[must_use]
    pub fn has_lasted(&self, span: Span, now: Instant) -> bool {
        self.started.is_some_and(|started| now >= started + span)
    }

    /// The next change to execute, if its turn has come.
    pub fn poll_execute(&mut self, now: Instant) -> Option<R> {
        if self.executing.is_some() {
            return None;
        }
        let ((transno, client, _), (reopens, _)) = self.queue.first_key_value()?;
        let transno = *transno;
        // a close must not overtake the durable open before it, which is no part of the unbroken
        // line
        let next = transno == self.executed.next()
            && self.clients.get(client).is_none_or(|client| client.offered >= transno);
        if !*reopens && !next && !self.gap_is_closed(transno) {
            return None;
        }
        let ((_, client, xid), (reopens, item)) =
            self.queue.pop_first().expect("looked at just now");
        self.before = self.executed;
        if !reopens && !next {
            planted::reached("recovery: a gap was passed");
        }
        if !reopens {
            self.executed = transno;
        } else if let Some(client) = self.clients.get_mut(&client) {
            client.reopened.insert(xid);
        }
        self.executing = Some(client);
        self.moved = now;
        Some(item)
    }

    fn gap_is_closed(&self, head: Transno) -> bool {
        self.clients.values().all(|client| client.is_beyond(head))
    }

    /// A client to evict.
    pub fn poll_evict(&mut self) -> Option<ClientId> {
        self.evict.pop_front()
    }

    /// Whether [`Recovery::poll_finished`] has something to give.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let everybody = self.clients.values().all(|client| client.done);
        self.active && self.executing.is_none() && self.queue.is_empty() && everybody
    }

    /// Everybody is done: recovery is over, and these are the requests that waited for that. More
    /// may come until the target serves again: [`Recovery::take_done`].
    pub fn poll_finished(&mut self) -> Option<Vec<R>> {
        if !self.is_complete() {
            return None;
        }
        self.active = false;
        Some(std::mem::take(&mut self.done))
    }

    /// Normal service has begun: nothing is repeated any more.
    pub fn forget_answers(&mut self) {
        for client in self.clients.values_mut() {
            client.reopened = BTreeSet::new();
            client.refused = BTreeMap::new();
        }
    }

    /// The requests of those who came back while the target was ending its recovery.
    pub fn take_done(&mut self) -> Vec<R> {
        std::mem::take(&mut self.done)
    }

    /// Durable when the target started.
    #[must_use]
    pub fn committed(&self) -> Transno {
        self.config.committed
    }

    /// Highest transno that was executed or durable.
    #[must_use]
    pub fn executed(&self) -> Transno {
        self.executed
    }
}

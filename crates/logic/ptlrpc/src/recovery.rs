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

mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use types::{ClientId, Errno, Instant, Span, Transno, Xid};

use crate::limits;

pub use self::status::{RecoveryPhase, RecoveryStatus};

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

/// What is known of a client from before the restart: how long it is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// It was there: it has the window.
    #[default]
    Present,
    /// It was gone without a word, and has [`limits::SILENT_RETURN`].
    Silent,
    /// It is a server, and has [`limits::SERVER_RETURN`].
    Server,
}

impl Known {
    /// Its time from the first sign of anybody, or from when it was last there; none: the window.
    fn time_to_return(self) -> Option<Span> {
        match self {
            Known::Present => None,
            Known::Silent => Some(limits::SILENT_RETURN),
            Known::Server => Some(limits::SERVER_RETURN),
        }
    }
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

/// How many clients a recovery has heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Those that are back.
    pub connected: usize,
    /// Those that have nothing more to replay.
    pub completed: usize,
    /// All that it knows and has not evicted.
    pub clients: usize,
}

/// A client that a recovery waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    pub client: ClientId,
    pub known: Known,
    /// It is there, and has not replayed all.
    pub present: bool,
    /// How much longer, if nothing happens.
    pub left: Span,
}

#[derive(Default)]
struct Client {
    known: Known,
    present: bool,
    /// When its link went down last.
    left: Option<Instant>,
    done: bool,
    /// Every change of this client up to here has arrived.
    offered: Transno,
    /// Replays of this connection that arrived without a hole.
    arrived: u32,
    /// Those behind a hole.
    ahead: BTreeMap<u32, Transno>,
    /// Durable opens that were repeated: offered again after a reconnect they must not undo a close
    /// replayed since.
    reopened: BTreeSet<Xid>,
    /// Replays that were refused.
    refused: BTreeMap<Xid, Errno>,
}

impl Client {
    /// Has nothing to say about what was before `head`: who is done had an answer to everything
    /// that it offered.
    fn is_beyond(&self, head: Transno) -> bool {
        self.done || (self.present && self.offered >= head)
    }

    /// Until when it has to come back, if it has less than the window for that.
    fn returns_by(&self, started: Instant) -> Option<Instant> {
        let time = self.known.time_to_return().filter(|_| !self.present && !self.done)?;
        Some(self.left.unwrap_or(started) + time)
    }

    fn offer(&mut self, index: u32, transno: Transno) {
        if index <= self.arrived || index - self.arrived > limits::REPLAYS_AHEAD_MAX {
            return;
        }
        self.ahead.insert(index, transno);
        while let Some(transno) = self.ahead.remove(&(self.arrived + 1)) {
            self.arrived += 1;
            self.offered = self.offered.max(transno);
        }
    }
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

    /// For whom it waits, and how much longer: who is missing, and who has not replayed all. None
    /// before the first sign of anybody.
    #[must_use]
    pub fn waits_for(&self, now: Instant) -> Vec<Awaited> {
        let Some(started) = self.started.filter(|_| self.active) else { return Vec::new() };
        let waiting = self.clients.iter().filter(|(_, client)| !client.done);
        waiting
            .map(|(id, client)| {
                let until = client.returns_by(started).unwrap_or(self.window);
                let known = client.known;
                Awaited { client: *id, known, present: client.present, left: until - now }
            })
            .collect()
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

    /// How many clients are back.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            connected: self.clients.values().filter(|client| client.present).count(),
            completed: self.clients.values().filter(|client| client.done).count(),
            clients: self.clients.len(),
        }
    }

    /// Time left without further progress; none before it has started and after its end.
    #[must_use]
    pub fn left(&self, now: Instant) -> Option<Span> {
        (self.active && self.started.is_some()).then(|| self.window - now)
    }

    /// How it stands, for `recovery_status`.
    #[must_use]
    pub fn status(&self, now: Instant) -> RecoveryStatus {
        RecoveryStatus {
            phase: match (self.active, self.started) {
                (false, _) => RecoveryPhase::Complete,
                (true, None) => RecoveryPhase::Waiting,
                (true, Some(_)) => RecoveryPhase::Recovering,
            },
            remaining_secs: self.left(now).map_or(0, |left| left.as_millis() / 1_000),
            progress: self.progress(),
            replayed: self.replayed,
            queued: self.queue.len(),
            next: self.executed.next(),
            waits_for: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000_000);

    fn recovery(known: &[u128]) -> Recovery<u64> {
        let config =
            RecoveryConfig { soft: Span::secs(30), hard: Span::secs(120), committed: Transno(10) };
        Recovery::new(config, known.iter().map(|id| (ClientId(*id), Known::Present)))
    }

    fn replay(r: &mut Recovery<u64>, client: u128, transno: u64) -> Option<u64> {
        let index = r.clients.get(&ClientId(client)).map_or(0, |client| client.arrived) + 1;
        replay_as(r, client, index, transno)
    }

    fn replay_as(r: &mut Recovery<u64>, client: u128, index: u32, transno: u64) -> Option<u64> {
        let (client, transno, item) = (ClientId(client), Transno(transno), transno);
        let replay = Replay { client, index, transno, xid: Xid(item), open: false, item };
        r.handle_replay(replay, NOW).map(|repeated| repeated.item)
    }

    fn run(r: &mut Recovery<u64>) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some(item) = r.poll_execute(NOW) {
            order.push(item);
            r.handle_executed(NOW);
        }
        order
    }

    #[test]
    fn changes_of_two_clients_execute_in_the_order_of_history() {
        let mut r = recovery(&[1, 2]);
        assert!(r.handle_connected(ClientId(1), NOW));
        assert_eq!((replay(&mut r, 1, 12), replay(&mut r, 1, 13)), (None, None));
        assert_eq!(run(&mut r), [0; 0], "11 may come from the other client");
        r.handle_connected(ClientId(2), NOW);
        replay(&mut r, 2, 11);
        replay(&mut r, 2, 14);
        assert_eq!(run(&mut r), [11, 12, 13, 14]);
    }

    #[test]
    fn a_close_waits_for_the_durable_open_that_it_has_overtaken() {
        let mut r = recovery(&[1]);
        r.handle_connected(ClientId(1), NOW);
        assert_eq!(replay_as(&mut r, 1, 2, 11), None);
        assert_eq!(
            run(&mut r),
            [0; 0],
            "it is next in line, but its client's first replay is on its way"
        );
        let open = Replay {
            client: ClientId(1),
            index: 1,
            transno: Transno(5),
            xid: Xid(5),
            open: true,
            item: 5,
        };
        assert_eq!(r.handle_replay(open, NOW), None);
        assert_eq!(run(&mut r), [5, 11]);
    }

    #[test]
    fn an_open_offered_again_does_not_undo_its_replayed_close() {
        let mut r = recovery(&[1]);
        r.handle_connected(ClientId(1), NOW);
        let open = |index| Replay {
            client: ClientId(1),
            index,
            transno: Transno(5),
            xid: Xid(5),
            open: true,
            item: 5,
        };
        assert_eq!(r.handle_replay(open(1), NOW), None);
        assert_eq!(replay_as(&mut r, 1, 2, 11), None);
        assert_eq!(run(&mut r), [5, 11]);
        r.handle_connected(ClientId(1), NOW);
        let repeated = Repeated { item: 5, refusal: None };
        assert_eq!(r.handle_replay(open(1), NOW), Some(repeated));
        assert_eq!(replay_as(&mut r, 1, 2, 11), Some(11));
    }

    #[test]
    fn a_replay_that_was_refused_is_refused_again_and_bounded_many_are_remembered() {
        let mut r = recovery(&[1, 2]);
        let offer = |r: &mut Recovery<u64>, index: u32, transno: u64| {
            let (client, transno, item) = (ClientId(1), Transno(transno), transno);
            let xid = Xid(item);
            r.handle_replay(Replay { client, index, transno, xid, open: false, item }, NOW)
        };
        r.handle_connected(ClientId(1), NOW);
        assert!(offer(&mut r, 1, 11).is_none() && offer(&mut r, 2, 12).is_none());
        assert_eq!(r.poll_execute(NOW), Some(11));
        assert!(r.handle_refusal(ClientId(1), Xid(11), Errno::ENOSPC));
        r.handle_executed(NOW);
        assert_eq!(run(&mut r), [12]);

        r.handle_connected(ClientId(1), NOW);
        let again = [offer(&mut r, 1, 11), offer(&mut r, 2, 12)];
        let refused = Repeated { item: 11, refusal: Some(Errno::ENOSPC) };
        assert_eq!(again, [Some(refused), Some(Repeated { item: 12, refusal: None })]);

        let last = limits::REFUSALS_MAX as u64;
        let mut refuse = |client, xid| r.handle_refusal(ClientId(client), Xid(xid), Errno::EIO);
        assert!((1..last).all(|more| refuse(1, 100 + more)));
        assert!(!refuse(1, 100 + last), "there is no room");
        assert!(refuse(2, 11), "for others there is");
        r.forget_answers();
        assert!(r.clients.values().all(|client| client.refused.is_empty()));
    }

    #[test]
    fn a_replay_of_who_is_not_waited_for_is_refused() {
        let mut r = recovery(&[1]);
        let (client, transno, item) = (ClientId(2), Transno(11), 11);
        let replay = Replay { client, index: 1, transno, xid: Xid(1), open: false, item };
        let refused = Repeated { item, refusal: Some(Errno::ENOTCONN) };
        assert_eq!(r.handle_replay(replay, NOW), Some(refused));
    }

    #[test]
    fn what_the_network_reordered_is_no_gap() {
        let mut r = recovery(&[1]);
        r.handle_connected(ClientId(1), NOW);
        replay_as(&mut r, 1, 2, 15);
        assert_eq!(run(&mut r), [0; 0], "the first replay of this client is on its way");
        replay_as(&mut r, 1, 1, 13);
        assert_eq!(run(&mut r), [13, 15]);
    }

    #[test]
    fn a_gap_is_passed_when_nobody_can_fill_it() {
        let mut r = recovery(&[1, 2]);
        r.handle_connected(ClientId(1), NOW);
        r.handle_connected(ClientId(2), NOW);
        replay(&mut r, 1, 15);
        assert_eq!(run(&mut r), [0; 0]);
        r.handle_done(ClientId(2), 0, NOW);
        assert_eq!(run(&mut r), [15]);
    }

    #[test]
    fn a_missing_client_holds_its_gap_until_the_window_ends() {
        let mut r = recovery(&[1, 2]);
        assert_eq!(r.poll_timeout(), None, "no timer before the first attempt");
        r.handle_connected(ClientId(1), NOW);
        replay(&mut r, 1, 15);
        r.handle_done(ClientId(1), 99, NOW);
        r.handle_timeout(NOW + Span::secs(29));
        assert_eq!((run(&mut r), r.poll_evict()), (vec![], None));
        r.handle_timeout(NOW + Span::secs(30));
        assert_eq!((run(&mut r), r.poll_evict()), (vec![15], Some(ClientId(2))));
        assert_eq!(r.poll_finished(), Some(vec![99]));
        assert!(!r.is_active());
    }

    #[test]
    fn who_is_done_holds_no_gap_when_it_goes() {
        let mut r = recovery(&[1, 2]);
        r.handle_connected(ClientId(1), NOW);
        r.handle_connected(ClientId(2), NOW);
        r.handle_done(ClientId(1), 1, NOW);
        r.handle_disconnected(ClientId(1), NOW);
        replay(&mut r, 2, 15);
        assert_eq!(run(&mut r), [15]);
        r.handle_done(ClientId(2), 2, NOW);
        assert_eq!(r.poll_finished(), Some(vec![1, 2]));
    }

    #[test]
    fn who_is_done_and_comes_back_offers_again_what_was_executed() {
        let mut r = recovery(&[1, 2]);
        r.handle_connected(ClientId(1), NOW);
        r.handle_connected(ClientId(2), NOW);
        replay(&mut r, 1, 11);
        assert_eq!(run(&mut r), [11]);
        r.handle_done(ClientId(1), 1, NOW);
        r.handle_connected(ClientId(1), NOW);
        replay(&mut r, 2, 15);
        assert_eq!(run(&mut r), [0; 0], "it may say more than before");
        assert_eq!(replay(&mut r, 1, 11), Some(11));
        r.handle_done(ClientId(1), 3, NOW);
        assert_eq!(run(&mut r), [15]);
    }

    #[test]
    fn the_hard_end_evicts_only_the_client_with_the_hole() {
        let mut r = recovery(&[1, 2]);
        r.handle_connected(ClientId(1), NOW);
        r.handle_connected(ClientId(2), NOW);
        replay_as(&mut r, 1, 2, 12); // its first never comes
        replay(&mut r, 2, 15);
        r.handle_timeout(NOW + Span::secs(119));
        assert_eq!((run(&mut r), r.poll_evict()), (vec![], None));
        r.handle_timeout(NOW + Span::secs(149));
        assert_eq!((r.poll_evict(), r.poll_evict()), (Some(ClientId(1)), None));
        assert_eq!(run(&mut r), [15]);
    }

    #[test]
    fn the_hard_end_spares_a_client_that_still_replays() {
        let mut r = recovery(&[1]);
        r.handle_connected(ClientId(1), NOW);
        replay(&mut r, 1, 11);
        assert_eq!(r.poll_execute(NOW + Span::secs(110)), Some(11));
        r.handle_timeout(NOW + Span::secs(120));
        assert_eq!(r.poll_evict(), None, "its change takes long");
        r.handle_executed(NOW + Span::secs(130));
        r.handle_timeout(NOW + Span::secs(150));
        assert_eq!(r.poll_evict(), None);
        r.handle_timeout(NOW + Span::secs(180));
        assert_eq!(r.poll_evict(), Some(ClientId(1)));
    }

    #[test]
    fn the_hard_end_evicts_the_client_whose_change_never_ends_and_no_other() {
        let mut r = recovery(&[1, 2]);
        r.handle_connected(ClientId(1), NOW);
        r.handle_connected(ClientId(2), NOW);
        replay(&mut r, 1, 11);
        assert_eq!(r.poll_execute(NOW), Some(11));
        r.handle_timeout(NOW + Span::secs(119));
        assert_eq!(r.poll_evict(), None);
        r.handle_timeout(NOW + Span::secs(149));
        assert_eq!((r.poll_evict(), r.poll_evict()), (Some(ClientId(1)), None));
        assert!(!r.is_complete(), "what it began is still under way");
        r.handle_executed(NOW + Span::secs(150));
        r.handle_done(ClientId(2), 2, NOW + Span::secs(150));
        assert!(r.poll_finished().is_some());
    }

    /// Each time that it is asked a window's length later, a client replays one more durable open.
    #[test]
    fn who_always_has_one_more_replay_does_not_recover_for_ever() {
        let mut r = recovery(&[1, 2]);
        r.handle_connected(ClientId(1), NOW);
        r.handle_connected(ClientId(2), NOW);
        r.handle_done(ClientId(2), 2, NOW);
        let mut at = NOW;
        for index in 1..=100 {
            at = at + Span::secs(29);
            let (client, xid) = (ClientId(1), Xid(index.into()));
            let transno = Transno(5);
            let open = Replay { client, index, transno, xid, open: true, item: 5 };
            let _known_once_it_is_evicted = r.handle_replay(open, at);
            while r.poll_execute(at).is_some() {
                r.handle_executed(at);
            }
            while r.poll_timeout().is_some_and(|due| due <= at) {
                r.handle_timeout(at);
            }
            if r.is_complete() {
                break;
            }
        }
        assert_eq!((r.poll_evict(), r.poll_evict()), (Some(ClientId(1)), None));
        assert!(at <= NOW + Span::secs(2 * 120 + 30), "it ended after {:?}", at - NOW);
    }

    #[test]
    fn who_is_done_after_the_end_is_not_forgotten() {
        let mut r = recovery(&[1]);
        r.handle_connected(ClientId(1), NOW);
        r.handle_done(ClientId(1), 1, NOW);
        assert_eq!(r.poll_finished(), Some(vec![1]));
        r.handle_connected(ClientId(1), NOW);
        r.handle_done(ClientId(1), 2, NOW);
        assert_eq!((r.take_done(), r.take_done()), (vec![2], vec![]));
    }

    #[test]
    fn a_repeated_replay_is_not_executed_again() {
        let mut r = recovery(&[1]);
        r.handle_connected(ClientId(1), NOW);
        replay(&mut r, 1, 11);
        assert_eq!(run(&mut r), [11]);
        assert_eq!(replay(&mut r, 1, 11), Some(11));
        assert_eq!(replay(&mut r, 1, 9), Some(9), "durable before");
    }

    #[test]
    fn a_durable_open_is_repeated_before_what_follows() {
        let mut r = recovery(&[1, 2]);
        r.handle_connected(ClientId(1), NOW);
        r.handle_replay(
            Replay {
                client: ClientId(1),
                index: 1,
                transno: Transno(3),
                xid: Xid(3),
                open: true,
                item: 3,
            },
            NOW,
        );
        replay(&mut r, 1, 11);
        assert_eq!(run(&mut r), [3, 11]);
        assert_eq!(r.executed(), Transno(11));
    }

    /// Client 1 is done, client 9 is missing.
    fn with(known: Known) -> Recovery<u64> {
        let config =
            RecoveryConfig { soft: Span::secs(30), hard: Span::secs(120), committed: Transno(10) };
        let mut r = Recovery::new(config, [(ClientId(1), Known::Present), (ClientId(9), known)]);
        r.handle_connected(ClientId(1), NOW);
        replay(&mut r, 1, 20);
        r.handle_done(ClientId(1), 5, NOW);
        r
    }

    #[test]
    fn a_client_that_was_silent_before_is_waited_for_briefly_and_with_its_time() {
        let mut r = with(Known::Silent);
        let left = |r: &Recovery<u64>, at| r.waits_for(at).first().map(|awaited| awaited.left);
        assert_eq!(left(&r, NOW + Span::secs(2)), Some(Span::millis(2_200)));
        assert_eq!(r.poll_timeout(), Some(NOW + limits::SILENT_RETURN));
        r.handle_timeout(NOW + Span::secs(4));
        assert_eq!((run(&mut r), r.poll_evict()), (vec![], None));
        r.handle_timeout(NOW + limits::SILENT_RETURN);
        assert_eq!((run(&mut r), r.poll_evict()), (vec![20], Some(ClientId(9))));
        assert_eq!(r.poll_finished(), Some(vec![5]));
    }

    #[test]
    fn a_silent_client_that_comes_back_has_the_time_of_the_others() {
        let mut r = with(Known::Silent);
        r.handle_connected(ClientId(9), NOW + Span::secs(1));
        r.handle_disconnected(ClientId(9), NOW + Span::secs(2));
        r.handle_timeout(NOW + Span::secs(31));
        assert_eq!((r.poll_evict(), r.poll_timeout()), (None, Some(NOW + Span::secs(32))));
        r.handle_timeout(NOW + Span::secs(32));
        assert_eq!(r.poll_evict(), Some(ClientId(9)));
    }

    #[test]
    fn who_was_there_before_has_the_window() {
        let mut r = with(Known::Present);
        let has_lasted = |secs| r.has_lasted(Span::secs(4), NOW + Span::secs(secs));
        assert!(!has_lasted(3) && has_lasted(4));
        r.handle_timeout(NOW + Span::secs(29));
        assert_eq!(r.poll_evict(), None);
        r.handle_timeout(NOW + Span::secs(30));
        assert_eq!(r.poll_evict(), Some(ClientId(9)));
    }

    #[test]
    fn a_server_that_is_down_is_waited_for_only_briefly() {
        let mut r = with(Known::Server);
        assert_eq!(r.poll_timeout(), Some(NOW + limits::SERVER_RETURN));
        r.handle_timeout(NOW + limits::SERVER_RETURN);
        assert_eq!((run(&mut r), r.poll_evict()), (vec![20], Some(ClientId(9))));
        assert_eq!(r.poll_finished(), Some(vec![5]));
    }

    #[test]
    fn a_server_that_comes_back_at_once_keeps_its_session() {
        let mut r = with(Known::Server);
        assert!(r.poll_finished().is_none());
        r.handle_connected(ClientId(9), NOW + Span::secs(1));
        r.handle_timeout(NOW + limits::SERVER_RETURN);
        r.handle_done(ClientId(9), 6, NOW + Span::secs(3));
        assert_eq!((run(&mut r), r.poll_evict()), (vec![20], None));
        assert_eq!(r.poll_finished(), Some(vec![5, 6]));
    }

    #[test]
    fn a_server_whose_link_breaks_later_has_its_time_again_and_none_if_it_is_done() {
        let mut r = with(Known::Server);
        let (broken, back) = (NOW + Span::secs(9), NOW + Span::secs(10));
        r.handle_connected(ClientId(9), NOW + Span::secs(1));
        r.handle_disconnected(ClientId(9), broken);
        assert_eq!(r.poll_timeout(), Some(broken + limits::SERVER_RETURN));
        r.handle_timeout(back);
        assert_eq!(r.poll_evict(), None);
        r.handle_connected(ClientId(9), back);
        r.handle_disconnected(ClientId(9), back);
        r.handle_timeout(back + limits::SERVER_RETURN);
        assert_eq!(r.poll_evict(), Some(ClientId(9)));

        let mut r = with(Known::Server);
        r.handle_connected(ClientId(9), NOW + Span::secs(1));
        r.handle_connected(ClientId(1), NOW + Span::secs(1));
        r.handle_done(ClientId(9), 6, NOW + Span::secs(1));
        r.handle_disconnected(ClientId(9), broken);
        r.handle_timeout(broken + limits::SERVER_RETURN);
        assert_eq!(r.poll_evict(), None, "nobody waits for it");
    }

    #[test]
    fn without_known_clients_there_is_nothing_to_recover() {
        assert!(!recovery(&[]).is_active());
    }

    #[test]
    fn a_change_that_was_not_executed_is_taken_when_it_is_offered_again() {
        let mut r = recovery(&[1]);
        r.handle_connected(ClientId(1), NOW);
        assert_eq!((replay(&mut r, 1, 11), replay(&mut r, 1, 12)), (None, None));
        assert_eq!(r.poll_execute(NOW), Some(11));
        r.handle_abandoned(NOW);
        r.handle_disconnected(ClientId(1), NOW);
        assert_eq!(r.poll_execute(NOW), None, "12 does not come before 11");
        r.handle_connected(ClientId(1), NOW);
        assert_eq!(replay(&mut r, 1, 11), None, "it was not executed");
        r.handle_offered_again(ClientId(1), 2, Transno(12));
        assert_eq!(run(&mut r), [11, 12]);
        assert_eq!(replay_as(&mut r, 1, 1, 11), Some(11), "now it was");
    }

    #[test]
    fn replays_too_far_ahead_of_a_hole_are_not_counted() {
        let mut client = Client::default();
        let last = limits::REPLAYS_AHEAD_MAX;
        client.offer(last + 1, Transno(5));
        assert!(client.ahead.is_empty());
        client.offer(last, Transno(4));
        assert_eq!(client.ahead.len(), 1);
        client.offer(1, Transno(1));
        client.offer(1, Transno(9));
        assert_eq!((client.arrived, client.offered), (1, Transno(1)), "it had come already");
        client.offer(last + 1, Transno(5));
        assert_eq!(client.ahead.len(), 2, "counted from what has arrived");
    }
}

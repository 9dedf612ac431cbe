//! The sessions of one target, its history counter, and its recovery.

mod waits;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};

use env::Env;
use ptlrpc::limits::{MISSING_AFTER, SILENT_RETURN};
use ptlrpc::{Recovery, RecoveryConfig};
use tokio::sync::{Notify, RwLock};
use types::{ClientId, FsName, Instance, Instant, Nid, Span, TargetId, Transno, Xid};
use wire::body::ConnectReq;
use wire::{Reply, Request};

use crate::attention::Attention;
use crate::peer::Peer;
use crate::scheduled::Work;
use crate::seldom::Seldom;
use crate::session::{Shared, Silence, restore};
use crate::{ClientRecord, Incoming, Session, limits};

/// What a target knows when it starts.
pub struct ExportsConfig {
    pub target: TargetId,
    /// Its boot epoch.
    pub instance: Instance,
    /// Clients of `Table::Clients`.
    pub known: Vec<ClientRecord>,
    /// `Table::Replies` as stored.
    pub replies: Vec<(Vec<u8>, Vec<u8>)>,
    /// Highest durable transno.
    pub last_committed: Transno,
    /// Recovery window without progress, 12 s by default.
    pub recovery_window: Span,
    /// Longest recovery window, 120 s.
    pub recovery_window_max: Span,
    /// Strike all known clients out at once.
    pub abort_recovery: bool,
    /// [`crate::Target::recovery_done`] has to do something before the target serves, even if no
    /// client is known.
    pub has_more_to_recover: bool,
    /// Told to clients. One that is silent for a tenth longer and in somebody's way is evicted.
    pub lease: Span,
    /// Silence after which a session is evicted though it is in nobody's way, 150 s.
    pub silence_max: Span,
}

/// The sessions of one target.
pub struct Exports {
    pub(crate) env: Env,
    pub target: TargetId,
    fsname: Cell<Option<FsName>>,
    pub(crate) shared: Rc<Shared>,
    pub(crate) lease: Span,
    pub(crate) silence_max: Span,
    attention: Attention,
    /// Identity of the target's storage, zero where it has none.
    pub(crate) uuid: Cell<u128>,
    sessions: RefCell<BTreeMap<u64, Rc<Session>>>,
    by_client: RefCell<BTreeMap<ClientId, u64>>,
    /// Clients whose session is being made, and from where.
    connecting: RefCell<BTreeMap<ClientId, Nid>>,
    /// How many sessions are of an address, or are being made from there.
    by_nid: RefCell<BTreeMap<Nid, usize>>,
    /// The log says that there is no room for another session.
    pub(crate) full_said: Seldom,
    /// Where servers are; none: anywhere.
    servers: RefCell<Option<Rc<IsServerAt>>>,
    sessions_made: Cell<u64>,
    pub(crate) recovery: RefCell<Recovery<Work>>,
    /// Recovery is over and the target has swept.
    pub(crate) open: Cell<bool>,
    /// When that was; zero before.
    recovered: Cell<Instant>,
    /// How often the log was told for whom recovery waits.
    announced: Cell<u8>,
    /// Names of other targets that recovery waits for.
    awaited_targets: RefCell<BTreeSet<String>>,
    pub(crate) pumping: Cell<bool>,
    pub(crate) evictions: RefCell<BTreeSet<u64>>,
    /// Sessions that were evicted in this run.
    pub(crate) evicted: Cell<u64>,
    /// Callbacks without an answer within their caller's patience.
    pub(crate) callback_timeouts: Rc<Cell<u64>>,
    pub(crate) wake: Notify,
    /// Who writes what records say of silence: housekeeping of many clients, each Connect of its
    /// own.
    pub(crate) noting: RwLock<()>,
    pub(crate) queues: RefCell<Option<Weak<dyn Queues>>>,
}

/// Whether a server is known at an address.
type IsServerAt = dyn Fn(Nid) -> bool;

/// Where requests wait.
pub(crate) trait Queues {
    /// See [`Exports::promote`].
    fn promote(
        self: Rc<Self>,
        exports: &Exports,
        client: ClientId,
        wanted: &dyn Fn(&Request) -> bool,
    ) -> usize;

    /// Moves what waits there of `session`, and is awaited, to the high-priority heads.
    fn promote_awaited(self: Rc<Self>, exports: &Exports, session: &Session) -> usize;
}

/// How a Connect goes on.
pub(crate) enum Connecting {
    /// The target is recovering and does not know this client.
    Wait,
    /// Another Connect of this client is under way, or this is a repeated one: it gets no answer of
    /// its own.
    Busy,
    /// The client is connected, from another address.
    Elsewhere,
    /// There are as many sessions as there may be.
    Full,
    /// It says that it is a server, and none is known there.
    NoServer,
    /// The session goes on.
    Resume(Rc<Session>),
    /// A session begins; the old one, if any, ends first.
    Fresh { old: Option<Rc<Session>>, evicted: bool },
}

impl Exports {
    /// Of a target that starts now.
    pub fn new(env: &Env, config: ExportsConfig) -> Rc<Exports> {
        let shared = Rc::new(Shared {
            target: config.target,
            instance: config.instance,
            committed: Cell::new(config.last_committed),
            assigned: Cell::new(config.last_committed),
        });
        let now = env.now();
        let known: BTreeMap<ClientId, Rc<Session>> = config
            .known
            .iter()
            .map(|record| (record.client, Session::new(record, &shared, now)))
            .collect();
        known.values().for_each(|session| session.absent.set(true));
        for (key, value) in &config.replies {
            restore(&known, key, value);
        }
        let window = RecoveryConfig {
            soft: config.recovery_window,
            hard: config.recovery_window_max.max(config.recovery_window),
            committed: config.last_committed,
        };
        let waits = known.values().filter(|_| !config.abort_recovery);
        let recovery =
            Recovery::new(window, waits.map(|session| (session.client, session.known())))
                .with_more(config.has_more_to_recover);
        let exports = Exports {
            env: env.clone(),
            target: config.target,
            fsname: Cell::new(None),
            shared,
            lease: config.lease,
            silence_max: config.silence_max,
            attention: Attention::new(now),
            uuid: Cell::new(0),
            by_client: RefCell::new(
                known.values().map(|session| (session.client, session.id)).collect(),
            ),
            sessions: RefCell::new(
                known.into_values().map(|session| (session.id, session)).collect(),
            ),
            connecting: RefCell::default(),
            by_nid: RefCell::default(),
            full_said: Seldom::default(),
            servers: RefCell::default(),
            sessions_made: Cell::new(0),
            open: Cell::new(!recovery.is_active()),
            recovered: Cell::default(),
            recovery: RefCell::new(recovery),
            announced: Cell::new(0),
            awaited_targets: RefCell::default(),
            pumping: Cell::new(false),
            evictions: RefCell::default(),
            evicted: Cell::default(),
            callback_timeouts: Rc::default(),
            wake: Notify::new(),
            noting: RwLock::default(),
            queues: RefCell::default(),
        };
        // an aborted recovery waits for nobody, though the target has more to recover
        if exports.open.get() || config.abort_recovery {
            exports.evict_absent();
        }
        let known = exports.sessions.borrow().len();
        exports.count(Nid::default(), |_| known); // they have not come from anywhere so far
        Rc::new(exports)
    }

    /// Transno for the change that `incoming` makes: the first one's on a replay, else the next.
    ///
    /// The one of a replay is given out when the target says [`Exports::applied`], because its
    /// client has had it all along. If a commit came before that, the change would be durable by
    /// its number alone, and would not be replayed again. A new one that is never applied is just
    /// left out of history.
    pub fn next_transno(&self, incoming: &Incoming) -> Transno {
        let replayed = Transno(incoming.request.header.transno);
        if incoming.is_replay() && !replayed.is_none() { replayed } else { self.next_own() }
    }

    /// The change with this transno is applied: the next commit covers it.
    pub fn applied(&self, transno: Transno) {
        self.shared.assigned.set(self.shared.assigned.get().max(transno));
    }

    /// Transno for a change that is in no client's history.
    pub fn next_own(&self) -> Transno {
        let epoch =
            u32::try_from(self.shared.instance.0).expect("a target is not started 2^32 times");
        let next = self.shared.assigned.get().next().max(Transno::first_of_epoch(epoch));
        self.shared.assigned.set(next);
        next
    }

    /// Whether clients of the run before may still replay.
    pub fn is_replaying(&self) -> bool {
        self.recovery.borrow().is_active()
    }

    /// Puts `transno` into the reply, and gives key and value for `Table::Replies`, to be written
    /// with the change itself. Key: [`Incoming::reply_key`]; value: the reply's bytes. The session
    /// remembers the answer only when it is given: a change that is tried again, or refused by its
    /// store after this, leaves nothing behind.
    pub fn record(
        &self,
        incoming: &Incoming,
        transno: Transno,
        reply: &mut Reply,
    ) -> (Vec<u8>, Vec<u8>) {
        let header = &incoming.request.header;
        (reply.header.transno, reply.header.as_of) = (transno.0, transno.0);
        incoming.session.fill(reply);
        let export = incoming.session.export.borrow();
        // a durable open that is repeated must not push out the record of what came after it
        let newer = if incoming.is_replay() {
            export.newer_answer(header.tag, Xid(header.xid))
        } else {
            None
        };
        (incoming.reply_key(), newer.unwrap_or(reply).to_frame().into_payload().to_vec())
    }

    /// Moves requests of `client` that still wait, and for which `wanted` holds, to the
    /// high-priority heads of their partitions: to be called just before a lock that covers them is
    /// called back. Answers how many were moved.
    pub fn promote(&self, client: ClientId, wanted: impl Fn(&Request) -> bool) -> usize {
        let queues = self.queues.borrow().as_ref().and_then(Weak::upgrade);
        queues.map_or(0, |queues| queues.promote(self, client, &wanted))
    }

    /// Moves requests of `session` that somebody waits for ([`crate::Target::is_awaited`]) and that
    /// still wait themselves to the high-priority heads. Answers how many were moved.
    pub fn promote_awaited(&self, session: &Session) -> usize {
        let queues = self.queues.borrow().as_ref().and_then(Weak::upgrade);
        queues.map_or(0, |queues| queues.promote_awaited(self, session))
    }

    /// The answer to a change that another target remembers: a resend gets it. `key` and `value` as
    /// [`Exports::record`] gave them.
    pub fn restore(&self, key: &[u8], value: &[u8]) {
        let client = key.get(..16).and_then(|id| id.try_into().ok());
        let session = client.and_then(|id| self.session_of(ClientId(u128::from_be_bytes(id))));
        let known = session.into_iter().map(|session| (session.client, session)).collect();
        restore(&known, key, value);
    }

    /// Everything up to `upto` is durable: the next replies tell.
    pub fn committed(&self, upto: Transno) {
        self.shared.committed.set(self.shared.committed.get().max(upto));
    }

    /// Highest transno given out. Of replays, only those count that are applied.
    pub fn last_assigned(&self) -> Transno {
        self.shared.assigned.get()
    }

    /// Everything up to here is durable.
    pub fn last_committed(&self) -> Transno {
        self.shared.committed.get()
    }

    /// This run of the target.
    pub fn instance(&self) -> Instance {
        self.shared.instance
    }

    /// Sessions that were evicted in this run.
    pub fn evicted(&self) -> u64 {
        self.evicted.get()
    }

    /// Callbacks in this run that a client did not answer within their caller's patience.
    pub fn callback_timeouts(&self) -> u64 {
        self.callback_timeouts.get()
    }

    /// All sessions, in the order of their ids.
    pub fn sessions(&self) -> Vec<Rc<Session>> {
        self.sessions.borrow().values().cloned().collect()
    }

    pub fn session(&self, id: u64) -> Option<Rc<Session>> {
        self.sessions.borrow().get(&id).cloned()
    }

    /// The session of a client, if it has one.
    #[must_use]
    pub fn session_of(&self, client: ClientId) -> Option<Rc<Session>> {
        let id = self.by_client.borrow().get(&client).copied()?;
        self.session(id)
    }

    /// Whether normal requests have to wait.
    pub fn is_recovering(&self) -> bool {
        !self.open.get()
    }

    /// Says in the log for whom recovery waits: when it begins, and when whoever lives should be
    /// back.
    pub(crate) fn announce(&self) {
        let now = self.env.now();
        let stage = match self.recovery.borrow().started() {
            None => return,
            Some(_) if self.has_recovered_for(SILENT_RETURN, now) => 2,
            Some(_) => 1,
        };
        if self.announced.replace(stage) < stage {
            let (awaited, progress) = (self.awaited(), self.recovery.borrow().progress());
            let left = self.recovery.borrow().left(now).unwrap_or(Span::ZERO);
            tracing::info!(
                target_id = %self.name(),
                "recovery: {} of {} clients are back, {} s left; it waits for {awaited}",
                progress.connected,
                progress.clients,
                left.as_millis().div_ceil(1_000),
            );
        }
    }

    /// Says that recovery is complete, and what it took. A client that waited for that had nothing
    /// to say meanwhile: silence counts from here.
    pub(crate) fn announce_end(&self) {
        self.recovered.set(self.env.now());
        let started = self.recovery.borrow().started();
        let took = started.map_or(Span::ZERO, |started| self.env.now() - started);
        tracing::info!(
            target_id = %self.name(),
            "recovery is complete: {} clients have recovered, after {:.1} s",
            self.recovery.borrow().progress().completed,
            took.as_secs_f64(),
        );
    }

    fn has_recovered_for(&self, span: Span, now: Instant) -> bool {
        self.recovery.borrow().has_lasted(span, now)
    }

    /// Sessions whose record is to say something else of their client's silence, and what.
    pub(crate) fn unnoted(&self) -> Vec<(Rc<Session>, Silence)> {
        let now = self.env.now();
        let is_recovering = self.is_recovering();
        let has_waited = is_recovering && self.has_recovered_for(MISSING_AFTER, now);
        let is_settled = self.attention.is_settled(now);
        let unnoted = |session: Rc<Session>| {
            // who waits for the end of a recovery says nothing
            let silence = self.silence(&session, now);
            let is_overdue = !is_recovering && silence > self.lease;
            let silent = session.unnoted(is_overdue, has_waited, silence, self.dead_after())?;
            (is_settled || !silent.is_silent).then_some((session, silent))
        };
        self.sessions().into_iter().filter_map(unnoted).collect()
    }

    /// Ends a session as if its client were dead.
    pub fn evict(&self, session: u64) {
        self.evictions.borrow_mut().insert(session);
        self.wake.notify_one();
    }

    /// The client of `session` is in somebody's way: the session ends if nothing was heard from it
    /// for its lease and a tenth of that, whether its link is up or not. Eviction needs both,
    /// silence and a reason: a silent client that harms nobody has [`ExportsConfig::silence_max`].
    /// During recovery everybody has the time of the window.
    pub fn evict_if_dead(&self, session: u64) {
        let now = self.env.now();
        if self.is_recovering() || self.attention.is_lost(now) {
            return;
        }
        if let Some(session) = self.session(session)
            && self.silence(&session, now) > self.dead_after()
        {
            self.evict(session.id);
        }
    }

    /// A client that has been silent for longer has no lease, by its own clock either.
    fn dead_after(&self) -> Span {
        Span(self.lease.0 + self.lease.0 / limits::LEASE_GRACE_PART)
    }

    /// How long a client has been silent while this server listened to it and served it.
    pub(crate) fn silence(&self, session: &Session, now: Instant) -> Span {
        now - session.heard.get().max(self.attention.since()).max(self.recovered.get())
    }

    /// Housekeeping looks around. Where it did not for long, the server stood still, and what came
    /// meanwhile has not been read: nobody was silent then.
    pub(crate) fn look(&self, now: Instant) {
        self.attention.look(now);
    }

    /// Whether recovery waits for a client that has not come back in this run.
    pub fn awaits(&self, client: ClientId) -> bool {
        let session = self.session_of(client).filter(|_| self.is_recovering());
        session.is_some_and(|session| session.is_absent())
    }

    /// Recovery waits no longer for a client that has not come back in this run: its session ends.
    pub fn give_up_absent(&self, client: ClientId) {
        if self.awaits(client)
            && let Some(session) = self.session_of(client)
        {
            self.evict(session.id);
        }
    }

    pub(crate) fn evict_absent(&self) {
        let absent = self.sessions.borrow();
        self.evictions.borrow_mut().extend(
            absent.values().filter(|session| session.absent.get()).map(|session| session.id),
        );
        self.wake.notify_one();
    }

    /// Forgets the session; its end is told to the target by whoever called.
    pub(crate) fn remove(&self, session: &Session) {
        session.ended.set(true);
        session.end_callbacks();
        if self.sessions.borrow_mut().remove(&session.id).is_some() {
            self.count(session.nid.get(), |of_nid| of_nid - 1);
        }
        let mut by_client = self.by_client.borrow_mut();
        if by_client.get(&session.client) == Some(&session.id) {
            by_client.remove(&session.client);
        }
    }

    pub(crate) fn insert(&self, session: &Rc<Session>) {
        if self.sessions.borrow_mut().insert(session.id, Rc::clone(session)).is_none() {
            self.count(session.nid.get(), |of_nid| of_nid + 1);
        }
        self.by_client.borrow_mut().insert(session.client, session.id);
    }

    /// A record for a fresh session; ids are unique over restarts.
    pub(crate) fn fresh(&self, client: ClientId, name: String, is_server: bool) -> ClientRecord {
        self.sessions_made.set(self.sessions_made.get() + 1);
        let session = (self.shared.instance.0 << 32) | self.sessions_made.get();
        ClientRecord::new(client, session, name, is_server)
    }

    pub(crate) fn decide(
        &self,
        client: ClientId,
        req: &ConnectReq,
        peer: &Peer,
        xid: u64,
    ) -> Connecting {
        self.recovery.borrow_mut().handle_attempt(self.env.now());
        if self.connecting.borrow().contains_key(&client) {
            return Connecting::Busy;
        }
        let old = self.session_of(client);
        let is_server = req.is_server != 0 || old.as_ref().is_some_and(|old| old.is_server);
        if is_server && !self.is_server_at(peer.nid) {
            return Connecting::NoServer;
        }
        let resumes = req.resume != 0;
        match old {
            Some(session) if session.is_connected() && session.nid.get() != peer.nid => {
                Connecting::Elsewhere
            }
            Some(session) if session.is_repeated(peer, xid) => Connecting::Busy,
            Some(session)
                if resumes
                    && session.id == req.session
                    && !self.evictions.borrow().contains(&session.id) =>
            {
                Connecting::Resume(session)
            }
            // its former life has nothing to replay: nobody waits for it any more
            Some(old) => Connecting::Fresh { old: Some(old), evicted: resumes },
            // a server has nothing to replay, and may have to say something that passes recovery
            None if self.is_recovering() && req.is_server == 0 => Connecting::Wait,
            None if self.are_too_many(peer.nid) => Connecting::Full,
            None => Connecting::Fresh { old: None, evicted: resumes },
        }
    }

    /// Takes the word of those who say that they are servers only where `is_server_at` knows one.
    /// It is asked with each Connect of such a peer.
    pub fn believe_servers(&self, is_server_at: impl Fn(Nid) -> bool + 'static) {
        *self.servers.borrow_mut() = Some(Rc::new(is_server_at));
    }

    fn is_server_at(&self, nid: Nid) -> bool {
        let known = self.servers.borrow().clone();
        known.is_none_or(|is_server_at| is_server_at(nid))
    }

    /// Whether there is no room for another session from `nid`, those that are being made counted.
    fn are_too_many(&self, nid: Nid) -> bool {
        let total = self.sessions.borrow().len() + self.connecting.borrow().len();
        !limits::has_place(total, self.by_nid.borrow().get(&nid).copied().unwrap_or(0))
    }

    fn count(&self, nid: Nid, change: impl FnOnce(usize) -> usize) {
        let mut by_nid = self.by_nid.borrow_mut();
        let of_nid = by_nid.entry(nid).or_default();
        *of_nid = change(*of_nid);
        if *of_nid == 0 {
            by_nid.remove(&nid);
        }
    }

    /// A session of `client` is being made for whoever is at `nid`.
    pub(crate) fn begin_connecting(&self, client: ClientId, nid: Nid) {
        if self.connecting.borrow_mut().insert(client, nid).is_none() {
            self.count(nid, |of_nid| of_nid + 1);
        }
    }

    /// It is made, or will not be.
    pub(crate) fn end_connecting(&self, client: ClientId) {
        let nid = self.connecting.borrow_mut().remove(&client);
        nid.into_iter().for_each(|nid| self.count(nid, |of_nid| of_nid - 1));
    }

    /// The session goes on, on the link to `peer`.
    pub(crate) fn attach(&self, session: &Session, peer: &Rc<Peer>, connect_xid: u64) {
        self.count(session.nid.get(), |of_nid| of_nid - 1);
        let now = self.env.now();
        session.attach(peer, connect_xid, now);
        self.count(session.nid.get(), |of_nid| of_nid + 1);
        if !peer.tx.is_open() {
            // nobody reports the end of this link again, and a recovery would wait for the client
            // as for one that replays
            self.recovery.borrow_mut().handle_disconnected(session.client, now);
        }
    }

    /// The target belongs to this file system.
    pub fn set_fsname(&self, fsname: FsName) {
        self.fsname.set(Some(fsname));
    }

    /// Name of the target in the log.
    pub fn name(&self) -> String {
        self.fsname.get().map_or_else(|| self.target.to_string(), |of| self.target.name(of))
    }

    /// Takes connections only of who looks for this storage, or does not know.
    pub fn set_uuid(&self, uuid: u128) {
        self.uuid.set(uuid);
    }

    /// Whether a Connect looks for another storage: that of a file system which was served at this
    /// address before.
    pub(crate) fn is_meant_for_another(&self, req: &ConnectReq) -> bool {
        let wanted = (u128::from(req.uuid_high) << 64) | u128::from(req.uuid_low);
        wanted != 0 && self.uuid.get() != 0 && wanted != self.uuid.get()
    }

    /// The link to `peer` is gone: the sessions whose newest one it was.
    pub(crate) fn detach(&self, peer: &Rc<Peer>) -> Vec<Rc<Session>> {
        let had =
            |session: &&Rc<Session>| std::ptr::eq(session.peer.borrow().as_ptr(), Rc::as_ptr(peer));
        let lost: Vec<_> = self.sessions.borrow().values().filter(had).cloned().collect();
        let now = self.env.now();
        for session in &lost {
            *session.peer.borrow_mut() = std::rc::Weak::new();
            session.disconnected_since.set(Some(now));
            self.recovery.borrow_mut().handle_disconnected(session.client, now);
            self.wake.notify_one(); // its record is to say so
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use env_sim::{Sim, SimConfig};
    use types::{CptIndex, NidAddr};

    use super::*;
    use crate::answers::Answers;
    use crate::limits::SESSIONS_MAX;

    const INSTANCE: Instance = Instance(2);

    /// Runs `test` with exports without sessions, and a link to be told of.
    fn check(test: impl FnOnce(&Exports, &dyn Fn(u32) -> Rc<Peer>) + 'static) {
        check_after_restart(Vec::new(), test);
    }

    /// The same on a target that knows `known` from before.
    fn check_after_restart(
        known: Vec<ClientRecord>,
        test: impl FnOnce(&Exports, &dyn Fn(u32) -> Rc<Peer>) + 'static,
    ) {
        let sim = Sim::new(1, SimConfig::default());
        let node = sim.node("server", Nid::tcp(std::net::Ipv4Addr::LOCALHOST));
        let (env, addr) = (node.env(), NidAddr { nid: node.nid(), port: 988 });
        sim.block_on(&node, async move {
            let _listener = env.listen(addr).await.expect("the address is free");
            let link = env.connect(None, addr).await.expect("it listens");
            let config = ExportsConfig {
                target: TargetId::mdt(0),
                instance: INSTANCE,
                known,
                replies: Vec::new(),
                last_committed: Transno::NONE,
                recovery_window: Span::secs(30),
                recovery_window_max: Span::secs(120),
                abort_recovery: false,
                has_more_to_recover: false,
                lease: Span::secs(10),
                silence_max: Span::secs(150),
            };
            let exports = Exports::new(&env, config);
            let from = |address: u32| {
                let nid = Nid::tcp(std::net::Ipv4Addr::from(0x0a00_0000 + address));
                Peer::new(nid, 1, link.tx.clone(), CptIndex(0), &Answers::new(1 << 20))
            };
            test(&exports, &from);
        });
    }

    #[test]
    fn a_target_has_the_name_of_its_file_system_in_the_log() {
        check(|exports, _| {
            assert_eq!(exports.name(), "MDT0000");
            exports.set_fsname("testfs".parse().expect("a name"));
            assert_eq!(exports.name(), "testfs-MDT0000");
        });
    }

    /// How a Connect of `client` goes on, which has a session afterwards if it may.
    fn connect(exports: &Exports, client: u128, peer: &Rc<Peer>, xid: u64) -> Connecting {
        let decided = exports.decide(ClientId(client), &ConnectReq::default(), peer, xid);
        if matches!(decided, Connecting::Fresh { .. }) {
            let record = exports.fresh(ClientId(client), String::new(), false);
            let session = Session::new(&record, &exports.shared, exports.env.now());
            session.attach(peer, xid, exports.env.now());
            exports.insert(&session);
        }
        decided
    }

    #[test]
    fn strangers_who_take_all_sessions_they_can_get_leave_places_for_others() {
        check(|exports, from| {
            let known = from(1);
            assert!(matches!(connect(exports, 1, &known, 1), Connecting::Fresh { .. }));
            let mut client = 1_000;
            for address in 100..108 {
                let stranger = from(address);
                while !matches!(connect(exports, client, &stranger, 1), Connecting::Full) {
                    client += 1;
                }
            }
            assert!(exports.sessions().len() <= SESSIONS_MAX);
            assert!(exports.sessions().len() > SESSIONS_MAX - SESSIONS_MAX / 200);
            assert!(matches!(connect(exports, 2, &from(2), 1), Connecting::Fresh { .. }));
            let again = connect(exports, 1, &known, 2);
            assert!(matches!(again, Connecting::Fresh { old: Some(_), .. }), "it is known");
        });
    }

    #[test]
    fn a_client_has_an_unknown_address_until_it_connects() {
        check(|exports, from| {
            let record = exports.fresh(ClientId(7), "node1:/mnt".to_owned(), false);
            let session = Session::new(&record, &exports.shared, exports.env.now());
            assert_eq!(session.address(), "unknown", "known from a record alone");
            session.attach(&from(9), 1, exports.env.now());
            assert_eq!(session.address(), "10.0.0.9@tcp");
        });
    }

    #[test]
    fn a_link_that_broke_before_its_connect_was_handled_holds_up_no_recovery() {
        let client = ClientId(7);
        let record = ClientRecord::new(client, 3, String::new(), true);
        check_after_restart(vec![record], move |exports, from| {
            let (peer, now) = (from(1), exports.env.now());
            peer.tx.close();
            let req = ConnectReq { resume: 1, session: 3, is_server: 1, ..ConnectReq::default() };
            let decided = exports.decide(client, &req, &peer, 1);
            let Connecting::Resume(session) = decided else { panic!("it is known") };
            exports.recovery.borrow_mut().handle_connected(client, now);
            exports.attach(&session, &peer, 1);
            let waits_for = exports.recovery.borrow().waits_for(now);
            let is_present: Vec<bool> = waits_for.iter().map(|client| client.present).collect();
            assert_eq!(is_present, [false], "it is not there, and has 2 s to come back");
        });
    }

    #[test]
    fn sessions_that_are_being_made_have_places_too() {
        check(|exports, from| {
            for client in 0..SESSIONS_MAX as u128 / 2 {
                exports.begin_connecting(ClientId(client), from(7).nid);
            }
            let decide = |address, client| {
                let req = ConnectReq::default();
                exports.decide(ClientId(client), &req, &from(address), 1)
            };
            assert!(matches!(decide(7, 1 << 64), Connecting::Full));
            assert!(matches!(decide(8, 1 << 64), Connecting::Fresh { .. }));
        });
    }
}

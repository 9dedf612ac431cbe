//! A client's session with a target, and the record that identifies it after a restart.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use bytes::Bytes;
use ptlrpc::{Export, Known, Lane};
use tokio::sync::oneshot;
use types::{ClientId, Instance, Instant, Nid, Role, Span, TargetId, Transno};
use wire::{Reply, ReplyFlags};

use crate::in_flight::InFlight;
use crate::limits;
use crate::memory::Memory;
use crate::peer::Peer;

/// A client that a target knows, as `Table::Clients` holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    pub client: ClientId,
    pub session: u64,
    /// Its name for people.
    pub name: String,
    /// A server's own connection: its recovery is not waited for.
    pub is_server: bool,
    /// It was gone without a word when this was written: its recovery is waited for only briefly.
    pub silent: bool,
    /// For how many seconds it had been, at least.
    pub silent_secs: u8,
    /// Where it came from when this was written; the default where that is not known.
    pub nid: Nid,
}

/// Bits of a record's flags.
const SERVER: u32 = 1;
const SILENT: u32 = 2;

/// Where the seconds of silence begin in a record's flags, 8 bits of them.
const SILENT_SECS_SHIFT: u32 = 8;

/// What a record says of its client's silence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Silence {
    pub(crate) is_silent: bool,
    /// For how long at least; zero where it is not.
    pub(crate) secs: u8,
}

impl Silence {
    /// Of a client that has been silent so long, in the steps in which records say it.
    fn lasting(silent: Span, most: Span) -> Silence {
        let steps = silent.min(most).0 / limits::SILENCE_STEP.0;
        let secs = steps * (limits::SILENCE_STEP.as_millis() / 1_000);
        Silence { is_silent: true, secs: u8::try_from(secs).unwrap_or(u8::MAX) }
    }
}

/// A client's name as logs and parameters show it: of what it says at most
/// [`limits::NAME_CHARS_MAX`], in which nothing ends a line or moves a cursor.
pub(crate) fn printable(name: &str) -> String {
    types::printable(&name.chars().take(limits::NAME_CHARS_MAX).collect::<String>())
}

impl ClientRecord {
    /// Of a client that is not silent, from an address that is not known.
    pub(crate) fn new(client: ClientId, session: u64, name: String, is_server: bool) -> Self {
        let (silent, silent_secs, nid) = (false, 0, Nid::default());
        ClientRecord { client, session, name, is_server, silent, silent_secs, nid }
    }

    /// Key in `Table::Clients`: the client id, 16 bytes big-endian.
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        self.client.0.to_be_bytes().to_vec()
    }

    /// Value: session (u64), flags (u32, 1 = server, 2 = silent, seconds of that in the second
    /// byte), length of the name (u32), the name, NID (u64); little-endian. Older programs take no
    /// notice of the NID.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(24 + self.name.len());
        value.extend_from_slice(&self.session.to_le_bytes());
        assert!(self.silent || self.silent_secs == 0, "who is heard of is not silent for a time");
        let secs = u32::from(self.silent_secs) << SILENT_SECS_SHIFT;
        let silent = if self.silent { SILENT | secs } else { 0 };
        let flags = silent | if self.is_server { SERVER } else { 0 };
        value.extend_from_slice(&flags.to_le_bytes());
        value.extend_from_slice(&(self.name.len() as u32).to_le_bytes());
        value.extend_from_slice(self.name.as_bytes());
        value.extend_from_slice(&self.nid.0.to_le_bytes());
        value
    }

    /// From key and value as stored; nothing where they are none.
    #[must_use]
    pub fn decode(key: &[u8], value: &[u8]) -> Option<ClientRecord> {
        let client = ClientId(u128::from_be_bytes(key.try_into().ok()?));
        let session = u64::from_le_bytes(value.get(..8)?.try_into().ok()?);
        let flags = u32::from_le_bytes(value.get(8..12)?.try_into().ok()?);
        let len = u32::from_le_bytes(value.get(12..16)?.try_into().ok()?) as usize;
        let (name, rest) = value.get(16..)?.split_at_checked(len)?;
        let name = String::from_utf8_lossy(name).into_owned();
        let nid = rest.first_chunk().map_or(Nid::default(), |nid| Nid(u64::from_le_bytes(*nid)));
        let (is_server, silent) = (flags & SERVER != 0, flags & SILENT != 0);
        let silent_secs = if silent { (flags >> SILENT_SECS_SHIFT) as u8 } else { 0 };
        Some(ClientRecord { client, session, name, is_server, silent, silent_secs, nid })
    }
}

/// Who waits for the answer to a callback.
pub(crate) type Caller = oneshot::Sender<Reply>;

/// What all sessions of a target share in their replies.
pub(crate) struct Shared {
    pub(crate) target: TargetId,
    pub(crate) instance: Instance,
    pub(crate) committed: Cell<Transno>,
    pub(crate) assigned: Cell<Transno>,
}

pub struct Session {
    pub client: ClientId,
    /// The number in its request headers.
    pub id: u64,
    /// Where it last came from; the default before it has connected to this run of the target.
    pub nid: Cell<Nid>,
    /// Its name for people.
    pub name: String,
    /// A server's own connection.
    pub is_server: bool,
    role: Cell<Role>,
    pub(crate) epoch: Cell<u32>,
    pub(crate) heard: Cell<Instant>,
    pub(crate) peer: RefCell<Weak<Peer>>,
    /// Xid of the Connect that made or resumed it last.
    pub(crate) connect_xid: Cell<u64>,
    /// The link it came through.
    pub(crate) connect_serial: Cell<u64>,
    pub(crate) export: RefCell<Export<Rc<InFlight>>>,
    /// What its requests occupy.
    pub(crate) memory: Rc<Memory>,
    /// Before this no request under way needs housekeeping.
    pub(crate) look_at: Cell<Instant>,
    pub(crate) ended: Cell<bool>,
    /// Its replies do not renew its lease.
    pub(crate) unleased: Cell<bool>,
    /// What its client was given with lower numbers is void.
    floor: Cell<u64>,
    /// What was durable when the target started, while its client repeats what followed.
    pub(crate) replays_after: Cell<Option<Transno>>,
    /// Known from before the restart, and not come back so far.
    pub(crate) absent: Cell<bool>,
    /// Its link went down then, and no other came.
    pub(crate) disconnected_since: Cell<Option<Instant>>,
    /// What its record says of its silence, or is about to say.
    pub(crate) noted: Cell<Silence>,
    /// For how long it was silent before this run of the target, as its record said.
    silent_before: Span,
    /// Where it was when its record was written first.
    recorded_at: Nid,
    pub(crate) shared: Rc<Shared>,
    /// Callbacks to its client.
    pub(crate) lane: RefCell<Lane<Caller>>,
}

impl Session {
    pub(crate) fn new(record: &ClientRecord, shared: &Rc<Shared>, now: Instant) -> Rc<Session> {
        Rc::new(Session {
            client: record.client,
            id: record.session,
            nid: Cell::default(),
            name: types::printable(&record.name),
            is_server: record.is_server,
            role: Cell::default(),
            epoch: Cell::new(0),
            heard: Cell::new(now),
            peer: RefCell::default(),
            connect_xid: Cell::new(0),
            connect_serial: Cell::new(0),
            export: RefCell::new(Export::new(limits::TAGS_MAX)),
            memory: Memory::new(),
            look_at: Cell::new(Instant(u64::MAX)),
            ended: Cell::new(false),
            unleased: Cell::new(false),
            floor: Cell::new(0),
            replays_after: Cell::new(None),
            absent: Cell::new(false),
            disconnected_since: Cell::new(None),
            noted: Cell::new(Silence { is_silent: record.silent, secs: record.silent_secs }),
            silent_before: Span::secs(u64::from(record.silent_secs)),
            recorded_at: record.nid,
            shared: Rc::clone(shared),
            lane: RefCell::default(),
        })
    }

    /// Whether it is over: what still executes for it has no listener.
    pub fn is_ended(&self) -> bool {
        self.ended.get()
    }

    /// Whether its client is known from before a restart of the target and has not come back.
    pub fn is_absent(&self) -> bool {
        self.absent.get()
    }

    /// For how long its client was silent before this run of the target, at least: nothing renewed
    /// its lease since.
    #[must_use]
    pub fn silent_before(&self) -> Span {
        self.silent_before
    }

    /// When something of its client's came last.
    pub fn heard(&self) -> Instant {
        self.heard.get()
    }

    /// From now on replies renew its lease, or do not: its client is not to take it for longer.
    pub fn set_leased(&self, leased: bool) {
        self.unleased.set(!leased);
    }

    /// From now on each reply says that what its client was given with lower numbers is void.
    pub fn set_floor(&self, floor: u64) {
        self.floor.set(floor);
    }

    /// Where it was as its record says; the default where that is not known.
    #[must_use]
    pub fn recorded_at(&self) -> Nid {
        self.recorded_at
    }

    /// Where it last came from, for people. Its record may have an earlier address, so a client
    /// that is known from before a restart has no address until it comes back.
    #[must_use]
    pub fn address(&self) -> String {
        match self.nid.get() {
            nid if nid == Nid::default() => "unknown".to_owned(),
            nid => nid.to_string(),
        }
    }

    /// What its peer is taken for since its last Connect.
    pub fn role(&self) -> Role {
        self.role.get()
    }

    /// Whether its client is connected now.
    pub fn is_connected(&self) -> bool {
        self.peer.borrow().upgrade().is_some_and(|peer| peer.tx.is_open())
    }

    /// Whether `peer` is the other end of the link that it belongs to: the one of its last Connect.
    pub(crate) fn is_of(&self, peer: &Rc<Peer>) -> bool {
        std::ptr::eq(self.peer.borrow().as_ptr(), Rc::as_ptr(peer))
    }

    /// Its record, with what it says of its silence.
    pub(crate) fn record(&self, silence: Silence) -> ClientRecord {
        ClientRecord {
            client: self.client,
            session: self.id,
            name: self.name.clone(),
            is_server: self.is_server,
            silent: silence.is_silent,
            silent_secs: silence.secs,
            nid: match self.nid.get() {
                nid if nid == Nid::default() => self.recorded_at,
                nid => nid,
            },
        }
    }

    /// How long a restarted target waits for it.
    pub(crate) fn known(&self) -> Known {
        match (self.is_server, self.noted.get().is_silent) {
            (true, _) => Known::Server,
            (false, true) => Known::Silent,
            (false, false) => Known::Present,
        }
    }

    /// Whether its client is gone without a word: its link went, or its lease is over
    /// (`is_overdue`). One that is known from before the restart is, once it has had the time to
    /// come back (`has_waited`).
    fn is_silent(&self, is_overdue: bool, has_waited: bool) -> bool {
        if self.absent.get() {
            return has_waited || self.noted.get().is_silent;
        }
        self.disconnected_since.get().is_some() || is_overdue
    }

    /// What its record should say of its silence, where it says something else. It has lasted for
    /// `silence` in this run of the target; more than `most` is of no use. Nobody waits for a
    /// server in any case.
    pub(crate) fn unnoted(
        &self,
        is_overdue: bool,
        has_waited: bool,
        silence: Span,
        most: Span,
    ) -> Option<Silence> {
        let noted = self.noted.get();
        let mut is = Silence::default();
        if self.is_silent(is_overdue, has_waited) {
            let before = if self.absent.get() { self.silent_before } else { Span::ZERO };
            is = Silence::lasting(Span(before.0 + silence.0), most);
            is.secs = is.secs.max(noted.secs); // it was not heard of since
        }
        (!self.is_server && is != noted).then_some(is)
    }

    pub(crate) fn attach(&self, peer: &Rc<Peer>, connect_xid: u64, now: Instant) {
        self.connect_xid.set(connect_xid);
        self.connect_serial.set(peer.serial);
        self.epoch.set(self.epoch.get() + 1);
        self.nid.set(peer.nid);
        self.role.set(Role::of_peer(peer.nid, self.is_server));
        self.heard.set(now);
        self.absent.set(false);
        // the link may have broken while the session was made: nobody reports that again
        self.disconnected_since.set((!peer.tx.is_open()).then_some(now));
        *self.peer.borrow_mut() = Rc::downgrade(peer);
        self.lane.borrow_mut().handle_connected();
    }

    /// Whether a Connect is repeated or overtaken: it came through an older link than the last one,
    /// or the same and its xid is not higher. Xids of different links are not compared: a client's
    /// next life may have an earlier clock.
    pub(crate) fn is_repeated(&self, peer: &Peer, connect_xid: u64) -> bool {
        (peer.serial, connect_xid) <= (self.connect_serial.get(), self.connect_xid.get())
    }

    /// Tells the client of a request under way to wait longer.
    pub(crate) fn send_early(&self, flight: &InFlight, xid: u64, opcode: u16) {
        self.send_early_with(flight, xid, opcode, Vec::new());
    }

    /// The same; `bufs` may say for whom the request waits.
    pub(crate) fn send_early_with(
        &self,
        flight: &InFlight,
        xid: u64,
        opcode: u16,
        bufs: Vec<Bytes>,
    ) {
        planted::reached("service: an early reply was sent");
        let mut reply = Reply { bufs, ..Reply::default() };
        reply.header.version = wire::VERSION;
        (reply.header.xid, reply.header.opcode) = (xid, opcode);
        reply.header.flags = ReplyFlags::EARLY;
        let extra = flight.terms.at.get().extra;
        reply.header.lease_ms = u32::try_from(extra.as_millis()).unwrap_or(u32::MAX);
        self.fill(&mut reply);
        flight.deadline.set(flight.deadline.get().max(flight.terms.env.now() + extra));
        flight.peer().reply(&reply);
    }

    /// What its client is told to be durable. While the client replays that is what was durable
    /// before: it repeats every change after that, and hears of each refusal.
    pub(crate) fn told_committed(&self) -> Transno {
        self.replays_after.get().unwrap_or(self.shared.committed.get())
    }

    /// What every reply tells.
    pub(crate) fn fill(&self, reply: &mut Reply) {
        // a target that ends now would count its lease from before this reply
        if self.unleased.get() || self.noted.get().is_silent {
            reply.header.flags |= ReplyFlags::UNLEASED;
        }
        reply.header.instance = self.shared.instance.0;
        reply.header.last_committed = self.told_committed().0;
        reply.header.floor = self.floor.get();
    }
}

/// An answer that `Table::Replies` holds: its session remembers it.
pub(crate) fn restore(known: &BTreeMap<ClientId, Rc<Session>>, key: &[u8], value: &[u8]) {
    let client =
        key.get(..16).and_then(|id| id.try_into().ok()).map(|id| ClientId(u128::from_be_bytes(id)));
    let tag = key.get(16..20).and_then(|tag| tag.try_into().ok()).map(u32::from_be_bytes);
    let reply = Reply::decode(&Bytes::copy_from_slice(value));
    match (client, tag, reply) {
        (Some(client), Some(tag), Ok(reply)) => {
            if let Some(session) = known.get(&client) {
                session.export.borrow_mut().restore(tag, reply);
            }
        }
        _ => tracing::error!(
            "a stored reply is unreadable: its request may be executed twice if it is resent"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_record_goes_there_and_back_and_its_cuts_are_refused() {
        let record = ClientRecord {
            client: ClientId(7 << 100),
            session: 9,
            name: "node1:/mnt".to_owned(),
            is_server: true,
            silent: false,
            silent_secs: 0,
            nid: "10.0.0.7@tcp".parse().expect("a NID"),
        };
        for (is_server, silent, flags) in
            [(false, false, 0), (true, false, 1), (false, true, 2), (true, true, 3)]
        {
            let record = ClientRecord { is_server, silent, ..record.clone() };
            assert_eq!(record.encode()[8..12], [flags, 0, 0, 0]);
            assert_eq!(ClientRecord::decode(&record.key(), &record.encode()), Some(record));
        }
        let lasting = ClientRecord { silent: true, silent_secs: 11, ..record.clone() };
        assert_eq!(lasting.encode()[8..12], [3, 11, 0, 0]);
        assert_eq!(ClientRecord::decode(&lasting.key(), &lasting.encode()), Some(lasting));
        let (key, value) = (record.key(), record.encode());
        let older = value.len() - 8;
        assert!((0..older).all(|len| ClientRecord::decode(&key, &value[..len]).is_none()));
        let read = ClientRecord::decode(&key, &value[..older]);
        assert_eq!(read, Some(ClientRecord { nid: Nid::default(), ..record.clone() }), "without");
        assert_eq!(ClientRecord::decode(&key[1..], &value), None);
    }
}

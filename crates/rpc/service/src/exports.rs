//! Exports.
use std::cell::Cell;
use std::rc::Rc;
use env::Env;
use types::{ClientId, Instance, Nid, Span, TargetId, Transno};
use wire::Reply;
use crate::Incoming;

/// A client that a target knows, as `Table::Clients` holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// Who.
    pub client: ClientId,
    /// Its session.
    pub session: u64,
    /// Its name for people.
    pub name: String,
}

impl ClientRecord {
    /// Key.
    pub fn key(&self) -> Vec<u8> { unimplemented!() }
    /// Value.
    pub fn encode(&self) -> Vec<u8> { unimplemented!() }
    /// From key and value.
    pub fn decode(_key: &[u8], _value: &[u8]) -> Option<ClientRecord> { unimplemented!() }
}

/// A client's session.
pub struct Session {
    /// Client.
    pub client: ClientId,
    /// Id.
    pub id: u64,
    /// Where it last came from.
    pub nid: Cell<Nid>,
    /// Name.
    pub name: String,
}

/// Config.
pub struct ExportsConfig {
    /// Target.
    pub target: TargetId,
    /// Boot epoch.
    pub instance: Instance,
    /// Known clients.
    pub known: Vec<ClientRecord>,
    /// `Table::Replies` as stored.
    pub replies: Vec<(Vec<u8>, Vec<u8>)>,
    /// Durable up to here.
    pub last_committed: Transno,
    /// 30 s.
    pub recovery_window: Span,
    /// 120 s.
    pub recovery_window_max: Span,
    /// Strike all known clients out at once.
    pub abort_recovery: bool,
    /// 150 s.
    pub lease: Span,
}

/// The sessions of one target.
pub struct Exports {}

impl Exports {
    /// New.
    pub fn new(_env: &Env, _config: ExportsConfig) -> Rc<Exports> { unimplemented!() }
    /// The replayed one on a replay; else the next.
    pub fn next_transno(&self, _incoming: &Incoming) -> Transno { unimplemented!() }
    /// Record.
    pub fn record(&self, _incoming: &Incoming, _transno: Transno, _reply: &mut Reply) -> (Vec<u8>, Vec<u8>) { unimplemented!() }
    /// Committed.
    pub fn committed(&self, _upto: Transno) {}
    /// Last assigned.
    pub fn last_assigned(&self) -> Transno { unimplemented!() }
    /// Last committed.
    pub fn last_committed(&self) -> Transno { unimplemented!() }
    /// Sessions.
    pub fn sessions(&self) -> Vec<Rc<Session>> { unimplemented!() }
    /// Recovering.
    pub fn is_recovering(&self) -> bool { unimplemented!() }
    /// Recovery status.
    pub fn recovery_status(&self) -> String { unimplemented!() }
    /// Evict.
    pub fn evict(&self, _session: u64) {}
}

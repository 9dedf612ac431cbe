//! Records of clients and of the replies that were given to them.
//!
//! Both tables begin their keys with the client's id, so that all records of one client lie
//! together.

use osd::{StoreError, Table, View, WriteSet};
use service::ClientRecord;
use types::{ClientId, TargetKind, Transno};

use crate::boot::{all, from_reserve};
use crate::{StartError, frozen};

/// Key and value as stored.
type Pair = (Vec<u8>, Vec<u8>);

/// The reply records that a start found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replies {
    /// Replies of changes that are durable, as sessions restore them.
    pub kept: Vec<Pair>,
    /// Records of changes whose data was lost: their clients replay them.
    pub lost: Vec<(Table, Vec<u8>)>,
}

/// Clients that had a session when the last instance ended.
pub fn known_clients(view: &dyn View) -> Result<Vec<ClientRecord>, StartError> {
    all(view, Table::Clients, ClientRecord::decode)
}

/// All reply records; data is durable up to `durable`.
pub fn replies(view: &dyn View, kind: TargetKind, durable: Transno) -> Result<Replies, StartError> {
    let records = all(view, Table::Replies, |key, value| {
        let (transno, reply) = frozen::decode_reply(kind, value)?;
        Some((transno, key.to_vec(), reply.to_vec()))
    })?;
    let mut found = Replies::default();
    for (transno, key, reply) in records {
        if transno.is_none_or(|transno| transno <= durable) {
            found.kept.push((key, reply));
        } else {
            found.lost.push((Table::Replies, key));
        }
    }
    Ok(found)
}

/// The record that keeps `reply`, the frame of the reply to the change `transno`.
#[must_use]
pub fn reply_record(kind: TargetKind, transno: Transno, reply: Vec<u8>) -> Vec<u8> {
    assert!(!transno.is_none(), "only a change has a reply record");
    frozen::encode_reply(kind, transno, reply)
}

/// The set that keeps a client over restarts.
#[must_use]
pub fn remember(record: &ClientRecord) -> WriteSet {
    let mut set = from_reserve();
    set.put(Table::Clients, record.key(), record.encode());
    set
}

/// The set that brings these records up to date, where their sessions go on.
pub fn note(view: &dyn View, records: &[ClientRecord]) -> Result<WriteSet, StoreError> {
    let mut set = from_reserve();
    for record in records {
        let key = record.key();
        let stored =
            view.get(Table::Clients, &key)?.and_then(|value| ClientRecord::decode(&key, &value));
        if stored.is_some_and(|stored| stored.session == record.session) {
            set.put(Table::Clients, key, record.encode());
        }
    }
    Ok(set)
}

/// The set that forgets a client and its replies. It is empty of them where a later session of the
/// client has taken them over.
pub fn forget(view: &dyn View, client: ClientId, session: u64) -> Result<WriteSet, StoreError> {
    let mut set = from_reserve();
    let key = client.0.to_be_bytes();
    let record =
        view.get(Table::Clients, &key)?.and_then(|value| ClientRecord::decode(&key, &value));
    if record.is_some_and(|record| record.session != session) {
        return Ok(set);
    }
    for (table, key) in records_of(view, client)? {
        set.delete(table, key);
    }
    Ok(set)
}

/// Keys of a client's records, its own last: while that is there, a later start finds the others.
pub fn records_of(view: &dyn View, client: ClientId) -> Result<Vec<(Table, Vec<u8>)>, StoreError> {
    let prefix = client.0.to_be_bytes();
    let mut keys = Vec::new();
    for table in [Table::Replies, Table::Clients] {
        view.scan_within((table, &prefix), &prefix, &mut |key, _| {
            keys.push((table, key.to_vec()));
            true
        })?;
    }
    assert!(keys.iter().all(|(_, key)| key.len() >= prefix.len()), "a key names its client");
    Ok(keys)
}

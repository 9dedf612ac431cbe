//! Boot: what the records say, and the next epoch made durable before anybody is served.

use std::rc::Rc;

use env::Env;
use osd::{MetaStore, Table, View, WriteSet};
use service::{ClientRecord, Exports, ExportsConfig};
use types::{Fid, Instance, TargetId, Transno};

use crate::record::{
    self, FORMAT, META_CLEAN, META_COMMITTED, META_EPOCH, META_FORMAT, TombstoneRecord,
};
use crate::tombstones::Tombstones;
use crate::{OstConfig, StartError};

pub(crate) struct Booted {
    pub(crate) exports: Rc<Exports>,
    pub(crate) tombstones: Tombstones,
}

struct Found {
    epoch: u64,
    committed: Transno,
    clean: bool,
    clients: Vec<ClientRecord>,
    replies: Vec<(Vec<u8>, Vec<u8>)>,
    // of changes whose data was not durable: their clients replay them
    lost_replies: Vec<(Table, Vec<u8>)>,
    tombstones: Vec<(Fid, u64)>,
}

pub(crate) async fn boot(
    env: &Env,
    config: &OstConfig,
    meta: &dyn MetaStore,
) -> Result<Booted, StartError> {
    meta.ready().await;
    let found = find(&*meta.running()?)?;
    let epoch = found.epoch + 1;
    let mut set = WriteSet::new();
    set.put(Table::Meta, META_FORMAT, FORMAT.to_le_bytes());
    set.put(Table::Meta, META_EPOCH, epoch.to_le_bytes());
    set.delete(Table::Meta, META_CLEAN);
    // a crash before the epoch leaves the rest to the next start
    osd::remove_all(meta, &found.lost_replies).await?;
    meta.ready().await;
    meta.apply(&set)?;
    meta.commit().await?;
    let target = TargetId::ost(config.index);
    let (clients, replies, lost) =
        (found.clients.len(), found.replies.len(), found.lost_replies.len());
    tracing::info!(%target, epoch, clean = found.clean, clients, replies, lost, committed = found.committed.0, "boots");

    let sessions =
        found.clients.iter().filter(|record| !record.is_server).map(|record| record.session);
    let tombstones = Tombstones::load(found.tombstones, sessions);
    let exports = ExportsConfig {
        target,
        instance: Instance(epoch),
        known: found.clients,
        replies: found.replies,
        last_committed: found.committed,
        recovery_window: config.recovery_window,
        recovery_window_max: config.recovery_window_max,
        abort_recovery: config.abort_recovery,
        lease: config.lease,
    };
    Ok(Booted { exports: Exports::new(env, exports), tombstones })
}

fn find(view: &dyn View) -> Result<Found, StartError> {
    let word = |key: &[u8]| -> Result<u64, StartError> {
        match view.get(Table::Meta, key)? {
            None => Ok(0),
            Some(bytes) => record::decode_u64(&bytes).ok_or_else(|| bad("a counter", key)),
        }
    };
    if let Some(format) = view.get(Table::Meta, META_FORMAT)? {
        let format =
            format.try_into().map(u16::from_le_bytes).map_err(|_| bad("a version", META_FORMAT))?;
        if format > FORMAT {
            return Err(StartError::Format(format!(
                "format {format} is newer than {FORMAT}, the newest that is known here"
            )));
        }
    }
    let mut found = Found {
        epoch: word(META_EPOCH)?,
        committed: Transno(word(META_COMMITTED)?),
        clean: view.get(Table::Meta, META_CLEAN)?.is_some(),
        clients: Vec::new(),
        replies: Vec::new(),
        lost_replies: Vec::new(),
        tombstones: Vec::new(),
    };
    found.clients = all(view, Table::Clients, ClientRecord::decode)?;
    found.tombstones = all(view, Table::Tombstones, |key, value| {
        Some((Fid::from_key(key)?, TombstoneRecord::decode(value)?.number))
    })?;
    let replies = all(view, Table::Replies, |key, value| {
        let (transno, reply) = record::decode_reply(value)?;
        Some((transno, key.to_vec(), reply.to_vec()))
    })?;
    for (transno, key, reply) in replies {
        if transno <= found.committed {
            found.replies.push((key, reply));
        } else {
            found.lost_replies.push((Table::Replies, key));
        }
    }
    Ok(found)
}

fn all<T>(
    view: &dyn View,
    table: Table,
    mut decode: impl FnMut(&[u8], &[u8]) -> Option<T>,
) -> Result<Vec<T>, StartError> {
    let mut values = Vec::new();
    let mut broken = None;
    view.scan(table, &[], &mut |key, value| match decode(key, value) {
        Some(decoded) => {
            values.push(decoded);
            true
        }
        None => {
            broken = Some(key.to_vec());
            false
        }
    })?;
    match broken {
        None => Ok(values),
        Some(key) => Err(bad(&format!("a record of {table:?}"), &key)),
    }
}

fn bad(what: &str, key: &[u8]) -> StartError {
    StartError::Format(format!("{what} is broken (key {key:02x?})"))
}

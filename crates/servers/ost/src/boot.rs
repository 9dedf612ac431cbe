//! The start: reads the records, and makes the next epoch durable before the first connection.

use std::rc::Rc;

use env::Env;
use osd::{MetaStore, Table, View, WriteSet};
use service::{ClientRecord, Exports, ExportsConfig};
use target::{Replies, StartError};
use types::{Fid, TargetId, TargetKind, Transno};

use crate::OstConfig;
use crate::fences::Fences;
use crate::mdts::Mdts;
use crate::record::{META_CLEAN, META_COMMITTED, TombstoneRecord};
use crate::tombstones::Tombstones;

pub(crate) struct Booted {
    pub(crate) exports: Rc<Exports>,
    pub(crate) tombstones: Tombstones,
    pub(crate) fences: Fences,
    pub(crate) mdts: Mdts,
}

struct Found {
    committed: Transno,
    clean: bool,
    clients: Vec<ClientRecord>,
    replies: Replies,
    tombstones: Vec<(Fid, u64)>,
    fences: Fences,
    mdts: Mdts,
}

pub(crate) async fn boot(
    env: &Env,
    config: &OstConfig,
    meta: &dyn MetaStore,
) -> Result<Booted, StartError> {
    meta.ready().await;
    let found = find(&*meta.running()?)?;
    let Found { committed, clean, clients, replies, tombstones, fences, mdts } = found;
    // a crash before the epoch leaves the rest to the next start
    osd::remove_all(meta, &replies.lost).await?;
    let mut set = WriteSet::new();
    set.delete(Table::Meta, META_CLEAN);
    let instance = target::begin(meta, TargetKind::Ost, set).await?;
    let target = TargetId::ost(config.index);
    tracing::info!(
        target_id = %target.name(config.fsname),
        epoch = instance.0,
        clean,
        clients = clients.len(),
        replies = replies.kept.len(),
        lost = replies.lost.len(),
        committed = committed.0,
        "starts"
    );

    let sessions = clients.iter().filter(|record| !record.is_server).map(|record| record.session);
    let tombstones = Tombstones::load(tombstones, sessions)
        .ok_or_else(|| StartError::Broken("a tombstone's number".to_owned()))?;
    let exports = ExportsConfig {
        target,
        instance,
        known: clients,
        replies: replies.kept,
        last_committed: committed,
        recovery_window: config.recovery_window,
        recovery_window_max: config.recovery_window_max,
        abort_recovery: config.abort_recovery,
        has_more_to_recover: false,
        lease: config.lease,
        silence_max: config.lease,
    };
    let exports = Exports::new(env, exports);
    exports.set_fsname(config.fsname);
    Ok(Booted { exports, tombstones, fences, mdts })
}

fn find(view: &dyn View) -> Result<Found, StartError> {
    let _a_later_version_is_refused_first = target::next_instance(view, TargetKind::Ost)?;
    let committed = Transno(target::word(view, META_COMMITTED)?.unwrap_or(0));
    Ok(Found {
        committed,
        clean: view.get(Table::Meta, META_CLEAN)?.is_some(),
        clients: target::known_clients(view)?,
        replies: target::replies(view, TargetKind::Ost, committed)?,
        tombstones: target::all(view, Table::Tombstones, |key, value| {
            Some((Fid::from_key(key)?, TombstoneRecord::decode(value)?.number))
        })?,
        fences: Fences::load(view)?.ok_or_else(|| StartError::Broken("a fence".to_owned()))?,
        mdts: Mdts::load(view)?.ok_or_else(|| StartError::Broken("an MDT's store".to_owned()))?,
    })
}

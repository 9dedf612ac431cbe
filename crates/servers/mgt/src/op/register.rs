//! A server announces a target: its address and its instance. Durable before the answer.
//!
//! The first storage that registers an index keeps it. Repeating a known registration changes
//! nothing, not even the version. Only servers may ask, each for a target at its own address; a
//! server on the MGS's node may name any address. The errors are:
//! - EPERM: the caller is not a server, or names an address that it may not.
//! - EADDRINUSE: another storage has the index, or an MDT of this index was forgotten.
//! - ESTALE: the instance is lower than the known one, so the storage was restored from an older
//!   copy, or is served twice.
//! - EOPNOTSUPP: an MDT of an index that is too high, or its data target.
//! - E2BIG: one file system or target too many.
//! - EBUSY: another server is connected from the target's known address, and a target does not move
//!   while that is so. The caller tries again.

use osd::{StoreError, Table, View, WriteSet};
use service::Incoming;
use target::OpError;
use types::{Errno, FsName, MDTS_MAX, Nid, NidAddr, Role, TargetId, TargetKind};
use wire::Reply;
use wire::config::{Register, active_param};

use super::answer;
use crate::limits::{FILE_SYSTEMS_MAX, TARGETS_MAX};
use crate::record::{self, StoredTarget};
use crate::target::Mgt;

impl Mgt {
    /// Whether a server is connected from `nid`, other than the asker.
    fn hears(&self, incoming: &Incoming, nid: u64) -> bool {
        let others = self.exports.sessions().into_iter().filter(|session| {
            session.id != incoming.session.id && session.is_server && session.is_connected()
        });
        others.into_iter().any(|session| session.nid.get() == Nid(nid))
    }
}

/// Whether the asker may name this address. One that is none means the MGS's own.
fn speaks_for(incoming: &Incoming, nid: Nid) -> bool {
    let is_its = incoming.peer() == nid || nid.addr().is_unspecified();
    is_its || incoming.session.role() == Role::Administrator
}

/// Whether an MDT of this index was forgotten.
fn is_forgotten(view: &dyn View, fsname: FsName, mdt: TargetId) -> Result<bool, StoreError> {
    let key = record::param_key(fsname, &active_param(mdt, fsname));
    Ok(view.get(Table::Config, &key)?.is_some_and(|value| value == b"0"))
}

/// Whether a file system is new, and as many are known as there may be.
fn is_one_too_many(view: &dyn View, fsname: FsName) -> Result<bool, StoreError> {
    let is_new = record::version(view, fsname)? == 0;
    Ok(is_new && record::fs_names(view)?.len() >= FILE_SYSTEMS_MAX)
}

pub(crate) async fn execute(mgt: &Mgt, incoming: &Incoming) -> Result<Reply, Errno> {
    let register: Register = wire::config::decode(&incoming.request.buf(0)).ok_or(Errno::EPROTO)?;
    let fsname: FsName = register.fsname.parse().map_err(|_| Errno::EINVAL)?;
    let target = TargetId::from_u32(register.target.id)
        .filter(|id| matches!(id.kind, TargetKind::Mdt | TargetKind::Ost))
        .ok_or(Errno::EINVAL)?;
    let mdt = target.dom_of().unwrap_or(target);
    if mdt.kind == TargetKind::Mdt && mdt.index >= MDTS_MAX {
        return Err(Errno::EOPNOTSUPP);
    }
    if !speaks_for(incoming, Nid(register.target.nid)) {
        return Err(Errno::EPERM);
    }
    let wanted = StoredTarget { info: register.target, uuid: register.uuid };
    let key = record::target_key(fsname, target.to_u32());
    mgt.change(|view| {
        let known = view.get(Table::Config, &key)?.and_then(|bytes| StoredTarget::decode(&bytes));
        if mdt.kind == TargetKind::Mdt && is_forgotten(view, fsname, mdt)? {
            tracing::warn!(target_id = %target.name(fsname), peer = %incoming.peer(), "refused: an MDT of this index was forgotten, and files may have ids that it gave");
            return Err(OpError::Refused(Errno::EADDRINUSE));
        }
        let mut set = WriteSet::new();
        match known {
            Some(known) if known.uuid != wanted.uuid => {
                return Err(OpError::Refused(Errno::EADDRINUSE));
            }
            Some(known) if known.info.instance > wanted.info.instance => {
                let (known, asked) = (known.info.instance, wanted.info.instance);
                tracing::warn!(target_id = %target.name(fsname), known, asked, "refused: the target's instance goes back");
                return Err(OpError::Refused(Errno::ESTALE));
            }
            Some(known) if known == wanted => return Ok((set, ())),
            Some(known) if known.info.nid != wanted.info.nid && mgt.hears(incoming, known.info.nid) => {
                tracing::warn!(target_id = %target.name(fsname), known = %Nid(known.info.nid), peer = %incoming.peer(), "refused: a server is connected from the address that is known");
                return Err(OpError::Refused(Errno::EBUSY));
            }
            Some(_) => {}
            None if record::fs_config(view, fsname)?.targets.len() >= TARGETS_MAX => {
                return Err(OpError::Refused(Errno::E2BIG));
            }
            None if is_one_too_many(view, fsname)? => {
                tracing::warn!(target_id = %target.name(fsname), peer = %incoming.peer(), "refused: the MGS has {FILE_SYSTEMS_MAX} file systems, and this is another one");
                return Err(OpError::Refused(Errno::E2BIG));
            }
            None => {}
        }
        let version = record::next_version(view, fsname)?;
        set.put(Table::Config, key.clone(), wanted.encode());
        set.put(Table::Config, record::version_key(fsname), version.to_le_bytes());
        Ok((set, ()))
    })
    .await?;
    let config = mgt.look(|view| record::fs_config(view, fsname)).await?;
    let at = NidAddr { nid: Nid(wanted.info.nid), port: wanted.info.port };
    tracing::info!(target_id = %target.name(fsname), nid = %at, instance = wanted.info.instance, "registered");
    Ok(answer(incoming, &config))
}

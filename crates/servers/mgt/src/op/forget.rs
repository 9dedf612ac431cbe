//! Removes a target from the configuration of its file system. Its storage is not touched, and
//! neither are the names of files that have objects there. An OST is set inactive, so that these
//! files return EIO at once. The index is free: another storage may register it. The OST leaves its
//! pools, because another storage of this index may not suit the pool.
//!
//! The index of an MDT stays taken. Files that have moved away keep objects with ids of that MDT,
//! and a new store would give these ids again. The data target of the MDT goes with it.

use osd::{Table, WriteSet};
use target::OpError;
use types::{Errno, FsName, MDTS_MAX, TargetId, TargetKind};
use wire::config::active_param;

use super::pool;
use crate::record;
use crate::target::Mgt;

/// Forgets it, durably.
pub(crate) async fn forget(mgt: &Mgt, fsname: FsName, target: TargetId) -> Result<(), Errno> {
    let key = record::target_key(fsname, target.to_u32());
    mgt.change(|view| {
        if view.get(Table::Config, &key)?.is_none() {
            return Err(OpError::Refused(Errno::ENOENT));
        }
        let mut set = WriteSet::new();
        set.delete(Table::Config, key.clone());
        if matches!(target.kind, TargetKind::Ost | TargetKind::Mdt) {
            let param = active_param(target, fsname);
            set.put(Table::Config, record::param_key(fsname, &param), "0");
        }
        if target.kind == TargetKind::Mdt && target.index < MDTS_MAX {
            let data = TargetId::dom(target.index).to_u32();
            set.delete(Table::Config, record::target_key(fsname, data));
        }
        let known = record::fs_config(view, fsname)?;
        if target.is_ost() {
            for (name, osts) in pool::without(&known, target.index) {
                pool::put(&mut set, fsname, &name, &osts).map_err(OpError::Refused)?;
            }
        }
        let version = known.version + 1;
        set.put(Table::Config, record::version_key(fsname), version.to_le_bytes());
        Ok((set, ()))
    })
    .await?;
    tracing::warn!("{} is forgotten", target.name(fsname));
    Ok(())
}

//! Pools of OSTs: a name and its members, kept as a permanent parameter of the file system
//! ([`wire::config::pool_param`]). Durable before the answer.

use osd::{Table, WriteSet};
use target::OpError;
use types::{Errno, FsName, TargetId};
use wire::config::{self, FsConfig};

use crate::limits::{PARAM_NAME_BYTES_MAX, PARAM_VALUE_BYTES_MAX, PARAMS_MAX, POOLS_MAX};
use crate::record;
use crate::target::Mgt;

/// What to do with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolChange {
    /// Make it, empty.
    New,
    /// One more member.
    Add(u32),
    /// One member less.
    Remove(u32),
    /// Remove it; it must be empty.
    Destroy,
}

/// Does it, durably.
pub(crate) async fn change(
    mgt: &Mgt,
    fsname: FsName,
    pool: &str,
    change: PoolChange,
) -> Result<(), Errno> {
    layout::pool::padded(pool).map_err(|_| Errno::EINVAL)?;
    let param = config::pool_param(fsname.as_str(), pool);
    assert!(param.len() <= PARAM_NAME_BYTES_MAX, "a pool's name is short");
    let key = record::param_key(fsname, &param);
    mgt.change(|view| {
        let known = record::fs_config(view, fsname)?;
        let mut set = WriteSet::new();
        match decide(&known, pool, change).map_err(OpError::Refused)? {
            Some(osts) => put(&mut set, fsname, pool, &osts).map_err(OpError::Refused)?,
            None => set.delete(Table::Config, key.clone()),
        }
        let version = known.version + 1;
        set.put(Table::Config, record::version_key(fsname), version.to_le_bytes());
        Ok((set, ()))
    })
    .await
}

/// Stores the members of a pool.
pub(super) fn put(
    set: &mut WriteSet,
    fsname: FsName,
    pool: &str,
    osts: &[u32],
) -> Result<(), Errno> {
    let value = config::encode_pool(osts);
    if value.len() > PARAM_VALUE_BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    let param = config::pool_param(fsname.as_str(), pool);
    set.put(Table::Config, record::param_key(fsname, &param), value);
    Ok(())
}

/// The pools that have this OST, and their other members.
pub(super) fn without(known: &FsConfig, ost: u32) -> Vec<(String, Vec<u32>)> {
    let mut pools: Vec<_> = known.pools().into_iter().collect();
    pools.retain(|(_, members)| members.contains(&ost));
    pools.iter_mut().for_each(|(_, members)| members.retain(|member| *member != ost));
    pools
}

/// The members afterwards, none where it is gone.
fn decide(known: &FsConfig, pool: &str, change: PoolChange) -> Result<Option<Vec<u32>>, Errno> {
    if known.version == 0 {
        return Err(Errno::ENOENT);
    }
    let mut pools = known.pools();
    let count = pools.len();
    let members = pools.remove(pool);
    match (change, members) {
        (PoolChange::New, Some(_)) => Err(Errno::EEXIST),
        (PoolChange::New, None) if count >= POOLS_MAX || known.params.len() >= PARAMS_MAX => {
            Err(Errno::E2BIG)
        }
        (PoolChange::New, None) => Ok(Some(Vec::new())),
        (_, None) => Err(Errno::ENOENT),
        (PoolChange::Add(ost), Some(_)) if !has_ost(known, ost) => Err(Errno::ENODEV),
        (PoolChange::Add(ost), Some(members)) if members.contains(&ost) => Err(Errno::EEXIST),
        (PoolChange::Add(ost), Some(mut members)) => {
            members.push(ost);
            members.sort_unstable();
            Ok(Some(members))
        }
        (PoolChange::Remove(ost), Some(members)) if !members.contains(&ost) => Err(Errno::ENOENT),
        (PoolChange::Remove(ost), Some(mut members)) => {
            members.retain(|member| *member != ost);
            Ok(Some(members))
        }
        (PoolChange::Destroy, Some(members)) if !members.is_empty() => Err(Errno::ENOTEMPTY),
        (PoolChange::Destroy, Some(_)) => Ok(None),
    }
}

fn has_ost(known: &FsConfig, index: u32) -> bool {
    let id = TargetId::ost(index);
    id.is_ost() && known.targets.iter().any(|target| target.id == id.to_u32())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::config::TargetInfo;

    #[test]
    fn a_pool_is_made_filled_emptied_and_removed() {
        let target = |index| {
            let id = TargetId::ost(index).to_u32();
            TargetInfo { id, nid: 1, port: 988, instance: 1 }
        };
        let mut known = FsConfig {
            fsname: "testfs".to_owned(),
            version: 1,
            targets: [0, 1, 5].map(target).into(),
            ..FsConfig::default()
        };
        let mut step = |change| {
            let members = decide(&known, "flash", change)?;
            known.params = members
                .iter()
                .map(|osts| (config::pool_param("testfs", "flash"), config::encode_pool(osts)))
                .collect();
            Ok(members)
        };
        assert_eq!(step(PoolChange::Add(0)), Err(Errno::ENOENT));
        assert_eq!(step(PoolChange::New), Ok(Some(vec![])));
        assert_eq!(step(PoolChange::New), Err(Errno::EEXIST));
        assert_eq!(step(PoolChange::Add(5)), Ok(Some(vec![5])));
        assert_eq!(step(PoolChange::Add(0)), Ok(Some(vec![0, 5])));
        assert_eq!(step(PoolChange::Add(5)), Err(Errno::EEXIST));
        assert_eq!(step(PoolChange::Add(2)), Err(Errno::ENODEV));
        assert_eq!(step(PoolChange::Remove(1)), Err(Errno::ENOENT));
        assert_eq!(step(PoolChange::Destroy), Err(Errno::ENOTEMPTY));
        assert_eq!(step(PoolChange::Remove(0)), Ok(Some(vec![5])));
        assert_eq!(step(PoolChange::Remove(5)), Ok(Some(vec![])));
        assert_eq!(step(PoolChange::Destroy), Ok(None));
        assert_eq!(step(PoolChange::Destroy), Err(Errno::ENOENT));
    }
}

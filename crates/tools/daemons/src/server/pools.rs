//! Pools of OSTs at a server: the pools that the MGS stores, the copies at other nodes, and
//! changes.

use std::rc::Rc;

use ctl::{Failure, Pools, Reply};
use mgt::{Mgt, PoolChange};
use types::{Errno, FsName, TargetId};
use wire::config::FsConfig;

use super::Server;

/// What a configuration says of pools.
pub(crate) fn of_config(config: &FsConfig) -> Pools {
    let osts = config.targets.iter().filter_map(|info| TargetId::from_u32(info.id));
    Pools {
        fsname: config.fsname.clone(),
        osts: osts.filter(|id| id.is_ost()).map(|id| id.index).collect(),
        pools: config.pools(),
    }
}

/// The pools of `fsname`; without a name of the only file system that there is. Where targets of it
/// are served they answer, because that is what new files are placed by.
pub(super) async fn list(server: Option<Rc<Server>>, fsname: &str) -> Result<Reply, Failure> {
    let gone = || Failure::of(Errno::ESHUTDOWN);
    let server = server.ok_or_else(gone)?;
    let own = server.peers.fsname().filter(|own| fsname.is_empty() || own.as_str() == fsname);
    if own.is_some() && server.serves_mdt() {
        return Ok(Reply::Pools(of_config(&server.peers.config())));
    }
    match server.mgt() {
        Some(mgt) => kept(&mgt, fsname).await.map(Reply::Pools),
        None => Err(Failure { errno: Errno::ENODEV.raw(), text: "no MGS is here".into() }),
    }
}

async fn kept(mgt: &Mgt, fsname: &str) -> Result<Pools, Failure> {
    let mut configs = mgt.configs().await.map_err(Failure::of)?;
    let all: Vec<String> = configs.iter().map(|(name, _)| name.to_string()).collect();
    configs.retain(|(name, _)| fsname.is_empty() || name.as_str() == fsname);
    match &configs[..] {
        [(_, config)] => Ok(of_config(config)),
        [] if all.is_empty() => {
            Err(failed(Errno::ENOENT, "the MGS knows no file system: start a target".to_owned()))
        }
        [] => Err(failed(
            Errno::ENOENT,
            format!("the MGS knows no file system '{fsname}': name one of {}", all.join(", ")),
        )),
        _ => Err(failed(Errno::EINVAL, "the MGS knows several: say FSNAME.POOL".to_owned())),
    }
}

/// Changes one, and says how they are then.
pub(super) async fn change(
    mgt: &Mgt,
    fsname: &str,
    pool: &str,
    change: ctl::PoolChange,
) -> Result<Reply, Failure> {
    let known = kept(mgt, fsname).await?;
    let name: FsName = known.fsname.parse().map_err(|_| Failure::of(Errno::EINVAL))?;
    let ost = |index: u32| format!("{}_UUID", TargetId::ost(index).name(name));
    let (change, what) = match change {
        ctl::PoolChange::New => (PoolChange::New, String::new()),
        ctl::PoolChange::Add(index) => (PoolChange::Add(index), ost(index)),
        ctl::PoolChange::Remove(index) => (PoolChange::Remove(index), ost(index)),
        ctl::PoolChange::Destroy => (PoolChange::Destroy, String::new()),
    };
    if let Err(errno) = mgt.pool(name, pool, change).await {
        let why = match (errno, change) {
            (Errno::EINVAL, _) => {
                "a pool's name is 1 to 15 characters of A-Z a-z 0-9 _ -, and not \
                                   none, ignore or inherit"
                    .to_owned()
            }
            (Errno::EEXIST, PoolChange::New) => format!("pool {name}.{pool} is there already"),
            (Errno::EEXIST, _) => format!("{what} is in pool {name}.{pool} already"),
            (Errno::ENODEV, _) => format!("there is no {what}"),
            (Errno::ENOENT, PoolChange::Remove(_)) if known.pools.contains_key(pool) => {
                format!("{what} is not in pool {name}.{pool}")
            }
            (Errno::ENOENT, _) => {
                format!("there is no pool {name}.{pool}: see lctl pool_list {name}")
            }
            (Errno::ENOTEMPTY, _) => {
                format!("pool {name}.{pool} has members: take them out with pool_remove first")
            }
            (errno, _) => errno.text().to_owned(),
        };
        return Err(failed(errno, why));
    }
    Ok(Reply::Pools(kept(mgt, name.as_str()).await?))
}

fn failed(errno: Errno, text: String) -> Failure {
    Failure { errno: errno.raw(), text }
}

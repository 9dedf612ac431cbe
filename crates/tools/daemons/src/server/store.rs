//! Opens a target's storage.

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use mdt::HighestIds;
use osd::{MetaStore, ObjStore, Space, Table, WriteSet};
use osd_disk::{DiskError, DiskMeta, DiskObjects, MetaOptions, ObjOptions, Statvfs, superblock};
use types::{ClientId, TargetId, TargetKind};

use super::Culprit;
use super::sizes::forget_sizes;
use crate::targets::{self, TargetDir};

/// What an administrator says of storage that is not what it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Nothing: it must be whole, and no older than what the MGS knows.
    #[default]
    Whole,
    /// Parts are lost for good: start without them.
    ResetEmpty,
    /// An older copy was put in its place.
    OlderCopy,
}

/// Records, and objects where the target has them.
pub(crate) struct Opened {
    pub(crate) meta: Rc<dyn MetaStore>,
    pub(crate) objects: Option<Rc<dyn ObjStore>>,
    /// The objects once more: files of a disk.
    pub(crate) files: Option<Rc<DiskObjects>>,
    /// The records once more: a disk's own.
    pub(crate) disk: Rc<DiskMeta>,
    statvfs: Statvfs,
}

impl Opened {
    /// Opens what the target's kind needs; [`check_parts`] comes before. It `follows` another one
    /// that may have been lost.
    pub(super) async fn open(target: &TargetDir, trust: Trust, follows: bool) -> Result<Opened> {
        let missing = superblock::missing_parts(&target.dir, &target.superblock)?;
        let opened = Opened::open_parts(target)?;
        let kind = target.superblock.target.kind;
        let has_started = {
            let view = opened.meta.running().context("records")?;
            target::next_instance(&*view, kind)?.0 > 1
        };
        if target.superblock.was_served() && !has_started {
            if trust != Trust::ResetEmpty {
                return Err(targets::lost(target, vec![target.dir.join("records")]).into());
            }
            begin_anew(target.superblock.target, &*opened.meta, &HighestIds::default()).await?;
        }
        if follows && !has_started {
            // the MGS and clients know of that
            begin_anew(target.superblock.target, &*opened.meta, &HighestIds::default()).await?;
        }
        if !missing.is_empty() {
            tracing::warn!("{}: --reset-empty: {}", target.name(), consequence(kind));
        }
        if trust == Trust::OlderCopy {
            if kind == TargetKind::Mdt {
                // first: a start that was cut short before the instance rose is refused once more
                forget_sizes(&*opened.meta).await?;
            }
            begin_anew(target.superblock.target, &*opened.meta, &HighestIds::default()).await?;
            forget_clients(kind, &*opened.meta).await?;
            tracing::warn!(
                "{}: --older-copy: work that was acknowledged since the copy is lost, and clients are evicted",
                target.name()
            );
        }
        Ok(opened)
    }

    fn open_parts(target: &TargetDir) -> Result<Opened> {
        let meta = DiskMeta::open(&target.dir, &MetaOptions::default())?;
        let files = match target.superblock.target.kind {
            TargetKind::Ost => Some(DiskObjects::open(&target.dir, &ObjOptions::default())?),
            _ => None,
        };
        let statvfs = Statvfs::start(&target.dir).context("statvfs")?;
        let objects = files.clone().map(|files| files as Rc<dyn ObjStore>);
        Ok(Opened { disk: meta.clone(), meta, objects, files, statvfs })
    }

    /// Room: of the records, or where there are objects of the file system below them.
    pub(crate) fn space(&self) -> Option<Space> {
        if self.objects.is_none() {
            return self.meta.space().ok();
        }
        self.statvfs.get().ok()
    }
}

/// Looks for what targets lack, before any of them is opened; whether it is to be reset.
pub(super) fn check_parts(found: &[TargetDir], trust: Trust) -> Result<bool> {
    let mut any = false;
    for target in found {
        match targets::check_parts(target) {
            Err(DiskError::Lost { .. }) if trust == Trust::ResetEmpty => any = true,
            checked => checked.context(Culprit::of(target))?,
        }
    }
    Ok(any)
}

/// A reset that nothing asks for is refused: left in a start script, it would reset a target one
/// day when its disk is not mounted.
pub(super) fn refuse_idle_reset(trust: Trust, any: bool) -> Result<()> {
    let is_asked_for = any || trust != Trust::ResetEmpty;
    ensure!(is_asked_for, "--reset-empty: no target here lacks a part; start without it");
    Ok(())
}

/// What an administrator gives up.
fn consequence(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Mdt => {
            "it starts without the parts that are missing: without records all names are lost, objects on OSTs stay without \
             a name and take room, and clients are evicted; without data what files had there is lost"
        }
        TargetKind::Ost => {
            "it starts without the parts that are missing: what files had here is lost, and they answer EIO where it was; \
             clients whose records are missing are evicted"
        }
        TargetKind::Mgt | TargetKind::Lst => {
            "it starts without records: permanent parameters are lost, and servers register their targets again"
        }
    }
}

/// A store without records follows one that clients, the MGS and OSTs remember. Its instance is
/// higher than any of that one, by the clock. Ids begin where none has been: by the clock, and
/// behind `highest`.
pub(crate) async fn begin_anew(
    TargetId { kind, index }: TargetId,
    meta: &dyn MetaStore,
    highest: &HighestIds,
) -> Result<()> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let floor = u32::try_from(seconds).unwrap_or(u32::MAX / 2);
    let set = {
        let view = meta.running().context("records")?;
        let mut set = target::above(&*view, kind, floor)?;
        if kind == TargetKind::Mdt {
            mdt::ids_anew(&mut set, &*view, index, seconds, highest).context("records")?;
        }
        if kind == TargetKind::Mgt {
            mgt::begin_anew(&mut set, &*view, floor).context("records")?;
        }
        set
    };
    osd::apply(meta, &set).await.context("records")?;
    meta.commit().await.context("records")
}

/// Clients of the time of a copy: none of them has a session that goes on from there. OSTs refuse
/// the sessions that they had with an MDT, also those that began after the copy.
pub(crate) async fn forget_clients(kind: TargetKind, meta: &dyn MetaStore) -> Result<()> {
    if kind == TargetKind::Mdt {
        let mut set = WriteSet::new();
        let first = target::next_instance(&*meta.running().context("records")?, kind)?;
        mdt::sessions_anew(&mut set, first);
        osd::apply(meta, &set).await.context("records")?;
    }
    let behind_all = [u8::MAX; osd::KEY_BYTES_MAX + 1];
    for table in [Table::Clients, Table::Replies] {
        let gone = osd::remove_range(meta, table, (&[0], &behind_all)).await;
        gone.context("records of clients")?;
    }
    meta.commit().await.context("records of clients")
}

/// Forgets clients that are known to be dead, durably and before the target boots: recovery does
/// not wait for them. What they had open is swept with what nobody re-opened.
pub(super) async fn strike_out(meta: &dyn MetaStore, dead: &[ClientId]) -> Result<()> {
    if dead.is_empty() {
        return Ok(());
    }
    let mut keys = Vec::new();
    for client in dead {
        let found = meta.running().and_then(|view| target::records_of(&*view, *client));
        keys.extend(found.context("records of clients")?);
    }
    if keys.is_empty() {
        return Ok(());
    }
    osd::remove_all(meta, &keys).await.context("records of clients")?;
    meta.commit().await.context("records of clients")
}

/// The servers called `name` that a store knows as clients. It keeps long names cut.
pub(super) async fn servers_called(meta: &dyn MetaStore, name: &str) -> Result<Vec<ClientId>> {
    meta.ready().await;
    let view = meta.running().context("records of clients")?;
    let known = target::known_clients(&*view).context("records of clients")?;
    let own = known.iter().filter(|known| known.is_server && name.starts_with(&known.name));
    Ok(own.map(|known| known.client).collect())
}

#[cfg(test)]
mod tests {
    use osd::{Table, WriteSet};

    use super::*;

    fn keys(meta: &dyn MetaStore, table: Table) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let view = meta.running().expect("ready");
        view.scan(table, &[0], &mut |key, _| {
            keys.push(key.to_vec());
            true
        })
        .expect("a scan");
        keys
    }

    #[test]
    fn a_dead_client_is_forgotten_and_others_are_not() {
        let dir = std::env::temp_dir().join(format!("nacre-strike-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        env_os::run(env_os::OsConfig::default(), |_| async {
            let meta = DiskMeta::open(&dir, &MetaOptions::default()).expect("a store");
            let (dead, alive) = (ClientId(7), ClientId(8));
            let mut set = WriteSet::new();
            for client in [dead, alive] {
                set.put(Table::Clients, client.0.to_be_bytes(), *b"x");
                for tag in 0..3_u32 {
                    set.put(
                        Table::Replies,
                        [client.0.to_be_bytes().as_slice(), &tag.to_be_bytes()].concat(),
                        *b"y",
                    );
                }
            }
            meta.apply(&set).expect("room");
            strike_out(&*meta, &[dead, ClientId(9)]).await.expect("a commit");
            assert_eq!(keys(&*meta, Table::Clients), [alive.0.to_be_bytes().to_vec()]);
            assert_eq!(keys(&*meta, Table::Replies).len(), 3);
        });
        std::fs::remove_dir_all(&dir).expect("cleaned up");
    }
}

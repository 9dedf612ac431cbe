//! A target's storage, opened.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result};
use osd::{MetaStore, ObjStore, Space};
use osd_disk::{DiskMeta, DiskObjects, MetaOptions, ObjOptions};
use types::{ClientId, TargetKind};

use crate::targets::TargetDir;

/// Records, and objects where the target has them.
pub(crate) struct Opened {
    pub(crate) meta: Rc<dyn MetaStore>,
    pub(crate) objects: Option<Rc<dyn ObjStore>>,
    dir: PathBuf,
}

impl Opened {
    /// Opens what the target's kind needs.
    pub(super) fn open(target: &TargetDir) -> Result<Opened> {
        let meta = DiskMeta::open(&target.dir, &MetaOptions::default())?;
        let objects: Option<Rc<dyn ObjStore>> = match target.superblock.target.kind {
            TargetKind::Ost => Some(DiskObjects::open(&target.dir, &ObjOptions::default())?),
            _ => None,
        };
        Ok(Opened { meta, objects, dir: target.dir.clone() })
    }

    /// Room: of the records, or where there are objects of the file system below them.
    pub(crate) fn space(&self) -> Option<Space> {
        if self.objects.is_none() {
            return self.meta.space().ok();
        }
        let stat = rustix::fs::statvfs(&self.dir).ok()?;
        let (bytes, bytes_free) = (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize);
        Some(Space { bytes, bytes_free, files: stat.f_files, files_free: stat.f_ffree })
    }
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

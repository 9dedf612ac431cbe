//! Sizes of files in an MDT's store that is an older copy.

use anyhow::{Context, Result};
use osd::{MetaStore, StoreError, Table, WriteSet};

/// Inodes of one set: few, because the store may be almost full.
const INODES_AT_ONCE: usize = 64;
/// Bytes applied before a commit.
const DIRTY_BYTES_MAX: u64 = 16 << 20;
/// Commits that a set waits for on a full store: pages freed by one can be taken by the second.
const FULL_COMMITS_MAX: u32 = 2;

/// Files may have become longer or shorter since the copy. Their objects say how long they are.
pub(super) async fn forget_sizes(meta: &dyn MetaStore) -> Result<()> {
    let mut from = Some(vec![0_u8]);
    while let Some(start) = from {
        meta.ready().await;
        let (set, next) = old_sizes(meta, &start)?;
        apply(meta, &set).await?;
        if meta.dirty_bytes() >= DIRTY_BYTES_MAX {
            meta.commit().await.context("records of files")?;
        }
        from = next;
    }
    meta.commit().await.context("records of files")
}

/// Changes of some inodes from `from` on, and where to go on behind them.
fn old_sizes(meta: &dyn MetaStore, from: &[u8]) -> Result<(WriteSet, Option<Vec<u8>>)> {
    let (mut set, mut next) = (WriteSet::new(), None);
    let view = meta.running().context("records of files")?;
    let scanned = view.scan(Table::Inodes, from, &mut |key, stored| {
        if set.changes.len() == INODES_AT_ONCE {
            next = Some(key.to_vec());
            return false;
        }
        if let Some(inode) = mdt::size_anew(stored) {
            set.put(Table::Inodes, key, inode);
        }
        true
    });
    match scanned {
        // a call that needs this record gets EIO; the other records are behind it
        Err(StoreError::Damaged { mut key, .. }) => {
            key.push(0);
            next = Some(key);
        }
        scanned => scanned.context("records of files")?,
    }
    Ok((set, next))
}

async fn apply(meta: &dyn MetaStore, set: &WriteSet) -> Result<()> {
    for _ in 0..FULL_COMMITS_MAX {
        match osd::apply(meta, set).await {
            Err(StoreError::Full) => meta.commit().await.context("records of files")?,
            applied => return applied.context("records of files"),
        }
    }
    osd::apply(meta, set).await.context("records of files")
}

#[cfg(test)]
mod tests {
    use types::TargetId;

    use super::super::store::{Opened, Trust};
    use super::*;
    use crate::{format, targets};

    const CLEAN: u32 = 1;
    const DIRTY: u32 = 2;

    /// A file with a layout, as `docs/formats/records.md` describes it.
    fn inode(size_state: u32) -> Vec<u8> {
        let mut record = vec![0; 176];
        record[..4].copy_from_slice(&[1, 1, 176, 0]); // type, version, length
        record[4] = 1; // it has a layout
        record[24..28].copy_from_slice(&0o100_644_u32.to_le_bytes());
        record[112..116].copy_from_slice(&size_state.to_le_bytes());
        record
    }

    #[test]
    fn no_size_of_an_older_copy_is_exact() {
        let _alone = forks::none();
        let dir = std::env::temp_dir().join(format!("nacre-sizes-{}", std::process::id()));
        format::make(&format::Options {
            fsname: "testfs".parse().expect("a name"),
            targets: vec![TargetId::mdt(0)],
            mgs: vec!["127.0.0.1:4988@tcp".parse().expect("an address")],
            reformat: false,
            dir: dir.clone(),
        })
        .expect("formats");
        let target = targets::find(std::slice::from_ref(&dir)).expect("a target").remove(0);
        env_os::run(env_os::OsConfig::default(), |_| async {
            let opened = Opened::open(&target, Trust::Whole, false).await.expect("opens");
            for number in 1..=1_000_u32 {
                let mut set = WriteSet::new();
                set.put(Table::Inodes, number.to_be_bytes(), inode(CLEAN));
                osd::apply(&*opened.meta, &set).await.expect("room");
            }
            opened.meta.commit().await.expect("a commit");
            drop(opened);
            let opened = Opened::open(&target, Trust::OlderCopy, false).await.expect("opens");
            let mut count = 0;
            let view = opened.meta.running().expect("ready");
            view.scan(Table::Inodes, &[0], &mut |_, stored| {
                assert_eq!(stored, inode(DIRTY));
                count += 1;
                true
            })
            .expect("a scan");
            assert_eq!(count, 1_000);
        });
        std::fs::remove_dir_all(&dir).expect("cleaned up");
    }
}

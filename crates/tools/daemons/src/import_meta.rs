//! `nacre import-meta`: creates an MDT from an export.
//!
//! Order:
//! 1. The export is read and checked completely.
//! 2. The lists of objects are read.
//! 3. The directory is cleared.
//! 4. The records are inserted, clients are forgotten, instance and ids are raised.
//! 5. The superblock is written.
//!
//! A crash in between leaves a directory that is not a target.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ctl::progress::{Progress, Unit};
use mdt::HighestIds;
use osd::{MetaStore, StoreError, Table, WriteSet};
use osd_disk::export::{Change, Head, Reader};
use osd_disk::{DiskMeta, MetaOptions, superblock};
use types::{NidAddr, TargetKind};

use crate::check_meta;
use crate::objects::Lists;
use crate::server::{begin_anew, forget_clients};

/// What to import and where to.
#[derive(Clone, Debug)]
pub struct Options {
    pub file: PathBuf,
    /// The MDT's directory.
    pub dir: PathBuf,
    /// Where the MGS is, if not where it was.
    pub mgs: Vec<NidAddr>,
    /// Lists of objects, made by `nacre list-objects`.
    pub objects: Vec<PathBuf>,
    /// Destroy what is there.
    pub reformat: bool,
}

/// Changes of one set.
const CHANGES_AT_ONCE: usize = 256;
/// Bytes applied before a commit.
const DIRTY_BYTES_MAX: u64 = 16 << 20;
/// Commits that a set waits for on a full store: pages freed by one can be taken by the second.
const FULL_COMMITS_MAX: u32 = 2;
/// What the line on a terminal counts.
const RECORDS: Unit = Unit::Count("records");

/// Imports, and compares with the OSTs that are listed.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let progress = Progress::new(&shown(options), RECORDS);
    let (head, records) = checked(options, &progress)?;
    let (fsname, target) = (head.superblock.fsname, head.superblock.target);
    let name = head.superblock.name();
    ensure!(target.kind == TargetKind::Mdt, "{} is of {name}, not of an MDT", shown(options));
    let mut highest = HighestIds::default();
    let lists = Lists::find(fsname, &options.objects, &mut |object| {
        highest.note(target.index, object.object, object.file);
        Ok(())
    })?;
    let superblock = match &options.mgs[..] {
        [] => head.superblock.clone(),
        mgs => superblock::Superblock { mgs: mgs.to_vec(), ..head.superblock.clone() },
    };
    ensure!(
        superblock.mgs.len() <= superblock::MGS_MAX,
        "at most {} addresses of the MGS",
        superblock::MGS_MAX
    );
    let lock = superblock::clear_for_records(&options.dir, options.reformat)?;
    let meta = DiskMeta::open(&options.dir, &MetaOptions::default())?;
    progress.begin(&name, RECORDS);
    env_os::run(env_os::OsConfig::default(), |_env| async {
        put_in(options, &*meta, records, &progress).await?;
        begin_anew(target, &*meta, &highest).await?;
        forget_clients(target.kind, &*meta).await
    })
    .with_context(|| name.clone())?;
    superblock::finish(&options.dir, &superblock, &lock)?;
    drop(progress);
    let (age, dir) = (age_seconds(&head), options.dir.display());
    ctl::say!("{name}: {records} records, exported {age} s ago, are in {dir}");
    if lists.osts.is_empty() {
        ctl::say!(
            "no OST is served here and none is listed: ids begin by the clock, nothing is compared"
        );
        return Ok(());
    }
    let compared = check_meta::compare(&meta, (fsname, target.index), &lists, out);
    compared.map(drop).with_context(|| not_compared(&name))
}

/// The records are in, and stay.
fn not_compared(name: &str) -> String {
    format!(
        "{name} is complete and can be served, but was not compared with the objects to the end; \
         nacre check-meta does that"
    )
}

fn shown(options: &Options) -> String {
    options.file.display().to_string()
}

/// Since the export was begun.
fn age_seconds(head: &Head) -> u64 {
    let taken = Duration::from_secs(u64::try_from(head.taken.sec).unwrap_or_default());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(taken).as_secs()
}

fn open(options: &Options) -> Result<Reader<BufReader<File>>> {
    let file = File::open(&options.file)
        .with_context(|| format!("{}: name an export of nacre export-meta", shown(options)))?;
    let reader = Reader::new(BufReader::new(file));
    reader.map_err(anyhow::Error::msg).with_context(|| shown(options))
}

/// Reads all of the export: its head, and the number of changes.
fn checked(options: &Options, progress: &Progress) -> Result<(Head, u64)> {
    let mut reader = open(options)?;
    let mut count = 0;
    while let Some(changes) = next(&mut reader, options)? {
        count += changes.len() as u64;
        progress.show(count, 0, "checks the export");
    }
    Ok((reader.head().clone(), count))
}

fn next(reader: &mut Reader<BufReader<File>>, options: &Options) -> Result<Option<Vec<Change>>> {
    reader.next_block().map_err(anyhow::Error::msg).with_context(|| shown(options))
}

/// Puts all records in, durably.
async fn put_in(
    options: &Options,
    meta: &dyn MetaStore,
    all: u64,
    progress: &Progress,
) -> Result<()> {
    let (mut reader, mut done) = (open(options)?, 0);
    while let Some(changes) = next(&mut reader, options)? {
        for some in changes.chunks(CHANGES_AT_ONCE) {
            let mut set = WriteSet::new();
            set.changes = some.iter().map(as_it_is_put).collect();
            apply(meta, &set).await?;
            done += some.len() as u64;
            progress.show(done, all, "");
        }
        if meta.dirty_bytes() >= DIRTY_BYTES_MAX {
            meta.commit().await.context("records")?;
        }
    }
    meta.commit().await.context("records")
}

/// A change of the export, with a size that may be old given up.
fn as_it_is_put(change: &Change) -> (Table, Vec<u8>, Option<Vec<u8>>) {
    let Change { table, key, value } = change.clone();
    let value = value.map(|stored| match table {
        Table::Inodes => mdt::size_anew(&stored).unwrap_or(stored),
        _ => stored,
    });
    (table, key, value)
}

async fn apply(meta: &dyn MetaStore, set: &WriteSet) -> Result<()> {
    let mut full = 0;
    loop {
        meta.ready().await;
        match meta.apply(set) {
            Ok(()) => return Ok(()),
            Err(StoreError::Busy) => {}
            Err(StoreError::Full) if full < FULL_COMMITS_MAX => {
                full += 1;
                meta.commit().await.context("records")?;
            }
            Err(StoreError::Full) => bail!("this disk is too small for the records"),
            Err(error) => return Err(error).context("records"),
        }
    }
}

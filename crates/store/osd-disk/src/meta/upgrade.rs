//! Gives the records of an older version their checksums, at the first opening.
//!
//! A batch of records is one commit, together with the mark that says how far it went (module
//! `sums`). If a full store refuses a batch, the rest waits for the next opening.
//!
//! On disk: table `sums`, key `upto`: number of a table, and a key in it.

use osd::{Table, WriteSet};

use super::lmdb::{Dbi, LmdbError, Txn};
use super::root::RootFile;
use super::running::Running;
use super::sums::{Sums, TABLE};

const UPTO: &[u8] = b"upto";
/// Records of one commit: a few hundred kilobytes.
const RECORDS_AT_ONCE: usize = 1_024;

/// Which records have checksums: all those of a fresh store, none of an older version's.
pub(super) fn found(txn: &mut Txn, tables: &[Dbi]) -> Result<Sums, LmdbError> {
    let own = txn.table(TABLE)?;
    if let Some(mark) = txn.get(own, UPTO)? {
        return Sums::decode(mark).ok_or(LmdbError(libc::EBADMSG));
    }
    let mut sums = Sums::all();
    for table in tables {
        if txn.stat(*table)?.entries > 0 {
            sums = Sums::none();
        }
    }
    txn.put(own, UPTO, &sums.encode())?;
    Ok(sums)
}

/// Brings a store up to date, as far as it has room.
pub(super) fn run(
    mut running: Box<Running>,
    tables: &[Dbi],
    page_bytes: usize,
    root: &mut RootFile,
) -> Result<Box<Running>, String> {
    if running.sums.is_all() {
        return Ok(running);
    }
    tracing::info!("records of an older version get checksums");
    let mut is_full = false;
    while !running.sums.is_all() && !is_full {
        is_full = !some(&mut running, tables, page_bytes).map_err(|why| why.to_string())?;
        let written = running.write_out(tables)?;
        root.sync()?;
        running = written;
    }
    if is_full {
        tracing::warn!("no room for checksums of all records: the others get them later");
    }
    Ok(running)
}

/// One batch; false where there is no room for it.
fn some(running: &mut Running, tables: &[Dbi], page_bytes: usize) -> Result<bool, LmdbError> {
    let (number, from) = running.sums.first_without();
    let Some(table) = Table::ALL.get(usize::from(number)).copied() else {
        return mark(running, Sums::all()).map(|()| true);
    };
    let mut set = WriteSet::new();
    running.txn.scan(tables[usize::from(number)], from, &mut |key, value| {
        set.put(table, key, value);
        set.changes.len() < RECORDS_AT_ONCE
    })?;
    let next = match set.changes.last() {
        Some((_, key, _)) if set.changes.len() == RECORDS_AT_ONCE => {
            Sums::below(number, [&key[..], &[0]].concat())
        }
        _ => Sums::below(number + 1, Vec::new()),
    };
    // the mark alone fits into what a commit keeps for itself
    if !set.changes.is_empty() && !running.admit_at_once(&set, tables, page_bytes)? {
        return Ok(false);
    }
    for (table, key, value) in &set.changes {
        let value = value.as_deref().unwrap_or_default();
        next.store(*table, key, value, &mut running.stored);
        running.txn.put(tables[*table as usize], key, &running.stored)?;
    }
    mark(running, next).map(|()| true)
}

fn mark(running: &mut Running, sums: Sums) -> Result<(), LmdbError> {
    let own = running.txn.table(TABLE)?;
    running.txn.put(own, UPTO, &sums.encode())?;
    running.sums = sums;
    Ok(())
}

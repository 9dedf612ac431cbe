//! A copy of all records while they change, written to a file (see [`crate::export`]).
//!
//! The copy reads the running image in the order of tables and keys, some records at a time. If a
//! record changes that was already read, the change goes into the file too, after the record. So
//! the file, applied in its order, gives the image at the moment of the last read. No page is kept
//! and no commit waits. The file gets its name once that image is durable.
//!
//! Invariants
//! - Everything below `upto` is in the file, with all of its changes up to now.
//! - A set is in the file whole or not at all, because the end is between two sets.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use osd::{MetaStore, StoreError, Table};

use super::copying::{BACKLOG_BYTES_MAX, CopyProgress, Copying, Output, Turn};
use super::{DiskMeta, State};
use crate::export::{Head, Writer};

/// Records read before others get their turn: less than a millisecond.
const RECORDS_AT_ONCE: usize = 512;
/// Bytes read before others get their turn, without the last record.
const BYTES_AT_ONCE: usize = 256 << 10;
/// With more than this on its way to the file, no more is read.
const BACKLOG_READ_BYTES_MAX: usize = 8 << 20;

const _: () = assert!(BACKLOG_READ_BYTES_MAX < BACKLOG_BYTES_MAX);

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Only one is made at a time.
    #[error("a copy of these records is being made already")]
    Twice,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}: {why}", path.display())]
    File {
        path: PathBuf,
        /// What went wrong with it.
        why: String,
    },
}

impl Turn {
    fn take(meta: &DiskMeta) -> Result<Turn, CopyError> {
        let is_taken = meta.is_copied.swap(true, Ordering::AcqRel);
        if is_taken { Err(CopyError::Twice) } else { Ok(Turn(meta.is_copied.clone())) }
    }
}

/// Ends the copy in the store when nobody asks for it any more.
struct Ending<'a>(&'a DiskMeta);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.copying.replace(None);
    }
}

impl DiskMeta {
    /// Copies all records to the file `path`, which is replaced when the copy is whole and durable.
    /// `pause` is awaited after every some hundred records.
    pub async fn copy(
        &self,
        path: &Path,
        head: &Head,
        progress: &Rc<CopyProgress>,
        pause: impl AsyncFn(),
    ) -> Result<(), CopyError> {
        let turn = Turn::take(self)?;
        progress.records_in_all.set(self.records().await?);
        let failed = |why: String| CopyError::File { path: path.to_owned(), why };
        let (file, written) =
            Output::begin(path, turn).map_err(|error| failed(error.to_string()))?;
        let (writer, bytes) = Writer::new(head);
        let (upto, progress) = ((0, Vec::new()), progress.clone());
        let mut copying = Copying { upto, writer, file, why_not: None, progress };
        copying.send(bytes);
        self.copying.replace(Some(copying));
        let _ending = Ending(self);
        while self.copy_some().await? {
            pause().await;
            while self.backlog() > BACKLOG_READ_BYTES_MAX {
                pause().await;
            }
        }
        let copying = self.copying.take().expect("it is there while it is made");
        let ended = copying.end(); // the image that it has is the one of now
        if ended.is_ok() {
            self.commit().await?;
        }
        let why_not = ended.map(Output::finish).err();
        let done = written.await.unwrap_or_else(|_| Err(std::io::Error::other("no thread")));
        match (why_not, done) {
            (None, Ok(())) => Ok(()),
            (Some(why), _) if !why.is_empty() => Err(failed(why)),
            (_, Err(error)) => Err(failed(error.to_string())),
            (Some(why), Ok(())) => Err(failed(why)),
        }
    }

    fn backlog(&self) -> usize {
        self.copying.borrow().as_ref().map_or(0, |copying| copying.file.backlog())
    }

    /// Records in all tables, roughly.
    async fn records(&self) -> Result<u64, StoreError> {
        loop {
            let counted = self.with(|running| {
                let entries = |dbi: &super::Dbi| running.txn.stat(*dbi).map(|stat| stat.entries);
                let all = self.tables.iter().map(entries).sum::<Result<u64, _>>()?;
                Ok(all + running.gathered.len() as u64)
            });
            match counted {
                Err(StoreError::Busy) => self.ready().await,
                other => return other,
            }
        }
    }

    /// Reads on; false where nothing is left, or all is in vain.
    async fn copy_some(&self) -> Result<bool, StoreError> {
        loop {
            match self.read_some() {
                Err(StoreError::Busy) => self.ready().await,
                other => return other,
            }
        }
    }

    /// Reads some records of one table into the file; false where nothing is left.
    fn read_some(&self) -> Result<bool, StoreError> {
        self.settle();
        let state = self.state.borrow();
        let running = match &*state {
            State::Running(running) => running,
            State::Writing => return Err(StoreError::Busy),
            State::Failed(why) => return Err(StoreError::Failed(why.clone())),
        };
        let mut copying = self.copying.borrow_mut();
        let copying = copying.as_mut().expect("it is there while it is made");
        if copying.why_not.is_some() {
            return Ok(false);
        }
        let (number, from) = copying.upto.clone();
        let Some(table) = Table::ALL.get(number).copied() else { return Ok(false) };
        let (mut count, mut bytes, mut last) = (0, 0, None);
        let scanned = running.scan((table, self.dbi(table)), (&[], &from), &mut |key, value| {
            copying.push(table, key, Some(value));
            (count, bytes) = (count + 1, bytes + key.len() + value.len());
            let is_enough = count == RECORDS_AT_ONCE || bytes >= BYTES_AT_ONCE;
            last = is_enough.then(|| key.to_vec());
            !is_enough
        });
        scanned.inspect_err(|error| self.tell_of_damage(error))?;
        copying.progress.records.set(copying.progress.records.get() + count as u64);
        copying.upto = match last {
            Some(mut key) => {
                key.push(0);
                (number, key)
            }
            None => (number + 1, Vec::new()),
        };
        Ok(true)
    }
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;

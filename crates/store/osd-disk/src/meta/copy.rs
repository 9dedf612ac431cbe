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

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use osd::{MetaStore, StoreError, Table, WriteSet};
use tokio::sync::oneshot;

use super::ranges::Removed;
use super::{DiskMeta, State};
use crate::export::{Head, Writer};

/// Records read before others get their turn: less than a millisecond.
const RECORDS_AT_ONCE: usize = 512;
/// Bytes read before others get their turn, without the last record.
const BYTES_AT_ONCE: usize = 256 << 10;
/// With more than this on its way to the file, no more is read.
const BACKLOG_READ_BYTES_MAX: usize = 8 << 20;
/// With more than this the copy is given up: changes come faster than the file takes them.
const BACKLOG_BYTES_MAX: usize = 64 << 20;

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

/// How far a copy is.
#[derive(Clone, Debug, Default)]
pub struct CopyProgress {
    /// Records read.
    pub records: Cell<u64>,
    /// Records that there were at its start.
    pub records_in_all: Cell<u64>,
    /// Bytes of the file.
    pub bytes: Cell<u64>,
}

/// A copy under way, as the store sees it.
pub(super) struct Copying {
    upto: (usize, Vec<u8>), // table and key
    writer: Writer,
    file: Output,
    why_not: Option<String>,
    progress: Rc<CopyProgress>,
}

impl Copying {
    /// These changes were applied, and these records went with the ranges of `set`.
    pub(super) fn note(&mut self, removed: &Removed, set: &WriteSet) {
        let removed = removed.iter().map(|(table, key)| (*table, &key[..], None));
        let changes =
            set.changes.iter().map(|(table, key, value)| (*table, &key[..], value.as_deref()));
        for (table, key, value) in removed.chain(changes) {
            if (table as usize, key) < (self.upto.0, &self.upto.1[..]) {
                self.push(table, key, value);
            }
        }
    }

    fn push(&mut self, table: Table, key: &[u8], value: Option<&[u8]>) {
        if self.why_not.is_some() {
            return;
        }
        if !self.writer.push(table, key, value) {
            self.why_not = Some(format!("a record of {table:?} is too long for it"));
        }
        if self.writer.is_full() {
            let block = self.writer.block();
            self.send(block);
        }
    }

    /// Sends what is left and the end; why it cannot.
    fn end(mut self) -> Result<Output, String> {
        if self.why_not.is_none() {
            let end = self.writer.end();
            self.progress.bytes.set(self.progress.bytes.get() + end.len() as u64);
            let sent = self.file.write(end);
            self.why_not = (!sent).then(String::new); // its thread says why
        }
        self.why_not.map_or(Ok(self.file), Err)
    }

    fn send(&mut self, bytes: Vec<u8>) {
        self.progress.bytes.set(self.progress.bytes.get() + bytes.len() as u64);
        if self.file.backlog() > BACKLOG_BYTES_MAX {
            self.why_not = Some("changes come faster than it can be written".to_owned());
        } else if !self.file.write(bytes) {
            self.why_not = Some(String::new()); // its thread says why
        }
    }
}

/// The file, written by a thread of its own.
struct Output {
    work: mpsc::Sender<Work>,
    backlog: Arc<AtomicUsize>,
}

enum Work {
    Write(Vec<u8>),
    /// Everything is written: make it durable and give it its name.
    Finish,
}

type Written = oneshot::Receiver<std::io::Result<()>>;

impl Output {
    /// Begins a file that shall be called `path`.
    fn begin(path: &Path, turn: Turn) -> std::io::Result<(Output, Written)> {
        let fresh = beside(path);
        let mut file = open(&fresh)?;
        let (work, inbox) = mpsc::channel();
        let (tell, told) = oneshot::channel();
        let (backlog, path) = (Arc::new(AtomicUsize::new(0)), path.to_owned());
        let left = backlog.clone();
        std::thread::Builder::new().name("copy".to_owned()).spawn(move || {
            let written = write_all(&mut file, inbox, &left);
            let done = written.and_then(|()| name(&file, &fresh, &path));
            if done.is_err() {
                left.store(0, Ordering::Release); // nothing waits for it
                let _it_may_be_gone = std::fs::remove_file(&fresh);
            }
            drop(turn);
            let _nobody_waits = tell.send(done);
        })?;
        Ok((Output { work, backlog }, told))
    }

    fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Acquire)
    }

    /// False where the thread has ended, which it does with an error only.
    #[must_use]
    fn write(&self, bytes: Vec<u8>) -> bool {
        self.backlog.fetch_add(bytes.len(), Ordering::AcqRel);
        self.work.send(Work::Write(bytes)).is_ok()
    }

    fn finish(self) {
        let _ended_with_an_error = self.work.send(Work::Finish);
    }
}

/// An empty file that nobody else writes. A link in its place is refused: it may be somebody else's
/// and lead anywhere.
fn open(fresh: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(fresh)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => file.set_len(0).map(|()| file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(std::io::Error::other("another copy writes it")),
        Err(errno) => Err(errno.into()),
    }
}

/// Where it is until it is whole.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

fn write_all(
    file: &mut File,
    inbox: mpsc::Receiver<Work>,
    backlog: &AtomicUsize,
) -> std::io::Result<()> {
    loop {
        match inbox.recv() {
            Ok(Work::Write(bytes)) => {
                file.write_all(&bytes)?;
                backlog.fetch_sub(bytes.len(), Ordering::AcqRel);
            }
            Ok(Work::Finish) => return Ok(()),
            Err(mpsc::RecvError) => return Err(std::io::Error::other("it was given up")),
        }
    }
}

fn name(file: &File, fresh: &Path, path: &Path) -> std::io::Result<()> {
    file.sync_all()?;
    std::fs::rename(fresh, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}

/// One copy at a time: its thread has the turn until it has ended.
struct Turn(Arc<AtomicBool>);

impl Turn {
    fn take(meta: &DiskMeta) -> Result<Turn, CopyError> {
        let is_taken = meta.is_copied.swap(true, Ordering::AcqRel);
        if is_taken { Err(CopyError::Twice) } else { Ok(Turn(meta.is_copied.clone())) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
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
        let scanned = running.scan(table, self.dbi(table), &from, &mut |key, value| {
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

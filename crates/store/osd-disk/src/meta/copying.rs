//! A copy under way: the records that it has, and the file that a thread of its own writes.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use osd::{Table, WriteSet};
use tokio::sync::oneshot;

use super::running::Removed;
use crate::export::Writer;

/// With more than this the copy is given up: changes come faster than the file takes them.
pub(super) const BACKLOG_BYTES_MAX: usize = 64 << 20;

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
    pub(super) upto: (usize, Vec<u8>), // table and key
    pub(super) writer: Writer,
    pub(super) file: Output,
    pub(super) why_not: Option<String>,
    pub(super) progress: Rc<CopyProgress>,
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

    pub(super) fn push(&mut self, table: Table, key: &[u8], value: Option<&[u8]>) {
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
    pub(super) fn end(mut self) -> Result<Output, String> {
        if self.why_not.is_none() {
            let end = self.writer.end();
            self.progress.bytes.set(self.progress.bytes.get() + end.len() as u64);
            let sent = self.file.write(end);
            self.why_not = (!sent).then(String::new); // its thread says why
        }
        self.why_not.map_or(Ok(self.file), Err)
    }

    pub(super) fn send(&mut self, bytes: Vec<u8>) {
        self.progress.bytes.set(self.progress.bytes.get() + bytes.len() as u64);
        if self.file.backlog() > BACKLOG_BYTES_MAX {
            self.why_not = Some("changes come faster than it can be written".to_owned());
        } else if !self.file.write(bytes) {
            self.why_not = Some(String::new()); // its thread says why
        }
    }
}

/// The file, written by a thread of its own.
pub(super) struct Output {
    work: mpsc::Sender<Work>,
    backlog: Arc<AtomicUsize>,
}

enum Work {
    Write(Vec<u8>),
    /// Everything is written: make it durable and give it its name.
    Finish,
}

pub(super) type Written = oneshot::Receiver<std::io::Result<()>>;

impl Output {
    /// Begins a file that shall be called `path`.
    pub(super) fn begin(path: &Path, turn: Turn) -> std::io::Result<(Output, Written)> {
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

    pub(super) fn backlog(&self) -> usize {
        self.backlog.load(Ordering::Acquire)
    }

    /// False where the thread has ended, which it does with an error only.
    #[must_use]
    fn write(&self, bytes: Vec<u8>) -> bool {
        self.backlog.fetch_add(bytes.len(), Ordering::AcqRel);
        self.work.send(Work::Write(bytes)).is_ok()
    }

    pub(super) fn finish(self) {
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
pub(super) fn beside(path: &Path) -> PathBuf {
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
pub(super) struct Turn(pub(super) Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

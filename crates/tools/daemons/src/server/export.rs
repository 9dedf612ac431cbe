//! Exports of the records of an MDT that is served here, for `nacre export-meta`.
//!
//! An export outlives the question that began it; the command polls its progress. Only the last
//! export is known.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use ctl::{Export, Failure, Reply};
use osd_disk::export::Head;
use osd_disk::{CopyProgress, superblock};
use types::{Errno, Span, Timespec};

use super::{Body, Running, Server};

/// Between reads of some hundred records: requests come first.
const PAUSE: Span = Span::micros(500);

/// The last export of this node.
#[derive(Default)]
pub(super) struct Exporter {
    begun: Cell<u64>,
    last: RefCell<Option<Rc<Job>>>,
}

struct Job {
    number: u64,
    progress: Rc<CopyProgress>,
    ended: RefCell<Option<Result<(), Failure>>>,
}

fn refused(errno: Errno, text: impl Into<String>) -> Failure {
    Failure { errno: errno.raw(), text: text.into() }
}

fn head(target: &Running) -> Result<Head, Failure> {
    let superblock =
        superblock::open(&target.dir).map_err(|error| refused(Errno::EIO, error.to_string()))?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Head {
        superblock,
        instance: target.body.exports().instance().0,
        store: target.body.target().store_number(),
        taken: Timespec::new(since.as_secs().cast_signed(), since.subsec_nanos()),
    })
}

/// Begins one.
pub(super) fn begin(
    server: Option<&Rc<Server>>,
    name: &str,
    path: PathBuf,
) -> Result<Reply, Failure> {
    let is_here = |target: &&Running| target.name == name && matches!(target.body, Body::Mdt(_));
    let target = server.and_then(|server| server.targets.iter().find(is_here));
    let (Some(server), Some(target)) = (server, target) else {
        return Err(refused(Errno::ENODEV, format!("{name}: no such MDT is served here")));
    };
    if !path.is_absolute() {
        return Err(refused(Errno::EINVAL, format!("{}: not an absolute path", path.display())));
    }
    if let Some(dir) = path.parent().filter(|dir| !dir.is_dir()) {
        let text = format!("{name}: {} is not a directory: make it first", dir.display());
        return Err(refused(Errno::ENOENT, text));
    }
    let exporter = &server.exporter;
    if exporter.last.borrow().as_ref().is_some_and(|job| job.ended.borrow().is_none()) {
        return Err(refused(Errno::EBUSY, "another export is under way here"));
    }
    let head = head(target)?;
    exporter.begun.set(exporter.begun.get() + 1);
    let job = Rc::new(Job {
        number: exporter.begun.get(),
        progress: Rc::default(),
        ended: RefCell::new(None),
    });
    exporter.last.replace(Some(job.clone()));
    let (env, disk, name, running) =
        (server.env.clone(), target.store.disk.clone(), target.name.clone(), job.clone());
    server.env.spawn("export", async move {
        let pause = async || env.sleep(PAUSE).await;
        let done = disk.copy(&path, &head, &running.progress, pause).await;
        tell(&name, &path, &running.progress, done.as_ref().err());
        let ended = done.map_err(|error| refused(Errno::EIO, error.to_string()));
        running.ended.replace(Some(ended));
    });
    Ok(Reply::Export(told(&job)))
}

fn tell(name: &str, path: &Path, progress: &CopyProgress, error: Option<&osd_disk::CopyError>) {
    let (file, records) = (path.display(), progress.records.get());
    match error {
        None => tracing::info!("{name}: {records} records are exported to {file}"),
        Some(error) => tracing::warn!("{name}: no export to {file}: {error}"),
    }
}

/// How far the export of this number is.
pub(super) fn state(server: Option<&Rc<Server>>, number: u64) -> Result<Reply, Failure> {
    let last = server.and_then(|server| server.exporter.last.borrow().clone());
    let job = last.filter(|job| job.number == number);
    job.map(|job| Reply::Export(told(&job)))
        .ok_or_else(|| refused(Errno::ENOENT, "the server has started again meanwhile"))
}

fn told(job: &Job) -> Export {
    let ended = job.ended.borrow();
    Export {
        number: job.number,
        records: job.progress.records.get(),
        records_in_all: job.progress.records_in_all.get(),
        bytes: job.progress.bytes.get(),
        is_done: ended.is_some(),
        failure: ended.as_ref().and_then(|ended| ended.as_ref().err().cloned()),
    }
}

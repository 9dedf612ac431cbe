//! A look at a file system that is served: copies of MDTs' records, and lists of objects. For a
//! repair, each file's MDT is asked for the mends that are possible while it serves.
//!
//! The lists are read before the copies. So a file that is made meanwhile is in the copies if its
//! objects are in the lists.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ctl::progress::{Progress, Unit};
use ctl::{Ask, Export, Reply, ask};
use mdt::fsck::{self, Finding, Image, LiveRounds, Object, OstImage, Pair, Suspect, System};
use osd::Table;
use osd_disk::export::Reader;
use types::{FsName, TargetId, TargetKind};

use super::report::Report;
use super::{add_forgotten, complete, forgotten_in, in_both};
use crate::export_meta::server_of;
use crate::objects::{ask_each, not_here};
use crate::targets::TargetDir;

/// Between two looks: operations that were under way at the first one have ended.
const PAUSE: Duration = Duration::from_secs(2);
/// Between questions about a copy.
const ASKED_EVERY: Duration = Duration::from_millis(20);
/// What the line on a terminal counts.
const TARGETS: Unit = Unit::Step("target");

/// Checks targets that are served on this machine.
pub(super) fn check(fsname: FsName, found: &[TargetDir]) -> Result<Report> {
    let (images, osts, twice) = look(fsname, found, &Scratch::new()?)?;
    Ok(Report::new(fsname, &System::new(&images, &osts), &twice))
}

/// The same, and has MDTs mend what they can mend while they serve.
pub(super) fn repair(fsname: FsName, found: &[TargetDir]) -> Result<Report> {
    let (dir, mut rounds, mut first) = (Scratch::new()?, LiveRounds::default(), None);
    loop {
        let (images, osts, now) = look(fsname, found, &dir)?;
        let system = System::new(&images, &osts);
        let report = first.get_or_insert_with(|| Report::new(fsname, &system, &now));
        let suspects = rounds.next(&system, &now);
        if suspects.is_empty() {
            report.settle(&system, (&rounds.done, &rounds.failed), &now);
            return first.context("a first look");
        }
        for (finding, suspect) in suspects {
            let outcome = mend(fsname, &suspect).map_err(|error| format!("{error:#}"));
            rounds.told(finding, outcome);
        }
    }
}

/// Asks an MDT to look again; returns whether it mended something.
fn mend(fsname: FsName, suspect: &Suspect) -> Result<bool> {
    let target = TargetId::mdt(suspect.mdt()).name(fsname);
    let socket = server_of(&target).with_context(|| not_here(&target))?;
    let (fid, dir, name) = match suspect {
        Suspect::Name { dir, name } => (dir, None, Some(name.clone())),
        Suspect::Pair { fid, dir, name } => (fid, Some(dir.to_string()), Some(name.clone())),
        Suspect::Counts(fid) => (fid, None, None),
    };
    match ask::ask(&socket, &Ask::Mend { target, fid: fid.to_string(), name, dir })? {
        Reply::Lines(done) => Ok(!done.is_empty()),
        _ => bail!("the daemon answered another question: is it of another version?"),
    }
}

/// Copies, and what is wrong with them: what two looks at different copies find.
fn look(
    fsname: FsName,
    found: &[TargetDir],
    dir: &Scratch,
) -> Result<(Vec<Image>, Vec<OstImage>, Vec<Finding>)> {
    let progress = Progress::new("look at targets that are served", TARGETS);
    let forgotten = forgotten_in(fsname, found);
    let (mut images, osts) = copies(found, dir, &progress)?;
    add_forgotten(&mut images, &forgotten);
    let system = System::new(&images, &osts);
    complete(&system, fsname)?;
    let once = fsck::check(&system);
    if once.is_empty() {
        return Ok((images, osts, once));
    }
    drop((images, osts));
    std::thread::sleep(PAUSE);
    progress.begin("look at them again", TARGETS);
    let (mut images, osts) = copies(found, dir, &progress)?;
    add_forgotten(&mut images, &forgotten);
    let twice = in_both(fsck::check(&System::new(&images, &osts)), &once);
    Ok((images, osts, twice))
}

fn copies(
    found: &[TargetDir],
    dir: &Scratch,
    progress: &Progress,
) -> Result<(Vec<Image>, Vec<OstImage>)> {
    let of_kind = |kind| found.iter().filter(move |it| it.superblock.target.kind == kind);
    let (mut images, mut osts, mut done) = (Vec::new(), Vec::new(), 0);
    for target in of_kind(TargetKind::Ost).chain(of_kind(TargetKind::Mdt)) {
        let (id, name) = (target.superblock.target, target.name());
        done += 1;
        progress.show(done, found.len() as u64, &name);
        let socket = server_of(&name).with_context(|| not_here(&name))?;
        match id.kind {
            TargetKind::Mdt => images.push(image(&socket, (id, &name), &dir.0)?),
            _ => osts.push(objects(&socket, (id, &name))?),
        }
    }
    Ok((images, osts))
}

fn objects(socket: &Path, (id, name): (TargetId, &str)) -> Result<OstImage> {
    let mut image = OstImage { index: id.index, objects: BTreeMap::new() };
    ask_each(socket, id, name, &mut |listed| {
        image.objects.insert(listed.object, object(&listed));
        Ok(())
    })?;
    Ok(image)
}

/// What a list says of an object.
pub(super) fn object(listed: &crate::objects::Object) -> Object {
    let (file, store) = (listed.file, listed.store);
    Object { file, store, is_there: true, ..Object::default() }
}

/// The records of an MDT at one moment.
fn image(socket: &Path, (id, name): (TargetId, &str), dir: &Path) -> Result<Image> {
    let path = dir.join(name);
    let text = path.to_str().context("the name of a temporary file is not UTF-8")?.to_owned();
    let begin = Ask::ExportMeta { target: name.to_owned(), path: text };
    let mut export = answer(ask::ask(socket, &begin)?)?;
    while !export.is_done {
        std::thread::sleep(ASKED_EVERY);
        export = answer(ask::ask(socket, &Ask::ExportState { number: export.number })?)?;
    }
    if let Some(failure) = export.failure {
        bail!("{name}: {}", failure.text);
    }
    let read = read(id.index, &path).with_context(|| path.display().to_string());
    let removed = std::fs::remove_file(&path);
    let image = read?;
    removed.with_context(|| path.display().to_string())?;
    Ok(image)
}

fn answer(reply: Reply) -> Result<Export> {
    match reply {
        Reply::Export(export) => Ok(export),
        _ => bail!("the daemon answered another question: is it of another version?"),
    }
}

/// The records in an export of this MDT.
pub(super) fn read(index: u32, path: &Path) -> Result<Image> {
    let mut reader = Reader::new(BufReader::new(File::open(path)?)).map_err(anyhow::Error::msg)?;
    let target = reader.head().superblock.target;
    ensure!(target == TargetId::mdt(index), "it is of {target}");
    let mut tables = BTreeMap::<Table, BTreeMap<Vec<u8>, Vec<u8>>>::new();
    while let Some(changes) = reader.next_block().map_err(anyhow::Error::msg)? {
        for change in changes {
            let table = tables.entry(change.table).or_default();
            match change.value {
                Some(value) => drop(table.insert(change.key, value)),
                None => drop(table.remove(&change.key)),
            }
        }
    }
    Image::read(index, |table| {
        let pairs = tables.remove(&table).unwrap_or_default();
        Ok(pairs.into_iter().collect::<Vec<Pair>>())
    })
}

/// A directory for copies, which only this user can read; it goes at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("nacre-fsck-{}", std::process::id()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| path.display().to_string())?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

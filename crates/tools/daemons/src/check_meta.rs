//! `nacre check-meta`: compares the objects that an MDT's files name with the objects that OSTs
//! have.
//!
//! It prints one line to stdout per difference, with words separated by a space:
//!
//! ```text
//! unnamed OST OBJECT FILE          an object that no file names, and the file it was made for
//! missing OST OBJECT FILE PATH     an object that a closed file has and the OST has not
//! ```
//! Bytes of a path outside of printable ASCII are written as `\xNN`, a backslash as `\\`.
//!
//! Objects are looked up one by one. At most `EXPECTED_MAX` of the objects that must exist are in
//! memory, and the lists are read once for each such batch.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use ctl::progress::{Progress, Unit};
use osd::{MetaStore, View};
use osd_disk::{DiskMeta, MetaOptions, superblock};
use types::{Fid, FsName, TargetId, TargetKind};

use crate::objects::Lists;
use crate::targets;

/// Exit status where there are differences.
pub const DIFFERENT: u8 = 3;

/// Objects that must be there and are looked for in one reading of the lists: some 100 MiB.
const EXPECTED_MAX: usize = 1 << 20;
/// Files of which the objects are read at once.
const FILES_AT_ONCE: usize = 1_024;
/// What the line on a terminal counts.
const OBJECTS: Unit = Unit::Count("objects");

/// What to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// The MDT's directory.
    pub dir: PathBuf,
    /// Lists of objects, made by `nacre list-objects`.
    pub objects: Vec<PathBuf>,
}

/// Differences that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    pub(crate) unnamed: u64,
    pub(crate) missing: u64,
}

/// Compares an MDT that is not served; the exit status.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<u8> {
    let target = targets::open(&options.dir)?.with_context(|| {
        format!("{}: no target is here: name the directory of an MDT", options.dir.display())
    })?;
    let superblock = &target.superblock;
    ensure!(
        superblock.target.kind == TargetKind::Mdt,
        "{} is {}, not an MDT: name the directory of an MDT",
        options.dir.display(),
        target.name()
    );
    let _lock = superblock::lock(&target.dir)?;
    let lists = Lists::find(superblock.fsname, &options.objects, &mut |_| Ok(()))?;
    targets::check_parts(&target)?;
    let meta = DiskMeta::open(&target.dir, &MetaOptions::default())?;
    let found = compare(&meta, superblock.fsname, &lists, out)?;
    Ok(if found == Differences::default() { 0 } else { DIFFERENT })
}

/// Compares, and says on stderr what was compared.
pub(crate) fn compare(
    meta: &Rc<DiskMeta>,
    fsname: FsName,
    lists: &Lists,
    out: &mut dyn Write,
) -> Result<Differences> {
    let view = meta.running().context("records")?;
    let objects: u64 = lists.osts.values().sum();
    let progress = Progress::new("objects without a name", OBJECTS);
    let unlisted = BTreeMap::new();
    let mut check = Check { view: &*view, fsname, lists, out, unlisted, objects, progress };
    let found = Differences { unnamed: check.unnamed()?, missing: check.missing()? };
    check.out.flush()?;
    drop(std::mem::take(&mut check.progress));
    ctl::say!(
        "{objects} objects on {} OSTs: {} without a name; {} names without an object",
        lists.osts.keys().filter(|id| id.is_ost()).count(),
        found.unnamed,
        found.missing
    );
    for (ost, count) in &check.unlisted {
        let name = ost.name(fsname);
        ctl::say!("{name}: not served here and not listed: {count} objects were not looked for");
    }
    Ok(found)
}

struct Check<'a> {
    view: &'a dyn View,
    fsname: FsName,
    lists: &'a Lists,
    out: &'a mut dyn Write,
    /// Objects that must be on OSTs of which there is no list.
    unlisted: BTreeMap<TargetId, u64>,
    /// How many are listed.
    objects: u64,
    progress: Progress,
}

/// Objects that must be there, and their files.
type Expected = BTreeMap<(TargetId, Fid), Fid>;

impl Check<'_> {
    fn unnamed(&mut self) -> Result<u64> {
        let (mut count, mut seen) = (0, 0);
        let Check { view, fsname, lists, out, objects, progress, .. } = self;
        lists.each(&mut |object| {
            seen += 1;
            progress.show(seen, *objects, "");
            let (ost, file) = (object.ost, object.file);
            if !mdt::names_object(*view, file, ost.index, object.object).context("records")? {
                count += 1;
                progress.erase();
                writeln!(out, "unnamed {} {} {file}", ost.name(*fsname), object.object)?;
            }
            Ok(())
        })?;
        Ok(count)
    }

    fn missing(&mut self) -> Result<u64> {
        let (mut count, mut from) = (0, Some(Vec::new()));
        while let Some(at) = from {
            let (mut expected, next) = self.expected(at)?;
            from = next;
            if expected.is_empty() {
                continue;
            }
            self.progress.begin("names without an object", OBJECTS);
            let (mut seen, progress, objects) = (0, &self.progress, self.objects);
            self.lists.each(&mut |object| {
                seen += 1;
                progress.show(seen, objects, "");
                expected.remove(&(object.ost, object.object));
                Ok(())
            })?;
            for ((ost, object), file) in expected {
                count += 1;
                let path = mdt::path(self.view, file).context("records")?.unwrap_or_default();
                let (ost, path) = (ost.name(self.fsname), path.escape_ascii());
                self.progress.erase();
                writeln!(self.out, "missing {ost} {object} {file} {path}")?;
            }
        }
        Ok(count)
    }

    /// As many as may be in memory, and where to go on.
    fn expected(&mut self, from: Vec<u8>) -> Result<(Expected, Option<Vec<u8>>)> {
        let (mut expected, mut next) = (Expected::new(), Some(from));
        while let Some(from) = next.take_if(|_| expected.len() < EXPECTED_MAX) {
            let (stripes, behind) =
                mdt::stripes(self.view, &from, FILES_AT_ONCE).context("records")?;
            for stripe in stripes {
                let ost = TargetId::ost(stripe.ost);
                if self.lists.osts.contains_key(&ost) {
                    expected.insert((ost, stripe.object), stripe.file);
                } else {
                    *self.unlisted.entry(ost).or_default() += 1;
                }
            }
            next = behind;
        }
        Ok((expected, next))
    }
}

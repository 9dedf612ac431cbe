//! A look at copies of a file system whose targets are on several machines: exports of all MDTs,
//! and lists of objects.
//!
//! A directory has the copies of one look. They are of different moments, so a breach counts if the
//! copies of all looks show it. A single look is right if nothing changed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use mdt::fsck::{self, Finding, Image, OstImage, System};
use osd_disk::export::Reader;
use types::{FsName, TargetId, TargetKind};

use super::live::{object, read};
use super::report::Report;
use super::{complete, in_both};
use crate::objects::each_in;

/// Ends of the names of files.
const EXPORT: &str = "export";
const LIST: &str = "objects";

/// The copies of one look.
struct Copies {
    fsname: FsName,
    images: Vec<Image>,
    osts: Vec<OstImage>,
}

/// Checks copies; a directory for each look, the latest one last.
pub(super) fn check(dirs: &[PathBuf]) -> Result<Report> {
    let (last, earlier) = dirs.split_last().context("no directory of copies is named")?;
    let mut named = BTreeSet::new();
    for dir in dirs {
        let whole = dir.canonicalize().with_context(|| dir.display().to_string())?;
        ensure!(named.insert(whole), "{}: it is named twice, and is one look", dir.display());
    }
    let mut seen: Option<(FsName, Vec<Finding>)> = None;
    for dir in earlier {
        let copies = Copies::read(dir)?;
        let found = copies.found(seen.as_ref())?;
        seen = Some((copies.fsname, found));
    }
    let copies = Copies::read(last)?;
    let found = copies.found(seen.as_ref())?;
    if earlier.is_empty() && !found.is_empty() {
        ctl::say!("one look at copies: changes that were under way meanwhile look like breaches");
    }
    Ok(Report::new(copies.fsname, &System::new(&copies.images, &copies.osts), &found))
}

impl Copies {
    fn read(dir: &Path) -> Result<Copies> {
        let (exports, lists) = files(dir)?;
        let mut fsname = None;
        let mut images = BTreeMap::new();
        for path in &exports {
            let shown = || path.display().to_string();
            let (of, index) = head(path).with_context(shown)?;
            let first = *fsname.get_or_insert(of);
            ensure!(first == of, "{}: it is of {of}, and others are of {first}", shown());
            let image = read(index, path).with_context(shown)?;
            let is_first = images.insert(index, image).is_none();
            ensure!(is_first, "{}: {} is there twice", shown(), TargetId::mdt(index).name(of));
        }
        let none = || format!("{}: no export of an MDT is there (*.{EXPORT})", dir.display());
        let fsname = fsname.with_context(none)?;
        let (images, osts) = (images.into_values().collect(), lists_in(&lists, fsname)?);
        Ok(Copies { fsname, images, osts })
    }

    /// Breaches that earlier looks found, too.
    fn found(&self, earlier: Option<&(FsName, Vec<Finding>)>) -> Result<Vec<Finding>> {
        let system = System::new(&self.images, &self.osts);
        complete(&system, self.fsname)?;
        let found = fsck::check(&system);
        let Some((fsname, earlier)) = earlier else { return Ok(found) };
        ensure!(*fsname == self.fsname, "copies of {fsname} and of {} are named", self.fsname);
        Ok(in_both(found, earlier))
    }
}

/// The exports and the lists in a directory.
fn files(dir: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let shown = || dir.display().to_string();
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(shown)? {
        all.push(entry.with_context(shown)?.path());
    }
    all.sort();
    let (mut exports, mut lists) = (Vec::new(), Vec::new());
    for path in all {
        match path.extension().and_then(|end| end.to_str()) {
            Some(EXPORT) => exports.push(path),
            Some(LIST) => lists.push(path),
            _ => bail!(
                "{}: it is neither an export (*.{EXPORT}) nor a list of objects (*.{LIST})",
                path.display()
            ),
        }
    }
    Ok((exports, lists))
}

/// File system and index of the MDT that a file is an export of.
fn head(path: &Path) -> Result<(FsName, u32)> {
    let reader = Reader::new(BufReader::new(File::open(path)?)).map_err(anyhow::Error::msg)?;
    let superblock = &reader.head().superblock;
    let target = superblock.target;
    ensure!(target.kind == TargetKind::Mdt, "it is of {target}, not of an MDT");
    Ok((superblock.fsname, target.index))
}

/// The objects of OSTs and data targets.
fn lists_in(lists: &[PathBuf], fsname: FsName) -> Result<Vec<OstImage>> {
    let empty = |index| OstImage { index, objects: BTreeMap::new() };
    let mut osts = BTreeMap::<u32, OstImage>::new();
    let mut known = BTreeSet::new();
    for path in lists {
        let listed = each_in(path, fsname, &mut |listed| {
            let index = listed.ost.index;
            let image = osts.entry(index).or_insert_with(|| empty(index));
            image.objects.insert(listed.object, object(&listed));
            Ok(())
        })?;
        for ost in listed.into_keys() {
            let is_first = known.insert(ost);
            ensure!(is_first, "{}: {} is listed twice", path.display(), ost.name(fsname));
            osts.entry(ost.index).or_insert_with(|| empty(ost.index));
        }
    }
    Ok(osts.into_values().collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::rc::Rc;

    use mdt::{Mdt, MdtConfig};
    use osd::{MetaStore, Table, WriteSet};
    use osd_disk::export::Head;
    use osd_disk::{DiskMeta, MetaOptions, Superblock};
    use types::{Fid, Timespec};

    use super::super::{CLEAN, LEFT};
    use super::*;

    /// Where the link count of an inode begins.
    const NLINK: usize = 28;

    /// Gives the root this link count.
    async fn set_links(disk: &DiskMeta, nlink: u8) {
        let key = Fid::ROOT.to_key();
        let mut set = WriteSet::new();
        disk.ready().await;
        {
            let view = disk.running().expect("ready");
            let stored = view.get(Table::Inodes, &key).expect("reads");
            let mut inode = stored.expect("the root is there");
            inode[NLINK] = nlink;
            set.put(Table::Inodes, key, inode);
        }
        osd::apply(disk, &set).await.expect("room");
    }

    /// A directory for each of these looks at a fresh MDT and an OST without objects: its name, and
    /// the link count of the root.
    fn make(dir: &Path, looks: &[(&str, u8)]) {
        let store = dir.join("store");
        fs::create_dir_all(&store).expect("made");
        env_os::run(env_os::OsConfig::default(), |env| async move {
            let fsname: FsName = "testfs".parse().expect("a name");
            let disk = DiskMeta::open(&store, &MetaOptions::default()).expect("opens");
            let config = MdtConfig::new(fsname, 0);
            let started = Mdt::start(&env, config, disk.clone(), None, Rc::new(Vec::new)).await;
            let mdt = started.expect("starts");
            let taken = Timespec::default();
            let superblock = Superblock::new(fsname, TargetId::mdt(0), 7, Vec::new(), taken);
            let head = Head { superblock, instance: 1, store: 1, taken };
            for (name, nlink) in looks {
                set_links(&disk, *nlink).await;
                let to = dir.join(name);
                fs::create_dir(&to).expect("made");
                let export = to.join("testfs-MDT0000.export");
                let copied = disk.copy(&export, &head, &Rc::default(), async || {}).await;
                copied.expect("copied");
                fs::write(to.join("osts.objects"), "testfs-OST0000 end 0\n").expect("written");
            }
            mdt.stop().await.expect("committed");
        });
    }

    #[test]
    fn a_breach_counts_if_the_copies_of_all_looks_show_it() {
        let _alone = forks::none();
        let dir = std::env::temp_dir().join(format!("nacre-copies-{}", std::process::id()));
        make(&dir, &[("well", 2), ("bad", 9), ("still-bad", 9)]);
        let look = |names: &[&str]| {
            let dirs: Vec<PathBuf> = names.iter().map(|name| dir.join(name)).collect();
            check(&dirs).map(|report| report.status()).map_err(|error| format!("{error:#}"))
        };
        for (names, status) in [
            (&["well"][..], CLEAN),
            (&["bad"], LEFT),
            (&["bad", "well"], CLEAN),
            (&["well", "bad"], CLEAN),
            (&["bad", "still-bad"], LEFT),
        ] {
            assert_eq!(look(names), Ok(status), "{names:?}");
        }
        assert!(look(&["bad", "bad"]).is_err_and(|text| text.contains("named twice")));
        fs::write(dir.join("well/again.objects"), "testfs-OST0000 end 0\n").expect("written");
        assert!(look(&["well"]).is_err_and(|text| text.contains("OST0000 is listed twice")));
        fs::write(dir.join("bad/notes.txt"), "x").expect("written");
        assert!(look(&["bad"]).is_err_and(|text| text.contains("notes.txt: it is neither")));
        fs::remove_file(dir.join("still-bad/testfs-MDT0000.export")).expect("removed");
        assert!(look(&["still-bad"]).is_err_and(|text| text.contains("no export of an MDT")));
        fs::remove_dir_all(&dir).expect("cleaned up");
    }
}

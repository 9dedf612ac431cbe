//! Objects of OSTs: `nacre list-objects`, and the lists that a check of an MDT compares.
//!
//! A list has one line per object, `NAME OBJECT FILE STORE`, in the order of the objects. Its last
//! line is `NAME end COUNT`; a list without it is truncated. Lists of several OSTs may follow one
//! another in a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use ctl::progress::{Progress, Unit};
use ctl::{Ask, Reply, Who, ask, everywhere};
use types::{Fid, FsName, TargetId, TargetKind};

use crate::export_meta::server_of;

const OBJECTS: Unit = Unit::Count("objects");

/// Longest line of a list: names and FIDs are far shorter.
const LINE_BYTES_MAX: u64 = 256;

/// An object of an OST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) ost: TargetId,
    pub(crate) object: Fid,
    /// The file for which it was made.
    pub(crate) file: Fid,
    /// Number of the store of the file's MDT.
    pub(crate) store: u64,
}

impl Object {
    fn line(&self, fsname: FsName) -> String {
        let Object { ost, object, file, store } = self;
        format!("{} {object} {file} {store:#x}", ost.name(fsname))
    }
}

/// `nacre list-objects`: prints the list of an OST that is served here, or that a server here can
/// ask.
pub fn list(name: &str, mut out: impl Write) -> Result<()> {
    let ost = ost_named(name)?;
    let fsname = fsname_of(name)?;
    let socket = asker(name, fsname).with_context(|| {
            format!("no server on this machine serves or knows {name}: run it on a machine of that file system, with its servers up")
        })?;
    // on a terminal the list itself shows how far it is
    let is_shown = std::io::stdout().is_terminal();
    let progress =
        if is_shown { Progress::default() } else { Progress::unless_piped(name, OBJECTS) };
    let mut count = 0_u64;
    ask_each(&socket, ost, name, &mut |object| {
        count += 1;
        progress.show(count, 0, "");
        Ok(writeln!(out, "{}", object.line(fsname))?)
    })?;
    drop(progress);
    writeln!(out, "{name} end {count}")?;
    Ok(out.flush()?)
}

fn fsname_of(name: &str) -> Result<FsName> {
    let (fsname, _) = name.rsplit_once('-').with_context(|| {
        format!("'{name}': a target's name begins with its file system's, as testfs-OST0000")
    })?;
    Ok(fsname.parse()?)
}

/// The server here that serves an OST, or one that can ask it.
fn asker(name: &str, fsname: FsName) -> Option<PathBuf> {
    let known = || known(fsname).into_iter().find(|(_, known, _)| known == name).map(|it| it.0);
    server_of(name).or_else(known)
}

/// How many objects an OST has, counted up to one page of a list.
///
/// # Errors
/// It is not an OST, no server here knows it, or it does not answer soon.
pub(crate) fn count_some(name: &str) -> Result<usize> {
    ost_named(name)?;
    let socket = asker(name, fsname_of(name)?).with_context(|| not_here(name))?;
    let question = Ask::ListObjects { target: name.to_owned(), from: Fid::ZERO.to_string() };
    match ask::ask_within(&socket, &question, everywhere::patience())? {
        Reply::Objects(objects) => Ok(objects.len()),
        _ => bail!("the daemon answered another question: is it of another version?"),
    }
}

/// Why a command about target `name` has no server to ask.
pub(crate) fn not_here(name: &str) -> String {
    format!("no server on this machine serves {name}: run the command where it is served")
}

/// Whether it is the name of an OST.
pub(crate) fn is_ost(name: &str) -> bool {
    ost_named(name).is_ok()
}

fn ost_named(name: &str) -> Result<TargetId> {
    let target: TargetId = name.parse()?;
    ensure!(target.kind == TargetKind::Ost, "{name} is not an OST: name one, as testfs-OST0000");
    Ok(target)
}

pub(crate) type Visit<'a> = dyn FnMut(Object) -> Result<()> + 'a;

/// Objects of a full page at least: what an OST tells another server.
const FULL_PAGE: usize = 1_024;

/// Asks for all objects, a page at a time. A page that is not full is the last one: objects that
/// are made meanwhile come behind all others, so that a list up to an empty page need not end.
pub(crate) fn ask_each(
    socket: &Path,
    ost: TargetId,
    name: &str,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let mut from = Fid::ZERO;
    loop {
        let question = Ask::ListObjects { target: name.to_owned(), from: from.to_string() };
        let Reply::Objects(objects) = ask::ask(socket, &question)? else {
            bail!("the daemon answered another question: is it of another version?");
        };
        let Some(last) = objects.last() else { return Ok(()) };
        let last: Fid = last.object.parse()?;
        ensure!(last >= from, "a list goes on from where it was");
        for object in &objects {
            let (file, store) = (object.file.parse()?, object.store);
            visit(Object { ost, object: object.object.parse()?, file, store })?;
        }
        match behind(last) {
            Some(next) if objects.len() >= FULL_PAGE => from = next,
            _ => return Ok(()),
        }
    }
}

/// The FID behind this one.
pub(crate) fn behind(fid: Fid) -> Option<Fid> {
    let Fid { seq, oid, ver } = fid;
    match (ver.checked_add(1), oid.checked_add(1)) {
        (Some(ver), _) => Some(Fid { seq, oid, ver }),
        (None, Some(oid)) => Some(Fid { seq, oid, ver: 0 }),
        (None, None) => Some(Fid { seq: seq.checked_add(1)?, oid: 0, ver: 0 }),
    }
}

/// Where lists come from. Each can be read again and again.
#[derive(Clone, Debug)]
enum Source {
    /// Kept by `nacre list-objects`, perhaps on another machine.
    File(PathBuf),
    /// An OST that is served here, or that a server here asks.
    Served { socket: PathBuf, name: String, ost: TargetId },
}

/// All lists that there are.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    fsname: FsName,
    sources: Vec<Source>,
    /// OSTs that are listed, with the number of their objects.
    pub(crate) osts: BTreeMap<TargetId, u64>,
}

impl Lists {
    /// Those of `files`, and of the OSTs of this file system that servers on this machine serve or
    /// know. Reads all of them once. An OST elsewhere that does not answer is left out.
    pub(crate) fn find(fsname: FsName, files: &[PathBuf], visit: &mut Visit<'_>) -> Result<Lists> {
        let mut lists = Lists {
            fsname,
            sources: files.iter().cloned().map(Source::File).collect(),
            osts: BTreeMap::new(),
        };
        for file in files {
            let listed = each_in(file, fsname, visit)?;
            for (ost, count) in listed {
                let is_first = lists.osts.insert(ost, count).is_none();
                ensure!(is_first, "{}: {} is listed twice", file.display(), ost.name(fsname));
            }
        }
        for (socket, name, ost) in served(fsname) {
            if lists.osts.contains_key(&ost) {
                continue;
            }
            let mut count = 0;
            ask_each(&socket, ost, &name, &mut |object| {
                count += 1;
                visit(object)
            })?;
            lists.osts.insert(ost, count);
            lists.sources.push(Source::Served { socket, name, ost });
        }
        for (socket, name, ost) in known(fsname) {
            if lists.osts.contains_key(&ost) {
                continue;
            }
            let mut count = 0;
            let listed = ask_each(&socket, ost, &name, &mut |object| {
                count += 1;
                visit(object)
            });
            match listed {
                Ok(()) => {
                    lists.osts.insert(ost, count);
                    lists.sources.push(Source::Served { socket, name, ost });
                }
                Err(error) => ctl::say!("{name}: not listed: {error:#}"),
            }
        }
        Ok(lists)
    }

    /// All objects once more.
    pub(crate) fn each(&self, visit: &mut Visit<'_>) -> Result<()> {
        self.sources.iter().try_for_each(|source| match source {
            Source::File(path) => each_in(path, self.fsname, visit).map(drop),
            Source::Served { socket, name, ost } => ask_each(socket, *ost, name, visit),
        })
    }
}

/// OSTs of this file system that daemons on this machine serve.
fn served(fsname: FsName) -> Vec<(PathBuf, String, TargetId)> {
    osts_of(fsname, |who| who.targets)
}

/// OSTs of this file system that servers on this machine know, perhaps more than once.
fn known(fsname: FsName) -> Vec<(PathBuf, String, TargetId)> {
    osts_of(fsname, |who| who.osts)
}

fn osts_of(fsname: FsName, names: impl Fn(Who) -> Vec<String>) -> Vec<(PathBuf, String, TargetId)> {
    let mut found = Vec::new();
    for (daemon, who) in everywhere::ask_all(&Ask::Who) {
        let Ok(Reply::Who(who)) = who else { continue };
        for name in names(who) {
            if let Ok(ost) = ost_named(&name)
                && ost.name(fsname) == name
            {
                found.push((daemon.socket.clone(), name, ost));
            }
        }
    }
    found
}

/// Reads the lists in a file: their OSTs, with the number of objects.
pub(crate) fn each_in(
    path: &Path,
    fsname: FsName,
    visit: &mut Visit<'_>,
) -> Result<BTreeMap<TargetId, u64>> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let read = each_line(BufReader::new(file), fsname, visit);
    read.with_context(|| path.display().to_string())
}

fn each_line(
    mut from: impl BufRead,
    fsname: FsName,
    visit: &mut Visit<'_>,
) -> Result<BTreeMap<TargetId, u64>> {
    let (mut ended, mut current) = (BTreeMap::new(), None);
    for number in 1_u64.. {
        let mut line = String::new();
        let got = (&mut from).take(LINE_BYTES_MAX).read_line(&mut line)?;
        if got == 0 {
            break;
        }
        let wrong = || format!("line {number} is not a line of a list: {}", line.trim_end());
        let (ost, entry) = entry(&line, fsname).with_context(wrong)?;
        let (_, count) = *current.get_or_insert((ost, 0));
        ensure!(current == Some((ost, count)), "line {number}: the list before has no end");
        match entry {
            Entry::Object(object) => {
                current = Some((ost, count + 1));
                visit(object)?;
            }
            Entry::End(told) => {
                ensure!(told == count, "line {number}: {told} objects, but {count} lines");
                let is_first = ended.insert(ost, count).is_none();
                ensure!(is_first, "line {number}: {} is listed twice", ost.name(fsname));
                current = None;
            }
        }
    }
    if let Some((ost, _)) = current {
        bail!("the list of {} is cut short", ost.name(fsname));
    }
    Ok(ended)
}

enum Entry {
    Object(Object),
    End(u64),
}

fn entry(line: &str, fsname: FsName) -> Option<(TargetId, Entry)> {
    let words: Vec<&str> = line.strip_suffix('\n')?.split(' ').collect();
    let ost = ost_named(words.first()?).ok().filter(|ost| ost.name(fsname) == words[0])?;
    let entry = match words[1..] {
        ["end", count] => Entry::End(count.parse().ok()?),
        [object, file, store] => Entry::Object(Object {
            ost,
            object: object.parse().ok()?,
            file: file.parse().ok()?,
            store: u64::from_str_radix(store.strip_prefix("0x")?, 16).ok()?,
        }),
        _ => return None,
    };
    Some((ost, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<Object>, BTreeMap<TargetId, u64>), String> {
        let mut all = Vec::new();
        let ended = each_line(text.as_bytes(), "testfs".parse().expect("a name"), &mut |object| {
            all.push(object);
            Ok(())
        });
        ended.map(|ended| (all, ended)).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let fsname = "testfs".parse().expect("a name");
        let object = |ost, stripe| Object {
            ost: TargetId::ost(ost),
            object: Fid::new(0x2_0001_0400, 5).stripe(stripe),
            file: Fid::new(0x2_0000_0400, 9),
            store: 77,
        };
        let all = [object(0, 0), object(0, 2), object(1, 1)];
        let lines = all.map(|object| object.line(fsname));
        assert_eq!(lines[1], "testfs-OST0000 [0x200010400:0x5:0x2] [0x200000400:0x9:0x0] 0x4d");
        let text = format!(
            "{}\n{}\ntestfs-OST0000 end 2\n{}\ntestfs-OST0001 end 1\ntestfs-OST0002 end 0\n",
            lines[0], lines[1], lines[2]
        );
        let osts = [(0, 2), (1, 1), (2, 0)].map(|(ost, count)| (TargetId::ost(ost), count));
        assert_eq!(read(&text), Ok((all.to_vec(), osts.into())));
        for cut in 1..text.len() {
            let is_whole_list = text[..cut].ends_with('\n')
                && text[..cut]
                    .trim_end()
                    .rsplit('\n')
                    .next()
                    .is_some_and(|line| line.contains("end"));
            assert_eq!(read(&text[..cut]).is_ok(), is_whole_list, "{cut}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_line() {
        let object = "testfs-OST0000 [0x1:0x2:0x0] [0x3:0x4:0x0] 0x5\n";
        for (text, why) in [
            ("nonsense\n", "line 1"),
            ("otherfs-OST0000 end 0\n", "line 1"),
            ("testfs-MDT0000 end 0\n", "line 1"),
            (&format!("{object}testfs-OST0000 end 2\n"), "2 objects, but 1"),
            (&format!("{object}testfs-OST0001 end 0\n"), "no end"),
            ("testfs-OST0000 end 0\ntestfs-OST0000 end 0\n", "listed twice"),
            (&"x".repeat(1_000), "line 1"),
        ] {
            let error = read(text).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }
}

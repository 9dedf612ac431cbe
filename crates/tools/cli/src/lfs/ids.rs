//! `lfs path2fid` and `lfs fid2path`.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ctl::{Ask, RawPath, Reply, rundir};
use serde_json::json;
use types::{Errno, Fid};

use crate::Failed;
use crate::failure::First;
use crate::form::Form;
use crate::mountpoint::{self, Mount};

/// Arguments of `lfs path2fid`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  lfs path2fid FILE       [0x200000402:0x1f:0x0]\n  lfs path2fid -p FILE    [0x200000402:0x2:0x0]/FILE"
)]
pub(super) struct Path2fid {
    /// Show the FID of the directory and the name in it, of each hard link if root asks.
    #[arg(short = 'p', long)]
    parents: bool,
    #[command(flatten)]
    form: Form,
    /// Files and directories.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Arguments of `lfs fid2path`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = false)]
pub(super) struct Fid2path {
    /// End each path with a NUL instead of a newline.
    #[arg(short = '0', long = "print0")]
    print0: bool,
    /// Print the FID before each path.
    #[arg(short = 'f', long = "print-fid")]
    print_fid: bool,
    /// Print the number of each link before its path.
    #[arg(short = 'c', long = "print-link")]
    print_link: bool,
    /// Print only link N of each file, from 0.
    #[arg(short = 'l', long = "link", value_name = "N")]
    link: Option<usize>,
    /// Print only the names, without the directories.
    #[arg(short = 'n', long = "name")]
    name: bool,
    #[command(flatten)]
    form: Form,
    /// Name of the file system, or a path in it.
    #[arg(value_name = "FSNAME|MOUNT")]
    fs: String,
    /// FIDs, with or without brackets.
    #[arg(required = true)]
    fids: Vec<String>,
}

pub(super) fn path2fid(args: &Path2fid) -> Result<(), Failed> {
    let mut first = First::default();
    let mut rows = Vec::new();
    for path in &args.paths {
        let found = fid_of(path).and_then(|fid| {
            let links = if args.parents { parents(path, fid)? } else { Vec::new() };
            Ok((fid, links))
        });
        match found {
            Ok((fid, links)) if args.form.is_data() => {
                let mut row = json!({"path": path.display().to_string(), "fid": fid.to_string()});
                if args.parents {
                    row["links"] = links.into();
                }
                rows.push(row);
            }
            Ok((fid, links)) => {
                let text = if args.parents { links.join("\t") } else { fid.to_string() };
                match args.paths.len() {
                    1 => crate::out::line(text),
                    _ => crate::out::line(format_args!("{}: {text}", path.display())),
                }
            }
            Err(failed) => first.note(&failed),
        }
    }
    if args.form.is_data() {
        args.form.print(&rows, String::new);
    }
    first.end()
}

/// The FID of a path, as its mount's daemon knows it.
pub(super) fn fid_of(path: &Path) -> Result<Fid, Failed> {
    const COMMAND: &str = "lfs path2fid";
    let mount = mountpoint::of(parent_or_self(path), COMMAND)?;
    let inside = mountpoint::inside(&mount, path, COMMAND)?;
    fid_inside(&mount, inside, path)
}

/// `[FID of the directory]/NAME` of the file at `path`: of all its names, or of this one where the
/// asker may not know the others.
fn parents(path: &Path, fid: Fid) -> Result<Vec<String>, Failed> {
    const COMMAND: &str = "lfs path2fid";
    let mount = mountpoint::of(parent_or_self(path), COMMAND)?;
    let known = match mountpoint::ask(&mount, &Ask::Fid2path { fid: fid.to_string() }, COMMAND) {
        Ok(reply) => paths_in(reply).unwrap_or_default(),
        Err(failed) if i32::from(failed.status) == Errno::EPERM.raw() => {
            vec![mountpoint::inside(&mount, path, COMMAND)?.0]
        }
        Err(failed) => return Err(failed),
    };
    let shown = |known: Vec<u8>| {
        let slash = known.iter().rposition(|byte| *byte == b'/')?;
        let (dir, name) = known.split_at(slash + 1);
        if name.is_empty() {
            return Some(Ok(format!("{fid}/"))); // the root has no other directory
        }
        let dir = fid_inside(&mount, RawPath(dir.to_vec()), path);
        Some(dir.map(|dir| format!("{dir}/{}", String::from_utf8_lossy(name))))
    };
    known.into_iter().filter_map(shown).collect()
}

/// The FID of a path from the root of the file system; an error names what the user said.
fn fid_inside(mount: &Mount, inside: RawPath, shown: &Path) -> Result<Fid, Failed> {
    const COMMAND: &str = "lfs path2fid";
    let reply =
        mountpoint::ask(mount, &Ask::Path2fid { path: inside }, COMMAND).map_err(|failed| {
            Failed { text: format!("{}: {}", failed.text, shown.display()), ..failed }
        })?;
    let fid = match reply {
        Reply::Lines(lines) => lines.first().and_then(|line| line.parse().ok()),
        _ => None,
    };
    fid.ok_or_else(|| Failed::of(Errno::EPROTO, COMMAND, &shown.display().to_string()))
}

/// A symbolic link's own mount is its directory's: following it may leave the file system.
fn parent_or_self(path: &Path) -> &Path {
    let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    match path.parent() {
        Some(parent) if is_link && parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) if is_link => parent,
        _ => path,
    }
}

pub(super) fn fid2path(args: &Fid2path) -> Result<(), Failed> {
    const COMMAND: &str = "lfs fid2path";
    let (mount, is_path) = mount_named(&args.fs, COMMAND)?;
    let mut first = First::default();
    let mut rows = Vec::new();
    for text in &args.fids {
        match paths_of(&mount, text, COMMAND) {
            Ok((fid, paths)) if args.form.is_data() => {
                let paths: Vec<String> = links(args, &paths)
                    .map(|(_, path)| shown(args.name, &mount, is_path, path))
                    .map(|path| String::from_utf8_lossy(&path).into_owned())
                    .collect();
                rows.push(json!({"fid": fid.to_string(), "paths": paths}));
            }
            Ok((fid, paths)) => crate::out::bytes(&render(args, &mount, is_path, fid, &paths)),
            Err(failed) => first.note(&failed),
        }
    }
    if args.form.is_data() {
        args.form.print(&rows, String::new);
    }
    first.end()
}

/// The links that were asked for, with their numbers.
fn links<'p>(args: &Fid2path, paths: &'p [Vec<u8>]) -> impl Iterator<Item = (usize, &'p Vec<u8>)> {
    let only = args.link;
    paths.iter().enumerate().filter(move |(number, _)| only.is_none_or(|link| link == *number))
}

/// By name of the file system, else by path; says which it was.
fn mount_named(fs: &str, command: &str) -> Result<(Mount, bool), Failed> {
    let mounts =
        mountpoint::all().map_err(|error| Failed::io(&error, command, "/proc/self/mountinfo"))?;
    let is_alive = |mount: &Mount| rundir::of_device(mount.device).is_some();
    match of_name(mounts, fs, is_alive, command)? {
        Some(mount) => Ok((mount, false)),
        None if !Path::new(fs).exists() => {
            let text = format!(
                "{command}: no file system or path '{fs}' is here; nacre status lists the mounts"
            );
            Err(Failed::new(Errno::ENOENT.raw(), text))
        }
        None => mountpoint::of(Path::new(fs), command).map(|mount| (mount, true)),
    }
}

/// A mount of the file system called `fs`, whose daemon answers if there is one. Where two file
/// systems have that name, only a path says which is meant.
pub(super) fn of_name(
    mounts: Vec<Mount>,
    fs: &str,
    is_alive: impl Fn(&Mount) -> bool,
    command: &str,
) -> Result<Option<Mount>, Failed> {
    let named: Vec<Mount> = mounts.into_iter().filter(|mount| mount.fsname() == fs).collect();
    let Some(first) = named.first() else { return Ok(None) };
    if named.iter().any(|mount| mount.source != first.source) {
        let dirs: Vec<String> = named.iter().map(|mount| mountpoint::show(&mount.dir)).collect();
        let text = format!("several file systems are called {fs}: say one of {}", dirs.join(", "));
        return Err(Failed::of(Errno::EINVAL, command, &text));
    }
    Ok(named.iter().find(|mount| is_alive(mount)).or(named.first()).cloned())
}

/// The paths in an answer, if it has some.
fn paths_in(reply: Reply) -> Option<Vec<Vec<u8>>> {
    match reply {
        Reply::Lines(lines) => Some(lines.into_iter().map(String::into_bytes).collect()),
        Reply::Paths(paths) => Some(paths.into_iter().map(|RawPath(path)| path).collect()),
        _ => None,
    }
}

fn paths_of(mount: &Mount, text: &str, command: &str) -> Result<(Fid, Vec<Vec<u8>>), Failed> {
    let fid: Fid = text
        .parse()
        .map_err(|error| Failed::new(Errno::EINVAL.raw(), format!("{command}: {error}")))?;
    match mountpoint::ask(mount, &Ask::Fid2path { fid: fid.to_string() }, command) {
        Ok(reply) => paths_in(reply)
            .map(|paths| (fid, paths))
            .ok_or_else(|| Failed::of(Errno::EPROTO, command, text)),
        Err(failed) if i32::from(failed.status) == Errno::ENOENT.raw() => {
            let fsname = mount.fsname();
            let reason = format!("no file of {fsname} has this FID: lfs path2fid prints a file's");
            Err(Failed { text: format!("{command}: {text}: {reason}"), ..failed })
        }
        Err(failed) => Err(Failed { text: format!("{}: {text}", failed.text), ..failed }),
    }
}

fn render(args: &Fid2path, mount: &Mount, is_path: bool, fid: Fid, paths: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, path) in links(args, paths) {
        if args.print_fid {
            out.extend(format!("{fid} ").bytes());
        }
        if args.print_link {
            out.extend(format!("{number} ").bytes());
        }
        out.extend(shown(args.name, mount, is_path, path));
        out.push(if args.print0 { 0 } else { b'\n' });
    }
    out
}

/// A path as it is: a name need not be UTF-8.
fn shown(name_only: bool, mount: &Mount, is_path: bool, path: &[u8]) -> Vec<u8> {
    let inner = Path::new(OsStr::from_bytes(path));
    let inner = inner.strip_prefix("/").unwrap_or(inner);
    let shown = match (name_only, is_path) {
        (true, _) => inner.file_name().map(PathBuf::from).unwrap_or_default(),
        (_, true) if inner.as_os_str().is_empty() => mount.dir.clone(),
        (_, true) => mount.dir.join(inner),
        (_, false) if inner.as_os_str().is_empty() => PathBuf::from("/"),
        (_, false) => inner.to_owned(),
    };
    shown.into_os_string().into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_the_one_file_system_that_has_it() {
        let mount = |dir: &str, source: &str| Mount {
            dir: dir.into(),
            device: (0, 40),
            source: source.into(),
            options: Vec::new(),
        };
        let (one, other) = ("127.0.0.2@tcp:/testfs", "127.0.1.2@tcp:/testfs");
        let of = |mounts: &[(&str, &str)]| {
            let mounts = mounts.iter().map(|(dir, source)| mount(dir, source)).collect();
            let lives = |mount: &Mount| mount.dir != Path::new("/dead");
            of_name(mounts, "testfs", lives, "lfs fid2path")
                .map(|mount| mount.map(|mount| mountpoint::show(&mount.dir)))
        };
        assert_eq!(of(&[]).ok(), Some(None));
        assert_eq!(of(&[("/a", "127.0.0.2@tcp:/other")]).ok(), Some(None));
        assert_eq!(of(&[("/dead", one), ("/b", one)]).ok(), Some(Some("/b".into())));
        assert_eq!(of(&[("/dead", one)]).ok(), Some(Some("/dead".into())));
        let refused = of(&[("/a", one), ("/b", other)]).expect_err("which one?");
        assert!(refused.text.contains("say one of /a, /b"), "{}", refused.text);
    }

    #[test]
    fn paths_are_absolute_when_a_mount_point_was_given() {
        let mount = Mount {
            dir: "/mnt/testfs".into(),
            device: (0, 40),
            source: "x@tcp:/testfs".into(),
            options: Vec::new(),
        };
        let shown = |name, is_path, path: &[u8]| shown(name, &mount, is_path, path);
        let text = |name, is_path, path: &str| {
            String::from_utf8(shown(name, is_path, path.as_bytes())).expect("text")
        };
        assert_eq!(text(false, true, "/a/b"), "/mnt/testfs/a/b");
        assert_eq!(text(false, true, "/"), "/mnt/testfs");
        assert_eq!(text(false, false, "/a/b"), "a/b");
        assert_eq!(text(true, true, "/a/b"), "b");
        assert_eq!((text(true, true, "/"), text(false, false, "/")), (String::new(), "/".into()));
        assert_eq!(shown(false, true, b"/caf\xe9/b"), b"/mnt/testfs/caf\xe9/b");
    }
}

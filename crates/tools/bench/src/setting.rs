//! The setting of a measurement, as reported by the daemons of this machine and not by the user.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ctl::ask::ask;
use ctl::{Ask, Reply, Who};
use ctl::{mounts, rundir};
use types::NidAddr;

/// Why no ratio is printed.
pub(crate) const REFUSAL: &str = "client and servers are one process here (`nacre up` without \
    --separate): a ratio would say nothing about them. Start the file system with --separate";

/// What is known of what is measured.
pub(crate) struct Setting {
    pub(crate) lines: Vec<String>,
    /// Servers live in the client's process, or in this one.
    pub(crate) in_process: bool,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines.join("\n"))
    }
}

/// What a benchmark is about to measure.
pub(crate) struct Subject<'a> {
    /// `NID:/fsname` and how many clients, where no mount stands between.
    pub(crate) native: Option<(&'a str, u32)>,
    /// Directory on the mount.
    pub(crate) dir: &'a Path,
    /// Directory that is compared with.
    pub(crate) against: Option<&'a Path>,
    /// The kernel's caches are dropped before what is there is looked at.
    pub(crate) drop_caches: bool,
}

/// Of the file system under test, and of what it is compared with.
pub(crate) fn of(subject: &Subject<'_>) -> Result<Setting> {
    let mut setting = Setting { lines: Vec::new(), in_process: false };
    match subject.native {
        Some((address, clients)) => {
            let (nids, fsname) = address.split_once(":/").context("NID:/fsname")?;
            setting
                .lines
                .push(format!("client: native library, {clients} client(s) in this process"));
            setting.servers(nids, fsname, std::process::id());
        }
        None => setting.path("path", subject.dir)?,
    }
    if let Some(dir) = subject.against {
        setting.path("against", dir)?;
    }
    let caches =
        if subject.drop_caches { "kernel's dropped before reading" } else { "as they are" };
    setting.lines.push(format!("caches: {caches}"));
    Ok(setting)
}

impl Setting {
    /// On one line.
    pub(crate) fn line(&self) -> String {
        self.lines.join("; ")
    }

    fn path(&mut self, what: &str, dir: &Path) -> Result<()> {
        let missing = || format!("{}: name a directory that is there", dir.display());
        let dir = dir.canonicalize().with_context(missing)?;
        let (kind, source) = file_system(&dir)?;
        self.lines.push(format!("{what}: {} on {kind} ({source})", dir.display()));
        let Some(mount) = mounts::all()?
            .into_iter()
            .filter(|mount| dir.starts_with(&mount.dir))
            .max_by_key(|m| m.dir.clone())
        else {
            return Ok(());
        };
        let Some(socket) = rundir::of_device(mount.device) else {
            self.lines.push("client: FUSE, of another NACRE_RUN".to_owned());
            return Ok(());
        };
        let client = who(&socket);
        for value in get(&socket, "llite.*.transport") {
            self.lines.push(format!("client: FUSE, transport {value}"));
        }
        let (nids, fsname) = mount.source.rsplit_once(":/").context("a mount's source")?;
        self.servers(nids, fsname, client.map_or(0, |who| who.pid));
        Ok(())
    }

    /// Servers of the file system that live on this machine: those in the block of addresses of its
    /// MGS.
    fn servers(&mut self, nids: &str, fsname: &str, client: u32) {
        let block = nids
            .split(',')
            .filter_map(|nid| nid.parse::<NidAddr>().ok())
            .map(|nid| block_of(&nid.to_string()))
            .next();
        let mut found = 0;
        for socket in rundir::daemons() {
            let Some(server) = who(&socket).filter(|who| who.kind == "server") else { continue };
            let ours = nids_of(&socket).iter().any(|nid| Some(block_of(nid)) == block);
            if !ours || (server.fsname != fsname && !server.fsname.is_empty()) {
                continue;
            }
            found += 1;
            self.in_process |= server.pid == client;
            for name in server.targets {
                let param =
                    |leaf: &str| get(&socket, &format!("*.{name}.{leaf}")).into_iter().next();
                let dir = param("mntdev").map(PathBuf::from);
                let kind = dir.as_deref().and_then(|dir| file_system(dir).ok());
                let (kind, source) = kind.unwrap_or_else(|| ("?".to_owned(), "?".to_owned()));
                let interval = param("commit_interval_ms")
                    .map_or_else(String::new, |ms| format!(", commit interval {ms} ms"));
                let grants =
                    param("grants").map_or_else(String::new, |grants| format!(", grants={grants}"));
                self.lines.push(format!(
                    "server: {name} on {kind} ({source}){interval}{grants}, process {}",
                    server.pid
                ));
            }
        }
        if found == 0 {
            self.lines.push("servers: none of them on this machine".to_owned());
        }
    }
}

/// Writes back what is dirty, so that no phase pays for the one before it, and drops the kernel's
/// caches if asked.
pub(crate) fn settle_caches(drop: bool) -> Result<()> {
    rustix::fs::sync();
    if drop {
        std::fs::write("/proc/sys/vm/drop_caches", "3")
            .context("dropping the kernel's caches needs root")?;
    }
    Ok(())
}

/// Directory of a file that may not be there yet.
pub(crate) fn directory(file: &Path) -> Result<PathBuf> {
    let whole = std::path::absolute(file)?;
    Ok(whole.parent().context("a file has a directory")?.to_path_buf())
}

/// Type and source of the mount that a path lies on.
fn file_system(path: &Path) -> Result<(String, String)> {
    let table = std::fs::read_to_string("/proc/self/mounts")?;
    let path = path.canonicalize()?;
    let best = table.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (source, dir, kind) = (words.next()?, words.next()?, words.next()?);
        path.starts_with(dir).then(|| (dir.len(), kind.to_owned(), source.to_owned()))
    });
    // Of mounts at the same place the last one is on top.
    let (_, kind, source) =
        best.max_by_key(|(len, _, _)| *len).context("everything lies on a mount")?;
    Ok((kind, source))
}

/// The first three numbers of an IPv4 address.
fn block_of(nid: &str) -> String {
    let addr = nid.split(['@', ':']).next().unwrap_or_default();
    addr.rsplit_once('.').map_or(addr, |(block, _)| block).to_owned()
}

fn who(socket: &Path) -> Option<Who> {
    match ask(socket, &Ask::Who) {
        Ok(Reply::Who(who)) => Some(who),
        _ => None,
    }
}

fn nids_of(socket: &Path) -> Vec<String> {
    match ask(socket, &Ask::Nids) {
        Ok(Reply::Lines(lines)) => lines,
        _ => Vec::new(),
    }
}

fn get(socket: &Path, pattern: &str) -> Vec<String> {
    match ask(socket, &Ask::Get { pattern: pattern.to_owned(), recursive: false }) {
        Ok(Reply::Values(values)) => values.into_iter().map(|value| value.value).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_below_a_path_is_found() {
        let (kind, _) = file_system(Path::new("/proc/self")).expect("proc is mounted");
        assert_eq!(kind, "proc");
        assert_eq!(
            directory(Path::new("/proc/not-there")).expect("its directory is"),
            Path::new("/proc")
        );
    }

    #[test]
    fn servers_of_one_up_share_a_block() {
        assert_eq!(block_of("127.0.2.3@tcp"), block_of("127.0.2.2:1988@tcp"));
        assert_ne!(block_of("127.0.2.3@tcp"), block_of("127.0.3.3@tcp"));
    }
}

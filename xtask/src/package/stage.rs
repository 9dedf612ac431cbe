//! The directory that becomes a package.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Libc, VERSION, printed};
use crate::run::{root, run};

/// Names of the tools that the binary is, and the places that they lead to.
pub(super) const LINKS: &[(&str, &str)] = &[
    ("usr/bin/lfs", "nacre"),
    ("usr/bin/lctl", "nacre"),
    ("usr/bin/lst", "nacre"),
    ("usr/sbin/mkfs.nacre", "../bin/nacre"),
    ("usr/sbin/mount.nacre", "../bin/nacre"),
    ("usr/sbin/mount.fuse.nacre", "../bin/nacre"),
    ("usr/sbin/umount.nacre", "../bin/nacre"),
    ("usr/sbin/umount.fuse.nacre", "../bin/nacre"),
];

/// Tools with completions, as `nacre completion --for` knows them.
const TOOLS: [&str; 4] = ["nacre", "lfs", "lctl", "lst"];

/// Shells with completions: the directory, and the name of a tool's file before and behind it.
const SHELLS: [(&str, &str, &str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions", "", ""),
    ("zsh", "usr/share/zsh/vendor-completions", "_", ""),
    ("fish", "usr/share/fish/vendor_completions.d", "", ".fish"),
];

/// Makes `tree` with everything that is installed.
pub(super) fn stage(binary: &Path, tree: &Path) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree)?;
    }
    let target = tree.join("usr/bin/nacre");
    copy(binary, &target, 0o755)?;
    strip(&target);
    for (link, to) in LINKS {
        let link = tree.join(link);
        make_parent(&link)?;
        symlink(to, &link).with_context(|| link.display().to_string())?;
    }
    pages(binary, tree)?;
    for (shell, dir, before, behind) in SHELLS {
        for tool in TOOLS {
            let text = printed(Command::new(binary).args(["completion", shell, "--for", tool]))?;
            write(&tree.join(dir).join(format!("{before}{tool}{behind}")), &text)?;
        }
    }
    let doc = tree.join("usr/share/doc/nacre");
    let files = [
        ("packaging/systemd/nacre@.service", tree.join("usr/lib/systemd/system/nacre@.service")),
        ("packaging/systemd/mnt-nacre.mount", doc.join("examples/mnt-nacre.mount")),
        ("docs/monitoring/prometheus.yml", doc.join("examples/prometheus.yml")),
        ("docs/monitoring/alerts.yml", doc.join("examples/alerts.yml")),
        ("docs/monitoring/grafana.json", doc.join("examples/grafana.json")),
        ("LICENSE", doc.join("copyright")),
    ];
    for (from, to) in files {
        copy(&root().join(from), &to, 0o644)?;
    }
    documents(&root().join("docs"), &doc)?;
    let etc = tree.join("etc/nacre");
    fs::create_dir_all(&etc)?;
    fs::set_permissions(&etc, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// The documents with their directories, so that their links to each other lead somewhere.
fn documents(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let at = to.join(path.file_name().context("a name")?);
        if path.is_dir() {
            documents(&path, &at)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            copy(&path, &at, 0o644)?;
        }
    }
    Ok(())
}

/// Manual pages by their section, compressed.
fn pages(binary: &Path, tree: &Path) -> Result<()> {
    let all = tree.join("pages");
    printed(Command::new(binary).arg("man").arg(&all))?;
    for entry in fs::read_dir(&all)? {
        let path = entry?.path();
        let section = path.extension().context("a section")?.to_string_lossy().into_owned();
        let name = path.file_name().context("a name")?.to_owned();
        let to = tree.join(format!("usr/share/man/man{section}")).join(name);
        copy(&path, &to, 0o644)?;
    }
    fs::remove_dir_all(&all)?;
    run("gzip", &["-9nr", &tree.join("usr/share/man").display().to_string()], &[])
}

/// What `dpkg-deb` reads of `tree`.
pub(super) fn control(tree: &Path, arch: &str, libc: &Libc) -> Result<()> {
    let depends = match libc {
        Libc::Static => String::new(),
        Libc::Glibc(version) => format!("Depends: libc6 (>= {version})\n"),
    };
    let text = format!(
        "Package: nacre\nVersion: {VERSION}\nArchitecture: {arch}\nSection: admin\n\
         Priority: optional\nMaintainer: Nacre developers <developers@nacre.example>\n{depends}\
         Recommends: fuse3\nDescription: parallel file system in user space\n \
         Servers, FUSE client, tools and benchmarks in one binary. Names, commands\n \
         and formats are those of Lustre.\n"
    );
    write(&tree.join("DEBIAN/control"), &text)
}

/// Lets every user enter the directories, whatever the umask was when they were made.
pub(super) fn open_directories(dir: &Path) -> Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_directories(&entry.path())?;
        }
    }
    Ok(())
}

/// What the archive has: files, links and empty directories. With other directories in it, `tar`
/// would set owner and mode of `/` and `/usr` where it is unpacked.
pub(super) fn members(tree: &Path) -> Result<Vec<String>> {
    let (mut members, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(dir) = open.pop() {
        let mut is_empty = true;
        for entry in fs::read_dir(tree.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            let below = if entry.file_type()?.is_dir() { &mut open } else { &mut members };
            below.push(path);
            is_empty = false;
        }
        if is_empty {
            members.push(dir);
        }
    }
    members.sort();
    Ok(members.iter().map(|path| path.display().to_string()).collect())
}

/// Without symbols, where there is a `strip`.
fn strip(binary: &Path) {
    let stripped = Command::new("strip").arg("--strip-unneeded").arg(binary).status();
    if !stripped.is_ok_and(|status| status.success()) {
        eprintln!("the binary keeps its symbols: there is no strip");
    }
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a path below the tree")?;
    fs::create_dir_all(parent).with_context(|| parent.display().to_string())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    make_parent(path)?;
    fs::write(path, text).with_context(|| path.display().to_string())?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o644))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_changes_no_directory_where_it_is_unpacked() {
        let tree = std::env::temp_dir().join(format!("nacre-stage-{}", std::process::id()));
        write(&tree.join("usr/share/doc/a.md"), "text").expect("written");
        fs::create_dir_all(tree.join("etc/nacre")).expect("made");
        symlink("share", tree.join("usr/link")).expect("linked");
        assert_eq!(members(&tree).expect("read"), ["etc/nacre", "usr/link", "usr/share/doc/a.md"]);

        let mode =
            |path: &str| fs::metadata(tree.join(path)).expect("there").permissions().mode() & 0o777;
        for dir in ["usr/share/doc", "usr/share", "usr"] {
            let closed = fs::Permissions::from_mode(0o700);
            fs::set_permissions(tree.join(dir), closed).expect("ours");
        }
        open_directories(&tree).expect("ours");
        assert_eq!(["", "usr", "usr/share/doc", "etc/nacre"].map(mode), [0o755; 4]);
        assert_eq!(mode("usr/share/doc/a.md"), 0o644);
        fs::remove_dir_all(&tree).expect("cleaned up");
    }
}

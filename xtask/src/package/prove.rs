//! A stage of the check: packs the release binary, unpacks the `.deb` into a scratch root, and uses
//! what is there.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Built, VERSION, libc_of, pack, printed, stage};
use crate::needs::has_program;
use crate::run::root;

/// The binary that the stage `build` made.
const BINARY: &str = "target/release/nacre";

/// Compression that costs a second where the default costs ten.
const QUICK: &[&str] = &["-Zgzip", "-z1"];

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("xtask: {}: {error}", self.0.display());
        }
    }
}

/// Installs the package without a root's rights and tries it.
pub(crate) fn prove() -> Result<()> {
    if !has_program("dpkg-deb") {
        eprintln!("no package is made: this machine has no dpkg-deb");
        return Ok(());
    }
    let scratch = Scratch(std::env::temp_dir().join(format!("nacre-deb-{}", std::process::id())));
    let path = root().join(BINARY);
    let built = Built { libc: libc_of(&path)?, path };
    let package = pack(&built, &scratch.0, QUICK)?;
    let installed = scratch.0.join("root");
    printed(Command::new("dpkg").arg("-x").arg(&package.deb).arg(&installed))?;
    tools(&installed)?;
    pages(&installed)?;
    units(&installed)
}

/// Each link is its tool.
fn tools(installed: &Path) -> Result<()> {
    let binary = installed.join("usr/bin/nacre");
    let version = printed(Command::new(&binary).arg("--version"))?;
    ensure!(version.contains(VERSION), "nacre --version: {version}");
    for (link, _) in stage::LINKS {
        let path = installed.join(link);
        let name = path.file_name().context("a name")?.to_owned();
        let help = printed(Command::new(&path).arg0(&name).arg("--help"))?;
        let is_tool = help.contains("Usage: nacre ") && !help.contains("Usage: nacre <");
        ensure!(is_tool, "{} --help: {help}", name.display());
    }
    for tool in ["lfs", "lctl", "lst"] {
        let version = printed(Command::new(installed.join("usr/bin").join(tool)).arg("--version"))?;
        ensure!(version.contains(VERSION), "{tool} --version: {version}");
    }
    Ok(())
}

/// Manual pages are formatted without a warning.
fn pages(installed: &Path) -> Result<()> {
    let man = installed.join("usr/share/man");
    let mut all: Vec<PathBuf> = Vec::new();
    for section in ["man1", "man8"] {
        for entry in fs::read_dir(man.join(section)).with_context(|| section.to_owned())? {
            all.push(entry?.path());
        }
    }
    for page in ["man1/nacre-up.1.gz", "man1/lfs-setstripe.1.gz", "man8/mount.nacre.8.gz"] {
        ensure!(all.contains(&man.join(page)), "{page} is not in the package");
    }
    if !has_program("groff") || !has_program("zcat") {
        eprintln!("manual pages are not formatted: this machine has no groff");
        return Ok(());
    }
    let line = format!("zcat '{}'/man?/*.gz | groff -man -Tutf8 -ww -z 2>&1", man.display());
    let said = printed(Command::new("sh").args(["-c", &line]))?;
    ensure!(said.trim().is_empty(), "manual pages: {said}");
    Ok(())
}

/// systemd understands the units. The service's binary is the installed one here.
fn units(installed: &Path) -> Result<()> {
    let service = installed.join("usr/lib/systemd/system/nacre@.service");
    let mount = installed.join("usr/share/doc/nacre/examples/mnt-nacre.mount");
    if !has_program("systemd-analyze") {
        eprintln!("units are not verified: this machine has no systemd-analyze");
        return Ok(());
    }
    let text = fs::read_to_string(&service)?;
    let binary = installed.join("usr/bin/nacre").display().to_string();
    let here = installed.join("nacre@ost0.service");
    fs::write(&here, text.replace("/usr/bin/nacre", &binary))?;
    for unit in [&here, &mount] {
        let line = format!("systemd-analyze verify --man=no '{}' 2>&1", unit.display());
        let said = printed(Command::new("sh").args(["-c", &line]))?;
        let name = unit.file_name().context("a name")?.to_string_lossy().into_owned();
        let ours: Vec<&str> = said.lines().filter(|line| line.contains(&name)).collect();
        ensure!(ours.is_empty(), "{}", ours.join("\n"));
    }
    Ok(())
}

//! `cargo xtask package`: a portable binary, an archive and a Debian package, in `target/package`.
//!
//! The binary is static if rustup has a musl target for this machine. Otherwise it needs the C
//! library of the machine that builds it, or a later one: build it on the oldest system that shall
//! run it. The command prints which of the two it made. The Debian package is made by `dpkg-deb`
//! from a directory that the archive has too.

mod prove;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{output, root, run};

pub(crate) use prove::prove;

pub(crate) const USAGE: &str = "\
cargo xtask package [--binary FILE] [--out DIR]

Builds the release and packs it: a .deb, a .tar.gz and the binary, in target/package.
  --binary FILE  pack this binary, and build nothing
  --out DIR      put the files there
";

/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How a binary finds its C library.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Libc {
    /// It is in the binary (musl).
    Static,
    /// This glibc, or a later one.
    Glibc(String),
}

/// A binary to pack.
struct Built {
    path: PathBuf,
    libc: Libc,
}

/// The files of a package.
pub(crate) struct Package {
    pub(crate) deb: PathBuf,
    archive: PathBuf,
    binary: PathBuf,
}

/// `cargo xtask package`.
pub(crate) fn package(args: &[String]) -> Result<()> {
    let (mut binary, mut out) = (None, root().join("target/package"));
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let value = || format!("{word} needs a value\n\n{USAGE}");
        match word.as_str() {
            "--binary" => binary = Some(PathBuf::from(words.next().with_context(value)?)),
            "--out" => out = PathBuf::from(words.next().with_context(value)?),
            other => bail!("'{other}' is not understood\n\n{USAGE}"),
        }
    }
    let built = match binary {
        Some(path) => Built { libc: libc_of(&path)?, path },
        None => build()?,
    };
    let made = pack(&built, &out, &[])?;
    match &built.libc {
        Libc::Static => println!("the binary is static (musl): it runs on every Linux"),
        Libc::Glibc(version) => {
            println!("the binary needs glibc {version} or later: it was built for a glibc system");
        }
    }
    for path in [&made.deb, &made.archive, &made.binary] {
        println!("{}", path.display());
    }
    Ok(())
}

/// The release, static where that is possible.
fn build() -> Result<Built> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let sysroot = output("rustc", &["--print", "sysroot"])?;
    let has_musl = Path::new(sysroot.trim()).join("lib/rustlib").join(&target).is_dir();
    let path = if has_musl {
        run("cargo", &["build", "--release", "--locked", "-p", "nacre", "--target", &target], &[])?;
        root().join("target").join(target).join("release/nacre")
    } else {
        run("cargo", &["build", "--release", "--locked", "-p", "nacre"], &[])?;
        root().join("target/release/nacre")
    };
    Ok(Built { libc: libc_of(&path)?, path })
}

/// Reads it from the names of versions that a dynamic binary requires.
fn libc_of(path: &Path) -> Result<Libc> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(highest_glibc(&bytes).map_or(Libc::Static, Libc::Glibc))
}

fn highest_glibc(bytes: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"GLIBC_2.";
    let minor = |at: usize| {
        let digits =
            bytes[at + NAME.len()..].iter().take(4).take_while(|byte| byte.is_ascii_digit());
        let digits: String = digits.map(|byte| char::from(*byte)).collect();
        digits.parse::<u32>().ok()
    };
    let places = bytes.windows(NAME.len()).enumerate().filter(|(_, window)| *window == NAME);
    places.filter_map(|(at, _)| minor(at)).max().map(|minor| format!("2.{minor}"))
}

/// Makes the files in `out`; `compression` is for `dpkg-deb`.
fn pack(built: &Built, out: &Path, compression: &[&str]) -> Result<Package> {
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let arch = debian_arch()?;
    let tree = out.join("tree");
    stage::stage(&built.path, &tree)?;
    stage::open_directories(&tree)?;
    let archive = out.join(format!("nacre-{VERSION}-{arch}.tar.gz"));
    let (from, to) = (tree.display().to_string(), archive.display().to_string());
    let list = out.join("members");
    fs::write(&list, stage::members(&tree)?.join("\n"))?;
    let members = list.display().to_string();
    let words: &[&str] =
        &["-C", &from, "--no-recursion", "--owner=0", "--group=0", "-czf", &to, "-T", &members];
    run("tar", words, &[])?;
    fs::remove_file(&list)?;
    stage::control(&tree, &arch, &built.libc)?;
    stage::open_directories(&tree)?;
    let deb = out.join(format!("nacre_{VERSION}_{arch}.deb"));
    let to = deb.display().to_string();
    let args = [compression, &["--build", "--root-owner-group", &from, &to]].concat();
    run("dpkg-deb", &args, &[])?;
    let binary = out.join("nacre");
    fs::copy(&built.path, &binary).with_context(|| binary.display().to_string())?;
    fs::remove_dir_all(&tree)?;
    Ok(Package { deb, archive, binary })
}

fn debian_arch() -> Result<String> {
    Ok(match std::env::consts::ARCH {
        "x86_64" => "amd64".to_owned(),
        "aarch64" => "arm64".to_owned(),
        _ => output("dpkg", &["--print-architecture"])?.trim().to_owned(),
    })
}

/// What a program prints to stdout.
fn printed(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| shown.clone())?;
    if !output.status.success() {
        bail!("{shown}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_glibc_of_a_binary_is_found() {
        let bytes = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.17\0GLIBC_PRIVATE\0";
        assert_eq!(highest_glibc(bytes).as_deref(), Some("2.34"));
        assert_eq!(highest_glibc(b"nothing"), None);
    }

    #[test]
    fn the_container_has_the_links_of_the_package() {
        let text = fs::read_to_string(root().join("packaging/Containerfile")).expect("read");
        for (link, to) in stage::LINKS {
            assert!(text.contains(&format!("ln -s {to} /{link}")), "{link}");
        }
    }

    #[test]
    fn a_container_is_not_built_from_what_git_ignores() {
        let read = |name: &str| fs::read_to_string(root().join(name)).expect("read");
        let (ignored, left_out) = (read(".gitignore"), read(".dockerignore"));
        let folders: Vec<&str> =
            ignored.lines().filter_map(|line| line.strip_prefix('/')).collect();
        assert!(folders.contains(&"target"), "{folders:?}");
        for folder in folders.into_iter().chain([".git"]) {
            assert!(left_out.lines().any(|line| line == folder), "{folder}");
        }
    }

    /// systemd makes slashes of the dashes in `%I`, as in the names of targets.
    #[test]
    fn the_unit_takes_the_name_of_its_directory_as_it_is() {
        let unit = include_str!("../../packaging/systemd/nacre@.service");
        let said: Vec<&str> = unit.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(!said.iter().any(|line| line.contains("%I")), "{unit}");
        let serves = "ExecStart=/usr/bin/nacre serve /srv/nacre/%i $NACRE_SERVE";
        for line in [serves, "AssertPathIsDirectory=/srv/nacre/%i", "Type=notify"] {
            assert!(said.contains(&line), "{unit}");
        }
    }
}

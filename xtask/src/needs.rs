//! The check's requirements on a machine. They are checked before anything else, and installed if
//! possible.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::run;

/// Programs that the tests run, and the package of Debian that has each.
const PROGRAMS: &[(&str, &str)] = &[
    ("gcc", "gcc"),
    ("bash", "bash"),
    ("curl", "curl"),
    ("gzip", "gzip"),
    ("tar", "tar"),
    ("diff", "diffutils"),
    ("find", "findutils"),
    ("git", "git"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("rsync", "rsync"),
    ("sqlite3", "sqlite3"),
    ("getfattr", "attr"),
    ("setfattr", "attr"),
    ("mkfs.ext4", "e2fsprogs"),
    ("fusermount3", "fuse3"),
    ("mount", "mount"),
    ("losetup", "mount"),
    ("unshare", "util-linux"),
    ("findmnt", "util-linux"),
    ("setpriv", "util-linux"),
    ("flock", "util-linux"),
    ("setsid", "util-linux"),
    ("pgrep", "procps"),
];

/// Programs of checks that are left out on a machine without them.
const WISHED: &[(&str, &str)] = &[
    ("dpkg-deb", "dpkg"),
    ("groff", "groff-base"),
    ("zcat", "gzip"),
    ("systemd-analyze", "systemd"),
    ("promtool", "prometheus"),
];

/// A package that starts a server where systemd runs: it is not installed there.
const SERVER: &str = "prometheus";

/// Files that come with a package that has no program; `ARCH` is this machine's architecture.
const FILES: &[(&str, &str)] = &[
    ("/usr/include/stdio.h", "libc6-dev"),
    ("/etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
    ("/usr/lib/ARCH-linux-gnu/faketime/libfaketimeMT.so.1", "libfaketime"),
];

/// Binaries of crates, in `target/tools/bin`.
const CRATES: &[(&str, &str)] = &[("fsx", "0.3.2")];

const URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Printed where [`has_uring`] is false.
pub(crate) const NO_URING: &str = "this kernel has no FUSE over io_uring (Linux 6.14 and later, \
    CONFIG_FUSE_IO_URING): mounts are tested over the classic transport alone";

/// Whether this kernel has FUSE over io_uring: then the tests must use it.
pub(crate) fn has_uring() -> bool {
    Path::new(URING).exists()
}

/// The stages that need something.
pub(crate) const ALL: &[&str] = &["fmt", "clippy", "tidy", "test", "package", "mounted"];

/// Looks for everything that the named stages need; installs what is missing, or fails with all of
/// it.
pub(crate) fn provide(stages: &[&str], install: bool) -> Result<()> {
    let mut missing = Vec::new();
    if stages.contains(&"fmt") {
        component("rustfmt", "fmt", install, &mut missing);
    }
    if stages.contains(&"clippy") {
        component("clippy", "clippy", install, &mut missing);
    }
    if stages.contains(&"test") || stages.contains(&"mounted") {
        kernel(&mut missing);
        packages(install, &mut missing)?;
        crates(install, &mut missing)?;
    }
    if stages.contains(&"tidy") || stages.contains(&"package") {
        wishes(install);
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("the check needs more than this machine has:\n  {}", missing.join("\n  "))
}

fn quiet(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn component(name: &str, command: &str, install: bool, missing: &mut Vec<String>) {
    let there = || quiet("cargo", &[command, "--version"]);
    if there() || (install && quiet("rustup", &["component", "add", name]) && there()) {
        return;
    }
    missing.push(format!("{name}: rustup component add {name}"));
}

/// Is `program` in a directory of `PATH`, or where Debian keeps root's?
pub(crate) fn has_program(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(Into::into))
        .any(|dir| dir.join(program).is_file())
}

/// The path on this machine. Debian names its directories of libraries as Rust names architectures.
fn here(file: &str) -> String {
    file.replace("ARCH", std::env::consts::ARCH)
}

const INSTALL: [&str; 4] = ["install", "-y", "-q", "--no-install-recommends"];

fn apt(args: &[&str]) -> Result<()> {
    run::run("apt-get", args, &[("DEBIAN_FRONTEND", "noninteractive")])
}

/// Installs what [`WISHED`] names, one by one. A package that cannot be installed costs its check
/// and a line.
fn wishes(install: bool) {
    let missing = || WISHED.iter().filter(|(program, _)| !has_program(program));
    let can_install = install && is_root() && has_program("apt-get");
    let has_systemd = Path::new("/run/systemd/system").exists();
    let is_installed = |package: &str| can_install && !(has_systemd && package == SERVER);
    if missing().any(|(_, package)| is_installed(package)) {
        report(apt(&["update", "-q"]));
    }
    for (program, package) in missing() {
        if is_installed(package) {
            report(apt(&[&INSTALL[..], &[*package]].concat()));
        }
        if !has_program(program) {
            eprintln!("a check is left out without {program}: apt-get install {package}");
        }
    }
}

fn report(outcome: Result<()>) {
    if let Err(error) = outcome {
        eprintln!("{error:#}");
    }
}

fn packages(install: bool, missing: &mut Vec<String>) -> Result<()> {
    let wanted = || {
        let programs = PROGRAMS.iter().filter(|(program, _)| !has_program(program));
        let files = FILES.iter().filter(|(file, _)| !Path::new(&here(file)).exists());
        let mut packages: Vec<_> = programs.chain(files).map(|(_, package)| *package).collect();
        packages.sort_unstable();
        packages.dedup();
        packages
    };
    let mut packages = wanted();
    if install && !packages.is_empty() && is_root() && has_program("apt-get") {
        eprintln!("installing Debian packages: {}", packages.join(" "));
        apt(&["update", "-q"])?;
        apt(&[&INSTALL[..], &packages].concat())?;
        packages = wanted();
    }
    if !packages.is_empty() {
        missing.push(format!("Debian packages: apt-get install {}", packages.join(" ")));
    }
    Ok(())
}

fn crates(install: bool, missing: &mut Vec<String>) -> Result<()> {
    for (name, version) in CRATES {
        if run::root().join("target/tools/bin").join(name).is_file() {
            continue;
        }
        let args = ["install", name, "--version", version, "--locked", "--root", "target/tools"];
        if install {
            run::run("cargo", &[&args[..], &["--quiet"]].concat(), &[])?;
        } else {
            missing.push(format!("{name}: cargo {}", args.join(" ")));
        }
    }
    Ok(())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What no package brings.
fn kernel(missing: &mut Vec<String>) {
    if !is_root() {
        missing.push("root: the tests mount, cut power and make namespaces".to_owned());
        return;
    }
    let is_device =
        |path: &str| std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_char_device());
    for (device, module) in [("/dev/fuse", "fuse"), ("/dev/loop-control", "loop")] {
        let there = is_device(device) || (quiet("modprobe", &[module]) && is_device(device));
        if !there {
            missing.push(format!("{device}: modprobe {module}, or give it to the container"));
        }
    }
    let namespaces = ["--net", "--mount", "--pid", "--fork", "--mount-proc", "true"];
    if !quiet("unshare", &namespaces) {
        missing.push("namespaces of network, mounts and processes: a privileged container".into());
    }
}

#[cfg(test)]
mod tests {
    use super::{PROGRAMS, WISHED, has_program, here};

    #[test]
    fn the_set_up_knows_the_programs_of_every_check() {
        let prove = include_str!("package/prove.rs").split("has_program(\"").skip(1);
        let asked = prove.filter_map(|rest| rest.split('"').next()).chain(["promtool"]);
        for program in asked {
            let is_known = PROGRAMS.iter().chain(WISHED).any(|(known, _)| *known == program);
            assert!(is_known, "{program}");
        }
    }

    #[test]
    fn programs_are_looked_for_in_the_path() {
        assert!(has_program("sh") && !has_program("no-such-program-anywhere"));
    }

    #[test]
    fn paths_name_the_architecture_of_the_machine() {
        let expected = format!("/usr/lib/{}-linux-gnu/a", std::env::consts::ARCH);
        assert_eq!(here("/usr/lib/ARCH-linux-gnu/a"), expected);
    }
}
